"""Checks of a run's figures: they follow from the journal, the dumps and the outputs beside them."""

from __future__ import annotations

import math
from typing import Any

from model_profiling.analysis.evidence import own_kernels
from model_profiling.config import names
from model_profiling.core.checks import Status
from model_profiling.core.formatting import plural
from model_profiling.core.records import read_json_object, read_table
from model_profiling.core.safe_read import is_there, read_text
from model_profiling.report.csv_files import STATS_COLUMNS, csv_paths
from model_profiling.runs.figures import comparisons, latencies, output_files
from model_profiling.runs.manifest import MEASURE_AGAIN
from model_profiling.runs.metrics import COMPUTE_AGAIN
from model_profiling.statistics.parity import compare_outputs
from model_profiling.statistics.speedup import Verdict
from model_profiling.validation.structure import ANALYSE_AGAIN, CheckedRun, NoVerdict, question


def _differ(stored: float | None, computed: float | None) -> bool:
    if stored is None or computed is None:
        return stored is not computed
    return not math.isclose(stored, computed, rel_tol=1e-6, abs_tol=1e-9)


@question("latencies", COMPUTE_AGAIN)
def latencies_match(checked: CheckedRun, wrong: list[str]) -> str:
    """Whether metrics.json has the latencies of the journal."""
    measured = latencies(*checked.measured)
    for stored in checked.run.metrics.latencies if checked.run.metrics else ():
        place = f"{names.METRICS}: {stored.series}"
        if (latency := measured.get(stored.series)) is None:
            wrong.append(f"{place} has a latency, which {names.JOURNAL} does not have")
        elif stored.end_to_end_ms and latency.end_to_end_ms:
            for name in ("count", "median", "mean"):
                ours, theirs = (getattr(each.end_to_end_ms, name) for each in (stored, latency))
                if _differ(ours, theirs):
                    wrong.append(f"{place}: its {name} is {ours}, and {theirs} when computed again")
    if not measured and not wrong:
        shown = checked.run.times.are_latencies
        raise NoVerdict("no latency was measured" if shown else "times of this run are not latencies")
    return f"the statistics of {plural(len(measured), 'experiment')} match {names.JOURNAL}"


@question("comparisons", COMPUTE_AGAIN)
def comparisons_follow(checked: CheckedRun, wrong: list[str]) -> str:
    """Whether verdicts and ratios are those of the latencies, and nothing is compared that must not be."""
    answers = checked.run.metrics.comparisons if checked.run.metrics else ()
    if not answers:
        raise NoVerdict("nothing was compared")
    computed = {
        (answer.baseline, answer.candidate): answer.speedup for answer in comparisons(*checked.measured)
    }
    for answer in answers:
        stored, now = answer.speedup, computed.get((answer.baseline, answer.candidate))
        if now is None:
            wrong.append(f"{answer.label} is not a pair of the run")
        elif stored.verdict is not now.verdict or _differ(stored.ratio, now.ratio):
            wrong.append(f"{answer.label} is {stored.in_short}, and {now.in_short} when computed again")
    compared = sum(answer.speedup.verdict is not Verdict.NOT_COMPARABLE for answer in answers)
    if not compared and not wrong:
        raise NoVerdict(f"nothing is comparable: {answers[0].speedup.reason}")
    more = f", {len(answers) - compared} not comparable" if compared < len(answers) else ""
    return f"{plural(compared, 'verdict')} computed again from the latencies{more}"


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
    first = output_files(results[0], checked.path)
    for result in results:
        others = output_files(result, checked.path)
        if large := next((each for each in others if math.prod(each.shape) > _MOST_VALUES), None):
            raise NoVerdict(f"not compared: {large.path.name} has over {_MOST_VALUES >> 20} million values")
        quantized, half = bool(manifest.was_quantized), manifest.was_half
        if not compare_outputs(first, others, quantized=quantized, half=half).agrees:
            wrong.append(f"the outputs of {result.series} differ from those of {results[0].series}")
    return f"{plural(len(results), 'experiment')} with the same outputs, except for rounding"


def _stated(row: dict[str, Any]) -> tuple[float, float]:
    """End-to-end time of an entry, and the sum of its parts."""
    overheads = float(row["framework_overhead_ms"]) + float(row["unattributed_ms"])
    return float(row["e2e_ms"]), overheads + sum(map(float, row["categories_ms"].values()))


@question("analysis", ANALYSE_AGAIN)
def summary_matches(checked: CheckedRun, wrong: list[str]) -> str:
    """Whether the parts of each experiment add up to its end-to-end time, which is that of the dumps."""
    path = checked.path / names.ANALYSIS
    if not is_there(path):
        status: Status = "skipped" if checked.promises_little or not checked.run.dumps else "fail"
        raise NoVerdict(f"there is no {names.ANALYSIS}", status, ANALYSE_AGAIN)
    content = read_json_object(path, ANALYSE_AGAIN)
    if checked.promises_little and "schema_version" not in content:
        raise NoVerdict(f"{names.ANALYSIS} was written by the earlier kit; sme2prof analyze writes it again")
    rows: Any = content.get("per_etdump")
    try:
        stated = {(row["experiment"], row["threads"]): _stated(row) for row in rows}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise NoVerdict(f"{names.ANALYSIS}: per_etdump cannot be read", "fail", ANALYSE_AGAIN) from None
    for series in checked.series:
        e2e, parts = stated.get((series.series.experiment, series.series.threads), (math.nan, math.nan))
        if _differ(parts, e2e):
            wrong.append(f"the parts of {series.name} add up to {parts}, its e2e_ms is {e2e}")
        elif _differ(e2e, series.e2e_ms):
            wrong.append(f"e2e_ms of {series.name} is {e2e}, but its dumps say {series.e2e_ms}")
    return f"{names.ANALYSIS} agrees with {plural(len(checked.whole_dumps), 'dump')}"


@question("CSV files", ANALYSE_AGAIN)
def csv_files_match(checked: CheckedRun, wrong: list[str]) -> str:
    """Whether each series has its CSV files, with operators that add up as in the dumps."""
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
            if _differ(stated, known):
                wrong.append(f"{paths.stats.name} adds up to {stated:.6f} ms, but the dumps say {known:.6f}")
    if not wrong and not count:
        raise NoVerdict("there are none")
    return f"{plural(count, 'file')} checked against the dumps"
