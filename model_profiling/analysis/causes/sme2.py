"""What keeps SME2 from making a model faster: operators that miss it, and those that it slows down; and
operators of an ExecuTorch release that compute wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from model_profiling.analysis.coverage import Sme2Coverage
from model_profiling.analysis.findings import (
    ANY_NOUN,
    NOUNS,
    WORTH,
    Concern,
    Finding,
    Free,
    SeriesCase,
    reaching,
    where,
)
from model_profiling.analysis.matching import NOT_DELEGATED, NOT_KNOWN, matrix_operators_by_key, rows_of
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair, Pairing
from model_profiling.core.formatting import plural, several
from model_profiling.core.number_formats import FORMATS
from model_profiling.program.category import MATRIX
from model_profiling.program.delegates import describe
from model_profiling.program.matrix_work import PROBE, MatrixWork, Reach, reach_in
from model_profiling.runs.records import MatrixOperator
from model_profiling.statistics.speedup import Verdict

# Matrix operators proven to miss SME2: why, and the change that lets them reach it. No bound (the gain was
# not measured), so other causes keep the operators.

_OUTSIDE = NOT_DELEGATED.cause
_ORDER: dict[str, int] = {name: place for place, name in enumerate(FORMATS)}
_OF_PRECISION = {"int8 dynamic": "int8-dynamic", "int8 dynamic, int4 weights": "int4"}
"""The format most like a precision, if it has another name."""


def misses_sme2(case: SeriesCase, _free: Free) -> Finding | None:
    coverage = case.coverage
    missing = coverage.missing if coverage else ()
    if coverage is None or not missing:
        return None
    share = _share(coverage, missing)
    if share < WORTH and all(each.flops is not None for each in missing):
        return None
    ran = matrix_operators_by_key(case.series)
    groups = _groups(coverage, case.executorch)
    noun, first, change = groups[0]
    of = sum(noun in (NOUNS.get(each.kind), ANY_NOUN) for each in coverage.operators)
    some, they = f"{len(first)} of {plural(of, noun)}", "it" if len(first) == 1 else "them"
    return Finding(
        "misses-sme2",
        f"Let {some} reach SME2: {change.format(they)}"
        if change
        else f"No known change lets {some} reach SME2",
        tuple(
            f"{change.format(the) or f'no change is known for {the}'}, because {rows[0].why_not}"
            for noun, rows, change in groups
            if rows is first or _share(coverage, rows) >= WORTH
            for the in (f"the {noun}" if len(rows) == 1 else f"the {len(rows)} {several(noun)}",)
        ),
        case.series,
        tuple(
            Concern(tuple(found), where(found[0]), each.why_not)
            for _, rows, _ in groups
            for each in rows
            if (found := ran.get(each.key.in_program))
        ),
        {"arithmetic_share": share},
        has_cure=any(change for _, _, change in groups),
    )


def _share(coverage: Sme2Coverage, rows: Sequence[MatrixOperator]) -> float:
    return sum(coverage.share_of(each) or 0.0 for each in rows)


def _groups(coverage: Sme2Coverage, executorch: str) -> list[tuple[str, list[MatrixOperator], str]]:
    """By cause and kind, with what lets them reach SME2 (`{}` in their place; empty if nothing is known):
    those with a known change first."""
    alike: dict[tuple[str, str], list[MatrixOperator]] = {}
    for each in coverage.missing:
        noun = ANY_NOUN if each.cause == _OUTSIDE else NOUNS.get(each.kind, ANY_NOUN)
        alike.setdefault((each.cause, noun), []).append(each)
    reach = reach_in(executorch)
    work_of = dict(zip(coverage.operators, coverage.work, strict=False))
    groups = [
        (noun, rows, _change(rows[0], work_of.get(rows[0]), reach, executorch))
        for (_, noun), rows in alike.items()
    ]
    return sorted(groups, key=lambda each: (not each[2], -_share(coverage, each[1])))


def _change(missing: MatrixOperator, work: MatrixWork | None, reach: Reach | None, executorch: str) -> str:
    if missing.cause == _OUTSIDE:
        return "bring {} into the delegate, as the advice about operators outside it says"
    if reach is None and executorch:
        unknown = f"what reaches SME2 is not known for ExecuTorch {executorch}"
        return f"{unknown}: find out with `{PROBE}` of a clone what lets {{}} reach SME2"
    if reach is None or missing.cause in (NOT_KNOWN, "not told"):
        return ""
    path, precision = work.path if work else missing.kind, missing.precision
    types = work.node.types if work and work.node else ()
    fp16_pointwise = missing.kind == "pointwise convolution" and precision == "fp16"
    other_layers = {
        "give {} a second input channel of zeros, with weights of zero": missing.cause == "one input channel"
        and reach.takes_sme("convolution", types),
        "use plain convolutions of fewer channels in place of {}": missing.cause == "depthwise"
        and reach.formats("convolution"),
        "write {} as linear layers over the channels, with fp16 weights": missing.cause == "dtype"
        and fp16_pointwise
        and "fp16" in reach.formats("linear"),
    }
    if layer := next((words for words, helps in other_layers.items() if helps), ""):
        return layer
    own = _ORDER.get(_OF_PRECISION.get(precision, precision), 0)
    formats = sorted(reach.formats(path), key=lambda each: abs(_ORDER[each.partition(":")[0]] - own))
    return f"export {{}} as {formats[0]}" if formats else ""


# Matrix operators that SME2 did not speed up, by a comparison of SME2 on and off.

ONE_ROW_ISSUE = "google/XNNPACK issue 10719"
_NO_FASTER = 1.05
_SLOWER = 0.97
_JUDGED_WORTH = 0.005
"""Share of end-to-end time from which a loss with a verdict is reported."""
_SWITCH_OFF = (
    "SME2 does not make this model faster: an ExecuTorch built with XNNPACK_ENABLE_ARM_SME=OFF and "
    "XNNPACK_ENABLE_ARM_SME2=OFF does not use it"
)


def sme2_slower(case: SeriesCase, _free: Free) -> Finding | None:
    for pairing, pairs in _matrix_pairs(case):
        slower = [pair for pair in pairs if _is_slower(pair)]
        gain = pairing.candidate.gain_pct(max(0.0, sum(pair.delta_ms for pair in slower)))
        if slower and gain >= 100 * (_JUDGED_WORTH if all(map(_verdict, slower)) else WORTH):
            unhelped = pairing.e2e.verdict in (Verdict.SLOWER, Verdict.NO_CHANGE)
            more = (_SWITCH_OFF,) if unhelped else ()
            return _lost(case, pairing, slower, id_="sme2-slower", did="slowed down", gain=gain, more=more)
    return None


def sme2_no_faster(case: SeriesCase, _free: Free) -> Finding | None:
    for pairing, pairs in _matrix_pairs(case):
        same = [
            pair
            for pair in pairs
            if not _is_slower(pair)
            and (_verdict(pair) is Verdict.NO_CHANGE or (pair.ratio or 1) < _NO_FASTER)
        ]
        gain = pairing.candidate.gain_pct(sum(pair.candidate_ms for pair in same))
        if same and gain >= 100 * WORTH:
            return _lost(case, pairing, same, id_="sme2-no-faster", did="did not speed up", gain=gain)
    return None


def _matrix_pairs(case: SeriesCase) -> Iterator[tuple[Pairing, list[OperatorPair]]]:
    for pairing in case.sme2_pairings.get(case.series.series, ()) if case.about_time else ():
        in_both = (pair for pair in pairing.operators if pair.ratio is not None and pair.candidate)
        longest_first = sorted(in_both, key=lambda pair: -pair.candidate_ms)
        yield pairing, [pair for pair in longest_first if pair.category in MATRIX]


def _lost(
    case: SeriesCase,
    pairing: Pairing,
    pairs: Sequence[OperatorPair],
    *,
    id_: str,
    did: str,
    gain: float,
    more: Sequence[str] = (),
) -> Finding:
    reasons = [_reason_and_cure(pair, case.executorch) for pair in pairs]
    e2e_ms = pairing.candidate.e2e_ms
    return Finding(
        id_,
        f"Look at {plural(len(pairs), 'matrix operator')} that {did} with SME2",
        (*dict.fromkeys(cure for _, cure in reasons), *more),
        pairing.candidate,
        tuple(
            _concern(pair, reason, pair.delta_ms / e2e_ms)
            for pair, (reason, _) in zip(pairs, reasons, strict=True)
        ),
        {"share": sum(pair.candidate_ms for pair in pairs) / e2e_ms},
        gain,
        about=pairing.label,
    )


def _verdict(pair: OperatorPair) -> Verdict | None:
    """None if there is no verdict: a single dump on each side only shows large changes."""
    found = pair.speedup.verdict if pair.speedup else None
    return None if found is Verdict.NOT_COMPARABLE else found


def _is_slower(pair: OperatorPair) -> bool:
    return (pair.ratio or 1) < _SLOWER if (found := _verdict(pair)) is None else found is Verdict.SLOWER


def _concern(pair: OperatorPair, reason: str, share: float) -> Concern:
    """The cost is given only for an operator that lost time; otherwise the ratio says all."""
    ratio = pair.ratio or 0.0
    cost = f", {pair.delta_ms:.3f} ms or {100 * share:.1f}% of an inference more" if share > 0 else ""
    facts = {"lost_ms": pair.delta_ms, "kernel_after": pair.families[1], "may_be_because": reason}
    note = f"{ratio:.2f}x with SME2{cost}, perhaps because {reason}"
    return Concern(pair.candidate, where(pair.main), note, facts)


def _reason_and_cure(pair: OperatorPair, executorch: str) -> tuple[str, str]:
    """Why an operator may not profit (a guess, and worded as one), and what to do instead."""
    operator, source = pair.main, pair.main.source
    if any(member.packed for member in pair.candidate):
        if operator.kind in ("linear", "pointwise convolution") and rows_of(operator) == 1:
            return (
                f"one row is too little work to repay the packing (also reported in {ONE_ROW_ISSUE})",
                "compute more than one row at a time (a larger batch, several steps at once); in fp16, a 1x1 "
                "convolution stays off the packed path",
            )
        return (
            "packing its input may cost as much as the faster kernel saves",
            "make the matrices larger, which repays the packing of their input, or report these numbers to "
            "google/XNNPACK: it chooses the kernel without looking at shapes",
        )
    if not operator.delegated:
        return (
            "it runs outside the backend that has SME2 kernels",
            "operators in the delegate reach SME2 kernels",
        )
    path = (source.described or describe(operator.name, operator.backend)).matrix
    miss = path.miss.words if path and path.miss else ""
    kinds = (operator.kind, *(("convolution",) if operator.kind == "depthwise convolution" else ()))
    return (
        miss or f"no SME2 kernel was chosen for {operator.family or operator.type}",
        ", ".join(filter(None, (reaching(executorch, kind) for kind in kinds)))
        or "another number format may reach SME2 kernels (`sme2prof profile MODEL --dtype all`)",
    )


_WRONG_NORMS = (1, 5, 1)
_WIDE_ROW = 256


def wrong_layer_norms(case: SeriesCase, _free: Free) -> Finding | None:
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
        f"Export with --optimize or {flags}: the results of {plural(len(wrong), 'layer norm')} are wrong",
        (
            f"in fp16, ExecuTorch {case.executorch} reads rows of {_WIDE_ROW} or more values as fp32 values "
            "in `native_layer_norm`",
        ),
        case.series,
        tuple(Concern((each,), where(each), f"rows of {each.source.output_shape[-1]}") for each in wrong),
        weight_pct=100,  # before any advice about speed
    )


def _is_wide_fp16_norm(operator: Operator) -> bool:
    source = operator.source
    norm = source.operator.startswith("aten::native_layer_norm") and source.dtype == "fp16"
    return norm and bool(source.output_shape) and source.output_shape[-1] >= _WIDE_ROW
