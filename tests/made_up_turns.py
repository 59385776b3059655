"""Turns of two programs on machines that misbehave in known ways, to try the statistics on.

What is put in is known exactly, so false alarms can be counted and bias can be seen. The unit tests draw
a few, `bench/lockstep_simulation.py` many.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

CLOCK_STEP = 0.001
"""Milliseconds: delegates time their operators in whole microseconds."""

LAYOUT = 0.004
"""How far chance (memory layout, page colours) moves one program from launch to launch: 0.4%."""
_CARRIED = (0.10, 0.01)
"""How much longer the first and second inference of a turn take: the other program was in the caches."""

_Noise = Callable[[np.random.Generator, tuple[int, int]], tuple[Floats, Floats | float]]
"""From launches and inferences in each: logs of the machine's slowness in order of time, and waiting added
to an inference, in units of an undisturbed one.
"""


def _spikes(noise: np.random.Generator, shape: tuple[int, int]) -> tuple[Floats, Floats]:
    hit = noise.random(shape) < 0.12
    return 0.01 * noise.normal(size=shape), hit * noise.exponential(0.3, shape)


def _shared(share: float) -> _Noise:
    """Other work is there for this share of the time, in stretches; meanwhile most inferences wait for a
    core, as long for any program.
    """

    def made(noise: np.random.Generator, shape: tuple[int, int]) -> tuple[Floats, Floats]:
        busy = _stretches(noise, shape, 1 / 12, share)
        waits = busy * (noise.random(shape) < 0.7) * noise.exponential(0.5, shape)
        return 0.01 * noise.normal(size=shape) + 0.05 * busy, waits

    return made


NOISES: dict[str, _Noise] = {
    "quiet": lambda noise, shape: (0.003 * noise.normal(size=shape), 0.0),
    "normal": lambda noise, shape: (0.03 * noise.normal(size=shape), 0.0),
    # Clipped where the machine would have stopped, or an inference would take no time.
    "heavy tails": lambda noise, shape: (np.clip(0.02 * noise.standard_t(2, shape), -0.3, 3), 0.0),
    "spikes": _spikes,
    # A clock that changes between two speeds, every 25 inferences or so.
    "two speeds": lambda noise, shape: (
        0.20 * _stretches(noise, shape, 1 / 25, 0.35) + 0.01 * noise.normal(size=shape), 0.0,
    ),
    "wandering": lambda noise, shape: (
        np.cumsum(0.01 * noise.normal(size=shape), axis=1) + 0.01 * noise.normal(size=shape), 0.0,
    ),
    "throttling": lambda noise, shape: (
        np.linspace(0, 0.4, math.prod(shape)).reshape(shape) + 0.01 * noise.normal(size=shape), 0.0,
    ),
    "contended": _shared(0.5),
    "crowded": _shared(0.85),
}  # fmt: skip


def made_up(
    noise: np.random.Generator,
    kind: str,
    *,
    launches: int,
    cycles: int,
    turn: int = 4,
    slower: float = 0.0,
    layout: float = LAYOUT,
    few_layouts: bool = False,
    carries: float = 1.0,
) -> tuple[Floats, Floats]:
    """Baseline and candidate: launches by cycles by inferences; the candidate has `slower` more work.

    Medians wander by a quarter from launch to launch, for both programs alike. Each launch deals each program
    a layout of its own, normal or (`few_layouts`) one of two that are 5 times `layout` apart. Cold caches
    cost the candidate `carries` times what they cost the baseline.
    """
    logs, waited = NOISES[kind](noise, (launches, cycles * 2 * turn))
    shape = launches, cycles, 2, turn
    waits = np.broadcast_to(waited, logs.shape).reshape(shape)
    in_time = logs.reshape(shape) + 0.25 * noise.normal(size=(launches, 1, 1, 1))
    cold = np.array((*_CARRIED, *[0.0] * turn)[:turn])
    swapped = noise.random((launches, cycles)) < 0.5
    sides = []
    for side, (work, cost) in enumerate(((1.0, 1.0), (1 + slower, carries))):
        slot = np.where(swapped, 1 - side, side)[..., None, None]
        dealt = 5 * (noise.random(launches) < 0.5) if few_layouts else noise.normal(size=launches)
        own = layout * dealt[:, None, None] + cost * cold
        took = np.exp(np.take_along_axis(in_time, slot, axis=2)[:, :, 0] + own)
        sides.append(work * took + np.take_along_axis(waits, slot, axis=2)[:, :, 0])
    return sides[0], sides[1]


def made_up_operator(
    noise: np.random.Generator,
    kind: str,
    *,
    launches: int,
    cycles: int,
    slower: float = 0.0,
    few_layouts: bool = False,
) -> tuple[list[list[list[float]]], list[list[list[float]]]]:
    """One operator of traced turns as the analysis hands it on: milliseconds in whole clock steps, the first
    of each turn left out. It takes 5 to 2,000 microseconds; its noise is its own.
    """
    size = 10 ** noise.uniform(math.log10(0.005), math.log10(2.0))
    sides = made_up(noise, kind, launches=launches, cycles=cycles, slower=slower, few_layouts=few_layouts)
    ours, theirs = (_in_steps(noise, size * side[..., 1:]).tolist() for side in sides)
    return ours, theirs


def _in_steps(noise: np.random.Generator, times: Floats) -> Floats:
    """What a clock that ticks every step makes of a duration: it began somewhere between two ticks."""
    ticks: Floats = np.floor(times / CLOCK_STEP + noise.random(times.shape))
    return CLOCK_STEP * np.maximum(ticks, 1)


def _stretches(noise: np.random.Generator, shape: tuple[int, int], change: float, share: float) -> Floats:
    """Zeros and ones in stretches: at each inference a new state is drawn with probability `change`."""
    drawn = noise.random(shape) < share
    fresh = noise.random(shape) < change
    fresh[:, 0] = True
    last = np.maximum.accumulate(np.where(fresh, np.arange(shape[1]), 0), axis=1)
    return np.take_along_axis(drawn, last, axis=1).astype(np.float64)
