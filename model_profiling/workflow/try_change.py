"""Tries a finding's advice: the calls that the kit can rewrite are changed in a copy of the user's file, both
versions are exported and measured in turns, and their outputs compared. The user's files stay as they are."""

from __future__ import annotations

import contextlib
import difflib
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING

from model_profiling.analysis.causes.outside import not_rewritten, rewrites_of
from model_profiling.analysis.findings import Finding
from model_profiling.analysis.run import analyse_run
from model_profiling.core import files
from model_profiling.core.errors import ExportError, InputError
from model_profiling.core.formatting import did_you_mean, listing
from model_profiling.core.number_formats import parse_format
from model_profiling.core.progress import Progress, Silent
from model_profiling.export.accuracy import LOWERING_TOLERANCE, deviation, quietly
from model_profiling.export.exporter import export_model
from model_profiling.export.records import Deviation, ExportResult
from model_profiling.export.rewriting import SourceFile, read_source
from model_profiling.models.catalog import import_root, load_model
from model_profiling.models.options import is_user_code
from model_profiling.program.graph_file import ModelSource, Rewrite
from model_profiling.runs import Run
from model_profiling.targets import TargetChoice, open_target, plan_targets
from model_profiling.targets.machine_lock import working_beside
from model_profiling.workflow.measure import RunOptions
from model_profiling.workflow.profile import ProgramsCompared, compare_programs

if TYPE_CHECKING:
    from model_profiling.export.tracing import Eager

PATCHED, DIFF = "patched", "change.diff"
_AGAIN = "profile the model again, then try"


@dataclass(frozen=True, slots=True)
class Advice:
    """A finding of a run, and what can be changed without a person; `why_not` if that is nothing."""

    run: Run
    finding: Finding
    source: ModelSource | None
    rewrites: tuple[Rewrite, ...]
    why_not: str = ""

    @property
    def by_hand(self) -> str:
        """The command that measures what the user changes."""
        program = self.run.programs().named() or Path("before.pte")
        case = self.run.manifest.case_words if self.run.manifest else []
        return shlex.join(["sme2prof", "compare", str(program), "AFTER.pte", *case])


@dataclass(frozen=True, slots=True)
class Tried:
    """Both versions, and what the change brought."""

    advice: Advice
    home: Path
    diff: str
    before: ExportResult
    after: ExportResult
    outputs: Deviation
    """The changed module compared with the original, both in PyTorch."""
    measured: ProgramsCompared | None
    why_not_measured: str = ""

    @property
    def agrees(self) -> bool:
        return self.outputs.ok and self.after.accuracy.ok >= self.before.accuracy.ok


def find_advice(run_dir: Path, wanted: str) -> Advice:
    """The finding `wanted` of a run, by its id or the beginning of it."""
    run = Run.open(run_dir)
    findings = analyse_run(run, run.programs()).findings if run.dumps else ()
    known = {finding.id: finding for finding in findings}
    if not known:
        raise InputError(f"{run_dir} has no findings", "name a run that was analysed")
    begin = [name for name in known if name.startswith(wanted)] if wanted else []
    if wanted not in known and len(begin) != 1:
        can = [name for name in known if not _advice(run, known[name]).why_not]
        fix = did_you_mean(wanted, known) if wanted else ""
        told = f"can be tried: {listing(can)}" if can else f"it has {listing(known)}; none can be tried"
        problem = f"the run has no finding '{wanted}'" if wanted else "name a finding"
        raise InputError(problem, f"{fix} {told}".strip())
    return _advice(run, known[wanted if wanted in known else begin[0]])


def _advice(run: Run, finding: Finding) -> Advice:
    graph = finding.found_in.graph
    source, rewrites = graph.origin if graph else None, rewrites_of(finding)
    why_not = ""
    if not rewrites:
        why_not = "no call of this finding in your own files can be rewritten without a person"
    elif source is None or source.file is None:
        why_not = "only models of file.py:factory can be changed, and this one is not"
    return Advice(run, finding, source, rewrites, why_not)


def try_change(
    advice: Advice,
    *,
    target: TargetChoice | None = None,
    threads: tuple[int, ...] = (1,),
    budget_s: float | None = None,
    outdir: Path | None = None,
    run: RunOptions | None = None,
    progress: Progress | None = None,
) -> Tried:
    """Change a copy, export both, and measure what the run measured: its method, with its inputs. The results
    are kept in `outdir`."""
    progress, source = progress or Silent(), advice.source
    if advice.why_not or source is None or source.file is None:
        raise InputError(advice.why_not, advice.by_hand)
    root = _root_of(source, source.file, advice)
    recorded = _unchanged(advice.rewrites, root)
    place = open_target(plan_targets(target or TargetChoice()).main)  # fail before anything is exported
    home = outdir or Path("out_try") / f"{source.file.stem}_{source.factory}_{advice.finding.id}"
    before = _export(source, home / "before", progress)
    # The code is of this export, not of the run's files, which may be anybody's.
    fresh = {left.rewrite for left in before.coverage.undelegated if left.rewrite}
    chosen = [each for each in fresh if (Path(each.file), each.start, each.old) in recorded]
    if not chosen:
        raise InputError(f"the calls of {advice.finding.id} are not outside any more", _AGAIN)
    diff, copies = _write_copies(chosen, root, home)
    original = _eager(source)
    with _loaded_from(copies, root):
        after = _export(source, home / "after", progress)
        outputs = _compared(original, _eager(source))
    measured, why_not = None, f"No latency was measured: times on target {place.name} are not latencies."
    if place.timings_are_latency:
        why_not = ""
        ran = advice.run.manifest
        sizes, values = ran.asked_inputs if ran else ({}, {})
        measured = compare_programs(
            before.pte, after.pte, target=target, threads=threads, budget_s=budget_s,
            method=(ran.method if ran else "") or None,
            lengths={name: (tuple(given),) for name, given in sizes.items()},
            values={name: tuple(given) for name, given in values.items()},
            outdir=home / "runs", run=run, progress=progress,
        )  # fmt: skip
    return Tried(advice, home, diff, before, after, outputs, measured, why_not)


def _root_of(source: ModelSource, file: Path, advice: Advice) -> Path:
    """The folder of the model's own files. The run names the code: none may be a library's, or of the run."""
    if not file.is_file():
        raise InputError(f"the model's file {file} is not there", "try it where the model was exported")
    quantizer = source.dtype if parse_format(source.dtype).kind == "own" else ""
    batches = "" if source.calibration.endswith(".npz") else source.calibration_file
    for named in filter(None, (source.source, quantizer, batches)):
        code = Path(named.rpartition(":")[0]).resolve()
        if not is_user_code(str(code)) or code.is_relative_to(advice.run.path.resolve()):
            raise InputError(f"{code} is not a file of yours", advice.by_hand)
    return import_root(file)


def _unchanged(rewrites: Sequence[Rewrite], root: Path) -> set[tuple[Path, tuple[int, int], str]]:
    """The places of the calls, if the files still have them there."""
    sources: dict[Path, SourceFile] = {}
    for each in rewrites:
        file = Path(each.file)
        if file not in sources:
            if not is_user_code(str(file)) or not file.resolve().is_relative_to(root):
                raise InputError(
                    f"{file} does not belong to the model in {root}",
                    "copy the module into your own file, or change it by hand",
                )
            sources[file] = read_source(file)
        if sources[file].between(*each.start, *each.end) != each.old:
            raise InputError(f"{file}:{each.line} has changed since the run", _AGAIN)
    return {(Path(each.file), each.start, each.old) for each in rewrites}


def _export(source: ModelSource, outdir: Path, progress: Progress) -> ExportResult:
    with working_beside(f"exports {source.source}", waiting=progress.stage):
        return export_model(
            source.source,
            dtype=source.dtype,
            backend=source.backend,
            outdir=outdir,
            calibration=source.calibration_file,
            keep=source.keep,
            seed=source.seed,
            progress=progress,
        )


def _write_copies(chosen: Sequence[Rewrite], root: Path, home: Path) -> tuple[str, dict[Path, Path]]:
    """Write each changed file below `home`, and the change as a diff."""
    diffs: list[str] = []
    copies = {}
    for file in sorted({Path(each.file) for each in chosen}):
        source = read_source(file)
        text = source.replaced([each for each in chosen if Path(each.file) == file])
        name = file.resolve().relative_to(root)
        copy = home / PATCHED / name
        files.make_folder(copy.parent)
        files.write_bytes(copy, text.encode(source.encoding))
        copies[file.resolve()] = copy.resolve()
        old, new = source.text.splitlines(keepends=True), text.splitlines(keepends=True)
        diffs += difflib.unified_diff(old, new, f"a/{name.as_posix()}", f"b/{name.as_posix()}")
    diff = "".join(line if line.endswith("\n") else f"{line}\n" for line in diffs)
    files.write_text(home / DIFF, diff)
    return diff, copies


@contextlib.contextmanager
def _loaded_from(copies: Mapping[Path, Path], root: Path) -> Iterator[None]:
    """Let Python load these files from their copies. `__file__` stays, so that imports and data beside the
    files are found; lines are those of the copy. Modules of the model are loaded
    again, now and afterwards."""
    own = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        copy = copies.get(Path(self.path).resolve())
        if copy is None:
            return own(self, fullname)
        return compile(copy.read_bytes(), str(copy), "exec", dont_inherit=True)

    kept = _modules_in(root)
    for name in kept:
        del sys.modules[name]
    SourceFileLoader.get_code = get_code  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        del SourceFileLoader.get_code
        for name in _modules_in(root):
            del sys.modules[name]
        sys.modules.update(kept)


def _modules_in(root: Path) -> dict[str, ModuleType]:
    found = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        inside = isinstance(file, str) and Path(file).resolve().is_relative_to(root)
        if inside and name != "__main__" and is_user_code(str(file)):
            found[name] = module
    return found


def _eager(source: ModelSource) -> Eager:
    import torch

    from model_profiling.export.tracing import eager_model

    with torch.random.fork_rng(devices=[]), quietly():
        torch.manual_seed(source.seed)
        named = load_model(source.source)
        return eager_model(named.name, named.model)


def _compared(original: Eager, changed: Eager) -> Deviation:
    """Compare with the same weights and inputs."""
    changed.module.load_state_dict(original.module.state_dict())
    made = type(changed)(changed.module, original.args, original.kwargs, original.dynamic_shapes)
    got, want = made.run(), original.run()
    if [each.shape for each in got] != [each.shape for each in want]:
        raise ExportError("the changed model returns other shapes", "report this call to the kit's authors")
    return deviation(got, want, LOWERING_TOLERANCE["fp32"])


def in_words(tried: Tried) -> tuple[str, ...]:
    """What the change brought, without times."""
    before, after = tried.before.coverage, tried.after.coverage
    agree = "agree with" if tried.agrees else "differ from"
    by_hand = not_rewritten(tried.advice.finding)
    return (
        f"Delegate calls: {before.partitions} before, {after.partitions} after. Operators outside: "
        f"{len(before.undelegated)} before, {len(after.undelegated)} after.",
        f"Outputs {agree} the original module: {tried.outputs.distance}.",
        *((f"Not tried: {by_hand}; change this by hand.",) if by_hand else ()),
    )
