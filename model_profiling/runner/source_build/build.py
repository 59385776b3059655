"""Configure, build, verify and record source-built runners, preset by preset, going on where it stopped."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import BinaryIO

from model_profiling import files
from model_profiling.errors import InputError, SetupError
from model_profiling.process import kill_group, run
from model_profiling.progress import Progress, Silent
from model_profiling.runner.source_build import toolchain, verify
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
        if found is None:
            raise SetupError(f"no compiler was chosen for {preset.name}", "report this as a bug")
        return found


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """One preset, what will be done about it and by which commands."""

    preset: RunnerPreset
    binary: Path
    finished: bool
    configure: tuple[str, ...]
    build: tuple[str, ...]
    inputs: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class BuiltRunner:
    """A runner that is there and was verified; `seconds` is 0 for one that needed no work."""

    preset: RunnerPreset
    binary: Path
    verified: str
    seconds: float


def find_tools(presets: Sequence[RunnerPreset]) -> Tools:
    """Everything the presets need, or the first thing that is missing."""
    android = [preset for preset in presets if preset.is_android]
    tools = Tools(
        cmake=toolchain.find_cmake(),
        compiler=toolchain.find_compiler() if len(android) < len(presets) else None,
        ndk=toolchain.find_ndk() if android else None,
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
    source, jobs = _revision(checkout), jobs or _cores()
    return [
        _plan(checkout, preset, tools, source=source, jobs=jobs, force=force, defines=defines)
        for preset in presets
    ]


def build_runners(
    checkout: Path, plans: Sequence[BuildPlan], tools: Tools, *, progress: Progress | None = None
) -> Iterator[BuiltRunner]:
    """Carry plans out, one preset after another, each on all the cores it was given."""
    say = progress or Silent()
    checkout = checkout.resolve()
    with _alone(checkout):
        merge_presets(checkout)
        for plan in plans:
            if plan.finished:
                yield BuiltRunner(
                    plan.preset, plan.binary, verify.verify_binary(plan.binary, plan.preset), 0.0
                )
            else:
                yield _build(checkout, plan, tools, say)


def _plan(
    checkout: Path,
    preset: RunnerPreset,
    tools: Tools,
    *,
    source: Mapping[str, object],
    jobs: int,
    force: bool,
    defines: Sequence[str],
) -> BuildPlan:
    build_dir = checkout / "cmake-out" / preset.name
    compiler = tools.compiler_for(preset)
    inputs: dict[str, object] = {
        "preset": preset.name,
        "executorch": source,
        "cmake": tools.cmake.version,
        "compiler": {key: str(value) for key, value in asdict(compiler).items()},
        "ndk": tools.ndk.revision if preset.is_android and tools.ndk else None,
        "cache_variables": dict(preset.cache_variables),
        "defines": list(defines),
    }
    record = _record(build_dir)
    known = record.get("inputs")
    finished = not force and known == inputs and _unchanged(build_dir, record, source)
    # A build folder remembers its compiler; another one needs a new start.
    fresh = force or (isinstance(known, dict) and known.get("compiler") != inputs["compiler"])
    cmake = str(tools.cmake.path)
    return BuildPlan(
        preset=preset,
        binary=build_dir / "executor_runner",
        finished=finished,
        configure=(
            *(cmake, "--preset", preset.name, f"-DPYTHON_EXECUTABLE={sys.executable}"),
            *(f"-D{define}" for define in defines),
            *(("--fresh",) if fresh else ()),
        ),
        build=(
            *(cmake, "--build", "--preset", preset.name, "--parallel", str(jobs)),
            *(("--clean-first",) if force else ()),
        ),
        inputs=inputs,
    )


def _build(checkout: Path, plan: BuildPlan, tools: Tools, say: Progress) -> BuiltRunner:
    name, build_dir = plan.preset.name, plan.binary.parent
    began = time.monotonic()
    log = files.make_folder(checkout / "cmake-out") / f"{name}.log"
    environment = _environment(plan.preset, tools)
    # What is there is out of date or damaged, and Ninja would take a damaged file for a new one.
    for stale in (build_dir / RECORD, plan.binary):
        stale.unlink(missing_ok=True)
    say.stage(f"{name}: configuring")
    with log.open("wb") as stream:
        step = _Step(stream, checkout, environment)
        step.run(f"configuring {name}", plan.configure, _CONFIGURE_LIMIT)
        verify.check_switches(build_dir, plan.preset)
        _check_counterpart(plan)
        say.stage(f"{name}: building")
        step.run(f"building {name}", plan.build, _BUILD_LIMIT, lambda line: _advance(line, say))
    verified = verify.verify_binary(plan.binary, plan.preset)
    seconds = time.monotonic() - began
    files.write_json(
        build_dir / RECORD,
        {
            "schema_version": 1,
            "sme2": plan.preset.sme2,
            "xnnlog": plan.preset.xnnlog,
            "platform": plan.preset.platform,
            "inputs": dict(plan.inputs),
            "binary": {"name": plan.binary.name, "sha256": files.sha256(plan.binary)},
            "verified": verified,
            "seconds": round(seconds, 1),
            "built_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        },
    )
    return BuiltRunner(plan.preset, plan.binary, verified, seconds)


def _check_counterpart(plan: BuildPlan) -> None:
    """On and off must differ in the SME switches only; checked as soon as both are configured.

    A counterpart from other sources or tools is out of date, not wrong: its own build will be checked.
    """
    other = plan.binary.parent.with_name(plan.preset.counterpart)
    theirs = _record(other).get("inputs")
    if isinstance(theirs, dict) and _common(theirs) == _common(plan.inputs):
        here = plan.binary.parent
        verify.check_pair(*((here, other) if plan.preset.sme2 else (other, here)))


def _common(inputs: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in inputs.items() if key not in ("preset", "cache_variables")}


def _environment(preset: RunnerPreset, tools: Tools) -> dict[str, str]:
    if preset.is_android and tools.ndk:
        return {"PATH": toolchain.search_path(), "ANDROID_NDK": str(tools.ndk.root)}
    compiler = tools.compiler_for(preset)
    return {"PATH": toolchain.search_path(), "CC": str(compiler.c), "CXX": str(compiler.cxx)}


@dataclass(frozen=True, slots=True)
class _Step:
    """Runs commands with their output in a log and their lines handed on as they come: builds are long."""

    log: BinaryIO
    cwd: Path
    environment: Mapping[str, str]

    def run(
        self, title: str, argv: Sequence[str], limit: float, on_line: Callable[[str], None] | None = None
    ) -> None:
        self.log.write(f"$ {shlex.join(argv)}\n".encode())
        self.log.flush()
        child = subprocess.Popen(
            argv,
            cwd=self.cwd,
            env={**os.environ, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        late = threading.Event()

        def stop() -> None:
            late.set()
            kill_group(child)

        alarm = threading.Timer(limit, stop)
        alarm.start()
        try:
            error = self._follow(child, on_line)
            code = child.wait()
        except BaseException:
            kill_group(child)
            child.wait()
            raise
        finally:
            alarm.cancel()
        if late.is_set():
            raise SetupError(f"{title} took longer than {limit:.0f} s", "run it again: it goes on from there")
        if code:
            raise SetupError(f"{title} failed: {error or f'exit code {code}'}", f"see {self.log.name}")

    def _follow(self, child: subprocess.Popen[bytes], on_line: Callable[[str], None] | None) -> str:
        """Copy the output to the log; returns the first line that speaks of an error."""
        error = ""
        assert child.stdout is not None
        with child.stdout as output:
            for raw in output:
                self.log.write(raw)
                line = raw.decode("utf-8", "replace").strip()
                if on_line:
                    on_line(line)
                # CMake says where on one line and what on the next.
                if (not error and re.search(r"\berror\b", line, re.IGNORECASE)) or error.endswith(":"):
                    error = f"{error} {line}".strip()
        self.log.flush()
        return error


def _advance(line: str, say: Progress) -> None:
    """Ninja counts its steps: `[12/345] Building ...`."""
    if found := re.match(r"\[(\d+)/(\d+)\]", line):
        say.advance(int(found[1]), int(found[2]))


def _record(build_dir: Path) -> dict[str, object]:
    """What an earlier build wrote about itself; a record that cannot be read counts as none."""
    try:
        content = json.loads((build_dir / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _unchanged(build_dir: Path, record: Mapping[str, object], source: Mapping[str, object]) -> bool:
    """A finished build is skipped if its sources are a commit without changes and its binary is the same."""
    binary = record.get("binary")
    path = build_dir / "executor_runner"
    return bool(
        source["commit"]
        and not source["changed"]
        and path.is_file()
        and isinstance(binary, dict)
        and binary.get("sha256") == files.sha256(path)
    )


def _revision(checkout: Path) -> dict[str, object]:
    """ExecuTorch's version, commit, whether tracked files were changed, and XNNPACK's commit."""
    version = checkout / "version.txt"
    inside = (checkout / ".git").exists()
    status = _git(checkout, "status", "--porcelain", "--untracked-files=no") if inside else None
    return {
        "version": version.read_text(encoding="utf-8").strip() if version.is_file() else None,
        "commit": _git(checkout, "rev-parse", "HEAD") if inside else None,
        "changed": bool(status),
        "xnnpack_commit": (
            _git(checkout / "backends/xnnpack/third-party/XNNPACK", "rev-parse", "HEAD") if inside else None
        ),
    }


def _git(folder: Path, *words: str) -> str | None:
    done = run(["git", "-C", folder, *words], timeout=300)
    return done.stdout.strip() if done.ok else None


@contextlib.contextmanager
def _alone(checkout: Path) -> Iterator[None]:
    """One build at a time in a checkout: two would write into the same folders."""
    path = files.make_folder(checkout / "cmake-out") / ".sme2prof.lock"
    with path.open("w") as stream:
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
