"""The order of turns: from a seed, fair, and the one that is written down."""

from __future__ import annotations

from collections import Counter
from itertools import islice

from model_profiling.runner.turn_order import _splitmix64, shuffles


def test_the_generator_is_splitmix64() -> None:
    """The first numbers of seed 0 and of 1234567, as its authors' program prints them."""
    assert next(_splitmix64(0)) == 0xE220A8397B1DCDAF
    assert list(islice(_splitmix64(1234567), 3)) == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


def test_every_cycle_has_every_child_and_every_order_comes_as_often() -> None:
    orders = list(islice(shuffles(7, 3), 6000))
    assert all(sorted(order) == [0, 1, 2] for order in orders)
    seen = Counter(orders)
    assert len(seen) == 6 and min(seen.values()) > 900
    assert orders == list(islice(shuffles(7, 3), 6000)) != list(islice(shuffles(8, 3), 6000))
    assert next(shuffles((1 << 64) - 1, 1)) == (0,)
