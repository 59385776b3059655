"""The file that explains a program's operators: its graph, and their lines in the model. A run directory
holds a copy, so that it can be moved or mailed without its program."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeVar

from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.records import parse_record, read_json_object, read_record
from model_profiling.core.safe_read import is_regular
from model_profiling.program.etrecord import read_etrecord
from model_profiling.program.flow import Flow, flow_of, input_independent
from model_profiling.program.pte import Lengths, read_program
from model_profiling.program.records import EtRecord, Method, NoiseByLayer, Program, SourceRef

# Operators that stayed outside the backend, and why: recorded when a program is exported.

WhyOutside = Literal["no rule", "refused", "dropped", "portable"]
"""The backend has no such operator; refused this one; took it and gave it back; takes nothing at all."""

NOTHING_KNOWN = "no cure is known"
COMPUTED_ONCE = (
    "a buffer (register_buffer) that is computed once, because the value does not depend on the model's input"
)
"""The replacement for what no input reaches, if the call has no replacement of its own."""
NO_INTEGERS = f"{NOTHING_KNOWN}: XNNPACK takes no integers and no booleans"
_MOST_PLACES = 3
"""The most places named for one reason; the export's record names all."""
VARYING = "one of its sizes or offsets varies with the input"
_PLAIN = {
    r"Expected (weight|bias) to be a static param": (
        r"XNNPACK needs a constant \1, and this one is computed in every inference"
    ),
    r"mean\.dim only supports averaging 4D tensors.*": (
        "XNNPACK takes a mean only over the last two of four dimensions"
    ),
    r"(in|out)put tensor has invalid shape, dim: \S+ of type \S+ '\S*SymInt'.*": VARYING,
}
"""What the partitioner says, in plain words."""
_WHOLE_NUMBERS = frozenset({"int64", "int32", "int16", "bool"})


@dataclass(frozen=True, slots=True)
class Undelegated:
    """An operator that stayed outside the backend, and why; unknown fields are empty."""

    operator: str
    node: str
    module_path: str
    reason: str
    why: WhyOutside
    module_class: str = ""
    call: str = ""
    """The function that the model called: lowering splits a `hardsigmoid` into several operators."""
    source: str = ""
    code: str = ""
    dtype: str = ""
    reads: str = ""
    constant: bool = False
    """Whether it computes the same for all inputs of the model."""
    replacement: str = ""
    """What to write instead, if something is known to help."""
    rewrite: str = ""
    """The rewrite of `sme2prof optimize` that does this to the exported graph, where it fits."""
    method: str = "forward"
    instruction: int = -1
    """The method's instruction that runs it; -1 if lowering removed it afterwards."""

    @property
    def plainly(self) -> str:
        """The reason, in words for people who do not know the backend."""
        part = ".".join(self.operator.split(".")[1:2]).removesuffix("_copy")
        if self.why == "no rule" and self.call and part not in ("", self.call):
            return f"the backend has no rule for the `{part}` inside {self.call}"
        return plain_reason(self.reason)

    @property
    def replaced_as_a_call(self) -> bool:
        """Whether another call replaces it, so that nothing of the old one is left to compute once."""
        return self.replacement not in ("", COMPUTED_ONCE)

    @property
    def remedy(self) -> str:
        """What to write instead, or that nothing is known."""
        if self.replacement:
            what = self.replacement
            return what if what.startswith("remove ") else f"instead: {what}"
        if self.why == "portable":
            return ""
        given = f"{self.dtype}, {self.reads}".split(", ")
        return NOTHING_KNOWN if _WHOLE_NUMBERS.isdisjoint(given) else NO_INTEGERS


def plain_reason(reason: str) -> str:
    fits = (found.expand(words) for said, words in _PLAIN.items() if (found := re.fullmatch(said, reason)))
    return next(fits, reason)


@dataclass(frozen=True, slots=True)
class OutsideGroup:
    """Operators outside the backend for one reason, from one kind of call at one line of the model."""

    call: str
    why: WhyOutside
    reason: str
    replacement: str
    operators: tuple[tuple[str, int], ...]
    """Each operator with its count, the most frequent first."""
    modules: tuple[str, ...]
    sources: tuple[str, ...]
    """The line, if known: `model.py:12: the line`."""
    remedy: str = ""
    """What to write instead, or that nothing is known to help."""

    @property
    def count(self) -> int:
        return sum(count for _, count in self.operators)

    @property
    def text(self) -> str:
        """`2 x aten.gelu.default: GELU does not support fp16`."""
        named = ", ".join(f"{count} x {operator}" for operator, count in self.operators)
        same = all(self.call in operator for operator, _ in self.operators)
        return f"{named}{'' if same else f' in {self.call}'}: {plain_reason(self.reason)}"

    @property
    def details(self) -> tuple[str, ...]:
        """`in features.0, features.2`, `at model.py:12: the line`, and what to write instead."""
        found = []
        for word, names in (("in", self.modules), ("at", self.sources)):
            more = f" and {len(names) - _MOST_PLACES} more" if len(names) > _MOST_PLACES else ""
            found += [f"{word} {', '.join(names[:_MOST_PLACES])}{more}"] if names else []
        return (*found, self.remedy) if self.remedy else tuple(found)


def group_outside(undelegated: Iterable[Undelegated]) -> tuple[OutsideGroup, ...]:
    """Group by line and reason; groups of one call stay together, the largest first."""
    found: dict[tuple[str, ...], list[Undelegated]] = {}
    for left in undelegated:
        key = (left.call, left.why, left.reason, left.replacement, left.remedy, left.source, left.code)
        found.setdefault(key, []).append(left)
    groups = []
    for lefts in found.values():
        first = lefts[0]
        line = f"{first.source}{f': {first.code}' if first.code else ''}"
        operators = tuple(Counter(left.operator for left in lefts).most_common())
        modules = tuple(dict.fromkeys(left.module_path for left in lefts if left.module_path))
        said = first.call, first.why, first.reason, first.replacement
        groups.append(OutsideGroup(*said, operators, modules, (line,) if line else (), first.remedy))
    of_call = Counter[str]()
    for group in groups:
        of_call[group.call] += group.count
    return tuple(sorted(groups, key=lambda group: (-of_call[group.call], group.call, -group.count)))


Fact = TypeVar("Fact")


@dataclass(frozen=True)
class ProgramGraph:
    """A program and, if there is one, its record."""

    program: Program
    record: EtRecord | None = None
    sha256: str = ""
    """Of the .pte; empty if it was not computed."""
    undelegated: tuple[Undelegated, ...] | None = None
    """Why operators are outside delegates; None if no export record says so."""
    noise: NoiseByLayer | None = None
    """What the number format costs each layer in accuracy; None if no export record says so."""
    schema_version: Literal[1] = 1

    def why_outside(self, method: str, instruction: int) -> Undelegated | None:
        """Why an operator is outside; None if unknown."""
        return self._reasons.get((method, instruction))

    def flow(self, method: Method) -> tuple[Flow, frozenset[int]]:
        """The data flow of a method, and the steps that do not depend on its inputs; computed once."""
        if method.name not in self._flows:
            flow = flow_of(method)
            self._flows[method.name] = flow, input_independent(flow)
        return self._flows[method.name]

    @cached_property
    def _flows(self) -> dict[str, tuple[Flow, frozenset[int]]]:
        return {}

    @cached_property
    def _reasons(self) -> Mapping[tuple[str, int], Undelegated]:
        """Indexed by place, because every operator of a series is looked up, more than once."""
        # Reversed: the first entry for a place counts.
        return {(each.method, each.instruction): each for each in reversed(self.undelegated or ())}


def record_beside(pte: Path) -> Path | None:
    candidates = (pte.with_name(f"{pte.name}.etrecord"), pte.with_suffix(".etrecord"))
    return next((path for path in candidates if is_regular(path, follow=True)), None)


def make_graph(
    pte: Path, etrecord: Path | None, lengths: Lengths | None = None, *, sha256: str | None = None
) -> ProgramGraph:
    """Read a program (at these `lengths` of its inputs) and its record; keep what operators refer to.
    `sha256` is the program's, if known."""
    program = read_program(pte, lengths)
    record = _referred(program, read_etrecord(etrecord)) if etrecord else None
    sha256 = sha256 or files.sha256(pte)
    noise = _from_summary(pte, sha256, ("accuracy", "layers"), NoiseByLayer)
    return ProgramGraph(program, record, sha256, read_undelegated(pte, sha256), noise)


def read_graph_file(path: Path) -> ProgramGraph:
    return read_record(ProgramGraph, path, "analyse with --model FILE.pte, or measure again")


def _referred(program: Program, record: EtRecord) -> EtRecord:
    """The record without nodes that no operator of the program comes from."""
    sources: dict[str, dict[int, SourceRef]] = {}
    for method in program.methods:
        known = record.sources.get(method.name, {})
        handles = {node.debug_handle for delegate in method.delegates for node in delegate.nodes}
        for step in method.operators:
            handles.update(record.handles.get(method.name, {}).get(step.instruction_id, ()))
        sources[method.name] = {handle: ref for handle, ref in known.items() if handle in handles}
    return replace(record, sources=sources)


def read_undelegated(pte: Path, sha256: str) -> tuple[Undelegated, ...] | None:
    """What the export of a program left outside; None if no export summary of this kit is beside it."""
    return _from_summary(pte, sha256, ("coverage", "undelegated"), tuple[Undelegated, ...])


def _from_summary(pte: Path, sha256: str, keys: tuple[str, str], kind: type[Fact]) -> Fact | None:
    summary, fix = Path(f"{pte}.json"), "export the model again"
    if not is_regular(summary):
        return None
    try:
        content = read_json_object(summary, fix)
        part = content.get(keys[0])
        if content.get("sha256") != sha256 or not isinstance(part, dict) or part.get(keys[1]) is None:
            return None
        return parse_record(kind, part[keys[1]], str(summary), fix)
    except (FormatError, InputError):
        return None  # not a summary of this kit
