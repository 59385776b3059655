"""Where a run of a store lies today. Its folder may hold a later run by now: a sweep of every night, and
`sme2prof profile` done again, keep what was there under its date (`run/names.py`)."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path

from model_profiling.errors import ProfilingError
from model_profiling.json_record import JsonObject, read_json_object
from model_profiling.reading import is_there
from model_profiling.run import names
from model_profiling.store.moments import moment_of

_KEPT = re.compile(r"(.+)-(\d{8}-\d{6})(?:-\d+)?")
_EPOCH, _MICROSECOND = datetime(1970, 1, 1), timedelta(microseconds=1)
_ABOVE = 3
"""How far above a run a folder may have been kept aside: SWEEP/runs/PROGRAM/PLACE."""


@dataclass(slots=True)
class RunPlaces:
    """Looks into each folder once."""

    _kept: dict[Path, dict[str, list[tuple[str, str]]]] = field(default_factory=dict)

    def find(self, run_dir: Path, measured: datetime | None) -> Path | None:
        """Where the run that was begun at `measured` (UTC) lies; None where it is not to be found."""
        return next((place for place in self._places(run_dir, measured) if _holds(place, measured)), None)

    def _places(self, run_dir: Path, measured: datetime | None) -> Iterator[Path]:
        yield run_dir
        if measured is None:
            return
        begun = measured.replace(tzinfo=timezone.utc).astimezone().strftime("%Y%m%d-%H%M%S")
        for above in (run_dir, *run_dir.parents[:_ABOVE]):
            kept = self._kept_in(above.parent).get(above.name, [])
            at = bisect.bisect(kept, (begun, "~"))
            # The last that was begun before it; its neighbours where names tell the time of another zone.
            for name in (name for _, name in (*kept[max(at - 2, 0) : at][::-1], *kept[at : at + 1])):
                yield above.with_name(name) / run_dir.relative_to(above)

    def _kept_in(self, folder: Path) -> dict[str, list[tuple[str, str]]]:
        """Of each name the folders that were kept aside, by their dates."""
        if folder not in self._kept:
            found: dict[str, list[tuple[str, str]]] = {}
            try:
                entries = sorted(entry.name for entry in folder.iterdir())
            except OSError:
                entries = []
            for name in entries:
                if told := _KEPT.fullmatch(name):
                    found.setdefault(told[1], []).append((told[2], name))
            self._kept[folder] = {name: sorted(kept) for name, kept in found.items()}
        return self._kept[folder]


def _holds(run_dir: Path, measured: datetime | None) -> bool:
    """Whether the run in a folder is the one begun then. One that does not say when is taken for it."""
    if not is_there(run_dir):
        return False
    if measured is None or not is_there(run_dir / names.MANIFEST):
        return True
    try:
        begun = set(_sessions(read_json_object(run_dir / names.MANIFEST, "")))
    except ProfilingError:
        return False
    return not begun or (measured - _EPOCH) // _MICROSECOND in begun


def _sessions(manifest: JsonObject) -> Iterator[int]:
    """When the sessions of a run began. Only this is looked at: a store has thousands of runs."""
    earlier = manifest.get("earlier_parts")
    for part in (manifest, *(earlier if isinstance(earlier, list) else ())):
        sessions = part.get("sessions") if isinstance(part, dict) else None
        for session in sessions if isinstance(sessions, list) else ():
            started = session.get("started") if isinstance(session, dict) else None
            if isinstance(started, str) and (told := moment_of(started)) is not None:
                yield told
