"""The files of runs that an assistant may read whole: the report, its facts, the kernels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from model_profiling.errors import InputError
from model_profiling.mcp_server.confinement import Root
from model_profiling.reading import is_regular, read_text
from model_profiling.run import names
from model_profiling.wording import listing, size

SCHEME = "sme2prof://run/"
FILES = {
    names.REPORT: ("text/markdown", "The report of the run, for people"),
    names.ANALYSIS: ("application/json", "Every fact of the run's analysis; large"),
    names.KERNEL_VIEW: ("text/markdown", "Which kernels ran with SME2 on and off"),
}
_MOST_BYTES = 1_000_000
_MOST_RUNS = 50


@dataclass(frozen=True, slots=True)
class RunFile:
    uri: str
    name: str
    description: str
    mime_type: str
    path: Path

    @property
    def bytes(self) -> int:
        return self.path.stat().st_size


def run_files(root: Root) -> list[RunFile]:
    """Those of the latest runs."""
    found = []
    for run_dir in root.listing(".")[:_MOST_RUNS]:
        run = root.shown(run_dir)
        for name, (mime_type, description) in FILES.items():
            if is_regular(run_dir / name):
                uri = f"{SCHEME}{quote(f'{run}/{name}')}"
                found.append(RunFile(uri, f"{run}/{name}", description, mime_type, run_dir / name))
    return found


def read_run_file(root: Root, uri: str) -> tuple[str, str]:
    """The text and its kind."""
    if not uri.startswith(SCHEME):
        raise InputError(f"{uri} is no file of a run", f"resources are called {SCHEME}RUN/{names.REPORT}")
    run, _, name = unquote(uri.removeprefix(SCHEME)).rpartition("/")
    if name not in FILES:
        raise InputError(f"{name} is not offered", f"read {listing(FILES)} of a run")
    path = root.place(f"{root.run_dir(run or '.')}/{name}")
    if not is_regular(path):
        raise InputError(f"{root.shown(path)} is no file", "`runs` lists the runs there are")
    if (found := path.stat().st_size) > _MOST_BYTES:
        raise InputError(
            f"{name} has {size(found)}, too much to read whole",
            "`summary`, `top_operators` and `advice` answer from the same facts",
        )
    return read_text(path, _MOST_BYTES), FILES[name][0]
