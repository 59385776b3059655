"""Facts of a machine behind a shell, from its kernel's files, and the files that the runner needs there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.core.errors import SetupError
from model_profiling.runner.build import RunnerBuild, build_runner
from model_profiling.runner.elf import AARCH64, read_elf
from model_profiling.runner.features import AARCH64_LINUX, from_proc_cpuinfo, is_arm, this_platform
from model_profiling.runner.machine import CPU_FILES, MachineFacts, find_clusters
from model_profiling.targets.emulated import build_cross_runner, library_folders
from model_profiling.targets.host import cpu_name_from_proc, cpu_names_from_proc
from model_profiling.targets.remote import scripts
from model_profiling.targets.remote.folder import LOADER
from model_profiling.targets.remote.shell import Shell

_FILES = {
    **CPU_FILES,
    "cpuinfo": "/proc/cpuinfo",
    "loadavg": "/proc/loadavg",
    "meminfo": "/proc/meminfo",
    "os": "/etc/os-release",
    "governor": "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
    "temperature": "/sys/class/thermal/thermal_zone*/temp",
    "battery": "/sys/class/power_supply/*/status",
    "arch": "/proc/sys/kernel/arch",
    "modalias": "/sys/devices/system/cpu/modalias",
    "boot": "/proc/sys/kernel/random/boot_id",
    "online": "/sys/devices/system/cpu/present",
}
# The runner's cpuinfo library infers these from some CPUs' ids, where an old kernel lists neither.
_GUESSED = frozenset({"dotprod", "fp16"})
_COMMANDS = {
    "machine": "uname -m",
    "system": "uname -sr",
    "home": 'echo "${XDG_CACHE_HOME:-$HOME/.cache}"',
    "emulator": 'echo "$QEMU_CPU$QEMU_LD_PREFIX$(getprop ro.boot.qemu)$(getprop ro.kernel.qemu)"',
    "product": "getprop ro.product.manufacturer; getprop ro.product.model; getprop ro.build.version.release",
    "tools": "for t in setsid sha256sum taskset; do command -v $t >/dev/null || echo $t; done",
}


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
        said = self.text("arch")
        if not said and (family := re.match(r"cpu:type:(x86|aarch64)", self.text("modalias"))):
            said = {"x86": "x86_64"}.get(family[1], family[1])
        return said or self.text("machine")

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
        return next((why for shown, why in signs if shown), None)

    def facts(self, versions: Mapping[str, str]) -> MachineFacts:
        cpuinfo = self.text("cpuinfo")
        features = from_proc_cpuinfo(cpuinfo) if is_arm(self.name) else frozenset()
        readings = [text.strip() for text in self.texts.get("temperature", {}).values()]
        degrees = [int(text) / 1000 for text in readings if re.fullmatch(r"-?\d{1,9}", text)]
        batteries = [text.strip() for text in self.texts.get("battery", {}).values()]
        load = re.match(r"[0-9]{1,7}(\.[0-9]{1,7})?(?!\S)", self.text("loadavg"))
        return MachineFacts(
            cpu=cpu_name_from_proc(cpuinfo) or self.name,
            machine=self.name,
            features=tuple(sorted(features)),
            features_source="/proc/cpuinfo there",
            cores=self.cores,
            os=self._system(),
            governor=self.text("governor") or None,
            load_average=float(load[0]) if load else None,
            memory_bytes=self._memory("MemTotal"),
            temperature_c=max(degrees, default=None),
            versions=dict(versions),
            on_battery="Discharging" in batteries if batteries else None,
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
    def available_bytes(self) -> int | None:
        return self._memory("MemAvailable")

    def _memory(self, name: str) -> int | None:
        said = re.search(rf"(?m)^{name}:[ \t]+([0-9]{{1,15}}) kB", self.text("meminfo"))
        return int(said[1]) * 1024 if said else None

    def _system(self) -> str:
        product = [line.strip() for line in self.text("product").splitlines() if line.strip()]
        kernel = self.text("system")
        if len(product) == 3:
            return f"{product[0]} {product[1]}, Android {product[2]}, kernel {kernel}"
        pretty = re.search(r'(?m)^PRETTY_NAME="?([^"\n]+)', self.text("os"))
        return f"{pretty[1]}, kernel {kernel}" if pretty else kernel


def ask_machine(
    shell: Shell, files: Mapping[str, str] | None = None, commands: Mapping[str, str] | None = None
) -> Machine:
    """Ask everything at once, with the additional files and commands of a kind of machine."""
    question = scripts.machine_facts({**_FILES, **(files or {})}, {**_COMMANDS, **(commands or {})})
    answer = shell.script(question)
    texts: dict[str, dict[str, str]] = {}
    parts = re.split(r"(?m)^@@ (\w+) (\S+)\n?", answer.stdout)
    for name, path, content in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        texts.setdefault(name, {})[path] = content
    return Machine(texts)


# What a runner brings to a machine that may have no C library, or an older one: the dynamic loader, the C and
# C++ libraries and ExecuTorch's, from this machine or the emulated one. Started through that loader it uses
# only the other machine's kernel, so a phone needs no NDK.

_RUNNER = "sme2prof-runner"
# The runner opens the library itself, after it has switched features off.
_OPENED = (LOADER, "libexecutorch_backend_xnnpack.so")


@dataclass(frozen=True, slots=True)
class Bundle:
    """A built runner and every file it needs, by its name there."""

    build: RunnerBuild
    files: dict[str, Path]

    def loader(self, folder: str) -> tuple[str, ...]:
        """Return what starts a program linked to the C library in `folder`."""
        return (f"{folder}/{LOADER}", "--library-path", folder)

    def runner(self, folder: str) -> tuple[str, ...]:
        return (*self.loader(folder), f"{folder}/{_RUNNER}")


def make_bundle() -> Bundle:
    if this_platform() == AARCH64_LINUX:
        build, root = build_runner(), Path("/")
    else:
        build, root = build_cross_runner()
    return Bundle(build, gather(build.path, [build.library_path, *library_folders(root)]))


def gather(program: Path, folders: Sequence[Path]) -> dict[str, Path]:
    """Find `program`, all libraries it needs and those it opens in `folders`."""
    found = {_RUNNER: program}
    waiting = [*_OPENED, *_needs(program)]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        place = next((folder / name for folder in folders if _fits(folder / name)), None)
        if place is None:
            raise SetupError(
                f"the runner needs {name} for aarch64, which is in none of {', '.join(map(str, folders))}",
                "install it, or name a folder with an aarch64 C and C++ library in SME2PROF_SYSROOT",
            )
        found[name] = place.resolve()
        waiting += _needs(place)
    return found


def _needs(path: Path) -> tuple[str, ...]:
    facts = read_elf(path)
    return facts.needed if facts else ()


def _fits(path: Path) -> bool:
    facts = read_elf(path) if path.is_file() else None
    return facts is not None and facts.machine == AARCH64
