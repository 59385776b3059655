"""Reads a phone's state from its files and commands: untrusted text that must have the expected form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from model_profiling.runner.machine import CPU_FILES, Battery, DeviceState
from model_profiling.targets import power_mode

Texts = Mapping[str, Mapping[str, str]]
"""For each name below, the content of a file or the output of a command, by path."""

FILES = {
    **CPU_FILES,
    "zone": "/sys/class/thermal/thermal_zone*/temp",
    "zone_type": "/sys/class/thermal/thermal_zone*/type",
    "battery_status": "/sys/class/power_supply/battery/status",
    "battery_percent": "/sys/class/power_supply/battery/capacity",
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
    serial = _line(texts, "serial_number")
    if serial is None or not re.fullmatch(r"[A-Za-z0-9_.:-]{4,64}", serial):
        return None
    return None if re.fullmatch(_NOBODYS, serial, re.IGNORECASE) else serial


def temperature(state: DeviceState) -> float | None:
    """Return the hottest sensor on the chip, else the hottest of all, else the battery's."""
    on_chip = [value for name, value in state.temperatures_c.items() if _ON_CHIP.search(name)]
    hottest = max(on_chip or state.temperatures_c.values(), default=None)
    return hottest if hottest is not None or state.battery is None else state.battery.temperature_c


def on_battery(state: DeviceState) -> bool | None:
    if state.battery is None or state.battery.status is None:
        return None
    return state.battery.status == "discharging"


def _battery(texts: Texts) -> Battery | None:
    answer = _text(texts, "dumpsys_battery")
    level, scale = (_number(rf"^[ \t]*{name}: ([0-9]{{1,4}})$", answer) for name in ("level", "scale"))
    percent = 100 * level / scale if level is not None and scale else None
    if percent is None:
        percent = _number(r"^([0-9]{1,3})$", _text(texts, "battery_percent"))
    code = re.search(r"(?m)^[ \t]*status: ([0-9])$", answer)
    status = _STATUS.get(_text(texts, "battery_status")) or _STATUS.get(code[1] if code else "")
    tenths = _number(r"^[ \t]*temperature: (-?[0-9]{1,4})$", answer)
    battery = Battery(
        percent=percent if percent is not None and percent <= 100 else None,
        status=status,
        temperature_c=_plausible(tenths / 10) if tenths is not None else None,
    )
    return battery if battery != Battery() else None


def _temperatures(texts: Texts) -> dict[str, float]:
    """Return every sensor with a plausible temperature, by name; the hottest of those with the same name."""
    hottest: dict[str, float] = {}
    types = {_folder(path): text.strip() for path, text in texts.get("zone_type", {}).items()}
    for path, text in texts.get("zone", {}).items():
        name = types.get(_folder(path)) or _folder(path).rpartition("/")[2]
        if re.fullmatch(r"-?[0-9]{1,7}", text.strip()) and re.fullmatch(r"[\w.,:/ -]{1,60}", name):
            # Linux specifies thousandths of a degree; some drivers give degrees.
            value = int(text) / 1000 if abs(int(text)) > _HOTTEST_C else float(text)
            _keep_hottest(hottest, name, value)
    answer = _text(texts, "dumpsys_thermal")
    # Prefer the current readings, if the service lists them apart from cached ones.
    answer = answer.partition("Current temperatures from HAL:")[2].partition("Current cooling")[0] or answer
    for value, name in _SENSOR.findall(answer):
        _keep_hottest(hottest, name, float(value))
    return hottest


def _keep_hottest(hottest: dict[str, float], name: str, value: float) -> None:
    if _plausible(value) is not None:
        hottest[name] = max(value, hottest.get(name, value))


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
    match = re.search(pattern, text, re.MULTILINE)
    return int(match[1]) if match else None
