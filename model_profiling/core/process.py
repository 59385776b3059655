"""Subprocesses with limits on time and output, which leave nothing running behind them.

A process group misses children that call `setsid`, so every launch has a mark in its environment, which all
its children inherit. macOS hides the environment of protected programs; there, groups and parents have to do.

A keeper, a process of its own, is told what is launched and what has ended. When this process ends in any
way, the pipe between them closes, and the keeper ends what is left.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO, Literal

from model_profiling.core.errors import SetupError, system_reason
from model_profiling.core.stdio import defer_signals

MOST_OUTPUT = 16 << 20
"""Bytes kept of each stream; the times that a runner prints are in its last lines."""

_END = 1 << 20
_BLOCK = 1 << 16
_LONGEST_LINE = 1000
# A process that has ended may have left its output to a daemon, which never closes it.
_GRACE_S = 1.0
# How often to check where the system cannot report that a process has ended.
_LOOK_EVERY_S = 0.2
_LONGEST_SLEEP_S = 3600.0
# The longest the kernel takes to end a killed process, with all its memory.
_TO_END_S = 30.0


@dataclass(frozen=True, slots=True)
class Completed:
    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool

    @property
    def ok(self) -> bool:
        return self.returncode == 0 and not self.timed_out

    @property
    def signal_name(self) -> str | None:
        """The signal that ended it, also if a shell or an emulator reports it as 128+N."""
        number = -self.returncode if self.returncode < 0 else self.returncode - 128
        if self.timed_out or number <= 0:
            return None
        try:
            return signal.Signals(number).name
        except ValueError:
            return None

    def tail(self, lines: int = 12) -> str:
        written = [line for line in (self.stdout + "\n" + self.stderr).splitlines() if line.strip()]
        return "\n".join(
            line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]} ..." for line in written[-lines:]
        )


@dataclass(slots=True)
class BoundedOutput:
    """The beginning and the end of a stream of any length, and the number of bytes dropped between them."""

    beginning: bytearray = field(default_factory=bytearray)
    end: bytearray = field(default_factory=bytearray)
    dropped: int = 0

    def add(self, block: bytes) -> None:
        room = max(MOST_OUTPUT - _END - len(self.beginning), 0)
        self.beginning += block[:room]
        self.end += block[room:]
        if (surplus := len(self.end) - _END) > 0:
            self.dropped += surplus
            del self.end[:surplus]

    def content(self) -> bytes:
        gap = b"\n[%d bytes left out]\n" % self.dropped if self.dropped else b""
        return bytes(self.beginning) + gap + bytes(self.end)

    def text(self) -> str:
        return self.content().decode("utf-8", "replace")


class Child(subprocess.Popen[bytes]):
    """A subprocess and the mark that everything it starts carries; pass it to `end`."""

    mark: str


def run(
    argv: Sequence[str | Path],
    *,
    timeout: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    leaves_nothing: bool = False,
    stop: threading.Event | None = None,
    heard: Callable[[str], None] | None = None,
    stdin: Path | Literal["nothing", "open"] = "nothing",
    into: BinaryIO | None = None,
    most: int | None = None,
) -> Completed:
    """Run `argv` in its own session; after `timeout` seconds kill it with everything it started.

    `env` adds to the inherited environment. Of a long output its beginning and its end are kept.
    `leaves_nothing` ends what it started even when it ends by itself; do not use it for clients that start a
    shared daemon, as adb does. `stop`, set by another thread, ends it as the time limit does: signals only
    reach the main thread. `heard` gets each line of stdout as it arrives. `stdin` is a file, nothing, or
    a pipe that is open as long as this process lives; `into` gets stdout, `most` bytes of it. A failing
    command is returned, not raised; only a program that cannot be started raises.
    """
    words = tuple(str(word) for word in argv)
    began = time.monotonic()
    with contextlib.ExitStack() as opened:
        source = opened.enter_context(stdin.open("rb")) if isinstance(stdin, Path) else None
        child = start(words, fed=source or stdin == "open", cwd=cwd, env=env)
        output = _OutputReader(child, heard, into, most)
        timed_out = True
        try:
            timed_out = not output.follow(began + timeout, 0.0 if leaves_nothing else _GRACE_S, stop)
        finally:
            end(child, with_all=timed_out or leaves_nothing)
            output.take_rest()
    return Completed(
        argv=words,
        returncode=child.returncode,
        stdout=output.out.text(),
        stderr=output.err.text(),
        seconds=time.monotonic() - began,
        timed_out=timed_out,
    )


def start(
    argv: Sequence[str],
    *,
    fed: bool | IO[bytes] = False,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Child:
    """Start `argv` in its own session, with its output piped here, and its input too if `fed`, unless that is
    a file. `env` adds to the inherited environment. The caller must pass it to `end`, however it ended; if
    this process is killed first, the keeper ends it."""
    mark = secrets.token_hex(8)
    _keeper.note(mark, 0)
    try:
        child = Child(
            argv,
            stdin=(subprocess.PIPE if fed else subprocess.DEVNULL) if isinstance(fed, bool) else fed,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=marked({**os.environ, **(env or {})}, mark),
            start_new_session=True,
        )
    except OSError as problem:
        _keeper.note(mark, None)
        reason = system_reason(problem)
        raise SetupError(f"cannot start {argv[0]}: {reason}", "install it or correct its path") from problem
    child.mark = mark
    _keeper.note(mark, child.pid)
    return child


def end(child: Child, *, with_all: bool = True) -> None:
    """End the child if it still runs; in that case, or if `with_all`, also everything it started. The kill
    comes before the wait where possible: until the wait, no other process can get its pid."""
    with defer_signals():
        if with_all or not has_ended(child):
            # First: a process that left session and environment is only found while its parent lives.
            end_all(child.pid if child.returncode is None else 0, child.mark)
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, signal.SIGKILL)
                with contextlib.suppress(PermissionError):  # as with sudo
                    child.kill()
        try:
            child.wait(timeout=_TO_END_S)
        except subprocess.TimeoutExpired as problem:
            name = str(child.args[0] if isinstance(child.args, Sequence) else child.args)
            raise SetupError(
                f"cannot end {name} (process {child.pid})",
                "end it by hand: it runs as another user, or waits for a disk or a device",
            ) from problem
        finally:
            _keeper.note(child.mark, None)


def has_ended(child: Child) -> bool:
    """Whether the child has ended; its pid stays reserved where the system allows it."""
    if child.returncode is not None:
        return True
    if not hasattr(os, "waitid"):
        return child.poll() is not None
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # someone else has waited for it
        return child.poll() is not None


class _OutputReader:
    """Reads both output streams of a child as they arrive, so that it never blocks; memory is bounded."""

    def __init__(
        self,
        child: Child,
        heard: Callable[[str], None] | None,
        into: BinaryIO | None,
        most_into: int | None,
    ) -> None:
        assert child.stdout is not None and child.stderr is not None
        self.out, self.err = BoundedOutput(), BoundedOutput()
        self._child, self._heard, self._line = child, heard, b""
        self._into, self._left = into, most_into
        self._open = {child.stdout.fileno(): self.out, child.stderr.fileno(): self.err}

    def follow(self, deadline: float, grace_s: float, stop: threading.Event | None) -> bool:
        """Whether the child ended in time; others that hold its streams then get `grace_s` to write more."""
        ended: float | None = None
        with selectors.DefaultSelector() as ready, _watch(self._child) as watch:
            for stream in (*self._open, *watch):
                ready.register(stream, selectors.EVENT_READ)
            pause = _LONGEST_SLEEP_S if watch and stop is None else _LOOK_EVERY_S
            while self._open or ended is None:
                now = time.monotonic()
                stopped = stop is not None and stop.is_set()
                if ended is None and (now >= deadline or stopped):
                    return False
                until = deadline if ended is None else ended + grace_s
                if ended is not None and now >= until:
                    return True
                for key, _ in ready.select(timeout=max(min(pause, until - now), 0.0)):
                    if key.fd in watch or not self._take(key.fd):
                        ready.unregister(key.fileobj)
                if ended is None and has_ended(self._child):
                    ended = time.monotonic()
        return True

    def take_rest(self) -> None:
        until = time.monotonic() + _GRACE_S
        for stream in list(self._open):
            os.set_blocking(stream, False)
            try:
                while time.monotonic() < until and self._take(stream):
                    pass
            except BlockingIOError:
                pass
        for pipe in (self._child.stdin, self._child.stdout, self._child.stderr):
            if pipe is not None:
                pipe.close()

    def _take(self, stream: int) -> bool:
        block = os.read(stream, _BLOCK)
        if not block:
            del self._open[stream]
            return False
        output = self._open[stream]
        if self._into is not None and output is self.out:
            block = block[: self._left]
            self._left = None if self._left is None else self._left - len(block)
            self._into.write(block)
            return True
        output.add(block)
        if self._heard is not None and output is self.out:
            *lines, self._line = (self._line + block).split(b"\n")
            self._line = self._line[-_BLOCK:]
            for line in lines:
                self._heard(line.decode("utf-8", "replace"))
        return True


@contextlib.contextmanager
def _watch(child: Child) -> Iterator[tuple[int, ...]]:
    """Yield a descriptor that becomes readable when the child ends, if the system has one."""
    try:
        watch = os.pidfd_open(child.pid)
    except (AttributeError, OSError):
        yield ()
        return
    try:
        yield (watch,)
    finally:
        os.close(watch)


# What a launch started, and the keeper that ends it when this process cannot.

MARK = "SME2PROF_LAUNCH"
"""The environment variable with a launch's mark, preceded by the marks of the launches around it."""
_PATIENCE_S = 2.0
_PAUSE_S = 0.002
# Between `fork` and `exec` a process still shows its parent's environment.
_UNTIL_EXEC_S = 0.1
_KEEP = "import sys; sys.path[:] = sys.argv[1:]; from model_profiling.core import process; process.keep()"


def marked(environment: Mapping[str, str], mark: str) -> dict[str, str]:
    around = os.environ.get(MARK)
    return {**environment, MARK: f"{around}.{mark}" if around else mark}


def end_all(pid: int, mark: str) -> None:
    """Kill process `pid`, if it still runs, and everything started under `mark`; 0 means no process."""
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until and _kill_started(pid, mark):
        time.sleep(_PAUSE_S)


def _kill_started(pid: int, mark: str) -> bool:
    """Return whether there was anything to kill."""
    try:
        import psutil  # type: ignore[import-untyped]
    except ImportError:  # during setup, before any package is installed: its group has to do
        if pid:
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
        return False

    def belongs(one: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error, OSError):
            if one.pid == os.getpid() or one.status() == psutil.STATUS_ZOMBIE:
                return False
            related = (one.pid, os.getpgid(one.pid), os.getsid(one.pid)) if pid else ()
            return pid in related or mark in one.environ().get(MARK, "")
        return False

    killed = False
    with contextlib.suppress(OSError, IndexError):  # a container without /proc, or with an empty one
        for parent in filter(belongs, psutil.process_iter()):
            children = []
            with contextlib.suppress(psutil.Error):
                children = parent.children(recursive=True)
            for one in (*children, parent):
                # It may have gone, or belong to another user, as with sudo.
                with contextlib.suppress(psutil.Error):
                    one.kill()
                    killed = True
    return killed


@dataclass
class Keeper:
    """Starts the keeper when there is first something to keep, and talks to it."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _running: set[str] = field(default_factory=set)
    _process: subprocess.Popen[bytes] | None = None

    def note(self, mark: str, pid: int | None) -> None:
        """Note that `pid` was started under `mark` (0: is about to be), or that it ended (None). The keeper
        is started if needed; if it cannot be, go on without."""
        with self._lock, contextlib.suppress(OSError):
            self._process = self._process or subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _KEEP, *filter(None, sys.path)],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",  # the current folder may be deleted
                env=marked(os.environ, "keeper"),
                start_new_session=True,  # out of reach of the terminal's keys
            )
            assert self._process.stdin is not None
            if pid is None:
                self._running.discard(mark)
                self._process.stdin.write(f"{mark}\n".encode())
            else:
                self._running.add(mark)
                self._process.stdin.write(f"{mark} {pid}\n".encode())

    def let_go(self) -> None:
        """At exit, end an idle keeper: in many containers nobody reaps orphans."""
        with self._lock:
            if self._process is not None and not self._running:
                self._process.kill()
                self._process.communicate()


_keeper = Keeper()
atexit.register(_keeper.let_go)


def keep() -> None:
    """Be the keeper: record launches until standard input ends, then end those still running."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    running: dict[str, int] = {}
    for line in sys.stdin:
        mark, *pid = line.split()
        if pid:
            running[mark] = int(pid[0])
        else:
            running.pop(mark, None)
    if 0 in running.values():
        time.sleep(_UNTIL_EXEC_S)
    for mark, process_id in running.items():
        end_all(process_id, mark)
