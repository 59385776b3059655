"""A phone's state from what phones print.

The answers of `dumpsys` and `settings` have the form of Android's own sources (ThermalManagerService,
SettingsService).
"""

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from model_profiling.core.formatting import no_command
from model_profiling.core.records import parse_record, record_json
from model_profiling.runner.machine import (
    DeviceState,
    cpu_name_from_proc,
)
from model_profiling.runner.machine import MachineAnswers as Answers
from model_profiling.targets import MachineFacts
from model_profiling.targets.power_mode import MODES, parse_settings
from model_profiling.targets.remote import android as phone

THERMAL = """\
IsStatusOverride: false
Thermal Status: 2
Cached temperatures:
\tTemperature{mValue=90.1, mType=0, mName=CPU0, mStatus=3}
HAL Ready: true
Current temperatures from HAL:
\tTemperature{mValue=55.25, mType=0, mName=CPU0, mStatus=1}
\tTemperature{mValue=33.0, mType=3, mName=skin, mStatus=0}
Current cooling devices from HAL:
\tCoolingDevice{mValue=0, mType=2, mName=cpu-hotplug}
"""


def said(**texts: str) -> Answers:
    return Answers({name: {"-": text} for name, text in texts.items()})


def test_answers_of_any_form_are_read_in_time() -> None:
    """A repeat that crosses lines took minutes for as many blank lines."""
    blank = "\n" * 300_000
    began = time.process_time()
    assert phone.read_device(said(dumpsys_thermal=blank)).thermal_status is None
    assert cpu_name_from_proc(blank) is None and no_command(blank) == blank
    assert time.process_time() - began < 5


def test_a_phone_as_its_services_tell_it() -> None:
    answers = said(
        manufacturer="Google\n",
        model="Pixel 9\n",
        soc_maker="Google",
        soc_model="Tensor G4",
        dumpsys_thermal=THERMAL,
        serial_number="41021FDAS0001X\n",
    )
    state = phone.read_device(answers)
    assert (state.model, state.soc, state.thermal_status) == ("Google Pixel 9", "Google Tensor G4", 2)
    assert phone.device_id(answers) == "41021FDAS0001X"


@pytest.mark.parametrize(
    "shared",
    ["0123456789ABCDEF", "123456789", "unknown", "EMULATOR35X4X10X0", "00000000", "../../x", "R", ""],
)
def test_a_number_that_other_phones_have_too_tells_nobody_apart(shared: str) -> None:
    assert phone.device_id(said(serial_number=f"{shared}\n")) is None


def test_a_phone_that_tells_nothing() -> None:
    answers = said(dumpsys_thermal="Can't find service: thermalservice")
    state = phone.read_device(answers)
    assert (state.model, state.thermal_status) == (None, None)


def test_settings_as_a_phone_prints_them() -> None:
    told = parse_settings("low_power=null\nstay_on_while_plugged_in=15\nother=1\n")
    assert told == {"low_power": None, "stay_on_while_plugged_in": "15"}
    error = "low_power=cmd: Can't find service: settings\n"
    assert parse_settings(error) == {}, "a phone that is still starting"


PHONE = MachineFacts(
    cpu="Cortex-A520 + Cortex-X4",
    machine="aarch64",
    cores=5,
    governor="walt",
    temperature_c=41.0,
    on_battery=True,
    device=DeviceState(
        model="Example One",
        soc="EX1000",
        thermal_status=0,
    ),
)


def test_the_facts_go_to_json_and_back_and_older_ones_are_read() -> None:
    told = record_json(PHONE)
    assert parse_record(MachineFacts, told, "x", "") == PHONE
    older = {name: value for name, value in told.items() if name != "device"}
    assert parse_record(MachineFacts, older, "x", "") == replace(PHONE, device=None)


def test_the_page_s_adb_lines_are_those_of_the_power_modes() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/android.md").read_text(encoding="utf-8")
    lines = re.findall(r"(?m)^adb shell settings put global (\w+) (\d+)$", page)
    modes = [dict(MODES["boost"]), dict(MODES["app"])]
    assert [dict(lines[:5]), dict(lines[5:])] == modes and len(lines) == 10
