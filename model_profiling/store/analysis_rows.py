"""Rows of a run's operators and categories, from the files of its analysis, because reading dumps takes a
hundred times as long. If those are missing, or are of other dumps, the run is analysed now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from model_profiling.analysis.run import RunAnalysis, analyse_run, pair_answer
from model_profiling.core.errors import FormatError
from model_profiling.core.records import parse_record, read_json_object, read_table
from model_profiling.core.safe_read import MIB, inside, is_there, read_text
from model_profiling.facts import FactKind, row_cells
from model_profiling.facts.operators import facts_for
from model_profiling.facts.runs import CATEGORY_FACTS, CategoryRow
from model_profiling.program.category import Category, operator_type
from model_profiling.report.tables import category_table, operator_table, run_speedups, speedup_table
from model_profiling.run import Run, Series, Times, names
from model_profiling.run.metrics import PairSpeedup
from model_profiling.run.remarks import Diagnostic, warning_lines
from model_profiling.run.series import Pair
from model_profiling.statistics.speedup import Speedup
from model_profiling.store.tables import OPERATOR_COLUMNS, OPERATORS, Row, Value

_FIX = "analyse the run again: sme2prof analyze RUN_DIR"
_MOST_CSV = 64 * MIB
_CATEGORIES = frozenset(category.value for category in Category)
_Place = tuple[str, int, int, str]
_Details = Mapping[str, Value]


_NOT_KNOWN: Mapping[FactKind, object] = {"text": "", "shape": (), "shapes": ()}
if TYPE_CHECKING:
    _Operator: TypeAlias = Any
else:
    _Operator = make_dataclass(
        "_Operator",
        [(fact.name, fact.json_type, field(default=_NOT_KNOWN.get(fact.kind))) for fact in facts_for("json")],
        kw_only=True,
    )
_IN_JSON = tuple(fact for fact in OPERATOR_COLUMNS if "json" in fact.readers)
_ONLY_IN_CSV = {
    fact.name: fact.column_kind
    for fact in OPERATOR_COLUMNS
    if fact not in _IN_JSON and fact.name not in ("type", "pct_of_e2e")
}
"""Columns that only `_exec_operator_details.csv` has; none is a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _SeriesFacts:
    experiment: str
    threads: int | None = None
    rounds: int = 0
    """The number of dumps it was made from; the summary names the first."""
    ms: Mapping[str, float]
    share: Mapping[str, float]
    operators: tuple[_Operator, ...]

    @property
    def series(self) -> Series:
        return Series(self.experiment, self.threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class _DumpFacts:
    etdump: str
    experiment: str
    threads: int | None = None
    csv_operators: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _PairFacts:
    label: str
    baseline: Series
    candidate: Series
    e2e: Speedup
    with_tracer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Summary:
    per_etdump: tuple[_DumpFacts, ...]
    series: tuple[_SeriesFacts, ...]
    pairs: tuple[_PairFacts, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AnalysisRows:
    """Rows without run_id."""

    operators: tuple[Row, ...] = ()
    categories: tuple[Row, ...] = ()
    speedups: tuple[Row, ...] = ()
    warnings: tuple[str, ...] = ()
    analysed: bool = False
    """Whether dumps had to be read."""


def analysis_rows(run: Run) -> AnalysisRows:
    kept = _kept(run)
    if kept is not None:
        return _from_files(run, kept)
    if not run.dumps:
        remarks = (*(run.manifest.all_warnings if run.manifest else ()), *run.warnings)
        answers = speedup_table(pair_answer(run, pair, None) for pair in run.pairs)
        return AnalysisRows(speedups=answers.rows, warnings=_lines(remarks))
    return _from_dumps(analyse_run(run, run.programs()))


def _kept(run: Run) -> _Summary | None:
    """The kept summary, if it is of the dumps that the run has."""
    path = run.path / names.ANALYSIS
    if not is_there(path):
        return None
    content = read_json_object(path, _FIX)
    listed = content.get("series")
    if not isinstance(listed, list) or any(
        isinstance(one, dict) and "operators" not in one for one in listed
    ):
        return None  # of an earlier kit
    found = parse_record(_Summary, content, str(path), _FIX)
    known = {one.series: one.rounds for one in found.series}
    first = {run.path / dump.etdump for dump in found.per_etdump}
    dumps: dict[Series, set[Path]] = {}
    for dump in run.dumps:
        dumps.setdefault(dump.series, set()).add(dump.path)
    same = all(known.get(series, 0) >= len(paths) and paths & first for series, paths in dumps.items())
    return found if same else None


def _from_dumps(analysis: RunAnalysis) -> AnalysisRows:
    operators = operator_table(analysis.series)
    places = [operators.columns.index(name) for name in OPERATORS.names[1:]]
    rows = (tuple(row[place] for place in places) for row in operators.rows)
    shown = (row if Times(str(row[2])).are_shown else _without_times(row) for row in rows)
    return AnalysisRows(
        tuple(shown),
        category_table(analysis.series).rows,
        run_speedups(analysis).rows,
        _lines(analysis.warnings),
        analysed=True,
    )


def _from_files(run: Run, summary: _Summary) -> AnalysisRows:
    details = {
        Series(dump.experiment, dump.threads): dump.csv_operators for dump in reversed(summary.per_etdump)
    }
    operators: list[Row] = []
    categories: list[Row] = []
    for found in summary.series:
        times = run.times_of(found.series)
        rest = _details(run, details.get(found.series))
        operators += _operator_rows(found, times, rest)
        categories += _category_rows(found, times)
    told = {(pair.baseline, pair.candidate): pair for pair in summary.pairs}
    answers = speedup_table(
        _answer(run, pair, told.get((pair.baseline, pair.candidate))) for pair in run.pairs
    )
    return AnalysisRows(tuple(operators), tuple(categories), answers.rows, summary.warnings)


def _answer(run: Run, pair: Pair, told: _PairFacts | None) -> PairSpeedup:
    """The run's own answer, else the analysis's; no ratio if the two may not be compared."""
    if run.comparison(pair) or told is None or (pair.not_comparable and told.e2e.ratio is not None):
        return pair_answer(run, pair, None)
    return PairSpeedup(told.label, told.baseline, told.candidate, told.e2e, told.with_tracer)


def _category_rows(found: _SeriesFacts, times: Times) -> Iterator[Row]:
    counts = Counter(operator.category for operator in found.operators)
    for name, ms in found.ms.items():
        shown, share = (ms, found.share.get(name)) if times.are_shown else (None, None)
        count = counts[name] if name in _CATEGORIES else None
        yield row_cells(CATEGORY_FACTS, CategoryRow(found.series, times, name, shown, share, count))


def _operator_rows(found: _SeriesFacts, times: Times, details: Mapping[_Place, _Details]) -> Iterator[Row]:
    for operator in found.operators:
        told = {fact.name: fact.as_cell(getattr(operator, fact.name)) for fact in _IN_JSON}
        told["pct_of_e2e"] = None if operator.share is None else 100 * operator.share
        told["type"] = operator_type(operator.name)
        rest = details.get((operator.method, operator.call, operator.position, operator.name), {})
        values = (told.get(fact.name, rest.get(fact.name)) for fact in OPERATOR_COLUMNS)
        told_of = (found.experiment, found.threads, times.value, operator.ms, *values)
        yield told_of if times.are_shown else _without_times(told_of)


def _without_times(row: Row) -> Row:
    """Drop numbers, which derive from times, and counts of runs, which were not timed."""
    columns = OPERATORS.columns[1:]
    return tuple(
        None if column.kind == "number" or column.name == "runs" else value
        for column, value in zip(columns, row, strict=True)
    )


def _details(run: Run, name: str | None) -> dict[_Place, _Details]:
    """What only the CSV file of a dump has, by operator; empty if the file is gone."""
    if not name or not is_there(path := inside(run.path, name, str(run.path / names.ANALYSIS))):
        return {}
    columns, rows = read_table(read_text(path, _MOST_CSV), path, _FIX)
    wanted = [name for name in _ONLY_IN_CSV if name in columns]
    found: dict[_Place, _Details] = {}
    for number, row in enumerate(rows, start=1):
        try:
            place = row["method"], int(row["call"]), int(row["position"]), row["name"]
            found[place] = {name: _cell(row[name], _ONLY_IN_CSV[name]) for name in wanted}
        except (KeyError, ValueError) as problem:
            raise FormatError(f"{path}, row {number} does not describe an operator", _FIX) from problem
    return found


def _cell(text: str, kind: str) -> Value:
    if kind == "text":
        return text
    if not text:
        return None
    return {"True": True, "False": False}[text] if kind == "flag" else int(text)


def _lines(remarks: Iterable[Diagnostic]) -> tuple[str, ...]:
    return tuple(str(line) for line in warning_lines(remarks))
