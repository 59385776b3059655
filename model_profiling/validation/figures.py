"""Checks of a run's figures: each is computed again from the journal, the dumps or the outputs, which exposes
a file that was edited, truncated or left over from another run."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from model_profiling.analysis.evidence import own_kernels
from model_profiling.config import names
from model_profiling.core.checks import Status
from model_profiling.core.errors import FormatError
from model_profiling.core.formatting import plural
from model_profiling.core.records import read_json_object, read_table, record_json
from model_profiling.core.safe_read import is_there, read_text
from model_profiling.report.analysis_json import analysis_summary
from model_profiling.report.csv_files import STATS_COLUMNS, csv_paths
from model_profiling.report.data import report_data
from model_profiling.runs.figures import latencies, output_files, robust_stats
from model_profiling.runs.manifest import MEASURE_AGAIN
from model_profiling.runs.metrics import COMPUTE_AGAIN
from model_profiling.statistics.parity import compare_outputs
from model_profiling.statistics.speedup import Verdict
from model_profiling.validation.structure import ANALYSE_AGAIN, CheckedRun, NoVerdict, question

_SUMMARIZED = ("times", "etdump_count", "per_etdump", "pairs", "sme2_headroom")
"""What of `analysis_summary.json` is compared."""


def unlike(stored: object, computed: object, place: str) -> Iterator[str]:
    """Where numbers and verdicts in a file differ from what they are when computed again."""
    if isinstance(computed, dict) and isinstance(stored, dict):
        for key in (key for key in computed if key in stored):
            yield from unlike(stored[key], computed[key], f"{place}.{key}")
    elif isinstance(computed, list) and isinstance(stored, list) and len(computed) == len(stored):
        for number, values in enumerate(zip(stored, computed, strict=True)):
            yield from unlike(*values, f"{place}.{number}")
    elif isinstance(computed, dict | list) or isinstance(stored, dict | list):
        yield f"{place} has {_size(stored)}, and {_size(computed)} when computed again"
    elif isinstance(computed, int | float) and isinstance(stored, int | float):
        if not math.isclose(stored, computed, rel_tol=1e-6, abs_tol=1e-9):
            yield f"{place} is {stored}, and {computed} when computed again"
    elif place.endswith((".verdict", "times")) and stored != computed:
        yield f"{place} is {stored}, and {computed} when computed again"


def _size(value: object) -> str:
    return plural(len(value), "part") if isinstance(value, dict | list) else repr(value)


@question("latencies", COMPUTE_AGAIN)
def latencies_match(checked: CheckedRun, wrong: list[str]) -> str:
    """Whether the statistics follow from the latencies in the journal, and their number is as promised."""
    run, manifest = checked.run, checked.manifest
    if manifest is None or run.journal is None:
        raise NoVerdict(f"there is no {names.JOURNAL}")
    computed = latencies(manifest, run.journal)
    timed = [result for result in run.results if result.latency and result.series in computed]
    for result in timed:
        stats = robust_stats(result, computed[result.series], run.journal, manifest.model)
        stored, place = read_json_object(run.path / (result.latency or ""), COMPUTE_AGAIN), str(result.series)
        for name in ("end_to_end_rounds_ms", "end_to_end_ms"):
            wrong += unlike(stored.get(name), record_json(stats)[name], f"{place}: {name}")
        # In a finished run every experiment has every round; only then are its ratios of side-by-side runs.
        rounds = manifest.schedule.rounds_done
        if manifest.state == "finished" and result.rounds != rounds:
            own = plural(result.rounds, stats.counted_in)
            wrong.append(f"{place} has {own}, but the whole run has {rounds}")
    for stored_latency in run.metrics.latencies if run.metrics else ():
        place = f"{names.METRICS}: {stored_latency.series}"
        if (latency := computed.get(stored_latency.series)) is None:
            wrong.append(f"{place} has a latency, which {names.JOURNAL} does not have")
        elif stored_latency.end_to_end_ms and latency.end_to_end_ms:
            figures = stored_latency.end_to_end_ms.as_dict(), latency.end_to_end_ms.as_dict()
            wrong += unlike(*figures, f"{place}: end_to_end_ms")
    if not timed and not wrong:
        why = "no latency was measured" if run.times.are_latencies else "times of this run are not latencies"
        raise NoVerdict(why)
    return f"the statistics of {plural(len(timed), 'experiment')} match {names.JOURNAL}"


@question("comparisons", COMPUTE_AGAIN)
def comparisons_hold(checked: CheckedRun, wrong: list[str]) -> str:
    """Whether verdicts follow from their intervals, and nothing is compared that must not be."""
    answers = checked.run.metrics.comparisons if checked.run.metrics else ()
    if not answers:
        raise NoVerdict("nothing was compared")
    reasons = {(pair.baseline, pair.candidate): pair.not_comparable for pair in checked.run.pairs}
    compared = 0
    for answer in answers:
        speedup, name = answer.speedup, answer.label
        if (answer.baseline, answer.candidate) not in reasons:
            wrong.append(f"{name} is not a pair of the run")
        if speedup.verdict is Verdict.NOT_COMPARABLE:
            continue
        compared += 1
        if reason := reasons.get((answer.baseline, answer.candidate)):
            wrong.append(f"{name} has the verdict {speedup.verdict.value}, but {reason}")
        elif speedup.low is None or speedup.high is None or speedup.ratio is None:
            wrong.append(f"{name} has a verdict without an interval")
        elif not speedup.low <= speedup.ratio <= speedup.high:
            wrong.append(f"{name}: its ratio is outside its interval")
        elif (speedup.verdict is Verdict.FASTER and speedup.low <= 1) or (
            speedup.verdict is Verdict.SLOWER and speedup.high >= 1
        ):
            wrong.append(f"{name} has the verdict {speedup.verdict.value}, but its interval includes 1")
    if not compared and not wrong:
        raise NoVerdict(f"nothing is comparable: {answers[0].speedup.reason}")
    more = f", {len(answers) - compared} not comparable" if compared < len(answers) else ""
    return f"{plural(compared, 'verdict')} checked against the intervals{more}"


@question("kernels", f"SME2 was not switched off; {MEASURE_AGAIN}")
def kernels_fit_the_switch(checked: CheckedRun, wrong: list[str]) -> str:
    """Whether no SME kernel ran where SME2 was off."""
    listed = [series for series in own_kernels(checked.run, ()) if series.uses or series.counted]
    if not listed:
        raise NoVerdict("no kernel was listed")
    wrong += [
        f"{evidence.series} had SME2 off, but {evidence.sme.text}"
        for evidence in listed
        if evidence.sme2 is False and evidence.sme.proves_sme
    ]
    return f"{plural(len(listed), 'list')} of kernels checked"


_MOST_VALUES = 1 << 23
"""The largest output that is compared: comparing takes several times its memory."""


@question("outputs", "find out which one is right before you rely on its speed")
def outputs_agree(checked: CheckedRun, wrong: list[str]) -> str:
    """Whether outputs are complete, and all experiments compute the same."""
    results = [result for result in checked.run.results if result.outputs]
    manifest = checked.manifest
    if not results or manifest is None:
        raise NoVerdict("no outputs were kept")
    quantized, half = bool(manifest.was_quantized), manifest.was_half
    first = output_files(results[0], checked.path)
    for result in results:
        others = output_files(result, checked.path)
        if large := next((each for each in others if math.prod(each.shape) > _MOST_VALUES), None):
            values = f"{large.path.name} has over {_MOST_VALUES >> 20} million values"
            raise NoVerdict(f"not compared: {values}")
        if not compare_outputs(first, others, quantized=quantized, half=half).agrees:
            wrong.append(f"the outputs of {result.series} differ from those of {results[0].series}")
    return f"{plural(len(results), 'experiment')} with the same outputs, except for rounding"


@question("analysis", ANALYSE_AGAIN)
def summary_matches(checked: CheckedRun, wrong: list[str]) -> str:
    path, analysis = checked.path / names.ANALYSIS, checked.analysis
    if not is_there(path):
        status: Status = "skipped" if checked.promises_little or not checked.run.dumps else "fail"
        raise NoVerdict(f"there is no {names.ANALYSIS}", status, ANALYSE_AGAIN)
    content = read_json_object(path, ANALYSE_AGAIN)
    if checked.promises_little and "schema_version" not in content:
        raise NoVerdict(f"{names.ANALYSIS} was written by the earlier kit; sme2prof analyze writes it again")
    if analysis is None or isinstance(analysis, FormatError):
        raise NoVerdict("there is no dump to compare it with")
    paths = [csv_paths(series.first.path.parent, series.first.stem) for series in analysis.series]
    summary = analysis_summary(report_data(analysis.run, analysis), analysis, paths)
    computed = json.loads(json.dumps(summary))  # where tuples are lists
    # What is said of pairs comes from metrics.json, whose absence is reported by the check of files.
    for name in _SUMMARIZED if checked.promises_little or checked.run.metrics else _SUMMARIZED[:3]:
        wrong += unlike(content.get(name), computed[name], name)
    return f"{names.ANALYSIS} agrees with {plural(len(checked.whole_dumps), 'dump')}"


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
            if not math.isclose(stated, known, rel_tol=1e-6, abs_tol=1e-9):
                wrong.append(f"{paths.stats.name} adds up to {stated:.6f} ms, but the dumps say {known:.6f}")
        if paths.timeline in there:
            _, rows = read_table(read_text(paths.timeline), paths.timeline, ANALYSE_AGAIN)
            events = sum(1 for _ in rows)
            if events != (expected := series.first.attribution.event_count):
                wrong.append(f"{paths.timeline.name} has {events} events, but the dump has {expected}")
    if not wrong and not count:
        raise NoVerdict("there are none")
    return f"{plural(count, 'file')} checked against the dumps"
