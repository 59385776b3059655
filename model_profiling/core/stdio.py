"""An answer that could not be written is never taken for one that was.

Left to itself, Python drops what it could not write, or keeps it and complains at exit in its own words; says
nothing where a stream was closed from the start; and gives the number of such a stream to the next file that
is opened. Libraries that print (argparse) swallow the error. So entry points are wrapped in `checked_output`.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, ParamSpec

from model_profiling.core.errors import system_reason

if TYPE_CHECKING:
    from typing_extensions import Buffer


_P = ParamSpec("_P")
_FAILED = 2
_NOT_READ = 141
"""As a shell says of a program that SIGPIPE ended: 128 and the signal's number."""
_REASONS = {errno.EBADF: "it is closed"}
_CURES = {errno.ENOSPC: "free some space, or write to another place"}


class _Watched(io.FileIO):
    """Remembers that a write failed, whoever was told."""

    problem: OSError | None = None

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except OSError as problem:
            self.problem = self.problem or problem
            raise


def checked_output(work: Callable[_P, int]) -> Callable[_P, int]:
    """`work`, which returns an exit code, with one of its own where standard output cannot be written: 141
    and no word where its reader went away (`| head`), else 2 and one line.

    What cannot be said on standard error changes nothing: the exit code tells.
    """

    @functools.wraps(work)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> int:
        with _watching():
            try:
                code = work(*args, **kwargs)
            except SystemExit as ended:
                if lost_output() is None:
                    raise
                code = ended.code if isinstance(ended.code, int) else 0
            except OSError:
                if lost_output() is None and not _silenced(sys.stderr):
                    raise
                code = 0 if lost_output() else _FAILED
            finally:
                _silenced(sys.stderr)
            problem = lost_output()
            return code if problem is None or code > 1 else _told(problem)

    return call


def lost_output() -> OSError | None:
    """Why what was said on standard output so far was not all written; None where it was."""
    try:
        sys.stdout.flush()
    except OSError as problem:
        return problem
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    return raw.problem if isinstance(raw, _Watched) else None


def say_aside(text: str) -> None:
    """A line on standard error, if that can be written."""
    try:
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()
    except OSError:
        _silence(sys.stderr)


def _told(problem: OSError) -> int:
    if isinstance(problem, BrokenPipeError):
        return _NOT_READ
    number = problem.errno or 0
    reason = _REASONS.get(number) or system_reason(problem)
    cure = _CURES.get(number, "redirect it to a file")
    say_aside(f"error: the answer was lost: cannot write standard output, {reason}; {cure}")
    return _FAILED


@contextlib.contextmanager
def _watching() -> Iterator[None]:
    """Standard streams that are all there, and a standard output that remembers; those of a notebook or a
    test runner are left alone."""
    _fill_gaps()
    theirs = sys.stdout
    if theirs is not sys.__stdout__ or not isinstance(theirs, io.TextIOWrapper):
        yield
        return
    raw = _Watched(theirs.fileno(), "wb", closefd=False)
    ours = io.TextIOWrapper(
        io.BufferedWriter(raw), theirs.encoding, theirs.errors, line_buffering=theirs.line_buffering
    )
    sys.stdout = ours
    try:
        yield
    finally:
        sys.stdout = theirs
        if raw.problem is not None:
            _silence(ours)


def _fill_gaps() -> None:
    """Something behind the number of every standard stream. What stands for a closed standard output cannot
    be written, so that writing to it fails as it should."""
    for name, flags in (("stdin", os.O_RDONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is not None:
            continue
        handle = os.open(os.devnull, flags)
        os.set_inheritable(handle, True)
        stream = os.fdopen(handle, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _silenced(stream: IO[str]) -> bool:
    """Whether `stream` could not be written, and was silenced."""
    try:
        stream.flush()
    except OSError:
        _silence(stream)
        return True
    return False


def _silence(stream: IO[str]) -> None:
    """Let what cannot be written go nowhere, or Python would try it once more at its end."""
    with contextlib.suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        stream.flush()


# int8 programs are named `_int8` here and `_q8` by older tools; either name finds the other's file.

_TWINS = (("_q8", "_int8"), ("_int8", "_q8"))
_DTYPES = {"fp32": "fp32", "fp16": "fp16", "int8": "int8", "q8": "int8"}


def exported_dtype(stem: str) -> str:
    """The precision a program was exported in, by its name `<model>_<backend>_<dtype>`; empty where that does
    not say."""
    return _DTYPES.get(stem.rpartition("_")[2], "")


def under_either_name(path: Path) -> Path:
    """`path`, or the same program under its other int8 name when only that one exists."""
    if not path.exists():
        for mine, other in _TWINS:
            if path.stem.endswith(mine):
                twin = path.with_name(path.stem.removesuffix(mine) + other + path.suffix)
                if twin.is_file():
                    return twin
    return path
