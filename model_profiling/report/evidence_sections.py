"""The report's proof and advice: which kernels ran, whether outputs agree, what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from model_profiling.analysis.evidence import PlaceEvidence, SeriesEvidence
from model_profiling.analysis.findings import Finding
from model_profiling.analysis.kernel_names import Kernel
from model_profiling.analysis.kernels import KernelUse, matrix_share
from model_profiling.report.charts.kernels import kernels_chart
from model_profiling.report.data import ReportData
from model_profiling.report.document import (
    Block,
    Code,
    Inline,
    Item,
    Items,
    Paragraph,
    Strong,
    Text,
    make_list,
    make_table,
)
from model_profiling.report.operator_sections import sme2_switch
from model_profiling.run import names
from model_profiling.run.metrics import PairParity
from model_profiling.wording import MISSING, plural

_KERNELS_SHOWN = 12
_COLUMNS = 4
_FINDINGS_SHOWN = 8


def kernels(data: ReportData) -> list[Block]:
    blocks = [block for place in data.evidence for block in _place(place, data)]
    if not blocks:
        words = "No kernel evidence: nothing here shows which kernels ran, so nothing is claimed about SME2."
        return [Paragraph(words)]
    return blocks


def _place(place: PlaceEvidence, data: ReportData) -> Iterator[Block]:
    if not place.kernels:
        return
    emulated = " (emulated: the kernels are real, its times are not)" if place.emulated else ""
    yield Paragraph(f"From {place.source}{emulated}:")
    absent = data.has_sme2 is False and not place.emulated
    yield make_table(
        ("experiment", "threads", "SME2", "what the evidence says", "matrix operators on SME"),
        [_answer(found, absent=absent) for found in place.kernels],
        numbers=(1,),
    )
    yield from make_list(
        f"{found.series}: kernels were not counted, {found.note}" for found in place.kernels if found.note
    )
    own = place is data.evidence[0]
    where = f"the files *{names.KERNELS_CSV}" if own else names.EVIDENCE
    if chart := kernels_chart(place, "kernels" if own else "kernels_elsewhere", where):
        yield chart
    yield from _listing(place, data)


def _answer(found: SeriesEvidence, *, absent: bool) -> tuple[str, ...]:
    share = matrix_share(found.uses)
    return (
        found.series.experiment,
        MISSING if found.series.threads is None else str(found.series.threads),
        sme2_switch(found.sme2, absent=absent),
        found.sme.text if found.sme.answer != "unknown" else f"not proven: {found.sme.text}",
        MISSING if share is None or found.sme.answer == "untested" else f"{share.sme} of {share.total}",
    )


def _listing(place: PlaceEvidence, data: ReportData) -> Iterator[Block]:
    """The kernels themselves, those that ran before those that were only configured."""
    found: dict[Kernel, dict[str, KernelUse]] = {}
    for evidence in place.kernels:
        for use in evidence.uses:
            if use.kernel.library != "operator":
                found.setdefault(use.kernel, {})[str(evidence.series)] = use
    if not found:
        return
    columns = [str(evidence.series) for evidence in place.kernels]
    rows: list[tuple[Text, ...]] = []
    for kernel, uses in list(found.items())[:_KERNELS_SHOWN]:
        cells = [_use(uses.get(column)) for column in columns]
        if len(columns) > _COLUMNS:
            cells = ["; ".join(f"{where}: {_use(use)}" for where, use in uses.items())]
        rows.append((Code(kernel.name), kernel.isa, *cells))
    yield make_table(
        ("kernel", "instruction set", *(columns if len(columns) <= _COLUMNS else ("where",))), rows
    )
    if len(found) > _KERNELS_SHOWN:
        where = f"the files *{names.KERNELS_CSV}" if place is data.evidence[0] else names.EVIDENCE
        yield Paragraph(f"{len(found) - _KERNELS_SHOWN} more in {where}.")


def _use(use: KernelUse | None) -> str:
    if use is None:
        return MISSING
    if use.evidence == "configured":
        return "only configured"
    return "ran" if use.calls is None else plural(use.calls, "call")


def parity(data: ReportData) -> list[Block]:
    rows = [
        _parity_row(found, place.source, number)
        for place in data.evidence
        for found in place.parity
        for number in range(max(1, len(found.parity.outputs) if found.parity else 1))
    ]
    if not rows:
        return []
    headers = (
        "outputs of", "against", "from", "output", "verdict", "largest difference", "relative", "allowed",
        "cosine", "same top-1",
    )  # fmt: skip
    note = (
        "Relative differences are to the value, or to a hundredth of the output's largest value where that "
        "is more."
    )
    return [make_table(headers, rows), Paragraph(note)]


def _parity_row(found: PairParity, source: str, number: int) -> tuple[str, ...]:
    named = str(found.candidate), str(found.baseline), source
    if found.parity is None:
        return (*named, MISSING, f"not compared: {found.reason}", *(MISSING,) * 5)
    if not found.parity.outputs:
        return (*named, MISSING, f"{found.parity.verdict}: {found.reason}", *(MISSING,) * 5)
    output = found.parity.outputs[number]
    top1 = {None: MISSING, True: "yes", False: "no"}[output.top1_agrees]
    note = f" ({output.note})" if output.note else ""
    return (
        *named,
        f"{output.index}: {output.dtype}{list(output.shape)}",
        output.verdict + note,
        f"{output.max_abs:.3g}",
        f"{output.max_rel:.2g}",
        f"{output.tolerance.absolute:g} + {output.tolerance.relative:g} of the value",
        f"{output.cosine:.6f}",
        top1,
    )


def advice(data: ReportData) -> list[Block]:
    """Findings with the most that acting on each can gain; the numbers behind them follow."""
    findings = data.findings[:_FINDINGS_SHOWN]
    entries = tuple(_finding(finding, timed=data.timed) for finding in findings)
    return [Items(entries, numbered=True)] if entries else []


def _finding(finding: Finding, *, timed: bool) -> Item:
    gain = f", at most {finding.max_gain_pct:.1f}% less time" if timed and finding.max_gain_pct > 0 else ""
    title, action = (text[:1].upper() + text[1:].rstrip(".") for text in (finding.title, finding.action))
    text = (Strong(title), f" ({finding.subject}{gain}). {action}.")
    return Item(text, tuple(_numbers(finding.evidence)))


def _numbers(evidence: Mapping[str, object]) -> Iterator[Text]:
    """The operators a finding rests on, one a line; single figures are in its title already."""
    for value in evidence.values():
        for row in value if isinstance(value, list) else ():
            if isinstance(row, Mapping):
                shown = [_pair(key, row[key]) for key in row if row[key] not in (None, "", [])]
                yield tuple(part for place, pair in enumerate(shown) for part in ("; ", pair)[not place :])


def _pair(key: str, value: object) -> Inline:
    name = key.replace("_pct", " (%)").replace("_", " ")
    if key in ("operator", "name"):
        return Code(str(value))
    if isinstance(value, list):
        return f"{name} {' and '.join(map(str, value))}"
    return f"{name} {value}"
