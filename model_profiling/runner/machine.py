"""Which machine to run on, and the facts of a machine; unknown facts are None or empty."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from model_profiling.core.errors import InputError
from model_profiling.runner.features import is_arm

PlatformName = Literal["mac", "linux", "android", "emulated"]
TargetKind = Literal["auto", "host", "emulated", "android", "ssh"]
PowerMode = Literal["leave", "boost", "app"]
ClusterName = Literal["little", "big", "prime"]
_WRITTEN: dict[TargetKind, str] = {"android": "android[:SERIAL]", "ssh": "ssh:HOST"}


@dataclass(frozen=True, slots=True)
class TargetChoice:
    """Where to run, as a config's `target` or `--target` says."""

    __pydantic_config__: ClassVar = {"extra": "forbid", "use_attribute_docstrings": True}

    name: TargetKind = "auto"
    """"host" is this machine, "emulated" is QEMU (kernels, no latency), "android" a phone, "ssh" another Arm
    Linux machine; "auto" is the phone or machine named here, otherwise this machine if it is Arm, else
    "emulated"."""
    device: str | None = None
    """Serial of the Android device, as `adb devices` lists it."""
    remote: str | None = None
    """Address of an Android device on the network, host:port, for `adb connect`: 192.0.2.7:5555."""
    host: str | None = None
    """Arm Linux machine to reach with ssh, as your ssh config or the network knows it: HOST or USER@HOST."""
    power_mode: PowerMode = "leave"
    """What to set on the device while measuring: "boost" (no power saving, no animations, stays awake), "app"
    (as people use it, awake while plugged in), "leave" (nothing)."""
    device_path: str | None = None
    """Folder on the phone or machine in which the kit makes its own, called sme2prof-device, for runner and
    models: /data/local/tmp."""

    def __post_init__(self) -> None:
        if self.name == "auto" and self.has_address:
            object.__setattr__(self, "name", "ssh" if self.host else "android")

    @property
    def has_address(self) -> bool:
        return bool(self.device or self.remote or self.host)


def target_kinds() -> tuple[str, ...]:
    return tuple(_WRITTEN.get(kind, kind) for kind in get_args(TargetKind))


def parse_target(text: str) -> TargetChoice:
    """Parse `--target`: a kind and, after a colon, the device's serial or address, or the host."""
    word, _, device = text.partition(":")
    known: tuple[TargetKind, ...] = get_args(TargetKind)
    kind = next((name for name in known if name == word), None)
    if kind is None:
        raise InputError(f"unknown target {text!r}", f"choose from {', '.join(target_kinds())}")
    if kind == "ssh":
        return TargetChoice(kind, host=device or None)
    if device and kind != "android":
        raise InputError(f"target {kind} takes no device name ({device!r})", f"write {kind} alone")
    return TargetChoice(kind, remote=device) if ":" in device else TargetChoice(kind, device=device or None)


def place_of(name: str) -> str:
    """Return the name of a machine as a valid file name, as of the folder for its runs."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name)


@dataclass(frozen=True, slots=True)
class Cluster:
    """CPUs of one kind. `capacity` is the kernel's figure for their speed (1024 is the fastest),
    `highest_khz` the hardware's limit."""

    name: ClusterName
    cpus: tuple[int, ...]
    cpu: str | None = None
    capacity: int | None = None
    highest_khz: int | None = None
    governor: str | None = None


@dataclass(frozen=True, slots=True)
class Battery:
    percent: float | None = None
    status: Literal["charging", "discharging", "not charging", "full"] | None = None
    temperature_c: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceState:
    """A phone at one moment. `thermal_status` is Android's throttling level: 0 none, 1 light, 2 moderate, 3
    severe and so on."""

    model: str | None = None
    soc: str | None = None
    android: str | None = None
    battery: Battery | None = None
    thermal_status: int | None = None


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The machine when it was asked; unknown facts are None."""

    cpu: str = ""
    machine: str = ""
    features: tuple[str, ...] = ()
    features_source: str = ""
    cores: int | None = None
    os: str = ""
    governor: str | None = None
    load_average: float | None = None
    memory_bytes: int | None = None
    temperature_c: float | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    on_battery: bool | None = None
    clusters: tuple[Cluster, ...] = ()
    """Kinds of CPU, slowest first; one entry if all are alike, none if unknown."""
    device: DeviceState | None = None

    @property
    def has_sme2(self) -> bool:
        return "sme2" in self.features

    @property
    def is_arm(self) -> bool:
        return is_arm(self.machine)


def cpus_of_cluster(clusters: Sequence[Cluster], wanted: ClusterName, machine: str) -> tuple[int, ...]:
    """Return the CPUs of the cluster `wanted`; of two kinds, the big ones are also the prime ones."""
    if len(clusters) < 2:
        why = "are all alike" if clusters else "do not show which kind each is"
        raise InputError(f"the CPUs of {machine} {why}: there is no {wanted} cluster", "give CPU numbers")
    named = [cluster for cluster in clusters if cluster.name == wanted]
    if not named and wanted == "prime":
        named = [clusters[-1]]
    return tuple(sorted(cpu for cluster in named for cpu in cluster.cpus))


CPU_FILES = {
    "capacity": "/sys/devices/system/cpu/cpu[0-9]*/cpu_capacity",
    "highest_khz": "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/cpuinfo_max_freq",
    "cpu_governor": "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor",
}
_MOST_CPUS = 1024
_Kind = tuple[int, int]


def find_clusters(
    texts: Mapping[str, Mapping[str, str]], parts: Mapping[int, str] | None = None
) -> tuple[Cluster, ...]:
    """Return the kinds of CPU, slowest first; empty if the speed of the CPUs is unknown.

    `texts` holds for each key of CPU_FILES the files' contents by path, `parts` the CPUs' own names. CPUs
    with equal capacity and equal highest frequency are one kind. The slowest of several kinds is little, the
    fastest of three or more is prime, and all others are big.
    """
    capacity, highest = (_numbers(texts.get(name, {})) for name in ("capacity", "highest_khz"))
    kinds: dict[_Kind, list[int]] = {}
    for cpu in sorted(capacity.keys() | highest.keys()):
        kinds.setdefault((capacity.get(cpu, 0), highest.get(cpu, 0)), []).append(cpu)
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
            governor=_one_of(governors, cpus),
        )
        for place, (kind, cpus) in enumerate(sorted(kinds.items()))
    )


def _name(place: int, kinds: int) -> ClusterName:
    if place == 0 and kinds > 1:
        return "little"
    return "prime" if place == kinds - 1 and kinds > 2 else "big"


def _one_of(values: Mapping[int, str], cpus: Sequence[int]) -> str | None:
    """Return the distinct values of these CPUs, joined."""
    return " + ".join(dict.fromkeys(values[cpu] for cpu in cpus if cpu in values)) or None


def _numbers(files: Mapping[str, str]) -> dict[int, int]:
    numbers = {}
    for path, text in files.items():
        cpu = _cpu(path)
        if cpu is not None and re.fullmatch(r"[0-9]{1,9}", text.strip()) and int(text) > 0:
            numbers[cpu] = int(text)
    return numbers


def _cpu(path: str) -> int | None:
    named = re.search(r"/cpu([0-9]{1,4})/", path)
    return int(named[1]) if named and int(named[1]) < _MOST_CPUS else None
