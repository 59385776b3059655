"""The runs of a store in short, the newest first."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from model_profiling.store.opened import Store

_RUNS = """
    SELECT run_id, name, measured_at, added_at, model, dtype, backend, device, device_name, platform, times,
           state, commit, branch, dirty, sweep, run_dir,
           (SELECT list(tag ORDER BY tag) FROM tags WHERE tags.run_id = runs.run_id) AS tags,
           (SELECT min(median_ms) FROM experiments WHERE experiments.run_id = runs.run_id) AS median_ms,
           count(*) OVER () AS matching
    FROM runs
    WHERE ($1 IS NULL OR model = $1) AND ($2 IS NULL OR device = $2)
      AND ($3 IS NULL OR run_id IN (SELECT run_id FROM tags WHERE tag = $3))
    ORDER BY coalesce(measured_at, added_at) DESC, run_id LIMIT $4
"""


@dataclass(frozen=True, slots=True)
class ListedRun:
    run_id: str
    name: str
    measured_at: datetime | None
    added_at: datetime
    model: str
    dtype: str
    backend: str
    device: str
    device_name: str
    platform: str
    times: str
    state: str
    commit: str
    branch: str
    dirty: bool | None
    sweep: str
    run_dir: str
    tags: tuple[str, ...]
    median_ms: float | None
    """Of its fastest experiment; None where times are no latencies."""


@dataclass(frozen=True, slots=True)
class Listing:
    runs: tuple[ListedRun, ...]
    matching: int
    """How many there are, of which `runs` are the newest."""


def listed_runs(
    store: Store,
    *,
    model: str | None = None,
    device: str | None = None,
    tag: str | None = None,
    last: int = 50,
) -> Listing:
    """The newest runs that fit."""
    rows = store.rows(_RUNS, [model, device, tag, last])
    matching = int(rows[0]["matching"]) if rows else 0
    found = []
    for row in rows:
        told = {name: value for name, value in row.items() if name != "matching"}
        found.append(ListedRun(**{**told, "tags": tuple(row["tags"] or ())}))
    return Listing(tuple(found), matching)
