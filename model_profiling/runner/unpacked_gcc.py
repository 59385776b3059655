"""g++ of the machine's own distribution, unpacked into the cache with everything it depends on, where it is
not installed: nothing is configured, no root is needed, and it runs from where it lies.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from model_profiling import process
from model_profiling.errors import SetupError
from model_profiling.runner import apt
from model_profiling.runner.cache import cache_root, cached
from model_profiling.runner.platforms import AARCH64_LINUX, Platform

_CURE = "install it with apt"
_CROSS = "aarch64-linux-gnu"
# The libraries the compiler's own programs need come from beside it, but never the C library: that one
# belongs to the loader of the machine.
_SCRIPT = """\
#!/bin/sh
home=${{0%/*}}
LD_LIBRARY_PATH="$home/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" PATH="$home/sysroot/usr/bin:$PATH" \\
  exec "$home/sysroot/usr/bin/{program}" --sysroot="$home/sysroot" "$@"
"""


def source(wanted: Platform) -> str | None:
    """Whose packages it comes from, if this machine's apt has them as far as it knows unasked."""
    if wanted.system != "linux" or not (wanted.is_native or wanted == AARCH64_LINUX):
        return None
    try:
        archive = apt.own_archive(_CURE)
    except SetupError:
        return None
    return f"{archive.origin}'s packages" if archive.keyring() else None


def command(wanted: Platform, *, fetch: bool = True) -> tuple[str, ...]:
    """How it is called; the packages are fetched the first time."""
    program = "g++" if wanted.is_native else f"{_CROSS}-g++"
    return (str(_home(wanted, fetch=fetch) / program),)


def aarch64_libraries() -> Path | None:
    """The aarch64 C and C++ libraries that came with an unpacked cross compiler, if there is one."""
    try:
        return _home(AARCH64_LINUX, fetch=False) / "sysroot/usr" / _CROSS
    except SetupError:
        return None


def cover_multiarch(libraries: Path) -> None:
    """Give the cross packages' libraries the paths that Debian's own have, too.

    An emulator takes a file from the machine itself where its root has none of that name: on an Arm machine
    that would be another build of the C library than the loader's, with which it never starts.
    """
    (libraries / "lib" / _CROSS).symlink_to(".")
    (libraries / "usr").symlink_to(".")


def _home(wanted: Platform, *, fetch: bool) -> Path:
    archive = apt.own_archive(_CURE)
    program = "g++" if wanted.is_native else f"{_CROSS}-g++"
    package = "g++" if wanted.is_native else f"g++-{_CROSS}"

    def make(into: Path) -> None:
        with apt.packages_of(archive, _CURE) as packages:
            debs = packages.download_closure([package])
            root = _merged(into / "sysroot")
            for deb in debs:
                packages.unpack(deb, root)
            _gather_libraries(root, into / "lib", _of_the_c_library(debs))
        if not wanted.is_native:
            cover_multiarch(root / "usr" / _CROSS)
        script = into / program
        script.write_text(_SCRIPT.format(program=program), encoding="utf-8")
        script.chmod(0o755)

    name = f"{archive.origin.lower()}-{archive.suite}-{apt.native_architecture()}-{package}"
    return cached(
        cache_root() / "compilers" / name, make, f"{package} from {archive.origin}'s packages", fetch=fetch
    )


def _merged(root: Path) -> Path:
    """A root in which /lib is /usr/lib: newer releases expect it of their packages, older ones allow it."""
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    return root


def _of_the_c_library(debs: Iterable[Path]) -> frozenset[str]:
    """The names of all files in the package of the machine's own C library."""
    for deb in debs:
        if deb.name.startswith("libc6_"):
            listed = process.run(["dpkg", "--contents", deb], timeout=60)
            paths = (line.split()[5] for line in listed.stdout.splitlines() if len(line.split()) > 5)
            return frozenset(path.rpartition("/")[2] for path in paths)
    raise SetupError("the packages of g++ came without the C library", _CURE)


def _gather_libraries(root: Path, into: Path, without: frozenset[str]) -> None:
    """Link to every shared library for this machine in one folder."""
    into.mkdir()
    folders = [root / "usr/lib", *(path for path in (root / "usr/lib").glob("*-linux-gnu*") if path.is_dir())]
    for library in (path for folder in folders for path in folder.glob("*.so*")):
        link = into / library.name
        if library.is_file() and library.name not in without and not link.exists():
            link.symlink_to(Path("..") / library.relative_to(into.parent))
