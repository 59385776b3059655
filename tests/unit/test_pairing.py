"""Pairing of operators of two dumps whose names and numbers differ, also of programs that took turns."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_series import MADE, analysed, one_call
from said import refused, says
from strategies import Block, Dump

from model_profiling.analysis.attribution import counted_runs
from model_profiling.analysis.operators import DumpAnalysis
from model_profiling.analysis.pairing import OperatorPair, Pairing, match_operators, pair_series
from model_profiling.analysis.series import series_of
from model_profiling.analysis.sources import OperatorSource
from model_profiling.config.series import Series
from model_profiling.core.errors import FormatError
from model_profiling.runs import PairSpeedup, Times
from model_profiling.statistics.speedup import Verdict, compare_rounds
from model_profiling.workflow.analyse import analyse


def runs_of(operators: Sequence[tuple[str, float]], noise: Sequence[float]) -> list[Block]:
    """Each operator is (name, microseconds), each factor of noise a run."""
    return [one_call((name, 1000 * round(spent * factor)) for name, spent in operators) for factor in noise]


def dump_of(operators, *, noise=(1.0,), experiment="made", round=0):
    return analysed(runs_of(operators, noise), Series(experiment), round)


def with_nodes(dump: DumpAnalysis, nodes: Sequence[int], kind: str = "kind") -> DumpAnalysis:
    """As if a program had told which graph node each operator is."""
    operators = tuple(
        replace(one, source=OperatorSource(origin="model", node_index=node, node_kind=f"{kind}{node}"))
        for one, node in zip(dump.operators, nodes, strict=True)
    )
    return replace(dump, operators=operators)


OFF = [
    ("Transpose (ND, X16) #1", 10),
    ("Convolution (NHWC, F16) IGEMM #1", 100),
    ("Clamp (NC) #1", 5),
    ("Fully Connected (NC, F16) GEMM #1", 50),
]
ON = [
    ("Transpose (ND, X16) #1", 10),
    ("Convolution (NHWC, PF16) IGEMM #1", 25),
    ("Pack LH (X16) #1", 5),
    ("Fully Connected (NC, PF16) GEMM #1", 10),
]


def described(pairs) -> list[tuple[str, str, str]]:
    return [
        (one.change, "+".join(op.type for op in one.baseline), "+".join(op.type for op in one.candidate))
        for one in pairs
    ]


def pair_single(baseline: DumpAnalysis, candidate: DumpAnalysis) -> Pairing:
    """Two single dumps: this gives ratios, but no confidence."""
    return pair_series(series_of([baseline]), series_of([candidate]))


def changed(pairing: Pairing, change: str) -> list[OperatorPair]:
    return [pair for pair in pairing.operators if pair.change == change]


def test_operators_are_paired_by_kind_and_order_where_no_program_fits() -> None:
    pairing = pair_single(dump_of(OFF, experiment="off"), dump_of(ON, experiment="on"))
    assert pairing.matched_by == "order"
    assert described(pairing.operators) == [
        ("same", "Transpose (ND, X16)", "Transpose (ND, X16)"),
        ("kernel changed", "Convolution (NHWC, F16) IGEMM", "Convolution (NHWC, PF16) IGEMM"),
        ("vanished", "Clamp (NC)", ""),
        ("appeared", "", "Pack LH (X16)"),
        ("kernel changed", "Fully Connected (NC, F16) GEMM", "Fully Connected (NC, PF16) GEMM"),
    ]
    assert [one.families for one in changed(pairing, "kernel changed")] == [("F16", "PF16"), ("F16", "PF16")]
    off, on = with_nodes(dump_of(OFF), [0, 1, 2, 3]), with_nodes(dump_of(ON), [0, 1, 2, 3], "other")
    assert match_operators(off.operators, on.operators)[0] == "order"


def test_with_a_program_a_node_that_became_two_events_is_a_split() -> None:
    off, on = with_nodes(dump_of(OFF), [0, 1, 2, 3]), with_nodes(dump_of(ON), [0, 1, 3, 3])
    pairing = pair_single(off, on)
    assert pairing.matched_by == "graph node"
    split = changed(pairing, "split")
    assert described(split) == [
        ("split", "Fully Connected (NC, F16) GEMM", "Pack LH (X16)+Fully Connected (NC, PF16) GEMM")
    ]
    assert split[0].baseline_ms == pytest.approx(0.050) and split[0].candidate_ms == pytest.approx(0.015)
    assert split[0].ratio == pytest.approx(50 / 15)
    assert described(changed(pairing, "vanished")) == [("vanished", "Clamp (NC)", "")]
    assert [one.change for one in pair_single(on, off).operators if len(one.baseline) == 2] == ["merged"]


def test_every_operator_is_in_one_pair_and_categories_add_up() -> None:
    long = [(f"Add (ND) #{n}", 3) for n in range(1, 9)] + OFF
    for ours, theirs in ((OFF, ON), (OFF, long), (long, ON), (OFF, [])):
        left, right = dump_of(ours).operators, dump_of(theirs).operators
        _, pairs = match_operators(left, right)
        assert sorted(one.identity for pair in pairs for one in pair[0]) == [one.identity for one in left]
        assert sorted(one.identity for pair in pairs for one in pair[1]) == [one.identity for one in right]
    pairing = pair_single(dump_of(OFF), dump_of(ON))
    by_name = {one.name: one for one in pairing.categories}
    assert by_name["Convolution"].ratio == pytest.approx(4)
    assert by_name["GEMM"].ratio == pytest.approx(5)
    assert by_name["Data Movement"].baseline_ms == pytest.approx(0.010)
    assert by_name["Data Movement"].candidate_ms == pytest.approx(0.015)
    assert sum(one.candidate_share for one in pairing.categories) == pytest.approx(1)
    assert pairing.traced_ratio == pytest.approx(167 / 52)
    assert pairing.e2e.verdict is Verdict.NOT_COMPARABLE
    assert all(one.speedup is None for one in pairing.operators)


def test_rounds_give_operators_their_verdict_and_neither_rounding_nor_another_day() -> None:
    factors = (1.0, 1.02, 0.98, 1.01, 1.0, 0.99, 1.03, 1.0)
    off = [dump_of(OFF, noise=(one, one * 1.01, one)) for one in factors]
    on = [dump_of(ON, noise=(one * 1.01, one, one)) for one in factors]
    pairing = pair_series(series_of(off), series_of(on))
    assert pairing.e2e.verdict is Verdict.FASTER
    verdicts = {one.main.type: one.speedup.verdict for one in pairing.operators if one.speedup}
    assert verdicts["Convolution (NHWC, PF16) IGEMM"] is Verdict.FASTER
    assert verdicts["Transpose (ND, X16)"] is Verdict.NO_CHANGE
    by_name = {one.name: one.speedup for one in pairing.categories}
    assert by_name["GEMM"] is not None and by_name["GEMM"].verdict is Verdict.FASTER
    assert by_name["Elementwise"] is None

    def rounds(clamp: int) -> list[DumpAnalysis]:
        operators = [(name, clamp if name.startswith("Clamp") else spent) for name, spent in OFF]
        return [dump_of(operators, noise=QUIET, round=place) for place in range(8)]

    for interleaved in (True, False):
        pairing = pair_series(series_of(rounds(3)), series_of(rounds(4)), interleaved=interleaved)
        clamp = next(one for one in pairing.operators if one.main.type.startswith("Clamp"))
        assert clamp.speedup is not None and clamp.speedup.verdict is Verdict.NO_CHANGE
    before = [dump_of(OFF, noise=(1.0, 1.0, 1.01), round=place) for place in range(8)]
    after = [dump_of([(name, spent * 1.02) for name, spent in OFF], noise=QUIET) for _ in range(8)]
    ours, theirs = series_of(before), series_of(after)
    assert pair_series(ours, theirs).e2e.verdict is Verdict.SLOWER
    assert pair_series(ours, theirs, interleaved=False).e2e.verdict is Verdict.NO_CHANGE


def test_an_answer_is_repeated_and_what_may_not_be_compared_has_none() -> None:
    off = series_of([dump_of(OFF, round=n) for n in range(6)])
    on = series_of([dump_of(ON, round=n) for n in range(6)])
    pairing = pair_series(off, on, not_comparable="emulated")
    assert pairing.e2e.verdict is Verdict.NOT_COMPARABLE and pairing.e2e.reason == "emulated"
    assert pairing.traced_ratio is None and not pairing.comparable
    assert all(one.speedup is None for one in (*pairing.operators, *pairing.categories))
    assert len(changed(pairing, "kernel changed")) == 2
    off, on = (series_of([dump_of(one, experiment=name)]) for name, one in (("off", OFF), ("on", ON)))
    measured = compare_rounds([[2.0]] * 8, [[1.0]] * 8)
    pairing = pair_series(off, on, answer=PairSpeedup("label", off.series, on.series, measured))
    assert pairing.e2e is measured and not pairing.with_tracer
    assert pair_series(off, on).with_tracer
    assert pair_series(off, on).label == "on vs off", "what is looked at stands first"


QUIET = (1.0, 1.0, 1.0)


def test_one_disturbed_process_decides_neither_times_nor_shares() -> None:
    """The first round has one run that other work held up for long inside the delegate's call."""
    calm = [dump_of(OFF, noise=QUIET, round=place) for place in range(1, 6)]
    held_up = dump_of(OFF, noise=QUIET)
    slow = held_up.breakdown.e2e.copy()
    slow[2] += 90 * slow[2]
    late = slow - held_up.breakdown.e2e
    beside = held_up.breakdown.unattributed + late
    held_up = replace(held_up, breakdown=replace(held_up.breakdown, e2e=slow, unattributed=beside))
    off, on = series_of([held_up, *calm]), series_of([dump_of(ON, round=place) for place in range(6)])
    assert held_up.breakdown.closes and off.breakdown.closes
    late_share = held_up.breakdown.unattributed.sum() / held_up.breakdown.e2e.sum()
    assert late_share > 0.9  # what one mean would say
    by_name = {one.name: one for one in pair_series(off, on).categories}
    assert by_name["Unattributed"].baseline_share == pytest.approx(1 / 167, rel=0.01)
    assert by_name["Convolution"].baseline_share == pytest.approx(100 / 167, rel=0.01)
    assert by_name["Convolution"].baseline_ms == pytest.approx(0.100)


def test_a_run_tells_each_kind_of_finding_once_and_not_of_what_is_solved(tmp_path: Path) -> None:
    def measured(name: str, operators: Sequence[tuple[str, float]]) -> None:
        for number in range(6):
            place = "m_t1.etdump" if number == 0 else f"rounds/m_t1_r{number}.etdump"
            (tmp_path / name / place).parent.mkdir(parents=True, exist_ok=True)
            content = Dump(tuple(runs_of(operators, QUIET)), True, False).to_bytes()
            (tmp_path / name / place).write_bytes(content)

    measured("x_sme2_off", [*OFF, ("Copy (NC, X16) #1", 90)])
    measured("x_sme2_on", [*ON, ("Copy (NC, X16) #1", 90)])
    measured("other", [*OFF, ("Copy (NC, X16) #1", 50)])
    unknown = analyse(tmp_path)
    assert not unknown.findings and not unknown.pairings[0].comparable, "nothing says what machine it was"
    analysis = analyse(tmp_path, times=Times.HARDWARE)
    assert [pairing.label for pairing in analysis.pairings] == ["x_sme2_on vs x_sme2_off, 1 thread"]
    assert analysis.pairings[0].e2e.verdict is Verdict.FASTER
    moving = [found for found in analysis.findings if found.id == "data-movement"]
    assert [found.subject for found in moving] == ["x_sme2_on, 1 thread"], "where it weighs most"
    assert all("off" not in found.subject for found in analysis.findings if " vs " not in found.subject)


CONV, ADD, NORM = "Convolution (NHWC, F32) IGEMM #1", "Add (ND) #1", "Multiply (ND) #1"
TURN = 4

Operators = dict[str, float]
"""Microseconds of each operator of a run."""


def dump_in_turns(runs: Sequence[Operators], turn: int, launch: int = 0, series: Series = MADE):
    blocks = [one_call((name, 1000 * spent) for name, spent in run.items()) for run in runs]
    return analysed(blocks, series, launch, turn)


def launches(operators, *, cycles=5, count=6, turn=TURN, series=MADE):
    """Turns that wander from cycle to cycle; the first run of each takes thrice as long."""
    dumps = []
    for launch in range(count):
        runs = []
        for cycle in range(cycles):
            wander = 1 + 0.3 * ((5 * launch + 3 * cycle) % 7) + 0.001 * ((launch + 2 * cycle) % 3)
            slow = [3.0, *[1.0] * (turn - 1)] if turn > 1 else [1.0]
            runs += [{name: wander * first * spent for name, spent in operators.items()} for first in slow]
        dumps.append(dump_in_turns(runs, turn, launch, series))
    return series_of(dumps)


@given(st.integers(0, 40), st.integers(0, 5), st.integers(0, 6))
def test_all_runs_count_but_warm_up_and_the_first_of_each_turn(runs: int, warmup: int, turn: int) -> None:
    counted = counted_runs(runs, warmup, turn).tolist()
    after = list(range(runs))[warmup:]
    turns = [after[start : start + turn] for start in range(0, len(after), turn)] if turn else [after]
    assert counted == [number for one in turns for number in (one[1:] if turn > 1 else one)]


sometimes = st.dictionaries(st.sampled_from([CONV, ADD, NORM]), st.integers(1, 500), min_size=1)


@settings(deadline=None, max_examples=15)
@given(st.lists(sometimes, min_size=2, max_size=12), st.integers(2, 4))
def test_a_dump_in_turns_is_the_dump_of_the_runs_that_count(runs: list[Operators], turn: int) -> None:
    """Every figure, whatever operators a run has: they add up, and only runs that count have a say."""
    whole = dump_in_turns(runs, turn)
    rest = dump_in_turns([runs[at] for at in counted_runs(len(runs), 0, turn)], 0)
    assert whole.breakdown.closes and whole.breakdown.e2e.tolist() == rest.breakdown.e2e.tolist()
    assert whole.operators == rest.operators
    ours, theirs = series_of([whole]), series_of([rest])
    assert (ours.latency, ours.operators) == (theirs.latency, theirs.operators)
    assert ours.typical.tolist() == theirs.typical.tolist()
    parts = zip(ours.parts.values(), theirs.parts.values(), strict=True)
    assert all(ours.by_round(one) == theirs.by_round(other) for one, other in parts)
    for operator in ours.operators:
        (values,) = ours.by_round([operator])
        (by_turn,) = ours.by_turn([operator]).values()
        assert [ms for one in by_turn for ms in one] == values
    sums = [[ms for one in ours.by_turn(part)["round 0"] for ms in one] for part in ours.parts.values()]
    (e2e,) = ours.by_round(ours.breakdown.e2e)
    assert [sum(run) for run in zip(*sums, strict=True)] == pytest.approx(e2e)


def test_a_run_without_an_operator_is_missing_in_its_own_turn_and_turns_count_whole() -> None:
    both, one = {CONV: 10.0, ADD: 5.0}, {CONV: 10.0}
    dump = dump_in_turns([both, both, one, one, one, one, one, both, both], 3)
    series = series_of([dump])
    add = next(operator for operator in series.operators if operator.name == ADD)
    conv = next(operator for operator in series.operators if operator.name == CONV)
    assert series.by_turn([conv]) == {"round 0": [[0.01] * 2] * 3}
    assert series.by_turn([add]) == {"round 0": [[0.005], [], [0.005, 0.005]]}
    assert series.by_turn([conv, add]) == {"round 0": [[0.015], [], [0.015, 0.015]]}
    assert series.by_turn([]) == {"round 0": [[]]}
    ours, theirs = (launches({CONV: spent}, turn=1, cycles=8) for spent in (1000, 950))
    assert ours.runs == 6 * 8
    assert pair_series(ours, theirs).e2e.verdict is Verdict.FASTER
    with refused(FormatError, "1 run", "turn of 4"):
        dump_in_turns([{CONV: 10.0}], TURN)
    assert dump_in_turns([{CONV: 10.0}], 1).runs == 1
    ours, theirs = launches({CONV: 1000}, count=8), launches({CONV: 950}, count=8)
    ours = series_of([dump for dump in ours.rounds if dump.dump.round != 2])
    theirs = series_of([dump for dump in theirs.rounds if dump.dump.round != 5])
    found = pair_series(ours, theirs).e2e
    assert (found.rounds, found.verdict) == (6, Verdict.FASTER)
    assert found.ratio == pytest.approx(1000 / 950, rel=2e-3)


def test_operators_of_launches_are_judged_cycle_by_cycle() -> None:
    """The machine wanders by 180% between cycles: only those of one cycle can be told apart by 5%."""
    ours = launches({CONV: 1000, ADD: 300, NORM: 2})
    theirs = launches({CONV: 950, ADD: 300, NORM: 2}, series=Series("other", 1))
    pairing = pair_series(ours, theirs)
    assert pairing.measured == "lockstep"
    says(ours.taken_from, "6 launches")
    verdicts = {pair.main.name: pair.speedup and pair.speedup.verdict for pair in pairing.operators}
    assert verdicts == {CONV: Verdict.FASTER, ADD: Verdict.NO_CHANGE, NORM: Verdict.NO_CHANGE}
    conv = next(pair for pair in pairing.operators if pair.main.name == CONV)
    assert conv.speedup is not None and conv.speedup.rounds == 6
    assert conv.ratio == pytest.approx(1000 / 950, rel=1e-3)
    by_name = {part.name: part.speedup and part.speedup.verdict for part in pairing.categories}
    assert by_name["Convolution"] is Verdict.FASTER and by_name["Elementwise"] is Verdict.NO_CHANGE
    assert by_name["Other"] is None, "what took no time is not judged"
    assert pairing.e2e.verdict is Verdict.FASTER and "launches" in pairing.e2e.method
    assert pair_series(ours, theirs, not_comparable="emulated").e2e.reason == "emulated"
    apart = pair_series(ours, theirs, interleaved=False)
    assert apart.measured == "apart" and apart.e2e.verdict is Verdict.NO_CHANGE


def test_who_took_turns_is_not_set_against_who_did_not() -> None:
    turns, apart = launches({CONV: 1000}), launches({CONV: 1000}, turn=1).rounds
    rounds = series_of([replace(dump, dump=replace(dump.dump, turn_length=0)) for dump in apart])
    assert pair_series(rounds, rounds).measured == "rounds"
    assert pair_series(turns, rounds).measured == pair_series(rounds, turns).measured == "apart"
    one = series_of(turns.rounds[:1])
    alone = pair_series(one, one)
    assert alone.measured == "lockstep" and alone.e2e.verdict is Verdict.NOT_COMPARABLE
    assert all(pair.speedup is None and pair.ratio == pytest.approx(1) for pair in alone.operators)
