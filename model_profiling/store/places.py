"""Where stores and their runs are: addresses, downloaded copies, runs that were moved."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError, ProfilingError, SetupError
from model_profiling.core.files import StrPath
from model_profiling.core.hints import needed
from model_profiling.core.records import JsonObject, read_json_object
from model_profiling.core.safe_read import MOST_JSON, MOST_MAPPED, is_regular, is_there
from model_profiling.runner.cache import cache_root, check_trusted
from model_profiling.store.connection import as_moment, moment_of, without_patterns
from model_profiling.store.data_files import INDEX, read_index

if TYPE_CHECKING:
    import duckdb


# Finding a run. Stores are moved, with their runs or alone; a run that is measured again, and a nightly
# sweep, take the folder of the earlier one, which is kept under its date.

_ABOVE = 3
"""How far above a run a folder may have been moved aside: SWEEP/runs/PROGRAM/PLACE."""


@dataclass(slots=True)
class Places:
    """Finds runs of the store in `root`. The places that a store records are only candidates: a folder counts
    if its own manifest says that it began at the same time."""

    root: Path
    _begun: dict[Path, int | None] = field(default_factory=dict)
    _kept: dict[Path, list[tuple[str, str, str]]] = field(default_factory=dict)

    def find(self, run_dir: str, from_store: str | None, measured: datetime | None) -> Path | None:
        for folder in self._named(run_dir, from_store):
            if measured is None:
                if is_there(folder):
                    return folder
                continue
            begun = as_moment(measured)
            for place in (folder, *self._kept_aside(folder, measured)):
                if place not in self._begun:
                    self._begun[place] = _begun(place)
                if self._begun[place] == begun:
                    return place
        return None

    def _kept_aside(self, run_dir: Path, measured: datetime) -> Iterator[Path]:
        """Where the run may be after another took its folder; the last folder begun before it comes first."""
        begun = measured.replace(tzinfo=timezone.utc).astimezone().strftime("%Y%m%d-%H%M%S")
        for above in (run_dir, *run_dir.parents[:_ABOVE]):
            kept = [told[1:] for told in self._kept_in(above.parent) if told[0] == above.name]
            before = [one for one in kept if one[0] <= begun]
            for _, name in (*reversed(before), *kept[len(before) :]):
                yield above.with_name(name) / run_dir.relative_to(above)

    def _kept_in(self, folder: Path) -> list[tuple[str, str, str]]:
        """Folders that were moved aside: original name, start time and current name."""
        from model_profiling.run import names  # needs numpy, which queries do without

        if folder not in self._kept:
            found = []
            with contextlib.suppress(OSError):
                for entry in folder.iterdir():
                    if told := names.kept_aside(entry.name):
                        found.append((*told, entry.name))
            self._kept[folder] = sorted(found)
        return self._kept[folder]

    def _named(self, run_dir: str, from_store: str | None) -> Iterator[Path]:
        moved = os.path.normpath(self.root / from_store) if from_store else ""
        for told in dict.fromkeys((run_dir, moved)):
            folder = Path(told)
            if folder.is_absolute() and folder.name and "\0" not in told:
                yield folder


def _begun(folder: Path) -> int | None:
    """When the run in `folder` began. Parses only part of the manifest if it can: there may be thousands."""
    from model_profiling.run import names
    from model_profiling.run.manifest import read_manifest, read_summary_0

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


# The address of a store: the given one, else $SME2PROF_STORE, else the folder `sme2prof_store` here.

VARIABLE = "SME2PROF_STORE"
DEFAULT = "sme2prof_store"
_REMOTE = ("s3://", "gs://", "gcs://", "r2://", "az://", "abfss://", "file://")
"""What DuckDB can list and read, each with an extension; `file` needs none and is there for tests."""


def store_address(given: StrPath | None = None) -> str:
    return os.fspath(given) if given is not None else os.environ.get(VARIABLE) or DEFAULT


def store_command(words: str, address: str) -> str:
    """The `sme2prof store` command for `words`, with `--store` if `address` is not the default."""
    named = "" if address == store_address() else f" --store {address}"
    return f"sme2prof store {words}{named}"


def is_remote(address: str) -> bool:
    return address.lower().startswith(_REMOTE)


# Stores at addresses such as s3://bucket/store. DuckDB downloads the files that count into the user's cache
# (see `sme2prof clean`). Files never change, so each is downloaded once.

KIND = "stores"
_FIX = "check the address, and that DuckDB may read it"


def fetch_store(address: str) -> Path:
    """Download the store at `address`; return its folder on this machine."""
    engine = needed("duckdb", "store")
    root = cache_root() / KIND / hashlib.sha256(address.encode()).hexdigest()[:16]
    check_trusted(files.make_folder(root))
    try:
        with engine.connect(":memory:") as made:
            _fetch(made, address.rstrip("/"), root)
    except engine.Error as problem:
        said = str(problem).splitlines()[0]
        kind = SetupError if "extension" in said.lower() else InputError
        raise kind(f"cannot read {address}: {said}", _FIX) from problem
    return root


def _fetch(made: duckdb.DuckDBPyConnection, address: str, root: Path) -> None:
    if not made.execute("FROM glob(?)", [without_patterns(f"{address}/{INDEX}")]).fetchall():
        raise InputError(f"there is no store at {address}", _FIX)
    files.write_bytes(root / INDEX, _read(made, f"{address}/{INDEX}", MOST_JSON))
    for found in read_index(root).files:
        path = files.real_folder(root, root / found.folder) / Path(found.path).name
        if is_regular(path) and path.stat().st_size == found.bytes:
            continue
        content = _read(made, f"{address}/{found.path}", min(found.bytes, MOST_MAPPED))
        if hashlib.sha256(content).hexdigest() != found.sha256:
            raise FormatError(f"{address}/{found.path} is damaged: its hash differs from the index", _FIX)
        files.write_bytes(path, content)


def _read(made: duckdb.DuckDBPyConnection, path: str, most: int) -> bytes:
    given = [without_patterns(path)]
    (size,) = made.execute("SELECT size FROM read_blob(?)", given).fetchone() or (None,)
    if size is None:
        raise FormatError(f"there is no {path}", _FIX)
    if size > most:
        raise FormatError(f"{path} has {size} bytes, more than the limit of {most}", _FIX)
    (content,) = made.execute("SELECT content FROM read_blob(?)", given).fetchone() or (b"",)
    return bytes(content)
