"""Programs of the distribution's packages, laid out in a folder with all they depend on and run from there:
nothing is configured and no root is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from model_profiling import process
from model_profiling.errors import SetupError
from model_profiling.runner.apt import Packages


def unpack_closure(packages: Packages, names: Sequence[str], root: Path, libraries: Path) -> None:
    """Lay `names` and all they depend on out in `root`, and link to their shared libraries in `libraries`.

    The C library is in `root` but not among the links: it belongs to the loader of the machine.
    """
    debs = packages.download_closure(names)
    _merge_folders(root)
    for deb in debs:
        packages.unpack(deb, root)
    _gather_libraries(root, libraries, _of_the_c_library(debs))


def _merge_folders(root: Path) -> None:
    """A root in which /lib is /usr/lib: newer releases expect it of their packages, older ones allow it."""
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")


def _of_the_c_library(debs: Iterable[Path]) -> frozenset[str]:
    """The names of all files in the package of the machine's own C library."""
    for deb in debs:
        if deb.name.startswith("libc6_"):
            listed = process.run(["dpkg", "--contents", deb], timeout=60)
            paths = (line.split()[5] for line in listed.stdout.splitlines() if len(line.split()) > 5)
            return frozenset(path.rpartition("/")[2] for path in paths)
    raise SetupError("the packages came without the C library", "install them with apt")


def _gather_libraries(root: Path, into: Path, without: frozenset[str]) -> None:
    """Link to every shared library for this machine in one folder."""
    into.mkdir()
    machine = [path for path in (root / "usr/lib").glob("*-linux-gnu*") if path.is_dir()]
    # Android's tools keep theirs in a folder of their own below the machine's.
    folders = [root / "usr/lib", *machine, *(path / "android" for path in machine)]
    for library in (path for folder in folders for path in folder.glob("*.so*")):
        link = into / library.name
        if library.is_file() and library.name not in without and not link.exists():
            link.symlink_to(Path("..") / library.relative_to(into.parent))
