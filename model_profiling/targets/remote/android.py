"""A phone over adb, by USB or the network."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from model_profiling.core import process
from model_profiling.core.errors import InputError, SetupError
from model_profiling.core.formatting import printable
from model_profiling.runner.fetching import fix_for
from model_profiling.runner.machine import (
    DeviceState,
    MachineAnswers,
    MachineFacts,
    PlatformName,
    TargetChoice,
)
from model_profiling.targets.power_mode import PowerSettings
from model_profiling.targets.remote import RemoteTarget
from model_profiling.targets.remote.shell import meaning_of

# The first with a separate exit status, standard error and end of input, and with device names.
_OLDEST = 28
_ANSWER_S = 30.0
_STATES = (
    (
        "^unauthorized|device unauthorized",
        "has not allowed debugging from here",
        "unlock its screen and allow USB debugging",
    ),
    (
        "^authorizing|device still authorizing",
        "is still deciding whether to allow debugging",
        "look at its screen, then try again",
    ),
    (
        "^offline|device offline",
        "does not answer adb",
        "unplug it and plug it in again, or switch USB debugging off and on",
    ),
    (
        "^no permissions|insufficient permissions",
        "may not be used by this user",
        "give yourself access to it (udev rules)",
    ),
    ("device '.*' not found|no devices/emulators found", "is no longer connected", "plug it in again"),
)
"""Of devices that adb lists, and of its error messages."""


@dataclass(frozen=True, slots=True)
class Adb:
    path: Path
    version: str

    def run(self, *words: str, timeout: float = _ANSWER_S) -> process.Completed:
        return process.run([self.path, *words], timeout=timeout)

    def devices(self) -> dict[str, str]:
        done = self.run("devices")
        if not done.ok:
            raise SetupError(
                f"`adb devices` failed: {printable(done.tail(1)) or 'no answer in time'}", "adb kill-server"
            )
        lines = [line.partition("\t") for line in done.stdout.splitlines() if "\t" in line]
        return {serial.strip(): state.strip() for serial, _, state in lines}


def find_adb() -> Adb:
    """Return the first adb that is new enough, from PATH or the Android SDK."""
    cure = fix_for("adb")
    sdks = [os.environ[name] for name in ("ANDROID_HOME", "ANDROID_SDK_ROOT") if os.environ.get(name)]
    installed = [shutil.which("adb"), *(shutil.which("adb", path=f"{sdk}/platform-tools") for sdk in sdks)]
    refused = []
    for path in filter(None, installed):
        answer = process.run([path, "version"], timeout=_ANSWER_S)
        version = re.search(r"(?m)^Version (\d+)[\d.]*", answer.stdout)
        if answer.ok and version and int(version[1]) >= _OLDEST:
            return Adb(Path(path), version[0].removeprefix("Version "))
        problem = f"is {version[0]}, {_OLDEST} or newer is needed" if version else "is not a working adb"
        refused.append(f"{path} {problem}")
    raise SetupError(refused[0] if refused else "no adb is installed", cure)


class AdbLink:
    """The device with this serial or address, or else the only one there is."""

    def __init__(self, serial: str | None = None, address: str | None = None) -> None:
        self._named = serial or address or os.environ.get("ANDROID_SERIAL")

    @cached_property
    def adb(self) -> Adb:
        return find_adb()

    @cached_property
    def serial(self) -> str:
        """The device's serial; if none was given, there must be only one device."""
        return self._named or choose(self.adb.devices())

    @property
    def title(self) -> str:
        return f"android:{self.serial}"

    @property
    def shown(self) -> tuple[str, ...]:
        return ("adb", "-s", self.serial, "shell")

    def connect(self) -> None:
        serial = self.serial
        state = self.adb.devices().get(serial)
        # When adb's server ends it forgets network devices, and one that was away stays offline.
        if state != "device" and re.fullmatch(r".+:\d{1,5}", serial):
            if state is not None:
                self.adb.run("disconnect", serial)
            answer = self.adb.run("connect", serial)
            state = self.adb.devices().get(serial)
            if state is None:
                reason = printable(answer.tail(1)) or "no answer in time"
                raise SetupError(
                    f"adb cannot connect to {serial}: {reason}", "switch its network debugging on"
                )
        if state is None:
            others = ", ".join(f"android:{other}" for other in self.adb.devices())
            cure = f"choose from {others}" if others else "connect it with USB debugging on"
            raise SetupError(f"there is no device {serial}", cure)
        if state != "device":
            other = f"{self.title} is in state {printable(state)}"
            raise self.complaint(state) or SetupError(other, "start Android on it")
        features = self.adb.run("-s", serial, "features")
        if not features.ok:
            silent = SetupError(f"{self.title} does not answer adb", "plug it in again")
            raise self.complaint(features.stdout + features.stderr) or silent
        if "shell_v2" not in features.stdout.split():
            raise SetupError(
                f"{self.title} runs an Android that is too old", "use a device with Android 8 or newer"
            )

    def command(self, script: str) -> Sequence[str]:
        return (str(self.adb.path), "-s", self.serial, "shell", "-T", script)

    def complaint(self, message: str) -> SetupError | None:
        meaning = meaning_of(message, _STATES)
        return SetupError(f"{self.title} {meaning[0]}", meaning[1]) if meaning else None

    def close(self) -> None:
        """Do nothing: adb's server is the user's, and stays."""


def choose(devices: dict[str, str]) -> str:
    """Return the only device; one that is ready takes precedence over others."""
    ready = [serial for serial, state in devices.items() if state == "device"]
    if len(ready) > 1:
        raise InputError(
            f"adb sees {len(ready)} devices and none was chosen",
            f"name one: {' or '.join(f'android:{s}' for s in ready)}",
        )
    if not ready and not devices:
        raise SetupError(
            "adb sees no device", "connect one with USB debugging on, or name one as android:HOST:PORT"
        )
    return (ready or list(devices))[0]


# A phone's state, from its commands: untrusted text that must have the expected form.

COMMANDS = {
    "manufacturer": "getprop ro.product.manufacturer",
    "model": "getprop ro.product.model",
    "soc_maker": "getprop ro.soc.manufacturer",
    "soc_model": "getprop ro.soc.model",
    "board": "getprop ro.board.platform",
    "android": "getprop ro.build.version.release",
    "dumpsys_battery": "dumpsys battery",
    "dumpsys_thermal": "dumpsys thermalservice",
    "serial_number": "getprop ro.serialno",
}
_DISCHARGING = 3
"""BatteryManager.BATTERY_STATUS_DISCHARGING"""
# Serial numbers shared by all emulators of a version, or by all phones of a maker that sets none.
_NOBODYS = r"emulator.*|unknown|(0?123456789(abcdef)?)+|(.)\3*"


def read_device(machine: MachineAnswers) -> DeviceState:
    maker, model = _line(machine, "manufacturer"), _line(machine, "model")
    soc = " ".join(filter(None, (_line(machine, "soc_maker"), _line(machine, "soc_model"))))
    if maker and model and not model.lower().startswith(maker.lower()):
        model = f"{maker} {model}"
    return DeviceState(
        model=model,
        soc=soc or _line(machine, "board"),
        android=_line(machine, "android"),
        thermal_status=_number(r"^Thermal Status: ([0-9]{1,2})$", machine.text("dumpsys_thermal")),
    )


def device_id(machine: MachineAnswers) -> str | None:
    """Return a phone's own id, the same over any cable; None if other phones share it."""
    serial = _line(machine, "serial_number")
    if serial is None or not re.fullmatch(r"[A-Za-z0-9_.:-]{4,64}", serial):
        return None
    return None if re.fullmatch(_NOBODYS, serial, re.IGNORECASE) else serial


def _line(machine: MachineAnswers, name: str) -> str | None:
    """Return the first line, if it is short plain text."""
    first = machine.text(name).partition("\n")[0].strip()
    return first if first and len(first) <= 80 and first.isprintable() else None


def _number(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text, re.MULTILINE)
    return int(match[1]) if match else None


class AndroidTarget(RemoteTarget):
    """`android`, `android:SERIAL` or `android:HOST:PORT`."""

    platform: PlatformName = "android"
    own_commands = COMMANDS

    def __init__(self, choice: TargetChoice) -> None:
        self._link = AdbLink(choice.device, choice.remote)
        self._notes: list[str] = []
        super().__init__(choice, self._link)

    @property
    def choice(self) -> TargetChoice:
        serial = self._link.serial
        return replace(self._choice, device=None if self._choice.remote else serial)

    @property
    def _settings(self) -> PowerSettings:
        return PowerSettings(self.shell, self.name, self._own_name(self.connect()), self._notes)

    def facts(self) -> MachineFacts:
        facts, machine = super().facts(), self.connect()
        status = _number(r"^[ \t]*status: ([0-9])$", machine.text("dumpsys_battery"))
        return replace(
            facts,
            device=read_device(machine),
            on_battery=None if status is None else status == _DISCHARGING,
        )

    def _own_name(self, machine: MachineAnswers) -> str:
        return device_id(machine) or self._link.serial

    @contextmanager
    def held_ready(self) -> Iterator[None]:
        """Hold the phone alone, in the requested power mode."""
        with self._noted(), super().held_ready(), self._settings.held(self._choice.power_mode):
            yield

    def clean(self) -> bool:
        with self._noted(), self._lock.held():
            self._settings.finish_earlier()
            return self.folder.clean()

    def take_notes(self) -> tuple[str, ...]:
        notes = tuple(self._notes)
        self._notes.clear()
        return notes

    @contextmanager
    def _noted(self) -> Iterator[None]:
        """Let the notes about settings travel with an exception that ends the work."""
        try:
            yield
        except BaseException as problem:
            problem.__dict__.setdefault("__notes__", []).extend(self.take_notes())  # as add_note of 3.11 does
            raise

    def _base(self, machine: MachineAnswers) -> str:
        del machine
        return "/data/local/tmp"
