"""Latencies out of whatever file holds them: an ETDump, a timeline CSV, a runner's result, plain numbers."""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from model_profiling.analysis.attribution import EXECUTE, counted_runs
from model_profiling.csv_cells import read_table
from model_profiling.errors import FormatError, InputError
from model_profiling.etdump import read_etdump
from model_profiling.reading import open_regular, parse_json, read_text
from model_profiling.run import names
from model_profiling.run.comparability import why_not_comparable
from model_profiling.run.opened import origin_of_file, times_of_file
from model_profiling.run.times import Times


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
        return tuple(value for process in self.rounds for value in process)


class Checked(NamedTuple):
    """What is known of a file before it is read; the last two are as `read_latencies` wants them."""

    times: Times
    warmup_runs: int
    turn_length: int


def check_latencies(path: Path) -> Checked:
    """What the times in `path` mean, and which of its runs count; refused where they are no latencies for
    sure."""
    if not path.is_file():
        raise InputError(f"there is no file {path}", "name an ETDump, a timeline CSV, or a list of latencies")
    times, said_by, result = times_of_file(path)
    if not times.are_shown:
        raise InputError(
            f"{path.name} is from {times.origin} ({said_by} says so): its times are not latencies",
            "name a file of a timing run; `sme2prof report` shows this run's operators and kernels",
        )
    if result is None:
        return Checked(times, 0, 0)
    return Checked(times, result.etdump_warmup_runs, result.etdump_turn_length)


def why_not_compared(before: Path, after: Path) -> str | None:
    """Why the times in two files must not be compared; files of an unknown machine are taken as they are."""
    origins = [origin_of_file(path) for path in (before, after)]
    return None if any(found.times is Times.UNKNOWN for found in origins) else why_not_comparable(*origins)


def read_latencies(path: Path, *, warmup_runs: int = 0, turn_length: int = 0) -> Latencies:
    """The latencies in `path`; what it is shows in its content. Of a dump, those of the runs that count
    (`counted_runs`)."""
    with open_regular(path, follow=True) as stream:
        start = stream.read(64)
    if start[4:6] == b"ED" or names.is_dump(path):
        runs = _from_etdump(path)
        counted = tuple(runs[number] for number in counted_runs(len(runs), warmup_runs, turn_length))
        found = Latencies(path, "etdump", (counted,), tracer_on=True)
    else:
        found = _from_text(path)
    if not found.flat:
        raise FormatError(f"{path} holds no latency", "name a file with at least one run")
    for value in found.flat:
        if not math.isfinite(value) or value < 0:
            raise FormatError(f"{path}: {value} is no latency", "latencies are finite and not negative")
    return found


def _from_text(path: Path) -> Latencies:
    try:
        text = read_text(path, follow=True, errors="strict")
    except UnicodeDecodeError as problem:
        what = f"{path} is neither an ETDump nor text (byte {problem.start})"
        raise FormatError(what, "name another file") from problem
    if text.lstrip().startswith(("{", "[")):
        return _from_json(path, text)
    if "duration_ms" in text.partition("\n")[0]:
        return Latencies(path, "timeline", (_from_timeline(path, text),), tracer_on=True)
    numbers = tuple(_number(path, word) for word in re.split(r"[\s,;]+", text) if word)
    return Latencies(path, "numbers", (numbers,), tracer_on=False)


def _from_etdump(path: Path) -> tuple[float, ...]:
    table = read_etdump(path)
    runs = table.name == table.name_index(EXECUTE)
    return tuple(float(ns) / 1e6 for ns in table.duration_ns[runs])


def _from_timeline(path: Path, text: str) -> tuple[float, ...]:
    # What lies outside the measured runs (warm-up) is in the file, but is no latency.
    _, rows = read_table(text, path, "name another file")
    runs = (row for row in rows if row.get("name") == EXECUTE and row.get("level") != "outside")
    return tuple(_number(path, row.get("duration_ms")) for row in runs)


def _from_json(path: Path, text: str) -> Latencies:
    content = parse_json(text, str(path), "name another file")
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
            scaled = tuple(tuple(value * scale for value in process) for process in rounds)
            return Latencies(path, kind, scaled, tracer_on=content.get("tracer_on") is True)
    what = f"{path} has none of end_to_end_rounds_ms, latencies_ms and iterations_ns"
    raise FormatError(what, "name another file")


def _rounds(path: Path, content: list[object]) -> tuple[tuple[float, ...], ...]:
    """A list of numbers is one process; a list of lists is one process each."""
    processes = [process for process in content if isinstance(process, list)]
    if len(processes) < len(content) or not content:
        processes = [content]
    return tuple(tuple(_number(path, value) for value in process) for process in processes)


def _number(path: Path, value: object) -> float:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            return float(value)
    raise FormatError(f"{path}: {value!r} is not a latency", "write numbers, in milliseconds")
