"""Copies a run with everything private replaced in its records and logs.

Shared pages are made from such a copy, so everything they show of a run has passed through here. The written
files are checked again before they are released.
"""

from __future__ import annotations

import contextlib
import functools
import getpass
import json
import math
import os
import re
import shutil
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from model_profiling.analysis.evidence import kept_evidence
from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError, system_reason
from model_profiling.core.progress import Progress
from model_profiling.core.records import csv_text, read_rows, record_json
from model_profiling.core.safe_read import (
    MIB,
    MOST_BINARY,
    MOST_JSON,
    MOST_LOG,
    MOST_TEXT,
    MOST_WIDE,
    is_regular,
    parse_json,
    read_bytes,
    read_text,
    too_large,
)
from model_profiling.report.data import ReportData
from model_profiling.report.document import Chart
from model_profiling.report.html import render_html
from model_profiling.report.scrubbing import Scrubber
from model_profiling.run import Run, Times, names
from model_profiling.run.folders import runs_below
from model_profiling.run.manifest import Manifest
from model_profiling.runner.machine import place_of
from model_profiling.workflow.report import gather_report

RUN_DIR = "RUN_DIR"
"""Name of the run directory in a copy."""
PROGRAM = "program"
"""Folder of the program in a copy."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,80}")
_OUTPUT = re.compile(r"_output\d+\.bin$")
_ANEW = re.compile(
    r"(?:report|shared_report|combined_report)(?:_files$|\.(?:md|html)$)|runs_index\.html$|shared\.json$"
)
_NOT_PRINTABLE = re.compile(rb"[^\x20-\x7e]+")
_BLOCK, _OVERLAP = 16 * MIB, 4096
_LARGE = (names.TIMELINE_CSV, names.RUN0_TIMELINE_CSV, names.STATS_CSV, names.DETAILS_CSV)
"""Files that no report reads."""

FileKind = Literal["json", "journal", "csv", "text", "dump", "output"]
_KINDS: dict[str, FileKind] = {
    ".json": "json",
    ".jsonl": "journal",
    ".csv": "csv",
    ".log": "text",
    ".md": "text",
    names.DUMP: "dump",
    names.ROUND_DUMP: "dump",
    names.BOUNDARIES: "dump",
}


_TEXTS: tuple[FileKind, ...] = ("json", "journal", "csv", "text")


@dataclass(frozen=True, slots=True)
class ShareOptions:
    rename: str | None = None
    """New name of the model."""
    keep: tuple[str, ...] = ()
    """Words that look private but are not."""


@dataclass(frozen=True, slots=True)
class Copied:
    path: Path
    source: Run
    left_out: tuple[tuple[str, str], ...]
    """Files of the run that are not in the copy, each with the reason."""

    @property
    def times(self) -> Times | None:
        """What the source says about its times, if there is no manifest."""
        return None if self.source.manifest else self.source.times


def make_scrubber(options: ShareOptions | None = None) -> Scrubber:
    """Return a scrubber that knows the names of this user and host."""
    options = options or ShareOptions()
    scrubber = Scrubber(options.keep)
    with contextlib.suppress(OSError, KeyError, ImportError):
        scrubber.add_word("user", getpass.getuser())
    with contextlib.suppress(RuntimeError):
        scrubber.add_word("user", Path.home().name)
    host = socket.gethostname()
    name, _, domain = host.partition(".")
    for word in (host, name, domain if "." in domain else ""):
        scrubber.add_word("host", word)
    return scrubber


def copy_runs(
    run_dirs: Sequence[Path],
    into: Path,
    scrubber: Scrubber,
    options: ShareOptions | None = None,
    *,
    times: Times | None = None,
    for_page: bool = False,
) -> list[Copied]:
    """Copy `run_dirs` into folders below `into`; `for_page` leaves out what no report reads. All are read
    before the first is written, so that a private name found in one is replaced in all."""
    runs = [Run.open(run_dir, times=times) for run_dir in run_dirs]
    names_of = [RUN_DIR] if len(runs) == 1 else [f"{RUN_DIR}_{number}" for number in range(1, len(runs) + 1)]
    found = [list(_files_of(run, for_page=for_page)) for run in runs]
    for called, run, held in zip(names_of, runs, found, strict=True):
        _learn(run, scrubber, options or ShareOptions(), called)
        for path, kind in held:
            if kind in _TEXTS:
                text = _text(path, kind)
                try:
                    scrubber.learn(_parsed(text, kind))
                except FormatError:
                    scrubber.learn(text)
    return [
        _copy(run, held, into / f"run_{number}" / _folder_name(run), scrubber, called)
        for number, (called, run, held) in enumerate(zip(names_of, runs, found, strict=True), start=1)
    ]


def gather_copy(copy: Copied, title: str | None = None, progress: Progress | None = None) -> ReportData:
    try:
        return gather_report(copy.path, title=title, times=copy.times, progress=progress)
    except FormatError as damage:
        # Name the source's file: the copy is gone when the user reads this.
        own = damage.problem.replace(str(copy.path), str(copy.source.path))
        raise FormatError(own, damage.fix) from damage


def refuse_leaks(scrubber: Scrubber, folder: Path) -> list[Path]:
    """Return the files in `folder`; raise if one still holds private data."""
    written = files.all_in(folder)
    for path in written:
        _refuse_leaks(scrubber, path, path.relative_to(folder).as_posix())
    return written


def _texts_in(content: bytes) -> Iterator[str]:
    """Yield the readable text of a binary file, block by block; it may be all text, or fragments."""
    for start in range(0, len(content), _BLOCK):
        block = content[start : start + _BLOCK + _OVERLAP]
        yield _NOT_PRINTABLE.sub(b"\n", block).decode("ascii")


def _refuse_leaks(scrubber: Scrubber, path: Path, name: str) -> None:
    content = read_bytes(path)
    if _KINDS.get(path.suffix) == "dump" or path.suffix in (".bin", ".pte"):
        leaks = [leak for text in _texts_in(content) for leak in scrubber.leaks(text, binary=True)]
    else:
        # The kit's own scripts and styles are the same in every page and hold no data of a run.
        text = content.decode("utf-8", errors="replace")
        for own in _own_scripts() if path.suffix == names.HTML else ():
            text = text.replace(own, "")
        leaks = [*scrubber.leaks(text)]
    leaks = [*scrubber.leaks(name), *leaks]
    if leaks:
        raise InputError(
            (
                f"{path.name} would still contain {leaks[0].original!r} ({leaks[0].kind}), so nothing was "
                "written"
            ),
            f"if that is not private, add --keep {leaks[0].original!r}",
        )


@functools.cache
def _own_scripts() -> tuple[str, ...]:
    page = render_html([Chart("", "", "", {})], "")
    own = re.findall(
        r"(?s)<(?:script|style)(?! type=\"application/json\")[^>]*>(.*?)</(?:script|style)>", page
    )
    return tuple(own)


def _learn(run: Run, scrubber: Scrubber, options: ShareOptions, called: str) -> None:
    """Learn private names that only a run's records tell."""
    for folder in (run.path, run.path.resolve()):
        if folder.is_absolute():
            scrubber.add_folder(str(folder), called)
    if manifest := run.manifest:
        if (root := manifest.settings.get("output_root")) and Path(str(root)).is_absolute():
            scrubber.add_folder(str(root), called)
        if (home := Path(manifest.model).parent).is_absolute():
            scrubber.add_folder(str(home), PROGRAM)
        _learn_targets(manifest, scrubber)
    if options.rename is not None:
        _rename(run, scrubber, options.rename)


def _learn_targets(manifest: Manifest, scrubber: Scrubber) -> None:
    words = [word for part in manifest.parts for session in part.sessions for word in session.command_line]
    named = [manifest.target.name, *words, *(word.partition("=")[2] for word in words)]
    for before, word in zip(["", *words], words, strict=False):
        if before in ("--device", "--serial"):
            scrubber.add_word("device", word)
        elif before == "--host":
            scrubber.add_host(word)
    for part in manifest.parts:
        target = part.settings.get("target")
        asked = target if isinstance(target, dict) else {}
        named += [f"android:{asked.get(key) or ''}" for key in ("device", "remote")]
        named.append(f"ssh:{asked.get('host') or ''}")
    for name in named:
        kind, _, address = name.partition(":")
        if kind == "android":
            scrubber.add_word("device", address)
            scrubber.add_word("device", place_of(address))
            scrubber.add_word("device", address.rpartition(":")[0])
        elif kind == "ssh":
            scrubber.add_host(address)
            scrubber.add_word("host", place_of(address))


def _rename(run: Run, scrubber: Scrubber, name: str) -> None:
    model, _ = names.variant_of(Path(f"{run.model_name}.pte"))
    if not run.model_name:
        raise InputError(f"the model of {run.path} has no name", "leave out --rename")
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} is not a valid file name", "use letters, digits, '_', '-' and '.'")
    if re.search(rf"(?<![a-z0-9]){re.escape(model)}(?![a-z0-9])", name, re.IGNORECASE):
        raise InputError(f"{name!r} contains the model's name", "choose another name")
    scrubber.add_word("model name", model, name)


def _folder_name(run: Run) -> str:
    """Without a manifest, only the folder's name tells that times are an emulator's."""
    return "emulated" if run.manifest is None and run.times is Times.EMULATED else "run"


def _files_of(run: Run, *, for_page: bool) -> Iterator[tuple[Path, FileKind | None]]:
    """Yield the files to copy, each with its kind; None if it cannot be copied."""
    others = runs_below(run.path)
    for path in sorted(run.path.rglob("*")):
        parts = path.relative_to(run.path).parts
        made_again = any(part.startswith(".") or _ANEW.match(part) for part in parts)
        if made_again or others.intersection(path.parents) or (path.is_dir() and not path.is_symlink()):
            continue
        usual = "output" if _OUTPUT.search(path.name) else _KINDS.get(path.suffix)
        kind = usual if is_regular(path) and not _is_too_long(path, usual) else None
        if kind is None or not (for_page and path.name.endswith(_LARGE)):
            yield path, kind


def _is_too_long(path: Path, kind: FileKind | None) -> bool:
    """Whether searching the text for private data would take minutes and gigabytes."""
    return path.stat().st_size > {"text": MOST_LOG, "csv": MOST_WIDE}.get(kind or "", math.inf)


def _copy(
    run: Run, held: Sequence[tuple[Path, FileKind | None]], to: Path, scrubber: Scrubber, called: str
) -> Copied:
    files.make_folder(to)
    for folder in (to, to.resolve()):
        scrubber.add_folder(str(folder), called, own=True)
    left_out = []
    inputs = run.manifest.settings.get("inputs") if run.manifest else None
    own_inputs = bool(isinstance(inputs, dict) and inputs.get("files"))
    for path, kind in held:
        name = scrubber.text(path.relative_to(run.path).as_posix())
        if kind is None:
            left_out.append((name, _why_left_out(path)))
        elif kind == "output" and own_inputs:
            left_out.append((name, "computed from inputs of your own"))
        else:
            _copy_file(path, to / name, kind, scrubber)
    _complete(run, to, scrubber)
    return Copied(to, run, tuple(left_out))


def _why_left_out(path: Path) -> str:
    if not is_regular(path):
        return "a link, or no file at all"
    return "too long to look through" if path.suffix in _KINDS else "not a file of the kit"


def _copy_file(path: Path, to: Path, kind: FileKind, scrubber: Scrubber) -> None:
    files.make_folder(to.parent)
    if kind not in _TEXTS:
        if path.stat().st_size > MOST_BINARY:  # a sparse file may claim to be larger than any disk
            raise too_large(path, MOST_BINARY)
        try:
            os.link(path, to, follow_symlinks=False)
        except OSError:
            try:
                shutil.copyfile(path, to)
            except OSError as problem:
                fix = "make it readable, or leave it out of the folder"
                raise InputError(f"cannot read {path}: {system_reason(problem)}", fix) from problem
        return
    text = _text(path, kind)
    try:
        made = _scrubbed_text(text, kind, scrubber)
    except (ValueError, FormatError, RecursionError):
        made = scrubber.text(text)  # the bug report may be about this damaged file
    files.write_text(to, made)


def _scrubbed_text(text: str, kind: FileKind, scrubber: Scrubber) -> str:
    content = _parsed(text, kind)
    if kind == "json":
        return _json_text(content, scrubber)
    if isinstance(content, list):
        return "".join(json.dumps(scrubber.value(line)) + "\n" for line in content)
    if kind == "csv" and "source" in text.partition("\n")[0]:
        columns, *rows = read_rows(text, "CSV", "")
        source = {place for place, name in enumerate(columns) if name == "source_code"}
        scrubbed = (
            [(scrubber.source_line if at in source else scrubber.text)(cell) for at, cell in enumerate(row)]
            for row in rows
        )
        return csv_text((columns, *scrubbed))
    return scrubber.text(text)


def _json_text(content: object, scrubber: Scrubber) -> str:
    return json.dumps(scrubber.value(content), indent=2, ensure_ascii=False) + "\n"


def _complete(run: Run, to: Path, scrubber: Scrubber) -> None:
    """Add to a copy what its source takes from outside: the program's graph, evidence from emulation."""
    beside: dict[str, object] = {}
    if run.dumps and not (to / names.GRAPH).is_file():
        beside[names.GRAPH] = run.programs().explaining(run.dumps[0].path)
    if (kept := kept_evidence(run)) is not run.evidence:
        beside[names.EVIDENCE] = kept
    for name, record in beside.items():
        if record is not None:
            content = record_json(record)
            scrubber.learn(content)
            files.write_text(to / name, _json_text(content, scrubber))


def _parsed(text: str, kind: FileKind) -> object:
    """Return JSON as values (of a journal, those of its whole lines) and other text unchanged. Raise
    FormatError if it needs too much memory or is unreadable."""
    if kind == "json":
        return parse_json(text, "", "")
    if kind == "journal":
        return [parse_json(line, "", "") for line in text[: text.rfind("\n") + 1].splitlines()]
    return text


def _text(path: Path, kind: FileKind | None) -> str:
    return read_text(path, MOST_JSON if kind in ("json", "journal") else MOST_TEXT)
