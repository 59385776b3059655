"""Views of a run's operators: pairs side by side, and single series."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from model_profiling.analysis.operators import Operator
from model_profiling.analysis.pairing import OperatorPair, Pairing
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.core.formatting import MISSING, milliseconds, size
from model_profiling.report.data import PairReport, ReportData
from model_profiling.report.document import Code, Column, Number, Text
from model_profiling.run import Series
from model_profiling.statistics.latency import LatencySummary


def compared_pairs(data: ReportData) -> list[tuple[PairReport, Pairing]]:
    """Return the pairs that may be shown side by side, each with its pairing."""
    return [
        (pair, pairing) for pair in data.pairs if data.timed and (pairing := pair.side_by_side) is not None
    ]


@dataclass(frozen=True, slots=True)
class View:
    """A pair, or a single series if `pairing` is None."""

    label: str
    series: tuple[SeriesAnalysis, ...]
    pairing: Pairing | None
    timed: bool
    """Whether to show times; if not, work is shown."""
    place: str
    """Its place in `analysis_summary.json`, such as `pairs/0`."""

    @property
    def sides(self) -> tuple[tuple[Operator, ...], ...]:
        return tuple(series.operators for series in self.series)


def views_of(data: ReportData) -> list[View]:
    """Return every pair that may be shown side by side, then every series in none of them."""
    if data.analysis is None:
        return []
    timed = compared_pairs(data)
    pairings = [(pair, pairing, True) for pair, pairing in timed]
    if not data.times.are_shown:
        pairings = [(pair, pair.pairing, False) for pair in data.pairs if pair.pairing is not None]
    written = data.whole or data
    pair_places = {id(pair): place for place, pair in enumerate(written.pairs)}
    views = [
        View(
            f"{pair.label}: {pairing.baseline.name} → {pairing.candidate.name}",
            (pairing.baseline, pairing.candidate),
            pairing,
            shown,
            f"pairs/{pair_places[id(pair)]}",
        )
        for pair, pairing, shown in pairings
    ]
    seen = {series.series for view in views for series in view.series}
    alone = [
        View(series.name, (series,), None, series.times.are_shown, f"series/{place}")
        for place, series in enumerate(written.analysis.series if written.analysis else ())
        if series.series not in seen and data.analysis.of(series.series)
    ]
    return views + sorted(alone, key=lambda view: view.series[0].sme2 is False)


# Columns and cells that several tables share.


class _OfSeries(Protocol):
    @property
    def series(self) -> Series: ...


def number_cell(value: int | None) -> str:
    return MISSING if value is None else str(value)


SERIES_COLUMNS: tuple[Column[_OfSeries], ...] = (
    Column("experiment", lambda row: row.series.experiment),
    Number("threads", lambda row: number_cell(row.series.threads)),
)


def median_cell(found: LatencySummary | None) -> str:
    return milliseconds(found.median if found else None)


def spread_cell(found: LatencySummary | None) -> str:
    return f"{milliseconds(found.p5)} to {milliseconds(found.p95)}" if found else MISSING


def sme2_switch(sme2: bool | None, *, absent: bool) -> str:
    """Return `on`, `off` or, if the CPU has no SME2, `absent`."""
    if absent:
        return "absent"
    return MISSING if sme2 is None else "on" if sme2 else "off"


def work_cells(operators: Sequence[Operator]) -> tuple[str, str]:
    known = [operator.source for operator in operators if operator.source.flops is not None]
    if operators and not known:
        return MISSING, MISSING
    flops = sum(source.flops or 0 for source in known)
    return f"{flops / 1e6:.1f}", size(float(sum(source.bytes_moved or 0 for source in known)))


def kernel_change_cell(pair: OperatorPair) -> str:
    before, after = pair.families
    if pair.change == "same":
        return after or MISSING
    if pair.change in ("appeared", "vanished"):
        return f"{pair.change} ({after or before})"
    return f"{before} → {after}"


def module_cell(operator: Operator) -> str | Code:
    if operator.origin == "lowering":
        return operator.place
    return Code(operator.source.module_path) if operator.source.module_path else MISSING


def line_cell(operator: Operator) -> str:
    place = operator.source.place
    if not place.file:
        return MISSING
    return f"{place.file.replace(chr(92), '/').rsplit('/', 1)[-1]}:{place.line}"


def precision_cell(operator: Operator) -> str:
    return operator.precision or MISSING


def place_cells(operator: Operator) -> tuple[Text, Text, Text]:
    return precision_cell(operator), module_cell(operator), line_cell(operator)


PLACE_HEADERS = ("precision", "module", "source")
