"""Downloads, pinned and shown, by pip and by hash."""

from __future__ import annotations

import hashlib
import http.client
import re
import sys
import urllib.request
from pathlib import Path
from urllib.parse import unquote

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.core.formatting import plural
from model_profiling.core.stdio import current_progress

_DOWNLOADING = re.compile(r"[ \t]*Downloading (\S+?)(?: \(([\d.]+ (?:bytes|[kMG]B))\))?[ \t]*$")
# Silence pip's remarks about the user's own setup; they are not about what is installed here.
_UNASKED = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PIP_NO_COLOR": "1",
    "PIP_PROGRESS_BAR": "off",
}


def pip(*words: str | Path, timeout: float) -> process.Completed:
    """Run this Python's pip and show each package it downloads."""

    def heard(line: str) -> None:
        if download := _DOWNLOADING.match(line):
            name, of_size = unquote(download[1].rpartition("/")[2]), download[2]
            if not name.endswith(".metadata"):
                current_progress().stage(f"fetching {name} ({of_size})" if of_size else f"fetching {name}")
        elif line.startswith("Installing collected packages:"):
            current_progress().stage(f"installing {plural(line.count(',') + 1, 'package')}")

    return process.run([sys.executable, "-m", "pip", *words], timeout=timeout, env=_UNASKED, heard=heard)


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
