"""The three answers at the top of a store's page, of everything that is in it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from model_profiling.report.document import Answers, Strong, Text
from model_profiling.report.store_index.records import (
    Change,
    Kernels,
    SeriesHistory,
    StoreContents,
    StoredRun,
)
from model_profiling.run import Times
from model_profiling.wording import listing, plural, span

_NAMED = 3
"""How many an answer names, at most."""

_NOT_PROVEN = (
    (Kernels.SME_RAN, "SME or SME2, which is not told:"),
    (Kernels.NONE_RAN, "none ran in"),
    (Kernels.NOT_TESTED, "not tested:"),
)


def answers(contents: StoreContents) -> Answers:
    return Answers(
        (
            ("What is in it?", _inventory(contents.runs)),
            ("Did anything become slower?", _slower(contents)),
            ("Do SME2 kernels run?", _kernels(contents.runs)),
        )
    )


def change_text(change: Change) -> str:
    """`3.2% slower`: of the time before."""
    way = f"{'slower' if change.share > 0 else 'faster'}{' little by little' if change.until else ''}"
    return f"{100 * abs(change.share):.1f}% {way}"


def program_of(found: StoredRun | SeriesHistory) -> str:
    return f"{found.model} {found.format}".strip()


def _inventory(runs: Sequence[StoredRun]) -> Text:
    if not runs:
        return "No run yet: `sme2prof store add RUN_DIR` puts one into it."
    dates = sorted(run.measured[:10] for run in runs)
    models = {run.model for run in runs}
    devices = {run.device for run in runs if run.times is not Times.EMULATED}
    places = [plural(len(devices), "device")] if devices else []
    places += ["an emulator"] if any(run.times is Times.EMULATED for run in runs) else []
    return (
        Strong(_count(len(runs), "run")),
        f", {span(dates[0], dates[-1])}: {plural(len(models), 'model')} on {listing(places)}.",
    )


def _slower(contents: StoreContents) -> Text:
    """Of the series that each model, format and device is told by."""
    told = [history for history in contents.histories if history.headline]
    judged = [history for history in told if history.judged]
    if not judged:
        most = max((len(history.points) for history in told), default=0)
        there = f"there {'is' if most == 1 else 'are'} {most} at most"
        return (
            f"Not known yet: it takes {plural(contents.method.fewest_runs, 'run')} of one model on one "
            f"device to tell a change from noise, and {there}."
        )
    since_best = [(each, _since_best(each.changes)) for each in judged]
    slower = [(each, change) for each, change in since_best if change is not None]
    faster = sum(change is None and _net(each.changes) < 0 for each, change in since_best)
    also = f" {faster} became faster." if faster else ""
    if not slower:
        return Strong("No"), f": of {_histories(len(judged))}, none became slower.{also}"
    history, change = max(slower, key=lambda each: each[1].share)
    dates = {run.id: run.measured[:10] for run in contents.runs}
    worst = f"{program_of(history)} on {history.device}, {change_text(change)} since {dates[change.run]}"
    first = "" if len(slower) == 1 else "most of all "
    return Strong("Yes"), f": {len(slower)} of {_histories(len(judged))}, {first}{worst}.{also}"


def _since_best(changes: Sequence[Change]) -> Change | None:
    """How much slower a series is than it was at its best, as a change at the run after that; None where what
    is left is less than the smallest of the changes since, as after one that was undone."""
    best = min(range(len(changes)), key=lambda count: _net(changes[:count]), default=0)
    since = changes[best:]
    left = _net(since)
    if not since or left * (1 + 1e-9) < min(abs(change.share) for change in since):
        return None
    return replace(since[0], share=left, until=since[0].until if len(since) == 1 else "")


def _net(changes: Sequence[Change]) -> float:
    """What several changes come to, as a share of the time before the first."""
    return math.prod(1 + change.share for change in changes) - 1


def _kernels(runs: Iterable[StoredRun]) -> Text:
    states = kernel_states(runs)
    proven = sum(state.proven for state in states.values())
    rest = [
        f"{words} {_some(found)}"
        for wanted, words in _NOT_PROVEN
        if (found := sorted(program for program, state in states.items() if state is wanted))
    ]
    if proven:
        told = "; ".join((f"proven for {proven} of {plural(len(states), 'program')}", *rest))
        return Strong("Yes"), f": {told}."
    if set(states.values()) <= {Kernels.NOT_TESTED}:
        return Strong("Not tested"), ": no run has kernel evidence."
    return Strong("Not proven"), f": {'; '.join(rest)}."


def kernel_states(runs: Iterable[StoredRun]) -> dict[str, Kernels]:
    """Of each program what the newest test said, wherever it was run: hardware and emulation prove the
    same, and a run that tested nothing takes no proof away."""
    states: dict[str, Kernels] = {}
    for run in sorted(runs, key=lambda run: run.measured):
        if run.kernels is not Kernels.NOT_TESTED or program_of(run) not in states:
            states[program_of(run)] = run.kernels
    return states


def _some(programs: Sequence[str]) -> str:
    left = len(programs) - _NAMED
    return listing([*programs[:_NAMED], f"{left} more"] if left > 0 else programs)


def _histories(count: int) -> str:
    return f"{count:,} {'history' if count == 1 else 'histories'}"


def _count(count: int, word: str) -> str:
    return f"{count:,} {word if count == 1 else f'{word}s'}"
