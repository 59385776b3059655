"""How two series are set against each other, the same for end-to-end time, categories and operators: cycle by
cycle where they took turns, round by round where their processes ran one after another, else as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.run.latencies import Way
from model_profiling.statistics.lockstep import Launches, Turns, compare_launches, compare_many_launches
from model_profiling.statistics.speedup import (
    Rounds,
    Speedup,
    compare_many,
    compare_rounds,
    compare_separate,
)
from model_profiling.statistics.verdict import Correction

CLOCK_STEP_MS = 0.001
"""Delegates count whole microseconds: a short operator seems to change by its rounding."""

Operators = Sequence[Operator]


def how_measured(baseline: SeriesAnalysis, candidate: SeriesAnalysis, interleaved: bool = True) -> Way:
    """What dumps of one run (`interleaved`), or of two, allow. A process that had the machine to itself met
    other moments than one that took turns; series of two runs may have been in the same launches."""
    if baseline.took_turns and candidate.took_turns:
        shared = _launches(baseline) & _launches(candidate)
        named = all(dump.dump.launch for side in (baseline, candidate) for dump in side.rounds)
        return "lockstep" if shared and (interleaved or named) else "apart"
    alone = not baseline.took_turns and not candidate.took_turns
    return "rounds" if interleaved and alone else "apart"


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Two series, how they were measured, and why their times must not be compared where they must not."""

    baseline: SeriesAnalysis
    candidate: SeriesAnalysis
    measured: Way
    why_not: str | None = None

    def end_to_end(self) -> Speedup:
        ours, theirs = self.baseline, self.candidate
        if self.measured == "lockstep":
            turns = _aligned(ours.part_turns(ours.breakdown.e2e), theirs.part_turns(theirs.breakdown.e2e))
            return compare_launches(*turns, first_counts=True, not_comparable=self.why_not)
        compare = compare_rounds if self.measured == "rounds" else compare_separate
        rounds = ours.part_rounds(ours.breakdown.e2e), theirs.part_rounds(theirs.breakdown.e2e)
        return compare(*rounds, not_comparable=self.why_not)

    def categories(self) -> Mapping[str, Speedup]:
        """Verdicts of what end-to-end time divides into, by name; see `_judged`."""
        ours, theirs = self.baseline, self.candidate
        before, after = ours.parts, theirs.parts
        if self.measured == "lockstep":
            return self._judged_turns(
                {
                    name: _aligned(ours.part_turns(before[name]), theirs.part_turns(after[name]))
                    for name in before
                },
                "holm",
            )
        return self._judged(
            {name: (ours.part_rounds(before[name]), theirs.part_rounds(after[name])) for name in before},
            "holm",
        )

    def operators(self, pairs: Sequence[tuple[Operators, Operators]]) -> Mapping[str, Speedup]:
        """Verdicts of pairs of operators, by their number in `pairs`; see `_judged`."""
        ours, theirs = self.baseline, self.candidate
        if self.measured == "lockstep":
            return self._judged_turns(
                {
                    str(number): _aligned(ours.operator_turns(before), theirs.operator_turns(after))
                    for number, (before, after) in enumerate(pairs)
                },
                "benjamini-hochberg",
            )
        return self._judged(
            {
                str(number): (ours.operator_rounds(before), theirs.operator_rounds(after))
                for number, (before, after) in enumerate(pairs)
            },
            "benjamini-hochberg",
        )

    def ratio(self, found: Speedup | None, before_ms: float, after_ms: float) -> float | None:
        """With confidence where there is any, else of the times shown."""
        if self.why_not or (found is None and (before_ms <= 0 or after_ms <= 0)):
            return None
        return found.ratio if found is not None and found.ratio is not None else before_ms / after_ms

    def _judged(
        self, pairs: Mapping[str, tuple[Rounds, Rounds]], correction: Correction
    ) -> Mapping[str, Speedup]:
        """Verdicts for what took time in every round; a single process on one side allows none."""
        if min(len(self.baseline.rounds), len(self.candidate.rounds)) < 2 or self.why_not:
            return {}
        asked = {
            name: sides
            for name, sides in pairs.items()
            if all(len(times) and np.percentile(times, 25) > 0 for side in sides for times in side)
        }
        interleaved = self.measured == "rounds"
        return compare_many(asked, correction=correction, resolution=CLOCK_STEP_MS, interleaved=interleaved)

    def _judged_turns(
        self, pairs: Mapping[str, tuple[Launches, Launches]], correction: Correction
    ) -> Mapping[str, Speedup]:
        """The same for what took time in every run that has it; a single launch allows none."""
        if len(_launches(self.baseline) & _launches(self.candidate)) < 2 or self.why_not:
            return {}
        asked = {name: sides for name, sides in pairs.items() if all(map(_took_time, sides))}
        return compare_many_launches(
            asked, correction=correction, resolution=CLOCK_STEP_MS, first_counts=True
        )


def _launches(series: SeriesAnalysis) -> set[str]:
    return {dump.dump.met for dump in series.rounds}


def _aligned(ours: Mapping[str, Turns], theirs: Mapping[str, Turns]) -> tuple[Launches, Launches]:
    """The launches of both, in one order."""
    both = [launch for launch in ours if launch in theirs]
    return [ours[number] for number in both], [theirs[number] for number in both]


def _took_time(launches: Launches) -> bool:
    turns = [turn for launch in launches for turn in launch if turn]
    return bool(turns) and min(map(min, turns)) > 0
