"""Finds the baseline for a run in the store, by id, name or tag.

A baseline has the same model, dtype, backend and device as the judged run, and is never that run itself. Its
program may differ: that is the change to judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_profiling.analysis.evidence import SeriesEvidence, proving
from model_profiling.analysis.kernels import kernel_named
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.sources import OperatorSource
from model_profiling.analysis.structure import Aspect
from model_profiling.config import names
from model_profiling.config.series import Series, switch_in_name
from model_profiling.core.errors import InputError
from model_profiling.core.files import StrPath, as_path
from model_profiling.core.formatting import did_you_mean, listing, plural
from model_profiling.program import SourceRef
from model_profiling.program.category import Category, operator_type
from model_profiling.report.comparison import Comparison, SideFacts, headline
from model_profiling.runs import Run, Times
from model_profiling.runs.comparability import Origin, Timed, device_of
from model_profiling.runs.folders import only_run_in
from model_profiling.statistics.measure import Rule
from model_profiling.store.labels import Labels
from model_profiling.store.run_rows import identity_of, variant_of
from model_profiling.store.store import Store
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
GOOD, BAD = "good", "bad"
_FEWEST_LETTERS = 6
"""Shortest prefix of a run's id that is accepted."""
_MOST_NAMED = 4
_VARIANT = ("model", "dtype", "backend")
_FIRST = "let the first one pass with --add --first-is-good"


class NoBaseline(InputError):
    """The store has no other run of this model, dtype and backend on this device."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The run to judge, as the store would describe it."""

    path: Path
    run_id: str
    model: str
    dtype: str
    backend: str
    device: str
    device_title: str
    emulated: bool
    unfinished: str | None
    """Its state if it is not finished."""

    @property
    def words(self) -> str:
        told = ", ".join(filter(None, (self.dtype, self.backend)))
        return f"{self.model}{f' ({told})' if told else ''}"


def judged_run(run_dir: StrPath, device: str | None = None) -> Judged:
    """Read the run in `run_dir`; `device` is the store's name for this machine, if it has one."""
    path = as_path(run_dir)
    folder = path.parent if path.name in (names.METRICS, names.MANIFEST) else only_run_in(path)
    run = Run.open(folder)
    if run.manifest is None:
        raise InputError(f"{folder} has no {names.MANIFEST}: its machine is unknown", "name a run directory")
    found = device_of(run.manifest)
    return Judged(
        folder,
        identity_of(run).run_id,
        *variant_of(run),
        device or found.name,
        device or found.title,
        run.times is Times.EMULATED,
        run.manifest.unfinished,
    )


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
           tags, commit_hash, method, inputs, cpu, cores, platform, program_sha256, executorch, runner_build,
           is_arm, has_sme2
    FROM runs WHERE run_id <> :run_id
    ORDER BY coalesce(measured_at, added_at) DESC, added_at DESC, run_id
"""
"""The newest first, without the judged run itself."""


def find_baseline(store: Store, word: str, judged: Judged, *, across_machines: bool = False) -> Row:
    """Return the row of the run that `word` means for `judged`, or raise an error that says what to do."""
    others = store.rows(_OTHERS, run_id=judged.run_id)
    last_good = word == LAST_GOOD
    if not last_good and (found := _by_id(word, judged, others)) is not None:
        if found["device"] != judged.device and not across_machines:
            raise InputError(
                f"run {found['run_id'][:12]} was measured on {found['device_name']}, this one on "
                f"{judged.device_title}",
                "name one of this device, or compare the machines: --across-machines",
            )
        return found
    named = [row for row in others if last_good or word in row["tags"] or row["name"] == word]
    if not named and not last_good:
        known = {LAST_GOOD, *(name for row in others for name in (row["name"], *row["tags"]))}
        raise InputError(
            f"no run in {store.address} has the tag, the name or the id {word!r}",
            f"{did_you_mean(word, sorted(known))} see: {store.command('list')}".lstrip(),
        )
    same = [row for row in named if all(row[name] == getattr(judged, name) for name in _VARIANT)]
    here = [row for row in same if _is_of_device(row, judged, across_machines)]
    refusal = NoBaseline if last_good else InputError
    which = f"{store.address} has no other run" if last_good else f"{word!r} is no run"
    add = f"{_FIRST}, or add one that is good: {store.command('add RUN_DIR')}"
    if not same:
        raise refusal(f"{which} of {judged.words}", add if last_good else "name one of this model")
    if not here:
        similar = any(_is_of_device(row, judged, across_machines=True) for row in same)
        across = "compare the machines with --across-machines; else " if similar else ""
        raise refusal(
            f"{which} of {judged.words} on {judged.device_title}: {_devices(same)}",
            f"{across}{add if last_good else 'name one of this device'}",
        )
    good = [row for row in here if row["state"] == "finished" and BAD not in row["tags"]]
    if last_good and not good:
        raise InputError(
            f"none of the {plural(len(here), 'run')} of {judged.words} in {store.address} is good",
            f"remove the tag {BAD} from one, or add one: {store.command('add RUN_DIR')}",
        )
    return good[0] if last_good else here[0]


def _is_of_device(row: Row, judged: Judged, across_machines: bool) -> bool:
    """With `across_machines`, any device matches, but emulated runs match only each other."""
    if across_machines:
        return bool(row["times"] == Times.EMULATED.value) == judged.emulated
    return bool(row["device"] == judged.device)


def _by_id(word: str, judged: Judged, rows: Sequence[Row]) -> Row | None:
    if len(word) < _FEWEST_LETTERS:
        return None
    if judged.run_id.startswith(word):
        raise InputError(f"{PREFIX}{word} is this run itself", "name another one")
    matching = [row for row in rows if row["run_id"].startswith(word)]
    also = any(word in row["tags"] or row["name"] == word for row in rows)
    if len(matching) + (also and bool(matching)) > 1:
        ids = [row["run_id"][:12] for row in matching]
        raise InputError(f"{word!r} matches several runs: {listing(ids)}", "give more of the run's id")
    return matching[0] if matching else None


def _devices(rows: Iterable[Row]) -> str:
    seen = list(dict.fromkeys(str(row["device_name"]) for row in rows))
    more = [f"{len(seen) - _MOST_NAMED} more"] if len(seen) > _MOST_NAMED else []
    return f"the others are of {listing([*seen[:_MOST_NAMED], *more])}"


def compare_with_baseline(
    b: StrPath,
    baseline: str = LAST_GOOD,
    *,
    store: Store,
    limit: float | None = None,
    across_machines: bool = False,
    fail_on: Iterable[Aspect] = (),
    device: str | None = None,
    first_is_good: bool = False,
) -> Comparison:
    """Judge the run in `b` against one of `store`, with the same statistics as any two runs. If the store has
    none of its model, dtype and backend on its device, raise `NoBaseline`, or with `first_is_good` return a
    comparison that says so. Any other problem is an `InputError`."""
    gated = asked_gates(limit, fail_on)
    judged = judged_run(b, device)
    try:
        row = find_baseline(store, baseline, judged, across_machines=across_machines)
    except NoBaseline as problem:
        if not first_is_good:
            raise
        return _first(judged, baseline, limit, gated, problem.problem)
    return compare_sides(
        stored_side(store, row, _shown_name(baseline, row)),
        load_measurement(judged.path),
        limit=limit,
        across_machines=across_machines,
        gated=gated,
    )


def _first(judged: Judged, word: str, limit: float | None, gated: tuple[Aspect, ...], why: str) -> Comparison:
    """Return the result for a first run. It must be complete, because later runs are compared with it."""
    if judged.unfinished:
        raise InputError(
            f"{judged.path} is {judged.unfinished}: it cannot be the baseline of later runs",
            "continue it with --resume",
        )
    nobody = SideFacts(f"{PREFIX}{word}", "nothing", "", "", "", "", "", "", Times.UNKNOWN)
    return Comparison(nobody, load_measurement(judged.path).facts, (), (), (), limit, gated=gated, first=why)


def _shown_name(word: str, row: Row) -> str:
    measured = row["measured_at"] or row["added_at"]
    parts = [row["run_id"][:12], row["name"], measured.strftime("%Y-%m-%d %H:%M") if measured else ""]
    parts += [f"commit {row['commit_hash'][:12]}"] if row["commit_hash"] else []
    return f"{PREFIX}{word} ({', '.join(filter(None, parts))})"


@dataclass(frozen=True, slots=True)
class KeptVerdict:
    store: str
    run_id: str
    tag: str | None
    """None if nothing regressed, but noise could hide a regression."""


def keep_verdict(
    store: Store, run_dir: StrPath, comparison: Comparison, *, device: str | None = None
) -> KeptVerdict:
    """Add the judged run to `store` with its verdict as a tag; refuse a run without a verdict. A run whose
    noise could hide a regression is added without one."""
    if comparison.answer in (None, "no answer"):
        raise InputError(
            f"{run_dir} has no verdict, so it is not added to the store", "add it by hand: sme2prof store add"
        )
    judged = judged_run(run_dir, device)
    added = store.add([judged.path], Labels(device=device))
    if added.refused:
        raise InputError(added.refused[0].problem, added.refused[0].fix)
    run_id = added.runs[0].run_id
    if added.runs[0].outcome == "an earlier state of one that is there":
        raise InputError(
            f"{judged.path} is {added.runs[0].outcome}",
            "compare the run as it is now: this verdict was not kept",
        )
    limit = comparison.limit
    noisy = limit is not None and any(found.could_hide(limit) for found in comparison.series)
    if noisy and comparison.answer != "failed":
        return KeptVerdict(store.address, run_id, None)
    tag, other = (BAD, GOOD) if comparison.answer == "failed" else (GOOD, BAD)
    store.tag([run_id], [tag], note=headline(comparison))
    store.tag([run_id], [other], remove=True)
    return KeptVerdict(store.address, run_id, tag)


# A stored run as one side of a comparison. Latencies are stored by round, so the same statistics compare them
# end to end. Operators are stored without their times in every round: they are compared, but not their times.


def stored_side(store: Store, run: Row, name: str) -> Measurement:
    """Return the run of the row `run`; `name` is what the user called it."""
    run_id = run["run_id"]
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
    (row,) = store.rows("SELECT kernels FROM runs WHERE run_id = :run_id", run_id=run_id)
    kernels = sorted(row["kernels"], key=lambda kernel: str(kernel["kernel"]))
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
        cores=run["cores"],
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
        row["median_ms"],
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
