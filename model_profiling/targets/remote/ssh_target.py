"""An Arm Linux machine over ssh: a board, a server."""

from __future__ import annotations

from model_profiling.errors import InputError, SetupError
from model_profiling.targets.protocol import TargetChoice
from model_profiling.targets.remote.facts import Machine
from model_profiling.targets.remote.ssh import SshLink
from model_profiling.targets.remote.target import RemoteTarget


class SshTarget(RemoteTarget):
    """`ssh:HOST`."""

    def __init__(self, choice: TargetChoice) -> None:
        if not choice.host:
            raise InputError(
                "target ssh names no host", "write ssh:HOST, as ssh's config or the network knows it"
            )
        super().__init__(choice, SshLink(choice.host))

    def connect(self) -> Machine:
        machine = super().connect()
        system = machine.text("system")
        if not system.startswith("Linux"):
            raise SetupError(
                f"{self.name} runs {system or 'no system that says its name'}, not Linux",
                "name an Arm Linux machine",
            )
        return machine

    def _base(self, machine: Machine) -> str:
        home = machine.text("home")
        if not home.startswith("/"):
            raise SetupError(f"{self.name} does not say where its cache folder is", "name one as device_path")
        return home
