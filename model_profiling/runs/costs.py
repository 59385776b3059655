"""What a program costs until its first answer: the process's memory by what it is for, and the time of
loading by what it is spent on. The kit's runner measures both in every process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from model_profiling.runner.result import Costs
from model_profiling.runs.journal import Entry

What = Literal[
    "the runner's code and libraries",
    "the runner's own data",
    "the program, mapped",
    "planned arenas",
    "XNNPACK's packed weights",
    "the method's operators and values",
    "inputs",
    "XNNPACK's workspace",
    "threads and temporary memory",
    "not explained",
    "reading the file",
    "verifying the program",
    "delegates and operators",
    "XNNPACK packing weights",
]
PROGRAM: What = "the program, mapped"
ARENAS: What = "planned arenas"
PACKED: What = "XNNPACK's packed weights"
WORKSPACE: What = "XNNPACK's workspace"
_METHOD: What = "the method's operators and values"
_MEMORY: dict[str, What] = {
    "libraries": "the runner's code and libraries",
    "runner": "the runner's own data",
    "program": PROGRAM,
    "plan": ARENAS,
    "pack": PACKED,
    "read": _METHOD,
    "verify": _METHOD,
    "initialize": _METHOD,
    "inputs": "inputs",
    "set up": WORKSPACE,
    "execute": "threads and temporary memory",
}
"""Stages of the runner, in the order in which they are shown."""
_LOADING: dict[str, What] = {
    "read": "reading the file",
    "verify": "verifying the program",
    "plan": ARENAS,
    "initialize": "delegates and operators",
    "pack": "XNNPACK packing weights",
}
NoCold = Literal[
    "",
    "this run has no cold start: the system cannot be asked for one",
    "the system kept the program in its page cache",
]
_STILL_COLD = 0.05
"""The share of a program that may be in the page cache when it counts as read from the disk."""


@dataclass(frozen=True, slots=True)
class MemoryPart:
    what: What
    bytes: int


@dataclass(frozen=True, slots=True)
class TimePart:
    what: What
    ms: float


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of a process when it had most. The parts add up to the peak, but for rounding."""

    peak_bytes: int
    while_loading: bool
    """Whether the peak is before the first inference."""
    parts: tuple[MemoryPart, ...]

    @property
    def packed(self) -> int:
        return self.of(PACKED)

    @property
    def workspace(self) -> int:
        return self.of(WORKSPACE)

    def of(self, what: str) -> int:
        return sum(part.bytes for part in self.parts if part.what == what)


@dataclass(frozen=True, slots=True)
class WeightsCache:
    """What a file of XNNPACK's packed weights brings: loading with it, and the same loading without it."""

    load_ms: float
    without_ms: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Loading:
    """The time of loading; the parts add up to it."""

    load_ms: float
    parts: tuple[TimePart, ...]
    page_faults: int
    pages_from_disk: int
    """Page faults that had to wait for the disk."""
    first_set_up_ms: float = 0.0
    """XNNPACK's part in the first inference: planning and clearing its workspace."""
    first_page_faults: int = 0
    cold: Loading | None = None
    """With the program read from the disk."""
    no_cold: NoCold = ""
    """Why there is no cold start; empty if there is."""
    weights_cache: WeightsCache | None = None
    """None where ExecuTorch keeps no such file, or was not asked."""


def memory_of(entries: Sequence[Entry]) -> Memory | None:
    """Return the memory of the process that had most; None if the runner or the system does not say."""
    entry = max(entries, key=lambda one: one.peak_memory_bytes or 0, default=None)
    if entry is None or entry.costs is None or not entry.costs.memory_bytes or not entry.peak_memory_bytes:
        return None
    used = _by_words(entry.costs.memory_bytes, _MEMORY)
    parts = [MemoryPart(what, count) for what, count in used.items() if count > 0]
    rest = max(0, entry.peak_memory_bytes - sum(part.bytes for part in parts))
    while_loading = entry.costs.peak_stage not in ("set up", "execute")
    parts.append(MemoryPart("not explained", rest))
    return Memory(entry.peak_memory_bytes, while_loading, tuple(parts))


def loading_of(entries: Sequence[Entry], evidence: Entry | None) -> Loading | None:
    """Return the loading with the median time; `evidence` is the process that loaded from the disk."""
    timed = sorted(
        (entry for entry in entries if entry.load_ns is not None), key=lambda one: one.load_ns or 0
    )
    middle = timed[len(timed) // 2] if timed else None
    if middle is None or middle.costs is None:
        return None
    cold, why_not = _cold(evidence)
    loading = _loading(middle.load_ns or 0, middle.costs, cold, why_not)
    cached = evidence.costs.cached_loading if evidence and evidence.costs else None
    if cached is None:
        return loading
    cache = WeightsCache(cached.with_ns / 1e6, cached.without_ns / 1e6, cached.file_bytes)
    return replace(loading, weights_cache=cache)


def _cold(evidence: Entry | None) -> tuple[Loading | None, NoCold]:
    costs = evidence.costs if evidence else None
    if evidence is None or costs is None or costs.cached_share is None or evidence.load_ns is None:
        return None, "this run has no cold start: the system cannot be asked for one"
    if costs.cached_share > _STILL_COLD:
        return None, "the system kept the program in its page cache"
    return _loading(evidence.load_ns, costs, None, ""), ""


def _loading(load_ns: int, costs: Costs, cold: Loading | None, why_not: NoCold) -> Loading:
    spent = _by_words(costs.stage_ns, _LOADING)
    return Loading(
        load_ns / 1e6,
        tuple(TimePart(what, ns / 1e6) for what, ns in spent.items()),
        costs.load_minor_faults,
        costs.load_major_faults,
        costs.stage_ns.get("set up", 0) / 1e6,
        costs.first_minor_faults,
        cold,
        why_not,
    )


def _by_words(stages: Mapping[str, int], words: Mapping[str, What]) -> dict[What, int]:
    totals: dict[What, int] = {}
    for stage, what in words.items():
        if stage in stages:
            totals[what] = totals.get(what, 0) + stages[stage]
    return totals
