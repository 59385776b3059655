"""Commands in processes of their own: time limits, progress, cancelling, and their answers. A job ends as by
Ctrl-C: it stops what it measures and keeps the results. If the server is killed, so are its jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from model_profiling.core import process
from model_profiling.core.errors import InputError, SetupError
from model_profiling.core.formatting import plural, printable
from model_profiling.core.stdio import say_aside
from model_profiling.mcp_server.commands import SCRATCH, Json

State = Literal["running", "done", "failed", "cancelled", "stopped at its time limit"]

_KIT = Path(__file__).resolve().parents[2]
# Not `python -m`: that would import any file in the root that has the name of a library.
_START = (
    "import sys; sys.path[:] = [place for place in sys.path if place] + [sys.argv.pop(1)]; "
    "from model_profiling.cli.main import main; sys.exit(main())"
)
_TO_END_S, _LAST_WORDS_S, _LOOK_EVERY_S = 30.0, 2.0, 0.05
"""An orderly end may take long: a job may have to end a runner on another machine."""
_MOST_OUTPUT, _MOST_MESSAGES, _LONGEST_LINE = 16 << 20, 40, 2000
_MOST_RUNNING, _MOST_KEPT = 4, 16


class ToolJob:
    """A command that runs or has ended."""

    def __init__(self, id: str, tool: str, words: Sequence[str], folder: Path, limit_s: float) -> None:
        self.id, self.tool, self.stage = id, tool, "starting"
        self.state: State = "running"
        self.messages: deque[str] = deque(maxlen=_MOST_MESSAGES)
        self.finished = threading.Event()
        self.began = time.monotonic()
        self._scratch = tempfile.TemporaryDirectory(prefix="sme2prof-", ignore_cleanup_errors=True)
        self.words = [word.replace(SCRATCH, self._scratch.name) for word in words]
        self._deadline, self._stop, self._output = self.began + limit_s, threading.Event(), bytearray()
        argv = [sys.executable, "-c", _START, str(_KIT), *self.words]
        self.child = process.start(argv, cwd=folder, env={"SME2PROF_PROGRESS": "lines"})
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._keep, self._listen)]
        for thread in (*self._readers, threading.Thread(target=self._watch, daemon=True)):
            thread.start()

    def cancel(self) -> None:
        """End it in order, soon; `finished` says when."""
        self._stop.set()

    def facts(self) -> Json | None:
        """What the command printed as JSON; None if it printed none."""
        try:
            facts = json.loads(self._output)
        except (ValueError, RecursionError):
            return None
        return facts if isinstance(facts, dict) else None

    def _watch(self) -> None:
        while not process.has_ended(self.child) and time.monotonic() < self._deadline:
            if self._stop.wait(_LOOK_EVERY_S):
                break
        in_time = process.has_ended(self.child)
        if not in_time:
            self.child.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.child.wait(_TO_END_S)
        with suppress(SetupError):  # it cannot be ended: it runs as another user
            process.end(self.child, with_all=not process.has_ended(self.child))
        for reader in self._readers:  # another process may hold the inherited pipes open
            reader.join(_LAST_WORDS_S)
        self._scratch.cleanup()
        ended: State = "cancelled" if self._stop.is_set() else "stopped at its time limit"
        self.state = ended if not in_time else "failed" if self.facts() is None else "done"
        self.finished.set()

    def _keep(self) -> None:
        assert self.child.stdout is not None
        with self.child.stdout as stdout:
            while block := os.read(stdout.fileno(), 1 << 16):
                self._output += block[: _MOST_OUTPUT - len(self._output)]

    def _listen(self) -> None:
        """Keep warnings and errors, and copy them to stderr, which clients keep; other lines are progress."""
        assert self.child.stderr is not None
        with self.child.stderr as stderr:
            while line := stderr.readline(_LONGEST_LINE):
                text = printable(line.decode("utf-8", "replace").rstrip())
                if text.startswith(("warning:", "error:")):
                    self.messages.append(text)
                    say_aside(text)
                elif text:
                    self.stage = text


class ToolJobs:
    """The jobs of one client by their ids; the last ones are kept with their answers."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._jobs, self._alone, self._started = folder, dict[str, ToolJob](), "", 0

    def start(self, tool: str, words: Sequence[str], limit_s: float, *, alone: bool) -> ToolJob:
        """Start a command; two of those that are `alone` would disturb each other."""
        running = {job.id: job for job in self._jobs.values() if not job.finished.is_set()}
        if alone and (other := running.get(self._alone)):
            ago = f"{time.monotonic() - other.began:.0f} s"
            fix = "wait for it with `job_status`, or end it with `cancel_job`"
            raise InputError(f"{other.id} ({other.tool}) has been running for {ago}", fix)
        if len(running) >= _MOST_RUNNING:
            raise InputError(f"{plural(len(running), 'command')} run already", "wait until one has ended")
        for old in [id for id in self._jobs if id not in running][:-_MOST_KEPT]:
            del self._jobs[old]
        self._started += 1
        job = ToolJob(f"job-{self._started}", tool, words, self._folder, limit_s)
        self._jobs[job.id] = job
        self._alone = job.id if alone else self._alone
        return job

    def get(self, id: str) -> ToolJob:
        if id not in self._jobs:
            raise InputError(f"there is no job '{id}'", f"there are {', '.join(self._jobs) or 'none yet'}")
        return self._jobs[id]

    def end_all(self, patience_s: float = _TO_END_S + 2 * _LAST_WORDS_S) -> None:
        for job in self._jobs.values():
            job.cancel()
        until = time.monotonic() + patience_s
        for job in self._jobs.values():
            job.finished.wait(max(until - time.monotonic(), 0))
