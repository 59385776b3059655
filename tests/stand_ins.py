"""Commands of another system, put on a PATH of their own: each prints what was kept of its answers. And what
other programs a test starts, and waits for."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from model_profiling.targets.execution import Route
from model_profiling.targets.host import HostTarget

MACOS = Path(__file__).parent / "data" / "macos"
ROOT = Path(__file__).resolve().parents[1]

_SYSCTL = """\
[ "$1" = -n ] && { sed -n "s/^$2: //p" %(answers)s | grep . && exit 0; }
[ "$1" != -n ] && { grep "^$1" %(answers)s && exit 0; }
echo "sysctl: unknown oid" >&2; exit 1
"""


def command(folder: Path, name: str, script: str) -> Path:
    """A shell script called `name` in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def started(*words: object, env: dict[str, str] | None = None, **how: Any) -> subprocess.Popen[Any]:
    """`python WORDS` with this kit, for a test to watch, to signal and to end."""
    own = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    return subprocess.Popen([sys.executable, *map(str, words)], env=own, **how)


def wait_until(holds: Callable[[], object], what: str, seconds: float = 120) -> None:
    """For as long as a busy machine may take."""
    limit = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < limit, f"not within {seconds} s: {what}"
        time.sleep(0.02)


def long_sleep() -> str:
    """A command that never ends by itself, in words that no other test has, also one that runs beside it: of
    one length, so that none is the beginning of another."""
    return f"sleep {10**6 + secrets.randbelow(9 * 10**6)}"


def mac_commands(folder: Path, mac: str) -> Path:
    """`folder` with the commands the kit asks on a Mac, answering as the one kept under `mac`."""
    answers = MACOS / mac
    command(folder, "sysctl", _SYSCTL % {"answers": answers / "sysctl.txt"})
    command(folder, "pmset", f'[ "$*" = "-g batt" ] && cat {answers / "pmset.txt"}')
    command(folder, "sw_vers", f'[ "$*" = -productVersion ] && cat {answers / "sw_vers.txt"}')
    command(folder, "uname", 'case "$1" in -m) echo arm64 ;; *) echo Darwin ;; esac')
    return folder


def linked(folder: Path, names: Iterable[str]) -> Path:
    """`folder` with this machine's own programs of those names, and no others."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        found = shutil.which(name)
        if found and not (folder / name).exists():
            (folder / name).symlink_to(found)
    return folder


def lay_out_checkout(root: Path, *, as_package: bool = False) -> Path:
    """What a checkout of ExecuTorch looks like to Python: packages that are not to be imported from there."""
    checkout = root / "executorch"
    for package in ("exir", "backends/xnnpack", "devtools", "runtime", "extension", "examples/models"):
        for folder in (checkout / package, *(checkout / package).relative_to(checkout).parents):
            place = checkout / folder
            place.mkdir(parents=True, exist_ok=True)
            if place != checkout or as_package:
                (place / "__init__.py").write_text("raise RuntimeError(f'{__name__} is the checkout')\n")
    (checkout / "CMakeLists.txt").write_text("project(executorch)\n")
    (checkout / "version.txt").write_text("1.6.0a0\n")
    return checkout


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None: ...


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of the folder's files."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


class Routed(HostTarget):
    """A target whose jobs take this route."""

    def __init__(self, route: Route) -> None:
        self.route = route

    def _route(self) -> Route:
        return self.route
