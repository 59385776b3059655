"""Reads a phone's state from what its files and commands print: untrusted text, of which only what has the
expected form counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from model_profiling.targets.device import clusters, settings
from model_profiling.targets.device.records import Battery, DeviceState, Gauge

Texts = Mapping[str, Mapping[str, str]]
"""For each name below, what a file or a command said, by the file's path."""

FILES = {
    **clusters.FILES,
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
    "settings": settings.READ,
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
# Serial numbers that every emulator of a version has, or every phone of a maker who gives none.
_NOBODYS = r"emulator.*|unknown|(0?123456789(abcdef)?)+|(.)\3*"
_COLDEST_C, _HOTTEST_C = -40.0, 150.0
# The thermal zones and sensors that are on the CPUs or the chip they are on, by the names makers give them.
_ON_CHIP = re.compile(r"cpu|soc|tsens|cluster|apc[0-9]|^(big|mid|little)\b", re.IGNORECASE)


def read_device(texts: Texts) -> DeviceState:
    """What `texts` say of a phone."""
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
        settings=settings.parse_settings(_text(texts, "settings")),
        boot_id=_line(texts, "boot"),
    )


def device_id(texts: Texts) -> str | None:
    """What a phone calls itself, by whichever cable it is reached; None where others are called the same."""
    said = _line(texts, "serial_number")
    if said is None or not re.fullmatch(r"[A-Za-z0-9_.:-]{4,64}", said):
        return None
    return None if re.fullmatch(_NOBODYS, said, re.IGNORECASE) else said


def gauge_of(texts: Texts) -> Gauge | str:
    """The files of the fuel gauge, or why what it tells is not what the phone uses."""
    status = (_battery(texts) or Battery()).status
    if status != "discharging":
        what = f"the phone is {status}" if status else "the phone does not say whether it is charging"
        return f"{what}: its fuel gauge tells what it uses only while it runs from the battery alone"
    current, voltage = (next(iter(texts.get(f"gauge_{name}", {})), None) for name in ("current", "voltage"))
    if current is None or amperes(_text(texts, "gauge_current")) is None:
        return "the phone's fuel gauge tells adb no current"
    if voltage is None or volts(_text(texts, "gauge_voltage")) is None:
        return "the phone's fuel gauge tells adb no voltage"
    return Gauge(current, voltage)


def temperature(state: DeviceState) -> float | None:
    """The one temperature of a phone: of the chip's sensors the hottest, else of all, else the battery's."""
    on_chip = [value for name, value in state.temperatures_c.items() if _ON_CHIP.search(name)]
    hottest = max(on_chip or state.temperatures_c.values(), default=None)
    return hottest if hottest is not None or state.battery is None else state.battery.temperature_c


def on_battery(state: DeviceState) -> bool | None:
    """Whether the battery is being drained."""
    if state.battery is None or state.battery.status is None:
        return None
    return state.battery.status == "discharging"


def amperes(text: str) -> float | None:
    """A fuel gauge's current, without its sign. Linux wants microamperes; some makers give milliamperes, and
    so few microamperes no phone draws that is awake."""
    if not re.fullmatch(r"-?[0-9]{1,9}", text.strip()):
        return None
    value = abs(int(text))
    amps = value / 1e6 if value >= 15_000 else value / 1e3
    return amps if 0.005 < amps < 15 else None


def volts(text: str) -> float | None:
    """A battery's voltage, from microvolts or from millivolts; a phone has one cell, or two in a row."""
    if not re.fullmatch(r"[0-9]{1,9}", text.strip()):
        return None
    return next((int(text) / unit for unit in (1e6, 1e3) if 2.5 < int(text) / unit < 10), None)


def _battery(texts: Texts) -> Battery | None:
    said = _text(texts, "dumpsys_battery")
    level, scale = (_number(rf"^\s*{name}: ([0-9]{{1,4}})$", said) for name in ("level", "scale"))
    percent = 100 * level / scale if level is not None and scale else None
    if percent is None:
        percent = _number(r"^([0-9]{1,3})$", _text(texts, "gauge_percent"))
    told = re.search(r"(?m)^\s*status: ([0-9])$", said)
    status = _STATUS.get(_text(texts, "gauge_status")) or _STATUS.get(told[1] if told else "")
    tenths = _number(r"^\s*temperature: (-?[0-9]{1,4})$", said)
    voltage = re.search(r"(?m)^\s*voltage: ([0-9]{1,7})$", said)
    found = Battery(
        percent=percent if percent is not None and percent <= 100 else None,
        status=status,
        temperature_c=_plausible(tenths / 10) if tenths is not None else None,
        current_a=amperes(_text(texts, "gauge_current")),
        voltage_v=volts(_text(texts, "gauge_voltage")) or volts(voltage[1] if voltage else ""),
    )
    return found if found != Battery() else None


def _temperatures(texts: Texts) -> dict[str, float]:
    """Every sensor that tells a temperature a phone can have, by its name; of namesakes the hottest."""
    found: dict[str, float] = {}
    types = {_folder(path): text.strip() for path, text in texts.get("zone_type", {}).items()}
    for path, text in texts.get("zone", {}).items():
        name = types.get(_folder(path)) or _folder(path).rpartition("/")[2]
        if re.fullmatch(r"-?[0-9]{1,7}", text.strip()) and re.fullmatch(r"[\w.,:/ -]{1,60}", name):
            # Linux wants thousandths of a degree; some drivers give degrees.
            value = int(text) / 1000 if abs(int(text)) > _HOTTEST_C else float(text)
            _keep_hottest(found, name, value)
    said = _text(texts, "dumpsys_thermal")
    # What the sensors say now, where the service tells that apart from what it remembers.
    said = said.partition("Current temperatures from HAL:")[2].partition("Current cooling")[0] or said
    for value, name in _SENSOR.findall(said):
        _keep_hottest(found, name, float(value))
    return found


def _keep_hottest(found: dict[str, float], name: str, value: float) -> None:
    if _plausible(value) is not None:
        found[name] = max(value, found.get(name, value))


def _plausible(value: float) -> float | None:
    # Sensors that are switched off say 0, or something no phone survives.
    return value if _COLDEST_C < value < _HOTTEST_C and value != 0 else None


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _text(texts: Texts, name: str) -> str:
    return next(iter(texts.get(name, {}).values()), "").strip()


def _line(texts: Texts, name: str) -> str | None:
    """One short line of plain text."""
    first = _text(texts, name).partition("\n")[0].strip()
    return first if first and len(first) <= 80 and first.isprintable() else None


def _number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text, re.MULTILINE)
    return int(found[1]) if found else None
