"""What a device told of itself, each None or empty where it did not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from model_profiling.core.errors import InputError

ClusterName = Literal["little", "big", "prime"]


@dataclass(frozen=True, slots=True)
class Cluster:
    """CPUs of one kind. `capacity` is the kernel's figure for how fast they are (1024 is the fastest); the
    highest frequency is the hardware's, `allowed_khz` what the system grants now."""

    name: ClusterName
    cpus: tuple[int, ...]
    cpu: str | None = None
    capacity: int | None = None
    highest_khz: int | None = None
    allowed_khz: int | None = None
    now_khz: int | None = None
    governor: str | None = None


@dataclass(frozen=True, slots=True)
class Battery:
    """`current_a` is what flows, in either direction: makers disagree about its sign."""

    percent: float | None = None
    status: Literal["charging", "discharging", "not charging", "full"] | None = None
    temperature_c: float | None = None
    current_a: float | None = None
    voltage_v: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A phone at one moment. `thermal_status` is Android's: 0 is none, 1 light, 2 moderate, 3 severe
    throttling and so on; `settings` are those that a power mode changes."""

    model: str | None = None
    soc: str | None = None
    android: str | None = None
    battery: Battery | None = None
    temperatures_c: Mapping[str, float] = field(default_factory=dict)
    thermal_status: int | None = None
    settings: Mapping[str, str | None] = field(default_factory=dict)
    boot_id: str | None = None


@dataclass(frozen=True, slots=True)
class Gauge:
    """The files in which a phone tells the current and the voltage of its battery."""

    current: str
    voltage: str


@dataclass(frozen=True, slots=True)
class Energy:
    """For one inference, of the whole phone, with a 95% interval; a reason where it is not known."""

    joules: float | None = None
    low: float | None = None
    high: float | None = None
    watts: float | None = None
    readings: int = 0
    """Different ones: a gauge repeats itself until it has looked again."""
    reason: str | None = None
    file: str | None = None
    """With every reading, relative to the run."""


def cpus_of_cluster(clusters: Sequence[Cluster], wanted: ClusterName, machine: str) -> tuple[int, ...]:
    """The CPUs that `wanted` means on `machine`. The prime ones are the fastest, also where only two kinds
    exist and the fast ones are called big."""
    if len(clusters) < 2:
        told = "are all alike" if clusters else "tell no kinds apart"
        raise InputError(f"the CPUs of {machine} {told}: there is no {wanted} cluster", "name CPUs by number")
    named = [cluster for cluster in clusters if cluster.name == wanted]
    if not named and wanted == "prime":
        named = [clusters[-1]]
    return tuple(sorted(cpu for cluster in named for cpu in cluster.cpus))


# Which CPUs of a machine are of one kind, from what Linux tells of each.

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
