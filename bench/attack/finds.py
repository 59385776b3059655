"""What a part of the campaign tried and what it found, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Find:
    """Something that must not be. `case` names it so that it can be tried again."""

    part: str
    case: str
    what: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class PartResult:
    """One part of the campaign; `skipped` is why this machine cannot try it, `lines` are its own figures."""

    part: str
    tried: int = 0
    seconds: float = 0.0
    finds: tuple[Find, ...] = ()
    skipped: str = ""
    figures: Mapping[str, object] = field(default_factory=dict)
    lines: tuple[str, ...] = ()


def as_json(results: Sequence[PartResult], seed: int) -> dict[str, object]:
    parts = [{name: value for name, value in asdict(each).items() if name != "lines"} for each in results]
    return {"schema_version": 1, "seed": seed, "found": sum(len(r.finds) for r in results), "parts": parts}


def as_text(results: Sequence[PartResult]) -> str:
    lines = [line for result in results for line in result.lines]
    lines += ["", f"{'part':10}  {'tried':>9}  {'seconds':>8}  {'a second':>8}  found"]
    for result in results:
        rate = result.tried / result.seconds if result.seconds else 0.0
        told = f"not tried: {result.skipped}" if result.skipped else str(len(result.finds))
        lines.append(f"{result.part:10}  {result.tried:9,}  {result.seconds:8.1f}  {rate:8.1f}  {told}")
    for find in (find for result in results for find in result.finds):
        lines += ["", f"{find.part}, {find.case}: {find.what}"]
        lines += [f"    {line}" for line in find.detail.splitlines()[-12:]]
    return "\n".join(lines)
