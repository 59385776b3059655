"""Every number on a page is in a file of its run: tables cell by cell, charts and sentences one by one."""

from __future__ import annotations

import json
import re
import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser.in_chromium import RECORDED, Opened
from browser.shown_numbers import Files, Json, Shown, unexplained

Open, Written = Callable[..., Opened], Callable[[str], Path]

_OPEN = "for (const each of document.querySelectorAll('details')) each.open = true"


def tables(found: Opened) -> Iterator[tuple[Shown, bool]]:
    """Every table with every choice of every explorer, and whether a chart's numbers are in it."""
    seen = set()
    choosers = found.page.locator(".explorer .controls label:has-text('xperiment') select")
    counts = [choosers.nth(place).locator("option").count() for place in range(choosers.count())]
    most = max(counts, default=1)
    for choice in range(most):
        for place in range(choosers.count()):
            chooser = choosers.nth(place)
            if choice < counts[place]:
                chooser.select_option(str(choice))
        found.ask(_OPEN)
        found.page.wait_for_timeout(30)
        among = ".explorer table" if choice else "main table"
        for table in found.ask("tables.js", among):
            view = table["source"].partition("#/")[2] or table["below"]
            rows = tuple(map(tuple, table["rows"]))
            shown = Shown(table["section"], table["source"], tuple(table["headers"]), rows, view)
            if shown not in seen:
                seen.add(shown)
                yield shown, table["chart"]


@pytest.mark.parametrize("run", RECORDED)
def test_every_number_is_in_a_file_of_the_run(opened: Open, written: Written, run: str) -> None:
    found = opened(written(run))
    files = Files(found.folder)
    known = Known(files)
    wrong: list[str] = []
    kinds = set()
    for table, of_chart in tables(found):
        kinds.add(table.headers[0])
        if not table.source:
            wrong.append(f"{table.section}: a table that names no file")
        if of_chart:
            wrong += _in_no_file(table, known)
        else:
            wrong += unexplained(table, files)
    wrong += [f"{text!r}: {number}" for text in _sentences(found) for number in known.unknown(text)]
    assert not wrong, "\n".join(wrong)
    assert {"layer", "what"} <= kinds


_DERIVED = re.compile(r"%|launch")
"""Of a chart: what is counted or worked out for drawing, which the charts' own tests hold to the samples."""


def _in_no_file(table: Shown, known: Known) -> Iterator[str]:
    for row in table.rows:
        for header, cell in zip(table.headers, row, strict=True):
            figure = re.fullmatch(r"-?\d+(\.\d+)?", cell)
            if figure and not _DERIVED.search(header) and not known.say(cell, 1.01):
                yield f"{table.section}, chart: {header} is {cell} in {row}"


def test_what_a_row_opens_is_in_the_summary(opened: Open, written: Written) -> None:
    found = opened(written("sme2_hardware"))
    found.ask("for (const each of document.querySelectorAll('.open')) each.click()")
    told = Files(found.folder).analysis["series"]
    series = {f"{each['experiment']}, {each['threads']} thread": each for each in told}
    sides = found.ask("facts.js")
    assert len(sides) == 22
    for side in sides:
        operator = series[side["series"]]["operators"][side["operator"]]
        assert_facts(side["facts"], operator)


def assert_facts(facts: dict[str, str], operator: Json) -> None:
    wanted = {
        "runs": ("runs",),
        "median ms": ("median_ms",),
        "ms": ("ms",),
        "p10 ms": ("p10_ms",),
        "p90 ms": ("p90_ms",),
        "million operations": ("flops",),
        "data": ("bytes_moved",),
        "billion operations/s": ("gflops_per_s",),
        "GB/s": ("gbytes_per_s",),
    }
    scales = {"million operations": 1e-6}
    for name, keys in wanted.items():
        if name not in facts:
            assert not any(operator[key] for key in keys)
            continue
        scale = scales.get(name) or {"MB": 1e-6, "kB": 1e-3}.get(facts[name][-2:], 1)
        shown = re.findall(r"\d+(?:\.\d+)?", facts[name])
        for text, key in zip(shown, keys, strict=True):
            digit = 10.0 ** -len(text.partition(".")[2])
            assert abs(float(text) - operator[key] * scale) <= 0.51 * digit, (name, text, operator[key])
    assert facts["output"] == " x ".join(map(str, operator["output_shape"]))
    shapes = [" x ".join(map(str, shape)) for shape in operator["input_shapes"]]
    assert facts.get("inputs", "") == ", ".join(shapes)


def _sentences(found: Opened) -> list[str]:
    """Paragraphs, lists, captions and what is folded, as they are read; not the steps of a colour scale."""
    selector = "main :is(p:not(.note), li:not(.legend > li), figcaption, summary)"
    return [text for text in found.texts(selector) if text]


class Known:
    """Every number of a run's files: as it is, in percent, as a change, in thousands and in millions."""

    def __init__(self, files: Files) -> None:
        values: set[float] = set()
        journal = (files.folder / "journal.jsonl").read_text(encoding="utf-8").splitlines()
        texts = [path.read_text(encoding="utf-8") for path in sorted(files.folder.rglob("*.json"))]
        for text in [*texts, *journal]:
            for number in _numbers(json.loads(text)):
                values |= {number, 100 * number, number / 1e6, number / 1e3, number * 1e3}
                values |= {100 * (1 / number - 1), 100 * (1 - 1 / number)} if number else set()
        self._values = sorted(abs(value) for value in values)

    def say(self, number: str, last_digits: float = 0.51) -> bool:
        """Whether some value, rounded as the number is, is it; one digit off where it is to add up."""
        shown = abs(float(number.replace(",", "")))
        off = last_digits * 10.0 ** -len(number.partition(".")[2])
        at = bisect_left(self._values, shown - off)
        return at < len(self._values) and self._values[at] <= shown + off

    def unknown(self, text: str) -> list[str]:
        """The numbers with a fraction or three digits that nothing says, names of things left out."""
        plain = text
        for name in sorted(set(re.findall(r"[\w./<>-]*[A-Za-z_/][\w./<>-]*", text)), key=len, reverse=True):
            plain = plain.replace(name, " ")
        return [number for number in re.findall(r"\d+\.\d+|\d{3,}", plain) if not self.say(number)]


def _numbers(found: Json) -> Iterator[float]:
    """Those of texts too, as a finding's are in its sentence; calls of SME2 kernels are added up."""
    match found:
        case dict():
            for value in found.values():
                yield from _numbers(value)
        case list():
            yield from (number for value in found for number in _numbers(value))
            if found and all(isinstance(value, float) for value in found):
                yield statistics.median(found)  # of a launch's latencies, in a chart
            uses = [use for use in found if isinstance(use, dict) and "sme2" in str(use.get("name"))]
            yield sum(use.get("calls") or 0 for use in uses)
        case str():
            yield from map(float, re.findall(r"\d+(?:\.\d+)?", found))
        case int() | float():
            yield float(found)
