"""A folder for a new model (two methods to fill in, its registration, a test), and the check of a model."""

from __future__ import annotations

import importlib.util
import keyword
import os
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from model_profiling.core import files, process
from model_profiling.core.checks import Check, CheckList, Status, check_lines
from model_profiling.core.errors import InputError, ProfilingError, SetupError
from model_profiling.core.formatting import milliseconds, plural
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

_MARK = "Replace:"
_TEMPLATES = {
    "__init__.py": '''\
"""Registers NAME, so that every command finds it by name."""

from model_profiling.models.registry import register_model

register_model("NAME", f"{__name__}.model:CLASS")
''',
    "model.py": '''\
"""What `sme2prof` asks a model for: the module, and inputs that stand for its real use."""

from __future__ import annotations

import torch
from torch import nn

from model_profiling.models.base import EagerModelBase


class CLASS(EagerModelBase):
    def get_eager_model(self) -> nn.Module:
        # Replace: your module. Random weights are enough for timing, but say nothing about accuracy.
        return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16384, 10))

    def get_example_inputs(self) -> tuple[object, ...]:
        # Replace: one real input, in the shape, dtype and range of real use.
        return (torch.rand(1, 3, 32, 32),)
''',
    "test_NAME.py": '''\
"""What must be true of the model; `sme2prof onboard NAME --check` runs this, too."""

from __future__ import annotations

import torch

from model_profiling.models import load_model


def test_its_output() -> None:
    # Replace: what your model must answer, such as an output that its authors publish.
    model = load_model("NAME").model
    with torch.no_grad():
        output = model.get_eager_model().eval()(*model.get_example_inputs())
    assert output.shape == (1, 10)
''',
}


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
            "model.py": f"a network that already works, with marks where yours goes ({_MARK})",
            f"test_{self.name}.py": "what must be true of the model",
        }

    @property
    def shown(self) -> Path:
        here = Path.cwd().resolve()
        return self.folder.relative_to(here) if self.folder.is_relative_to(here) else self.folder

    @property
    def next(self) -> tuple[tuple[str, str], ...]:
        """Commands in order, each with what it does."""
        place, model = self.folder.parent, shlex.quote(str(self.shown / "model.py"))
        found = self.in_kit or place in registry.named_places()
        naming = (f"export {registry.VARIABLE}={shlex.quote(str(place))}", "finds it by name")
        check = sme2prof("onboard", self.name, "--check")
        return (
            *(() if found else (naming,)),
            (f"$EDITOR {model}", "make it your model"),
            (check, "tests, exports and runs it, and says what is left to do"),
            (sme2prof("profile", self.name, "--dtype", "all"), "the whole answer"),
        )

    def as_dict(self) -> dict[str, object]:
        content = asdict(self) | {"folder": str(self.folder), "files": list(self.files)}
        return {"schema_version": 1, **content, "next": [command for command, _ in self.next]}


def make_model_folder(name: str, place: Path | None = None) -> NewModelFolder:
    """Write the folder of a new model called `name` into `place`. The default is the kit's own folder of
    models if the working folder is in a clone of the kit, which finds models there, and otherwise the working
    folder."""
    clone = registry.KIT.resolve().parents[1]
    in_clone = (clone / "pyproject.toml").is_file() and Path.cwd().resolve().is_relative_to(clone)
    place = (place or (registry.KIT if in_clone else Path.cwd())).expanduser().resolve()
    folder = place / name
    _check_name(name, place)
    if folder.exists():
        raise InputError(f"{folder} already exists", "choose another name; nothing was overwritten")
    cls = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    with files.no_empty_folder(folder):
        for file, text in _TEMPLATES.items():
            content = text.replace("NAME", name).replace("CLASS", cls)
            files.write_text(folder / file.replace("NAME", name), content)
    return NewModelFolder(name, folder, place == registry.KIT.resolve())


def _check_name(name: str, place: Path) -> None:
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_") or not name.isascii():
        fix = "use letters, digits and underscores, such as my_model"
        raise InputError(f"'{name}' is not a valid model name", fix)
    users = {known: entry.reference for known, entry in registry.discover().items()}
    users |= dict.fromkeys(upstream_table(), "a model of ExecuTorch")
    users |= {known: skipped.folder for skipped in registry.skipped_folders() for known in skipped.names}
    if (registry.KIT / f"{name}.py").exists():
        users[name] = f"the kit's {name}.py"
    found = importlib.util.find_spec(name)
    if found is not None and Path(found.origin or "").parent.parent != place:
        users[name] = "a Python package"
    if name in users:
        raise InputError(f"the name '{name}' is already used by {users[name]}", "choose another name")


def find_model(name: str, place: Path | None) -> None:
    """Let the kit find the model `name` in the folder that the user named. Nothing of the working folder is
    imported unless it is named: then raise an error that says how to."""
    if place is not None:
        if not (place / name / "__init__.py").is_file():
            fix = f"create it: {sme2prof('onboard', name)}"
            raise InputError(f"{place} has no model folder '{name}'", fix)
        registry.add_place(place.expanduser().resolve())
    if not name.isidentifier() or registry.choose(name) is not None:
        return
    registry.check_not_skipped(name)
    if place is not None:
        fix = f"call register_model('{name}', ...) in its __init__.py"
        raise InputError(f"{place / name} does not register a model '{name}'", fix)
    if (Path(name) / "__init__.py").is_file():
        raise InputError(
            f"there is no model '{name}', but there is a folder {name} here",
            f"give the folder that contains it: --dir . or export {registry.VARIABLE}=$PWD",
        )


# The check of a new model: nothing of the template is left, its own test passes, it exports in every
# registered dtype, computes what PyTorch does, and runs on this machine.

SHORT = ProfileOptions(target=TargetChoice("host"), runs=5, warmup=1, rounds=6, budget_s=6)
"""Enough to show that it runs; `sme2prof profile` measures properly."""
_TEST_S = 900.0


@dataclass(frozen=True, slots=True)
class DtypeCheck:
    """Results for one dtype; None if not available."""

    dtype: str
    program: str
    delegated: int
    operators: int
    median_ms: float | None
    report: str


@dataclass(frozen=True, slots=True)
class ModelCheck(CheckList):
    model: str
    dtypes: tuple[DtypeCheck, ...]

    def as_text(self) -> str:
        worked = ", ".join(result.dtype for result in self.dtypes if result.median_ms is not None)
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
    programs: dict[str, Path] = {}
    alike: dict[tuple[str, str], list[str]] = {}  # dtypes that fail alike share one check
    for dtype in (dtype for dtype in USUAL if named.entry is None or dtype in named.entry.dtypes):
        try:
            programs[dtype] = find_or_export(model, dtype=dtype, outdir=outdir, progress=progress)
        except SetupError:
            raise
        except ProfilingError as problem:
            alike.setdefault((problem.problem, problem.fix), []).append(dtype)
    checks += [Check(f"{'/'.join(dtypes)} export", "fail", *why) for why, dtypes in alike.items()]
    runs: list[RunOutcome] = []
    if programs:
        short, again = SHORT.model_copy(update={"outdir": outdir}), RunOptions(force=True)
        outcomes = profile_programs(list(programs.values()), short, again, progress=progress)
        runs = [outcome.main for outcome in outcomes]
    results = []
    for (name, program), run in zip(programs.items(), runs, strict=True):
        export = read_export(program)
        summary = run.data.headline.summary if run.data.headline else None
        median_ms = summary.median if summary else None
        coverage = export.coverage
        results.append(
            DtypeCheck(name, str(program), coverage.delegated, coverage.operators, median_ms, str(run.report))
        )
        checks += [*_export_checks(export), *_run_checks(name, run, median_ms)]
    return ModelCheck(tuple(checks), named.name, tuple(results))


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
    verdict = next((line for line in before if line.startswith(("FAILED ", "ERROR "))), last)
    yield Check("own test", "pass" if done.ok else "fail", verdict, "correct the model, or its test")


def _export_checks(export: ExportResult) -> Iterator[Check]:
    coverage, lowering = export.coverage, export.accuracy.lowering
    taken = f"{coverage.delegated} of {plural(coverage.operators, 'operator')} delegated"
    parts = f", in {plural(coverage.partitions, 'delegate')}" if coverage.partitions else ""
    yield Check(f"{export.dtype} export", "pass", taken + parts)
    if lowering is not None and lowering.ok:
        yield Check(f"{export.dtype} outputs", "pass", f"as PyTorch in {export.dtype}: {lowering.distance}")
    for warning in export.warnings:
        what, _, fix = warning.rpartition(": ")
        status: Status = "optional" if export.accuracy.ok else "fail"
        yield Check(f"{export.dtype} outputs", status, what or fix, fix if what else "")


def _run_checks(dtype: str, run: RunOutcome, median_ms: float | None) -> Iterator[Check]:
    for failed in run.failed:
        yield Check(f"{dtype} run", "fail", failed.problem or "it failed", failed.fix or "")
    if median_ms is not None:
        latency = f"{milliseconds(median_ms)} ms for one inference on {run.data.cpu or 'this CPU'}"
        if run.data.is_arm is False:
            latency += ", which is not an Arm CPU: its times say nothing about Arm"
        yield Check(f"{dtype} run", "pass", latency)
