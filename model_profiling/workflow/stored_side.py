"""Reads a run of a store as one side of a comparison, from its rows.

Latencies are stored by round, so the same statistics compare them end to end. Operators are stored without
their times in every round: they are compared, but not their times.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

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
from model_profiling.workflow.sides import Measurement, MeasurementSeries

Row = Mapping[str, Any]  # as DuckDB returns it; the column types are in `store/tables.py`
_Key = TypeVar("_Key", bound=Hashable)
_LOAD = "SELECT number FROM environment WHERE run_id = ? AND name = 'load_average' AND taken = 'before'"
_NOT_TIMED = OperatorTimes(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0, 0.0, 0.0)


def stored_side(store: Store, run: Row, name: str) -> Measurement:
    """Return the run of the row `run`; `name` is what the user called it."""
    with store.connection() as made:

        def ask(sql: str) -> Sequence[Row]:
            return rows_of(made, sql, [run["run_id"]])

        try:
            return _stored_side(ask, run, name)
        except (ValueError, TypeError, KeyError) as problem:
            raise FormatError(
                f"{store.address} holds rows of run {run['run_id']} that make no sense ({problem})",
                f"see: {store_command('check', store.address)}",
            ) from problem


def _stored_side(ask: Callable[[str], Sequence[Row]], run: Row, name: str) -> Measurement:
    rounds = _grouped(ask("SELECT * FROM rounds WHERE run_id = ? ORDER BY round"), _series)
    operators = _grouped(
        ask("SELECT * FROM operators WHERE run_id = ? ORDER BY method, call, position, name"), _series
    )
    kernels = _grouped(
        ask("SELECT * FROM kernels WHERE run_id = ? ORDER BY kernel"),
        lambda row: (row["proven_by"], _series(row)),
    )

    def of_series(row: Row) -> MeasurementSeries:
        series, times = _series(row), Times(row["times"])
        measured = rounds.get(series, []) if times.are_latencies else []
        origin = Origin(
            name=str(series),
            times=times,
            threads=series.threads,
            cpu=run["cpu"],
            program=run["program_sha256"],
            disabled=tuple(row["disabled"] or ()),
            sme2=row["sme2"],
        )
        timed = Timed(
            rounds=[list(found["latencies_ms"]) for found in measured],
            sessions=[found["session"] or 0 for found in measured],
        )
        return MeasurementSeries(
            series,
            origin,
            timed,
            row["median_ms"],
            operators=tuple(map(_operator, operators.get(series, []))),
            kernels=_kernels(
                series,
                row["sme2"],
                kernels.get(("run", series), []),
                counted=bool(row["kernels_counted"]),
                has_sme2=run["has_sme2"],
                note=row["kernels_note"] or "",
            ),
        )

    return Measurement(
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
            load=next((row["number"] for row in ask(_LOAD)), None),
        ),
        None,
        tuple(map(of_series, ask("SELECT * FROM experiments WHERE run_id = ?"))),
        tuple(
            _kernels(series, None, rows, counted=bool(rows[0]["counted"]), has_sme2=True)
            for (proven_by, series), rows in kernels.items()
            if proven_by == "evidence"
        ),
    )


def _grouped(rows: Iterable[Row], key: Callable[[Row], _Key]) -> dict[_Key, list[Row]]:
    found: dict[_Key, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def _series(row: Row) -> Series:
    return Series(row["experiment"], row["threads"])


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
