"""Records to JSON and back: one definition, both directions, and errors that name the field."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from said import refused

from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.records import parse_flat, parse_record, read_record, record_json, write_record


class Colour(str, Enum):
    RED = "red"


@dataclass(frozen=True, slots=True)
class Inner:
    numbers: tuple[int, ...] = ()
    by_handle: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    schema_version: Literal[1] = 1
    name: str
    share: float | None = None
    colour: Colour = Colour.RED
    inner: Inner = Inner()
    path: Path | None = None


outers = st.builds(
    Outer,
    name=st.text(),
    share=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    inner=st.builds(
        Inner,
        st.lists(st.integers()).map(tuple),
        st.dictionaries(st.integers(), st.lists(st.text()).map(tuple)),
    ),
    path=st.none() | st.just(Path("on/x.bin")),
)


@given(outers)
def test_a_record_comes_back_as_it_was(record: Outer) -> None:
    content = json.loads(json.dumps(record_json(record)))
    assert parse_record(Outer, content, "here", "fix it") == record


def test_a_file_of_a_newer_kit_stays_readable_and_an_older_one_is_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    write_record(path, Outer(name="a"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "later": [1]}))
    assert read_record(Outer, path, "fix it") == Outer(name="a")
    path.write_text('{"schema_version": 0, "title": "b"}')
    upgraded = read_record(Outer, path, "fix it", lambda old: {"schema_version": 1, "name": old["title"]})
    assert upgraded == Outer(name="b")


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ({"schema_version": 1}, ("name", "required")),
        ({"name": "a"}, ("schema_version", "required")),
        ({"schema_version": 2, "name": "a"}, ("schema_version", "1")),
        ({"schema_version": 1, "name": 7}, ("name", "string")),
        ({"schema_version": 1, "name": "a", "share": "0.5"}, ("share", "number")),
        ({"schema_version": 1, "name": "a", "colour": "blue"}, ("colour", "'red'")),
        ({"schema_version": 1, "name": "a", "inner": {"numbers": [1, True]}}, ("inner.numbers.1",)),
        ({"schema_version": 1, "name": "a", "inner": {"by_handle": {"1": [2]}}}, ("inner.by_handle.1.0",)),
        ({"schema_version": 1, "name": "a", "inner": None}, ("inner",)),
    ],
)
def test_a_field_that_does_not_fit_is_named(tmp_path: Path, content: object, place: tuple[str, ...]) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps(content))
    field, *wanted = place
    with refused(FormatError, f"{path}: {field}:", *wanted, fix="fix it"):
        read_record(Outer, path, "fix it")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '"a"',
        "",
        "[" * 100_000,
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        f'{{"a": {"9" * 21}}}',
    ],
)
def test_what_is_no_json_object_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.json"
    path.write_text(text)
    with refused(FormatError, path, fix="fix it"):
        read_record(Outer, path, "fix it")
    with refused(InputError, tmp_path / "gone.json", "no such file"):
        read_record(Outer, tmp_path / "gone.json", "fix it")


def test_what_json_cannot_hold_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_record(tmp_path / "r.json", Outer(name="a", share=float("inf")))
    assert list(tmp_path.iterdir()) == []


@dataclass(frozen=True)
class _Part:
    word: str
    count: int = 0
    flag: bool = False


@dataclass(frozen=True)
class _Whole:
    kind: Literal["a", "b"]
    parts: tuple[_Part, ...] = ()


@pytest.mark.parametrize(
    "content",
    [
        {"kind": "a", "parts": [{"word": "x", "count": 2, "flag": True, "later": 1}], "unknown": {}},
        {"kind": "c"},
        {},
        {"kind": 1},
        {"kind": "a", "parts": {}},
        {"kind": "a", "parts": ["x"]},
        {"kind": "a", "parts": [{}]},
        {"kind": "a", "parts": [{"word": 1}]},
        {"kind": "a", "parts": [{"word": None}]},
        {"kind": "a", "parts": [{"word": "x", "count": True}]},
        {"kind": "a", "parts": [{"word": "x", "count": 1.0}]},
        {"kind": "a", "parts": [{"word": "x", "flag": 1}]},
        {"kind": "a", "parts": [{"word": "\ud800"}]},
    ],
    ids=str,
)
def test_the_quick_way_takes_what_the_whole_way_takes(content: dict[str, object]) -> None:
    def told(parse: Callable[..., object]) -> object:
        try:
            return parse(_Whole, content, "file", "fix")
        except FormatError as problem:
            return str(problem).partition(":")[0], problem.fix

    assert told(parse_flat) == told(parse_record)
