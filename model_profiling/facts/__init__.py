"""A fact: one value that the kit can report, with its name, kind, meaning and how to read it from a record.

CSV and JSON files, Python tables, stores, assistants' answers, pages and documents are built from fact lists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from model_profiling.core.formatting import milliseconds

Value: TypeAlias = str | int | float | bool | None
ColumnKind = Literal["text", "whole", "number", "flag", "moment", "texts", "numbers"]
FactKind = Literal[ColumnKind, "shape", "shapes", "names", "record"]

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

    def as_cell(self, value: Any) -> Any:
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
    of: Callable[[Row_contra], Any]
    label: str = ""
    """The name on a page; empty means `name`."""
    shown: Callable[[Any], str] | None = None
    """How to write the value on a page."""

    @property
    def called(self) -> str:
        return self.label or self.name.replace("_", " ")

    @property
    def timed(self) -> bool:
        """Whether the value is derived from times."""
        return self.kind == "number" or self.name == "runs"

    def cell(self, row: Row_contra) -> Any:
        return self.as_cell(self.of(row))

    def text(self, row: Row_contra) -> str:
        """Return the value as text for a page; empty if it is unknown."""
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
                return milliseconds(value) if self.name.endswith("ms") else f"{value:.4g}"
        return str(value)


def row_cells(facts: Iterable[Fact[Known]], row: Known) -> tuple[Any, ...]:
    return tuple(fact.cell(row) for fact in facts)


def row_json(facts: Iterable[Fact[Known]], row: Known) -> dict[str, Any]:
    return {fact.name: fact.of(row) for fact in facts}


def shape_text(shape: Sequence[int], sign: str = "x") -> str:
    return sign.join(map(str, shape))
