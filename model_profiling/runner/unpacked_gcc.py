"""g++ of the machine's own distribution, unpacked into the cache with everything it depends on, where it is
not installed: nothing is configured, no root is needed, and it runs from where it lies.
"""

from __future__ import annotations

from pathlib import Path

from model_profiling.core.errors import SetupError
from model_profiling.runner import apt
from model_profiling.runner.apt import unpack_closure
from model_profiling.runner.cache import cache_root, cached
from model_profiling.runner.features import AARCH64_LINUX, Platform

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
            unpack_closure(packages, [package], into / "sysroot", into / "lib")
        if not wanted.is_native:
            cover_multiarch(into / "sysroot/usr" / _CROSS)
        script = into / program
        script.write_text(_SCRIPT.format(program=program), encoding="utf-8")
        script.chmod(0o755)

    name = f"{archive.origin.lower()}-{archive.suite}-{apt.native_architecture()}-{package}"
    return cached(
        cache_root() / "compilers" / name, make, f"{package} from {archive.origin}'s packages", fetch=fetch
    )
