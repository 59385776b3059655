"""The three answers at the top of a store's page, of everything that is in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from model_profiling.report.document import Answers, Strong, Text
from model_profiling.report.store_index.records import (
    Kernels,
    SeriesHistory,
    StoreContents,
    StoredRun,
)
from model_profiling.wording import listing, plural, span

_NAMED = 3
"""How many an answer names, at most."""


def answers(contents: StoreContents) -> Answers:
    return Answers(
        (
            ("What is in it?", _inventory(contents.runs)),
            ("Did anything become slower?", _slower(contents)),
            ("Do SME2 kernels run?", _kernels(contents.runs)),
        )
    )


def change_text(percent: float) -> str:
    """`3.2% slower`: of the time before."""
    return f"{abs(percent):.1f}% {'slower' if percent > 0 else 'faster'}"


def program_of(found: StoredRun | SeriesHistory) -> str:
    return f"{found.model} {found.format}".strip()


def _inventory(runs: Sequence[StoredRun]) -> Text:
    if not runs:
        return "No run yet: `sme2prof store add RUN_DIR` puts one into it."
    dates = sorted(run.measured[:10] for run in runs)
    models, devices = {run.model for run in runs}, {run.device for run in runs}
    return (
        Strong(_count(len(runs), "run")),
        f", {span(dates[0], dates[-1])}: {plural(len(models), 'model')} on {plural(len(devices), 'device')}.",
    )


def _slower(contents: StoreContents) -> Text:
    """Of the series that each model, format and device is told by."""
    told = [history for history in contents.histories if history.headline]
    judged = [history for history in told if len(history.points) >= contents.method.fewest_runs]
    if not judged:
        most = max((len(history.points) for history in told), default=0)
        return (
            f"Not known yet: it takes {plural(contents.method.fewest_runs, 'run')} of one model on one "
            f"device to tell a change from noise, and there {'is' if most == 1 else 'are'} {most} at most."
        )
    changed = [(history, history.changes[-1]) for history in judged if history.changes]
    slower = [each for each in changed if each[1].percent > 0]
    faster = len(changed) - len(slower)
    also = f" {faster} became faster." if faster else ""
    if not slower:
        return Strong("No"), f": of {_histories(len(judged))}, none became slower.{also}"
    history, change = max(slower, key=lambda each: each[1].percent)
    dates = {run.id: run.measured[:10] for run in contents.runs}
    worst = (
        f"{program_of(history)} on {history.device}, {change_text(change.percent)} since {dates[change.run]}"
    )
    most = f"{worst}." if len(slower) == 1 else f"most of all {worst}."
    return Strong("Yes"), f": {len(slower)} of {_histories(len(judged))}, {most}{also}"


def _kernels(runs: Iterable[StoredRun]) -> Text:
    states = kernel_states(runs)
    proven = [program for program, state in states.items() if state.proven]
    absent = sorted(program for program, state in states.items() if state is Kernels.NONE_RAN)
    untested = sorted(program for program, state in states.items() if state is Kernels.NOT_TESTED)
    rest = (f" None ran in {_some(absent)}." if absent else "") + (
        f" Not tested: {_some(untested)}." if untested else ""
    )
    if proven:
        return Strong("Yes"), f": proven for {len(proven)} of {plural(len(states), 'program')}.{rest}"
    if absent:
        return Strong("No"), f":{rest}"
    return Strong("Not tested"), ": no run has kernel evidence."


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
