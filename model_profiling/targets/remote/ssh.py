"""A machine behind the user's own OpenSSH client and config. It never prompts: the user sets up keys and
known hosts, and what is missing is reported in one line."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shlex
import shutil
import subprocess
import tempfile
import threading
import weakref
from pathlib import Path

from model_profiling.core.errors import InputError, SetupError
from model_profiling.core.process import BoundedOutput, Child, end, start
from model_profiling.runner.machine import TargetChoice
from model_profiling.targets.remote.facts import Machine
from model_profiling.targets.remote.shell import last_line, meaning_of
from model_profiling.targets.remote.target import RemoteTarget

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
    """One connection for every command; `ssh` is the client, with the user's options if any. The first client
    holds the connection open as long as this process lives: it reads from our pipe, and when that ends, so
    does everything behind it."""

    def __init__(self, host: str, ssh: str | None = None) -> None:
        if not _HOST.fullmatch(host):
            raise InputError(f"{host!r} is not a host name for ssh", "write ssh:HOST or ssh:USER@HOST")
        self.host = host
        self._ssh = tuple(shlex.split(ssh or os.environ.get("SME2PROF_SSH", ""))) or ("ssh",)
        self._connection: Child | None = None
        self._folder: Path | None = None
        self._end: weakref.finalize[..., SshLink] | None = None

    @property
    def title(self) -> str:
        return f"ssh:{self.host}"

    @property
    def shown(self) -> tuple[str, ...]:
        return (*self._ssh, self.host)

    def command(self, script: str) -> tuple[str, ...]:
        return (*self._words(), "-o", "ControlMaster=no", *self._there(script))

    def connect(self) -> None:
        if self._connection is not None and self._connection.poll() is None:
            return
        self.close()
        self._folder = Path(tempfile.mkdtemp(prefix="sme2prof-"))
        script = "echo ready; exec cat >/dev/null"
        holding = (*self._words(), "-M", "-o", "ControlPersist=no", *self._there(script))
        try:
            child = start(holding, fed=True)
        except SetupError as problem:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise SetupError(
                problem.problem, "install OpenSSH's client, or correct SME2PROF_SSH"
            ) from problem
        complaints = BoundedOutput()
        listening = threading.Thread(target=_listen, args=(child, complaints), daemon=True)
        listening.start()
        self._connection = child
        self._end = weakref.finalize(self, _end, child, self._folder)
        if not _says_ready(child):
            self.close()
            listening.join(timeout=2)
            said = complaints.text()
            raise self.complaint(said) or SetupError(
                f"{self.host} cannot be reached: {last_line(said) or 'it did not answer in time'}",
                f"make this work without a password: {shlex.join(self.shown)} true",
            )

    def complaint(self, said: str) -> SetupError | None:
        known = meaning_of(said, _COMPLAINTS, host=self.host, ssh=shlex.join(self._ssh))
        return SetupError(*known) if known else None

    def close(self) -> None:
        if self._end is not None:
            self._end()
        self._connection = self._end = None

    def _there(self, script: str) -> tuple[str, ...]:
        # The login shell may be any; `sh` is the same everywhere.
        return ("--", self.host, f"exec sh -c {shlex.quote(script)}")

    def _words(self) -> tuple[str, ...]:
        options = [word for option in _OPTIONS for word in ("-o", option)]
        shared = ("-S", str(self._folder / "s")) if self._folder else ("-S", "none")
        return (*self._ssh, "-T", *options, *shared)


def _listen(child: Child, complaints: BoundedOutput) -> None:
    """Keep the beginning and the end of what the client complains of: the other machine writes there too."""
    assert child.stderr is not None
    with child.stderr as pipe:
        while block := os.read(pipe.fileno(), 1 << 16):
            complaints.add(block)


def _says_ready(child: Child) -> bool:
    """Whether the other side answers in time; output of a login script before that is ignored."""
    assert child.stdout is not None
    said = b""
    with selectors.DefaultSelector() as ready:
        ready.register(child.stdout, selectors.EVENT_READ)
        while b"ready\n" not in said and len(said) < 1 << 20 and ready.select(timeout=_CONNECT_S):
            block = os.read(child.stdout.fileno(), 4096)
            if not block:
                return False
            said += block
    return b"ready\n" in said


def _end(child: Child, folder: Path) -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=2)
    end(child, with_all=False)
    shutil.rmtree(folder, ignore_errors=True)


class SshTarget(RemoteTarget):
    """`ssh:HOST`: an Arm Linux machine, a board or a server."""

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
