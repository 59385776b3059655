"""Checks a run directory: its files are there and can be read, its parts add up, its comparisons follow from
the journal."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from model_profiling.analysis.evidence import own_kernels
from model_profiling.analysis.operators import MISFIT, DumpAnalysis
from model_profiling.analysis.run import RunAnalysis, analyse_run
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config import names
from model_profiling.core import files
from model_profiling.core.errors import FormatError, ProfilingError
from model_profiling.core.formatting import plural
from model_profiling.core.records import (
    Check,
    CheckList,
    Status,
    check_lines,
    check_unless,
    read_json_object,
    read_table,
)
from model_profiling.core.safe_read import is_regular, is_there, read_text
from model_profiling.core.stdio import current_progress
from model_profiling.report.csv_files import csv_paths
from model_profiling.runs import Manifest, Run
from model_profiling.runs.figures import comparisons
from model_profiling.runs.folders import no_run, refuse_links_out
from model_profiling.runs.manifest import MEASURE_AGAIN
from model_profiling.runs.records import COMPUTE_AGAIN
from model_profiling.statistics.speedup import Verdict

ANALYSE_AGAIN = "write them again: sme2prof analyze RUN_DIR"


class CheckedRun:
    """A run directory to check; everything is read once, when first needed."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir

    @cached_property
    def run(self) -> Run:
        return Run.open(self.path)

    @property
    def manifest(self) -> Manifest | None:
        return self.run.manifest

    @property
    def promises_little(self) -> bool:
        """Whether the run has no manifest, or one of the earlier kit (version 0)."""
        return self.manifest is None or self.manifest.version_0

    @cached_property
    def analysis(self) -> RunAnalysis | FormatError | None:
        """The analysed dumps; None if there are none, an error if all are damaged."""
        try:
            return analyse_run(self.run, self.run.programs()) if self.run.dumps else None
        except FormatError as problem:
            return problem

    @property
    def series(self) -> tuple[SeriesAnalysis, ...]:
        """The series that have readable dumps."""
        return self.analysis.series if isinstance(self.analysis, RunAnalysis) else ()

    @property
    def whole_dumps(self) -> list[DumpAnalysis]:
        return [dump for series in self.series for dump in series.rounds]


class NoVerdict(Exception):
    """Raised by a check that neither passes nor fails, with the reason."""

    def __init__(self, seen: str, status: Status = "skipped", fix: str = "") -> None:
        super().__init__(seen)
        self.seen, self.status, self.fix = seen, status, fix


# Its files.


def manifest_parses(run: CheckedRun, _wrong: list[str]) -> str:
    if run.manifest is None:
        raise NoVerdict("there is none: only the dumps can be checked")
    experiments = plural(len(run.manifest.results), "experiment")
    if run.manifest.version_0:
        if not is_there(run.path / names.MANIFEST):
            raise NoVerdict(f"there is none, only the earlier kit's pipeline summary: {experiments}")
        return f"{experiments}, written by the earlier kit: fewer checks are possible"
    return f"{experiments} ({run.manifest.target.platform})"


def json_files(run: CheckedRun, wrong: list[str]) -> str:
    refuse_links_out(run.path)  # also folders without end
    # Files for other tools have their formats; one beside a CSV file has its rows.
    others = {names.WORK, names.FOR_TOOLS}
    ours = (path for path in run.path.rglob("*.json") if not path.with_suffix(".csv").is_file())
    paths = sorted(path for path in ours if others.isdisjoint(path.relative_to(run.path).parts))
    try:
        known: tuple[object, ...] = (1, 2, 3, None) if run.promises_little else (1, 2, 3)
    except ProfilingError:
        known = (1, 2, 3)  # an unreadable manifest still shows that the run has one
    for path in paths:
        try:
            if read_json_object(path, COMPUTE_AGAIN).get("schema_version") not in known:
                wrong.append(f"{path.name} has no known schema_version")
        except ProfilingError as problem:
            wrong.append(problem.problem)
    return f"{plural(len(paths), 'file')} can be read"


def is_finished(run: CheckedRun, wrong: list[str]) -> str:
    assert run.manifest is not None
    if state := run.manifest.unfinished:
        stopped = run.manifest.why_unfinished
        wrong.append(f"the run is {state}{f': {stopped.problem}' if stopped else ''}")
    failed = (result for result in run.run.results if result.state == "failed")
    wrong += [f"{result.series} failed: {result.problem}" for result in failed]
    return "finished"


def files_exist(run: CheckedRun, wrong: list[str]) -> str:
    promised = [(result, name) for result in run.run.results for name in result.files]
    missing = ((result, name) for result, name in promised if not is_regular(run.path / name))
    wrong += [f"missing: {result.series}: {name}" for result, name in missing]
    if not run.promises_little and not is_regular(run.path / names.JOURNAL):
        wrong.append(f"missing: {names.JOURNAL}")
    found = f"all {len(promised)} files are there"
    if not wrong and not is_there(run.path / names.METRICS):
        fix = "" if run.promises_little else COMPUTE_AGAIN
        raise NoVerdict(f"{found}, but no {names.METRICS}: its figures are not checked", "optional", fix)
    return found


def program_matches(run: CheckedRun, wrong: list[str]) -> str:
    """Whether the graph that explains the operators, and any program here, are those that were measured, and
    no dump proves that another program made it."""
    wrong += [f"{dump.path.name}: {text}" for dump in run.whole_dumps for text in dump.misfits]
    manifest = run.manifest
    if manifest is None or not manifest.model_sha256:
        if wrong:
            return ""
        raise NoVerdict("the manifest has no checksum of it")
    described = {dump.graph.sha256 for dump in run.whole_dumps if dump.graph and dump.graph.sha256}
    if described - {manifest.model_sha256}:
        wrong.append(f"{names.GRAPH} describes another program than the measured one")
    path, name = run.run.programs().named(), Path(manifest.model).name
    if path is not None and (now := files.sha256(path)) != manifest.model_sha256:
        then = manifest.model_sha256[:12]
        wrong.append(
            f"{name} is not the measured program: its SHA-256 is {now[:12]}, the measured one was {then}"
        )
    if not wrong and not described and path is None:
        raise NoVerdict(f"{name} is not here, so it cannot be compared")
    return f"{name} is the measured program"


# Its dumps.


def dumps_parse(run: CheckedRun, wrong: list[str]) -> str:
    if run.analysis is None:
        raise NoVerdict("there are none")
    damaged = (run.analysis,) if isinstance(run.analysis, FormatError) else run.analysis.damaged
    wrong += [problem.problem for problem in damaged]
    remarks = (remark for dump in run.whole_dumps for remark in dump.warnings)
    wrong += [remark.seen for remark in remarks if remark.code == MISFIT]
    runs = sum(dump.runs for dump in run.whole_dumps)
    return f"{plural(len(run.whole_dumps), 'dump')} can be read, with {plural(runs, 'run')}"


def dumps_close(run: CheckedRun, wrong: list[str]) -> str:
    if not run.whole_dumps:
        raise NoVerdict("there is no dump to add up")
    for dump in run.whole_dumps:
        parts = dump.breakdown
        if not parts.closes:
            wrong.append(f"the parts of {dump.path.name} do not add up to its end-to-end time")
        if (parts.e2e <= 0).any() or (parts.framework < 0).any():
            wrong.append(f"{dump.path.name} has impossible times")
    return "categories, framework and unattributed time add up to the end-to-end time in every run"


# Its figures.


def _differ(stored: float | None, computed: float | None) -> bool:
    if stored is None or computed is None:
        return stored is not computed
    return not math.isclose(stored, computed, rel_tol=1e-6, abs_tol=1e-9)


def comparisons_follow(run: CheckedRun, wrong: list[str]) -> str:
    """Whether verdicts and ratios are those of the latencies, and nothing is compared that must not be."""
    answers = run.run.metrics.comparisons if run.run.metrics else ()
    if run.manifest is None or run.run.journal is None:
        raise NoVerdict(f"there is no {names.JOURNAL}")
    every = comparisons(run.manifest, run.run.journal)
    computed = {(each.baseline, each.candidate): each.speedup for each in every}
    for answer in answers:
        stored, now = answer.speedup, computed.get((answer.baseline, answer.candidate))
        if now is None:
            wrong.append(f"{answer.label} is not a pair of the run")
        elif stored.verdict is not now.verdict or _differ(stored.ratio, now.ratio):
            wrong.append(f"{answer.label} is {stored.in_short}, and {now.in_short} when computed again")
    compared = sum(answer.speedup.verdict is not Verdict.NOT_COMPARABLE for answer in answers)
    if not compared and not wrong:
        why = f"nothing is comparable: {answers[0].speedup.reason}" if answers else "nothing was compared"
        raise NoVerdict(why)
    return f"{plural(compared, 'verdict')} computed again from the latencies"


def kernels_fit_the_switch(run: CheckedRun, wrong: list[str]) -> str:
    """Whether no SME kernel ran where SME2 was off."""
    listed = [series for series in own_kernels(run.run, ()) if series.uses or series.counted]
    if not listed:
        raise NoVerdict("no kernel was listed")
    wrong += [
        f"{evidence.series} had SME2 off, but {evidence.sme.text}"
        for evidence in listed
        if evidence.sme2 is False and evidence.sme.proves_sme
    ]
    return f"{plural(len(listed), 'list')} of kernels checked"


def outputs_agree(run: CheckedRun, wrong: list[str]) -> str:
    """Whether all experiments that were compared computed the same."""
    parity = run.run.metrics.parity if run.run.metrics else ()
    if not parity:
        raise NoVerdict("no outputs were compared")
    wrong += [
        f"the outputs of {pair.candidate} differ from those of {pair.baseline}"
        for pair in parity
        if pair.verdict == "mismatch"
    ]
    return "the outputs are the same, except for rounding"


def analysis_matches(run: CheckedRun, wrong: list[str]) -> str:
    """Whether the parts of each experiment, and the operators of its CSV file, add up as in the dumps."""
    path = run.path / names.ANALYSIS
    if not is_there(path):
        status: Status = "skipped" if run.promises_little or not run.run.dumps else "fail"
        raise NoVerdict(f"there is no {names.ANALYSIS}", status, ANALYSE_AGAIN)
    content = read_json_object(path, ANALYSE_AGAIN)
    if run.promises_little and "schema_version" not in content:
        raise NoVerdict(f"{names.ANALYSIS} was written by the earlier kit; sme2prof analyze writes it again")
    rows: Any = content.get("per_etdump")
    try:
        stated = {(row["experiment"], row["threads"]): _stated(row) for row in rows}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise NoVerdict(f"{names.ANALYSIS}: per_etdump cannot be read", "fail", ANALYSE_AGAIN) from None
    for series in run.series:
        e2e, parts = stated.get((series.series.experiment, series.series.threads), (math.nan, math.nan))
        if _differ(parts, e2e):
            wrong.append(f"the parts of {series.name} add up to {parts}, its e2e_ms is {e2e}")
        elif _differ(e2e, series.e2e_ms):
            wrong.append(f"e2e_ms of {series.name} is {e2e}, but its dumps say {series.e2e_ms}")
        if not run.promises_little:
            stats = csv_paths(series.first.path.parent, series.first.stem).stats
            _, operators = read_table(read_text(stats), stats, ANALYSE_AGAIN)
            listed = sum(float(row["total_ms"]) for row in operators)
            if _differ(listed, known := series.spent_by(series.operators).ms):
                wrong.append(f"{stats.name} adds up to {listed:.6f} ms, but the dumps say {known:.6f}")
    return f"{names.ANALYSIS} agrees with {plural(len(run.whole_dumps), 'dump')}"


def _stated(row: dict[str, Any]) -> tuple[float, float]:
    """End-to-end time of an entry, and the sum of its parts."""
    overheads = float(row["framework_overhead_ms"]) + float(row["unattributed_ms"])
    return float(row["e2e_ms"]), overheads + sum(map(float, row["categories_ms"].values()))


_Ask = Callable[[CheckedRun, list[str]], str]
_CHECKS: Mapping[str, tuple[_Ask, str]] = {
    "manifest": (manifest_parses, MEASURE_AGAIN),
    "JSON files": (json_files, COMPUTE_AGAIN),
    "state": (is_finished, "continue it: sme2prof run CONFIG --resume"),
    "files": (files_exist, MEASURE_AGAIN),
    "program": (program_matches, MEASURE_AGAIN),
    "comparisons": (comparisons_follow, COMPUTE_AGAIN),
    "kernels": (kernels_fit_the_switch, f"SME2 was not switched off; {MEASURE_AGAIN}"),
    "outputs": (outputs_agree, "find out which one is right before you rely on its speed"),
    "dumps": (dumps_parse, MEASURE_AGAIN),
    "closure": (dumps_close, "report it: the attribution is wrong for these dumps"),
    "analysis": (analysis_matches, ANALYSE_AGAIN),
}
"""By name, in the order in which a person would look: is it complete, is it what it says, do the figures
follow. A check appends what is wrong to the list, and returns what it saw if nothing is; with its fix."""
_OF_RECORDS = ("manifest", "JSON files")
_OF_DUMPS = ("dumps", "closure", "analysis")
_OF_EARLIER_RUNS = (*_OF_RECORDS, "files", "program", "kernels", *_OF_DUMPS)


def _check(name: str, run: CheckedRun) -> Check:
    """The result; a file that cannot be read is a failure."""
    ask, fix = _CHECKS[name]
    wrong: list[str] = []
    try:
        seen = ask(run, wrong)
    except NoVerdict as why:
        return Check(name, why.status, why.seen, why.fix)
    except ProfilingError as problem:
        return Check(name, "fail", problem.problem, problem.fix)
    return check_unless(wrong, name, seen, fix)


@dataclass(frozen=True, slots=True)
class Validation(CheckList):
    checked: str
    """The run directory, or the config."""

    def as_text(self) -> str:
        verdict = f"not valid: {self.failed}" if self.failed else "valid"
        return "\n".join([*check_lines(self.checks), "", verdict])


def validate(run_dir: str | Path) -> Validation:
    """Check the run in `run_dir`; what cannot be read is a failed check, never an exception. Without a
    manifest only the dumps are checked; a run of the earlier kit (version 0) promises its files, too."""
    place = Path(run_dir)
    if not place.is_dir():
        raise no_run(place)
    run = CheckedRun(place)
    asked = _asked(run)
    current_progress().stage("checking the run")
    checks: list[Check] = []
    for done, name in enumerate(asked):
        current_progress().advance(done, len(asked), name)
        checks.append(_check(name, run))
    return Validation(tuple(checks), str(place))


def _asked(run: CheckedRun) -> Sequence[str]:
    try:
        manifest = run.manifest
    except ProfilingError:
        if not is_there(run.path / names.MANIFEST):
            raise  # not a run at all
        return _OF_RECORDS  # its first check reports the problem; nothing else can be trusted
    if manifest is None:
        return (*_OF_RECORDS, *_OF_DUMPS)
    return _OF_EARLIER_RUNS if manifest.version_0 else tuple(_CHECKS)
