"""The order of turns: from a seed, fair, and the one that is written down."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from turn_order import shuffles


def test_the_order_of_a_seed_never_changes() -> None:
    """By SplitMix64, whose first numbers for 1234567 are 6457827717110365317 and 3203168211198807973: they
    leave 3 of 6 and 3 of 5. An order that a run has noted must come out again."""
    orders = [(0, 2, 1, 4, 5, 3), (3, 4, 5, 1, 2, 0), (1, 0, 5, 4, 3, 2)]
    assert list(islice(shuffles(1234567, 6), 3)) == orders


def test_every_cycle_has_every_child_and_every_order_comes_as_often() -> None:
    orders = list(islice(shuffles(7, 3), 6000))
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    seen = Counter(orders)
    assert len(seen) == 6 and min(seen.values()) > 900
    assert orders == list(islice(shuffles(7, 3), 6000)) != list(islice(shuffles(8, 3), 6000))
    assert next(shuffles((1 << 64) - 1, 1)) == (0,)
