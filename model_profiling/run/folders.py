"""Which runs a folder holds: a run directory is itself, a folder above several is all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from model_profiling.run import names


def runs_in(folder: Path) -> tuple[Path, ...]:
    """The run directories in `folder`, by name; itself where it is one, or holds dumps without a manifest."""
    if (folder / names.MANIFEST).is_file():
        return (folder,)
    return tuple(sorted(_below(folder))) or (folder,)


def expand_runs(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Every run in `folders`, each once, in the order they are named."""
    every = (run_dir for folder in folders for run_dir in runs_in(folder))
    return tuple({run_dir.resolve(): run_dir for run_dir in every}.values())


def _below(folder: Path) -> Iterator[Path]:
    """Hidden folders are not even entered: one of them may be a whole Python environment."""
    for place, subfolders, held in os.walk(folder):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        if names.MANIFEST in held:
            yield Path(place)
