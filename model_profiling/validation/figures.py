"""Checks of what a run directory says: figures are computed again from what they rest on (the journal, the
dumps, the outputs), so a file that was edited, cut short or left over from another run is found.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np

from model_profiling.analysis.kernels import sme_verdict
from model_profiling.statistics.latency import LatencySummary, summarize
from model_profiling.statistics.parity import OutputFile, compare_outputs
from model_profiling.statistics.speedup import Verdict
from model_profiling.pipeline.journal import JOURNAL_FILE, Journal
from model_profiling.pipeline.measure import latencies_ms
from model_profiling.pipeline.metrics import is_quantized
from model_profiling.pipeline.schedule import Series as PlannedSeries
from model_profiling.report.csv_files import csv_paths, write_csv_files
from model_profiling.report.data import Series
from model_profiling.report.kernel_view import read_kernels_csv
from model_profiling.report.markdown_text import plural
from model_profiling.validation.checked_run import (
    ANALYSE_AGAIN,
    COMPUTE_AGAIN,
    MEASURE_AGAIN,
    CheckedRun,
    named,
)
from model_profiling.workflow.run_files import (
    ResultEntry,
    RobustStats,
    read_json_object,
    read_metrics_file,
    read_record,
)
from model_profiling.check import Check, check_unless

_CLOSE = 1e-9


def latencies_match(run: CheckedRun) -> Iterator[Check]:
    """Whether statistics are those of the latencies in the journal, with as many as promised."""
    if not run.timed:
        yield Check("latencies", "skipped", "times on this target are not latencies")
        return
    timing = [result for result in run.results if result.mode == "timing" and result.latency]
    if not timing:
        yield Check("latencies", "skipped", "no latency was measured")
        return
    journal = Journal(run.path) if (run.path / JOURNAL_FILE).is_file() else None
    metrics = read_metrics_file(run.path / "metrics.json")
    in_metrics = {
        Series(entry.experiment, entry.threads): entry for entry in (metrics.latencies if metrics else ())
    }
    wrong: list[str] = []
    for result in timing:
        stats = read_record(RobustStats, run.path / (result.latency or ""))
        wrong += _wrong_rounds(result, stats)
        wrong += _uneven_rounds(run, result)
        wrong += _wrong_figures(result, stats)
        entry = in_metrics.get(Series(result.experiment, result.threads))
        if metrics is not None and (entry is None or entry.end_to_end_ms != stats.end_to_end_ms):
            wrong.append(f"{named(result)}: metrics.json and its robust stats differ")
        if journal is not None and result.threads is not None:
            planned = PlannedSeries(result.experiment, result.threads)
            raw = latencies_ms(journal, planned, len(stats.end_to_end_rounds_ms))
            if not _same(raw, stats.end_to_end_rounds_ms):
                wrong.append(f"{named(result)}: its latencies are not those in {JOURNAL_FILE}")
    yield check_unless(wrong, "latencies",
        f"statistics of {plural(len(timing), 'experiment')} are those of the runs",
        COMPUTE_AGAIN,
    )


def _wrong_figures(result: ResultEntry, stats: RobustStats) -> Iterator[str]:
    values = [value for one in stats.end_to_end_rounds_ms for value in one]
    if not values:
        yield f"{named(result)} has no latency"
        return
    if min(values) <= 0:
        yield f"{named(result)} has a latency of {min(values)} ms"
        return
    if stats.end_to_end_ms is None or not _agree(stats.end_to_end_ms, summarize(values)):
        yield f"{named(result)}: its statistics are not those of its latencies"


def comparisons_hold(run: CheckedRun) -> Iterator[Check]:
    """Whether verdicts follow from their intervals, and medians from the latencies."""
    metrics = read_metrics_file(run.path / "metrics.json")
    if metrics is None or not metrics.comparisons:
        yield Check("comparisons", "skipped", "nothing was compared")
        return
    compared = [one for one in metrics.comparisons if one.speedup.verdict is not Verdict.NOT_COMPARABLE]
    if not compared:
        why = metrics.comparisons[0].speedup.reason
        yield Check("comparisons", "skipped", f"nothing is comparable: {why}")
        return
    wrong = []
    for entry in compared:
        found = entry.speedup
        name = entry.label
        if found.low is None or found.high is None or found.ratio is None:
            wrong.append(f"{name} has a verdict without an interval")
        elif not found.low <= found.ratio <= found.high:
            wrong.append(f"{name}: its ratio lies outside its interval")
        elif (found.verdict is Verdict.FASTER and found.low <= 1) or (
            found.verdict is Verdict.SLOWER and found.high >= 1
        ):
            wrong.append(f"{name} is called {found.verdict.value}, but its interval holds 1")
    left = len(metrics.comparisons) - len(compared)
    more = f", {left} not comparable" if left else ""
    yield check_unless(wrong, "comparisons", f"verdicts of {len(compared)} follow from the intervals{more}", COMPUTE_AGAIN
    )


def emulated_has_no_latency(run: CheckedRun) -> Iterator[Check]:
    if run.timed:
        yield Check("no latency", "skipped", "times on this target are latencies")
        return
    wrong = [f"{path.name} holds latencies" for path in run.path.rglob("*_robust_stats.json")]
    metrics = read_metrics_file(run.path / "metrics.json")
    if metrics is not None:
        if metrics.timings_are_latency:
            wrong.append("metrics.json calls its times latencies")
        if metrics.latencies:
            wrong.append("metrics.json holds latencies")
        if any(entry.speedup.ratio is not None for entry in metrics.comparisons):
            wrong.append("metrics.json holds a speedup")
    yield check_unless(wrong, "no latency", "an emulated run shows none", COMPUTE_AGAIN)


def kernels_fit_the_switch(run: CheckedRun) -> Iterator[Check]:
    """Whether what ran is what the experiment allowed: no SME kernel where SME2 was off."""
    wrong, listed = [], 0
    for result in run.results:
        if not result.kernels or not (run.path / result.kernels).is_file():
            continue
        listed += 1
        answer = sme_verdict(read_kernels_csv(run.path / result.kernels), traced=result.counted_kernels)
        if result.sme2 is False and answer.answer in ("sme", "sme2", "sme-or-sme2"):
            wrong.append(f"{named(result)} had SME2 off, but {answer.text}")
    if not listed:
        yield Check("kernels", "skipped", "no kernel was listed")
        return
    yield check_unless(wrong, "kernels", f"{listed} lists fit what was switched off", f"the switch failed; {MEASURE_AGAIN}"
    )


def outputs_agree(run: CheckedRun) -> Iterator[Check]:
    """Whether outputs are whole, and the experiments still compute the same."""
    kept = [result for result in run.results if result.outputs]
    if not kept:
        yield Check("outputs", "skipped", "no outputs were kept")
        return
    outputs = {named(result): _outputs(run.path, result) for result in kept}
    first, wrong = named(kept[0]), []
    quantized = run.manifest is not None and is_quantized(Path(run.manifest.model))
    for name, theirs in outputs.items():
        found = compare_outputs(outputs[first], theirs, quantized=quantized)
        if not found.agrees:
            wrong.append(f"{name} computes something else than {first}")
    yield check_unless(wrong, "outputs",
        f"{plural(len(kept), 'experiment')} with the same outputs, within rounding",
        "find out which is right before trusting a speed",
    )


def summary_matches(run: CheckedRun) -> Iterator[Check]:
    path = run.path / "analysis_summary.json"
    if not path.is_file():
        status = "fail" if run.manifest is not None and run.dumps else "skipped"
        yield Check("analysis", status, "there is no analysis_summary.json", ANALYSE_AGAIN)  # type: ignore[arg-type]
        return
    entries = read_json_object(path).get("per_etdump")
    wrong: list[str] = []
    listed = entries if isinstance(entries, list) else []
    for entry in listed:
        wrong += _wrong_entry(run, entry)
    if len(listed) != sum(dump.round == 0 for dump in run.whole_dumps.values()):
        wrong.append(f"it describes {len(listed)} dumps, not those that are here")
    yield check_unless(wrong, "analysis", f"analysis_summary.json says what {len(listed)} dumps say", ANALYSE_AGAIN)


def _wrong_entry(run: CheckedRun, entry: object) -> Iterator[str]:
    if not isinstance(entry, dict) or not isinstance(entry.get("etdump"), str):
        yield "an entry names no dump"
        return
    dump = run.whole_dumps.get((run.path / entry["etdump"]).resolve())
    if dump is None:
        yield f"{entry['etdump']} is described, but cannot be read"
        return
    parts = dump.breakdown
    expected = {
        "e2e_ms": dump.e2e_ms,
        "framework_overhead_ms": parts.mean_ms(parts.framework),
        "unattributed_ms": parts.mean_ms(parts.unattributed),
        **{f"categories_ms.{category.value}": ms for category, ms in parts.categories_ms.items()},
    }
    said = {**entry, **{f"categories_ms.{key}": value for key, value in _object(entry, "categories_ms")}}
    for name, value in expected.items():
        if not _close(said.get(name), value):
            yield f"{name} of {entry['etdump']} is {said.get(name)}, the dump says {value:.6f}"
            return


def csv_files_match(run: CheckedRun) -> Iterator[Check]:
    """Whether each CSV file is, byte for byte, what its dump gives."""
    wrong, count = [], 0
    for dump in run.whole_dumps.values():
        there = csv_paths(dump.etdump.parent, dump.stem)
        if not any(path.is_file() for path in there.every):
            if dump.round == 0 and run.manifest is not None:
                wrong.append(f"{dump.etdump.name} has none")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            fresh = write_csv_files(dump, Path(scratch))
            for ours, theirs in zip(there.every, fresh.every, strict=True):
                count += 1
                if problem := _first_difference(ours, theirs):
                    wrong.append(problem)
    if not wrong and not count:
        yield Check("CSV files", "skipped", "there are none")
        return
    yield check_unless(wrong, "CSV files", f"{count} are what the dumps give", ANALYSE_AGAIN)


def _wrong_rounds(result: ResultEntry, stats: RobustStats) -> Iterator[str]:
    done = [one for one in stats.end_to_end_rounds_ms if one]
    if result.rounds and len(done) != result.rounds:
        yield f"{named(result)} has {plural(len(done), 'round')}, the manifest says {result.rounds}"
    short = [one for one in done if result.runs is not None and len(one) != result.runs]
    if short:
        few = plural(len(short[0]), "run")
        yield f"{named(result)} has a round of {few}, the manifest says {result.runs}"


def _uneven_rounds(run: CheckedRun, result: ResultEntry) -> Iterator[str]:
    """A finished run has every round of every experiment; only then are its ratios of side-by-side runs."""
    if run.manifest is None or run.manifest.state != "finished":
        return
    if result.rounds != run.manifest.schedule.rounds_done:
        done = run.manifest.schedule.rounds_done
        yield f"{named(result)} has {plural(result.rounds, 'round')}, the whole run has {done}"


def _same(raw: Sequence[Sequence[float]], kept: Sequence[Sequence[float]]) -> bool:
    return len(raw) == len(kept) and all(
        len(ours) == len(theirs) and np.allclose(ours, theirs, rtol=_CLOSE, atol=0)
        for ours, theirs in zip(raw, kept, strict=True)
    )


def _agree(said: LatencySummary, computed: LatencySummary) -> bool:
    names = ("median", "mean", "trimmed_mean", "minimum", "maximum", "p5", "p95", "mad", "std")
    return said.count == computed.count and all(
        _close(getattr(said, name), getattr(computed, name)) for name in names
    )


def _close(said: object, value: float) -> bool:
    if not isinstance(said, int | float):
        return False
    return bool(np.isclose(float(said), value, rtol=1e-6, atol=1e-9))


def _object(entry: dict[str, object], key: str) -> Iterator[tuple[str, object]]:
    value = entry.get(key)
    if isinstance(value, dict):
        yield from value.items()


def _outputs(run_dir: Path, result: ResultEntry) -> list[OutputFile]:
    return [OutputFile(run_dir / one.file, one.dtype, one.shape, one.dim_order) for one in result.outputs]


def _first_difference(ours: Path, theirs: Path) -> str:
    """Where a CSV file is not what it should be; empty when it is."""
    if not ours.is_file():
        return f"{ours.name} is missing"
    if ours.read_bytes() == theirs.read_bytes():
        return ""
    left = ours.read_text(encoding="utf-8", errors="replace").splitlines()
    right = theirs.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, (one, other) in enumerate(zip_longest(left, right), start=1):
        if one != other:
            return f"{ours.name}, line {number} is not what the dump gives"
    return f"{ours.name} ends otherwise than the dump gives"
