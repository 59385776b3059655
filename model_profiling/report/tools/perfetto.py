"""A trace in Chrome's JSON format, which Perfetto and other viewers open: a process for each experiment, a
thread for each run, nested slices with what is known about every operator.

Times are those of the dumps. A run whose times mean nothing (of an emulator, or of a run that traces kernels)
has no trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from model_profiling._version import __version__
from model_profiling.analysis.coverage import RAN
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.series_views import Slice, slice_runs
from model_profiling.core.formatting import plural
from model_profiling.facts.operators import OPERATOR_FACTS, OperatorRow
from model_profiling.report.data import ReportData
from model_profiling.report.tools import NothingToShow, no_dumps, write_json
from model_profiling.runs import Times

FILE = "trace.json"
_MOST_SLICES = 20_000
"""A larger trace is slow to make and to view; then only some runs are chosen, and the trace says how many."""

Json = dict[str, object]


def write(data: ReportData, folder: Path) -> tuple[Path, ...]:
    if data.analysis is None:
        raise no_dumps(data)
    series = [found for found in data.analysis.series if found.times.are_shown]
    if not series:
        problem = f"the times of {data.run.path} mean nothing ({data.times.origin})"
        raise NothingToShow(problem, "measure on hardware, or use --for speedscope")
    slices = sum(len(found.first.attribution.groups[0].nodes) * found.runs for found in series)
    share = min(1.0, _MOST_SLICES / max(1, slices))
    events: list[Json] = []
    for process, found in enumerate(series, start=1):
        events += _process(found, process, share, _ran_on_sme2(found, data))
    content = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": _about(data, share)}
    write_json(folder / FILE, content, indent=None)
    return (folder / FILE,)


def arguments(operator: Operator) -> Json:
    row = OperatorRow(operator, 0.0, 0.0)
    facts = {fact.name.replace("_", " "): fact.cell(row) for fact in OPERATOR_FACTS if not fact.timed}
    return {name: value for name, value in facts.items() if value is not None and value != ""}


def _about(data: ReportData, share: float) -> Json:
    manifest = data.run.manifest
    return {
        "title": data.title,
        "model": data.model,
        "cpu": data.cpu,
        "program SHA-256": manifest.model_sha256 if manifest else "",
        "times": f"from {data.times.origin}",
        "runs shown": "every run that counts" if share == 1.0 else f"one in {1 / share:.1f}, evenly chosen",
        "made by": f"sme2prof {__version__}",
    }


def _ran_on_sme2(series: SeriesAnalysis, data: ReportData) -> Mapping[int, str]:
    coverage = data.outlook.coverage
    runs_on = f"{coverage.isa}{' under emulation' if coverage.emulated else ''}"
    return {place: runs_on for place, answer in data.sme2_of(series).items() if answer in RAN}


def _process(series: SeriesAnalysis, process: int, share: float, proven: Mapping[int, str]) -> Iterator[Json]:
    most = max(1, int(series.runs * share))
    runs = f"{most} of {plural(series.runs, 'run')}" if most < series.runs else plural(series.runs, "run")
    threads = plural(series.series.threads, "thread") if series.series.threads else ""
    widths = "times as recorded on an unknown machine" if series.times is Times.UNKNOWN else ""
    # Viewers show the process number after the name: brackets keep the two apart.
    details = "; ".join(filter(None, (threads, widths)))
    name = f"{series.series.experiment} ({details})" if details else series.series.experiment
    yield _named("process_name", process, 0, {"name": name})
    yield _named("process_labels", process, 0, {"labels": runs})
    about_node: dict[int, Json] = {}
    groups = (group for dump in series.rounds for group in dump.attribution.groups)
    zero = min(int(group.start_ns[:, -1].min()) for group in groups)
    for thread, run in enumerate(slice_runs(series, most), start=1):
        # Padded, because Perfetto's page sorts tracks by name.
        number = f"{series.unit} {run.dump.dump.round + 1:02}, run {run.number + 1:03}"
        yield _named("thread_name", process, thread, {"name": number})
        for slice_ in run.slices:
            begin, end = slice_.begin_ns, slice_.end_ns
            known = about_node.get(id(slice_.node))
            if known is None:
                known = about_node[id(slice_.node)] = _about_node(series, slice_, proven)
            event: Json = {**known, "ph": "X", "pid": process, "tid": thread}
            event |= {"ts": (begin - zero) / 1e3, "dur": (end - begin) / 1e3}
            own = {"self time ns": slice_.self_ns}
            if slice_.duration_ns != end - begin:
                own["recorded duration ns"] = slice_.duration_ns
            event["args"] = {**known["args"], **own}  # type: ignore[dict-item]
            yield event


def _named(what: str, process: int, thread: int, name: Json) -> Json:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": name}


def _about_node(series: SeriesAnalysis, slice_: Slice, proven: Mapping[int, str]) -> Json:
    """What is the same in every run."""
    operator, node = slice_.operator, slice_.node
    facts: Json = {}
    if operator is not None:
        facts = arguments(operator)
        if runs_on := proven.get(series.place(operator)):
            facts["runs on"] = runs_on
    elif node.level == "method":
        facts = {"experiment": series.name, "times": f"from {series.times.origin}"}
    if node.call >= 0:
        facts["call"] = node.call
    return {"name": node.name, "cat": operator.category.value if operator else node.level, "args": facts}
