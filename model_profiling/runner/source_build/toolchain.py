"""Checks what a source build needs before it starts: CMake, Ninja, a compiler that knows SME2, the NDK.

The compiler must compile SME2 code. Under an old Clang XNNPACK silently drops its SME kernels, and an old GCC
fails half an hour into the build: both are refused here instead.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.core.errors import InputError, SetupError
from model_profiling.core.hints import install_extra
from model_profiling.core.process import run
from model_profiling.runner import apt, fetching
from model_profiling.runner.cache import cache_root, cached
from model_profiling.runner.compilers import GCC_SCRIPT

CMAKE_MINIMUM = (3, 29)
# XNNPACK leaves SME out under Clang before 18; GCC knows SME2's intrinsics from 14 on (12 crashes on
# KleidiAI's files). Apple numbers its Clang differently, so there only the trial compilation decides.
COMPILER_MINIMUM = {"Clang": 18, "GNU": 14}
NDK_MINIMUM = 27
_CLANGS = range(30, COMPILER_MINIMUM["Clang"] - 1, -1)
ANDROID_TARGET = "aarch64-linux-android28"

_PROBE = """\
#include <arm_sme.h>
__arm_new("za") void probe(float *out) __arm_streaming {
  svbool_t all = svptrue_b32();
  svfloat32_t one = svdup_f32(1.0f);
  svzero_za();
  svmopa_za32_f32_m(0, all, all, one, one);
  svfloat32x4_t rows = svread_hor_za32_f32_vg4(0, 0);
  svst1(all, out, svget4(rows, 0));
}
"""


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C and C++ compiler that has compiled SME2 code."""

    c: Path
    cxx: Path
    family: str
    version: str


@dataclass(frozen=True, slots=True)
class Ndk:
    root: Path
    revision: str
    compiler: Compiler


@dataclass(frozen=True, slots=True)
class Cmake:
    path: Path
    version: str


def named_ndk() -> str | None:
    names = ("ANDROID_NDK", "ANDROID_NDK_HOME", "ANDROID_NDK_ROOT")
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def search_path() -> str:
    """Return PATH with this Python's own folder first, where pip puts cmake and ninja."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def find_cmake() -> Cmake:
    """Return the first CMake that is new enough, from this Python's environment or from PATH."""
    fix = install_extra("source-build")
    seen: dict[Path, str] = {}
    for folder in search_path().split(os.pathsep):
        found = shutil.which("cmake", path=folder) if folder else None
        if found is None or (real := Path(found).resolve()) in seen:
            continue
        version = re.search(r"\d+(\.\d{1,9})+", run([found, "--version"], timeout=60).stdout)
        if version and _parts(version[0]) >= CMAKE_MINIMUM:
            if shutil.which("ninja", path=search_path()) is None:
                raise SetupError("Ninja is not installed", fix)
            return Cmake(Path(found), version[0])
        seen[real] = f"{found} is {version[0] if version else 'broken'}"
    needed = ".".join(map(str, CMAKE_MINIMUM))
    raise SetupError(f"CMake {needed} or newer is needed; {', '.join(seen.values()) or 'none found'}", fix)


def get_cmake() -> Cmake:
    """Return a CMake that is new enough; where this Python has an environment of its own, pip puts CMake and
    Ninja into it if they are missing."""
    try:
        return find_cmake()
    except SetupError as lacking:
        if sys.prefix == sys.base_prefix:
            raise
        newer = f"cmake>={'.'.join(map(str, CMAKE_MINIMUM))}"
        done = fetching.pip("install", newer, "ninja", timeout=900)
        if not done.ok:
            raise SetupError(
                f"{lacking.problem}; pip cannot get it: {done.tail(1)}", lacking.fix
            ) from lacking
    return find_cmake()


def get_compiler() -> Compiler:
    """Return the compiler of the environment or of PATH, else a clang from this distribution's packages, in
    the cache."""
    try:
        return find_compiler()
    except SetupError as lacking:
        if os.environ.get("CC") or sys.platform != "linux":
            raise
        try:
            return fetch_clang()
        except SetupError as problem:
            raise SetupError(f"{lacking.problem}; {problem.problem}", lacking.fix) from problem


def fetch_clang() -> Compiler:
    """Return the newest clang of this distribution's packages, unpacked into the cache."""
    cure = "install clang 18 or newer"
    archive = apt.own_archive(cure)

    def make(into: Path) -> None:
        with apt.packages_of(archive, cure) as packages:
            known = (f"clang-{number}" for number in _CLANGS)
            package = next((name for name in known if packages.version(name)), None)
            if package is None:
                raise SetupError(
                    f"{archive.origin}'s {archive.suite} has no clang {_CLANGS[-1]} or newer", cure
                )
            apt.unpack_closure(packages, [package], into / "sysroot", into / "lib")
        for script, program in (("clang", package), ("clang++", package.replace("clang", "clang++"))):
            (into / script).write_text(GCC_SCRIPT.format(program=program), encoding="utf-8")
            (into / script).chmod(0o755)

    name = f"{archive.origin.lower()}-{archive.suite}-{apt.native_architecture()}-clang"
    what = f"clang from {archive.origin}'s packages"
    return _checked(cached(cache_root() / "compilers" / name, make, what, fetch=True) / "clang", None)


def find_compiler() -> Compiler:
    """Return the compiler of the environment (CC, CXX), else the first one on PATH that can build SME2."""
    if os.environ.get("CC"):
        return _checked(_program(os.environ["CC"]), os.environ.get("CXX"))
    refusals = []
    numbered = [f"clang-{n}" for n in _CLANGS] + [f"gcc-{n}" for n in range(20, 13, -1)]
    for path in filter(None, map(shutil.which, ["cc", "clang", *numbered])):
        try:
            return _checked(Path(path), None)
        except SetupError as refused:
            refusals.append(refused.problem)
    raise SetupError(
        "; ".join(refusals) or "no C compiler found", "install clang 18 or newer, or set CC and CXX"
    )


def find_ndk() -> Ndk:
    named = named_ndk()
    fix = f"unpack an Android NDK, r{NDK_MINIMUM} or newer, and set ANDROID_NDK to its folder"
    if not named:
        raise SetupError("ANDROID_NDK is not set", fix)
    root = Path(named).expanduser()
    properties, toolchain = root / "source.properties", root / "build" / "cmake" / "android.toolchain.cmake"
    for part in (properties, toolchain):
        if not part.is_file():
            raise SetupError(f"{root} is not an Android NDK: it has no {part.relative_to(root)}", fix)
    revision = re.search(r"Pkg\.Revision[ \t]*=[ \t]*([\d.]+)", properties.read_text(encoding="utf-8"))
    if revision is None:
        raise SetupError(f"{properties} has no revision", fix)
    if _parts(revision[1])[0] < NDK_MINIMUM:
        raise SetupError(f"the NDK in {root} is r{revision[1]}, and its compiler does not support SME2", fix)
    clangs = sorted(root.glob("toolchains/llvm/prebuilt/*/bin/clang"))
    if not clangs:
        raise SetupError(f"{root} has no toolchains/llvm/prebuilt/*/bin/clang", fix)
    return Ndk(root, revision[1], _checked(clangs[0], None, [f"--target={ANDROID_TARGET}"]))


def check_torchgen() -> None:
    """Check for torchgen: ExecuTorch's build generates operator tables with it, using the kit's Python."""
    done = run([sys.executable, "-c", "import torchgen.model, yaml"], timeout=120)
    if not done.ok:
        raise SetupError(f"{sys.executable} cannot import torchgen", install_extra("executorch"))


def check_checkout(checkout: Path) -> None:
    """Check that this is ExecuTorch, in a folder of that name, with its submodules."""
    if not (checkout / "CMakeLists.txt").is_file():
        raise InputError(
            f"{checkout} is not an ExecuTorch checkout",
            ("give a checkout with --executorch, or leave it out to download one"),
        )
    if checkout.name != "executorch":
        raise InputError(
            f"the checkout's folder is called {checkout.name}",
            ("rename it to executorch, as its build requires"),
        )
    for part in ("backends/xnnpack/third-party/XNNPACK", "third-party/gflags", "third-party/flatcc"):
        if not (checkout / part / "CMakeLists.txt").is_file():
            raise InputError(
                f"{checkout} does not have its submodule {part}",
                f"git -C {checkout} submodule update --init --recursive --depth 1",
            )


def _checked(c: Path, cxx: str | None, flags: Sequence[str] = ()) -> Compiler:
    family, version = _identify(c, flags)
    minimum = COMPILER_MINIMUM.get(family)
    if minimum is not None and _parts(version)[0] < minimum:
        raise SetupError(
            f"{c} is {family} {version}, too old for SME2", f"use {family} {minimum} or newer (CC, CXX)"
        )
    _compile_probe(c, f"{family} {version}", flags)
    return Compiler(c, _program(cxx) if cxx else _sibling(c), family, version)


def _identify(c: Path, flags: Sequence[str]) -> tuple[str, str]:
    """Return family and version from predefined macros; what a compiler prints for people varies."""
    done = run([c, *flags, "-dM", "-E", "-x", "c", os.devnull], timeout=60)
    macros = dict(re.findall(r"^#define (\w+) (.*)$", done.stdout, re.MULTILINE))
    if "__clang__" in macros:
        family = "AppleClang" if "__apple_build_version__" in macros else "Clang"
        words = ("__clang_major__", "__clang_minor__", "__clang_patchlevel__")
    elif "__GNUC__" in macros:
        family, words = "GNU", ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__")
    else:
        raise SetupError(f"{c} is neither GCC nor Clang", "use clang 18 or newer (CC, CXX)")
    return family, ".".join(macros.get(word, "0") for word in words)


def _compile_probe(c: Path, title: str, flags: Sequence[str]) -> None:
    target = ["-arch", "arm64"] if platform.system() == "Darwin" and not flags else list(flags)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text(_PROBE, encoding="utf-8")
        done = run(
            [c, *target, "-march=armv9-a+sme2", "-c", source, "-o", source.with_suffix(".o")], timeout=120
        )
    if not done.ok:
        reason = next((line for line in done.stderr.splitlines() if "error:" in line), done.tail(1))
        raise SetupError(
            f"{c} ({title}) cannot compile SME2 code: {reason.split('error:')[-1].strip()}",
            "use clang 18 or newer, or GCC 14 or newer, for Arm (CC, CXX)",
        )


def _sibling(c: Path) -> Path:
    """Return the C++ compiler that belongs to a C compiler: clang-19 and clang++-19, cc and c++."""
    plus = {"clang": "clang++", "gcc": "g++", "cc": "c++"}
    name = re.sub(r"(clang|gcc|cc)(-[\d.]+)?$", lambda end: plus[end[1]] + (end[2] or ""), c.name)
    path = c.with_name(name)
    if not path.exists():
        raise SetupError(f"{c} has no {name} beside it", "install it, or set CXX to the C++ compiler")
    return path


def _program(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        raise SetupError(f"there is no compiler {name}", "correct CC and CXX")
    return Path(found)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdecimal())
