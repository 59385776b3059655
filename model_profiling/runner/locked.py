"""What the kit fetches from a package index when it is used, known by its hashes like what set-up installs.

The locks beside this file are requirements files of pip; `make lock` writes them.
"""

from __future__ import annotations

from pathlib import Path


def pip_words(package: str, version: str | None = None) -> tuple[str, ...]:
    """What tells pip to take `package` as it is locked. Another `version` than that has no hash here: the one
    that is asked for is the one that is installed already, which was somebody's choice."""
    lock = Path(__file__).with_name(f"{package}.txt")
    locked = f"{package}=={version}"
    known = any(line.split(" ")[0] == locked for line in lock.read_text(encoding="utf-8").splitlines())
    return ("--require-hashes", "-r", str(lock)) if known or version is None else (locked,)
