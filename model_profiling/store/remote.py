"""A store at an address such as s3://bucket/store: what counts of it is fetched once, and read from there.

DuckDB fetches, by the extension that its address needs. Changes stay as they are and files are named by their
hash, so what was fetched before is fetched no more. The copy lies in the user's cache, for `sme2prof clean`.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from model_profiling import files
from model_profiling.errors import FormatError, InputError, SetupError
from model_profiling.extras import needed
from model_profiling.progress import Progress, Silent
from model_profiling.reading import MOST_JSON, MOST_MAPPED, is_regular, read_bytes
from model_profiling.runner.cache import cache_root
from model_profiling.runner.trusted_folder import check_trusted
from model_profiling.store.contents import Contents
from model_profiling.store.log import FOLDER as LOG
from model_profiling.store.log import Log

if TYPE_CHECKING:
    import duckdb

KIND = "stores"
_NAME = re.compile(r"(?:.*/)?([0-9]{8})\.json")
_FIX = "see that the address is right, and that DuckDB may read it"


def fetch_store(address: str, mark: str, progress: Progress | None = None) -> Path:
    """The folder of this machine that holds what counts of the store at `address`."""
    engine = needed("duckdb", "store")
    root = cache_root() / KIND / hashlib.sha256(address.encode()).hexdigest()[:16]
    check_trusted(files.make_folder(root))
    try:
        with engine.connect(":memory:") as made:
            _fetch(made, address.rstrip("/"), root, mark, progress or Silent())
    except engine.Error as problem:
        said = str(problem).splitlines()[0]
        kind = SetupError if "extension" in said.lower() else InputError
        raise kind(f"cannot read {address}: {said}", _FIX) from problem
    return root


def _fetch(made: duckdb.DuckDBPyConnection, address: str, root: Path, mark: str, progress: Progress) -> None:
    listed = made.execute("SELECT file FROM glob(?)", [_plain(f"{address}/{LOG}/") + "*.json"]).fetchall()
    numbers = sorted(int(told[1]) for (path,) in listed if (told := _NAME.fullmatch(path)))
    if not numbers:
        raise InputError(f"there is no store at {address}", _FIX)
    files.write_bytes(root / mark, _read(made, f"{address}/{mark}", MOST_JSON))
    log = Log(root)
    newest = _read(made, f"{address}/{LOG}/{log.path(numbers[-1]).name}", MOST_JSON)
    if log.folder.is_dir() and not _continues(log, numbers[-1], newest):
        shutil.rmtree(log.folder)  # another store has taken its place
    files.make_folder(log.folder)
    progress.stage(f"fetching {address}")
    files.write_bytes(log.path(numbers[-1]), newest)
    for number in reversed(numbers):
        path = log.path(number)
        if not is_regular(path):
            files.write_bytes(path, _read(made, f"{address}/{LOG}/{path.name}", MOST_JSON))
        if log.read(number).whole:
            break
    contents = Contents()
    contents.catch_up(log)
    for place, (name, found) in enumerate(contents.files.items()):
        progress.advance(place, len(contents.files), found.table)
        path = files.real_folder(root, (root / name).parent) / Path(name).name
        if is_regular(path) and path.stat().st_size == found.bytes:
            continue
        content = _read(made, f"{address}/{name}", min(found.bytes, MOST_MAPPED))
        if hashlib.sha256(content).hexdigest() != found.sha256:
            raise FormatError(f"{address}/{name} is damaged: its hash is not that of its name", _FIX)
        files.write_bytes(path, content)


def _continues(log: Log, number: int, newest: bytes) -> bool:
    """Whether the copy is of a store whose change `number`, the newest, is `newest`."""
    known = log.numbers()
    if not known or known[-1] < number:
        return True
    return known[-1] == number and read_bytes(log.path(number), MOST_JSON) == newest


def _read(made: duckdb.DuckDBPyConnection, path: str, most: int) -> bytes:
    (size,) = made.execute("SELECT size FROM read_blob(?)", [_plain(path)]).fetchone() or (None,)
    if size is None:
        raise FormatError(f"there is no {path}", _FIX)
    if size > most:
        raise FormatError(f"{path} has {size} bytes, more than the {most} that it may have", _FIX)
    (content,) = made.execute("SELECT content FROM read_blob(?)", [_plain(path)]).fetchone() or (b"",)
    return bytes(content)


def _plain(path: str) -> str:
    """`path` without a letter that DuckDB would take for a pattern."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)
