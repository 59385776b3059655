"""Sections of the report: method, delegates, inside operators."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

from model_profiling.analysis.causes.outside import (
    REASON_NOT_KNOWN,
    OutsideLine,
    joined_calls,
    joining_words,
    outside_lines,
)
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.sampling import FEWEST, InsideOperator, InsideSeries, SampledKernel, SampledPart
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.series_views import calls_of
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.formatting import (
    MISSING,
    capitalized,
    listing,
    milliseconds,
    percent,
    plural,
    several,
    span_of,
)
from model_profiling.report import document as doc
from model_profiling.report.breakdown import ShownTimes, break_down
from model_profiling.report.cells import module_cell, series_columns
from model_profiling.report.data import ReportData
from model_profiling.report.operator_sections import headline_series
from model_profiling.runs.manifest import ScheduleFacts
from model_profiling.runs.metrics import Latency, MachineUse
from model_profiling.statistics.speedup import Speedup

# How latencies were measured, why measuring ended, and what the machine did meanwhile.


def ratio_note(found: Speedup, *, side_by_side: bool = True) -> str:
    if found.unit == "launch":
        compared = "paired turns"
    elif side_by_side:
        compared = "the lower quartiles of processes that ran side by side"
    else:
        compared = (
            "the lower quartiles of processes that ran at different times, with 3% added to each side of the "
            "interval"
        )
    return (
        f"Times are medians. Speedups are computed from {compared}, so they may differ from the ratio of "
        "the medians."
    )


def unit_header(latencies: Sequence[Latency]) -> str:
    units = {several(found.counted_in) for found in latencies}
    return " or ".join(sorted(units)) or "rounds"


def how_measured(schedule: ScheduleFacts, latencies: Sequence[Latency]) -> str:
    ours = [found for found in latencies if found.rounds]
    if not ours:
        return ""
    in_turns = [found for found in ours if found.way == "lockstep"]
    alone = [found for found in ours if found.way != "lockstep"]
    said = []
    if in_turns:
        launches = plural(max(found.rounds for found in in_turns), "launch")
        who = (
            "all programs were loaded and took turns"
            if len(in_turns) > 1
            else "the program was started again"
        )
        said.append(f"Measured in {launches}: in each, {who}")
    if alone:
        who = f" ({listing(dict.fromkeys(str(found.series) for found in alone))})" if in_turns else ""
        rounds = plural(max(found.rounds for found in alone), "round")
        said.append(f"{'measured' if said else 'Measured'} in {rounds} of one process after another{who}")
    return f"{'; '.join(said)}.{_ending(schedule)}"


def _ending(facts: ScheduleFacts) -> str:
    took = f" after {facts.measured_s:.0f} s" if facts.measured_s is not None else ""
    if facts.ended == "precision" and facts.precision is not None:
        return f" It ended{took} because every speedup was known to plus or minus {percent(facts.precision)}."
    if facts.ended == "budget" and facts.budget_s is not None:
        return f" It ended{took} because the budget of {facts.budget_s:g} s was spent."
    if facts.ended == "busy":
        return f" It ended{took} because other programs kept the cores busy."
    if facts.ended == "nothing compared":
        return f" It ended{took}: nothing is compared, so the fewest launches are enough."
    return ""


def machine_table(latencies: Sequence[Latency], every: Collection[Series]) -> list[doc.Block]:
    """Show what the machine did during the turns; nothing if there were no turns."""
    known = [(found, found.machine) for found in latencies if found.machine is not None]
    if not known:
        return []
    columns: tuple[doc.Column[Latency], ...] = (
        *series_columns(every),
        *(doc.Number(header, functools.partial(_of_machine, cell)) for header, cell in _MACHINE_USE),
    )
    meanwhile = "; ".join(_meanwhile([use for _, use in known]))
    note = (
        "How busy the machine was: CPU time is a share of the measured time; the other columns are events "
        f"per inference{f'; {meanwhile}' if meanwhile else ''}."
    )
    return [doc.Paragraph(note), doc.table_of([found for found, _ in known], columns)]


_MACHINE_USE: tuple[tuple[str, Callable[[MachineUse], str]], ...] = (
    ("CPU time", lambda use: MISSING if (share := use.cpu_time_share) is None else f"{100 * share:.0f}%"),
    ("interrupted by other programs", lambda use: _rate(use.involuntary_switches, use.inferences)),
    ("page faults from disk", lambda use: _rate(use.major_faults, use.inferences)),
)


def _of_machine(cell: Callable[[MachineUse], str], found: Latency) -> str:
    return cell(found.machine) if found.machine else MISSING


def _rate(events: int, inferences: int) -> str:
    return f"{events / inferences:.3g}" if inferences else MISSING


def _meanwhile(uses: Sequence[MachineUse]) -> Iterator[str]:
    loads = [load for use in uses for load in use.load or ()]
    if loads:
        yield f"load {span_of(loads, '.1f')}"
    stolen = [use.stolen_share for use in uses if use.stolen_share is not None]
    if stolen:
        yield f"{percent(max(stolen))} of CPU time taken by the hypervisor"
    clocks = [khz / 1e6 for use in uses for khz in use.clock_khz or ()]
    if clocks:
        yield f"clock {span_of(clocks, '.2f')} GHz"
    temperatures = [degrees for use in uses for degrees in use.temperature_c or ()]
    if temperatures:
        yield f"{span_of(temperatures, '.0f')} C"


# Delegates: how much they took, what they left to portable kernels, and why.

_PORTABLE_SHOWN = 10


def backends(data: ReportData) -> list[doc.Block]:
    series = headline_series(data)
    if series is None:
        return []
    if not series.operators:
        return [doc.Paragraph(_calls_text(series))]
    shown = break_down(series)
    rows: list[tuple[doc.Text, ...]] = []
    for name in dict.fromkeys(operator.backend for operator in series.operators):
        members = [operator for operator in series.operators if operator.backend == name]
        kind = "delegate" if members[0].delegated else "portable kernels"
        rows.append((name, kind, str(len(members)), *shown.of(members).cells))
    blocks: list[doc.Block] = [
        doc.Paragraph(_calls_text(series)),
        _timed_table(series, ("backend", "kind", "operators", "ms", "share"), rows),
    ]
    portable = [operator for operator in series.operators if not operator.delegated]
    if not portable:
        return [*blocks, doc.Paragraph("Every operator was delegated.")]
    portable.sort(key=lambda operator: -operator.typical_ms)
    items = _advice_items(data, series)
    lines = [
        (line, item)
        for item in dict.fromkeys(map(items.get, (operator.identity for operator in portable)))
        for line in outside_lines(series, [each for each in portable if items.get(each.identity) == item])
    ]
    if any(line.reasons for line, _ in lines):
        return [*blocks, *_by_line(series, shown, lines)]
    headers = ("outside delegates", "how many", "modules", "ms", "share")
    not_known = doc.Paragraph(f"{capitalized(REASON_NOT_KNOWN)}.")
    return [*blocks, _timed_table(series, headers, _by_type(shown, portable)), not_known]


def _calls_text(series: SeriesAnalysis) -> str:
    """For example `Each inference calls delegates 3 times and portable kernels once.`"""
    kinds = {"delegates": series.first.delegate_calls, "portable kernels": series.first.operator_calls}
    times = {1: "once", 2: "twice"}
    calls = [f"{kind} {times.get(count, f'{count} times')}" for kind, count in kinds.items() if count]
    whose = f" ({series.label})" if series.label else ""
    return f"Each inference{whose} calls {listing(calls) if calls else 'no operator'}."


def _advice_items(data: ReportData, series: SeriesAnalysis) -> dict[tuple[str, int, int], int]:
    """The number of the advice that each operator is in; why it misses SME2 is not about its time."""
    return {
        operator.identity: number
        for number, finding in reversed(list(enumerate(data.findings, start=1)))
        if finding.found_in is series and finding.id != "misses-sme2"
        for operator in finding.operators
    }


def _by_line(
    series: SeriesAnalysis, shown: ShownTimes, advised: Sequence[tuple[OutsideLine, int | None]]
) -> Iterator[doc.Block]:
    """Show what each line of the model leaves outside delegates, why, and which advice is about it, longest
    first; then what to write instead, unless an advice says it."""
    ordered = sorted(advised, key=lambda row: -series.spent_by(row[0].operators).ms)[:_PORTABLE_SHOWN]
    lines = [line for line, _ in advised]
    everyone = [operator for line in lines for operator in line.operators]
    times = shown.within(shown.of(everyone), everyone, [line.operators for line, _ in ordered])
    rows: list[tuple[doc.Text, ...]] = [
        (
            line.name,
            ", ".join(
                f"{count} x {name}"
                for name, count in Counter(one.type for one in line.operators).most_common()
            ),
            line.place or MISSING,
            line.why or "not known",
            MISSING if item is None else str(item),
            *spent.cells,
        )
        for (line, item), spent in zip(ordered, times, strict=True)
    ]
    headers = ("left outside by", "operators", "source", "why", "advice", "ms", "share")
    yield _timed_table(series, headers, rows)
    left = len(lines) - len(ordered)
    if left:
        yield doc.Paragraph(f"{plural(left, 'more line')}, in {names.ANALYSIS} and beside the program.")
    if joined := joined_calls(series, lines, calls_of(series)):
        words = joining_words(series.first.delegate_calls, joined)
        yield doc.Paragraph(f"They split the delegate: with these changes {words}.")
    said = dict.fromkeys((line.name, line.remedy) for line, item in ordered if line.remedy and item is None)
    yield from doc.make_list(f"{name}: {remedy}" for name, remedy in said)


def _by_type(shown: ShownTimes, portable: Sequence[Operator]) -> list[tuple[doc.Text, ...]]:
    """Group operators by type, longest first, with the modules that take most of their time."""
    groups: dict[str, list[Operator]] = {}
    for operator in portable:
        groups.setdefault(operator.type, []).append(operator)
    rows: list[tuple[doc.Text, ...]] = []
    for name, members in list(groups.items())[:_PORTABLE_SHOWN]:
        places = list(dict.fromkeys(map(module_cell, members)))
        where: tuple[doc.Inline, ...] = tuple(part for place in places[:3] for part in (", ", place))[1:]
        if len(places) > 3:
            where += (f" and {len(places) - 3} more",)
        rows.append((doc.Code(name), str(len(members)), where, *shown.of(members).cells))
    return rows


def _timed_table(
    series: SeriesAnalysis, headers: Sequence[str], rows: Sequence[Sequence[doc.Text]]
) -> doc.Table:
    """Return a table without its last two columns, which are times, if times mean nothing."""
    if series.times.are_shown:
        return doc.make_table(headers, rows, numbers=(len(headers) - 2, len(headers) - 1))
    return doc.make_table(headers[:-2], [row[:-2] for row in rows])


# Inside operators: which kernels take their time, from a sampled run.

_OPERATORS_SHOWN = 15
_KERNELS_SHOWN = 12
_NAMED_OF_OPERATOR = 3


def inside_operators(data: ReportData) -> list[doc.Block]:
    return [block for found in data.inside for block in _series(found, alone=len(data.inside) == 1)]


def _series(found: InsideSeries, *, alone: bool) -> Iterator[doc.Block]:
    if not alone:
        yield doc.Heading(str(found.series), 3)
    if found.problem:
        yield doc.Paragraph(f"Nothing is known of what its threads did: {found.problem}.")
        return
    yield doc.Paragraph(_how_sampled(found))
    if found.note:
        yield doc.Paragraph(f"{capitalized(found.note)}.")
    if found.operators:
        yield from _operator_parts(found) if found.shown else _kernels_seen(found)
    if sentence := _data_movement_text(found):
        yield doc.Paragraph(sentence)
    yield from _kernel_table(found)
    yield from doc.make_list(
        f"The functions of {name} are not told apart: {why}." for name, why in found.files.items()
    )


def _how_sampled(found: InsideSeries) -> str:
    lost = f" {found.lost} more were lost because memory ran out." if found.lost else ""
    outside = percent(found.outside / found.samples) if found.samples else MISSING
    return (
        f"{plural(found.samples, 'sample')} of what {plural(found.threads, 'thread')} did, at most "
        f"{found.hz} per second, from a separate run ({plural(found.executions, 'inference')}; no latency "
        f"comes from it). {outside} of the samples are outside delegates' operators; "
        f"{percent(found.unnamed_share)} of the work is in functions without a name.{lost}"
    )


def _operator_parts(found: InsideSeries) -> Iterator[doc.Block]:
    parts = [part for part in SampledPart if any(part in each.parts for each in found.operators)]
    ordered = sorted(found.operators, key=lambda each: -(each.operator.typical_ms if each.operator else 0.0))
    columns: tuple[doc.Column[InsideOperator], ...] = (
        doc.Column("operator", lambda each: each.name),
        doc.Number("ms", lambda each: milliseconds(each.operator.typical_ms if each.operator else None)),
        doc.Number("samples", lambda each: str(each.samples)),
        *(doc.Number(part.value, functools.partial(_share, part)) for part in parts),
        doc.Column(
            "mostly in",
            lambda each: (
                doc.Code(each.kernels[0].name) if each.enough and each.kernels else "too few samples"
            ),
        ),
    )
    yield doc.table_of(ordered[:_OPERATORS_SHOWN], columns)
    yield doc.Paragraph(
        "A part's share is its share of the operator's samples, so parts add up to the operator; the 95% "
        "interval in brackets takes samples as independent. Times are the operator's, divided by these "
        f"shares. Below {FEWEST} samples nothing is divided."
    )


def _share(part: SampledPart, each: InsideOperator) -> str:
    portion = each.parts.get(part)
    if not each.enough:
        return MISSING
    if portion is None:
        return "0%"
    return f"{percent(portion.share)} ({100 * portion.low:.0f} to {100 * portion.high:.0f})"


def _kernels_seen(found: InsideSeries) -> Iterator[doc.Block]:
    """Show which kernels each operator was seen in; without shares, because the times mean nothing."""
    yield doc.Paragraph(
        "These samples prove which kernels ran in which operator. How often says nothing: the time they were "
        "taken in is not the hardware's."
    )
    rows: list[tuple[doc.Text, ...]] = []
    for each in found.operators[:_OPERATORS_SHOWN]:
        worked = [kernel for kernel in each.kernels if kernel.part is not SampledPart.WAITING]
        named = worked[:_NAMED_OF_OPERATOR]
        names = doc.Code(", ".join(kernel.name for kernel in named)) if named else MISSING
        which = ", ".join(dict.fromkeys(kernel.part.value for kernel in named)) or MISSING
        rows.append((each.name, str(each.samples), names, which))
    yield doc.make_table(("operator", "samples", "seen in", "which is"), rows, numbers=(1,))


def _data_movement_text(found: InsideSeries) -> str:
    moving = found.moving
    if moving is None or not found.shown:
        return ""
    many = plural(moving.operators, "operator")
    if moving.ms <= 0:
        return f"No packing and no indirection by name was seen inside the {many} that multiply matrices."
    return (
        f"Inside the {many} that multiply matrices, packing and indirection take {percent(moving.share)} of "
        f"the time ({milliseconds(moving.ms)} ms of an inference): data movement that CONV and GEMM hide."
    )


def _kernel_table(found: InsideSeries) -> Iterator[doc.Block]:
    worked = [kernel for kernel in found.kernels if kernel.part is not SampledPart.WAITING]
    if not worked:
        return
    total = sum(kernel.samples for kernel in found.kernels)
    columns: list[doc.Column[SampledKernel]] = [
        doc.Column("function", lambda kernel: doc.Code(kernel.name)),
        doc.Column("part", lambda kernel: kernel.part.value),
        doc.Column("instruction set", lambda kernel: kernel.isa or MISSING),
        doc.Number("samples", lambda kernel: str(kernel.samples)),
    ]
    if found.shown:
        columns.append(doc.Number("of all", lambda kernel: percent(kernel.samples / total)))
    yield doc.table_of(worked[:_KERNELS_SHOWN], columns)
    if len(worked) > _KERNELS_SHOWN:
        rest = sum(kernel.samples for kernel in worked[_KERNELS_SHOWN:])
        more = plural(len(worked) - _KERNELS_SHOWN, "function")
        yield doc.Paragraph(f"{more} more, with {plural(rest, 'sample')}.")
