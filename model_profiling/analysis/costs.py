"""What would make a program smaller in memory, from what was measured and from its memory plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from model_profiling.core.formatting import listing, size
from model_profiling.program.graph_file import ProgramGraph
from model_profiling.program.memory_plan import LivePeak, heaviest_layers, planned_peak, workspace_peak
from model_profiling.program.records import Method
from model_profiling.runs.costs import ARENAS, PROGRAM, WORKSPACE, Memory

_WORTH = 0.05
"""The share of the peak that advice must be about."""


@dataclass(frozen=True)
class MemoryUse:
    """The memory of one series, and the program that it ran, if that is known. No slots, because its
    properties are cached."""

    memory: Memory
    graph: ProgramGraph | None
    method: str

    @property
    def _program(self) -> tuple[ProgramGraph, Method] | None:
        method = self.graph.program.method(self.method or "forward") if self.graph else None
        return (self.graph, method) if self.graph and method else None

    @cached_property
    def packing_layers(self) -> tuple[str, ...]:
        """The heaviest layer of each delegate that XNNPACK packed."""
        layers = heaviest_layers(*self._program) if self._program else ()
        return layers if len(layers) == len(self.memory.packed_bytes) else ()

    @cached_property
    def live(self) -> tuple[tuple[str, LivePeak], ...]:
        """What lives in planned memory and in XNNPACK's workspace at their peaks, by name of the part."""
        if self._program is None:
            return ()
        peaks = (ARENAS, planned_peak(*self._program)), (WORKSPACE, workspace_peak(*self._program))
        return tuple((what, peak) for what, peak in peaks if peak is not None and peak.tensors)

    @property
    def advice(self) -> tuple[str, ...]:
        return tuple(self._advice())

    def _advice(self) -> Iterator[str]:
        memory = self.memory
        worth = memory.peak_bytes * _WORTH
        if min(memory.of(PROGRAM), memory.packed) > worth:
            when = "until XNNPACK has packed the last delegate" if memory.while_loading else "all the time"
            yield (
                f"Weights are in memory twice {when}: {size(memory.packed)} packed beside "
                f"{size(memory.of(PROGRAM))} of the mapped file. The system can drop pages of a mapped file, "
                "not those of a data loader that copies it"
            )
        for what, peak in () if memory.while_loading else self.live:
            largest = peak.tensors[0]
            if min(largest.bytes, memory.of(what)) > worth and largest.layer:
                where = ", ".join(filter(None, (largest.layer, largest.line)))
                yield f"{size(largest.bytes)} of {what} are one tensor: {where}"
        methods = self.graph.program.methods if self.graph else ()
        arenas = {method.name: sum(method.arenas) for method in methods if sum(method.arenas) > worth}
        if len(arenas) > 1:
            saved = sum(arenas.values()) - max(arenas.values())
            yield (
                f"{listing(arenas)} plan memory of their own; an app that loads all of them saves "
                f"{size(saved)} if they share it: Module(..., share_memory_arenas=true)"
            )
