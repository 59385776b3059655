"""Removes the kit's cache on this machine, or what the kit has put on a phone or another machine."""

from __future__ import annotations

from dataclasses import replace

from model_profiling.runner.cache import remove_cache
from model_profiling.targets import TargetChoice, open_target
from model_profiling.targets.machine_lock import may_wait, measuring_alone
from model_profiling.targets.remote.folder import Removed


def clean_cache(*, dry_run: bool = False) -> int:
    """Remove the whole cache and return its bytes; refused while another process of the kit works."""
    with may_wait(False), measuring_alone("removes the cache"):
        return remove_cache(dry_run=dry_run)


def clean_target(choice: TargetChoice) -> Removed:
    """Remove the kit's folder there, and return what was in it."""
    target = open_target(choice)
    try:
        removed = target.clean()
        return replace(removed, notes=target.take_notes())
    finally:
        target.close()
