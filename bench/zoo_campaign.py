"""What does the kit say of models nobody here wrote? One row for each, whatever becomes of it.

    python bench/zoo_campaign.py [FILE.py:FACTORY ...] [--dtypes fp32,fp16,int8] [--emulate]

Each model (by default those of tests/zoo) is exported, run on this machine and, with --emulate, under QEMU
with SME2. A row says what came of it: operators, delegate calls, operators outside, how much of the
delegates' time has a node of the program, how much of all time has no operator or no category, the first
advice with its bound, what tracing costs, and what failed. A failure ends
its model, not the campaign: each is worked on in a process beside this one. `campaign.json` and `campaign.md`
in the folder (--out) hold the table; exits with 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar

from model_profiling.analysis.findings import Finding
from model_profiling.analysis.series import UNATTRIBUTED, SeriesAnalysis
from model_profiling.core.errors import ProfilingError
from model_profiling.export import export_model
from model_profiling.program.category import Category
from model_profiling.targets import TargetChoice
from model_profiling.workflow.measure import RunOptions, RunOutcome
from model_profiling.workflow.profile import ProfileOptions, profile_one

ZOO = Path(__file__).resolve().parents[1] / "tests" / "zoo"
NOT_MODELS = ("test_", "expected")
MISSING = "-"
T, R = TypeVar("T"), TypeVar("R")


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one model in one dtype; None is what was not reached."""

    model: str
    dtype: str
    exported: bool = False
    operators: int | None = None
    delegates: int | None = None
    """Calls in an inference."""
    outside: int | None = None
    mapped_pct: float | None = None
    """Of the time in delegates."""
    unattributed_pct: float | None = None
    other_pct: float | None = None
    top: str = ""
    """The first finding, its title and its bound."""
    findings: tuple[str, ...] = ()
    traced_pct: float | None = None
    """What the tracer adds to the latency."""
    sme2: str = ""
    """What emulation proved."""
    failed: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    model: str
    dtype: str
    emulate: bool
    runs: int
    rounds: int
    folder: Path


def worked(asked: Asked) -> Row:
    """The row of one model: as far as it gets."""
    began, row = time.monotonic(), Row(short(asked.model), asked.dtype)
    home = asked.folder / f"{row.model.replace(':', '_').replace('.', '_')}_{asked.dtype}"
    try:
        made = export_model(asked.model, dtype=asked.dtype, outdir=home / "artifacts")
        row = replace(row, exported=True, operators=made.coverage.operators)
        host = ProfileOptions(target=TargetChoice("host"), runs=asked.runs, rounds=asked.rounds, outdir=home)
        outcome = profile_one(str(made.pte), host, RunOptions(force=True)).main
        row = with_run(row, outcome)
        if asked.emulate:
            there = ProfileOptions(target=TargetChoice("emulated"), outdir=home)
            row = replace(row, sme2=proof(profile_one(str(made.pte), there, RunOptions(force=True)).main))
    except ProfilingError as problem:
        row = replace(row, failed=str(problem))
    # A failure of the kit's own is what the campaign looks for.
    except Exception as problem:  # noqa: BLE001
        row = replace(row, failed=f"of the kit itself: {type(problem).__name__}: {problem}")
    return replace(row, seconds=round(time.monotonic() - began, 1))


def with_run(row: Row, outcome: RunOutcome) -> Row:
    """`row` with what a run on hardware says."""
    analysis = outcome.analysis
    if analysis is None or outcome.failed:
        told = "; ".join(str(result.problem) for result in outcome.failed)
        return replace(row, failed=told or "the run made no dump")
    series = analysis.series[0]
    inside = [operator for operator in series.operators if operator.delegated]
    mapped = [operator for operator in inside if operator.origin != "unknown"]
    whole = sum(operator.typical_ms for operator in inside)
    return replace(
        row,
        operators=len(series.operators),
        delegates=series.first.delegate_calls,
        outside=len(series.operators) - len(inside),
        mapped_pct=percent(sum(operator.typical_ms for operator in mapped) / whole) if whole else None,
        unattributed_pct=percent(series.spent(series.parts[UNATTRIBUTED]).share),
        other_pct=percent(series.spent(series.breakdown.categories[Category.OTHER]).share),
        top=first(analysis.findings),
        findings=tuple(finding.id for finding in analysis.findings),
        traced_pct=traced(series, outcome),
    )


def first(findings: Sequence[Finding]) -> str:
    if not findings:
        return "nothing to do"
    top = findings[0]
    bound = "" if top.max_gain_pct is None else f" (at most {top.max_gain_pct:.1f}%)"
    return f"{top.id}: {top.title}{bound}"


def traced(series: SeriesAnalysis, outcome: RunOutcome) -> float | None:
    headline = outcome.data.headline
    if headline is None or headline.summary is None:
        return None
    return percent(series.latency.median / headline.summary.median - 1)


def proof(outcome: RunOutcome) -> str:
    """What ran on SME2, of all matrix operators."""
    told = outcome.data.outlook.coverage
    return f"{len(told.proven)} of {len(told.operators)}" if told.tested else f"not tested: {told.reason}"


def percent(share: float) -> float:
    return round(100 * share, 1)


def short(model: str) -> str:
    file, _, factory = model.rpartition(":")
    return f"{Path(file).name}:{factory}"


def each_apart(
    work: Callable[[T], R], asked: Iterable[T], limit: float, failed: Callable[[T, str], R]
) -> Iterator[R]:
    """One after another; a process that dies or hangs costs its model alone."""
    pool: ProcessPoolExecutor | None = None
    for one in asked:
        pool = pool or ProcessPoolExecutor(1, get_context("spawn"))
        try:
            yield pool.submit(work, one).result(limit)
        except (BrokenProcessPool, TimeoutError) as problem:
            why = f"not done in {limit:g} s" if isinstance(problem, TimeoutError) else "the process died"
            for worker in list((pool._processes or {}).values()):
                worker.kill()
            pool.shutdown(wait=False, cancel_futures=True)
            pool = None
            yield failed(one, why)
    if pool:
        pool.shutdown()


def without_result(one: Asked, why: str) -> Row:
    return Row(short(one.model), one.dtype, failed=why)


HEADER = (
    "model", "dtype", "exported", "operators", "delegates", "outside", "mapped %", "unattributed %",
    "Other %", "first advice", "tracing adds %", "on SME2", "failed",
)  # fmt: skip


def cells(row: Row) -> tuple[str, ...]:
    numbers = (
        row.operators, row.delegates, row.outside, row.mapped_pct, row.unattributed_pct, row.other_pct,
    )  # fmt: skip
    failed = " ".join(row.failed.split()).replace("|", "/")
    return (
        *(row.model, row.dtype, "yes" if row.exported else "no"),
        *(MISSING if number is None else str(number) for number in numbers),
        row.top or MISSING,
        MISSING if row.traced_pct is None else f"{row.traced_pct:+}",
        row.sme2 or MISSING,
        failed if len(failed) <= 80 else f"{failed[:77]}...",
    )


def markdown(done: Sequence[Row]) -> str:
    table = [HEADER, tuple("---" for _ in HEADER), *map(cells, done)]
    return "".join(f"| {' | '.join(line)} |\n" for line in table)


def zoo() -> list[str]:
    files = (path for path in sorted(ZOO.glob("*.py")) if not path.name.startswith(NOT_MODELS))
    return [f"{path}:model" for path in files]


def each_of(model: str) -> list[str]:
    """`FILE.py:*` as the models that its `MODELS` lists."""
    file, _, factory = model.rpartition(":")
    if factory != "*":
        return [model]
    return [f"{file}:{make.__name__}" for make in runpy.run_path(file)["MODELS"]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "models",
        nargs="*",
        metavar="FILE.py:FACTORY",
        help="by default those of tests/zoo; FILE.py:* for all its MODELS",
    )
    parser.add_argument("--dtypes", default="fp32", help="number formats, separated by commas")
    parser.add_argument("--emulate", action="store_true", help="also under QEMU with SME2; small models only")
    parser.add_argument("--runs", type=int, default=20, help="inferences of each process")
    parser.add_argument("--rounds", type=int, default=6, help="processes for each model")
    parser.add_argument("--limit", type=float, default=1800, help="seconds for each model and dtype")
    parser.add_argument("--out", type=Path, default=Path("out_campaign"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    models = [each for given in options.models for each in each_of(given)] or zoo()
    dtypes = options.dtypes.split(",")
    asked = [
        Asked(model, dtype, options.emulate, options.runs, options.rounds, options.out.resolve())
        for model in models
        for dtype in dtypes
    ]
    done: list[Row] = []
    for row in each_apart(worked, asked, options.limit, without_result):
        done.append(row)
        print(
            f"{len(done)}/{len(asked)} {row.model} {row.dtype}: {row.top} {row.failed} ({row.seconds} s)",
            flush=True,
        )
        # Written after each: a campaign that is stopped keeps what it has.
        (options.out / "campaign.json").write_text(
            json.dumps([asdict(each) for each in done], indent=2) + "\n"
        )
        (options.out / "campaign.md").write_text(markdown(done))
    print(f"\n{markdown(done)}")
    return 1 if any(row.failed for row in done) else 0


if __name__ == "__main__":
    sys.exit(main())
