"""The phone other tests use is a phone: what adb sees of it, how it fails, and that nothing of it remains."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ROOT
from virtual_phone import AdbServer, VirtualPhone

from model_profiling.core import process

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"


def push(phone: VirtualPhone, file: Path, to: str = "/data/local/tmp/") -> int:
    return phone.server.adb("-s", phone.serial, "push", str(file), to).returncode


def test_files_go_both_ways_and_there_is_no_libc_for_them(phone: VirtualPhone, tmp_path: Path) -> None:
    sent = tmp_path / "a b;c.bin"
    sent.write_bytes(os.urandom(100_000))
    assert push(phone, sent) == 0
    back = tmp_path / "back"
    assert phone.server.adb("-s", phone.serial, "pull", f"/data/local/tmp/{sent.name}", str(back)).ok
    assert back.read_bytes() == sent.read_bytes()
    assert push(phone, Path(sys.executable).resolve(), "/data/local/tmp/program") == 0
    started = phone.shell("chmod 755 /data/local/tmp/program; /data/local/tmp/program --version")
    assert "No such file" in started.stderr, "its loader is not on the phone"
    assert "uid=2000(shell)" in phone.shell("id").stdout or phone.shell("id -u").stdout == "0\n"


def test_settings_are_kept_over_a_reboot_and_the_kernel_forgets(phone: VirtualPhone) -> None:
    before = phone.shell(BOOT_ID).stdout
    phone.shell("settings put global low_power 0; svc power stayon true")
    phone.write("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance")
    phone.reboot()
    assert phone.settings() == {"low_power": "0", "stay_on_while_plugged_in": "15"}
    assert phone.shell("settings get global never_set").stdout == "null\n"
    assert phone.shell(BOOT_ID).stdout not in (before, "")
    assert phone.shell("cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").stdout == "walt\n"
    phone.refuse_settings()
    assert "WRITE_SECURE_SETTINGS" in phone.shell("settings put global low_power 1").stderr


@pytest.mark.parametrize(("fault", "lives_on"), [("kill_adbd", True), ("pull_out", False)])
def test_what_runs_on_a_phone_that_vanishes(phone: VirtualPhone, fault: str, lives_on: bool) -> None:
    """adbd hangs up on what it has started when the cable is pulled, and cannot when it is killed itself."""
    sleeping = threading.Thread(target=phone.shell, args=("exec sleep 60",))
    sleeping.start()
    while not any("sleep 60" in words for words in phone.processes()):
        time.sleep(0.02)
    getattr(phone, fault)()
    sleeping.join(timeout=20)
    assert not sleeping.is_alive(), "adb noticed"
    assert phone.state() != "device"
    phone.plug_in()
    deadline = time.monotonic() + 10  # hanging up takes a moment
    while (found := any("sleep 60" in words for words in phone.processes())) != lives_on:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    assert phone.shell("echo back").stdout == "back\n"


def test_a_frozen_phone_hangs_until_it_is_thawed(phone: VirtualPhone) -> None:
    phone.freeze()
    assert phone.shell("true", timeout=1).timed_out
    phone.thaw()
    assert phone.shell("echo warm").stdout == "warm\n"


def test_a_small_disk_is_full_soon_and_a_slow_link_slow(phone: VirtualPhone, tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.write_bytes(os.urandom(300_000))
    phone.slow_link(500_000)
    began = time.monotonic()
    assert push(phone, big) == 0
    assert time.monotonic() - began > 0.4
    phone.slow_link(None)
    phone.small_disk("200k")
    assert push(phone, big) != 0


def test_two_phones_are_two_and_survive_the_servers_crash(
    adb: AdbServer, phones: Callable[..., VirtualPhone]
) -> None:
    one, other = phones("One"), phones("Other", rootless=True)
    one.shell("settings put global low_power 1")
    assert (one.settings(), other.settings()) == ({"low_power": "1"}, {})
    adb.kill()
    for phone, model in ((one, "One"), (other, "Other")):
        phone.plug_in()
        assert phone.shell("getprop ro.product.model").stdout == f"{model}\n"
    assert one.shell(BOOT_ID).stdout != other.shell(BOOT_ID).stdout


def test_the_recipe_for_phones_collects_what_it_asks_for(arm_phone: VirtualPhone, tmp_path: Path) -> None:
    """What a person with a phone on which something fails is asked to send us."""
    phone = arm_phone
    page = (ROOT / "docs/android.md").read_text()
    (line,) = re.findall(r"(?m)^(sme2prof doctor .*> phone_report\.txt) 2>&1$", page)
    line = line.replace("sme2prof", f"{shlex.quote(sys.executable)} -m model_profiling", 1)
    env = {**phone.server.environment, "PYTHONPATH": str(ROOT)}
    collected = process.run(["bash", "-c", line], timeout=120, cwd=tmp_path, env=env)
    assert not collected.timed_out and not collected.stderr
    report = (tmp_path / "phone_report.txt").read_text()
    for told in (
        f"34.0.5 at {phone.server.adb_path}",
        phone.serial,
        "ro.product.model=Virtual 1",
        "CPU implementer",
        "cpu_capacity",
        "current_now",
        "low_power=null",
    ):
        assert told in report, told
    assert "Thermal Status: 0" in report and "level: 87" in report and "target android" in report


_MAKE_ONE = """
import os, sys, time
from pathlib import Path
from virtual_phone import AdbServer, VirtualPhone
server = AdbServer(Path(sys.argv[1]) / "adb")
phone = VirtualPhone(server, Path(sys.argv[1]) / "phone")
server.kill()
phone.plug_in()  # by a server that adb has started of itself
print("there", flush=True)
time.sleep(600)
"""


@pytest.mark.usefixtures("phone")  # where there can be none, this is skipped too
def test_nothing_of_it_remains_when_its_maker_is_killed(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    own = tmp_path / "killed"
    command = [sys.executable, "-c", _MAKE_ONE, str(own)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env, text=True) as maker:
        assert maker.stdout is not None
        assert maker.stdout.readline() == "there\n"
        assert _alive(own)
        maker.send_signal(signal.SIGKILL)
    limit = time.monotonic() + 20
    while (alive := _alive(own)) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not alive
    assert str(own) not in Path("/proc/mounts").read_text()


def _alive(named: Path) -> list[str]:
    """Processes that were told of `named` by their command line or their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes()
            told = words + (folder / "environ").read_bytes()
        except OSError:
            continue
        if str(named).encode() in told and folder.name != str(os.getpid()):
            found.append(words.replace(b"\0", b" ").decode(errors="replace"))
    return found
