"""The installed ExecuTorch wheel as an SDK: headers, libraries and version."""

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
    """An ExecuTorch wheel, installed or unpacked, for one platform; or one built for Android with a wheel's
    layout, which its files do not show (hence `system`)."""

    root: Path
    version: str
    sha: str | None
    machine: str
    system: System | None = None

    @property
    def platform(self) -> Platform:
        """The platform of its libraries; from the files if `system` is not set."""
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
    """Return the wheel in this Python's environment, found without importing it."""
    folder = wheel_folder()
    if folder is None:
        raise SetupError("no wheel of ExecuTorch is installed in this Python", install_extra("executorch"))
    # The real path, so that environments that share a wheel share its runner.
    return sdk_at(folder.resolve(), this_platform().machine)


def sdk_at(root: Path, machine: str) -> Sdk:
    """Return the SDK under `root`, after checking for the parts that the runner needs."""
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
    """Return the fix for an incomplete wheel: an unpacked one is fetched again once it is removed."""
    if cache_root() in root.parents:
        return shlex.join(["rm", "-r", str(root.parent)])
    return reinstall("executorch", "executorch")


# Packages fetched on first use, pinned by hash like those that setup installs. The lock files beside this one
# are pip requirements files; `make lock` writes them.


def pip_words(package: str, version: str | None = None) -> tuple[str, ...]:
    """Return pip's arguments for `package` as locked. Another `version` has no hash here: it is only
    requested because it is already installed, which was someone's choice."""
    lock = Path(__file__).with_name(f"{package}.txt")
    locked = f"{package}=={version}"
    known = any(line.split(" ")[0] == locked for line in lock.read_text(encoding="utf-8").splitlines())
    return ("--require-hashes", "-r", str(lock)) if known or version is None else (locked,)
