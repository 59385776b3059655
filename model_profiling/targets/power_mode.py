"""Sets a phone's power mode during a measurement and restores the settings afterwards. A file here says what
was set, from before the first change until all is restored: after a killed run or a lost phone, the next run
or `sme2prof clean` on that phone finishes the work."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal

from model_profiling.core.errors import ProfilingError, SetupError
from model_profiling.core.formatting import listing
from model_profiling.core.records import read_record, write_record
from model_profiling.core.stdio import defer_signals
from model_profiling.runner.cache import state_root
from model_profiling.runner.machine import PowerMode, place_of
from model_profiling.targets.remote.shell import Shell

# Android settings of the namespace `global`: battery saver, screen sleep and animations. Clock frequencies
# are not among them: the shell of an ordinary phone may not set them.
_ANIMATIONS = ("window_animation_scale", "transition_animation_scale", "animator_duration_scale")
MODES: Mapping[PowerMode, Mapping[str, str]] = {
    "leave": {},
    # 15: stay awake on any kind of power (mains 1, USB 2, wireless 4, dock 8).
    "boost": {"low_power": "0", "stay_on_while_plugged_in": "15", **dict.fromkeys(_ANIMATIONS, "0")},
    "app": {"low_power": "0", "stay_on_while_plugged_in": "1", **dict.fromkeys(_ANIMATIONS, "1")},
}
NAMES = tuple(MODES["boost"])
READ = f'for name in {" ".join(NAMES)}; do echo "$name=$(settings get global $name)"; done'
"""Prints a line for each setting of a mode."""
FIX = "remove the file after setting the phone's settings by hand"


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A power mode that was set, or about to be set, on the phone with this id; `before` are the values that
    its settings had (None for none)."""

    device: str
    mode: PowerMode
    since: str
    before: Mapping[str, str | None]
    schema_version: Literal[1] = 1


def parse_settings(text: str) -> dict[str, str | None]:
    """Return the settings that `READ` printed; None means no value. A setting not printed is left out."""
    settings: dict[str, str | None] = {}
    for line in text.splitlines():
        name, sign, value = line.strip().partition("=")
        # A service that is not up yet answers with a sentence.
        if sign and name in NAMES and re.fullmatch(r"[\w.-]{1,32}", value):
            # Android writes a scale of 1 as 1 or as 1.0.
            settings[name] = None if value == "null" else value.removesuffix(".0")
    return settings


@dataclass(frozen=True, slots=True)
class PowerSettings:
    """The power settings of one phone, which the caller must hold alone; `device` identifies it over any
    cable, `notes` is what the user should know of them."""

    shell: Shell
    title: str
    device: str
    notes: list[str] = field(default_factory=list)

    @property
    def _record(self) -> Path:
        return state_root() / "devices" / f"{place_of(self.device)}.json"

    @contextlib.contextmanager
    def held(self, mode: PowerMode) -> Iterator[None]:
        """Set `mode` during the block and restore the settings afterwards; wait for a phone that is lost."""
        self._try(lambda: self.shell.repeat(self.finish_earlier))
        try:
            if mode != "leave":
                self.shell.repeat(lambda: self._begin(mode))
            yield
        except BaseException:
            self._try(self._restore)  # now or later: it may be the phone that is gone
            raise
        self._try(lambda: self.shell.repeat(self._restore))

    def _try(self, restore: Callable[[], object]) -> None:
        """Restore the settings; if that fails or is interrupted, leave it to the next run, with a note."""
        try:
            restore()
        except (ProfilingError, KeyboardInterrupt) as problem:
            later = "the next run on it, or sme2prof clean, does that"
            why = str(problem) or "interrupted"
            self.notes.append(f"the power settings of {self.title} are not put back yet ({later}): {why}")
            if isinstance(problem, KeyboardInterrupt):
                raise

    def finish_earlier(self) -> None:
        """Restore what an interrupted run left set."""
        if earlier := self._restore():
            self.notes.append(
                f"a run of {earlier.since} in power mode {earlier.mode} was cut short: what it had set on "
                f"{self.title} ({listing(earlier.before)}) is back as it was"
            )

    def _begin(self, mode: PowerMode) -> None:
        self._restore()  # if the phone was lost halfway
        before = self._read()
        wanted = {name: value for name, value in MODES[mode].items() if before[name] != value}
        since = datetime.now(timezone.utc).isoformat(timespec="seconds")
        write_record(
            self._record, Unfinished(self.device, mode, since, {name: before[name] for name in wanted})
        )
        # It must be on disk before the phone is touched, whatever happens to this machine.
        with self._record.open("rb") as written:
            os.fsync(written.fileno())
        self._apply(wanted)

    def _restore(self) -> Unfinished | None:
        """Undo the recorded changes that nobody changed since; return them, or None if there are none."""
        if not self._record.exists():
            return None
        unfinished = read_record(Unfinished, self._record, FIX)
        with defer_signals():  # an interrupt waits: nobody else would restore them
            now, ours = self._read(), MODES[unfinished.mode]
            own = {name: value for name, value in unfinished.before.items() if now[name] == ours[name]}
            self._apply(own)
            self._record.unlink(missing_ok=True)
        return unfinished

    def _read(self) -> dict[str, str | None]:
        settings = parse_settings(self.shell.run(["sh", "-c", READ]).stdout)
        if lacking := [name for name in NAMES if name not in settings]:
            raise SetupError(
                f"{self.title} does not report its setting {lacking[0]}",
                "unlock it, wait until it has started, try again",
            )
        return settings

    def _apply(self, values: Mapping[str, str | None]) -> None:
        """Set (or, with None, delete) settings; raise an error if the phone keeps other values."""
        complaint = ""
        for name, value in values.items():
            words = ["delete", "global", name] if value is None else ["put", "global", name, value]
            done = self.shell.run(["settings", *words])
            complaint = complaint if done.ok else f"{done.stdout}\n{done.stderr}".strip()
        now = self._read()
        if refused := [name for name, value in values.items() if now[name] != value]:
            why = complaint.partition("\n")[0][:120] or f"it stays {now[refused[0]] or 'not set'}"
            raise SetupError(
                f"{self.title} does not let adb set {listing(refused)} ({why})",
                "allow it in the developer options (some makers call it USB debugging (Security settings) or "
                'Disable permission monitoring), or set power_mode to "leave"',
            )
