"""manifest.json: what was run, where, and everything needed to identify or repeat the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal

from model_profiling.config import names
from model_profiling.config.series import Diagnostic, Pair, Series, StandsFor, Switch
from model_profiling.core.errors import FormatError
from model_profiling.core.records import JsonObject, parse_record, read_json_object, read_record
from model_profiling.core.safe_read import is_there, stays_inside
from model_profiling.runner.features import is_arm
from model_profiling.runner.machine import MachineFacts
from model_profiling.runner.result import OutputFacts
from model_profiling.runs.times import Times, times_of_mode
from model_profiling.runs.version_0 import is_manifest_0, is_summary_0, manifest_of_today

State = Literal["running", "interrupted", "analysing", "partial", "failed", "finished"]
"""`partial`: everything that --only asked for is done; `failed`: all is done except experiments that fail."""

MEASURE_AGAIN = "measure again with --force, or into another folder"


@dataclass(frozen=True, slots=True)
class TargetFacts:
    name: str = ""
    platform: str = ""
    times: Times = Times.UNKNOWN


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine before measuring, and after."""

    before: MachineFacts | None = None
    after: MachineFacts | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """One start of the pipeline on a run directory."""

    number: int = 1
    command_line: tuple[str, ...] = ()
    started: str = ""
    ended: str | None = None
    end: str = "running"
    problem: str | None = None
    """What ended the session early, if known; `fix` says what to do about it."""
    fix: str | None = None


@dataclass(frozen=True, slots=True)
class ExecuTorch:
    version: str | None = None
    sha: str | None = None


@dataclass(frozen=True, slots=True)
class Runner:
    build_id: str | None = None
    compiler: str | None = None


Ended = Literal["rounds", "precision", "budget", "nothing compared", "busy"]
"""Why measuring ended: all rounds are done, every interval is narrow enough, the time budget is spent,
nothing is compared and the minimum number of launches is done, or other programs keep the cores busy."""


@dataclass(frozen=True, slots=True)
class ScheduleFacts:
    """How measuring was scheduled and how far it got. A round may be a launch in which programs took turns;
    the latencies of each series say which."""

    ended: Ended | None = None
    budget_s: float | None = None
    measured_s: float | None = None
    seed: int = 0
    rounds: int = 0
    rounds_done: int = 0
    precision: float | None = None
    stopped_early: bool = False
    order: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One experiment at one number of threads; paths are relative to the run directory."""

    experiment: str
    threads: int | None = None
    mode: str = "timing"
    sme2: Switch | None = None
    disable: tuple[str, ...] = ()
    runner_path: str = ""
    runs: int | None = None
    warmup: int | None = None
    state: Literal["done", "failed"] = "done"
    problem: str | None = None
    fix: str | None = None
    processes: int = 0
    rounds: int = 0
    times: Times | None = None
    etdump: str | None = None
    etdump_warmup_runs: int = 0
    etdump_turn_length: int = 0
    """In lockstep, runs per turn in a dump (the first of several does not count); otherwise 0."""
    etdump_rounds: tuple[str, ...] = ()
    etdump_launches: tuple[str, ...] = ()
    """The launch of each of `etdump_rounds`; empty if processes did not take turns."""
    boundaries: tuple[str, ...] = ()
    """Files beside dumps that say when operators began and ended; a dump without this data has none."""
    log: str | None = None
    latency: str | None = None
    kernels: str | None = None
    kernels_note: str | None = None
    samples: str | None = None
    """The file of stack samples, taken in a separate process."""
    xnntrace_log: str | None = None
    outputs: tuple[OutputFacts, ...] = ()
    features_present: tuple[str, ...] = ()
    features_masked: tuple[str, ...] = ()

    @property
    def series(self) -> Series:
        return Series(self.experiment, self.threads)

    @property
    def dumps(self) -> tuple[str, ...]:
        """Every dump of the series, round 0 first."""
        return tuple(dict.fromkeys(name for name in (self.etdump, *self.etdump_rounds) if name))

    @property
    def named_files(self) -> Iterator[tuple[str, str]]:
        """Every file of the result, with the name of its field."""
        for field_name in ("etdump", "log", "latency", "kernels", "xnntrace_log", "samples"):
            if name := getattr(self, field_name):
                yield field_name, name
        for field_name in ("etdump_rounds", "boundaries"):
            yield from ((f"{field_name}.{at}", name) for at, name in enumerate(getattr(self, field_name)))
        for at, output in enumerate(self.outputs):
            if output.file is not None:
                yield f"outputs.{at}.file", str(output.file)

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for _, name in self.named_files))

    @property
    def sme2_left_on(self) -> bool | None:
        """Whether the runner could use SME2, from its switch or the disabled features; None if unknown."""
        if self.sme2 is not None:
            return self.sme2 == "on"
        return "sme2" not in self.disable if self.disable else None

    @property
    def own_runner(self) -> bool:
        """Whether it ran on the user's own runner, which has no SME2 switch."""
        return self.runner_path not in ("", "builtin")

    @property
    def counted_kernels(self) -> bool:
        """Whether an evidence process listed every KleidiAI call; only the kit's own runner can."""
        return self.runner_path == "builtin" and self.kernels_note is None and bool(self.outputs)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The whole run. No slots, because cached properties need a `__dict__`."""

    config: str = ""
    """The config file that was named last, or the copy that the run keeps."""
    settings: JsonObject = field(default_factory=dict)
    """The settings (`ProfileConfig`) with all defaults filled in."""
    config_file: str | None = None
    experiments: tuple[str, ...] = ()
    stands_for: tuple[StandsFor, ...] = ()
    machine: Machine = Machine()
    state: State = "finished"
    sessions: tuple[Session, ...] = ()
    schedule: ScheduleFacts = ScheduleFacts()
    warnings: tuple[Diagnostic, ...] = ()
    schema_version: Literal[3] = 3
    kit_version: str = ""
    model: str = ""
    model_sha256: str = ""
    model_bytes: int = 0
    rewrites: Mapping[str, int] = field(default_factory=dict)
    """What --optimize rewrote in its graph, and in how many calls; from its export."""
    method: str = ""
    """The method that ran; empty if unknown."""
    fed: str = ""
    """Sizes and values of its inputs that were asked for: `tokens_32_input_pos_0`."""
    tokens: int | None = None
    """Tokens in one inference of a language model; None for other programs."""
    position: int | None = None
    """Where in the cache the first of these tokens is; None if unknown."""
    etrecord: str | None = None
    quantized: bool = False
    """Whether it computes on 8-bit integers, so that outputs may differ by quantization steps."""
    half: bool = False
    """Whether it computes in float16, whatever its outputs are."""
    target: TargetFacts = TargetFacts()
    executorch: ExecuTorch = ExecuTorch()
    runner: Runner = Runner()
    results: tuple[Result, ...]
    pairs: tuple[Pair, ...] | None = None
    """The pairs, with the reason if not comparable; None in runs of the earlier kit, which stored none."""
    version_0: bool = False
    """Whether it was read from files without a schema_version: the earlier kit's, which say less."""

    @property
    def has_ended(self) -> bool:
        """Whether it did all it could; if not, it can be continued."""
        return self.state in ("finished", "failed")

    @property
    def unfinished(self) -> State | None:
        return None if self.state == "finished" else self.state

    @property
    def why_unfinished(self) -> Session | None:
        """The last session, if a known problem cut it short."""
        last = self.sessions[-1] if self.sessions else None
        return last if last and last.problem and not self.has_ended else None

    @property
    def cpu(self) -> str:
        return self.machine.before.cpu if self.machine.before else ""

    @property
    def model_stem(self) -> str:
        return names.with_method(Path(self.model).stem, self.method, self.fed)

    @property
    def case_words(self) -> list[str]:
        """The options that ask for the same method, and the same sizes and values of inputs."""
        return names.case_words("" if self.method == "forward" else self.method, *self.asked_inputs)

    @property
    def asked_inputs(self) -> tuple[Mapping[str, Sequence[int]], Mapping[str, Sequence[float]]]:
        """Sizes and values of inputs, as the settings keep them."""
        inputs = self.settings.get("inputs") if self.fed else None
        given = inputs if isinstance(inputs, Mapping) else {}
        return given.get("sizes") or {}, given.get("values") or {}

    @property
    def spoken_case(self) -> tuple[str, ...]:
        """`decode` and `input_pos 256`: the method and what it was fed, if that is not the usual."""
        method = (self.method,) if self.method not in ("", "forward") else ()
        return (*method, *names.fed_in_words(*self.asked_inputs))

    @property
    def started(self) -> str:
        return self.sessions[0].started if self.sessions else ""

    def asked_as(self, experiment: str) -> tuple[str, ...]:
        """Return every name of an experiment: its own, and those in the config that it stands for."""
        merged = (merging.names for merging in self.stands_for if merging.experiment == experiment)
        return experiment, *(name for names_in_config in merged for name in names_in_config)

    def features(self, result: Result) -> frozenset[str] | None:
        """Return the CPU's features as a runner saw them, or else as the machine reported them."""
        before, by_runner = self.machine.before, result.features_present or self._features_by_runner
        if not by_runner and before is None:
            return None
        return frozenset(by_runner or (before.features if before else ()))

    @cached_property
    def _features_by_runner(self) -> tuple[str, ...]:
        return next((result.features_present for result in self.results if result.features_present), ())

    def times(self, result: Result) -> Times:
        return result.times or times_of_mode(result.mode, self.target.times)

    @cached_property
    def has_sme2(self) -> bool | None:
        features = [have for result in self.results if (have := self.features(result)) is not None]
        return any("sme2" in have for have in features) if features else None

    @property
    def is_arm(self) -> bool | None:
        """Whether the CPU that ran it is an Arm CPU, real or emulated; None if unknown."""
        before = self.machine.before
        return is_arm(before.machine) if before and before.machine else None

    def result_of(self, path: Path, run_dir: Path) -> Result | None:
        """Return the result that a dump, or a file made from one, belongs to."""
        stem, folders = names.dump_stem(path.name), path.resolve().parents
        for result in self.results:
            for own in (run_dir / name for name in (*result.dumps, result.latency) if name):
                if names.dump_stem(own.name) == stem and own.resolve().parent in folders:
                    return result
        return None


def read_manifest(run_dir: Path) -> Manifest | None:
    """Return the manifest; of the earlier kit, which wrote none in some runs, its pipeline summary as one."""
    path = run_dir / names.MANIFEST
    if not is_there(path):
        return _of_summary_0(run_dir)

    def today(content: JsonObject) -> JsonObject:
        earlier = "schema_version" not in content and is_manifest_0(content)
        return manifest_of_today(content, run_dir) if earlier else content

    fix = f"without it, the validity of the times is not known; {MEASURE_AGAIN}"
    return _own_files_only(read_record(Manifest, path, fix, today), path)


def _of_summary_0(run_dir: Path) -> Manifest | None:
    for path in sorted(run_dir.glob(f"*{names.SUMMARY}")):
        content = read_json_object(path, MEASURE_AGAIN)
        if is_summary_0(content):
            manifest = parse_record(Manifest, manifest_of_today(content, run_dir), str(path), MEASURE_AGAIN)
            return _own_files_only(manifest, path)
    return None


def _own_files_only(manifest: Manifest, path: Path) -> Manifest:
    """Return `manifest` if every file and folder it names is inside its run."""
    if "\0" in manifest.model:
        raise FormatError(f"{path}: model: this cannot be a file name", MEASURE_AGAIN)
    for place, result in enumerate(manifest.results):
        stays_inside(result.experiment, f"{path}: results.{place}.experiment", folder=True)
        for field_name, name in result.named_files:
            stays_inside(name, f"{path}: results.{place}.{field_name}")
    return manifest
