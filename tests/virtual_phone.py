"""Phones without a phone: real adb and a real adbd on loopback, each phone a root of its own without a libc
for what is pushed to it, and every fault that phones have.

`AdbServer` is an adb with a server, keys and a port of its own: the user's is never touched. `VirtualPhone`
is one phone. Both end with the test process, however that ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import psutil
from held_port import HeldPort
from virtual_phone_parts import Parts, phone_parts
from virtual_phone_root import SHELL_UID, fill_sys, make_root

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.runner.cache import state_root

USED = {"low_power": "1", "window_animation_scale": "0.5"}
"""Somebody's phone: some settings have a value, others never had one."""
_INIT = Path(__file__).with_name("virtual_phone_init.py")
_WRAPPER = """\
#!/bin/sh
export HOME={home} TMPDIR={home} ANDROID_ADB_SERVER_PORT={port} ADB_USB=0 ADB_EMU=0 ADB_MDNS=0
unset ADB_SERVER_SOCKET ANDROID_ADB_SERVER_ADDRESS ANDROID_SERIAL ADB_TRACE
LD_LIBRARY_PATH={libraries} exec {adb} "$@"
"""
# Waits for the end of the test process and ends the server, whoever has started it again meanwhile.
_WATCH = "cat >&2; exec {adb} kill-server"


class Link:
    """The cable of a phone: a TCP proxy on loopback; `serial` is what adb calls the phone behind it."""

    def __init__(self) -> None:
        self._held = HeldPort()
        self.serial = f"127.0.0.1:{self._held.number}"
        self._listener = socket.socket()
        self._port = 0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.passed = 0
        """Bytes that went either way since the cable was made."""

    def plug_in(self, port: int) -> None:
        """Connections go to `port` of this machine."""
        self.pull_out()
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", self._held.number), backlog=8)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def pull_out(self) -> None:
        """Every connection breaks, and none can be made."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for end in self._open:
                _shut(end)
            self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._port), timeout=5)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                with self._lock:
                    self._open |= {near, far}
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(1 << 18):
                sink.sendall(block)
                self.passed += len(block)
        for end in (source, sink):
            _shut(end)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()


class AdbServer:
    """`bin` is a folder with an `adb` that talks to this server alone: put it first on the PATH. The server
    sees no USB device and no emulator, so a phone that is really there is not disturbed."""

    def __init__(self, folder: Path) -> None:
        self.parts: Parts = phone_parts()
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        self._port = HeldPort()
        self.adb_path = self.bin / "adb"
        words = {"home": folder, "port": self._port.number, "libraries": self.parts.adb_libraries}
        self.adb_path.write_text(_WRAPPER.format(adb=self.parts.adb, **words))
        self.adb_path.chmod(0o755)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
        watch = ["sh", "-c", _WATCH.format(adb=self.adb_path)]
        self._watch = subprocess.Popen(watch, stdin=subprocess.PIPE, **quiet)
        serve = [self.adb_path, "server", "nodaemon"]
        self._server = subprocess.Popen(serve, stdin=subprocess.DEVNULL, **quiet)
        _wait_for(lambda: _listener(self._port.number) is not None, "the adb server does not start")

    def adb(self, *words: str, timeout: float = 30) -> process.Completed:
        return process.run([self.adb_path, *words], timeout=timeout)

    @property
    def environment(self) -> dict[str, str]:
        """What a process must be given to find this adb."""
        return {"PATH": f"{self.bin}:{os.environ['PATH']}"}

    def kill(self) -> None:
        """The server dies as one that crashed, not as one that was asked to end."""
        pid = _listener(self._port.number)
        assert pid is not None, "no adb server is running"
        os.kill(pid, signal.SIGKILL)
        _wait_for(lambda: self._server.poll() is not None or pid != self._server.pid, "the server lives on")

    def close(self) -> None:
        self._watch.communicate(timeout=30)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._server.wait(timeout=5)
        self._server.kill()
        self._server.wait()


class VirtualPhone:
    """One phone, switched on, and known to its adb server as `serial`.

    With `qemu`, on a machine that is not aarch64 itself, every aarch64 program runs under that emulator with
    SME2, by a binfmt_misc entry of the phone's own user namespace.
    """

    def __init__(self, server: AdbServer, folder: Path, model: str, *, qemu: Path | None = None) -> None:
        self.server = server
        self.root = folder / "root"
        self.log = folder / "adbd.log"
        self.link = Link()
        self._qemu = qemu
        self._uid = 0 if qemu is not None or os.getuid() != 0 else SHELL_UID
        self._adbd_port = 0
        self._init: subprocess.Popen[str] | None = None
        own = {"ro.product.model": model, "ro.serialno": f"VP{uuid.uuid4().hex[:10].upper()}"}
        make_root(self.root, server.parts, own, owner=self._uid)
        self.switch_on()

    @property
    def serial(self) -> str:
        return self.link.serial

    # What a person does with it.

    def switch_on(self) -> None:
        """Boot: another boot id, and what the kernel tells is as it ever was. Settings are kept."""
        fill_sys(self.root, os.cpu_count() or 1)
        (self.root / "data/boot_id").write_text(f"{uuid.uuid4()}\n")
        shown = [line for line in self.path("/data/props").read_text().splitlines() if "ro.product" in line]
        plan = {
            "root": str(self.root),
            "log": str(self.log),
            "uid": str(self._uid),
            "runtime": str(self.server.parts.runtime),
            "loader": self.server.parts.loader,
            "properties": "\n".join(shown),
            **({"qemu": str(self._qemu)} if self._qemu else {}),
        }
        private = ["--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "--propagation", "private"]
        own_user = [] if self._uid else ["--user", "--map-root-user"]
        with self.log.open("ab") as log:
            self._init = subprocess.Popen(
                ["unshare", *own_user, *private, sys.executable, "-S", str(_INIT), json.dumps(plan)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._tell("boot")
        self.plug_in()

    def switch_off(self) -> None:
        """Everything that runs on it ends at once."""
        if self._init is not None:
            self._init.communicate(timeout=30)
        self.link.pull_out()
        self._init = None
        self._adbd_port = 0

    def reboot(self) -> None:
        self.switch_off()
        self.switch_on()

    def plug_in(self, *, wait: bool = True) -> None:
        """Start adbd, if it is not running, and connect; `wait` until adb calls it a device."""
        self.link.plug_in(self._port())
        if not wait:
            return

        def answers() -> bool:
            if self.state() != "device":
                self.server.adb("disconnect", self.serial)  # one that is offline would wait its turn
                self.server.adb("connect", self.serial)
            return self.state() == "device"

        _wait_for(answers, "the virtual phone does not answer")

    def pull_out(self) -> None:
        """The cable is pulled: adbd lives on, and sends SIGHUP to what it has started."""
        self.link.pull_out()

    def state(self) -> str:
        """What adb calls it: `device`, `offline`, or nothing."""
        return self.server.adb("-s", self.serial, "get-state").stdout.strip()

    # Faults.

    def kill_adbd(self) -> None:
        """adbd crashes; what it has started lives on. `plug_in` starts another."""
        self._tell("kill")
        self.link.pull_out()
        self._adbd_port = 0

    def small_disk(self, size: str) -> None:
        """/data/local/tmp becomes an empty disk of `size` (as `2m`) until the phone is switched off."""
        self._tell("disk", size)

    def fill_disk(self, *, pages: int = 0) -> None:
        """Nothing more fits onto the small disk but so many pages of memory."""
        spare, filler = "/data/local/tmp/spare", "/data/local/tmp/filler"
        keep = f"head -c {4096 * pages} /dev/zero >{spare}"
        done = self.shell(f"{keep}; head -c 1000000000 /dev/zero >{filler}; rm {spare}; df /data/local/tmp")
        assert "No space left" in done.stderr, done

    # Its state, as nobody but a test can see and change it.

    def path(self, on_phone: str) -> Path:
        """Where a file of the phone is here (not on a small disk: that one is the phone's alone)."""
        return self.root / on_phone.lstrip("/")

    def settings(self) -> dict[str, str]:
        """Every global setting that has a value."""
        found = {}
        for path in sorted(self.path("/data/settings/global").iterdir()):
            with contextlib.suppress(FileNotFoundError):  # the phone may be changing it
                if path.suffix != ".new":
                    found[path.name] = path.read_text().strip()
        return found

    def change_setting(self, name: str, value: str | None) -> None:
        """Somebody else changes a global setting, or deletes it."""
        place = self.path(f"/data/settings/global/{name}")
        place.unlink(missing_ok=True)
        if value is not None:
            place.write_text(f"{value}\n")

    def refuse_settings(self) -> None:
        """Be a phone that lets no shell change its settings (some makers' are)."""
        self.path("/data/settings/refused").touch()

    def hold(self, what: Literal["settings", "sent", "fetched"] | None = None) -> None:
        """Be a phone that finishes no change of a setting, or no file that is sent to it or fetched from it,
        until it is let go: with something else or nothing to hold."""
        folder = self.path("/data/held")
        if what:
            (folder / what).touch()
        for mark in folder.iterdir():
            if mark.name != what:
                mark.unlink()

    def processes(self) -> list[str]:
        """The command lines of everything that runs on it besides adbd."""
        answer = self._tell("processes")
        assert isinstance(answer, list)
        return answer

    def shell(self, command: str, timeout: float = 30) -> process.Completed:
        """What a test asks on its own account, past the kit."""
        return self.server.adb("-s", self.serial, "shell", "-n", command, timeout=timeout)

    def close(self) -> None:
        """Its files are removed with it."""
        self.switch_off()
        self.server.adb("disconnect", self.serial)
        shutil.rmtree(self.root, ignore_errors=True)

    def _port(self) -> int:
        if not self._adbd_port:
            answer = self._tell("start")
            assert isinstance(answer, int)
            self._adbd_port = answer
        return self._adbd_port

    def _tell(self, *words: str) -> object:
        init = self._init
        assert init is not None and init.stdin and init.stdout, "the phone is switched off"
        with contextlib.suppress(BrokenPipeError):
            init.stdin.write(json.dumps(words) + "\n")
            init.stdin.flush()
        line = init.stdout.readline()
        said = json.loads(line) if line else {"problem": self._end_of_log()}
        if "problem" in said:
            self._init = None
            init.communicate()
            raise SetupError(f"a virtual phone cannot run here: {said['problem']}", "run the tests as root")
        return said["answer"]

    def _end_of_log(self) -> str:
        return " / ".join(self.log.read_text(errors="replace").splitlines()[-3:]) or "it said nothing"


def journals() -> list[Path]:
    """What is to be put back on phones."""
    return list((state_root() / "devices").glob("*.json"))


def _wait_for(condition: Callable[[], bool], problem: str) -> None:
    limit = time.monotonic() + 90  # a busy machine takes its time
    while not condition():
        if time.monotonic() > limit:
            raise SetupError(problem, "see its log")
        time.sleep(0.02)


def _listener(port: int) -> int | None:
    """The process that listens on a TCP port of this machine."""
    opened = psutil.net_connections("tcp4")
    return next((each.pid for each in opened if each.laddr.port == port and each.status == "LISTEN"), None)
