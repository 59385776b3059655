"""What no file of the repository may contain, and what every module says.

Lint, types and layering are hooks (`.pre-commit-config.yaml`), which test_hooks.py runs; so is this file.
"""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from working_tree import ROOT, tracked

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def test_shell_scripts_parse_and_explain_themselves() -> None:
    for path in (ROOT / "model_profiling" / "scripts").glob("*.sh"):
        done = subprocess.run(["bash", "-n", path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_no_file_names_a_registry_host_or_a_private_path() -> None:
    forbidden = re.compile(rb"https?://[^ /]*(?:pypi|debian|npmjs)|/(?:w[o]rk|r[o]ot)/[a-z.]")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in map(ROOT.joinpath, tracked())
        for number, line in enumerate(path.read_bytes().splitlines(), 1)
        if forbidden.search(line)
    ]
    assert found == []


def test_the_licence_of_every_package_that_is_asked_for_is_listed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8").lower()
    lines = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    names = {re.split(r"[<>=;\[ ]", line)[0].lower() for line in lines}
    assert {name for name in names if not re.search(rf"\b{re.escape(name)}\b", listed)} == set()


def test_no_tracked_file_is_large() -> None:
    assert [path for path in map(ROOT.joinpath, tracked()) if path.stat().st_size > 1 << 20] == []


@pytest.mark.parametrize("path", sorted((ROOT / "model_profiling").rglob("*.py")), ids=lambda p: p.stem)
def test_every_module_says_what_it_is_for(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.match(r'\A(#!.*\n)?"""[^"\s]', text), f"{path} opens without a docstring"


def test_no_module_beside_tests_hides_one_of_python() -> None:
    """pytest puts the folders of tests before Python's own, also for processes that tests start."""
    beside = [Path(name) for name in tracked() if name.startswith(("tests/", "bench/"))]
    modules = [path for path in beside if path.suffix == ".py"]
    assert [path for path in modules if path.stem in sys.stdlib_module_names] == []


def test_an_assert_only_tells_the_type_checker_what_is_settled() -> None:
    """`python -O` leaves asserts out: what comes from outside is checked with errors that say what to do."""
    found = [
        f"{path.relative_to(ROOT)}: {ast.unparse(node.test)}"
        for path in (ROOT / "model_profiling").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Assert) and not path.name.startswith("test_")
        if not re.fullmatch(
            r"(?:[\w.\[\]]+ is not None(?: and )?)+|isinstance\([\w.]+, [\w.]+\)", ast.unparse(node.test)
        )
    ]
    assert found == []


def test_one_place_prints() -> None:
    """What a terminal would obey is made visible there; ruff sees to `print`."""
    package = ROOT / "model_profiling"
    found = {
        str(path.relative_to(package)) for path in package.rglob("*.py") if "click.echo(" in path.read_text()
    }
    assert found == {"cli/frame.py"}
