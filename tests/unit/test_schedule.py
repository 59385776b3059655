"""Who is measured when: every series in every round, runs that share a device, and the order of turns."""

from collections import Counter
from itertools import islice
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from said import refused
from turn_order import shuffles

from model_profiling.config.settings import Experiment, ProfileConfig, Schedule
from model_profiling.core.errors import InputError
from model_profiling.runs.journal import RunStep
from model_profiling.runs.schedule import TRACED_ROUNDS, Order, Pace, make_order, plan
from model_profiling.statistics.measure import EXACT_ROUNDS, PLANNED_LAUNCHES


def steps_of(schedule: Order) -> list[RunStep]:
    return [step for steps in (schedule.evidence, *schedule.rounds) for step in steps]


def config(rounds: int = 8, threads: tuple[int, ...] = (1,), *extra: Experiment) -> ProfileConfig:
    both = [Experiment(name=f"x_sme2_{switch}", sme2=switch, threads=threads) for switch in ("on", "off")]
    planned = Schedule(rounds=rounds)
    return ProfileConfig(
        model=Path("m.pte"), output_root=Path("out"), experiments=(*both, *extra), schedule=planned
    )


@given(st.integers(1, 15), st.integers(0, 2**32 - 1), st.sampled_from([(1,), (1, 2), (4, 1, 2)]))
def test_every_round_has_every_series_once(rounds: int, seed: int, threads: tuple[int, ...]) -> None:
    schedule = make_order(config(rounds, threads), seed, latencies=True)
    assert len(schedule.rounds) == rounds
    for number, steps in enumerate(schedule.rounds):
        kinds = Counter(step.kind for step in steps)
        assert kinds["untraced"] == 2 * len(threads)
        assert kinds["traced"] == (2 * len(threads) if number < TRACED_ROUNDS else 0)
        assert len({step.key for step in steps}) == len(steps)
    keys = [step.key for step in steps_of(schedule)]
    assert len(set(keys)) == len(keys)


def test_the_order_is_drawn_from_the_seed_and_never_changes() -> None:
    first = make_order(config(40), 7, latencies=True)
    assert first == make_order(config(40), 7, latencies=True)
    assert first != make_order(config(40), 8, latencies=True)
    leads = Counter(
        next(step.series.experiment for step in steps if step.kind == "untraced") for steps in first.rounds
    )
    # A fair draw gives each experiment the first place in a third of 40 rounds or more, almost surely.
    assert min(leads["x_sme2_on"], leads["x_sme2_off"]) >= 8
    short, long = (make_order(config(rounds), 3, latencies=True) for rounds in (5, 9))
    assert long.rounds[:5] == short.rounds
    # By SplitMix64, whose first numbers for 1234567 are 6457827717110365317 and 3203168211198807973: they
    # leave 3 of 6 and 3 of 5. An order that a run has noted must come out again.
    orders = [(0, 2, 1, 4, 5, 3), (3, 4, 5, 1, 2, 0), (1, 0, 5, 4, 3, 2)]
    assert list(islice(shuffles(1234567, 6), 3)) == orders


def test_only_leaves_the_others_out_and_traces_are_never_timed() -> None:
    whole = make_order(config(6), 5, latencies=True)
    part = make_order(config(6), 5, latencies=True, only=frozenset({"x_sme2_on"}))
    expected = [step for step in steps_of(whole) if step.series.experiment == "x_sme2_on"]
    assert steps_of(part) == expected
    with refused(InputError, "'y'", fix="x_sme2_on, x_sme2_off"):
        make_order(config(6), 5, latencies=True, only=frozenset({"y"}))
    traced = Experiment(name="x_trace", mode="xnntrace")
    own = Experiment(name="x_own", runner_path="./executor_runner")
    schedule = make_order(config(6, (1,), traced, own), 0, latencies=True)
    timed = {step.series.experiment for steps in schedule.rounds for step in steps}
    assert timed == {"x_sme2_on", "x_sme2_off", "x_own"}
    # A runner of the user's own can show kernels only where a trace was asked for.
    assert {step.series.experiment for step in schedule.evidence} == {"x_sme2_on", "x_sme2_off", "x_trace"}
    without_latencies = make_order(config(6, (1, 2)), 0, latencies=False)
    assert without_latencies.rounds == () and len(without_latencies.evidence) == 4


@given(st.floats(2e6, 2e8), st.floats(0, 0.5), st.floats(20, 200))
def test_launches_with_and_without_the_tracer_share_the_budget(
    both_ns: float, start_s: float, budget_s: float
) -> None:
    """Where at least five cycles fit, all launches of both kinds end within it."""
    pace = Pace(both_ns, start_s, both_ns / 2)
    spent = 0.0
    for traced, launches in ((None, PLANNED_LAUNCHES), (5, EXACT_ROUNDS)):
        turns = plan(pace, 2, budget_s, None, traced)
        spent += launches * turns.cycles * turns.turn_length * both_ns / 1e9
        assert turns.cycles >= 1
    assert spent <= max(budget_s, (PLANNED_LAUNCHES + EXACT_ROUNDS) * 3 * both_ns / 1e9)
