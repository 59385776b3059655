"""Histories asked from a store: the runs of a model, series by series, with what changed on the way."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from model_profiling.errors import InputError
from model_profiling.report.history import (
    History,
    HistoryPoint,
    HistorySeries,
    LeftOut,
    SeriesKey,
    make_series,
)
from model_profiling.store.address import store_command
from model_profiling.store.opened import Store
from model_profiling.wording import did_you_mean, listing

_TEXTS = (
    "name", "model", "dtype", "backend", "device", "device_name", "commit", "branch", "kit", "executorch",
    "runner_build", "os", "program_sha256", "run_dir", "report",
)  # fmt: skip
_ROWS = f"""
    SELECT run_id, coalesce(r.measured_at, r.added_at) AS moment, dirty, e.experiment, e.threads,
           coalesce(e.times, 'unknown') AS times, e.state = 'failed' AS failed,
           CASE WHEN e.median_ms > 0 AND isfinite(e.median_ms) THEN e.median_ms END AS median_ms,
           CASE WHEN isfinite(e.low_ms) AND isfinite(e.high_ms) THEN e.low_ms END AS low_ms,
           CASE WHEN isfinite(e.low_ms) AND isfinite(e.high_ms) THEN e.high_ms END AS high_ms,
           {", ".join(f"coalesce(r.{name}, '') AS {name}" for name in _TEXTS)}
    FROM runs r JOIN experiments e USING (run_id)
    WHERE r.model = coalesce(?, r.model) ORDER BY moment, run_id
"""  # noqa: S608  names of our own

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuestion:
    """Which history; what is None is not asked for."""

    model: str
    dtype: str | None = None
    backend: str | None = None
    device: str | None = None
    """The device as the store calls it, or a part of its name in words."""
    experiment: str | None = None
    threads: int | None = None
    since: datetime | None = None


def load_history(store: Store, question: HistoryQuestion) -> History:
    """The latencies of a model over all runs that fit, each series by itself.

    What a series is never mixes devices, formats, experiments or thread counts. Runs before `since` are not
    looked at: the history begins there.
    """
    rows: list[Row] = list(store.rows(_ROWS, [question.model]))
    if not rows:
        raise _no_such_model(store, question.model)
    asked = [row for row in rows if _fits(row, question)]
    if not asked:
        raise _nothing_fits(rows, question)
    series = sorted(_series(asked), key=_order)
    return History(question.model, tuple(series), tuple(_left_out(asked)))


def every_series(store: Store) -> list[HistorySeries]:
    """Of every model, as `load_history` tells each."""
    return sorted(_series(store.rows(_ROWS, [None])), key=_order)


def _fits(row: Row, question: HistoryQuestion) -> bool:
    exact = ("dtype", "backend", "experiment", "threads")
    if any(getattr(question, name) not in (None, row[name]) for name in exact):
        return False
    device = question.device
    if device is not None and device != row["device"] and device.lower() not in row["device_name"].lower():
        return False
    return question.since is None or row["moment"] >= question.since


def _series(rows: Iterable[Row]) -> Iterable[HistorySeries]:
    found: defaultdict[SeriesKey, list[HistoryPoint]] = defaultdict(list)
    words: dict[str, str] = {}
    for row in rows:
        words[row["device"]] = row["device_name"] or row["device"]
    for row in rows:
        if row["median_ms"] is None or row["failed"]:
            continue
        key = SeriesKey(
            row["model"],
            row["dtype"],
            row["backend"],
            row["device"],
            words[row["device"]],
            row["experiment"],
            row["threads"],
        )
        found[key].append(_point(row))
    return [make_series(key, points) for key, points in found.items()]


def _point(row: Row) -> HistoryPoint:
    same = ("run_id", "name", "median_ms", "low_ms", "high_ms", "commit", "branch", "dirty", "kit")
    more = ("executorch", "runner_build", "os", "program_sha256", "run_dir", "report")
    return HistoryPoint(at=row["moment"], **{name: row[name] for name in (*same, *more)})


def _order(series: HistorySeries) -> tuple[str, ...]:
    key = series.key
    return key.device_name, key.device, key.dtype, key.backend, key.experiment, f"{key.threads or 0:06}"


def _left_out(rows: Iterable[Row]) -> Iterable[LeftOut]:
    """Runs that have no latency, by reason."""
    reasons: Counter[str] = Counter()
    for row in {(row["run_id"], _reason(row)): row for row in rows}.values():
        reasons[_reason(row)] += 1
    return [LeftOut(reason, count) for reason, count in reasons.items() if reason]


def _reason(row: Row) -> str:
    if row["failed"]:
        return "the experiment failed"
    if row["median_ms"] is None:
        return "no latency was measured" if row["times"] == "hardware" else f"times are {row['times']}"
    return ""


def _no_such_model(store: Store, model: str) -> InputError:
    known = [row["model"] for row in store.rows("SELECT DISTINCT model FROM runs ORDER BY model")]
    if not known:
        return InputError(
            f"{store.address} holds no runs", f"add some: {store_command('add RUN_DIR', store.address)}"
        )
    return InputError(
        f"{store.address} holds no run of '{model}'",
        did_you_mean(model, known) or f"it has {listing(_some(known))}",
    )


def _nothing_fits(rows: Iterable[Row], question: HistoryQuestion) -> InputError:
    """Which word it is that no run of the model fits."""
    rows = list(rows)
    for name in ("dtype", "backend", "device", "experiment", "threads", "since"):
        value = getattr(question, name)
        if value is None:
            continue
        alone = HistoryQuestion(model=question.model, **{name: value})
        if not any(_fits(row, alone) for row in rows):
            there = sorted({str(row["moment" if name == "since" else name]) for row in rows})
            cure = (
                f"the last is of {there[-1][:10]}" if name == "since" else f"known: {listing(_some(there))}"
            )
            shown = f"{value:%Y-%m-%d}" if isinstance(value, datetime) else value
            return InputError(f"no run of {question.model} has --{name} {shown}", cure)
    return InputError(f"no run of {question.model} has all of that", "leave out one of the options")


def _some(words: list[str], most: int = 8) -> list[str]:
    shown = [word or "(not known)" for word in words]
    return shown if len(shown) <= most else [*shown[:most], f"{len(shown) - most} more"]
