"""A speedscope file: where the time of each experiment goes, by module, then by operator.

Stacks are in the order operators run, so "Time Order" shows an inference and "Left Heavy" the modules by
size. Runs whose times mean nothing are weighed by arithmetic instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from model_profiling._version import __version__
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import OVERHEADS, SeriesAnalysis
from model_profiling.analysis.series_views import module_parts
from model_profiling.core.formatting import milliseconds
from model_profiling.report.data import ReportData
from model_profiling.report.tools import NothingToShow, no_dumps, write_json

FILE = "modules.speedscope.json"
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Frame:
    """One box: a module, or an operator with its source line."""

    name: str
    file: str = ""
    line: int = 0

    def json(self) -> Json:
        where = {"file": self.file, "line": self.line} if self.file and self.line else {}
        return {"name": self.name, **where}


def write(data: ReportData, folder: Path) -> tuple[Path, ...]:
    if data.analysis is None:
        raise no_dumps(data)
    frames: dict[Frame, int] = {}
    profiles = [profile for found in data.analysis.series if (profile := _profile(found, frames))]
    if not profiles:
        problem = "its times are not valid latencies, and without a program the arithmetic is not known"
        raise NothingToShow(f"{data.run.path}: {problem}", "analyse it beside its .pte file")
    content: Json = {
        "$schema": _SCHEMA,
        "name": data.title,
        "exporter": f"sme2prof {__version__}",
        "activeProfileIndex": 0,
        "shared": {"frames": [frame.json() for frame in frames]},
        "profiles": profiles,
    }
    write_json(folder / FILE, content)
    return (folder / FILE,)


def _profile(series: SeriesAnalysis, frames: dict[Frame, int]) -> Json | None:
    timed = series.times.are_shown
    weighed = [
        (_stack(operator), operator.typical_ms if timed else float(operator.source.flops or 0))
        for operator in series.operators
    ]
    if timed:
        # Operators and overheads together make up the end-to-end time.
        method = _method(series.operators[0] if series.operators else None)
        weighed += [([method, Frame(name)], series.spent(series.parts[name]).ms) for name in OVERHEADS]
    if not any(weight for _, weight in weighed):
        return None
    note = f"{series.taken_from}, with the tracer on" if timed else "arithmetic operations, no times"
    weights = [max(weight, 0.0) for _, weight in weighed]
    over = -sum(min(weight, 0.0) for _, weight in weighed)
    if over:
        note += f"; operators overlap by {milliseconds(over)} ms, which is more than end to end"
    return {
        "type": "sampled",
        "name": f"{series.name} ({note})",
        "unit": "milliseconds" if timed else "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": [[frames.setdefault(frame, len(frames)) for frame in stack] for stack, _ in weighed],
        "weights": weights,
    }


def _stack(operator: Operator) -> list[Frame]:
    place = operator.source.place
    parts = module_parts(operator)
    if place.module_path:
        modules = [Frame(".".join(parts[: depth + 1])) for depth in range(len(parts))]
    else:
        modules = [Frame(f"({part})") for part in parts]
    return [_method(operator), *modules, Frame(operator.name, place.file, place.line)]


def _method(operator: Operator | None) -> Frame:
    return Frame((operator.method if operator else "") or "Method::execute")
