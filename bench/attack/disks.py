"""File systems that fill up in the middle of a run, an analysis or a report: one clear line, nothing half
written, and with room again the run goes on where it was."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from attack.finds import Find, PartResult
from attack.live_run import LiveRun, Whole, undisturbed
from attack.readers import DATA
from model_profiling.core import process

RECORDED = DATA / "runs" / "emulated_sme2"
LARGEST, SMALLEST = 1024, 8
"""In KiB; a run with its analysis takes some 600."""
ENOUGH = "64m"


@contextmanager
def disk(place: Path, kibibytes: int) -> Iterator[None]:
    place.mkdir(parents=True, exist_ok=True)
    done = process.run(["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", place], timeout=20)
    if not done.ok:
        raise PermissionError(done.tail(1))
    try:
        yield
    finally:
        process.run(["umount", "-l", place], timeout=20)


def sizes(count: int) -> list[int]:
    """From one that is large enough down, each by the same factor."""
    step = (SMALLEST / LARGEST) ** (1 / max(1, count - 1))
    return [round(LARGEST * step**number) for number in range(count)]


def fill(count: int, work: Path) -> PartResult:
    if sys.platform != "linux" or os.geteuid() != 0:
        return PartResult("disks", skipped="only root mounts a small file system")
    began, finds, tried = time.monotonic(), [], 0
    whole = undisturbed(work / "whole", "rounds")
    try:
        for kibibytes in sizes(count):
            for name, attack in (("run", partial(_run, whole)), ("analyze", _analyze), ("report", _analyze)):
                place = work / f"{name}-{kibibytes}"
                with disk(place, kibibytes):
                    case = f"{name} on {kibibytes} KiB"
                    finds += [
                        Find("disks", case, what)
                        for what in attack(place, work / f"c-{name}-{kibibytes}", name)
                    ]
                tried += 1
    except PermissionError as problem:
        return PartResult("disks", skipped=f"this root may not mount: {problem}")
    return PartResult("disks", tried, time.monotonic() - began, tuple(finds))


def _run(whole: Whole, place: Path, folder: Path, name: str) -> Iterator[str]:
    """Measure onto the small disk; then give it room and resume."""
    del name
    run = LiveRun(folder, output=place / "run")
    ended = run.call("run", "c.json")
    if ended is None or not ended.is_clear:
        yield f"no clear answer: {ended.tail() if ended else 'it did not end'}"
    yield from (f"orphan: {words}" for words in run.end_orphans())
    before = set(run.steps_done())
    _resize(place, ENOUGH)
    resumed = run.call("run", "c.json", "--resume")
    if resumed is None or resumed.code != 0:
        yield f"--resume with room failed: {resumed.tail() if resumed else 'it did not end'}"
        return
    if lost := before - set(run.steps_done()):
        yield f"rounds that were there before are lost: {sorted(lost)}"
    yield from run.wrong(whole.planned)


def _analyze(place: Path, folder: Path, name: str) -> Iterator[str]:
    """Analyse or report a run on a disk that has what is left over beside it; what was there stays whole."""
    run = LiveRun(folder, output=place / "run")
    room = shutil.disk_usage(place).total
    _resize(place, ENOUGH)
    shutil.copytree(RECORDED, run.run_dir)
    used = shutil.disk_usage(place).used
    _resize(place, f"{(used + room) // 1024}k")
    before = _contents(run.run_dir)
    ended = run.call(name, str(run.run_dir))
    if ended is None or not ended.is_clear:
        yield f"no clear answer: {ended.tail() if ended else 'it did not end'}"
    left = _contents(run.run_dir)
    yield from run.untidy()
    _resize(place, ENOUGH)
    again = run.call(name, str(run.run_dir))
    if again is None or again.code != 0:
        yield f"with room it failed: {again.tail() if again else 'it did not end'}"
    after = _contents(run.run_dir)
    # Each file is as it was, or as it is when there is room: nothing between.
    torn = [path.name for path, data in left.items() if data not in (before.get(path), after.get(path))]
    if torn or before.keys() - left.keys():
        yield f"half written or lost: {torn} {[path.name for path in before.keys() - left.keys()]}"


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _resize(place: Path, size: str) -> None:
    done = process.run(["mount", "-o", f"remount,size={size}", place], timeout=20)
    if not done.ok:
        raise PermissionError(done.tail(1))
