"""`sme2prof doctor`: whether this machine can profile, line by line, with the fix for what is missing."""

from __future__ import annotations

import platform
import shutil
import sys
from dataclasses import dataclass

from model_profiling.core.errors import ProfilingError
from model_profiling.core.hints import sme2prof, with_another_python
from model_profiling.core.records import Check, CheckList, check_lines
from model_profiling.doctor import checks
from model_profiling.runner.build import runner_check
from model_profiling.runner.compilers import can_be_fetched
from model_profiling.runner.features import AARCH64_LINUX, FEATURES, host_features, sysctl, this_platform
from model_profiling.targets.emulated import EmulatedTarget, can_be_had


@dataclass(frozen=True, slots=True)
class TargetState:
    """A place where models can run, and what its results are good for."""

    name: str
    available: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Diagnosis(CheckList):
    """All checks; `ok` means that the kit's own runner can be built and run here. `cpu_features` lists every
    Arm feature on every machine; on other CPUs all are False."""

    cpu_features: dict[str, bool]
    targets: tuple[TargetState, ...]

    def as_text(self) -> str:
        """Checks, features, targets, verdict."""
        lines = [*check_lines(self.checks), "", self._features()]
        for target in self.targets:
            available = "yes" if target.available else "no "
            lines.append(f"target {target.name.ljust(8)}  {available}  {target.detail}")
        return "\n".join([*lines, "", f"not ready: {self.failed}" if self.failed else "ready"])

    def _features(self) -> str:
        if this_platform().machine != "aarch64":
            return f"CPU features: not shown, because this is not an Arm CPU ({platform.machine()})"
        have, lack = (
            " ".join(name for name, there in self.cpu_features.items() if there is wanted)
            for wanted in (True, False)
        )
        return f"CPU features: {have or 'none'}; not on this CPU: {lack or 'none'}"


def prerequisites(*, phones: bool = False) -> Diagnosis:
    """What must be there before the kit is installed; with `phones`, also what reaches them."""
    return _diagnosis(
        checks.python_version(),
        checks.virtual_environments(),
        checks.compiler(),
        checks.git(),
        checks.disk_space(checks.INSTALL_GB),
        *((checks.adb()[0], checks.ndk()) if phones else ()),
    )


def examine() -> Diagnosis:
    adb, devices = checks.adb()
    emulator, emulated = _emulator()
    results = (
        checks.python_version(),
        *checks.packages(),
        checks.compiler(),
        checks.sdk(),
        checks.cache(),
        runner_check(),
        checks.disk_space(),
        _cpu(),
        emulator,
        adb,
        *checks.phone_settings(),
        *checks.in_use(),
        checks.ndk(),
        checks.cmake(),
        checks.git(),
    )
    host = _host(CheckList(results).ok)
    there = shutil.which("ssh") is not None
    reach = "latency on any Arm Linux machine that you reach with ssh" if there else "no ssh is installed"
    phones = f"latency on {', '.join(devices)}" if devices else "adb finds no device that is ready"
    android = TargetState("android", bool(devices), phones)
    targets = (host, emulated, android, TargetState("ssh", there, reach))
    return _diagnosis(*results, targets=targets)


def _diagnosis(*results: Check, targets: tuple[TargetState, ...] = ()) -> Diagnosis:
    have = host_features()
    return Diagnosis(results, {name: name in have for name in FEATURES}, targets)


def _cpu() -> Check:
    """The CPU; nothing can add features, but another Python (not under Rosetta) may see more."""
    if sys.platform == "darwin" and sysctl("sysctl.proc_translated") == "1":
        fix = f"{with_another_python()}, with a Python for arm64"
        return Check("CPU", "fail", "x86_64 Python that Rosetta runs on an Arm CPU", fix)
    if this_platform().machine != "aarch64":
        return Check("CPU", "skipped", f"{platform.machine()}: not an Arm CPU")
    if "sme2" in host_features():
        return Check("CPU", "pass", f"{platform.machine()} with SME2")
    return Check("CPU", "skipped", f"{platform.machine()} without SME2")


def _emulator() -> tuple[Check, TargetState]:
    """Whether SME2 code runs here: starts the kit's runner under QEMU."""
    if sys.platform != "linux":
        reason = "QEMU's user mode runs on Linux only"
        return Check("SME2 emulation", "skipped", reason), TargetState("emulated", False, reason)
    target = EmulatedTarget(fetch=False)
    try:
        target.prepare()
    except ProfilingError as problem:
        fetchable = checks.cache().status == "pass" and can_be_had() and can_be_fetched(AARCH64_LINUX)
        fix = sme2prof("doctor", "--fetch") if fetchable else problem.fix
        check = Check("SME2 emulation", "optional", problem.problem, fix)
        state = "not yet: its first run downloads what is missing" if fetchable else problem.problem
        return check, TargetState("emulated", False, state)
    version = target.facts().versions.get("qemu", "")
    check = Check("SME2 emulation", "pass", f"QEMU {version} runs SME2 code")
    return check, TargetState(
        "emulated", True, ("kernel evidence and comparison of outputs; its times are not latencies")
    )


def _host(ready: bool) -> TargetState:
    if not ready:
        return TargetState("host", False, "see what failed above")
    if this_platform().machine != "aarch64":
        return TargetState(
            "host", True, (f"latency on this {platform.machine()} CPU, which says nothing about Arm")
        )
    if "sme2" in host_features():
        return TargetState("host", True, "latency, SME2 on and off")
    return TargetState("host", True, "baseline latency; this CPU has no SME2")
