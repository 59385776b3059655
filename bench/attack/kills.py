"""Signals to a command, or to a process that it started, at random moments; then it is tried again, and all
is as if nothing had been: every round there once, nobody left behind, no lock held."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from attack.finds import Find, PartResult
from attack.live_run import LIMIT_S, Whole, undisturbed
from attack.verbs import Verb
from model_profiling.core.errors import ProfilingError

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
Victim = Literal["parent", "child"]


@dataclass(frozen=True, slots=True)
class Kill:
    """One drawn accident."""

    number: int
    verb: Verb
    victim: Victim
    signal: signal.Signals
    part: float
    """How much of its time has passed."""

    def __str__(self) -> str:
        who = "the command" if self.victim == "parent" else "a process of it"
        return f"kill {self.number}: {self.signal.name} to {who}, {self.verb.name}, at {self.part:.0%}"


def draw(count: int, seed: int, verbs: Sequence[Verb]) -> list[Kill]:
    """Each verb by its weight; those that take long get few."""
    chance = random.Random(seed)
    due = [verb for verb in verbs for _ in range(verb.weight)]
    chance.shuffle(due)
    kills = []
    for number in range(count):
        verb = due[number % len(due)]
        victim: Victim = chance.choice(("parent", "parent", "child" if verb.children else "parent"))
        kills.append(Kill(number, verb, victim, chance.choice(SIGNALS), chance.random()))
    return kills


def kill(count: int, seed: int, work: Path, verbs: Sequence[Verb]) -> PartResult:
    if sys.platform != "linux":
        return PartResult("kills", skipped="the processes of a run are found in /proc, which Linux has")
    began = time.monotonic()
    finds: list[Find] = []
    hit: Counter[str] = Counter()
    lines = []
    if why_not := _no_emulation():
        verbs = [verb for verb in verbs if verb.name != "run emulated"]
        lines.append(f"QEMU was not killed: {why_not}")
    wholes: dict[str, Whole] = {}
    made = work / "made"
    made.mkdir()
    for each in draw(count, seed, verbs):
        if each.verb.name not in wholes:
            wholes[each.verb.name] = prepared(each.verb, made, work / f"whole {each.verb.name}")
        what, landed = killed_and_tried_again(each, made, work / str(each.number), wholes[each.verb.name])
        hit[f"{each.verb.name}, {each.victim}" if landed else "too late"] += 1
        finds += [Find("kills", str(each), one) for one in what]
        print(f"{each}: {what or 'nothing'}", file=sys.stderr, flush=True)
    lines += [f"{name:24} {times}" for name, times in sorted(hit.items())]
    seconds = time.monotonic() - began
    tried = sum(hit.values()) - hit["too late"]
    return PartResult("kills", tried, seconds, tuple(finds), figures=dict(hit), lines=tuple(lines))


def _no_emulation() -> str:
    from model_profiling.targets.emulated import EmulatedTarget

    try:
        EmulatedTarget().prepare()
    except ProfilingError as problem:
        return problem.problem
    return ""


def prepared(verb: Verb, made: Path, folder: Path) -> Whole:
    """What the command leaves when nothing happens to it."""
    verb.once(made)
    live = verb.live(made, folder)
    with verb.beside(folder):
        return undisturbed(live, *verb.words)


def killed_and_tried_again(each: Kill, made: Path, folder: Path, whole: Whole) -> tuple[list[str], bool]:
    """What is wrong after it, and whether the signal met anybody."""
    verb, landed = each.verb, False
    live = verb.live(made, folder)
    wrong = []
    with verb.beside(folder) as others:
        child = live.start(*verb.words)
        time.sleep(each.part * whole.seconds)
        until = time.monotonic() + LIMIT_S
        while child.poll() is None and time.monotonic() < until and not landed:
            victims = [child.pid]
            if others is not None:
                victims = [pid for pid, words in others.processes() if " worker " in words]
            elif each.victim == "child":
                victims = [pid for pid, _ in live.processes() if pid != child.pid]
            if victims and child.poll() is None:
                try:
                    os.kill(victims[each.number % len(victims)], each.signal)
                    landed = True
                except ProcessLookupError:
                    continue  # it ended in the meantime; the next one does as well
            time.sleep(0.002)
        ended = live.finish(child)
        if ended is None:
            wrong.append(f"it did not end in {LIMIT_S:.0f} s")
        # Who is killed says nothing; who is asked to end says so, by the signal's own exit code.
        elif not (ended.is_calm if each.victim == "parent" and others is None else ended.is_clear):
            wrong.append(f"no clear answer: {ended.tail()}")
        before = set(live.steps_done())
        wrong += [f"orphan: {words}" for words in live.end_orphans()]
        again = live.call(*verb.second())
    if not live.is_finished(again, whole):
        return [*wrong, f"the second try failed: {again.tail() if again else 'it did not end'}"], landed
    if lost := before - set(live.steps_done()):
        wrong.append(f"rounds that were there before are lost: {sorted(lost)}")
    wrong += [*live.wrong(whole, exactly=verb.rounds), *verb.holds(live)]
    return [*wrong, *(f"orphan: {words}" for words in live.end_orphans())], landed
