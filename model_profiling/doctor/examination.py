"""Runs every check and says where models can run from here."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from model_profiling.check import Check
from model_profiling.doctor import checks
from model_profiling.doctor.records import Diagnosis, TargetState
from model_profiling.errors import ProfilingError
from model_profiling.runner.features import FEATURES, detect_host
from model_profiling.targets.emulated import EmulatedTarget


def prerequisites() -> Diagnosis:
    """What must be there before the kit is installed."""
    return _diagnosis(
        [
            checks.python_version(),
            checks.virtual_environments(),
            checks.compiler(),
            checks.git(),
            checks.disk_space(checks.INSTALL_GB),
            checks.cmake(),
        ],
        targets=(),
    )


def examine() -> Diagnosis:
    """Everything a user of the kit needs."""
    adb, devices = checks.adb()
    emulator, emulated = _emulator()
    found = [
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
    ]
    targets = (
        _host(all(check.status != "fail" for check in found)),
        emulated,
        TargetState(
            "android", bool(devices), f"devices: {', '.join(devices)}" if devices else "no device is ready"
        ),
    )
    return _diagnosis(found, targets)


def _diagnosis(found: Sequence[Check], targets: tuple[TargetState, ...]) -> Diagnosis:
    have = detect_host().names
    return Diagnosis(tuple(found), {name: name in have for name in FEATURES}, targets)


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
    return (
        Check("SME2 emulation", "pass", f"QEMU {version} runs SME2 code"),
        TargetState("emulated", True, "kernel evidence and parity; its timings are no latency"),
    )


def _host(ready: bool) -> TargetState:
    if not ready:
        return TargetState("host", False, "see what failed above")
    if "sme2" in detect_host().names:
        return TargetState("host", True, "latency, SME2 on and off")
    return TargetState("host", True, "latency without SME2; SME2 on/off cannot be compared on this CPU")
