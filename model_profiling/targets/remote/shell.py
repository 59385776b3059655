"""A shell on another machine whose answers are reliable: every command ends with a mark and its exit status.

adb returns 0 when a device vanishes during a command, and ssh returns 255 for reasons of its own. So only the
text between two marks counts, which are random for each command; if the last one is missing, the machine was
lost. A machine's output is untrusted: it is bounded, and control characters never reach a terminal.
"""

from __future__ import annotations

import re
import secrets
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, Protocol, TypeVar

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.core.formatting import printable
from model_profiling.core.process import Completed

Meanings = Sequence[tuple[str, str, str]]
"""Patterns of messages, each with its meaning and fix; the first match counts."""


def meaning_of(text: str, meanings: Meanings, **names: str) -> tuple[str, str] | None:
    """Return what `text` means and the fix, with `names` and the pattern's group (`found`) filled in."""
    for pattern, problem, fix in meanings:
        if match := re.search(pattern, text, re.IGNORECASE):
            words = {**names, "found": next(filter(None, match.groups()), "")}
            return problem.format(**words), fix.format(**words)
    return None


def last_line(answer: str | Completed) -> str:
    if isinstance(answer, Completed):
        answer = f"{answer.stdout}\n{answer.stderr}"
    lines = [line.strip() for line in printable(answer).splitlines() if line.strip()]
    return lines[-1] if lines else ""


Made = TypeVar("Made")

_ANSWER_S = 60.0


class LinkLost(SetupError):
    """The machine did not answer to the end; it may come back."""


class MachineLink(Protocol):
    """How commands reach one machine: the client's command line, and the meaning of its messages."""

    @property
    def title(self) -> str: ...  # as the user named it

    @property
    def shown(self) -> tuple[str, ...]: ...  # what a person writes before a command to run it there

    def connect(self) -> None: ...

    def command(self, script: str) -> Sequence[str]: ...  # what runs `script` in a shell there

    def complaint(self, message: str) -> SetupError | None: ...  # its meaning, if it is a known one

    def close(self) -> None: ...


@dataclass(slots=True)
class Shell:
    """Commands on the machine behind `link`. `patience_s` is how long to wait for a lost machine; `attempts`
    is how often one step may lose it."""

    link: MachineLink
    patience_s: float = 120.0
    attempts: int = 5
    probe_s: float = 20.0
    """The time of a machine that may be back to answer."""
    times_lost: int = 0
    """How often the machine went away and came back: its files may have changed."""

    @property
    def title(self) -> str:
        return self.link.title

    def run(self, argv: Sequence[str], *, timeout: float = _ANSWER_S) -> Completed:
        """Run one program there, with each word passed unchanged."""
        return self.script(shlex.join(argv), timeout=timeout)

    def script(
        self,
        script: str,
        *,
        timeout: float = _ANSWER_S,
        stdin: Path | Literal["nothing", "open"] = "nothing",
        into: BinaryIO | None = None,
        most: int | None = None,
    ) -> Completed:
        """Run `script` in the machine's shell; `into` gets up to `most` bytes of its output, unchanged.
        Raises LinkLost if the machine did not answer to the end."""
        mark = f"sme2prof-{secrets.token_hex(8)}"
        both = "" if into is not None else f"printf '%s<\\n' {mark}; "
        again = "" if into is not None else f"; printf '\\n%s>\\n' {mark}"
        # On both streams, so that a cut in either is noticed. `script` is quoted by the kit.
        whole = (
            f"export LC_ALL=C; {both}printf '%s<\\n' {mark} >&2; ({script}\n); s=$?{again}; "
            f"printf '\\n%s>%d\\n' {mark} $s >&2"
        )
        ended = process.run(self.link.command(whole), timeout=timeout, stdin=stdin, into=into, most=most)
        stderr, status, client_says = _between(ended.stderr, mark)
        stdout, closed, _ = _between(ended.stdout, mark)
        # The machine sees the mark too, so the status must be one that a shell can have.
        if not re.fullmatch("[0-9]{1,3}", status or "") or (into is None and closed is None):
            raise self._lost(ended, f"{client_says}\n{ended.stdout}")
        output = (printable(stdout), printable(stderr))
        return Completed(
            (*self.link.shown, script), int(status or 0), *output, ended.seconds, timed_out=False
        )

    def repeat(self, step: Callable[[], Made]) -> Made:
        """Return the result of `step`, repeated each time the machine was lost and came back."""
        for _ in range(self.attempts - 1):
            try:
                return step()
            except LinkLost as lost:
                self.wait_until_back(lost)
        try:
            return step()
        except LinkLost as lost:
            raise SetupError(
                f"{self.title} was lost {self.attempts} times in the same step: {lost.problem}",
                "check its cable, network and temperature, then run it again",
            ) from lost

    def wait_until_back(self, lost: LinkLost) -> None:
        """Wait for the machine; after `patience_s` raise an error that says what was wrong."""
        until = time.monotonic() + self.patience_s
        pause = 0.25
        problem: SetupError = lost
        while time.monotonic() < until:
            try:
                self.link.connect()
                mark = secrets.token_hex(8)
                if mark in process.run(self.link.command(f"echo {mark}"), timeout=self.probe_s).stdout:
                    self.times_lost += 1
                    return
            except SetupError as refused:
                problem = refused
            time.sleep(min(pause, max(until - time.monotonic(), 0.0)))
            pause = min(2 * pause, 2.0)
        raise SetupError(
            f"{self.title} was lost and did not come back within {self.patience_s:g} s: {problem.problem}",
            f"{problem.fix}, then run it again",
        ) from lost

    def _lost(self, ended: Completed, text: str) -> LinkLost:
        complaint = self.link.complaint(text)
        if complaint is not None:
            return LinkLost(complaint.problem, complaint.fix)
        why = last_line(text) or "the connection ended without a message"
        why = "it stopped answering" if ended.timed_out else why
        return LinkLost(f"{self.title} was lost: {why}", "check the connection")


def _between(text: str, mark: str) -> tuple[str, str | None, str]:
    """Return the text between the marks, what the closing one carries (None if missing), and the rest."""
    before, opened, rest = text.partition(f"{mark}<\n")
    if not opened:
        return "", None, text
    inside, closed, after = rest.rpartition(f"\n{mark}>")
    if not closed:
        return rest, None, f"{before}{rest}"
    carried, ended, beyond = after.partition("\n")
    return inside, carried if ended else None, f"{before}{beyond}"
