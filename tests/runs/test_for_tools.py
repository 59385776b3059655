"""Files for other tools: each by its own definitions, its figures the report's, its names only names."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from conftest import missing
from model_explorer_parts import Graphs, adapter_graphs
from recorded_runs import ARM, EMULATED, INT8, PROGRAM, SME2, X86_64
from rendered_markdown import rendered
from said import says

from model_profiling.analysis.event_views import slice_runs
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis, series_of
from model_profiling.analysis.series_views import module_tree
from model_profiling.analysis.summary import DumpAnalysis
from model_profiling.config import names
from model_profiling.core.errors import InputError, SetupError
from model_profiling.core.hints import install_extra
from model_profiling.core.process import Completed
from model_profiling.etdump import read_etdump
from model_profiling.report.data import ReportData
from model_profiling.report.text import render_markdown
from model_profiling.report.tools import TOOLS, file_word, perfetto, write_for
from model_profiling.report.tools.badge import make_badge, run_summary
from model_profiling.report.verdict import SME2 as SME2_CHANGES
from model_profiling.workflow.report import gather_report, parse_tools, tell_of_runs, write_for_tools

HOSTILE = '<script>alert(1)</script> | `x` "q" \\ \n\t [a](http://evil) \x00 \ud800 ﷽'


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
    end: int = -1
    arguments: dict[str, object] = field(default_factory=dict)
    category: str = ""
    source: tuple[str, int] | None = None
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
    """Tracks of slices by process and name, read as Perfetto does: by interned numbers and open slices."""

    processes: dict[int, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    tracks: dict[int, tuple[int, str]] = field(default_factory=dict)
    roots: dict[int, list[Drawn]] = field(default_factory=dict)
    about: Drawn | None = None
    clock: int = 0

    def runs(self, process: str) -> dict[str, Drawn]:
        found = {}
        for uuid, (parent, name) in self.tracks.items():
            if parent and self.processes[parent] == process:
                (found[name],) = self.roots[uuid]
        return found


def read_trace(path: Path) -> Trace:
    """Parse by Perfetto's own definitions; whatever does not nest fails here."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as Packets
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

    trace, kept = Trace(), {kind: {} for kind in ("n", "c", "a", "v", "s")}  # type: dict[str, dict[int, Any]]
    open_slices: dict[int, list[Drawn]] = {}
    latest: dict[int, int] = {}
    for packet in Packets.FromString(path.read_bytes()).packet:
        assert packet.trusted_packet_sequence_id == 1
        data = packet.interned_data
        for kind, entries in (("n", data.event_names), ("c", data.event_categories)):
            kept[kind] |= {entry.iid: entry.name for entry in entries}
        kept["a"] |= {entry.iid: entry.name for entry in data.debug_annotation_names}
        kept["v"] |= {entry.iid: entry.str.decode() for entry in data.debug_annotation_string_values}
        kept["s"] |= {entry.iid: (entry.file_name, entry.line_number) for entry in data.source_locations}
        if packet.HasField("clock_snapshot"):
            trace.clock = packet.clock_snapshot.primary_trace_clock
        if packet.HasField("track_descriptor"):
            told = packet.track_descriptor
            if told.HasField("process"):
                trace.processes[told.uuid] = told.process.process_name
                (trace.labels[told.process.process_name],) = told.process.process_labels
            else:
                trace.tracks[told.uuid] = (told.parent_uuid, told.name)
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        assert event.track_uuid in trace.tracks
        stack = open_slices.setdefault(event.track_uuid, [])
        assert packet.timestamp >= latest.get(event.track_uuid, 0)
        latest[event.track_uuid] = packet.timestamp
        if event.type == TrackEvent.TYPE_SLICE_END:
            stack.pop().end = packet.timestamp
            continue
        drawn = Drawn(
            kept["n"][event.name_iid],
            packet.timestamp,
            arguments={
                kept["a"][told.name_iid]: kept["v"][told.string_value_iid]
                if told.HasField("string_value_iid")
                else told.int_value
                for told in event.debug_annotations
            },
            category="".join(kept["c"][number] for number in event.category_iids),
            source=kept["s"][event.source_location_iid] if event.source_location_iid else None,
        )
        if event.type == TrackEvent.TYPE_INSTANT:
            trace.about = drawn
            continue
        (stack[-1].inside if stack else trace.roots.setdefault(event.track_uuid, [])).append(drawn)
        stack.append(drawn)
    assert not any(open_slices.values()), "every slice ends"
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
        ("linux_sme2_on (1 thread)", "PF16", "SME2"),
        ("linux_sme2_off (1 thread)", "F16", None),
    ):
        root = trace.runs(process)["launch 1, run 02"]
        first = next(found for found in root.all() if found.category == "Convolution")
        assert first.name == f"Convolution (NHWC, {label}) IGEMM #1"
        assert first.source == ("/home/user/small_cnn.py", 22)
        told = first.arguments
        assert (told["input shapes"], told["output shape"]) == ("1x224x224x3", "1x112x112x16")
        assert (told["module path"], told["type"]) == ("features.0", f"Convolution (NHWC, {label}) IGEMM")
        assert told["source"] == "/home/user/small_cnn.py:22"
        assert (told["category"], told.get("runs on")) == ("Convolution", proof)
        assert root.arguments["times"] == "from hardware"
    assert trace.about is not None and trace.about.arguments["cpu"] == "made SME2 CPU"


def test_programs_that_took_turns_alternate_on_the_machines_clock(trace: Trace) -> None:
    monotonic = 3
    assert trace.clock == monotonic
    runs = sorted((run.begin, run.end, name) for name in trace.labels for run in trace.runs(name).values())
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(runs)), "none overlap"
    assert len({process for _, _, process in runs[:12]}) == 4, "a cycle has a turn of each"


def test_what_only_emulation_proves_says_so(tmp_path: Path) -> None:
    trace = traced(gather_report(ARM), tmp_path)
    root = trace.runs("linux_baseline (1 thread)")["launch 1, run 02"]
    convolutions = [found for found in root.all() if found.category == "Convolution"]
    assert {found.arguments.get("runs on") for found in convolutions} == {"SME2 under emulation"}


def test_emulated_runs_show_order_and_no_time(emulated: ReportData, tmp_path: Path) -> None:
    trace = traced(emulated, tmp_path)
    assert trace.clock == 0
    for process, series in zip(trace.processes.values(), series_in(emulated), strict=True):
        says(process, "emulated", "order only")
        (root,) = trace.runs(process).values()
        check_nesting(root)
        slices = list(root.all())
        assert {found.width for found in slices if not found.inside} == {1000}
        assert len(slices) == len(series.first.attribution.groups[0].nodes)
        assert not any("time" in name for found in slices[1:] for name in found.arguments)
        assert any("flops" in found.arguments for found in slices)


def test_dumps_of_an_unknown_machine_say_so(int8: ReportData, tmp_path: Path) -> None:
    trace = traced(int8, tmp_path)
    (process,) = trace.processes.values()
    assert "unknown machine" in process
    (series,) = series_in(int8)
    assert [root.width for root in trace.runs(process).values()] == series.breakdown.e2e.tolist()


def test_huge_runs_are_thinned_evenly_and_say_so(sme2: ReportData, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(perfetto, "_MOST_SLICES", 600)
    trace = traced(sme2, tmp_path)
    for process in trace.labels:
        runs = trace.runs(process)
        assert trace.labels[process] == "10 of 90 runs" and len(runs) == 10
        first, *_, last = runs
        assert (first, last) == ("launch 1, run 02", "launch 6, run 20")
    assert trace.about is not None and trace.about.arguments["runs shown"] == "one in 9.0, evenly chosen"


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
    runs = list(slice_runs(one, 1000))
    assert len(runs) == dump.runs
    for run in runs:
        around = {}
        for found in run.slices:
            around[found.depth] = found
            if found.depth:
                outer = around[found.depth - 1]
                assert outer.begin_ns <= found.begin_ns <= found.end_ns <= outer.end_ns
        cut = next(found for found in run.slices if found.node.column == 2)
        assert cut.duration_ns == int(longer[0, 2]) if run is runs[0] else cut.duration_ns > 10_000_000
        assert cut.end_ns - cut.begin_ns < cut.duration_ns


def speedscope(data: ReportData, folder: Path) -> Mapping[str, Any]:
    (path,) = write_for("speedscope", data, folder)
    content = json.loads(path.read_text(encoding="utf-8"))
    frames = content["shared"]["frames"]
    assert content["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    for frame in frames:
        assert set(frame) <= {"name", "file", "line"} and isinstance(frame["name"], str)
    for profile in content["profiles"]:
        assert set(profile) == {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
        assert profile["type"] == "sampled" and profile["startValue"] == 0
        assert len(profile["samples"]) == len(profile["weights"]) > 0
        assert all(0 <= frame < len(frames) for stack in profile["samples"] for frame in stack)
        assert all(weight >= 0 for weight in profile["weights"])
        assert profile["endValue"] == pytest.approx(sum(profile["weights"]), rel=1e-12)
    return content  # type: ignore[no-any-return]


def test_speedscope_adds_up_to_end_to_end_by_module(sme2: ReportData, tmp_path: Path) -> None:
    content = speedscope(sme2, tmp_path)
    frames = [frame["name"] for frame in content["shared"]["frames"]]
    for profile, series in zip(content["profiles"], series_in(sme2), strict=True):
        assert profile["unit"] == "milliseconds" and profile["name"].startswith(series.name)
        assert profile["endValue"] == pytest.approx(series.e2e_ms, rel=1e-9)
        by_module: dict[str, float] = {}
        for stack, weight in zip(profile["samples"], profile["weights"], strict=True):
            for name in {frames[frame] for frame in stack}:
                by_module[name] = by_module.get(name, 0.0) + weight
        inside = [found for found in series.operators if found.source.module_path.startswith("features")]
        assert by_module["features"] == pytest.approx(series.spent_by(inside).ms)
        assert by_module["forward"] == pytest.approx(series.e2e_ms)
        named = {child.name for child in module_tree(series.operators).children}
        assert named <= {frame.strip("()") for frame in frames}, "called as the report calls modules"
    assert any(frame.get("line") == 22 for frame in content["shared"]["frames"])


def test_speedscope_of_an_emulated_run_weighs_arithmetic(emulated: ReportData, tmp_path: Path) -> None:
    for profile, series in zip(speedscope(emulated, tmp_path)["profiles"], series_in(emulated), strict=True):
        assert profile["unit"] == "none" and "no times" in profile["name"]
        assert profile["endValue"] == sum(operator.source.flops or 0 for operator in series.operators)


def test_parquet_holds_every_event_as_the_reader_gives_it(
    sme2: ReportData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet

    from model_profiling.report.tools import parquet

    monkeypatch.setattr(parquet, "_ROWS", 200)
    (path,) = write_for("parquet", sme2, tmp_path)
    stored = pyarrow.parquet.ParquetFile(path)
    assert stored.metadata.num_row_groups > len(sme2.run.dumps)
    assert max(stored.metadata.row_group(at).num_rows for at in range(stored.metadata.num_row_groups)) <= 200
    assert stored.schema_arrow.names == list(parquet.COLUMNS)
    facts = {key.decode(): value.decode() for key, value in stored.schema_arrow.metadata.items()}
    assert facts["schema_version"] == "1" and facts["model"] == "small_cnn_xnnpack_fp16"
    told = {dump["dump"]: dump for dump in json.loads(facts["dumps"])}
    events = pandas.read_parquet(path)
    assert events["dump"].nunique() == len(sme2.run.dumps) == len(told) == 24
    for dump in sme2.run.dumps:
        name = dump.path.relative_to(SME2).as_posix()
        ours = events[events["dump"] == name].reset_index(drop=True)
        assert set(ours["experiment"]) == {dump.series.experiment} and set(ours["round"]) == {dump.round}
        assert set(ours["threads"]) == {dump.series.threads} and set(ours["times"]) == {"hardware"}
        assert told[name]["turn_length"] == 4
        expected = read_etdump(dump.path).to_pandas()
        pandas.testing.assert_frame_equal(ours[list(expected.columns)], expected, check_dtype=False)


@pytest.fixture(scope="module")
def adapter() -> Mapping[Path, Graphs]:
    try:
        return adapter_graphs([PROGRAM, INT8])
    except SetupError as problem:
        if sys.version_info[:2] > (3, 12):
            pytest.skip(str(problem))
        missing(str(problem))
        raise


def node_data(data: ReportData, folder: Path) -> dict[str, Mapping[str, Any]]:
    return {path.stem: json.loads(path.read_text()) for path in write_for("model-explorer", data, folder)}


def place_of(operator: Operator) -> tuple[str, str]:
    call = f"{operator.method}_{operator.chain_index}_{operator.instruction_id}"
    index = operator.source.node_index
    return (f"{PROGRAM.name}::{call}", str(index)) if index >= 0 else (operator.method, call)


def test_every_node_exists_in_the_graph_that_the_adapter_makes(
    sme2: ReportData, emulated: ReportData, int8: ReportData, adapter: Mapping[Path, Graphs], tmp_path: Path
) -> None:
    for number, (data, program) in enumerate(((sme2, PROGRAM), (emulated, PROGRAM), (int8, INT8))):
        graphs = adapter[program]
        sets = node_data(data, tmp_path / str(number))
        assert {"category", "arithmetic"} <= set(sets)
        for content in sets.values():
            for graph, told in content.items():
                assert set(told["results"]) <= set(graphs[graph]), graph
        (series, *_) = series_in(data)
        for operator in series.operators:
            if operator.source.node_index >= 0:
                call = f"forward_{operator.chain_index}_{operator.instruction_id}"
                label = graphs[f"{program.name}::{call}"][str(operator.source.node_index)]
                assert label == f"XNN{operator.source.node_kind}"


def test_node_data_has_the_times_of_both_sides_what_was_saved_and_categories(
    sme2: ReportData, tmp_path: Path
) -> None:
    sets = node_data(sme2, tmp_path)
    assert sorted(sets) == [
        "arithmetic", "category", "saved_SME2", "saved_threads",
        "time_linux_sme2_off_1_thread", "time_linux_sme2_off_2_threads",
        "time_linux_sme2_on_1_thread", "time_linux_sme2_on_2_threads",
    ]  # fmt: skip
    before, after = (sets[f"time_linux_sme2_{switch}_1_thread"] for switch in ("off", "on"))
    series = series_in(sme2)[0]
    for operator in series.operators:
        graph, node = place_of(operator)
        if "::" in graph:
            assert after[graph]["results"][node]["value"] == pytest.approx(operator.typical_ms, abs=1e-6)
            assert sets["category"][graph]["results"][node]["value"] == operator.category.value
            saved = sets["saved_SME2"][graph]["results"][node]["value"]
            both = before[graph]["results"][node]["value"] - after[graph]["results"][node]["value"]
            assert saved == pytest.approx(both, abs=2e-6)
    spent = sum(result["value"] for result in after["forward"]["results"].values())
    assert series.e2e_ms - 0.01 < spent <= series.e2e_ms
    convolution = sets["saved_SME2"][f"{PROGRAM.name}::forward_0_0"]["results"]["1"]
    assert convolution["value"] > 0 and convolution["bgColor"] == "#a1d99b"


def test_emulated_runs_have_no_times_on_nodes(emulated: ReportData, tmp_path: Path) -> None:
    assert set(node_data(emulated, tmp_path)) == {"arithmetic", "category"}


@pytest.mark.parametrize(
    ("run_dir", "label", "message"),
    [
        (SME2, "SME2", r"2\.02x, faster"),
        (ARM, "latency", r"1\.3\d+ ms, no SME2"),
        (X86_64, "latency", r"1\.3\d+ ms, not Arm"),
        (EMULATED, "SME2 kernels", "5 of 5 .*emulated"),
    ],
)
def test_a_badge_says_the_answer_of_each_kind_of_machine(run_dir: Path, label: str, message: str) -> None:
    badge = make_badge(gather_report(run_dir))
    assert badge.label == label and re.fullmatch(message, badge.message)


def test_tools_are_named_or_corrected() -> None:
    assert parse_tools("perfetto, badge,perfetto") == ("perfetto", "badge")
    with pytest.raises(InputError, match=r"speedscop; .*'speedscope'"):
        parse_tools("speedscop")
    with pytest.raises(InputError, match=r"all .*perfetto"):
        parse_tools(",")
    assert file_word("a/b c|<x>") == "a_b_c_x" and file_word("..") == "unnamed"


def test_a_package_that_is_missing_is_one_line_with_its_cure(
    sme2: ReportData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, tool in (
        ("perfetto.protos.perfetto.trace.perfetto_trace_pb2", "perfetto"),
        ("pyarrow", "parquet"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(SetupError, match=re.escape(install_extra("tools"))):
            write_for(tool, sme2, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_run_cannot_give_is_an_error_where_named_and_left_out_of_all(tmp_path: Path) -> None:
    shutil.copy(SME2 / names.MANIFEST, tmp_path)
    shutil.copy(SME2 / names.METRICS, tmp_path)
    data = gather_report(tmp_path)
    with pytest.raises(InputError, match="holds no dumps"):
        write_for_tools(data, ("perfetto",))
    made = {found.tool: found for found in write_for_tools(data, ("all",))}
    left_out = {tool for tool, found in made.items() if "holds no dumps" in found.left_out}
    assert left_out == set(TOOLS) - {"badge"}
    assert made["badge"].files[0].is_file()


def test_the_command_writes_them_says_how_to_open_them_and_the_run_stays_valid(
    tmp_path: Path, sme2prof: Callable[..., Completed], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    run_dir = tmp_path / "run"
    shutil.copytree(EMULATED, run_dir)
    said = sme2prof("report", run_dir, "--for", "all")
    assert said.returncode == 0, said.stderr
    for word in ("pftrace", "ui.perfetto.dev", "speedscope.app", "events.parquet", "model_explorer", "badge"):
        assert word in said.stdout
    again = sme2prof("report", run_dir, "--for", "perfetto", "--json")
    (found,) = json.loads(again.stdout)["for_tools"]
    assert found["files"] == [str(run_dir / "for_tools" / "trace.pftrace")]
    assert (run_dir / "for_tools" / "badge.json").is_file()
    assert len(re.findall("^### ", summary.read_text(), re.MULTILINE)) == 1, "not added again"
    assert sme2prof("validate", run_dir).returncode == 0


def test_without_a_package_all_leaves_its_file_out_and_says_why(
    tmp_path: Path, sme2prof: Callable[..., Completed], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = Path(shutil.copytree(EMULATED, tmp_path / "run"))
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace.perfetto_trace_pb2", None)
    said = sme2prof("report", run_dir, "--for", "all")
    assert said.returncode == 0 and "speedscope.app" in said.stdout and "pftrace" not in said.stdout
    says(said.stderr, "nothing for perfetto", "not installed", install_extra("tools"))
    assert sme2prof("report", run_dir, "--for", "perfetto").returncode == 2


def test_a_summary_that_cannot_be_written_is_said_and_no_failure(
    emulated: ReportData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    problem = tell_of_runs([(emulated, Path("report.md"))])
    says(problem or "", "job's summary", str(tmp_path))
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    in_the_way = tmp_path / "run"
    in_the_way.mkdir()
    (in_the_way / "for_tools").write_text("")
    elsewhere = replace(emulated, run=type(emulated.run)(in_the_way, emulated.run.manifest))
    told = tell_of_runs([(elsewhere, Path("report.md"))])
    says(told or "", f"cannot write {in_the_way / 'for_tools'}", "job's summary")
    monkeypatch.delenv("GITHUB_ACTIONS")
    full = tmp_path / "summary.md"
    full.write_text("x" * 900_000)
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(full))
    says(tell_of_runs([(emulated, Path("report.md"))]) or "", "job's summary", "full")
    assert full.read_text() == "x" * 900_000


def spoilt_names(data: ReportData) -> ReportData:
    """The run with every name of an operator, a module and a source replaced by a hostile one."""
    assert data.analysis is not None

    def hostile(operator: Operator) -> Operator:
        place = replace(operator.source.place, module_path=f"a.{HOSTILE}", file=HOSTILE, code=HOSTILE)
        source = replace(operator.source, place=place)
        return replace(operator, name=f"{operator.name}{HOSTILE}", type=HOSTILE, source=source)

    def renamed(dump: DumpAnalysis) -> DumpAnalysis:
        groups = []
        for group in dump.attribution.groups:
            nodes = tuple(replace(node, name=f"{node.name}{HOSTILE}") for node in group.nodes)
            groups.append(replace(group, nodes=nodes))
        attribution = replace(dump.attribution, groups=tuple(groups))
        return replace(dump, attribution=attribution, operators=tuple(map(hostile, dump.operators)))

    series = tuple(series_of(list(map(renamed, each.rounds))) for each in data.analysis.series)
    return replace(data, title=HOSTILE, analysis=replace(data.analysis, series=series))


def test_hostile_names_are_only_data(sme2: ReportData, tmp_path: Path) -> None:
    data = spoilt_names(sme2)
    kept = HOSTILE.encode("utf-8", "replace").decode()
    trace = traced(data, tmp_path)
    root = next(iter(trace.runs("linux_sme2_on (1 thread)").values()))
    assert root.name == f"Method::execute{kept}" and root.inside[0].inside[0].arguments["source code"] == kept
    content = speedscope(data, tmp_path)
    assert any(frame["name"] == f"a.{HOSTILE}" for frame in content["shared"]["frames"])
    node_data(data, tmp_path)
    text = render_markdown(run_summary(data, Path("report.md")))
    page = rendered(text)
    assert not page.links and page.shape == rendered(render_markdown(run_summary(sme2, Path("r")))).shape
    assert f"**{SME2_CHANGES}** " in text
    assert text.startswith("### &lt;script>alert(1)&lt;/script> | `x`") and "\n\t" not in text


def test_times_before_zero_and_beyond_numbers_make_a_trace_all_the_same(
    sme2: ReportData, tmp_path: Path
) -> None:
    assert sme2.analysis is not None
    dump = series_in(sme2)[0].first
    group = dump.attribution.groups[0]
    start = group.start_ns - 10**15
    duration = group.duration_ns.copy()
    duration[:, -1] = np.iinfo(np.int64).max
    attribution = replace(dump.attribution, groups=(replace(group, start_ns=start, duration_ns=duration),))
    one = series_of([replace(dump, attribution=attribution)])
    data = replace(sme2, analysis=replace(sme2.analysis, series=(one,)))
    (root, *_) = traced(data, tmp_path).runs("linux_sme2_on (1 thread)").values()
    check_nesting(root)
