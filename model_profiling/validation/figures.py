"""Checks of a run's figures: each is recomputed from the journal, the dumps or the outputs, which exposes a
file that was edited, truncated or left over from another run."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np

from model_profiling.analysis.evidence import own_kernels
from model_profiling.analysis.headroom import unfit_times
from model_profiling.analysis.sampling import agreement, disagreements, sampled_entries
from model_profiling.analysis.series import FRAMEWORK, UNATTRIBUTED
from model_profiling.config import names
from model_profiling.core.errors import Status
from model_profiling.core.formatting import plural
from model_profiling.core.records import read_json_object, read_table
from model_profiling.core.safe_read import is_there, read_text
from model_profiling.program.category import Category
from model_profiling.report.csv_files import STATS_COLUMNS, csv_paths
from model_profiling.runs import Result, Run
from model_profiling.runs.evidence import read_factors, read_samples
from model_profiling.runs.figures import output_files
from model_profiling.runs.manifest import MEASURE_AGAIN
from model_profiling.runs.metrics import COMPUTE_AGAIN, RobustStats, read_robust_stats
from model_profiling.statistics.latency import LatencySummary, summarize
from model_profiling.statistics.parity import compare_outputs
from model_profiling.statistics.speedup import Verdict
from model_profiling.validation.structure import ANALYSE_AGAIN, CheckedRun, NoVerdict, question

_CLOSE = 1e-9


@question("latencies", COMPUTE_AGAIN)
def latencies_match(checked: CheckedRun, wrong: list[str]) -> str:
    """Whether the statistics follow from the latencies in the journal, and their number is as promised."""
    run = checked.run
    journal = run.journal  # read even if nothing was timed: a damaged journal must be reported
    timed = [result for result in run.results if result.latency and run.times_of(result.series).are_latencies]
    if not timed:
        why = "no latency was measured" if run.times.are_latencies else "times of this run are not latencies"
        raise NoVerdict(why)
    for result in timed:
        stats = read_robust_stats(run.path / (result.latency or ""))
        wrong += _wrong_rounds(result, stats)
        wrong += _uneven_rounds(run, result, stats)
        wrong += _wrong_figures(result, stats)
        stored = run.metrics.latency(result.series) if run.metrics else None
        if run.metrics is not None and (stored is None or stored.end_to_end_ms != stats.end_to_end_ms):
            said = [_in_short(found.end_to_end_ms if found else None) for found in (stored, stats)]
            wrong.append(
                f"{result.series}: {names.METRICS} and its robust stats differ ({said[0]} and {said[1]})"
            )
        if journal is not None:
            rounds = max(len(stats.end_to_end_rounds_ms), journal.rounds_of(result.series))
            raw = journal.latencies_ms(result.series, rounds)
            if difference := _first_unlike(raw, stats.end_to_end_rounds_ms):
                wrong.append(f"{result.series}: its latencies differ from {names.JOURNAL}: {difference}")
    return f"the statistics of {plural(len(timed), 'experiment')} match the measured latencies"


def _wrong_figures(result: Result, stats: RobustStats) -> Iterator[str]:
    values = [value for latencies in stats.end_to_end_rounds_ms for value in latencies]
    if not values:
        yield f"{result.series} has no latency"
    elif min(values) <= 0:
        yield f"{result.series} has a latency of {min(values)} ms"
    elif stats.end_to_end_ms is None or not _agree(stats.end_to_end_ms, summarize(values)):
        yield f"{result.series}: its statistics do not match its latencies"


@question("comparisons", COMPUTE_AGAIN)
def comparisons_hold(checked: CheckedRun, wrong: list[str]) -> str:
    """Whether verdicts follow from their intervals, and nothing is compared that must not be."""
    answers = checked.run.metrics.comparisons if checked.run.metrics else ()
    if not answers:
        raise NoVerdict("nothing was compared")
    reasons = {(pair.baseline, pair.candidate): pair.not_comparable for pair in checked.run.pairs}
    compared = 0
    for answer in answers:
        found, name = answer.speedup, answer.label
        if (answer.baseline, answer.candidate) not in reasons:
            wrong.append(f"{name} is not a pair of the run")
        if found.verdict is Verdict.NOT_COMPARABLE:
            continue
        compared += 1
        if reason := reasons.get((answer.baseline, answer.candidate)):
            wrong.append(f"{name} has the verdict {found.verdict.value}, but {reason}")
        elif found.low is None or found.high is None or found.ratio is None:
            wrong.append(f"{name} has a verdict without an interval")
        elif not found.low <= found.ratio <= found.high:
            wrong.append(f"{name}: its ratio is outside its interval")
        elif (found.verdict is Verdict.FASTER and found.low <= 1) or (
            found.verdict is Verdict.SLOWER and found.high >= 1
        ):
            wrong.append(f"{name} has the verdict {found.verdict.value}, but its interval includes 1")
    if not compared and not wrong:
        raise NoVerdict(f"nothing is comparable: {answers[0].speedup.reason}")
    more = f", {len(answers) - compared} not comparable" if compared < len(answers) else ""
    return f"{plural(compared, 'verdict')} checked against the intervals{more}"


@question("no latency", COMPUTE_AGAIN)
def emulated_has_no_latency(checked: CheckedRun, wrong: list[str]) -> str:
    run = checked.run
    if run.times.are_latencies:
        raise NoVerdict("times on this target are latencies")
    wrong += [f"{path.name} has latencies" for path in run.path.rglob(f"*{names.ROBUST_STATS}")]
    if run.metrics is not None:
        if run.metrics.times.are_latencies:
            wrong.append(f"{names.METRICS} says that its times are latencies")
        if run.metrics.latencies:
            wrong.append(f"{names.METRICS} has latencies")
        if any(answer.speedup.ratio is not None for answer in run.metrics.comparisons):
            wrong.append(f"{names.METRICS} has a speedup")
    return "the run claims no latency"


@question("kernels", f"SME2 was not switched off; {MEASURE_AGAIN}")
def kernels_fit_the_switch(checked: CheckedRun, wrong: list[str]) -> str:
    """Whether no SME kernel ran where SME2 was off."""
    listed = [found for found in own_kernels(checked.run, ()) if found.uses or found.counted]
    if not listed:
        raise NoVerdict("no kernel was listed")
    wrong += [
        f"{found.series} had SME2 off, but {found.sme.text}"
        for found in listed
        if found.sme2 is False and found.sme.proves_sme
    ]
    return f"{plural(len(listed), 'list')} of kernels checked"


@question("sampling", MEASURE_AGAIN)
def sampling_fits_the_counts(checked: CheckedRun, wrong: list[str]) -> str:
    """Whether threads were sampled in the counted kernels, and in no other."""
    said = []
    listed = {found.series: found for found in own_kernels(checked.run, ()) if found.counted}
    for series in checked.run.series:
        samples = read_samples(checked.run.path, checked.run.result(series))
        if samples is None or samples.unavailable or series not in listed:
            continue
        seen, uses = sampled_entries(samples), listed[series].uses
        wrong += [f"{series}: {each}" for each in disagreements(seen, uses)]
        said.append(f"{series}: {agreement(seen, samples.kept, uses)}")
    if not said:
        raise NoVerdict("no experiment was both sampled and counted")
    return "; ".join(said)


_MOST_VALUES = 1 << 23
"""The largest output that is compared: comparing takes several times its memory."""


@question("outputs", "find out which one is right before you rely on its speed")
def outputs_agree(checked: CheckedRun, wrong: list[str]) -> str:
    """Whether outputs are complete, and all experiments compute the same."""
    kept = [result for result in checked.run.results if result.outputs]
    if not kept:
        raise NoVerdict("no outputs were kept")
    written = [(result, output_files(result, checked.path)) for result in kept]
    for _, outputs in written:
        for each in outputs:
            if math.prod(each.shape) > _MOST_VALUES:
                said = f"{each.path.name} ({each.type_name}) has over {_MOST_VALUES >> 20} million values"
                raise NoVerdict(f"not compared: {said}")
    manifest = checked.manifest
    quantized = bool(manifest and manifest.was_quantized)
    half = bool(manifest and manifest.was_half)
    (_, first), *_ = written
    for result, others in written:
        if not compare_outputs(first, others, quantized=quantized, half=half).agrees:
            wrong.append(f"the outputs of {result.series} differ from those of {kept[0].series}")
    return f"{plural(len(kept), 'experiment')} with the same outputs, except for rounding"


@question("analysis", ANALYSE_AGAIN)
def summary_matches(checked: CheckedRun, wrong: list[str]) -> str:
    path = checked.path / names.ANALYSIS
    if not is_there(path):
        status: Status = "skipped" if checked.promises_little or not checked.run.dumps else "fail"
        raise NoVerdict(f"there is no {names.ANALYSIS}", status, ANALYSE_AGAIN)
    content = read_json_object(path, ANALYSE_AGAIN)
    if checked.promises_little and "schema_version" not in content:
        raise NoVerdict(f"{names.ANALYSIS} was written by the earlier kit; sme2prof analyze writes it again")
    entries = content.get("per_etdump")
    listed = entries if isinstance(entries, list) else []
    wrong += [text for entry in listed for text in _wrong_entry(checked, entry)]
    if len(listed) != len(checked.series):
        wrong.append(f"it describes {plural(len(listed), 'dump')}, which differ from the dumps in the run")
    wrong += _wrong_pairs(checked.run, content.get("pairs"))
    wrong += _wrong_projection(checked.run, content.get("sme2_headroom"))
    return f"{names.ANALYSIS} agrees with {plural(len(listed), 'dump')}"


def _wrong_pairs(run: Run, entries: object) -> Iterator[str]:
    """Whether the analysis states the run's pairs with the same verdicts."""
    stated = (
        {str(entry.get("label")): entry.get("e2e") for entry in entries if isinstance(entry, dict)}
        if isinstance(entries, list)
        else {}
    )
    for pair in run.pairs if run.manifest and run.manifest.pairs is not None else ():
        answer, found = run.comparison(pair), stated.get(pair.label)
        verdict = found.get("verdict") if isinstance(found, dict) else None
        if answer is not None and verdict != answer.speedup.verdict.value:
            yield (
                f"it says {verdict} for {pair.label}, but {names.METRICS} says {answer.speedup.verdict.value}"
            )


def _wrong_projection(run: Run, stated: object) -> Iterator[str]:
    """Whether SME2's effect is projected only where allowed, and with the run's factors."""
    if not isinstance(stated, dict):
        return
    if reason := unfit_times(run):
        yield f"it has a projection for SME2, but {reason}"
    bounds = [stated.get(name) for name in ("low", "high", "ceiling")]
    numbers = [bound for bound in bounds if isinstance(bound, float)]
    if None in bounds[:2] or numbers != sorted(numbers):
        yield (
            f"its projection from {bounds[0]} to {bounds[1]} with the ceiling {bounds[2]} is not a valid "
            "range"
        )
    kept = read_factors(run.path)
    groups = stated.get("factors")
    for entry in groups if isinstance(groups, list) else ():
        factor = kept.ranges.get(str(entry.get("operators"))) if isinstance(entry, dict) else None
        if factor is None or (entry["low"], entry["high"]) != (factor.low, factor.high):
            yield "its projection uses factors that differ from the run's"


def _wrong_entry(checked: CheckedRun, entry: object) -> Iterator[str]:
    if not isinstance(entry, dict) or not isinstance(entry.get("etdump"), str):
        yield "an entry names no dump"
        return
    # Unlike Path.resolve, it takes a link to itself.
    path = Path(os.path.realpath(checked.path / entry["etdump"]))
    series = next((found for found in checked.series if found.first.path.resolve() == path), None)
    if series is None:
        yield f"{entry['etdump']} is listed, but cannot be read"
        return
    parts = {name: series.spent(part).ms for name, part in series.parts.items()}
    expected = {
        "e2e_ms": series.e2e_ms,
        "framework_overhead_ms": parts[FRAMEWORK],
        "unattributed_ms": parts[UNATTRIBUTED],
        **{f"categories_ms.{category.value}": parts[category.value] for category in Category},
    }
    categories = entry.get("categories_ms")
    listed = categories if isinstance(categories, dict) else {}
    said = {**entry, **{f"categories_ms.{key}": value for key, value in listed.items()}}
    for name, value in expected.items():
        if not _close(said.get(name), value):
            yield f"{name} of {entry['etdump']} is {said.get(name)}, but the dumps say {value:.6f}"
            return


@question("CSV files", ANALYSE_AGAIN)
def csv_files_match(checked: CheckedRun, wrong: list[str]) -> str:
    """Whether each series has its CSV files, with every event, and operators that add up as in the dumps."""
    count = 0
    for series in checked.series:
        paths = csv_paths(series.first.path.parent, series.first.stem)
        there = [path for path in paths if is_there(path)]
        if checked.promises_little and not there:
            continue
        count += len(there)
        wrong += [f"{path.name} is missing" for path in paths if path not in there]
        if paths.stats in there:
            columns, rows = read_table(read_text(paths.stats), paths.stats, ANALYSE_AGAIN)
            if tuple(columns) != STATS_COLUMNS:
                if checked.promises_little:
                    raise NoVerdict("the earlier kit wrote them; sme2prof analyze writes them again")
                wrong.append(f"{paths.stats.name} has other columns")
                continue
            stated, known = sum(float(row["total_ms"]) for row in rows), series.spent_by(series.operators).ms
            if not _close(stated, known):
                wrong.append(f"{paths.stats.name} adds up to {stated:.6f} ms, but the dumps say {known:.6f}")
        if paths.timeline in there:
            with paths.timeline.open(newline="", encoding="utf-8") as stream:
                events = sum(1 for _ in csv.reader(stream)) - 1
            if events != (expected := series.first.attribution.event_count):
                wrong.append(f"{paths.timeline.name} has {events} events, but the dump has {expected}")
    if not wrong and not count:
        raise NoVerdict("there are none")
    return f"{plural(count, 'file')} checked against the dumps"


def _wrong_rounds(result: Result, stats: RobustStats) -> Iterator[str]:
    done = [latencies for latencies in stats.end_to_end_rounds_ms if latencies]
    filtered = stats.measured == "wall time"  # then a round holds only what nobody interrupted, maybe nothing
    # Turns on cores of another speed do not count by either measure.
    fewer = stats.measured in ("wall time", "cpu time") and len(done) < result.rounds
    if result.rounds and len(done) != result.rounds and not fewer:
        yield (
            f"{result.series} has {plural(len(done), stats.counted_in)}, but the manifest says "
            f"{result.rounds}"
        )
    short = [found for found in done if result.runs is not None and len(found) != result.runs]
    if short and stats.way != "lockstep" and not filtered:
        few = plural(len(short[0]), "run")
        yield f"{result.series} has a round of {few}, but the manifest says {result.runs}"


def _uneven_rounds(run: Run, result: Result, stats: RobustStats) -> Iterator[str]:
    """In a finished run every experiment has every round; only then are its ratios of side-by-side runs."""
    part = run.manifest.part_of(result.experiment) if run.manifest else None
    if part is not None and part.state == "finished" and result.rounds != part.schedule.rounds_done:
        rounds = plural(result.rounds, stats.counted_in)
        yield f"{result.series} has {rounds}, but the whole run has {part.schedule.rounds_done}"


def _first_unlike(raw: Sequence[Sequence[float]], kept: Sequence[Sequence[float]]) -> str:
    """The first round that differs, with both values; empty if none does."""
    for number, (ours, theirs) in enumerate(zip_longest(raw, kept, fillvalue=())):
        if len(ours) != len(theirs):
            return f"round {number} has {len(theirs)} inferences here and {len(ours)} there"
        unlike = ~np.isclose(ours, theirs, rtol=_CLOSE, atol=0)
        if unlike.any():
            place = int(unlike.argmax())
            return (
                f"round {number}, inference {place} took {theirs[place]} ms here and {ours[place]} ms there"
            )
    return ""


def _in_short(found: LatencySummary | None) -> str:
    return f"median {found.median} ms, mean {found.mean} ms" if found else "nothing"


def _agree(said: LatencySummary, computed: LatencySummary) -> bool:
    names = ("median", "mean", "trimmed_mean", "minimum", "maximum", "p5", "p95", "mad", "std")
    return said.count == computed.count and all(
        _close(getattr(said, name), getattr(computed, name)) for name in names
    )


def _close(said: object, value: float) -> bool:
    if not isinstance(said, int | float):
        return False
    return bool(np.isclose(float(said), value, rtol=1e-6, atol=1e-9))
