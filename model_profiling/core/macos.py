"""Facts from macOS's own commands; empty or None if they do not answer."""

from __future__ import annotations

import os
import re
import shutil

from model_profiling.core import process
from model_profiling.core.errors import SetupError

# The commands' folders, for a PATH that leaves them out.
_FOLDERS = "/usr/bin:/usr/sbin"


def sysctl(name: str) -> str:
    return _answer("sysctl", "-n", name).strip()


def sysctl_listing(prefix: str) -> str:
    """Return every value below `prefix`, one `name: value` per line."""
    return _answer("sysctl", prefix)


def version() -> str:
    return _answer("sw_vers", "-productVersion").strip()


def memory_bytes() -> int | None:
    said = sysctl("hw.memsize")
    return int(said) if said.isdecimal() else None


def on_battery() -> bool | None:
    source = re.search(r"drawing from '([^']+)'", _answer("pmset", "-g", "batt"))
    return source[1] == "Battery Power" if source else None


def is_translated() -> bool:
    """Whether this process is x86_64 code that Rosetta runs on an Arm CPU."""
    return sysctl("sysctl.proc_translated") == "1"


def _answer(command: str, *words: str) -> str:
    path = shutil.which(command, path=f"{os.environ.get('PATH', '')}:{_FOLDERS}")
    if path is None:
        return ""
    try:
        done = process.run([path, *words], timeout=10)
    except SetupError:
        return ""
    return done.stdout if done.ok else ""
