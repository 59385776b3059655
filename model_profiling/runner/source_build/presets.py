"""Fetches ExecuTorch's sources and adds the kit's CMake presets to CMakeUserPresets.json."""

from __future__ import annotations

import platform
import shlex
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError, SetupError
from model_profiling.core.process import run
from model_profiling.core.progress import Progress, Silent
from model_profiling.core.records import read_json_object
from model_profiling.runner.features import is_arm
from model_profiling.runner.source_build.toolchain import named_ndk

SHIPPED = Path(__file__).resolve().parents[2] / "scripts" / "presets" / "runner_presets.json"
USER_PRESETS = "CMakeUserPresets.json"
_OWNER = "sme2-profiling-kit"
_LISTS = ("configurePresets", "buildPresets")
_SYSTEM_OF = {"mac-arm64": "Darwin", "linux-arm64": "Linux"}


@dataclass(frozen=True, slots=True)
class RunnerPreset:
    """One runner to build: its platform, with or without SME kernels, with or without XNNPACK's log."""

    name: str
    platform: str
    sme2: bool
    xnnlog: bool
    cache_variables: Mapping[str, str]

    @property
    def runs_here(self) -> bool:
        return is_arm(platform.machine()) and platform.system() == _SYSTEM_OF.get(self.platform)

    @property
    def builds_here(self) -> bool:
        """The NDK cross-compiles for Android; others are built where they run."""
        return self.is_android or self.runs_here

    @property
    def is_android(self) -> bool:
        return self.platform.startswith("android")

    @property
    def counterpart(self) -> str:
        """The preset that differs from this one in the SME switches only."""
        rest = self.name.removeprefix(self.platform)
        return self.platform + (f"-sme2-off{rest}" if self.sme2 else rest.removeprefix("-sme2-off"))


def runner_presets() -> dict[str, RunnerPreset]:
    """Return every preset that the kit ships, by name, with inheritance resolved."""
    shipped = {preset["name"]: preset for preset in _read(SHIPPED)["configurePresets"]}

    def variables(name: str) -> dict[str, str]:
        """Return its own and inherited variables; the first definition wins, as in CMake."""
        own = {key: str(value) for key, value in shipped[name].get("cacheVariables", {}).items()}
        parents = shipped[name].get("inherits", [])
        return dict(ChainMap(own, *map(variables, [parents] if isinstance(parents, str) else parents)))

    return {
        name: RunnerPreset(
            name=name,
            platform=name.removesuffix("-xnnlog").removesuffix("-sme2-off"),
            sme2="-sme2-off" not in name,
            xnnlog=name.endswith("-xnnlog"),
            cache_variables=variables(name),
        )
        for name, preset in shipped.items()
        if not preset.get("hidden")
    }


def choose_presets(wanted: Sequence[str]) -> list[RunnerPreset]:
    """Return the presets by name, or by group (`timing`, `xnnlog`, `all`): those that can be built here.
    Groups include Android's if the environment names an NDK; by name they are always available."""
    known = runner_presets()
    usual = [preset for preset in known.values() if preset.runs_here or (preset.is_android and named_ndk())]
    groups = {
        "timing": [preset.name for preset in usual if not preset.xnnlog],
        "xnnlog": [preset.name for preset in usual if preset.xnnlog],
        "all": [preset.name for preset in usual],
    }
    names = dict.fromkeys(name for word in wanted for name in groups.get(word, [word]))
    for name in names:
        if name not in known:
            raise InputError(f"there is no preset {name}", f"choose from {', '.join([*known, *groups])}")
        if not known[name].builds_here:
            raise InputError(
                f"{name} cannot be built on this machine ({platform.system()} {platform.machine()})",
                "build it on a machine of that kind",
            )
    return [known[name] for name in names]


def merge_presets(checkout: Path) -> bool:
    """Write the kit's current presets into the checkout's user presets and leave the rest as it is. Tracked
    files are not touched. Returns whether anything had to be written."""
    path, tracked = checkout / USER_PRESETS, checkout / "CMakePresets.json"
    present, shipped = _read(path), _read(SHIPPED)
    merged = {**present, "version": max(present.get("version", 0), shipped["version"])}
    for kind in _LISTS:
        theirs = [
            preset
            for preset in present.get(kind, [])
            if not (isinstance(vendor := preset.get("vendor"), dict) and _OWNER in vendor)
        ]
        taken = {preset["name"]: tracked for preset in _read(tracked).get(kind, [])}
        taken |= {preset["name"]: path for preset in theirs}
        if clash := next((preset["name"] for preset in shipped[kind] if preset["name"] in taken), None):
            # Earlier versions of the kit wrote their presets into the file that git tracks.
            undo = shlex.join(["git", "-C", str(checkout), "checkout", tracked.name])
            fix = f"undo it ({undo}) or rename it" if taken[clash] == tracked else "rename or remove it"
            raise InputError(
                f"{taken[clash]} already has a preset called {clash}", f"{fix}; the kit needs this name"
            )
        merged[kind] = [*theirs, *({**preset, "vendor": {_OWNER: {}}} for preset in shipped[kind])]
    if merged == present:
        return False
    files.write_json(path, merged)
    return True


def _read(path: Path) -> dict[str, Any]:
    fix = "correct it or move it away"
    content = read_json_object(path, fix) if path.exists() else {}
    if not isinstance(content.get("version", 0), int):
        raise FormatError(f"{path}: version is not a whole number", fix)
    for kind in _LISTS:
        listed = content.get(kind, [])
        if not isinstance(listed, list) or not all(
            isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in listed
        ):
            raise FormatError(f"{path}: {kind} is not a list of named presets", fix)
    return content


URL = "https://github.com/pytorch/executorch.git"
# Git config keys that record what was fetched completely.
_REF, _COMMIT = "sme2prof.ref", "sme2prof.commit"
_LIMIT = 3600.0


def fetch_source(url: str, ref: str, dest: Path, *, progress: Progress | None = None) -> str:
    """Make `dest` a checkout of `ref` (tag, branch or commit) of `url`; return the commit. A complete
    checkout of the same ref is left alone, without network access. An interrupted one is resumed. A checkout
    with local changes is never switched to another commit."""
    say = progress or Silent()
    if dest.exists() and not _holds_nothing(dest) and not (dest / ".git").exists():
        raise InputError(f"{dest} exists but is not a git checkout", "choose another folder")
    files.make_folder(dest)
    if not (dest / ".git").exists():
        _git(dest, "init", "--quiet")
    head = ask_git(dest, "rev-parse", "--verify", "--quiet", "HEAD")
    if head and _is_complete(dest, ref, head):
        return head
    _git(dest, "config", "remote.origin.url", url)
    _git(dest, "config", "remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*")
    say.stage(f"fetching {ref}")
    _git(dest, "fetch", "--quiet", "--depth", "1", "--no-tags", "origin", ref)
    commit = _git(dest, "rev-parse", "FETCH_HEAD^{commit}")
    changes = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules")
    if head not in (None, commit) and _git(dest, *changes):
        raise InputError(f"{dest} has uncommitted changes", f"commit or undo them before fetching {ref}")
    say.stage(f"checking out {commit[:12]}")
    _git(dest, "checkout", "--quiet", "--detach", commit)
    say.stage("fetching submodules")
    _git(dest, "submodule", "--quiet", "sync", "--recursive")
    _git(dest, "submodule", "--quiet", "update", "--init", "--recursive", "--depth=1", "--jobs=4")
    _git(dest, "config", _REF, ref)
    _git(dest, "config", _COMMIT, commit)
    return commit


def can_be_fetched(dest: Path) -> bool:
    """Whether a checkout can go to `dest`: nothing is there yet, or its fetching was interrupted."""
    if dest.resolve().name != "executorch" or (dest / "CMakeLists.txt").is_file():
        return False
    return not dest.exists() or (dest.is_dir() and ((dest / ".git").exists() or _holds_nothing(dest)))


def _holds_nothing(dest: Path) -> bool:
    """Whether `dest` is empty, or holds only runners."""
    return all(path.name == "cmake-out" for path in dest.iterdir())


def ask_git(folder: Path, *words: str) -> str | None:
    done = run(["git", "-C", folder, *words], timeout=300)
    return done.stdout.strip() if done.ok else None


def _is_complete(dest: Path, ref: str, head: str) -> bool:
    if (ask_git(dest, "config", _REF), ask_git(dest, "config", _COMMIT)) != (ref, head):
        return False
    modules = _git(dest, "submodule", "status", "--recursive").splitlines()
    return not any(line.startswith(("-", "U")) for line in modules)


def _git(dest: Path, *words: str) -> str:
    # A password prompt would wait for ever; this makes git fail instead.
    done = run(["git", "-C", dest, *words], timeout=_LIMIT, env={"GIT_TERMINAL_PROMPT": "0"})
    if done.timed_out:
        raise SetupError(f"git {words[0]} took longer than {_LIMIT:.0f} s", "run it again: it continues")
    if not done.ok:
        said = done.tail(1) or f"exit code {done.returncode}"
        raise SetupError(
            f"git {words[0]} failed: {said}", "check the address, the ref and the network; then run again"
        )
    return done.stdout.strip()
