"""Why operators miss SME2, and what others reported of SME2 that fits the program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from model_profiling.analysis.causes.context import by_place, place_of
from model_profiling.analysis.coverage import Coverage, MissingOperator
from model_profiling.analysis.findings import WORTH, Concern, Finding, percent, where
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core.formatting import plural
from model_profiling.program.matrix_work import MatrixWork

# Matrix operators that were proven to miss SME2, and why.
# There is no bound: what an operator would gain on SME2 was not measured. So it takes no operators from
# causes that have one.

_INSTEAD = {
    "dtype": "another number format may reach SME2 kernels (`sme2prof profile MODEL --dtype all`)",
    "quantization scheme": "quantize weights per output channel and inputs ahead of time, both to 8 bits",
    "dynamic weight": "leave products of two activations in fp32 or fp16",
    "portable": "bring what runs outside into the delegate",
    "depthwise": "depthwise convolution has no other path: a plain one of fewer channels has",
}
"""What helps against each cause; of others nothing is known to."""
_POINTWISE_FP16 = (
    "in fp16 write a 1x1 convolution as a linear layer over the channels: its weights are stored as fp16"
)


def misses_sme2(series: SeriesAnalysis, coverage: Coverage) -> Finding | None:
    missing = coverage.missing
    share = sum(each.share or 0.0 for each in missing)
    if not missing or (share < WORTH and all(each.share is not None for each in missing)):
        return None
    ran = by_place(series)
    every = plural(len(coverage.operators), "matrix operator")
    return Finding(
        "misses-sme2",
        f"Know why {len(missing)} of {every} {'misses' if len(missing) == 1 else 'miss'} SME2",
        "; ".join(dict.fromkeys(filter(None, map(_instead, missing)))) or "nothing is known to help",
        series,
        tuple(
            Concern(tuple(found), where(found[0]), each.reason, _facts(each))
            for each in missing
            if (found := ran.get(place_of(each.operator)))
        ),
        {
            "matrix_operators": len(coverage.operators),
            "missing": len(missing),
            "arithmetic_share_pct": percent(share),
            "by_cause": _by_cause(missing),
            "proven": "under emulation" if coverage.emulated else "on a CPU with SME2",
        },
    )


def _instead(missing: MissingOperator) -> str:
    pointwise = missing.operator.kind == "pointwise convolution"
    if pointwise and missing.cause == "dtype" and missing.operator.precision == "fp16":
        return _POINTWISE_FP16
    return _INSTEAD.get(missing.cause, "")


def _facts(missing: MissingOperator) -> dict[str, object]:
    return {
        "cause": missing.cause,
        "reason": missing.reason,
        "precision": missing.operator.precision,
        "arithmetic_share_pct": None if missing.share is None else percent(missing.share),
    }


def _by_cause(missing: Sequence[MissingOperator]) -> dict[str, dict[str, object]]:
    causes: dict[str, list[MissingOperator]] = {}
    for each in missing:
        causes.setdefault(each.cause, []).append(each)
    return {
        cause: {
            "operators": len(members),
            "arithmetic_share_pct": percent(sum(each.share or 0.0 for each in members)),
        }
        for cause, members in causes.items()
    }


# What others have reported of SME2 in ExecuTorch and its XNNPACK, by release and by what a program has.
# Each row was read in the public report or the sources it names; none was measured here. XNNPACK comes with
# ExecuTorch, so its defects are told by ExecuTorch's release: 1.0 to 1.2 have one state of it, 1.3 and 1.4
# another.

Release = tuple[int, int, int]
_LARGE_KERNEL = 7
ONE_ROW_ISSUE = "google/XNNPACK issue 10719"
LARGE_KERNEL_ISSUE = "microsoft/onnxruntime issue 27633"


@dataclass(frozen=True, slots=True)
class Defect:
    """Something that goes wrong in some releases for some operators."""

    what: str
    """What happens, as it was reported."""
    reported: str
    """Where it can be read."""
    first: Release
    last: Release | None
    """The last release that is known to have it; None where it is not known to be repaired."""
    concerns: Callable[[MatrixWork], bool]
    instead: str
    """What to do."""

    @property
    def repaired(self) -> str:
        """Since when it is, in words."""
        if self.last is None:
            return "not known to be repaired"
        return f"known up to {'.'.join(map(str, self.last))}"

    def is_in(self, release: Release) -> bool:
        return self.first <= release and (self.last is None or release <= self.last)


@dataclass(frozen=True, slots=True)
class Risk:
    """A shape that SME2 was reported to slow down or to crash on; that it does so here was not measured."""

    what: str
    reported: str
    concerns: Callable[[MatrixWork], bool]
    instead: str
    crashes: bool = False
    """What ran does not have it."""


def _is_one_row(work: MatrixWork) -> bool:
    return work.rows == 1 and work.node is not None and work.node.kind in ("FullyConnected", "Conv2d")


def is_large_kernel(kernel: Sequence[int]) -> bool:
    return bool(kernel) and min(kernel) >= _LARGE_KERNEL


def _is_large_kernel(work: MatrixWork) -> bool:
    window = work.node.window if work.node else None
    plain = work.kind == "convolution" and window is not None and window.groups == 1
    # Patches that do not overlap are read once, however large: what was reported are windows that do.
    return (
        plain
        and window is not None
        and is_large_kernel(window.kernel)
        and any(step < side for step, side in zip(window.stride, window.kernel, strict=True))
    )


def _is_grouped_int8(work: MatrixWork) -> bool:
    node = work.node
    return node is not None and node.kind == "Conv2d" and node.dtype == "qint8" and _groups(work) > 1


def _groups(work: MatrixWork) -> int:
    return work.node.window.groups if work.node and work.node.window else 1


def _is_float_convolution(work: MatrixWork) -> bool:
    node = work.node
    return node is not None and work.kind == "convolution" and node.dtype in ("fp16", "fp32")


_GROUPED_CRASH = "int8 grouped convolutions crash in KleidiAI's packing with SME2 on (seen on an Apple M4)"
_GROUPED_REPORT = "google/XNNPACK issue 9898"

DEFECTS: tuple[Defect, ...] = (
    Defect(
        _GROUPED_CRASH,
        f"{_GROUPED_REPORT}, with 1.0.1 and 1.1.0; 1.0.0 and 1.2.0 have the same XNNPACK",
        (1, 0, 0),
        (1, 2, 99),
        _is_grouped_int8,
        "use ExecuTorch 1.3 or later, or run with SME2 off",
    ),
    Defect(
        "fp32 and fp16 convolutions take no SME2 path: XNNPACK has it for int8 only",
        "XNNPACK's sources, `xnn_subgraph_optimize_packed_lhs`",
        (1, 0, 0),
        (1, 2, 99),
        _is_float_convolution,
        "use ExecuTorch 1.3 or later",
    ),
)

RISKS: tuple[Risk, ...] = (
    Risk(
        "one row (batch 1): packed SME2 paths were 1.4 to 3 times slower there than without",
        f"{ONE_ROW_ISSUE}, a Dimensity 9500",
        _is_one_row,
        "give it more rows at once (a larger batch, several steps together) if the application can",
    ),
    Risk(
        "a large kernel: 9x9 convolutions became slower with KleidiAI's SME path in another runtime",
        f"{LARGE_KERNEL_ISSUE}, an Apple M4",
        _is_large_kernel,
        "compare with several smaller kernels in a row",
    ),
    Risk(
        f"{_GROUPED_CRASH} in ExecuTorch 1.0.1 and 1.1.0",
        _GROUPED_REPORT,
        _is_grouped_int8,
        "run it once on such a CPU before shipping",
        crashes=True,
    ),
)


def release_of(version: str) -> Release | None:
    """`1.5.1+cpu` as numbers; None where it is no release."""
    parts = re.match(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?", version)
    return (int(parts[1]), int(parts[2]), int(parts[3] or 0)) if parts else None


# What others reported of SME2 that fits this program: shapes as a risk, defects of the release that ran it.
# Nothing of it was measured here, so nothing has a bound, and no operator is taken from causes that have
# one.


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
