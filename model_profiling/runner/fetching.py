"""Fetches packages that are pinned, with pip, by hash, and with apt from the distribution's archive. Says how
this system's owner installs what the kit does not fetch."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

from model_profiling.core import process
from model_profiling.core.errors import SetupError
from model_profiling.core.formatting import plural
from model_profiling.core.stdio import current_progress

_DOWNLOADING = re.compile(r"[ \t]*Downloading (\S+?)(?: \(([\d.]+ (?:bytes|[kMG]B))\))?[ \t]*$")
# Silence pip's remarks about the user's own setup; they are not about what is installed here.
_UNASKED = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PIP_NO_COLOR": "1",
    "PIP_PROGRESS_BAR": "off",
}


def pip(*words: str | Path, timeout: float) -> process.Completed:
    """Run this Python's pip and show each package it downloads."""

    def heard(line: str) -> None:
        if download := _DOWNLOADING.match(line):
            name, of_size = unquote(download[1].rpartition("/")[2]), download[2]
            if not name.endswith(".metadata"):
                current_progress().stage(f"fetching {name} ({of_size})" if of_size else f"fetching {name}")
        elif line.startswith("Installing collected packages:"):
            current_progress().stage(f"installing {plural(line.count(',') + 1, 'package')}")

    return process.run([sys.executable, "-m", "pip", *words], timeout=timeout, env=_UNASKED, heard=heard)


# Packages fetched on first use, pinned by hash like those that setup installs. The lock files beside this one
# are pip requirements files; `make lock` writes them.


def pip_words(package: str, version: str | None = None) -> tuple[str, ...]:
    """Return pip's arguments for `package` as locked. Another `version` has no hash here: it is only
    requested because it is already installed, which was someone's choice."""
    lock = Path(__file__).with_name(f"{package}.txt")
    locked = f"{package}=={version}"
    pinned = any(line.split(" ")[0] == locked for line in lock.read_text(encoding="utf-8").splitlines())
    return ("--require-hashes", "-r", str(lock)) if pinned or version is None else (locked,)


# The machine's Linux distribution and its package names, for fixes that can be followed word for word.

Need = Literal["C++ compiler", "aarch64 compiler", "aarch64 C library", "QEMU", "git", "adb", "venv"]

_QEMU = "(10.1 or newer), or set SME2PROF_QEMU to its path"
_WHEEL = "make the package index reachable: the kit gets a compiler from its ziglang wheel"
_ANY: dict[Need, str] = {
    "C++ compiler": "install g++ or clang++, or set CXX",
    "aarch64 compiler": _WHEEL,
    "aarch64 C library": "set SME2PROF_SYSROOT to a folder with glibc, libgcc and libstdc++ for aarch64",
    "QEMU": f"install QEMU's user mode with qemu-aarch64 {_QEMU}",
    "git": "install git",
    "adb": "install Android's platform-tools",
    "venv": "install Python's venv and ensurepip modules, or use a Python that has them",
}
_DEBIAN: dict[Need, str] = {
    "C++ compiler": "apt install g++",
    "aarch64 compiler": "apt install g++-aarch64-linux-gnu",
    "aarch64 C library": "apt install libc6-arm64-cross libstdc++6-arm64-cross",
    "QEMU": f"apt install qemu-user from trixie-backports {_QEMU}",
    "git": "apt install git",
    "adb": "apt install adb",
    # Debian packages venv separately for each Python.
    "venv": f"apt install python{sys.version_info.major}.{sys.version_info.minor}-venv",
}
# Fedora's aarch64 compiler has no C++ library for aarch64, so it is not offered.
_FIXES: dict[str, dict[Need, str]] = {
    "debian": _DEBIAN,
    "ubuntu": {**_DEBIAN, "QEMU": f"install QEMU of Ubuntu 25.10 or newer {_QEMU}"},
    "macos": {
        "C++ compiler": "xcode-select --install",
        "git": "xcode-select --install",
        "adb": "brew install android-platform-tools",
    },
}


def system_family() -> str:
    """Return the system whose package names this one uses, by the ID in its os-release, or else by its
    ID_LIKE; empty for any other."""
    if sys.platform == "darwin":
        return "macos"
    try:
        fields = platform.freedesktop_os_release()
    except OSError:
        return ""
    return next((name for name in (fields["ID"], *fields.get("ID_LIKE", "").split()) if name in _FIXES), "")


def fix_for(need: Need) -> str:
    """Return how the owner of this system gets what is missing."""
    return _FIXES.get(system_family(), {}).get(need, _ANY[need])


# Packages from the mirror that this machine's apt already uses, with checked signatures. Needs no root and
# does not touch the system's apt: the client has its own private state.

_KEYRINGS = {
    "Debian": ("debian-archive-keyring.gpg", "debian-archive-keyring.pgp"),
    "Ubuntu": ("ubuntu-archive-keyring.gpg",),
}
_COMPONENTS = {"Debian": "main", "Ubuntu": "main universe"}
_TIMEOUT_S = 300


@dataclass(frozen=True, slots=True)
class Archive:
    """One release of a distribution on one mirror."""

    origin: str
    suite: str
    mirror: str

    def keyring(self, folder: Path = Path("/usr/share/keyrings")) -> Path | None:
        return next((folder / name for name in _KEYRINGS[self.origin] if (folder / name).is_file()), None)


def own_archive(cure: str) -> Archive:
    """Return the release and mirror of this machine; `cure` is the fix in the error if there is none."""
    missing = [tool for tool in ("apt-get", "dpkg") if shutil.which(tool) is None]
    if missing:
        raise SetupError(f"this machine has no {missing[0]}", cure)
    archive = _find_archive(os.environ.get("PATH", ""), os.environ.get("APT_CONFIG", ""))
    if archive is None:
        raise SetupError("apt on this machine has no mirror of Debian or Ubuntu configured", cure)
    return archive


@cache
def _find_archive(path: str, config: str) -> Archive | None:
    """Ask apt, which is slow, once per environment."""
    del path, config
    update = process.run(["apt-get", "--print-uris", "update"], timeout=60, env={"LC_ALL": "C"}).stdout
    return configured_archive(update, system_family())


def configured_archive(print_uris: str, family: str) -> Archive | None:
    """Return the repository with a whole release, from the answer of `apt-get --print-uris update`; updates,
    backports and security are suites of their own."""
    origin = family.capitalize()
    if origin not in _KEYRINGS:
        return None
    addresses = re.findall(r"^'(\S+?/)dists/([^/\s']+)/InRelease'", print_uris, re.MULTILINE)
    releases = [
        Archive(origin, suite, mirror)
        for mirror, suite in addresses
        if "-" not in suite and "security" not in mirror
    ]
    # Other vendors' repositories have the same suites; the distribution's own is at the top of its mirror.
    top = re.compile(rf"^[a-z+]+://[^/\n]+/{family}(-ports)?/$")
    return next((archive for archive in releases if top.match(archive.mirror)), None) or next(
        iter(releases), None
    )


def native_architecture() -> str:
    return process.run(["dpkg", "--print-architecture"], timeout=30).stdout.strip()


class Packages:
    """An apt with its own lists, caches and sources. Packages come from the suite `prefer` of the same
    archive if it has them, else from the archive's own."""

    def __init__(self, folder: Path, archive: Archive, cure: str, prefer: str | None = None) -> None:
        self.folder, self._cure, self._archive = folder, cure, archive
        keyring = archive.keyring()
        if keyring is None:
            raise SetupError(
                f"the {archive.origin} archive keyring is not installed, so nothing can be verified", cure
            )
        for part in ("state/lists/partial", "cache/archives/partial", "etc/parts"):
            (folder / part).mkdir(parents=True)
        (folder / "state/status").touch()
        suites = [archive.suite, *([prefer] if prefer else [])]
        lines = [
            f"deb [signed-by={keyring}] {shlex.quote(archive.mirror)} {suite} {_COMPONENTS[archive.origin]}\n"
            for suite in suites
        ]
        (folder / "etc/sources.list").write_text("".join(lines), encoding="utf-8")
        settings = [
            f"Dir::State={folder / 'state'}",
            f"Dir::State::status={folder / 'state/status'}",
            f"Dir::Cache={folder / 'cache'}",
            f"Dir::Etc::SourceList={folder / 'etc/sources.list'}",
            f"Dir::Etc::SourceParts={folder / 'etc/parts'}",
            f"Dir::Etc::PreferencesParts={folder / 'etc/parts'}",
            f"APT::Architectures={native_architecture()}",
            "APT::Sandbox::User=",
            "APT::Install-Recommends=false",
            "Acquire::Languages=none",
            "Acquire::Retries=2",
            "Acquire::http::Timeout=20",
            "Debug::NoLocking=true",
            *([f"APT::Default-Release={prefer}"] if prefer else []),
        ]
        self._options = [word for setting in settings for word in ("-o", setting)]
        current_progress().stage(f"reading {archive.origin}'s list of packages ({', '.join(suites)})")
        done = self.apt("update", "--error-on=any")
        if not done.ok:
            raise SetupError(f"the {archive.origin} mirror cannot be read: {_last_line(done)}", cure)

    def version(self, package: str) -> str | None:
        """Return the upstream version of `package`, without downloading it."""
        done = self.apt("download", "--print-uris", package)
        named = re.search(rf" {re.escape(package)}_(?:\d+%3a)?([^_\s]+)_\S+\.deb ", done.stdout)
        return named.group(1) if named else None

    def download(self, *packages: str) -> list[Path]:
        """Download these packages only."""
        names = ", ".join(packages)
        current_progress().stage(f"fetching {names} from {self._archive.origin}'s packages")
        done = self.apt("download", *packages)
        archives = sorted(self.folder.glob("*.deb"))
        if not done.ok or len(archives) < len(packages):
            problem = f"cannot download {names} from the {self._archive.origin} mirror: {_last_line(done)}"
            raise SetupError(problem, self._cure)
        return archives

    def unpack(self, archive: Path, into: Path, *, member: str | None = None) -> None:
        """Unpack `archive` under `into`: everything but documentation, or only `member`."""
        into.mkdir(parents=True, exist_ok=True)
        # Keep links to folders in `into`: that is how /lib and /usr/lib are merged.
        pipe = 'dpkg --fsys-tarfile "$1" | tar -x -C "$2" --no-same-owner --keep-directory-symlink "$3"'
        words = f"./{member}" if member else "--exclude=./usr/share"
        done = process.run(["sh", "-c", pipe, "sh", archive, into, words], timeout=_TIMEOUT_S)
        if not done.ok:
            raise SetupError(f"cannot unpack {archive.name}: {done.tail(1)}", self._cure)

    def apt(self, *words: str) -> process.Completed:
        command = ["apt-get", *self._options, *words]
        return process.run(command, timeout=_TIMEOUT_S, cwd=self.folder, env={"LC_ALL": "C"})


@contextlib.contextmanager
def packages_of(archive: Archive, cure: str, *, prefer: str | None = None) -> Iterator[Packages]:
    with tempfile.TemporaryDirectory(prefix="sme2prof-apt-") as folder:
        yield Packages(Path(folder), archive, cure, prefer)


def _last_line(done: process.Completed) -> str:
    if done.timed_out:
        return "no answer in time"
    lines = [line.removeprefix("E: ").strip() for line in done.stderr.splitlines() if line.startswith("E:")]
    return lines[-1] if lines else f"apt-get ended with {done.returncode}"
