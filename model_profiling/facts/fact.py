"""A fact: one thing that the kit knows, with its name, kind, meaning, and where a record has it.

Files, tables for Python, stores, answers for assistants, pages and documents are made from lists of facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

Value: TypeAlias = str | int | float | bool | None
ColumnKind = Literal["text", "whole", "number", "flag", "moment", "texts", "numbers"]
FactKind = Literal[ColumnKind, "shape", "shapes", "names", "record"]
Reader = Literal["csv", "python", "store", "json", "assistant", "page", "trace"]
"""Who gets a fact. Of operators, Python's tables and stores have the columns of `csv`."""
ALL: tuple[Reader, ...] = "csv", "json", "assistant", "page", "trace"

JSON_TYPES: dict[FactKind, Any] = {
    "text": str,
    "whole": int | None,
    "number": float | None,
    "flag": bool | None,
    "texts": tuple[str, ...],
    "numbers": tuple[float, ...],
    "names": tuple[str, ...],
    "shape": tuple[int, ...],
    "shapes": tuple[tuple[int, ...], ...],
    "record": dict[str, Any] | None,
}
SQL_TYPES: dict[ColumnKind, str] = {
    "text": "VARCHAR",
    "whole": "BIGINT",
    "number": "DOUBLE",
    "flag": "BOOLEAN",
    "moment": "TIMESTAMP",
    "texts": "VARCHAR[]",
    "numbers": "DOUBLE[]",
}
_AS_TEXT: frozenset[FactKind] = frozenset({"shape", "shapes", "names"})

Row_contra = TypeVar("Row_contra", contravariant=True)
Known = TypeVar("Known")


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: FactKind
    meaning: str

    @property
    def column_kind(self) -> ColumnKind:
        return "text" if self.kind in _AS_TEXT else self.kind  # type: ignore[return-value]

    @property
    def sql_type(self) -> str:
        return SQL_TYPES[self.column_kind]

    @property
    def json_type(self) -> Any:
        return JSON_TYPES[self.kind]

    def as_cell(self, value: Any) -> Any:
        """Its value as one cell of a table."""
        match self.kind:
            case "shape":
                return shape_text(value)
            case "shapes":
                return " ".join(map(shape_text, value))
            case "names":
                return " + ".join(value)
        return value


@dataclass(frozen=True, slots=True)
class Fact(Column, Generic[Row_contra]):
    """A column, and how to read it from a record."""

    of: Callable[[Row_contra], Any]
    readers: Sequence[Reader] = ALL
    label: str = ""
    """What a page calls it, where that is not its name."""
    shown: Callable[[Any], str] | None = None
    """How a page words its value."""

    @property
    def called(self) -> str:
        return self.label or self.name.replace("_", " ")

    @property
    def timed(self) -> bool:
        """Whether it follows from times."""
        return self.kind == "number" or self.name == "runs"

    def cell(self, row: Row_contra) -> Any:
        return self.as_cell(self.of(row))

    def text(self, row: Row_contra) -> str:
        """The value in words, for a page; empty where it is not known."""
        value = self.of(row)
        if value is None or value == "":
            return ""
        if self.shown:
            return self.shown(value)
        match self.kind:
            case "shape":
                return shape_text(value, " x ")
            case "shapes":
                return ", ".join(shape_text(each, " x ") for each in value)
            case "number":
                return f"{value:.4g}"
        return str(value)


def choose_facts(facts: Iterable[Fact[Known]], reader: Reader) -> tuple[Fact[Known], ...]:
    return tuple(fact for fact in facts if reader in fact.readers)


def row_cells(facts: Iterable[Fact[Known]], row: Known) -> tuple[Any, ...]:
    return tuple(fact.cell(row) for fact in facts)


def row_json(facts: Iterable[Fact[Known]], row: Known) -> dict[str, Any]:
    """What files of JSON say of `row`."""
    return {fact.name: fact.of(row) for fact in facts if "json" in fact.readers}


def shape_text(shape: Sequence[int], sign: str = "x") -> str:
    return sign.join(map(str, shape))
