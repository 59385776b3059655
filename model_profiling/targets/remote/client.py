"""One process of a client (ssh, adb) on this machine: fed, drained, bounded in time and size, never left
behind.

What comes out of it was written by another machine, so nothing here trusts its length or its pace.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from model_profiling.process import Child, Kept, end, start

Stdin = Path | Literal["nothing", "open"]
"""What a client reads: a file to its end, nothing, or a pipe that stays open as long as this process
lives."""

_BLOCK = 1 << 16
# A client that has ended may have left its output to a daemon it started; that one never closes it.
_GRACE_S = 1.0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a client ended and what it printed; `cut` says why it was stopped, if it was."""

    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float
    cut: Literal["time", "silence"] | None = None


def call(
    argv: Sequence[str],
    *,
    timeout: float,
    stdin: Stdin = "nothing",
    into: BinaryIO | None = None,
    most: int | None = None,
    silence_s: float | None = None,
    still_there: Callable[[], bool] = lambda: False,
    env: Mapping[str, str] | None = None,
) -> Ended:
    """Run `argv`. `into` gets its standard output, of which `most` bytes are taken.

    After `silence_s` in which not a byte went either way, `still_there` is asked; if the answer is no, or
    after `timeout` seconds in all, the client is killed with everything it started here.
    """
    began = time.monotonic()
    child = start(argv, fed=stdin != "nothing", env=env)
    try:
        streams = _Streams(child, stdin, into, most)
        cut = streams.move(began + timeout, silence_s, still_there)
    finally:
        end(child, with_all=False)
        for pipe in (child.stdin, child.stdout, child.stderr):
            if pipe is not None:
                pipe.close()
    out, err = streams.out.content(), streams.err.content()
    return Ended(child.returncode, out, err, time.monotonic() - began, cut)


class _Streams:
    """The three pipes of a client, moved as each is ready."""

    def __init__(self, child: Child, stdin: Stdin, into: BinaryIO | None, most: int | None) -> None:
        assert child.stdout is not None and child.stderr is not None
        self.out, self.err = Kept(), Kept()
        self._child, self._into, self._left = child, into, most
        self._source = stdin.open("rb") if isinstance(stdin, Path) else None
        self._waiting = memoryview(b"")
        self._ready = selectors.DefaultSelector()
        self._ready.register(child.stdout, selectors.EVENT_READ, self._take_output)
        self._ready.register(child.stderr, selectors.EVENT_READ, self._take_text)
        if self._source is not None and child.stdin is not None:
            os.set_blocking(child.stdin.fileno(), False)
            self._ready.register(child.stdin, selectors.EVENT_WRITE, self._feed)

    def move(
        self, deadline: float, silence_s: float | None, still_there: Callable[[], bool]
    ) -> Literal["time", "silence"] | None:
        """Until the client has ended and said everything; or why that was not waited for."""
        try:
            return self._move(deadline, silence_s, still_there)
        finally:
            self._ready.close()
            if self._source is not None:
                self._source.close()

    def _move(
        self, deadline: float, silence_s: float | None, still_there: Callable[[], bool]
    ) -> Literal["time", "silence"] | None:
        last = time.monotonic()
        ended: float | None = None
        while self._reading():
            events = self._ready.select(timeout=0.2)
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
        return self._wait(deadline)

    def _wait(self, deadline: float) -> Literal["time"] | None:
        try:
            self._child.wait(timeout=max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            return "time"
        return None

    def _reading(self) -> bool:
        open_pipes = {key.fileobj for key in self._ready.get_map().values()}
        return bool(open_pipes & {self._child.stdout, self._child.stderr})

    def _take_output(self) -> None:
        assert self._child.stdout is not None
        block = os.read(self._child.stdout.fileno(), _BLOCK)
        if not block:
            self._ready.unregister(self._child.stdout)
        elif self._into is None:
            self.out.add(block)
        else:
            if self._left is not None:
                block = block[: self._left]
                self._left -= len(block)
            self._into.write(block)

    def _take_text(self) -> None:
        assert self._child.stderr is not None
        block = os.read(self._child.stderr.fileno(), _BLOCK)
        if block:
            self.err.add(block)
        else:
            self._ready.unregister(self._child.stderr)

    def _feed(self) -> None:
        assert self._child.stdin is not None and self._source is not None
        try:
            if not self._waiting:
                self._waiting = memoryview(self._source.read(_BLOCK))
            if self._waiting:
                self._waiting = self._waiting[os.write(self._child.stdin.fileno(), self._waiting) :]
                return
        except BlockingIOError:
            return
        except BrokenPipeError:  # it takes no more; how it ended says why
            self._waiting = memoryview(b"")
        self._ready.unregister(self._child.stdin)
        self._child.stdin.close()
