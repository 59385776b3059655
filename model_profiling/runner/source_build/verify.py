"""Is the build what its preset says? The switches CMake really applied, and the binary that came out."""

from __future__ import annotations

import json
import re
import struct
from pathlib import Path

from model_profiling.errors import FormatError, RunError, SetupError
from model_profiling.process import run
from model_profiling.runner.source_build.presets import RunnerPreset

# Flags the kit drives an executor_runner by; a runner that does not know them is not one.
_EXPECTED_FLAGS = ("model_path", "num_executions", "etdump_path")
_SWITCH = re.compile(r"-DXNN_ENABLE_ARM_SME2?=\d\s*")
_ELF_AARCH64 = 183
_MACHO_MAGIC, _MACHO_ARM64, _MACHO_EXECUTE = 0xFEEDFACF, 0x0100000C, 2


def check_switches(build_dir: Path, preset: RunnerPreset) -> None:
    """Fail unless XNNPACK is compiled with the SME kernels and the log level the preset asks for."""
    commands = _commands(build_dir).values()
    wanted = "1" if preset.sme2 else "0"
    for name in ("XNN_ENABLE_ARM_SME", "XNN_ENABLE_ARM_SME2"):
        values = {value for command in commands for value in re.findall(rf"-D{name}=(\d)", command)}
        if values != {wanted}:
            seen = "/".join(sorted(values)) or "not set"
            raise SetupError(
                f"{preset.name}: {name} is {seen} in compile_commands.json, not {wanted}",
                "use a compiler that knows SME2 (clang 18 or newer) and a fresh build (--force)",
            )
    # XNNPACK sets a level of its own first; the last one on the line holds.
    levels = {given[-1] for command in commands if (given := re.findall(r"-DXNN_LOG_LEVEL=(\d)", command))}
    level = preset.cache_variables.get("EXECUTORCH_XNNPACK_LOG_LEVEL", "0")
    if levels != {level}:
        seen = "/".join(sorted(levels)) or "unknown"
        raise SetupError(
            f"{preset.name}: XNNPACK is compiled with log level {seen}, not {level}",
            "use ExecuTorch 1.5 or newer, whose build knows EXECUTORCH_XNNPACK_LOG_LEVEL",
        )


def check_pair(on: Path, off: Path) -> None:
    """Fail if two builds differ in how they compile any file, beyond the SME switches themselves."""
    left, right = _comparable(on), _comparable(off)
    different = sorted(name for name in left.keys() & right.keys() if left[name] != right[name])
    if different:
        raise SetupError(
            f"{on.name} and {off.name} compile {len(different)} files differently, first {different[0]}",
            "build both afresh with the same compiler and flags (--force)",
        )
    # With SME off its kernels are left out; nothing else may come or go.
    extra = sorted(name for name in left.keys() ^ right.keys() if "sme" not in Path(name).name.lower())
    if extra:
        raise SetupError(
            f"only one of {on.name} and {off.name} compiles {extra[0]}", "build both afresh (--force)"
        )


def verify_binary(binary: Path, preset: RunnerPreset) -> str:
    """Run the runner's --help where it can run, else read what machine it is for; says which was done."""
    if not binary.is_file():
        raise SetupError(f"the build left no {binary}", "look at its log")
    if not preset.runs_here:
        return _check_machine(binary)
    done = run([binary, "--help"], timeout=60)
    said = done.stdout + done.stderr
    # gflags answers --help with exit code 1.
    if done.timed_out or done.signal_name or not all(flag in said for flag in _EXPECTED_FLAGS):
        how = "timed out" if done.timed_out else done.signal_name or f"exit code {done.returncode}"
        raise RunError(
            f"{binary} --help is no executor_runner's ({how})", "build it again with --force", done.tail()
        )
    return "ran --help"


def _check_machine(binary: Path) -> str:
    """Read the header of an ELF or Mach-O file; anything but a 64-bit Arm program is refused."""
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
    """How each file of a configured build is compiled, by file and output."""
    path = build_dir / "compile_commands.json"
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {f"{entry['file']} {entry.get('output', '')}": entry["command"] for entry in entries}
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise SetupError(f"cannot read {path}: {problem}", "configure afresh with --force") from problem


def _comparable(build_dir: Path) -> dict[str, str]:
    """The commands of a build with its own folder's name and the SME switches taken out."""
    here = str(build_dir)
    return {
        name.replace(here, "BUILD"): _SWITCH.sub("", command).replace(here, "BUILD")
        for name, command in _commands(build_dir).items()
    }
