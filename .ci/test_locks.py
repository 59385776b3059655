"""What `make quickstart` and `make test` install is locked, with hashes; and pip holds to it.

The locks are read, not made: nothing here needs the network. `make lock` writes them anew.
"""

import functools
import hashlib
import importlib.metadata
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import locks
import pip
import pytest
import sbom
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from locks import FETCHED, FOLDER, PROJECT, ROOT, UNLOCKED, Locked, Machine, machines
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.version import Version

import model_profiling
from model_profiling.core import process
from model_profiling.runner.compilers import ZIG_RELEASE
from model_profiling.runner.fetching import pip_words

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DOCUMENT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = DOCUMENT["project"]["optional-dependencies"]
KIT = [*DOCUMENT["project"]["dependencies"], *EXTRAS["executorch"]]
ASKED = {
    "run": KIT,
    "test": [*KIT, *EXTRAS["test"]],
    "build": [*DOCUMENT["build-system"]["requires"], "build"],
}
LOCKS = ("build", "docs", "make-lock", "run", "test", "torch-cuda")


@functools.cache
def on(machine: Machine, lock: str) -> dict[str, Version]:
    wanted = [one for one in locks.read(lock) if machine.holds(one.marker)]
    found = {one.name: one.version for one in wanted}
    assert len(found) == len(wanted), f"{lock}: two versions of one package on {machine}"
    return found


def torch_pin() -> Locked:
    (pin,) = locks.parse((FOLDER / f"{UNLOCKED}.txt").read_text(encoding="utf-8"))
    return pin


def test_every_package_is_one_version_with_the_hashes_of_its_files() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {*LOCKS, UNLOCKED}
    for lock in LOCKS:
        packages = locks.read(lock)
        assert packages and all(one.hashes for one in packages)
        assert UNLOCKED not in {one.name for one in packages}
        for one in packages:
            assert any(machine.holds(one.marker) for machine in machines()), f"{lock}: nobody wants {one}"


@pytest.mark.parametrize("lock", ASKED)
def test_a_lock_holds_all_that_pyproject_asks_for(lock: str) -> None:
    """On every Python and machine; a requirement that changes without `make lock` is found here."""
    pin = torch_pin()
    for machine in machines():
        has = on(machine, lock) | {pin.name: pin.version}
        for line in ASKED[lock]:
            asked = Requirement(line)
            if machine.holds(asked.marker):
                version = has.get(locks.normal(asked.name))
                assert version, f"{line} is not in requirements/{lock}.txt for {machine}; run `make lock`"
                assert version in asked.specifier, f"{line}: locked is {version}; run `make lock`"


def test_nothing_is_there_that_nobody_asks_for_and_users_run_what_tests_run() -> None:
    for lock in LOCKS:
        known = {PROJECT, UNLOCKED} | {one.name for other in (lock, "test") for one in locks.read(other)}
        for one in locks.read(lock):
            assert one.via, f"{lock}: {one.name} came with nothing"
            assert set(one.via) <= known, f"{lock}: {one.name} is there for {one.via}"
    for machine in machines():
        whole = on(machine, "test")
        for lock in ("run", "build"):
            part = on(machine, lock)
            assert part.items() <= whole.items(), f"{lock} on {machine}"


def test_what_installed_packages_ask_for_is_locked_with_them() -> None:
    """pip installs a lock without looking for more: it must be complete, here on this very machine."""
    here = {torch_pin().name: torch_pin().version} | {
        one.name: one.version for one in locks.read("test") if not one.marker or Marker(one.marker).evaluate()
    }
    seen = 0
    for name, version in here.items():
        try:
            installed = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        if Version(installed.version) != version:
            continue
        seen += 1
        for asked in map(Requirement, installed.requires or ()):
            if not asked.marker or asked.marker.evaluate({"extra": ""}):
                has = here.get(locks.normal(asked.name))
                assert has and asked.specifier.contains(has, prereleases=True), f"{name} asks for {asked}"
    assert seen > len(here) / 2


def test_torch_alone_has_no_hash_and_its_version_is_pyproject_s() -> None:
    pin = torch_pin()
    assert f"{pin.name}=={pin.version}" in EXTRAS["executorch"] and not pin.hashes
    told = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert "torch" in told and "build of its own" in told


def test_a_lock_names_no_place_and_pip_builds_only_what_has_no_wheel() -> None:
    """Options in the file hold whoever installs it; `--no-binary` is for sources alone."""
    for path in FOLDER.glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"://|--(extra-)?index|find-links|trusted", text), path.name
        options = re.findall(r"^--.*$", text, re.MULTILINE)
        if path.stem != UNLOCKED:
            assert options[0] == "--only-binary :all:"
            assert set(options[1:]) <= {"--no-binary antlr4-python3-runtime"}, path.name
    for script in (ROOT / "model_profiling" / "scripts" / "setup_repo.sh", ROOT / "Makefile"):
        for line in script.read_text(encoding="utf-8").splitlines():
            if re.search(r"-r \S*requirements/(?!torch\.txt)", line):
                assert "--require-hashes" in line, line


def test_what_the_kit_fetches_itself_is_locked_too() -> None:
    """For every machine; another release of ExecuTorch than the locked one goes by its version."""
    for package in ("ziglang", "executorch"):
        (one,) = locks.read(package, FETCHED)
        assert one.name == package and not one.marker and len(one.hashes) >= len(locks.MACHINES)
        words = ("--require-hashes", "-r", str(FETCHED / f"{package}.txt"))
        assert pip_words(package) == pip_words(package, str(one.version)) == words
        assert pip_words(package, "0.0.1") == (f"{package}==0.0.1",)
    assert f"executorch=={one.version}" in EXTRAS["executorch"]
    assert str(locks.read("ziglang", FETCHED)[0].version).startswith(ZIG_RELEASE)


def forge(folder: Path, name: str, version: Version) -> Path:
    """A wheel of that name and version, as somebody would put it on an index."""
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name.replace('-', '_')}_forged.py", "raise SystemExit('ran what was forged')\n")
        info = f"{stem}.dist-info"
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.mark.slow
def test_set_up_refuses_a_package_that_is_not_the_locked_one(tmp_path: Path) -> None:
    served, kit = tmp_path / "served", tmp_path / "kit"
    served.mkdir()
    kit.mkdir()
    (kit / "model_profiling").symlink_to(ROOT / "model_profiling")
    (kit / "pyproject.toml").symlink_to(ROOT / "pyproject.toml")
    (kit / "requirements").symlink_to(FOLDER)
    # An environment with this one's pip: making another takes longer than all the rest.
    venv = [sys.executable, "-m", "venv", "--without-pip", kit / ".venv"]
    assert process.run(venv, timeout=120).ok
    site = next((kit / ".venv" / "lib").glob("python*/site-packages"))
    (site / "pip").symlink_to(Path(pip.__file__).parent)
    wheels = [forge(served, one.name, one.version) for one in locks.read("build")]
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(served), "PIP_CONFIG_FILE": "/dev/null"}
    script = kit / "model_profiling" / "scripts" / "setup_repo.sh"
    done = process.run(["bash", script, "--python", sys.executable], timeout=300, env=env)
    assert done.returncode != 0, done.tail()
    assert "DO NOT MATCH THE HASHES" in done.stderr, done.tail(20)
    assert not list(site.glob("*_forged.py")) and not (kit / ".venv" / ".installed").exists()
    # The same file is taken where its hash is the one that is asked for: it was the hash that pip minded.
    wheel = next(path for path in wheels if path.name.startswith("packaging-"))
    (one,) = (one for one in locks.read("build") if one.name == "packaging")
    asked = tmp_path / "asked.txt"
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    asked.write_text(f"--only-binary :all:\n{Locked(one.name, one.version, hashes=(digest,)).text()}")
    install = [kit / ".venv/bin/python", "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    done = process.run([*install, "-r", asked], timeout=120, env=env)
    assert done.ok, done.tail()
    assert list(site.glob("packaging_forged.py"))
    # torch goes by its version: a machine's own build of it, from a folder and without an index, is taken.
    forge(served, "torch", Version(f"{torch_pin().version}+cpu"))
    install.remove("--require-hashes")
    done = process.run([*install, "-r", FOLDER / "torch.txt"], timeout=120, env=env)
    assert done.ok and list(site.glob("torch_forged.py")), done.tail()


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """As the release's own command writes it."""
    path = tmp_path_factory.mktemp("sbom") / "new" / "kit.cdx.json"
    done = process.run([sys.executable, ROOT / ".ci" / "sbom.py", path], timeout=60)
    assert done.ok, done.tail()
    text = path.read_text(encoding="utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    made: dict[str, Any] = json.loads(text)
    return made


def test_it_is_of_this_version_comes_again_the_same_and_tells_what_runs(bill: dict[str, Any]) -> None:
    own = bill["metadata"]["component"]
    assert (own["name"], own["version"]) == (PROJECT, model_profiling.__version__)
    assert own["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert sbom.bill() == bill
    found: dict[str, set[str]] = {}
    for one in bill["components"]:
        found.setdefault(one["scope"], set()).add(one["name"])
    assert {"click", "numpy", "scipy", "pydantic", "pydantic-core"} <= found["required"]
    assert {"executorch", "torch", "torchao", "nvidia-cublas"} <= found["optional"]
    assert {"pytest", "ruff", "build", "cyclonedx-python-lib"} <= found["excluded"]


def test_every_locked_package_is_in_it_with_its_hashes(bill: dict[str, Any]) -> None:
    has = {one["purl"]: {each["content"] for each in one.get("hashes", ())} for one in bill["components"]}
    for lock in ("run", "test", "build", "torch-cuda"):
        for one in locks.read(lock):
            assert set(one.hashes) <= has[f"pkg:pypi/{one.name}@{one.version}"]
    known = {
        digest
        for lock in ("run", "test", "build", "torch-cuda")
        for one in locks.read(lock)
        for digest in one.hashes
    }
    assert set().union(*has.values()) == known
    assert [purl for purl, hashes in has.items() if not hashes] == ["pkg:pypi/torch@2.13.0"]


def test_who_asks_for_what_is_told_down_to_the_last_package(bill: dict[str, Any]) -> None:
    asks = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    own = bill["metadata"]["component"]["bom-ref"]
    names = {one["bom-ref"]: one["name"] for one in bill["components"]}
    assert {"click", "executorch", "torch", "pytest"} <= {names[each] for each in asks[own]}
    seen, waiting = {own}, [own]
    while waiting:
        more = set(asks[waiting.pop()]) - seen
        seen |= more
        waiting += more
    assert seen == {own, *names}


def test_a_release_carries_it_and_a_call_without_a_file_says_how(capsys: pytest.CaptureFixture[str]) -> None:
    assert sbom.main([]) == 2
    assert capsys.readouterr().err == "usage: sbom.py FILE.cdx.json\n"
    # `make sbom` and the workflow write the same.
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    release = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert ".ci/sbom.py" in make and ".ci/sbom.py" in release
