"""Files that are written whole or not at all, and never through a link.

Everything the kit writes goes through `replacing`: the content is made in a hidden sibling and renamed into
place, so a reader, a crash or a full disk never leaves half a file under the final name. Only a regular file
is ever replaced. The few files written in place (locks, journals) are opened by `open_in_place`. Paths from
callers come in through `as_path`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from model_profiling.core.errors import CURES, InputError, InUseError, WrongTypeError, system_reason
from model_profiling.core.formatting import in_short, printable
from model_profiling.core.safe_read import kind_of, open_regular

StrPath: TypeAlias = str | os.PathLike[str]

LONGEST_NAME, LONGEST_PATH = 255, 4095
"""In bytes."""


def as_path(given: StrPath) -> Path:
    """Return a caller's path as a `Path`, or refuse one that no system accepts."""
    if not isinstance(given, str | os.PathLike) or not isinstance(text := os.fspath(given), str):
        raise WrongTypeError(f"{type(given).__name__} is not a path", "give a str or a pathlib.Path")
    if not text or "\0" in text or not is_utf8(text):
        raise InputError(f"{text!r} names no file", "name it in UTF-8; '.' is the current folder")
    longest = max(map(len, text.encode().split(b"/")))
    if longest > LONGEST_NAME or len(text.encode()) > LONGEST_PATH:
        raise InputError(f"the path {text} is longer than a system takes", "give a shorter one")
    return Path(text)


def relative_posix(folder: Path, path: Path) -> str:
    """Return `path` relative to `folder`, so that both can be moved together."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def is_utf8(text: str) -> bool:
    """Whether any file can hold this text: Python decodes unreadable bytes to lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def refusal(path: Path, problem: OSError, cure: str = "") -> InputError:
    cure = cure or CURES.get(problem.errno or 0, "check the path and the disk")
    return InputError(f"cannot write {path}: {system_reason(problem)}", cure)


def make_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise refusal(path, problem) from problem
    return path


def real_folder(root: Path, folder: Path) -> Path:
    """Return `folder`; refuse it if it is not below `root`, or if a link lies on the way. A run directory may
    come from other people: what the kit writes below it must stay inside it. Links on the way to `root`
    itself are the user's choice."""
    if not folder.is_relative_to(root) or ".." in (parts := folder.relative_to(root).parts):
        raise InputError(f"cannot write below {folder}: it is outside of {root}", "choose another name")
    way = root
    for part in parts:
        way /= part
        if way.is_symlink():
            raise InputError(f"{way} is a link: nothing is written below it", "put a folder in its place")
    return folder


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a hidden sibling of `path` to write to; it becomes `path` only if the block succeeds."""
    _check_replaceable(path)
    make_folder(path.parent)
    # A name may have 255 bytes, and a character takes up to four. It is known before the file is made, so
    # that a signal between the two leaves nothing.
    part = path.with_name(f".{path.name[:48]}.{secrets.token_hex(8)}.part")
    try:
        # With the permissions of the user's umask.
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o666))
        yield part
        part.replace(path)
    except OSError as problem:
        raise refusal(path, problem) from problem
    finally:
        part.unlink(missing_ok=True)


def _kind_at(path: Path) -> str:
    try:
        return kind_of(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as problem:
        raise refusal(path, problem) from problem


def _check_replaceable(path: Path) -> None:
    """Refuse to replace anything but a regular file: a device, a pipe, a link, a folder."""
    if kind := _kind_at(path):
        raise InputError(
            f"cannot write {path}: {kind} has that name", "choose another name, or remove what is there"
        )


def open_in_place(path: Path) -> int:
    """Open a file that is kept and changed in place, such as a lock or a journal; create it if missing. Only
    a regular file with a single name is accepted: through a symbolic or hard link, whoever made the link
    could have the kit change any file. Raises OSError if the system refuses."""
    if kind := _kind_at(path):
        raise InputError(f"cannot write {path}: it is {kind}", "remove it, if it is not a file you need")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    if os.fstat(handle).st_nlink > 1:
        os.close(handle)
        # `cp -al` leaves hard links; the file may be a journal that must not be lost, so do not say "remove".
        what = "a file with another name (a hard link)"
        raise InputError(f"cannot write {path}: it is {what}", "put a copy of the file in its place")
    return handle


def write_bytes(path: Path, content: bytes) -> None:
    with replacing(path) as part:
        part.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    write_bytes(path, encoded(content))


def encoded(text: str) -> bytes:
    """Encode as UTF-8; lone surrogates become `\\ud800` escapes, as in JSON, so that JSON stays the same."""
    return text.encode("utf-8", "backslashreplace")


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write `content` as indented JSON; refuse NaN and infinities, which are not JSON."""
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def all_in(folder: Path) -> list[Path]:
    """Return every file below `folder`, sorted."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def move(source: Path, path: Path) -> None:
    """Rename `source` to `path`, which is on the same file system."""
    _check_replaceable(path)
    make_folder(path.parent)
    try:
        source.replace(path)
    except OSError as problem:
        raise refusal(path, problem) from problem


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open_regular(path, follow=True) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


# Locks: one process at a time. The kernel holds the lock and drops it when the process ends in any way, so a
# lock is never stale. The file's content only tells people who holds it.

# Who looks whether a lock is free takes it for a moment; wait that long before reporting it as in use.
_MOMENT_S, _POLL_S = 0.2, 0.05
_LONGEST_HOLDER = 160


@dataclass(frozen=True, slots=True)
class LockFile:
    """The lock of `what`, as the user calls it; `fix` is the advice when another run holds it."""

    path: Path
    what: str
    fix: str
    elsewhere: str | None = None
    """The advice when the lock file cannot be written; by default, to choose another folder."""

    @contextlib.contextmanager
    def held(
        self, doing: str = "", *, shared: bool = False, waiting: Callable[[str], object] | None = None
    ) -> Iterator[None]:
        """Hold the lock during the block; others read what this process is `doing`. If somebody has it, raise
        an error that names the holder or, if `waiting` is given, wait, and tell it for whom."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = open_in_place(self.path)
        except InputError as problem:  # a link
            raise InputError(problem.problem, self.elsewhere or problem.fix) from problem
        except OSError as problem:
            raise self._refused(problem) from problem
        try:
            try:
                self._take(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, waiting)
            except OSError as problem:  # a file system without locks
                raise self._refused(problem) from problem
            with contextlib.suppress(OSError):  # a full disk: only messages depend on the name
                doing = f" {doing}" if doing else f", since {time.strftime('%Y-%m-%dT%H:%M:%S%z')}"
                os.ftruncate(handle, 0)
                os.pwrite(handle, encoded(f"process {os.getpid()}{doing}"), 0)
            yield
            if not shared:
                os.ftruncate(handle, 0)
        finally:
            os.close(handle)

    def check_free(self) -> None:
        """Raise an error if the lock is held alone. It may be taken a moment later: `held` decides."""
        # A shared lock: a reader may get no exclusive one. If locking fails, `held` reports it.
        if name := self._look(fcntl.LOCK_SH):
            raise self._in_use(name)

    def holder(self) -> str | None:
        """Return who has the lock, as `process 4711 measures toy_cnn`; of several, the last that came."""
        return self._look(fcntl.LOCK_EX)

    def _look(self, how: int) -> str | None:
        """Return who keeps others from locking it; nobody if it was never locked or cannot be read."""
        handle = -1
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            fcntl.flock(handle, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return _holder(handle)
        except OSError:
            return None
        finally:
            if handle >= 0:
                os.close(handle)
        return None

    def _take(self, handle: int, how: int, waiting: Callable[[str], object] | None = None) -> None:
        until, announced = time.monotonic() + _MOMENT_S, set[str]()
        while True:
            try:
                fcntl.flock(handle, how | fcntl.LOCK_NB)
                return
            except BlockingIOError as problem:
                name = _holder(handle)
                late = time.monotonic() > until
                if late and waiting is None:
                    raise self._in_use(name) from problem
                if late and waiting is not None and name not in announced:
                    announced.add(name)
                    waiting(f"waiting: {name}")
            time.sleep(_POLL_S)

    def _in_use(self, name: str) -> InUseError:
        return InUseError(f"{self.what} is in use by another run ({name})", self.fix)

    def _refused(self, problem: OSError) -> InputError:
        fix = self.elsewhere or "choose a folder you may write to"
        return InputError(f"cannot lock {self.path}: {system_reason(problem)}", fix)


def _holder(handle: int) -> str:
    text = os.pread(handle, 1 << 16, 0).decode(errors="replace")
    return printable(in_short(text))[:_LONGEST_HOLDER] or "it has just begun"
