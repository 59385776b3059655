"""Which CPUs of a machine are of one kind, from what Linux tells of each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from model_profiling.targets.device.records import Cluster, ClusterName

FILES = {
    "capacity": "/sys/devices/system/cpu/cpu[0-9]*/cpu_capacity",
    "highest_khz": "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/cpuinfo_max_freq",
    "allowed_khz": "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_max_freq",
    "now_khz": "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq",
    "cpu_governor": "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor",
}
_MOST_CPUS = 1024
_Kind = tuple[int, int]


def find_clusters(
    texts: Mapping[str, Mapping[str, str]], parts: Mapping[int, str] | None = None
) -> tuple[Cluster, ...]:
    """The kinds of CPU, slowest first; empty where the machine does not tell how fast its CPUs are.

    `texts` holds for each of FILES' names the content of each file by its path, `parts` the CPUs' own names.
    Equal capacity and equal highest frequency make one kind. The slowest of several kinds is little, the
    fastest of three or more is prime, and all others are big.
    """
    capacity, highest = (_numbers(texts.get(name, {})) for name in ("capacity", "highest_khz"))
    kinds: dict[_Kind, list[int]] = {}
    for cpu in sorted(capacity.keys() | highest.keys()):
        kinds.setdefault((capacity.get(cpu, 0), highest.get(cpu, 0)), []).append(cpu)
    allowed, now = (_numbers(texts.get(name, {})) for name in ("allowed_khz", "now_khz"))
    governors = {
        number: text.strip()
        for path, text in texts.get("cpu_governor", {}).items()
        if (number := _cpu(path)) is not None and re.fullmatch(r"[\w-]{1,30}", text.strip())
    }
    return tuple(
        Cluster(
            name=_name(place, len(kinds)),
            cpus=tuple(cpus),
            cpu=_one_of(parts or {}, cpus),
            capacity=kind[0] or None,
            highest_khz=kind[1] or None,
            # Of a cluster in which CPUs differ for the moment, the least granted one says what it can do.
            allowed_khz=min((allowed[cpu] for cpu in cpus if cpu in allowed), default=None),
            now_khz=max((now[cpu] for cpu in cpus if cpu in now), default=None),
            governor=_one_of(governors, cpus),
        )
        for place, (kind, cpus) in enumerate(sorted(kinds.items()))
    )


def _name(place: int, kinds: int) -> ClusterName:
    if place == 0 and kinds > 1:
        return "little"
    return "prime" if place == kinds - 1 and kinds > 2 else "big"


def _one_of(said: Mapping[int, str], cpus: Sequence[int]) -> str | None:
    """What is said of these CPUs, together."""
    return " + ".join(dict.fromkeys(said[cpu] for cpu in cpus if cpu in said)) or None


def _numbers(files: Mapping[str, str]) -> dict[int, int]:
    """The number in each CPU's file."""
    found = {}
    for path, text in files.items():
        cpu = _cpu(path)
        if cpu is not None and re.fullmatch(r"[0-9]{1,9}", text.strip()) and int(text) > 0:
            found[cpu] = int(text)
    return found


def _cpu(path: str) -> int | None:
    named = re.search(r"/cpu([0-9]{1,4})/", path)
    return int(named[1]) if named and int(named[1]) < _MOST_CPUS else None
