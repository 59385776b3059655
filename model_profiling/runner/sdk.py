"""The installed ExecuTorch wheel seen as an SDK: headers, libraries, and which release it is."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from model_profiling.errors import SetupError
from model_profiling.executorch_wheel import wheel_folder
from model_profiling.own_commands import install_extra, reinstall
from model_profiling.runner.cache import cache_root
from model_profiling.runner.platforms import Platform, System, this_platform


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
