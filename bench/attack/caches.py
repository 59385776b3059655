"""A cache whose runner or QEMU was cut short, changed or replaced by somebody else's: never run as it is,
made again by itself or refused in one line."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from attack.finds import Find, PartResult
from attack.live_run import LiveRun
from model_profiling.core.errors import ProfilingError
from model_profiling.runner.cache import cache_root

Spoil = Callable[[Path, random.Random], None]
TARGETS = {"runner": "host", "qemu": "emulated"}
VICTIMS = {"runner": "runners/*/sme2prof-runner", "qemu": "qemu/qemu-user/usr/bin/qemu-aarch64"}
WITNESS = "SME2PROF_ATTACK_WITNESS"
"""Names the file that a planted program leaves when it is run."""


def _cut(path: Path, chance: random.Random) -> None:
    with path.open("r+b") as stream:
        stream.truncate(chance.randrange(1, path.stat().st_size))


def _empty(path: Path, chance: random.Random) -> None:
    del chance
    path.write_bytes(b"")


def _flipped(path: Path, chance: random.Random) -> None:
    """Bits all over the file, the header among them or not."""
    data = bytearray(path.read_bytes())
    for _ in range(64):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def _one_bit(path: Path, chance: random.Random) -> None:
    """What nobody would notice."""
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data) // 2, len(data))] ^= 1
    path.write_bytes(data)


def _planted(path: Path, chance: random.Random) -> None:
    """A program that does as the old one did, and something else."""
    del chance
    real = path.with_name(f".{path.name}.real")
    shutil.copy2(path, real)
    path.write_text(f'#!/bin/sh\n: > "${WITNESS}"\nexec "{real}" "$@"\n')


def _not_executable(path: Path, chance: random.Random) -> None:
    del chance
    path.chmod(0o644)


def _a_folder(path: Path, chance: random.Random) -> None:
    del chance
    path.unlink()
    path.mkdir()


def _anybodys(path: Path, chance: random.Random) -> None:
    """Whoever is on this machine may write into the folder that holds it, and has."""
    _planted(path, chance)
    path.parent.chmod(0o777)


DAMAGES: tuple[Spoil, ...] = (
    *(_cut, _empty, _flipped, _one_bit, _planted, _not_executable, _a_folder, _anybodys),
)


def spoil(seed: int, work: Path, damages: tuple[Spoil, ...] = DAMAGES) -> PartResult:
    if sys.platform != "linux":
        return PartResult("caches", skipped="QEMU's user mode runs on Linux only")
    began, chance = time.monotonic(), random.Random(seed)
    finds: list[Find] = []
    tried, lines = 0, []
    for what, target in TARGETS.items():
        kept = work / f"whole-{what}"
        if why_not := _prepared(kept, work / f"first-{what}", target):
            lines.append(f"{what} was not damaged: {why_not}")
            continue
        for damage in damages:
            cache = work / f"cache-{tried}"
            shutil.copytree(kept, cache, symlinks=True)
            case = f"{what}: {damage.__name__.strip('_').replace('_', ' ')}"
            found = _attack(cache, what, damage, chance, work / str(tried))
            finds += [Find("caches", case, one) for one in found]
            shutil.rmtree(cache)
            tried += 1
    return PartResult("caches", tried, time.monotonic() - began, tuple(finds), lines=tuple(lines))


def _prepared(cache: Path, folder: Path, target: str) -> str:
    """Fill a cache of its own by a run, its QEMU taken from the user's; returns why that cannot be."""
    if target == "emulated":
        from model_profiling.targets.emulated import EmulatedTarget

        emulated = EmulatedTarget()
        try:
            emulated.prepare()
        except ProfilingError as problem:
            return problem.problem
        if emulated.qemu is None or not emulated.qemu.path.is_relative_to(cache_root()):
            return "the one in use is not in the kit's cache"
        shutil.copytree(cache_root() / "qemu" / "qemu-user", cache / "qemu" / "qemu-user")
    ended = LiveRun(folder, target=target, environment={"SME2PROF_CACHE": str(cache)}).call("run", "c.json")
    return "" if ended is not None and ended.code == 0 else f"{ended.tail() if ended else 'it did not end'}"


def _attack(cache: Path, what: str, damage: Spoil, chance: random.Random, folder: Path) -> Iterator[str]:
    target = TARGETS[what]
    victims = sorted(cache.glob(VICTIMS[what]))
    if not victims:
        yield f"nothing was damaged: this cache has no {what}"
        return
    for victim in victims:
        damage(victim, chance)
    damaged = {victim: _looks(victim) for victim in victims}
    witness = folder.with_name(f"{folder.name}.witness")
    environment = {"SME2PROF_CACHE": str(cache), WITNESS: str(witness)}
    first = LiveRun(folder / "first", target=target, environment=environment).call("run", "c.json")
    if first is None or not first.is_clear:
        yield f"no clear answer: {first.tail() if first else 'it did not end'}"
    if witness.exists():
        yield f"what was planted ran as user {os.geteuid()}"
    elif first is not None and first.code == 0:
        if same := [path.name for path in victims if _looks(path) == damaged[path]]:
            yield f"it was used as it was: {same}"
    elif first is not None and damage is not _anybodys:
        second = LiveRun(folder / "second", target=target, environment=environment).call("run", "c.json")
        if second is None or second.code != 0:
            yield f"it never heals: {second.tail() if second else 'it did not end'}"


def _looks(path: Path) -> tuple[int, str]:
    """Mode and content, which tell a damaged program from one that was made again."""
    if not path.is_file():
        return (path.stat().st_mode if path.exists() else 0, "")
    return path.stat().st_mode, hashlib.sha256(path.read_bytes()).hexdigest()
