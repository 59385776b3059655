"""Makes a model's program faster: rewrites of the catalogue are put into its exported graph, every one is
measured, and those that help are kept.

The choice and the reported speedup come from different launches: a rewrite that only looked fast while
choosing is not reported as a gain.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from model_profiling.config import names
from model_profiling.config.series import WarningLine
from model_profiling.core import files
from model_profiling.core.errors import ExportError, InputError, RunError, SetupError
from model_profiling.core.formatting import duration
from model_profiling.core.records import write_record
from model_profiling.core.stdio import current_progress
from model_profiling.export import catalogue, rewrites
from model_profiling.export.records import Applied, ExportResult
from model_profiling.export.rewrites import OPTIMIZATION, known_rewrites
from model_profiling.models.catalog import NamedModel
from model_profiling.report.document import render_markdown
from model_profiling.report.dtypes import OnSme2
from model_profiling.report.optimization import (
    Decision,
    Optimization,
    Place,
    ProgramFacts,
    RewriteOutcome,
    judged,
    optimization_document,
)
from model_profiling.runs.feeding import feed
from model_profiling.runs.measure import measure_runs
from model_profiling.runs.schedule import emulated_seconds
from model_profiling.runs.times import Timed, compare_timed, timed
from model_profiling.statistics.speedup import Speedup, Verdict
from model_profiling.targets import Target, open_target, plan_targets
from model_profiling.workflow.compare_programs import compare_programs, one_program
from model_profiling.workflow.dtypes import on_sme2
from model_profiling.workflow.measure import USUAL, RunOptions, run_together
from model_profiling.workflow.profile import ProfileOptions, ProgramCase, export_with, make_config, one_case
from model_profiling.workflow.report import gather_report, write_page

_BUDGET_S = 60.0
_LONGEST_PROOF_S = 300.0
_AS_NEAR = 1.1
_LOST = 0.99
"""Less than this share of the arithmetic that ran on SME2 before is a loss."""
_UNSURE: tuple[Decision, str] = ("dropped", "it may be slower, and nothing was timed")
_USUAL: tuple[Decision, str] = ("not measured", "kept for its structure")


@dataclass(frozen=True, slots=True)
class OptimizeOutcome:
    """What `optimize` returns: `program` is the optimized one, None if nothing helped. In a notebook it shows
    its page."""

    optimization: Optimization
    original: Path
    program: Path | None
    report: Path
    warnings: tuple[WarningLine, ...] = ()

    def __repr__(self) -> str:
        return f"<OptimizeOutcome {self.optimization.model}: {self.optimization.verdict}>"

    def _repr_markdown_(self) -> str:
        return render_markdown(optimization_document(self.optimization))


def optimize_model(
    model: str | NamedModel,
    options: ProfileOptions,
    run: RunOptions = USUAL,
    *,
    only: Sequence[str] = (),
) -> OptimizeOutcome:
    """Export `model` as it is and with the rewrites that fit (`only` these), keep those that make it faster
    on the target, and write the optimized program beside the original. Without an Arm CPU nothing is timed,
    and the structure chooses."""
    if isinstance(model, str) and model.endswith(".pte"):
        raise InputError(f"{model} is exported already, and no longer has a graph", "name the model itself")
    wanted = known_rewrites(tuple(only)) or [
        each for each in rewrites.names() if each != catalogue.CHANNELS_LAST
    ]
    plan = plan_targets(options.target)
    place = open_target(plan.main)  # fail before anything is exported
    artifacts = options.outdir / "artifacts" if options.outdir else None
    original = export_with(model, options.model_copy(update={"optimize": False}), artifacts)
    case = one_case(original.pte, options)
    home = names.runs_folder(original.pte, options.outdir) / f"{names.variant_of(original.pte)[1]}-optimized"
    files.make_folder(home)
    with tempfile.TemporaryDirectory(prefix=".candidates-", dir=home) as folder:
        search = _Search(model, original, place, options, run, case, Path(folder))
        outcomes, best = search.choose(wanted)
        proof = _Proof(options, run, case, home / "sme2", open_target(plan.evidence))
        if plan.evidence.name == "emulated":
            outcomes, best = search.keep_sme2(outcomes, best, proof)
        _remove(original.pte.with_name(f"{original.pte.stem}-optimized.pte"))  # an earlier choice's
        program = _move(best.pte, original.pte.parent) if best else None
    compared = None
    if program and not search.not_timed:
        try:
            current_progress().stage("measuring the choice again, on fresh turns")
            fresh = search.measuring.model_copy(update={"outdir": home})
            again = replace(run, force=True)
            compared = compare_programs(original.pte, program, fresh, again)
        except BaseException:  # an interruption, too: what was not confirmed is no result
            _remove(program)
            raise
    speedup = compared.comparison.series[0].end_to_end if compared else None
    cured = best and best.accuracy.ok and not original.accuracy.ok
    if program and compared and not cured and (speedup is None or speedup.verdict is not Verdict.FASTER):
        _remove(program)
        program = None
    sides = [original, replace(best, pte=program) if best and program else None]
    run_dirs = (compared.a, compared.b) if compared else (None, None)
    facts = [
        _facts(side, home, run_dir, proof) if side else None
        for side, run_dir in zip(sides, run_dirs, strict=True)
    ]
    assert facts[0] is not None
    every = search.every or original
    optimization = Optimization(
        model=original.model,
        source=original.source,
        dtype=original.dtype,
        backend=original.backend,
        cpu=place.facts().cpu if not search.not_timed else "",
        original=facts[0],
        optimized=facts[1],
        rewrites=tuple(outcomes),
        kept=tuple(outcome.name for outcome in outcomes if program and outcome.decision != "dropped"),
        speedup=speedup,
        not_timed=search.not_timed,
        left=tuple(group.text for group in every.coverage.outside),
    )
    page = home / names.OPTIMIZATION_PAGE
    write_record(home / OPTIMIZATION, optimization)
    write_page(
        optimization_document(optimization), page, f"Optimizing {optimization.model}, {optimization.dtype}"
    )
    return OptimizeOutcome(optimization, original.pte, program, page, compared.warnings if compared else ())


def _agrees(made: ExportResult, original: ExportResult) -> bool:
    """Whether it computes what PyTorch does, or is as near to it as the original is."""
    ours, theirs = made.accuracy.lowering, original.accuracy.lowering
    as_near = not original.accuracy.ok and ours and theirs and ours.max_rel <= _AS_NEAR * theirs.max_rel
    return made.accuracy.ok or bool(as_near)


@dataclass(slots=True)
class _Search:
    """Chooses rewrites; `every` is the program with all that fit. Each candidate is exported once, into a
    `folder` that is removed."""

    model: str | NamedModel
    original: ExportResult
    place: Target
    options: ProfileOptions
    run: RunOptions
    case: ProgramCase
    folder: Path
    made: dict[frozenset[str], ExportResult | None] = field(default_factory=dict)
    not_timed: str = ""
    every: ExportResult | None = None

    def sound(self, chosen: Collection[str]) -> ExportResult | None:
        """The program with these rewrites; None if it does not compute what the original computes."""
        key = frozenset(chosen)
        if key not in self.made:
            folder = self.folder / str(len(self.made))
            try:
                chosen_options = self.options.model_copy(update={"optimize": tuple(sorted(key))})
                made = export_with(self.model, chosen_options, folder)
            except ExportError:
                self.made[key] = None
            else:
                self.made[key] = made if _agrees(made, self.original) else None
        return self.made[key]

    def choose(self, wanted: Sequence[str]) -> tuple[list[RewriteOutcome], ExportResult | None]:
        self.not_timed = self._why_not_timed()
        if not self.place.libraries_with(catalogue.CACHE_OPERATORS):
            wanted = [name for name in wanted if name != catalogue.CACHE]
        sound, outcomes = self._sound(wanted)
        every = self.every = self.sound(sound) if sound else None
        if every is None or not every.rewrites:
            return outcomes, None
        kinds = list(dict.fromkeys(place.rewrite for place in every.rewrites))
        if every.sha256 == self.original.sha256:
            same = "the program is the same with it"
            return [*outcomes, *(outcome_of(kind, "dropped", same, every.rewrites) for kind in kinds)], None
        gains: dict[str, Speedup | None] = {}
        decided: dict[str, tuple[Decision, str]]
        if self.not_timed:
            dtype = self.original.dtype
            decided = {kind: _UNSURE if catalogue.needs_times(kind, dtype) else _USUAL for kind in kinds}
        elif len(kinds) == 1 and kinds[0] != catalogue.CACHE:
            decided = {kinds[0]: ("kept", "the only one that fits")}
        else:
            gains, decided = self._by_times(kinds, every)
        rows = [
            replace(outcome_of(kind, *decided[kind], every.rewrites), gain=gains.get(kind)) for kind in kinds
        ]
        dropped = [kind for kind in kinds if decided[kind][0] == "dropped"]
        left = dropped if self.not_timed else [kind for kind in dropped if kind == catalogue.CACHE]
        if left:  # some fit only without these
            again, best = self.choose([name for name in wanted if name not in left])
            return [row for row in rows if row.name in left] + again, best
        return outcomes + rows, self._best([kind for kind in kinds if kind not in dropped])

    def _by_times(
        self, kinds: Sequence[str], every: ExportResult
    ) -> tuple[dict[str, Speedup | None], dict[str, tuple[Decision, str]]]:
        without = {kind: self.sound(set(kinds) - {kind}) for kind in kinds}
        gains, whole = self._gains(every, without)
        decided = {kind: judged(gains[kind]) for kind in kinds}
        if whole.verdict is Verdict.FASTER and not any(word == "kept" for word, _ in decided.values()):
            harmless = [kind for kind in kinds if decided[kind][1] != "faster without it"]
            decided |= dict.fromkeys(harmless, ("kept", "helps only together with the others"))
        if every.accuracy.ok and not self.original.accuracy.ok:
            needed = [kind for kind, left in without.items() if left is None or not left.accuracy.ok]
            decided |= dict.fromkeys(needed, ("kept", "outputs agree with PyTorch only with it"))
        return gains, decided

    def keep_sme2(
        self, outcomes: list[RewriteOutcome], best: ExportResult | None, proof: _Proof
    ) -> tuple[list[RewriteOutcome], ExportResult | None]:
        """Drop the rewrites that lose arithmetic which ran on SME2 before."""
        while best is not None:
            before, after = (proof.of(made).flops for made in (self.original, best))
            if before is None or after is None or after >= _LOST * before:
                break
            kept = [outcome.name for outcome in outcomes if outcome.decision != "dropped"]
            without = {name: self._best([other for other in kept if other != name]) for name in kept}
            flops = {name: (proof.of(made).flops or 0) if made else 0 for name, made in without.items()}
            loses = max(kept, key=flops.__getitem__)
            outcomes = [
                replace(outcome, decision="dropped", because="less arithmetic runs on SME2 with it")
                if outcome.name == loses
                else outcome
                for outcome in outcomes
            ]
            best = without[loses]
        return outcomes, best

    def _why_not_timed(self) -> str:
        if not self.place.timings_are_latency:
            return f"times on target {self.place.name} are not latencies"
        self.place.prepare()
        facts = self.place.facts()
        return "" if facts.is_arm else f"this CPU ({facts.cpu or facts.machine}) is not an Arm CPU"

    def _best(self, kept: Sequence[str]) -> ExportResult | None:
        if self.every and set(kept) == {place.rewrite for place in self.every.rewrites}:
            return self.every
        return self.sound(kept) if kept else None

    def _sound(self, wanted: Sequence[str]) -> tuple[list[str], list[RewriteOutcome]]:
        """The rewrites without those that change outputs, which are found one by one if all together do."""
        if self.sound(wanted) is not None:
            return list(wanted), []
        sound = [name for name in wanted if self.sound([name]) is not None]
        wrong = "outputs differ from PyTorch's with it, or it does not run"
        if len(sound) == len(wanted) or (sound and self.sound(sound) is None):
            sound, wrong = [], "outputs differ from PyTorch's with it and the others together"
        return sound, [outcome_of(name, "dropped", wrong, ()) for name in wanted if name not in sound]

    def _gains(
        self, every: ExportResult, without: Mapping[str, ExportResult | None]
    ) -> tuple[dict[str, Speedup | None], Speedup]:
        """What each kind brings to all the others, and all of them to the original."""
        other = {kind: left for kind, left in without.items() if left and left.sha256 != every.sha256}
        programs = [self.original.pte, every.pte, *(left.pte for left in other.values())]
        original, whole, *rest = self._in_turns(programs)
        gains: dict[str, Speedup | None] = dict.fromkeys(without)
        for kind, left in zip(other, rest, strict=True):
            gains[kind] = compare_timed(left, whole, same_run=False)
        return gains, compare_timed(original, whole, same_run=False)

    @property
    def measuring(self) -> ProfileOptions:
        """Half of the budget chooses, the other half confirms."""
        half = (self.options.budget_s or _BUDGET_S) / 2
        options = {"budget_s": half, "threads": self.options.threads[:1]}
        return self.options.model_copy(update=options)

    def _in_turns(self, programs: Sequence[Path]) -> list[Timed]:
        """The latencies of programs that take turns in the same launches."""
        current_progress().stage(f"measuring {len(programs)} programs in turns, to choose")
        configs = [
            one_program(self.place, program, self.folder / f"turns-{number}", self.measuring, self.case)
            for number, program in enumerate(programs)
        ]
        measured = measure_runs(configs, self.place, replace(self.run, force=True))
        for failed in (result for run in measured for result in run.failed):
            raise RunError(failed.problem or "a program failed", failed.fix or "profile the model first")
        return [timed(run.journal, run.manifest.results[0].series) for run in measured]


def outcome_of(kind: str, decision: str, because: str, applied: Sequence[Applied]) -> RewriteOutcome:
    groups: dict[tuple[str, str], list[str]] = {}
    for place in applied:
        if place.rewrite == kind:
            groups.setdefault((place.operator, place.source), []).append(place.module)
    rows = rewrites.CATALOGUE.get(kind, ())
    used = [
        row for row in rows if not row.operators or any(operator in row.operators for operator, _ in groups)
    ]
    return RewriteOutcome(
        kind,
        decision,  # type: ignore[arg-type]
        because,
        why=tuple(row.why for row in used),
        instead=tuple(row.instead for row in used),
        places=tuple(
            Place(operator, source, tuple(dict.fromkeys(modules)), len(modules))
            for (operator, source), modules in groups.items()
        ),
    )


@dataclass(slots=True)
class _Proof:
    """Runs programs under emulation once each, to see what runs on SME2."""

    options: ProfileOptions
    run: RunOptions
    case: ProgramCase
    home: Path
    prover: Target
    proven: dict[str, OnSme2] = field(default_factory=dict)

    def of(self, program: ExportResult) -> OnSme2:
        if program.sha256 not in self.proven:
            try:
                self.proven[program.sha256] = self._proven(program.pte)
            except SetupError as problem:
                self.proven[program.sha256] = OnSme2("not tested", problem.problem)
        return self.proven[program.sha256]

    def _proven(self, program: Path) -> OnSme2:
        fed = feed(program, self.case.method, self.case.inputs)
        seconds = emulated_seconds(program, self.case.method, fed.lengths)
        if seconds > _LONGEST_PROOF_S:
            raise SetupError(f"emulating this program takes about {duration(seconds)}", "profile it")
        quick = self.options.model_copy(update={"quick": True})
        root = self.home / str(len(self.proven)) / self.prover.place
        config = make_config(self.prover, program, root, quick, self.case)
        (made,) = run_together([config], self.prover, replace(self.run, force=True))
        return on_sme2(made.data)


def _move(program: Path, folder: Path) -> Path:
    """Move a program and its companions; the program last, so that one that exists is whole."""
    for path in sorted(program.parent.glob(f"{program.name}*"), reverse=True):
        shutil.move(path, folder / path.name)
    return folder / program.name


def _remove(program: Path) -> None:
    for path in sorted(program.parent.glob(f"{program.name}*")):
        path.unlink()


def _facts(made: ExportResult, home: Path, run_dir: Path | None, proof: _Proof) -> ProgramFacts:
    lowering, precision = made.accuracy.lowering, made.accuracy.precision
    return ProgramFacts(
        program=files.relative_posix(home, made.pte),
        sha256=made.sha256,
        delegate_calls=made.coverage.partitions,
        operators_outside=len(made.coverage.undelegated),
        outputs_agree=made.accuracy.ok,
        deviation=lowering.max_rel if lowering else None,
        tolerance=lowering.tolerance if lowering else None,
        from_float32=precision.max_rel if precision else None,
        sme2=proof.proven.get(made.sha256) or (on_sme2(gather_report(run_dir)) if run_dir else None),
        run=files.relative_posix(home, run_dir) if run_dir else "",
    )
