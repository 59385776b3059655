"""Dumps of programs that took turns: which runs count, what belongs to which turn, and what is made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from said import refused, says
from strategies import Block, Dump, ProfileEvent

from model_profiling.analysis.advice import about_threads
from model_profiling.analysis.attribution import counted_runs
from model_profiling.analysis.pairing import pair_series
from model_profiling.analysis.series import SeriesAnalysis, series_of
from model_profiling.analysis.summary import DumpAnalysis, analyse_dump
from model_profiling.core.errors import FormatError
from model_profiling.etdump import read_etdump
from model_profiling.run import Series, Times
from model_profiling.run import run as opened
from model_profiling.statistics.speedup import Verdict

CONV, ADD, NORM = "Convolution (NHWC, F32) IGEMM #1", "Add (ND) #1", "Multiply (ND) #1"
TURN = 4

Operators = dict[str, float]
"""Microseconds of each operator of a run."""


def dump_of(
    runs: Sequence[Operators], turn: int, launch: int = 0, series: Series | None = None
) -> DumpAnalysis:
    """A dump with one delegate call in each run."""
    blocks = []
    for operators in runs:
        clock, events = 1000, []
        for name, spent in operators.items():
            end = clock + round(1000 * spent)
            events.append(ProfileEvent(None, 0, 0, -1, name, None, clock, end))
            clock = end
        events.append(ProfileEvent("DELEGATE_CALL", 0, 0, -1, None, None, 500, clock + 500))
        events.append(ProfileEvent("Method::execute", -1, 0, -1, None, None, 0, clock + 1000))
        blocks.append(Block("Execute", -1, (), tuple(events)))
    made = opened.Dump(
        Path("made.etdump"), series or Series("made", 1), Times.HARDWARE, launch, turn_length=turn
    )
    return analyse_dump(read_etdump(Dump(tuple(blocks), True, False).to_bytes()), made)


def launches(
    operators: Operators, *, cycles: int = 5, count: int = 6, turn: int = TURN, series: Series | None = None
) -> SeriesAnalysis:
    """Turns that wander from cycle to cycle; the first run of each takes thrice as long."""
    dumps = []
    for launch in range(count):
        runs = []
        for cycle in range(cycles):
            wander = 1 + 0.3 * ((5 * launch + 3 * cycle) % 7) + 0.001 * ((launch + 2 * cycle) % 3)
            slow = [3.0, *[1.0] * (turn - 1)] if turn > 1 else [1.0]
            runs += [{name: wander * first * spent for name, spent in operators.items()} for first in slow]
        dumps.append(dump_of(runs, turn, launch, series))
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
    whole, rest = dump_of(runs, turn), dump_of([runs[at] for at in counted_runs(len(runs), 0, turn)], 0)
    assert whole.breakdown.closes and whole.attribution.runs_in_file == len(runs)
    assert whole.breakdown.e2e.tolist() == rest.breakdown.e2e.tolist()
    assert whole.breakdown.categories_ms == rest.breakdown.categories_ms
    assert (whole.latency, whole.operators) == (rest.latency, rest.operators)
    ours, theirs = series_of([whole]), series_of([rest])
    assert ours.operators == theirs.operators and ours.typical.tolist() == theirs.typical.tolist()
    parts = zip(ours.parts.values(), theirs.parts.values(), strict=True)
    assert all(ours.by_round(one) == theirs.by_round(other) for one, other in parts)
    for operator in ours.operators:
        (values,) = ours.by_round([operator])
        (by_turn,) = ours.by_turn([operator]).values()
        assert [ms for one in by_turn for ms in one] == values
    sums = [[ms for one in ours.by_turn(part)["round 0"] for ms in one] for part in ours.parts.values()]
    (e2e,) = ours.by_round(ours.breakdown.e2e)
    assert [sum(run) for run in zip(*sums, strict=True)] == pytest.approx(e2e)


def test_a_run_without_an_operator_is_missing_in_its_own_turn_alone() -> None:
    both, one = {CONV: 10.0, ADD: 5.0}, {CONV: 10.0}
    dump = dump_of([both, both, one, one, one, one, one, both, both], 3)
    series = series_of([dump])
    add = next(operator for operator in series.operators if operator.name == ADD)
    conv = next(operator for operator in series.operators if operator.name == CONV)
    assert series.by_turn([conv]) == {"round 0": [[0.01] * 2] * 3}
    assert series.by_turn([add]) == {"round 0": [[0.005], [], [0.005, 0.005]]}
    assert series.by_turn([conv, add]) == {"round 0": [[0.015], [], [0.015, 0.015]]}
    assert series.by_turn([]) == {"round 0": [[]]}


def test_a_dump_of_first_runs_alone_is_refused() -> None:
    with refused(FormatError, "1 run", "turn of 4"):
        dump_of([{CONV: 10.0}], TURN)
    assert dump_of([{CONV: 10.0}], 1).runs == 1


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


def test_turns_of_one_count_whole() -> None:
    ours, theirs = (launches({CONV: spent}, turn=1, cycles=8) for spent in (1000, 950))
    assert ours.runs == 6 * 8
    assert pair_series(ours, theirs).e2e.verdict is Verdict.FASTER


def test_launches_stand_against_their_own_even_where_some_are_missing() -> None:
    ours, theirs = launches({CONV: 1000}, count=8), launches({CONV: 950}, count=8)
    ours = series_of([dump for dump in ours.rounds if dump.dump.round != 2])
    theirs = series_of([dump for dump in theirs.rounds if dump.dump.round != 5])
    found = pair_series(ours, theirs).e2e
    assert (found.rounds, found.verdict) == (6, Verdict.FASTER)
    assert found.ratio == pytest.approx(1000 / 950, rel=2e-3)


def test_who_took_turns_is_not_set_against_who_did_not() -> None:
    turns = launches({CONV: 1000})
    rounds = series_of(
        [
            replace(dump, dump=replace(dump.dump, turn_length=0))
            for dump in launches({CONV: 1000}, turn=1).rounds
        ]
    )
    assert pair_series(rounds, rounds).measured == "rounds"
    assert pair_series(turns, rounds).measured == pair_series(rounds, turns).measured == "apart"
    one = series_of(turns.rounds[:1])
    alone = pair_series(one, one)
    assert alone.measured == "lockstep" and alone.e2e.verdict is Verdict.NOT_COMPARABLE
    assert all(pair.speedup is None and pair.ratio == pytest.approx(1) for pair in alone.operators)


def test_threads_that_do_not_pay_are_told_by_launches() -> None:
    """4% faster pays by the verdict; over all runs of such a machine nothing could be said."""
    few, more = (launches({CONV: spent}, series=Series("on", n)) for n, spent in ((1, 1000), (2, 960)))
    assert not list(about_threads([few, more]))
    (finding,) = about_threads([few, launches({CONV: 1000}, series=Series("on", 2))])
    assert finding.id == "too-many-threads" and finding.evidence["best_threads"] == 1
