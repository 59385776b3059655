"""Which device a run was measured on: decided once, so that histories and baselines compare like with like.

A phone is its model and a short hash of its serial, which stays private; this machine is its CPU and number
of cores, unless its user names it; a machine behind ssh is its host.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from model_profiling.run.manifest import Manifest
from model_profiling.wording import plural


@dataclass(frozen=True, slots=True)
class Device:
    """`name` is for programs, `title` for people; `target` is what `--target` called it, without a serial."""

    name: str = "unknown"
    title: str = "a machine that nothing here names"
    target: str = ""


def device_of(manifest: Manifest | None) -> Device:
    """The device of a run; the first part of it that tells counts."""
    if manifest is None:
        return Device()
    before = next((part.machine.before for part in manifest.parts if part.machine.before), None)
    target, platform = manifest.target.name, manifest.target.platform
    cpu, cores = (before.cpu, before.cores) if before else ("", None)
    kind, _, address = target.partition(":")
    if platform == "emulated" and not address:
        return Device("emulated", f"emulated {cpu}".strip(), "emulated")
    if platform == "android":
        return _phone(manifest, address or target)
    many = f", {plural(cores, 'core')}" if cores else ""
    if kind == "ssh" and address:
        emulated = "emulated " if platform == "emulated" else ""
        return Device(f"ssh-{_word(address)}", f"{emulated}{cpu}{many} at {address}".lstrip(", "), target)
    if not cpu:
        return Device(_word(platform or "unknown"), platform or Device().title, target)
    return Device(_word(f"{cpu}-{cores}-cores" if cores else cpu), f"{cpu}{many}", target or "host")


def _phone(manifest: Manifest, serial: str) -> Device:
    told = [part.machine.before.device for part in manifest.parts if part.machine.before]
    state = next(filter(None, told), None)
    model = (state.model if state else None) or "android"
    soc = f", {state.soc}" if state and state.soc else ""
    short = hashlib.sha256(serial.encode("utf-8", "backslashreplace")).hexdigest()[:6]
    return Device(f"{_word(model)}-{short}", f"{model}{soc} ({short})", "android")


def _word(text: str) -> str:
    """`text` as one word that a shell takes as it is."""
    return re.sub(r"[^a-z0-9._]+", "-", text.lower()).strip("-") or "unknown"
