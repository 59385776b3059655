"""What a phone tells of itself, for whoever has to find out why profiling it fails. Nothing is asked but what
adb's shell may read, nothing is changed, and a question without an answer does not stop the next.
"""

from __future__ import annotations

from model_profiling.errors import ProfilingError
from model_profiling.targets.device import settings
from model_profiling.targets.remote import client
from model_profiling.targets.remote.adb import AdbLink, find_adb
from model_profiling.targets.remote.folder import HOME

_ANSWER_S = 30.0
_MOST_CHARACTERS = 20_000
_TMP = "/data/local/tmp"
_CPU, _BATTERY = "/sys/devices/system/cpu/cpu*", "/sys/class/power_supply/battery"
_PROPERTIES = (
    "ro.product.manufacturer", "ro.product.model", "ro.soc.manufacturer", "ro.soc.model", "ro.board.platform",
    "ro.product.cpu.abilist", "ro.build.version.release", "ro.build.version.sdk", "ro.build.type",
)  # fmt: skip
QUESTIONS = {
    "phone": "; ".join(f'echo "{name}=$(getprop {name})"' for name in _PROPERTIES),
    "system": "uname -a; id; getenforce",
    "folder": f"ls -ldZ {_TMP} {_TMP}/{HOME}; df {_TMP}; grep ' /data' /proc/mounts",
    "cpu": "cat /proc/cpuinfo",
    "clusters": f"grep . {_CPU}/cpu_capacity {_CPU}/cpufreq/cpuinfo_max_freq {_CPU}/cpufreq/scaling_governor",
    "battery": f"grep . {_BATTERY}/*_now {_BATTERY}/status; dumpsys battery",
    "temperatures": "dumpsys thermalservice",
    "settings": settings.READ,
    "denied": "logcat -d -t 500 | grep -i 'avc: denied' | tail -20",
}
"""By title, what is asked of its shell."""


def phone_report(serial: str | None = None) -> dict[str, str]:
    """By title, what adb and the phone with this serial say, or the only phone there is."""
    adb = find_adb()
    told = {"adb": f"{adb.version} at {adb.path}", "devices": adb.run("devices", "-l").stdout.strip()}
    link = AdbLink(serial)
    try:
        link.connect()
    except ProfilingError as problem:
        return {**told, "problem": str(problem)}
    for title, question in QUESTIONS.items():
        asked = (str(adb.path), "-s", link.serial, "shell", "-n", question)
        # Through what takes no more of an endless answer than it can hold.
        ended = client.call(asked, timeout=_ANSWER_S)
        said = (ended.stdout + ended.stderr).decode("utf-8", "replace").strip()[:_MOST_CHARACTERS]
        told[title] = f"no answer within {_ANSWER_S:g} s" if ended.cut else said or "nothing"
    return told
