"""The file tree of a virtual phone: an Android-like root with no /lib, commands that answer from files, and a
/sys of plain files that a test can change.

What the commands print has the form of the Android Open Source Project's: `getprop` (toolbox), `settings`
(SettingsProvider), `svc power` (PowerCommand), `dumpsys battery` (BatteryService), `dumpsys thermalservice`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from virtual_phone_parts import Parts

SHELL_UID = 2000
_TEXTS = Path(__file__).with_name("data") / "virtual_phone"

# Three clusters where the machine has CPUs enough: capacity and highest frequency (kHz) of each.
_CLUSTERS = ((300, 1_900_000), (760, 2_900_000), (1024, 3_700_000))


def make_root(root: Path, parts: Parts, properties: Mapping[str, str], *, owner: int) -> None:
    """A phone that was never switched on, in the empty folder `root`; its shell is the user `owner`."""
    for name in ("system/bin", "data/local/tmp", "proc", "dev", "apex", "etc"):
        (root / name).mkdir(parents=True)
    (root / "bin").symlink_to("system/bin")
    (root / "system/bin/sh").write_bytes((parts.runtime / "sh").read_bytes())
    toybox = f"/apex/{parts.loader} --library-path /apex /apex/toybox"
    own = {path.name: path.read_text() for path in (_TEXTS / "bin").iterdir()}
    for name in {*parts.applets, *own} - {"[", "sh", "reboot"}:
        script = own.get(name, f'#!/system/bin/sh\nexec TOYBOX {name} "$@"\n')
        (root / "system/bin" / name).write_text(script.replace("TOYBOX", toybox))
    for path in (root / "system/bin").iterdir():
        path.chmod(0o755)
    (root / "etc/passwd").write_text(f"shell:x:{SHELL_UID}:{SHELL_UID}::/:/system/bin/sh\n")
    (root / "etc/group").write_text(f"shell:x:{SHELL_UID}:\n")
    own_properties = "".join(f"{name}={value}\n" for name, value in properties.items())
    (root / "data/props").write_text((_TEXTS / "properties").read_text() + own_properties)
    for name in ("system", "secure", "global"):
        (root / "data/settings" / name).mkdir(parents=True)
    shutil.copytree(_TEXTS / "dumpsys", root / "data/dumpsys")
    (root / "data/held").mkdir()
    if owner:
        for path in (root / "data/local/tmp", *(root / "data/settings").rglob("*"), root / "data/settings"):
            os.chown(path, owner, owner)
    for path in (root, root / "data", root / "data/local", root / "system", root / "system/bin"):
        path.chmod(0o755)  # whatever the umask: another user walks through them


def fill_sys(root: Path, cpus: int) -> None:
    """What the kernel of a phone that was just switched on tells: nothing that was set before is left."""
    for name, text in _sys_files(cpus).items():
        path = root / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def _sys_files(cpus: int) -> dict[str, str]:
    cpu = "devices/system/cpu"
    every = f"0-{cpus - 1}" if cpus > 1 else "0"
    told = {f"{cpu}/{name}": every for name in ("possible", "present", "online")}
    for number in range(cpus):
        cluster = min(number * len(_CLUSTERS) // cpus, 2) if cpus > 2 else 2 * number
        capacity, highest = _CLUSTERS[cluster]
        told[f"{cpu}/cpu{number}/cpu_capacity"] = str(capacity)
        frequency = {"cpuinfo_min_freq": "400000", "scaling_min_freq": "400000", "scaling_cur_freq": "800000"}
        frequency |= {name: str(highest) for name in ("cpuinfo_max_freq", "scaling_max_freq")}
        frequency |= {"scaling_governor": "walt", "related_cpus": str(number)}
        told |= {f"{cpu}/cpu{number}/cpufreq/{name}": text for name, text in frequency.items()}
    zones = {"cpu-0-0": "41200", "battery": "31200", "skin-therm": "34500", "broken": "-274000"}
    for number, (kind, temperature) in enumerate(zones.items()):
        told[f"class/thermal/thermal_zone{number}/type"] = kind
        told[f"class/thermal/thermal_zone{number}/temp"] = temperature
    battery = {"type": "Battery", "status": "Charging", "capacity": "87", "temp": "312", "present": "1"}
    battery |= {"current_now": "-412000", "voltage_now": "4312000"}
    told |= {f"class/power_supply/battery/{name}": text for name, text in battery.items()}
    return told | {"class/power_supply/usb/type": "USB", "class/power_supply/usb/online": "1"}
