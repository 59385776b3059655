"""What the instructions of a program take: each call of the runtime as a whole, overheads in it included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.summary import DumpAnalysis

Place = tuple[str, int, int]
"""Method, chain and instruction; the method is empty where no program tells it."""


def instruction_ms(series: SeriesAnalysis) -> Mapping[Place, float]:
    """Milliseconds of every instruction in the typical runs, on average; a loop's repetitions together."""
    is_typical = np.zeros(series.runs, bool)
    is_typical[series.typical] = True
    total_ns: Counter[Place] = Counter()
    before = 0
    for dump in series.rounds:
        for structure, group in enumerate(dump.attribution.groups):
            method = _method(dump, structure)
            chosen = is_typical[before + group.runs]
            for node in group.nodes:
                if node.level == "call":
                    place = method, node.chain_index, node.instruction_id
                    total_ns[place] += int(group.duration_ns[chosen, node.column].sum())
        before += dump.runs
    return {place: total / len(series.typical) / 1e6 for place, total in total_ns.items()}


def _method(dump: DumpAnalysis, structure: int) -> str:
    owners = dump.operator_of_event[structure]
    return next((dump.operators[owner].method for owner in owners.tolist() if owner >= 0), "")
