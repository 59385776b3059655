"""Gathers what a run directory holds into the record a report is made of, and writes the report.

Nothing is required but one dump or one metrics.json. What is missing is said in the report, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from model_profiling import files
from model_profiling.analysis.advice import Finding
from model_profiling.analysis.kernels import operator_kernels, sme_verdict
from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.run import RunAnalysis
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.errors import FormatError, InputError
from model_profiling.progress import Progress
from model_profiling.report.combined import render_combined
from model_profiling.report.data import (
    EvidenceReport,
    ExperimentReport,
    KernelReport,
    PairReport,
    ParityReport,
    ReportData,
    Series,
    TracerCost,
)
from model_profiling.report.kernel_view import read_kernels_csv
from model_profiling.report.markdown import render_markdown
from model_profiling.report.markdown_text import plural
from model_profiling.workflow.analyse import analyse
from model_profiling.workflow.run_facts import commands, run_facts
from model_profiling.workflow.run_files import (
    LatencyEntry,
    Manifest,
    Metrics,
    ResultEntry,
    SeriesEntry,
    read_manifest_file,
    read_metrics_file,
)

REPORT_FILE = "report.md"
_UNLIKE = 0.1
"""How far the dumps' median may lie from that of the traced latencies before it is said."""


def write_report(
    run_dir: Path,
    *,
    out: Path | None = None,
    title: str | None = None,
    progress: Progress | None = None,
) -> tuple[Path, ReportData]:
    """Write the Markdown report of `run_dir`, into it unless `out` names a file; returns its path."""
    data = gather_report(run_dir, title=title, progress=progress)
    path = out or run_dir / REPORT_FILE
    files.write_text(path, render_markdown(data))
    return path, data


def write_combined_report(
    run_dirs: Sequence[Path], out: Path, *, title: str | None = None, progress: Progress | None = None
) -> tuple[ReportData, ...]:
    """Write one page about several runs to `out`."""
    runs = tuple(gather_report(run_dir, progress=progress) for run_dir in run_dirs)
    files.write_text(out, render_combined(runs, title or "Runs side by side"))
    return runs


def gather_report(
    run_dir: Path,
    *,
    title: str | None = None,
    analysis: RunAnalysis | None = None,
    progress: Progress | None = None,
) -> ReportData:
    """Everything known about the run in `run_dir`; `analysis` spares reading its dumps again."""
    if not run_dir.is_dir():
        raise InputError(f"there is no run directory {run_dir}", "name a folder a pipeline wrote into")
    manifest = read_manifest_file(run_dir)
    if manifest is None:
        _refuse_other_runs(run_dir)
    metrics = read_metrics_file(run_dir / "metrics.json")
    if analysis is None and _has_dumps(run_dir):
        analysis = analyse(run_dir, progress=progress)
    if analysis is None and metrics is None and manifest is None:
        raise InputError(
            f"{run_dir} holds neither dumps nor metrics", "name a folder a pipeline or a runner wrote into"
        )
    return _Gathering(run_dir, manifest, metrics, analysis).report(title)


def _refuse_other_runs(folder: Path) -> None:
    """Dumps that belong to a run are not read without its manifest: it may say that they were emulated."""
    around = next((one for one in folder.resolve().parents if (one / "manifest.json").is_file()), None)
    if around is not None:
        raise InputError(f"{folder} is a part of the run in {around}", f"name {around}")
    within = sorted(path.parent for path in folder.rglob("manifest.json"))
    if within:
        raise InputError(
            f"{folder} holds {plural(len(within), 'run')}, none of its own", f"name one, such as {within[0]}"
        )


def _has_dumps(run_dir: Path) -> bool:
    return next(run_dir.rglob("*.etdump"), None) is not None


class _Gathering:
    """One run directory's files, and the questions a report asks of them."""

    def __init__(
        self, run_dir: Path, manifest: Manifest | None, metrics: Metrics | None, analysis: RunAnalysis | None
    ) -> None:
        self.run_dir = run_dir
        self.manifest = manifest
        self.metrics = metrics
        self.analysis = analysis
        self._trouble: list[str] = []
        self._prover = self._proving_run()

    def report(self, title: str | None) -> ReportData:
        experiments = tuple(self._experiments())
        pairs = tuple(self._pairs())
        facts = self.manifest.machine.before if self.manifest else None
        return ReportData(
            title=title or f"{self._model_name() or 'Model'} on {self._platform() or self.run_dir.name}",
            run_dir=str(self.run_dir),
            model=self._model_name(),
            platform=self._platform(),
            cpu=facts.cpu if facts else "",
            has_sme2=self._has_sme2(),
            timings_are_latency=self._timings_are_latency(),
            experiments=experiments,
            pairs=pairs,
            evidence=tuple(self._evidence()),
            findings=tuple(self._findings(pairs)),
            quality=tuple(self._quality()),
            remarks=tuple(self._remarks()),
            facts=run_facts(self.manifest),
            reproduce=commands(self.manifest, self.run_dir),
        )

    def _platform(self) -> str:
        if self.manifest and self.manifest.target.platform:
            return self.manifest.target.platform
        return self.run_dir.name if self.run_dir.name in ("mac", "linux", "android", "emulated") else ""

    def _model_name(self) -> str:
        if self.manifest and self.manifest.model:
            return Path(self.manifest.model).stem
        if self.metrics and self.metrics.model:
            return Path(self.metrics.model).stem
        return self.analysis.model.stem if self.analysis and self.analysis.model else ""

    def _has_sme2(self) -> bool | None:
        """Whether the CPU has SME2, as the runner saw it, or else as the machine was read."""
        if self.manifest is None:
            return None
        seen = [result.features_present for result in self.manifest.results if result.features_present]
        if seen:
            return any("sme2" in features for features in seen)
        facts = self.manifest.machine.before
        return "sme2" in facts.features if facts and facts.features else None

    def _timings_are_latency(self) -> bool:
        if self._platform() == "emulated":
            return False
        if self.manifest and not self.manifest.target.timings_are_latency:
            return False
        if self.metrics and not self.metrics.timings_are_latency:
            return False
        known = self.metrics is not None and bool(self.metrics.latencies)
        return known or any(one.timings_are_latency for one in self._dumps())

    def _dumps(self) -> tuple[SeriesAnalysis, ...]:
        return self.analysis.series if self.analysis else ()

    def _results(self) -> tuple[ResultEntry, ...]:
        return self.manifest.results if self.manifest else ()

    def _latencies(self) -> tuple[LatencyEntry, ...]:
        return self.metrics.latencies if self.metrics and self._timings_are_latency() else ()

    def _experiments(self) -> Iterator[ExperimentReport]:
        results = {_series(result): result for result in self._results()}
        latencies = {_series(entry): entry for entry in self._latencies()}
        dumps = {Series(one.experiment, one.threads): one for one in self._dumps()}
        for series in dict.fromkeys((*results, *latencies, *dumps)):
            yield _experiment(series, results.get(series), latencies.get(series), dumps.get(series))

    def _pairs(self) -> Iterator[PairReport]:
        pairings = {_sides(pairing): pairing for pairing in (self.analysis.pairings if self.analysis else ())}
        if self.metrics is not None:
            for entry in self.metrics.comparisons:
                sides = _series(entry.baseline), _series(entry.candidate)
                yield PairReport(entry.label, *sides, entry.speedup, False, pairings.pop(sides, None))
        for (baseline, candidate), pairing in pairings.items():
            yield PairReport(pairing.label, baseline, candidate, pairing.e2e, True, pairing)

    def _evidence(self) -> Iterator[EvidenceReport]:
        yield EvidenceReport("this run", self._platform() == "emulated", self._kernels(), self._parity())
        other = self._prover
        if other is not None and self._same_model(other):
            place = f"the run beside it in {other.run_dir.name}"
            yield EvidenceReport(place, True, other._kernels(), other._parity())

    def _proving_run(self) -> _Gathering | None:
        """The emulated run that belongs to this one: the one its manifest names, or the one beside it."""
        if self._platform() == "emulated":
            return None
        named = self.manifest.evidence.run_dir if self.manifest and self.manifest.evidence else "../emulated"
        place = (self.run_dir.resolve() / named).resolve()
        try:
            manifest = read_manifest_file(place)
            if manifest is None or manifest.target.timings_are_latency:
                return None
            return _Gathering(place, manifest, read_metrics_file(place / "metrics.json"), None)
        except FormatError as problem:
            # The run itself is whole: it is reported without the proof, and that is said.
            self._trouble.append(f"the emulated run cannot be used: {problem.problem}")
            return None

    def _same_model(self, other: _Gathering) -> bool:
        ours = self.manifest.model_sha256 if self.manifest else ""
        theirs = other.manifest.model_sha256 if other.manifest else ""
        return bool(ours) and ours == theirs

    def _kernels(self) -> tuple[KernelReport, ...]:
        results = {_series(result): result for result in self._results()}
        dumps = {Series(one.experiment, one.threads): one for one in self._dumps()}
        return tuple(
            self._kernels_of(series, results.get(series), dumps.get(series))
            for series in dict.fromkeys((*results, *dumps))
        )

    def _kernels_of(
        self, series: Series, result: ResultEntry | None, dumps: SeriesAnalysis | None
    ) -> KernelReport:
        listed = self.run_dir / result.kernels if result and result.kernels else None
        uses = read_kernels_csv(listed) if listed and listed.is_file() else ()
        # A run that counted is the only one that proves absence: an empty list without a note is a true zero.
        counted = bool(result and result.counted_kernels)
        if dumps is not None and not any(use.kernel.library == "operator" for use in uses):
            uses = (*uses, *operator_kernels(operator.name for operator in dumps.operators))
        return KernelReport(
            series=series,
            sme2=result.sme2 if result else dumps.sme2 if dumps else None,
            uses=uses,
            sme=sme_verdict(uses, traced=counted),
            note=(result.kernels_note or "") if result else "",
        )

    def _parity(self) -> tuple[ParityReport, ...]:
        if self.metrics is None:
            return ()
        return tuple(
            ParityReport(_series(entry.baseline), _series(entry.candidate), entry.parity, entry.reason)
            for entry in self.metrics.parity
        )

    def _findings(self, pairs: Sequence[PairReport]) -> Iterator[Finding]:
        """Each kind of finding once, the largest gain first. What only a baseline shows is already solved."""
        if self.analysis is None:
            return
        candidates = {str(pair.candidate) for pair in pairs}
        mute = {str(pair.baseline) for pair in pairs} - candidates
        mute |= {pair.pairing.label for pair in pairs if pair.pairing and not pair.comparable}
        spoken: set[str] = set()
        for finding in self.analysis.findings:
            if finding.subject not in mute and finding.id not in spoken:
                spoken.add(finding.id)
                yield finding

    def _quality(self) -> Iterator[str]:
        if self.manifest is not None:
            yield from self.manifest.warnings
            if self.manifest.state not in ("", "finished"):
                yield f"the run is {self.manifest.state}, not finished: continue it with --resume"
        if self.metrics is not None:
            yield from map(str, self.metrics.stability)
        yield from self._unlike_latencies()
        for one in self._dumps():
            for warning in one.first.warnings:
                yield f"{one.first.stem}: {warning}"

    def _unlike_latencies(self) -> Iterator[str]:
        """Operator times that do not belong to the latencies beside them: another machine state, or not all
        of the rounds' dumps."""
        measured = {_series(entry): entry.traced_ms for entry in self._latencies()}
        for one in self._dumps():
            expected = measured.get(Series(one.experiment, one.threads))
            if expected and abs(one.latency.median / expected.median - 1) > _UNLIKE:
                yield (
                    f"{one.name}: its dumps say {one.latency.median:.3f} ms with the tracer on, its "
                    f"latencies {expected.median:.3f} ms: they are not of the same runs"
                )

    def _remarks(self) -> Iterator[str]:
        if self.manifest is None:
            yield "there is no manifest.json: machine, versions and settings are unknown"
        if self.metrics is None and self._timings_are_latency():
            yield "there is no metrics.json: times come from the dumps, with the event tracer on"
        if self.analysis is None:
            yield "there are no dumps: operators and categories cannot be shown"
        elif self.analysis.model is None:
            yield "the program (.pte) was not found: operators have no shapes, cost or place in the model"
        elif self.analysis.etrecord is None:
            yield "the record (.etrecord) was not found: operators have no module or source line"
        yield from self.analysis.warnings if self.analysis else ()
        yield from self._trouble
        other = self._prover
        if other is not None and not self._same_model(other):
            yield f"the emulated run in {other.run_dir.name} is of another program; its evidence is not used"


def _experiment(
    series: Series, result: ResultEntry | None, latency: LatencyEntry | None, dumps: SeriesAnalysis | None
) -> ExperimentReport:
    cost = latency.tracer_cost if latency else None
    return ExperimentReport(
        series=series,
        sme2=result.sme2 if result else dumps.sme2 if dumps else None,
        disabled=result.disable if result else (),
        runner=result.runner_path if result else "",
        rounds=latency.rounds if latency else 0,
        end_to_end=latency.end_to_end_ms if latency else None,
        traced=latency.traced_ms if latency else None,
        tracer_cost=TracerCost(cost.share, cost.low, cost.high) if cost else None,
        load_ms=latency.load_ms if latency else None,
        first_inference_ms=latency.first_inference_ms if latency else None,
        peak_memory_bytes=latency.peak_memory_bytes if latency else None,
        dumps=dumps,
        problem=(result.problem or "it failed") if result and result.state == "failed" else "",
    )


def _series(entry: SeriesEntry | ResultEntry) -> Series:
    return Series(entry.experiment, entry.threads)


def _sides(pairing: Pairing) -> tuple[Series, Series]:
    before, after = pairing.baseline, pairing.candidate
    return Series(before.experiment, before.threads), Series(after.experiment, after.threads)
