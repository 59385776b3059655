"""What others reported of SME2 that fits this program: shapes as a risk, defects of the release that ran it.

Nothing of it was measured here, so nothing has a bound, and no operator is taken from causes that have one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from model_profiling.analysis.causes.places import by_place
from model_profiling.analysis.coverage import Coverage
from model_profiling.analysis.findings import WORTH, Concern, Finding, where
from model_profiling.analysis.known_defects import DEFECTS, RISKS, Risk, release_of
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.program.matrix_work import MatrixWork
from model_profiling.wording import plural


def sme2_risks(series: SeriesAnalysis, coverage: Coverage) -> Finding | None:
    """Shapes on SME2 paths, proven or by the program alone, that were reported to suffer from them."""
    told = [(risk, _at_risk(risk, coverage)) for risk in RISKS]
    told = [(risk, hit) for risk, hit in told if _is_worth(hit, coverage.work)]
    if not told:
        return None
    operators = sum(len(hit) for _, hit in told)
    return Finding(
        "sme2-risk",
        f"Measure {plural(operators, 'operator')} with SME2 off and on before trusting SME2 with "
        f"{'it' if operators == 1 else 'them'}",
        "; ".join(risk.instead for risk, _ in told),
        series,
        tuple(
            concern
            for risk, hit in told
            for concern in _concerns(series, hit, f"reported, not measured here: {risk.what}", risk.reported)
        ),
        {
            "measured_here": False,
            "risks": [
                {"what": risk.what, "reported": risk.reported, "operators": len(hit)} for risk, hit in told
            ],
        },
    )


def known_defects(series: SeriesAnalysis, coverage: Coverage, executorch: str) -> Finding | None:
    """Defects of the release that ran it which an operator of the program meets."""
    release = release_of(executorch)
    there = [defect for defect in DEFECTS if release is not None and defect.is_in(release)]
    met = [(defect, [work for work in coverage.work if defect.concerns(work)]) for defect in there]
    met = [(defect, hit) for defect, hit in met if hit]
    if not met:
        return None
    return Finding(
        "known-defect",
        f"Beware of {plural(len(met), 'known defect')} of ExecuTorch {executorch}",
        "; ".join(dict.fromkeys(defect.instead for defect, _ in met)),
        series,
        tuple(
            concern for defect, hit in met for concern in _concerns(series, hit, defect.what, defect.reported)
        ),
        {
            "executorch": executorch,
            "defects": [
                {
                    "what": defect.what,
                    "reported": defect.reported,
                    "repaired": defect.repaired,
                    "operators": len(hit),
                }
                for defect, hit in met
            ],
        },
    )


def _at_risk(risk: Risk, coverage: Coverage) -> list[MatrixWork]:
    """Those proven on SME2 kernels; where that was not tested, those the backend would take there. What ran
    did not crash."""
    if coverage.tested:
        proven = zip(coverage.work, coverage.operators, strict=True) if coverage.work else ()
        found: Iterable[MatrixWork] = (
            work for work, operator in proven if operator.on_sme and not risk.crashes
        )
    else:
        found = (work for work in coverage.work if work.takes_sme)
    return [work for work in found if risk.concerns(work)]


def _is_worth(hit: Sequence[MatrixWork], every: Sequence[MatrixWork]) -> bool:
    """By arithmetic, or by the bytes it moves: of one row, reading the weights is the work."""
    flops, moved = _sums(hit)
    all_flops, all_moved = _sums(every)
    return bool(hit) and (flops >= WORTH * all_flops or moved >= WORTH * all_moved)


def _sums(work: Sequence[MatrixWork]) -> tuple[int, int]:
    moved = (each.node.bytes_moved if each.node else each.step.bytes_moved for each in work)
    return sum(each.flops or 0 for each in work), sum(moved)


def _concerns(
    series: SeriesAnalysis, hit: Sequence[MatrixWork], what: str, reported: str
) -> Iterator[Concern]:
    ran = by_place(series)
    for work in hit:
        step = work.step
        found = ran.get((work.method, step.chain_index, step.instruction_id, work.node_index))
        if found:
            facts = {"what": what, "reported": reported, "rows": work.rows}
            yield Concern(tuple(found), where(found[0]), f"{what} ({reported})", facts)
