"""A copy of a report that is fit to send: made of a copy of the run, read again before it is handed out."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling import files
from model_profiling.progress import Progress
from model_profiling.report.combined import combined_document, combined_title
from model_profiling.report.data import ReportData
from model_profiling.report.run_report import run_document
from model_profiling.report.scrubbing import Replaced
from model_profiling.report.share import replacement_section, scrubbed
from model_profiling.run import Times, names
from model_profiling.workflow.report import check_one_page, write_page
from model_profiling.workflow.scrubbed_copy import (
    ShareOptions,
    copy_runs,
    gather_copy,
    make_scrubber,
    refuse_leaks,
)


@dataclass(frozen=True, slots=True)
class Shared:
    """A page that was written, and what it does not say."""

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
    """Write a copy of the report that is fit to send: of one run, or one page about several; where `out` is a
    pipe or a device, as HTML."""
    check_one_page(run_dirs, times)
    scrubber = make_scrubber(options)
    path = out or (run_dirs[0] / names.SHARED if len(run_dirs) == 1 else Path(names.SHARED))
    with tempfile.TemporaryDirectory(prefix="sme2prof-share-") as scratch:
        copies = copy_runs(run_dirs, Path(scratch), scrubber, options, times=times, for_page=True)
        data = [gather_copy(copy, title if len(copies) == 1 else None, progress) for copy in copies]
        heading = title or (data[0].title if len(data) == 1 else combined_title(data))
        blocks = run_document(data[0]) if len(data) == 1 else combined_document(data, heading)
        shown = scrubbed(blocks, scrubber)
        straight = files.is_stream(path)
        page = Path(scratch) / "page" / (names.SHARED if straight else path.name)
        write_page([*shown, *replacement_section(scrubber.replaced)], page, scrubber.text(heading))
        written = refuse_leaks(scrubber, page.parent)
        if straight:
            files.write_out(path, page.read_text(encoding="utf-8"))
            return Shared(path, tuple(data), scrubber.replaced)
        pictures = files.real_folder(path.parent, path.with_name(path.stem + names.PICTURES))
        for old in pictures.glob("*.svg"):
            old.unlink()
        for found in written:
            files.move(found, path.parent / found.relative_to(page.parent))
    return Shared(path, tuple(data), scrubber.replaced)
