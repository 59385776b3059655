"""What is under way: each job with how far it is, and each device with the jobs that take turns on it."""

from __future__ import annotations

import contextlib
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from model_profiling.pipeline.interleaved import Interleaved
from model_profiling.pipeline.left import Left
from model_profiling.sweep.messages import EMULATED
from model_profiling.sweep.records import Job

_PAUSES_S = (1.0, 2.0, 5.0, 15.0)
"""Between tries of a device that went away."""


@dataclass(slots=True, eq=False)
class Work:
    """One job on its way."""

    job: Job
    left: Left | None = None
    """What the last visit said is left; None before the first."""
    over: bool = False
    """Whether there is nothing left to measure, however that came."""

    @property
    def launches_left(self) -> int | None:
        """At most; None before the first visit."""
        return None if self.left is None else self.left.steps[1]

    @property
    def seconds_left(self) -> float | None:
        return None if self.left is None else self.left.seconds_at_most


@dataclass(slots=True, eq=False)
class Lane:
    """A device and the jobs on it: one visit at a time, so that nothing disturbs what is measured. Emulation
    measures no time, so each of its jobs has a lane of its own."""

    target: str
    works: list[Work]
    device: str | None = None
    """What the workers call it, once one of them offers it."""
    turns: Interleaved = field(default_factory=lambda: Interleaved(secrets.randbits(32)))
    """Whose launch is next."""
    visiting: Work | None = None
    future: Any = None
    workers: tuple[str, ...] = ()
    """Who was asked last."""
    lacked: int = 0
    """How often in a row the worker lacked something for the visit that is due."""
    was_there: bool = False
    lost_at: float | None = None
    """Since when visits of it fail; None while they do not."""
    why: str = ""
    fix: str = ""
    tries: int = 0
    not_before: float = 0.0

    @property
    def left(self) -> list[Work]:
        return [work for work in self.works if not work.over]

    def next(self) -> Work | None:
        """Whose piece is next: the same until something is said of it."""
        turn = self.turns.next()
        return next((work for work in self.left if work.job.id == turn), None)

    def end(self, work: Work) -> None:
        work.over, self.lacked = True, 0
        self.turns.leave(work.job.id)

    def lost(self, why: str, fix: str) -> None:
        """It cannot be reached for now; who looks after it asks again after a pause."""
        now = time.monotonic()
        self.lost_at = now if self.lost_at is None else self.lost_at
        self.why, self.fix = why, fix
        self.not_before = now + _PAUSES_S[min(self.tries, len(_PAUSES_S) - 1)]
        self.tries += 1

    def drop(self) -> None:
        """Nobody waits for the visit that is under way any more."""
        if self.future is not None:
            with contextlib.suppress(Exception):  # there may be no scheduler to tell
                self.future.cancel()
        self.future = self.visiting = None

    def found(self) -> None:
        """A visit was made."""
        self.was_there, self.lost_at, self.lacked, self.tries, self.not_before = True, None, 0, 0, 0.0

    def waited_s(self) -> float:
        """For how long it cannot be reached; 0 while it can."""
        return time.monotonic() - self.lost_at if self.lost_at is not None else 0.0


def lanes_of(jobs: list[Job]) -> list[Lane]:
    """A lane for each target, in the order of the sweep."""
    lanes: dict[str, Lane] = {}
    for job in jobs:
        key = job.id if job.target == EMULATED else job.target
        lanes.setdefault(key, Lane(job.target, [])).works.append(Work(job))
    for lane in lanes.values():
        lane.turns.join(work.job.id for work in lane.works)
    return list(lanes.values())
