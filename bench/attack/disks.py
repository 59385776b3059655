"""File systems that fill up in the middle of a command: one clear line, nothing half written, and with room
again the command goes on where it was."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from attack.finds import Find, PartResult
from attack.kills import prepared
from attack.live_run import Whole, used
from attack.verbs import Verb
from model_profiling.core import process

LEAST, SMALLEST = 256, 8
"""In KiB; what is written again takes room beside what is there."""
ENOUGH = 16 << 20
"""Which the doctor asks for; nothing takes it."""


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


def sizes(count: int, largest: int) -> list[int]:
    """From one that is nearly large enough down, each by the same factor."""
    step = (SMALLEST / largest) ** (1 / max(1, count - 1))
    return [round(0.97 * largest * step**number) for number in range(count)]


def fill(count: int, work: Path, verbs: Sequence[Verb]) -> PartResult:
    if sys.platform != "linux" or os.geteuid() != 0:
        return PartResult("disks", skipped="only root mounts a small file system")
    began, finds, figures = time.monotonic(), [], {}
    made = work / "made"
    made.mkdir()
    try:
        for verb in verbs:
            whole = prepared(verb, made, work / f"whole {verb.name}")
            figures[verb.name] = sizes(max(1, count * min(verb.weight, 4) // 4), max(LEAST, whole.kibibytes))
            for kibibytes in figures[verb.name]:
                place = work / f"{verb.name} {kibibytes}"
                with disk(place, ENOUGH):
                    what = list(filled(verb, made, place, kibibytes, whole))
                case = f"{verb.name} with {kibibytes} KiB left"
                finds += [Find("disks", case, one) for one in what]
                print(f"{case}: {what or 'nothing'}", file=sys.stderr, flush=True)
    except PermissionError as problem:
        return PartResult("disks", skipped=f"this root may not mount: {problem}")
    tried = sum(map(len, figures.values()))
    return PartResult("disks", tried, time.monotonic() - began, tuple(finds), figures=figures)


def filled(verb: Verb, made: Path, place: Path, kibibytes: int, whole: Whole) -> Iterator[str]:
    """What is wrong when there is only so much room left for what it writes, and then enough."""
    live = verb.live(made, place)
    before, rounds = _contents(place), set(live.steps_done())
    with verb.beside(place):
        _resize(place, used(place) + kibibytes)
        ended = live.call(*verb.words)
        if ended is None or not ended.is_clear:
            yield f"no clear answer: {ended.tail() if ended else 'it did not end'}"
        yield from (f"orphan: {words}" for words in live.end_orphans())
        yield from live.untidy() if verb.same else ()  # an unfinished run may keep its work
        left, rounds = _contents(place), rounds | set(live.steps_done())
        _resize(place, ENOUGH)
        again = live.call(*verb.second())
    if not live.is_finished(again, whole):
        yield f"with room it failed: {again.tail() if again else 'it did not end'}"
        return
    if lost := rounds - set(live.steps_done()):
        yield f"rounds that were there before are lost: {sorted(lost)}"
    after = _contents(place)
    # Each file is as it was, or as it is when there is room: nothing between.
    torn = [path.name for path, data in left.items() if data not in (before.get(path), after.get(path))]
    if verb.same and (torn or before.keys() - left.keys()):
        yield f"half written or lost: {torn} {[path.name for path in before.keys() - left.keys()]}"
    yield from live.wrong(whole, exactly=verb.rounds)
    yield from verb.holds(live)


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _resize(place: Path, kibibytes: int) -> None:
    done = process.run(["mount", "-o", f"remount,size={kibibytes}k", place], timeout=20)
    if not done.ok:
        raise PermissionError(done.tail(1))
