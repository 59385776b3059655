"""Sets a phone's power mode during a measurement and restores everything afterwards."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal, Protocol

from model_profiling.core.errors import FormatError, InputError, ProfilingError, SetupError
from model_profiling.core.formatting import listing
from model_profiling.core.process import Completed
from model_profiling.core.records import read_record, write_record
from model_profiling.core.stdio import defer_signals
from model_profiling.runner.cache import state_root
from model_profiling.runner.machine import PowerMode
from model_profiling.targets.machine_lock import MachineLock, file_name

_FIX = "remove the file after setting the phone's settings by hand"


@dataclass(frozen=True, slots=True)
class Change:
    """One setting: its value before (None if it had none), and the kit's value."""

    name: str
    before: str | None
    value: str


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Changes that were made, or were about to be made, to the phone with this id. Kept in a file here from
    before the first change until everything is restored. A run that is killed, or loses the phone, leaves the
    file; the next command that reaches the phone finishes the work."""

    device: str
    mode: str
    since: str
    changes: tuple[Change, ...]
    schema_version: Literal[1] = 1


def unfinished_work() -> tuple[Unfinished, ...]:
    """Return every phone's unfinished work; unreadable files are left until that phone is reached."""
    found = []
    for path in sorted((state_root() / "devices").glob("[!.]*.json")):
        with contextlib.suppress(FormatError, InputError):
            found.append(read_record(Unfinished, path, _FIX))
    return tuple(found)


# Android settings that a mode sets, checks and restores: battery saver, screen sleep and animations. It does
# not set clock frequencies: the shell of an ordinary phone may not.

_ANIMATIONS = ("window_animation_scale", "transition_animation_scale", "animator_duration_scale")
MODES: Mapping[PowerMode, Mapping[str, str]] = {
    "leave": {},
    # 15: stay awake on any kind of power (mains 1, USB 2, wireless 4, dock 8).
    "boost": {"low_power": "0", "stay_on_while_plugged_in": "15", **dict.fromkeys(_ANIMATIONS, "0")},
    "app": {"low_power": "0", "stay_on_while_plugged_in": "1", **dict.fromkeys(_ANIMATIONS, "1")},
}
"""The settings of each mode, all in the namespace `global`."""

NAMES = ("low_power", "stay_on_while_plugged_in", *_ANIMATIONS)
READ = f'for name in {" ".join(NAMES)}; do echo "$name=$(settings get global $name)"; done'
"""Prints a line for each setting of a mode."""
_TIMEOUT_S = 60.0


class Shell(Protocol):
    """A shell on the phone; losing the phone raises an exception."""

    def run(self, argv: list[str], *, timeout: float) -> Completed:
        """Run one program there, with each word passed unchanged."""


def parse_settings(text: str) -> dict[str, str | None]:
    """Return the settings that `READ` printed; None means no value. A setting not printed is left out."""
    found: dict[str, str | None] = {}
    for line in text.splitlines():
        name, sign, value = line.strip().partition("=")
        # A service that is not up yet answers with a sentence.
        if sign and name in NAMES and re.fullmatch(r"[\w.-]{1,32}", value):
            found[name] = None if value == "null" else value
    return found


def changes_for(mode: PowerMode, now: Mapping[str, str | None]) -> tuple[Change, ...]:
    return tuple(
        Change(name, now[name], value) for name, value in MODES[mode].items() if not _same(now[name], value)
    )


def _same(one: str | None, other: str | None) -> bool:
    """Whether two values mean the same: Android writes a scale of 1 as 1 or as 1.0."""
    if one is None or other is None:
        return one is other
    try:
        return one == other or float(one) == float(other)
    except ValueError:
        return False


def _shown(value: str | None) -> str:
    return "not set" if value is None else value


# Settings are restored by the first command that reaches a phone; these notes are shown later.
NOTES: dict[str, list[str]] = {}


def take_pending_notes() -> tuple[str, ...]:
    """Return and clear all notes that were not shown yet; a command that fails shows them last."""
    said = tuple(note for notes in NOTES.values() for note in notes)
    NOTES.clear()
    return said


@dataclass(frozen=True, slots=True)
class PowerSettings:
    """The power settings of one phone; `device` identifies it over any cable."""

    shell: Shell
    title: str
    device: str

    @property
    def notes(self) -> list[str]:
        """What was done to the settings and not yet shown to the user."""
        return NOTES.setdefault(self.device, [])

    @property
    def _journal(self) -> Path:
        return state_root() / "devices" / f"{file_name(self.device)}.json"

    def _unfinished(self) -> Unfinished | None:
        if not self._journal.exists():
            return None
        found = read_record(Unfinished, self._journal, _FIX)
        if found.device != self.device:
            raise FormatError(f"{self._journal} is the journal of {found.device}", _FIX)
        return found

    def finish_earlier(self) -> None:
        """Restore what an interrupted run left set; if that fails, add a note."""
        lock = MachineLock(self.title, (self.device,))
        if not self._journal.exists() or lock.is_held():
            return  # nothing was left, or a run that is still working left it
        try:
            with lock.held():
                self._finish_earlier()
        except ProfilingError as problem:
            self.notes.append(f"settings of an earlier power mode are not put back yet: {problem}")

    @contextlib.contextmanager
    def held(self, mode: PowerMode, again: Callable[[Callable[[], object]], object]) -> Iterator[None]:
        """Set `mode` during the block and restore it afterwards; the caller must hold the phone. If the phone
        is gone, the next command that reaches it restores it. `again` repeats a step that loses the phone."""
        if mode == "leave":
            yield
            return
        again(self._finish_earlier)
        try:
            again(lambda: self._begin(mode))
            yield
        except BaseException as problem:
            # A second interrupt does not end this sooner, and gets the same message.
            with contextlib.suppress(ProfilingError, KeyboardInterrupt):
                self._end()
            self._check_interrupted(problem)
            if self._journal.exists() and isinstance(problem, ProfilingError):
                raise SetupError(
                    f"{problem.problem}; its power settings could not be put back",
                    "; ".join(filter(None, (problem.fix, "the next command that reaches it puts them back"))),
                ) from problem
            raise
        try:
            again(self._end)
        except KeyboardInterrupt as problem:
            self._check_interrupted(problem)
            raise
        except ProfilingError as problem:
            # The measurement is complete; the next command that reaches the phone restores them.
            self.notes.append(f"the power settings are not put back yet: {problem}")

    def _check_interrupted(self, problem: BaseException) -> None:
        """If a person interrupted, tell them what is left to do."""
        if self._journal.exists() and isinstance(problem, KeyboardInterrupt):
            raise KeyboardInterrupt(
                f"the power settings of {self.title} are still to be put back: the next command that reaches "
                "it does that"
            ) from problem

    def _begin(self, mode: PowerMode) -> None:
        earlier = self._unfinished()
        if earlier is not None:  # the phone was lost halfway: start over
            self._put_back(earlier.changes)
        changes = changes_for(mode, self._read())
        if not changes:
            return
        since = datetime.now(timezone.utc).isoformat(timespec="seconds")
        write_record(self._journal, Unfinished(self.device, mode, since, changes))
        # It must be on disk before the phone is touched, whatever happens to this machine.
        with self._journal.open("rb") as written:
            os.fsync(written.fileno())
        self._set(changes)

    def _end(self) -> tuple[Unfinished | None, tuple[Change, ...]]:
        """Undo what is unfinished; return it, and the settings that were restored."""
        unfinished = self._unfinished()
        if unfinished is None:
            return None, ()
        with defer_signals():
            back, notes = self._put_back(unfinished.changes)
            self._journal.unlink(missing_ok=True)
        self.notes.extend(notes)
        return unfinished, back

    def _finish_earlier(self) -> None:
        place = len(self.notes)
        unfinished, back = self._end()
        if unfinished and back:
            names = listing(change.name for change in back)
            self.notes.insert(
                place,
                f"a run of {unfinished.since} in power mode {unfinished.mode} was cut short: what it had set "
                f"on {self.title} ({names}) is back as it was",
            )

    def _read(self) -> dict[str, str | None]:
        found = parse_settings(self.shell.run(["sh", "-c", READ], timeout=_TIMEOUT_S).stdout)
        if lacking := [name for name in NAMES if name not in found]:
            raise SetupError(
                f"{self.title} does not report its setting {lacking[0]}",
                "unlock it, wait until it has started, try again",
            )
        return found

    def _set(self, changes: Sequence[Change]) -> None:
        """Make `changes`, and check that they took effect."""
        said = [self._put(change.name, change.value) for change in changes]
        now = self._read()
        if refused := [change for change in changes if not _same(now[change.name], change.value)]:
            why = next((text for text in said if text), f"it stays {_shown(now[refused[0].name])}")
            raise SetupError(
                f"{self.title} does not let adb set {listing(change.name for change in refused)} ({why})",
                "allow it in the developer options (some makers call it USB debugging (Security settings) or "
                'Disable permission monitoring), or set power_mode to "leave"',
            )

    def _put_back(self, changes: Sequence[Change]) -> tuple[tuple[Change, ...], list[str]]:
        """Undo `changes` that nobody changed since; return those undone, and a note for each other one."""
        now = self._read()
        ours = tuple(change for change in changes if _same(now[change.name], change.value))
        for change in ours:
            self._put(change.name, change.before)
        after = self._read() if ours else now
        if wrong := [change for change in ours if not _same(after[change.name], change.before)]:
            raise SetupError(
                f"{self.title} refuses the earlier {wrong[0].name}: it is {_shown(after[wrong[0].name])}",
                f"set it to {_shown(wrong[0].before)} by hand",
            )
        notes = [
            f"{change.name} was set to {_shown(now[change.name])} by somebody else meanwhile and was left "
            f"so; before it was {_shown(change.before)}"
            for change in changes
            if change not in ours and not _same(now[change.name], change.before)
        ]
        return ours, notes

    def _put(self, name: str, value: str | None) -> str:
        """Set or, with None, delete a setting; return the phone's error message, if any."""
        words = ["delete", "global", name] if value is None else ["put", "global", name, value]
        done = self.shell.run(["settings", *words], timeout=_TIMEOUT_S)
        if done.returncode == 0:
            return ""
        lines = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
        return lines[0][:120] if lines else f"exit status {done.returncode}"
