"""The file tree of a virtual phone: an Android-like root with no /lib, commands that answer from files, and a
/sys of plain files that a test can change.

What the commands print has the form of the Android Open Source Project's: `getprop` (toolbox), `settings`
(SettingsProvider), `svc power` (PowerCommand), `dumpsys battery` (BatteryService), `dumpsys thermalservice`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from virtual_phone_parts import Parts

SHELL_UID = 2000

_GETPROP = """\
props=/data/props
if [ $# -eq 0 ]; then
  while IFS='=' read -r name value; do echo "[$name]: [$value]"; done < $props
  exit 0
fi
while IFS='=' read -r name value; do
  if [ "$name" = "$1" ]; then echo "$value"; exit 0; fi
done < $props
echo "${2:-}"
"""

# A test makes `refused` to be a phone that lets nobody change settings.
_SETTINGS = """\
verb=$1 folder=/data/settings/$2 name=$3 value=$4
deny() { echo "Security exception: Permission denial: writing to settings requires:\\
android.permission.WRITE_SECURE_SETTINGS" >&2; exit 255; }
[ "$verb" != get ] && [ "$verb" != list ] && [ -e /data/settings/refused ] && deny
[ -d "$folder" ] || { echo "Invalid namespace '$2'" >&2; exit 255; }
case $verb in
  get) if [ -f "$folder/$name" ]; then cat "$folder/$name"; else echo null; fi ;;
  put) echo "$value" > "$folder/$name.new" && mv -f "$folder/$name.new" "$folder/$name" ;;
  delete) if rm "$folder/$name" 2>&-; then echo "Deleted 1 rows"; else echo "Deleted 0 rows"; fi ;;
  list) for file in "$folder"/*; do [ -f "$file" ] && echo "${file##*/}=$(cat "$file")"; done; true ;;
  *) echo "Invalid command: $verb" >&2; exit 255 ;;
esac
case $verb in put | delete) while [ -e /data/held/settings ]; do sleep 0.05; done ;; esac
"""

_SVC = """\
[ "$1 $2" = "power stayon" ] || { echo "Unknown command: $*" >&2; exit 1; }
case $3 in
  true) on=15 ;; false) on=0 ;; ac) on=1 ;; usb) on=2 ;; wireless) on=4 ;; dock) on=8 ;; *) exit 1 ;;
esac
exec /system/bin/settings put global stay_on_while_plugged_in $on
"""

_DUMPSYS = """\
if [ -f "/data/dumpsys/$1" ]; then cat "/data/dumpsys/$1"; exit 0; fi
echo "Can't find service: $1"
exit 20
"""

# What is sent comes from standard input, and what is fetched are files of a job; both can be held halfway.
_CAT = """\
held=
[ $# = 0 ] && [ -f /proc/$$/fd/1 ] && held=/data/held/sent
case "$#$1" in 1*/jobs/*/*) held=/data/held/fetched ;; esac
if [ -e "$held" ]; then head -c 1000 "$@"; while [ -e "$held" ]; do sleep 0.05; done; fi
exec %s cat "$@"
"""

_UNAME = """\
[ "$*" = -m ] && { echo aarch64; exit 0; }
exec %s uname "$@"
"""

BATTERY = """\
Current Battery Service state:
  AC powered: false
  USB powered: true
  Wireless powered: false
  Dock powered: false
  Max charging current: 500000
  Max charging voltage: 5000000
  Charge counter: 3460000
  status: 2
  health: 2
  present: true
  level: 87
  scale: 100
  voltage: 4312
  temperature: 312
  technology: Li-ion
"""

THERMAL = """\
IsStatusOverride: false
ThermalEventListeners:
	callbacks: 1
	killed: false
	broadcasts count: -1
Thermal Status: 0
Cached temperatures:
	Temperature{mValue=41.2, mType=0, mName=CPU0, mStatus=0}
	Temperature{mValue=31.2, mType=2, mName=battery, mStatus=0}
	Temperature{mValue=34.5, mType=3, mName=skin, mStatus=0}
HAL Ready: true
"""

# Three clusters where the machine has CPUs enough: capacity and highest frequency (kHz) of each.
_CLUSTERS = ((300, 1_900_000), (760, 2_900_000), (1024, 3_700_000))


def make_root(root: Path, parts: Parts, properties: Mapping[str, str], *, owner: int) -> None:
    """A phone that was never switched on, in the empty folder `root`; its shell is the user `owner`."""
    for name in ("system/bin", "data/local/tmp", "proc", "dev", "apex", "etc"):
        (root / name).mkdir(parents=True)
    (root / "bin").symlink_to("system/bin")
    (root / "system/bin/sh").write_bytes((parts.runtime / "sh").read_bytes())
    toybox = f"/apex/{parts.loader} --library-path /apex /apex/toybox"
    commands = {
        name: f'exec {toybox} {name} "$@"\n' for name in parts.applets if name not in ("[", "sh", "reboot")
    }
    commands |= {"getprop": _GETPROP, "settings": _SETTINGS, "svc": _SVC, "dumpsys": _DUMPSYS}
    commands |= {"cat": _CAT % toybox, "uname": _UNAME % toybox}
    for name, script in commands.items():
        (root / "system/bin" / name).write_text(f"#!/system/bin/sh\n{script}")
    for path in (root / "system/bin").iterdir():
        path.chmod(0o755)
    (root / "etc/passwd").write_text(f"shell:x:{SHELL_UID}:{SHELL_UID}::/:/system/bin/sh\n")
    (root / "etc/group").write_text(f"shell:x:{SHELL_UID}:\n")
    (root / "data/props").write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    for name in ("system", "secure", "global"):
        (root / "data/settings" / name).mkdir(parents=True)
    (root / "data/dumpsys").mkdir()
    (root / "data/held").mkdir()
    (root / "data/dumpsys/battery").write_text(BATTERY)
    (root / "data/dumpsys/thermalservice").write_text(THERMAL)
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
