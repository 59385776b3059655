"""A shell on another machine whose answers are reliable: every command ends with a mark and its exit status.

adb returns 0 when a device vanishes during a command, and ssh returns 255 for reasons of its own. So only the
text between two marks counts, which are random for each command; if the last one is missing, the machine was
lost. A machine's output is untrusted: it is bounded, and control characters never reach a terminal.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import selectors
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, BinaryIO, Literal, Protocol, TypeVar

from model_profiling.core.errors import SetupError
from model_profiling.core.formatting import printable
from model_profiling.core.process import BoundedOutput, Child, Completed, end, start

Stdin = Path | Literal["nothing", "open"]
"""What a client reads: a file, nothing, or a pipe that stays open as long as this process lives."""
Cut = Literal["time", "silence"]

_BLOCK = 1 << 16
# A client that has ended may have left its output to a daemon, which never closes it.
_GRACE_S = 1.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a client ended and what it printed; `cut` says why it was stopped, if it was."""

    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float
    cut: Cut | None = None


def call(
    argv: Sequence[str],
    *,
    timeout: float,
    stdin: Stdin = "nothing",
    into: BinaryIO | None = None,
    most: int | None = None,
    silence_s: float | None = None,
    still_there: Callable[[], bool] = lambda: False,
) -> Ended:
    """Run a client (ssh, adb) whose output comes from another machine: its length and pace are not trusted.
    `into` gets at most `most` bytes of its standard output.

    After `silence_s` without a byte in either direction, `still_there` is asked; if it says no, or after
    `timeout` seconds in all, the client is killed with everything it started here.
    """
    began = time.monotonic()
    child = start(argv, fed=stdin != "nothing")
    with contextlib.ExitStack() as opened:
        try:
            source = opened.enter_context(stdin.open("rb")) if isinstance(stdin, Path) else None
            streams = _Streams(child, source, into, most)
            opened.callback(streams.ready.close)
            cut = streams.move(began + timeout, silence_s, still_there)
        finally:
            end(child, with_all=False)
            for pipe in (child.stdin, child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()
    out, err = streams.out.content(), streams.err.content()
    return Ended(child.returncode, out, err, time.monotonic() - began, cut)


class _Streams:
    def __init__(
        self, child: Child, source: BinaryIO | None, into: BinaryIO | None, most: int | None
    ) -> None:
        self.out, self.err = BoundedOutput(), BoundedOutput()
        self.ready = selectors.DefaultSelector()
        self._child, self._source, self._into, self._left = child, source, into, most
        self._waiting = memoryview(b"")
        self._reading = {pipe for pipe in (child.stdout, child.stderr) if pipe is not None}
        for pipe in self._reading:
            self.ready.register(pipe, selectors.EVENT_READ, partial(self._take, pipe))
        if source is not None and child.stdin is not None:
            os.set_blocking(child.stdin.fileno(), False)
            self.ready.register(child.stdin, selectors.EVENT_WRITE, partial(self._feed, child.stdin))

    def move(self, deadline: float, silence_s: float | None, still_there: Callable[[], bool]) -> Cut | None:
        """Serve the pipes until the client has ended and all is read; return why it was cut short, if so."""
        last = time.monotonic()
        ended: float | None = None
        while self._reading:
            events = self.ready.select(timeout=0.2)
            for key, _ in events:
                key.data()
            now = time.monotonic()
            if events:
                last = now
            elif ended is None and self._child.poll() is not None:
                ended = now
            elif ended is not None and now - ended > _GRACE_S:
                return None
            if now > deadline:
                return "time"
            if silence_s is not None and now - last > silence_s:
                if not still_there():
                    return "silence"
                last = time.monotonic()
        try:
            self._child.wait(timeout=max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            return "time"
        return None

    def _take(self, pipe: IO[bytes]) -> None:
        block = os.read(pipe.fileno(), _BLOCK)
        if not block:
            self._reading.discard(pipe)
            self.ready.unregister(pipe)
        elif pipe is self._child.stderr:
            self.err.add(block)
        elif self._into is None:
            self.out.add(block)
        else:
            if self._left is not None:
                block = block[: self._left]
                self._left -= len(block)
            self._into.write(block)

    def _feed(self, pipe: IO[bytes]) -> None:
        try:
            if not self._waiting and self._source is not None:
                self._waiting = memoryview(self._source.read(_BLOCK))
            if self._waiting:
                self._waiting = self._waiting[os.write(pipe.fileno(), self._waiting) :]
                return
        except BlockingIOError:
            return
        except BrokenPipeError:  # it takes no more; how it ended says why
            self._waiting = memoryview(b"")
        self.ready.unregister(pipe)
        pipe.close()


Meanings = Sequence[tuple[str, str, str]]
"""Patterns of messages, each with its meaning and fix; the first match counts."""


def meaning_of(text: str, meanings: Meanings, **names: str) -> tuple[str, str] | None:
    """Return what `text` means and the fix, with `names` and the pattern's group (`found`) filled in."""
    for pattern, problem, fix in meanings:
        if match := re.search(pattern, text, re.IGNORECASE):
            words = {**names, "found": next(filter(None, match.groups()), "")}
            return problem.format(**words), fix.format(**words)
    return None


def last_line(answer: str | Completed) -> str:
    if isinstance(answer, Completed):
        answer = f"{answer.stdout}\n{answer.stderr}"
    lines = [line.strip() for line in printable(answer).splitlines() if line.strip()]
    return lines[-1] if lines else ""


Made = TypeVar("Made")

_ANSWER_S = 60.0
# The most that Linux queues for a connection.
_QUEUE_BYTES = 4 << 20


class LinkLost(SetupError):
    """The machine did not answer to the end; it may come back."""


class Link(Protocol):
    """How commands reach one machine: the client's command line, and the meaning of its messages."""

    @property
    def title(self) -> str:
        """The machine as the user named it."""

    @property
    def shown(self) -> tuple[str, ...]:
        """What a person would write before a command to run it there."""

    def connect(self) -> None:
        """Make the machine reachable, or raise an error that says why it is not."""

    def command(self, script: str) -> Sequence[str]:
        """Return what to run here so that `script` runs in a shell there, with the client's streams."""

    def complaint(self, said: str) -> SetupError | None:
        """Return the error for the client's complaint in `said`, if it is a known one."""

    def close(self) -> None:
        """Close the connection and leave nothing behind."""


@dataclass(slots=True)
class Shell:
    """Commands on the machine behind `link`. `patience_s` is how long to wait for a lost machine; `attempts`
    is how often one step may lose it."""

    link: Link
    patience_s: float = 120.0
    attempts: int = 5
    silence_s: float = 30.0
    """After this much silence during a command the machine is asked whether it is still there."""
    probe_s: float = 20.0
    """The time to answer that."""
    slowest_link: float = 100_000.0
    """Bytes per second. The client's system may queue data that it has taken, with every answer behind it:
    for as long as such a link needs to send the queue, silence means nothing."""
    times_lost: int = 0
    """How often the machine went away and came back: its files may have changed."""

    @property
    def title(self) -> str:
        return self.link.title

    def run(self, argv: Sequence[str], *, timeout: float = _ANSWER_S) -> Completed:
        """Run one program there, with each word passed unchanged."""
        return self.script(shlex.join(argv), timeout=timeout)

    def script(
        self,
        script: str,
        *,
        timeout: float = _ANSWER_S,
        stdin: Stdin = "nothing",
        into: BinaryIO | None = None,
        most: int | None = None,
    ) -> Completed:
        """Run `script` in the machine's shell; `into` gets up to `most` bytes of its output, unchanged.
        Raises LinkLost if the machine did not answer to the end."""
        mark = f"sme2prof-{secrets.token_hex(8)}"
        both = "" if into is not None else f"printf '%s<\\n' {mark}; "
        again = "" if into is not None else f"; printf '\\n%s>\\n' {mark}"
        # On both streams, so that a cut in either is noticed. `script` is quoted by the kit.
        whole = (
            f"export LC_ALL=C; {both}printf '%s<\\n' {mark} >&2; ({script}\n); s=$?{again}; "
            f"printf '\\n%s>%d\\n' {mark} $s >&2"
        )
        queued = min(stdin.stat().st_size, _QUEUE_BYTES) if isinstance(stdin, Path) else 0
        ended = call(
            self.link.command(whole),
            timeout=timeout,
            stdin=stdin,
            into=into,
            most=most,
            silence_s=self.silence_s + queued / self.slowest_link,
            still_there=self._answers,
        )
        out, err = (stream.decode("utf-8", "replace") for stream in (ended.stdout, ended.stderr))
        stderr, status, client_says = _between(err, mark)
        stdout, closed, _ = _between(out, mark)
        # The machine sees the mark too, so the status must be one that a shell can have.
        if not re.fullmatch("[0-9]{1,3}", status or "") or (into is None and closed is None):
            raise self._lost(ended, f"{client_says}\n{out if into is None else ''}")
        output = (printable(stdout), printable(stderr))
        return Completed(
            (*self.link.shown, script), int(status or 0), *output, ended.seconds, timed_out=False
        )

    def repeat(self, step: Callable[[], Made]) -> Made:
        """Return the result of `step`, repeated each time the machine was lost and came back."""
        for _ in range(self.attempts - 1):
            try:
                return step()
            except LinkLost as lost:
                self.wait_until_back(lost)
        try:
            return step()
        except LinkLost as lost:
            raise SetupError(
                f"{self.title} was lost {self.attempts} times in the same step: {lost.problem}",
                "check its cable, network and temperature, then run it again",
            ) from lost

    def wait_until_back(self, lost: LinkLost) -> None:
        """Wait for the machine; after `patience_s` raise an error that says what was wrong."""
        until = time.monotonic() + self.patience_s
        pause = 0.25
        problem: SetupError = lost
        while time.monotonic() < until:
            try:
                self.link.connect()
                if self._answers():
                    self.times_lost += 1
                    return
            except SetupError as refused:
                problem = refused
            time.sleep(min(pause, max(until - time.monotonic(), 0.0)))
            pause = min(2 * pause, 2.0)
        raise SetupError(
            f"{self.title} was lost and did not come back within {self.patience_s:g} s: {problem.problem}",
            f"{problem.fix}, then run it again",
        ) from lost

    def _answers(self) -> bool:
        mark = secrets.token_hex(8)
        argv = self.link.command(f"echo {mark}")
        return mark.encode() in call(argv, timeout=self.probe_s).stdout

    def _lost(self, ended: Ended, text: str) -> LinkLost:
        complaint = self.link.complaint(text)
        if complaint is not None:
            return LinkLost(complaint.problem, complaint.fix)
        why = last_line(text) or "the connection ended without a message"
        why = "it stopped answering" if ended.cut else why
        return LinkLost(f"{self.title} was lost: {why}", "check the connection")


def _between(text: str, mark: str) -> tuple[str, str | None, str]:
    """Return the text between the marks, what the closing one carries (None if missing), and the rest."""
    before, opened, rest = text.partition(f"{mark}<\n")
    if not opened:
        return "", None, text
    inside, closed, after = rest.rpartition(f"\n{mark}>")
    if not closed:
        return rest, None, f"{before}{rest}"
    carried, ended, beyond = after.partition("\n")
    return inside, carried if ended else None, f"{before}{beyond}"
