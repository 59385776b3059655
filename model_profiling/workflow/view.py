"""Finds or makes the page to view (a run's report, or a list of runs) and opens it."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_profiling.config import names
from model_profiling.core import files
from model_profiling.core.errors import InputError, ProfilingError
from model_profiling.core.files import StrPath, as_path
from model_profiling.core.formatting import milliseconds
from model_profiling.core.safe_read import is_regular
from model_profiling.core.stdio import current_progress
from model_profiling.report.combined import listed_run, render_folder, render_store
from model_profiling.report.data import report_data
from model_profiling.report.document import PageLink, Text
from model_profiling.runs import Run, Times
from model_profiling.runs.folders import runs_in
from model_profiling.runs.times import marked
from model_profiling.store.store import Store, list_runs
from model_profiling.workflow.report import write_report


@dataclass(frozen=True, slots=True)
class ViewedPage:
    path: Path
    runs: tuple[Path, ...] = ()
    problems: tuple[str, ...] = ()
    """One for each unreadable run."""


def page_to_view(named: StrPath, out: Path | None = None) -> ViewedPage:
    """Make a new page about `named`; if it is itself a page, return it unchanged."""
    if out is not None and out.suffix != names.HTML:
        raise InputError(f"{out} does not end in .html", f"call it {out.with_suffix(names.HTML)}")
    if "://" in os.fspath(named):
        if out is None:
            raise InputError("a store on a server has no folder for a page", "name a file: --out FILE.html")
        return _store(named, out)
    place = as_path(named)
    if place.is_file():
        if place.suffix != names.HTML:
            return _store(place, out or _writable(place.parent) / names.STORE_INDEX)
        if out is not None:
            raise InputError(f"{place} is a page already", "leave out --out, or name its run directory")
        return ViewedPage(place)
    if not place.is_dir():
        raise InputError(f"there is no {place}", "name a run directory, a folder of runs, a store or a page")
    runs = runs_in(place)
    if len(runs) == 1:
        # An existing report page is never opened: whoever sent the run may have put any script into it.
        write_report(runs[0], out=out or _writable(runs[0]) / names.REPORT)
        return ViewedPage(out or runs[0] / names.REPORT_PAGE, runs)
    return _index(place, runs, out or _writable(place) / names.INDEX)


def _writable(folder: Path) -> Path:
    if not os.access(folder, os.W_OK):
        raise InputError(f"you may not write to {folder}", "name a file elsewhere: --out FILE.html")
    return folder


def _index(folder: Path, runs: tuple[Path, ...], page: Path) -> ViewedPage:
    rows, damaged = [], []
    for run_dir in runs:
        current_progress().stage(f"reading {run_dir}")
        place = files.relative_posix(page.parent, run_dir)
        try:
            data = report_data(Run.open(run_dir), None)
            rows.append(listed_run(data, place, _report_of(run_dir, page.parent)))
        except ProfilingError as problem:
            damaged.append((place, str(problem)))
    if not rows:
        raise InputError(
            f"none of the {len(runs)} runs in {folder} can be read: {damaged[0][1]}",
            "`sme2prof validate RUN_DIR` says what is wrong with each",
        )
    files.write_text(page, render_folder(rows, damaged, f"Runs in {folder.resolve().name}"))
    return ViewedPage(page, runs, tuple(problem for _, problem in damaged))


_MOST_LISTED = 1000
"""Runs of a store on its page."""


def _store(place: StrPath, page: Path) -> ViewedPage:
    store = Store.open(place)
    rows, count = list_runs(store, last=_MOST_LISTED)
    listed: dict[Path, str] = {}
    runs = []
    for row in rows:
        run_dir = Path(row["run_dir"])
        # A folder that was measured in again holds the report of the newest run only.
        report = "" if run_dir in listed else _report_of(run_dir, page.parent)
        listed.setdefault(run_dir, report)
        runs.append(_stored_run(row, report))
    files.write_text(page, render_store(runs, f"Runs in {store.address.rpartition('/')[2]}", count))
    return ViewedPage(page, tuple(run_dir for run_dir, report in listed.items() if report))


def _stored_run(row: Mapping[str, Any], report: str) -> tuple[Text, ...]:
    device = (row["times"] != Times.EMULATED.value and row["device_name"]) or row["device"]
    if row["median_ms"]:
        latency = f"{milliseconds(row['median_ms'])} ms"
    elif row["times"] != Times.HARDWARE.value:
        latency = f"none: {row['times']}"
    else:
        latency = "none" if row["state"] == "finished" else f"none: {row['state']}"
    return (
        PageLink(row["name"], report) if report else f"{row['name']} (no report)",
        " ".join(filter(None, (row["model"], names.spoken_backend(row["backend"]), row["dtype"]))),
        marked(device, row["is_arm"]),
        f"{row['measured_at'] or row['added_at']:%Y-%m-%d %H:%M}",
        latency,
        row["commit_hash"][:10],
        ", ".join(row["tags"] or ()),
    )


def _report_of(run_dir: Path, home: Path) -> str:
    """Return the existing report of a run, relative to `home`; empty if there is none."""
    reports = (run_dir / name for name in (names.REPORT_PAGE, names.REPORT))
    return next((files.relative_posix(home, report) for report in reports if is_regular(report)), "")


def why_no_browser(environment: Mapping[str, str], system: str = sys.platform) -> str | None:
    """Return why no browser can be expected here, as a clause, or None. `BROWSER` is the user's word that
    there is one. Without a display, Python would start a text browser here, which cannot draw charts."""
    if environment.get("CI"):
        return "this is a CI job"
    if environment.get("BROWSER"):
        return None
    if environment.get("SSH_CONNECTION") or environment.get("SSH_TTY"):
        return "this is an ssh session"
    if system == "linux" and not (environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")):
        return "there is no display"
    return None


def open_page(page: Path) -> str | None:
    """Open `page` in the browser, or return as a clause why not."""
    reason = why_no_browser(os.environ)
    if reason is not None:
        return reason
    try:
        opened = webbrowser.open(page.resolve().as_uri())
    except webbrowser.Error:
        opened = False
    return None if opened else "no browser could be started"
