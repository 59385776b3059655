"""Facts of a Linux or Android machine from its kernel's files, read here or through a shell."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from model_profiling.runner.features import from_proc_cpuinfo, is_arm
from model_profiling.runner.machine import CPU_FILES, MachineFacts, find_clusters

# Arm's part numbers of common cores; others are shown as numbers.
_ARM_PARTS = {
    0xD03: "Cortex-A53",
    0xD05: "Cortex-A55",
    0xD07: "Cortex-A57",
    0xD08: "Cortex-A72",
    0xD0B: "Cortex-A76",
    0xD0C: "Neoverse-N1",
    0xD40: "Neoverse-V1",
    0xD49: "Neoverse-N2",
    0xD4F: "Neoverse-V2",
    0xD80: "Cortex-A520",
    0xD81: "Cortex-A720",
    0xD82: "Cortex-X4",
    0xD83: "Neoverse-V3AE",
    0xD84: "Neoverse-V3",
    0xD85: "Cortex-X925",
    0xD87: "Cortex-A725",
    0xD8E: "Neoverse-N3",
}

FILES = {
    **CPU_FILES,
    "cpuinfo": "/proc/cpuinfo",
    "loadavg": "/proc/loadavg",
    "meminfo": "/proc/meminfo",
    "os": "/etc/os-release",
    "governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "temperature": "/sys/class/thermal/thermal_zone*/temp",
    "supply_type": "/sys/class/power_supply/*/type",
    "supply_scope": "/sys/class/power_supply/*/scope",
    "supply_status": "/sys/class/power_supply/*/status",
    "arch": "/proc/sys/kernel/arch",
    "modalias": "/sys/devices/system/cpu/modalias",
    "boot": "/proc/sys/kernel/random/boot_id",
    "online": "/sys/devices/system/cpu/present",
}
# The runner's cpuinfo library infers these from some CPUs' ids, where an old kernel lists neither.
_GUESSED = frozenset({"dotprod", "fp16"})


@dataclass(frozen=True, slots=True)
class Machine:
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
        readings = [text.strip() for text in self.texts.get("temperature", {}).values()]
        degrees = [int(text) / 1000 for text in readings if re.fullmatch(r"-?\d{1,9}", text)]
        load = re.match(r"[0-9]{1,7}(\.[0-9]{1,7})?(?!\S)", self.text("loadavg"))
        return MachineFacts(
            cpu=cpu_name_from_proc(cpuinfo) or self.name,
            machine=self.name,
            features=tuple(sorted(features)),
            features_source="/proc/cpuinfo",
            cores=self.cores,
            os=self._system(),
            governor=self.text("governor") or None,
            load_average=float(load[0]) if load else None,
            memory_bytes=self._memory("MemTotal"),
            temperature_c=max(degrees, default=None),
            versions=dict(versions),
            on_battery=self.on_battery,
            clusters=find_clusters(self.texts, cpu_names_from_proc(cpuinfo)),
        )

    @property
    def cores(self) -> int | None:
        """The number of CPUs, asleep or not."""
        last = re.search(r"(?<![0-9])([0-9]{1,5})$", self.text("online"))
        if last:
            return int(last[1]) + 1
        return len(re.findall(r"(?m)^processor[ \t]*:", self.text("cpuinfo"))) or None

    @property
    def on_battery(self) -> bool | None:
        """Whether a battery is discharging; None without a battery. Batteries of a mouse or a keyboard (scope
        Device) do not power the machine."""
        kinds, scopes = (
            {_folder(path): text.strip() for path, text in self.texts.get(name, {}).items()}
            for name in ("supply_type", "supply_scope")
        )
        states = [
            text.strip()
            for path, text in self.texts.get("supply_status", {}).items()
            if kinds.get(_folder(path)) == "Battery" and scopes.get(_folder(path)) != "Device"
        ]
        return "Discharging" in states if states else None

    @property
    def available_bytes(self) -> int | None:
        return self._memory("MemAvailable")

    def _memory(self, name: str) -> int | None:
        line = re.search(rf"(?m)^{name}:[ \t]+([0-9]{{1,15}}) kB", self.text("meminfo"))
        return int(line[1]) * 1024 if line else None

    def _system(self) -> str:
        product = [line.strip() for line in self.text("product").splitlines() if line.strip()]
        kernel = self.text("system")
        if len(product) == 3:
            return f"{product[0]} {product[1]}, Android {product[2]}, kernel {kernel}"
        pretty = re.search(r'(?m)^PRETTY_NAME="?([^"\n]+)', self.text("os"))
        return f"{pretty[1]}, kernel {kernel}" if pretty else kernel


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def cpu_name_from_proc(text: str) -> str | None:
    """Return the CPU's name from `/proc/cpuinfo`, with big and little cores together."""
    if named := re.search(r"(?m)^(?:model name|Hardware)[ \t]*:[ \t]*(.+)$", text):
        return named.group(1).strip()
    return " + ".join(dict.fromkeys(cpu_names_from_proc(text).values())) or None


def cpu_names_from_proc(text: str) -> dict[int, str]:
    """Return each CPU's name from `/proc/cpuinfo`; only Arm CPUs list implementer and part."""
    names = {}
    for block in re.split(r"\n[ \t]*\n", text):
        number = re.search(r"(?m)^processor[ \t]*:[ \t]*(\d{1,4})[ \t]*$", block)
        maker = re.search(r"(?m)^CPU implementer[ \t]*:[ \t]*(0x[0-9a-fA-F]{1,8})[ \t]*$", block)
        part = re.search(r"(?m)^CPU part[ \t]*:[ \t]*(0x[0-9a-fA-F]{1,8})[ \t]*$", block)
        if number and maker and part:
            arm = _ARM_PARTS.get(int(part[1], 16)) if int(maker[1], 16) == 0x41 else None
            names[int(number[1])] = arm or f"implementer {maker[1]} part {part[1]}"
    return names
