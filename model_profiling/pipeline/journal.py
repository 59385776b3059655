"""The journal of a run: one line for every process that ended, appended when everything it left is in place.

A line is written with a single call and flushed to the disk, so after a crash the journal holds every
finished process and at most one torn line at its end, which reading it leaves out. When a step appears twice
(a round that was cut short and measured again), the later line counts.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, cast

from model_profiling.errors import FormatError, InputError
from model_profiling.pipeline.schedule import Kind, Series, Step

JOURNAL_FILE = "journal.jsonl"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Output:
    """One output tensor of an evidence process; `file` is relative to the run directory."""

    file: str
    dtype: str
    shape: tuple[int, ...]
    dim_order: tuple[int, ...]
    nan: int
    inf: int
    checksum: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """How one process ended and what it measured; paths are relative to the run directory."""

    kind: Kind
    experiment: str
    threads: int
    round: int
    session: int
    """Which start of the pipeline ran it; only processes of one session ran side by side."""
    state: Literal["done", "failed"]
    started: str
    seconds: float
    problem: str | None = None
    fix: str | None = None
    iterations_ns: tuple[int, ...] = ()
    load_ns: int | None = None
    first_ns: int | None = None
    peak_memory_bytes: int | None = None
    features_present: tuple[str, ...] = ()
    features_masked: tuple[str, ...] = ()
    features_verified: bool | None = None
    """Whether the runner's view of the CPU is the operating system's; None where it did not look."""
    features_note: str | None = None
    build_id: str | None = None
    executorch_version: str | None = None
    etdump: str | None = None
    etdump_warmup_runs: int = 0
    log: str | None = None
    outputs: tuple[Output, ...] = ()
    kernels: Mapping[str, int | None] = field(default_factory=dict)
    kernels_at_load: Mapping[str, int | None] = field(default_factory=dict)
    """Kernels that pack weights while the program loads; in none of `kernels`."""
    kernels_note: str | None = None
    temperature_c: float | None = None

    @property
    def step(self) -> Step:
        return Step(self.kind, self.series, self.round)

    @property
    def series(self) -> Series:
        return Series(self.experiment, self.threads)


class Journal:
    """The journal of one run directory, read once and appended to."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / JOURNAL_FILE
        whole = _whole_lines(self._path)
        self._size = len(whole)
        entries = (
            _parse(self._path, number, line) for number, line in enumerate(whole.splitlines(), start=1)
        )
        self._entries: dict[str, Entry] = {entry.step.key: entry for entry in entries}

    def entries(self) -> tuple[Entry, ...]:
        """The entry that counts for every step, in the order they were first begun."""
        return tuple(self._entries.values())

    def of(self, step: Step) -> Entry | None:
        return self._entries.get(step.key)

    def done(self, step: Step) -> bool:
        entry = self._entries.get(step.key)
        return entry is not None and entry.state == "done"

    def all_done(self, steps: Iterable[Step]) -> bool:
        return all(self.done(step) for step in steps)

    @property
    def rounds_begun(self) -> int:
        """How many rounds have left anything here."""
        rounds = (entry.round + 1 for entry in self._entries.values() if entry.kind != "evidence")
        return max(rounds, default=0)

    def append(self, entry: Entry) -> None:
        line = json.dumps({"schema_version": SCHEMA_VERSION, **asdict(entry)}, allow_nan=False) + "\n"
        content = line.encode("utf-8")
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT, 0o644)
            try:
                # What lies behind the last whole line is a crash's or a full disk's doing.
                os.ftruncate(handle, self._size)
                if os.pwrite(handle, content, self._size) != len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            raise InputError(
                f"cannot write {self._path}: {reason}", "free some space, then continue with --resume"
            ) from problem
        self._size += len(content)
        self._entries[entry.step.key] = entry


def _whole_lines(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return b""
    return content[: content.rfind(b"\n") + 1]


def _parse(path: Path, number: int, line: bytes) -> Entry:
    try:
        content = json.loads(line)
        if content.pop("schema_version") != SCHEMA_VERSION:
            raise ValueError("another schema version")
        outputs = tuple(
            Output(**{**one, "shape": tuple(one["shape"]), "dim_order": tuple(one["dim_order"])})
            for one in content.pop("outputs")
        )
        lists = {key: tuple(value) for key, value in content.items() if isinstance(value, list)}
        return Entry(**cast("dict[str, object]", {**content, **lists}), outputs=outputs)  # type: ignore[arg-type]
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise FormatError(
            f"{path}, line {number} is damaged: {problem}",
            "measure again with --force, or another output_root",
        ) from problem
