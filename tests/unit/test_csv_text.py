"""CSV: a column at a time it says what Python's formatting says; no spreadsheet runs a name."""

import csv
import io
import re
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from said import refused
from strategies import ProfileEvent, dumps

from model_profiling.analysis.operators import analyse_dump
from model_profiling.analysis.series import series_of
from model_profiling.config.series import Series
from model_profiling.core.errors import FormatError, ProfilingError
from model_profiling.core.records import csv_line, csv_text, own_cell, read_rows, read_table, safe_cell
from model_profiling.etdump import read_etdump
from model_profiling.report.csv_files import csv_bytes, number_column, text_column, write_csv_files
from model_profiling.runs import run

numbers = st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-20_000, 20_000)


@settings(deadline=None)
@given(st.lists(st.tuples(numbers, st.booleans(), st.integers(0, 2)), min_size=1), st.integers(0, 6))
def test_numbers_and_texts_come_back_as_they_were(rows, decimals: int) -> None:
    values = np.array([value for value, _, _ in rows], np.int64)
    empty = np.array([blank for _, blank, _ in rows], bool)
    texts = ("plain", 'with, comma and "quotes"', "ünïcode\nand a line")
    codes = np.array([code for _, _, code in rows], np.int64)
    told = text_column(codes, tuple(csv_line((text,)) for text in texts))
    columns = [number_column(values, decimals, empty), told, number_column(values)]
    made = b"".join(csv_bytes(("a", "b", "c"), len(rows), columns)).decode()
    header, *read = csv.reader(io.StringIO(made, newline=""))
    assert header == ["a", "b", "c"] and len(read) == len(rows)
    for (value, blank, code), (number, text, whole) in zip(rows, read, strict=True):
        assert number == ("" if blank else f"{Decimal(value).scaleb(-decimals):.{decimals}f}")
        assert text == texts[code] and whole == str(value)


@settings(deadline=None)
@given(dumps, st.integers(0, 2**62))
def test_whatever_a_dump_holds_its_files_hold_or_one_error_says_why_not(tmp_path_factory, dump, length):
    execute = ProfileEvent("Method::execute", -1, 0, -1, None, None, 0, length)
    blocks = tuple(replace(block, events=(*block.events, execute)) for block in dump.blocks)
    table = read_etdump(replace(dump, blocks=blocks).to_bytes())
    folder: Path = tmp_path_factory.mktemp("any")
    try:
        analysed = analyse_dump(table, run.Dump(folder / "made.etdump", Series("made")))
    except ProfilingError:
        return
    assert analysed.breakdown.closes
    paths = write_csv_files(series_of([analysed]), {})
    with paths.timeline.open(newline="", encoding="utf-8") as stream:
        assert sum(1 for _ in csv.DictReader(stream)) == analysed.attribution.event_count <= len(table)


SIGNS = "=+-@\uff1d\uff0b\uff0d\uff20"
any_text = st.text(f"{SIGNS}'\t\r\n ;,\"1.ea") | st.text()
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?([eE][-+]?\d+)?|inf|nan)")


@given(any_text)
def test_a_text_is_safe_and_read_back_as_it_was(text: str) -> None:
    cell = safe_cell(text)
    assert own_cell(cell) == text
    for part in re.split(r"[;\t\r\n]", cell):
        shown = part.strip(" ")
        assert shown[:1] not in tuple(SIGNS) or len(shown) == 1 or NUMBER.fullmatch(shown)
    assert cell[:1] not in tuple("\t\r\n") or len(cell) == 1 or cell[1] == ";"


@pytest.mark.parametrize(
    "text", ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", " =1", "a;=1", "a\n=1", "'=1"]
)
def test_what_a_spreadsheet_would_run_is_behind_an_apostrophe_and_numbers_are_not(text: str) -> None:
    assert safe_cell(text) != text and safe_cell(f"name {text[-1]}") == f"name {text[-1]}"
    for number in ("-3", "+3.5", "-0.000001", "-1.5e-07", "-inf", "12", "-", ""):
        assert safe_cell(number) == number and csv_line((-0.5, number)) == f"-0.5,{number}"


cell_text = any_text.map(lambda text: text.replace("\0", ""))


@given(st.lists(st.lists(cell_text, min_size=2, max_size=2), min_size=1))
def test_a_file_is_read_back_as_it_was(rows: list[list[str]]) -> None:
    assert list(read_rows(csv_text(rows), "x.csv", "")) == rows
    plain = list(csv.reader(io.StringIO(csv_text(rows), newline="")))
    assert [list(map(own_cell, row)) for row in plain] == rows, "it is CSV to others, too"


@pytest.mark.parametrize("row", [",", '"a\n",', '"a'])
def test_a_row_has_an_end(row: str) -> None:
    with refused(FormatError, "a.csv", "CSV", fix="remove it"):
        list(read_rows(f"a,b\n{row * (1 << 20)}\n", "a.csv", "remove it"))
    assert len(list(read_rows("a,b\r\nc\rd\n\ne" * 2, "a.csv", ""))) == 9


def test_a_table_that_is_not_whole_or_longer_than_is_formatted_at_once() -> None:
    columns, rows = read_table("a,'=b\r\n1\n\n1,2,3\n", "x.csv", "")
    assert columns == ("a", "=b")
    assert list(rows) == [{"a": "1", "=b": ""}, {"a": "1", "=b": "2"}]
    assert read_table("", "x.csv", "")[0] == ()
    with refused(FormatError, "x.csv", "line 1", "CSV", fix="make it again"):
        list(read_rows(f"{'9' * 200_000}\n", "x.csv", "make it again"))
    assert list(read_rows("a\0b,c\n", "x.csv", "")) == [["ab", "c"]]
    values = np.arange(-40_000, 40_000, dtype=np.int64)
    made = b"".join(csv_bytes(("n",), len(values), [number_column(values, 3)])).decode().splitlines()
    assert made[1:] == [f"{Decimal(int(value)).scaleb(-3):.3f}" for value in values]
