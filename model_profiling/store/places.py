"""Where a run of a store is today. Stores are moved, together with their runs or alone; a run that is
measured anew, and a sweep of every night, take the folder of the one before, which is kept under its date.
"""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from model_profiling.errors import ProfilingError
from model_profiling.json_record import JsonObject, read_json_object
from model_profiling.reading import is_there
from model_profiling.run import names
from model_profiling.run.manifest import read_manifest, read_summary_0
from model_profiling.store.moments import as_moment, moment_of

_ABOVE = 3
"""How far above a run a folder may have been kept aside: SWEEP/runs/PROGRAM/PLACE."""


@dataclass(slots=True)
class Places:
    """Finds runs of the store in `root`. What a store says of places is only looked at: a folder counts where
    its own manifest says that it was begun at the same moment."""

    root: Path
    _begun: dict[Path, int | None] = field(default_factory=dict)
    _kept: dict[Path, dict[str, list[tuple[str, str]]]] = field(default_factory=dict)

    def find(self, run_dir: str, from_store: str | None, measured: datetime | None) -> Path | None:
        """Where the run lies; None where it is in no place that is known."""
        for folder in self._named(run_dir, from_store):
            if measured is None:
                if is_there(folder):
                    return folder
                continue
            begun = as_moment(measured)
            for place in (folder, *self._kept_aside(folder, measured)):
                if self._moment(place) == begun:
                    return place
        return None

    def _kept_aside(self, run_dir: Path, measured: datetime) -> Iterator[Path]:
        """Where the run may lie since another took its folder, or that of its sweep."""
        begun = measured.replace(tzinfo=timezone.utc).astimezone().strftime("%Y%m%d-%H%M%S")
        for above in (run_dir, *run_dir.parents[:_ABOVE]):
            kept = self._kept_in(above.parent).get(above.name, [])
            at = bisect.bisect(kept, (begun, "~"))
            # The last that was begun before it; its neighbours where names tell the time of another zone.
            for name in (name for _, name in (*kept[max(at - 2, 0) : at][::-1], *kept[at : at + 1])):
                yield above.with_name(name) / run_dir.relative_to(above)

    def _kept_in(self, folder: Path) -> dict[str, list[tuple[str, str]]]:
        """Of each name the folders that were kept aside, by their dates; each folder is listed once."""
        if folder not in self._kept:
            found: dict[str, list[tuple[str, str]]] = {}
            try:
                entries = sorted(entry.name for entry in folder.iterdir())
            except OSError:
                entries = []
            for name in entries:
                if told := names.kept_aside(name):
                    found.setdefault(told[0], []).append((told[1], name))
            self._kept[folder] = {name: sorted(kept) for name, kept in found.items()}
        return self._kept[folder]

    def _named(self, run_dir: str, from_store: str | None) -> Iterator[Path]:
        moved = os.path.normpath(self.root / from_store) if from_store else ""
        for told in dict.fromkeys((run_dir, moved)):
            folder = Path(told)
            if folder.is_absolute() and folder.name and "\0" not in told:
                yield folder

    def _moment(self, folder: Path) -> int | None:
        if folder not in self._begun:
            self._begun[folder] = _begun(folder)
        return self._begun[folder]


def _begun(folder: Path) -> int | None:
    """When the run in `folder` was begun. Read in part where it can be: there may be thousands."""
    path = folder / names.MANIFEST
    try:
        content = read_json_object(path, "") if is_there(path) else {}
        part = _first(content.get("earlier_parts")) or content
        if started := _first(part.get("sessions")).get("started"):
            return moment_of(str(started))
        manifest = read_manifest(folder) or read_summary_0(folder)
        return moment_of(manifest.started) if manifest else None
    except ProfilingError:
        return None


def _first(value: object) -> JsonObject:
    return value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else {}
