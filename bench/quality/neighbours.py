"""Other work on the machine, made on purpose: busy processes, each in a session of its own.

The scheduler shares the CPU between sessions first, so this is what the work of other users looks like.
`memory` neighbours also stream through more memory than the caches hold.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from types import FrameType

_PATIENCE_S = 30.0


@contextlib.contextmanager
def working(count: int, *, memory: bool = False) -> Iterator[tuple[int, ...]]:
    """While the block runs, so do these; gives their process ids. They are ended whatever ends the block."""
    started: list[subprocess.Popen[str]] = []
    try:
        for _ in range(count):
            words = [sys.executable, __file__, str(os.getpid()), "memory" if memory else "arithmetic"]
            started.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True))
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


def _work(parent: int, manner: str) -> None:
    data = bytearray(64 << 20) if manner == "memory" else bytearray()
    print("at work", flush=True)
    number = 1
    while os.getppid() == parent:
        for _ in range(10_000):
            number = (number * 1103515245 + 12345) % 2147483648
        data[:] = bytes(data)


if __name__ == "__main__":
    _work(int(sys.argv[1]), sys.argv[2])
