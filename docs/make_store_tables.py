"""Writes the tables of docs/reference/store.md from the store's own definitions.

A test holds the page to them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model_profiling.store.tables import TABLES, Table

PAGE = Path(__file__).parent / "reference" / "store.md"
BEGIN, END = "<!-- tables -->\n", "<!-- end of tables -->\n"


def with_tables(page: str) -> str:
    """`page` with the tables as they are now."""
    before, _, rest = page.partition(BEGIN)
    return (
        f"{before}{BEGIN}{''.join(line for table in TABLES.values() for line in _lines(table))}{END}"
        + (rest.partition(END)[2])
    )


def _lines(table: Table) -> Iterator[str]:
    yield f"\n**`{table.name}`**: {table.meaning}.\n\n| column | type | |\n|---|---|---|\n"
    for column in table.columns:
        yield f"| `{column.name}` | {column.sql_type} | {column.meaning} |\n"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
