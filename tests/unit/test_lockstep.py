"""Programs that take turns: few false alarms, small differences found, whatever the machine does meanwhile.

The simulations are small here; `bench/lockstep_simulation.py` runs the long ones.
"""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_turns import CLOCK_STEP, NOISES, Floats, made_up, made_up_operator
from said import says

from model_profiling.config.series import Series
from model_profiling.core.errors import InputError
from model_profiling.runs.figures import latency_warnings
from model_profiling.statistics.measure import plan_turns
from model_profiling.statistics.speedup import (
    Launches,
    Speedup,
    Verdict,
    compare_launches,
    compare_many,
    precise_enough,
)

JUDGED = (Verdict.FASTER, Verdict.SLOWER)
THRESHOLD = 0.003
ON = Series("on", 1)


def lists(pair: tuple[Floats, Floats]) -> tuple[Launches, Launches]:
    """Without the first inference of each turn, which does not count."""
    return pair[0][:, :, 1:].tolist(), pair[1][:, :, 1:].tolist()


def few_enough(wrong: int, trials: int) -> bool:
    """A true 5% passes in 99 of 100 seeds; the seeds here are fixed."""
    return wrong <= 0.05 * trials + 2.33 * math.sqrt(0.05 * 0.95 * trials)


@pytest.mark.parametrize("few_layouts", [False, True], ids=["any layout", "two layouts"])
@pytest.mark.parametrize("kind", NOISES)
def test_false_verdicts_stay_below_five_percent(kind: str, few_layouts: bool) -> None:
    noise, shape = np.random.default_rng(21), {"launches": 6, "cycles": 12, "few_layouts": few_layouts}
    pairs = (lists(made_up(noise, kind, **shape)) for _ in range(60))
    wrong = sum(compare_launches(*pair, practical_threshold=0).verdict in JUDGED for pair in pairs)
    assert few_enough(wrong, 60)


@pytest.mark.parametrize("kind", ["quiet", "wandering", "contended"])
def test_stopping_early_does_not_invent_differences(kind: str) -> None:
    noise = np.random.default_rng(22)
    trials, most = 40, 19
    wrong = early = 0
    for _ in range(trials):
        ours, theirs = lists(made_up(noise, kind, launches=most, cycles=12))
        stop = next((n for n in range(7, most) if precise_enough(ours[:n], theirs[:n])), most)
        early += stop < most
        found = compare_launches(ours[:stop], theirs[:stop], practical_threshold=0)
        wrong += found.verdict in JUDGED
    assert early > 0
    assert few_enough(wrong, trials)


@pytest.mark.parametrize("kind", NOISES)
def test_two_percent_is_found_in_ten_launches(kind: str) -> None:
    noise, shape = np.random.default_rng(23), {"launches": 10, "cycles": 50, "slower": 0.02}
    pairs = (lists(made_up(noise, kind, **shape)) for _ in range(20))
    found = [compare_launches(*pair, practical_threshold=THRESHOLD).verdict for pair in pairs]
    assert found.count(Verdict.SLOWER) >= 19
    assert Verdict.FASTER not in found


def test_contention_and_cold_caches_hardly_show() -> None:
    """Waiting takes as long for both programs: means and medians of such turns lean towards no difference."""
    noise = np.random.default_rng(24)
    pair = lists(made_up(noise, "contended", launches=60, cycles=100, slower=0.03, layout=0))
    found = compare_launches(*pair)
    assert found.ratio == pytest.approx(1 / 1.03, abs=0.001)
    # Its turns' first inferences take 50% longer, the second 5%: means of what counts differ by 1.3%.
    ours, theirs = made_up(np.random.default_rng(27), "spikes", launches=40, cycles=50, layout=0, carries=5)
    assert theirs[..., 1:].mean() / ours[..., 1:].mean() > 1.01
    assert compare_launches(*lists((ours, theirs))).ratio == pytest.approx(1.0, abs=0.003)


def test_the_interval_covers_the_truth() -> None:
    noise = np.random.default_rng(25)
    covered = 0
    for _ in range(100):
        found = compare_launches(*lists(made_up(noise, "normal", launches=7, cycles=8, turn=3, slower=0.2)))
        covered += found.low <= 1 / 1.2 <= found.high
    assert covered >= 94


latencies = st.floats(0.5, 2.0)


@st.composite
def any_launches(draw: st.DrawFn) -> tuple[list[list[list[float]]], list[list[list[float]]]]:
    """Launches of any shape, some turns cut short, some launches failed."""
    turn = st.lists(latencies, min_size=0, max_size=4)
    launch = st.lists(turn, min_size=0, max_size=4)
    side = st.lists(launch, min_size=9, max_size=9)
    return draw(side), draw(side)


Figures = tuple[float | None, ...]


def figures(found: Speedup) -> Figures:
    return found.ratio, found.low, found.high, found.p_value


@given(any_launches(), st.sampled_from([2.0**-20, 1e-6, 1e6]), st.permutations(range(9)))
def test_unit_and_order_of_launches_do_not_matter_and_swapping_sides_inverts_the_ratio(pair, scale, order):
    first, back = compare_launches(*pair), compare_launches(*reversed(pair))
    ours, theirs = ([[[scale * x for x in turn] for turn in one] for one in side] for side in pair)
    scaled = compare_launches(ours, theirs)
    shuffled = compare_launches(*([side[place] for place in order] for side in pair))
    for other in (scaled, shuffled):
        assert (other.verdict, other.rounds, other.method) == (first.verdict, first.rounds, first.method)
        assert figures(other) == pytest.approx(figures(first))
    assert first.rounds == back.rounds and (first.verdict in JUDGED) == (back.verdict in JUDGED)
    if first.ratio is not None:
        assert back.ratio == pytest.approx(1 / first.ratio)
    if first.low is not None and first.high is not None:
        assert (back.low, back.high) == pytest.approx((1 / first.high, 1 / first.low))
        assert back.p_value == pytest.approx(first.p_value)


def steady(latency: float, launches: int = 6, cycles: int = 4, turn: int = 4) -> list[list[list[float]]]:
    """Launches that differ a little."""
    return [
        [[latency * (1 + 1e-4 * launch + 1e-5 * cycle)] * (turn - 1) for cycle in range(cycles)]
        for launch in range(launches)
    ]


def test_launches_that_failed_and_turns_cut_short_or_longer_give_no_advantage() -> None:
    ours, theirs = steady(1.0, 8), steady(2.0, 8)
    ours[0] = []
    theirs[7] = theirs[7][:1]  # ended after one of four cycles
    theirs[3] = theirs[3][:3]  # after three: kept
    ours[2][1] = []  # every inference was interrupted
    ours[4][0] = []
    found = compare_launches(ours, theirs)
    assert found.rounds == 6 and json.dumps(found.as_dict(), allow_nan=False)
    says(found.method, "signed-rank", "Student")
    assert found.ratio == pytest.approx(0.5, rel=1e-3)
    for nothing in (compare_launches([], []), compare_launches([[]], [[[1.0]]])):
        assert nothing.verdict is Verdict.NOT_COMPARABLE and nothing.rounds == 0 and nothing.reason
    ours, theirs = steady(1.0), steady(1.0)
    theirs = [[[*turn, 0.1] for turn in launch] for launch in theirs]
    assert compare_launches(ours, theirs).ratio == pytest.approx(1.0)


def test_few_launches_are_honest_and_what_must_not_be_compared_is_not() -> None:
    one = compare_launches(steady(10.0, 1), steady(5.0, 1))
    assert (one.verdict, one.ratio) == (Verdict.NOT_COMPARABLE, pytest.approx(2.0))
    assert "1 launch cannot" in one.reason
    five = compare_launches(steady(10.0, 5), steady(9.5, 5))
    assert five.verdict is Verdict.NO_CHANGE
    says(five.method, "Student", "10%", "5 launches")
    assert compare_launches(steady(10.0, 3), steady(2.5, 3)).verdict is Verdict.FASTER
    emulated = compare_launches(steady(2.0), steady(1.0), not_comparable="times are emulated")
    assert (emulated.ratio, emulated.reason) == (None, "times are emulated")
    too_short = compare_launches(steady(0.0), steady(1.0))
    assert (too_short.verdict, too_short.ratio) == (Verdict.NOT_COMPARABLE, None)
    says(too_short.reason, "clock")
    for bad in (-1.0, math.nan):
        with pytest.raises(InputError):
            compare_launches(steady(bad), steady(1.0))


def test_a_coarse_clock_widens_the_interval_and_looks_are_spaced() -> None:
    ours, theirs = steady(3.0, 7), steady(4.0, 7)
    assert compare_launches(ours, theirs).verdict is Verdict.SLOWER
    assert compare_launches(ours, theirs, resolution=1.0).verdict is Verdict.NO_CHANGE
    assert precise_enough(ours, theirs) and not precise_enough(ours, theirs, resolution=0.1)
    ours, theirs = steady(1.0, 20), steady(1.5, 20)
    stops = [n for n in range(21) if precise_enough(ours[:n], theirs[:n], fewest=3)]
    assert stops == [7, 9, 12, 15, 19]
    assert not precise_enough([], [])


@pytest.mark.parametrize("few_layouts", [False, True], ids=["any layout", "two layouts"])
def test_many_operators_without_a_difference_give_few_false_verdicts(few_layouts):
    """Without any difference every verdict is false, so the correction allows one in 5% of all cases."""
    noise = np.random.default_rng(29)
    kinds = ["quiet", "normal", "wandering", "spikes"] * 6
    wrong = 0
    for kind in kinds:
        shape = {"launches": 6, "cycles": 5, "few_layouts": few_layouts}
        pairs = {str(i): made_up_operator(noise, kind, **shape) for i in range(12)}
        found = compare_many(pairs, "lockstep", practical_threshold=0, resolution=CLOCK_STEP)
        wrong += any(one.verdict in JUDGED for one in found.values())
    assert few_enough(wrong, len(kinds))


def test_launches_are_processes() -> None:
    rounds = [[value for turn in launch for value in turn] for launch in steady(1.0)]
    assert not list(latency_warnings(ON, rounds, in_turns=True))
    warned = {one.code: one.said for one in latency_warnings(ON, [[1.0] * 3] * 2, in_turns=True)}
    says(warned["rounds"], "launches", "2; measure at least 6")
    says(warned["runs"], "inferences: 3", "--budget")


@pytest.mark.parametrize(
    ("latency_ms", "turn", "cycles", "enough"),
    [(0.02, 51, 100, 15), (0.1, 11, 100, 15), (1, 8, 100, 15), (10, 8, 15, 15), (50, 4, 6, 6), (80, 3, 5, 5),
     (200, 1, 6, 6), (5000, 1, 1, 1)],
)  # fmt: skip
def test_turns_follow_from_the_speed_of_the_model(latency_ms, turn, cycles, enough):
    assert plan_turns(1e6 * latency_ms, 40, 2, 30, 12) == (turn, cycles)
    assert plan_turns(1e6 * latency_ms, 40, 2, 30) == (turn, enough)


def test_a_plan_keeps_to_its_budget_and_to_six_launches() -> None:
    for latency_ns in np.geomspace(1e3, 1e9, 40):
        for launches, experiments in ((6, 2), (12, 5), (None, 3)):
            plan = plan_turns(float(latency_ns), 1, experiments, 30, launches, start_s=0.2)
            turns_s = experiments * plan.turn_length * plan.cycles * latency_ns / 1e9
            assert (launches or 12) * (0.2 + turns_s) <= 30 or plan == (1, 1)
    assert plan_turns(1e5, 5000, 2, 30).turn_length == 51  # a clock of 5 us asks for longer turns
    # An open number of launches makes them short, unless starting takes long.
    assert plan_turns(1e6, 40, 2, 30, start_s=0.04) == (8, 15)
    assert plan_turns(1e6, 40, 2, 30, start_s=0.2) == (8, 50)  # 0.8 s of turns
    assert plan_turns(1e6, 40, 2, 30, start_s=1.5) == (8, 62)  # the rest of a twelfth
    # On a busy machine a short inference takes long, and still needs the caches that the one before it fills.
    assert plan_turns(2e8, 40, 2, 30, shortest_ns=3e5) == (3, 2)
    with pytest.raises(InputError):
        plan_turns(0, 1, 2, 30)
