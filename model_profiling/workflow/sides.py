"""One side of a comparison, read from whatever was named: a run directory, a dump, a file of latencies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from model_profiling.analysis.evidence import PlaceEvidence, SeriesEvidence, proving
from model_profiling.analysis.input_files import read_latencies
from model_profiling.analysis.kernels import kernel_named
from model_profiling.analysis.operators import Operator, OperatorTimes
from model_profiling.analysis.run import Proven, analyse_run, proven_of
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.analysis.sources import OperatorSource
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.records import read_json_object
from model_profiling.program import SourceRef
from model_profiling.program.category import Category
from model_profiling.report.comparison import SideFacts
from model_profiling.run import Run, Series, Times, names
from model_profiling.run.comparability import Origin, Timed, timed_as_kept
from model_profiling.run.metrics import read_metrics, read_robust_stats
from model_profiling.run.series import switch_in_name
from model_profiling.store.connection import rows_of
from model_profiling.store.places import store_command
from model_profiling.store.store import Store

_TOLD = 12
"""Series that an error names."""
_WHAT_TO_NAME = "name a run directory, an .etdump or a JSON file of a run"


@dataclass(frozen=True, slots=True)
class SideSeries:
    """What is known of one series: latencies by round in milliseconds, and its dumps."""

    series: Series
    origin: Origin
    timed: Timed = field(default_factory=Timed)
    """Without the tracer; empty where not measured."""
    median_only: float | None = None
    """The median without the tracer, where a file kept it but not the latencies themselves."""
    dumps: SeriesAnalysis | None = None
    names: tuple[str, ...] = ()
    """What its experiment is called too: a CPU without SME2 has one baseline for both on and off."""
    operators: tuple[Operator, ...] = ()
    """Those of its dumps; of a stored run as it was when its dumps were read."""
    kernels: SeriesEvidence | None = None

    @property
    def called(self) -> set[str]:
        """Every name of its experiment."""
        return {self.series.experiment, *self.names}

    def is_like(self, other: SideSeries) -> bool:
        return self.series.threads == other.series.threads and bool(self.called & other.called)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two measurements; `run_dir` is the run it is or lies in, whose rounds ran side by side."""

    facts: SideFacts
    run_dir: Path | None
    series: tuple[SideSeries, ...]
    proven: tuple[SeriesEvidence, ...] = ()
    """What an emulated run of its program proved, where its own CPU has no SME2."""
    damaged: str = ""
    """Why what is known of its kernels cannot be read; empty where it can."""

    @property
    def experiments(self) -> str:
        told = [str(found.series) for found in self.series[:_TOLD]]
        left = len(self.series) - len(told)
        return "; ".join([*told, *([f"and {left} more"] if left else [])]) or "none"


def load_side(path: Path, times: Times | None = None) -> Side:
    """Read whatever `path` names."""
    if path.is_dir():
        return _of_run(Run.open(path, times=times), str(path), "run directory")
    if not path.is_file():
        raise InputError(f"there is no {path}", _WHAT_TO_NAME)
    if names.is_dump(path):
        return _of_run(Run.of_files([path], times=times), str(path), "dump")
    if path.suffix == ".json":
        return _of_json(path, times)
    raise InputError(f"{path} is neither a run directory, a dump nor a JSON file of latencies", _WHAT_TO_NAME)


def _of_run(run: Run, name: str, kind: str) -> Side:
    analysis = analyse_run(run, run.programs(), tolerant=kind == "run directory") if run.dumps else None
    proven = (analysis.proven if analysis else None) or proven_of(run, ())
    own = {found.series: found for found in _place(proven, 0)}
    series = []
    for found in run.series:
        latency = run.metrics.latency(found) if run.metrics else None
        timed = run.times_of(found).are_latencies
        dumps = analysis.of(found) if analysis else None
        series.append(
            SideSeries(
                found,
                run.origin(found),
                _timed(run, found),
                latency.end_to_end_ms.median if timed and latency and latency.end_to_end_ms else None,
                dumps,
                run.whole.manifest.asked_as(found.experiment) if run.whole.manifest else (),
                dumps.operators if dumps else (),
                own.get(found),
            )
        )
    model = Path(analysis.model).stem if analysis and analysis.model else ""
    run_dir = run.whole.path.resolve() if run.whole.manifest else None
    return Side(
        replace(_facts(run.whole, name, kind, model), times=run.times),
        run_dir,
        tuple(series),
        _place(proven, 1),
        proven.damaged.problem if proven.damaged else "",
    )


def _place(proven: Proven, place: int) -> tuple[SeriesEvidence, ...]:
    """The kernels of the run itself, or of what was kept in it."""
    places: Sequence[PlaceEvidence] = proven.evidence[place : place + 1]
    return tuple(found for each in places for found in each.kernels)


def _timed(run: Run, series: Series) -> Timed:
    stats = run.robust_stats(series)
    return timed_as_kept(stats.end_to_end_rounds_ms, run.whole.journal, series) if stats else Timed()


def _of_json(path: Path, times: Times | None) -> Side:
    try:
        content = read_json_object(path, _WHAT_TO_NAME, follow=True)
    except FormatError as problem:
        raise FormatError(problem.problem, _WHAT_TO_NAME) from problem
    around = Run.around(path)
    if path.name == names.METRICS and around and around.path == path.resolve().parent:
        return _of_run(Run.open(path.parent), str(path), "run directory")
    if "latencies" in content or "comparisons" in content:
        metrics = read_metrics(path)
        return _of_run(Run(path.parent, metrics=metrics), str(path), "latencies")
    series, rounds = Series(path.stem.removesuffix("_robust_stats")), read_latencies(path).rounds
    stated = times or Times.UNKNOWN
    if "experiment" in content:
        stats = read_robust_stats(path)
        series, stated = stats.series, stats.times
    origin = around.origin(series) if around else Origin(str(series), stated, series.threads)
    known = Timed(rounds) if origin.times.are_latencies else Timed()
    if around and "experiment" in content:
        known = _timed(around, series)
    facts = _facts(around or Run(path.parent), str(path), "latencies", "")
    return Side(
        replace(facts, times=origin.times),
        around.path if around else None,
        (SideSeries(series, origin, known),),
    )


def _facts(run: Run, name: str, kind: str, model: str) -> SideFacts:
    manifest = run.manifest
    before = manifest.machine.before if manifest else None
    return SideFacts(
        name=name,
        kind=kind,
        model=run.model_name or model,
        model_sha256=manifest.model_sha256 if manifest else "",
        platform=run.platform,
        cpu=manifest.cpu if manifest else "",
        executorch=(manifest.executorch.version or "") if manifest else "",
        runner_build=(manifest.runner.build_id or "") if manifest else "",
        times=run.times,
        cores=before.cores if before else None,
        load=before.load_average if before else None,
    )


# A run of a store as one side of a comparison: its rows are made into what a run directory would have told.
# Latencies are kept by round, so end to end is compared by the same statistics. Operators are kept as they
# are, without their times in every round: what they are is compared, how long each took is not.

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
