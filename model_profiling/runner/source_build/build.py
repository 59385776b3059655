"""Configure, build, verify and record source-built runners, preset by preset, going on where it stopped."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import BinaryIO

from model_profiling import files, process
from model_profiling.errors import InputError, ProfilingError, SetupError
from model_profiling.json_record import read_record, write_record
from model_profiling.progress import Progress, Silent
from model_profiling.runner.source_build import toolchain, verify
from model_profiling.runner.source_build.fetch import ask_git
from model_profiling.runner.source_build.presets import RunnerPreset, merge_presets

RECORD = "runner_build.json"
_CONFIGURE_LIMIT = 1800.0
_BUILD_LIMIT = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Tools:
    """What the builds use; the same for every preset of a platform, so that on and off stay comparable."""

    cmake: toolchain.Cmake
    compiler: toolchain.Compiler | None
    ndk: toolchain.Ndk | None

    def compiler_for(self, preset: RunnerPreset) -> toolchain.Compiler:
        found = self.ndk.compiler if preset.is_android and self.ndk else self.compiler
        assert found is not None, f"no compiler was chosen for {preset.name}"
        return found


@dataclass(frozen=True, slots=True)
class Source:
    """ExecuTorch's version and commit, whether tracked files were changed, and XNNPACK's commit."""

    version: str | None
    commit: str | None
    changed: bool
    xnnpack_commit: str | None


@dataclass(frozen=True, slots=True)
class BuildInputs:
    """All that decides what a build makes."""

    preset: str
    executorch: Source
    cmake: str
    compiler: toolchain.Compiler
    ndk: str | None
    cache_variables: dict[str, str]
    defines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BuildRecord:
    """What a finished build leaves beside its binary."""

    sme2: bool
    xnnlog: bool
    platform: str
    inputs: BuildInputs
    binary: dict[str, str]
    verified: str
    seconds: float
    built_at: str
    schema_version: int = 1


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """One preset, what will be done about it and by which commands."""

    preset: RunnerPreset
    binary: Path
    finished: bool
    configure: tuple[str, ...]
    build: tuple[str, ...]
    inputs: BuildInputs


@dataclass(frozen=True, slots=True)
class BuiltRunner:
    """A runner that is there and was verified; `seconds` is 0 for one that needed no work."""

    binary: Path
    verified: str
    seconds: float


def find_tools(presets: Sequence[RunnerPreset]) -> Tools:
    """Everything the presets need, or the first thing that is missing."""
    tools = Tools(
        cmake=toolchain.find_cmake(),
        compiler=None if all(preset.is_android for preset in presets) else toolchain.find_compiler(),
        ndk=toolchain.find_ndk() if any(preset.is_android for preset in presets) else None,
    )
    toolchain.check_torchgen()
    return tools


def plan_builds(
    checkout: Path,
    presets: Sequence[RunnerPreset],
    tools: Tools,
    *,
    jobs: int | None = None,
    force: bool = False,
    defines: Sequence[str] = (),
) -> list[BuildPlan]:
    """What building `presets` in `checkout` would do; touches nothing."""
    checkout = checkout.resolve()
    toolchain.check_checkout(checkout)
    for define in defines:
        if not re.fullmatch(r"[A-Za-z_]\w*(:\w+)?=.*", define):
            raise InputError(
                f"--define {define} is not NAME=VALUE", "write it like KLEIDIAI_SOURCE_DIR=/path"
            )
    source, cmake = _source(checkout), str(tools.cmake.path)
    plans = []
    for preset in presets:
        inputs = BuildInputs(
            preset=preset.name,
            executorch=source,
            cmake=tools.cmake.version,
            compiler=tools.compiler_for(preset),
            ndk=tools.ndk.revision if preset.is_android and tools.ndk else None,
            cache_variables=dict(preset.cache_variables),
            defines=tuple(defines),
        )
        binary = checkout / "cmake-out" / preset.name / "executor_runner"
        record = _read_record(binary.parent)
        # A build folder remembers its compiler; another one needs a new start.
        fresh = force or (record is not None and record.inputs.compiler != inputs.compiler)
        configure = [cmake, "--preset", preset.name, f"-DPYTHON_EXECUTABLE={sys.executable}"]
        build = [cmake, "--build", "--preset", preset.name, "--parallel", str(jobs or _cores())]
        plans.append(
            BuildPlan(
                preset=preset,
                binary=binary,
                finished=not force and record is not None and _is_finished(binary, record, inputs),
                configure=(*configure, *(f"-D{define}" for define in defines), *["--fresh"] * fresh),
                build=(*build, *["--clean-first"] * force),
                inputs=inputs,
            )
        )
    return plans


def build_runners(
    checkout: Path, plans: Sequence[BuildPlan], tools: Tools, *, progress: Progress | None = None
) -> Iterator[BuiltRunner]:
    """Carry plans out, one preset after another, each on all the cores it was given."""
    checkout = checkout.resolve()
    with _alone(checkout):
        merge_presets(checkout)
        for plan in plans:
            if plan.finished:
                yield BuiltRunner(plan.binary, verify.verify_binary(plan.binary, plan.preset), 0.0)
            else:
                yield _build(checkout, plan, tools, progress or Silent())


def _build(checkout: Path, plan: BuildPlan, tools: Tools, say: Progress) -> BuiltRunner:
    name, build_dir = plan.preset.name, plan.binary.parent
    began = time.monotonic()
    environment = {**os.environ, "PATH": toolchain.search_path()}
    if plan.preset.is_android and tools.ndk:
        environment |= {"ANDROID_NDK": str(tools.ndk.root)}
    else:
        environment |= {"CC": str(plan.inputs.compiler.c), "CXX": str(plan.inputs.compiler.cxx)}
    # What is there is out of date or damaged, and Ninja would take a damaged file for a new one.
    for stale in (build_dir / RECORD, plan.binary):
        stale.unlink(missing_ok=True)
    written = files.make_folder(checkout / "cmake-out") / f"{name}.log"
    with os.fdopen(files.open_in_place(written), "wb") as log:
        log.truncate()
        step = _Step(log, written, checkout, environment, say)
        say.stage(f"{name}: configuring")
        step.run(f"configuring {name}", plan.configure, _CONFIGURE_LIMIT)
        verify.check_switches(build_dir, plan.preset)
        _check_counterpart(plan)
        say.stage(f"{name}: building")
        step.run(f"building {name}", plan.build, _BUILD_LIMIT)
    built = BuiltRunner(plan.binary, verify.verify_binary(plan.binary, plan.preset), time.monotonic() - began)
    record = BuildRecord(
        sme2=plan.preset.sme2,
        xnnlog=plan.preset.xnnlog,
        platform=plan.preset.platform,
        inputs=plan.inputs,
        binary={"name": plan.binary.name, "sha256": files.sha256(plan.binary)},
        verified=built.verified,
        seconds=round(built.seconds, 1),
        built_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
    write_record(build_dir / RECORD, record)
    return built


def _check_counterpart(plan: BuildPlan) -> None:
    """On and off must differ in the SME switches only; checked as soon as both are configured.

    A counterpart from other sources or tools is out of date, not wrong: its own build will be checked.
    """
    here = plan.binary.parent
    other = here.with_name(plan.preset.counterpart)
    record = _read_record(other)
    if record is None:
        return
    mine = replace(plan.inputs, preset=other.name, cache_variables=record.inputs.cache_variables)
    if record.inputs == mine:
        verify.check_pair(*((here, other) if plan.preset.sme2 else (other, here)))


@dataclass(frozen=True, slots=True)
class _Step:
    """Runs commands with their output in a log and their progress shown as it comes: builds are long."""

    log: BinaryIO
    written: Path
    """Where the log is."""
    cwd: Path
    environment: dict[str, str]
    say: Progress

    def run(self, title: str, argv: Sequence[str], limit: float) -> None:
        self.log.write(f"$ {shlex.join(argv)}\n".encode())
        began = time.monotonic()
        child = process.start(argv, cwd=self.cwd, env=self.environment, stderr=subprocess.STDOUT)
        alarm = threading.Timer(limit, process.kill, [child])
        alarm.start()
        try:
            error = self._follow(child)
            code = child.wait()
        finally:
            process.end(child, with_all=False)
            alarm.cancel()
        if code and time.monotonic() - began >= limit:
            raise SetupError(f"{title} took longer than {limit:.0f} s", "run it again: it goes on from there")
        if code:
            raise SetupError(f"{title} failed: {error or f'exit code {code}'}", f"see {self.written}")

    def _follow(self, child: process.Child) -> str:
        """Copy the output to the log; returns the first line that speaks of an error."""
        error = ""
        assert child.stdout is not None
        with child.stdout as output:
            for raw in output:
                self.log.write(raw)
                line = raw.decode("utf-8", "replace").strip()
                # Ninja counts its steps: `[12/345] Building ...`.
                if counted := re.match(r"\[(\d+)/(\d+)\]", line):
                    self.say.advance(int(counted[1]), int(counted[2]))
                # CMake says where on one line and what on the next.
                if (not error and re.search(r"\berror\b", line, re.IGNORECASE)) or error.endswith(":"):
                    error = f"{error} {line}".strip()
        return error


def _read_record(build_dir: Path) -> BuildRecord | None:
    """What an earlier build wrote about itself; a record that cannot be read counts as none."""
    try:
        return read_record(BuildRecord, build_dir / RECORD, "build it again with --force")
    except ProfilingError:
        return None


def _is_finished(binary: Path, record: BuildRecord, inputs: BuildInputs) -> bool:
    """Nothing is to be done for a commit without changes that was built alike into this very binary."""
    is_commit = bool(inputs.executorch.commit) and not inputs.executorch.changed
    same = is_commit and record.inputs == inputs and binary.is_file()
    return same and record.binary.get("sha256") == files.sha256(binary)


def _source(checkout: Path) -> Source:
    version = checkout / "version.txt"
    xnnpack = checkout / "backends/xnnpack/third-party/XNNPACK"
    inside = (checkout / ".git").exists()
    return Source(
        version=version.read_text(encoding="utf-8").strip() if version.is_file() else None,
        commit=ask_git(checkout, "rev-parse", "HEAD") if inside else None,
        changed=inside and bool(ask_git(checkout, "status", "--porcelain", "--untracked-files=no")),
        xnnpack_commit=ask_git(xnnpack, "rev-parse", "HEAD") if inside else None,
    )


@contextlib.contextmanager
def _alone(checkout: Path) -> Iterator[None]:
    """One build at a time in a checkout: two would write into the same folders."""
    path = files.make_folder(checkout / "cmake-out") / ".sme2prof.lock"
    with os.fdopen(files.open_in_place(path), "wb") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            raise SetupError(f"another build is running in {checkout}", "wait for it to end") from taken
        yield


def _cores() -> int:
    """Cores this process may use, and no more jobs than gigabytes of memory: large files need about one."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:
        cores = os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(cores, memory // 2**30))
