"""What a runner says about one job, as a record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from model_profiling.errors import FormatError, InputError, RunError
from model_profiling.json_record import JsonObject, parse_record, read_json_object
from model_profiling.runner.features import features_of_flags


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """One output tensor of the last execution; in a run directory `file` is relative to it."""

    file: Path | None
    dtype: str = ""
    shape: tuple[int, ...] = ()
    dim_order: tuple[int, ...] = ()
    index: int = 0
    bytes: int = 0
    checksum: str = ""
    nan: int = 0
    inf: int = 0


@dataclass(frozen=True, slots=True)
class RunnerResult:
    """Times in nanoseconds of a monotonic clock, and the circumstances they were taken in.

    A runner that is not the kit's own says less: what it does not say is None or empty.
    """

    iterations_ns: tuple[int, ...]
    threads: int
    warmup: int
    load_ns: int | None = None
    first_ns: int | None = None
    loop_ns: int | None = None
    features_present: tuple[str, ...] = ()
    features_masked: tuple[str, ...] = ()
    features_verified: bool = False
    features_note: str | None = None
    traced: bool = False
    peak_memory_bytes: int | None = None
    backends: tuple[str, ...] = ()
    outputs: tuple[OutputFacts, ...] = ()
    kernels: Mapping[str, int] | None = None
    kernels_at_load: Mapping[str, int] | None = None
    kernels_unavailable: str | None = None
    boundaries_unavailable: str | None = None
    executorch_version: str | None = None
    build_id: str | None = None
    compiler: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _ResultFile:
    """The JSON that the kit's own runner writes; its words for CPU features are cpuinfo's flags."""

    schema_version: Literal[1]
    flags_present: tuple[str, ...]
    flags_masked: tuple[str, ...]
    layout_verified: bool
    executorch: str


def read_result(path: Path) -> RunnerResult:
    """The result that the kit's own runner wrote to `path`."""
    try:
        return parse_result(read_json_object(path, "run it again"), str(path))
    except (InputError, FormatError) as problem:
        raise RunError(f"the runner's result cannot be read: {problem.problem}", "run it again") from problem


def parse_result(content: JsonObject, where: str) -> RunnerResult:
    """The result in the JSON that the kit's own runner made; `where` names its place in an error."""
    own = parse_record(_ResultFile, content, where, "run it again")
    translated = {
        "features_present": features_of_flags(own.flags_present),
        "features_masked": features_of_flags(own.flags_masked),
        "features_verified": own.layout_verified,
        "executorch_version": own.executorch,
    }
    result = parse_record(RunnerResult, {**content, **translated}, where, "run it again")
    times = result.iterations_ns
    if times and not 0 <= min(times) <= max(times) < 1 << 62:
        raise FormatError(f"{where}: iterations_ns: a time that no clock tells", "run it again")
    return result


def read_features(text: str) -> tuple[str, ...]:
    """The CPU features in what `--features-only` printed."""
    try:
        return features_of_flags(json.loads(text)["flags_present"])
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise RunError(f"the runner's feature report cannot be read: {problem}", "run it again") from problem
