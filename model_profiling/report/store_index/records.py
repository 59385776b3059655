"""What the page of a store is made of: every run in a line, and the latency of each series over the runs.

`workflow/` asks the store and fills these; nothing here knows where they come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from model_profiling.run import Times


class Kernels(str, Enum):
    """What is known about SME2 kernels in a run."""

    RAN = "SME2 kernels ran"
    RAN_EMULATED = "SME2 kernels ran, emulated"
    SME_RAN = "SME or SME2 kernels ran"
    NONE_RAN = "no SME2 kernel ran"
    NOT_TESTED = "not tested"

    @property
    def proven(self) -> bool:
        return self in (Kernels.RAN, Kernels.RAN_EMULATED)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as the page tells of it; texts are as shown."""

    id: str
    measured: str
    """When, ISO 8601 in UTC, to the second."""
    model: str
    format: str
    """Backend and dtype: `xnnpack fp16`; empty where nothing says."""
    device: str
    times: Times = Times.HARDWARE
    state: str = "finished"
    kernels: Kernels = Kernels.NOT_TESTED
    commit: str = ""
    branch: str = ""
    tags: tuple[str, ...] = ()
    report: str = ""
    """Its report, relative to the page; empty where there is none."""
    no_report: str = ""
    """Why there is none, as a clause."""


@dataclass(frozen=True, slots=True)
class Point:
    """A run's median latency in one series, with the interval of the median where it is known."""

    run: str
    ms: float
    low_ms: float | None = None
    high_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """The latency of a series went to another level and stayed there, or drifts."""

    run: str
    """The first run at the new level."""
    before_ms: float
    after_ms: float
    share: float
    """Of the time before: 0.03 is 3% slower."""
    also: tuple[str, ...] = ()
    """What else changed where the level did, such as `ExecuTorch 1.5.0 -> 1.5.1`."""
    until: str = ""
    """Of a drift its last run; empty where the change came at once."""
    drawn_from: tuple[str, float] | None = None
    """Of a drift that began before the first point that is drawn: the run it is drawn from, and its ms."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something around the model is not as it was in the run before: ExecuTorch, the kit, the program."""

    run: str
    text: str


@dataclass(frozen=True, slots=True)
class SeriesHistory:
    """One series over the runs of a model, a format and a device, the oldest first."""

    model: str
    format: str
    device: str
    experiment: str
    threads: int
    points: tuple[Point, ...]
    changes: tuple[Change, ...] = ()
    marks: tuple[Mark, ...] = ()
    headline: bool = True
    """Whether it is the one that is shown where only one of its model, format and device is."""
    judged: bool = True
    """Whether there are enough runs to tell a change from noise."""
    left_out: int = 0
    """How many older points the page has no room for."""

    @property
    def last_change(self) -> Change | None:
        return self.changes[-1] if self.changes else None


@dataclass(frozen=True, slots=True)
class Method:
    """How changes were found: what the page says of it."""

    fewest_runs: int
    """A history of fewer is not judged."""
    by_chance: float
    """In how many of the histories that are told first a change would be found, had none of them one."""


@dataclass(frozen=True, slots=True)
class StoreContents:
    name: str
    runs: tuple[StoredRun, ...]
    histories: tuple[SeriesHistory, ...]
    method: Method
    command: str = ""
    """What tells of everything that a page has no room for, such as `sme2prof query --store S`."""
