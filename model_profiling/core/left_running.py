"""What a subprocess has started, found wherever it went, and ended.

A process group does not hold what calls `setsid`, so every launch carries a mark in its environment, which
all it starts inherits. What dropped its environment, its session, its group and its parents all at once is
not found. On macOS the environment of programs that the system protects is not shown; there, groups and
parents have to do.

Run as a script this is the keeper of `core/tether.py`; so it needs the least of the standard library alone.
"""

from __future__ import annotations

import os
import signal
import time

LAST = "end"
"""What closes the table of what runs."""

_PROC = "/proc"
_OPEN_FILES = "/dev/fd"
_PATIENCE_S = 2.0
_PAUSE_S = 0.002
# Between `fork` and `exec` a process shows its parent's environment.
_UNTIL_EXEC_S = 0.1
_ZOMBIE = "Z"


def end_all(pid: int, mark: str, began: int = 0, *, ended: bool = False) -> None:
    """Kill process `pid` if it still runs, and everything it has started under `mark`; 0 is no process.

    `began` is when it was started, by `start_time`: nothing older is looked at closely. Of one that has
    `ended` by itself, without which nobody would wait, and not so long ago that numbers may have begun anew
    more than once, only those are looked at that were numbered after it.
    """
    until = time.monotonic() + _PATIENCE_S
    foreign: set[int] = set()
    while found := [each for each in _started(pid, mark, began, ended) if each not in foreign]:
        for each in found:
            try:
                os.kill(each, signal.SIGKILL)
            except ProcessLookupError:
                continue
            except PermissionError:  # it has become somebody else's, as with sudo
                foreign.add(each)
        if time.monotonic() > until:
            return
        time.sleep(_PAUSE_S)


def start_time(pid: int) -> int:
    """When a process was started, in the kernel's ticks; 0 where the system does not tell."""
    row = _row(pid)
    return row[4] if row else 0


def _started(pid: int, mark: str, began: int, ended: bool) -> list[int]:
    """The living among those that `pid` has started, and itself."""
    own = os.getpid()
    if _row(own) is None:
        return _by_ps(pid, mark)
    if began and start_time(pid) not in (0, began):  # another has its number by now
        pid = 0
    needle = mark.encode()
    parents, found = dict[int, int](), set[int]()
    for each in _numbers(pid if ended else 0):
        row = _row(each)
        if row is None or row[0] == _ZOMBIE or each == own:
            continue
        _, parent, group, session, started = row
        parents[each] = parent
        related = pid and pid in (each, group, session)
        if related or (started >= began and needle in _read(f"{_PROC}/{each}/environ")):
            found.add(each)
    return _with_children(found, parents)


def _numbers(after: int) -> list[int]:
    """The processes that are there; with `after` those that got their numbers later than that one."""
    there = [int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdigit()]
    told = _read(f"{_PROC}/loadavg").split() if after else []
    if not told or not (last := int(told[-1])):
        return there
    # Numbers begin anew when the largest was given.
    anew = last < after
    return [each for each in there if (each > after or each <= last if anew else after < each <= last)]


def _with_children(found: set[int], parents: dict[int, int]) -> list[int]:
    while more := {each for each, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def _row(pid: int) -> tuple[str, int, int, int, int] | None:
    """State, parent, group, session and start of a process that is there."""
    words = _read(f"{_PROC}/{pid}/stat").rpartition(b")")[2].split()
    if len(words) < 20:
        return None
    return words[0].decode(), int(words[1]), int(words[2]), int(words[3]), int(words[19])


def _read(path: str) -> bytes:
    """A file of the kernel's, or nothing where it has gone or is another user's."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    try:
        content = b""
        while block := os.read(file, 1 << 16):
            content += block
        return content
    except OSError:
        return b""
    finally:
        os.close(file)


def _by_ps(pid: int, mark: str) -> list[int]:
    """As `_started`, where there is no /proc: `ps -E` shows environments behind commands."""
    import subprocess

    words = ["ps", "-A", "-E", "-ww", "-o", "pid=,ppid=,pgid=,stat=,command="]
    try:
        told = subprocess.run(words, capture_output=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    parents, found = dict[int, int](), set[int]()
    for line in told.decode("utf-8", "replace").splitlines():
        row = line.split(None, 4)
        if len(row) < 4 or row[3].startswith(_ZOMBIE) or int(row[0]) == os.getpid():
            continue
        each, parent, group = map(int, row[:3])
        parents[each] = parent
        if (pid and pid in (each, group)) or mark in line:
            found.add(each)
    return _with_children(found, parents)


def _keep() -> None:
    """Be the keeper: sleep until standard input ends, then end what the table on standard output names."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")  # the folder it was started in may go
    _close_inherited()
    os.read(0, 1)
    rows = [line.split() for line in os.pread(1, 1 << 20, 0).decode().partition(LAST)[0].splitlines()]
    running = [(int(pid), mark, int(began)) for mark, pid, began in rows]
    if any(pid == 0 for pid, _, _ in running):
        time.sleep(_UNTIL_EXEC_S)
    for pid, mark, began in running:
        end_all(pid, mark, began)


def _close_inherited() -> None:
    """Locks and pipes of whoever started the command would be held as long as the keeper lives."""
    try:
        with os.scandir(_OPEN_FILES) as listed:
            there = [int(entry.name) for entry in listed]
    except OSError:
        return
    for file in there:
        if file > 2:
            try:
                os.close(file)
            except OSError:  # the listing's own
                continue


if __name__ == "__main__":
    _keep()
