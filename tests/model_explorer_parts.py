"""Model Explorer's adapter for .pte files, in the kit's cache: it makes the graphs node data is for.

`make test` runs this file once, so that no test waits for a download: `python tests/model_explorer_parts.py`.
Which packages and files these are is locked. Model Explorer's converters of other formats, hundreds of
megabytes, are left out: a .pte needs none of them.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sys
from collections.abc import Sequence
from pathlib import Path

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.runner.cache import cache_root, cached

_LOCK = Path(__file__).resolve().parents[1] / "requirements" / "model-explorer.txt"
_LAST_PYTHON = (3, 12)
_CONVERT = """
import json, sys
from pte_adapter_model_explorer.main import PTEAdapter

graphs = {}
for path in sys.argv[1:]:
    for collection in PTEAdapter().convert(path, {})["graphCollections"]:
        graphs.setdefault(path, {}).update(
            {graph.id: {node.id: node.label for node in graph.nodes} for graph in collection.graphs}
        )
print(json.dumps(graphs))
"""

Graphs = dict[str, dict[str, str]]
"""Of one program: graph id to node id to label."""


def adapter_folder(*, fetch: bool = True) -> Path:
    """Where the adapter is, fetched the first time; what cannot be had is a SetupError that says why."""
    if sys.version_info[:2] > _LAST_PYTHON:
        raise SetupError("Model Explorer's adapter is for Python up to 3.12", "run these tests with one")

    def make(into: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        done = process.run([*pip, "--target", into, "-r", _LOCK], timeout=600)
        if not done.ok:
            raise SetupError(f"Model Explorer's adapter cannot be had: {done.tail(2)}", "check the network")

    version = ".".join(map(str, sys.version_info[:2]))
    recipe = hashlib.sha256(_LOCK.read_bytes()).hexdigest()[:12]
    name = f"{recipe}-{platform.machine()}-{version}"
    return cached(cache_root() / "model-explorer" / name, make, "Model Explorer's adapter", fetch=fetch)


def adapter_graphs(programs: Sequence[Path]) -> dict[Path, Graphs]:
    """What Model Explorer shows of each program."""
    # Nothing is added to what the cache keeps.
    env = {"PYTHONPATH": str(adapter_folder()), "PYTHONDONTWRITEBYTECODE": "1"}
    # Without this environment's packages (-S): Model Explorer would load torch, which a .pte does not need.
    done = process.run([sys.executable, "-S", "-c", _CONVERT, *programs], timeout=120, env=env)
    assert done.ok, done.tail(20)
    return {Path(path): graphs for path, graphs in json.loads(done.stdout).items()}


if __name__ == "__main__":
    try:
        adapter_folder()
    except SetupError as problem:
        print(f"note: no adapter of Model Explorer, its tests are skipped: {problem}")
