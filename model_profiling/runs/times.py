"""What a time means: only times measured on hardware are latencies, and times of unknown origin are not.

The manifest says it. Without a manifest, files of earlier analyses and the names of emulated runs still tell,
so that losing a file does not turn emulated times into latencies.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from model_profiling.config import names
from model_profiling.core.errors import FormatError, ProfilingError
from model_profiling.core.records import read_json_object, read_table
from model_profiling.core.safe_read import is_regular, open_regular


class Times(str, Enum):
    HARDWARE = "hardware"
    """Measured on the named CPU: latencies."""
    TRACED = "traced"
    """From a run that logs or counts kernels, which slows it down."""
    EMULATED = "emulated"
    """From an emulator; they mean nothing."""
    UNKNOWN = "unknown"
    """Shown as recorded, but nothing is concluded from them."""

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
    Times.UNKNOWN: "an unknown machine",
}

NOT_ARM = "(not Arm): measured on a CPU that is not Arm, which says nothing about Arm."
"""Explains the mark."""


def marked(text: str, is_arm: bool | None) -> str:
    """Return `text`, marked if its times were measured on a CPU that is not Arm (`Manifest.is_arm`)."""
    return f"{text} (not Arm)" if is_arm is False else text


TRACING_MODES = ("xnntrace", "trace")
_NOT_LATENCIES = (Times.EMULATED.value, Times.TRACED.value)
_HEAD_BYTES = 1 << 16
"""Enough for the first row of a CSV file."""


def times_of_mode(mode: str, target: Times) -> Times:
    return Times.TRACED if target is Times.HARDWARE and mode in TRACING_MODES else target


class EarlierFiles:
    """Files of earlier analyses, each read once however many dumps need it."""

    def __init__(self) -> None:
        self._emulated: dict[Path, bool] = {}
        self._stated: dict[Path, dict[str, list[object]]] = {}

    def are_emulated(self, folder: Path) -> bool:
        if folder not in self._emulated:
            self._emulated[folder] = _object(folder / names.METRICS).get("times") == Times.EMULATED.value
        return self._emulated[folder]

    def stated(self, folder: Path, stem: str) -> list[object]:
        """Return what the analysis in `folder` calls the times of the dumps with this stem."""
        if folder not in self._stated:
            analysis = _object(folder / names.ANALYSIS)
            dumps, series = (_objects(analysis.get(key)) for key in ("per_etdump", "series"))
            by_stem = self._stated.setdefault(folder, {})
            for dump, of_series in zip(dumps, series, strict=False):
                own = names.dump_stem(Path(str(dump.get("etdump"))).name)
                by_stem.setdefault(own, []).append(of_series.get("times"))
        return self._stated[folder].get(stem, [])


def times_without_manifest(path: Path, earlier: EarlierFiles | None = None) -> tuple[Times, str]:
    """Return what the times of a file or folder of a run mean, and what says so; the surest source wins. Pass
    `earlier` when asking about many files."""
    return next(_marks(path, earlier or EarlierFiles()), (Times.UNKNOWN, ""))


def _marks(path: Path, earlier: EarlierFiles) -> Iterator[tuple[Times, str]]:
    whole = path.resolve()
    folders = [whole, *whole.parents][:4] if path.is_dir() else list(whole.parents)[:3]
    stem = names.dump_stem(path.name)
    for folder in folders:
        if earlier.are_emulated(folder):
            yield Times.EMULATED, names.METRICS
        for word in earlier.stated(folder, stem):
            if word in _NOT_LATENCIES:
                yield Times(word), names.ANALYSIS
    for folder in folders[:2]:
        written = folder / f"{stem}{names.STATS_CSV}"
        if is_regular(written):
            with open_regular(written) as stream:
                head = stream.read(_HEAD_BYTES).decode("utf-8", "replace")
            row: dict[str, str] = {}
            with contextlib.suppress(FormatError):  # an unreadable file says nothing
                row = next(read_table(head, written, "analyse it again")[1], {})
            if (word := row.get("times")) in _NOT_LATENCIES:
                yield Times(word), written.name
    for folder in folders:
        if re.match(r"emulated($|[-_])", folder.name):
            yield Times.EMULATED, f"the folder's name {folder.name}"
    if re.search(r"(^|_)emulated_", stem):
        yield Times.EMULATED, "its name"


def _object(path: Path) -> dict[str, object]:
    """Read a file of an earlier analysis; an unreadable one counts as empty."""
    try:
        return read_json_object(path, "")
    except ProfilingError:
        return {}


def _objects(listed: object) -> list[dict[str, object]]:
    return [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
