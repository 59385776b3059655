"""A machine behind the user's own OpenSSH client and config. It never prompts: the user sets up keys and
known hosts, and what is missing is reported in one line."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import tempfile
import weakref
from pathlib import Path

from model_profiling.core import process
from model_profiling.core.errors import InputError, SetupError
from model_profiling.runner.machine import MachineAnswers, TargetChoice
from model_profiling.targets.remote import RemoteTarget
from model_profiling.targets.remote.shell import last_line, meaning_of

# An option of ssh, or a command of its config, must not pass for a host.
_HOST = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.:@%\[\]-]*")
_OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=15",
    "ServerAliveInterval=10",
    "ServerAliveCountMax=3",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "PermitLocalCommand=no",
    "RemoteCommand=none",
    "EscapeChar=none",
    "ControlMaster=auto",
    "ControlPersist=60",
)
_CONNECT_S = 60.0
_COMPLAINTS = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED|Host key for .+ has changed",
        "the host key of {host} has changed",
        "find out why; if it is expected, ssh-keygen -R {host}, then connect by hand once: {ssh} {host}",
    ),
    (
        "Host key verification failed|No .+ host key is known",
        "the host key of {host} is not known",
        "connect once by hand and check it: {ssh} {host}",
    ),
    (
        "Permission denied|Too many authentication failures",
        "{host} does not let you in without a password",
        "give it your key (ssh-copy-id {host}), or load the key into your agent (ssh-add)",
    ),
    (
        "Could not resolve hostname",
        "there is no host {host}",
        "correct its name, or describe it in ssh's config",
    ),
    ("Connection refused", "{host} refuses connections", "start its ssh server, or correct the port"),
    (
        "Connection timed out|No route to host|Network is unreachable|Operation timed out",
        "{host} cannot be reached",
        "switch it on, and check the network",
    ),
    ("[Bb]ad configuration option|Bad owner or permissions", "ssh does not accept its config", "correct it"),
)


class SshLink:
    """One connection for every command; `ssh` is the client, with the user's options if any. OpenSSH itself
    keeps the connection open between commands, and closes it a minute after the last one."""

    def __init__(self, host: str, ssh: str | None = None) -> None:
        if not _HOST.fullmatch(host):
            raise InputError(f"{host!r} is not a host name for ssh", "write ssh:HOST or ssh:USER@HOST")
        self.host = host
        self._ssh = tuple(shlex.split(ssh or os.environ.get("SME2PROF_SSH", ""))) or ("ssh",)
        self._folder = Path(tempfile.mkdtemp(prefix="sme2prof-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    @property
    def title(self) -> str:
        return f"ssh:{self.host}"

    @property
    def shown(self) -> tuple[str, ...]:
        return (*self._ssh, self.host)

    def command(self, script: str) -> tuple[str, ...]:
        # The login shell may be any; `sh` is the same everywhere.
        return (*self._words(), "--", self.host, f"exec sh -c {shlex.quote(script)}")

    def connect(self) -> None:
        try:
            ended = process.run(self.command("echo ready"), timeout=_CONNECT_S)
        except SetupError as problem:
            cure = "install OpenSSH's client, or correct SME2PROF_SSH"
            raise SetupError(problem.problem, cure) from problem
        if "ready\n" in ended.stdout:  # a login script may write before it
            return
        raise self.complaint(ended.stderr) or SetupError(
            f"{self.host} cannot be reached: {last_line(ended.stderr) or 'it did not answer in time'}",
            f"make this work without a password: {shlex.join(self.shown)} true",
        )

    def complaint(self, message: str) -> SetupError | None:
        meaning = meaning_of(message, _COMPLAINTS, host=self.host, ssh=shlex.join(self._ssh))
        return SetupError(*meaning) if meaning else None

    def close(self) -> None:
        if any(self._folder.iterdir()):
            with contextlib.suppress(SetupError):
                process.run((*self._words(), "-O", "exit", self.host), timeout=_CONNECT_S)

    def _words(self) -> tuple[str, ...]:
        options = [word for option in _OPTIONS for word in ("-o", option)]
        return (*self._ssh, "-T", *options, "-S", f"{self._folder}/s")


class SshTarget(RemoteTarget):
    """`ssh:HOST`: an Arm Linux machine, a board or a server."""

    def __init__(self, choice: TargetChoice) -> None:
        if not choice.host:
            raise InputError(
                "target ssh names no host", "write ssh:HOST, as ssh's config or the network knows it"
            )
        super().__init__(choice, SshLink(choice.host))

    def connect(self) -> MachineAnswers:
        machine = super().connect()
        system = machine.text("system")
        if not system.startswith("Linux"):
            raise SetupError(
                f"{self.name} runs {system or 'no system that says its name'}, not Linux",
                "name an Arm Linux machine",
            )
        return machine

    def _base(self, machine: MachineAnswers) -> str:
        home = machine.text("home")
        if not home.startswith("/"):
            raise SetupError(f"{self.name} does not say where its cache folder is", "name one as device_path")
        return home
