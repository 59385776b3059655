"""The whole job in one call: a model or a program in, analysed run directories out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from model_profiling import files
from model_profiling.config.new_config import NewConfig, default_output_root, new_config
from model_profiling.config.reading import ProfileConfig, parse_config
from model_profiling.errors import InputError, SetupError
from model_profiling.pipeline.locking import locked
from model_profiling.pipeline.run_directory import check_folder, check_startable, read_manifest
from model_profiling.pipeline.session import refresh
from model_profiling.progress import Progress, Silent
from model_profiling.runner.features import Rung, ladder
from model_profiling.targets import Target, TargetChoice, TargetPlan, open_target, plan_targets
from model_profiling.workflow.measure import RunOptions, RunOutcome, run_config, told
from model_profiling.workflow.programs import find_or_export

CONFIG_FILE = "config.json"
_EMULATED_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """What to measure, and how much of it. `outdir` is the folder that gets `artifacts` and `runs`.

    None is the usual value; one that is given and cannot be followed is refused or warned of, never dropped.
    """

    target: TargetChoice = field(default_factory=TargetChoice)
    dtype: str | None = None
    backend: str | None = None
    runs: int | None = None
    warmup: int | None = None
    threads: tuple[int, ...] = (1,)
    rounds: int | None = None
    precision: float | None = None
    ladder: bool = False
    outdir: Path | None = None


@dataclass(frozen=True, slots=True)
class ProfileOutcome:
    """Where latencies were measured, where kernel evidence was gathered (the same place if it can be), and
    why there. `evidence` is None when emulation was wanted and could not be had; `warnings` then says so, as
    it says which options had no effect."""

    program: Path
    plan: TargetPlan
    timing: RunOutcome
    evidence: RunOutcome | None
    warnings: tuple[str, ...] = ()

    @property
    def outcomes(self) -> tuple[RunOutcome, ...]:
        separate = self.evidence is not None and self.evidence is not self.timing
        return (self.timing, self.evidence) if separate and self.evidence else (self.timing,)


def profile(
    model: str,
    options: ProfileOptions | None = None,
    run: RunOptions | None = None,
    *,
    progress: Progress | None = None,
) -> ProfileOutcome:
    """Export `model` if it is not a .pte file, run it with SME2 on and off, and analyse what came of it."""
    options, run, progress = options or ProfileOptions(), run or RunOptions(), progress or Silent()
    plan = plan_targets(options.target)
    target, prover = open_target(plan.timing), open_target(plan.evidence)
    if options.outdir is not None:
        check_folder(options.outdir)
    unused = _without_effect(target, options)
    program = find_or_export(
        model, dtype=options.dtype, backend=options.backend, outdir=options.outdir, progress=progress
    )
    for one in (target, prover):
        check_startable(_root(one, program, options), resume=run.resume, force=run.force)
    timing = _run_on(target, program, options, run, progress)
    if plan.evidence == plan.timing:
        return ProfileOutcome(program, plan, timing, timing, unused)
    try:
        evidence = _run_on(prover, program, options, run, progress)
    except SetupError as problem:
        # Latencies stand without it; that the proof is missing is said, not hidden.
        missing = f"no kernel evidence from emulation: {problem}"
        return ProfileOutcome(program, plan, timing, None, (*unused, missing))
    return ProfileOutcome(program, plan, _pointing_to(timing, evidence), evidence, unused)


def make_config(target: Target, program: Path, options: ProfileOptions) -> ProfileConfig:
    """The config of one target's run: SME2 on and off, or one experiment per rung of the ladder."""
    emulated = not target.timings_are_latency
    root = _root(target, program, options)
    wanted = NewConfig(model=program, kind=target.platform, output_root=root, threads=options.threads)
    if emulated:
        wanted = replace(wanted, runs=1, warmup=0)
    else:
        wanted = replace(
            wanted,
            runs=wanted.runs if options.runs is None else options.runs,
            warmup=wanted.warmup if options.warmup is None else options.warmup,
            rounds=wanted.rounds if options.rounds is None else options.rounds,
            precision=options.precision,
        )
    raw = new_config(wanted, root)
    raw |= {"model": str(program.resolve()), "output_root": str(root.resolve())}
    raw["target"] = {"name": target.name}
    if emulated:
        raw["schedule"] = {"timeout_s": _EMULATED_TIMEOUT_S}
    if options.ladder:
        target.prepare()
        raw |= _ladder_parts(raw, wanted, ladder(target.facts().features))
    config, problems = parse_config(raw, folder=root)
    if config is None or problems:
        raise InputError(problems[0].text, problems[0].fix)
    return config


def _without_effect(target: Target, options: ProfileOptions) -> tuple[str, ...]:
    """What the user asked for that only matters where latencies are measured."""
    if target.timings_are_latency:
        return ()
    given = {name: getattr(options, name) for name in ("runs", "warmup", "rounds", "precision")}
    return tuple(
        f"--{name} {value} has no effect: times on target {target.name} are not latencies, so each experiment"
        " runs once"
        for name, value in given.items()
        if value is not None
    )


def _root(target: Target, program: Path, options: ProfileOptions) -> Path:
    if options.outdir is not None:
        return options.outdir / "runs" / target.place
    return default_output_root(program, target.place)


def rung_name(platform: str, rung: Rung) -> str:
    """Rungs are named by the best feature they still have."""
    return f"{platform}_upto_{rung.left[0] if rung.left else 'neon'}"


def _ladder_parts(raw: dict[str, object], wanted: NewConfig, rungs: Sequence[Rung]) -> dict[str, object]:
    if len(rungs) < 2:
        raise InputError("this CPU has no feature the ladder could take away", "leave --ladder out")
    pattern = cast("list[dict[str, object]]", raw["experiments"])[0]
    names = [rung_name(wanted.kind, rung) for rung in rungs]
    experiments = [
        {
            **pattern,
            "name": name,
            "sme2": "off" if {"sme2", "sme"} & set(rung.disable) else "on",
            "disable": list(rung.disable),
        }
        for name, rung in zip(names, rungs, strict=True)
    ]
    pairs = [
        {
            "baseline": {"experiment": names[place + 1], "threads": threads},
            "candidate": {"experiment": names[place], "threads": threads},
            "label": f"what {rungs[place].left[0]} buys, {threads} thread{'s' if threads > 1 else ''}",
        }
        for place in range(len(rungs) - 1)
        for threads in wanted.threads
    ]
    return {"experiments": experiments, "analysis": {"compare_pairs": pairs}}


def _run_on(
    target: Target, program: Path, options: ProfileOptions, run: RunOptions, progress: Progress
) -> RunOutcome:
    config = make_config(target, program, options)
    # Of two targets one may have been finished or not even begun when the job was cut short.
    run = replace(run, resume=run.resume and read_manifest(config.output_root) is not None)
    outcome = run_config(config, run, target=target, progress=progress)
    files.write_json(
        outcome.run_dir / CONFIG_FILE, cast("dict[str, object]", outcome.measured.manifest["config"])
    )
    return outcome


def _pointing_to(timing: RunOutcome, evidence: RunOutcome) -> RunOutcome:
    """The timing run with its manifest, summary and report naming where the kernel evidence is."""
    place = {"run_dir": f"../{evidence.run_dir.name}", "target": evidence.measured.manifest["target"]}
    with locked(timing.run_dir):
        return told(refresh(timing.measured, evidence=place), timing.kernels, timing.analysis)
