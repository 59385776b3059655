"""Who comes when in a lockstep launch, redone from its seed as turn_order.h does it in the runner."""

from __future__ import annotations

from collections.abc import Iterator

_64_BITS = (1 << 64) - 1


def shuffles(seed: int, children: int) -> Iterator[tuple[int, ...]]:
    """Orders of the children without end: the first is the one they start in, each further one a cycle's."""
    draws = _splitmix64(seed)
    while True:
        order = list(range(children))
        for left in range(children, 1, -1):
            drawn = next(draws) % left
            order[left - 1], order[drawn] = order[drawn], order[left - 1]
        yield tuple(order)


def _splitmix64(state: int) -> Iterator[int]:
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _64_BITS
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _64_BITS
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _64_BITS
        yield mixed ^ (mixed >> 31)
