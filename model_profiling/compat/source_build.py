"""Put the kit's runner where configs of the earlier kit expect ExecuTorch's executor_runner, or build that
from ExecuTorch's sources with the CMake at hand.

examples:
  bash model_profiling/scripts/build_runners.sh
  bash model_profiling/scripts/build_runners.sh --from-source executorch --presets timing
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from functools import partial
from importlib import metadata
from pathlib import Path

from model_profiling.compat import ArgumentParser
from model_profiling.config.reading import RECORD, build_record
from model_profiling.core import files
from model_profiling.core.errors import InputError, SetupError
from model_profiling.core.hints import install_extra
from model_profiling.core.process import run
from model_profiling.core.safe_read import read_json
from model_profiling.core.stdio import checked_output, current_progress
from model_profiling.doctor.checks import TOOLCHAIN, ndk_folder
from model_profiling.runner.__main__ import run_program, say, tell
from model_profiling.runner.features import is_arm

URL = "https://github.com/pytorch/executorch.git"
PLATFORMS = {"mac-arm64": "Darwin", "linux-arm64": "Linux", "android-arm64-v9a": ""}
PRESETS = tuple(
    platform + sme2 + log for platform in PLATFORMS for sme2 in ("", "-sme2-off") for log in ("", "-xnnlog")
)
"""Each differs from its neighbours in the SME switches or XNNPACK's log only."""
_ON = (
    "BUILD_EXECUTOR_RUNNER", "BUILD_EXTENSION_DATA_LOADER", "BUILD_EXTENSION_EVALUE_UTIL",
    "BUILD_EXTENSION_FLAT_TENSOR", "BUILD_EXTENSION_NAMED_DATA_MAP", "BUILD_EXTENSION_RUNNER_UTIL",
    "BUILD_EXTENSION_TENSOR", "BUILD_KERNELS_OPTIMIZED", "BUILD_KERNELS_QUANTIZED", "BUILD_DEVTOOLS",
    "ENABLE_EVENT_TRACER", "ENABLE_LOGGING", "BUILD_XNNPACK", "XNNPACK_ENABLE_KLEIDI",
    "XNNPACK_SHARED_WORKSPACE",
)  # fmt: skip
_ANDROID = {"ANDROID_ABI": "arm64-v8a", "ANDROID_PLATFORM": "android-28", "ANDROID_STL": "c++_static"}
_LIMIT_S = 4 * 3600.0
_KIT = Path(__file__).resolve().parents[2]
_STAND_IN = """\
#!/bin/sh
# {preset}: the kit's own runner, with the flags of ExecuTorch's executor_runner. Written by build_runners.sh.
PYTHONPATH={kit}${{PYTHONPATH:+:$PYTHONPATH}} exec {python} -m model_profiling.compat.stand_in {preset} "$@"
"""
_WRITTEN = """\
Nothing was built: each is a small program over the kit's own runner, which switches SME2 at run time. A
config that names one of them uses the kit's runner. To build ExecuTorch's own: --from-source DIR."""
_NOT_NEEDED = """\
Profiling does not need these runners: the kit's own (runner_path "builtin") compiles in seconds and switches
SME2 at run time. Each takes 11 to 16 minutes to build on 2 cores; a build that is stopped continues later."""


@checked_output
def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    work = partial(_build if options.from_source else _write_stand_ins, options)
    return run_program(work, "stopped; run the same command again to continue")


def _write_stand_ins(options: argparse.Namespace) -> int:
    """For all machines: a config may have been written for another than this one."""
    for preset in choose_presets(options.presets or ["all"], every=True):
        program = options.executorch / "cmake-out" / preset / "executor_runner"
        if program.exists() and build_record(program).get("runner") != "builtin":
            continue  # built from source
        if not options.dry_run:
            words = {"kit": shlex.quote(str(_KIT)), "python": shlex.quote(sys.executable), "preset": preset}
            files.write_text(program, _STAND_IN.format(**words))
            program.chmod(0o755)
            _record(program, preset, runner="builtin")
        tell(f"{program}: the kit's runner")
    say(_WRITTEN)
    if not is_arm(platform.machine()):
        say(f"This machine ({platform.machine()}) is not Arm: they are emulated, and no time is measured.")
    return 0


def _record(program: Path, preset: str, **facts: object) -> None:
    traced = preset.endswith("-xnnlog")
    files.write_json(
        program.with_name(RECORD), {"schema_version": 1, "preset": preset, "xnnlog": traced, **facts}
    )


def _build(options: argparse.Namespace) -> int:
    checkout = (options.executorch if options.from_source is True else options.from_source).resolve()
    presets = choose_presets(options.presets or ["timing"])
    if missing := [name for name in ("cmake", "ninja") if shutil.which(name, path=_path()) is None]:
        raise SetupError(f"{missing[0]} is not installed", install_extra("source-build"))
    if checkout.name != "executorch":
        raise InputError(
            f"the checkout's folder is called {checkout.name}", "call it executorch, as its build requires"
        )
    if not (checkout / "CMakeLists.txt").is_file():
        fix = f"git clone --branch v{metadata.version('executorch')} --recurse-submodules {URL} {checkout}"
        raise InputError(f"there is no source of ExecuTorch in {checkout}", fix)
    say(_NOT_NEEDED)
    for preset in presets:
        configure, build = commands(checkout, preset, options.define)
        if options.dry_run:
            tell(f"{shlex.join(configure)}\n{shlex.join(build)}")
        else:
            runner = build_runner(checkout, preset, configure, build)
            tell(f"{runner}: built")
    return 0


def choose_presets(wanted: Sequence[str], *, every: bool = False) -> list[str]:
    """Return the presets by name, or by group (`timing`, `xnnlog`, `all`): those that can be built here, or
    `every` one. Android's belong to a group if ANDROID_NDK names an NDK."""
    system = platform.system() if is_arm(platform.machine()) else None
    ndk = ndk_folder()
    usual = [name for name in PRESETS if every or _system(name) == system or (ndk and not _system(name))]
    groups = {
        "timing": [name for name in usual if not name.endswith("-xnnlog")],
        "xnnlog": [name for name in usual if name.endswith("-xnnlog")],
        "all": usual,
    }
    words = [name for word in wanted for name in word.split(",") if name]
    names = list(dict.fromkeys(name for word in words for name in groups.get(word, [word])))
    for name in names:
        if name not in PRESETS:
            raise InputError(f"there is no preset {name}", f"choose from {', '.join([*PRESETS, *groups])}")
        if name not in usual:
            needs = "a machine of that kind" if _system(name) else "an Android NDK (set ANDROID_NDK)"
            raise InputError(f"{name} cannot be built on this machine", f"use {needs}")
    if not names:
        raise InputError("no preset can be built on this machine", 'use runner_path "builtin", or an NDK')
    return names


def _system(preset: str) -> str:
    """Return the system that a preset is built on; empty for Android's, which is cross-compiled."""
    return PLATFORMS[preset.removesuffix("-xnnlog").removesuffix("-sme2-off")]


def _path() -> str:
    """Return PATH with this Python's own folder first, where pip puts cmake and ninja."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def cache_variables(preset: str) -> dict[str, str]:
    switch = "OFF" if "-sme2-off" in preset else "ON"
    variables = {
        "CMAKE_BUILD_TYPE": "Release",
        "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
        "BUILD_TESTING": "OFF",
        **{f"EXECUTORCH_{name}": "ON" for name in _ON},
        "EXECUTORCH_LOG_LEVEL": "Info",
        "XNNPACK_ENABLE_ARM_SME": switch,
        "XNNPACK_ENABLE_ARM_SME2": switch,
        "PYTHON_EXECUTABLE": sys.executable,
    }
    if preset.endswith("-xnnlog"):
        variables["EXECUTORCH_XNNPACK_LOG_LEVEL"] = "5"
    if _system(preset) == "Darwin":
        variables["CMAKE_OSX_ARCHITECTURES"] = "arm64"
    elif not _system(preset):
        toolchain = Path(ndk_folder() or "", TOOLCHAIN).expanduser()
        if not toolchain.is_file():
            raise SetupError(
                f"there is no {toolchain}", "set ANDROID_NDK to the folder of an NDK r27 or newer"
            )
        variables |= {"CMAKE_TOOLCHAIN_FILE": str(toolchain), **_ANDROID}
    return variables


def commands(checkout: Path, preset: str, defines: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Return the commands that configure and build a preset."""
    folder = str(checkout / "cmake-out" / preset)
    given = [*(f"{name}={value}" for name, value in cache_variables(preset).items()), *defines]
    configure = ["cmake", "-S", str(checkout), "-B", folder, "-G", "Ninja", *(f"-D{word}" for word in given)]
    build = ["cmake", "--build", folder, "--target", "executor_runner", "--parallel"]
    return configure, [*build, str(os.cpu_count() or 1)]


def build_runner(checkout: Path, preset: str, configure: Sequence[str], build: Sequence[str]) -> Path:
    """Configure, build and check one runner; what an earlier, stopped build has made is used."""
    out = files.make_folder(checkout / "cmake-out")
    log, program = out / f"{preset}.log", out / preset / "executor_runner"
    with files.LockFile(out / ".sme2prof.lock", str(checkout), "wait for that build to end").held():
        program.with_name(RECORD).unlink(missing_ok=True)
        _step(f"configuring {preset}", configure, log)
        check_switches(program.parent, preset)
        _step(f"building {preset}", build, log)
        _record(program, preset, sme2="-sme2-off" not in preset)
    return program


def _step(title: str, command: Sequence[str], log: Path) -> None:
    """Run a command with its output in `log`; Ninja counts its steps: `[12/345] Building ...`."""
    progress = current_progress()
    progress.stage(title)

    def hear(line: str) -> None:
        if counted := re.match(r"\[(\d+)/(\d+)\]", line):
            progress.advance(int(counted[1]), int(counted[2]))

    done = run(command, timeout=_LIMIT_S, env={"PATH": _path()}, heard=hear)
    output = f"{done.stdout}{done.stderr}"
    files.write_text(log, f"$ {shlex.join(command)}\n{output}")
    if not done.ok:
        # CMake prints the place on one line and the error on the next.
        complaint = re.search(r"^.*\berror\b.*(?:(?<=:)\s{1,99}.*)?", output, re.I | re.M)
        reason = " ".join(complaint[0].split()) if complaint else f"exit code {done.returncode}"
        raise SetupError(f"{title} failed: {reason}", f"see {log}")


def check_switches(folder: Path, preset: str) -> None:
    """Fail unless XNNPACK is compiled as the preset says: under an old compiler it silently drops SME."""
    again = f"rm -r {folder}, and use a compiler with SME2 (clang 18, GCC 14 or newer; CC and CXX choose it)"
    text = json.dumps(read_json(folder / "compile_commands.json", fix=again))
    sme2 = "0" if "-sme2-off" in preset else "1"
    for name, wanted in (("XNN_ENABLE_ARM_SME", sme2), ("XNN_ENABLE_ARM_SME2", sme2)):
        values = set(re.findall(rf"-D{name}=(\d)", text))
        if values != {wanted}:
            actual = "/".join(sorted(values)) or "not set"
            raise SetupError(f"{preset}: {name} is {actual} in compile_commands.json, not {wanted}", again)


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="build_runners.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = "where the small programs are put"
    parser.add_argument("--executorch", type=Path, default=Path("executorch"), help=what)
    what = "build from this checkout (default: executorch)"
    parser.add_argument("--from-source", type=Path, nargs="?", const=True, metavar="DIR", help=what)
    what = "preset names, or timing, xnnlog or all: those that this machine can build (default: timing)"
    parser.add_argument("--presets", nargs="+", metavar="PRESET", help=f"{what}: {', '.join(PRESETS)}")
    more = "one more CMake variable, for every preset"
    parser.add_argument("--define", action="append", default=[], metavar="NAME=VALUE", help=more)
    parser.add_argument("--dry-run", action="store_true", help="only show what would be done")
    return parser


if __name__ == "__main__":
    sys.exit(main())
