"""The schedule: every series in every round, an order that is random, recorded and the same on resume."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from said import refused

from model_profiling.config.reading import ProfileConfig, pairs
from model_profiling.config.settings import Experiment, Schedule
from model_profiling.core.errors import InputError
from model_profiling.pipeline.schedule import TRACED_ROUNDS, make_schedule
from model_profiling.pipeline.schedule import Schedule as Plan
from model_profiling.run.journal import Step


def steps_of(schedule: Plan) -> list[Step]:
    return [step for steps in (schedule.evidence, *schedule.rounds) for step in steps]


def config(rounds: int = 8, threads: tuple[int, ...] = (1,), *extra: Experiment) -> ProfileConfig:
    return ProfileConfig(
        model=Path("m.pte"),
        output_root=Path("out"),
        experiments=(
            Experiment(name="x_sme2_on", sme2="on", threads=threads),
            Experiment(name="x_sme2_off", sme2="off", threads=threads),
            *extra,
        ),
        schedule=Schedule(rounds=rounds),
    )


@given(st.integers(1, 15), st.integers(0, 2**32 - 1), st.sampled_from([(1,), (1, 2), (4, 1, 2)]))
def test_every_round_has_every_series_once(rounds: int, seed: int, threads: tuple[int, ...]) -> None:
    schedule = make_schedule(config(rounds, threads), seed, latencies=True)
    assert len(schedule.rounds) == rounds
    for number, steps in enumerate(schedule.rounds):
        kinds = Counter(step.kind for step in steps)
        assert kinds["untraced"] == 2 * len(threads)
        assert kinds["traced"] == (2 * len(threads) if number < TRACED_ROUNDS else 0)
        assert len({step.key for step in steps}) == len(steps)
    keys = [step.key for step in steps_of(schedule)]
    assert len(set(keys)) == len(keys)


def test_the_order_is_drawn_from_the_seed_and_differs_between_rounds() -> None:
    first = make_schedule(config(40), 7, latencies=True)
    assert first == make_schedule(config(40), 7, latencies=True)
    assert first != make_schedule(config(40), 8, latencies=True)
    leads = Counter(
        next(step.series.experiment for step in steps if step.kind == "untraced") for steps in first.rounds
    )
    # A fair draw gives each experiment the first place in a third of 40 rounds or more, almost surely.
    assert min(leads["x_sme2_on"], leads["x_sme2_off"]) >= 8


def test_a_longer_run_keeps_the_rounds_of_a_shorter_one() -> None:
    short, long = (make_schedule(config(rounds), 3, latencies=True) for rounds in (5, 9))
    assert long.rounds[:5] == short.rounds


def test_only_leaves_the_others_out_and_keeps_the_order() -> None:
    whole = make_schedule(config(6), 5, latencies=True)
    part = make_schedule(config(6), 5, latencies=True, only=frozenset({"x_sme2_on"}))
    expected = [step for step in steps_of(whole) if step.series.experiment == "x_sme2_on"]
    assert steps_of(part) == expected
    with refused(InputError, "'y'", fix="x_sme2_on, x_sme2_off"):
        make_schedule(config(6), 5, latencies=True, only=frozenset({"y"}))


def test_trace_experiments_are_never_timed() -> None:
    traced = Experiment(name="x_trace", mode="xnntrace")
    own = Experiment(name="x_own", runner_path="./executor_runner")
    schedule = make_schedule(config(6, (1,), traced, own), 0, latencies=True)
    timed = {step.series.experiment for steps in schedule.rounds for step in steps}
    assert timed == {"x_sme2_on", "x_sme2_off", "x_own"}
    # A runner of the user's own can show kernels only where a trace was asked for.
    assert {step.series.experiment for step in schedule.evidence} == {"x_sme2_on", "x_sme2_off", "x_trace"}


def test_without_latencies_each_series_runs_once() -> None:
    schedule = make_schedule(config(6, (1, 2)), 0, latencies=False)
    assert schedule.rounds == ()
    assert len(schedule.evidence) == 4


def test_pairs_name_both_series() -> None:
    assert [(str(pair.baseline), str(pair.candidate)) for pair in pairs(config(6, (1, 2)))] == [
        ("x_sme2_off, 1 thread", "x_sme2_on, 1 thread"),
        ("x_sme2_off, 2 threads", "x_sme2_on, 2 threads"),
    ]
