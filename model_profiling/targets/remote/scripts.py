"""Every piece of shell text that runs on another machine, for any POSIX shell with Android's toybox beside
it.

Whatever the user or a file's name brings in is quoted here, once; nobody else writes shell.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence

from model_profiling.targets.collect import ExpectedFile

quoted = shlex.quote

# Where the kernel has no such file, nothing is said, each time.
_BOOT = "{ cat /proc/sys/kernel/random/boot_id 2>/dev/null || true; }"

MARKER = ".sme2prof"
"""The file that says a folder is the kit's own, so that nothing else is ever removed."""

# A process group is there once its leader has called setsid(); until then the leader is all there is of it.
_KILL = 'end() { kill -s KILL -- "-$1" 2>/dev/null || kill -s KILL "$1" 2>/dev/null; }; '


DAMAGED = "damaged"
"""What a script says of a file that came as another than was sent."""
NOT_OURS = 33
"""How a script ends that finds a folder without the marker."""
NOT_BEGUN = 34
"""How a job ends that could not so much as write down its process id, after saying `NO_ROOM`."""
NO_ROOM = "sme2prof: the job cannot write to its folder"


def make_home(home: str) -> str:
    """Make the kit's folder, unless somebody else made it; half-written files go after a day."""
    return (
        f"umask 077; {_ours(home)}"
        # Another process of the kit may be about to mark it.
        'if there && ! ours; then rmdir "$h" || sleep 1; fi; '
        f"if there && ! ours; then exit {NOT_OURS}; fi; "
        # Neither a folder nor a marker that appears meanwhile is written to.
        'if ! ours; then mkdir -p "${h%/*}/" || exit; '
        'if mkdir "$h"; then (set -C; echo \'made by sme2prof, safe to remove\' >"$m") || exit; '
        f"else sleep 1; ours || exit; fi; fi; "
        'mkdir -p "$h/jobs" && { find "$h/jobs" -mindepth 1 -maxdepth 1 -mtime +0 -exec rm -rf {} +; '
        'find "$h" -name "*.part" -mtime +0 -exec rm -f {} +; } 2>/dev/null; [ -d "$h/jobs" ] && ' + _BOOT
    )


def make_folder(folder: str) -> str:
    """Says which start of the machine this is, and makes the folder, but not the one that it is in."""
    return f"umask 077; {_BOOT}; mkdir {quoted(folder)}"


def state_of(paths: Sequence[str]) -> str:
    """For each path a line: its size and SHA-256, or `absent`."""
    words = " ".join(map(quoted, paths))
    said = f'{_facts("$f")} && echo "$1 $2"'
    return f'for f in {words}; do if [ -f "$f" ]; then {said}; else echo absent; fi; done'


def receive(path: str, parts: Sequence[str], size: int, sha256: str, *, executable: bool) -> str:
    """Takes a file from standard input; it gets its name only when every byte has arrived. `parts` are the
    temporary names of all attempts, this one's last: nothing half sent stays, neither where the connection
    ends (that comes as the end of input) nor where the machine restarts."""
    *earlier, part = parts
    remove = "".join(f"rm -f {quoted(old)}; " for old in earlier)
    folder = path.rpartition("/")[0]
    mode = "700" if executable else "600"
    return (
        f"trap '' HUP PIPE; umask 077; p={quoted(part)}; d=; {remove}"
        f'mkdir -p {quoted(folder)} && cat >"$p" && {_facts("$p")} && '
        f'if [ "$1 $2" = "{size} {sha256}" ]; then chmod {mode} "$p" && mv -f "$p" {quoted(path)}; '
        f'else d="{DAMAGED}: $1 $2"; false; fi; s=$?; rm -f "$p"; echo "$d"; exit $s'
    )


ODD = "odd"
"""What a script says of something that has a file's name and is no file, or a larger one than it may be."""


def list_files(folder: str, wanted: Sequence[ExpectedFile]) -> str:
    """For each file in `folder` that is `wanted` a line: its size, its SHA-256 and its name."""
    return f"cd {quoted(folder)} || exit; {''.join(map(_listed, wanted))}true"


def _listed(file: ExpectedFile) -> str:
    names = f"./{quoted(file.start)}{'[0-9]*' if file.several else ''}{quoted(file.end)}"
    # Asked before it is read: a file full of holes takes no space, and for ever to read.
    small = f'[ -f "$f" ] && [ ! -L "$f" ] && [ -n "$(find "$f" -prune -size -{file.most_bytes + 1}c)" ]'
    said = f'{_facts("$f")} && echo "$1 $2 ${{f#./}}"'
    return (
        f'for f in {names}; do if [ -e "$f" ] || [ -L "$f" ]; then '
        f'if {small}; then {said}; else echo "{ODD} ${{f#./}}"; fi; fi; done; '
    )


def _facts(variable: str) -> str:
    """Sets $1 and $2 to the size and the SHA-256 of the file that `variable` names."""
    return f'set -- $(wc -c <"{variable}") $(sha256sum <"{variable}") && [ -n "$2" ]'


def remove_job(folder: str) -> str:
    """Ends what still runs of a job and removes its folder."""
    pid, late = (quoted(f"{folder}.{ending}") for ending in ("pid", "late"))
    return f"{_end_job(folder)}end_job {pid}; rm -rf {quoted(folder)} {pid} {late}"


def _end_job(folder: str) -> str:
    """Defines `end_job FILE`, which kills the job whose process id is in FILE, if it writes to `folder`: the
    number may have been given to another process since."""
    return (
        f'{_KILL}end_job() {{ n=$(cat "$1" 2>/dev/null); case "$n" in ""|*[!0-9]*) return ;; esac; '
        f'grep -qF {quoted(folder)} "/proc/$n/cmdline" 2>/dev/null && end "$n"; }}; '
    )


def _ours(home: str) -> str:
    """Defines `there`, whether anything has the name of the kit's folder $h, and `ours`, whether that is a
    folder with a marker $m, both of this user's making: where others may write, they may have put a link."""
    return (
        f"h={quoted(home)}; m={quoted(f'{home}/{MARKER}')}; "
        'there() { [ -e "$h" ] || [ -L "$h" ]; }; '
        'ours() { [ ! -L "$h" ] && [ -O "$h" ] && [ ! -L "$m" ] && [ -f "$m" ] && [ -O "$m" ]; }; '
    )


def watched(argv: Sequence[str], folder: str, limit_s: float) -> str:
    """Runs `argv` for the job with this folder, in a session of its own that is killed with all it holds when
    time is up, and when standard input ends: that happens when the connection goes, whoever cut it. Ends with
    the program's status, or 124 where time was up. Who ends the connection may also send HUP to this shell,
    as adbd does, at any moment: it is ignored, or a program that has no tether yet would be left alone."""
    pid, late = quoted(f"{folder}.pid"), quoted(f"{folder}.late")
    # Not every shell's echo says why it could not write.
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
    """Print each file (a pattern: all that fit) and each answer under a line with its name."""

    def read_all(name: str, pattern: str) -> str:
        # What the kernel tells in /sys is one line, and a phone has hundreds: the shell reads them itself.
        if pattern.startswith("/sys/"):
            said = f'echo "@@ {name} $f" && echo "$l"'
            return f'for f in {pattern}; do l=; {{ read -r l <"$f" || [ -n "$l" ]; }} && {said}; done'
        whole = f'[ -r "$f" ] && echo "@@ {name} $f" && head -c 200000 "$f" && echo'
        return f"for f in {pattern}; do {whole}; done"

    read = "; ".join(read_all(name, pattern) for name, pattern in files.items())
    asked = "; ".join(f'echo "@@ {name} -"; {command} 2>/dev/null' for name, command in commands.items())
    return f"{{ {read}; {asked}; }} 2>/dev/null; true"


def features(loader: Sequence[str]) -> str:
    """Asks the kit's runner which CPU features it sees."""
    return shlex.join([*loader, "--features-only"])


def inventory(home: str) -> str:
    """A line for each file in the kit's folder, with its size; none when there is no such folder."""
    return (
        f"{_ours(home)}there || exit 0; ours || exit {NOT_OURS}; "
        'cd "$h" && find . -type f | while IFS= read -r f; do echo "$(wc -c <"$f") $f"; done'
    )


def remove_home(home: str) -> str:
    """Ends every job that runs from the kit's folder, then removes it; the marker goes last, so that what a
    lost connection leaves can still be removed, and the same may be asked twice."""
    return (
        f'{_ours(home)}there || exit 0; ours || {{ rmdir "$h" 2>/dev/null && exit 0; exit {NOT_OURS}; }}; '
        f'{_end_job(home)}for p in "$h"/jobs/*.pid; do end_job "$p"; done; '
        f'find "$h" -mindepth 1 -maxdepth 1 ! -name {MARKER} -exec rm -rf {{}} +; '
        f'[ "$(ls -A "$h")" = {MARKER} ] && rm -f "$m" && rmdir "$h"'
    )
