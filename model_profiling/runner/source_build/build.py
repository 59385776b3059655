"""Configures, builds, verifies and records source-built runners, one preset at a time; resumes if stopped."""

from __future__ import annotations

import os
import re
import shlex
import struct
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from model_profiling.core import files, process
from model_profiling.core.errors import FormatError, InputError, ProfilingError, RunError, SetupError
from model_profiling.core.progress import Progress, Silent
from model_profiling.core.records import JsonObject, read_json_object
from model_profiling.core.safe_read import read_json
from model_profiling.runner.source_build import toolchain
from model_profiling.runner.source_build.presets import RunnerPreset, ask_git, merge_presets
from model_profiling.runner.source_build.stand_ins import RECORD

# Verification: the switches that CMake applied, and the resulting binary.

# Flags that the kit uses; a program that does not know them is not an executor_runner.
_EXPECTED_FLAGS = ("model_path", "num_executions", "etdump_path")
_SWITCH = re.compile(r"-DXNN_ENABLE_ARM_SME2?=\d\s*")
_ELF_AARCH64 = 183
_MACHO_MAGIC, _MACHO_ARM64, _MACHO_EXECUTE = 0xFEEDFACF, 0x0100000C, 2


def check_switches(build_dir: Path, preset: RunnerPreset) -> None:
    """Fail unless XNNPACK is compiled with the SME kernels and the log level that the preset asks for."""
    commands = _commands(build_dir).values()
    wanted = "1" if preset.sme2 else "0"
    for name in ("XNN_ENABLE_ARM_SME", "XNN_ENABLE_ARM_SME2"):
        values = {value for command in commands for value in re.findall(rf"-D{name}=(\d)", command)}
        if values != {wanted}:
            seen = "/".join(sorted(values)) or "not set"
            raise SetupError(
                f"{preset.name}: {name} is {seen} in compile_commands.json, not {wanted}",
                "use a compiler with SME2 support (clang 18 or newer), and build again with --force",
            )
    # XNNPACK sets its own level first; the last one on the line counts.
    levels = {given[-1] for command in commands if (given := re.findall(r"-DXNN_LOG_LEVEL=(\d)", command))}
    level = preset.cache_variables.get("EXECUTORCH_XNNPACK_LOG_LEVEL", "0")
    if levels != {level}:
        seen = "/".join(sorted(levels)) or "unknown"
        raise SetupError(
            f"{preset.name}: XNNPACK is compiled with log level {seen}, not {level}",
            "use ExecuTorch 1.5 or newer, which has EXECUTORCH_XNNPACK_LOG_LEVEL",
        )


def check_pair(on: Path, off: Path) -> None:
    """Fail if two builds compile any file differently, apart from the SME switches."""
    left, right = _comparable(on), _comparable(off)
    different = sorted(name for name in left.keys() & right.keys() if left[name] != right[name])
    if different:
        raise SetupError(
            f"{on.name} and {off.name} compile {len(different)} files differently, first {different[0]}",
            "build both again with the same compiler and flags (--force)",
        )
    # With SME off its kernels are left out; all other files must be the same.
    extra = sorted(name for name in left.keys() ^ right.keys() if "sme" not in Path(name).name.lower())
    if extra:
        raise SetupError(
            f"only one of {on.name} and {off.name} compiles {extra[0]}", "build both again (--force)"
        )


def verify_binary(binary: Path, preset: RunnerPreset) -> str:
    """Run the runner's --help if it can run here, else check its header; return which was done."""
    if not binary.is_file():
        raise SetupError(f"the build left no {binary}", "look at its log")
    if not preset.runs_here:
        return _check_machine(binary)
    done = process.run([binary, "--help"], timeout=60)
    said = done.stdout + done.stderr
    # gflags answers --help with exit code 1.
    if done.timed_out or done.signal_name or not all(flag in said for flag in _EXPECTED_FLAGS):
        how = "timed out" if done.timed_out else done.signal_name or f"exit code {done.returncode}"
        raise RunError(
            f"{binary} --help is no executor_runner's ({how})", "build it again with --force", done.tail()
        )
    return "ran --help"


def _check_machine(binary: Path) -> str:
    """Refuse anything but an ELF or Mach-O program for 64-bit Arm."""
    with binary.open("rb") as stream:
        head = stream.read(64)
    if len(head) == 64:
        if head[:6] == b"\x7fELF\x02\x01" and struct.unpack_from("<H", head, 18)[0] == _ELF_AARCH64:
            return "ELF header says aarch64"
        magic, machine, _, kind = struct.unpack_from("<IIII", head)
        if (magic, machine, kind) == (_MACHO_MAGIC, _MACHO_ARM64, _MACHO_EXECUTE):
            return "Mach-O header says arm64"
    raise FormatError(f"{binary} is no ELF or Mach-O program for arm64", "build it again with --force")


def _commands(build_dir: Path) -> dict[str, str]:
    path = build_dir / "compile_commands.json"
    afresh = "configure afresh with --force"
    entries: Any = read_json(path, fix=afresh)
    try:
        return {f"{entry['file']} {entry.get('output', '')}": entry["command"] + "" for entry in entries}
    except (KeyError, TypeError, AttributeError) as problem:
        raise SetupError(f"cannot read {path}: {problem}", afresh) from problem


def _comparable(build_dir: Path) -> dict[str, str]:
    """Return a build's commands without its folder's name and the SME switches."""
    here = str(build_dir)
    return {
        name.replace(here, "BUILD"): _SWITCH.sub("", command).replace(here, "BUILD")
        for name, command in _commands(build_dir).items()
    }


_CONFIGURE_LIMIT = 1800.0
_BUILD_LIMIT = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Tools:
    """The same for every preset of a platform, so that on and off stay comparable."""

    cmake: toolchain.Cmake
    compiler: toolchain.Compiler | None
    ndk: toolchain.Ndk | None

    def compiler_for(self, preset: RunnerPreset) -> toolchain.Compiler:
        found = self.ndk.compiler if preset.is_android and self.ndk else self.compiler
        assert found is not None, f"no compiler was chosen for {preset.name}"
        return found


@dataclass(frozen=True, slots=True)
class BuildPlan:
    preset: RunnerPreset
    binary: Path
    finished: bool
    configure: tuple[str, ...]
    build: tuple[str, ...]
    compiler: toolchain.Compiler
    inputs: JsonObject
    """Everything that decides what the build makes, as in its record."""


@dataclass(frozen=True, slots=True)
class BuiltRunner:
    """A verified runner; `seconds` is 0 if it was already finished."""

    binary: Path
    verified: str
    seconds: float


def find_tools(presets: Sequence[RunnerPreset]) -> Tools:
    # First what cannot be fetched.
    ndk = toolchain.find_ndk() if any(preset.is_android for preset in presets) else None
    compiler = None if all(preset.is_android for preset in presets) else toolchain.get_compiler()
    tools = Tools(toolchain.get_cmake(), compiler, ndk)
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
    """Plan the build of `presets` in `checkout`; changes nothing."""
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
        compiler = tools.compiler_for(preset)
        inputs: JsonObject = {
            "preset": preset.name,
            "executorch": source,
            "cmake": tools.cmake.version,
            "compiler": {name: str(value) for name, value in asdict(compiler).items()},
            "ndk": tools.ndk.revision if preset.is_android and tools.ndk else None,
            "cache_variables": dict(preset.cache_variables),
            "defines": list(defines),
        }
        binary = checkout / "cmake-out" / preset.name / "executor_runner"
        record = _read_record(binary.parent)
        known = _inputs(record)
        # Only a commit without changes identifies the sources.
        is_commit = bool(source["commit"]) and not source["changed"]
        same = not force and is_commit and known == inputs and binary.is_file()
        # A build folder remembers its compiler; another compiler needs a fresh start.
        fresh = force or (bool(known) and known.get("compiler") != inputs["compiler"])
        configure = [cmake, "--preset", preset.name, f"-DPYTHON_EXECUTABLE={sys.executable}"]
        build = [cmake, "--build", "--preset", preset.name, "--parallel", str(jobs or _cores())]
        plans.append(
            BuildPlan(
                preset=preset,
                binary=binary,
                finished=same and record.get("binary") == _identity(binary),
                configure=(*configure, *(f"-D{define}" for define in defines), *["--fresh"] * fresh),
                build=(*build, *["--clean-first"] * force),
                compiler=compiler,
                inputs=inputs,
            )
        )
    return plans


def build_runners(
    checkout: Path, plans: Sequence[BuildPlan], tools: Tools, *, progress: Progress | None = None
) -> Iterator[BuiltRunner]:
    checkout = checkout.resolve()
    lock = files.make_folder(checkout / "cmake-out") / ".sme2prof.lock"
    with files.LockFile(lock, str(checkout), "wait for that build to end").held():
        merge_presets(checkout)
        for plan in plans:
            if plan.finished:
                yield BuiltRunner(plan.binary, verify_binary(plan.binary, plan.preset), 0.0)
            else:
                yield _build(checkout, plan, tools, progress or Silent())


def _build(checkout: Path, plan: BuildPlan, tools: Tools, say: Progress) -> BuiltRunner:
    name, build_dir = plan.preset.name, plan.binary.parent
    began = time.monotonic()
    environment = {"PATH": toolchain.search_path()}
    if plan.preset.is_android and tools.ndk:
        environment |= {"ANDROID_NDK": str(tools.ndk.root)}
    else:
        environment |= {"CC": str(plan.compiler.c), "CXX": str(plan.compiler.cxx)}
    # What is there is outdated or damaged, and Ninja would take a damaged file for a new one.
    log = files.make_folder(checkout / "cmake-out") / f"{name}.log"
    for stale in (build_dir / RECORD, plan.binary, log):
        stale.unlink(missing_ok=True)
    step = partial(_step, log=log, environment=environment, say=say)
    say.stage(f"{name}: configuring")
    step(f"configuring {name}", plan.configure, _CONFIGURE_LIMIT)
    check_switches(build_dir, plan.preset)
    _check_counterpart(plan)
    say.stage(f"{name}: building")
    step(f"building {name}", plan.build, _BUILD_LIMIT)
    built = BuiltRunner(plan.binary, verify_binary(plan.binary, plan.preset), time.monotonic() - began)
    record: JsonObject = {
        "schema_version": 1,
        "sme2": plan.preset.sme2,
        "xnnlog": plan.preset.xnnlog,
        "platform": plan.preset.platform,
        "inputs": plan.inputs,
        "binary": _identity(plan.binary),
        "verified": built.verified,
        "seconds": round(built.seconds, 1),
        "built_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    files.write_json(build_dir / RECORD, record)
    return built


def _check_counterpart(plan: BuildPlan) -> None:
    """Check that on and off differ in the SME switches only, as soon as both are configured. A counterpart
    from other sources or tools is outdated, not wrong: its own build will be checked."""
    here = plan.binary.parent
    other = here.with_name(plan.preset.counterpart)
    theirs, mine = _inputs(_read_record(other)), dict(plan.inputs)
    for own in ("preset", "cache_variables"):
        theirs.pop(own, None)
        mine.pop(own)
    if theirs == mine:
        check_pair(*((here, other) if plan.preset.sme2 else (other, here)))


def _step(
    title: str, argv: Sequence[str], limit: float, *, log: Path, environment: dict[str, str], say: Progress
) -> None:
    """Run a command with its output in `log`, and show its progress as it arrives: builds are long."""

    def hear(line: str) -> None:
        # Ninja counts its steps: `[12/345] Building ...`.
        if counted := re.match(r"\[(\d+)/(\d+)\]", line):
            say.advance(int(counted[1]), int(counted[2]))

    done = process.run(argv, timeout=limit, cwd=log.parents[1], env=environment, heard=hear)
    before = log.read_text(encoding="utf-8") if log.is_file() else ""
    files.write_text(log, f"{before}$ {shlex.join(argv)}\n{done.stdout}{done.stderr}")
    if done.timed_out:
        raise SetupError(f"{title} took longer than {limit:.0f} s", "run it again: it continues from there")
    if not done.ok:
        # CMake prints the place on one line and the error on the next.
        found = re.search(r"^.*\berror\b.*(?:(?<=:)\s{1,99}.*)?", f"{done.stdout}{done.stderr}", re.I | re.M)
        error = " ".join(found[0].split()) if found else f"exit code {done.returncode}"
        raise SetupError(f"{title} failed: {error}", f"see {log}")


def _read_record(build_dir: Path) -> JsonObject:
    try:
        return read_json_object(build_dir / RECORD, "build it again with --force")
    except ProfilingError:
        return {}


def _inputs(record: JsonObject) -> JsonObject:
    found = record.get("inputs")
    return dict(found) if isinstance(found, dict) else {}


def _identity(binary: Path) -> JsonObject:
    return {"name": binary.name, "sha256": files.sha256(binary)}


def _source(checkout: Path) -> JsonObject:
    """Return ExecuTorch's version and commit, whether tracked files were changed, and XNNPACK's commit."""
    version = checkout / "version.txt"
    xnnpack = checkout / "backends/xnnpack/third-party/XNNPACK"
    inside = (checkout / ".git").exists()
    return {
        "version": version.read_text(encoding="utf-8").strip() if version.is_file() else None,
        "commit": ask_git(checkout, "rev-parse", "HEAD") if inside else None,
        "changed": inside and bool(ask_git(checkout, "status", "--porcelain", "--untracked-files=no")),
        "xnnpack_commit": ask_git(xnnpack, "rev-parse", "HEAD") if inside else None,
    }


def _cores() -> int:
    """Return the usable cores, limited to one job per gigabyte of memory, which large files need."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(cores, memory // 2**30))
