"""The power modes of a phone: Android settings that are set on request, read back, and put back as they were.

A mode says nothing about clock frequencies: no shell of an ordinary phone may set those. What it keeps out is
what phones do to save power or to please: battery saver, a screen that sleeps, animations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from model_profiling.errors import SetupError
from model_profiling.process import Completed
from model_profiling.targets.device.power_journal import Change
from model_profiling.targets.protocol import PowerMode
from model_profiling.wording import listing

_ANIMATIONS = ("window_animation_scale", "transition_animation_scale", "animator_duration_scale")
MODES: Mapping[PowerMode, Mapping[str, str]] = {
    "leave": {},
    # 15: awake on any kind of power (mains 1, USB 2, wireless 4, dock 8).
    "boost": {"low_power": "0", "stay_on_while_plugged_in": "15", **dict.fromkeys(_ANIMATIONS, "0")},
    "app": {"low_power": "0", "stay_on_while_plugged_in": "1", **dict.fromkeys(_ANIMATIONS, "1")},
}
"""For each mode the settings (of the namespace `global`) it consists of."""

NAMES = ("low_power", "stay_on_while_plugged_in", *_ANIMATIONS)
READ = "; ".join(f'echo "{name}=$(settings get global {name})"' for name in NAMES)
"""Prints a line for each setting of a mode."""
_TIMEOUT_S = 60.0


class Shell(Protocol):
    """A shell on the phone, in which a lost phone is an exception."""

    def run(self, argv: list[str], *, timeout: float) -> Completed:
        """Run one program there, each word as it is."""


@dataclass(frozen=True, slots=True)
class Restored:
    """What became of the settings: put back, or left because somebody else had changed them meanwhile."""

    back: tuple[Change, ...] = ()
    left: tuple[tuple[Change, str | None], ...] = ()
    """Each with the value it was found with."""

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(
            f"{change.name} was set to {_shown(found)} by somebody else meanwhile and was left so; before it "
            f"was {_shown(change.before)}"
            for change, found in self.left
        )


def parse_settings(text: str) -> dict[str, str | None]:
    """The settings that `READ` printed; None is one that has no value. What is not told is not in it."""
    found: dict[str, str | None] = {}
    for line in text.splitlines():
        name, sign, value = line.strip().partition("=")
        # A service that is not up yet answers with a sentence.
        if sign and name in NAMES and re.fullmatch(r"[\w.-]{1,32}", value):
            found[name] = None if value == "null" else value
    return found


def read_settings(shell: Shell, title: str) -> dict[str, str | None]:
    """Every setting of a mode, as it is now."""
    found = parse_settings(shell.run(["sh", "-c", READ], timeout=_TIMEOUT_S).stdout)
    if lacking := [name for name in NAMES if name not in found]:
        raise SetupError(
            f"{title} does not tell its setting {lacking[0]}",
            "unlock it, wait until it has started, try again",
        )
    return found


def changes_for(mode: PowerMode, now: Mapping[str, str | None]) -> tuple[Change, ...]:
    """What has to be set for `mode`."""
    return tuple(
        Change(name, now[name], value) for name, value in MODES[mode].items() if not _same(now[name], value)
    )


def set_all(shell: Shell, changes: Iterable[Change], title: str) -> None:
    """Make `changes`, and see that they hold."""
    changes = tuple(changes)
    said = [_put(shell, change.name, change.value) for change in changes]
    now = read_settings(shell, title)
    if refused := [change for change in changes if not _same(now[change.name], change.value)]:
        why = next((text for text in said if text), f"it stays {_shown(now[refused[0].name])}")
        raise SetupError(
            f"{title} does not let adb set {listing(change.name for change in refused)} ({why})",
            "allow it in the developer options (some makers call it USB debugging (Security settings) or "
            'Disable permission monitoring), or set power_mode to "leave"',
        )


def put_back(shell: Shell, changes: Iterable[Change], title: str) -> Restored:
    """Undo `changes` wherever nobody else has changed the same setting, and see that it holds."""
    changes = tuple(changes)
    now = read_settings(shell, title)
    ours = tuple(change for change in changes if _same(now[change.name], change.value))
    left = tuple(
        (change, now[change.name])
        for change in changes
        if change not in ours and not _same(now[change.name], change.before)
    )
    for change in ours:
        _put(shell, change.name, change.before)
    after = read_settings(shell, title) if ours else now
    if wrong := [change for change in ours if not _same(after[change.name], change.before)]:
        raise SetupError(
            f"{title} did not take back {wrong[0].name}: it is {_shown(after[wrong[0].name])}",
            f"set it to {_shown(wrong[0].before)} by hand",
        )
    return Restored(ours, left)


def _put(shell: Shell, name: str, value: str | None) -> str:
    """Give a setting a value or, with None, none; what the phone says to that."""
    words = ["delete", "global", name] if value is None else ["put", "global", name, value]
    done = shell.run(["settings", *words], timeout=_TIMEOUT_S)
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
    return lines[0][:120] if lines else f"exit status {done.returncode}"


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
