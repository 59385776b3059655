"""`make lint`: every change is checked by the tools of `.venv` and by rules of our own that no tool knows."""

from __future__ import annotations

import ast
import fcntl
import graphlib
import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
FORMS = ".github/ISSUE_TEMPLATE"
EXAMPLES = "docs/examples/github-actions"
_LONGEST_S = 900.0


def commands(root: Path) -> dict[str, list[str]]:
    """What the tools of the environment are asked, the longest first."""
    bin_ = Path(sys.executable).parent
    python, schema = [sys.executable, "-m"], [f"{bin_}/check-jsonschema", "--builtin-schema"]
    forms = {path for path in root.glob(f"{FORMS}/*.yml") if path.stem != "config"}
    workflows = {*root.glob(".github/workflows/*.yml"), *root.glob(f"{EXAMPLES}/*.yml")}
    return {
        "types (mypy)": [*python, "mypy"],
        "rooms import only from rooms before them": [f"{bin_}/lint-imports"],
        "lint (ruff check)": [*python, "ruff", "check", "."],
        "layout (`ruff format .` mends it)": [*python, "ruff", "format", "--check", "."],
        "workflows": [*schema, "vendor.github-workflows", *sorted(map(str, workflows))],
        "issue forms": [*schema, "vendor.github-issue-forms", *sorted(map(str, forms))],
        "how issues are opened": [*schema, "vendor.github-issue-config", f"{FORMS}/config.yml"],
    }


def tracked(root: Path) -> tuple[str, ...]:
    """Every file that is or would be committed, from the root."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=root, capture_output=True, text=True, check=True, timeout=_LONGEST_S)
    return tuple(name for name in listed.stdout.split("\0") if name and (root / name).is_file())


def private_names(root: Path, names: Iterable[str]) -> Iterator[str]:
    """No file names the host of a package registry, or a path of the machine that it was written on."""
    forbidden = re.compile(rb"https?://[^ /]*(?:pypi|debian|npmjs)|/(?:w[o]rk|r[o]ot)/[a-z.]")
    for name in names:
        for number, line in enumerate((root / name).read_bytes().splitlines(), 1):
            if forbidden.search(line):
                yield f"{name}:{number}: names a registry's host or a private path"


def large_files(root: Path, names: Iterable[str]) -> Iterator[str]:
    """Every file is below 1 MiB."""
    yield from (f"{name}: larger than 1 MiB" for name in names if (root / name).stat().st_size > 1 << 20)


def shadows(_root: Path, names: Iterable[str]) -> Iterator[str]:
    """pytest puts the folders of tests before Python's own, also for processes that tests start."""
    for name in names:
        beside_tests = name.startswith(("tests/", "bench/")) and name.endswith(".py")
        if beside_tests and Path(name).stem in sys.stdlib_module_names:
            yield f"{name}: hides a module of Python's own; give it another name"


def asserts(root: Path, names: Iterable[str]) -> Iterator[str]:
    """`python -O` leaves asserts out: they only tell mypy what is settled. Input is checked with errors."""
    settled = re.compile(r"(?:[\w.\[\]]+ is not None(?: and )?)+|isinstance\([\w.]+, [\w.]+\)")
    for name in names:
        path = root / name
        if not name.startswith("model_profiling/") or path.suffix != ".py" or path.name.startswith("test_"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Assert) and not settled.fullmatch(ast.unparse(node.test)):
                yield f"{name}:{node.lineno}: an assert that checks; raise an error that says what to do"


def circles(root: Path, names: Iterable[str]) -> Iterator[str]:
    """Modules of the package import in no circle, also not where a function imports when it is called."""
    modules = {
        re.sub(r"(/__init__)?\.py$", "", name).replace("/", "."): name
        for name in names
        if name.startswith("model_profiling/") and name.endswith(".py")
    }
    sorter: graphlib.TopologicalSorter[str] = graphlib.TopologicalSorter()
    for module, name in modules.items():
        sorter.add(
            module, *_imported(ast.parse((root / name).read_text(encoding="utf-8")), modules) - {module}
        )
    try:
        sorter.prepare()
    except graphlib.CycleError as problem:
        way = list(reversed(problem.args[1]))
        yield f"{min(modules[module] for module in way)}: imports in a circle, {' -> '.join(way)}"


def _imported(tree: ast.Module, modules: Container[str]) -> set[str]:
    """Which of `modules` the code imports; what is only for the type checker does not count."""
    types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and id(node) not in types:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {each if each in modules else node.module for each in inner}
    return {each for each in found if each in modules}


def licences(root: Path, _names: Iterable[str]) -> Iterator[str]:
    """Every package that pyproject.toml asks for has a row in docs/reference/licences.md."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = (root / "docs" / "reference" / "licences.md").read_text(encoding="utf-8").lower()
    lines = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    for name in sorted({re.split(r"[<>=;\[ ]", line)[0].lower() for line in lines}):
        if not re.search(rf"\b{re.escape(name)}\b", listed):
            yield f"docs/reference/licences.md: no row for {name}"


RULES: tuple[Callable[[Path, Iterable[str]], Iterator[str]], ...]
RULES = private_names, large_files, shadows, asserts, circles, licences


def house_rules(root: Path) -> list[str]:
    names = tracked(root)
    return [found for rule in RULES for found in rule(root, names)]


def main() -> int:
    # mypy believes what it kept of a file by the file's content and its own version, wherever the clone is.
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sme2prof-mypy"
    cache.mkdir(parents=True, exist_ok=True)
    environment = {"MYPY_CACHE_DIR": str(cache), **os.environ}

    def run(words: list[str]) -> tuple[str, float]:
        began = time.monotonic()
        done = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=_LONGEST_S
        )
        said = f"{done.stdout}{done.stderr}".strip() or f"{words[0]} ends with {done.returncode}"
        return said if done.returncode else "", time.monotonic() - began

    asked = commands(ROOT)
    with (cache / "lock").open("w") as lock, ThreadPoolExecutor(2) as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of another clone's lint
        results = dict(zip(asked, pool.map(run, asked.values()), strict=True))
        began = time.monotonic()
        results["house rules"] = "\n".join(house_rules(ROOT)), time.monotonic() - began
    for name, (said, seconds) in results.items():
        print(f"{'FAIL' if said else 'ok  '}  {name} ({seconds:.1f} s)", flush=True)
        if said:
            print(said)
    return int(any(said for said, _ in results.values()))


if __name__ == "__main__":
    sys.exit(main())
