"""The compiler in the ziglang wheel builds a real runner, which must answer as the usual one does; one is for
macOS, where nothing here can run it."""

from __future__ import annotations

import json
import re
import struct
import sys
from pathlib import Path

import pytest
from conftest import missing
from stand_ins import Routed

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.etdump import read_etdump
from model_profiling.runner import build as runner_build
from model_profiling.runner import compilers
from model_profiling.runner.build import RunnerBuild, Sdk, _flags, build_runner, installed_sdk, places
from model_profiling.runner.features import AARCH64_MACOS, Platform
from model_profiling.runner.fetching import fix_for
from model_profiling.targets import Job
from model_profiling.targets.emulated import EmulatedTarget, aarch64_sdk
from model_profiling.targets.execution import Route, Transport

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="what Linux falls back to"),
    # The first time on a machine, a compiler compiles its own libraries: four minutes of CPU time.
    pytest.mark.timeout(1800),
]
RUNNER = Path(runner_build.__file__).with_name("loaded_method.cpp")
COMPILERS = re.compile(r".*(?:g\+\+|c\+\+|gcc|cpp|clang|cc)(?:-\d+)?|(?:.*-)?(?:as|ld)(?:\.\w+)?")


@pytest.fixture
def no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine's own programs but for those that compile, assemble or link."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for folder in ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"):
        for program in Path(folder).glob("*"):
            link = programs / program.name
            if not COMPILERS.fullmatch(program.name) and not link.is_symlink():
                link.symlink_to(program)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.delenv("CXX", raising=False)


def from_zig(wanted: Platform) -> compilers.Compiler:
    """The wheel's compiler, kept in the kit's cache from one run of the tests to the next."""
    try:
        return compilers._checked(compilers.zig_command(wanted), compilers.ZIG)
    except SetupError as problem:
        missing(str(problem))
        raise


def checksums(build: RunnerBuild, pte: Path) -> list[str]:
    ran = process.run([build.path, "--model", pte], timeout=120)
    assert ran.ok, ran.tail()
    return [output["checksum"] for output in json.loads(ran.stdout)["outputs"]]


@pytest.mark.usefixtures("no_compiler")
def test_the_wheels_compiler_is_taken_where_none_is_installed(exported) -> None:
    try:
        build = build_runner()
    except SetupError as problem:
        missing(str(problem))
    assert build.compiler.endswith(f", from {compilers.ZIG}")
    assert checksums(build, exported("toy_cnn", "fp32").pte)


@pytest.mark.usefixtures("no_compiler")
def test_when_nothing_can_be_had_every_way_that_was_tried_is_named(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("SME2PROF_CACHE", str(tmp_path / "cache"))
    with pytest.raises(SetupError) as caught:
        build_runner()
    said = str(caught.value)
    assert re.search(r"none is installed; the ziglang wheel: pip cannot download", said)
    assert said.endswith(f"; {fix_for('C++ compiler')}") and "\n" not in said
    assert not any((tmp_path / "cache").rglob("*.so*"))


def test_a_runner_built_by_the_wheels_compiler_answers_like_any_other(
    arm, emulated: EmulatedTarget, exported, tmp_path: Path
) -> None:
    """Another C++ library inside the runner than in ExecuTorch's: programs of every kind, damaged ones,
    kernel counts and traces must come out the same. A layout that differs shows itself as
    std::bad_variant_access in some programs and not in others, so there are several."""
    assert emulated.build is not None and emulated.qemu is not None
    sdk: Sdk = installed_sdk() if arm is not emulated else aarch64_sdk(installed_sdk())
    build = build_runner(sdk, from_zig(sdk.platform))
    prefix = () if arm is not emulated else emulated.qemu.prefix
    programs = [exported("toy_cnn", dtype).pte for dtype in ("fp32", "fp16", "int8")]
    programs.append(exported("toy_cnn", "fp32", "portable").pte)
    for pte in programs:
        theirs, ours = (
            process.run([*prefix, runner.path, "--model", pte], timeout=300)
            for runner in (emulated.build, build)
        )
        assert ours.ok, ours.tail()
        told = [json.loads(run.stdout)["outputs"] for run in (theirs, ours)]
        assert told[0] == told[1]
    for size in (100, 5000, programs[0].stat().st_size - 1000):
        damaged = tmp_path / f"damaged_{size}.pte"
        damaged.write_bytes(programs[0].read_bytes()[:size])
        theirs, ours = (
            process.run([*prefix, runner.path, "--model", damaged], timeout=100)
            for runner in (emulated.build, build)
        )
        assert ours.returncode == theirs.returncode and ours.signal_name == theirs.signal_name, ours.tail()

    job = Job(programs[2], warmup=0, kernels=True, etdump=True)
    on = emulated.execute(job, tmp_path, "usual")
    transport = Transport(emulated.qemu.prefix)
    other = Routed(Route((str(build.path),), transport)).execute(job, tmp_path, "zig")
    assert on.result.kernels and dict(other.result.kernels) == dict(on.result.kernels)
    assert other.result.features_present == on.result.features_present and other.result.features_verified
    assert on.etdump is not None and other.etdump is not None
    names = [list(read_etdump(dump).to_pandas()["name"]) for dump in (on.etdump, other.etdump)]
    assert names[0] == names[1]


def test_a_cpp_library_with_another_variant_is_refused(tmp_path: Path) -> None:
    """The guard in the sources: the same compiler without the setting that makes the layouts agree."""
    sdk = installed_sdk()
    try:
        wide = compilers.zig_command(sdk.platform)[:-1]
    except SetupError as problem:
        missing(str(problem))
    compiling, _ = _flags(sdk)
    words = [*compiling, *places(sdk), "-c", RUNNER, "-o", tmp_path / "runner.o"]
    refused = process.run([*wide, *words], timeout=200)
    assert not refused.ok and re.search(r"static.assert.*std::variant", refused.stderr)


def test_the_runner_compiles_and_links_for_macos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What can be seen of a Mac from here: the sources compile, and every symbol they ask of ExecuTorch is in
    the macOS wheel's libraries. Nothing is run."""
    monkeypatch.chdir(tmp_path)
    compiler = from_zig(AARCH64_MACOS)
    try:
        sdk = aarch64_sdk(installed_sdk(), AARCH64_MACOS)
    except SetupError as problem:
        missing(str(problem))
    assert sdk.platform == AARCH64_MACOS
    image = MachO(build_runner(sdk, compiler).path.read_bytes())
    assert list(tmp_path.iterdir()) == [], "nothing is left where the user is"
    assert image.cpu == 0x0100000C and image.filetype == 2, "an executable for arm64"
    ours = {name for name in image.dylibs if "executorch" in name}
    assert ours == {
        f"@rpath/libexecutorch{part}.dylib"
        for part in ("", "_kernels_optimized", "_kernels_quantized", "_threadpool", "_etdump")
    }
    assert all(name.startswith("/usr/lib/") for name in set(image.dylibs) - ours)
    assert image.rpaths == [str(sdk.libraries)]
    given = {
        name for library in sdk.libraries.glob("*.dylib") for name in MachO(library.read_bytes()).defined
    }
    asked = {name for name in image.undefined if "executorch" in name or "cpuinfo" in name}
    assert len(asked) > 20 and asked <= given, asked - given
    assert not any("kai_" in name for name in asked)


class MachO:
    """As much of a 64-bit Mach-O file as tells what it needs and what it gives."""

    def __init__(self, data: bytes) -> None:
        magic, self.cpu, _, self.filetype, count, _, _, _ = struct.unpack_from("<8I", data)
        assert magic == 0xFEEDFACF
        self.dylibs: list[str] = []
        self.rpaths: list[str] = []
        self.defined: set[str] = set()
        self.undefined: set[str] = set()
        at = 32
        for _ in range(count):
            command, size = struct.unpack_from("<2I", data, at)
            if command in (0xC, 0x80000018, 0x8000001C):  # load a dylib, load it weakly, a run path
                name = data[at + struct.unpack_from("<I", data, at + 8)[0] : at + size].rstrip(b"\0").decode()
                (self.rpaths if command == 0x8000001C else self.dylibs).append(name)
            if command == 0x2:
                self._read_symbols(data, *struct.unpack_from("<4I", data, at + 8))
            at += size

    def _read_symbols(self, data: bytes, offset: int, count: int, strings: int, _: int) -> None:
        for index in range(count):
            name_at, kind = struct.unpack_from("<IB", data, offset + 16 * index)
            if kind & 0xE0 or not kind & 1:  # for debuggers, or not external
                continue
            name = data[strings + name_at : data.index(b"\0", strings + name_at)].decode()
            (self.defined if kind & 0x0E else self.undefined).add(name)
