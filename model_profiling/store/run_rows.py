"""Turns a run directory into rows of the store's tables.

`Times` decides: milliseconds are there only if times may be shown, latencies only if times are latencies.
Operators come from the files of the run's analysis. Without it or a manifest, a run is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from model_profiling.analysis.evidence import listed_kernels
from model_profiling.analysis.kernels import use_of
from model_profiling.analysis.run import pair_answer
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.formatting import plural
from model_profiling.core.records import read_json_object
from model_profiling.core.safe_read import is_there
from model_profiling.facts import (
    EXPERIMENT_FACTS,
    KERNEL_FACTS,
    OPERATOR_FACTS,
    SPEEDUP_FACTS,
    FactKind,
    KernelRow,
    MeasuredSeries,
)
from model_profiling.runs import Run
from model_profiling.runs.journal import Entry
from model_profiling.runs.manifest import Manifest
from model_profiling.runs.times import Timed, timed
from model_profiling.statistics.speedup import median_interval
from model_profiling.store.labels import Labels
from model_profiling.store.tables import TABLES, StoreTable

Row = dict[str, Any]
_ID_LETTERS = 32
"""Hex digits of SHA-256: 128 bits, which no two runs share by chance."""
_FIX = "analyse the run: sme2prof analyze RUN_DIR"


def rows_of_run(run: Run, row: Row) -> dict[str, list[Row]]:
    """Return the rows of each table for the run of `row`. An unreadable file is a FormatError or InputError
    that names it."""
    answers = [pair_answer(run, pair, None) for pair in run.pairs]
    rows: dict[str, Iterable[Row]] = {
        "runs": [{**row, "tags": {}}],
        "experiments": (_experiment_row(run, series) for series in run.series),
        "operators": (row for series, listed in _operators_of(run) for row in _operator_rows(series, listed)),
        "comparisons": ({fact.name: fact.cell(answer) for fact in SPEEDUP_FACTS} for answer in answers),
        "kernels": ({fact.name: fact.cell(kernel) for fact in KERNEL_FACTS} for kernel in _kernels(run)),
    }
    try:
        return {
            name: [_checked(TABLES[name], {**cells, "run_id": row["run_id"]}) for cells in of_table]
            for name, of_table in rows.items()
        }
    except (AttributeError, TypeError, ValueError) as problem:
        raise FormatError(f"{run.path / names.ANALYSIS} is damaged: {problem}", _FIX) from problem


_PYTHON: Mapping[str, type | tuple[type, ...]] = {
    "text": str, "whole": int, "number": (int, float), "flag": bool, "moment": datetime,
}  # fmt: skip


_KINDS = {
    table.name: [(column.name, _PYTHON.get(column.column_kind, object)) for column in table.columns]
    for table in TABLES.values()
}


def _checked(table: StoreTable, row: Row) -> Row:
    """Return the columns of `table`; refuse values that a damaged file put there."""
    checked = {}
    for name, kind in _KINDS[table.name]:
        value = checked[name] = row.get(name)
        if value is not None and (not isinstance(value, kind) or (isinstance(value, str) and "\0" in value)):
            raise ValueError(f"{name} is {str(value)[:40]!r}")
    return checked


def _moment_of(text: str) -> datetime | None:
    """Parse a time from a file of a run, as UTC without a zone; None if it is not one."""
    try:
        moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z")
        return moment.astimezone(timezone.utc).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None


def run_row(run: Run, labels: Labels) -> Row:
    """What the table `runs` says. `run_id` comes from how the run began, so it stays if the run is moved or
    continued. Of two copies, the one with more `processes` is later."""
    manifest = run.manifest
    if manifest is None or not manifest.started:  # bare dumps, and runs of the earlier kit
        raise InputError(
            f"{run.path} does not say where and when it was measured", "measure the program with this kit"
        )
    (device, device_title, target), before = device_of(manifest), manifest.machine.before
    model, dtype, backend = _variant_of(manifest)
    entries = run.journal.entries() if run.journal else ()
    return {
        "run_id": _run_id(manifest, entries),
        "name": f"{run.model_name or model}/{labels.device or run.platform}",
        "added_at": datetime.now(timezone.utc).replace(tzinfo=None),
        "measured_at": _moment_of(manifest.started),
        "model": model,
        "dtype": dtype,
        "backend": backend,
        "device": labels.device or device,
        "device_name": device_title,
        "target": target,
        "platform": run.platform,
        "times": run.times.value,
        "state": manifest.state,
        "processes": len(entries),
        "commit_hash": labels.commit or "",
        "branch": labels.branch or "",
        "sweep": labels.sweep,
        "run_dir": str(run.path.resolve()),
        "cpu": before.cpu if before else "",
        "cores": before.cores if before else None,
        "os": before.os if before else "",
        "method": manifest.method,
        "inputs": manifest.fed,
        "program_sha256": manifest.model_sha256,
        "program_bytes": manifest.model_bytes or None,
        "has_sme2": manifest.has_sme2,
        "is_arm": manifest.is_arm,
        "executorch": manifest.executorch.version or "",
        "kit": manifest.kit_version,
        "runner_build": manifest.runner.build_id or "",
    }


def _run_id(manifest: Manifest, entries: Sequence[Entry]) -> str:
    beginning = [
        manifest.model_sha256, manifest.model_stem, manifest.started, manifest.schedule.seed,
        device_of(manifest)[0], manifest.target.platform, manifest.target.times.value,
        *((entry.step.key, entry.started, entry.launch, entry.iterations_ns, entry.turns_ns, entry.kernels)
          for entry in entries[:1]),
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(beginning, sort_keys=True).encode()).hexdigest()[:_ID_LETTERS]


def _variant_of(manifest: Manifest) -> tuple[str, str, str]:
    """Return the model, its dtype and its backend, from the program's name and the manifest."""
    model, variant = names.variant_of(Path(manifest.model))
    backend, _, dtype = variant.rpartition("_") if variant != model else ("", "", "")
    if not dtype:
        dtype = "int8" if manifest.quantized else "fp16" if manifest.half else "fp32"
    model = names.with_method(model, manifest.method, manifest.fed)
    return model, "int8" if dtype == "q8" else dtype, backend


def _kernels(run: Run) -> Iterator[KernelRow]:
    for series in run.series:
        result = run.result(series)
        counted = result is not None and result.counted_kernels
        yield from (KernelRow(series, use, "run", counted) for use in listed_kernels(run, series))
    for proof in run.evidence.kernels if run.evidence else ():
        for call in proof.kernels:
            yield KernelRow(proof.series, use_of(call), "evidence", proof.counted)


def _experiment_row(run: Run, series: Series) -> Row:
    measured = MeasuredSeries.of(run, series)
    kept = timed(run.journal, series) if run.journal and measured.times.are_latencies else Timed()
    if measured.untraced is not None:
        measured = replace(measured, interval=median_interval(kept.rounds))
    row = {fact.name: fact.cell(measured) for fact in EXPERIMENT_FACTS}
    phase = None if measured.tokens is None else "answer" if measured.tokens == 1 else "prompt"
    return {**row, "phase": phase, "latencies_ms": [list(of_round) for of_round in kept.rounds]}


_Operators = list[tuple[Series, Sequence[Mapping[str, Any]]]]
"""The operators of each experiment, as in `analysis_summary.json`."""


def _operators_of(run: Run) -> _Operators:
    """The operators in the summary of the run's analysis, which must be of its dumps."""
    path = run.path / names.ANALYSIS
    content: dict[str, Any] = read_json_object(path, _FIX) if is_there(path) else {}
    dumps: dict[Series, set[Path]] = {}
    for dump in run.dumps:
        dumps.setdefault(dump.series, set()).add(dump.path)
    try:
        first = {run.path / dump["etdump"] for dump in content.get("per_etdump", ())}
        parts = {Series(part["experiment"], part["threads"]): part for part in content.get("series", ())}
        same = all(parts[series]["rounds"] >= len(paths) and paths & first for series, paths in dumps.items())
        operators = [(series, part["operators"]) for series, part in parts.items()]
    except (KeyError, TypeError):
        same = False
    if not same:
        raise InputError(f"{run.path} has no analysis of its dumps", _FIX)
    return operators


_EMPTY: Mapping[FactKind, object] = {"text": "", "shape": (), "shapes": ()}
_OF_OPERATOR = [(fact.name, _EMPTY.get(fact.kind)) for fact in OPERATOR_FACTS]
_AS_TEXT = [fact for fact in OPERATOR_FACTS if fact.kind != fact.column_kind]


def _operator_rows(series: Series, operators: Iterable[Mapping[str, Any]]) -> Iterator[Row]:
    rows = [{name: operator.get(name, empty) for name, empty in _OF_OPERATOR} for operator in operators]
    for row in rows:
        row |= {fact.name: fact.as_cell(row[fact.name]) for fact in _AS_TEXT}
    timed = sorted((row for row in rows if row["ms"] is not None), key=lambda row: -row["ms"])
    for place, row in enumerate(timed, start=1):
        row["place"] = place
    for row in rows:
        yield {"experiment": series.experiment, "threads": series.threads, **row}


def device_of(manifest: Manifest) -> tuple[str, str, str]:
    """Return the device of a run: its name for programs, for people, and the `--target` without a serial. A
    phone is its model and a short hash of its serial, which stays private; this machine is its CPU and number
    of cores; a machine behind ssh is its host."""
    before = manifest.machine.before
    target, platform = manifest.target.name, manifest.target.platform
    cpu, cores = (before.cpu, before.cores) if before else ("", None)
    kind, _, address = target.partition(":")
    if platform == "emulated" and not address:
        return "emulated", f"emulated {cpu}".strip(), "emulated"
    if platform == "android":
        state = before.device if before else None
        model = (state.model if state else None) or "android"
        soc = f", {state.soc}" if state and state.soc else ""
        serial = (address or target).encode("utf-8", "backslashreplace")
        short = hashlib.sha256(serial).hexdigest()[:6]
        return f"{_word(model)}-{short}", f"{model}{soc} ({short})", "android"
    many = f", {plural(cores, 'core')}" if cores else ""
    if kind == "ssh" and address:
        emulated = "emulated " if platform == "emulated" else ""
        return f"ssh-{_word(address)}", f"{emulated}{cpu}{many} at {address}".lstrip(", "), target
    if not cpu:
        return _word(platform or "unknown"), platform or "an unknown machine", target
    return _word(f"{cpu}-{cores}-cores" if cores else cpu), f"{cpu}{many}", target or "host"


def _word(text: str) -> str:
    """Return `text` as one word that needs no quoting in a shell."""
    return re.sub(r"[^a-z0-9._]+", "-", text.lower()).strip("-") or "unknown"
