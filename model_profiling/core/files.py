"""Files that are written whole or not at all, and never through a link.

Everything the kit writes goes through `replacing`: the content is made in a hidden sibling and renamed
into place, so a reader, a crash or a full disk never leaves half a file under the final name. Only a regular
file is ever replaced. The few that are written in place (locks, journals) are opened by `open_in_place`; what
a user named as an output may be a device or a pipe, which `writing_to` writes to. Paths that callers give
come in through `as_path`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeAlias

from model_profiling.core.errors import InputError, InUseError, system_reason
from model_profiling.core.safe_read import kind_of

if TYPE_CHECKING:
    from typing_extensions import Buffer


StrPath: TypeAlias = str | os.PathLike[str]

STDOUT = Path("/dev/stdout")
"""What a user calls `-`."""
_OPEN_FILE = re.compile(r"/dev/(?:fd/(\d{1,9})|(stdin|stdout|stderr))|/proc/self/fd/(\d{1,9})")
_STANDARD = {"stdin": 0, "stdout": 1, "stderr": 2}

_CURES = {
    errno.ENOSPC: "free some space or choose another folder",
    errno.EDQUOT: "free some space or choose another folder",
    errno.EROFS: "choose a folder on a writable file system",
    errno.EACCES: "choose a folder you may write to",
    errno.EPERM: "choose a folder you may write to",
    errno.ENOTDIR: "a part of the path is a file; choose another folder",
    errno.EEXIST: "a part of the path is a file; choose another folder",
    errno.EISDIR: "a folder has that name; choose another name",
    errno.ENAMETOOLONG: "choose a shorter name",
}

_LONGEST_NAME, _LONGEST_PATH = 255, 4095
"""Bytes, on Linux; macOS and some file systems take less, and say so."""


def as_path(given: StrPath) -> Path:
    """What a caller named, as a `Path`."""
    if not isinstance(given, str | os.PathLike) or not isinstance(text := os.fspath(given), str):
        raise InputError(f"{type(given).__name__} is not a path", "give a str or a pathlib.Path")
    if not text:
        raise InputError("the path is empty", "name a file or a folder; '.' is the current one")
    if "\0" in text:
        raise InputError(f"{text!r} names no file: it holds NUL", "correct the path")
    if not is_utf8(text):
        raise InputError(f"the name {text!r} is not UTF-8", "rename it, with letters that every system knows")
    longest = max(map(len, text.encode().split(b"/")))
    if longest > _LONGEST_NAME or len(text.encode()) > _LONGEST_PATH:
        raise InputError(f"the path {text} is longer than a system takes", "give a shorter one")
    return Path(text)


def relative_posix(folder: Path, path: Path) -> str:
    """`path` as it is written in a file of `folder`, so that both can be moved together."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def is_utf8(text: str) -> bool:
    """Whether a name is one that any file can hold: Python stands lone halves for bytes it cannot read."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refusal(path: Path, problem: OSError) -> InputError:
    reason = system_reason(problem)
    return InputError(
        f"cannot write {path}: {reason}", _CURES.get(problem.errno or 0, "check the path and the disk")
    )


def make_folder(path: Path) -> Path:
    """Create `path` and its parents, or say in one line why it cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise _refusal(path, problem) from problem
    return path


@contextlib.contextmanager
def no_empty_folder(path: Path) -> Iterator[None]:
    """Of the folders that the block makes for `path`, none stays that nothing was put into."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the first one that is not empty, or was never made
            for folder in made:
                folder.rmdir()


def real_folder(root: Path, folder: Path) -> Path:
    """`folder`, unless it does not lie below `root`, or by a link may not.

    A run directory may come from other people: what the kit puts below it by names of its own stays there.
    How `root` itself is reached is its user's business.
    """
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
    try:
        part = _make_part(path)
    except OSError as problem:
        raise _refusal(path, problem) from problem
    try:
        yield part
        part.replace(path)
    except OSError as problem:
        raise _refusal(path, problem) from problem
    finally:
        part.unlink(missing_ok=True)


def _make_part(path: Path) -> Path:
    """A new file beside `path`; the system gives it the permissions that the user's umask asks for."""
    while True:
        # A name may have 255 bytes, and a character four.
        part = path.with_name(f".{path.name[:48]}.{secrets.token_hex(4)}.part")
        with contextlib.suppress(FileExistsError):
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o666))
            return part


def _kind_at(path: Path) -> str:
    try:
        return kind_of(path.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except ValueError as problem:  # NUL, or halves of characters
        raise InputError(
            f"cannot write {str(path)!r}: no file has such a name", "correct the path"
        ) from problem
    except OSError as problem:
        raise _refusal(path, problem) from problem


def _check_replaceable(path: Path) -> None:
    """Refuse what would be lost, or is not where it seems to be: a device, a pipe, a link, a folder."""
    if kind := _kind_at(path):
        raise InputError(
            f"cannot write {path}: {kind} has that name", "choose another name, or remove what is there"
        )


def open_in_place(path: Path) -> int:
    """Open a file that is kept and changed, such as a lock or a journal; made where there is none.

    Only a regular file with no other name: by a link, or a hard link, whoever made it would have the kit
    change a file of his choice. Raises OSError where the system refuses.
    """
    fix = "remove it, if it is not a file you need"
    if kind := _kind_at(path):
        raise InputError(f"cannot write {path}: it is {kind}", fix)
    # Neither followed nor waited for, if it became a link or a pipe a moment ago.
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    found = os.fstat(handle)
    kind = kind_of(found.st_mode)
    if not kind and found.st_nlink > 1:
        # As `cp -al` leaves them: a journal may be among them, which nobody is to lose.
        kind, fix = "a file with another name (a hard link)", "put a copy of the file in its place"
    if kind:
        os.close(handle)
        raise InputError(f"cannot write {path}: it is {kind}", fix)
    return handle


def is_stream(path: Path) -> bool:
    """Whether what is written there goes straight on: a device, a pipe, or a file this process holds open."""
    return _open_file(path) is not None or _kind_at(path) in ("a named pipe", "a device")


def is_stdout(path: Path) -> bool:
    return _open_file(path) == _STANDARD["stdout"]


def display_name(path: Path) -> str:
    """What a person is told of where something was written."""
    return "standard output" if is_stdout(path) else str(path)


def _open_file(path: Path) -> int | None:
    """The number of the open file that `path` means: `/dev/stdout`, or `/dev/fd/63` of a shell's `>(...)`."""
    found = _OPEN_FILE.fullmatch(str(path))
    if found is None:
        return None
    numbered, named, of_process = found.groups()
    return _STANDARD[named] if named else int(numbered or of_process)


@contextlib.contextmanager
def writing_to(path: Path) -> Iterator[IO[bytes]]:
    """A stream for what the user asked to have at `path`: a file is made whole or not at all, a device or a
    pipe is written to and stays what it is."""
    if not is_stream(path):
        with replacing(path) as part, part.open("wb") as stream:
            yield stream
        return
    if is_stdout(path):
        # What cannot be written here is an answer that was lost, as if it had been printed.
        with io.BufferedWriter(_Straight(sys.stdout.buffer)) as stream:
            yield stream
        sys.stdout.flush()
        return
    number = _open_file(path)
    try:
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NOCTTY
        handle = os.dup(number) if number is not None else os.open(path, flags)
        with os.fdopen(handle, "wb") as opened, io.BufferedWriter(_Straight(opened)) as stream:
            yield stream
    except OSError as problem:
        raise _refusal(path, problem) from problem


class _Straight(io.RawIOBase):
    """Goes on to another stream and never back: a device may say that it can be sought in, and not do it."""

    def __init__(self, to: IO[bytes]) -> None:
        self._to = to

    def writable(self) -> bool:
        return True

    def write(self, data: Buffer, /) -> int:
        return self._to.write(data)


def write_out(path: Path, content: str) -> None:
    """Write a text to where the user asked for it."""
    with writing_to(path) as stream:
        stream.write(encoded(content))


def write_bytes(path: Path, content: bytes) -> None:
    with replacing(path) as part:
        part.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    write_bytes(path, encoded(content))


def encoded(text: str) -> bytes:
    """As UTF-8; halves of characters, which it has none of, as JSON writes them: so JSON stays the same."""
    return text.encode("utf-8", "backslashreplace")


def write_json(path: Path, content: Mapping[str, object]) -> None:
    """Write `content` as indented JSON; NaN and infinities are refused, they are not JSON."""
    write_text(path, json_text(content))


def json_text(content: Mapping[str, object]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def all_in(folder: Path) -> list[Path]:
    """Every file below `folder`, in one order."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def move(source: Path, path: Path) -> None:
    """Rename `source` to `path`, or copy it whole where they lie on different file systems."""
    _check_replaceable(path)
    make_folder(path.parent)
    try:
        source.replace(path)
    except OSError as problem:
        if problem.errno != errno.EXDEV:
            raise _refusal(path, problem) from problem
        with replacing(path) as part:
            shutil.copyfile(source, part)
        source.unlink()


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


# One process at a time.
# The lock is the kernel's: it goes when its holder goes, however that ends, so a lock can never be stale.
# The file's content only tells people who holds it.

# Who only looks takes the lock for a moment; that is nobody's run.
_MOMENT_S = 0.2


@dataclass(frozen=True, slots=True)
class LockFile:
    """The lock of `what`, as the user calls it; `fix` is what to do when another run holds it."""

    path: Path
    what: str
    fix: str
    elsewhere: str | None = None
    """What to do where the file itself cannot be written, if that is not to choose another folder."""

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold it for the length of the block, or say who holds it."""
        try:
            make_folder(self.path.parent)
        except InputError as problem:
            raise InputError(problem.problem, self.elsewhere or problem.fix) from problem
        try:
            handle = open_in_place(self.path)
        except OSError as problem:
            raise self._refused("write", problem) from problem
        try:
            try:
                self._take(handle, fcntl.LOCK_EX)
            except OSError as problem:  # a file system without locks
                raise self._refused("lock", problem) from problem
            os.ftruncate(handle, 0)
            since = time.strftime("%Y-%m-%dT%H:%M:%S%z")
            os.pwrite(handle, json.dumps({"pid": os.getpid(), "since": since}).encode(), 0)
            yield
            os.ftruncate(handle, 0)
        finally:
            os.close(handle)

    def check_free(self) -> None:
        """Say who holds it, if anyone does; the moment after it may be taken, so `held` decides."""
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return  # never locked, not ours to read, or a link: taking the lock tells
        try:
            # Who only reads may not have it alone on every file system, and need not. Where nothing can be
            # locked, taking the lock tells.
            with contextlib.suppress(OSError):
                self._take(handle, fcntl.LOCK_SH)
        finally:
            os.close(handle)

    def _take(self, handle: int, how: int) -> None:
        until = time.monotonic() + _MOMENT_S
        while True:
            try:
                fcntl.flock(handle, how | fcntl.LOCK_NB)
                return
            except BlockingIOError as problem:
                if time.monotonic() > until:
                    raise InUseError(
                        f"{self.what} is in use by another run ({_holder(handle)})", self.fix
                    ) from problem
            time.sleep(0.02)

    def _refused(self, verb: str, problem: OSError) -> InputError:
        reason = system_reason(problem)
        return InputError(
            f"cannot {verb} {self.path}: {reason}", self.elsewhere or "choose a folder you may write to"
        )


def _holder(handle: int) -> str:
    try:
        content = json.loads(os.pread(handle, 4096, 0))
        return f"process {content['pid']}, since {content['since']}"
    except (ValueError, KeyError, TypeError):
        return "it has just begun"
