"""Several runs on one page: number formats, platforms, devices, models, or before and after a change.

The page shows each run's latency, then where its time goes. It does not judge differences between runs,
because they were made at different times or places; `sme2prof compare` does that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from model_profiling.analysis.categories import Category
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core.formatting import MISSING, plural
from model_profiling.report.breakdown import break_down
from model_profiling.report.charts.categories import LatencyBar, PartsBar, latency_bars, parts_bars
from model_profiling.report.data import ExperimentReport, ReportData
from model_profiling.report.document import (
    Block,
    Code,
    Folded,
    Heading,
    Paragraph,
    make_list,
    make_table,
)
from model_profiling.report.operator_sections import headline_series
from model_profiling.report.pair_text import (
    NamedRun,
    against_the_first,
    device_of,
    largest_parts,
    name_runs,
    shared_and_differing,
    shift_text,
    speedup_text,
    what_times_are,
)
from model_profiling.report.verdict import answers, headline_pair, outputs_differ
from model_profiling.report.views import median_cell, number_cell, sme2_switch, spread_cell
from model_profiling.run import Times

_Runs = Sequence[NamedRun]


def combined_title(runs: Sequence[ReportData]) -> str:
    models = dict.fromkeys(run.facts["model"] for run in name_runs(runs))
    of = next(iter(models)) if len(models) == 1 else plural(len(models), "model")
    return f"{of}: {plural(len(runs), 'run')} side by side"


def combined_document(runs: Sequence[ReportData], title: str) -> list[Block]:
    named = name_runs(runs)
    return [
        Heading(title, 1),
        *_opening(named),
        Heading("Latency"),
        *_latency(named),
        Heading("Speedups"),
        _speedups(named),
        *_where_time_goes(named),
        *_where_work_is(named),
        Heading("What each run says"),
        *(block for run in named for block in _run_answers(run)),
        Heading("Kernels and numerics"),
        *_evidence(named),
        Heading("The runs"),
        *_differences(named),
    ]


def _opening(runs: _Runs) -> Iterator[Block]:
    shifts = [_shift(run) for run in runs]
    yield from make_list(text for text in shifts if text)
    if len(runs) > 1:
        yield Paragraph(
            (
                "Differences between runs are not judged here: they were made at different times or places. ",
                Code("sme2prof compare"),
                " judges two of them.",
            )
        )


def _shift(run: NamedRun) -> str:
    """Describe what SME2, or whatever the first comparison is about, changed in one run."""
    pair = headline_pair(run.data)
    if pair is None:
        return ""
    said = f"{_label(run)}: {pair.label} {speedup_text(pair.speedup)}, {pair.speedup.verdict.value}."
    if outputs_differ(run.data, pair):
        return f"{said} But the outputs differ by more than rounding: do not trust this speed."
    return f"{said} {shift_text(*largest_parts(pair.side_by_side))}" if pair.side_by_side else said


def _latency(runs: _Runs) -> Iterator[Block]:
    bars = [
        LatencyBar(f"{_label(run)}: {found.series}", _switch(found, run.data), found.untraced)
        for run in runs
        for found in run.data.experiments
        if found.untraced
    ]
    if bars:
        yield latency_bars(bars)
    rows = [row for run in runs for row in _latency_rows(run)]
    headers = ("run", "device", "experiment", "threads", "SME2", "median ms without tracer", "5% to 95%")
    yield make_table(headers, rows, numbers=(3, 5))
    yield from make_list(
        f"{run.name}: {what_times_are(run.data)}."
        for run in runs
        if not run.data.timed or run.data.is_arm is False
    )


def _label(run: NamedRun) -> str:
    """Return the run's name, marked if its times are not from known Arm hardware."""
    if run.data.times is Times.UNKNOWN:
        return f"{run.name} (unknown machine)"
    return f"{run.name} (not Arm)" if run.data.is_arm is False else run.name


def _latency_rows(run: NamedRun) -> Iterator[tuple[str, ...]]:
    device = device_of(run.data) or MISSING
    if not run.data.timed:
        yield run.name, device, MISSING, MISSING, MISSING, MISSING, "no latency: not measured on hardware"
        return
    for found in run.data.experiments:
        series, summary = found.series, found.untraced
        named = series.experiment, number_cell(series.threads), _switch(found, run.data)
        yield run.name, device, *named, median_cell(summary), spread_cell(summary)


def _switch(found: ExperimentReport, data: ReportData) -> str:
    return sme2_switch(found.sme2, absent=data.has_sme2 is False)


def _speedups(runs: _Runs) -> Block:
    rows = [
        (
            run.name,
            pair.label,
            speedup_text(pair.speedup) if pair.speedup.ratio is not None else MISSING,
            pair.speedup.verdict.value,
            "" if pair.comparable else pair.speedup.reason,
        )
        for run in runs
        for pair in run.data.pairs
    ]
    if not rows:
        return Paragraph("Nothing was compared.")
    return make_table(("run", "comparison", "speedup", "verdict", "why not"), rows)


def _pictured_series(run: NamedRun) -> list[tuple[str, SeriesAnalysis]]:
    """Return the series to chart: both sides of the headline comparison, or else one series."""
    pair = headline_pair(run.data)
    if pair is not None and (pairing := pair.side_by_side) is not None:
        return [("before", pairing.baseline), ("after", pairing.candidate)]
    series = headline_series(run.data)
    return [("", series)] if series is not None else []


def _where_time_goes(runs: _Runs) -> Iterator[Block]:
    """Each run is a row and a bar, so that any number of runs fits."""
    shown = [
        (run, side, break_down(series))
        for run in runs
        for side, series in _pictured_series(run)
        if series.times.are_shown
    ]
    if not shown:
        return
    yield Heading("Where the time goes")
    bars = [PartsBar(f"{_label(run)}{f', {side}' if side else ''}", found) for run, side, found in shown]
    yield parts_bars(bars, shares=False)
    yield parts_bars(bars, shares=True)
    parts = list(dict.fromkeys(part for _, _, found in shown for part in found.parts))
    rows = [
        (
            run.name,
            f"{side}: {found.series.name}" if side else found.series.name,
            *(
                "{} ({})".format(*found.parts[part].cells) if part in found.parts else MISSING
                for part in parts
            ),
            found.end_to_end.cells[0],
        )
        for run, side, found in shown
    ]
    headers = ("run", "experiment", *(f"{part}, ms (share)" for part in parts), "End to end, traced")
    yield make_table(headers, rows, numbers=range(2, len(headers)))


def _where_work_is(runs: _Runs) -> Iterator[Block]:
    """Show runs without meaningful times by the amount of work they do."""
    rows = [
        (run.name, series.name, *(_work(series, category) for category in Category))
        for run in runs
        for _, series in _pictured_series(run)
        if not series.times.are_shown
    ]
    if rows:
        yield Heading("Where the work is")
        yield Paragraph("Runs without times of their own: operators, and million arithmetic operations.")
        headers = ("run", "experiment", *(category.value for category in Category))
        yield make_table(headers, rows, numbers=range(2, len(headers)))


def _work(series: SeriesAnalysis, category: Category) -> str:
    members = [operator for operator in series.operators if operator.category is category]
    known = [found.source.flops for found in members if found.source.flops is not None]
    return f"{len(members)} ({sum(known) / 1e6:.1f})" if known else str(len(members))


def _run_answers(run: NamedRun) -> list[Block]:
    told = answers(run.data)
    notes = make_list(told.notes)
    return [
        Heading(run.name, 3),
        Paragraph(Code(str(run.data.run.path))),
        told.block,
        *([Folded("Also to know", tuple(notes))] if notes else []),
    ]


def _evidence(runs: _Runs) -> list[Block]:
    rows = [
        (run.name, place.source, str(kernels.series), kernels.sme.text)
        for run in runs
        for place in run.data.evidence
        for kernels in place.kernels
    ]
    parity = [
        f"{run.name}: outputs of {found.candidate} against {found.baseline} ({place.source}): {found.text}"
        for run in runs
        for place in run.data.evidence
        for found in place.parity
    ]
    headers = ("run", "from", "experiment", "what the evidence says")
    shown: Block = make_table(headers, rows) if rows else Paragraph("No kernel evidence.")
    return [shown, *make_list(parity)]


def _differences(runs: _Runs) -> Iterator[Block]:
    alike, differing = shared_and_differing(runs)
    if alike:
        yield Paragraph(f"All of them: {'; '.join(f'{key} {value}' for key, value in alike.items())}.")
    if differing:
        rows = [(run.name, *(run.facts[key] or MISSING for key in differing)) for run in runs]
        yield make_table(("run", *differing), rows)
    first, others = against_the_first(runs)
    for reason, names in others.items():
        sides = f"{'; '.join(names)} beside {first.name}: "
        if reason:
            yield Paragraph(f"{sides}times are not comparable, because {reason}.")
        else:
            yield Paragraph((sides, Code("sme2prof compare"), " can judge the difference."))
