"""Debian's programs with all they depend on, unpacked without root, for tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.runner.fetching import Packages


def unpack_closure(packages: Packages, names: Sequence[str], root: Path, libraries: Path) -> None:
    """Unpack `names` and all they depend on into `root`, and link their shared libraries in `libraries`. The
    C library is in `root` but not linked: it must be the one of the machine's loader."""
    done = packages.apt("install", "--yes", "--download-only", *names)
    debs = sorted((packages.folder / "cache/archives").glob("*.deb"))
    if not done.ok or len(debs) < len(names):
        raise SetupError(f"cannot download {', '.join(names)}: {done.tail(1)}", "check the mirror")
    # /lib is /usr/lib: packages of newer releases expect it, older ones allow it.
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for deb in debs:
        packages.unpack(deb, root)
    without = _of_the_c_library(debs)
    libraries.mkdir()
    machine = [path for path in (root / "usr/lib").glob("*-linux-gnu*") if path.is_dir()]
    # Android's tools keep their libraries in a subfolder.
    folders = [root / "usr/lib", *machine, *(path / "android" for path in machine)]
    for library in (path for folder in folders for path in folder.glob("*.so*")):
        link = libraries / library.name
        if library.is_file() and library.name not in without and not link.exists():
            link.symlink_to(Path("..") / library.relative_to(libraries.parent))


def _of_the_c_library(debs: Iterable[Path]) -> frozenset[str]:
    """The names of all files in the package of the machine's own C library."""
    for deb in debs:
        if deb.name.startswith("libc6_"):
            listed = process.run(["dpkg", "--contents", deb], timeout=60)
            paths = (line.split()[5] for line in listed.stdout.splitlines() if len(line.split()) > 5)
            return frozenset(path.rpartition("/")[2] for path in paths)
    raise SetupError("the packages do not contain the C library", "install them with apt")
