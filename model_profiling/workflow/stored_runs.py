"""Runs of a store as the baseline of another run, and as the history of a model.

A baseline has the same model, dtype, backend and device as the judged run, and is never that run itself. Its
program may differ: that is the change to judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.errors import InputError
from model_profiling.core.files import StrPath, as_path
from model_profiling.core.formatting import did_you_mean, listing
from model_profiling.report.comparison import Comparison, SideFacts
from model_profiling.report.history import POINT, History, HistoryPoint, HistorySeries, SeriesKey, make_series
from model_profiling.runs import Run, Times
from model_profiling.runs.folders import only_run_in
from model_profiling.runs.times import Origin, Timed, marked
from model_profiling.statistics.measure import Rule
from model_profiling.store.labels import Labels
from model_profiling.store.run_rows import run_row
from model_profiling.store.store import FEWEST_LETTERS, Store
from model_profiling.workflow.compare import (
    Measurement,
    MeasurementSeries,
    asked_gates,
    compare_sides,
    load_measurement,
)

Row = Mapping[str, Any]  # the columns are in `store/tables.py`
PREFIX = "store:"
LAST_GOOD = "last-good"
BAD = "bad"
_MOST_NAMED = 8
_VARIANT = ("model", "dtype", "backend")


def judged_run(run_dir: StrPath, device: str | None = None) -> Row:
    """Read the run in `run_dir` as its row in the store; `device` is the store's name for this machine."""
    path = as_path(run_dir)
    run = Run.open(path.parent if path.name in (names.METRICS, names.MANIFEST) else only_run_in(path))
    return {**run_row(run, Labels(device=device)), "run_dir": run.path}


def baseline_word(against: str) -> str:
    """Return the part after `store:`."""
    word = against.removeprefix(PREFIX)
    if word == against or not word or not word.isprintable():
        raise InputError(
            f"{against!r} is not a baseline",
            f"name a run of the store: {PREFIX}{LAST_GOOD}, {PREFIX}TAG, {PREFIX}NAME or {PREFIX}RUN_ID",
        )
    return word


_OTHERS = """
    SELECT run_id, name, measured_at, added_at, model, dtype, backend, device, device_name, times, state,
           tags, commit_hash
    FROM runs WHERE run_id <> :run_id
    ORDER BY coalesce(measured_at, added_at) DESC, added_at DESC, run_id
"""
"""The newest first, without the judged run itself."""


def find_baseline(store: Store, word: str, judged: Row, *, across_machines: bool = False) -> Row:
    """Return the row of the run that `word` means for `judged`, or raise an error that says what to do."""
    others = store.rows(_OTHERS, run_id=judged["run_id"])
    by_id = [row for row in others if len(word) >= FEWEST_LETTERS and row["run_id"].startswith(word)]
    if len(by_id) > 1:
        raise InputError(f"{len(by_id)} runs have an id that begins with {word}", "give more of the run's id")
    if word == LAST_GOOD:
        named = [row for row in others if row["state"] == "finished" and BAD not in row["tags"]]
    else:
        named = by_id or [row for row in others if word in row["tags"] or row["name"] == word]
    if not named and word != LAST_GOOD:
        words = {LAST_GOOD, *(name for row in others for name in (row["name"], *row["tags"]))}
        raise InputError(
            f"no other run in {store.address} has the tag, the name or the id {word!r}",
            f"{did_you_mean(word, sorted(words))} see: {store.command('list')}".lstrip(),
        )
    same = [row for row in named if by_id or all(row[name] == judged[name] for name in _VARIANT)]
    emulated = Times.EMULATED.value
    similar = [row for row in same if (row["times"] == emulated) == (judged["times"] == emulated)]
    here = similar if across_machines else [row for row in same if row["device"] == judged["device"]]
    if not here:
        devices = list(dict.fromkeys(str(row["device_name"]) for row in same))[:_MOST_NAMED]
        where = f" on {judged['device_name']}: there are some of {listing(devices)}" if same else ""
        across = "compare the machines with --across-machines, or " if similar else ""
        raise InputError(
            f"{store.address} has no other run {word!r} of {judged['model']}{where}",
            f"{across}add one that is good: {store.command('add RUN_DIR')}",
        )
    return here[0]


def compare_with_baseline(
    b: StrPath,
    baseline: str = LAST_GOOD,
    *,
    store: Store,
    limit: float | None = None,
    across_machines: bool = False,
    device: str | None = None,
) -> Comparison:
    """Judge the latencies of the run in `b` against those of one of `store`, with the same statistics as any
    two runs. A store has no operator times of every round and no events: only latencies are compared."""
    asked_gates(limit)
    judged = judged_run(b, device)
    row = find_baseline(store, baseline, judged, across_machines=across_machines)
    measured = row["measured_at"] or row["added_at"]
    parts = [row["run_id"][:12], row["name"], f"{measured:%Y-%m-%d %H:%M}" if measured else ""]
    parts += [f"commit {row['commit_hash'][:12]}"] if row["commit_hash"] else []
    return compare_sides(
        stored_side(store, row["run_id"], f"{PREFIX}{baseline} ({', '.join(filter(None, parts))})"),
        load_measurement(judged["run_dir"]),
        limit=limit,
        across_machines=across_machines,
    )


def stored_side(store: Store, run_id: str, name: str) -> Measurement:
    """The latencies of a stored run, round by round; `name` is what the user called it."""
    (run,) = store.rows("SELECT * FROM runs WHERE run_id = :run_id", run_id=run_id)
    experiments = store.rows("SELECT * FROM experiments WHERE run_id = :run_id", run_id=run_id)
    facts = SideFacts(
        name=name,
        model="",
        model_sha256=run["program_sha256"],
        platform=run["platform"],
        cpu=run["cpu"],
        executorch=run["executorch"],
        runner_build=run["runner_build"],
        times=Times(run["times"]),
        is_arm=run["is_arm"],
    )
    return Measurement(facts, None, tuple(_stored_series(run, row) for row in experiments))


def _stored_series(run: Row, row: Row) -> MeasurementSeries:
    series = Series(row["experiment"], row["threads"])
    origin = Origin(
        name=str(series),
        times=Times(row["times"]),
        threads=series.threads,
        cpu=run["cpu"],
        program=run["program_sha256"],
        disabled=tuple(row["disabled"]),
        sme2=row["sme2"],
        method=run["method"],
        fed=run["inputs"],
        tokens=row["tokens"],
        position=row["position"],
    )
    rule = Rule(row["measured"] or "wall time, unchecked")
    return MeasurementSeries(series, origin, Timed(row["latencies_ms"], rule=rule))


# The history of a model: its latencies over all matching runs, series by series.

_POINT = tuple(name for name in POINT if name != "at")
_KEY = tuple(field.name for field in fields(SeriesKey) if field.name != "device_name")
_HISTORY = """
    SELECT r.run_id, r.name, coalesce(r.measured_at, r.added_at) AS measured_at, r.model, r.dtype, r.backend,
           r.device, r.device_name, r.is_arm, r.commit_hash AS "commit", r.branch, r.kit,
           r.executorch, r.runner_build, r.os, r.program_sha256, r.run_dir,
           e.experiment, e.threads, e.times, e.state, e.median_ms, e.low_ms, e.high_ms, e.tokens
    FROM runs r JOIN experiments e ON e.run_id = r.run_id
    WHERE r.model = :model
"""


def load_history(store: Store, model: str, **options: Any) -> History:
    """Return the latencies of a model over all matching runs, one history per series. A series never mixes
    devices, formats, experiments or thread counts. A model without runs of its own name stands for all its
    methods and inputs. The options are those of `sme2prof history`; None does not filter."""
    rows = store.rows(_HISTORY, model=model)
    if not rows:
        rows = [row for name in _models_for(store, model) for row in store.rows(_HISTORY, model=name)]
    rows.sort(key=lambda row: (row["measured_at"], row["run_id"]))
    filters = {option: value for option, value in options.items() if value is not None}
    matching = [row for row in rows if all(_matches(row, *option) for option in filters.items())]
    if not matching:
        named = " ".join(f"--{option} {value}" for option, value in filters.items())
        what = f"leave out an option; `{store.command('list')}` shows what there is"
        raise InputError(f"no run of {model} has {named}", what)
    left_out = Counter(
        reason for _, reason in dict.fromkeys((row["run_id"], _reason(row)) for row in matching)
    )
    del left_out[""]
    return History(model, tuple(sorted(_history_series(matching), key=_order)), left_out)


def _models_for(store: Store, model: str) -> list[str]:
    """Return the names in the store of the methods and inputs of `model`."""
    stored = store.rows("SELECT DISTINCT model, method, inputs FROM runs ORDER BY model")
    if not stored:
        raise InputError(f"{store.address} holds no runs", f"add some: {store.command('add RUN_DIR')}")
    models = [
        row["model"]
        for row in stored
        if row["model"] == names.with_method(model, row["method"], row["inputs"] or "")
    ]
    if not models:
        others = list(dict.fromkeys(row["model"] for row in stored))
        cure = did_you_mean(model, others) or f"it has {listing(others[:_MOST_NAMED])}"
        raise InputError(f"{store.address} holds no run of '{model}'", cure)
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


def _history_series(rows: Sequence[Row]) -> Iterable[HistorySeries]:
    devices = {row["device"]: marked(row["device_name"] or row["device"], row["is_arm"]) for row in rows}
    series: dict[tuple[Any, ...], list[HistoryPoint]] = {}
    for row in rows:
        if not _reason(row):
            key = tuple(row[name] for name in _KEY)
            point = HistoryPoint(at=row["measured_at"], **{name: row[name] for name in _POINT})
            series.setdefault(key, []).append(point)
    named = (dict(zip(_KEY, key, strict=True)) for key in series)
    keys = (SeriesKey(**values, device_name=devices[values["device"]]) for values in named)
    return make_series(dict(zip(keys, series.values(), strict=True)))


def _order(series: HistorySeries) -> tuple[str, str, str, str, str, int]:
    key = series.key
    return key.device_name, key.device, key.dtype, key.backend, key.experiment, key.threads or 0
