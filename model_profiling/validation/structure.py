"""Checks of a run directory's parts: its files, program, dumps and journal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from model_profiling.analysis import operators
from model_profiling.analysis.run import RunAnalysis, analyse_run
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.summary import DumpAnalysis
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core import files
from model_profiling.core.checks import Check, Status, check_unless
from model_profiling.core.errors import FormatError, ProfilingError
from model_profiling.core.formatting import plural
from model_profiling.core.records import read_json_object
from model_profiling.core.safe_read import is_regular, is_there
from model_profiling.program.category import MATRIX
from model_profiling.runs import Manifest, Run
from model_profiling.runs.folders import refuse_links_out
from model_profiling.runs.journal import Journal
from model_profiling.runs.manifest import MEASURE_AGAIN
from model_profiling.runs.metrics import COMPUTE_AGAIN

ANALYSE_AGAIN = "write them again: sme2prof analyze RUN_DIR"


class CheckedRun:
    """A run directory to check; everything is read once, when first needed."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir

    @cached_property
    def run(self) -> Run:
        return Run.open(self.path)

    @property
    def measured(self) -> tuple[Manifest, Journal]:
        """What all figures follow from."""
        if self.manifest is None or self.run.journal is None:
            raise NoVerdict(f"there is no {names.JOURNAL}")
        return self.manifest, self.run.journal

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
        if not self.run.dumps:
            return None
        try:
            return analyse_run(self.run, self.run.programs())
        except FormatError as problem:
            return problem

    @property
    def series(self) -> tuple[SeriesAnalysis, ...]:
        """The series that have readable dumps."""
        found = self.analysis
        return found.series if isinstance(found, RunAnalysis) else ()

    @cached_property
    def whole_dumps(self) -> list[DumpAnalysis]:
        return [dump for series in self.series for dump in series.rounds]

    @cached_property
    def dumps_of(self) -> Mapping[Series, Sequence[DumpAnalysis]]:
        return {series.series: series.rounds for series in self.series}


class NoVerdict(Exception):
    """Raised by a check that neither passes nor fails, with the reason."""

    def __init__(self, found: str, status: Status = "skipped", fix: str = "") -> None:
        super().__init__(found)
        self.found, self.status, self.fix = found, status, fix


@dataclass(frozen=True, slots=True)
class Question:
    """A check of a run. `ask` appends what is wrong to the list, and returns what it found if nothing is."""

    name: str
    fix: str
    ask: Callable[[CheckedRun, list[str]], str]

    def __call__(self, run: CheckedRun) -> Check:
        """The result; a file that cannot be read is a failure."""
        wrong: list[str] = []
        try:
            found = self.ask(run, wrong)
        except NoVerdict as why:
            return Check(self.name, why.status, why.found, why.fix)
        except ProfilingError as problem:
            return Check(self.name, "fail", problem.problem, problem.fix)
        return check_unless(wrong, self.name, found, self.fix)


def question(name: str, fix: str) -> Callable[[Callable[[CheckedRun, list[str]], str]], Question]:
    return lambda ask: Question(name, fix, ask)


@question("manifest", MEASURE_AGAIN)
def manifest_parses(run: CheckedRun, _wrong: list[str]) -> str:
    if run.manifest is None:
        raise NoVerdict("there is none: only the dumps can be checked")
    experiments = plural(len(run.manifest.results), "experiment")
    if run.manifest.version_0:
        earlier = f"{experiments}, written by the earlier kit without a schema_version"
        if not is_there(run.path / names.MANIFEST):
            raise NoVerdict(f"there is none, only a pipeline summary: {earlier}")
        return f"{earlier}: fewer checks are possible"
    return f"{experiments} ({run.manifest.target.platform})"


@question("JSON files", COMPUTE_AGAIN)
def json_files(run: CheckedRun, wrong: list[str]) -> str:
    refuse_links_out(run.path)  # also folders without end
    # Files for other tools have the formats of those tools.
    ours = (path for path in run.path.rglob("*.json") if run.path / names.FOR_TOOLS not in path.parents)
    # A JSON file beside a CSV file holds the same rows (`etdump_to_csv.py --json`).
    records = (path for path in ours if not path.with_suffix(".csv").is_file())
    paths = sorted(path for path in records if names.WORK not in path.parts)
    try:
        may_lack = run.promises_little
    except ProfilingError:
        may_lack = False  # an unreadable manifest still shows that the run has one
    without = 0
    for path in paths:
        try:
            version = read_json_object(path, COMPUTE_AGAIN).get("schema_version")
        except ProfilingError as problem:
            wrong.append(problem.problem)
            continue
        without += version is None
        if version not in (1, 2, 3) and not (version is None and may_lack):
            wrong.append(f"{path.name} has no known schema_version")
    earlier = f"{without} of them from the earlier kit, without a schema_version"
    return (
        f"{plural(len(paths), 'file')} can be read, {earlier if without else 'each with its schema_version'}"
    )


@question("state", "continue it: sme2prof run CONFIG --resume")
def is_finished(run: CheckedRun, wrong: list[str]) -> str:
    assert run.manifest is not None
    state = run.manifest.unfinished or "finished"
    stopped = run.manifest.why_unfinished
    if state != "finished":
        wrong.append(f"the run is {state}{f': {stopped.problem}' if stopped else ''}")
    failed = (result for result in run.run.results if result.state == "failed")
    wrong += [f"{result.series} failed: {result.problem}" for result in failed]
    left = (run.path / names.WORK).exists() or any(run.path.rglob(".*.part"))
    if state == "finished" and left:
        wrong.append("half-written files were left behind")
    return state


@question("files", MEASURE_AGAIN)
def files_exist(run: CheckedRun, wrong: list[str]) -> str:
    promised = [(result, name) for result in run.run.results for name in result.files]
    wrong += [
        f"{'not a file' if is_there(run.path / name) else 'missing'}: {result.series}: {name}"
        for result, name in promised
        if not is_regular(run.path / name)
    ]
    if not run.promises_little and not is_regular(run.path / names.JOURNAL):
        wrong.append(f"missing: {names.JOURNAL}")
    found = f"all {len(promised)} files are there"
    if not wrong and not is_there(run.path / names.METRICS):
        fix = "" if run.promises_little else COMPUTE_AGAIN
        raise NoVerdict(f"{found}, but no {names.METRICS}: its figures are not checked", "optional", fix)
    return found


@question("program", MEASURE_AGAIN)
def program_matches(run: CheckedRun, wrong: list[str]) -> str:
    """Whether the graph that explains the operators, and any program here, are those that were measured."""
    manifest = run.manifest
    if manifest is None or not manifest.model_sha256:
        raise NoVerdict("the manifest has no checksum of it")
    seen = {dump.graph.sha256 for dump in run.whole_dumps if dump.graph and dump.graph.sha256}
    if seen - {manifest.model_sha256}:
        wrong.append(f"{names.GRAPH} describes another program than the measured one")
    path, name = run.run.programs().named(), Path(manifest.model).name
    if path is not None and (now := files.sha256(path)) != manifest.model_sha256:
        then = manifest.model_sha256[:12]
        wrong.append(
            f"{name} is not the measured program: its SHA-256 is {now[:12]}, the measured one was {then}"
        )
    if not wrong and not seen and path is None:
        raise NoVerdict(f"{name} is not here, so it cannot be compared")
    return f"{name} is the measured program"


@question("dumps", MEASURE_AGAIN)
def dumps_parse(run: CheckedRun, wrong: list[str]) -> str:
    if not run.run.dumps or run.analysis is None:
        raise NoVerdict("there are none")
    damaged = (run.analysis,) if isinstance(run.analysis, FormatError) else run.analysis.damaged
    wrong += [problem.problem for problem in damaged]
    wrong += _wrong_runs(run)
    remarks = (remark for dump in run.whole_dumps for remark in dump.warnings)
    wrong += [remark.seen for remark in remarks if remark.code == operators.MISFIT]
    runs = sum(dump.runs for dump in run.whole_dumps)
    return (
        f"{plural(len(run.whole_dumps), 'dump')} can be read, with {plural(runs, 'run')} as the manifest says"
    )


def _wrong_runs(run: CheckedRun) -> Iterator[str]:
    for result in run.run.results:
        length = result.etdump_turn_length
        for dump in run.dumps_of.get(result.series, ()):
            in_file = dump.attribution.runs_in_file
            if length and in_file % length:
                held = f"{dump.path.name} has {plural(in_file, 'run')}"
                yield f"{held}, which is not a multiple of the turn length, {length}"
            # The number of cycles depends on the model's speed, so only other runs are compared. The analysis
            # leaves out warm-up runs, which only foreign runners write into a dump.
            if not length and result.runs is not None and dump.runs != result.runs:
                held = f"{dump.path.name} has {plural(dump.runs, 'run')}"
                yield f"{held}, but the manifest says {result.runs}"


@question("closure", "report it: the attribution is wrong for these dumps")
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


@question("same program", MEASURE_AGAIN)
def same_program(run: CheckedRun, wrong: list[str]) -> str:
    """Whether all experiments ran one program: the same calls with the same matrix work, matching the .pte.
    Other operators may differ, because kernels pack and convert in their own ways."""
    if not run.whole_dumps:
        raise NoVerdict("there is no dump to compare")
    first, *others = run.whole_dumps
    made = _calls(first)
    other = (dump.path.name for dump in others if _calls(dump) != made)
    wrong += [f"{name} was made by another program than {first.path.name}" for name in other]
    wrong += [f"{dump.path.name}: {text}" for dump in run.whole_dumps for text in dump.misfits]
    return f"{len(run.whole_dumps)} dumps make the same calls"


def _calls(dump: DumpAnalysis) -> list[tuple[int, int, str, int]]:
    matrix = Counter(operator.call for operator in dump.operators if operator.category in MATRIX)
    return [
        (node.chain_index, node.instruction_id, node.call_kind, matrix[node.call])
        for node in dump.attribution.groups[0].nodes
        if node.level == "call"
    ]
