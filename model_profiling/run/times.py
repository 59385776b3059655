"""What a time means. Only times of hardware are latencies; what nothing vouches for is unknown, not hardware.

A run's manifest says it. Where that is lost, what earlier analyses wrote and the names of emulated runs still
tell: losing a file must not turn emulated times into latencies.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from model_profiling.core.errors import FormatError, ProfilingError
from model_profiling.core.records import read_json_object, read_table
from model_profiling.core.safe_read import is_regular, open_regular
from model_profiling.run import names


class Times(str, Enum):
    """Where the times of a run come from."""

    HARDWARE = "hardware"
    """Measured on the CPU that is named: latencies."""
    TRACED = "traced"
    """Of a run that logs or counts kernels, which slows it down."""
    EMULATED = "emulated"
    """An emulator's: they mean nothing."""
    UNKNOWN = "unknown"
    """Nothing says; they are shown as they are recorded, and nothing is claimed from them."""

    @property
    def are_latencies(self) -> bool:
        return self is Times.HARDWARE

    @property
    def are_shown(self) -> bool:
        """Whether milliseconds may be printed at all."""
        return self in (Times.HARDWARE, Times.UNKNOWN)

    @property
    def origin(self) -> str:
        return _ORIGINS[self]


_ORIGINS = {
    Times.HARDWARE: "hardware",
    Times.TRACED: "a run that traces kernels",
    Times.EMULATED: "an emulated run",
    Times.UNKNOWN: "a machine that nothing here names",
}

TRACING_MODES = ("xnntrace", "trace")
_HEAD_BYTES = 1 << 16
"""Of a CSV file: its first row is all that is asked."""


def times_of_mode(mode: str, target: Times) -> Times:
    """What the times of an experiment are, on a target whose times are `target`."""
    return Times.TRACED if target is Times.HARDWARE and mode in TRACING_MODES else target


def times_of_bool(are_latencies: object) -> object:
    """What 0.1.0 said with a bool, as today's word; anything else stays, to be found wrong."""
    words = {True: Times.HARDWARE.value, False: Times.EMULATED.value}
    return words[are_latencies] if isinstance(are_latencies, bool) else are_latencies


class EarlierFiles:
    """What earlier analyses wrote into folders, each file read once however many dumps ask."""

    def __init__(self) -> None:
        self._emulated: dict[Path, bool] = {}
        self._entries: dict[Path, dict[str, list[dict[str, object]]]] = {}

    def are_emulated(self, folder: Path) -> bool:
        """Whether its metrics say so."""
        if folder not in self._emulated:
            metrics = _object(folder / names.METRICS)
            said = (metrics.get("times"), metrics.get("timings_are_latency"))
            self._emulated[folder] = any(one in (Times.EMULATED.value, False) for one in said)
        return self._emulated[folder]

    def entries(self, folder: Path, stem: str) -> list[dict[str, object]]:
        """Those of its analysis that are about one dump."""
        if folder not in self._entries:
            listed = _object(folder / names.ANALYSIS).get("per_etdump")
            known = self._entries.setdefault(folder, {})
            for entry in listed if isinstance(listed, list) else ():
                if isinstance(entry, dict):
                    own = names.dump_stem(Path(str(entry.get("etdump"))).name)
                    told = {key: entry[key] for key in ("times", "timings_are_latency") if key in entry}
                    known.setdefault(own, []).append(told)
        return self._entries[folder].get(stem, [])


def times_without_manifest(path: Path, earlier: EarlierFiles | None = None) -> tuple[Times, str]:
    """What else tells about the times of a file (or folder) of a run, and what that is; surest first. Who
    asks about many files keeps `earlier`."""
    return next(_marks(path, earlier or EarlierFiles()), (Times.UNKNOWN, ""))


def _marks(path: Path, earlier: EarlierFiles) -> Iterator[tuple[Times, str]]:
    whole = path.resolve()
    folders = [whole, *whole.parents][:4] if path.is_dir() else list(whole.parents)[:3]
    stem = names.dump_stem(path.name)
    for folder in folders:
        if earlier.are_emulated(folder):
            yield Times.EMULATED, names.METRICS
        for entry in earlier.entries(folder, stem):
            yield from _stated(entry, names.ANALYSIS)
    for folder in folders[:2]:
        written = folder / f"{stem}{names.E2E_CSV}"
        if is_regular(written):
            with open_regular(written) as stream:
                head = stream.read(_HEAD_BYTES).decode("utf-8", "replace")
            row: dict[str, str] = {}
            with contextlib.suppress(FormatError):  # one that cannot be read says nothing
                row = next(read_table(head, written, "analyse it again")[1], {})
            yield from _stated({**row}, written.name)
    for folder in folders:
        if re.match(r"emulated($|[-_])", folder.name):
            yield Times.EMULATED, f"the folder's name {folder.name}"
    if re.search(r"(^|_)emulated_", stem):
        yield Times.EMULATED, "its name"


def _stated(entry: dict[str, object], place: str) -> Iterator[tuple[Times, str]]:
    """What an earlier analysis wrote about a dump; 0.1.0 only said whether its times are latencies."""
    said = entry.get("times")
    if said in (Times.EMULATED.value, Times.TRACED.value):
        yield Times(str(said)), place
    elif entry.get("timings_are_latency") in (False, "False"):
        yield Times.TRACED, place


def _object(path: Path) -> dict[str, object]:
    """A record of an earlier analysis; one that cannot be read says nothing."""
    try:
        return read_json_object(path, "")
    except ProfilingError:
        return {}
