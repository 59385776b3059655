"""The phone other tests use is a phone: what adb sees of it, how it fails, and that nothing of it remains."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import ROOT
from virtual_phone import VirtualPhone

from model_profiling.core import process


def test_the_recipe_for_phones_collects_what_it_asks_for(arm_phone: VirtualPhone, tmp_path: Path) -> None:
    """What a person with a phone on which something fails is asked to send us."""
    phone = arm_phone
    page = (ROOT / "docs/how-to/android.md").read_text()
    (line,) = re.findall(r"(?ms)^(sme2prof doctor > phone_report\.txt 2>&1\nadb shell .*? 2>&1)$", page)
    line = line.replace("sme2prof", f"{shlex.quote(sys.executable)} -m model_profiling", 1)
    line = line.replace("adb shell", f"{shlex.quote(str(phone.server.adb_path))} -s {phone.serial} shell")
    env = {**phone.server.environment, "PYTHONPATH": str(ROOT)}
    collected = process.run(["bash", "-c", line], timeout=120, cwd=tmp_path, env=env)
    assert not collected.timed_out and not collected.stderr
    report = (tmp_path / "phone_report.txt").read_text()
    for told in (
        f"34.0.5 at {phone.server.adb_path}",
        phone.serial,
        "Virtual 1",
        "CPU implementer",
        "cpu_capacity",
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
