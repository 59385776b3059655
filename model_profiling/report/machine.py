"""The machine a run was measured on, row by row, as it was before and after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from model_profiling.run.manifest import Between, Machine
from model_profiling.wording import ranges, span_of

if TYPE_CHECKING:  # a report reads no target, only what targets have left in a run
    from model_profiling.targets.device.records import Cluster, DeviceState
    from model_profiling.targets.protocol import MachineFacts

# Android's PowerManager.THERMAL_STATUS_*.
_THERMAL = ("none", "light", "moderate", "severe", "critical", "emergency", "shutdown")


def machine_rows(machine: Machine) -> Iterator[tuple[str, str]]:
    before, after = machine.before, machine.after
    if before is None:
        return
    yield "CPU", f"{before.cpu} ({before.cores} cores, {before.machine})"
    yield "CPU features", " ".join(before.features) or "none that the kit switches"
    yield "System", before.os
    yield "Memory", f"{before.memory_bytes / 2**30:.1f} GiB" if before.memory_bytes else ""
    yield from _clusters(before, after)
    yield "Load average", _change(before.load_average, after.load_average if after else None)
    if before.on_battery is not None:
        yield "Power", "battery" if before.on_battery else "mains"
    yield "Temperature", _change(before.temperature_c, after.temperature_c if after else None, " C")
    if before.device is not None:
        yield from _phone(before.device, after.device if after else None)
        yield "Between rounds", "; ".join(_between(machine.between)) or "not read"
    for name, version in sorted(before.versions.items()):
        if name not in ("executorch", "compiler"):  # the manifest has them from the runner itself
            yield name, version


def _clusters(before: MachineFacts, after: MachineFacts | None) -> Iterator[tuple[str, str]]:
    """The governor and, where CPUs are of several kinds, each kind: a frequency that the system has lowered
    meanwhile is throttling."""
    if len(before.clusters) < 2:
        yield "Clock governor", before.governor or "not told"
        return
    later = {cluster.cpus: cluster for cluster in after.clusters} if after else {}
    for cluster in before.clusters:
        cpus = f"CPU{'s' if len(cluster.cpus) > 1 else ''} {ranges(cluster.cpus)}"
        said = [cpus, cluster.cpu, _frequencies(cluster, later.get(cluster.cpus)), cluster.governor]
        yield f"Cluster {cluster.name}", ", ".join(text for text in said if text)


def _frequencies(before: Cluster, after: Cluster | None) -> str | None:
    highest = before.highest_khz
    if highest is None:
        return None
    allowed = [each.allowed_khz for each in (before, after) if each and each.allowed_khz]
    if allowed and min(allowed) < highest:
        least = min(allowed) / 1e6
        return f"up to {highest / 1e6:.2f} GHz, of which the system granted {least:.2f} GHz"
    return f"up to {highest / 1e6:.2f} GHz"


def _phone(before: DeviceState, after: DeviceState | None) -> Iterator[tuple[str, str]]:
    yield "Phone", before.model or "not told"
    yield "SoC", before.soc or "not told"
    charge = [state.battery.percent for state in (before, after) if state and state.battery]
    if before.battery:
        status = f" ({before.battery.status})" if before.battery.status else ""
        yield "Battery", _change(charge[0], charge[1] if len(charge) > 1 else None, " %") + status
    if before.thermal_status is not None:
        later = before.thermal_status if after is None else after.thermal_status
        yield "Thermal status", f"{_throttling(before.thermal_status)} before, {_throttling(later)} after"
    told = (f"{name} {value}" for name, value in before.settings.items() if value is not None)
    yield "Power settings", ", ".join(told) or "none set"
    if after is not None and after.boot_id != before.boot_id:
        yield "Restarted", "yes, while it was measured"


def _between(seen: Sequence[Between]) -> Iterator[str]:
    """The least and the most of what changed while a phone was measured."""
    if temperatures := [each.temperature_c for each in seen if each.temperature_c is not None]:
        yield f"{span_of(temperatures, '.0f')} C"
    if charges := [
        each.battery.percent for each in seen if each.battery and each.battery.percent is not None
    ]:
        yield f"battery {span_of(charges, '.0f')} %"
    if throttled := [each.thermal_status for each in seen if each.thermal_status is not None]:
        yield f"thermal status {_throttling(max(throttled))} at worst"
    for name in dict.fromkeys(cluster.name for each in seen for cluster in each.clusters):
        clocks = [
            cluster.now_khz / 1e6
            for each in seen
            for cluster in each.clusters
            if cluster.name == name and cluster.now_khz
        ]
        if clocks:
            yield f"clock of {name} {span_of(clocks, '.2f')} GHz"


def _throttling(status: int | None) -> str:
    return _THERMAL[status] if status is not None and status < len(_THERMAL) else "not told"


def _change(before: float | None, after: float | None, unit: str = "") -> str:
    if before is None:
        return "not told"
    text = f"{before:.1f}{unit} before"
    return text if after is None else f"{text}, {after:.1f}{unit} after"
