"""Latencies out of whatever file holds them: an ETDump, a timeline CSV, a runner's result, plain numbers."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

from model_profiling.errors import FormatError, InputError
from model_profiling.etdump import read_etdump
from model_profiling.run.comparability import why_not_comparable
from model_profiling.run.opened import origin_of_file, times_of_file
from model_profiling.run.times import Times

_EXECUTE = "Method::execute"


@dataclass(frozen=True, slots=True)
class Latencies:
    """End-to-end latencies in milliseconds, one sequence per process, and what kind of file they are from."""

    path: Path
    kind: str
    rounds: tuple[tuple[float, ...], ...]
    tracer_on: bool
    """Dumps, and what is made of them, were measured with the event tracer on: that costs time."""

    @property
    def flat(self) -> tuple[float, ...]:
        return tuple(value for one in self.rounds for value in one)


def check_latencies(path: Path) -> tuple[Times, int]:
    """What the times in `path` mean, and how many runs at its beginning are warm-up; refused where they are
    no latencies for sure."""
    if not path.is_file():
        raise InputError(f"there is no file {path}", "name an ETDump, a timeline CSV, or a list of latencies")
    times, said_by, result = times_of_file(path)
    if not times.are_shown:
        raise InputError(
            f"{path.name} is from {times.origin} ({said_by} says so): its times are not latencies",
            "name a file of a timing run; `sme2prof report` shows this run's operators and kernels",
        )
    return times, result.etdump_warmup_runs if result else 0


def why_not_compared(before: Path, after: Path) -> str | None:
    """Why the times in two files must not be compared; files of an unknown machine are taken as they are."""
    origins = [origin_of_file(path) for path in (before, after)]
    return None if any(found.times is Times.UNKNOWN for found in origins) else why_not_comparable(*origins)


def read_latencies(path: Path, *, warmup_runs: int = 0) -> Latencies:
    """The latencies in `path`; what it is shows in its content. A dump's first `warmup_runs` are left out."""
    with path.open("rb") as stream:
        start = stream.read(64)
    if start[4:6] == b"ED" or path.suffix == ".etdump":
        found = Latencies(path, "etdump", (_from_etdump(path)[warmup_runs:],), tracer_on=True)
    else:
        found = _from_text(path, _text(path))
    if not found.flat:
        raise FormatError(f"{path} holds no latency", "name a file with at least one run")
    _check(found)
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as problem:
        raise FormatError(
            f"{path} is neither an ETDump nor text (byte {problem.start})", "name another file"
        ) from problem


def _from_text(path: Path, text: str) -> Latencies:
    if text.lstrip().startswith(("{", "[")):
        return _from_json(path, text)
    if "duration_ms" in text.partition("\n")[0]:
        return Latencies(path, "timeline", (_from_timeline(path, text),), tracer_on=True)
    return Latencies(path, "numbers", (_from_numbers(path, text),), tracer_on=False)


def _from_etdump(path: Path) -> tuple[float, ...]:
    table = read_etdump(path)
    name = table.name_index(_EXECUTE)
    return tuple(float(ns) / 1e6 for ns in table.duration_ns[table.name == name]) if name >= 0 else ()


def _from_timeline(path: Path, text: str) -> tuple[float, ...]:
    found = []
    for row in csv.DictReader(text.splitlines()):
        # What lies outside the measured runs (warm-up) is in the file, but is no latency.
        if row.get("name") == _EXECUTE and row.get("level") != "outside":
            found.append(_number(path, row.get("duration_ms")))
    return tuple(found)


def _from_numbers(path: Path, text: str) -> tuple[float, ...]:
    return tuple(_number(path, word) for word in re.split(r"[\s,;]+", text) if word)


def _from_json(path: Path, text: str) -> Latencies:
    try:
        content: object = json.loads(text)
    except ValueError as problem:
        raise FormatError(f"{path} is not JSON: {problem}", "name another file") from problem
    if isinstance(content, list):
        return Latencies(path, "numbers", _rounds(path, content), tracer_on=False)
    assert isinstance(content, dict)
    for key, kind, scale in (
        ("end_to_end_rounds_ms", "statistics", 1.0),
        ("latencies_ms", "statistics", 1.0),
        ("iterations_ns", "runner result", 1e-6),
    ):
        if isinstance(content.get(key), list):
            rounds = _rounds(path, content[key])
            scaled = tuple(tuple(value * scale for value in one) for one in rounds)
            return Latencies(path, kind, scaled, tracer_on=content.get("tracer_on") is True)
    raise FormatError(
        f"{path} has none of end_to_end_rounds_ms, latencies_ms and iterations_ns", "name another file"
    )


def _rounds(path: Path, content: list[object]) -> tuple[tuple[float, ...], ...]:
    """A list of numbers is one process; a list of lists is one process each."""
    if content and all(isinstance(one, list) for one in content):
        return tuple(tuple(_number(path, value) for value in one) for one in content if isinstance(one, list))
    return (tuple(_number(path, value) for value in content),)


def _number(path: Path, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise FormatError(f"{path}: {value!r} is not a latency", "write numbers, in milliseconds")
    try:
        return float(value)
    except ValueError as problem:
        raise FormatError(
            f"{path}: {value!r} is not a latency", "write numbers, in milliseconds"
        ) from problem


def _check(found: Latencies) -> None:
    for value in found.flat:
        if not math.isfinite(value) or value < 0:
            raise FormatError(f"{found.path}: {value} is no latency", "latencies are finite and not negative")
