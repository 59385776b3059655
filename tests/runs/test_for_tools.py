"""Files for other tools: each by its own definitions, its figures the report's, its names only names."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import EMULATED, INT8, PROGRAM, SME2, load
from said import refused

from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis, series_of
from model_profiling.analysis.series_views import slice_runs
from model_profiling.config import names
from model_profiling.core.errors import InputError
from model_profiling.core.process import Completed
from model_profiling.report import tools
from model_profiling.report.data import ReportData
from model_profiling.report.tools import TOOLS, NothingToShow, file_word, write_for
from model_profiling.workflow.report import gather_report, parse_tools, write_for_tools


@pytest.fixture(scope="module")
def sme2() -> ReportData:
    return gather_report(SME2)


@pytest.fixture(scope="module")
def trace(sme2: ReportData, tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return traced(sme2, tmp_path_factory.mktemp("trace"))


@pytest.fixture(scope="module")
def emulated() -> ReportData:
    return gather_report(EMULATED)


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> ReportData:
    """A bare dump beside its program: nothing says on what machine it was made."""
    folder = tmp_path_factory.mktemp("int8")
    for ending in (".etdump", ".pte", ".pte.etrecord"):
        shutil.copy(INT8.with_name(f"{INT8.stem}{ending}"), folder)
    return gather_report(folder)


def series_in(data: ReportData) -> tuple[SeriesAnalysis, ...]:
    assert data.analysis is not None
    return data.analysis.series


@dataclass
class Drawn:
    """A slice as a reader of the trace sees it."""

    name: str
    begin: int
    end: int
    arguments: dict[str, object] = field(default_factory=dict)
    category: str = ""
    inside: list[Drawn] = field(default_factory=list)

    @property
    def width(self) -> int:
        return self.end - self.begin

    def all(self) -> Iterator[Drawn]:
        yield self
        for found in self.inside:
            yield from found.all()


@dataclass
class Trace:
    """Slices by process and thread, nested as a viewer nests complete events: by their begins and ends."""

    about: dict[str, object]
    processes: dict[int, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    threads: dict[tuple[int, int], str] = field(default_factory=dict)
    roots: dict[tuple[int, int], Drawn] = field(default_factory=dict)

    def runs(self, process: str) -> dict[str, Drawn]:
        return {
            name: self.roots[place]
            for place, name in self.threads.items()
            if self.processes[place[0]] == process
        }


def read_trace(path: Path) -> Trace:
    """Parse Chrome's format; whatever does not nest fails here."""
    content = json.loads(path.read_text(encoding="utf-8"))
    trace = Trace(content["otherData"])
    open_slices: dict[tuple[int, int], list[Drawn]] = {}
    for event in content["traceEvents"]:
        place = event["pid"], event["tid"]
        if event["ph"] == "M":
            if event["name"] == "process_name":
                trace.processes[event["pid"]] = event["args"]["name"]
            elif event["name"] == "process_labels":
                trace.labels[trace.processes[event["pid"]]] = event["args"]["labels"]
            else:
                assert event["name"] == "thread_name"
                trace.threads[place] = event["args"]["name"]
            continue
        assert event["ph"] == "X"
        begin = round(1000 * event["ts"])
        end = begin + round(1000 * event["dur"])
        drawn = Drawn(event["name"], begin, end, event["args"], event["cat"])
        stack = open_slices.setdefault(place, [])
        while len(stack) > 1 and stack[-1].end <= begin:
            stack.pop()
        if stack:
            assert stack[-1].begin <= begin and end <= stack[-1].end
            stack[-1].inside.append(drawn)
        else:
            assert place not in trace.roots, "one slice holds all others of its run"
            trace.roots[place] = drawn
        stack.append(drawn)
    return trace


def check_nesting(found: Drawn) -> None:
    """Slices lie in the one around them, one after another."""
    at = found.begin
    for inside in found.inside:
        assert at <= inside.begin <= inside.end <= found.end
        at = inside.end
        check_nesting(inside)


def traced(data: ReportData, folder: Path) -> Trace:
    (path,) = write_for("perfetto", data, folder)
    return read_trace(path)


def test_a_trace_has_a_track_for_each_run_whose_slices_nest_and_add_up_to_end_to_end(
    sme2: ReportData, trace: Trace
) -> None:
    assert set(trace.processes.values()) == {
        f"linux_sme2_{switch} ({threads})"
        for switch in ("on", "off")
        for threads in ("1 thread", "2 threads")
    }
    for process, series in zip(trace.processes.values(), series_in(sme2), strict=True):
        runs = trace.runs(process)
        assert trace.labels[process] == "90 runs" and len(runs) == series.runs == 90
        assert [root.width for root in runs.values()] == series.breakdown.e2e.tolist()
        for root in runs.values():
            check_nesting(root)
            own = [found.width - sum(inside.width for inside in found.inside) for found in root.all()]
            assert sum(own) == root.width
            assert own == [found.arguments["self time ns"] for found in root.all()]
        drawn = ([each for each in root.all() if each.category == "Convolution"] for root in runs.values())
        by_category = [sum(each.width for each in found) for found in drawn]
        (convolution,) = (part for name, part in series.parts.items() if name == "Convolution")
        assert by_category == convolution.tolist()


def test_slices_tell_shape_module_kernel_and_source_line(trace: Trace) -> None:
    for process, label, proof in (
        ("linux_sme2_on (1 thread)", "PF16", "yes"),
        ("linux_sme2_off (1 thread)", "F16", "no: SME2 is off"),
    ):
        root = trace.runs(process)["launch 01, run 002"]
        first = next(found for found in root.all() if found.category == "Convolution")
        assert first.name == f"Convolution (NHWC, {label}) IGEMM #1"
        told = first.arguments
        assert (told["input shapes"], told["output shape"]) == ("1x224x224x3", "1x112x112x16")
        assert (told["module path"], told["type"]) == ("features.0", f"Convolution (NHWC, {label}) IGEMM")
        assert told["source"] == "/home/user/small_cnn.py:22"
        assert (told["category"], told["sme2"]) == ("Convolution", proof)
        assert root.arguments["times"] == "from hardware"
    assert trace.about["cpu"] == "made SME2 CPU"


@pytest.mark.parametrize("tool", TOOLS)
def test_emulated_runs_have_nothing_for_other_tools(emulated: ReportData, tmp_path: Path, tool: str) -> None:
    with refused(NothingToShow, "mean nothing", fix="measure on hardware"):
        write_for(tool, emulated, tmp_path)


def test_dumps_of_an_unknown_machine_say_so(int8: ReportData, tmp_path: Path) -> None:
    trace = traced(int8, tmp_path)
    (process,) = trace.processes.values()
    assert "unknown machine" in process
    (series,) = series_in(int8)
    assert [root.width for root in trace.runs(process).values()] == series.breakdown.e2e.tolist()


def test_huge_runs_are_thinned_evenly_and_say_so(sme2: ReportData, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(tools, "_MOST_SLICES", 600)
    trace = traced(sme2, tmp_path)
    for process in trace.labels:
        runs = trace.runs(process)
        assert trace.labels[process] == "10 of 90 runs" and len(runs) == 10
        first, *_, last = runs
        assert (first, last) == ("launch 01, run 002", "launch 06, run 020")
    assert trace.about["runs shown"] == "one in 9.0, evenly chosen"


def test_operators_that_reach_beyond_their_call_are_cut_off_and_keep_their_duration(sme2: ReportData) -> None:
    series = series_in(sme2)[0]
    dump = series.first
    group = dump.attribution.groups[0]
    longer = group.duration_ns.copy()
    longer[:, 2] += 10_000_000
    start = group.start_ns.copy()
    start[:, 0] -= 5_000_000
    spoilt = replace(group, duration_ns=longer, start_ns=start)
    attribution = replace(dump.attribution, groups=(spoilt,))
    one = series_of([replace(dump, attribution=attribution)])
    runs = [list(slices) for _, _, slices in slice_runs(one, 1000)]
    assert len(runs) == dump.runs
    for run in runs:
        around = {}
        for found in run:
            around[found.depth] = found
            if found.depth:
                outer = around[found.depth - 1]
                assert outer.begin_ns <= found.begin_ns <= found.end_ns <= outer.end_ns
        cut = next(found for found in run if found.node.column == 2)
        assert cut.duration_ns == int(longer[0, 2]) if run is runs[0] else cut.duration_ns > 10_000_000
        assert cut.end_ns - cut.begin_ns < cut.duration_ns


def node_data(data: ReportData, folder: Path) -> dict[str, Mapping[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in write_for("model-explorer", data, folder)}


def place_of(operator: Operator) -> tuple[str, str]:
    call = f"{operator.method}_{operator.chain_index}_{operator.instruction_id}"
    index = operator.source.node_index
    return (f"{PROGRAM.name}::{call}", str(index)) if index >= 0 else (operator.method, call)


def test_every_node_exists_in_the_graph_that_the_adapter_makes(
    sme2: ReportData, int8: ReportData, tmp_path: Path
) -> None:
    """Recorded of Model Explorer's adapter for .pte files: each graph's nodes by id, with their labels."""
    adapter = load(Path(__file__).parents[1] / "data" / "model_explorer.json")["programs"]
    for number, (data, program) in enumerate(((sme2, PROGRAM), (int8, INT8))):
        graphs = adapter[program.name]
        sets = node_data(data, tmp_path / str(number))
        for content in sets.values():
            for graph, told in content.items():
                assert set(told["results"]) <= set(graphs[graph]), graph
        (series, *_) = series_in(data)
        for operator in series.operators:
            if operator.source.node_index >= 0:
                call = f"forward_{operator.chain_index}_{operator.instruction_id}"
                label = graphs[f"{program.name}::{call}"][str(operator.source.node_index)]
                assert label == f"XNN{operator.source.node_kind}"


def test_node_data_has_the_times_of_every_experiment(sme2: ReportData, tmp_path: Path) -> None:
    sets = node_data(sme2, tmp_path)
    assert sorted(sets) == [
        "time_linux_sme2_off_1_thread", "time_linux_sme2_off_2_threads",
        "time_linux_sme2_on_1_thread", "time_linux_sme2_on_2_threads",
    ]  # fmt: skip
    after = sets["time_linux_sme2_on_1_thread"]
    series = series_in(sme2)[0]
    for operator in series.operators:
        graph, node = place_of(operator)
        if "::" in graph:
            assert after[graph]["results"][node]["value"] == pytest.approx(operator.typical_ms, abs=1e-6)
    spent = sum(result["value"] for result in after["forward"]["results"].values())
    assert series.e2e_ms - 0.01 < spent <= series.e2e_ms


def test_tools_are_named_or_corrected() -> None:
    assert parse_tools("perfetto, model-explorer,perfetto") == ("perfetto", "model-explorer")
    with pytest.raises(InputError, match=r"perfeto; .*'perfetto'"):
        parse_tools("perfeto")
    with pytest.raises(InputError, match=r"all .*perfetto"):
        parse_tools(",")
    assert file_word("a/b c|<x>") == "a_b_c_x" and file_word("..") == "unnamed"


def test_what_a_run_cannot_give_is_an_error_where_named_and_left_out_of_all(tmp_path: Path) -> None:
    shutil.copy(SME2 / names.MANIFEST, tmp_path)
    shutil.copy(SME2 / names.METRICS, tmp_path)
    data = gather_report(tmp_path)
    with pytest.raises(InputError, match="holds no dumps"):
        write_for_tools(data, ("perfetto",))
    made = {found.tool: found for found in write_for_tools(data, ("all",))}
    left_out = {tool for tool, found in made.items() if "holds no dumps" in found.left_out}
    assert left_out == set(TOOLS)


def test_the_command_writes_them_says_how_to_open_them_and_the_run_stays_valid(
    tmp_path: Path, sme2prof: Callable[..., Completed]
) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(SME2, run_dir)
    said = sme2prof("report", run_dir, "--for", "all")
    assert said.returncode == 0, said.stderr
    for word in ("trace.json", "ui.perfetto.dev", "model_explorer"):
        assert word in said.stdout
    again = sme2prof("report", run_dir, "--for", "perfetto", "--json")
    (found,) = json.loads(again.stdout)["for_tools"]
    assert found["files"] == [str(run_dir / "for_tools" / "trace.json")]
    assert sme2prof("validate", run_dir).returncode == 0
