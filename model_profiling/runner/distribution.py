"""Which Linux distribution this machine runs, and what its packages are called there: for fixes that can be
followed word for word.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Need = Literal["C++ compiler", "aarch64 compiler", "aarch64 C library", "QEMU", "git", "adb", "venv"]

_OS_RELEASE = (Path("/etc/os-release"), Path("/usr/lib/os-release"))
_SYSROOT = "name a folder that holds aarch64's glibc, libgcc and libstdc++ in SME2PROF_SYSROOT"
# Debian splits venv off each Python it has.
_APT: dict[Need, str] = {
    "git": "apt install git",
    "adb": "apt install adb",
    "venv": f"apt install python{sys.version_info.major}.{sys.version_info.minor}-venv",
}
# Fedora's own aarch64 compiler comes without a C++ library for aarch64, so it is not named.
_FIXES: dict[str, dict[Need, str]] = {
    "debian": {
        "C++ compiler": "apt install g++",
        "aarch64 compiler": "apt install g++-aarch64-linux-gnu",
        "aarch64 C library": "apt install libc6-arm64-cross libstdc++6-arm64-cross",
        "QEMU": "apt install qemu-user from trixie-backports (10.1 or newer), or name one in SME2PROF_QEMU",
        **_APT,
    },
    "ubuntu": {
        "C++ compiler": "apt install g++",
        "aarch64 compiler": "apt install g++-aarch64-linux-gnu",
        "aarch64 C library": "apt install libc6-arm64-cross libstdc++6-arm64-cross",
        "QEMU": "install QEMU 10.1 or newer (Ubuntu has it from 25.10 on), or name one in SME2PROF_QEMU",
        **_APT,
    },
    "fedora": {
        "C++ compiler": "dnf install gcc-c++",
        "aarch64 compiler": "make the package index reachable: the ziglang wheel on it has a compiler",
        "aarch64 C library": "dnf download --forcearch=aarch64 glibc libgcc libstdc++, unpack them with "
        "rpm2cpio and cpio, and name that folder in SME2PROF_SYSROOT",
        "QEMU": "dnf install qemu-user-static (10.1 or newer), or name one in SME2PROF_QEMU",
        "git": "dnf install git",
        "adb": "dnf install android-tools",
    },
    "arch": {
        "C++ compiler": "pacman -S gcc",
        "aarch64 compiler": "pacman -S aarch64-linux-gnu-gcc",
        "aarch64 C library": "pacman -S aarch64-linux-gnu-gcc, which brings aarch64-linux-gnu-glibc",
        "QEMU": "pacman -S qemu-user-static (10.1 or newer), or name one in SME2PROF_QEMU",
        "git": "pacman -S git",
        "adb": "pacman -S android-tools",
    },
}
_ANY: dict[Need, str] = {
    "C++ compiler": "install g++ or clang++, or set CXX",
    "aarch64 compiler": "install g++ for aarch64 Linux (aarch64-linux-gnu-g++)",
    "aarch64 C library": _SYSROOT,
    "QEMU": "install QEMU's user mode 10.1 or newer and put qemu-aarch64 on the PATH, or name one in "
    "SME2PROF_QEMU",
    "git": "install git",
    "adb": "install Android's platform-tools",
    "venv": "install Python's venv and ensurepip modules, or use a Python that has them",
}
_MACOS: dict[Need, str] = {"C++ compiler": "xcode-select --install", "git": "xcode-select --install"}


@dataclass(frozen=True, slots=True)
class Distribution:
    """A system as its os-release names it; `family` is the one whose package names it shares."""

    name: str
    version: str
    family: str

    def fix(self, need: Need) -> str:
        """What to do, on this system, for `need`."""
        return _FIXES.get(self.family, _MACOS if self.family == "macos" else _ANY).get(need, _ANY[need])


def this_distribution(root: Path = Path("/")) -> Distribution:
    """The system whose files lie under `root`."""
    if sys.platform == "darwin":
        return Distribution("macOS", "", "macos")
    for place in _OS_RELEASE:
        path = root / place.relative_to("/")
        if path.is_file():
            return read_os_release(path.read_text(encoding="utf-8", errors="replace"))
    return Distribution("Linux", "", "")


def read_os_release(text: str) -> Distribution:
    """The distribution that an os-release file describes, by its ID and then by those it says it is like."""
    fields = {}
    for line in text.splitlines():
        key, found, value = line.partition("=")
        if found and not key.startswith("#"):
            words = shlex.split(value)
            fields[key.strip()] = words[0] if words else ""
    families = (fields.get("ID", ""), *fields.get("ID_LIKE", "").split())
    family = next((name for name in families if name in _FIXES), "")
    return Distribution(fields.get("NAME", "Linux"), fields.get("VERSION_ID", ""), family)
