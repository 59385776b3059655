"""Fixes the doctor prints, followed word for word where that can be done here: then their lines are gone."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import missing
from stand_ins import linked

from model_profiling.core import process
from model_profiling.runner.cache import cache_root

ROOT = Path(__file__).resolve().parents[2]
Doctor = Callable[[], str]


def fix_of(name: str, text: str) -> str | None:
    """The fix under the line called `name`; None where that passes."""
    found = re.search(rf"(?m)^(pass|FAIL|----)  {re.escape(name)} .*(?:\n +fix: (.*))?$", text)
    assert found, f"no line called {name} in:\n{text}"
    return found[2] if found[1] != "pass" else None


def follow(fix: str, env: dict[str, str], timeout: float = 300) -> None:
    done = process.run(["sh", "-c", fix], timeout=timeout, env=env)
    if not done.ok:
        missing(f"what `{fix}` needs: {done.tail(2)}")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> tuple[Doctor, dict[str, str]]:
    """The doctor as a Python says it that has pip and knows the kit's requirements, and nothing else."""
    home = tmp_path_factory.mktemp("bare")
    made = process.run([sys.executable, "-m", "venv", home / "venv"], timeout=120)
    assert made.ok, made.tail()
    (packages,) = (home / "venv").glob("lib/python*/site-packages")
    kit = importlib.metadata.distribution("sme2-profiling-kit")
    record = packages / f"sme2_profiling_kit-{kit.version}.dist-info"
    record.mkdir()
    # A development install is an egg-info in the sources as well.
    (record / "METADATA").write_text(kit.read_text("METADATA") or kit.read_text("PKG-INFO") or "")
    path = linked(home / "path", ("sh", "g++", "as", "ld", "env"))
    env = {"PATH": str(path), "PYTHONPATH": str(ROOT), "SME2PROF_CACHE": str(home / "cache")}
    # A phone whose settings were left changed: reading that needs a package, too.
    (left := home / "sme2prof" / "devices" / "one.json").parent.mkdir(parents=True)
    left.write_text(
        '{"device": "one", "mode": "boost", "since": "2026-11-17", "before": {}, "schema_version": 1}'
    )
    env["XDG_STATE_HOME"] = str(home)
    script = ROOT / "model_profiling" / "scripts" / "validate_setup.py"

    def doctor() -> str:
        return process.run([home / "venv/bin/python", script], timeout=120, env=env).stdout

    return doctor, env


def test_missing_packages(bare: tuple[Doctor, dict[str, str]]) -> None:
    """First what says which others must be there, then one of those."""
    doctor, env = bare
    for name in ("packaging", "click"):
        fix = fix_of(name, doctor())
        assert fix and " -m pip install " in fix
        follow(fix, env)
        assert fix_of(name, doctor()) is None
    assert fix_of("executorch", doctor()), "what was not followed is still missing"


def test_a_compiler_that_is_not_there(cli) -> None:
    fix = fix_of("C++ compiler", cli("doctor", CXX="no-such-compiler").stdout)
    assert fix == "correct CXX, or unset it"
    words = ["sh", "-c", f"unset CXX; {sys.executable} -m model_profiling doctor"]
    unset = process.run(words, timeout=120, env={"CXX": "no-such-compiler", "PYTHONPATH": str(ROOT)})
    assert fix_of("C++ compiler", unset.stdout) is None


@pytest.mark.skipif(sys.platform != "linux", reason="QEMU's user mode runs on Linux only")
@pytest.mark.usefixtures("emulated")
def test_an_emulator_that_is_not_there_yet(tmp_path, cli) -> None:
    """Whatever else emulation needs is there already, so that only QEMU is fetched."""
    cache = tmp_path / "cache"
    cache.mkdir()
    for part in cache_root().iterdir():
        if part.name != "qemu":
            (cache / part.name).symlink_to(part)
    folders = os.environ["PATH"].split(":")
    path = ":".join(folder for folder in folders if not list(Path(folder).glob("qemu-aarch64*")))
    env = {"SME2PROF_CACHE": str(cache), "PATH": path, "SME2PROF_QEMU": "", "PYTHONPATH": str(ROOT)}
    told = cli("doctor", **env).stdout
    fix = fix_of("SME2 emulation", told)
    assert fix is not None
    if not fix.endswith("doctor --fetch"):
        missing(f"anywhere to fetch QEMU from: {fix}")
    follow(fix, env)
    assert fix_of("SME2 emulation", cli("doctor", **env).stdout) is None
