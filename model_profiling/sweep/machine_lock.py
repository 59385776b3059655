"""One lock for each machine and user: whoever measures on the machine itself has it alone, exports and
emulation share it. It is the kernel's, so it goes with whoever holds it, however that ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator

from model_profiling import files
from model_profiling.runner.cache import state_root


def measuring_alone() -> contextlib.AbstractContextManager[None]:
    """Wait until nothing else works here, and keep it so for the length of the block."""
    return _held(fcntl.LOCK_EX)


def working_beside() -> contextlib.AbstractContextManager[None]:
    """Wait while somebody measures here; others may work beside this block."""
    return _held(fcntl.LOCK_SH)


@contextlib.contextmanager
def _held(how: int) -> Iterator[None]:
    folder = files.make_folder(state_root() / "machine")
    # Who waits to be alone holds the gate, so that those who share do not come one after the other for ever.
    gate, room = (files.open_in_place(folder / name) for name in ("gate.lock", "room.lock"))
    try:
        fcntl.flock(gate, how)
        fcntl.flock(room, how)
        fcntl.flock(gate, fcntl.LOCK_UN)
        yield
    finally:
        os.close(gate)
        os.close(room)
