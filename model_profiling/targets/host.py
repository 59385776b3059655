"""The machine this Python runs on."""

from __future__ import annotations

import os
import platform
import re
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

from model_profiling.core import process
from model_profiling.runner.build import RunnerBuild, build_runner
from model_profiling.runner.features import detect_host, mac_says, sysctl
from model_profiling.runner.machine import (
    CPU_FILES,
    Cluster,
    MachineFacts,
    PlatformName,
    TargetChoice,
    find_clusters,
)
from model_profiling.runner.result import read_report
from model_profiling.targets.execution import Route, Target, Transport

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

_POWER = Path("/sys/class/power_supply")


def host_facts(build: RunnerBuild | None, **versions: str) -> MachineFacts:
    """Return the current facts of this machine, with the versions of `build` and the caller."""
    features = detect_host()
    built = {"executorch": build.executorch_version, "compiler": build.compiler} if build else {}
    return MachineFacts(
        cpu=_cpu_name(),
        machine=platform.machine(),
        features=tuple(sorted(features.names)),
        features_source=features.source,
        cores=os.cpu_count() or 1,
        os=_system_name(),
        governor=_read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        load_average=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        memory_bytes=_memory(),
        temperature_c=_temperature(),
        versions={"python": platform.python_version(), **built, **versions},
        on_battery=_mac_on_battery() if sys.platform == "darwin" else on_battery_in(_POWER),
        clusters=_clusters(),
    )


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


def _clusters() -> tuple[Cluster, ...]:
    texts = {
        name: {str(path): _read(str(path)) or "" for path in Path("/").glob(pattern.lstrip("/"))}
        for name, pattern in CPU_FILES.items()
    }
    return find_clusters(texts, cpu_names_from_proc(_read("/proc/cpuinfo") or ""))


def _cpu_name() -> str:
    if sys.platform == "darwin":
        return sysctl("machdep.cpu.brand_string") or platform.machine()
    return cpu_name_from_proc(_read("/proc/cpuinfo") or "") or platform.processor() or platform.machine()


def _system_name() -> str:
    if sys.platform == "darwin":
        return f"macOS {mac_says('sw_vers', '-productVersion').strip() or platform.mac_ver()[0]}".strip()
    release = _read("/etc/os-release") or ""
    pretty = re.search(r'(?m)^PRETTY_NAME="?([^"\n]+)', release)
    return f"{pretty.group(1) if pretty else platform.system()}, kernel {platform.release()}"


def _memory() -> int | None:
    if sys.platform == "darwin":
        said = sysctl("hw.memsize")
        return int(said) if said.isdecimal() else None
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None


def available_memory(system: Path = Path("/")) -> int | None:
    """Return the bytes that new processes can take, within the control group's limit; None if unknown."""
    said = re.search(r"(?m)^MemAvailable:[ \t]+(\d+) kB", _read(str(system / "proc/meminfo")) or "")
    if said is None:
        return None
    available = int(said.group(1)) * 1024
    group = re.search(r"(?m)^0::/(.*)$", _read(str(system / "proc/self/cgroup")) or "")
    folder = system / "sys/fs/cgroup" / (group.group(1) if group else "")
    limit, used = (_read(str(folder / name)) for name in ("memory.max", "memory.current"))
    if limit and limit.isdigit() and used and used.isdigit():
        cached = re.search(r"(?m)^inactive_file (\d+)$", _read(str(folder / "memory.stat")) or "")
        freed = int(cached.group(1)) if cached else 0
        available = min(available, max(int(limit) - int(used) + freed, 0))
    return available


def _temperature() -> float | None:
    """Return the hottest thermal zone, in degrees Celsius."""
    readings = [_read(str(zone)) for zone in Path("/sys/class/thermal").glob("thermal_zone*/temp")]
    degrees = [int(text) / 1000 for text in readings if text and text.lstrip("-").isdigit()]
    return max(degrees, default=None)


def _mac_on_battery() -> bool | None:
    source = re.search(r"drawing from '([^'\n]+)'", mac_says("pmset", "-g", "batt"))
    return source[1] == "Battery Power" if source else None


def on_battery_in(supplies: Path) -> bool | None:
    """Whether Linux's `power_supply` folder shows a discharging battery; None without a battery. Batteries of
    a mouse or a keyboard (scope Device) do not power the machine."""
    batteries = [
        supply
        for supply in supplies.glob("*")
        if _read(str(supply / "type")) == "Battery" and _read(str(supply / "scope")) != "Device"
    ]
    states = [_read(str(battery / "status")) for battery in batteries]
    return "Discharging" in states if batteries else None


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def custom_operators(build: RunnerBuild) -> tuple[Path, ...]:
    """Return the libraries with the custom operators of ExecuTorch's language models, in the order to open
    them: they are made for PyTorch, and need Python's own. Empty if this installation does not have them."""
    folder = build.library_path.parent / "extension" / "llm" / "custom_ops"
    own, operators = Path(str(sysconfig.get_config_var("LIBDIR"))), folder / "libcustom_ops_aot_lib.so"
    named = [str(sysconfig.get_config_var(name)) for name in ("INSTSONAME", "LDLIBRARY")]
    python = [own / name for name in named if ".so" in name and (own / name).is_file()]
    return (python[0], operators) if python and operators.is_file() else ()


class HostTarget(Target):
    name = "host"
    choice = TargetChoice("host")
    platform: PlatformName = "mac" if sys.platform == "darwin" else "linux"
    place: str = platform
    timings_are_latency = True

    def prepare(self) -> None:
        if self.build is None:
            self.build = build_runner()

    def _route(self, *, own_runner: bool) -> Route:
        del own_runner
        if self.build is None:
            return Route((), Transport())
        return Route((str(self.build.path),), Transport(), (self.build.library_path,))

    def _available_bytes(self) -> int | None:
        return available_memory()

    def operators(self) -> frozenset[str] | None:
        return self._operators(()) if self.build else None

    def libraries_with(self, operators: Iterable[str]) -> tuple[Path, ...]:
        libraries = custom_operators(self.build) if self.build else ()
        return libraries if libraries and self._operators(libraries).issuperset(operators) else ()

    def _operators(self, libraries: Sequence[Path]) -> frozenset[str]:
        assert self.build is not None
        words = [word for path in libraries for word in ("--library", path)]
        said = process.run([*self._prefix, self.build.path, "--features-only", *words], timeout=300)
        return read_report(said.stdout).operators if said.ok or not libraries else frozenset()

    @property
    def _prefix(self) -> tuple[str, ...]:
        """What starts the runner."""
        return ()

    def facts(self) -> MachineFacts:
        return host_facts(self.build)
