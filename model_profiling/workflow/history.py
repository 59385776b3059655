"""Loads the history of a model from a store: its latencies over all matching runs, series by series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from model_profiling.config import names
from model_profiling.core.errors import InputError
from model_profiling.core.formatting import did_you_mean, listing
from model_profiling.report.history import History, HistoryPoint, HistorySeries, SeriesKey, make_series
from model_profiling.runs.times import marked
from model_profiling.store.store import Store

_KEY = tuple(field.name for field in fields(SeriesKey))
_POINT = tuple(field.name for field in fields(HistoryPoint) if field.name != "at")
_ROWS = """
    SELECT r.run_id, r.name, coalesce(r.measured_at, r.added_at) AS measured_at, r.model, r.dtype, r.backend,
           r.device, r.device_name, r.is_arm, r.commit_hash AS "commit", r.branch, r.dirty, r.kit,
           r.executorch, r.runner_build, r.os, r.program_sha256, r.run_dir,
           e.experiment, e.threads, e.times, e.state, e.median_ms, e.low_ms, e.high_ms, t.tokens
    FROM runs r JOIN experiments e ON e.run_id = r.run_id
    LEFT JOIN tokens t ON t.run_id = e.run_id AND t.experiment = e.experiment AND t.threads = e.threads
    WHERE r.model = :model
"""
_MOST_NAMED = 8

Row = Mapping[str, Any]


def load_history(store: Store, model: str, **options: Any) -> History:
    """Return the latencies of a model over all matching runs, one history per series. A series never mixes
    devices, formats, experiments or thread counts. A model without runs of its own name stands for all its
    methods and inputs. The options are those of `sme2prof history`; None does not filter."""
    rows = store.rows(_ROWS, model=model)
    if not rows:
        rows = [row for name in _models_for(store, model) for row in store.rows(_ROWS, model=name)]
    rows.sort(key=lambda row: (row["measured_at"], row["run_id"]))
    given = {option: value for option, value in options.items() if value is not None}
    matching = [row for row in rows if all(_matches(row, *option) for option in given.items())]
    if not matching:
        named = " ".join(f"--{option} {value}" for option, value in given.items())
        what = f"leave out an option; `{store.command('list')}` shows what there is"
        raise InputError(f"no run of {model} has {named}", what)
    left_out = Counter(
        reason for _, reason in dict.fromkeys((row["run_id"], _reason(row)) for row in matching)
    )
    del left_out[""]
    return History(model, tuple(sorted(_series(matching), key=_order)), left_out)


def _models_for(store: Store, asked: str) -> list[str]:
    """Return the names in the store of the methods and inputs of the model `asked`."""
    stored = store.rows("SELECT DISTINCT model, method, inputs FROM runs ORDER BY model")
    if not stored:
        raise InputError(f"{store.address} holds no runs", f"add some: {store.command('add RUN_DIR')}")
    models = [
        row["model"]
        for row in stored
        if row["model"] == names.with_method(asked, row["method"], row["inputs"] or "")
    ]
    if not models:
        known = list(dict.fromkeys(row["model"] for row in stored))
        cure = did_you_mean(asked, known) or f"it has {listing(known[:_MOST_NAMED])}"
        raise InputError(f"{store.address} holds no run of '{asked}'", cure)
    return list(dict.fromkeys(models))


def _matches(row: Row, option: str, value: Any) -> bool:
    if option == "since":
        return bool(row["measured_at"] >= value)
    if option == "device":
        return value == row["device"] or value.lower() in row["device_name"].lower()
    return bool(row[option] == value)


def _reason(row: Row) -> str:
    """Why a row is left out; empty if it is not."""
    if row["state"] == "failed":
        return "the experiment failed"
    if row["median_ms"]:
        return ""
    return "no latency was measured" if row["times"] == "hardware" else f"times are {row['times']}"


def _series(rows: Sequence[Row]) -> Iterable[HistorySeries]:
    devices = {row["device"]: marked(row["device_name"] or row["device"], row["is_arm"]) for row in rows}
    series: dict[SeriesKey, list[HistoryPoint]] = {}
    for row in rows:
        if not _reason(row):
            key = SeriesKey(**{name: row[name] for name in _KEY} | {"device_name": devices[row["device"]]})
            point = HistoryPoint(at=row["measured_at"], **{name: row[name] for name in _POINT})
            series.setdefault(key, []).append(point)
    return [make_series(key, points) for key, points in series.items()]


def _order(series: HistorySeries) -> tuple[str, str, str, str, str, int]:
    key = series.key
    return key.device_name, key.device, key.dtype, key.backend, key.experiment, key.threads or 0
