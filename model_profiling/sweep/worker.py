"""A worker's side of a sweep: the Dask tasks that export and measure, and the process that offers devices.

Files travel as archives in memory: a program with the files beside it, or a whole run directory.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import io
import logging
import os
import shutil
import signal
import socket
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_profiling._version import __version__
from model_profiling.config.sweep import DEVICES, is_device
from model_profiling.core import files
from model_profiling.core.errors import (
    FormatError,
    InputError,
    InUseError,
    ProfilingError,
    SetupError,
    refused_by_system,
)
from model_profiling.core.formatting import in_short
from model_profiling.core.hints import needed
from model_profiling.runner.cache import state_root
from model_profiling.sweep.cells import SweepJob, SweepProgram

EXTRA = "sweep"
EXPORTS = "export"
"""The Dask resource of the worker that exports; a device's resource has the name of the target."""
LOOPBACK = "127.0.0.1"
NO_PAGE = {"dashboard": False, "dashboard_address": f"{LOOPBACK}:0"}
_MOST_FILES, _MOST_BYTES = 100_000, 8 << 30
_CONNECT_S = 20


# Archives.


def pack(folder: Path, paths: Iterable[Path], moved: Mapping[Path, Path] | None = None) -> bytes:
    """Pack files below `folder`. `moved` maps paths that JSON files name here to what they are at home."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for path in paths:
            data = path.read_bytes()
            for here, home in moved.items() if moved and path.suffix == ".json" else ():
                data = data.replace(os.fsencode(here), os.fsencode(home))
            archive.writestr(path.relative_to(folder).as_posix(), data)
    return content.getvalue()


def pack_program(path: Path) -> bytes:
    """Pack a program with its record and its export's summary, if they are there."""
    beside = (path.with_name(f"{path.name}{end}") for end in (".etrecord", ".json"))
    return pack(path.parent, [path, *(other for other in beside if other.is_file())])


def unpack(archive: bytes, folder: Path) -> Path:
    """Make `folder` hold the files of `archive`, in place of whatever it held, completely or not at all."""
    part = files.make_folder(folder.parent) / f".{folder.name}.part"
    shutil.rmtree(part, ignore_errors=True)
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as packed:
            members = packed.infolist()
            if len(members) > _MOST_FILES or sum(member.file_size for member in members) > _MOST_BYTES:
                raise FormatError("a worker sent more than a run can hold", "stop that worker")
            packed.extractall(part)  # plain files and folders, whatever the names say, and none outside
        shutil.rmtree(folder, ignore_errors=True)
        return part.rename(folder)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as problem:
        raise FormatError(f"a worker sent a damaged archive: {problem}", "measure it again") from problem
    finally:
        shutil.rmtree(part, ignore_errors=True)


# Tasks. What may work at another try is raised, and Dask repeats it; any other problem is the result.


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The packed files, or what went wrong."""

    archive: bytes = b""
    problem: str = ""
    fix: str = ""


def own_versions() -> str:
    """What must be the same on both sides of a sweep."""
    try:
        executorch = importlib.metadata.version("executorch")
    except importlib.metadata.PackageNotFoundError:
        executorch = "(not installed)"
    return f"sme2prof {__version__} with ExecuTorch {executorch}"


def export_program(program: SweepProgram, artifacts: Path, versions: str) -> TaskResult:
    """Export into the folder `artifacts`, the program last: if it is there, all of its files are."""

    def export(folder: Path) -> bytes:
        from model_profiling.workflow.profile import ProfileOptions, find_or_export

        options = ProfileOptions(
            dtype=program.dtype,
            backend=program.backend,
            outdir=folder,
            calibration=program.calibration,
            keep=program.keep,
            optimize=program.optimize,
        )
        exported = find_or_export(program.model, options)
        for path in sorted(exported.parent.iterdir(), key=lambda path: path == exported):
            files.move(path, artifacts / path.name)
        return b""

    return _result_of(export, versions)


def measure_job(job: SweepJob, program: bytes, home: tuple[Path, Path], versions: str) -> TaskResult:
    """Measure as `sme2prof run` does; the analysis is made at home, where the run and its program stay: in
    the paths `home`."""

    def measure(folder: Path) -> bytes:
        from model_profiling.runs.begin import Start
        from model_profiling.runs.measure import measure_runs
        from model_profiling.targets import open_target

        path = unpack(program, folder / "program") / f"{job.program.name}.pte"
        target, run_dir = open_target(job.choice), folder / "run"
        with contextlib.closing(target):
            config = job.config(path, run_dir, target)
            measure_runs([config], target, Start(command_line=("sme2prof", "sweep")))
        measured = [file for file in files.all_in(run_dir) if not file.name.startswith(".")]
        return pack(run_dir, measured, dict(zip((run_dir, path), home, strict=True)))

    return _result_of(measure, versions)


def _result_of(work: Callable[[Path], bytes], versions: str) -> TaskResult:
    """Do `work` in a folder of its own, which Dask removes if this process is killed."""
    try:
        if versions != own_versions():
            here = f"worker {_worker().name} runs {own_versions()}"
            raise InputError(f"{here}, but the sweep runs {versions}", "install the same versions on both")
        with tempfile.TemporaryDirectory(prefix="task-", dir=_worker().local_directory) as folder:
            return TaskResult(work(Path(folder).resolve()))
    except (SetupError, InUseError):
        raise
    except ProfilingError as problem:
        return TaskResult(problem=problem.problem, fix=problem.fix)
    except OSError as problem:
        return TaskResult(problem=refused_by_system(problem))


def _worker() -> Any:
    return needed("distributed", EXTRA).get_worker()


# The process.


def nanny_options(name: str, resources: Iterable[str], folder: Path) -> dict[str, Any]:
    """Settings of every worker of the kit: one of each resource, a thread for each, no web page, and no
    limit on memory, because exports need much of it for a short time."""
    offered = dict.fromkeys(resources, 1.0)
    return {
        "name": name,
        "resources": offered,
        "nthreads": len(offered),
        "host": LOOPBACK,
        "local_directory": str(files.make_folder(folder)),
        "memory_limit": 0,
        "preload": [__name__],
        "silence_logs": logging.CRITICAL,
        **NO_PAGE,
    }


def dask_setup(_worker: object) -> None:
    """Dask calls this in each worker process. Ctrl-C is for the process that started it, which ends this one;
    what models and compilers print is nobody's answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    silent = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silent, stream)


def run_worker(
    scheduler: str, targets: Sequence[str], name: str | None, listen: str, say: Callable[[str], None]
) -> None:
    """Offer `targets`, as a sweep names them, until interrupted, or until the scheduler is gone."""
    if wrong := [target for target in targets if not is_device(target)]:
        raise InputError(f"--target {wrong[0]} names no device", DEVICES)
    distributed = needed("distributed", EXTRA)
    name = name or f"{socket.gethostname()}-{os.getpid()}"
    settings = nanny_options(name, targets, state_root() / "workers")
    settings |= {"death_timeout": _CONNECT_S, "host": listen}

    async def serve() -> None:
        async with distributed.Nanny(scheduler, **settings) as nanny:
            say(f"worker {name} serves {scheduler}: {', '.join(targets)}")
            await nanny.finished()

    quieten()
    try:
        asyncio.run(serve())
    except Exception as problem:
        raise SetupError(
            f"cannot join {scheduler} ({in_short(str(problem)) or type(problem).__name__})",
            "start it first (dask scheduler), or correct the address or Dask's TLS settings",
        ) from problem
    raise SetupError(f"the scheduler {scheduler} is gone", "start it again, then this worker")


def quieten() -> None:
    """Silence Dask's messages on stderr; the kit tells people what happens."""
    needed("distributed", EXTRA)  # loading it sets its own levels
    needed("dask", EXTRA).config.set({"distributed.admin.large-graph-warning-threshold": "1 TB"})  # programs
    for name in ("distributed", "tornado", "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
