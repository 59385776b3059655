"""The runner's build: once per content, safe when raced, and clear when there is no compiler."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.runner import build
from model_profiling.runner.compilers import find_compiler
from model_profiling.runner.features import AARCH64_LINUX
from model_profiling.targets.emulated import EmulatedTarget

SOURCES = Path(build.__file__).parent
STRICT = ("-Wall", "-Wextra", "-Werror")
# Another C library, as the runner's sources see it on a machine that has glibc only.
NOT_GLIBC = """\
#include <atomic>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <string>
#include <vector>
#undef __GLIBC__
"""
ASKS_FOR_COUNTS = """\
#include <cstdio>
#include "kernel_counts.h"
int main() {
  std::puts(sme2prof::KernelCounts(nullptr).unavailable().c_str());
}
"""
_BUILD = """\
from model_profiling.runner.build import build_runner
b = build_runner()
print(b.path, b.cached, sep="\\n")
"""


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SME2PROF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_two_processes_racing_to_build_get_one_runner_that_works(own_cache, lend_objects) -> None:
    lend_objects(own_cache, build.installed_sdk(), build.find_compiler())
    home = build.built_runner(build.installed_sdk(), build.find_compiler()).parent
    with ThreadPoolExecutor(2) as pool:
        racers = [pool.submit(process.run, [sys.executable, "-c", _BUILD], timeout=300) for _ in range(2)]
    ends = [racer.result() for racer in racers]
    assert all(end.ok for end in ends), [end.tail() for end in ends]
    paths = {end.stdout.split()[0] for end in ends}
    assert len(paths) == 1
    (path,) = paths
    assert Path(path).parent == home
    told = process.run([path, "--features-only"], timeout=60)
    assert json.loads(told.stdout)["build_id"] == Path(path).parent.name
    # Nothing is left of the one that lost, nor of either's objects.
    assert [entry.name for entry in (own_cache / "runners").iterdir()] == [Path(path).parent.name]
    kept = ["build.json", "sme2prof-runner"]
    assert sorted(entry.name for entry in Path(path).parent.iterdir()) == kept

    made = Path(path).stat()
    again = build.build_runner()
    assert again.cached and again.path == Path(path)
    assert (again.path.stat().st_ino, again.path.stat().st_mtime_ns) == (made.st_ino, made.st_mtime_ns)


def test_a_wheel_in_another_place_is_only_linked_until_a_header_changes(
    own_cache: Path, lend_objects: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, root = build.installed_sdk(), tmp_path / "elsewhere"
    lend_objects(own_cache, here, build.find_compiler())
    shutil.copytree(here.include, root / "include")
    shutil.copy(here.root / "version.py", root)
    (root / "lib").symlink_to(here.libraries)
    there = build.sdk_at(root, here.machine)

    def refuse(*_: object) -> None:
        raise SetupError("it is compiled", "it need not be")

    monkeypatch.setattr(build, "_compile", refuse)
    made = build.build_runner(there)
    told = process.run([made.path, "--features-only"], timeout=60)
    assert json.loads(told.stdout)["build_id"] == made.build_id == made.path.parent.name
    assert made.path != build.built_runner(here, build.find_compiler())
    assert str(root).encode() in made.path.read_bytes(), "its libraries are those of that place"
    shutil.rmtree(made.path.parent)
    header = next(path for path in (root / "include").rglob("*.h"))
    header.write_bytes(header.read_bytes() + b"\n")
    with pytest.raises(SetupError, match="it is compiled"):
        build.build_runner(there)


def test_where_a_runner_is_kept_changes_with_what_goes_in(tmp_path, monkeypatch) -> None:
    wheel, compiler = build.installed_sdk(), build.find_compiler()

    def kept(wheel: build.Sdk = wheel, compiler: build.Compiler = compiler) -> Path:
        return build.built_runner(wheel, compiler)

    same = kept()
    assert kept() == same
    changed = {
        kept(replace(wheel, version="9.9.9")),
        kept(compiler=build.Compiler(compiler.command, "another compiler 1.0")),
    }
    for suffix in ("cpp", "h"):
        copy = tmp_path / suffix
        shutil.copytree(SOURCES, copy, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        source = next(copy.glob(f"*.{suffix}"))
        source.write_bytes(source.read_bytes() + b"\n")
        monkeypatch.setattr(build, "SOURCES", copy)
        changed.add(kept())
    assert len(changed) == 4 and same not in changed


def test_the_sources_compile_without_a_warning_also_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    assert build.build_runner(extra_flags=STRICT).path.is_file()


@pytest.mark.skipif(sys.platform != "linux", reason="kernels are counted on Linux")
def test_without_glibc_the_runner_compiles_and_says_that_kernels_are_not_counted(arm, tmp_path) -> None:
    header, source, binary = tmp_path / "not_glibc.h", tmp_path / "asks.cpp", tmp_path / "asks"
    header.write_text(NOT_GLIBC)
    source.write_text(ASKS_FOR_COUNTS)
    words = [*find_compiler(AARCH64_LINUX).command, "-std=c++17", *STRICT, "-include", header, "-I", SOURCES]
    prefix = arm.qemu.prefix if isinstance(arm, EmulatedTarget) and arm.qemu else ()
    features = process.run([*words, "-fsyntax-only", SOURCES / "cpu_features.cpp"], timeout=60)
    assert features.ok, features.tail()
    asked = [source, SOURCES / "kernel_counts.cpp", SOURCES / "plt_slots.cpp"]
    asking = process.run([*words, *asked, "-o", binary], timeout=60)
    assert asking.ok, asking.tail()
    told = process.run([*prefix, binary], timeout=60)
    assert told.ok and "glibc" in told.stdout


def test_compiler_that_cannot_compile(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", f"{build.find_compiler().command[0]} -include no_such_header.h")
    with pytest.raises(SetupError, match=r"no_such_header\.h.*; .*C\+\+17 .*CXX"):
        build.build_runner()
    assert not list((own_cache / "runners").iterdir()), "nothing is kept"


def test_wheel_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"has no version\.py"):
        build.sdk_at(tmp_path, "aarch64")
