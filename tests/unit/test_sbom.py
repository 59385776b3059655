"""The bill of materials: a release carries what the locks say, in the form that other tools read."""

from __future__ import annotations

import json
import sys
from typing import Any

import locks
import pytest
import sbom
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from locks import PROJECT, ROOT

import model_profiling
from model_profiling.core import process


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


def scopes(bill: dict[str, Any]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in bill["components"]:
        found.setdefault(one["scope"], set()).add(one["name"])
    return found


def test_it_is_of_this_version_and_comes_again_the_same(bill: dict[str, Any]) -> None:
    own = bill["metadata"]["component"]
    assert (own["name"], own["version"]) == (PROJECT, model_profiling.__version__)
    assert own["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert sbom.bill() == bill


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


def test_it_tells_what_runs_from_what_only_tests(bill: dict[str, Any]) -> None:
    found = scopes(bill)
    assert {"click", "numpy", "scipy", "pydantic", "pydantic-core"} <= found["required"]
    assert {"executorch", "torch", "torchao", "nvidia-cublas"} <= found["optional"]
    assert {"pytest", "ruff", "build", "cyclonedx-python-lib"} <= found["excluded"]


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


def test_a_call_without_a_file_says_how_it_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert sbom.main([]) == 2
    assert capsys.readouterr().err == "usage: sbom.py FILE.cdx.json\n"


def test_a_release_carries_it() -> None:
    """`make sbom` and the workflow write the same."""
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    release = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert ".ci/sbom.py" in make and ".ci/sbom.py" in release
