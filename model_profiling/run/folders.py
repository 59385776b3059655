"""Which runs a folder holds: a run directory is itself, a folder above several is all of them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from model_profiling.run import names


def runs_in(folder: Path) -> tuple[Path, ...]:
    """The run directories in `folder`, by name; itself where it is one, or holds dumps without a manifest."""
    if (folder / names.MANIFEST).is_file():
        return (folder,)
    found = (path.parent for path in folder.rglob(names.MANIFEST))
    return tuple(sorted(path for path in found if not _hidden(path, folder))) or (folder,)


def expand_runs(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Every run in `folders`, each once, in the order they are named."""
    every = (run_dir for folder in folders for run_dir in runs_in(folder))
    return tuple({run_dir.resolve(): run_dir for run_dir in every}.values())


def _hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)
