"""A run as a page: the answers and one chart, then what to do, operators, SME2, latency, how sure, reproduce
(empty sections are left out); in short; and its kernels with SME2 on beside off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

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
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.formatting import MISSING, listing, milliseconds, percent, plural, several
from model_profiling.report import breakdown
from model_profiling.report import document as doc
from model_profiling.report.costs import accuracy, loading, memory, threads
from model_profiling.report.data import ExperimentReport, PairReport, ReportData
from model_profiling.report.run_charts import latency_chart, latency_samples
from model_profiling.report.sections import advice, first_picture, operators, parity, sme2
from model_profiling.report.verdict import answers
from model_profiling.runs import Latency, Times
from model_profiling.runs.manifest import ScheduleFacts

# The section on latency: comparisons, every experiment, how it was measured, and other costs.

NOT_ARM = "These latencies say nothing about Arm: this CPU is not one"


def latency_section(data: ReportData) -> list[doc.Block]:
    if not data.times.are_shown:
        return []
    title = "End-to-end latency, every inference" if data.timed else "Times as recorded, with the tracer on"
    chart = latency_chart(latency_samples(data), title, f"{NOT_ARM}. " if data.is_arm is False else "")
    return [*([chart] if chart else []), *latency(data)]


def latency(data: ReportData) -> list[doc.Block]:
    """Return nothing if times are not latencies; those of an unknown machine are shown as recorded."""
    if data.times in (Times.EMULATED, Times.TRACED):
        return []
    if data.times is Times.UNKNOWN:
        return [doc.Paragraph("None is known: nothing says on what machine these times were recorded.")]
    blocks: list[doc.Block] = [doc.Paragraph(f"{text}.") for text in data.merged]
    if data.is_arm is False:
        blocks.append(doc.Paragraph(f"{NOT_ARM} ({data.cpu})."))
    blocks += speedups(data)
    measured = [experiment for experiment in data.experiments if experiment.untraced]
    if measured:
        blocks += _measured(data, measured)
    elif data.analysis is not None:
        words = "Only times with the event tracer on are known; the latency without it was not measured."
        blocks.append(doc.Paragraph(words))
    return blocks


def _measured(data: ReportData, measured: Sequence[ExperimentReport]) -> Iterator[doc.Block]:
    latencies = [experiment.latency for experiment in measured if experiment.latency]
    schedule = data.run.manifest.schedule if data.run.manifest else None
    unit = " or ".join(sorted({several(latency.counted_in) for latency in latencies})) or "rounds"
    columns: tuple[doc.TableColumn[ExperimentReport], ...] = (
        *breakdown.series_columns(data.run.series),
        doc.TableColumn("SME2", lambda row: _switch(row, data)),
        doc.Number(unit, lambda row: breakdown.number_cell(row.latency.rounds if row.latency else None)),
        doc.Number("median ms", lambda row: breakdown.median_cell(row.untraced)),
        doc.TableColumn("5% to 95%", lambda row: breakdown.spread_cell(row.untraced)),
        doc.Number("mean ms", lambda row: milliseconds(row.untraced.mean if row.untraced else None)),
        doc.Number("deviation", lambda row: percent(row.untraced.robust_cv if row.untraced else None)),
        doc.TableColumn("measured", lambda row: row.latency.measured if row.latency else MISSING),
    )
    yield doc.table_of(measured, columns)
    how = how_measured(schedule, latencies) if schedule else ""
    yield doc.Paragraph(f"End to end, without the tracer; nine in ten lie between 5% and 95%. {how}".strip())


def speedups(data: ReportData) -> list[doc.Block]:
    if not data.pairs:
        return []
    reasons = [f"{pair.label}: {pair.speedup.reason}." for pair in data.pairs if not pair.comparable]
    compared = {"launch": "paired turns", "round": "the fastest of processes that ran side by side"}
    ways = dict.fromkeys(compared[pair.speedup.unit] for pair in data.pairs if pair.speedup.ratio is not None)
    one_count = len({series.threads for series in data.run.series}) == 1
    columns = [column for column in _SPEEDUPS if column.header != "threads" or not one_count]
    return [
        doc.table_of(data.pairs, columns),
        *doc.make_list(reasons),
        *(doc.Paragraph(f"Times are medians; speedups are of {way}, so they may differ.") for way in ways),
    ]


def _threads(pair: PairReport) -> str:
    sides = pair.pair.baseline, pair.pair.candidate
    return " → ".join(dict.fromkeys(breakdown.number_cell(side.threads) for side in sides))


_SPEEDUPS: tuple[doc.TableColumn[PairReport], ...] = (
    doc.TableColumn(
        "comparison", lambda pair: f"{pair.label}{' (with the tracer)' if pair.with_tracer else ''}"
    ),
    doc.Number("threads", _threads),
    doc.Number("baseline ms", lambda pair: milliseconds(pair.speedup.baseline_median)),
    doc.Number("candidate ms", lambda pair: milliseconds(pair.speedup.candidate_median)),
    doc.Number("change", lambda pair: breakdown.median_change(pair.speedup)),
    doc.Number("speedup", lambda pair: breakdown.ratio_text(pair.speedup) if pair.speedup.ratio else MISSING),
    doc.TableColumn("verdict", lambda pair: pair.speedup.verdict.value),
)


def _switch(row: ExperimentReport, data: ReportData) -> str:
    disabled = row.result.disable if row.result else ()
    rest = [name for name in disabled if name not in ("sme2", "sme")]
    text = breakdown.sme2_switch(row.sme2, absent=data.has_sme2 is False)
    return f"{text} (without {', '.join(rest)})" if rest and row.sme2 is not None else text


# How latencies were measured, and why measuring ended.


def how_measured(schedule: ScheduleFacts, latencies: Sequence[Latency]) -> str:
    """For example `Measured in 6 launches that took turns, because ...`."""
    ours = [latency for latency in latencies if latency.rounds]
    if not ours:
        return ""
    counted = {latency.counted_in: plural(latency.rounds, latency.counted_in) for latency in ours}
    turns = ", in which programs took turns" if any(latency.way == "lockstep" for latency in ours) else ""
    took = f" It ended after {schedule.measured_s:.0f} s" if schedule.measured_s is not None else " It ended"
    reasons = {
        "precision": f" because every speedup was known to plus or minus {percent(schedule.precision)}",
        "budget": f" because the budget of {schedule.budget_s or 0:g} s was spent",
        "busy": " because other programs kept the cores busy",
        "nothing compared": ": nothing is compared, so the fewest launches are enough",
    }
    ending = f"{took}{reasons[schedule.ended]}." if schedule.ended in reasons else ""
    return f"Measured in {listing(counted.values())}{turns}.{ending}"


# The page.

Section = Callable[[ReportData], Sequence[doc.Block]]


def run_document(data: ReportData) -> list[doc.Block]:
    picture = first_picture(data)
    blocks: list[doc.Block] = [
        doc.Heading(data.title, 1),
        answers(data).block,
        *([picture] if picture else []),
    ]
    for heading, section, source in _SECTIONS:
        if body := section(data):
            blocks += [doc.Heading(heading), *_from(source, body)]
    return blocks


def _from(source: str, blocks: Sequence[doc.Block]) -> Iterator[doc.Block]:
    """Set the source of every table that has none."""
    for block in blocks:
        match block:
            case doc.ShownTable(source=""):
                yield replace(block, source=source)
            case doc.Folded(blocks=inside):
                yield replace(block, blocks=tuple(_from(source, inside)))
            case doc.Explorer(instead=inside):
                yield replace(block, instead=tuple(_from(source, inside)))
            case _:
                yield block


def how_sure(data: ReportData) -> list[doc.Block]:
    """Show reasons to doubt the figures, what else is known, whether outputs agree, and what is missing."""
    doubts = [line.text for line in data.warnings]
    if not doubts and data.timed:
        doubts = ["Nothing seen that would make the measurement doubtful."]
    missing = doc.make_list(data.gaps)
    return [
        *doc.make_list((*doubts, *answers(data).notes)),
        *parity(data),
        *([doc.Paragraph("What this report cannot show:"), *missing] if missing else []),
    ]


def reproduce(data: ReportData) -> list[doc.Block]:
    *measured, report = data.reproduce
    blocks: list[doc.Block] = [
        doc.Paragraph(
            "Measure again:" if measured else "The command that measured this run is not recorded."
        ),
        *([doc.Commands(tuple(measured))] if measured else []),
        doc.Paragraph("Write this page again from the recorded measurements:"),
        doc.Commands((report,)),
    ]
    if data.facts:
        machine = replace(doc.make_table(("what", "value"), data.facts), source=names.MANIFEST)
        blocks.append(doc.Folded("Machine and versions", (machine,)))
    return blocks


_SECTIONS: tuple[tuple[str, Section, str], ...] = (
    ("What to do next", advice, names.ANALYSIS),
    ("Operators", operators, names.ANALYSIS),
    ("SME2", sme2, names.ANALYSIS),
    ("Latency", latency_section, names.METRICS),
    ("Threads", threads, names.METRICS),
    ("Memory", memory, names.METRICS),
    ("Loading", loading, names.METRICS),
    ("Accuracy", accuracy, names.ANALYSIS),
    ("How sure", how_sure, names.METRICS),
    ("How to reproduce", reproduce, ""),
)
"""Heading, section, and the file that its numbers come from."""


def summary_document(data: ReportData) -> list[doc.Block]:
    """A run in short, as its summary and a notebook show it."""
    told = answers(data)
    state: list[doc.Block] = []
    if manifest := data.run.manifest:
        known = f"CPU: {data.cpu}; ExecuTorch: {manifest.executorch.version}"
        state = [doc.Paragraph(f"{known}; state: {manifest.unfinished or 'finished'}.")]
    return [
        doc.Heading(data.title, 1),
        told.block,
        *doc.make_list(told.notes),
        *state,
        *latency(data),
        *doc.make_list(line.text for line in data.warnings),
    ]


def ladder_table(data: ReportData) -> doc.ShownTable:
    """The ablation ladder: the kernels that ran at each rung, and the speedup from its best feature."""
    ran = {
        found.series: ", ".join(f"{count} {isa}" for isa, count in found.instruction_sets.items())
        for found in data.evidence[0].kernels
    }
    gains = {pair.pair.candidate: pair.speedup for pair in data.pairs}
    columns: tuple[doc.TableColumn[ExperimentReport], ...] = (
        *breakdown.series_columns(data.run.series),
        doc.TableColumn(
            "kernels that ran", lambda row: row.problem or ran.get(row.series) or "no KleidiAI kernel"
        ),
    )
    if data.timed:
        columns += (
            doc.Number("median ms", lambda row: breakdown.median_cell(row.summary)),
            doc.Number(
                "buys",
                lambda row: breakdown.speedup_text(gains[row.series]) if row.series in gains else MISSING,
            ),
        )
    return doc.table_of(data.experiments, columns)


# The kernel view: which kernels ran in two runs side by side, and which were only configured.


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
) -> list[doc.Block]:
    blocks: list[doc.Block] = [doc.Heading(title, 1)]
    many = len(sections) > 1
    for section in sections:
        blocks += [doc.Heading(section.label)] if many else []
        blocks += _kernel_section(section, filter_op, level=3 if many else 2)
    return blocks


def _kernel_section(section: KernelSection, filter_op: str, level: int) -> list[doc.Block]:
    on, off = section.on.uses, section.off.uses
    sides = str(section.on.series), str(section.off.series)
    pairs = [
        pair
        for pair in compare_kernels(on, off)
        if filter_op.lower() in f"{pair.kernel.name} {pair.kernel.role} {pair.kernel.operation}".lower()
    ]
    ran = [pair for pair in pairs if pair.executed]
    blocks = doc.make_list(_what_ran(side) for side in (section.on, section.off))
    if ran:
        blocks += [doc.Heading("Executed", level), _kernel_table(ran, sides)]
    configured = [pair for pair in pairs if not pair.executed]
    if configured:
        blocks += [
            doc.Heading("Configured only", level),
            doc.Paragraph("XNNPACK put these into its tables: candidates, not proof that they ran."),
            _kernel_table(configured, sides),
        ]
    if not pairs:
        none = ("No kernel matches ", doc.Code(filter_op), ".") if filter_op else "No kernels."
        blocks.append(doc.Paragraph(none))
    if unknown := dict.fromkeys(unknown_kernels((*on, *off))):
        blocks += [doc.Heading("Names the kit cannot read", level), *doc.make_list(map(doc.Code, unknown))]
    return blocks


def _what_ran(side: SeriesEvidence) -> str:
    sme, total = matrix_share(side.uses)
    took = f"; {sme} of {total} operators that run as matrix products took an SME path" if sme else ""
    return f"{side.series}: {side.sme.text}{took}"


def _kernel_table(pairs: Iterable[KernelPair], sides: tuple[str, str]) -> doc.Block:
    rows = []
    for pair in pairs:
        kernel = pair.kernel
        # A dash: this operator's label proves nothing about the instruction set.
        isa = MISSING if kernel.library == "operator" and kernel.isa == UNKNOWN else kernel.isa
        cells = _use_cell(pair.on), _use_cell(pair.off), isa, kernel.role, kernel.dtype
        rows.append((doc.Code(kernel.name), *cells))
    return doc.make_table(("kernel", *sides, "instruction set", "role", "dtype"), rows)


def _use_cell(use: KernelUse | None) -> str:
    if use is None:
        return MISSING
    if use.evidence == "configured":
        return "configured"
    return "ran" if use.calls is None else plural(use.calls, "call")
