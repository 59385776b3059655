"""In which order the runs of one device get their pieces, when several are measured there at once.

First every run gathers its evidence, which nobody times; then each round gives every run one launch, in an
order drawn from the seed and the round's number. So whatever changes slowly on the device (heat, clocks,
other work) meets all of them alike. Who has ended, well or not, drops out, and the others go on.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from model_profiling.pipeline.left import Left


@dataclass(slots=True)
class Interleaved:
    """Whose turn it is. `round` is where to go on: a sweep that is continued draws no order twice."""

    seed: int
    round: int = 0
    _evidence: list[str] = field(default_factory=list)
    _timed: list[str] = field(default_factory=list)
    """Every run that has launches to come, in the order they joined."""
    _turns: list[str] = field(default_factory=list)
    """Those that this round has not visited yet, in its order."""

    def join(self, runs: Iterable[str]) -> None:
        """These are measured, too: their evidence at once, their launches from the next round on."""
        known = {*self._evidence, *self._timed}
        self._evidence += [run for run in dict.fromkeys(runs) if run not in known]

    def next(self) -> str | None:
        """The run to visit; the same one until something is said of it, so that a visit that was lost is made
        again. None when all have ended."""
        if self._evidence:
            return self._evidence[0]
        if not self._turns and self._timed:
            self._turns = sorted(self._timed)
            random.Random(f"{self.seed}/{self.round}").shuffle(self._turns)
            self.round += 1
        return self._turns[0] if self._turns else None

    def visited(self, run: str, left: Left) -> None:
        """One piece of it was measured, and so much is left."""
        if left.nothing:
            self.leave(run)
        elif run in self._evidence:
            if not left.evidence:
                self._evidence.remove(run)
                self._timed.append(run)
        elif run in self._turns:
            self._turns.remove(run)

    def leave(self, run: str) -> None:
        """It has ended or cannot go on, which is nothing to the others."""
        for waiting in (self._evidence, self._timed, self._turns):
            if run in waiting:
                waiting.remove(run)

    @property
    def runs(self) -> tuple[str, ...]:
        """Those that have not ended."""
        return (*self._evidence, *self._timed)
