"""A power mode for the length of a measurement, and the end of one that was cut short earlier."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from model_profiling import signals
from model_profiling.errors import ProfilingError, SetupError
from model_profiling.targets.device.in_use import MachineLock
from model_profiling.targets.device.power_journal import PowerJournal, Unfinished
from model_profiling.targets.device.settings import (
    Restored,
    Shell,
    changes_for,
    put_back,
    read_settings,
    set_all,
)
from model_profiling.targets.protocol import PowerMode
from model_profiling.wording import listing

# Whoever reaches a phone first puts things back; whoever writes a report, or answers the user, says so.
_NOTES: dict[str, list[str]] = {}


def take_untold() -> tuple[str, ...]:
    """What was done to settings of phones and nobody has said: a command that fails says it last."""
    said = tuple(note for notes in _NOTES.values() for note in notes)
    _NOTES.clear()
    return said


@dataclass(frozen=True, slots=True)
class PowerSettings:
    """The power settings of one phone."""

    shell: Shell
    title: str
    device: str

    @property
    def notes(self) -> list[str]:
        """What a person should know of what was done to them, and has not been told yet."""
        return _NOTES.setdefault(self.device, [])

    @property
    def _journal(self) -> PowerJournal:
        return PowerJournal(self.device)

    def finish_earlier(self) -> None:
        """Put back what a run that was cut short has left set. What cannot be put back now is said, and is no
        reason not to use the phone."""
        lock = MachineLock(self.title, (self.device,))
        if not self._journal.path.exists() or lock.is_held():
            return  # nothing was left, or it belongs to a run that is at work
        try:
            with lock.held():
                self._finish_earlier()
        except ProfilingError as problem:
            self.notes.append(f"settings of an earlier power mode are not put back yet: {problem}")

    @contextlib.contextmanager
    def held(self, mode: PowerMode, again: Callable[[Callable[[], None]], None]) -> Iterator[None]:
        """Set `mode` for the length of the block; the caller has the phone alone. However that ends,
        everything is put back or, where the phone is gone, will be by whoever reaches it next. `again`
        repeats a step that loses the phone."""
        if mode == "leave":
            yield
            return
        again(self._finish_earlier)
        try:
            again(lambda: self._begin(mode))
            yield
        except BaseException as problem:
            # Who interrupts a second time ends nothing earlier, and is told the same.
            with contextlib.suppress(ProfilingError, KeyboardInterrupt):
                self._end()
            if self._journal.path.exists() and isinstance(problem, KeyboardInterrupt):
                raise self._interrupted() from problem
            if self._journal.path.exists() and isinstance(problem, ProfilingError):
                raise SetupError(
                    f"{problem.problem}; its power settings could not be put back",
                    "; ".join(filter(None, (problem.fix, "the next command that reaches it puts them back"))),
                ) from problem
            raise
        try:
            again(self._end)
        except KeyboardInterrupt as problem:
            if self._journal.path.exists():
                raise self._interrupted() from problem
            raise
        except ProfilingError as problem:
            # What was measured is whole; whoever reaches the phone next puts them back.
            self.notes.append(f"the power settings are not put back yet: {problem}")

    def _interrupted(self) -> KeyboardInterrupt:
        return KeyboardInterrupt(
            f"the power settings of {self.title} are still to be put back: the next command that reaches it "
            "does that"
        )

    def _begin(self, mode: PowerMode) -> None:
        earlier = self._journal.read()
        if earlier is not None:  # the phone was lost in the middle of this: begin as if nothing had been
            put_back(self.shell, earlier.changes, self.title)
        changes = changes_for(mode, read_settings(self.shell, self.title))
        if not changes:
            return
        since = datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._journal.write(Unfinished(self.device, mode, since, changes))
        set_all(self.shell, changes, self.title)

    def _end(self) -> None:
        unfinished = self._journal.read()
        if unfinished is None:
            return
        self.notes.extend(self._put_back(unfinished).notes)

    def _put_back(self, unfinished: Unfinished) -> Restored:
        with signals.put_off():
            restored = put_back(self.shell, unfinished.changes, self.title)
            self._journal.remove()
        return restored

    def _finish_earlier(self) -> None:
        unfinished = self._journal.read()
        if unfinished is None:
            return
        restored = self._put_back(unfinished)
        if restored.back:
            names = listing(change.name for change in restored.back)
            self.notes.append(
                f"a run of {unfinished.since} in power mode {unfinished.mode} was cut short: what it had set "
                f"on {self.title} ({names}) is back as it was"
            )
        self.notes.extend(restored.notes)
