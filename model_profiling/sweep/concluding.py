"""What is made of a sweep when its measuring is over: its pages, and its runs in the store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from model_profiling.errors import SetupError
from model_profiling.extras import needed
from model_profiling.progress import Progress, Silent
from model_profiling.store.adding import Added
from model_profiling.store.opened import Store
from model_profiling.sweep.publishing import add_to_store
from model_profiling.sweep.records import SweepRecord
from model_profiling.sweep.report import Found, run_dirs, write_sweep_report


@dataclass(frozen=True, slots=True)
class Concluded:
    """`added` is None where no store was wanted, or nothing was measured that could be added."""

    report: Path
    found: Found
    store: str | None = None
    added: Added | None = None


def check_store(address: str | None) -> Store:
    """The store that the runs of a sweep will be added to, made where there is none: nobody wants to hear
    after hours of measuring that it cannot be written."""
    for module in ("duckdb", "pyarrow"):
        try:
            needed(module, "store")
        except SetupError as problem:
            raise SetupError(problem.problem, f"{problem.fix}, or give --no-store") from problem
    return Store.open(address, make=True)


def conclude(
    folder: Path, record: SweepRecord, store: Store | None, progress: Progress | None = None
) -> Concluded:
    """Write the pages of the sweep in `folder` and add its runs to `store`, where one is wanted; those that
    are there already are not added twice."""
    progress = progress or Silent()
    report, found = write_sweep_report(folder, record, progress)
    runs = run_dirs(folder, record)
    if store is None or not runs:
        return Concluded(report, found)
    progress.stage("adding the runs to the store")
    return Concluded(report, found, store.address, add_to_store(store, runs, record.name, progress))
