"""Rows with named columns, and the columns of a run's tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, overload

from model_profiling.core.errors import SetupError
from model_profiling.core.formatting import plural
from model_profiling.core.hints import needed
from model_profiling.facts import operators as operator_facts
from model_profiling.facts.operators import ColumnKind, Value

if TYPE_CHECKING:
    import pandas

# Rows with named columns: how figures leave the kit towards Python, without pandas until it is asked for.

Columns: TypeAlias = Mapping[str, ColumnKind]
"""Each column's name and what it holds, in order."""

_NAMED_IN_SHORT = 4
_PLAIN = {"whole": "int64", "number": "float64", "flag": "bool"}
_WITH_GAPS = {"whole": "Int64", "number": "float64", "flag": "boolean"}


@dataclass(frozen=True, slots=True, repr=False)
class Records(Sequence[Mapping[str, Value]]):
    """A table of a run: each row a mapping from column to value, None where nothing is known.

    `table.to_pandas()` is a DataFrame, `table[0]["name"]` one value, `for row in table` needs no pandas.
    """

    kinds: Columns
    rows: tuple[tuple[Value, ...], ...]

    @classmethod
    def of(cls, kinds: Columns, rows: Iterable[Sequence[Value]]) -> Records:
        return cls(kinds, tuple(tuple(row) for row in rows))

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.kinds)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, place: int) -> Mapping[str, Value]: ...
    @overload
    def __getitem__(self, place: slice) -> Records: ...
    def __getitem__(self, place: int | slice) -> Mapping[str, Value] | Records:
        if isinstance(place, slice):
            return Records(self.kinds, self.rows[place])
        return dict(zip(self.kinds, self.rows[place], strict=True))

    def __iter__(self) -> Iterator[Mapping[str, Value]]:
        return (dict(zip(self.kinds, row, strict=True)) for row in self.rows)

    def to_pandas(self) -> pandas.DataFrame:
        """A DataFrame with a row for each row; numbers that are not known are missing, texts empty.

        Needs the extra `pandas`; so does nothing else here.
        """
        needed("pandas", "pandas")
        import pandas

        return pandas.DataFrame(
            {
                name: _series([row[place] for row in self.rows], kind)
                for place, (name, kind) in enumerate(self.kinds.items())
            }
        )

    def __repr__(self) -> str:
        first, more = self.columns[:_NAMED_IN_SHORT], len(self.columns) - _NAMED_IN_SHORT
        rest = f" and {more} more columns" if more > 0 else ""
        return f"<Records: {plural(len(self), 'row')} of {', '.join(first)}{rest}>"

    def _repr_html_(self) -> str | None:
        """Pandas' own picture of a table, which escapes what it shows; none without pandas."""
        try:
            frame = self.to_pandas()
        except SetupError:
            return None
        html: str = frame.to_html(max_rows=20, max_cols=16, notebook=True)
        return html


def _series(values: list[Value], kind: ColumnKind) -> pandas.Series:
    import pandas

    if kind == "text":
        return pandas.Series(["" if value is None else value for value in values], dtype="object")
    dtypes = _WITH_GAPS if None in values else _PLAIN
    return pandas.Series(values, dtype=dtypes[kind])


# The columns of a run's tables (`analysed.py`), for whoever only needs to know them.

_SERIES: Columns = {"experiment": "text", "threads": "whole"}
_TRACED: Columns = {**_SERIES, "times": "text"}
CATEGORIES: Columns = {
    **_TRACED, "category": "text", "ms": "number", "pct_of_e2e": "number", "operators": "whole",
}  # fmt: skip
OPERATORS: Columns = {**_TRACED, "ms": "number", **operator_facts.columns()}
LATENCIES: Columns = {
    **_SERIES, "sme2": "flag", "measured": "text", "rounds": "whole", "median_ms": "number",
    "mean_ms": "number", "p5_ms": "number", "p95_ms": "number", "min_ms": "number", "max_ms": "number",
    "robust_cv": "number", "traced_median_ms": "number", "tracer_cost": "number", "load_ms": "number",
    "first_inference_ms": "number", "peak_memory_bytes": "whole",
}  # fmt: skip
SAMPLES: Columns = {**_SERIES, "round": "whole", "sample": "whole", "ms": "number"}
_ANSWER: Columns = {"verdict": "text", "ratio": "number", "low": "number", "high": "number"}
SPEEDUPS: Columns = {
    "comparison": "text", "baseline": "text", "baseline_threads": "whole", "candidate": "text",
    "candidate_threads": "whole", **_ANSWER, "confidence": "number", "baseline_median": "number",
    "candidate_median": "number", "rounds": "whole", "unit": "text", "with_tracer": "flag", "reason": "text",
}  # fmt: skip
_BOTH_SIDES: Columns = {"baseline_ms": "number", "candidate_ms": "number", **_ANSWER}
CATEGORY_CHANGES: Columns = {
    "comparison": "text", "category": "text", **_BOTH_SIDES, "baseline_share": "number",
    "candidate_share": "number",
}  # fmt: skip
OPERATOR_CHANGES: Columns = {
    "comparison": "text", "operator": "text", "category": "text", "place": "text", "change": "text",
    **_BOTH_SIDES, "baseline": "text", "candidate": "text", "kernel_before": "text", "kernel_after": "text",
}  # fmt: skip
