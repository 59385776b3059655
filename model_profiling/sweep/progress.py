"""How far a sweep is, and how long the rest takes, as the person watching it is told."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from model_profiling.progress import Progress
from model_profiling.sweep.cost import JobCost, lane_of, longest
from model_profiling.sweep.records import Job, SweepRecord


class UnderWay(Protocol):
    """A job that is being measured, or is still to be."""

    @property
    def job(self) -> Job: ...

    @property
    def seconds_left(self) -> float | None:
        """As its run tells; None before it was begun."""

    @property
    def over(self) -> bool:
        """Whether nothing of it is left to measure."""


@dataclass(frozen=True, slots=True)
class SweepProgress:
    """Tells `progress` of a sweep. `costs` are those reckoned before, by job; `alone` says that this machine
    does everything, so that it emulates and measures one after the other."""

    progress: Progress
    costs: Mapping[str, JobCost]
    alone: bool

    def show(
        self,
        record: SweepRecord,
        works: Sequence[UnderWay],
        visited: Iterable[Job],
        exported: tuple[int, int] | None = None,
    ) -> None:
        """Say how many cells have ended, how long the rest takes, and what is measured where; before that how
        many programs of how many are `exported`, which nobody knows the time of."""
        cells = [each for each in record.cells if each.state != "left out"]
        ended = sum(each.ended for each in cells)
        failed = sum(each.state == "failed" for each in cells)
        said = [f"{failed} failed"] if failed else []
        said += [f"{job.target}: {job.program.name}" for job in visited]
        if exported is not None:
            self.progress.advance(*exported, "; ".join(said))
        else:
            self.progress.advance(ended, len(cells), "; ".join(said), self.seconds_left(works))

    def seconds_left(self, works: Sequence[UnderWay]) -> float | None:
        """How long what is left takes; None where of nothing a time is known. A job without one is taken to
        last as long as the others do."""
        known = {work.job.id: seconds for work in works if (seconds := self._seconds(work)) is not None}
        if not known:
            return None
        usual = sum(known.values()) / len(known)
        return longest(
            (lane_of(work.job.target) if self.alone else work.job.target, known.get(work.job.id, usual))
            for work in works
            if not work.over
        )

    def _seconds(self, work: UnderWay) -> float | None:
        if work.seconds_left:  # before a launch was timed its run tells of none
            return work.seconds_left
        cost = self.costs.get(work.job.id)
        return cost.seconds if cost else None
