"""An open run directory: what it holds, which series are compared, what their times mean.

The manifest comes first. A folder of dumps without a manifest is read by file names, and its times count as
measured on an unknown machine. A folder above or inside a run is refused: it would mix different runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from model_profiling.config import names
from model_profiling.config.series import (
    Diagnostic,
    Pair,
    Series,
    Switch,
    natural_pairs,
    switch_in_name,
)
from model_profiling.core.errors import InputError
from model_profiling.core.formatting import plural
from model_profiling.core.safe_read import check_regular, is_there
from model_profiling.runs.folders import Programs, holds_run, no_run, refuse_links_out, runs_below
from model_profiling.runs.journal import Journal, has_journal
from model_profiling.runs.manifest import Manifest, Result, TargetFacts, read_manifest
from model_profiling.runs.records import (
    Evidence,
    Metrics,
    PairSpeedup,
    RobustStats,
    read_evidence,
    read_metrics,
    read_robust_stats,
)
from model_profiling.runs.times import (
    EarlierFiles,
    Origin,
    Times,
    differ_in_sme2_alone,
    times_without_manifest,
    why_not_comparable,
)
from model_profiling.runs.version_0 import remark_0


@dataclass(frozen=True, slots=True)
class Dump:
    """One .etdump and what its run says about it."""

    path: Path
    series: Series
    times: Times = Times.UNKNOWN
    round: int = 0
    warmup_runs: int = 0
    """Runs at the start of the dump that do not count."""
    turn_length: int = 0
    """In lockstep, runs per turn (the first of several does not count); the round is then the launch, and
    turn k is cycle k. 0 if a process ran alone."""
    sme2: bool | None = None
    """Whether SME2 was left on for the runner; None if unknown."""
    launch: str = ""
    """Name of the launch that made it; empty if unknown."""
    method: str = ""
    """The program's method that ran; empty if unknown."""

    @property
    def met(self) -> str:
        """Identifies the launch or round; dumps of different series that share it are paired."""
        return self.launch or f"round {self.round}"

    @property
    def stem(self) -> str:
        return names.without_dump_ending(self.path.name)


class Run:
    """One run, made by `open` (a directory), `around` (a file in a run) or `of_files` (single dumps)."""

    def __init__(
        self,
        path: Path,
        manifest: Manifest | None = None,
        *,
        metrics: Metrics | None = None,
        dumps: tuple[Dump, ...] = (),
        warnings: tuple[Diagnostic, ...] = (),
        within: Run | None = None,
        called: str = "",
    ) -> None:
        self.path, self.manifest, self.metrics = path, manifest, metrics
        self.called = called or str(path)
        """What pages and files call the run directory."""
        self.dumps, self.warnings = dumps, warnings
        self.whole = within or self
        """The run directory that contains the dumps, if they were named one by one; otherwise this run."""

    @classmethod
    def open(
        cls, path: Path, *, times: Times | None = None, called: str = "", manifest: Manifest | None = None
    ) -> Run:
        """Open the run in `path`; `times` is the user's word on dumps whose times are otherwise unknown,
        `manifest` what its file is going to say."""
        if not path.is_dir():
            raise no_run(path)
        refuse_links_out(path)
        manifest = manifest or read_manifest(path)
        if manifest is None:
            _refuse_other_runs(path)
        if manifest is not None and manifest.version_0:
            manifest = replace(manifest, target=TargetFacts(times=times or Times.UNKNOWN))
        metrics = read_metrics(path / names.METRICS)
        listed, missing = _listed(path, manifest) if manifest else ([], [])
        in_manifest = {dump.path.resolve() for dump in listed}
        others = [file for file in _dumps_in(path) if file.resolve() not in in_manifest]
        bare, remarks = _bare(others, path, manifest.target.times if manifest else times)
        if listed and others:
            seen = f"{plural(len(others), 'dump')} not in {names.MANIFEST}: analysed by name"
            remarks.insert(0, Diagnostic(None, "unlisted_dump", seen))
        if manifest is not None and manifest.version_0:
            remarks = [remark for remark in remarks if remark.code != "unknown_machine"]
            remarks.insert(0, remark_0(machine_known=manifest.target.times.are_latencies))
        dumps = (*listed, *bare)
        if manifest is None and metrics is None and not dumps:
            raise InputError(
                f"{path} contains no run and no dumps",
                "use a folder written by sme2prof profile, run or a runner",
            )
        return cls(path, manifest, metrics=metrics, dumps=dumps, warnings=(*missing, *remarks), called=called)

    @classmethod
    def of_files(cls, paths: Sequence[Path], *, times: Times | None = None) -> Run:
        """Open single dumps; a dump that lies in a run keeps what that run says about it."""
        if not paths:
            raise InputError("no dump was given", "give a run directory or .etdump files")
        for path in paths:
            if not path.is_file():
                raise InputError(f"there is no {path}", "correct the path") if path.suffix else no_run(path)
        dumps: list[Dump] = []
        remarks: list[Diagnostic] = []
        opened: dict[Path, Run | None] = {}
        for path in paths:
            if path.parent not in opened:
                opened[path.parent] = cls.around(path)
            around = opened[path.parent]
            listed = around.dumps if around else ()
            same = [replace(dump, path=path) for dump in listed if dump.path.resolve() == path.resolve()]
            bare, notes = ([], []) if same else _bare([path], path.parent, times)
            dumps += [*same, *bare]
            remarks += notes
        warnings = tuple(dict.fromkeys(remarks))
        return cls(paths[0].parent, dumps=tuple(dumps), warnings=warnings, within=opened[paths[0].parent])

    @classmethod
    def around(cls, path: Path) -> Run | None:
        """Return the run that contains a file or folder at most two folders below it, or None."""
        for folder in list(path.resolve().parents)[:3]:
            if holds_run(folder):
                return cls.open(folder)
        return None

    @property
    def model_name(self) -> str:
        """The program's name without its suffix; empty if unknown."""
        if self.manifest and self.manifest.model:
            return self.manifest.model_stem
        return Path(self.metrics.model).stem if self.metrics else ""

    @property
    def in_short(self) -> str:
        """For example `toy_cnn (XNNPACK, fp16) on Linux`, or `toy_cnn (XNNPACK, fp16, emulated)`."""
        manifest = self.manifest
        stem = Path(manifest.model).stem if manifest and manifest.model else self.model_name
        name, details = names.spoken_variant(stem or "dumps")
        details += manifest.spoken_case if manifest else ()
        details += ("emulated",) if self.platform == "emulated" else ()
        spoken = f"{name} ({', '.join(details)})" if details else name
        if self.platform == "emulated":
            return spoken
        place = _SPOKEN.get(self.platform, self.platform)
        return f"{spoken} on {place}" if place else f"{spoken} in {self.path.name}"

    def __repr__(self) -> str:
        held = f"{len(self.series)} series, {plural(len(self.dumps), 'dump')}"
        return f"<Run {self.path}: {self.in_short}, {held}>"

    @property
    def files(self) -> names.RunFiles:
        return names.RunFiles(self.path, self.model_name)

    @property
    def platform(self) -> str:
        if self.manifest:
            return self.manifest.target.platform
        return "emulated" if self.times is Times.EMULATED else ""

    @property
    def results(self) -> tuple[Result, ...]:
        return self.manifest.results if self.manifest else ()

    def result(self, series: Series) -> Result | None:
        return self._results.get(series)

    @cached_property
    def _results(self) -> dict[Series, Result]:
        return {result.series: result for result in reversed(self.results)}  # the first of each wins

    @cached_property
    def _first_dumps(self) -> dict[Series, Dump]:
        return {dump.series: dump for dump in reversed(self.dumps)}

    @cached_property
    def _answers(self) -> dict[tuple[Series, Series], PairSpeedup]:
        comparisons = self.metrics.comparisons if self.metrics else ()
        return {(pair.baseline, pair.candidate): pair for pair in reversed(comparisons)}

    @cached_property
    def times(self) -> Times:
        """What the run's times mean as a whole: according to the target, or else to the dumps."""
        if self.manifest and self.manifest.target.times is not Times.UNKNOWN:
            timed = [self.manifest.times(result) for result in self.results]
            return max(timed, key=lambda kinds: kinds.are_latencies, default=self.manifest.target.times)
        stated = self.metrics.times if self.metrics else times_without_manifest(self.path)[0]
        kinds = {dump.times for dump in self.dumps} or {stated}
        if stated is not Times.UNKNOWN:
            kinds.add(stated)
        return next(found_times for found_times in _SUREST if found_times in kinds)

    @cached_property
    def series(self) -> tuple[Series, ...]:
        """Every known series, in the order of the config."""
        latencies = self.metrics.latencies if self.metrics else ()
        return tuple(
            dict.fromkeys(
                (
                    *(result.series for result in self.results),
                    *(latency.series for latency in latencies),
                    *(dump.series for dump in self.dumps),
                )
            )
        )

    def times_of(self, series: Series) -> Times:
        result = self.result(series)
        if self.manifest and result:
            return self.manifest.times(result)
        dump = self._first_dumps.get(series)
        return dump.times if dump else self.times

    def sme2_of(self, series: Series) -> bool | None:
        if result := self.result(series):
            return result.sme2_left_on
        dump = self._first_dumps.get(series)
        return dump.sme2 if dump else None

    def spoken_order(self, series: Series) -> tuple[bool, int, int]:
        """Sort key for display: SME2 on first, then fewest disabled features, then fewest threads."""
        result = self.result(series)
        return self.sme2_of(series) is False, len(result.disable) if result else 0, series.threads or 0

    def switches_sme2(self, pair: Pair) -> bool:
        """Whether the two sides differ in SME2 only: off in the baseline, on in the candidate."""
        return differ_in_sme2_alone(self.origin(pair.baseline), self.origin(pair.candidate))

    def origin(self, series: Series) -> Origin:
        """What `why_not_comparable` needs to know about a series."""
        result, manifest = self.whole.result(series), self.whole.manifest
        before = manifest.machine.before if manifest else None
        return Origin(
            name=str(series),
            times=self.times_of(series),
            threads=series.threads,
            cpu=before.cpu if before else "",
            program=f"{manifest.model_sha256} {manifest.method} {manifest.fed}" if manifest else "",
            method=manifest.method if manifest else "",
            fed=manifest.fed if manifest else "",
            tokens=manifest.tokens if manifest else None,
            position=manifest.position if manifest else None,
            features=manifest.features(result) if manifest and result else None,
            disabled=result.disable if result else (),
            sme2=self.sme2_of(series),
            own_runner=result.own_runner if result else False,
        )

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """The pairs to compare, each with the reason if it is not comparable."""
        if self.manifest and self.manifest.pairs is not None:
            return self.manifest.pairs
        compared = tuple(comparison.pair for comparison in self.metrics.comparisons) if self.metrics else ()
        if not compared:
            timing = [series for series in self.series if (self.result(series) or _TIMING).mode == "timing"]
            words: dict[bool | None, Switch] = {True: "on", False: "off"}
            compared = natural_pairs((series, words.get(self.sme2_of(series))) for series in timing)
        return tuple(map(self.decided, compared))

    def decided(self, pair: Pair) -> Pair:
        """Return `pair` with the decision whether it is comparable."""
        reason = why_not_comparable(self.origin(pair.baseline), self.origin(pair.candidate))
        return replace(pair, not_comparable=reason)

    def comparison(self, pair: Pair) -> PairSpeedup | None:
        """Return the stored speedup of `pair`; None if there is none or the pair is not comparable."""
        answer = self._answers.get((pair.baseline, pair.candidate))
        return None if answer and pair.not_comparable and answer.speedup.ratio is not None else answer

    def robust_stats(self, series: Series) -> RobustStats | None:
        """Return every latency of a series by round; None if its times are not latencies or were not kept."""
        result = self.result(series)
        path = self.path / result.latency if result and result.latency else None
        kept = path is not None and is_there(path) and self.times_of(series).are_latencies
        return read_robust_stats(path) if path and kept else None

    @cached_property
    def evidence(self) -> Evidence | None:
        """What another run of the same program proved, copied here when this run was made."""
        evidence = read_evidence(self.path)
        of_this = evidence and self.manifest and evidence.model_sha256 == self.manifest.model_sha256
        return evidence if of_this else None

    @cached_property
    def journal(self) -> Journal | None:
        """What every process measured; None if there is no journal. A damaged one raises FormatError: without
        it, programs that took turns would be compared as if they had not."""
        return Journal(self.path) if has_journal(self.path) else None

    @property
    def memory_rates(self) -> dict[int, float]:
        """Bytes per second that the machine's memory gave, by number of threads; measured for programs that
        keep a state."""
        entries = self.journal.entries() if self.journal else ()
        return {entry.threads: entry.memory_read_rate for entry in entries if entry.memory_read_rate}

    def programs(self, model: Path | None = None, etrecord: Path | None = None) -> Programs:
        """Return what explains the operators; `model` and `etrecord` override the run's own."""
        for given in (model, etrecord):
            if given is not None and not given.is_file():
                raise InputError(f"there is no file {given}", "correct the path")
        return Programs(self.whole.path, self.whole.manifest, model, etrecord)


_TIMING = Result(experiment="")
# If sources disagree, the first of these wins: the one that claims least.
_SPOKEN = {"linux": "Linux", "mac": "macOS", "android": "Android"}
_SUREST = (Times.EMULATED, Times.TRACED, Times.UNKNOWN, Times.HARDWARE)


def _refuse_other_runs(folder: Path) -> None:
    around = next((up for up in folder.resolve().parents if holds_run(up)), None)
    if around is not None:
        raise InputError(f"{folder} is part of the run in {around}", f"name {around}")
    within = sorted(runs_below(folder))
    if within and not holds_run(folder):
        raise InputError(
            f"{folder} is not a run; it contains {plural(len(within), 'run')}",
            f"choose one, such as {within[0]}",
        )


def _dumps_in(folder: Path) -> list[Path]:
    """Return every dump below `folder`, except hidden ones and those of other runs."""
    others = runs_below(folder)
    return [
        check_regular(path)
        for path in sorted(folder.rglob(f"*{names.DUMP}*"))
        if names.is_dump(path)
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
        and not others.intersection(path.parents)
    ]


def _listed(folder: Path, manifest: Manifest) -> tuple[list[Dump], list[Diagnostic]]:
    dumps: list[Dump] = []
    missing: list[Diagnostic] = []
    for result in manifest.results:
        launches = dict(zip(result.etdump_rounds, result.etdump_launches, strict=False))
        for name in result.dumps:
            path = folder / name
            if not is_there(path):
                seen = f"the dump {name} named in {names.MANIFEST} is missing"
                missing.append(Diagnostic(None, "missing_dump", seen))
                continue
            _, number = names.series_of_dump(path, folder)
            dumps.append(
                Dump(
                    check_regular(path),
                    result.series,
                    manifest.times(result),
                    number,
                    result.etdump_warmup_runs,
                    result.etdump_turn_length,
                    result.sme2_left_on,
                    launches.get(name, ""),
                    manifest.method,
                )
            )
    return dumps, missing


def _bare(paths: Sequence[Path], folder: Path, stated: Times | None) -> tuple[list[Dump], list[Diagnostic]]:
    """Read dumps by their names and neighbouring files; two dumps with the same name become two series."""
    dumps: list[Dump] = []
    taken: set[tuple[Series, int]] = set()
    earlier = EarlierFiles()
    remarks: dict[Diagnostic, None] = {}
    for path in paths:
        series, number = names.series_of_dump(path, folder)
        for name in (path.parent, path.parent / names.without_dump_ending(path.name)):
            if (series, number) in taken:
                series = replace(series, experiment=name.relative_to(folder).as_posix())
        taken.add((series, number))
        times, said_by = times_without_manifest(path, earlier)
        if times is Times.UNKNOWN and stated is not None:
            times = stated
        elif times is not Times.UNKNOWN:
            seen = f"{said_by} says that the times are from {times.origin}, so they are not latencies"
            remarks[Diagnostic(None, "not_latencies", seen)] = None
        switch = switch_in_name(series.experiment) or switch_in_name(path.name)
        dumps.append(Dump(path, series, times, number, sme2=None if switch is None else switch == "on"))
    if any(dump.times is Times.UNKNOWN for dump in dumps):
        seen = (
            "the machine that made these dumps is not recorded: times are shown as recorded, without "
            "latencies or speedups"
        )
        advice = "add --times hardware if they were measured on real hardware"
        remarks[Diagnostic(None, "unknown_machine", seen, advice)] = None
    return dumps, list(remarks)


def origin_of_file(path: Path) -> Origin:
    times, _, result = times_of_file(path)
    around = Run.around(path)
    return around.origin(result.series) if around and result else Origin(path.name, times)


def times_of_file(path: Path) -> tuple[Times, str, Result | None]:
    """Return what the times in a dump (or a file made from one) mean, what says so, and its result."""
    around = Run.around(path)
    if around is None or around.manifest is None:
        return (*times_without_manifest(path), None)
    result = around.manifest.result_of(path, around.path)
    return around.manifest.times(result) if result else around.times, names.MANIFEST, result
