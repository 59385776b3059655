"""The installed ExecuTorch wheel seen as an SDK: headers, libraries, and which release it is."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from model_profiling.core.errors import SetupError
from model_profiling.core.hints import install_extra, reinstall, wheel_folder
from model_profiling.runner.cache import cache_root
from model_profiling.runner.features import Platform, System, this_platform


@dataclass(frozen=True, slots=True)
class Sdk:
    """A wheel of ExecuTorch, installed or unpacked, for one kind of machine; or one built for Android and
    laid out as a wheel is, which its files cannot tell (`system`)."""

    root: Path
    version: str
    sha: str | None
    machine: str
    system: System | None = None

    @property
    def platform(self) -> Platform:
        """What its libraries run on, by the files themselves where nothing else says."""
        if self.system is not None:
            return Platform(self.system, self.machine)
        on_macos = (self.libraries / "libexecutorch.dylib").is_file()
        return Platform("macos" if on_macos else "linux", self.machine)

    @property
    def include(self) -> Path:
        return self.root / "include"

    @property
    def libraries(self) -> Path:
        return self.root / "lib"


def installed_sdk() -> Sdk:
    """The wheel in this Python's environment, found without importing it."""
    folder = wheel_folder()
    if folder is None:
        raise SetupError("no wheel of ExecuTorch is installed in this Python", install_extra("executorch"))
    # By its real place: environments that share a wheel share the runner built for it.
    return sdk_at(folder.resolve(), this_platform().machine)


def sdk_at(root: Path, machine: str) -> Sdk:
    """The SDK under `root`, checked for the parts the runner is built from."""
    for part in ("version.py", "include/executorch/runtime/executor/method.h", "lib"):
        if not (root / part).exists():
            raise SetupError(f"the ExecuTorch in {root} has no {part}: it is no official wheel", _again(root))
    text = (root / "version.py").read_text(encoding="utf-8")
    version = re.search(r"__version__[^=\n]*=\s*['\"]([^'\"]+)['\"]", text)
    sha = re.search(r"git_version[^=\n]*=\s*['\"]([0-9a-f]{7,40})['\"]", text)
    if version is None:
        raise SetupError(f"the ExecuTorch in {root} does not say its version", _again(root))
    return Sdk(root, version.group(1), sha.group(1) if sha else None, machine)


def _again(root: Path) -> str:
    """What replaces a wheel that lacks something: one that was unpacked is fetched again when it is gone."""
    if cache_root() in root.parents:
        return shlex.join(["rm", "-r", str(root.parent)])
    return reinstall("executorch", "executorch")


# What the kit fetches from a package index when it is used, known by its hashes like what set-up installs.
# The locks beside this file are requirements files of pip; `make lock` writes them.


def pip_words(package: str, version: str | None = None) -> tuple[str, ...]:
    """What tells pip to take `package` as it is locked. Another `version` than that has no hash here: the one
    that is asked for is the one that is installed already, which was somebody's choice."""
    lock = Path(__file__).with_name(f"{package}.txt")
    locked = f"{package}=={version}"
    known = any(line.split(" ")[0] == locked for line in lock.read_text(encoding="utf-8").splitlines())
    return ("--require-hashes", "-r", str(lock)) if known or version is None else (locked,)
