"""Who may begin, continue or replace a run in a directory.

Nothing of an earlier run is ever overwritten in place. A run that has ended is joined or kept under its date
and time when a new one begins; an unfinished one is continued (`resume`) or discarded (`force`), never
silently mixed with another.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from model_profiling.core import files, process
from model_profiling.core.errors import InputError, system_reason
from model_profiling.run.folders import check_free, holds_run, refuse_links_out
from model_profiling.run.journal import has_journal
from model_profiling.run.manifest import Manifest, Part, read_manifest, read_summary_0
from model_profiling.run.names import MANIFEST, RunFiles, earlier_name


@dataclass(frozen=True, slots=True)
class Earlier:
    """What an earlier session left in place: a manifest to join, and the part of it to continue."""

    manifest: Manifest | None = None
    part: Part | None = None
    moved: Path | None = None
    """Where a run that had ended was moved to."""

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.manifest.parts if self.manifest else ()

    def part_with(self, experiments: Iterable[str]) -> Part | None:
        """The part that holds any of these experiments."""
        wanted = set(experiments)
        return next((part for part in self.parts if wanted & set(part.experiments)), None)


@contextlib.contextmanager
def scratch_folder(place: RunFiles) -> Iterator[Path]:
    """An empty folder for one process or launch, gone afterwards. No two attempts share one, so a process
    that outlived a killed pipeline cannot write among the files of its successor."""
    files.make_folder(files.real_folder(place.path, place.work))
    try:
        scratch = Path(tempfile.mkdtemp(prefix="process-", dir=place.work))
    except OSError as problem:
        reason = system_reason(problem)
        raise InputError(
            f"cannot write {place.work}: {reason}", "free some space, then continue with --resume"
        ) from problem
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def settle_earlier(run_dir: Path, head: Manifest, *, resume: bool, force: bool) -> Earlier:
    """Decide what becomes of an earlier run in `run_dir`, now that the new one (`head`) can start.

    A finished run of the same program on the same machine is joined by a config with other experiments, and
    else kept under its date and time, as one of the earlier kit always is. The caller holds the lock.
    """
    check_directory(run_dir, resume=resume, force=force)
    manifest = read_manifest(run_dir) or read_summary_0(run_dir)
    if manifest is not None and manifest.version_0:
        return Earlier(moved=_keep(run_dir, manifest))
    if manifest is None or not has_journal(run_dir):
        return Earlier()
    earlier = Earlier(manifest)
    same = earlier.part_with(name for each in head.experiments for name in head.asked_as(each))
    ended = [part for part in earlier.parts if part.has_ended]
    if resume and same is not None:
        return Earlier(manifest, same)
    if len(ended) == len(earlier.parts):
        if same is None and _fits(manifest, head):
            return earlier
    elif resume:
        raise InputError(
            f"{run_dir} holds an unfinished run of other experiments",
            "continue it with its own config, discard it with --force, or choose another output_root",
        )
    if ended:
        return Earlier(moved=_keep(run_dir, manifest))
    _discard(run_dir)  # unfinished, so --force was given
    return Earlier()


def _keep(run_dir: Path, manifest: Manifest) -> Path:
    kept = earlier_name(run_dir, manifest.started)
    run_dir.rename(kept)
    return kept


def _fits(manifest: Manifest, head: Manifest) -> bool:
    """Whether both were made of the same program, by the same runner, on the same machine."""
    return all(
        (
            manifest.model_sha256 == head.model_sha256,
            manifest.target == head.target,
            manifest.executorch.version == head.executorch.version,
            manifest.runner.build_id == head.runner.build_id,
            manifest.cpu == head.cpu,
        )
    )


def check_startable(run_dir: Path, *, resume: bool, force: bool) -> None:
    """As `check_directory`, for callers that do not hold the lock yet."""
    check_free(run_dir)
    check_directory(run_dir, resume=resume, force=force)


def check_directory(run_dir: Path, *, resume: bool, force: bool) -> None:
    """Refuse to begin where an unfinished run, or something else, is, before any time is spent."""
    _check_is_run(run_dir)
    refuse_links_out(run_dir)
    manifest = read_manifest(run_dir)
    if manifest is None or resume or force or all(part.has_ended for part in manifest.parts):
        return
    if has_journal(run_dir):
        raise InputError(
            f"{run_dir} holds an unfinished run",
            "continue it with --resume, discard it with --force, or choose another output_root",
        )


def check_folder(path: Path) -> None:
    """Refuse a place that cannot become a folder because a file is in the way."""
    existing = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not existing.is_dir():
        raise InputError(f"{existing} is a file, not a folder", "name another folder for the results")


def clear_work(place: RunFiles) -> None:
    """Remove what a killed pipeline left half done, and end its process if that still runs."""
    if place.work.is_symlink():
        place.work.unlink()
    if place.work.exists():
        for pid in _runners_writing_to(f"{place.work}/process-"):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(place.work, ignore_errors=True)
    for part in place.path.rglob(".*.part"):
        if not part.is_dir() or part.is_symlink():
            part.unlink(missing_ok=True)


def _check_is_run(run_dir: Path) -> None:
    """A folder with other things in it is not ours to move or fill."""
    check_folder(run_dir)
    if not run_dir.exists() or (run_dir / MANIFEST).exists() or holds_run(run_dir):
        return
    if others := sorted(path.name for path in run_dir.iterdir() if not path.name.startswith(".")):
        raise InputError(
            f"{run_dir} holds other files ({others[0]}), but no run", "choose another or an empty output_root"
        )


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


def _commands(system: Path = Path("/proc")) -> Iterator[tuple[int, str]]:
    """Every process with its command line; where the system tells them apart, words end with NUL."""
    if (system / "self/cmdline").exists():
        for folder in system.glob("[0-9]*"):
            with contextlib.suppress(OSError):
                yield int(folder.name), os.fsdecode((folder / "cmdline").read_bytes())
        return
    for line in process.run(["ps", "-axww", "-o", "pid=,args="], timeout=20).stdout.splitlines():
        pid, _, command = line.strip().partition(" ")
        if pid.isdigit():
            yield int(pid), command
