"""What the page of a store shows, asked from the store: runs, each latency over them, where it changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from model_profiling.reading import is_regular
from model_profiling.report.history import SHORT_COMMIT, HistorySeries, SeriesKey
from model_profiling.report.store_index import (
    Change,
    Kernels,
    Mark,
    Method,
    Point,
    SeriesHistory,
    StoreContents,
    StoredRun,
)
from model_profiling.run import Times, names
from model_profiling.statistics.change_points import FEWEST_RUNS, ChangePoint
from model_profiling.store.address import is_remote
from model_profiling.store.connection import rows_of
from model_profiling.store.opened import Store
from model_profiling.store.places import Places
from model_profiling.workflow.history import every_series

_Row = Mapping[str, Any]

_TEXTS = (
    "model", "dtype", "backend", "device", "device_name", "times", "state", "commit", "branch", "run_dir",
    "run_dir_from_store",
)  # fmt: skip
_RUNS = f"""
    SELECT run_id, coalesce(measured_at, added_at) AS moment, measured_at, dirty, has_sme2,
           {", ".join(f"coalesce({name}, '') AS {name}" for name in _TEXTS)}
    FROM runs ORDER BY moment, run_id"""  # noqa: S608  names of our own
_TAGS = "SELECT run_id, list(tag ORDER BY tag) AS tags FROM tags GROUP BY run_id"
_SPOKEN_ORDER = """
    SELECT run_id, experiment, threads FROM experiments
    ORDER BY run_id, sme2 IS NOT DISTINCT FROM false, len(disabled), threads, experiment"""
"""Sorts series by which is spoken of first: SME2 left on, most of what the CPU has, few threads."""
_KERNELS = """
    SELECT run_id,
           bool_or(ran AND is_sme2 AND proven_by = 'run') AS here,
           bool_or(ran AND is_sme2 AND proven_by = 'evidence') AS kept,
           bool_or(ran AND is_sme) AS sme,
           bool_or(ran AND sme2 IS NOT FALSE
                   AND (library <> 'operator' OR (kernel_role = 'matmul' AND is_sme = false))) AS looked
    FROM (SELECT k.run_id, k.is_sme2, k.is_sme, k.proven_by, k.library, k.role AS kernel_role, e.sme2,
                 k.evidence = 'executed' AND k.role <> 'packing' AS ran
          FROM kernels k LEFT JOIN experiments e USING (run_id, experiment, threads))
    GROUP BY run_id"""


def store_contents(store: Store, home: Path) -> StoreContents:
    """Everything that the page needs; links to reports are relative to `home`."""
    with store.connection() as made:
        runs, tags, spoken, kernels = (rows_of(made, sql) for sql in (_RUNS, _TAGS, _SPOKEN_ORDER, _KERNELS))
    tagged = {row["run_id"]: tuple(row["tags"]) for row in tags}
    proofs = {row["run_id"]: row for row in kernels}
    named = _device_names(runs)
    found = every_series(store)
    first = _headlines(found, spoken)
    places, whole = Places(store.root), home.resolve()
    return StoreContents(
        name=store.address.rstrip("/").rpartition("/")[2] if is_remote(store.address) else store.root.name,
        runs=tuple(
            _run(
                row,
                named[row["device"]],
                tagged.get(row["run_id"], ()),
                proofs.get(row["run_id"]),
                _report(places.find(row["run_dir"], row["run_dir_from_store"], row["measured_at"]), whole),
            )
            for row in runs
        ),
        histories=tuple(_history(series, named[series.key.device], series.key in first) for series in found),
        method=Method(FEWEST_RUNS, sum(series.found.false_alarms for series in found if series.key in first)),
        command=f"For all of it: sme2prof query and sme2prof history, with --store {store.address}.",
    )


def _device_names(runs: Iterable[_Row]) -> dict[str, str]:
    """Each device in words; by its own name where several are told in the same words, and where it is only
    emulated, of which the words tell who emulated what."""
    words: dict[str, str] = {
        row["device"]: row["device"] if _times(row) is Times.EMULATED else row["device_name"] or row["device"]
        for row in runs
    }
    taken = list(words.values())
    return {device: device if taken.count(name) > 1 else name for device, name in words.items()}


def _run(
    row: _Row, device: str, tags: tuple[str, ...], proof: _Row | None, told: tuple[str, str]
) -> StoredRun:
    report, why = told
    return StoredRun(
        id=row["run_id"],
        measured=row["moment"].isoformat(timespec="seconds"),
        model=row["model"],
        format=_format(row["backend"], row["dtype"]),
        device=device,
        times=_times(row),
        state=row["state"] or "unknown",
        kernels=_kernels(row, proof),
        commit=f"{row['commit'][:SHORT_COMMIT]}{'+' if row['dirty'] else ''}" if row["commit"] else "",
        branch=row["branch"],
        tags=tags,
        report=report,
        no_report=why,
    )


def _times(run: _Row) -> Times:
    """Unknown is never hardware."""
    return Times(run["times"]) if run["times"] in {each.value for each in Times} else Times.UNKNOWN


def _kernels(run: _Row, proof: _Row | None) -> Kernels:
    """Absence is a proof only where the CPU could have run some, and what it ran was listed."""
    if proof is None:
        return Kernels.NOT_TESTED
    if proof["here"]:
        return Kernels.RAN_EMULATED if _times(run) is Times.EMULATED else Kernels.RAN
    if proof["kept"]:
        return Kernels.RAN_EMULATED
    if proof["sme"]:
        return Kernels.SME_RAN
    return Kernels.NONE_RAN if run["has_sme2"] and proof["looked"] else Kernels.NOT_TESTED


def _report(folder: Path | None, home: Path) -> tuple[str, str]:
    """A link to the report of the run in `folder`, else why there is none."""
    if folder is None:
        return "", "its run directory is not there"
    for name in (Path(names.REPORT).with_suffix(names.HTML).name, names.REPORT):
        if is_regular(folder / name):
            return Path(os.path.relpath(folder / name, home)).as_posix(), ""
    return "", "no report was made of it"


def _headlines(found: Iterable[HistorySeries], spoken: Iterable[_Row]) -> set[SeriesKey]:
    """Of each model, format and device the series that its newest run speaks of first."""
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


def _history(series: HistorySeries, device: str, headline: bool) -> SeriesHistory:
    """What a page shows of it."""
    key, points, found = series.key, series.points, series.found
    return SeriesHistory(
        model=key.model,
        format=_format(key.backend, key.dtype),
        device=device,
        experiment=key.experiment,
        threads=key.threads or 0,
        points=tuple(Point(point.run_id, point.median_ms, point.low_ms, point.high_ms) for point in points),
        changes=tuple(_change(series, change) for change in found.changes),
        marks=tuple(Mark(points[mark.first].run_id, mark.text) for mark in series.marks),
        headline=headline,
        judged=not found.too_few,
    )


def _change(series: HistorySeries, change: ChangePoint) -> Change:
    return Change(
        run=series.points[change.first].run_id,
        before_ms=change.before,
        after_ms=change.after,
        share=change.change,
        also=tuple(mark.text for mark in series.marks_at(change)),
        until=series.points[change.latest].run_id if change.drift else "",
    )


def _format(backend: str, dtype: str) -> str:
    return f"{backend} {dtype}".strip()
