"""A folder for a new model (two methods to fill in, its registration, a test), and the check of a model."""

from __future__ import annotations

import contextlib
import importlib.util
import keyword
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from model_profiling.analysis.causes.outside import outside_lines
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core import files, process
from model_profiling.core.errors import (
    Check,
    CheckList,
    InputError,
    ProfilingError,
    SetupError,
    Status,
    check_lines,
    system_reason,
)
from model_profiling.core.formatting import milliseconds, percent, plural, rounded_parts
from model_profiling.core.hints import pip_install, sme2prof
from model_profiling.core.number_formats import USUAL
from model_profiling.core.progress import Progress, Silent
from model_profiling.export.records import ExportResult, read_export
from model_profiling.models import registry
from model_profiling.models.catalog import NamedModel, load_model
from model_profiling.models.upstream import upstream_table
from model_profiling.targets import TargetChoice
from model_profiling.workflow.measure import RunOptions, RunOutcome
from model_profiling.workflow.profile import ProfileOptions, find_or_export, profile_programs

_TEMPLATE = Path(__file__).parent / "new_model"
_NAME, _CLASS = "new_model", "NewModel"


@dataclass(frozen=True, slots=True)
class NewModelFolder:
    name: str
    folder: Path
    in_kit: bool
    """Whether the kit finds it by itself; otherwise SME2PROF_MODELS must name its parent folder."""

    @property
    def files(self) -> dict[str, str]:
        return {
            "__init__.py": "registers the model under its name",
            "model.py": "a network that already works, with marks where yours goes (Replace:)",
            f"test_{self.name}.py": "what must be true of the model",
        }

    @property
    def shown(self) -> Path:
        here = Path.cwd().resolve()
        return self.folder.relative_to(here) if self.folder.is_relative_to(here) else self.folder

    @property
    def next(self) -> tuple[tuple[str, str], ...]:
        """Commands in order, each with what it does."""
        shown, place = self.shown, self.folder.parent
        named = self.in_kit or place in registry.named_places()
        naming = (
            [] if named else [(f"export {registry.VARIABLE}={shlex.quote(str(place))}", "finds it by name")]
        )
        return (
            *naming,
            (f"$EDITOR {shlex.quote(str(shown / 'model.py'))}", "make it your model"),
            (
                sme2prof("onboard", self.name, "--check"),
                "tests, exports and runs it, and says what is left to do",
            ),
            (sme2prof("profile", self.name, "--dtype", "all"), "the whole answer"),
        )

    def as_dict(self) -> dict[str, object]:
        content = asdict(self) | {"folder": str(self.folder), "files": list(self.files)}
        return {"schema_version": 1, **content, "next": [command for command, _ in self.next]}


def make_model_folder(name: str, place: Path | None = None, *, example: bool = False) -> NewModelFolder:
    """Write the folder of a new model called `name` into `place`, completely or not at all; `example` shows
    in it what real models need. The default `place` is the kit's own folder of models if the working folder
    is in a clone of the kit, which finds models there, and otherwise the working folder."""
    in_clone = _in_clone()
    place = (place or (registry.KIT if in_clone else Path.cwd())).expanduser().resolve()
    folder = place / name
    _check_name(name, place)
    if folder.exists() or folder.is_symlink():
        raise InputError(f"{folder} already exists", "choose another name; nothing was overwritten")
    with files.no_empty_folder(place), _whole_folder(folder) as part:
        for source in sorted((_TEMPLATE / "example" if example else _TEMPLATE).glob("*.py")):
            text = source.read_text(encoding="utf-8")
            to = part / source.name.replace(_NAME, name)
            to.write_text(text.replace(_NAME, name).replace(_CLASS, class_name(name)), encoding="utf-8")
    return NewModelFolder(name, folder, place == registry.KIT.resolve())


def find_model_folder(name: str, place: Path) -> None:
    """Let the kit find the model `name` in a folder that the user named."""
    if not (place / name / "__init__.py").is_file():
        raise InputError(f"{place} has no model folder '{name}'", (f"create it: {sme2prof('onboard', name)}"))
    registry.add_place(place.expanduser().resolve())


def check_is_found(name: str) -> None:
    """If a model of that name lies here but is not searched for, raise an error that says how to find it:
    nothing of the working folder is imported unless the user names it."""
    if not name.isidentifier() or registry.choose(name) is not None:
        return
    registry.check_not_skipped(name)
    for folder in registry.searched_for(name):
        raise InputError(
            f"{folder} does not register a model '{name}'",
            f"call register_model('{name}', ...) in its __init__.py",
        )
    if (Path(name) / "__init__.py").is_file():
        raise InputError(
            f"there is no model '{name}', but there is a folder {name} here",
            f"give the folder that contains it: --dir . or export {registry.VARIABLE}=$PWD",
        )


def class_name(name: str) -> str:
    """`my_model` becomes `MyModel`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _in_clone() -> bool:
    """Whether the working folder lies in the clone that contains this code."""
    clone = registry.KIT.resolve().parents[1]
    return (clone / "pyproject.toml").is_file() and Path.cwd().resolve().is_relative_to(clone)


def _check_name(name: str, place: Path) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_") or not name.isascii():
        raise InputError(
            f"'{name}' is not a valid model name", "use letters, digits and underscores, such as my_model"
        )
    own = registry.discover()
    if name in own:
        raise InputError(f"the name '{name}' is already used by {own[name].reference}", "choose another name")
    if name in upstream_table():
        raise InputError(f"the name '{name}' is already used by a model of ExecuTorch", "choose another name")
    for skipped in registry.skipped_folders():
        if name in skipped.names:
            raise InputError(f"the name '{name}' is already used by {skipped.folder}", "choose another name")
    if (registry.KIT / f"{name}.py").exists():
        raise InputError(f"the kit has a file {name}.py", "choose another name")
    with contextlib.suppress(ImportError, ValueError):
        found = importlib.util.find_spec(name)
        if found is not None and Path(found.origin or "").parent.parent != place:
            raise InputError(f"the name '{name}' is already used by a Python package", "choose another name")


@contextlib.contextmanager
def _whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a hidden sibling to write into; it becomes `folder` only if the block succeeds."""
    files.make_folder(folder.parent)
    try:
        part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as problem:
        raise InputError(
            f"cannot write {folder}: {system_reason(problem)}",
            ("choose a folder where you can write (--dir)"),
        ) from problem
    try:
        yield part
        part.chmod(0o755)
        part.rename(folder)
    except OSError as problem:
        raise InputError(
            f"cannot write {folder}: {system_reason(problem)}", "choose another folder (--dir)"
        ) from problem
    finally:
        shutil.rmtree(part, ignore_errors=True)


# Checks a new model: nothing of the template is left, its own test passes, it exports in every registered
# dtype, computes what PyTorch does and runs on this machine; and how much time it spends outside delegates,
# and what to do about that.

SHORT = ProfileOptions(target=TargetChoice("host"), runs=5, warmup=1, rounds=6, budget_s=6)
"""Enough to show that it runs and where its time goes; `sme2prof profile` measures properly."""
_NAMED = 3
"""How many lines of the model are named; the report has all."""


@dataclass(frozen=True, slots=True)
class OutsideTime:
    """Time of one line of the model outside the delegate."""

    call: str
    place: str
    share: float
    """Share of an inference with the tracer on."""
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class DtypeCheck:
    """Results for one dtype; None if not available."""

    dtype: str
    program: str | None = None
    delegated: int | None = None
    operators: int | None = None
    median_ms: float | None = None
    outside_share: float | None = None
    """Share of an inference with the tracer on, in operators outside delegates."""
    outside: tuple[OutsideTime, ...] = ()
    report: str | None = None


@dataclass(frozen=True, slots=True)
class ModelCheck(CheckList):
    model: str
    dtypes: tuple[DtypeCheck, ...]

    def as_text(self) -> str:
        worked = ", ".join(each.dtype for each in self.dtypes if each.median_ms is not None)
        ready = f"ready: {self.model} exports and runs in {worked}"
        return "\n".join(
            [*check_lines(self.checks), "", f"not ready: {self.failed}" if self.failed else ready]
        )


def check_model(model: str, *, outdir: Path | None = None, progress: Progress | None = None) -> ModelCheck:
    """Test `model`, export it in every registered dtype, run it here for some seconds, and report what is
    left to do. Raise if it cannot be loaded at all, or if this machine lacks something."""
    progress = progress or Silent()
    progress.stage(f"loading {model}")
    named = load_model(model)
    checks = [*_folder_checks(named, progress)]
    dtypes: list[str] = [each for each in USUAL if named.entry is None or each in named.entry.dtypes]
    programs: dict[str, Path] = {}
    problems: dict[str, ProfilingError] = {}
    for dtype in dtypes:
        try:
            programs[dtype] = find_or_export(model, dtype=dtype, outdir=outdir, progress=progress)
        except SetupError:
            raise
        except ProfilingError as problem:
            problems[dtype] = problem
    exports = {dtype: read_export(program) for dtype, program in programs.items()}
    runs: dict[str, RunOutcome] = {}
    if programs:
        short = SHORT.model_copy(update={"outdir": outdir})
        done = profile_programs(list(programs.values()), short, RunOptions(force=True), progress=progress)
        runs = {dtype: outcome.main for dtype, outcome in zip(programs, done, strict=True)}
    checks += _refused(problems)
    found = []
    for dtype, export in exports.items():
        result = _found(dtype, export, runs[dtype])
        found.append(result)
        checks += [*_export_checks(export), *_run_checks(result, runs[dtype])]
    return ModelCheck(tuple(checks), named.name, tuple(found))


_MARK = "Replace:"
_TEST_S = 900.0


def _folder_checks(named: NamedModel, progress: Progress) -> Iterator[Check]:
    """Check what a model folder has besides the model: marks of the template that are left, and tests."""
    home = registry.home_of(named.entry) if named.entry else None
    if home is None:
        return
    marks = [
        f"{file.name}:{number}"
        for file in registry.sources_in(home)
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if _MARK in line
    ]
    if marks:
        fix = f"put your own there, and delete the mark ({_MARK})"
        yield Check("replaced", "fail", f"still the template's: {', '.join(marks)}", fix)
    if not (tests := sorted(map(str, home.glob("test_*.py")))):
        return
    if importlib.util.find_spec("pytest") is None:
        yield Check("own test", "optional", "not run: pytest is not installed", pip_install("pytest"))
        return
    progress.stage(f"running {', '.join(tests)}")
    places = dict.fromkeys((str(home.parent), *map(str, registry.named_places())))
    alone = ["-p", "no:cacheprovider", "-c", os.devnull, f"--rootdir={home}"]
    done = process.run(
        [sys.executable, "-m", "pytest", "-q", "--tb=no", *alone, *tests],
        timeout=_TEST_S,
        env={registry.VARIABLE: os.pathsep.join(places), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"},
    )
    *before, last = done.tail().splitlines() or ["it said nothing"]
    said = next((line for line in before if line.startswith(("FAILED ", "ERROR "))), last)
    yield Check("own test", "pass" if done.ok else "fail", said, "correct the model, or its test")


def _refused(problems: dict[str, ProfilingError]) -> Iterator[Check]:
    """Yield export failures; dtypes that fail alike share one check."""
    alike: dict[tuple[str, str], list[str]] = {}
    for dtype, problem in problems.items():
        alike.setdefault((problem.problem, problem.fix), []).append(dtype)
    for (what, fix), dtypes in alike.items():
        yield Check(f"{'/'.join(dtypes)} export", "fail", what, fix)


def _export_checks(export: ExportResult) -> Iterator[Check]:
    coverage, lowering = export.coverage, export.accuracy.lowering
    taken = f"{coverage.delegated} of {plural(coverage.operators, 'operator')} delegated"
    parts = f", in {plural(coverage.partitions, 'delegate')}" if coverage.partitions else ""
    yield Check(f"{export.dtype} export", "pass", taken + parts)
    if lowering is not None and lowering.ok:
        near = f"as PyTorch in {export.dtype}: {lowering.distance}"
        yield Check(f"{export.dtype} outputs", "pass", near)
    for warning in export.warnings:
        what, _, fix = warning.rpartition(": ")
        status: Status = "optional" if export.accuracy.ok else "fail"
        yield Check(f"{export.dtype} outputs", status, what or fix, fix if what else "")


def _found(dtype: str, export: ExportResult, run: RunOutcome) -> DtypeCheck:
    headline = run.data.headline
    series = headline.dumps if headline else None
    summary = headline.summary if headline else None
    share, lines = None, []
    if series is not None:
        left = [operator for operator in series.operators if not operator.delegated]
        share = series.spent_by(left).share
        lines = [
            OutsideTime(line.name, line.place, series.spent_by(line.operators).share, line.why, line.remedy)
            for line in outside_lines(series, left)
        ]
    return DtypeCheck(
        dtype,
        program=str(export.pte),
        delegated=export.coverage.delegated,
        operators=export.coverage.operators,
        median_ms=summary.median if summary else None,
        outside_share=share,
        outside=tuple(sorted(lines, key=lambda line: -line.share)),
        report=str(run.report),
    )


def _run_checks(found: DtypeCheck, run: RunOutcome) -> Iterator[Check]:
    for failed in run.failed:
        yield Check(f"{found.dtype} run", "fail", failed.problem or "it failed", failed.fix or "")
    if found.median_ms is None:
        return
    data = run.data
    about = "" if data.is_arm is not False else ", which is not an Arm CPU: its times say nothing about Arm"
    said = f"{milliseconds(found.median_ms)} ms for one inference on {data.cpu or 'this CPU'}{about}"
    yield Check(f"{found.dtype} run", "pass", said)
    series = data.headline.dumps if data.headline else None
    if series is not None and found.outside_share is not None:
        yield from _time_checks(found, series, found.outside_share)


def _time_checks(found: DtypeCheck, series: SeriesAnalysis, outside: float) -> Iterator[Check]:
    inside = series.spent_by([operator for operator in series.operators if operator.delegated]).share
    parts = rounded_parts([100 * inside, 100 * outside, 100 * (1 - inside - outside)], 100.0, 1)
    where = f"{parts[0]}% inside delegates, {parts[1]}% in operators outside, {parts[2]}% outside operators"
    yield Check(f"{found.dtype} time", "pass", f"{where} (with the tracer on)")
    for line in found.outside[:_NAMED]:
        place = f" at {line.place}" if line.place else ""
        why = f": {line.why}" if line.why else ""
        said = f"{percent(line.share)} in {line.call}{place}{why}"
        yield Check(f"{found.dtype} outside", "optional", said, to_do(line.remedy))


def to_do(remedy: str) -> str:
    """Turn `instead: ...` into an instruction."""
    said = remedy.removeprefix("instead: ")
    return said if said == remedy or said.startswith(("remove ", "swap ")) else f"write {said}"
