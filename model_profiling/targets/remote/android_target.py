"""A phone over adb."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from model_profiling.targets.device import state
from model_profiling.targets.device.power_mode import PowerSettings
from model_profiling.targets.device.records import Gauge
from model_profiling.targets.protocol import MachineFacts, Platform, TargetChoice
from model_profiling.targets.remote.adb import AdbLink
from model_profiling.targets.remote.bundle import Bundle
from model_profiling.targets.remote.facts import Machine, ask_machine
from model_profiling.targets.remote.ndk import make_ndk_bundle, ndk_is_meant
from model_profiling.targets.remote.target import RemoteTarget


class AndroidTarget(RemoteTarget):
    """`android`, `android:SERIAL` or `android:HOST:PORT`."""

    platform: Platform = "android"

    def __init__(self, choice: TargetChoice) -> None:
        self._link = AdbLink(choice.serial, choice.remote)
        self._power: PowerSettings | None = None
        super().__init__(choice, self._link)

    @property
    def choice(self) -> TargetChoice:
        serial = self._link.serial
        return replace(self._choice, serial=None if self._choice.remote else serial)

    def connect(self) -> Machine:
        machine = super().connect()
        if self._power is None:
            self._power = PowerSettings(self.shell, self.name, self._own_names(machine)[0])
            self._power.finish_earlier()
        return machine

    def facts(self) -> MachineFacts:
        facts = super().facts()
        device = state.read_device(self._machine.texts if self._machine else {})
        temperature, on_battery = state.temperature(device), state.on_battery(device)
        return replace(facts, device=device, temperature_c=temperature, on_battery=on_battery)

    def gauge(self) -> Gauge | str:
        self._machine = self._ask()
        return state.gauge_of(self._machine.texts)

    def _own_names(self, machine: Machine) -> tuple[str, ...]:
        return (state.device_id(machine.texts) or self._link.serial,)

    @contextmanager
    def held_ready(self) -> Iterator[None]:
        """Have the phone alone, in the power mode that was asked for."""
        self.connect()
        if self._power is None:
            raise AssertionError("connect() makes it")

        def again(step: Callable[[], None]) -> None:
            self.shell.repeat(step)

        with super().held_ready(), self._power.held(self._choice.power_mode, again):
            yield

    def take_notes(self) -> tuple[str, ...]:
        said = tuple(self._power.notes) if self._power else ()
        if self._power:
            self._power.notes.clear()
        return said

    def _make_bundle(self) -> Bundle:
        return make_ndk_bundle() if ndk_is_meant() else super()._make_bundle()

    def _ask(self) -> Machine:
        return ask_machine(self.shell, state.FILES, state.COMMANDS)

    def _base(self, machine: Machine) -> str:
        del machine
        return "/data/local/tmp"
