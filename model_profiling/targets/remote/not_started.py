"""Why a program could not be started on another machine, from what its shell, loader or `taskset` said."""

from __future__ import annotations

import re

from model_profiling.errors import SetupError

STATUSES = (126, 127)
"""With which a shell ends that found a program and could not run it, or did not find it."""

_ELSEWHERE = "name another folder there as device_path of the config's target"
# What dash, mksh, bash, busybox, toybox, glibc's loader and Android's say; the first that fits is meant.
_REASONS = (
    (
        r"\btaskset: (?:command |inaccessible or )?not found|\btaskset[\"':]* no such file",
        "there is no taskset, which cpu_affinity needs",
        "install util-linux there, or leave cpu_affinity out",
    ),
    (
        r"exec format error|not executable: .*elf|cannot execute binary|cannot open elf|wrong elf class"
        r"|is for em_|unexpected e_machine",
        "its CPU is {cpu}, and the program is for aarch64",
        "name an Arm machine, or a runner that is built for this one",
    ),
    (
        r"error while loading shared libraries: ([^\s:]+):|library \"([^\"]+)\" not found",
        "it needs the library {library}, which is not there",
        'link the runner statically, or use runner_path "builtin"',
    ),
    (
        r"permission denied|operation not permitted|can't execute",
        "no program may be run from that folder (its file system is mounted noexec, or a policy such as "
        "SELinux's forbids it)",
        _ELSEWHERE,
    ),
    (
        r"no such file|not found|inaccessible",
        "it is not there, or what its first bytes name as its loader is not",
        "run it again, which sends it anew; build a runner of your own for that machine (a phone: with the "
        "Android NDK)",
    ),
)


def known_reason(title: str, program: str, said: str, cpu: str = "") -> SetupError | None:
    """The error for `program` on the machine `title`, where what it `said` has a meaning that is known."""
    for pattern, reason, fix in _REASONS:
        if found := re.search(pattern, said, re.IGNORECASE):
            library = next(filter(None, found.groups()), "")
            why = reason.format(library=library, cpu=cpu or "of another kind")
            return SetupError(f"{title} cannot run {program}: {why}", fix)
    return None


def not_started(title: str, program: str, said: str) -> SetupError:
    """The error for `program` that the machine `title` did not start, whatever it `said`."""
    if known := known_reason(title, program, said):
        return known
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    why = lines[-1] if lines else "it does not say why"
    return SetupError(
        f"{title} cannot run {program}: {why}",
        "start it there by hand; if nothing helps, name an executor_runner built for it as runner_path",
    )
