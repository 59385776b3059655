"""In which order the runs of one device get their pieces, when several are measured there at once.

First every run gathers its evidence, which nobody times; then each round gives every run one launch, in an
order drawn from the seed and the round's number. So whatever changes slowly on the device (heat, clocks,
other work) meets all of them alike. What runs long and alone (energy, sampling) waits until no launch is left
that it could heat up. Who has ended, well or not, drops out, and the others go on.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from model_profiling.pipeline.left import Left

_Phase = Literal["evidence", "launches", "afterwards"]


@dataclass(slots=True)
class Interleaved:
    """Whose turn it is. `round` is where to go on: a sweep that is continued draws no order twice."""

    seed: int
    round: int = 0
    _phases: dict[str, _Phase] = field(default_factory=dict)
    """Of every run that has not ended, in the order they joined."""
    _turns: list[str] = field(default_factory=list)
    """Those that this round has not visited yet, in its order."""

    def join(self, runs: Iterable[str]) -> None:
        """These are measured, too: their evidence at once, their launches from the next round on."""
        for run in runs:
            self._phases.setdefault(run, "evidence")

    def next(self) -> str | None:
        """The run to visit; the same one until something is said of it, so that a visit that was lost is made
        again. None when all have ended."""
        if found := self._first_in("evidence"):
            return found
        if not self._turns:
            self._draw()
        return self._turns[0] if self._turns else self._first_in("afterwards")

    def visited(self, run: str, left: Left) -> None:
        """One piece of it was measured, and so much is left."""
        phase = _phase_of(left)
        if phase is None or run not in self._phases:
            self.leave(run)
            return
        self._phases[run] = phase
        if run in self._turns:
            self._turns.remove(run)

    def leave(self, run: str) -> None:
        """It has ended or cannot go on, which is nothing to the others."""
        self._phases.pop(run, None)
        if run in self._turns:
            self._turns.remove(run)

    @property
    def runs(self) -> tuple[str, ...]:
        """Those that have not ended."""
        return tuple(self._phases)

    def _first_in(self, phase: _Phase) -> str | None:
        return next((run for run, its in self._phases.items() if its == phase), None)

    def _draw(self) -> None:
        turns = sorted(run for run, its in self._phases.items() if its == "launches")
        if turns:
            random.Random(f"{self.seed}/{self.round}").shuffle(turns)
            self._turns, self.round = turns, self.round + 1


def _phase_of(left: Left) -> _Phase | None:
    """What a run does next; None where nothing is left."""
    if left.evidence:
        return "evidence"
    if left.launches.most:
        return "launches"
    return "afterwards" if left.afterwards else None
