"""A phone over adb."""

from __future__ import annotations

from dataclasses import replace

from model_profiling.targets.protocol import Platform, TargetChoice
from model_profiling.targets.remote.adb import AdbLink
from model_profiling.targets.remote.facts import Machine
from model_profiling.targets.remote.target import RemoteTarget


class AndroidTarget(RemoteTarget):
    """`android`, `android:SERIAL` or `android:HOST:PORT`."""

    platform: Platform = "android"

    def __init__(self, choice: TargetChoice) -> None:
        self._link = AdbLink(choice.serial, choice.remote)
        super().__init__(choice, self._link)

    @property
    def choice(self) -> TargetChoice:
        serial = self._link.serial
        return replace(self._choice, serial=None if self._choice.remote else serial)

    def _base(self, machine: Machine) -> str:
        del machine
        return "/data/local/tmp"
