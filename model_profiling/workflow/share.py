"""Writes what may be sent to others: the report of a run, or an archive with the figures behind it.

The records of a run are reduced to the fields that may be shared (`runs/shared_fields.py`) and written to a
scratch folder under names made here; the usual report is then made of that folder. So nothing else of the
run can get into it, and no name from the run becomes a path.
"""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.analysis.evidence import kept_evidence, listed_kernels
from model_profiling.analysis.kernels import use_of, write_kernels_csv
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core import files
from model_profiling.core.records import write_record
from model_profiling.core.safe_read import MOST_BINARY, check_regular, is_there, read_bytes
from model_profiling.etdump import boundaries_beside, read_boundaries, read_etdump
from model_profiling.report.data import ReportData
from model_profiling.report.html import render_html
from model_profiling.report.run_report import run_document
from model_profiling.runs import Manifest, Run, Times
from model_profiling.runs.journal import Journal
from model_profiling.runs.manifest import Result
from model_profiling.runs.records import Metrics, read_samples
from model_profiling.runs.shared_fields import MODEL, SharedFields
from model_profiling.workflow.analyse import write_analysis
from model_profiling.workflow.report import gather_report, write_page

RUN_DIR = "RUN_DIR"
"""What a run directory is called in what is shared."""
_DEPTH = "1/2/3/4"
"""Programs and other runs are looked for up to four folders above a run: all of them are in the scratch."""
_MOMENT = (1980, 1, 1, 0, 0, 0)
"""Date of every file in an archive, so that the same run gives the same bytes."""


@dataclass(frozen=True, slots=True)
class Shared:
    path: Path
    data: ReportData
    renamed: Mapping[str, str]
    """Experiments whose names are not shared, and what they are called instead."""
    files: tuple[str, ...]
    """What is in the archive; empty for a page."""


def share_report(
    run_dir: Path,
    out: Path | None = None,
    *,
    title: str | None = None,
    times: Times | None = None,
    archive: bool = False,
) -> Shared:
    """Write a page about a run, or an `archive` of it and its figures, for others to read."""
    run, fields = Run.open(run_dir, times=times), SharedFields()
    path = out or run_dir / (names.SHARED_ARCHIVE if archive else names.SHARED)
    content: dict[str, bytes] = {}
    with tempfile.TemporaryDirectory(prefix="sme2prof-share-") as scratch:
        copy = _SharedRun(run, Path(scratch) / _DEPTH / RUN_DIR, fields)
        data = copy.gather(title)
        blocks = run_document(data)
        if archive:
            if data.analysis:
                write_analysis(data.analysis)
            content = {names.SHARED: files.encoded(render_html(blocks, data.title)), **copy.content()}
            _write_archive(path, content)
        else:
            write_page(blocks, path, data.title)
    renamed = {name: called for name, called in fields.experiments.items() if name != called}
    return Shared(path, data, renamed, tuple(content))


def _write_archive(path: Path, content: Mapping[str, bytes]) -> None:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for name, body in content.items():
            entry = zipfile.ZipInfo(f"{Path(names.SHARED_ARCHIVE).stem}/{name}", _MOMENT)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, body, zipfile.ZIP_DEFLATED)
    files.write_bytes(path, whole.getvalue())


class _SharedRun:
    """What may be shared of a run, in `folder`: its records, and dumps to analyse, which are not shared."""

    def __init__(self, run: Run, folder: Path, fields: SharedFields) -> None:
        self.run, self.folder, self.fields = run, folder, fields
        self._copies: dict[Path, Path] = {}
        manifest = self._manifest(run.manifest) if run.manifest else None
        stem = manifest.model_stem if manifest else Path(fields.program(f"{run.model_name}.pte")).stem
        self._place = names.RunFiles(files.make_folder(folder), stem or MODEL)
        self._copy_dumps()
        if manifest and run.manifest:
            results = zip(run.manifest.results, manifest.results, strict=True)
            manifest = replace(manifest, results=tuple(self._result(*pair) for pair in results))
            write_record(folder / names.MANIFEST, manifest)
        self._write_records(manifest)

    def gather(self, title: str | None) -> ReportData:
        stated = self.run.manifest is not None and not self.run.manifest.version_0
        times = None if stated or self.run.times is Times.UNKNOWN else self.run.times
        return gather_report(self.folder, title=title, times=times, called=self.folder.name)

    def content(self) -> dict[str, bytes]:
        """Return every file but the dumps, whose bytes nobody has looked at, by its name in an archive."""
        written = (path for path in files.all_in(self.folder) if path not in self._copies.values())
        return {
            f"{self.folder.name}/{self._place.relative(path)}": path.read_bytes()
            for path in written
            if path.suffix != names.BOUNDARIES
        }

    def _manifest(self, manifest: Manifest) -> Manifest:
        shared = self.fields.of(manifest)
        checked = Run(self.folder, shared)
        pairs = [(pair, checked.decided(pair)) for pair in map(self.fields.of, self.run.pairs)]
        return replace(
            shared,
            pairs=tuple(
                decided if pair.not_comparable and decided.not_comparable else pair for pair, decided in pairs
            ),
        )

    def _copy_dumps(self) -> None:
        """Copy what is whole: an error about the copy would name a file that is soon gone."""
        counts: Counter[Series] = Counter()
        for dump in self.run.dumps:
            series = self.fields.of(dump.series)
            read_etdump(dump.path)
            copy = self._place.dump(series, counts[series])
            counts[series] += 1
            self._copies[dump.path] = copy
            _copy(dump.path, copy)
            if is_there(check_regular(beside := boundaries_beside(dump.path))):
                read_boundaries(beside)
                _copy(beside, boundaries_beside(copy))

    def _result(self, own: Result, shared: Result) -> Result:
        """Return `shared` with its files, which are written here."""
        run, place, fields, series = self.run, self._place, self.fields, shared.series
        launches = dict(zip(own.etdump_rounds, shared.etdump_launches, strict=False))
        copies = {name: self._copies[path] for name in own.dumps if (path := run.path / name) in self._copies}
        rounds = [name for name in own.etdump_rounds if name in copies]
        latency = kernels = sampled = None
        if stats := run.robust_stats(own.series):
            latency = place.of_series(series, names.ROBUST_STATS)
            write_record(latency, fields.of(stats))
        if uses := listed_kernels(run, own.series):
            kernels = place.of_series(series, names.KERNELS_CSV)
            calls = (fields.of(use.as_call) for use in uses)
            write_kernels_csv(kernels, place.model_stem, [use_of(call) for call in calls if call.name])
        if samples := read_samples(run.path, own):
            sampled = place.of_series(series, names.SAMPLES)
            write_record(sampled, fields.of(samples))
        beside = [boundaries_beside(copy) for copy in copies.values()]
        return replace(
            shared,
            etdump=place.relative(copies[own.etdump]) if own.etdump in copies else None,
            etdump_rounds=tuple(place.relative(copies[name]) for name in rounds),
            etdump_launches=tuple(launches[name] for name in rounds if name in launches),
            boundaries=tuple(place.relative(path) for path in beside if path.is_file()),
            log=None,
            xnntrace_log=None,
            latency=place.relative(latency) if latency else None,
            kernels=place.relative(kernels) if kernels else None,
            samples=place.relative(sampled) if sampled else None,
        )

    def _write_records(self, manifest: Manifest | None) -> None:
        run, fields, folder = self.run, self.fields, self.folder
        if run.metrics:
            write_record(folder / names.METRICS, _with_reasons(fields.of(run.metrics), manifest))
        if evidence := kept_evidence(run) or run.evidence:
            write_record(folder / names.EVIDENCE, fields.of(evidence))
        if run.dumps and (graph := run.programs().explaining(run.dumps[0].path)):
            write_record(folder / names.GRAPH, fields.of(graph))
        if run.journal:
            # It tells which runs in a dump were interrupted.
            entries = []
            for entry in run.journal.entries():
                copy = self._copies.get(run.path / entry.etdump) if entry.etdump else None
                entries.append(replace(fields.of(entry), etdump=self._place.relative(copy) if copy else None))
            Journal(folder).append(*entries)


def _with_reasons(metrics: Metrics, manifest: Manifest | None) -> Metrics:
    """Give comparisons without an answer the reason that the shared facts tell."""
    pairs = manifest.pairs or () if manifest else ()
    reasons = {(pair.baseline, pair.candidate): pair.not_comparable for pair in pairs}
    comparisons = tuple(
        replace(comparison, speedup=replace(comparison.speedup, reason=reason))
        if comparison.speedup.ratio is None
        and (reason := reasons.get((comparison.baseline, comparison.candidate)))
        else comparison
        for comparison in metrics.comparisons
    )
    return replace(metrics, comparisons=comparisons)


def _copy(source: Path, to: Path) -> None:
    files.make_folder(to.parent)
    files.write_bytes(to, read_bytes(source, MOST_BINARY))
