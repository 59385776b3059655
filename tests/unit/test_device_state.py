"""A phone's state from what phones print.

The figures of the three clusters are the Huawei Mate 20's, as pytorch/cpuinfo records them (test/mock/
huawei-mate-20.h); the answers of `dumpsys` and `settings` have the form of Android's own sources
(BatteryService, ThermalManagerService, SettingsService).
"""

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from said import refused, says

from model_profiling.core.errors import InputError
from model_profiling.core.formatting import no_command, ranges
from model_profiling.core.records import parse_record, record_json
from model_profiling.report.data import machine_rows
from model_profiling.runner.machine import (
    Battery,
    Cluster,
    DeviceState,
    cpu_name_from_proc,
    cpus_of_cluster,
    find_clusters,
)
from model_profiling.runner.machine import Machine as Answers
from model_profiling.runs.manifest import Machine
from model_profiling.targets import MachineFacts
from model_profiling.targets.power_mode import MODES, parse_settings
from model_profiling.targets.remote import android as phone

CPU = "/sys/devices/system/cpu/cpu{}/{}"


def cpu_files(name: str, values: dict[int, object]) -> dict[str, str]:
    return {CPU.format(cpu, name): f"{value}\n" for cpu, value in values.items()}


def highest(*khz: int) -> dict[str, dict[str, str]]:
    return {"highest_khz": cpu_files("cpufreq/cpuinfo_max_freq", dict(enumerate(khz)))}


MATE_20 = highest(*[1_805_000] * 4, *[1_920_000] * 2, *[2_600_000] * 2)


def test_three_kinds_of_cpu_are_little_big_and_prime() -> None:
    texts = MATE_20 | {
        "cpu_governor": cpu_files("cpufreq/scaling_governor", {0: "schedutil", 1: "schedutil"}),
    }
    found = find_clusters(texts, {0: "Cortex-A55", 4: "Cortex-A76", 7: "Cortex-A76"})
    assert [(each.name, each.cpus, each.highest_khz, each.cpu) for each in found] == [
        ("little", (0, 1, 2, 3), 1_805_000, "Cortex-A55"),
        ("big", (4, 5), 1_920_000, "Cortex-A76"),
        ("prime", (6, 7), 2_600_000, "Cortex-A76"),
    ]
    assert found[0].governor == "schedutil" and found[1].governor is None
    texts = highest(2_000_000, 2_000_000) | {"capacity": cpu_files("cpu_capacity", {0: 400, 1: 1024})}
    assert [each.cpus for each in find_clusters(texts)] == [(0,), (1,)]


@pytest.mark.parametrize(
    ("khz", "little", "big", "prime"),
    [
        ((1_800_000, 2_800_000), (0,), (1,), (1,)),
        ((1, 2, 3), (0,), (1,), (2,)),
        ((1, 2, 3, 4, 4), (0,), (1, 2), (3, 4)),
    ],
)
def test_what_the_names_mean(khz, little, big, prime):
    found = find_clusters(highest(*khz))
    said = tuple(cpus_of_cluster(found, name, "x") for name in ("little", "big", "prime"))
    assert said == (little, big, prime)


@pytest.mark.parametrize("texts", [highest(5, 5), {}], ids=["all alike", "nothing known"])
def test_a_cluster_that_is_not_there_is_named(texts: dict[str, dict[str, str]]) -> None:
    with refused(InputError, "android:1", "big"):
        cpus_of_cluster(find_clusters(texts), "big", "android:1")


@pytest.mark.parametrize("junk", ["", "nan", "-1", "99999999999999999999", "5; reboot", "0x10", "٣"])
def test_what_is_no_number_is_not_told(junk: str) -> None:
    assert find_clusters({"highest_khz": {CPU.format(0, "cpufreq/cpuinfo_max_freq"): junk}}) == ()


BATTERY = """\
Current Battery Service state:
  AC powered: false
  USB powered: true
  status: 2
  health: 2
  present: true
  level: 43
  scale: 50
  voltage: 4312
  temperature: 312
  technology: Li-ion
"""
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
    assert phone.read_device(said(dumpsys_battery=blank, dumpsys_thermal=blank)).battery is None
    assert cpu_name_from_proc(blank) is None and no_command(blank) == blank
    assert time.process_time() - began < 5


def test_a_phone_as_its_services_tell_it() -> None:
    answers = said(
        manufacturer="Google\n",
        model="Pixel 9\n",
        soc_maker="Google",
        soc_model="Tensor G4",
        dumpsys_battery=BATTERY,
        dumpsys_thermal=THERMAL,
        serial_number="41021FDAS0001X\n",
    )
    state = phone.read_device(answers)
    assert (state.model, state.soc, state.thermal_status) == ("Google Pixel 9", "Google Tensor G4", 2)
    assert state.battery == Battery(86.0, "charging", 31.2)
    assert phone.temperature(answers) == 55.25, "the chip's, now"
    hot = THERMAL.replace("mName=CPU0", "mName=usb").replace("mValue=33.0", "mValue=-274.0")
    assert phone.temperature(said(dumpsys_thermal=hot)) == 55.25, "any, if none is the chip's"
    assert phone.device_id(answers) == "41021FDAS0001X"


@pytest.mark.parametrize(
    "shared",
    ["0123456789ABCDEF", "123456789", "unknown", "EMULATOR35X4X10X0", "00000000", "../../x", "R", ""],
)
def test_a_number_that_other_phones_have_too_tells_nobody_apart(shared: str) -> None:
    assert phone.device_id(said(serial_number=f"{shared}\n")) is None


def test_a_phone_that_tells_nothing() -> None:
    answers = said(dumpsys_battery="Can't find service: battery")
    state = phone.read_device(answers)
    assert (state.model, state.battery, state.thermal_status) == (None, None, None)
    assert phone.temperature(answers) is None


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
    clusters=(
        Cluster("little", (0, 1, 2, 3), "Cortex-A520", 300, 1_900_000, "walt"),
        Cluster("big", (4,), "Cortex-X4", 1024, 3_300_000, "walt"),
    ),
    device=DeviceState(
        model="Example One",
        soc="EX1000",
        battery=Battery(87.0, "discharging", 31.0),
        thermal_status=0,
    ),
)


def test_rows_of_a_phone_that_throttled() -> None:
    later = replace(
        PHONE,
        temperature_c=61.0,
        device=replace(PHONE.device, battery=Battery(80.0), thermal_status=3),
    )
    rows = dict(machine_rows(Machine(PHONE, later)))
    says(rows["Cluster little"], "0-3", "Cortex-A520", "1.90 GHz", "walt")
    says(rows["Cluster big"], "4", "Cortex-X4", "3.30 GHz", "walt")
    says(rows["Thermal status"], "severe at worst")
    says(rows["Temperature"], "41.0 C before", "61.0 C after")


def test_a_machine_with_one_kind_of_cpu_is_told_as_ever() -> None:
    rows = dict(machine_rows(Machine(MachineFacts(cpu="N1", governor="performance"))))
    assert rows["Clock governor"] == "performance"
    assert not {"Phone", "Battery"} & set(rows)
    assert ranges([7, 0, 1, 2, 4]) == "0-2, 4, 7"
    assert ranges([]) == ""


def test_the_facts_go_to_json_and_back_and_older_ones_are_read() -> None:
    told = record_json(PHONE)
    assert parse_record(MachineFacts, told, "x", "") == PHONE
    older = {name: value for name, value in told.items() if name not in ("clusters", "device")}
    assert parse_record(MachineFacts, older, "x", "") == replace(PHONE, clusters=(), device=None)


def test_the_page_s_adb_lines_are_those_of_the_power_modes() -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/android.md").read_text(encoding="utf-8")
    lines = re.findall(r"(?m)^adb shell settings put global (\w+) (\d+)$", page)
    modes = [dict(MODES["boost"]), dict(MODES["app"])]
    assert [dict(lines[:5]), dict(lines[5:])] == modes and len(lines) == 10
