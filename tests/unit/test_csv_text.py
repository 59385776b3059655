"""CSV made a column at a time says what Python's own formatting says."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import ProfileEvent, dumps

from model_profiling.analysis.summary import analyse_dump
from model_profiling.core.errors import ProfilingError
from model_profiling.core.records import csv_line
from model_profiling.etdump import read_etdump
from model_profiling.report.csv_files import NumberColumn, TextColumn, csv_bytes, write_csv_files
from model_profiling.run import Series, run

numbers = st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-20_000, 20_000)


@settings(deadline=None)
@given(st.lists(st.tuples(numbers, st.booleans(), st.integers(0, 2)), min_size=1), st.integers(0, 6))
def test_numbers_and_texts_come_back_as_they_were(rows, decimals: int) -> None:
    values = np.array([value for value, _, _ in rows], np.int64)
    empty = np.array([blank for _, blank, _ in rows], bool)
    texts = ("plain", 'with, comma and "quotes"', "ünïcode\nand a line")
    columns = [
        NumberColumn(values, decimals, empty),
        TextColumn(
            np.array([code for _, _, code in rows], np.int64), tuple(csv_line((text,)) for text in texts)
        ),
        NumberColumn(values),
    ]
    made = b"".join(csv_bytes(("a", "b", "c"), columns)).decode()
    header, *read = csv.reader(io.StringIO(made, newline=""))
    assert header == ["a", "b", "c"] and len(read) == len(rows)
    for (value, blank, code), (number, text, whole) in zip(rows, read, strict=True):
        assert number == ("" if blank else f"{Decimal(value).scaleb(-decimals):.{decimals}f}")
        assert text == texts[code] and whole == str(value)


def test_more_rows_than_are_formatted_at_once() -> None:
    values = np.arange(-40_000, 40_000, dtype=np.int64)
    made = b"".join(csv_bytes(("n",), [NumberColumn(values, 3)])).decode().splitlines()
    assert made[1:] == [f"{Decimal(int(value)).scaleb(-3):.3f}" for value in values]


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
    paths = write_csv_files(analysed)
    with paths.timeline.open(newline="", encoding="utf-8") as stream:
        assert sum(1 for _ in csv.DictReader(stream)) == len(table)
