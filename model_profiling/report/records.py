"""Rows with named columns: how figures leave the kit towards Python, without pandas until it is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

from model_profiling.errors import SetupError
from model_profiling.extras import needed
from model_profiling.wording import plural

if TYPE_CHECKING:
    import pandas

Value: TypeAlias = str | int | float | bool | None
Kind = Literal["text", "whole", "number", "flag"]
Columns: TypeAlias = Mapping[str, Kind]
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


def _series(values: list[Value], kind: Kind) -> pandas.Series:
    import pandas

    if kind == "text":
        return pandas.Series(["" if value is None else value for value in values], dtype="object")
    dtypes = _WITH_GAPS if None in values else _PLAIN
    return pandas.Series(values, dtype=dtypes[kind])
