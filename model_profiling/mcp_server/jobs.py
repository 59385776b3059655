"""Jobs of assistants: one command in a separate process, one at a time.

The process keeps torch's prints off the protocol's stream and makes cancelling real: it is ended as by
Ctrl-C, so that it stops what it measures, keeps the results and releases its locks. If the server dies, the
process sees its stdin end, and does so too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread

from model_profiling.core.errors import InputError, RunError
from model_profiling.core.formatting import printable
from model_profiling.core.left_running import end_all, marked, new_mark
from model_profiling.core.stdio import say_aside

Told = Callable[[float, str], Awaitable[None]]
"""Receives progress: seconds since the job began, and what it is doing."""
Outcome = tuple[dict[str, Any], list[str]]
"""The facts of a command, and the errors it reported besides."""

_KIT = Path(__file__).resolve().parents[2]
# Not `python -m`: that would import any file in the root that has the name of a library.
_START = (
    "import sys; sys.path[:] = [place for place in sys.path if place] + [sys.argv.pop(1)]; "
    "from model_profiling.cli.main import main; sys.exit(main())"
)
_SILENCE_S = 4.0
_TO_END_S = 30.0
"""How long a job may take to end in order; in that time it restores a phone's settings."""
_KEPT_LINES = 40
_LONGEST_LINE = 1 << 16
_MOST_OUTPUT = 64 << 20
_LAST_WORDS_S = 2.0
_LOOK_EVERY_S = 0.05


@dataclass
class Jobs:
    """The one job that may run; it counts as running until all of it has ended, even if cancelled."""

    folder: Path
    running: str = ""
    _since: float = 0.0

    async def run(self, words: Sequence[str], *, time_limit_s: float, told: Told) -> Outcome:
        """Run `sme2prof` with `words` in the folder; cancelling ends the command in order."""
        if self.running:
            spent = time.monotonic() - self._since
            raise InputError(
                (
                    f"`{self.running}` has been running for {spent:.0f} s, and two jobs at once would "
                    "disturb each other"
                ),
                (
                    "wait for its answer or cancel it, then call this again; tools that only read work "
                    "meanwhile"
                ),
            )
        self.running, self._since = f"sme2prof {' '.join(words)}", time.monotonic()
        try:
            return await _Job(words, self.folder, told, self._since).run(time_limit_s)
        finally:
            self.running = ""


@dataclass
class _Job:
    words: Sequence[str]
    folder: Path
    told: Told
    began: float
    stage: str = "starting"
    heard: float = field(default_factory=time.monotonic)
    output: bytearray = field(default_factory=bytearray)
    said: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))

    async def run(self, time_limit_s: float) -> Outcome:
        mark = new_mark()
        child = await anyio.open_process(
            [sys.executable, "-c", _START, str(_KIT), *self.words, "--json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=marked({**os.environ, "SME2PROF_PROGRESS": "json"}, mark),
            start_new_session=True,
        )
        try:
            with anyio.move_on_after(time_limit_s) as limit:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._stay_heard)
                    await self._follow(child)
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await _end(child, mark)
        if limit.cancelled_caught:
            raise RunError(
                f"the job was stopped at its time limit of {time_limit_s:g} s, while it was {self.stage}",
                "call it again with a larger time_limit_s; resume=true continues a measurement from there",
            )
        return self._outcome(child.returncode or 0)

    def _outcome(self, code: int) -> Outcome:
        errors = [line.removeprefix("error: ") for line in self.said if line.startswith("error: ")]
        with suppress(ValueError):
            return json.loads(self.output), errors
        said = " ".join(errors or list(self.said)[-3:])
        if "--" in said:
            as_here = "options in this message are arguments here if this tool has them"
            raise InputError(said, f"{as_here}; only the user can give others")
        raise RunError(said or f"the command ended with {code} and no message")

    async def _follow(self, child: anyio.abc.Process) -> None:
        assert child.stdout is not None and child.stderr is not None
        async with anyio.create_task_group() as readers:
            readers.start_soon(self._keep, child.stdout)
            readers.start_soon(self._listen, child.stderr)
            await _ended(child)
            # Other processes may hold the inherited pipes open; all that the command wrote is already there.
            readers.cancel_scope.deadline = anyio.current_time() + _LAST_WORDS_S

    async def _keep(self, stdout: anyio.abc.ByteReceiveStream) -> None:
        async for chunk in stdout:
            self.output += chunk[: _MOST_OUTPUT - len(self.output)]

    async def _listen(self, stderr: anyio.abc.ByteReceiveStream) -> None:
        """Pass on progress; keep every other line and copy it to the server's log."""
        rest = b""
        async for chunk in stderr:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                await self._heard(line.decode("utf-8", "replace"))
            rest = rest[:_LONGEST_LINE]
        await self._heard(rest.decode("utf-8", "replace"))

    async def _heard(self, line: str) -> None:
        step = _step(line)
        if step is None:
            if line.strip():
                self.said.append(line)
                log(line)
            return
        before, self.stage = self.stage, step
        if before != step:
            await self._tell(step)

    async def _stay_heard(self) -> None:
        """Repeat the stage after a few silent seconds, so that no client takes the job for dead."""
        while True:
            await anyio.sleep(1.0)
            if time.monotonic() - self.heard >= _SILENCE_S:
                await self._tell(self.stage)

    async def _tell(self, text: str) -> None:
        self.heard = time.monotonic()
        await self.told(self.heard - self.began, text)


async def _end(child: anyio.abc.Process, mark: str) -> None:
    """End a running child as by Ctrl-C; if that fails, kill it and what it measures."""
    if child.returncode is None:
        with suppress(ProcessLookupError):
            child.terminate()
        with anyio.move_on_after(_TO_END_S):
            await _ended(child)
    if child.returncode is None:
        await anyio.to_thread.run_sync(end_all, child.pid, mark)
        with suppress(ProcessLookupError):
            child.kill()  # if end_all could not kill it
        await _ended(child)
    with anyio.move_on_after(_LAST_WORDS_S):
        await child.aclose()


async def _ended(child: anyio.abc.Process) -> None:
    """Not `wait()`: that also waits for other processes that hold the pipes open."""
    while child.returncode is None:
        await anyio.sleep(_LOOK_EVERY_S)


def log(text: str) -> None:
    """Write to stderr, where clients keep it."""
    say_aside(printable(text.rstrip()))


def _step(line: str) -> str | None:
    """`measuring 3/12: text` for a line of progress, None for any other."""
    try:
        step = json.loads(line)
        stage = step["stage"]
        amount = f" {step['done']}/{step['total']}" if "done" in step else ""
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    text = step.get("text")
    return f"{stage}{amount}: {text}" if text else f"{stage}{amount}"
