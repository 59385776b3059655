"""What a virtual phone is made of: Debian's own adb, adbd, toybox and mksh, unpacked into the kit's cache.

`make test` runs this file once, so that no test waits for a download: `python tests/virtual_phone_parts.py`.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from debian_programs import unpack_closure

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.runner import fetching
from model_profiling.runner.cache import cache_root, cached
from model_profiling.runner.compilers import find_compiler
from model_profiling.runner.features import this_platform

_CURE = "run the tests on Debian or Ubuntu"
_PACKAGES = ("adb", "adbd", "toybox", "mksh")
_TOOLS = "usr/lib/android-sdk/platform-tools"
# bookworm's own adb is 29 and it has no adbd; later releases have both.
_BACKPORTS = {"bookworm": "bookworm-backports"}
# Debian's adbd takes its socket from a property, and has no command that sets one: a constructor does.
_PROPERTIES = Path(__file__).with_name("virtual_phone_properties.cpp")


@dataclass(frozen=True)
class Parts:
    """`runtime` is the folder a phone shows as /apex: all its programs, and the C library of those alone."""

    adb: Path
    adb_libraries: Path
    runtime: Path
    loader: str
    applets: tuple[str, ...]


def phone_parts(*, fetch: bool = True) -> Parts:
    """The parts, fetched the first time; what cannot be had is a SetupError that says why."""
    if sys.platform != "linux":
        raise SetupError("a virtual phone needs Linux", "run these tests on Linux")
    archive = fetching.own_archive(_CURE)
    recipe = hashlib.sha256(_PROPERTIES.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:12]
    name = f"{archive.origin.lower()}-{archive.suite}-{fetching.native_architecture()}-{recipe}"

    def make(into: Path) -> None:
        with fetching.packages_of(archive, _CURE, prefer=_BACKPORTS.get(archive.suite)) as packages:
            unpack_closure(packages, _PACKAGES, into / "root", into / "lib")
        _make_runtime(into / "root", into / "runtime")

    home = cached(cache_root() / "virtual-phone" / name, make, "a virtual phone", fetch=fetch)
    loader = next((home / "runtime").glob("ld-linux-*")).name
    applets = (home / "runtime/applets").read_text().split()
    return Parts(home / "root" / _TOOLS / "adb", home / "lib", home / "runtime", loader, tuple(applets))


def _make_runtime(root: Path, runtime: Path) -> None:
    runtime.mkdir()
    programs = [root / _TOOLS / "adbd", root / "usr/bin/toybox"]
    folder = next(path for path in (root / "lib").glob("*-linux-gnu*") if (path / "libc.so.6").exists())
    loader = next(folder.glob("ld-linux-*"))
    needed = {loader}
    for program in programs:
        search = f"{folder}:{folder / 'android'}"
        listed = process.run([loader, "--library-path", search, "--list", program], timeout=60)
        needed |= {Path(path) for path in re.findall(r"=> (/\S+) \(", listed.stdout)}
    # A shell that is linked statically: /system/bin/sh must not need the loader it would have to start.
    shells = [root / f"usr/lib/{kind}/bin/mksh" for kind in (f"{folder.name[:-4]}-musl", "diet", "klibc")]
    shell = next((path for path in shells if path.is_file()), None)
    if shell is None:
        raise SetupError("mksh's package has no shell that is linked statically", _CURE)
    for path in (*programs, *needed):
        shutil.copy2(path, runtime / path.name)  # follows links: what is there is all there is
    shutil.copy2(shell, runtime / "sh")
    compiler = find_compiler(this_platform())
    properties = [*compiler.command, "-shared", "-fPIC", "-O1", "-o", runtime / "properties.so", _PROPERTIES]
    compiled = process.run(properties, timeout=120)
    if not compiled.ok:
        raise SetupError(f"{_PROPERTIES.name} does not compile: {compiled.tail(3)}", "install a compiler")
    toybox = [loader, "--library-path", folder, root / "usr/bin/toybox"]
    (runtime / "applets").write_text(process.run(toybox, timeout=30).stdout)


if __name__ == "__main__":
    try:
        phone_parts()
    except SetupError as problem:
        print(f"note: no virtual phone, its tests are skipped: {problem}")
