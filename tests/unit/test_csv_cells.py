"""Names in CSV: a spreadsheet runs none of them, and who reads them has them as they were."""

from __future__ import annotations

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from said import refused

from model_profiling.core.errors import FormatError
from model_profiling.core.records import csv_line, csv_text, own_cell, read_rows, read_table, safe_cell

SIGNS = "=+-@\uff1d\uff0b\uff0d\uff20"
texts = st.text(f"{SIGNS}'\t\r\n ;,\"1.ea") | st.text()
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?([eE][-+]?\d+)?|inf|nan)")


@given(texts)
def test_a_text_is_safe_and_read_back_as_it_was(text: str) -> None:
    cell = safe_cell(text)
    assert own_cell(cell) == text
    for part in re.split(r"[;\t\r\n]", cell):
        shown = part.strip(" ")
        assert shown[:1] not in tuple(SIGNS) or len(shown) == 1 or NUMBER.fullmatch(shown)
    assert cell[:1] not in tuple("\t\r\n") or len(cell) == 1 or cell[1] == ";"


@pytest.mark.parametrize("number", ["-3", "+3.5", "-0.000001", "-1.5e-07", "-inf", "12", "-", ""])
def test_numbers_stay_numbers(number: str) -> None:
    assert safe_cell(number) == number
    assert csv_line((-3, -0.5, number)) == f"-3,-0.5,{number}"


@pytest.mark.parametrize(
    "text", ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1", "a;=1", "a\n=1", "'=1"]
)
def test_what_a_spreadsheet_would_run_is_behind_an_apostrophe(text: str) -> None:
    assert safe_cell(text) != text and safe_cell(f"name {text[-1]}") == f"name {text[-1]}"


@given(st.lists(st.lists(texts.map(lambda text: text.replace("\0", "")), min_size=2, max_size=2), min_size=1))
def test_a_file_is_read_back_as_it_was(rows: list[list[str]]) -> None:
    assert list(read_rows(csv_text(rows), "x.csv", "")) == rows
    plain = list(csv.reader(io.StringIO(csv_text(rows), newline="")))
    assert [list(map(own_cell, row)) for row in plain] == rows, "it is CSV to others, too"


@pytest.mark.parametrize("row", [",", '"a\n",', '"a'])
def test_a_row_has_an_end(row: str) -> None:
    with refused(FormatError, "a.csv", "CSV", fix="remove it"):
        list(read_rows(f"a,b\n{row * (1 << 20)}\n", "a.csv", "remove it"))
    assert len(list(read_rows("a,b\r\nc\rd\n\ne" * 2, "a.csv", ""))) == 9


def test_a_table_that_is_not_whole() -> None:
    columns, rows = read_table("a,'=b\r\n1\n\n1,2,3\n", "x.csv", "")
    assert columns == ("a", "=b")
    assert list(rows) == [{"a": "1", "=b": ""}, {"a": "1", "=b": "2"}]
    assert read_table("", "x.csv", "")[0] == ()
    with refused(FormatError, "x.csv", "line 1", "CSV", fix="make it again"):
        list(read_rows(f"{'9' * 200_000}\n", "x.csv", "make it again"))
    assert list(read_rows("a\0b,c\n", "x.csv", "")) == [["ab", "c"]]
