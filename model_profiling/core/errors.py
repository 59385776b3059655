"""Every failure the kit expects, one exception per kind of cause.

ProfilingError            a problem and its fix; the command line exits with 2
├── InputError            what the user named or wrote cannot be used: a model, a flag, a config
│   ├── InUseError        another process is using it for now: a device, a folder
│   └── WrongTypeError    a Python caller gave something of another type; a TypeError, too
├── SetupError            this machine lacks something: a compiler, a package, a QEMU, a device
├── FormatError           a file is damaged or is not what its name says; names the file and the place
├── ExportError           a model could not be lowered, or the lowered program is wrong
└── RunError              a runner crashed, hung or gave an invalid answer; carries the end of its log

Library code raises these and prints nothing; only `cli.main` turns them into a line and an exit code.
What the doctor and validation find is not raised: each `Check` has a result and its fix (`core/records.py`).
"""

from __future__ import annotations

import errno

CURES = {
    errno.ENAMETOOLONG: "give a shorter path",
    errno.ELOOP: "its links lead in a circle: name the file itself",
    errno.ENOSPC: "free some space, or choose another place",
    errno.EDQUOT: "free some space, or choose another place",
    errno.EROFS: "choose a folder on a writable file system",
    errno.EACCES: "choose a place you may use",
    errno.EPERM: "choose a place you may use",
    errno.ENOTDIR: "a part of the path is a file; choose another folder",
    errno.EEXIST: "a part of the path is a file; choose another folder",
    errno.EISDIR: "a folder has that name; choose another name",
    errno.EMFILE: "let this user open more files (ulimit -n)",
    errno.ENOMEM: "free some memory",
}
_LONGEST = 2000
"""A name or value from a file can be as long as the file; nobody reads more than this."""


class ProfilingError(Exception):
    """A failure with a cause (`problem`) and a cure (`fix`), each one short clause."""

    def __init__(self, problem: str, fix: str = "") -> None:
        if len(problem) > _LONGEST:
            left_out = f"[{len(problem) - _LONGEST + 100:,} characters left out]"
            problem = f"{problem[: _LONGEST - 300]} {left_out} {problem[-200:]}"
        super().__init__(f"{problem}; {fix}" if fix else problem)
        self.problem = problem
        self.fix = fix


class InputError(ProfilingError):
    """What the user named or wrote cannot be used."""


class InUseError(InputError):
    """Another process is using it; a caller that can wait may try again."""


class WrongTypeError(InputError, TypeError):
    """An argument has a type that the function does not accept; `fix` says which it accepts."""


class SetupError(ProfilingError):
    """This machine lacks something the work needs."""


class FormatError(ProfilingError):
    """A file is damaged or of another kind than expected."""


class ExportError(ProfilingError):
    """A model could not be lowered, or the lowered program is wrong."""


class RunError(ProfilingError):
    """A runner failed; `log_tail` holds the last lines of its log."""

    def __init__(self, problem: str, fix: str = "", log_tail: str = "") -> None:
        super().__init__(problem, fix)
        self.log_tail = log_tail


def system_reason(problem: OSError) -> str:
    """Return why the system refused something, as a clause: `no space left on device`."""
    return (problem.strerror or str(problem)).lower()


def refused_by_system(problem: OSError) -> str:
    """Return the message for an OSError that no other code handled."""
    what = f"cannot use {problem.filename}" if problem.filename else "the system refused something"
    cure = CURES.get(problem.errno or 0, "check the path, its permissions and the disk")
    return f"{what}: {system_reason(problem)}; {cure}"
