"""The report's proof and advice: which kernels ran, whether outputs agree, what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from model_profiling.analysis.advice import Finding
from model_profiling.analysis.kernels import KernelUse, matrix_share
from model_profiling.report.data import EvidenceReport, KernelReport, ParityReport, ReportData
from model_profiling.report.markdown_text import MISSING, bullets, code, plural, switch, table

_KERNELS_SHOWN = 12
_COLUMNS = 4
_FINDINGS_SHOWN = 8


def kernels(data: ReportData) -> str:
    parts = [part for evidence in data.evidence for part in _place(evidence, data)]
    if not parts:
        return "No kernel evidence: nothing here shows which kernels ran, so nothing is claimed about SME2."
    return "\n\n".join(parts)


def _place(evidence: EvidenceReport, data: ReportData) -> Iterator[str]:
    if not evidence.kernels:
        return
    emulated = " (emulated: the kernels are real, its times are not)" if evidence.emulated else ""
    yield f"From {evidence.source}{emulated}:"
    yield table(
        ("experiment", "threads", "SME2", "what the evidence says", "matrix operators on SME"),
        [_answer(one, absent=data.has_sme2 is False and not evidence.emulated) for one in evidence.kernels],
        numbers=(1,),
    )
    notes = [f"{one.series}: kernels were not counted, {one.note}" for one in evidence.kernels if one.note]
    if notes:
        yield bullets(notes)
    yield from _listing(evidence)


def _answer(one: KernelReport, *, absent: bool) -> tuple[str, ...]:
    share = matrix_share(one.uses)
    return (
        one.series.experiment,
        MISSING if one.series.threads is None else str(one.series.threads),
        switch(one.sme2, absent=absent),
        one.sme.text if one.sme.answer != "unknown" else f"not proven: {one.sme.text}",
        MISSING if share is None else f"{share.sme} of {share.total}",
    )


def _listing(evidence: EvidenceReport) -> Iterator[str]:
    """The kernels themselves, those that ran before those that were only configured."""
    rows: dict[str, dict[str, KernelUse]] = {}
    for report in evidence.kernels:
        for use in report.uses:
            rows.setdefault(use.kernel.name, {})[str(report.series)] = use
    shown = [name for name, uses in rows.items() if any(_counts(use) for use in uses.values())]
    if not shown:
        return
    columns = [str(report.series) for report in evidence.kernels]
    if len(columns) <= _COLUMNS:
        headers = ("kernel", "instruction set", *columns)
        cells = [[_use(rows[name].get(column)) for column in columns] for name in shown]
    else:
        headers = ("kernel", "instruction set", "where")
        cells = [["; ".join(f"{where}: {_use(use)}" for where, use in rows[name].items())] for name in shown]
    listed = [(code(name), _isa(rows[name]), *cell) for name, cell in zip(shown, cells, strict=True)]
    yield table(headers, listed[:_KERNELS_SHOWN])
    if len(shown) > _KERNELS_SHOWN:
        yield f"{len(shown) - _KERNELS_SHOWN} more in kernel_view.md."


def _counts(use: KernelUse) -> bool:
    return use.kernel.library != "operator"


def _isa(uses: Mapping[str, KernelUse]) -> str:
    return next(iter(uses.values())).kernel.isa


def _use(use: KernelUse | None) -> str:
    if use is None:
        return MISSING
    if use.evidence == "configured":
        return "only configured"
    return "ran" if use.calls is None else plural(use.calls, "call")


def parity(data: ReportData) -> str:
    rows = [
        _parity_row(report, evidence.source, place)
        for evidence in data.evidence
        for report in evidence.parity
        for place in range(max(1, len(report.parity.outputs) if report.parity else 1))
    ]
    if not rows:
        return ""
    headers = (
        "outputs of",
        "against",
        "from",
        "output",
        "verdict",
        "largest difference",
        "relative",
        "allowed",
        "cosine",
        "same top-1",
    )
    return table(headers, rows) + (
        "\n\nRelative differences are to the value, or to a hundredth of the output's largest value where "
        "that is more."
    )


def _parity_row(report: ParityReport, source: str, place: int) -> tuple[str, ...]:
    named = str(report.candidate), str(report.baseline), source
    if report.parity is None:
        return (*named, MISSING, f"not compared: {report.reason}", *(MISSING,) * 5)
    if not report.parity.outputs:
        return (*named, MISSING, f"{report.parity.verdict}: {report.reason}", *(MISSING,) * 5)
    output = report.parity.outputs[place]
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


def advice(data: ReportData) -> str:
    """Findings with the most that acting on each can gain; the numbers behind them follow."""
    findings = data.findings[:_FINDINGS_SHOWN]
    if not findings:
        return ""
    return "\n\n".join(f"{place}. {_finding(one, data)}" for place, one in enumerate(findings, start=1))


def _finding(finding: Finding, data: ReportData) -> str:
    gain = ""
    if data.timings_are_latency and finding.max_gain_pct > 0:
        gain = f", at most {finding.max_gain_pct:.1f}% less time"
    title = finding.title[:1].upper() + finding.title[1:]
    lines = [f"**{title}** ({finding.subject}{gain}). {_sentence(finding.action)}"]
    lines += [f"   - {line}" for line in _numbers(finding.evidence)]
    return "\n".join(lines)


def _numbers(evidence: Mapping[str, object]) -> Iterator[str]:
    """The operators a finding rests on, one a line; single figures are in its title already."""
    for value in evidence.values():
        if isinstance(value, list):
            for row in value:
                if isinstance(row, Mapping):
                    yield "; ".join(_pair(key, row[key]) for key in row if row[key] not in (None, "", []))


def _pair(key: str, value: object) -> str:
    name = key.replace("_pct", " (%)").replace("_", " ")
    if key in ("operator", "name"):
        return code(str(value))
    if isinstance(value, list):
        return f"{name} {' and '.join(str(one) for one in value)}"
    return f"{name} {value}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith('.') else '.'}"
