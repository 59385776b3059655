"""From what a job left behind to its outcome, or to the error that says why there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from model_profiling.errors import RunError
from model_profiling.files import write_text
from model_profiling.process import Completed
from model_profiling.runner.lockstep_result import read_lockstep_result
from model_profiling.runner.result import RunnerResult, read_result
from model_profiling.targets.command import BOUNDARIES, ETDUMP, GAUGE, LOG, RESULT, SEEN, child_files
from model_profiling.targets.device import energy
from model_profiling.targets.executor_runner import read_own_times
from model_profiling.targets.failures import explain, explain_lockstep
from model_profiling.targets.protocol import Job, LockstepJob, LockstepOutcome, Outcome


def collect(
    job: Job, done: Completed, files: Path, *, timings_are_latency: bool, code: Sequence[Path] = ()
) -> Outcome:
    """The outcome of `job`, whose files have come back to the path `files` with their endings. `code` are the
    folders that hold, on this machine, the libraries it ran with."""
    if not done.ok:
        raise explain(job, done)
    if job.runner_path is None:
        result = beside(read_result(Path(f"{files}{RESULT}")), files)
    else:
        dump = Path(f"{files}{ETDUMP}") if job.etdump else None
        result = read_own_times(job, done.stdout + done.stderr, dump)
    if len(result.iterations_ns) != job.runs:
        made = len(result.iterations_ns)
        raise RunError(
            f"the runner reports {made} executions, {job.runs} were asked for", "see the log", done.tail()
        )
    outcome = _outcome(job, result, files, Path(f"{files}{LOG}"), timings_are_latency)
    if job.runner_path is None:
        outcome = replace(outcome, told=Path(f"{files}{RESULT}"))
    if job.sample_hz:
        from model_profiling.runner.samples import read_samples  # needs numpy, which a doctor does without

        outcome = replace(outcome, samples=read_samples(Path(f"{files}{SEEN}"), code))
    if job.gauge is None:
        return outcome
    told = Path(f"{files}{energy.ENDING}")
    text = told.read_text(encoding="utf-8", errors="replace") if told.is_file() else ""
    metered, inferences = energy.read_metered(text, result.iterations_ns), len(result.iterations_ns)
    table = Path(f"{files}{GAUGE}")
    write_text(table, energy.readings_csv(metered, inferences))
    return replace(outcome, energy=energy.energy_of(metered, inferences), gauge=table)


def collect_lockstep(
    job: LockstepJob, done: Completed, files: Path, *, timings_are_latency: bool
) -> LockstepOutcome:
    """The outcome of a launch, whose files have come back to the path `files` with their endings."""
    if not done.ok:
        raise explain_lockstep(job, done)
    written = Path(f"{files}{RESULT}")
    told = read_lockstep_result(written)
    if len(told.results) != len(job.jobs):
        raise RunError(
            f"the runner reports {len(told.results)} programs, {len(job.jobs)} were asked for", "see the log"
        )
    log = Path(f"{files}{LOG}")
    outcomes = tuple(
        _outcome(
            child, beside(result, files), Path(child_files(str(files), number)), log, timings_are_latency
        )
        for number, (child, result) in enumerate(zip(job.jobs, told.results, strict=True))
    )
    return LockstepOutcome(outcomes, told.turns, told.launch, told.machine, log, written)


def _outcome(job: Job, result: RunnerResult, files: Path, log: Path, timings_are_latency: bool) -> Outcome:
    etdump = Path(f"{files}{ETDUMP}") if job.etdump else None
    if etdump is not None and not etdump.is_file():
        raise RunError(
            "the runner wrote no ETDump", "build it with the event tracer, or name the kit's own runner"
        )
    boundaries = Path(f"{files}{BOUNDARIES}") if etdump is not None else None
    return Outcome(
        result=result,
        log=log,
        etdump=etdump,
        boundaries=boundaries if boundaries is not None and boundaries.is_file() else None,
        etdump_warmup_runs=job.warmup if job.etdump and job.runner_path else 0,
        outputs=tuple(output.file for output in result.outputs if output.file is not None),
        kernels=dict(result.kernels or {}),
        kernels_at_load=dict(result.kernels_at_load or {}),
        kernel_sizes=dict(result.kernel_sizes or {}),
        kernels_note=result.kernels_unavailable if job.kernels else None,
        timings_are_latency=timings_are_latency and not job.kernels and not job.sample_hz,
    )


def beside(result: RunnerResult, files: Path) -> RunnerResult:
    """The kit's runner names its outputs as they were called where it ran; they lie beside its result now."""
    outputs = []
    for output in result.outputs:
        if output.file is not None and not output.file.name.startswith(files.name):
            raise RunError(f"the runner calls its output {output.file.name}", "run it again")
        outputs.append(replace(output, file=files.parent / output.file.name) if output.file else output)
    return replace(result, outputs=tuple(outputs))
