"""A wall clock that jumps by seconds, days and decades, back and forth, while a run is measured, interrupted,
resumed, analysed and reported: no time limit fires, no latency changes, nothing is lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from attack.finds import Find, PartResult
from attack.live_run import LIMIT_S, LiveRun, Whole, undisturbed
from model_profiling.core import process
from model_profiling.runs.journal import Journal

SOURCE = Path(__file__).with_name("clock_steps.c")
PERIODS_MS = (3, 20, 150, 1000)
LONGEST_NS = 10 * 10**9
"""No inference of the small program takes so long, and a jump is longer."""


def step(seed: int, work: Path) -> PartResult:
    compiler = shutil.which(os.environ.get("CC", "cc")) or shutil.which("gcc") or shutil.which("clang")
    if sys.platform != "linux" or compiler is None:
        return PartResult(
            "clocks", skipped="it takes Linux and a C compiler to put a clock before the system's"
        )
    library = work / "clock_steps.so"
    made = process.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], timeout=60)
    if not made.ok:
        return PartResult("clocks", skipped=f"{compiler} cannot build the clock: {made.tail(1)}")
    if not _jumps(library):
        return PartResult("clocks", skipped="this Python does not take its time from the C library")
    began, finds = time.monotonic(), []
    chance = random.Random(seed)
    whole = undisturbed(LiveRun(work / "whole"), "run", "c.json")
    for period in PERIODS_MS:
        environment = {"LD_PRELOAD": str(library), "SME2PROF_ATTACK_STEP_MS": str(period)}
        run = LiveRun(work / str(period), environment=environment)
        case = f"a jump every {period} ms"
        finds += [Find("clocks", case, what) for what in _measured(run, whole, chance.random())]
    return PartResult("clocks", len(PERIODS_MS), time.monotonic() - began, tuple(finds))


def _jumps(library: Path) -> bool:
    """Whether the clock that was put before the system's is looked at."""
    words = "import time\nseen = set()\nfor _ in range(30):\n seen.add(int(time.time()) // 1000)\n"
    words += " time.sleep(0.005)\nprint(len(seen))"
    environment = {"LD_PRELOAD": str(library), "SME2PROF_ATTACK_STEP_MS": "3"}
    done = process.run([sys.executable, "-c", words], timeout=60, env=environment)
    return done.ok and int(done.stdout) > 2


def _measured(run: LiveRun, whole: Whole, part: float) -> Iterator[str]:
    """What is wrong after a run that was interrupted once, so far on its way, and resumed."""
    lines = 1 + int(part * (whole.lines - 1))
    child = run.start("run", "c.json")
    until = time.monotonic() + LIMIT_S
    while child.poll() is None and run.journal_lines() < lines and time.monotonic() < until:
        time.sleep(0.01)
    child.send_signal(signal.SIGINT)
    if (ended := run.finish(child)) is None or not ended.is_clear:
        yield f"no clear answer: {ended.tail() if ended else 'it did not end'}"
    before = set(run.steps_done())
    for words in (("run", "c.json", "--resume"), ("analyze", str(run.run_dir)), ("report", str(run.run_dir))):
        ended = run.call(*words)
        if ended is None or ended.code != 0:
            yield f"{words[0]} failed: {ended.tail() if ended else 'it did not end'}"
            return
    if lost := before - set(run.steps_done()):
        yield f"rounds that were there before are lost: {sorted(lost)}"
    for entry in Journal(run.run_dir).entries():
        if entry.seconds < 0 or entry.seconds > 600:
            yield f"{entry.step.key} is said to have taken {entry.seconds} s"
        times = [*entry.iterations_ns, *(ns for turn in entry.turns_ns for ns in turn)]
        if any(not 0 < ns < LONGEST_NS for ns in times):
            yield f"{entry.step.key} has a latency of {max(times)} ns"
    yield from run.wrong(whole, files=False)
    yield from (f"orphan: {words}" for words in run.end_orphans())
