"""Which machine to run on, and the facts of a machine; unknown facts are None or empty."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from model_profiling.core.errors import InputError
from model_profiling.runner.features import from_proc_cpuinfo, is_arm

PlatformName = Literal["mac", "linux", "android", "emulated"]
TargetKind = Literal["auto", "host", "emulated", "android", "ssh"]
PowerMode = Literal["leave", "boost", "app"]
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
    kinds: tuple[TargetKind, ...] = get_args(TargetKind)
    kind = next((name for name in kinds if name == word), None)
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
class DeviceState:
    """A phone at one moment. `thermal_status` is Android's throttling level: 0 none, 1 light, 2 moderate, 3
    severe and so on."""

    model: str | None = None
    soc: str | None = None
    android: str | None = None
    thermal_status: int | None = None


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """The machine when it was asked; unknown facts are None."""

    cpu: str = ""
    machine: str = ""
    features: tuple[str, ...] = ()
    cores: int | None = None
    os: str = ""
    governor: str | None = None
    memory_bytes: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    on_battery: bool | None = None
    device: DeviceState | None = None
    fast_cores: int | None = None
    """Those that are more than half as fast as the fastest."""

    @property
    def has_sme2(self) -> bool:
        return "sme2" in self.features

    @property
    def is_arm(self) -> bool:
        return is_arm(self.machine)


# What a Linux or Android machine says of itself, read here or through a shell.

# Arm's part numbers of common cores; others are shown as numbers.
_ARM_PARTS = {
    0xD03: "Cortex-A53", 0xD05: "Cortex-A55", 0xD07: "Cortex-A57", 0xD08: "Cortex-A72",
    0xD0B: "Cortex-A76", 0xD0C: "Neoverse-N1", 0xD40: "Neoverse-V1", 0xD49: "Neoverse-N2",
    0xD4F: "Neoverse-V2", 0xD80: "Cortex-A520", 0xD81: "Cortex-A720", 0xD82: "Cortex-X4",
    0xD83: "Neoverse-V3AE", 0xD84: "Neoverse-V3", 0xD85: "Cortex-X925", 0xD87: "Cortex-A725",
    0xD8E: "Neoverse-N3",
}  # fmt: skip

FILES = {
    "cpuinfo": "/proc/cpuinfo",
    "meminfo": "/proc/meminfo",
    "os": "/etc/os-release",
    "governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "arch": "/proc/sys/kernel/arch",
    "modalias": "/sys/devices/system/cpu/modalias",
    "boot": "/proc/sys/kernel/random/boot_id",
    "online": "/sys/devices/system/cpu/present",
    "capacities": "/sys/devices/system/cpu/cpu[0-9]*/cpu_capacity",
}
# The runner's cpuinfo library infers these from some CPUs' ids, where an old kernel lists neither.
_GUESSED = frozenset({"dotprod", "fp16"})


@dataclass(frozen=True, slots=True)
class MachineAnswers:
    """`texts` under the names above: each file's content or command's output, by path."""

    texts: Mapping[str, Mapping[str, str]]

    def text(self, name: str) -> str:
        """Return the first content under `name`, stripped; empty if there is none."""
        return next(iter(self.texts.get(name, {}).values()), "").strip()

    @property
    def name(self) -> str:
        """The kernel's own name for the CPU, even if programs are told another."""
        architecture = self.text("arch")
        if not architecture and (family := re.match(r"cpu:type:(x86|aarch64)", self.text("modalias"))):
            architecture = {"x86": "x86_64"}.get(family[1], family[1])
        return architecture or self.text("machine")

    def why_emulated(self, seen_by_runner: frozenset[str] | None = None) -> str | None:
        """Return what shows that aarch64 programs are emulated here, or None.

        QEMU tells a program that the machine is aarch64, but passes on most of the real kernel's files. Its
        own CPU has implementer 0, which no maker has. A feature that the runner sees and the kernel does not
        list also comes from an emulator, unless the runner's library infers it. A CPU without any information
        is not taken for a real one.
        """
        cpuinfo = self.text("cpuinfo")
        # A 32-bit shell calls a 64-bit Arm CPU armv8l.
        foreign = self.name and not (is_arm(self.name) or self.name.startswith("arm"))
        listed = from_proc_cpuinfo(cpuinfo)
        invented = (seen_by_runner or frozenset()) - listed - _GUESSED if listed else frozenset()
        signs = (
            (foreign, f"the kernel is one for {self.name}"),
            (re.search(r"(?m)^(vendor_id|flags)[ \t]*:", cpuinfo), "the CPU is not an Arm CPU"),
            (re.search(r"(?m)^CPU implementer[ \t]*:[ \t]*0x0+[ \t]*$", cpuinfo), "the CPU is QEMU's own"),
            (self.text("emulator").strip("0"), "it says that it is an emulator"),
            (not cpuinfo, "its kernel says nothing about the CPU"),
            (invented, f"programs see {', '.join(sorted(invented))}, the kernel does not"),
        )
        return next((why for sign, why in signs if sign), None)

    def facts(self, versions: Mapping[str, str]) -> MachineFacts:
        cpuinfo = self.text("cpuinfo")
        features = from_proc_cpuinfo(cpuinfo) if is_arm(self.name) else frozenset()
        capacities = [text.strip() for text in self.texts.get("capacities", {}).values()]
        speeds = [int(text) for text in capacities if re.fullmatch(r"[0-9]{1,9}", text)]
        memory = re.search(r"(?m)^MemTotal:[ \t]+([0-9]{1,15}) kB", self.text("meminfo"))
        return MachineFacts(
            cpu=cpu_name_from_proc(cpuinfo) or self.name,
            machine=self.name,
            features=tuple(sorted(features)),
            cores=self.cores,
            fast_cores=sum(2 * speed > max(speeds) for speed in speeds) or None,
            os=self._system(),
            governor=self.text("governor") or None,
            memory_bytes=int(memory[1]) * 1024 if memory else None,
            versions=dict(versions),
        )

    @property
    def cores(self) -> int | None:
        """The number of CPUs, asleep or not."""
        last = re.search(r"(?<![0-9])([0-9]{1,5})$", self.text("online"))
        if last:
            return int(last[1]) + 1
        return len(re.findall(r"(?m)^processor[ \t]*:", self.text("cpuinfo"))) or None

    def _system(self) -> str:
        product = [line.strip() for line in self.text("product").splitlines() if line.strip()]
        kernel = self.text("system")
        if len(product) == 3:
            return f"{product[0]} {product[1]}, Android {product[2]}, kernel {kernel}"
        pretty = re.search(r'(?m)^PRETTY_NAME="?([^"\n]+)', self.text("os"))
        return f"{pretty[1]}, kernel {kernel}" if pretty else kernel


def cpu_name_from_proc(text: str) -> str | None:
    """Return the CPU's name from `/proc/cpuinfo`, with big and little cores together."""
    if named := re.search(r"(?m)^(?:model name|Hardware)[ \t]*:[ \t]*(.+)$", text):
        return named.group(1).strip()
    names: dict[str, None] = {}
    for block in re.split(r"\n[ \t]*\n", text):
        maker = re.search(r"(?m)^CPU implementer[ \t]*:[ \t]*(0x[0-9a-fA-F]{1,8})[ \t]*$", block)
        part = re.search(r"(?m)^CPU part[ \t]*:[ \t]*(0x[0-9a-fA-F]{1,8})[ \t]*$", block)
        if maker and part:
            arm = _ARM_PARTS.get(int(part[1], 16)) if int(maker[1], 16) == 0x41 else None
            names[arm or f"implementer {maker[1]} part {part[1]}"] = None
    return " + ".join(names) or None
