"""`make lint`: every change is checked by the tools of `.venv` and by rules of our own that no tool knows."""

from __future__ import annotations

import ast
import contextlib
import fcntl
import graphlib
import itertools
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    from re import _compiler as sre_compile
    from re import _constants as sre
    from re import _parser as sre_parse

    import tomllib
else:
    import sre_compile
    import sre_constants as sre
    import sre_parse

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
        "how the kit is cited": [*schema, "vendor.citation-file-format", "CITATION.cff"],
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


def slow_patterns(root: Path, names: Iterable[str]) -> Iterator[str]:
    """Regular expressions take time in proportion to a text: a repeat without a bound contains no other, and
    matches no newline if anything follows, because each line would start a search to the text's end."""
    looks_like_one = re.compile(r"\\[sSwWdD]|\(\?[:=!<ims]")
    for name in names:
        if not name.startswith("model_profiling/") or not name.endswith(".py"):
            continue
        tree = ast.parse((root / name).read_text(encoding="utf-8"))
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
        compiled = {id(call.args[0]) for call in calls if ast.unparse(call.func).startswith("re.")}
        joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
        inner = {id(part) for node in joined for part in ast.walk(node) if part is not node}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant | ast.JoinedStr) or id(node) in inner:
                continue
            pieces = [getattr(piece, "value", "") for piece in getattr(node, "values", [node])]
            text = "".join(piece if isinstance(piece, str) else "x" for piece in pieces)
            if id(node) in compiled or looks_like_one.search(text):
                with contextlib.suppress(re.error), warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # a question mark of SQL
                    yield from (f"{name}:{node.lineno}: {why}" for why in _slow(sre_parse.parse(text)))


def _slow(pattern: sre_parse.SubPattern) -> Iterator[str]:
    for count, body, followed in _repeats(pattern, followed=False):
        if count != sre.MAXREPEAT:
            continue
        if any(inner == sre.MAXREPEAT for inner, _, _ in _repeats(body, followed=True)):
            yield "a repeat in a repeat, both without a bound; give one, as {1,99}"
        if followed and _matches_newline(body, pattern.state.flags):
            yield "a repeat that crosses lines before something else; write [ \\t]* or a bound, as {0,99}"


Nodes = Iterable[tuple[object, Any]]


def _repeats(nodes: Nodes, *, followed: bool) -> Iterator[tuple[int, Nodes, bool]]:
    """The most times, the body, and whether anything follows, of every repeat."""
    nodes = list(nodes)
    for place, (kind, given) in enumerate(nodes, 1):
        more = followed or place < len(nodes)
        if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT):
            yield given[1], given[2], more
        for part in _parts(kind, given):
            yield from _repeats(part, followed=more or kind in (sre.MAX_REPEAT, sre.MIN_REPEAT))


def _parts(kind: object, given: Any) -> Iterable[Nodes]:
    if kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.SUBPATTERN):
        return [given[-1]]
    return given[1] if kind is sre.BRANCH else [given[1]] if kind in (sre.ASSERT, sre.ASSERT_NOT) else []


def _matches_newline(nodes: Nodes, flags: int) -> bool:
    for kind, given in nodes:
        if kind in (sre.LITERAL, sre.NOT_LITERAL, sre.IN, sre.ANY):
            one = sre_parse.SubPattern(sre_parse.State(), [(kind, given)])
            one.state.str = ""
            if sre_compile.compile(one, flags & re.DOTALL).match("\n"):
                return True
        elif any(_matches_newline(part, flags) for part in _parts(kind, given)):
            return True
    return False


READERS = (
    "analysis/kernels.py", "analysis/matching.py", "compat/earlier_config.py",
    "core/records.py", "export/templates.py", "mcp_server/server.py", "program/",
    "runner/fetching.py", "runner/machine.py", "runner/xnnpack_log.py", "store/", "targets/",
    "workflow/measure.py", "workflow/skills.py",
)  # fmt: skip
"""Where text is read that others wrote: names of kernels, logs, messages of libraries and tools."""
_SEARCHES = {"startswith", "endswith", "split", "partition", "rpartition", "removeprefix", "removesuffix"}


def sentences(root: Path, names: Iterable[str]) -> Iterator[str]:
    """Facts decide, sentences only tell: outside readers no code looks for words in a text of its own."""
    for name in names:
        room = name.removeprefix("model_profiling/")
        if room == name or not name.endswith(".py") or room.startswith(READERS):
            continue
        for node in ast.walk(ast.parse((root / name).read_text(encoding="utf-8"))):
            sought: list[ast.expr] = []
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
                sought = [node.left]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                sought = node.args[:1] if node.func.attr in _SEARCHES else []
            parts = [part for each in sought for part in ast.walk(each) if isinstance(part, ast.Constant)]
            if any(isinstance(part.value, str) and part.value != " " and " " in part.value for part in parts):
                yield f"{name}:{node.lineno}: looks for words in a text; let a fact decide"


def licences(root: Path, _names: Iterable[str]) -> Iterator[str]:
    """Every package that pyproject.toml asks for has a row in docs/reference/licences.md."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = (root / "docs" / "reference" / "licences.md").read_text(encoding="utf-8").lower()
    lines = [*project["dependencies"], *itertools.chain(*project["optional-dependencies"].values())]
    for name in sorted({re.split(r"[<>=;\[ ]", line)[0].lower() for line in lines}):
        if not re.search(rf"\b{re.escape(name)}\b", listed):
            yield f"docs/reference/licences.md: no row for {name}"


RULES: tuple[Callable[[Path, Iterable[str]], Iterator[str]], ...]
RULES = private_names, large_files, shadows, asserts, circles, slow_patterns, sentences, licences


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
