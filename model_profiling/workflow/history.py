"""Queries on a store: histories of a model, and the content of the store's page."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from model_profiling.core.errors import InputError
from model_profiling.core.formatting import did_you_mean, listing
from model_profiling.core.safe_read import is_regular
from model_profiling.report.history import (
    SHORT_COMMIT,
    History,
    HistoryPoint,
    HistorySeries,
    LeftOut,
    SeriesKey,
    make_series,
)
from model_profiling.report.store_index import Kernels, StoreContents, StoredRun
from model_profiling.run import Times, names
from model_profiling.run.times import marked
from model_profiling.store.store import Store

# Histories: the runs of a model, series by series, and what changed between them.

_KEY = tuple(field.name for field in fields(SeriesKey))
_POINT = tuple(field.name for field in fields(HistoryPoint) if field.name != "at")
_TEXTS = [
    field.name
    for field in (*fields(SeriesKey), *fields(HistoryPoint))
    if field.type == "str" and field.name not in ("run_id", "experiment", "commit", "report")
]
"""What is known of a series and of a point is said by their records; these are the columns of a run."""
_ROWS = f"""
    SELECT r.run_id, coalesce(r.measured_at, r.added_at) AS moment_at, dirty, is_arm, e.experiment, e.threads,
           t.tokens, coalesce(r.method, '') AS method, coalesce(r.inputs, '') AS inputs,
           coalesce(e.times, 'unknown') AS times, e.state = 'failed' AS failed, e.median_ms,
           e.low_ms, e.high_ms, commit_hash, '' AS report,
           {", ".join(f"coalesce(r.{name}, '') AS {name}" for name in _TEXTS)}
    FROM runs r JOIN experiments e ON e.run_id = r.run_id
    LEFT JOIN tokens t ON t.run_id = r.run_id AND t.experiment = e.experiment AND t.threads = e.threads
    WHERE r.model = coalesce(:model, r.model) ORDER BY moment_at, r.run_id
"""  # noqa: S608  names of our own

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuestion:
    """Which history to load; None does not filter."""

    model: str
    dtype: str | None = None
    backend: str | None = None
    device: str | None = None
    """The store's name of the device, or part of its title."""
    experiment: str | None = None
    threads: int | None = None
    since: datetime | None = None


def load_history(store: Store, question: HistoryQuestion) -> History:
    """Return the latencies of a model over all matching runs, one history per series. A series never mixes
    devices, formats, experiments or thread counts. Runs before `since` are ignored. A model without runs of
    its own name stands for all its methods and inputs."""
    rows: list[Row] = list(_rows(store, question.model))
    rows = rows or [
        row
        for row in _rows(store)
        if row["model"] == names.with_method(question.model, row["method"], row["inputs"])
    ]
    if not rows:
        raise _no_such_model(store, question.model)
    asked = [row for row in rows if _fits(row, question)]
    if not asked:
        raise _nothing_fits(rows, question)
    series = sorted(_series(asked), key=_order)
    return History(question.model, tuple(series), tuple(_left_out(asked)))


def _rows(store: Store, model: str | None = None) -> list[dict[str, Any]]:
    return [{**row, "commit": row["commit_hash"]} for row in store.rows(_ROWS, model=model)]


def _fits(row: Row, question: HistoryQuestion) -> bool:
    exact = ("dtype", "backend", "experiment", "threads")
    if any(getattr(question, name) not in (None, row[name]) for name in exact):
        return False
    device = question.device
    if device is not None and device != row["device"] and device.lower() not in row["device_name"].lower():
        return False
    return question.since is None or row["moment_at"] >= question.since


def _series(rows: Sequence[Row]) -> Iterable[HistorySeries]:
    found: defaultdict[SeriesKey, list[HistoryPoint]] = defaultdict(list)
    words = {row["device"]: marked(row["device_name"] or row["device"], row["is_arm"]) for row in rows}
    for row in rows:
        if row["median_ms"] is None or row["failed"]:
            continue
        key = SeriesKey(**{name: row[name] for name in _KEY} | {"device_name": words[row["device"]]})
        found[key].append(HistoryPoint(at=row["moment_at"], **{name: row[name] for name in _POINT}))
    return [make_series(key, points) for key, points in found.items()]


def _order(series: HistorySeries) -> tuple[str, ...]:
    key = series.key
    return key.device_name, key.device, key.dtype, key.backend, key.experiment, f"{key.threads or 0:06}"


def _left_out(rows: Iterable[Row]) -> Iterable[LeftOut]:
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
        return InputError(f"{store.address} holds no runs", f"add some: {store.command('add RUN_DIR')}")
    return InputError(
        f"{store.address} holds no run of '{model}'",
        did_you_mean(model, known) or f"it has {listing(_some(known))}",
    )


def _nothing_fits(rows: Iterable[Row], question: HistoryQuestion) -> InputError:
    """Name the first option that no run of the model matches."""
    rows = list(rows)
    for name in ("dtype", "backend", "device", "experiment", "threads", "since"):
        value = getattr(question, name)
        if value is None:
            continue
        alone = HistoryQuestion(model=question.model, **{name: value})
        if not any(_fits(row, alone) for row in rows):
            there = sorted({str(row["moment_at" if name == "since" else name]) for row in rows})
            cure = (
                f"the newest is of {there[-1][:10]}" if name == "since" else f"known: {listing(_some(there))}"
            )
            shown = f"{value:%Y-%m-%d}" if isinstance(value, datetime) else value
            return InputError(f"no run of {question.model} has --{name} {shown}", cure)
    return InputError(f"no run of {question.model} matches all options", "leave out one of them")


def _some(words: list[str], most: int = 8) -> list[str]:
    shown = [word or "(unknown)" for word in words]
    return shown if len(shown) <= most else [*shown[:most], f"{len(shown) - most} more"]


# The page of a store: runs, their latencies over time, and where these changed.

_INDEX_TEXTS = (
    "model", "dtype", "backend", "device", "device_name", "times", "state", "commit_hash", "branch",
    "run_dir",
)  # fmt: skip
_RUNS = f"""
    SELECT run_id, coalesce(measured_at, added_at) AS moment_at, dirty, has_sme2, is_arm, tags, kernels,
           {", ".join(f"coalesce({name}, '') AS {name}" for name in _INDEX_TEXTS)}
    FROM runs ORDER BY moment_at, run_id"""  # noqa: S608  names of our own
_SPOKEN_ORDER = """
    SELECT run_id, experiment, threads FROM experiments
    ORDER BY run_id, coalesce(sme2, TRUE) DESC, length(CAST(disabled AS TEXT)), threads, experiment"""
"""Order of series for display: SME2 on first, then fewest disabled features, then fewest threads."""


def store_contents(store: Store, home: Path) -> StoreContents:
    """Return everything the page needs; links to reports are relative to `home`."""
    runs, spoken = store.rows(_RUNS), store.rows(_SPOKEN_ORDER)
    named = _device_names(runs)
    found = [
        replace(series, key=replace(series.key, device_name=named[series.key.device]))
        for series in sorted(_series(_rows(store)), key=_order)
    ]
    whole = home.resolve()
    return StoreContents(
        name=Path(store.address).name,
        runs=tuple(
            _run(
                row,
                named[row["device"]],
                tuple(sorted(row["tags"])),
                _proof(row["kernels"]),
                _report(Path(row["run_dir"]), whole),
            )
            for row in runs
        ),
        histories=tuple(found),
        headlines=frozenset(_headlines(found, spoken)),
        command=f"For all of it: sme2prof query and sme2prof history, with --store {store.address}.",
    )


def _device_names(runs: Sequence[Row]) -> dict[str, str]:
    """Return a title for each device, marked if it is not Arm; its own name if titles are not unique, or if
    it is emulated."""
    words: dict[str, str] = {
        row["device"]: row["device"] if _times(row) is Times.EMULATED else row["device_name"] or row["device"]
        for row in runs
    }
    taken = list(words.values())
    is_arm = {row["device"]: row["is_arm"] for row in runs}
    return {
        device: marked(device if taken.count(name) > 1 else name, is_arm[device])
        for device, name in words.items()
    }


def _run(row: Row, device: str, tags: tuple[str, ...], proof: Row | None, told: tuple[str, str]) -> StoredRun:
    report, why = told
    return StoredRun(
        id=row["run_id"],
        at=row["moment_at"],
        model=row["model"],
        format=f"{names.spoken_backend(row['backend'])} {row['dtype']}".strip(),
        device=device,
        times=_times(row),
        state=row["state"] or "unknown",
        kernels=_kernels(row, proof),
        commit=row["commit_hash"] and f"{row['commit_hash'][:SHORT_COMMIT]}{'+' if row['dirty'] else ''}",
        branch=row["branch"],
        tags=tags,
        report=report,
        no_report=why,
    )


def _times(run: Row) -> Times:
    """Treat anything unknown as unknown, never as hardware."""
    return Times(run["times"]) if run["times"] in {each.value for each in Times} else Times.UNKNOWN


def _proof(kernels: Sequence[Row]) -> Row | None:
    ran = [kernel for kernel in kernels if kernel["evidence"] == "executed" and kernel["role"] != "packing"]
    if not kernels:
        return None
    return {
        "here": any(kernel["is_sme2"] and kernel["proven_by"] == "run" for kernel in ran),
        "kept": any(kernel["is_sme2"] and kernel["proven_by"] == "evidence" for kernel in ran),
        "sme": any(kernel["is_sme"] for kernel in ran),
        "looked": any(
            kernel["library"] != "operator" or (kernel["role"] == "matmul" and kernel["is_sme"] is False)
            for kernel in ran
        ),
    }


def _kernels(run: Row, proof: Row | None) -> Kernels:
    """Absence proves something only if the CPU has SME2 and its kernels were listed."""
    if proof is None:
        return Kernels.NOT_TESTED
    if proof["here"]:
        return Kernels.RAN_EMULATED if _times(run) is Times.EMULATED else Kernels.RAN
    if proof["kept"]:
        return Kernels.RAN_EMULATED
    if proof["sme"]:
        return Kernels.SME_RAN
    return Kernels.NONE_RAN if run["has_sme2"] and proof["looked"] else Kernels.NOT_TESTED


def _report(folder: Path, home: Path) -> tuple[str, str]:
    if not folder.is_dir():
        return "", "its run directory is missing"
    for name in (Path(names.REPORT).with_suffix(names.HTML).name, names.REPORT):
        if is_regular(folder / name):
            return Path(os.path.relpath(folder / name, home)).as_posix(), ""
    return "", "it has no report"


def _headlines(found: Iterable[HistorySeries], spoken: Iterable[Row]) -> set[SeriesKey]:
    """Return, for each model, format and device, the series that its newest run shows first."""
    order = {(row["run_id"], row["experiment"], row["threads"]): place for place, row in enumerate(spoken)}
    best: dict[tuple[str, ...], tuple[datetime, str, int, SeriesKey]] = {}
    for series in found:
        key, newest = series.key, series.points[-1]
        place = order.get((newest.run_id, key.experiment, key.threads), len(order))
        mine = (newest.at, newest.run_id, -place, key)
        told = (key.model, key.dtype, key.backend, key.device)
        if told not in best or mine[:3] > best[told][:3]:
            best[told] = mine
    return {key for *_, key in best.values()}
