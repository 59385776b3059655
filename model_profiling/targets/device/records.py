"""What a device told of itself, each None or empty where it did not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from model_profiling.errors import InputError

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
