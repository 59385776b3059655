"""Where a run of a store is today. Stores are moved, together with their runs or alone; a run that is
measured anew takes the folder of the one before, which then lies beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from model_profiling.errors import ProfilingError
from model_profiling.json_record import JsonObject, read_json_object
from model_profiling.reading import is_there
from model_profiling.run import names
from model_profiling.run.manifest import read_manifest, read_summary_0
from model_profiling.store.moments import as_moment, moment_of


def seen_from(root: Path, run_dir: Path) -> str:
    """`run_dir` as a path from the store."""
    return Path(os.path.relpath(run_dir.resolve(), root.resolve())).as_posix()


@dataclass(slots=True)
class Places:
    """Finds runs of the store in `root`. What a store says of places is only looked at: a folder counts where
    its own manifest says that it was begun at the same moment."""

    root: Path
    _begun: dict[Path, int | None] = field(default_factory=dict)

    def find(self, run_dir: str, from_store: str | None, measured: datetime | None) -> Path | None:
        """Where the run lies; None where it is in no place that is known."""
        for folder in self._named(run_dir, from_store):
            if measured is None:
                if is_there(folder):
                    return folder
                continue
            begun = as_moment(measured)
            for place in (folder, names.first_earlier_name(folder, measured.isoformat())):
                if self._moment(place) == begun:
                    return place
        return None

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
