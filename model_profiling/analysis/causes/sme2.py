"""Shapes that SME2 was reported to make slower, and operators of an ExecuTorch release that compute wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from model_profiling.analysis.causes.case import Case, Free
from model_profiling.analysis.coverage import Coverage
from model_profiling.analysis.findings import WORTH, Concern, Finding, where
from model_profiling.analysis.matching import matrix_operators_by_key
from model_profiling.analysis.operators import Operator
from model_profiling.core.formatting import plural
from model_profiling.program.delegates.reach import reach_in
from model_profiling.program.matrix_work import MatrixWork

# Reports by others about SME2. Each was read in the public report it names; none was measured here.

_LARGE_KERNEL = 7
_LEAST_SHARE = 0.01
ONE_ROW_ISSUE = "google/XNNPACK issue 10719"
LARGE_KERNEL_ISSUE = "microsoft/onnxruntime issue 27633"


@dataclass(frozen=True, slots=True)
class Risk:
    what: str
    reported: str
    concerns: Callable[[MatrixWork], bool]
    instead: str


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


RISKS: tuple[Risk, ...] = (
    Risk(
        "with one row (batch 1), packed SME2 kernels were 1.4 to 3 times slower than without SME2",
        f"{ONE_ROW_ISSUE}, a Dimensity 9500",
        _is_one_row,
        "compute more rows at once (a larger batch, several steps together) if the application can",
    ),
    Risk(
        "a large kernel: 9x9 convolutions became slower with KleidiAI's SME path in another runtime",
        f"{LARGE_KERNEL_ISSUE}, an Apple M4",
        _is_large_kernel,
        "compare with several smaller kernels one after another",
    ),
)


def sme2_risks(case: Case, _free: Free) -> Finding | None:
    """Shapes on SME2 paths, proven or by the program alone, that were reported to suffer from them. A
    measurement of SME2 on and off says more than what others reported."""
    coverage = case.coverage
    if coverage is None or (case.about_time and case.sme2_pairings):
        return None
    ran = matrix_operators_by_key(case.series)
    concerns: list[Concern] = []
    listed: list[dict[str, object]] = []
    steps: list[str] = []
    for risk in RISKS:
        hit = [work for work in _on_sme2(coverage, case.executorch) if risk.concerns(work)]
        own = [operator for work in hit for operator in ran.get(work.key, ())]
        if not _is_worth(hit, coverage.work) or not _takes_time(case, own):
            continue
        steps.append(risk.instead)
        listed.append({"what": risk.what, "reported": risk.reported, "operators": len(hit)})
        what = f"reported by others, not measured here: {risk.what}"
        for work in hit:
            if operators := ran.get(work.key):
                facts = {"what": what, "reported": risk.reported, "rows": work.rows}
                note = f"{what} ({risk.reported})"
                concerns.append(Concern(tuple(operators), where(operators[0]), note, facts))
    if not steps:
        return None
    count = sum(each["operators"] for each in listed if isinstance(each["operators"], int))
    which = "it" if count == 1 else "some"
    return Finding(
        "sme2-risk",
        f"Measure {plural(count, 'operator')} with SME2 off and on: SME2 may make {which} slower",
        tuple(steps),
        case.series,
        tuple(concerns),
        {"measured_here": False, "risks": listed},
    )


def _on_sme2(coverage: Coverage, executorch: str) -> list[MatrixWork]:
    """Operators proven on SME2 kernels; if untested, those that reach them in this release."""
    if coverage.tested:
        return [row.work for row in coverage.rows if row.ran and row.work]
    reach = reach_in(executorch)
    return [
        work for work in coverage.work if reach and work.node and reach.takes_sme(work.path, work.node.types)
    ]


def _takes_time(case: Case, operators: Sequence[Operator]) -> bool:
    """Whether they take 1% of the time or more, if times are known."""
    series = case.series
    return not series.times.are_latencies or not operators or series.spent_by(operators).share >= _LEAST_SHARE


def _is_worth(hit: Sequence[MatrixWork], every: Sequence[MatrixWork]) -> bool:
    """By arithmetic, or by bytes moved: with one row, reading the weights is the work."""
    flops, all_flops = (sum(each.flops or 0 for each in some) for some in (hit, every))
    moved, all_moved = (sum((each.node or each.step).bytes_moved for each in some) for some in (hit, every))
    return bool(hit) and (flops >= WORTH * all_flops or moved >= WORTH * all_moved)


_WRONG_NORMS = (1, 5, 1)
_WIDE_ROW = 256


def wrong_layer_norms(case: Case, _free: Free) -> Finding | None:
    """LayerNorm in fp16 with wide rows: ExecuTorch's vectorised kernel loads them as float32 values. Seen in
    every width tried, for values from 0.02 to 8; narrower rows take another kernel, which is right."""
    release = re.match(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?", case.executorch)
    if release is None or tuple(int(part or 0) for part in release.groups()) != _WRONG_NORMS:
        return None
    wrong = [each for each in case.series.operators if not each.delegated and _is_wide_fp16_norm(each)]
    if not wrong:
        return None
    kinds = dict.fromkeys(each.source.place.module_class.rpartition(".")[2] for each in wrong)
    flags = " ".join(f"--keep {kind}=fp32" for kind in kinds if kind) or "fp32"
    return Finding(
        "wrong-results",
        f"Export with {flags}: the results of {plural(len(wrong), 'layer norm')} are wrong",
        (
            f"in fp16, ExecuTorch {case.executorch} reads rows of {_WIDE_ROW} or more values as fp32 values "
            "in `native_layer_norm`",
        ),
        case.series,
        tuple(Concern((each,), where(each), f"rows of {each.source.output_shape[-1]}") for each in wrong),
        {"executorch": case.executorch},
        weight_pct=100,  # before any advice about speed
    )


def _is_wide_fp16_norm(operator: Operator) -> bool:
    source = operator.source
    norm = source.operator.startswith("aten::native_layer_norm") and source.dtype == "fp16"
    return norm and bool(source.output_shape) and source.output_shape[-1] >= _WIDE_ROW
