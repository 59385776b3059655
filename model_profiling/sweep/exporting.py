"""Exports in a child process that stays, because loading torch takes longer than most exports. What an export
leaves in memory, or a crash, does not hurt the worker.

The process reads one JSON line for each export and answers with one.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

from model_profiling.core import process
from model_profiling.core.errors import ExportError, InputError, ProfilingError
from model_profiling.core.process import Child
from model_profiling.sweep.cells import Program
from model_profiling.targets.host import available_memory
from model_profiling.targets.machine_lock import allowed_cpus

_MOST_AT_ONCE = 4
_MEMORY = 4 << 30
"""Memory for one export; few models that are measured on phones need more."""
_CRASHED = "export it by hand to see why: sme2prof export {model}"


class Exporter:
    """Starts the process for the first export, and ends it when told to."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self._lock = threading.Lock()

    def export(self, program: Program, folder: Path) -> Path:
        asked = {
            "model": program.model,
            "dtype": program.dtype,
            "backend": program.backend,
            "keep": program.keep,
            "calibration": program.calibration,
            "outdir": str(folder),
        }
        with self._lock:
            child = self._running()
            assert child.stdin is not None and child.stdout is not None
            try:
                child.stdin.write(json.dumps(asked).encode() + b"\n")
                child.stdin.flush()
                line = child.stdout.readline()
            except BrokenPipeError:
                line = b""
            if not line:
                self._end()
                raise ExportError(
                    f"exporting {program.model} crashed its process",
                    _CRASHED.format(model=program.model),
                )
        answer = json.loads(line)
        if "pte" in answer:
            return Path(answer["pte"])
        kind = {"InputError": InputError}.get(answer["kind"], ExportError)
        raise kind(answer["problem"], answer["fix"])

    def rest(self) -> None:
        """End the process, unless an export is in progress."""
        if self._lock.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._lock.release()

    def close(self) -> None:
        """Kill the process, whatever it does; a waiting caller gets an error."""
        child = self._child
        if child is not None and not process.has_ended(child):
            process.kill(child)
        with self._lock:
            self._end()

    def _running(self) -> Child:
        if self._child is not None and process.has_ended(self._child):
            self._end()
        if self._child is None:
            words = [sys.executable, "-m", "model_profiling.sweep.exporting"]
            self._child = process.start(words, fed=True, stderr=subprocess.DEVNULL)
        return self._child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        process.end(child)
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Exporters:
    def __init__(self, count: int | None = None) -> None:
        self.count = count or exports_at_once()
        self._all = [Exporter() for _ in range(self.count)]
        self._free: queue.LifoQueue[Exporter] = queue.LifoQueue()
        for each in self._all:
            self._free.put(each)

    def export(self, program: Program, folder: Path) -> Path:
        """Use the next free exporter; the last used one comes first, because its process is running."""
        mine = self._free.get()
        try:
            return mine.export(program, folder)
        finally:
            self._free.put(mine)

    def rest(self) -> None:
        for each in self._all:
            each.rest()

    def close(self) -> None:
        for each in self._all:
            each.close()


def exports_at_once() -> int:
    cores = len(allowed_cpus()) or os.cpu_count() or 1
    memory = available_memory()
    fitting = _MOST_AT_ONCE if memory is None else memory // _MEMORY
    return max(1, min(_MOST_AT_ONCE, cores, fitting))


def _serve(asks: IO[bytes], answers: IO[bytes]) -> None:
    for line in asks:
        asked = json.loads(line)
        try:
            from model_profiling.export import export_model

            answer = {"pte": str(export_model(**asked).pte)}
        except ProfilingError as problem:
            answer = {"kind": type(problem).__name__, "problem": problem.problem, "fix": problem.fix}
        except Exception as problem:  # noqa: BLE001  a model's own code may fail in any way
            said = f"{type(problem).__name__}: {problem}"
            answer = {"kind": "", "problem": said, "fix": _CRASHED.format(model=asked["model"])}
        answers.write(json.dumps(answer).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    # What models and compilers print must not mix with the answers.
    own = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(own, "wb") as answers:
        _serve(sys.stdin.buffer, answers)
