"""What a sweep and its workers say to each other. Files are told by name and hash alone (`transfer.py`)."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass, field

from model_profiling import __version__
from model_profiling.pipeline.left import Left
from model_profiling.sweep.records import Job, Program
from model_profiling.sweep.transfer import Listing

EXPORTS = "sme2prof:exports"
"""The Dask resource of a worker that exports; one export takes one of it."""
QUIET = "sme2prof:quiet-cores"
"""The Dask resource of a worker that has cores set aside for measuring: how many."""
_DEVICE = "device:"
HOST = "host@"
EMULATED = "emulated"


def resource_of(device: str) -> str:
    """The Dask resource that a device is; each worker that reaches it has one."""
    return f"{_DEVICE}{device}"


@dataclass(frozen=True, slots=True)
class Versions:
    """What must be the same on both sides for runs to be one sweep's."""

    kit: str
    executorch: str

    def __str__(self) -> str:
        return f"sme2prof {self.kit} with ExecuTorch {self.executorch}"


def own_versions() -> Versions:
    try:
        executorch = importlib.metadata.version("executorch")
    except importlib.metadata.PackageNotFoundError:
        executorch = "that is not installed"
    return Versions(__version__, executorch)


@dataclass(frozen=True, slots=True)
class Offer:
    """What one worker can do. Devices are told as a sweep names them, its own machine as `host@MACHINE`."""

    worker: str
    name: str
    versions: Versions
    devices: tuple[str, ...] = ()
    quiet_cores: tuple[int, ...] = ()
    exports: bool = True


@dataclass(frozen=True, slots=True)
class ExportAsk:
    sweep: str
    program: Program
    versions: Versions


@dataclass(frozen=True, slots=True)
class VisitAsk:
    """One piece of one job: `program` lists the program and what lies beside it, `run` the run directory as
    the sweep has it, from which the piece is measured."""

    sweep: str
    job: Job
    device: str
    program_file: str
    program: Listing
    run: Listing
    versions: Versions
    patience_s: float
    """How long a device that is lost in the middle is waited for there; longer waits are the sweep's."""


@dataclass(frozen=True, slots=True)
class Lacking:
    """What `worker` must be sent before it can do as asked."""

    worker: str
    hashes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export left in a folder of the worker."""

    worker: str
    name: str
    program_file: str
    files: Listing
    contents: dict[str, bytes] = field(default_factory=dict)
    """Of the smaller files what they hold; the rest is fetched."""


@dataclass(frozen=True, slots=True)
class Visited:
    """A run directory after one piece."""

    worker: str
    name: str
    files: Listing
    contents: dict[str, bytes]
    over: bool
    """Whether nothing is left to measure; the run is then complete but for what is made of it."""
    left: Left
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Failed:
    """Why something could not be done. `device_gone` where it may be, once the device or worker is well
    again: then nothing is wrong with what was asked."""

    worker: str
    name: str
    problem: str
    fix: str
    device_gone: bool = False
    in_use: bool = False
    """Whether somebody else has the device; it is waited for, as one that is gone."""
    files: Listing | None = None
    contents: dict[str, bytes] = field(default_factory=dict)
