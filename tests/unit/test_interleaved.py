"""Whose launch it is on a device that several runs share."""

from __future__ import annotations

import pytest

from model_profiling.pipeline.open_run import Interleaved
from model_profiling.pipeline.remaining import RemainingWork
from model_profiling.pipeline.rounds import RemainingRounds

MORE = RemainingWork(launches=RemainingRounds(1, 9, 1.0))


def timed(order: Interleaved, *runs: str) -> Interleaved:
    """`order` with runs that have their evidence."""
    order.join(runs)
    for run in runs:
        order.visited(run, MORE)
    return order


def launches(order: Interleaved, count: int) -> str:
    seen = ""
    for _ in range(count):
        run = order.next()
        assert run is not None
        seen += run
        order.visited(run, MORE)
    return seen


@pytest.mark.parametrize("seed", range(5))
def test_every_run_has_one_launch_in_each_round_in_an_order_drawn_anew(seed: int) -> None:
    seen = launches(timed(Interleaved(seed), *"abcd"), 80)
    rounds = [seen[at : at + 4] for at in range(0, 80, 4)]
    assert all(set(each) == set("abcd") for each in rounds)
    assert len(set(rounds)) > 8
    assert len({each[0] for each in rounds}) == 4, "nobody is always the first"
    assert seen == launches(timed(Interleaved(seed), *"dcba"), 80), "by the seed, not by who came when"
    went_on = launches(timed(Interleaved(seed, round=10), *"abcd"), 40)
    assert went_on == seen[40:], "what is continued draws the orders that were to come"


def test_evidence_comes_before_all_launches_also_of_who_joins_late() -> None:
    order = Interleaved(1)
    order.join("ab")
    order.join("a")
    assert order.next() == "a" == order.next(), "a visit that was lost is made again"
    order.visited("a", RemainingWork(evidence=1, launches=RemainingRounds(6, 6)))
    assert order.next() == "a"
    order.visited("a", MORE)
    assert order.next() == "b"
    order.visited("b", MORE)
    first = launches(order, 1)
    order.join("c")
    assert order.next() == "c"
    order.visited("c", MORE)
    assert launches(order, 1) == {"a": "b", "b": "a"}[first], "the round that was begun is ended"
    assert set(launches(order, 3)) == set("abc")


def test_who_has_ended_drops_out_and_the_others_go_on() -> None:
    order = timed(Interleaved(3), *"abc")
    order.join("d")
    order.visited("d", RemainingWork())
    assert order.runs == ("a", "b", "c"), "all that was wanted was evidence"
    order.visited(order.next() or "", RemainingWork())
    assert len(order.runs) == 2
    order.leave("b")
    order.leave("nobody")
    (last,) = set("ac") & set(order.runs)
    assert launches(order, 3) == last * 3
    order.leave(last)
    assert order.next() is None and order.runs == ()


def test_what_runs_long_waits_until_nobody_has_launches_left() -> None:
    order = timed(Interleaved(2), *"abc")
    order.visited("b", RemainingWork(afterwards=2))
    assert set(launches(order, 4)) == set("ac")
    order.visited("a", RemainingWork(afterwards=1))
    assert launches(order, 2) == "cc"
    order.visited("c", RemainingWork())
    assert order.next() == "a", "no launch is left that it could heat up"
    order.visited("a", RemainingWork())
    assert order.next() == "b"
    order.join("d")
    assert order.next() == "d", "its evidence, and then its launches, come first again"
    order.visited("d", MORE)
    assert order.next() == "d"
    order.leave("d")
    order.visited("b", RemainingWork(afterwards=1))
    assert order.next() == "b"
