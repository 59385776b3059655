"""A run directory opened, with a manifest and without: dumps, series, pairs, and what its times mean."""

from dataclasses import replace
from pathlib import Path

import pytest
from said import refused, says

from model_profiling.config.series import Pair, Series
from model_profiling.core.errors import InputError
from model_profiling.core.records import write_record
from model_profiling.runs import Manifest, Metrics, PairSpeedup, Result, Run, Times
from model_profiling.runs.manifest import Machine, TargetFacts
from model_profiling.runs.run import times_of_file
from model_profiling.runs.times import times_of_mode, times_without_manifest
from model_profiling.statistics.speedup import compare_rounds
from model_profiling.targets import MachineFacts

ON, OFF = Series("on", 1), Series("off", 1)
MANIFEST = Manifest(
    model="toy.pte",
    model_sha256="aa",
    target=TargetFacts("host", "mac", Times.HARDWARE),
    machine=Machine(MachineFacts(cpu="M4", features=("sme2",))),
    results=(
        Result(experiment="on", threads=1, sme2="on", etdump="on/a_t1.etdump", etdump_warmup_runs=3),
        Result(experiment="off", threads=1, sme2="off", disable=("sme2",), etdump="off/a_t1.etdump"),
        Result(experiment="trace_sme2_on", threads=1, sme2="on", mode="xnntrace"),
    ),
)


def made(folder: Path, *dumps: str, manifest: Manifest | None = None) -> Path:
    for name in dumps:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    if manifest is not None:
        write_record(folder / "manifest.json", manifest)
    return folder


def test_a_manifest_says_what_each_dump_is(tmp_path: Path) -> None:
    dumps = ("on/a_t1.etdump", "on/rounds/a_t1_r1.etdump")
    first, *others = MANIFEST.results
    manifest = replace(MANIFEST, results=(replace(first, etdump_rounds=dumps), *others))
    run = Run.open(made(tmp_path, *dumps, manifest=manifest))
    first, second = run.dumps
    assert (first.series, first.times, first.warmup_runs, first.sme2) == (ON, Times.HARDWARE, 3, True)
    assert (first.round, second.round, second.series) == (0, 1, ON)
    (said,) = run.warnings
    says(str(said), "off/a_t1.etdump", "manifest.json", "missing")
    assert run.series == (ON, OFF, Series("trace_sme2_on", 1))
    assert run.times_of(run.series[2]) is Times.TRACED and run.times is Times.HARDWARE


def test_dumps_beside_the_listed_or_of_one_name_are_series_of_their_own(tmp_path: Path) -> None:
    run = Run.open(made(tmp_path, "on/a_t1.etdump", "mine/b_t2.etdump", ".work/x.etdump", manifest=MANIFEST))
    assert [dump.series for dump in run.dumps] == [ON, Series("mine", 2)]
    says(" ".join(map(str, run.warnings)), "1 dump not in manifest.json", "by name")
    made(tmp_path / "inner", "on/a_t1.etdump", manifest=MANIFEST)
    assert Run.open(tmp_path).series == run.series, "a run inside another is its own"


def test_dumps_that_only_share_a_name_are_two_series(tmp_path: Path) -> None:
    run = Run.open(made(tmp_path, "a/on/m_t1.etdump", "b/on/m_t1.etdump"))
    assert [dump.series for dump in run.dumps] == [ON, Series("b/on", 1)]


def test_pairs_are_those_stored_answered_or_the_natural_ones(tmp_path: Path) -> None:
    found = Run(tmp_path, MANIFEST).pairs
    assert found == (Pair("on vs off, 1 thread", OFF, ON),), "a trace is not compared"
    without = replace(MANIFEST, machine=Machine(MachineFacts(cpu="N1")))
    (pair,) = Run(tmp_path, without).pairs
    says(pair.not_comparable or "", "N1", "no SME2")
    stored = (Pair("mine", ON, OFF, "because"),)
    assert Run(tmp_path, replace(MANIFEST, pairs=stored)).pairs == stored
    assert Run(tmp_path, replace(MANIFEST, pairs=())).pairs == (), "nothing was to be compared"
    answer = PairSpeedup("mine", ON, OFF, compare_rounds([[2.0]] * 6, [[1.0]] * 6))
    run = Run(tmp_path, MANIFEST, metrics=Metrics(comparisons=(answer,)))
    assert run.pairs == (answer.pair,) and run.comparison(run.pairs[0]) is answer


def test_a_folder_above_or_inside_a_run_is_refused(tmp_path: Path) -> None:
    run_dir = made(tmp_path / "runs" / "linux", "on/a_t1.etdump", manifest=MANIFEST)
    with refused(InputError, tmp_path, "1 run", fix=run_dir):
        Run.open(tmp_path)
    with refused(InputError, run_dir / "on", fix=run_dir):
        Run.open(run_dir / "on")
    with refused(InputError, tmp_path / "gone"):
        Run.open(tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    with refused(InputError, tmp_path / "empty", "no run", "no dumps"):
        Run.open(tmp_path / "empty")


def test_a_dump_that_is_named_is_still_what_its_run_says(tmp_path: Path) -> None:
    made(tmp_path, "on/a_t1.etdump", "off/a_t1.etdump", manifest=MANIFEST)
    run = Run.of_files([tmp_path / "on/a_t1.etdump"])
    assert run.dumps[0].series == ON and run.dumps[0].warmup_runs == 3 and run.whole.manifest == MANIFEST
    (tmp_path / "manifest.json").unlink()
    (dump,) = Run.of_files([tmp_path / "on/a_t1.etdump"]).dumps
    assert dump.series == Series("a", 1) and dump.times is Times.UNKNOWN
    with refused(InputError, tmp_path / "gone.etdump"):
        Run.of_files([tmp_path / "gone.etdump"])


DUMP = "on/toy_on_t1.etdump"


def touched(path: Path) -> Path:
    return made(path.parent, path.name) / path.name


@pytest.mark.parametrize(
    ("folder", "times"),
    [
        ("emulated", Times.EMULATED),
        ("emulated-20260101-101010", Times.EMULATED),
        ("emulated-earlier-1", Times.EMULATED),
        ("emulated_old", Times.EMULATED),
        ("emulatedish", Times.UNKNOWN),
        ("not-emulated", Times.UNKNOWN),
        ("linux", Times.UNKNOWN),
    ],
)
def test_a_folder_named_as_the_kit_names_emulated_runs_tells(tmp_path, folder, times, monkeypatch):
    dump = touched(tmp_path / folder / DUMP)
    made = touched(tmp_path / folder / "on" / "toy_on_t1_exec_all_runs_timeline.csv")
    for path in (dump, made, tmp_path / folder):
        assert times_without_manifest(path)[0] is times
    run = Run.open(tmp_path / folder)
    assert run.times is run.dumps[0].times is times
    monkeypatch.chdir(tmp_path / folder)
    assert times_without_manifest(Path())[0] is times, "also from inside it"
    assert Run.open(Path(), times=Times.HARDWARE).times is (
        Times.EMULATED if times is Times.EMULATED else Times.HARDWARE
    ), "the user's word counts only where nothing else speaks"


@pytest.mark.parametrize(
    ("row", "times"),
    [("toy,traced", Times.TRACED), ("toy,emulated", Times.EMULATED), ("toy,hardware", Times.UNKNOWN),
     ("", Times.UNKNOWN)],
)  # fmt: skip
def test_the_statistics_beside_a_dump_tell(tmp_path: Path, row: str, times: Times) -> None:
    later = touched(tmp_path / "on" / "rounds" / "toy_on_t1_r2.etdump")
    dump = touched(tmp_path / DUMP)
    (tmp_path / "on" / "toy_on_t1_exec_ops_stats.csv").write_text(f"model_id,times\n{row}\n")
    assert times_without_manifest(dump)[0] is times_without_manifest(later)[0] is times


def test_the_manifest_speaks_for_every_file_of_its_run(tmp_path: Path) -> None:
    target = TargetFacts("host", "linux", Times.HARDWARE)
    trace = Result(experiment="trace", mode="xnntrace", etdump="trace/toy_trace_t1.etdump")
    results = (Result(experiment="on", threads=1, etdump=DUMP, etdump_warmup_runs=2), trace)
    for result in results:
        touched(tmp_path / str(result.etdump))
    write_record(tmp_path / "manifest.json", Manifest(target=target, results=results))
    times, said_by, result = times_of_file(touched(tmp_path / "on" / "toy_on_t1_exec_ops_stats.csv"))
    assert (times, said_by, result) == (Times.HARDWARE, "manifest.json", results[0])
    assert times_of_file(tmp_path / "trace" / "toy_trace_t1.etdump")[0] is Times.TRACED
    (tmp_path / "manifest.json").unlink()
    assert times_of_file(tmp_path / DUMP)[0] is Times.UNKNOWN
    assert Run.open(tmp_path).times is Times.UNKNOWN, "unknown is never hardware"
    write_record(tmp_path / "metrics.json", Metrics(times=Times.HARDWARE))
    assert Run.open(tmp_path).times is Times.UNKNOWN
    write_record(tmp_path / "metrics.json", Metrics(times=Times.EMULATED))
    assert Run.open(tmp_path).times is Times.EMULATED
    assert times_without_manifest(tmp_path / DUMP) == (Times.EMULATED, "metrics.json")
    for name, damaged in (("metrics.json", "{"), ("analysis_summary.json", "[]")):
        (tmp_path / name).write_text(damaged)
    assert times_without_manifest(tmp_path / DUMP) == (Times.UNKNOWN, "")


def test_only_hardware_gives_latencies_and_names_tell_emulation(tmp_path: Path) -> None:
    assert [times for times in Times if times.are_latencies] == [Times.HARDWARE]
    assert [times for times in Times if times.are_shown] == [Times.HARDWARE, Times.UNKNOWN]
    assert times_of_mode("timing", Times.HARDWARE) is Times.HARDWARE
    assert times_of_mode("xnntrace", Times.HARDWARE) is Times.TRACED
    for target in (Times.EMULATED, Times.UNKNOWN):
        assert times_of_mode("xnntrace", target) is times_of_mode("timing", target) is target
    assert times_without_manifest(tmp_path / "toy_emulated_sme2_on_t1.etdump")[0] is Times.EMULATED
    assert times_without_manifest(tmp_path / "emulated_sme2_on_t1_r3.etdump")[0] is Times.EMULATED
    assert times_without_manifest(tmp_path / "toy_not_so_emulated.etdump")[0] is Times.UNKNOWN
