"""What counts as the time of an inference: the rule, on machines with neighbours and cores of two speeds."""

import functools
import json
import random
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from recorded_runs import ARM

from model_profiling.config import names
from model_profiling.runner.result import MachineMoment
from model_profiling.runs import figures
from model_profiling.runs.journal import Journal, other_cores
from model_profiling.runs.manifest import read_manifest
from model_profiling.runs.times import INTERRUPTED, Timed, compare_timed
from model_profiling.statistics.measure import (
    Inferences,
    Rule,
    disturbance,
    interrupted_share,
    rule_for,
)
from model_profiling.statistics.speedup import Verdict

SLICE_MS, ELSEWHERE_MS = 3.5, 14.0
"""A neighbour's share: so long a program runs before others have its core, and so long they have it."""


def beside_others(latency_ms: float, draw: random.Random, *, cycles: int = 15, turn: int = 8) -> Inferences:
    """Inferences of a program that loses its core every few milliseconds, as beside four busy neighbours."""
    wall, cpu, preemptions = [], [], []
    left = SLICE_MS
    for _ in range(cycles):
        rows: list[tuple[int, int, int]] = []
        for _ in range(turn):
            computed = latency_ms * draw.gauss(1, 0.002)
            times, rest = 0, computed
            while rest > left:
                rest, left, times = rest - left, SLICE_MS * draw.uniform(0.9, 1.1), times + 1
            left -= rest
            rows.append((round(1e6 * (computed + times * ELSEWHERE_MS)), round(1e6 * computed), times))
        for column, values in zip((wall, cpu, preemptions), zip(*rows, strict=True), strict=True):
            column.append(values)
    return Inferences(wall, cpu, preemptions)


def timed(launches: list[Inferences], threads: int = 1, rule: Rule | None = None) -> Timed:
    rule = rule or rule_for(launches, threads)
    counted = {str(number): each.counted(rule.measure, rule.speed) for number, each in enumerate(launches)}
    rounds = [[ms for turn in turns for ms in turn] for turns in counted.values()]
    again = functools.partial(timed, launches, threads)
    return Timed(rounds, counted, rule=rule, disturbance=disturbance(launches), again=again)


def test_a_long_program_beside_neighbours_is_as_long_as_alone() -> None:
    """Forty layers and two: a short inference fits between two interruptions, a long one never does."""
    draw = random.Random(1)
    long, short = ([beside_others(ms, draw) for _ in range(8)] for ms in (18.0, 0.9))
    assert rule_for(long, 1).measure == "cpu time" and rule_for(short, 1).measure == "wall time"
    found = compare_timed(timed(long), timed(short), same_run=True)
    assert found.measured == "cpu time", "both sides by the same measure"
    assert found.low is not None and found.high is not None and found.low < 20.0 < found.high
    assert found.candidate_median == pytest.approx(0.9, rel=0.02)
    assert interrupted_share(long) == pytest.approx(ELSEWHERE_MS / (ELSEWHERE_MS + SLICE_MS), abs=0.03)


def test_busy_cores_widen_the_interval_of_unequal_programs_that_nobody_interrupts() -> None:
    """They slow one of the two through shared caches, which no counter shows: here by 1.6%."""
    draw = random.Random(2)

    def alone(latency_ms: float, others: float) -> list[Inferences]:
        launches = []
        for _ in range(8):
            wall = [[round(1e6 * latency_ms * draw.gauss(1, 0.0005)) for _ in range(8)] for _ in range(15)]
            launches.append(Inferences(wall, wall, [[0] * 8] * 15, other_cores=others))
        return launches

    unaware, aware = (
        compare_timed(timed(alone(20.0, 0)), timed(alone(1.016, busy)), same_run=True) for busy in (0, 1.0)
    )
    assert unaware.high is not None and unaware.high < 20.0
    assert aware.low is not None and aware.high is not None and aware.low < 20.0 < aware.high
    equal = compare_timed(timed(alone(3.0, 1.0)), timed(alone(3.03, 1.0)), same_run=True)
    assert equal.verdict is Verdict.SLOWER, "1% of programs alike is still found"


def test_which_inferences_count_and_how_many_cores_others_keep_busy() -> None:
    taken = Inferences([(9, 1, 2, 3, 4, 5, 6)], [(9, 1, 2, 3, 4, 5, 6)], [(0, 0, 0, 2, 0, 0, 0)])
    # Nor does the first count, nor one after an interrupted.
    assert taken.counted("wall time") == [[1e-6, 2e-6, 5e-6, 6e-6]]
    assert taken.counted("wall time, interrupted") == [[1e-6, 2e-6, 3e-6, 4e-6, 5e-6, 6e-6]]
    assert Inferences([(7,), (8,)], [(7,), (8,)], [(0,), (0,)]).counted("wall time") == [[7e-6], [8e-6]]
    alone = Inferences([(7, 8)], [(7, 8)], [(0, 0)], alone=True)
    assert alone.counted("wall time") == [[7e-6, 8e-6]], "a process of its own was warmed up before"
    before = MachineMoment(idle_ticks=1000, total_ticks=4000, cpus=4)
    assert other_cores(before, replace(before, idle_ticks=1300, total_ticks=4400)) == 0.0
    assert other_cores(before, replace(before, idle_ticks=1100, total_ticks=4400)) == 2.0
    assert other_cores(before, MachineMoment()) == 0.0, "unknown"


@pytest.mark.parametrize(
    ("interrupted", "one_thread", "two_threads"),
    [(0, "wall time", "wall time"), (1, "cpu time", "wall time"), (5, "cpu time", "wall time, interrupted")],
)
def test_the_measure_follows_from_how_many_launches_were_left_alone(interrupted, one_thread, two_threads):
    quiet, busy = (Inferences([(5,) * 7], [(5,) * 7], [(times,) * 7]) for times in (0, 1))
    launches = [busy] * interrupted + [quiet] * (8 - interrupted)
    assert [rule_for(launches, threads).measure for threads in (1, 2)] == [one_thread, two_threads]


def test_several_threads_interrupted_or_a_runner_that_does_not_say() -> None:
    busy = [Inferences([(5_000,) * 7] * 4, [(5_000,) * 7] * 4, [(1,) * 7] * 4)] * 8
    found = compare_timed(timed(busy, 2), timed(busy, 2), same_run=True)
    assert (found.verdict, found.ratio, found.reason) == (Verdict.NOT_COMPARABLE, None, INTERRUPTED)
    told = [beside_others(6.0, random.Random(2)) for _ in range(6)]
    untold = [Inferences(each.wall) for each in told]
    assert rule_for(untold, 1).measure == "wall time, unchecked"
    found = compare_timed(timed(told), timed(untold), same_run=True)
    assert found.measured == "wall time, unchecked" and found.ratio == pytest.approx(1.0)


def test_cores_of_two_speeds_are_not_mixed() -> None:
    """A third of the turns ran on little cores, where an inference takes three times as long."""
    draw = random.Random(3)

    def launch(latency_ms: float) -> Inferences:
        speeds = [draw.choice((1024, 1024, 330)) for _ in range(15)]
        turns = [
            [round(1e6 * latency_ms * (1 if speed == 1024 else 3) * draw.gauss(1, 0.003)) for _ in range(8)]
            for speed in speeds
        ]
        return Inferences(turns, turns, [[0] * 8] * 15, speeds)

    before, after = ([launch(ms) for _ in range(8)] for ms in (2.0, 1.9))
    assert rule_for([*before, *after], 1) == Rule("wall time", 1024)
    found = compare_timed(timed(before), timed(after), same_run=True)
    assert found.ratio == pytest.approx(2.0 / 1.9, rel=0.005) and found.verdict is Verdict.FASTER
    assert (found.baseline_median, found.candidate_median) == pytest.approx((2.0, 1.9), rel=0.01)


def test_what_other_virtual_machines_took_is_said(tmp_path: Path) -> None:
    """The recorded run again, as if its hypervisor had given a fifth of each launch to others."""
    manifest = read_manifest(ARM)
    assert manifest is not None
    lines = [json.loads(line) for line in (ARM / names.JOURNAL).read_text().splitlines()]
    for entry in lines:
        if entry["launch"]:
            before, after = entry["machine_before"], entry["machine_after"]
            after["steal_ticks"] = before["steal_ticks"] + (after["total_ticks"] - before["total_ticks"]) // 5
    (tmp_path / names.JOURNAL).write_text("".join(json.dumps(entry) + "\n" for entry in lines))
    for folder, said in ((ARM, []), (tmp_path, ["other virtual machines took 20% of the CPU"])):
        journal = Journal(folder)
        measured = list({entry.series for entry in journal.entries()})
        remarks = [one for one in figures._stability(manifest, journal, measured) if one.code == "stolen"]
        assert [one.seen.format(*one.numbers) for one in remarks] == said


def test_a_recorded_run_on_two_kinds_of_core_is_measured_by_the_fast_ones(tmp_path: Path) -> None:
    """The recorded run again, with every third turn of each program on a core that is three times slower."""
    lines = []
    for line in (ARM / names.JOURNAL).read_text().splitlines():
        entry = json.loads(line)
        if entry["launch"]:
            entry["machine_before"]["capacities"] = [1024, 330]
            for turn in range(len(entry["turns_ns"])):
                entry["turns_cpu"][turn] = int(turn % 3 == 0)
                for column in ("turns_ns", "turns_cpu_ns"):
                    slower = 3 if turn % 3 == 0 else 1
                    entry[column][turn] = [slower * ns for ns in entry[column][turn]]
        lines.append(json.dumps(entry))
    (tmp_path / names.JOURNAL).write_text("\n".join(lines) + "\n")
    before, after = Journal(ARM), Journal(tmp_path)
    for series in {entry.series for entry in before.entries()}:
        medians = [
            statistics.median(ms for latencies in journal.latencies_ms(series, 6) for ms in latencies)
            for journal in (before, after)
        ]
        assert medians[1] == pytest.approx(medians[0], rel=0.02), series
