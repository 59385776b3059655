"""A run of a store as one side of a comparison: its rows become what a run directory would have said.

Latencies are kept by round, so end to end is compared by the same statistics. Operators are kept as they are,
without their times in every round: what they are is compared, how long each took is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model_profiling.analysis.evidence import SeriesEvidence, proving
from model_profiling.analysis.kernels import kernel_named
from model_profiling.analysis.operators import Operator, OperatorTimes
from model_profiling.analysis.sources import OperatorSource
from model_profiling.core.errors import FormatError
from model_profiling.program import SourceRef
from model_profiling.program.category import Category
from model_profiling.report.comparison import SideFacts
from model_profiling.run import Series, Times
from model_profiling.run.comparability import Origin, Timed
from model_profiling.run.series import switch_in_name
from model_profiling.store.connection import rows_of
from model_profiling.store.places import store_command
from model_profiling.store.store import Store
from model_profiling.workflow.sides import Side, SideSeries

Row = Mapping[str, Any]  # what DuckDB returns; its columns' types are those of `store/tables.py`
_NOT_TIMED = OperatorTimes(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class _Tables:
    """The rows of one run."""

    experiments: Sequence[Row]
    rounds: dict[Series, list[Row]]
    operators: dict[Series, list[Row]]
    kernels: dict[tuple[str, Series], list[Row]]
    loads: Sequence[Row]


def stored_side(store: Store, run: Row, name: str) -> Side:
    """The run whose row of `runs` is `run`; `name` is what the user called it."""
    try:
        return _side(_read(store, run["run_id"]), run, name)
    except (ValueError, TypeError, KeyError) as problem:
        raise FormatError(
            f"{store.address} holds rows of run {run['run_id']} that make no sense ({problem})",
            f"see: {store_command('check', store.address)}",
        ) from problem


def _read(store: Store, run_id: str) -> _Tables:
    with store.connection() as made:

        def rows(sql: str) -> Sequence[Row]:
            return rows_of(made, sql, [run_id])

        return _Tables(
            rows("SELECT * FROM experiments WHERE run_id = ?"),
            _by_series(rows("SELECT * FROM rounds WHERE run_id = ? ORDER BY round")),
            _by_series(
                rows("SELECT * FROM operators WHERE run_id = ? ORDER BY method, call, position, name")
            ),
            _by_proof(rows("SELECT * FROM kernels WHERE run_id = ? ORDER BY kernel")),
            rows("SELECT taken, number FROM environment WHERE run_id = ? AND name = 'load_average'"),
        )


def _by_series(rows: Iterable[Row]) -> dict[Series, list[Row]]:
    found: dict[Series, list[Row]] = {}
    for row in rows:
        found.setdefault(_series(row), []).append(row)
    return found


def _by_proof(rows: Iterable[Row]) -> dict[tuple[str, Series], list[Row]]:
    found: dict[tuple[str, Series], list[Row]] = {}
    for row in rows:
        found.setdefault((row["proven_by"], _series(row)), []).append(row)
    return found


def _series(row: Row) -> Series:
    return Series(row["experiment"], row["threads"])


def _side(tables: _Tables, run: Row, name: str) -> Side:
    return Side(
        SideFacts(
            name=name,
            kind="stored run",
            model="",
            model_sha256=run["program_sha256"],
            platform=run["platform"],
            cpu=run["cpu"],
            executorch=run["executorch"],
            runner_build=run["runner_build"],
            times=Times(run["times"]),
            cores=run["cores"],
            load=next((row["number"] for row in tables.loads if row["taken"] == "before"), None),
        ),
        None,
        tuple(_side_series(tables, run, row) for row in tables.experiments),
        tuple(
            _kernels(series, None, rows, counted=bool(rows[0]["counted"]), has_sme2=True)
            for (proven_by, series), rows in tables.kernels.items()
            if proven_by == "evidence"
        ),
    )


def _side_series(tables: _Tables, run: Row, row: Row) -> SideSeries:
    series, times = _series(row), Times(row["times"])
    rounds = tables.rounds.get(series, []) if times.are_latencies else []
    listed = tables.kernels.get(("run", series), [])
    counted, note = bool(row["kernels_counted"]), row["kernels_note"] or ""
    return SideSeries(
        series,
        Origin(
            name=str(series),
            times=times,
            threads=series.threads,
            cpu=run["cpu"],
            program=run["program_sha256"],
            disabled=tuple(row["disabled"] or ()),
            sme2=row["sme2"],
        ),
        Timed(
            rounds=[list(found["latencies_ms"]) for found in rounds],
            sessions=[found["session"] or 0 for found in rounds],
        ),
        row["median_ms"],
        operators=tuple(_operator(found) for found in tables.operators.get(series, [])),
        kernels=_kernels(series, row["sme2"], listed, counted=counted, has_sme2=run["has_sme2"], note=note),
    )


def _kernels(
    series: Series,
    sme2: bool | None,
    rows: Iterable[Row],
    *,
    counted: bool,
    has_sme2: bool | None,
    note: str = "",
) -> SeriesEvidence:
    uses = tuple(kernel_named(row["kernel"], row["evidence"], row["calls"]) for row in rows)
    switch = switch_in_name(series.experiment) if sme2 is None else None
    left_on = sme2 if switch is None else switch == "on"
    return proving(series, left_on, uses, counted, has_sme2=has_sme2, note=note)


def _operator(row: Row) -> Operator:
    backend = row["delegate_backend"] or "portable"
    return Operator(
        method=row["method"],
        call=row["call"],
        position=row["position"],
        chain_index=-1,
        instruction_id=-1,
        occurrence=0,
        name=row["name"],
        type=row["type"],
        category=Category(row["category"]),
        kind=row["kind"],
        family=row["family"],
        precision=row["precision"] or "",
        known=True,
        packed=bool(row["packed"]),
        delegated=backend != "portable" if row["delegated"] is None else row["delegated"],
        backend=backend,
        source=_source(row, backend),
        times=_NOT_TIMED,
    )


def _source(row: Row, backend: str) -> OperatorSource:
    shapes = (row["input_shapes"] or "").split(" ")
    return OperatorSource(
        origin=row["origin"],
        backend=backend,
        node_kind=row["graph_node"] or "",
        input_shapes=tuple(map(_shape, shapes)),
        output_shape=_shape(row["output_shape"] or ""),
        dtype=row["dtype"] or "",
        flops=row["flops"],
        place=SourceRef(module_path=row["module_path"] or "", module_class=row["module_class"] or ""),
    )


def _shape(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x"))) if text else ()
