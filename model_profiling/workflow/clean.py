"""Takes what the kit has put on a phone or another machine off it again."""

from __future__ import annotations

from dataclasses import replace

from model_profiling.errors import InputError
from model_profiling.targets import TargetChoice, open_target
from model_profiling.targets.remote.folder import Removed
from model_profiling.targets.remote.target import RemoteTarget


def clean(choice: TargetChoice) -> Removed:
    """Remove the kit's folder there, with everything in it, and say what that was."""
    target = open_target(choice)
    if not isinstance(target, RemoteTarget):
        raise InputError(f"nothing is put anywhere for target {choice.kind}", "name a device or a host")
    try:
        removed = target.clean()
        return replace(removed, notes=target.take_notes())
    finally:
        target.close()
