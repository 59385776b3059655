"""Reads a phone's state from its files and commands: untrusted text that must have the expected form."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

from model_profiling.core.formatting import plural
from model_profiling.runner.machine import CPU_FILES, Battery, DeviceState, Energy, Gauge
from model_profiling.targets import power_mode

Texts = Mapping[str, Mapping[str, str]]
"""For each name below, the content of a file or the output of a command, by path."""

FILES = {
    **CPU_FILES,
    "zone": "/sys/class/thermal/thermal_zone*/temp",
    "zone_type": "/sys/class/thermal/thermal_zone*/type",
    "gauge_status": "/sys/class/power_supply/battery/status",
    "gauge_percent": "/sys/class/power_supply/battery/capacity",
    "gauge_current": "/sys/class/power_supply/battery/current_now",
    "gauge_voltage": "/sys/class/power_supply/battery/voltage_now",
    "boot": "/proc/sys/kernel/random/boot_id",
}
COMMANDS = {
    "manufacturer": "getprop ro.product.manufacturer",
    "model": "getprop ro.product.model",
    "soc_maker": "getprop ro.soc.manufacturer",
    "soc_model": "getprop ro.soc.model",
    "board": "getprop ro.board.platform",
    "android": "getprop ro.build.version.release",
    "dumpsys_battery": "dumpsys battery",
    "dumpsys_thermal": "dumpsys thermalservice",
    "settings": power_mode.READ,
    "serial_number": "getprop ro.serialno",
}

# BatteryManager.BATTERY_STATUS_* and the kernel's words for the same.
_Status = Literal["charging", "discharging", "not charging", "full"]
_STATUS: dict[str, _Status] = {
    "2": "charging", "3": "discharging", "4": "not charging", "5": "full",
    "Charging": "charging", "Discharging": "discharging", "Not charging": "not charging", "Full": "full",
}  # fmt: skip
_SENSOR = re.compile(
    r"Temperature\{mValue=(-?[0-9]{1,4}(?:\.[0-9]{1,8})?), mType=-?[0-9]+, mName=([\w.-]{1,60}),"
)
# Serial numbers shared by all emulators of a version, or by all phones of a maker that sets none.
_NOBODYS = r"emulator.*|unknown|(0?123456789(abcdef)?)+|(.)\3*"
_COLDEST_C, _HOTTEST_C = -40.0, 150.0
# Makers' names for thermal zones and sensors on the CPUs or their chip.
_ON_CHIP = re.compile(r"cpu|soc|tsens|cluster|apc[0-9]|^(big|mid|little)\b", re.IGNORECASE)


def read_device(texts: Texts) -> DeviceState:
    maker, model = _line(texts, "manufacturer"), _line(texts, "model")
    soc = " ".join(filter(None, (_line(texts, "soc_maker"), _line(texts, "soc_model"))))
    if maker and model and not model.lower().startswith(maker.lower()):
        model = f"{maker} {model}"
    return DeviceState(
        model=model,
        soc=soc or _line(texts, "board"),
        android=_line(texts, "android"),
        battery=_battery(texts),
        temperatures_c=_temperatures(texts),
        thermal_status=_number(r"^Thermal Status: ([0-9]{1,2})$", _text(texts, "dumpsys_thermal")),
        settings=power_mode.parse_settings(_text(texts, "settings")),
        boot_id=_line(texts, "boot"),
    )


def device_id(texts: Texts) -> str | None:
    """Return a phone's own id, the same over any cable; None if other phones share it."""
    said = _line(texts, "serial_number")
    if said is None or not re.fullmatch(r"[A-Za-z0-9_.:-]{4,64}", said):
        return None
    return None if re.fullmatch(_NOBODYS, said, re.IGNORECASE) else said


def gauge_of(texts: Texts) -> Gauge | str:
    """Return the fuel gauge's files, or why its readings would not be the phone's power use."""
    status = (_battery(texts) or Battery()).status
    if status != "discharging":
        what = f"the phone is {status}" if status else "the phone does not say whether it is charging"
        return f"{what}: its fuel gauge shows what it uses only while it runs on battery"
    current, voltage = (next(iter(texts.get(f"gauge_{name}", {})), None) for name in ("current", "voltage"))
    if current is None or amperes(_text(texts, "gauge_current")) is None:
        return "the phone's fuel gauge reports no current to adb"
    if voltage is None or volts(_text(texts, "gauge_voltage")) is None:
        return "the phone's fuel gauge reports no voltage to adb"
    return Gauge(current, voltage)


def temperature(state: DeviceState) -> float | None:
    """Return the hottest sensor on the chip, else the hottest of all, else the battery's."""
    on_chip = [value for name, value in state.temperatures_c.items() if _ON_CHIP.search(name)]
    hottest = max(on_chip or state.temperatures_c.values(), default=None)
    return hottest if hottest is not None or state.battery is None else state.battery.temperature_c


def on_battery(state: DeviceState) -> bool | None:
    if state.battery is None or state.battery.status is None:
        return None
    return state.battery.status == "discharging"


def amperes(text: str) -> float | None:
    """Return a fuel gauge's current in amperes, unsigned. Linux specifies microamperes; a number too small
    for a phone that is awake is in milliamperes, as some makers give it."""
    if not re.fullmatch(r"-?[0-9]{1,9}", text.strip()):
        return None
    value = abs(int(text))
    amps = value / 1e6 if value >= 15_000 else value / 1e3
    return amps if 0.005 < amps < 15 else None


def volts(text: str) -> float | None:
    """Return a battery's voltage from microvolts or millivolts; a phone has one cell, or two in series."""
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()):
        return None
    return next((int(text) / unit for unit in (1e6, 1e3) if 2.5 < int(text) / unit < 10), None)


def _battery(texts: Texts) -> Battery | None:
    said = _text(texts, "dumpsys_battery")
    level, scale = (_number(rf"^[ \t]*{name}: ([0-9]{{1,4}})$", said) for name in ("level", "scale"))
    percent = 100 * level / scale if level is not None and scale else None
    if percent is None:
        percent = _number(r"^([0-9]{1,3})$", _text(texts, "gauge_percent"))
    told = re.search(r"(?m)^[ \t]*status: ([0-9])$", said)
    status = _STATUS.get(_text(texts, "gauge_status")) or _STATUS.get(told[1] if told else "")
    tenths = _number(r"^[ \t]*temperature: (-?[0-9]{1,4})$", said)
    voltage = re.search(r"(?m)^[ \t]*voltage: ([0-9]{1,7})$", said)
    found = Battery(
        percent=percent if percent is not None and percent <= 100 else None,
        status=status,
        temperature_c=_plausible(tenths / 10) if tenths is not None else None,
        current_a=amperes(_text(texts, "gauge_current")),
        voltage_v=volts(_text(texts, "gauge_voltage")) or volts(voltage[1] if voltage else ""),
    )
    return found if found != Battery() else None


def _temperatures(texts: Texts) -> dict[str, float]:
    """Return every sensor with a plausible temperature, by name; the hottest of those with the same name."""
    found: dict[str, float] = {}
    types = {_folder(path): text.strip() for path, text in texts.get("zone_type", {}).items()}
    for path, text in texts.get("zone", {}).items():
        name = types.get(_folder(path)) or _folder(path).rpartition("/")[2]
        if re.fullmatch(r"-?[0-9]{1,7}", text.strip()) and re.fullmatch(r"[\w.,:/ -]{1,60}", name):
            # Linux specifies thousandths of a degree; some drivers give degrees.
            value = int(text) / 1000 if abs(int(text)) > _HOTTEST_C else float(text)
            _keep_hottest(found, name, value)
    said = _text(texts, "dumpsys_thermal")
    # Prefer the current readings, if the service lists them apart from cached ones.
    said = said.partition("Current temperatures from HAL:")[2].partition("Current cooling")[0] or said
    for value, name in _SENSOR.findall(said):
        _keep_hottest(found, name, float(value))
    return found


def _keep_hottest(found: dict[str, float], name: str, value: float) -> None:
    if _plausible(value) is not None:
        found[name] = max(value, found.get(name, value))


def _plausible(value: float) -> float | None:
    # Sensors that are off report 0, or an impossible value.
    return value if _COLDEST_C < value < _HOTTEST_C and value != 0 else None


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _text(texts: Texts, name: str) -> str:
    return next(iter(texts.get(name, {}).values()), "").strip()


def _line(texts: Texts, name: str) -> str | None:
    """Return the first line, if it is short plain text."""
    first = _text(texts, name).partition("\n")[0].strip()
    return first if first and len(first) <= 80 and first.isprintable() else None


def _number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text, re.MULTILINE)
    return int(found[1]) if found else None


# The energy of an inference: the fuel gauge is read while one program runs by itself. A gauge measures the
# whole phone, screen and radio included, a few times a second at best. So a program runs for many seconds,
# and the error comes from how much the readings differ.

ENDING = "_gauge.txt"
"""The suffix of a job's file with the readings."""
_PERIOD_S = 0.2
# A gauge averages over about the last second, so its first readings are from before.
_SETTLING_S = 2.0
_FEWEST = 5
# Two-sided 95% of Student's t for 4, 5, ... degrees of freedom; beyond that the last one is close enough.
_T_95 = (2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110)


def metered(argv: Sequence[str], gauge: Gauge, file: str) -> tuple[str, ...]:
    """Wrap `argv` so that the gauge is read into `file` while it runs; the last line has the end time."""
    # The shell's own `read` starts no process, so that the meter uses little energy itself.
    script = (
        '{ while :; do read -r u x </proc/uptime; read -r c <"$1"; read -r v <"$2"; echo "$u $c $v"; '
        f'sleep {_PERIOD_S}; done >"$3" 2>/dev/null & }}; m=$!; f=$3; shift 3; '
        '"$@"; s=$?; read -r u x </proc/uptime; kill $m; wait $m 2>/dev/null; echo "end $u" >>"$f"; exit $s'
    )
    return ("sh", "-c", script, "sh", gauge.current, gauge.voltage, file, *argv)


def most_bytes(limit_s: float) -> int:
    return 64 * math.ceil(2 * limit_s / _PERIOD_S) + (64 << 10)


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of the gauge: the raw texts and their values."""

    uptime_s: float
    current: str
    voltage: str
    amperes: float
    volts: float

    @property
    def watts(self) -> float:
        return self.amperes * self.volts


@dataclass(frozen=True, slots=True)
class Metered:
    """The readings of a gauge while a program ran, whose inferences came last."""

    readings: tuple[Reading, ...]
    end_s: float | None
    busy_s: float

    def counts(self, reading: Reading) -> bool:
        """Whether the reading covers the inferences alone."""
        return (
            self.end_s is not None
            and self.end_s - self.busy_s + _SETTLING_S <= reading.uptime_s <= self.end_s
        )


def read_metered(text: str, iterations_ns: Sequence[int]) -> Metered:
    ended = re.search(r"(?m)^end ([0-9]{1,9}\.[0-9]{1,4})$", text)
    found: list[Reading] = []
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and re.fullmatch(r"[0-9]{1,9}\.[0-9]{1,4}", words[0]):
            current, voltage, at = amperes(words[1]), volts(words[2]), float(words[0])
            # Skip readings whose time does not advance.
            later = not found or at > found[-1].uptime_s
            if current is not None and voltage is not None and later:
                found.append(Reading(at, words[1], words[2], current, voltage))
    return Metered(tuple(found), float(ended[1]) if ended else None, sum(iterations_ns) / 1e9)


def energy_of(metered: Metered, inferences: int) -> Energy:
    end, busy_s = metered.end_s, metered.busy_s
    if end is None or not inferences:
        return Energy(reason="the readings of the fuel gauge are incomplete")
    powers = [(reading.uptime_s, reading.watts) for reading in metered.readings if metered.counts(reading)]
    # A repeated value is not a new reading of the gauge.
    different = [watts for watts, _ in groupby(watts for _, watts in powers)]
    if len(different) < _FEWEST:
        told = plural(len(different), "different reading")
        return Energy(
            readings=len(different),
            reason=f"the fuel gauge gave {told} in {busy_s:.0f} s, {_FEWEST} are needed",
        )
    held = [(later - at, watts) for (at, watts), (later, _) in pairwise([*powers, (end, 0.0)])]
    mean = sum(lasted * watts for lasted, watts in held) / sum(lasted for lasted, _ in held)
    count = len(different)
    t = _T_95[min(count - _FEWEST, len(_T_95) - 1)]
    error = t * statistics.stdev(different) / math.sqrt(count)
    seconds = busy_s / inferences
    return Energy(
        joules=mean * seconds,
        low=max(mean - error, 0.0) * seconds,
        high=(mean + error) * seconds,
        watts=mean,
        readings=len(different),
    )


def readings_csv(metered: Metered, inferences: int) -> str:
    """Return all readings as CSV, so that the energy can be recomputed; the last line is the end."""
    lines = ["uptime_s,current,voltage,amperes,volts,counted,inferences,busy_s"]
    lines += [
        f"{reading.uptime_s:.2f},{reading.current},{reading.voltage},{reading.amperes:.6f},{reading.volts:.6f},"
        f"{int(metered.counts(reading))},,"
        for reading in metered.readings
    ]
    if metered.end_s is not None:
        lines.append(f"{metered.end_s:.2f},,,,,,{inferences},{metered.busy_s:.6f}")
    return "\n".join(lines) + "\n"
