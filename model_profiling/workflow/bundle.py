"""Copies of a run that are safe to send: a bundle for a bug report, a report to share."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from model_profiling._version import __version__
from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.progress import Progress
from model_profiling.core.safe_read import read_bytes
from model_profiling.doctor import examine
from model_profiling.report.combined import combined_document, combined_title
from model_profiling.report.data import ReportData, report_data
from model_profiling.report.run_report import run_document
from model_profiling.report.scrubbing import (
    Replaced,
    Scrubber,
    left_out_lines,
    replacement_rows,
    replacement_section,
    scrub_block,
)
from model_profiling.run import Run, Times, names
from model_profiling.workflow.report import check_one_page, write_page
from model_profiling.workflow.scrubbed_copy import (
    PROGRAM,
    Copied,
    ShareOptions,
    copy_runs,
    gather_copy,
    make_scrubber,
    refuse_leaks,
)

# A bundle holds a run's records, dumps and logs without private data, and the shared report. Unpacked, it is
# a run directory again: every command reads it, and its report has the same figures.

DOCTOR = "doctor.json"
_MOMENT = (1980, 1, 1, 0, 0, 0)
"""Date of every file in the archive, so that the same run gives the same bytes."""
_MEANING = {
    **dict.fromkeys(names.DUMPS, "binary: names of operators, their times and the program's structure"),
    names.BOUNDARIES: "binary: when operators began and ended",
    ".bin": "binary: what the model computed from made-up inputs",
    ".pte": "binary: the program with its weights",
}
_NOT_IN_NAMES = re.compile(r"[^\w.+-]+", re.ASCII)
_LONGEST_HOME = 120
_WITHOUT_PROGRAM = "it has the model's weights; --with-program packs it"


@dataclass(frozen=True, slots=True)
class Packed:
    name: str
    bytes: int
    what: str = ""
    """What the file may reveal, if it is not readable text."""


@dataclass(frozen=True, slots=True)
class Bundle:
    path: Path
    files: tuple[Packed, ...]
    left_out: tuple[tuple[str, str], ...]
    replaced: tuple[Replaced, ...]
    data: ReportData


def write_bundle(
    run_dir: Path,
    out: Path | None = None,
    *,
    options: ShareOptions | None = None,
    with_program: bool = False,
    diagnosis: Mapping[str, object] | None = None,
    progress: Progress | None = None,
) -> Bundle:
    """Pack the run in `run_dir`; `diagnosis` is the doctor's result for this machine, made if not given."""
    scrubber = make_scrubber(options)
    asked = examine().as_dict() if diagnosis is None else diagnosis
    scrubber.learn(asked)
    with tempfile.TemporaryDirectory(prefix="sme2prof-bundle-") as scratch:
        (copy,) = copy_runs([run_dir], Path(scratch), scrubber, options)
        left_out = [*copy.left_out, *_program(copy, scrubber, wanted=with_program)]
        _write_json(copy.path / DOCTOR, scrubber.value(asked))
        try:
            data = gather_copy(copy, progress=progress)
        except FormatError as damage:
            # The unreadable file may be the bug itself: make the report from the records alone.
            data = report_data(Run.open(copy.path, times=copy.times), None)
            left_out.append(("what the report says of dumps", scrubber.text(damage.problem)))
        blocks = [*scrub_block(run_document(data), scrubber), *replacement_section(scrubber.replaced)]
        write_page(blocks, copy.path / names.REPORT, scrubber.text(data.title))
        packed = _packed(copy.path)
        _write_json(copy.path / names.SHARED_FACTS, _facts(packed, left_out, scrubber))
        refuse_leaks(scrubber, copy.path)
        home = _home(copy, data, scrubber)
        path = out or Path(f"{home}_bundle.zip")
        with files.writing_to(path) as stream:
            _zip(copy.path, stream, home)
        told = (copy.path / names.SHARED_FACTS).stat().st_size
    every = (*packed, Packed(names.SHARED_FACTS, told))
    return Bundle(path, every, tuple(left_out), scrubber.replaced, data)


def _program(copy: Copied, scrubber: Scrubber, *, wanted: bool) -> Iterable[tuple[str, str]]:
    """Copy the program to where the manifest names it, or report that it is left out."""
    program = copy.source.programs().named()
    if not wanted:
        return [(scrubber.text(program.name), _WITHOUT_PROGRAM)] if program else []
    manifest = copy.source.manifest
    if program is None or manifest is None:
        raise InputError(
            f"the program of {copy.source.path} is not beside it",
            "put the .pte into the run directory or into the folder `artifacts` beside `runs`, or leave "
            "out --with-program",
        )
    if manifest.model_sha256 and files.sha256(program) != manifest.model_sha256:
        raise InputError(f"{program} is not the program of this run", "leave out --with-program")
    to = files.make_folder(copy.path / PROGRAM) / scrubber.text(program.name)
    shutil.copyfile(program, to)
    return []


def _facts(
    packed: Iterable[Packed], left_out: Iterable[tuple[str, str]], scrubber: Scrubber
) -> dict[str, object]:
    return {
        "schema_version": 1,
        "kit": __version__,
        "files": [asdict(found) for found in packed],
        "left_out": [{"file": name, "why": why} for name, why in left_out],
        "replaced": [
            {"placeholder": name, "stands_for": meaning, "times": int(times)}
            for name, meaning, times in replacement_rows(scrubber.replaced)
        ],
        "removed": left_out_lines(scrubber.replaced),
    }


def _home(copy: Copied, data: ReportData, scrubber: Scrubber) -> str:
    """Return the name of the folder in the archive, which also names the archive."""
    run: Run = copy.source
    name = f"{data.model or 'run'}_{run.platform}" if run.platform else data.model or "run"
    # Without a manifest, only the folder's name tells that times are an emulator's.
    name = f"emulated_{name}" if copy.path.name == "emulated" else name
    # The name comes from the run's files: sanitize it, so that the archive unpacks into one folder here.
    return _NOT_IN_NAMES.sub("_", scrubber.text(name))[:_LONGEST_HOME].lstrip(".") or "run"


def _packed(folder: Path) -> tuple[Packed, ...]:
    return tuple(
        Packed(path.relative_to(folder).as_posix(), path.stat().st_size, _MEANING.get(path.suffix, ""))
        for path in files.all_in(folder)
    )


def _zip(folder: Path, to: IO[bytes], home: str) -> None:
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for path in files.all_in(folder):
            entry = zipfile.ZipInfo(f"{home}/{path.relative_to(folder).as_posix()}", _MOMENT)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, read_bytes(path))


def _write_json(path: Path, content: object) -> None:
    files.write_text(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


# A report that is safe to send, made from a scrubbed copy of the run and checked before it is released.


@dataclass(frozen=True, slots=True)
class Shared:
    path: Path
    runs: tuple[ReportData, ...]
    replaced: tuple[Replaced, ...]


def share_report(
    run_dirs: Sequence[Path],
    out: Path | None = None,
    *,
    options: ShareOptions | None = None,
    title: str | None = None,
    times: Times | None = None,
    progress: Progress | None = None,
) -> Shared:
    """Write a report that is safe to send, about one run or several; to a pipe or a device, as HTML."""
    check_one_page(run_dirs, times)
    scrubber = make_scrubber(options)
    path = out or (run_dirs[0] / names.SHARED if len(run_dirs) == 1 else Path(names.SHARED))
    with tempfile.TemporaryDirectory(prefix="sme2prof-share-") as scratch:
        copies = copy_runs(run_dirs, Path(scratch), scrubber, options, times=times, for_page=True)
        data = [gather_copy(copy, title if len(copies) == 1 else None, progress) for copy in copies]
        heading = title or (data[0].title if len(data) == 1 else combined_title(data))
        blocks = run_document(data[0]) if len(data) == 1 else combined_document(data, heading)
        shown = scrub_block(blocks, scrubber)
        straight = files.is_stream(path)
        page = Path(scratch) / "page" / (names.SHARED if straight else path.name)
        write_page([*shown, *replacement_section(scrubber.replaced)], page, scrubber.text(heading))
        written = refuse_leaks(scrubber, page.parent)
        if straight:
            files.write_out(path, page.read_text(encoding="utf-8"))
            return Shared(path, tuple(data), scrubber.replaced)
        pictures = path.with_name(path.stem + names.PICTURES)
        for old in pictures.glob("*.svg"):
            old.unlink()
        for found in written:
            files.move(found, path.parent / found.relative_to(page.parent))
    return Shared(path, tuple(data), scrubber.replaced)
