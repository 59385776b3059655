"""What a runner says about one job, as a record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from model_profiling.errors import RunError
from model_profiling.runner.features import features_of_flags

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class OutputFacts:
    """One output tensor of the last execution."""

    index: int
    dtype: str
    shape: tuple[int, ...]
    dim_order: tuple[int, ...]
    bytes: int
    checksum: str
    nan: int
    inf: int
    file: Path | None


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
    executorch_version: str | None = None
    build_id: str | None = None
    compiler: str | None = None


def read_result(path: Path) -> RunnerResult:
    """The result that the kit's own runner wrote to `path`."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return _parse(content)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise RunError(f"the runner's result {path} cannot be read: {problem}", "run it again") from problem


def read_features(text: str) -> tuple[str, ...]:
    """The CPU features in what `--features-only` printed."""
    try:
        return features_of_flags(json.loads(text)["flags_present"])
    except (ValueError, KeyError, TypeError) as problem:
        raise RunError(f"the runner's feature report cannot be read: {problem}", "run it again") from problem


def _parse(content: Json) -> RunnerResult:
    if content["schema_version"] != 1:
        raise ValueError(f"schema version {content['schema_version']} is not known")
    return RunnerResult(
        iterations_ns=tuple(cast("list[int]", content["iterations_ns"])),
        threads=cast("int", content["threads"]),
        warmup=cast("int", content["warmup"]),
        load_ns=cast("int", content["load_ns"]),
        first_ns=cast("int", content["first_ns"]),
        loop_ns=cast("int", content["loop_ns"]),
        features_present=features_of_flags(cast("list[str]", content["flags_present"])),
        features_masked=features_of_flags(cast("list[str]", content["flags_masked"])),
        features_verified=cast("bool", content["layout_verified"]),
        features_note=cast("str | None", content["features_note"]),
        traced=cast("bool", content["traced"]),
        peak_memory_bytes=cast("int", content["peak_memory_bytes"]),
        backends=tuple(cast("list[str]", content["backends"])),
        outputs=tuple(_output(item) for item in cast("list[Json]", content["outputs"])),
        kernels=cast("dict[str, int] | None", content["kernels"]),
        kernels_at_load=cast("dict[str, int] | None", content["kernels_at_load"]),
        kernels_unavailable=cast("str | None", content["kernels_unavailable"]),
        executorch_version=cast("str", content["executorch"]),
        build_id=cast("str", content["build_id"]),
        compiler=cast("str", content["compiler"]),
    )


def _output(item: Json) -> OutputFacts:
    file = cast("str | None", item["file"])
    return OutputFacts(
        index=cast("int", item["index"]),
        dtype=cast("str", item["dtype"]),
        shape=tuple(cast("list[int]", item["shape"])),
        dim_order=tuple(cast("list[int]", item["dim_order"])),
        bytes=cast("int", item["bytes"]),
        checksum=cast("str", item["checksum"]),
        nan=cast("int", item["nan"]),
        inf=cast("int", item["inf"]),
        file=Path(file) if file else None,
    )
