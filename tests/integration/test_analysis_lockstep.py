"""Operators of programs that took turns: real traced launches on this machine, from dumps to verdicts."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from model_profiling.analysis.attribution import EXECUTE
from model_profiling.analysis.run import RunAnalysis
from model_profiling.compat.input_files import analyse_timeline
from model_profiling.config import names
from model_profiling.config.series import Pair, Series
from model_profiling.core import files
from model_profiling.core.records import write_record
from model_profiling.etdump import EventTable, read_etdump
from model_profiling.runs import Manifest, Result, Run, Times
from model_profiling.runs.manifest import TargetFacts
from model_profiling.statistics.speedup import Verdict
from model_profiling.targets import Job, LockstepJob
from model_profiling.targets.host import HostTarget
from model_profiling.tools import robust_latency_analysis
from model_profiling.validation.validate import (
    CheckedRun,
    csv_files_match,
    dumps_close,
    dumps_parse,
    same_program,
)
from model_profiling.workflow.analyse import analyse, write_analysis
from model_profiling.workflow.compare import compare

# Fewer than six launches, so that only a large difference would be one: nothing here may depend on luck.
LAUNCHES, CYCLES, TURN = 4, 5, 3
SERIES = Series("one", 1), Series("other", 1)
TurnsMs = list[list[list[float]]]


@pytest.fixture(scope="module")
def launched(exported, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[Series, TurnsMs]]:
    """One program against itself in a few launches: a run directory, and turns as the runner timed them."""
    home = tmp_path_factory.mktemp("lockstep")
    pte, run_dir = exported("toy_cnn", "fp32").pte, home / "run"
    target = HostTarget()
    target.prepare()
    run_files = names.RunFiles(run_dir, pte.stem)
    told: dict[Series, TurnsMs] = {series: [] for series in SERIES}
    dumps: dict[Series, list[str]] = {series: [] for series in SERIES}
    jobs = tuple(Job(pte, warmup=2, etdump=True) for _ in SERIES)
    for number in range(LAUNCHES):
        job = LockstepJob(jobs, cycles=CYCLES, turn_length=TURN, order_seed=number)
        made = target.execute_lockstep(job, home / "launches", f"launch{number}")
        for child, series in enumerate(SERIES):
            place, dump = run_files.dump(series, number), made.outcomes[child].etdump
            place.parent.mkdir(parents=True, exist_ok=True)
            assert dump is not None
            shutil.copy(dump, place)
            dumps[series].append(run_files.relative(place))
            taken = zip(made.turns.child, made.turns.iterations_ns, strict=True)
            told[series].append([[ns / 1e6 for ns in turn] for whose, turn in taken if whose == child])
    manifest = Manifest(
        model=str(pte),
        model_sha256=files.sha256(pte),
        target=TargetFacts(target.name, target.platform, Times.HARDWARE),
        experiments=tuple(series.experiment for series in SERIES),
        pairs=(Pair("itself", *SERIES),),
        results=tuple(
            Result(
                experiment=series.experiment,
                threads=series.threads,
                runner_path="builtin",
                rounds=LAUNCHES,
                etdump=dumps[series][0],
                etdump_rounds=tuple(dumps[series]),
                etdump_turn_length=TURN,
            )
            for series in SERIES
        ),
    )
    write_record(run_dir / names.MANIFEST, manifest)
    artifacts = run_dir / "artifacts"
    artifacts.mkdir()
    for made in (pte, Path(f"{pte}.etrecord")):
        shutil.copy(made, artifacts)
    return run_dir, told


@pytest.fixture(scope="module")
def analysis(launched: tuple[Path, dict[Series, TurnsMs]]) -> RunAnalysis:
    return analyse(launched[0])


def executes(table: EventTable) -> list[int]:
    """Nanoseconds of every run in the file."""
    found: list[int] = table.duration_ns[table.name == table.name_index(EXECUTE)].tolist()
    return found


def test_the_first_run_of_each_turn_is_in_no_figure(analysis: RunAnalysis, launched) -> None:
    _, told = launched
    counted = CYCLES * (TURN - 1)
    for series in analysis.series:
        assert series.took_turns and series.runs == LAUNCHES * counted
        assert (
            f"of {LAUNCHES * counted} traced runs, by end-to-end time, in {LAUNCHES} launches"
            in series.taken_from
        )
        for dump in series.rounds:
            bare = executes(read_etdump(dump.path))
            assert len(bare) == CYCLES * TURN
            kept = [ns for number, ns in enumerate(bare) if number % TURN]
            assert dump.breakdown.e2e.tolist() == kept and dump.runs == counted
            assert dump.breakdown.closes
            assert {operator.times.runs for operator in series.operators} == {LAUNCHES * counted}
            assert dump.turns.tolist() == [cycle for cycle in range(CYCLES) for _ in range(TURN - 1)]
        for number, launch in enumerate(series.by_turn(series.breakdown.e2e).values()):
            for inside, outside in zip(launch, told[series.series][number], strict=True):
                # The runner's own clock around each run of the same turn, but for the first.
                assert len(inside) == TURN - 1
                assert all(ours <= theirs for ours, theirs in zip(inside, outside[1:], strict=True))


def test_parts_and_operators_add_up(analysis: RunAnalysis) -> None:
    for series in analysis.series:
        assert series.breakdown.closes
        assert sum(series.spent(part).ms for part in series.parts.values()) == pytest.approx(series.e2e_ms)
        by_turn = [series.by_turn(part) for part in series.parts.values()]
        for number, launch in series.by_turn(series.breakdown.e2e).items():
            sums = np.sum([part[number] for part in by_turn], axis=0)
            assert sums == pytest.approx(np.array(launch))


def test_a_program_against_itself_is_neither_faster_nor_slower(analysis: RunAnalysis) -> None:
    (pairing,) = analysis.pairings
    assert pairing.measured == "lockstep" and pairing.matched_by == "graph node"
    assert pairing.e2e.rounds == LAUNCHES and pairing.e2e.verdict is Verdict.NO_CHANGE
    assert pairing.e2e.method == f"Student plus 10%, only {LAUNCHES} launches"
    one, other = analysis.series
    assert len(pairing.operators) == len(one.operators) == len(other.operators) > 4
    assert {pair.change for pair in pairing.operators} == {"same"}
    judged = [found.speedup for found in (*pairing.operators, *pairing.categories) if found.speedup]
    assert len(judged) > 4
    assert {(found.verdict, found.rounds) for found in judged} == {(Verdict.NO_CHANGE, LAUNCHES)}


def test_a_launch_whose_dump_is_lost_leaves_the_others_aligned(launched, tmp_path: Path) -> None:
    """Turns of the launches that both still have stand against each other, whoever asks."""
    run_dir = Path(shutil.copytree(launched[0], tmp_path / "run"))
    lost = sorted((run_dir / "other" / names.ROUNDS).iterdir())[0]
    whole = analyse(run_dir).pairings[0]
    lost.unlink()
    (pairing,) = analyse(run_dir).pairings
    assert pairing.e2e.rounds == LAUNCHES - 1
    ours, theirs = pairing.baseline, pairing.candidate
    assert [dump.dump.round for dump in ours.rounds] == [dump.dump.round for dump in theirs.rounds]
    e2e = whole.baseline.breakdown.e2e
    kept = {dump.dump.met for dump in ours.rounds}
    expected = {launch: turns for launch, turns in whole.baseline.by_turn(e2e).items() if launch in kept}
    assert ours.by_turn(ours.breakdown.e2e) == expected


def test_dumps_of_two_runs_or_launches_are_not_set_cycle_against_cycle(launched, tmp_path: Path) -> None:
    run_dir = launched[0]
    again = Path(shutil.copytree(run_dir, tmp_path / "again"))
    pairings = [found.pairing for found in compare(run_dir, again).series]
    assert [found.measured for found in pairings if found] == ["apart", "apart"]
    first = Run.open(run_dir).dumps[0].path
    later = sorted((run_dir / "other" / names.ROUNDS).iterdir())[0]
    (alone,) = compare(first, later).series
    assert alone.pairing is not None and alone.pairing.measured == "apart"
    (within,) = compare(first, run_dir / "other" / first.name.replace("one", "other")).series
    assert within.pairing is not None and within.pairing.measured == "lockstep"
    assert within.end_to_end.verdict is Verdict.NOT_COMPARABLE and within.end_to_end.rounds == 1


def test_files_hold_the_runs_that_count(launched, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = Path(shutil.copytree(launched[0], tmp_path / "run"))
    analysis = analyse(run_dir)
    written = write_analysis(analysis)
    series = analysis.series[0]
    first = series.first
    timeline = next(path for path in written if path.name == f"{first.stem}_exec_all_runs_timeline.csv")
    rows = list(csv.DictReader(timeline.read_text().splitlines()))
    assert sum(row["name"] == EXECUTE for row in rows) == CYCLES * (TURN - 1)
    assert len(rows) == first.attribution.event_count < len(read_etdump(first.path))
    read = analyse_timeline(timeline)
    assert read.breakdown.e2e.tolist() == first.breakdown.e2e.tolist()
    for category, part in first.breakdown.categories.items():
        assert read.breakdown.categories[category].tolist() == part.tolist()
    summary = json.loads((run_dir / names.ANALYSIS).read_text())
    said = summary["per_etdump"][0]
    assert (said["runs"], said["rows"]) == (series.runs, len(rows))
    assert csv_files_match(CheckedRun(run_dir)).status == "pass"
    stats = tmp_path / "stats.json"
    assert robust_latency_analysis.main([str(first.path), "--output", str(stats)]) == 0
    capsys.readouterr()
    (latencies,) = json.loads(stats.read_text())["end_to_end_rounds_ms"]
    assert latencies == [ns / 1e6 for ns in first.breakdown.e2e.tolist()]


def test_dumps_of_turns_are_valid(launched) -> None:
    checked = CheckedRun(launched[0])
    for question in (dumps_parse, dumps_close, same_program):
        assert question(checked).status == "pass"
