"""The kernel view: which kernels ran in two runs side by side, and which were only configured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from model_profiling.analysis.evidence import SeriesEvidence
from model_profiling.analysis.kernels import (
    UNKNOWN,
    KernelPair,
    KernelUse,
    compare_kernels,
    matrix_share,
    sme_verdict,
    unknown_kernels,
)
from model_profiling.config.series import Series
from model_profiling.core.formatting import MISSING, plural
from model_profiling.report.document import Block, Code, Heading, Paragraph, make_list, make_table


@dataclass(frozen=True, slots=True)
class KernelSection:
    """Two runs side by side; `on` has more CPU features switched on."""

    label: str
    on: SeriesEvidence
    off: SeriesEvidence


def evidence_of_file(series: Series, uses: Sequence[KernelUse]) -> SeriesEvidence:
    """Return the evidence of one file. An empty one may mean no trace, so only executed kernels prove one."""
    traced = any(use.evidence == "executed" and use.kernel.library != "operator" for use in uses)
    return SeriesEvidence(series, None, tuple(uses), sme_verdict(uses, traced=traced), traced)


def kernel_document(
    sections: Sequence[KernelSection], *, title: str = "Kernel view", filter_op: str = ""
) -> list[Block]:
    blocks: list[Block] = [Heading(title, 1)]
    several = len(sections) > 1
    for section in sections:
        blocks += [Heading(section.label)] if several else []
        blocks += _section(section, filter_op, level=3 if several else 2)
    return blocks


def _section(section: KernelSection, filter_op: str, level: int) -> list[Block]:
    on, off = section.on.uses, section.off.uses
    names = (str(section.on.series), str(section.off.series))
    pairs = [
        pair
        for pair in compare_kernels(on, off)
        if filter_op.lower() in f"{pair.kernel.name} {pair.kernel.role} {pair.kernel.operation}".lower()
    ]
    ran = [pair for pair in pairs if _evidence(pair) == "executed"]
    blocks = make_list(_verdict(side) for side in (section.on, section.off))
    if ran:
        blocks += [Heading("Executed", level), _table(ran, names)]
    configured = [pair for pair in pairs if _evidence(pair) == "configured"]
    if configured:
        blocks += [
            Heading("Configured only", level),
            Paragraph("XNNPACK put these into its tables: candidates, not proof that they ran."),
            _table(configured, names),
        ]
    if not pairs:
        blocks.append(Paragraph(("No kernel matches ", Code(filter_op), ".") if filter_op else "No kernels."))
    if unknown := unknown_kernels((*on, *off)):
        blocks += [Heading("Names the kit cannot read", level), *make_list(map(Code, dict.fromkeys(unknown)))]
    return blocks


def _verdict(side: SeriesEvidence) -> str:
    sme, total = matrix_share(side.uses)
    took = f"; {sme} of {total} operators that run as matrix products took an SME path" if sme else ""
    return f"{side.series}: {side.sme.text}{took}"


def _table(pairs: Iterable[KernelPair], names: tuple[str, str]) -> Block:
    rows = []
    for pair in pairs:
        kernel = pair.kernel
        # A dash: this operator's label proves nothing about the instruction set.
        isa = MISSING if kernel.library == "operator" and kernel.isa == UNKNOWN else kernel.isa
        rows.append((Code(kernel.name), _cell(pair.on), _cell(pair.off), isa, kernel.role, kernel.dtype))
    return make_table(("kernel", *names, "instruction set", "role", "dtype"), rows)


def _cell(use: KernelUse | None) -> str:
    if use is None:
        return MISSING
    if use.evidence == "configured":
        return "configured"
    return "ran" if use.calls is None else plural(use.calls, "call")


def _evidence(pair: KernelPair) -> str:
    found = {use.evidence for use in (pair.on, pair.off) if use is not None}
    return "executed" if "executed" in found else "configured"
