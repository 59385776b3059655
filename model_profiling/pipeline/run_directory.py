"""A run directory: what its files are called, and who may begin, continue or replace a run in it.

Nothing of an earlier run is ever overwritten in place. A run that has ended is moved aside when a new one
begins; an unfinished one is continued (`resume`) or discarded (`force`), never silently mixed with another.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from model_profiling import files, process
from model_profiling.errors import FormatError, InputError
from model_profiling.pipeline.journal import JOURNAL_FILE
from model_profiling.pipeline.locking import check_free
from model_profiling.pipeline.schedule import Series, Step

MANIFEST_FILE = "manifest.json"
METRICS_FILE = "metrics.json"
_WORK = ".work"

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The names of everything in one run directory."""

    path: Path
    model_stem: str

    @property
    def manifest(self) -> Path:
        return self.path / MANIFEST_FILE

    @property
    def metrics(self) -> Path:
        return self.path / METRICS_FILE

    @property
    def work(self) -> Path:
        """Where a process leaves its files until it has ended well."""
        return self.path / _WORK

    def summary(self, ending: Literal["json", "md"]) -> Path:
        return self.path / f"{self.model_stem}_pipeline_summary.{ending}"

    def file(self, series: Series, ending: str) -> Path:
        """A file of one series; `ending` begins where the common stem stops: `.etdump`, `_kernels.csv`."""
        stem = f"{self.model_stem}_{series.experiment}_t{series.threads}"
        return self.path / series.experiment / f"{stem}{ending}"

    def dump(self, step: Step) -> Path:
        """The first dump of a series has the contract's name; those of later rounds lie in `rounds/`."""
        if step.round == 0:
            return self.file(step.series, ".etdump")
        named = self.file(step.series, f"_r{step.round}.etdump")
        return named.parent / "rounds" / named.name

    def relative(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    def scratch(self) -> Path:
        """An empty folder for one process. No two attempts share one, so a process that outlived a killed
        pipeline cannot write among the files of its successor."""
        files.make_folder(self.work)
        try:
            return Path(tempfile.mkdtemp(prefix="process-", dir=self.work))
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            raise InputError(
                f"cannot write {self.work}: {reason}", "free some space, then continue with --resume"
            ) from problem


def read_manifest(run_dir: Path) -> Json | None:
    """The manifest, or None where there is none."""
    path = run_dir / MANIFEST_FILE
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as problem:
        raise FormatError(f"{path} cannot be read: {problem}", "choose another output_root") from problem
    if not isinstance(content, dict) or content.get("schema_version") != 1 or "results" not in content:
        raise FormatError(f"{path} is not a manifest of this kit", "choose another output_root")
    return content


def has_ended(manifest: Json) -> bool:
    """Whether the run in there did all it could; if not, it can be continued."""
    return manifest.get("state") in ("finished", "failed")


def has_results(run_dir: Path) -> bool:
    """Whether any process of the run in there ended; if none did, there is nothing to lose."""
    try:
        return (run_dir / JOURNAL_FILE).stat().st_size > 0
    except FileNotFoundError:
        return False


def settle_earlier(run_dir: Path, *, resume: bool, force: bool) -> tuple[Json | None, Path | None]:
    """Decide what becomes of an earlier run in `run_dir`.

    Returns the manifest to continue from, if any, and where a run that had ended was moved to, if one was.
    The caller holds the lock.
    """
    _check_startable(run_dir, resume=resume, force=force)
    manifest = read_manifest(run_dir)
    if manifest is None or not has_results(run_dir):
        return None, None
    if resume:
        return manifest, None
    if has_ended(manifest):
        return None, _move_aside(run_dir)
    _discard(run_dir)  # unfinished, so --force was given
    return None, None


def check_startable(run_dir: Path, *, resume: bool, force: bool) -> None:
    """Refuse to begin where a run is under way, unfinished, or something else is, before any time is spent.

    For callers that do not hold the lock yet.
    """
    check_free(run_dir)
    _check_startable(run_dir, resume=resume, force=force)


def _check_startable(run_dir: Path, *, resume: bool, force: bool) -> None:
    _check_is_run(run_dir)
    manifest = read_manifest(run_dir)
    if manifest is None or resume or force or has_ended(manifest):
        return
    if has_results(run_dir):
        raise InputError(
            f"{run_dir} holds an unfinished run",
            "continue it with --resume, discard it with --force, or choose another output_root",
        )


def check_folder(path: Path) -> None:
    """Refuse a place that cannot become a folder because a file is in the way."""
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise InputError(f"{existing} is a file, not a folder", "name another folder for the results")


def clear_work(directory: RunDirectory) -> None:
    """Remove what a killed pipeline left half done, and end its process if that still runs."""
    if directory.work.exists():
        for pid in _runners_writing_to(f"{directory.work}/process-"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(directory.work, ignore_errors=True)
    for part in directory.path.rglob(".*.part"):
        part.unlink(missing_ok=True)


def _check_is_run(run_dir: Path) -> None:
    """A folder with other things in it is not ours to move or fill."""
    check_folder(run_dir)
    if not run_dir.exists() or (run_dir / MANIFEST_FILE).exists():
        return
    if others := sorted(path.name for path in run_dir.iterdir() if not path.name.startswith(".")):
        raise InputError(
            f"{run_dir} holds other files ({others[0]}), but no run", "choose another or an empty output_root"
        )


def _move_aside(run_dir: Path) -> Path:
    number = 1
    while (aside := run_dir.with_name(f"{run_dir.name}-earlier-{number}")).exists():
        number += 1
    run_dir.rename(aside)
    return aside


def _discard(run_dir: Path) -> None:
    # Renamed first, so that a crash halfway leaves no half-deleted run under the real name.
    grave = Path(tempfile.mkdtemp(prefix=f".{run_dir.name}.", suffix=".discarded", dir=run_dir.parent))
    run_dir.rename(grave / run_dir.name)
    shutil.rmtree(grave, ignore_errors=True)


# How runners, the kit's and ExecuTorch's, are told where to write.
_WRITING = re.compile(r"--(?:result|etdump|output-prefix|etdump_path)[\0 =]")


def _runners_writing_to(place: str) -> Iterator[int]:
    """Processes that were told to write to `place`; one that only looks at it is someone else's."""
    for pid, command in _commands():
        if any(command.startswith(place, flag.end()) for flag in _WRITING.finditer(command)):
            yield pid


def _commands() -> Iterator[tuple[int, str]]:
    """Every process with its command line; where the system tells them apart, words end with NUL."""
    system = Path("/proc")
    if (system / "self/cmdline").exists():
        for folder in system.glob("[0-9]*"):
            with contextlib.suppress(OSError):
                yield int(folder.name), os.fsdecode((folder / "cmdline").read_bytes())
        return
    for line in process.run(["ps", "-axww", "-o", "pid=,args="], timeout=20).stdout.splitlines():
        pid, _, command = line.strip().partition(" ")
        if pid.isdigit():
            yield int(pid), command
