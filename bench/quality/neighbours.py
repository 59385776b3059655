"""Other work on the machine, made on purpose: processes that stream memory and multiply matrices.

A neighbour keeps as many processes busy as there are cores, as a build or a test suite does, so that the same
words mean the same on two cores and on twenty. Run as a script, this file is one such process; it ends when
told to, and also when whoever started it is gone.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType

_WORKING_S = 1.5
_PAUSING_S = 1.5
_PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Neighbours:
    """How many neighbours there are, and whether each of their processes comes and goes."""

    count: int = 0
    changing: bool = False


def cores() -> int:
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextlib.contextmanager
def working(neighbours: Neighbours, seed: int) -> Iterator[tuple[int, ...]]:
    """While the block runs, so do these; gives their process ids. They are ended whatever ends the block."""
    started: list[subprocess.Popen[str]] = []
    quiet = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    try:
        for number in range(neighbours.count * cores()):
            manner = "changing" if neighbours.changing else "steady"
            words = [sys.executable, __file__, str(os.getpid()), manner, f"{seed} {number}"]
            # A session of its own: a Ctrl-C in the terminal is for the bench, which then ends its neighbours.
            started.append(
                subprocess.Popen(
                    words,
                    stdout=subprocess.PIPE,
                    text=True,
                    env={**os.environ, **quiet},
                    start_new_session=True,
                )
            )
        for process in started:
            assert process.stdout is not None
            process.stdout.readline()  # it says when it is at work
        yield tuple(process.pid for process in started)
    finally:
        for process in started:
            process.terminate()
        for process in started:
            try:
                process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()


def leave(number: int, _: FrameType | None) -> None:
    """A signal handler: ends the bench as an error would, so that its neighbours are ended too."""
    sys.exit(128 + number)


def _work(parent: int, manner: str, seed: str) -> None:
    import numpy as np

    draw = random.Random(seed)
    stream, sums = np.arange(4e6), np.ones(4_000_000)
    matrix = np.full((96, 96), 1 / 96)
    print("at work", flush=True)
    until = time.monotonic() + draw.expovariate(1 / _WORKING_S)
    while os.getppid() == parent:
        np.add(stream, sums, out=sums)
        sums *= 0.5
        for _ in range(60):
            matrix = matrix @ matrix
        if manner == "changing" and time.monotonic() > until:
            time.sleep(min(draw.expovariate(1 / _PAUSING_S), 10.0))
            until = time.monotonic() + draw.expovariate(1 / _WORKING_S)


if __name__ == "__main__":
    _work(int(sys.argv[1]), sys.argv[2], sys.argv[3])
