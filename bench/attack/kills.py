"""Signals to the parent, the runner and QEMU at random moments; then `--resume`, and the run is as if nothing
had been: every round there once, nobody left behind, no lock held."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from attack.finds import Find, PartResult
from attack.live_run import LIMIT_S, LiveRun, Mode, Whole, undisturbed
from model_profiling.core.errors import ProfilingError

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
Victim = Literal["parent", "runner", "qemu"]


@dataclass(frozen=True, slots=True)
class Kill:
    """One drawn accident: so long after so many processes of the run have ended."""

    number: int
    victim: Victim
    signal: signal.Signals
    mode: Mode
    part: float
    """How far the run is, of what its journal will hold."""
    delay: float

    def __str__(self) -> str:
        return f"kill {self.number}: {self.signal.name} to the {self.victim}, {self.mode}, at {self.part:.0%}"


def draw(count: int, seed: int, *, emulated: bool) -> list[Kill]:
    """A fifth of the kills meet QEMU where it can be had: a run there takes many times as long."""
    chance = random.Random(seed)
    kills = []
    for number in range(count):
        victim: Victim = (
            "qemu" if emulated and number % 5 == 4 else chance.choice(("parent", "parent", "runner"))
        )
        mode: Mode = "rounds" if victim == "qemu" else chance.choice(("lockstep", "rounds"))
        delay = chance.uniform(0, 0.4) if victim == "parent" else 0.0
        kills.append(Kill(number, victim, chance.choice(SIGNALS), mode, chance.random(), delay))
    return kills


def kill(count: int, seed: int, work: Path) -> PartResult:
    if sys.platform != "linux":
        return PartResult("kills", skipped="the processes of a run are found in /proc, which Linux has")
    began = time.monotonic()
    why_not = _no_emulation()
    kills = draw(count, seed, emulated=not why_not)
    whole: dict[tuple[str, str], Whole] = {}
    finds: list[Find] = []
    hit: Counter[str] = Counter()
    for each in kills:
        target = "emulated" if each.victim == "qemu" else "host"
        if (target, each.mode) not in whole:
            whole[target, each.mode] = undisturbed(work / f"whole-{target}-{each.mode}", each.mode, target)
        run = LiveRun(work / str(each.number), mode=each.mode, target=target)
        what, landed = _killed_and_resumed(run, each, whole[target, each.mode])
        hit[f"{each.victim} {each.signal.name}" if landed else "too late"] += 1
        finds += [Find("kills", str(each), one) for one in what]
    lines = [f"{name:16} {times}" for name, times in sorted(hit.items())]
    if why_not:
        lines.append(f"QEMU was not killed: {why_not}")
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


def _killed_and_resumed(run: LiveRun, each: Kill, whole: Whole) -> tuple[list[str], bool]:
    """What is wrong after it, and whether the signal met anybody."""
    child = run.start()
    until = time.monotonic() + LIMIT_S
    landed = False
    while child.poll() is None and time.monotonic() < until:
        if run.journal_lines() >= int(each.part * (whole.lines + 1)):
            time.sleep(each.delay)
            victims = [child.pid] if each.victim == "parent" else _named(run, each.victim)
            if victims and child.poll() is None:
                try:
                    os.kill(victims[0], each.signal)
                    landed = True
                    break
                except ProcessLookupError:
                    continue  # it ended in the meantime; the next one does as well
        time.sleep(0.002)
    ended = run.finish(child)
    wrong = [] if ended is not None else [f"the run did not end in {LIMIT_S:.0f} s"]
    # Who is killed says nothing; who is asked to end says so, by the signal's own exit code.
    if ended is not None and not (ended.is_clear if each.victim != "parent" else ended.is_calm):
        wrong.append(f"no clear answer: {ended.tail()}")
    before = set(run.steps_done())
    wrong += [f"orphan: {words}" for words in run.end_orphans()]
    resumed = run.call("run", "c.json", "--resume")
    if resumed is None or resumed.code != 0:
        return [*wrong, f"--resume failed: {resumed.tail() if resumed else 'it did not end'}"], landed
    if lost := before - set(run.steps_done()):
        wrong.append(f"rounds that were there before are lost: {sorted(lost)}")
    return [
        *wrong,
        *run.wrong(whole.planned, set(whole.files) or None),
        *(f"orphan: {w}" for w in run.end_orphans()),
    ], landed


def _named(run: LiveRun, victim: Victim) -> list[int]:
    name = "qemu-aarch64" if victim == "qemu" else "sme2prof-runner"
    return [pid for pid, words in run.processes() if name in words.split(" ")[0]]
