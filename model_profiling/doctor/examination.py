"""Runs every check and says where models can run from here."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from model_profiling.check import Check, CheckList, check_lines
from model_profiling.doctor import checks
from model_profiling.errors import ProfilingError
from model_profiling.runner.features import FEATURES, detect_host
from model_profiling.targets.emulated import EmulatedTarget


@dataclass(frozen=True, slots=True)
class TargetState:
    """Where models can run from here, and what the result is good for."""

    name: str
    available: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Diagnosis(CheckList):
    """Everything the doctor looked at; `ok` says that the kit's own runner can be built and run here."""

    cpu_features: dict[str, bool]
    targets: tuple[TargetState, ...]

    def as_text(self) -> str:
        """The checks, then features, targets and the verdict."""
        lines = [*check_lines(self.checks), ""]
        have, lack = (
            " ".join(name for name, there in self.cpu_features.items() if there is wanted)
            for wanted in (True, False)
        )
        lines.append(f"CPU features: {have or 'none'}; not here: {lack or 'nothing'}")
        for target in self.targets:
            available = "yes" if target.available else "no "
            lines.append(f"target {target.name.ljust(8)}  {available}  {target.detail}")
        return "\n".join([*lines, "", f"not ready: {self.failed}" if self.failed else "ready"])


def prerequisites() -> Diagnosis:
    """What must be there before the kit is installed."""
    return _diagnosis(
        checks.python_version(),
        checks.virtual_environments(),
        checks.compiler(),
        checks.git(),
        checks.disk_space(checks.INSTALL_GB),
        checks.cmake(),
    )


def examine() -> Diagnosis:
    """Everything a user of the kit needs."""
    adb, devices = checks.adb()
    emulator, emulated = _emulator()
    found = (
        checks.python_version(),
        *checks.packages(),
        checks.compiler(),
        checks.sdk(),
        checks.disk_space(),
        _cpu(),
        emulator,
        adb,
        checks.ndk(),
        checks.cmake(),
        checks.git(),
    )
    ready = f"devices: {', '.join(devices)}" if devices else "no device is ready"
    android = TargetState("android", bool(devices), ready)
    return _diagnosis(*found, targets=(_host(CheckList(tuple(found)).ok), emulated, android))


def _diagnosis(*found: Check, targets: tuple[TargetState, ...] = ()) -> Diagnosis:
    have = detect_host().names
    return Diagnosis(found, {name: name in have for name in FEATURES}, targets)


def _cpu() -> Check:
    host = detect_host()
    if "sme2" in host.names:
        return Check("CPU", "pass", f"{platform.machine()} with SME2 ({host.source})")
    return Check(
        "CPU",
        "optional",
        f"{platform.machine()} without SME2 ({host.source})",
        "SME2 on/off latency needs a CPU that has it; --target emulated shows the kernels and the numerics",
    )


def _emulator() -> tuple[Check, TargetState]:
    """Whether SME2 code runs here with what is at hand: the kit's runner is started under QEMU and asked."""
    target = EmulatedTarget(fetch=False)
    try:
        target.prepare()
    except ProfilingError as problem:
        check = Check("SME2 emulation", "optional", problem.problem, problem.fix)
        return check, TargetState("emulated", False, problem.problem)
    version = target.facts().versions.get("qemu", "")
    check = Check("SME2 emulation", "pass", f"QEMU {version} runs SME2 code")
    return check, TargetState("emulated", True, "kernel evidence and parity; its timings are no latency")


def _host(ready: bool) -> TargetState:
    if not ready:
        return TargetState("host", False, "see what failed above")
    if "sme2" in detect_host().names:
        return TargetState("host", True, "latency, SME2 on and off")
    return TargetState("host", True, "latency without SME2; SME2 on/off cannot be compared on this CPU")
