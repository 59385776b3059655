"""A run as a page, answer first, then what to do: the sections of the report and their order.

Empty sections are left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from model_profiling.analysis.evidence import PlaceEvidence
from model_profiling.config import names
from model_profiling.config.series import Pair
from model_profiling.core.formatting import MISSING, milliseconds, percent, size
from model_profiling.report import sections
from model_profiling.report.cells import (
    median_cell,
    median_change,
    number_cell,
    series_columns,
    sme2_switch,
    spread_cell,
)
from model_profiling.report.charts import latency_samples
from model_profiling.report.charts.latency import (
    distribution_chart,
    latency_chart,
    over_time_chart,
    speedups_chart,
    turns_chart,
)
from model_profiling.report.charts.steps import ladder_chart, threads_chart
from model_profiling.report.data import ExperimentReport, PairReport, ReportData
from model_profiling.report.document import (
    Block,
    Chart,
    Code,
    Column,
    Commands,
    Explorer,
    Folded,
    Heading,
    Number,
    Paragraph,
    Table,
    Text,
    make_list,
    make_table,
    table_of,
)
from model_profiling.report.evidence_sections import advice, kernels, parity
from model_profiling.report.explore_graph import explore_graph
from model_profiling.report.headroom import what_sme2_could_bring
from model_profiling.report.operator_sections import categories, first_picture, operators
from model_profiling.report.terms import with_terms
from model_profiling.report.verdict import answers, headline_pair
from model_profiling.runs import Latency, Times
from model_profiling.statistics.speedup import Speedup

# A page of 1,000 series would have 1,500 charts and help nobody: it shows those that its answers refer to
# and the first of the others, and says where to find the rest.

SERIES = 32
PAIRS = 12


def truncate_for_page(data: ReportData) -> tuple[ReportData, list[Block]]:
    """Return what fits on a page, and a paragraph about the rest; no paragraph if everything fits."""
    if len(data.experiments) <= SERIES and len(data.pairs) <= PAIRS:
        return data, []
    headline = headline_pair(data)
    places = sorted(range(len(data.pairs)), key=lambda place: data.pairs[place] is not headline)[:PAIRS]
    pairs = tuple(data.pairs[place] for place in sorted(places))
    compared = [(pair.pair.baseline, pair.pair.candidate) for pair in pairs]
    known = [found.series for found in data.experiments]
    answered = (data.headline.series if data.headline else None, data.outlook.coverage.proven_by)
    first = (*itertools.chain(*compared), *(each for each in answered if each in known), *known)
    series = set(list(dict.fromkeys(first))[:SERIES])

    def shorten_evidence(place: PlaceEvidence) -> PlaceEvidence:
        """Series of another run have other names: keep the first of those."""
        kernels = [found for found in place.kernels if found.series in series] or place.kernels[:SERIES]
        parity = [found for found in place.parity if (found.baseline, found.candidate) in compared]
        return replace(place, kernels=tuple(kernels), parity=tuple(parity or place.parity[:PAIRS]))

    analysis = data.analysis
    if analysis:
        pairings = {id(pair.pairing) for pair in pairs}
        analysis = replace(
            analysis,
            series=tuple(found for found in analysis.series if found.series in series),
            pairings=tuple(found for found in analysis.pairings if id(found) in pairings),
        )
    short = replace(
        data,
        experiments=tuple(found for found in data.experiments if found.series in series),
        pairs=pairs,
        evidence=tuple(map(shorten_evidence, data.evidence)),
        inside=tuple(found for found in data.inside if found.series in series),
        analysis=analysis,
        whole=data,
    )
    shown = [
        f"{some} of {every:,} {what}"
        for some, every, what in (
            (len(short.experiments), len(data.experiments), "series"),
            (len(short.pairs), len(data.pairs), "comparisons"),
        )
        if some < every
    ]
    return short, [
        Paragraph(
            f"This page shows {' and '.join(shown)}, those that the answers speak of first; all of them are "
            f"in {names.METRICS}, {names.ANALYSIS} and the CSV files beside each dump."
        )
    ]


Section = Callable[[ReportData], Sequence[Block]]

NOT_ARM = "These latencies say nothing about Arm: this CPU is not one"


def run_document(data: ReportData) -> list[Block]:
    short, left_out = truncate_for_page(data)
    blocks: list[Block] = [Heading(data.title, 1), *answers(data).opening(first_picture(short)), *left_out]
    data = short
    for heading, section, source in _SECTIONS:
        if body := section(data):
            blocks += [Heading(_heading(heading, section, data)), *_from(source, body)]
    return list(with_terms(blocks))


def _from(source: str, blocks: Sequence[Block]) -> Iterator[Block]:
    """Set the source of every table that has none."""
    for block in blocks:
        match block:
            case Table(source=""):
                yield replace(block, source=source)
            case Folded(blocks=inside):
                yield replace(block, blocks=tuple(_from(source, inside)))
            case Explorer(instead=inside):
                yield replace(block, instead=tuple(_from(source, inside)))
            case _:
                yield block


def _heading(heading: str, section: Section, data: ReportData) -> str:
    """Return the heading, changed if the run cannot show what it promises."""
    if section is latency_section and not data.times.are_shown:
        return "The ladder"
    if section is categories and not data.times.are_shown:
        return "Where the work is"
    if section is what_sme2_could_bring and not data.outlook.projections:
        return "What runs on SME2"
    return heading


def latency_section(data: ReportData) -> list[Block]:
    title = "End-to-end latency, every inference" if data.timed else "Times as recorded, with the tracer on"
    doubt = f"{NOT_ARM}. " if data.is_arm is False else ""
    charts = (
        speedups_chart(data.pairs) if data.timed else None,
        latency_chart(latency_samples(data), title, doubt),
        threads_chart(data),
        ladder_chart(data),
    )
    return [*(chart for chart in charts if chart), *latency(data)]


def latency(data: ReportData) -> list[Block]:
    """Return nothing if times are not latencies; those of an unknown machine are shown as recorded."""
    if data.times in (Times.EMULATED, Times.TRACED):
        return []
    if data.times is Times.UNKNOWN:
        words = (
            "None is known: nothing says on what machine these times were recorded, with the event tracer on."
        )
        return [Paragraph(words), *rows] if (rows := _from_dumps(data)) else []
    blocks: list[Block] = [Paragraph(f"{text}.") for text in data.merged]
    if data.is_arm is False:
        blocks.append(Paragraph(f"{NOT_ARM} ({data.cpu})."))
    blocks += speedups(data)
    measured = [found for found in data.experiments if found.untraced]
    if measured:
        latencies = [found.latency for found in measured if found.latency]
        schedule = data.run.manifest.schedule if data.run.manifest else None
        if schedule and (text := sections.how_measured(schedule, latencies)):
            blocks.append(Paragraph(text))
        blocks += [
            Paragraph("End to end, without the tracer:"),
            _latency_table(measured, data, sections.unit_header(latencies)),
            Paragraph(
                "Nine in ten inferences lie between 5% and 95%. The deviation is the standard deviation "
                "without the slowest, as a share of the median."
            ),
            Paragraph(
                "The same with the event tracer on, and other costs. Operator times below are means of the "
                "middle half of the traced runs, so they differ slightly from this median:"
            ),
            table_of(latencies, (*series_columns(data.run.series), *_COSTS)),
            *sections.machine_table(latencies, data.run.series),
        ]
    elif rows := _from_dumps(data):
        words = "Only times with the event tracer on are known; the latency without it was not measured."
        blocks += [Paragraph(words), *rows]
    return blocks


def speedups(data: ReportData) -> list[Block]:
    if not data.pairs:
        return []
    reasons = [f"{pair.label}: {pair.speedup.reason}." for pair in data.pairs if not pair.comparable]
    notes = dict.fromkeys(
        sections.ratio_note(pair.speedup) for pair in data.pairs if pair.speedup.ratio is not None
    )
    one_count = len({series.threads for series in data.run.series}) == 1
    columns = [column for column in _SPEEDUPS if column.header != "threads" or not one_count]
    return [table_of(data.pairs, columns), *make_list(reasons), *(Paragraph(note) for note in notes)]


def _interval(found: Speedup) -> str:
    return MISSING if found.low is None or found.high is None else f"{found.low:.3f} to {found.high:.3f}"


def _threads(pair: Pair) -> str:
    return " → ".join(dict.fromkeys(number_cell(side.threads) for side in (pair.baseline, pair.candidate)))


_SPEEDUPS: tuple[Column[PairReport], ...] = (
    Column("comparison", lambda pair: f"{pair.label}{' (with the tracer)' if pair.with_tracer else ''}"),
    Number("threads", lambda pair: _threads(pair.pair)),
    Number("baseline ms", lambda pair: milliseconds(pair.speedup.baseline_median)),
    Number("candidate ms", lambda pair: milliseconds(pair.speedup.candidate_median)),
    Number("change", lambda pair: median_change(pair.speedup)),
    Number("speedup", lambda pair: MISSING if pair.speedup.ratio is None else f"{pair.speedup.ratio:.3f}x"),
    Number("interval", lambda pair: _interval(pair.speedup)),
    Column("verdict", lambda pair: pair.speedup.verdict.value),
)


def _latency_table(measured: Sequence[ExperimentReport], data: ReportData, unit: str) -> Table:
    columns: tuple[Column[ExperimentReport], ...] = (
        *series_columns(data.run.series),
        Column("SME2", lambda found: _switch(found, data)),
        Number(unit, lambda found: number_cell(found.latency.rounds if found.latency else None)),
        Number("median ms", lambda found: median_cell(found.untraced)),
        Column("5% to 95%", lambda found: spread_cell(found.untraced)),
        Number("mean ms", lambda found: milliseconds(found.untraced.mean if found.untraced else None)),
        Number("deviation", lambda found: percent(found.untraced.robust_cv if found.untraced else None)),
        Column("measured", lambda found: found.latency.measured if found.latency else MISSING),
    )
    return table_of(measured, columns)


TOO_NOISY = "too noisy to tell"


def tracer_cost(latency: Latency) -> str:
    cost = latency.tracer_cost
    if cost is None:
        return MISSING
    if cost.low is None or cost.high is None:
        return f"{100 * cost.share:.1f}%" if cost.share > 0 else TOO_NOISY
    if cost.low <= 0:  # A cost is never negative: only its upper end is known.
        return f"at most {100 * cost.high:.1f}%" if cost.high > 0 else TOO_NOISY
    return f"{100 * cost.share:.1f}% ({100 * cost.low:.1f}% to {100 * cost.high:.1f}%)"


_COSTS: tuple[Column[Latency], ...] = (
    Number("traced median ms", lambda found: median_cell(found.traced_ms)),
    Number("tracer's cost", tracer_cost),
    Number("load ms", lambda found: milliseconds(found.load_ms)),
    Number("first ms", lambda found: milliseconds(found.first_inference_ms)),
    Number("memory", lambda found: size(found.peak_memory_bytes)),
)


def _from_dumps(data: ReportData) -> list[Table]:
    columns: tuple[Column[ExperimentReport], ...] = (
        *series_columns(data.run.series),
        Column("SME2", lambda found: _switch(found, data)),
        Number("runs", lambda found: number_cell(found.dumps.runs if found.dumps else None)),
        Number("traced median ms", lambda found: median_cell(found.dumps.latency if found.dumps else None)),
        Column("5% to 95%", lambda found: spread_cell(found.dumps.latency if found.dumps else None)),
    )
    known = [found for found in data.experiments if found.dumps is not None and found.times.are_shown]
    return [table_of(known, columns)] if known else []


def _switch(found: ExperimentReport, data: ReportData) -> str:
    disabled = found.result.disable if found.result else ()
    rest = [name for name in disabled if name not in ("sme2", "sme")]
    text = sme2_switch(found.sme2, absent=data.has_sme2 is False)
    return f"{text} (without {', '.join(rest)})" if rest and found.sme2 is not None else text


def quality(data: ReportData) -> list[Block]:
    if not data.warnings:
        words = "Nothing seen that would make the measurement doubtful."
        return [Paragraph(words)] if data.timed else []
    return make_list(line.text for line in data.warnings)


def quality_section(data: ReportData) -> list[Block]:
    """Show the warnings, then charts of the samples over time, their spread, and the effect of turns."""
    known = latency_samples(data) if data.timed else []
    charts = (
        over_time_chart(known),
        distribution_chart(known),
        *(turns_chart(data.run, pair, f"turns_{place}") for place, pair in enumerate(data.pairs, start=1)),
    )
    return [*quality(data), *(chart for chart in charts if chart)]


def machine(data: ReportData) -> list[Block]:
    return [make_table(("what", "value"), data.facts)] if data.facts else []


def reproduce(data: ReportData) -> list[Block]:
    *measured, report = data.reproduce
    again = [Paragraph("Measure again:"), Commands(tuple(measured))]
    unknown = [Paragraph("The command that measured this run is not recorded.")]
    this = Paragraph("Write this page again from the recorded measurements:")
    return [*(again if measured else unknown), this, Commands((report,))]


_SECTIONS: tuple[tuple[str, Section, str], ...] = (
    ("What to do next", advice, names.ANALYSIS),
    ("Latency", latency_section, names.METRICS),
    ("What SME2 could bring", what_sme2_could_bring, names.ANALYSIS),
    ("Where the time goes", categories, names.ANALYSIS),
    ("Operators", operators, names.ANALYSIS),
    ("Graph of the model", explore_graph, names.ANALYSIS),
    ("Inside the operators", sections.inside_operators, f"*{names.SAMPLES}"),
    ("Portable and delegated", sections.backends, names.ANALYSIS),
    ("Kernels", kernels, f"*{names.KERNELS_CSV}"),
    ("Numerical parity", parity, names.METRICS),
    ("Measurement quality", quality_section, names.METRICS),
    ("What this report cannot show", lambda data: make_list(data.gaps), ""),
    ("Machine and versions", machine, names.MANIFEST),
    ("How to reproduce", reproduce, ""),
)
"""Heading, section, and the file that its numbers come from."""


def summary_document(data: ReportData) -> list[Block]:
    manifest = data.run.manifest
    assert manifest is not None
    latencies = data.run.metrics.latencies if data.run.metrics else ()
    measured = sections.how_measured(manifest.schedule, latencies)
    circumstances = (
        f"CPU: {data.cpu}",
        f"ExecuTorch: {manifest.executorch.version}",
        f"state: {manifest.unfinished or 'finished'}",
        *([measured] if measured else []),
    )
    noticed = make_list(line.text for line in data.warnings)
    short, left_out = truncate_for_page(data)
    measured_ms = latency(short)
    return [
        Heading(data.title, 1),
        *answers(data).opening(),
        *left_out,
        *([Heading("Latency"), *measured_ms] if measured_ms else []),
        Heading("Circumstances"),
        *make_list(circumstances),
        *([Heading("Warnings"), *noticed] if noticed else []),
    ]


def ladder_table(data: ReportData) -> Table:
    """The ablation ladder: the kernels that ran at each rung, and the speedup from its best feature."""
    ran = {
        found.series: ", ".join(f"{count} {isa}" for isa, count in found.instruction_sets.items())
        for found in data.evidence[0].kernels
    }
    gains = {pair.pair.candidate: pair.speedup for pair in data.pairs}
    named = series_columns(data.run.series)
    headers: tuple[str, ...] = (*(column.header for column in named), "kernels that ran")
    if data.timed:
        headers += ("median ms", "buys", "verdict")
    rows = []
    for found in data.experiments:
        kernels = (
            f"failed: {found.problem}" if found.problem else ran.get(found.series) or "no KleidiAI kernel"
        )
        row: tuple[Text, ...] = (*(column.cell(found) for column in named), kernels)
        if data.timed:
            gain = gains.get(found.series)
            buys = MISSING if gain is None or gain.ratio is None else f"{gain.ratio:.2f}x"
            if gain is not None and gain.low is not None and gain.high is not None:
                buys += f" [{gain.low:.2f}, {gain.high:.2f}]"
            median = found.summary.median if found.summary else None
            row += (milliseconds(median), buys, gain.verdict.value if gain else "")
        rows.append(row)
    return make_table(headers, rows)


# A short report for a notebook cell.


def run_cell(data: ReportData, report: Path | None = None) -> list[Block]:
    """Return a short report for a notebook cell; `report` is the path of the full page."""
    blocks: list[Block] = [
        Heading(data.title, 3),
        *answers(data).opening(first_picture(data)),
        *(speedups(data) if data.timed else ()),
        *_first_open(categories(data)),
        *_folded("Operators", operators(data)),
        *_folded("Measurement quality", quality(data)),
    ]
    if report is not None:
        blocks.append(Paragraph(("The whole report: ", Code(str(report)))))
    return blocks


def _first_open(blocks: Iterable[Block]) -> Iterator[Block]:
    """Split a section at its headings: leave the first part open and fold each of the others."""
    parts: list[list[Block]] = [[]]
    for block in blocks:
        if isinstance(block, Heading):
            parts.append([])
        parts[-1].append(block)
    for place, part in enumerate(filter(None, parts)):
        if place and isinstance(part[0], Heading):
            yield from _folded(part[0].text, part[1:])
        else:
            yield from _below(part)


def _below(blocks: Iterable[Block]) -> Iterator[Block]:
    """Move headings one level down: the cell's own heading is level 3."""
    for block in blocks:
        yield Heading(block.text, block.level + 1) if isinstance(block, Heading) else block


def _folded(summary: str, blocks: Iterable[Block]) -> Iterator[Block]:
    """Fold words and tables; charts are left out because they would make the notebook large."""
    inside = tuple(block for block in _below(blocks) if not isinstance(block, Chart))
    if inside:
        yield Folded(summary, inside)
