"""A real sshd on 127.0.0.1, with keys and a config of its own, that belongs to the test that started it."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import arm_programs
import psutil
from debian_programs import unpack_closure
from held_port import HeldPort

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.runner import fetching
from model_profiling.runner.cache import cache_root, cached

_FORMS = Path(__file__).with_name("data") / "ssh"
# The server ends when standard input does, however the test process came to its end.
_TETHERED = """\
exec 3<&0
"$@" </dev/null 3<&- & server=$!
{ cat <&3 >/dev/null; kill -s KILL $server; } &
wait $server
"""
# Here sshd is started as an ordinary user, also by root: as root it wants a user and a folder of its own and
# more rights than a user namespace has. Mounts are seen by nobody else, and what is mounted later is not seen
# here. In a process namespace all that it has started ends with it.
_OWN_NAMESPACES = ("--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
_WITH_USERS = 'mount --bind "$0" /etc/passwd && exec "$@"'


def find_sshd() -> tuple[Path, Path]:
    """The server and the folder with libraries it may need: the installed one, or the distribution's
    unpacked."""
    if found := shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"):
        return Path(found), Path("/nonexistent")
    archive = fetching.own_archive("install openssh-server")

    def make(into: Path) -> None:
        with fetching.packages_of(archive, "install openssh-server") as packages:
            unpack_closure(packages, ["openssh-server"], into / "unpacked", into / "lib")

    home = cached(cache_root() / "tests" / f"{archive.suite}-sshd", make, "openssh-server", fetch=True)
    return home / "unpacked/usr/sbin/sshd", home / "lib"


@dataclass
class SshServer:
    """`ssh` is the client's command that reaches it; any host name is this server, unless the config says
    more. With `qemu`, on a machine that is not aarch64 itself, aarch64 programs run under it behind the
    server."""

    folder: Path
    qemu: Path | None = None
    commands: Path | None = None
    """A folder in the PATH behind the server."""
    _child: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _port: HeldPort = field(default_factory=HeldPort, init=False)
    _closed: HeldPort = field(default_factory=HeldPort, init=False)

    def __post_init__(self) -> None:
        for name in ("host_key", "user_key", "other_key", "other_host"):
            process.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name], timeout=30)
        port, closed = self._port.number, self._closed.number
        user = pwd.getpwuid(os.getuid()).pw_name
        words = [f"{name}={value}" for name, value in arm_programs.ENVIRONMENT.items()]
        words = words if self.qemu else []
        words += [f"PATH={self.commands}:/usr/bin:/bin"] if self.commands else []
        environment = f"SetEnv {' '.join(words)}" if words else ""
        values = {"port": port, "closed": closed, "user": user, "folder": self.folder}
        for file in ("sshd_config", "config"):
            form = (_FORMS / file).read_text()
            (self.folder / file).write_text(form.format(**values, environment=environment))
        for file, key in (("known_hosts", "host_key"), ("changed", "other_host")):
            public = (self.folder / f"{key}.pub").read_text()
            (self.folder / file).write_text(f"[127.0.0.1]:{port} {public}")

    @property
    def ssh(self) -> str:
        return f"ssh -F {self.folder / 'config'}"

    def start(self) -> None:
        sshd, libraries = find_sshd()
        command = ["sh", "-c", _TETHERED, "sh", "env", f"LD_LIBRARY_PATH={libraries}", str(sshd)]
        command += ["-D", "-e", "-f", str(self.folder / "sshd_config")]
        if os.getuid() == 0 or self.qemu:
            command = self._in_namespaces(command)
        with (self.folder / "sshd.log").open("ab") as log:
            self._child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        until = time.monotonic() + 60
        while time.monotonic() < until and self._child.poll() is None:
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", self._port.number)) == 0:
                    return
            time.sleep(0.05)
        said = (self.folder / "sshd.log").read_text().splitlines()
        self.stop()
        raise SetupError(f"sshd does not start: {said[-1] if said else 'it says nothing'}", "run as root")

    def _in_namespaces(self, command: list[str]) -> list[str]:
        user = pwd.getpwuid(os.getuid())
        uid, users = user.pw_uid or 1000, self.folder / "passwd"
        # Not the user's own shell: bash reads ~/.bashrc for every command, which can wait for anything.
        users.write_text(f"{user.pw_name}:x:{uid}:{uid}::{user.pw_dir}:/bin/sh\n")
        own = ["unshare", *_OWN_NAMESPACES, "sh", "-c", _WITH_USERS, str(users)]
        if self.qemu:
            own += [sys.executable, "-S", arm_programs.__file__, str(self.qemu)]
        return [*own, "unshare", "--user", f"--map-user={uid}", f"--map-group={uid}", *command]

    def cut(self) -> None:
        """Kill every connection, and leave the server to take new ones."""
        assert self._child is not None
        started = psutil.Process(self._child.pid).children(recursive=True)
        servers = [each for each in started if "sshd" in _name(each)]
        for one in servers[1:]:  # the first has started the others
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()

    def stop(self) -> None:
        """The server and every connection."""
        if self._child is not None:
            if self._child.poll() is None:
                self.cut()
            self._child.communicate(timeout=20)
            self._child = None


def sshd(folder: Path, qemu: Path | None = None) -> SshServer:
    """One that runs; a test that cannot have it is skipped."""
    from conftest import missing

    folder.mkdir(exist_ok=True)
    try:
        server = SshServer(folder, qemu)
        server.start()
    except SetupError as problem:
        missing(str(problem))
        raise
    return server


def _name(one: psutil.Process) -> str:
    try:
        return one.name()
    except psutil.NoSuchProcess:
        return ""
