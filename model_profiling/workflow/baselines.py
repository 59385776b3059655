"""Finds the baseline for a run in the store, by id, name or tag.

A baseline has the same model, dtype, backend and device as the judged run, and is never that run itself. Its
program may differ: that is the change to judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from model_profiling.analysis.evidence import SeriesEvidence, proving
from model_profiling.analysis.kernels import use_of
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.sources import OperatorSource
from model_profiling.analysis.structure import Aspect
from model_profiling.config import names
from model_profiling.config.series import Series, switch_in_name
from model_profiling.core.errors import InputError
from model_profiling.core.files import StrPath, as_path
from model_profiling.core.formatting import did_you_mean, listing
from model_profiling.program import SourceRef
from model_profiling.program.category import Category, operator_type
from model_profiling.report.comparison import SideFacts
from model_profiling.report.comparison_document import Comparison
from model_profiling.runs import Run, Times
from model_profiling.runs.comparability import Origin, Timed
from model_profiling.runs.evidence import KernelCall
from model_profiling.runs.folders import only_run_in
from model_profiling.statistics.measure import Rule
from model_profiling.store.labels import Labels
from model_profiling.store.run_rows import identity_of, run_row
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
_MOST_NAMED = 4
_VARIANT = ("model", "dtype", "backend")


def judged_run(run_dir: StrPath, device: str | None = None) -> Row:
    """Read the run in `run_dir` as its row in the store; `device` is the store's name for this machine."""
    path = as_path(run_dir)
    run = Run.open(path.parent if path.name in (names.METRICS, names.MANIFEST) else only_run_in(path))
    identity = identity_of(run)
    row = run_row(run, identity, Labels(device=device))
    return {**row, "run_id": identity.run_id, "run_dir": run.path}


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
    fail_on: Iterable[Aspect] = (),
    device: str | None = None,
) -> Comparison:
    """Judge the run in `b` against one of `store`, with the same statistics as any two runs."""
    gated = asked_gates(limit, fail_on)
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
        gated=gated,
    )


# A stored run as one side of a comparison. Latencies are stored by round, so the same statistics compare them
# end to end. Operators are stored without their times in every round: they are compared, but not their times.


def stored_side(store: Store, run_id: str, name: str) -> Measurement:
    """Return a stored run; `name` is what the user called it."""
    (run,) = store.rows("SELECT * FROM runs WHERE run_id = :run_id", run_id=run_id)
    experiments = store.rows(
        """SELECT experiments.*, tokens.tokens, tokens.position FROM experiments
           LEFT JOIN tokens ON tokens.run_id = experiments.run_id
           AND tokens.experiment = experiments.experiment AND tokens.threads = experiments.threads
           WHERE experiments.run_id = :run_id""",
        run_id=run_id,
    )
    operators = store.rows(
        "SELECT * FROM operators WHERE run_id = :run_id ORDER BY method, call, position, name", run_id=run_id
    )
    kernels = sorted(run["kernels"], key=lambda kernel: str(kernel["kernel"]))
    proven = [kernel for kernel in kernels if kernel["proven_by"] == "evidence"]
    facts = SideFacts(
        name=name,
        kind="stored run",
        model="",
        model_sha256=run["program_sha256"],
        platform=run["platform"],
        cpu=run["cpu"],
        executorch=run["executorch"],
        runner_build=run["runner_build"],
        times=Times(run["times"]),
        is_arm=run["is_arm"],
        tokens=experiments[0]["tokens"] if experiments else None,
    )
    return Measurement(
        facts,
        None,
        tuple(
            _stored_series(
                run,
                experiment,
                [row for row in operators if _series(row) == _series(experiment)],
                [row for row in kernels if row["proven_by"] == "run" and _series(row) == _series(experiment)],
            )
            for experiment in experiments
        ),
        tuple(
            _kernels(series, None, rows, counted=bool(rows[0]["counted"]), has_sme2=True)
            for series in dict.fromkeys(map(_series, proven))
            for rows in ([kernel for kernel in proven if _series(kernel) == series],)
        ),
    )


def _stored_series(run: Row, row: Row, operators: Sequence[Row], kernels: Sequence[Row]) -> MeasurementSeries:
    series, times = _series(row), Times(row["times"])
    origin = Origin(
        name=str(series),
        times=times,
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
    timed = Timed(
        rounds=row["latencies_ms"],
        sessions=[session or 0 for session in row["sessions"]],
        rule=Rule(row["measured"] or "wall time, unchecked"),
    )
    return MeasurementSeries(
        series,
        origin,
        timed,
        operators=tuple(map(_operator, operators)),
        kernels=_kernels(
            series,
            row["sme2"],
            kernels,
            counted=bool(row["kernels_counted"]),
            has_sme2=run["has_sme2"],
            note=row["kernels_note"],
        ),
    )


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
    uses = tuple(use_of(KernelCall(row["kernel"], row["evidence"], row["calls"])) for row in rows)
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
        type=operator_type(row["name"]),
        category=Category(row["category"]),
        kind=row["kind"],
        family=row["family"],
        precision=row["precision"],
        known=True,
        packed=False,
        delegated=backend != "portable",
        backend=backend,
        source=OperatorSource(
            origin=row["origin"],
            backend=backend,
            node_kind="",
            input_shapes=tuple(map(_shape, row["input_shapes"].split(" "))),
            output_shape=_shape(row["output_shape"]),
            dtype=row["dtype"],
            flops=row["flops"],
            place=SourceRef(module_path=row["module_path"], module_class=""),
        ),
    )


def _shape(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x"))) if text else ()
