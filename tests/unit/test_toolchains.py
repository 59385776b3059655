"""Which compiler, mirror and package a machine is offered: on recorded answers of several distributions, and
with stand-ins on the PATH for compilers that do not work."""

import os
import platform
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from said import refused
from stand_ins import command, served

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.core.stdio import Progress, current_progress, watching
from model_profiling.runner import compilers, fetching
from model_profiling.runner.features import AARCH64_LINUX, AARCH64_MACOS, Platform, this_platform
from model_profiling.runner.fetching import fix_for
from model_profiling.targets import emulated

ANSWERS = Path(__file__).parents[1] / "data/distributions"


def family_of(system: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of the one whose os-release was recorded, as Python reads it."""
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(platform, "_os_release_candidates", (str(ANSWERS / f"{system}.os-release"),))
    monkeypatch.setattr(platform, "_os_release_cache", None)
    return fetching.system_family()


def answer(name: str) -> str:
    return (ANSWERS / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("system", "family", "compiler", "emulator"),
    [
        ("debian", "debian", "apt install g++-aarch64-linux-gnu", "trixie-backports"),
        ("ubuntu", "ubuntu", "apt install g++-aarch64-linux-gnu", "25.10"),
        ("linuxmint", "ubuntu", "apt install g++-aarch64-linux-gnu", "25.10"),
        ("fedora", "", "ziglang", "SME2PROF_QEMU"),
        ("alpine", "", "ziglang", "SME2PROF_QEMU"),
    ],
)
def test_a_fix_names_what_the_distribution_calls_it(system, family, compiler, emulator, monkeypatch):
    assert family_of(system, monkeypatch) == family
    assert compiler in fix_for("aarch64 compiler") and emulator in fix_for("QEMU")
    assert "SME2PROF_QEMU" in fix_for("QEMU")
    for need in ("C++ compiler", "aarch64 compiler", "aarch64 C library", "QEMU"):
        assert "\n" not in fix_for(need) and fix_for(need)  # type: ignore[arg-type]


def test_a_system_without_a_name_and_a_qemu_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    assert family_of("nowhere", monkeypatch) == ""
    assert emulated.new_enough("11.1.2+ds-1~bpo13+1") and emulated.new_enough("10.1.0+ds-5ubuntu2")
    assert not emulated.new_enough("10.0.2+ds-2") and not emulated.new_enough("8.2.2")


@pytest.mark.parametrize(
    ("system", "suite", "mirror"),
    [
        ("debian", "bookworm", "http://mirror.example/debian/"),
        ("ubuntu", "noble", "http://mirror.example/ubuntu-ports/"),
    ],
)
def test_the_mirror_is_the_one_apt_uses(system, suite, mirror, tmp_path, monkeypatch):
    """Not another vendor's, not the one for security, and known before apt has ever been updated."""
    own, fedora = (family_of(name, monkeypatch) for name in (system, "fedora"))
    configured = fetching.configured_archive(answer(f"{system}.print-uris"), own)
    assert configured == fetching.Archive(system.capitalize(), suite, mirror)
    assert fetching.configured_archive("", own) is None
    assert fetching.configured_archive(answer(f"{system}.print-uris"), fedora) is None
    assert configured.keyring(tmp_path) is None
    key = tmp_path / f"{system}-archive-keyring.gpg"
    key.touch()
    assert configured.keyring(tmp_path) == key


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An x86_64 machine with nothing on its PATH but this folder, and an empty cache."""
    programs = tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("SME2PROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("SME2PROF_SYSROOT", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    return programs


def test_compilers_are_used_refused_or_fetched_as_named(elsewhere: Path) -> None:
    for wanted in (this_platform(), AARCH64_LINUX, AARCH64_MACOS):
        assert compilers.can_be_fetched(wanted)
    assert not compilers.can_be_fetched(Platform("linux", "riscv64"))
    with refused(SetupError, "ziglang"):
        compilers.zig_command(AARCH64_LINUX, fetch=False)
    assert not (elsewhere.parent / "cache").exists()
    for name in ("aarch64-linux-gnu-g++", "g++"):
        command(elsewhere, name, "exit 1")
    assert compilers.can_be_fetched(AARCH64_LINUX)
    with refused(SetupError, "aarch64-linux-gnu-g++ does not answer", fix="ziglang") as caught:
        compilers.find_compiler(AARCH64_LINUX, fetch=False)
    assert "; g++" not in caught.value.problem, "it is for this machine"


@pytest.mark.usefixtures("elsewhere")
def test_a_compiler_that_was_named_is_used_or_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with refused(SetupError, "no-such-compiler -O2", fix="CXX"):
        compilers.find_compiler()
    assert not compilers.can_be_fetched(this_platform()), "a fallback is not asked for"
    assert compilers.can_be_fetched(AARCH64_LINUX), "CXX is for this machine"


def test_an_aarch64_c_library_that_cannot_be_had(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "_PLACE", "no/such/place")
    with refused(SetupError, "apt-get") as caught:
        emulated.aarch64_sysroot()
    assert caught.value.fix == fix_for("aarch64 C library")
    own = elsewhere.parent / "sysroot"
    monkeypatch.setenv("SME2PROF_SYSROOT", str(own))
    with refused(SetupError, own, "lib/ld-linux-aarch64.so.1", fix="SME2PROF_SYSROOT"):
        emulated.aarch64_sysroot()
    (own / "lib/aarch64-linux-gnu").mkdir(parents=True)
    (own / "lib/ld-linux-aarch64.so.1").touch()
    (own / "lib/aarch64-linux-gnu/libstdc++.so.6").touch()
    assert emulated.aarch64_sysroot() == own


def test_asking_for_pip_wakes_nobody_who_listens_to_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """As setuptools does: it warns when pip is looked for after distutils was imported."""

    class Listener:
        def find_spec(self, name: str, *_: object) -> None:
            raise UserWarning(f"{name} is looked for")

    monkeypatch.setattr("sys.meta_path", [Listener(), *sys.meta_path])
    assert compilers.can_be_fetched(AARCH64_LINUX)


ROOT = Path(__file__).resolve().parents[2]
WHEEL = "large-1.0-py3-none-any.whl"
SIZE = 8_000_000


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    page = tmp_path / "site" / "simple" / "large" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<html><body><a href="/{WHEEL}">{WHEEL}</a></body></html>')
    info = "large-1.0.dist-info"
    with zipfile.ZipFile(tmp_path / "site" / WHEEL, "w") as wheel:
        wheel.writestr("large.py", "#" * SIZE)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: large\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    with served(tmp_path / "site") as address:
        yield f"{address}/simple"


class Kept(Progress):
    def __init__(self) -> None:
        self.stages: list[str] = []

    def stage(self, text: str) -> None:
        self.stages.append(text)


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")


@pytest.mark.usefixtures("settings")
def test_a_download_shows_its_name_and_size(index, tmp_path):
    seen = Kept()
    with watching(seen):
        words = ("download", "--no-deps", "--index-url", index, "--dest", tmp_path / "got", "large")
        done = fetching.pip(*words, timeout=120)
    current_progress().stage("nobody watches any more")
    assert done.ok and (tmp_path / "got" / WHEEL).is_file(), done.tail()
    assert seen.stages == [f"fetching {WHEEL} (8.0 MB)"]


@pytest.mark.usefixtures("settings")
def test_set_up_says_what_it_fetches_and_not_what_pip_thinks_of_the_settings(index, tmp_path):
    own = [sys.executable, "-m", "model_profiling.runner", "pip", "install", "--no-deps", "--no-compile"]
    nowhere = (tmp_path / "nowhere").as_uri()
    words = [*own, "--index-url", index, "--extra-index-url", nowhere, "--target", tmp_path / "into"]
    done = process.run([*words, "large"], timeout=120, cwd=ROOT)
    assert done.ok and (tmp_path / "into" / "large.py").is_file(), done.tail()
    assert done.stderr.splitlines() == [f"fetching {WHEEL} (8.0 MB)", "installing 1 package"]
    assert done.stdout == ""
    done = process.run([*words, "large==2.0"], timeout=120, cwd=ROOT)
    assert done.returncode == 1 and "ERROR: No matching distribution found for large==2.0" in done.stderr
