"""The shell scripts that run on another machine, for any POSIX shell with no more tools than Android's
toybox. Each function returns a script, and its docstring says what that script does.

Everything from the user or a file name is quoted here; no other module writes shell.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence

from model_profiling.targets.collect import LEFT, MOST_FILE_BYTES

quoted = shlex.quote

MARKER = ".sme2prof"
"""The file that marks a folder as the kit's own, so that nothing else is ever removed."""

# A process group exists once its leader has called setsid(); until then there is only the leader.
_KILL = 'end() { kill -s KILL -- "-$1" 2>/dev/null || kill -s KILL "$1" 2>/dev/null; }; '


DAMAGED = "damaged"
"""Printed when a received file differs from the one sent."""
NOT_OURS = 33
"""The exit code for a folder without the marker."""
NOT_BEGUN = 34
"""The exit code of a job that could not even write its process id, after printing `NO_ROOM`."""
NO_ROOM = "sme2prof: the job cannot write to its folder"


def make_home(home: str) -> str:
    """Make the kit's folder, unless someone else made it; remove jobs and partial files older than a day."""
    return (
        f"umask 077; {_ours(home)}"
        # Another process of the kit may be about to mark it.
        'if there && ! ours; then rmdir "$h" || sleep 1; fi; '
        f"if there && ! ours; then exit {NOT_OURS}; fi; "
        # Do not write to a folder or a marker that appears meanwhile.
        'if ! ours; then mkdir -p "${h%/*}/" || exit; '
        'if mkdir "$h"; then (set -C; echo \'made by sme2prof, safe to remove\' >"$m") || exit; '
        f"else sleep 1; ours || exit; fi; fi; "
        'mkdir -p "$h/jobs" && { find "$h/jobs" -mindepth 1 -maxdepth 1 -mtime +0 -exec rm -rf {} +; '
        'find "$h" -name "*.part" -mtime +0 -exec rm -f {} +; } 2>/dev/null; [ -d "$h/jobs" ]'
    )


def state_of(paths: Sequence[str]) -> str:
    """Print a line per path: its size and SHA-256, or `absent`."""
    words = " ".join(map(quoted, paths))
    line = f'{_facts("$f")} && echo "$1 $2"'
    return f'for f in {words}; do if [ -f "$f" ]; then {line}; else echo absent; fi; done'


def receive(path: str, part: str, size: int, sha256: str, *, executable: bool) -> str:
    """Receive a file from standard input; until every byte has arrived it is called `part`, which does not
    stay if the connection ends (which is the end of input), nor, if the machine restarts, after the next
    attempt."""
    folder = path.rpartition("/")[0]
    mode = "700" if executable else "600"
    return (
        f"trap '' HUP PIPE; umask 077; p={quoted(part)}; d=; "
        f'mkdir -p {quoted(folder)} && rm -f {quoted(folder)}/.*.part && cat >"$p" && {_facts("$p")} && '
        f'if [ "$1 $2" = "{size} {sha256}" ]; then chmod {mode} "$p" && mv -f "$p" {quoted(path)}; '
        f'else d="{DAMAGED}: $1 $2"; false; fi; s=$?; rm -f "$p"; echo "$d"; exit $s'
    )


ODD = "odd"
"""Printed for something that has an expected name but is not a file, or is too large."""


def list_files(folder: str, stem: str) -> str:
    """Print a line for each file that a job with this `stem` left in `folder`: its size, SHA-256 and name."""
    names = " ".join(f"./{quoted(stem)}*{ending}" for ending in LEFT)
    # Check before reading: a sparse file takes no space, and for ever to read.
    small = f'[ -f "$f" ] && [ ! -L "$f" ] && [ -n "$(find "$f" -prune -size -{MOST_FILE_BYTES + 1}c)" ]'
    line = f'{_facts("$f")} && echo "$1 $2 ${{f#./}}"'
    return (
        f'cd {quoted(folder)} || exit; for f in {names}; do if [ -e "$f" ] || [ -L "$f" ]; then '
        f'if {small}; then {line}; else echo "{ODD} ${{f#./}}"; fi; fi; done; true'
    )


def _facts(variable: str) -> str:
    """Set $1 and $2 to the size and the SHA-256 of the file in `variable`."""
    return f'set -- $(wc -c <"{variable}") $(sha256sum <"{variable}") && [ -n "$2" ]'


def remove_job(folder: str) -> str:
    pid, late = (quoted(f"{folder}.{ending}") for ending in ("pid", "late"))
    return f"{_end_job(folder)}end_job {pid}; rm -rf {quoted(folder)} {pid} {late}"


def _end_job(folder: str) -> str:
    """Define `end_job FILE`, which kills the job whose process id is in FILE if its command line names
    `folder`: the id may belong to another process by now."""
    return (
        f'{_KILL}end_job() {{ n=$(cat "$1" 2>/dev/null); case "$n" in ""|*[!0-9]*) return ;; esac; '
        f'grep -qF {quoted(folder)} "/proc/$n/cmdline" 2>/dev/null && end "$n"; }}; '
    )


def _ours(home: str) -> str:
    """Define `there` (something has the name of the kit's folder $h) and `ours` (it is a folder with a marker
    $m, both made by this user): where others may write, they may have put a link."""
    return (
        f"h={quoted(home)}; m={quoted(f'{home}/{MARKER}')}; "
        'there() { [ -e "$h" ] || [ -L "$h" ]; }; '
        'ours() { [ ! -L "$h" ] && [ -O "$h" ] && [ ! -L "$m" ] && [ -f "$m" ] && [ -O "$m" ]; }; '
    )


def watched(argv: Sequence[str], folder: str, limit_s: float) -> str:
    """Run `argv` for the job with this folder, in its own session. The session is killed when time is up, and
    when standard input ends: that means that the connection is gone. Exit with the program's status, or 124
    if time was up. HUP, which adbd may send when a connection ends, is ignored: otherwise a program whose
    tether has not started yet would be left running."""
    pid, late = quoted(f"{folder}.pid"), quoted(f"{folder}.late")
    # `cat` says why it cannot write; not every shell's echo does.
    begin = (
        f'echo $$ >"$0" || {{ cat /proc/version >"$0"; echo "{NO_ROOM}" >&2; exit {NOT_BEGUN}; }}; exec "$@"'
    )
    run = f"setsid sh -c '{begin}' {pid} {shlex.join(argv)} </dev/null 3<&- & p=$!"
    timer = (
        f'setsid sh -c \'{_KILL}sleep "$1"; true >"$2"; end "$3"\' sh {math.ceil(limit_s)} {late} $p '
        "</dev/null >/dev/null 2>&1 3<&- & t=$!"
    )
    # Android's shell keeps descriptor 3 to itself, so it becomes the tether's standard input.
    tether = f'setsid sh -c \'{_KILL}cat >/dev/null; end "$1"; end "$2"\' sh $p $t <&3 >/dev/null 2>&1 & w=$!'
    return (
        f"trap '' HUP; {_KILL}exec 3<&0; cd {quoted(folder)} || exit; {run}; {timer}; {tether}; "
        f"wait $p; s=$?; end $t; end $w; if [ -e {late} ]; then s=124; fi; exit $s"
    )


def machine_facts(files: Mapping[str, str], commands: Mapping[str, str]) -> str:
    """Print each file (or all that match a pattern) and each command's output under a line with its name."""

    def read_all(name: str, pattern: str) -> str:
        # A file in /sys is one line, and a phone has hundreds: the shell reads them itself.
        if pattern.startswith("/sys/"):
            line = f'echo "@@ {name} $f" && echo "$l"'
            return f'for f in {pattern}; do l=; {{ read -r l <"$f" || [ -n "$l" ]; }} && {line}; done'
        whole = f'[ -r "$f" ] && echo "@@ {name} $f" && head -c 200000 "$f" && echo'
        return f"for f in {pattern}; do {whole}; done"

    read = "; ".join(read_all(name, pattern) for name, pattern in files.items())
    answers = "; ".join(f'echo "@@ {name} -"; {command} 2>/dev/null' for name, command in commands.items())
    return f"{{ {read}; {answers}; }} 2>/dev/null; true"


def remove_home(home: str) -> str:
    """End every job that runs from the kit's folder, then remove it. The marker goes last, so that after a
    lost connection the rest can still be removed; safe to repeat. Print `removed` if it was there."""
    return (
        f'{_ours(home)}there || exit 0; ours || {{ rmdir "$h" 2>/dev/null && exit 0; exit {NOT_OURS}; }}; '
        f'{_end_job(home)}for p in "$h"/jobs/*.pid; do end_job "$p"; done; '
        f'find "$h" -mindepth 1 -maxdepth 1 ! -name {MARKER} -exec rm -rf {{}} +; '
        f'[ "$(ls -A "$h")" = {MARKER} ] && rm -f "$m" && rmdir "$h" && echo removed'
    )
