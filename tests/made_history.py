"""A store whose runs were never measured: one model on two devices over months, with steps that are known.

Rows go into the store's own tables; only the run directories are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from model_profiling.store.store import Store
from model_profiling.store.tables import IN_DATABASE, TABLES

BEGIN = datetime(2026, 3, 2, 4)


@dataclass(frozen=True)
class Made:
    """Runs of one series; `steps` are relative, by the run from which on they hold."""

    runs: int
    ms: float = 4.0
    steps: dict[int, float] = field(default_factory=dict)
    noise: float = 0.01
    experiment: str = "linux_baseline"
    threads: int = 1
    times: str = "hardware"
    run: dict[str, Any] = field(default_factory=dict)
    """Columns of `runs` that are not as usual."""
    newer: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The same, from a run on."""


def made_store(address: Path | str, series: Sequence[Made], seed: int = 1) -> Store:
    store = Store.open(address, make=True)
    chance = np.random.default_rng(seed)
    tables: dict[str, list[dict[str, Any]]] = {"runs": [], "experiments": []}
    for number, made in enumerate(series):
        about: dict[str, Any] = {
            "model": "toy_cnn", "dtype": "fp16", "backend": "xnnpack", "device": "neoverse-n1-2",
            "device_name": "Neoverse-N1, 2 cores", "times": made.times, "state": "finished",
            "executorch": "1.5.0", "kit": "0.2.0", "branch": "main", **made.run,
        }  # fmt: skip
        level = made.ms
        for place in range(made.runs):
            level *= 1 + made.steps.get(place, 0.0)
            about |= made.newer.get(place, {})
            run_id = f"{number:02}{place:04}".ljust(32, "a")
            at = BEGIN + timedelta(days=place, minutes=number)
            commit = sha256(b"%d" % place).hexdigest()[:40]
            moments = {"measured_at": at, "added_at": at}
            run = {"run_id": run_id, "name": f"toy_cnn/{place}", "commit_hash": commit, **moments, **about}
            tables["runs"].append(_row("runs", run))
            median = level * float(np.exp(made.noise * chance.normal())) if made.times == "hardware" else None
            experiment = {
                "run_id": run_id, "experiment": made.experiment, "threads": made.threads,
                "times": made.times, "state": "done", "rounds": 6, "median_ms": median,
                "low_ms": median and median * 0.995, "high_ms": median and median * 1.005,
            }  # fmt: skip
            tables["experiments"].append(_row("experiments", experiment))
    with store.database.writing() as connection:
        for name, rows in tables.items():
            connection.execute(IN_DATABASE[name].insert(), rows)
    return store


def _row(table: str, values: dict[str, Any]) -> dict[str, Any]:
    columns = TABLES[table].columns
    assert not set(values) - {column.name for column in columns}
    return {column.name: "" if column.kind == "text" else None for column in columns} | values
