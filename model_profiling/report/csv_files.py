"""The CSV files of a series: events of its first dump, and its operators' figures over all launches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_profiling.analysis.attribution import RunGroup, Share
from model_profiling.analysis.operators import DumpAnalysis, Operator
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config import names
from model_profiling.core import files
from model_profiling.core.flatbuffer import Int64
from model_profiling.core.records import csv_line, csv_text
from model_profiling.facts import OPERATOR_FACTS, OperatorRow, row_cells
from model_profiling.program.category import operator_type

# CSV text from numpy columns: a 1,000-run timeline has a quarter million rows. Some rows at a time become a
# matrix of bytes with a field of fixed width per column; removing the unused zero bytes leaves the text.
# Numbers are exact: fixed-point integers with the point inserted, never floats.

Bytes = NDArray[np.uint8]
CsvColumn = Callable[[slice], Bytes]
"""The fields of some rows."""

_ROWS_AT_ONCE = 1 << 14
_COMMA, _MINUS, _POINT, _NEWLINE, _ZERO = np.frombuffer(b",-.\n0", np.uint8)
EXACT_CALL = "true boundaries"
"""Kind of a delegate call whose operators have their true times."""


def text_column(codes: Int64, texts: Iterable[str]) -> CsvColumn:
    """Row i holds `texts[codes[i]]`; a text may contain several adjacent fields (see `csv_line`)."""
    encoded = np.array([text.encode("utf-8", "backslashreplace") for text in texts] or [b""])
    letters = encoded.view(np.uint8).reshape(len(encoded), -1)
    return lambda part: letters[codes[part]]


def number_column(values: Int64, decimals: int = 0, empty: NDArray[np.bool_] | None = None) -> CsvColumn:
    """Row i holds `values[i]` with its last `decimals` digits after the point, or nothing if `empty[i]`."""

    def write(part: slice) -> Bytes:
        left, fields = np.abs(values[part]), []
        for digit in range(max(len(str(left.max(initial=0))), decimals + 1)):
            if digit == decimals > 0:
                fields.append(np.full(len(left), _POINT))
            (left, last), shown = np.divmod(left, 10), (left > 0) | (digit <= decimals)
            fields.append(np.where(shown, last.astype(np.uint8) + _ZERO, np.uint8(0)))
        fields.append(np.where(values[part] < 0, _MINUS, np.uint8(0)))
        letters = np.stack(fields[::-1], axis=1)
        if empty is not None:
            letters[empty[part]] = 0
        return letters

    return write


def csv_bytes(header: Sequence[str], rows: int, columns: Sequence[CsvColumn]) -> Iterator[bytes]:
    yield f"{csv_line(header)}\n".encode("utf-8", "backslashreplace")
    ends = [*[_COMMA] * (len(columns) - 1), _NEWLINE]
    for begin in range(0, rows, _ROWS_AT_ONCE):
        part = slice(begin, min(begin + _ROWS_AT_ONCE, rows))
        fields = [column(part) for column in columns]
        after = [np.full((part.stop - begin, 1), end) for end in ends]
        sheet = np.hstack([piece for pair in zip(fields, after, strict=True) for piece in pair])
        yield sheet.tobytes().translate(None, b"\0")


TIMELINE_COLUMNS = (
    "model_id", "name", "type", "delegate_backend", "start_us", "end_us", "duration_ms", "pct_total",
    "node_id", "run_index", "block",
    "self_ms", "level", "call", "position", "category", "kind",
)  # fmt: skip
_CONTRACT = ("model_id", "name", "type", "delegate_backend", "count", "total_ms", "avg_ms", "pct_total")
_FACTS = tuple(fact for fact in OPERATOR_FACTS if fact.name not in _CONTRACT)
STATS_COLUMNS = (*_CONTRACT, "times", *(fact.name for fact in _FACTS))


class CsvFiles(NamedTuple):
    timeline: Path
    run0_timeline: Path
    stats: Path


def csv_paths(folder: Path, stem: str) -> CsvFiles:
    endings = names.TIMELINE_CSV, names.RUN0_TIMELINE_CSV, names.STATS_CSV
    return CsvFiles(*(folder / f"{stem}{ending}" for ending in endings))


def write_csv_files(series: SeriesAnalysis, sme2: Mapping[int, str], folder: Path | None = None) -> CsvFiles:
    """Write the CSV files of `series`, beside its first dump unless `folder` is given."""
    dump = series.first
    paths = csv_paths(folder or dump.path.parent, dump.stem)
    write_timeline(paths.timeline, dump, dump.stem)
    write_timeline(paths.run0_timeline, dump, dump.stem, run=0)
    write_stats(paths.stats, series, dump.stem, sme2)
    return paths


def operator_rows(series: SeriesAnalysis, sme2: Mapping[int, str] | None = None) -> Iterator[OperatorRow]:
    """The one record of each operator's figures, which every output repeats."""
    return (operator_row(series, operator, sme2) for operator in series.operators)


def operator_row(series: SeriesAnalysis, operator: Operator, sme2: Mapping[int, str] | None) -> OperatorRow:
    on_sme2 = sme2[series.place(operator)] if sme2 else ""
    return OperatorRow(operator, operator.typical_ms, series.spent_by([operator]).share, on_sme2)


def write_stats(
    path: Path, series: SeriesAnalysis, model_id: str, sme2: Mapping[int, str] | None = None
) -> None:
    """Write one row per operator, over all launches. The first eight columns have the names of other kits:
    `count`, `total_ms` and `avg_ms` are per inference, `pct_total` is the share of end-to-end time. `times`
    says what times mean, here and in the timelines beside it."""
    lines = (
        (
            model_id, row.operator.name, row.operator.type, row.operator.backend, 1, row.ms, row.ms,
            100 * row.share, series.times.value, *row_cells(_FACTS, row),
        )
        for row in operator_rows(series, sme2)
    )  # fmt: skip
    write_rows(path, STATS_COLUMNS, lines)


def write_timeline(path: Path, dump: DumpAnalysis, model_id: str, run: int | None = None) -> None:
    """Write every event of all runs, or of one.

    Loading, warm-up and unfinished runs are left out. The `self_ms` of a run's rows add up to its
    `Method::execute`; `pct_total` is the share of that duration, and rows contain each other.
    """
    rows, columns = _timeline_columns(dump, model_id, run)
    with files.replacing(path) as part, part.open("wb") as stream:
        for piece in csv_bytes(TIMELINE_COLUMNS, rows, columns):
            stream.write(piece)


def _timeline_columns(dump: DumpAnalysis, model_id: str, run: int | None) -> tuple[int, list[CsvColumn]]:
    heads: dict[str, int] = {}
    tails: dict[str, int] = {}
    parts = []
    for group, of_event in zip(dump.attribution.groups, dump.operator_of_event, strict=True):
        chosen = np.arange(len(group.runs)) if run is None else np.flatnonzero(group.runs == run)
        owners = [dump.operators[owner] if owner >= 0 else None for owner in of_event.tolist()]
        parts.append(_group_rows(group, chosen, owners, model_id=model_id, heads=heads, tails=tails))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    if len(parts) > 1:
        order = np.argsort(columns[0], kind="stable")
        columns = [column[order] for column in columns]
    runs, head, start, duration, own, e2e, node, block, tail = columns
    blocks = [csv_line((name,)) if name else "" for name in dump.attribution.block_names]
    return len(runs), [
        text_column(head, heads),
        number_column(start, 3),
        number_column(start + duration, 3),
        number_column(duration, 6),
        _percent(duration, e2e),
        number_column(node),
        number_column(runs),
        text_column(block, blocks),
        number_column(own, 6),
        text_column(tail, tails),
    ]


def _percent(part: Int64, whole: Int64) -> CsvColumn:
    """Return percentages with four decimals; empty where `whole` is not positive."""
    none = whole <= 0
    # A damaged dump may contain a duration too large for an int64.
    share = np.clip(part * 1e6 / np.where(none, 1, whole), -1e15, 1e15)
    return number_column(np.rint(share).astype(np.int64), 4, empty=none)


def _group_rows(
    group: RunGroup,
    chosen: Int64,
    owners: Sequence[Operator | None],
    *,
    model_id: str,
    heads: dict[str, int],
    tails: dict[str, int],
) -> tuple[Int64, ...]:
    """The rows of a group's runs: run, head, start, duration, own time, the run's time, event, block, tail.
    Heads and tails are indexes of texts."""
    backends = {owner.call: owner.backend for owner in owners if owner is not None}
    head, tail = [], []
    for node, owner in zip(group.nodes, owners, strict=True):
        # The call around an operator belongs to the runtime; giving it to the operator would count it twice.
        backend = owner.backend if owner else "runtime"
        what = (owner.category.value, owner.kind) if owner else ("", "")
        if node.level == "call" and node.call_kind == "delegate":
            backend = backends.get(node.call, "delegate")
            what = ("", EXACT_CALL if node.share is Share.FRAMEWORK else "")
        head.append(_code(heads, (model_id, node.name, operator_type(node.name), backend)))
        tail.append(_code(tails, (node.level, _index(node.call), _index(node.position), *what)))

    def every_run(values: Int64 | list[int]) -> Int64:
        return np.tile(np.asarray(values, np.int64), len(chosen))

    events = len(group.nodes)
    times = (matrix[chosen].ravel() for matrix in (group.start_ns, group.duration_ns, group.self_ns))
    runs, e2e, blocks = (np.repeat(of[chosen], events) for of in (group.runs, group.e2e_ns, group.blocks))
    return runs, every_run(head), *times, e2e, every_run(np.arange(events)), blocks, every_run(tail)


def _code(texts: dict[str, int], fields: Iterable[object]) -> int:
    return texts.setdefault(csv_line(fields), len(texts))


def _index(number: int) -> object:
    return number if number >= 0 else ""


def write_rows(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    files.write_text(path, csv_text((header, *rows)))
