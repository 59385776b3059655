"""Commands on run directories under an audit hook, in a process of their own: `audited_commands.py PLAN`.

PLAN is JSON: `commands` are the words of each, `own` the folders that may be read and written, `read` those
that may only be read. What the interpreter was asked for besides (a process, a connection, a pickle, a file
elsewhere) is printed as JSON with how each command ended. Nothing of the kit is imported before the hook.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import sysconfig
from pathlib import Path

FORBIDDEN = (
    "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.startfile", "pty.",
    "os.kill", "socket.", "ssl.", "urllib.", "http.", "ftplib.", "smtplib.", "imaplib.", "poplib.", "syslog.",
    "webbrowser.", "pickle.find_class", "marshal.", "sqlite3.", "os.chown", "os.setxattr", "shutil.chown",
)  # fmt: skip
CHANGING = {
    "os.remove": 1, "os.rmdir": 1, "os.mkdir": 1, "os.rename": 2, "os.link": 2, "os.symlink": 2,
    "os.chmod": 1, "os.truncate": 1, "os.utime": 1, "shutil.rmtree": 1, "shutil.copyfile": 2,
    "shutil.move": 2, "tempfile.mkstemp": 1, "tempfile.mkdtemp": 1,
}  # fmt: skip
"""Events that change files, and how many of their first words are paths."""
HARMLESS = ("socket.gethostname",)
"""Who this is, so that it can be taken out of what is shared."""
SYSTEM = (
    "/etc/localtime", "/usr/share/zoneinfo", "/usr/lib/locale", "/usr/share/locale",
)  # fmt: skip
"""What Python reads of the system: time zone and locale."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def _real(path: object) -> str | None:
    if isinstance(path, int) or path is None:
        return None  # a file that is open already
    return os.path.realpath(os.fsdecode(path))


class Audit:
    def __init__(self, own: list[str], read: list[str]) -> None:
        paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
        installed = {sys.prefix, sys.base_prefix, *paths}
        self.own = tuple(os.path.realpath(path) for path in own)
        self.installed = tuple(os.path.realpath(path) for path in installed)
        self.read = (*self.own, *self.installed, *(os.path.realpath(path) for path in read), *SYSTEM)
        self.seen: list[str] = []
        self.watching = False
        self._inside = False

    def __call__(self, event: str, words: tuple[object, ...]) -> None:
        if not self.watching or self._inside:
            return
        self._inside = True  # looking at a path is an event, too
        try:
            if problem := self._problem(event, words):
                frame = sys._getframe(1)
                self.seen.append(f"{problem} ({frame.f_code.co_filename}:{frame.f_lineno})")
        finally:
            self._inside = False

    def _problem(self, event: str, words: tuple[object, ...]) -> str | None:
        if event == "open":
            path, mode, flags = words
            writes = flags & WRITING if isinstance(flags, int) else set(str(mode)) & set("wax+")
            return self._outside(event, path, self.own if writes else self.read)
        if count := CHANGING.get(event):
            found = (self._outside(event, path, self.own) for path in words[:count])
            return next(filter(None, found), None)
        if event == "ctypes.dlopen":
            return None if words[0] is None else self._outside(event, words[0], self.installed)
        if event == "marshal.loads" and sys._getframe(2).f_code.co_filename.startswith("<frozen importlib"):
            return None  # an import
        if event.startswith(FORBIDDEN) and event not in HARMLESS:
            return f"{event} {words!r}"
        return None

    def _outside(self, event: str, path: object, allowed: tuple[str, ...]) -> str | None:
        real = _real(path)
        if real is None or any(real == place or real.startswith(f"{place}/") for place in allowed):
            return None
        return f"{event} {real}"


def _run(words: list[str]) -> tuple[int, str]:
    from model_profiling.cli.main import main

    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(words)
    return code, said.getvalue()


def main(plan_file: str) -> None:
    plan = json.loads(Path(plan_file).read_text())
    audit = Audit(plan["own"], plan["read"])
    sys.addaudithook(audit)
    answers = []
    for words in plan["commands"]:
        before = len(audit.seen)
        audit.watching = True
        code, said = _run(words)
        audit.watching = False
        answers.append({"command": words, "code": code, "said": said[-2000:], "touched": audit.seen[before:]})
    print(json.dumps(answers))


if __name__ == "__main__":
    main(sys.argv[1])
