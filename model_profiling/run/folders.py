"""Which runs a folder holds: a run directory is itself, a folder above several is all of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from model_profiling.errors import FormatError, ProfilingError
from model_profiling.json_record import read_json_object
from model_profiling.reading import is_there
from model_profiling.run import names
from model_profiling.run.version_0 import is_summary_0


def holds_run(folder: Path) -> bool:
    """Whether a file says that `folder` is a run directory: a manifest, or an earlier kit's summary."""
    return is_there(folder / names.MANIFEST) or any(map(_is_summary, folder.glob(f"*{names.SUMMARY}")))


def runs_below(folder: Path) -> set[Path]:
    """The run directories in `folder`, at any depth, but for itself."""
    return set(_below(folder)) - {folder}


def runs_in(folder: Path) -> tuple[Path, ...]:
    """The run directories in `folder`, by name; itself where it is one, or holds dumps without a manifest."""
    if holds_run(folder):
        return (folder,)
    return tuple(sorted(runs_below(folder))) or (folder,)


def expand_runs(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Every run in `folders`, each once, in the order they are named."""
    every = (run_dir for folder in folders for run_dir in runs_in(folder))
    return tuple({run_dir.resolve(): run_dir for run_dir in every}.values())


def refuse_links_out(run_dir: Path) -> None:
    """Refuse a run directory in which a link stands for a folder elsewhere: what is read of such a run would
    be read there, and written there. Links in place of files are refused when they are opened."""
    home = run_dir.resolve()
    for place, subfolders, _ in os.walk(run_dir):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        for name in subfolders:
            path = Path(place, name)
            if path.is_symlink() and not path.resolve().is_relative_to(home):
                raise FormatError(
                    f"{path} is a link to a folder outside of the run directory",
                    "put the folder itself there, or remove the link",
                )


def _is_summary(path: Path) -> bool:
    try:
        return is_summary_0(read_json_object(path, ""))
    except ProfilingError:
        return False


def _below(folder: Path) -> Iterator[Path]:
    """Hidden folders are not even entered: one of them may be a whole Python environment."""
    for place, subfolders, held in os.walk(folder):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]
        summaries = (Path(place, name) for name in held if name.endswith(names.SUMMARY))
        if names.MANIFEST in held or any(map(_is_summary, summaries)):
            yield Path(place)
