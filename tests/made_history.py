"""A store whose runs were never measured: one model on two devices over months, with steps that are known.

Rows go through the store's own writing; only the run directories are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path

import numpy as np

from model_profiling.store.store import Store
from model_profiling.store.tables import IN_DATABASE, TABLES

Value = object
Row = dict[str, Value]

BEGIN = datetime(2026, 3, 2, 4, tzinfo=timezone.utc)
_KINDS: dict[str, Value] = {"text": "", "texts": [], "record": []}


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
    run: dict[str, Value] = field(default_factory=dict)
    """Columns of `runs` that are not as usual."""
    newer: dict[int, dict[str, Value]] = field(default_factory=dict)
    """The same, from a run on."""


def made_store(folder: Path, series: Sequence[Made], seed: int = 1) -> Store:
    store = Store.open(folder, make=True)
    chance = np.random.default_rng(seed)
    rows: dict[str, list[Row]] = {"runs": [], "experiments": []}
    for number, made in enumerate(series):
        about: dict[str, Value] = {
            "model": "toy_cnn", "dtype": "fp16", "backend": "xnnpack", "device": "neoverse-n1-2",
            "device_name": "Neoverse-N1, 2 cores", "times": made.times, "state": "finished",
            "executorch": "1.5.0", "kit": "0.2.0", "branch": "main", **made.run,
        }  # fmt: skip
        level = made.ms
        for place in range(made.runs):
            level *= 1 + made.steps.get(place, 0.0)
            about |= made.newer.get(place, {})
            name = f"{number:02}{place:04}".ljust(32, "a")
            at = BEGIN + timedelta(days=place, minutes=number)
            moment = at.replace(tzinfo=None)
            commit = sha256(b"%d" % place).hexdigest()[:40]
            told = {"run_id": name, "measured_at": moment, "added_at": moment, "commit_hash": commit, **about}
            own = {"name": f"toy_cnn/{place}", "processes": 1, "tags": {}}
            rows["runs"].append(_row("runs", own | told))
            median = level * float(np.exp(made.noise * chance.normal())) if made.times == "hardware" else None
            about_it: dict[str, Value] = {
                "run_id": name, "experiment": made.experiment, "threads": made.threads, "times": made.times,
                "state": "done", "rounds": 6, "median_ms": median,
            }  # fmt: skip
            if median:
                about_it |= {"low_ms": median * 0.995, "high_ms": median * 1.005}
            rows["experiments"].append(_row("experiments", about_it))
    with store.database.writing() as connection:
        for name, told in rows.items():
            connection.execute(IN_DATABASE[name].insert(), told)
    return store


def _row(table: str, values: dict[str, Value]) -> Row:
    columns = TABLES[table].columns
    assert not set(values) - {column.name for column in columns}
    return {column.name: values.get(column.name, _KINDS.get(column.kind)) for column in columns}
