"""Defects and reports about SME2 and ExecuTorch releases that fit the program."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from model_profiling.analysis.coverage import Coverage
from model_profiling.analysis.findings import WORTH, Concern, Finding, where
from model_profiling.analysis.matching import matrix_operators_by_key
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core.formatting import plural
from model_profiling.program.delegates.reach import reach_in
from model_profiling.program.matrix_work import MatrixWork

# Reports by others about SME2 in ExecuTorch and its XNNPACK. Each was read in the public report or sources it
# names; none was measured here. XNNPACK comes with ExecuTorch, so its defects are listed by ExecuTorch
# release: 1.0 to 1.2 have one state of it, 1.3 and 1.4 another.

Release = tuple[int, int, int]
_LARGE_KERNEL = 7
ONE_ROW_ISSUE = "google/XNNPACK issue 10719"
LARGE_KERNEL_ISSUE = "microsoft/onnxruntime issue 27633"


@dataclass(frozen=True, slots=True)
class Reported:
    what: str
    reported: str
    concerns: Callable[[MatrixWork], bool]
    instead: str
    first: Release = (0, 0, 0)
    last: Release | None = None
    """Last release known to have it; None if not known to be repaired."""
    crashes: bool = False
    """A program that ran does not have it."""

    @property
    def repaired(self) -> str:
        known = f"known in versions up to {'.'.join(map(str, self.last))}" if self.last else ""
        return known or "no repaired version is known"

    def is_in(self, release: Release) -> bool:
        return self.first <= release and (self.last is None or release <= self.last)


def _is_one_row(work: MatrixWork) -> bool:
    return work.rows == 1 and work.node is not None and work.node.kind in ("FullyConnected", "Conv2d")


def is_large_kernel(kernel: Sequence[int]) -> bool:
    return bool(kernel) and min(kernel) >= _LARGE_KERNEL


def _is_large_kernel(work: MatrixWork) -> bool:
    window = work.node.window if work.node and work.kind == "convolution" else None
    if window is None or window.groups != 1 or not is_large_kernel(window.kernel):
        return False
    # Patches that do not overlap are read once, however large: the reports are about windows that do.
    return any(step < side for step, side in zip(window.stride, window.kernel, strict=True))


def _is_grouped_int8(work: MatrixWork) -> bool:
    node = work.node
    if node is None or node.kind != "Conv2d" or node.dtype != "qint8":
        return False
    return node.window is not None and node.window.groups > 1


_GROUPED_CRASH = "int8 grouped convolutions crash in KleidiAI's packing with SME2 on (seen on an Apple M4)"
_GROUPED_REPORT = "google/XNNPACK issue 9898"

DEFECTS: tuple[Reported, ...] = (
    Reported(
        _GROUPED_CRASH,
        f"{_GROUPED_REPORT}, with 1.0.1 and 1.1.0; 1.0.0 and 1.2.0 have the same XNNPACK",
        _is_grouped_int8,
        "use ExecuTorch 1.3 or later, or run with SME2 off",
        (1, 0, 0),
        (1, 2, 99),
    ),
    Reported(
        "fp32 and fp16 convolutions take no SME2 path: XNNPACK has it for int8 only",
        "XNNPACK's sources, `xnn_subgraph_optimize_packed_lhs`",
        lambda work: (
            work.node is not None and work.kind == "convolution" and work.node.dtype in ("fp16", "fp32")
        ),
        "use ExecuTorch 1.3 or later",
        (1, 0, 0),
        (1, 2, 99),
    ),
)

RISKS: tuple[Reported, ...] = (
    Reported(
        "with one row (batch 1), packed SME2 kernels were 1.4 to 3 times slower than without SME2",
        f"{ONE_ROW_ISSUE}, a Dimensity 9500",
        _is_one_row,
        "compute more rows at once (a larger batch, several steps together) if the application can",
    ),
    Reported(
        "a large kernel: 9x9 convolutions became slower with KleidiAI's SME path in another runtime",
        f"{LARGE_KERNEL_ISSUE}, an Apple M4",
        _is_large_kernel,
        "compare with several smaller kernels one after another",
    ),
    Reported(
        f"{_GROUPED_CRASH} in ExecuTorch 1.0.1 and 1.1.0",
        _GROUPED_REPORT,
        _is_grouped_int8,
        "run it once on such a CPU before shipping",
        crashes=True,
    ),
)


def release_of(version: str) -> Release | None:
    """`1.5.1+cpu` as numbers; None if it is not a release."""
    parts = re.match(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?", version)
    return (int(parts[1]), int(parts[2]), int(parts[3] or 0)) if parts else None


# Findings from these reports. Not measured here: no bound, and no operators taken from other causes.


def sme2_risks(series: SeriesAnalysis, coverage: Coverage, executorch: str) -> Finding | None:
    """Shapes on SME2 paths, proven or by the program alone, that were reported to suffer from them."""
    met = [(risk, _at_risk(risk, coverage, executorch)) for risk in RISKS]
    met = [(risk, hit) for risk, hit in met if _is_worth(hit, coverage.work) and _takes_time(hit, series)]
    operators = sum(len(hit) for _, hit in met)
    listed = [{"what": risk.what, "reported": risk.reported, "operators": len(hit)} for risk, hit in met]
    which = "it" if operators == 1 else "some"
    title = f"Measure {plural(operators, 'operator')} with SME2 off and on: SME2 may make {which} slower"
    evidence = {"measured_here": False, "risks": listed}
    prefix = "reported by others, not measured here: "
    return _reported("sme2-risk", title, series, met, evidence=evidence, prefix=prefix)


def known_defects(series: SeriesAnalysis, coverage: Coverage, executorch: str) -> Finding | None:
    """Defects of the ExecuTorch release that affect an operator of the program."""
    release = release_of(executorch)
    there = [defect for defect in DEFECTS if release is not None and defect.is_in(release)]
    met = [(defect, [work for work in coverage.work if defect.concerns(work)]) for defect in there]
    met = [(defect, hit) for defect, hit in met if hit]
    listed = [
        {"what": each.what, "reported": each.reported, "repaired": each.repaired, "operators": len(hit)}
        for each, hit in met
    ]
    title = f"Beware of {plural(len(met), 'known defect')} of ExecuTorch {executorch}"
    evidence = {"executorch": executorch, "defects": listed}
    return _reported("known-defect", title, series, met, evidence=evidence)


_WRONG_NORMS: Release = (1, 5, 1)
_WIDE_ROW = 256
_LEAST_SHARE = 0.01


def wrong_layer_norms(series: SeriesAnalysis, executorch: str) -> Finding | None:
    """LayerNorm in fp16 with wide rows: ExecuTorch's vectorised kernel loads them as float32 values. Seen in
    every width tried, for values from 0.02 to 8; narrower rows take another kernel, which is right."""
    if release_of(executorch) != _WRONG_NORMS:
        return None
    wrong = [each for each in series.operators if not each.delegated and _is_wide_fp16_norm(each)]
    if not wrong:
        return None
    kinds = dict.fromkeys(each.source.place.module_class.rpartition(".")[2] for each in wrong)
    flags = " ".join(f"--keep {kind}=fp32" for kind in kinds if kind) or "fp32"
    norms = plural(len(wrong), "layer norm")
    return Finding(
        "wrong-results",
        f"Export with {flags}: the results of {norms} are wrong",
        f"in fp16, ExecuTorch {executorch} reads rows of {_WIDE_ROW} or more values as fp32 values in "
        "`native_layer_norm`",
        series,
        tuple(Concern((each,), where(each), f"rows of {each.source.output_shape[-1]}") for each in wrong),
        {"executorch": executorch},
        weight_pct=100,  # before any advice about speed
    )


def _is_wide_fp16_norm(operator: Operator) -> bool:
    source = operator.source
    norm = source.operator.startswith("aten::native_layer_norm") and source.dtype == "fp16"
    return norm and bool(source.output_shape) and source.output_shape[-1] >= _WIDE_ROW


def _reported(
    id: str,
    title: str,
    series: SeriesAnalysis,
    met: Sequence[tuple[Reported, Sequence[MatrixWork]]],
    *,
    evidence: Mapping[str, object],
    prefix: str = "",
) -> Finding | None:
    if not met:
        return None
    ran = matrix_operators_by_key(series)
    concerns = [
        Concern(
            tuple(found),
            where(found[0]),
            f"{prefix}{each.what} ({each.reported})",
            {"what": f"{prefix}{each.what}", "reported": each.reported, "rows": work.rows},
        )
        for each, hit in met
        for work in hit
        if (found := ran.get(work.key))
    ]
    action = "; ".join(dict.fromkeys(each.instead for each, _ in met))
    return Finding(id, title, action, series, tuple(concerns), evidence)


def _at_risk(risk: Reported, coverage: Coverage, executorch: str) -> list[MatrixWork]:
    """Operators proven on SME2 kernels; if untested, those that reach them in this release."""
    if not coverage.tested:
        reach = reach_in(executorch)
        return [
            work
            for work in coverage.work
            if reach and work.node and reach.takes_sme(work.path, work.node.types) and risk.concerns(work)
        ]
    proven = zip(coverage.work, coverage.operators, strict=True) if coverage.work and not risk.crashes else ()
    return [work for work, operator in proven if operator.on_sme and risk.concerns(work)]


def _takes_time(hit: Sequence[MatrixWork], series: SeriesAnalysis) -> bool:
    """Whether they take 1% of the time or more, if times are known."""
    ran = matrix_operators_by_key(series)
    own = [operator for work in hit for operator in ran.get(work.key, ())]
    return not series.times.are_latencies or not own or series.spent_by(own).share >= _LEAST_SHARE


def _is_worth(hit: Sequence[MatrixWork], every: Sequence[MatrixWork]) -> bool:
    """By arithmetic, or by bytes moved: with one row, reading the weights is the work."""
    flops, all_flops = (sum(each.flops or 0 for each in some) for some in (hit, every))
    moved, all_moved = (sum((each.node or each.step).bytes_moved for each in some) for some in (hit, every))
    return bool(hit) and (flops >= WORTH * all_flops or moved >= WORTH * all_moved)
