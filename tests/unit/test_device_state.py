"""A phone's state from what phones print.

The answers of `dumpsys` and `settings` have the form of Android's own sources (ThermalManagerService,
SettingsService).
"""

import time

from model_profiling.core.formatting import no_command
from model_profiling.runner.machine import MachineAnswers as Answers
from model_profiling.runner.machine import cpu_name_from_proc
from model_profiling.targets.power_mode import parse_settings
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


def test_what_a_phone_prints_is_read_in_time_whatever_it_is() -> None:
    """A repeat that crosses lines took minutes for as many blank lines."""
    blank = "\n" * 300_000
    began = time.process_time()
    assert phone.read_device(said(dumpsys_thermal=blank)).thermal_status is None
    assert cpu_name_from_proc(blank) is None and no_command(blank) == blank
    assert time.process_time() - began < 5
    told = parse_settings("low_power=null\nstay_on_while_plugged_in=15\nother=1\n")
    assert told == {"low_power": None, "stay_on_while_plugged_in": "15"}
    error = "low_power=cmd: Can't find service: settings\n"
    assert parse_settings(error) == {}, "a phone that is still starting"


def test_a_phone_as_its_services_tell_it() -> None:
    answers = said(
        manufacturer="Google\n", model="Pixel 9\n", soc_maker="Google", soc_model="Tensor G4",
        dumpsys_thermal=THERMAL, serial_number="41021FDAS0001X\n",
    )  # fmt: skip
    state = phone.read_device(answers)
    assert (state.model, state.soc, state.thermal_status) == ("Google Pixel 9", "Google Tensor G4", 2)
    assert phone.device_id(answers) == "41021FDAS0001X"
    silent = phone.read_device(said(dumpsys_thermal="Can't find service: thermalservice"))
    assert (silent.model, silent.thermal_status) == (None, None)


def test_a_number_that_other_phones_have_too_tells_nobody_apart() -> None:
    usual = ("0123456789ABCDEF", "123456789", "unknown", "EMULATOR35X4X10X0", "00000000", "../../x", "R", "")
    for shared in usual:
        assert phone.device_id(said(serial_number=f"{shared}\n")) is None, shared
