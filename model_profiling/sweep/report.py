"""Finishes a sweep: analyses and reports its jobs, and writes the page of all of them.

Figures come from the runs' own `metrics.json`. A page beside it compares the runs; each has its own report.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.config.reading import checked_config
from model_profiling.core.errors import ProfilingError
from model_profiling.core.formatting import (
    MISSING,
    listing,
    milliseconds,
    percent,
    plural,
    short_rate,
    tokens_per_s,
)
from model_profiling.core.progress import Progress, Silent
from model_profiling.report.cells import sme2_switch
from model_profiling.report.charts.categories import coverage_bars, latency_bars
from model_profiling.report.data import PairReport, ReportData, report_data
from model_profiling.report.document import (
    Answers,
    Block,
    Code,
    Folded,
    Heading,
    Link,
    Paragraph,
    Table,
    Text,
    make_list,
    make_table,
)
from model_profiling.report.dtypes import OnSme2, read_on_sme2
from model_profiling.report.pair_text import speedup_text, what_times_are
from model_profiling.run import Run, Series, names
from model_profiling.run.times import marked
from model_profiling.statistics.latency import LatencySummary
from model_profiling.store.labels import Labels
from model_profiling.store.store import Added, Store
from model_profiling.sweep.cells import CellRecord, Job, Program, SweepRecord
from model_profiling.sweep.folder import CellOutcome, bring_home, cell_outcomes, results_of
from model_profiling.targets.machine_lock import working_beside
from model_profiling.workflow.measure import RunOptions, run_config
from model_profiling.workflow.report import write_combined_report, write_page

_MOST_REASONS = 8
MOST_SIDE_BY_SIDE = 24
"""The most runs on one page: with more, nobody sees anything."""
_MOST_BARS = 40
"""In one chart, for the same reason."""


@dataclass(frozen=True, slots=True)
class Row:
    """One cell, or several that were measured as one, with the results."""

    cells: tuple[CellRecord, ...]
    latency: LatencySummary | None = None
    kernels: str = ""
    """What it proves about SME2; empty if nothing was tested."""
    baseline: bool = False
    """Whether the CPU could not tell its rungs apart."""
    sme2: str = MISSING
    """The switch: on, off, or absent on a CPU without SME2."""
    is_arm: bool | None = None
    tokens: int | None = None
    """In one inference of a language model."""
    coverage: OnSme2 | None = None
    """Of the program, unless SME2 is off; None if not tested."""

    @property
    def first(self) -> CellRecord:
        return self.cells[0]

    @property
    def rung(self) -> str:
        """On and off are said only of a CPU that has SME2."""
        return "baseline" if self.baseline else self.first.cell.rung

    @property
    def target(self) -> str:
        """Marked if its latency says nothing about Arm."""
        return marked(self.first.cell.target, self.is_arm if self.latency else None)

    @property
    def name(self) -> str:
        cell = self.first.cell
        rung = f"SME2 {self.rung}" if self.rung in ("on", "off") else self.rung
        return f"{cell.run_name} on {self.target}, {rung}, {plural(cell.threads, 'thread')}"

    @property
    def tokens_per_s(self) -> float | None:
        return tokens_per_s(self.tokens, self.latency.median if self.latency else None)

    @property
    def sme2_share(self) -> float | None:
        return self.coverage.arithmetic_share if self.coverage else None

    @property
    def spread(self) -> str:
        found = self.latency
        return f"{milliseconds(found.p5)} to {milliseconds(found.p95)}" if found else ""


@dataclass(frozen=True, slots=True)
class SweepResults:
    record: SweepRecord
    rows: tuple[Row, ...]
    about: tuple[tuple[str, str], ...] = ()
    """Each target with the meaning of its times."""
    pairs: tuple[tuple[CellRecord, PairReport], ...] = ()
    """Comparisons of latencies, each with the first cell of its run."""

    @property
    def fastest(self) -> tuple[Row, ...]:
        """The row with the smallest median of each case of each model on each target, in the order of the
        sweep."""
        best: dict[tuple[str, ...], tuple[float, Row]] = {}
        for row in self.rows:
            cell = row.first.cell
            key = (cell.program.model, cell.case, cell.target)
            if row.latency is not None and (key not in best or row.latency.median < best[key][0]):
                best[key] = row.latency.median, row
        return tuple(row for _, row in best.values())


def gather(folder: Path, record: SweepRecord) -> SweepResults:
    rows: list[Row] = []
    about: dict[str, str] = {}
    pairs: list[tuple[CellRecord, PairReport]] = []
    by_run: dict[str | None, list[CellRecord]] = {}
    for each in record.cells:
        by_run.setdefault(each.run_dir, []).append(each)
    for run_dir, cells in by_run.items():
        data = _opened(folder / run_dir) if run_dir else None
        if data is None:
            rows += [Row((each,)) for each in cells]
            continue
        rows += _rows(data, cells)
        said = (data.device, what_times_are(data))
        about.setdefault(cells[0].cell.target, ": ".join(text for text in said if text))
        pairs += [(cells[0], pair) for pair in data.pairs if data.timed]
    order = {each.cell.id: place for place, each in enumerate(record.cells)}
    rows.sort(key=lambda row: order[row.first.cell.id])
    proven = {row.first.cell.run_name: row.coverage for row in rows if row.coverage}
    for place, row in enumerate(rows):
        if row.sme2 == "absent" and row.coverage is None:  # another target's run of the program proves it
            rows[place] = replace(row, coverage=proven.get(row.first.cell.run_name))
    return SweepResults(record, tuple(rows), tuple(about.items()), tuple(pairs))


def _opened(run_dir: Path) -> ReportData | None:
    try:
        run = Run.open(run_dir)
    except ProfilingError:
        return None
    return report_data(run, None) if run.manifest is not None else None


def _rows(data: ReportData, cells: Sequence[CellRecord]) -> Iterator[Row]:
    manifest = data.run.manifest
    assert manifest is not None
    latencies = {found.series: found.summary for found in data.experiments}
    absent, coverage = data.has_sme2 is False, read_on_sme2(data.run.path)
    switches = {found.series: sme2_switch(found.sme2, absent=absent) for found in data.experiments}
    kernels = {
        found.series: found.sme.text
        for place in data.evidence
        for found in place.kernels
        if found.sme.answer != "untested"
    }
    groups: dict[tuple[object, ...], list[CellRecord]] = {}
    measured: dict[tuple[object, ...], list[Series]] = {}
    for each in cells:
        series = [result.series for result in results_of(each.cell, manifest)]
        key: tuple[object, ...] = (tuple(series) or each.cell.id, each.state)
        groups.setdefault(key, []).append(each)
        measured[key] = series
    for key, group in groups.items():
        series = measured[key]
        known = [summary for one in series if (summary := latencies.get(one)) is not None]
        stands_for = any(len(manifest.asked_as(one.experiment)) > 1 for one in series)
        best = min(known, key=lambda summary: summary.median, default=None)
        proven = "; ".join(dict.fromkeys(kernels[one] for one in series if one in kernels))
        sme2 = switches.get(series[0], MISSING) if series else MISSING  # the first of a ladder has most
        best = best if group[0].state == "done" else None
        proof = coverage if sme2 != "off" else None
        yield Row(tuple(group), best, proven, stands_for, sme2, data.is_arm, manifest.tokens, proof)


def sweep_document(found: SweepResults, side_by_side: str | None) -> list[Block]:
    """The whole page; `side_by_side` is the file that compares all runs, if there is one."""
    return [
        Heading(sweep_title(found.record), 1),
        _opening(found, side_by_side),
        *_charts(found),
        *_fastest(found),
        *_speedups(found),
        Heading("Cells"),
        cells_table(found),
        *make_list(_notes(found)),
        *_left_out(found.record.cells),
    ]


def _charts(found: SweepResults) -> Iterator[Block]:
    """Latencies that say nothing about Arm are drawn only if nothing else is known."""
    programs: dict[str, OnSme2 | None] = {}
    for row in found.rows:
        if row.first.state == "done":
            name = row.first.cell.run_name
            programs[name] = programs.get(name) or row.coverage
    shown = list(programs.items())[:_MOST_BARS]
    only = f", the first {_MOST_BARS} of {len(programs)}" if len(programs) > _MOST_BARS else ""
    coverage = coverage_bars(shown, f"SME2 coverage of each program{only}", f"{names.ANALYSIS} of each run")
    timed = [row for row in found.rows if row.latency]
    timed = [row for row in timed if row.is_arm] or (timed if coverage is None else [])
    if len(timed) > _MOST_BARS:
        timed = [row for row in found.fastest if row in timed][:_MOST_BARS]
    bars = [(row.name, row.sme2, row.latency) for row in timed if row.latency]
    if bars:
        yield from (Heading("Latency"), latency_bars(bars, "cell"))
    if coverage:
        yield from (Heading("What runs on SME2"), coverage)


def _notes(found: SweepResults) -> Iterator[str]:
    if any(row.baseline for row in found.rows):
        yield "baseline: the CPU lacks what these rungs switch off, so they are measured once."
    if any(row.coverage for row in found.rows):
        yield "SME2 coverage: the share of the program's matrix arithmetic that ran on SME2 kernels."
    yield from (f"{target}: {said}." for target, said in found.about)


def sweep_title(record: SweepRecord) -> str:
    return f"Sweep {record.name}: {count_text(record)}"


def count_text(record: SweepRecord) -> str:
    """`30 of 34 cells done, 4 failed`, without cells that were left out."""
    counts = record.counts()
    wanted = sum(count for state, count in counts.items() if state != "left out")
    others = [f"{counts[state]} {state}" for state in ("failed", "running", "waiting") if state in counts]
    return ", ".join((f"{counts.get('done', 0)} of {plural(wanted, 'cell')} done", *others))


def _opening(found: SweepResults, side_by_side: str | None) -> Block:
    cells = found.record.cells
    reasons = list(_by_reason(each for each in cells if each.state == "failed").items())
    entries: list[tuple[str, Text]] = [
        (f"{plural(len(held), 'cell')} failed", f"{_places(held)}: {reason}{f'; {fix}' if fix else ''}")
        for (reason, fix), held in reasons[:_MOST_REASONS]
    ]
    if others := reasons[_MOST_REASONS:]:
        count = sum(len(held) for _, held in others)
        entries.append((f"{plural(count, 'cell')} failed", "for other reasons: see the table below"))
    if unfinished := sum(not each.ended for each in cells):
        entries.append(("Unfinished", f"{plural(unfinished, 'cell')} to measure: continue with --resume"))
    if not entries:
        entries.append(("Did everything work?", "Yes: every cell is done."))
    further: Text = "In the report of each run, linked below."
    if side_by_side:
        further = (
            Link("All runs side by side", side_by_side),
            "; each run has its own report, linked below.",
        )
    return Answers((*entries, ("Speedups, where the time goes, kernels", further)))


def _places(cells: Iterable[CellRecord]) -> str:
    jobs = list(dict.fromkeys(f"{each.cell.run_name} on {each.cell.target}" for each in cells))
    others = [f"{len(jobs) - 3} more"] if jobs[3:] else []
    return listing(jobs[:3] + others)


def _fastest(found: SweepResults) -> Iterator[Block]:
    rows = found.fastest
    if not rows:
        return
    yield Heading("The fastest of each model")
    yield fastest_table(found)
    yield Paragraph(
        (
            "The smallest median of each model on each target. ",
            Code("sme2prof compare"),
            " says whether a difference is more than noise, the export's record whether a dtype is accurate.",
        )
    )


def _speedups(found: SweepResults) -> Iterator[Block]:
    if not found.pairs:
        return
    yield Heading("What CPU features bring")
    rows = [
        (
            _linked(cell),
            cell.cell.target,
            pair.label,
            speedup_text(pair.speedup) if pair.speedup.ratio is not None else MISSING,
            pair.speedup.verdict.value,
            "" if pair.comparable else pair.speedup.reason,
        )
        for cell, pair in found.pairs
    ]
    yield make_table(("program", "target", "comparison", "speedup", "verdict", "why not"), rows)


def fastest_table(found: SweepResults) -> Table:
    case = ("case",) if any(row.first.cell.case for row in found.fastest) else ()
    columns = ("model", *case, "target", "dtype", "backend", "threads", "rung", "median ms", "5% to 95%")
    return _table(found.fastest, columns)


def cells_table(found: SweepResults) -> Table:
    """Every cell that was to be measured; cells that were measured as one share a row."""
    columns = ("program", "target", "threads", "rung", "median ms", "5% to 95%", "SME2 coverage", "state")
    return _table((row for row in found.rows if row.first.state != "left out"), columns)


def _table(rows: Iterable[Row], columns: Sequence[str]) -> Table:
    rows = tuple(rows)
    if any(row.tokens_per_s for row in rows):
        columns = (*columns, "tokens/s")
    numbers = [place for place, name in enumerate(columns) if name in ("threads", "median ms", "tokens/s")]
    return make_table(
        columns, ([_COLUMNS[name](row) or MISSING for name in columns] for row in rows), numbers
    )


_COLUMNS: dict[str, Callable[[Row], Text | None]] = {
    "program": lambda row: _linked(row.first),
    "model": lambda row: model_name(row.first.cell.program),
    "case": lambda row: row.first.cell.case,
    "target": lambda row: row.target,
    "dtype": lambda row: row.first.cell.program.dtype,
    "backend": lambda row: row.first.cell.program.backend,
    "threads": lambda row: str(row.first.cell.threads),
    "rung": lambda row: row.rung,
    "median ms": lambda row: milliseconds(row.latency.median) if row.latency else None,
    "5% to 95%": lambda row: row.spread,
    "tokens/s": lambda row: short_rate(row.tokens_per_s),
    "SME2 coverage": lambda row: percent(row.sme2_share) if row.coverage else row.kernels or "not tested",
    "state": lambda row: f"failed: {row.first.reason}" if row.first.state == "failed" else row.first.state,
}


def _linked(each: CellRecord) -> Text:
    name = each.cell.run_name
    done = each.run_dir and each.state == "done"
    return Link(name, f"{each.run_dir}/{names.REPORT_PAGE}") if done else Code(name)


def _left_out(cells: Iterable[CellRecord]) -> Iterator[Block]:
    reasons = _by_reason(each for each in cells if each.state == "left out")
    if reasons:
        count = sum(map(len, reasons.values()))
        lines = [f"{plural(len(held), 'cell')}: {reason}" for (reason, _), held in reasons.items()]
        yield Folded(f"{plural(count, 'cell')} left out", tuple(make_list(lines)))


def _by_reason(cells: Iterable[CellRecord]) -> dict[tuple[str, str], list[CellRecord]]:
    found: dict[tuple[str, str], list[CellRecord]] = {}
    for each in cells:
        found.setdefault((each.reason, each.fix), []).append(each)
    return found


def failures(record: SweepRecord) -> Iterator[str]:
    for (reason, fix), cells in _by_reason(each for each in record.cells if each.state == "failed").items():
        first = cells[0].cell.id
        others = f" and {plural(len(cells) - 1, 'other cell')}" if cells[1:] else ""
        yield f"{first}{others}: {reason}{f'; {fix}' if fix else ''}"


def model_name(program: Program) -> str:
    """The model without the path of its file or the variant of its export."""
    return names.variant_of(Path(f"{program.name}.pte"))[0]


def run_dirs(folder: Path, record: SweepRecord) -> list[Path]:
    """Runs with at least one cell done, in the order of the sweep."""
    found = dict.fromkeys(each.run_dir for each in record.cells if each.run_dir and each.state == "done")
    return [folder / run_dir for run_dir in found if (folder / run_dir / names.MANIFEST).is_file()]


def write_sweep_report(
    folder: Path, record: SweepRecord, progress: Progress | None = None
) -> tuple[Path, SweepResults]:
    progress = progress or Silent()
    progress.stage("writing the report of the sweep")
    runs = run_dirs(folder, record)
    beside = None
    if 2 <= len(runs) <= MOST_SIDE_BY_SIDE:
        write_combined_report(runs, folder / names.COMBINED, progress=progress)
        beside = Path(names.COMBINED).with_suffix(names.HTML).name
    found, page = gather(folder, record), folder / names.REPORT
    write_page(sweep_document(found, beside), page, sweep_title(record))
    return page, found


def publish(
    job: Job, run_dir: Path, program: Path, sweep: str, store: Store | None
) -> dict[str, CellOutcome]:
    """Analyse and report the run of `job`, add it to `store`, and return how each cell ended. A store that
    cannot be written now is tried again when the sweep ends."""
    with working_beside(f"analyses {job.program.name} (sme2prof sweep)"):
        manifest = bring_home(run_dir, program)
        config = checked_config(manifest.settings, folder=run_dir)
        run_config(config, RunOptions(analysis_only=True))
    outcomes = cell_outcomes(job, run_dir)
    if store is not None and any(each.state == "done" for each in outcomes.values()):
        with contextlib.suppress(Exception):
            add_to_store(store, [run_dir], sweep)
    return outcomes


def add_to_store(store: Store, runs: Sequence[Path], sweep: str, progress: Progress | None = None) -> Added:
    """Add runs of a sweep while nothing is measured here; runs that are in the store are not added twice."""
    with working_beside("stores runs (sme2prof sweep)"):
        return store.add(runs, Labels(sweep=sweep), progress)


@dataclass(frozen=True, slots=True)
class SweepResult:
    """`added` is None if no store was wanted, or nothing was measured that could be added."""

    report: Path
    found: SweepResults
    store: str | None = None
    added: Added | None = None


def check_store(address: str | None) -> Store:
    """Open or create the store before measuring; hours later is too late to learn it is not writable."""
    return Store.open(address, make=True)


def conclude(
    folder: Path, record: SweepRecord, store: Store | None, progress: Progress | None = None
) -> SweepResult:
    """Write the pages of the sweep in `folder` and add its runs to `store`, if given, each once."""
    progress = progress or Silent()
    report, found = write_sweep_report(folder, record, progress)
    runs = run_dirs(folder, record)
    if store is None or not runs:
        return SweepResult(report, found)
    progress.stage("adding the runs to the store")
    return SweepResult(report, found, store.address, add_to_store(store, runs, record.name, progress))
