"""The phone other tests use is a phone: what adb sees of it, how it fails, and that nothing of it remains."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

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
