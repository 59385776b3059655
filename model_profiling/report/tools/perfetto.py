"""A trace in Chrome's JSON format, which Perfetto and other viewers open: a process for each experiment, a
thread for each run, nested slices with what is known about every operator.

Times are those of the dumps, on the machine's clock if the journal has it. A run whose times mean nothing (of
an emulator, or of a run that traces kernels) has no trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from model_profiling._version import __version__
from model_profiling.analysis.event_views import Slice, clock_origins, slice_runs
from model_profiling.analysis.headroom import proven_on_sme
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
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
    zeros, one_clock = _clock_zeros(data, series)
    events: list[Json] = []
    for process, found in enumerate(series, start=1):
        events += _process(found, process, share, zeros, proven_on_sme(found, data.outlook.coverage))
    content = {"traceEvents": events, "displayTimeUnit": "ns", "otherData": _about(data, one_clock, share)}
    write_json(folder / FILE, content, indent=None)
    return (folder / FILE,)


def arguments(operator: Operator) -> Json:
    row = OperatorRow(operator, 0.0, 0.0)
    facts = {fact.name.replace("_", " "): fact.cell(row) for fact in OPERATOR_FACTS if not fact.timed}
    return {name: value for name, value in facts.items() if value is not None and value != ""}


def _clock_zeros(data: ReportData, series: Sequence[SeriesAnalysis]) -> tuple[Mapping[Path, int], bool]:
    """Return what to add to the times of each dump so that the trace begins at zero, and whether all dumps
    are on the machine's clock."""
    dumps = [dump for found in series for dump in found.rounds]
    origins = clock_origins(data.run, series)
    one_clock = bool(dumps) and all(dump.path in origins for dump in dumps)
    zeros = {dump.path: origins[dump.path] if one_clock else 0 for dump in dumps}
    groups = [(zeros[dump.path], group) for dump in dumps for group in dump.attribution.groups]
    start = min((zero + int(group.start_ns[:, -1].min()) for zero, group in groups), default=0)
    return {path: zero - start for path, zero in zeros.items()}, one_clock


def _about(data: ReportData, one_clock: bool, share: float) -> Json:
    manifest = data.run.manifest
    clock = "each process counts from its own start"
    if one_clock:
        clock = "the machine's monotonic clock: runs stand when they were made, programs alternate in turns"
    return {
        "title": data.title,
        "model": data.model,
        "cpu": data.cpu,
        "program SHA-256": manifest.model_sha256 if manifest else "",
        "times": f"from {data.times.origin}",
        "clock": clock,
        "runs shown": "every run that counts" if share == 1.0 else f"one in {1 / share:.1f}, evenly chosen",
        "made by": f"sme2prof {__version__}",
    }


def _process(
    series: SeriesAnalysis, process: int, share: float, zeros: Mapping[Path, int], proven: Mapping[int, str]
) -> Iterator[Json]:
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
    for thread, run in enumerate(slice_runs(series, most), start=1):
        # Padded, because Perfetto's page sorts tracks by name.
        number = f"{series.unit} {run.dump.dump.round + 1:02}, run {run.number + 1:03}"
        yield _named("thread_name", process, thread, {"name": number})
        offset = zeros.get(run.dump.path, 0)
        for slice_ in run.slices:
            begin, end = slice_.begin_ns, slice_.end_ns
            known = about_node.get(id(slice_.node))
            if known is None:
                known = about_node[id(slice_.node)] = _about_node(series, slice_, proven)
            event: Json = {**known, "ph": "X", "pid": process, "tid": thread}
            event |= {"ts": (begin + offset) / 1e3, "dur": (end - begin) / 1e3}
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
