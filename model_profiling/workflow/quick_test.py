"""A smoke test of the whole kit on this machine: export a small model, run, analyse, check what came out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from model_profiling.errors import ProfilingError
from model_profiling.etdump import read_etdump
from model_profiling.progress import Progress
from model_profiling.workflow.measure import RunOptions, RunOutcome
from model_profiling.workflow.profile import ProfileOptions, profile

_MODEL = "toy_cnn"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold; `detail` says what was seen."""

    name: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class QuickTest:
    """What the smoke test saw."""

    run_dir: Path
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)


def quick_test(
    outdir: Path, *, target: str = "host", dtype: str = "fp16", progress: Progress | None = None
) -> QuickTest:
    """Run the smoke test into `outdir`, replacing what an earlier one left there."""
    options = ProfileOptions(target=target, dtype=dtype, runs=5, warmup=1, rounds=6, outdir=outdir)
    done = profile(_MODEL, options, RunOptions(force=True), progress=progress)
    checks = [Check("export", done.program.is_file(), str(done.program))]
    for outcome in done.outcomes:
        checks += _checks(outcome)
    return QuickTest(done.timing.run_dir, tuple(checks))


def _checks(outcome: RunOutcome) -> Iterator[Check]:
    place = outcome.run_dir.name
    for result in outcome.measured.results:
        name = f"{place}: {result['experiment']} t{result['threads']}"
        yield Check(
            name, result["state"] == "done", str(result["problem"] or f"{result['processes']} processes")
        )
        yield _dump_check(outcome, name, str(result["etdump"]), int(str(result["runs"])))
    analysis = outcome.analysis
    closed = analysis is not None and all(dump.breakdown.closes for dump in analysis.dumps)
    yield Check(f"{place}: analysis", closed, "operators, categories and overheads add up to end-to-end time")
    for parity in outcome.summary["parity"]:  # type: ignore[attr-defined]
        yield Check(
            f"{place}: outputs", parity["verdict"] in ("identical", "within tolerance"), parity["verdict"]
        )
    missing = [name for name in _promised(outcome) if not (outcome.run_dir / name).is_file()]
    yield Check(f"{place}: files", not missing, f"missing: {', '.join(missing)}" if missing else "all there")


def _dump_check(outcome: RunOutcome, name: str, dump: str, runs: int) -> Check:
    try:
        table = read_etdump(outcome.run_dir / dump)
    except ProfilingError as problem:
        return Check(f"{name}, dump", False, str(problem))
    executed = int((table.name == table.name_index("Method::execute")).sum())
    return Check(f"{name}, dump", executed == runs, f"{executed} runs, {len(table)} events")


def _promised(outcome: RunOutcome) -> list[str]:
    directory = outcome.measured.directory
    named = ["manifest.json", "metrics.json", "analysis_summary.json", "kernel_view.md"]
    named += [directory.relative(directory.summary(ending)) for ending in ("json", "md")]
    keys = ("etdump", "log", "kernels") + (("latency",) if outcome.measured.timings_are_latency else ())
    return named + [str(result[key]) for result in outcome.measured.results for key in keys]
