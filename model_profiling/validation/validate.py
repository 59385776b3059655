"""Checks that a run directory holds what it promises and that it makes sense."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from model_profiling.check import Check, CheckList, check_lines
from model_profiling.errors import InputError, ProfilingError
from model_profiling.progress import Progress, Silent
from model_profiling.reading import is_there
from model_profiling.run import names
from model_profiling.validation import figures, journal, structure
from model_profiling.validation.checked_run import CheckedRun


@dataclass(frozen=True, slots=True)
class Validation(CheckList):
    """Everything that was checked in one run directory."""

    run_dir: str

    def as_text(self) -> str:
        """The checks, the verdict last."""
        verdict = f"not valid: {self.failed}" if self.failed else "valid"
        return "\n".join([*check_lines(self.checks), "", verdict])


Question = Callable[[CheckedRun], Iterator[Check]]

# In the order a person would look: is it whole, is it what it says, do the figures follow.
_ABOUT_ANY: tuple[tuple[str, Question], ...] = (
    ("manifest", structure.manifest_parses),
    ("JSON files", structure.json_files),
)
_ABOUT_RUNS: tuple[tuple[str, Question], ...] = (
    ("state", structure.is_finished),
    ("files", structure.files_exist),
    ("program", structure.program_matches),
    ("same program", structure.same_program),
    ("journal", journal.journal_agrees),
    ("latencies", figures.latencies_match),
    ("comparisons", figures.comparisons_hold),
    ("no latency", figures.emulated_has_no_latency),
    ("kernels", figures.kernels_fit_the_switch),
    ("sampling", figures.sampling_fits_the_counts),
    ("outputs", figures.outputs_agree),
)
_ABOUT_VERSION_0: tuple[tuple[str, Question], ...] = (
    ("files", structure.files_exist),
    ("same program", structure.same_program),
    ("kernels", figures.kernels_fit_the_switch),
)
_ABOUT_DUMPS: tuple[tuple[str, Question], ...] = (
    ("dumps", structure.dumps_parse),
    ("closure", structure.dumps_close),
    ("analysis", figures.summary_matches),
    ("CSV files", figures.csv_files_match),
)


def validate(run_dir: str | Path, *, progress: Progress | None = None) -> Validation:
    """Check the run in `run_dir`; what cannot be read is a failed check, never an exception.

    A folder of dumps without a manifest promises nothing but its dumps: only they are checked. A run of
    the earlier kit (version 0) promises its files, too.
    """
    place = Path(run_dir)
    if not place.is_dir():
        raise InputError(f"there is no run directory {place}", "name a folder a pipeline wrote into")
    run = CheckedRun(place)
    asked = _questions(run)
    shown = progress or Silent()
    shown.stage("checking the run")
    checks: list[Check] = []
    for done, (name, question) in enumerate(asked):
        shown.advance(done, len(asked), name)
        checks.extend(_answers(run, name, question))
    return Validation(tuple(checks), str(place))


def _questions(run: CheckedRun) -> tuple[tuple[str, Question], ...]:
    try:
        manifest = run.manifest
    except ProfilingError:
        if not is_there(run.path / names.MANIFEST):
            raise  # no run at all
        return _ABOUT_ANY  # the first question says what is wrong; nothing else can be believed
    about_run = () if manifest is None else _ABOUT_VERSION_0 if manifest.version_0 else _ABOUT_RUNS
    return (*_ABOUT_ANY, *about_run, *_ABOUT_DUMPS)


def _answers(run: CheckedRun, name: str, question: Question) -> Iterator[Check]:
    """The checks of one question; a file that cannot be read is its answer."""
    try:
        yield from question(run)
    except ProfilingError as problem:
        yield Check(name, "fail", problem.problem, problem.fix)
