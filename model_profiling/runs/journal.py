"""The journal of a run: one line for every process that ended, appended when its files are in place.

A line is written with a single call and flushed to disk, so after a crash the journal holds every finished
process and at most one torn last line, which the reader ignores. If a step appears twice (a round that was
cut short and repeated), the later line counts. The lines of processes that took turns are written together,
and a launch with a missing line does not count.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core import files
from model_profiling.core.errors import FormatError
from model_profiling.core.records import parse_record, record_json
from model_profiling.core.safe_read import MIB, check_regular, is_there, parse_json, read_bytes, stays_inside
from model_profiling.runner.result import Costs, MachineMoment, OutputFacts, ProcessUse
from model_profiling.statistics.measure import Inferences, Rule, rule_for

Kind = Literal["evidence", "traced", "untraced", "sampled"]
"""`untraced` gives end-to-end latency, `traced` operator times (and the tracer's cost), `evidence` kernels
and outputs (never timed), `sampled` the time inside operators."""
TIMED: tuple[Kind, ...] = ("traced", "untraced")
"""The kinds that make up a round."""

_LONGEST_NS = 10**15
_MOST_ROUNDS = 1_000_000
_MOST_BYTES = 64 * MIB
"""Enough for five million inferences."""
_FIX = "measure again with --force, or into another folder"


@dataclass(frozen=True, slots=True)
class RunStep:
    kind: Kind
    series: Series
    round: int = 0

    @property
    def key(self) -> str:
        """Identifies the step in the journal, in every session of a run."""
        return f"{self.kind}/{self.round}/{self.series.experiment}/t{self.series.threads}"


@dataclass(frozen=True, slots=True)
class Entry:
    """How one process ended and what it measured; paths are relative to the run directory."""

    kind: Kind
    experiment: str
    threads: int
    round: int
    session: int
    """The start of the pipeline that ran it; only processes of one session ran side by side."""
    state: Literal["done", "failed"]
    started: str
    seconds: float
    problem: str | None = None
    fix: str | None = None
    iterations_ns: tuple[int, ...] = ()
    """Latencies of a process that ran alone."""
    cpu_ns: tuple[int, ...] = ()
    """CPU time of the calling thread in each of them; empty if the runner does not say."""
    preemptions: tuple[int, ...] = ()
    """How often other programs took a core during each of them."""
    launch: str | None = None
    """The launch in which it took turns; its processes share the name, even across run directories."""
    turns_ns: tuple[tuple[int, ...], ...] = ()
    turns_cpu_ns: tuple[tuple[int, ...], ...] = ()
    turns_preemptions: tuple[tuple[int, ...], ...] = ()
    turns_started_ns: tuple[int, ...] = ()
    """When each turn began, on one clock for the whole launch."""
    turns_cpu: tuple[int | None, ...] = ()
    """The CPU on which each turn ended."""
    use: ProcessUse | None = None
    machine_before: MachineMoment | None = None
    machine_after: MachineMoment | None = None
    load_ns: int | None = None
    first_ns: int | None = None
    peak_memory_bytes: int | None = None
    costs: Costs | None = None
    features_present: tuple[str, ...] = ()
    features_masked: tuple[str, ...] = ()
    build_id: str | None = None
    executorch_version: str | None = None
    etdump: str | None = None
    etdump_warmup_runs: int = 0
    boundaries: str | None = None
    """File that says when the operators in the dump began and ended."""
    memory_read_rate: float | None = None
    """Bytes per second that the machine's memory gave, with as many threads."""
    log: str | None = None
    outputs: tuple[OutputFacts, ...] = ()
    kernels: Mapping[str, int | None] = field(default_factory=dict)
    kernels_note: str | None = None
    kernel_sizes: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    """The first three arguments of the calls of `kernels`, and the number of calls."""
    schema_version: Literal[1] = 1

    @property
    def step(self) -> RunStep:
        return RunStep(self.kind, self.series, self.round)

    @property
    def inferences(self) -> Inferences:
        if not self.launch:
            has_cpu_time = bool(self.cpu_ns)
            return Inferences(
                (self.iterations_ns,),
                (self.cpu_ns,) * has_cpu_time,
                (self.preemptions,) * has_cpu_time,
                alone=True,
            )
        capacities = (self.machine_before and self.machine_before.capacities) or ()
        speeds = [
            capacities[cpu] if cpu is not None and cpu < len(capacities) else None for cpu in self.turns_cpu
        ]
        before, after = self.machine_before, self.machine_after
        return Inferences(
            self.turns_ns,
            self.turns_cpu_ns,
            self.turns_preemptions,
            speeds if capacities else (),
            other_cores=other_cores(before, after) if before and after else 0.0,
        )

    @property
    def series(self) -> Series:
        return Series(self.experiment, self.threads)

    @property
    def named_files(self) -> Iterator[tuple[str, str]]:
        """Every file and folder the entry names, with the name of the field."""
        for field_name in ("experiment", "etdump", "boundaries", "log"):
            if name := getattr(self, field_name):
                yield field_name, name
        for at, output in enumerate(self.outputs):
            if output.file is not None:
                yield f"outputs.{at}.file", str(output.file)


class Journal:
    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / names.JOURNAL
        content = read_bytes(self._path, _MOST_BYTES) if is_there(self._path) else b""
        whole = content[: content.rfind(b"\n") + 1]
        self._size = len(whole)
        entries = (
            _parse(self._path, number, line) for number, line in enumerate(whole.splitlines(), start=1)
        )
        self._entries: dict[str, Entry] = {}
        self._of_series: dict[Series, dict[str, Entry]] = {}
        self._rules: dict[int | None, Rule] = {}
        self._keep(entries)

    def entries(self) -> tuple[Entry, ...]:
        """Return the entry that counts for each step, in the order in which steps began."""
        return tuple(self._entries.values())

    def of(self, series: Series) -> tuple[Entry, ...]:
        return tuple(self._of_series.get(series, {}).values())

    def ended_well(self, kind: Kind, series: Series) -> list[Entry]:
        """Return the successful processes of one kind of a series, by round."""
        entries = [entry for entry in self.of(series) if (entry.kind, entry.state) == (kind, "done")]
        return sorted(entries, key=lambda entry: entry.round)

    def evidence(self, series: Series) -> Entry | None:
        return next(iter(self.ended_well("evidence", series)), None)

    def rounds_of(self, series: Series) -> int:
        """Return the number of rounds up to the last with a latency, gaps included."""
        return max((entry.round + 1 for entry in self.ended_well("untraced", series)), default=0)

    def rule(self, threads: int | None) -> Rule:
        """Return how the latencies of all series with this many threads are measured."""
        if threads not in self._rules:
            timed = (entry for entry in self._entries.values() if entry.kind == "untraced")
            alike = [entry for entry in timed if (entry.state, entry.threads) == ("done", threads)]
            self._rules[threads] = rule_for([entry.inferences for entry in alike], threads or 1)
        return self._rules[threads]

    def latencies_ms(
        self, series: Series, rounds: int, kind: Kind = "untraced", rule: Rule | None = None
    ) -> list[list[float]]:
        """Return the latencies of a series that count, one list per round; a round without any is empty."""
        by_round: list[list[float]] = [[] for _ in range(rounds)]
        rule = rule or self.rule(series.threads)
        for entry in self.ended_well(kind, series):
            if entry.round < rounds:
                turns = entry.inferences.counted(rule.measure, rule.speed)
                by_round[entry.round] = [ms for turn in turns for ms in turn]
        return by_round

    def turns_ms(self, series: Series, rule: Rule | None = None) -> dict[str, list[list[float]]]:
        """Return what counts of all turns of a series, by launch."""
        rule = rule or self.rule(series.threads)
        return {
            entry.launch: entry.inferences.counted(rule.measure, rule.speed)
            for entry in self.ended_well("untraced", series)
            if entry.launch
        }

    def entry(self, step: RunStep) -> Entry | None:
        return self._entries.get(step.key)

    def done(self, step: RunStep) -> bool:
        entry = self.entry(step)
        return entry is not None and entry.state == "done"

    def ended_in(self, step: RunStep, session: int) -> bool:
        """Whether a step is done, or `session` has tried it."""
        entry = self.entry(step)
        return entry is not None and (entry.state == "done" or entry.session == session)

    def timed_of(self, experiments: Iterable[str]) -> list[Entry]:
        """Return the timed entries of these experiments; another config may have added its own to the run."""
        wanted = set(experiments)
        return [
            entry for entry in self._entries.values() if entry.kind in TIMED and entry.experiment in wanted
        ]

    def rounds_begun(self, experiments: Iterable[str]) -> int:
        """Return how many rounds of these experiments have left any entry."""
        return max((entry.round + 1 for entry in self.timed_of(experiments)), default=0)

    def append(self, *entries: Entry) -> None:
        lines = [json.dumps(record_json(entry), allow_nan=False) + "\n" for entry in entries]
        content = "".join(lines).encode("utf-8")
        try:
            handle = files.open_in_place(self._path)
            try:
                # Anything after the last whole line was left by a crash or a full disk.
                os.ftruncate(handle, self._size)
                if os.pwrite(handle, content, self._size) != len(content):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError as problem:
            raise files.refusal(self._path, problem, "free some space, then run it again") from problem
        self._size += len(content)
        self._keep(entries)

    def _keep(self, entries: Iterable[Entry]) -> None:
        """Index entries by series, because series are looked up often and a run has many."""
        self._rules.clear()
        for entry in entries:
            series = entry.series
            key = RunStep(entry.kind, series, entry.round).key
            self._entries[key] = entry
            self._of_series.setdefault(series, {})[key] = entry


def other_cores(before: MachineMoment, after: MachineMoment) -> float:
    """How many cores other programs kept busy, on average, while a measurement had one; 0 if unknown."""
    if None in (before.idle_ticks, after.idle_ticks, before.total_ticks, after.total_ticks, before.cpus):
        return 0.0
    passed = (after.total_ticks or 0) - (before.total_ticks or 0)
    idle = (after.idle_ticks or 0) - (before.idle_ticks or 0)
    return max(0.0, (before.cpus or 0) * (1 - idle / passed) - 1) if passed > 0 else 0.0


def stolen_share(entries: Iterable[Entry]) -> float:
    """How much of the busy time of the CPUs the hypervisor gave to other machines during these launches."""
    stolen = busy = 0
    for entry in entries:
        if (before := entry.machine_before) and (after := entry.machine_after):
            stolen += (after.steal_ticks or 0) - (before.steal_ticks or 0)
            busy += (after.total_ticks or 0) - (before.total_ticks or 0)
            busy -= (after.idle_ticks or 0) - (before.idle_ticks or 0)
    return stolen / busy if busy > 0 else 0.0


def seconds_of(entries: Iterable[Entry]) -> float:
    """Return the total time of these processes; a launch counts once."""
    entries = list(entries)
    launches = {entry.launch: entry.seconds for entry in entries if entry.launch}
    return sum(launches.values()) + sum(entry.seconds for entry in entries if not entry.launch)


def moment() -> str:
    """Return the current time in the format used in files."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def has_journal(run_dir: Path) -> bool:
    """Whether any process of the run has ended; if not, nothing can be lost."""
    path = run_dir / names.JOURNAL
    return is_there(path) and check_regular(path).stat().st_size > 0


def _parse(path: Path, number: int, line: bytes) -> Entry:
    where = f"{path}, line {number} is damaged"
    entry = parse_record(Entry, parse_json(line, f"{where}: it", _FIX), where, _FIX, line)
    for field_name, name in entry.named_files:
        stays_inside(name, f"{where}: {field_name}", folder=field_name == "experiment")
    if not 0 <= entry.round < _MOST_ROUNDS:
        raise FormatError(f"{where}: there is no round {entry.round}", _FIX)
    if entry.launch and not (
        entry.turns_ns and len({len(turn) for turn in entry.turns_ns}) == 1 and entry.turns_ns[0]
    ):
        raise FormatError(f"{where}: its turns are impossible", _FIX)
    for times, others in (
        ((entry.iterations_ns,), ((entry.cpu_ns,), (entry.preemptions,))),
        (entry.turns_ns, (entry.turns_cpu_ns, entry.turns_preemptions)),
    ):
        shape = [len(turn) for turn in times]
        if any(any(other) and [len(turn) for turn in other] != shape for other in others):
            raise FormatError(f"{where}: its inferences have no CPU time each", _FIX)
    for turn in (entry.iterations_ns, *entry.turns_ns):
        for ns in (min(turn), max(turn)) if turn else ():
            if not 0 <= ns < _LONGEST_NS or (ns == 0 and entry.launch):
                step = f"{entry.kind} round {entry.round} of {entry.series}"
                raise FormatError(f"{where}: {step} has an inference of {ns} ns", _FIX)
    return entry
