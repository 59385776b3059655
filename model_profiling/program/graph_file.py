"""What explains a program's operators, in one file: its graph, where each was written, and those lines' text.

A run directory holds a copy, so that it can be moved or mailed without its program.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

from model_profiling import files
from model_profiling.errors import FormatError, InputError, ProfilingError
from model_profiling.json_record import parse_record, read_json_object, read_record, write_record
from model_profiling.program.etrecord import read_etrecord
from model_profiling.program.pte import read_program
from model_profiling.program.records import EtRecord, Program, SourceRef
from model_profiling.program.undelegated import Undelegated
from model_profiling.reading import MIB, is_regular, read_text

_LINES_AROUND = 2
_LONGEST_LINE = 400
_LARGEST_SOURCE = 8 * MIB


@dataclass(frozen=True)
class ProgramGraph:
    """A program and, where there is one, its record."""

    program: Program
    record: EtRecord | None = None
    sha256: str = ""
    """Of the .pte; empty where it was not taken."""
    excerpts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """`file:line` to that line with its neighbours, as they were when the graph was made."""
    undelegated: tuple[Undelegated, ...] | None = None
    """Why operators are outside delegates; None where no record of the export says it."""
    schema_version: Literal[1] = 1

    def why_outside(self, method: str, instruction: int) -> Undelegated | None:
        """Why an operator is outside; None where that is not known."""
        return self._reasons.get((method, instruction))

    @cached_property
    def _reasons(self) -> Mapping[tuple[str, int], Undelegated]:
        """By place: every operator of a series is asked for, more than once."""
        # The first that a record names at a place counts.
        return {(each.method, each.instruction): each for each in reversed(self.undelegated or ())}


def record_beside(pte: Path) -> Path | None:
    """The record that was exported with a program."""
    candidates = (pte.with_name(f"{pte.name}.etrecord"), pte.with_suffix(".etrecord"))
    return next((path for path in candidates if is_regular(path, follow=True)), None)


def make_graph(pte: Path, etrecord: Path | None) -> ProgramGraph:
    """Read a program and its record, keep what its operators refer to, and the source text around it."""
    program = read_program(pte)
    record = _referred(program, read_etrecord(etrecord)) if etrecord else None
    sha256 = files.sha256(pte)
    excerpts = _excerpts(record) if record else {}
    return ProgramGraph(program, record, sha256, excerpts, read_undelegated(pte, sha256))


def read_graph_file(path: Path) -> ProgramGraph:
    return read_record(ProgramGraph, path, "analyse with --model FILE.pte, or measure again")


def write_graph_file(path: Path, graph: ProgramGraph) -> None:
    write_record(path, graph)


def _referred(program: Program, record: EtRecord) -> EtRecord:
    """The record without the nodes that no operator of the program comes from."""
    sources: dict[str, dict[int, SourceRef]] = {}
    for method in program.methods:
        known = record.sources.get(method.name, {})
        handles = {node.debug_handle for delegate in method.delegates for node in delegate.nodes}
        for step in method.operators:
            handles.update(record.handles.get(method.name, {}).get(step.instruction_id, ()))
        sources[method.name] = {handle: ref for handle, ref in known.items() if handle in handles}
    return replace(record, sources=sources)


def _excerpts(record: EtRecord) -> dict[str, tuple[str, ...]]:
    every = (ref for refs in record.sources.values() for ref in refs.values())
    wanted = sorted({(ref.file, ref.line) for ref in every if ref.file and ref.line})
    found = {}
    for file, places in itertools.groupby(wanted, key=lambda place: place[0]):
        if not file.endswith(".py"):
            continue  # a record may come from anywhere and name any file: a model's source is Python
        try:
            lines = read_text(Path(file), _LARGEST_SOURCE, follow=True).splitlines()
        except ProfilingError:
            continue  # the source is not on this machine; the record's own line remains
        for _, number in places:
            around = lines[max(0, number - 1 - _LINES_AROUND) : number + _LINES_AROUND]
            found[f"{file}:{number}"] = tuple(line[:_LONGEST_LINE] for line in around)
    return found


def read_undelegated(pte: Path, sha256: str = "") -> tuple[Undelegated, ...] | None:
    """What the export of a program says it left outside; None where no export of this kit lies beside it,
    or one of another program."""
    summary = Path(f"{pte}.json")
    if not is_regular(summary):
        return None
    try:
        content = read_json_object(summary, "export the model again")
        coverage = content.get("coverage")
        if content.get("sha256") != (sha256 or files.sha256(pte)) or not isinstance(coverage, dict):
            return None
        left = coverage.get("undelegated")
        known = parse_record(tuple[Undelegated, ...], left, str(summary), "export the model again")
    except (FormatError, InputError):
        return None  # not a record of this kit: nothing is known, which is what is said then
    # Earlier kits did not say which instruction an operator became.
    return known if not known or any(each.instruction >= 0 for each in known) else None
