"""Downloads, pinned and shown, by pip and by hash."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import re
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.core.formatting import plural, size
from model_profiling.core.progress import current_progress

_LOOK_EVERY_S = 0.5
_SMALL = 5e6
_UNITS = {"bytes": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_DOWNLOADING = re.compile(r"[ \t]*Downloading (\S+?)(?: \(([\d.]+) (bytes|[kMG]B)\))?[ \t]*$")
# Silence pip's remarks about the user's own setup; they are not about what is installed here.
_UNASKED = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PIP_NO_COLOR": "1",
    "PIP_PROGRESS_BAR": "off",
}


@contextlib.contextmanager
def show_download(name: str, count: float | None, arrived: Callable[[], float]) -> Iterator[None]:
    """Show progress while the block fetches `name` of `count` bytes; `arrived` returns the bytes so far."""
    progress = current_progress()
    progress.stage(f"fetching {name} ({size(count)})" if count else f"fetching {name}")
    if count is None or count < _SMALL:
        yield
        return
    total = round(count / 1e6)
    done = threading.Event()

    def look() -> None:
        while not done.wait(_LOOK_EVERY_S):
            progress.advance(min(round(arrived() / 1e6), total - 1), total)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    try:
        yield
    finally:
        done.set()
        looking.join()


def bytes_in(folder: Path, name: str = "*") -> float:
    """Return the total size of all files called `name` below `folder`; files may vanish meanwhile."""
    total = 0
    for path in folder.rglob(name):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return float(total)


def pip(*words: str | Path, timeout: float) -> process.Completed:
    """Run this Python's pip and show each package it downloads."""
    with tempfile.TemporaryDirectory(prefix="sme2prof-pip-") as folder, contextlib.ExitStack() as last:

        def heard(line: str) -> None:
            if download := _DOWNLOADING.match(line):
                name = unquote(download[1].rpartition("/")[2])
                if name.endswith(".metadata"):
                    return
                count = float(download[2]) * _UNITS[download[3]] if download[2] else None
                last.close()
                last.enter_context(show_download(name, count, lambda: bytes_in(Path(folder), name)))
            elif line.startswith("Installing collected packages:"):
                last.close()
                current_progress().stage(f"installing {plural(line.count(',') + 1, 'package')}")

        command = [sys.executable, "-m", "pip", *words]
        return process.run(command, timeout=timeout, env={**_UNASKED, "TMPDIR": folder}, heard=heard)


# Packages fetched on first use, pinned by hash like those that setup installs. The lock files beside this one
# are pip requirements files; `make lock` writes them.


def pip_words(package: str, version: str | None = None) -> tuple[str, ...]:
    """Return pip's arguments for `package` as locked. Another `version` has no hash here: it is only
    requested because it is already installed, which was someone's choice."""
    lock = Path(__file__).with_name(f"{package}.txt")
    locked = f"{package}=={version}"
    pinned = any(line.split(" ")[0] == locked for line in lock.read_text(encoding="utf-8").splitlines())
    return ("--require-hashes", "-r", str(lock)) if pinned or version is None else (locked,)


_LARGEST = 50_000_000


def download(address: str, sha256: str, cure: str) -> bytes:
    """Return the file at `address`; it is refused if it is not the one with this hash."""
    current_progress().stage(f"fetching {address.rpartition('/')[2]}")
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 (wherever it is from)
            content = bytes(answer.read(_LARGEST))
    except (OSError, ValueError, http.client.HTTPException) as problem:
        reason = getattr(problem, "reason", problem)
        raise SetupError(f"{address} cannot be downloaded: {reason}", cure) from problem
    if hashlib.sha256(content).hexdigest() != sha256:
        raise SetupError(f"{address} is not the file with the expected hash", cure)
    return content
