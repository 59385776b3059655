"""The CMake presets of source-built runners, and their way into a checkout's CMakeUserPresets.json."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling import files
from model_profiling.errors import FormatError, InputError

SHIPPED = Path(__file__).resolve().parents[2] / "scripts" / "presets" / "runner_presets.json"
USER_PRESETS = "CMakeUserPresets.json"
_OWNER = "sme2-profiling-kit"
_LISTS = ("configurePresets", "buildPresets")
_SYSTEM_OF = {"mac-arm64": "Darwin", "linux-arm64": "Linux"}


@dataclass(frozen=True, slots=True)
class RunnerPreset:
    """One runner to build: where it will run, with or without SME kernels, with or without XNNPACK's log."""

    name: str
    platform: str
    sme2: bool
    xnnlog: bool
    cache_variables: Mapping[str, str]

    @property
    def runs_here(self) -> bool:
        """Whether the built runner can be started on this machine."""
        return platform.system() == _SYSTEM_OF.get(self.platform) and _host_is_arm64()

    @property
    def builds_here(self) -> bool:
        """Android is cross-compiled by its NDK; the others are built where they run."""
        return self.is_android or self.runs_here

    @property
    def is_android(self) -> bool:
        return self.platform.startswith("android")

    @property
    def counterpart(self) -> str:
        """The preset that differs from this one in the SME switches only."""
        rest = self.name.removeprefix(self.platform)
        return self.platform + (rest.removeprefix("-sme2-off") if not self.sme2 else f"-sme2-off{rest}")


def ndk_is_named() -> bool:
    return bool(os.environ.get("ANDROID_NDK") or os.environ.get("ANDROID_NDK_HOME"))


def _host_is_arm64() -> bool:
    return platform.machine().lower() in ("arm64", "aarch64")


def runner_presets() -> dict[str, RunnerPreset]:
    """Every preset the kit ships, by name, with its inheritance resolved."""
    shipped = _read(SHIPPED)
    presets = _by_name(SHIPPED, shipped, "configurePresets")
    found: dict[str, RunnerPreset] = {}
    for name, preset in presets.items():
        if preset.get("hidden"):
            continue
        found[name] = RunnerPreset(
            name=name,
            platform=name.removesuffix("-xnnlog").removesuffix("-sme2-off"),
            sme2="-sme2-off" not in name,
            xnnlog=name.endswith("-xnnlog"),
            cache_variables=_resolve(presets, name),
        )
    return found


def choose_presets(wanted: Sequence[str]) -> list[RunnerPreset]:
    """The presets behind names, or behind `timing`, `xnnlog` and `all`: those that can be built here.

    Groups hold those of Android where the environment names an NDK; by name they can always be had.
    """
    known = runner_presets()
    usual = [
        preset for preset in known.values() if preset.runs_here or (preset.is_android and ndk_is_named())
    ]
    groups = {
        "timing": [preset.name for preset in usual if not preset.xnnlog],
        "xnnlog": [preset.name for preset in usual if preset.xnnlog],
        "all": [preset.name for preset in usual],
    }
    names = [name for word in wanted for name in groups.get(word, [word])]
    chosen = []
    for name in dict.fromkeys(names):
        if name not in known:
            raise InputError(f"no preset is called {name}", f"choose from {', '.join([*known, *groups])}")
        if not known[name].builds_here:
            raise InputError(
                f"{name} cannot be built on this machine ({platform.system()} {platform.machine()})",
                "build it on a machine of that kind",
            )
        chosen.append(known[name])
    return chosen


def merge_presets(checkout: Path) -> bool:
    """Put the kit's presets into the checkout's user presets; whatever else is there stays as it is.

    Tracked files are not touched. Returns whether anything had to be written.
    """
    path = checkout / USER_PRESETS
    present = _read(path) if path.exists() else {}
    merged = merged_presets(path, present, _names_tracked(checkout))
    if merged == present:
        return False
    files.write_json(path, merged)
    return True


def merged_presets(
    path: Path, present: Mapping[str, object], tracked: frozenset[str] = frozenset()
) -> dict[str, object]:
    """The user presets `present` with the kit's presets in their current form, and no older form of them."""
    shipped = _read(SHIPPED)
    version = present.get("version", 0)
    merged: dict[str, object] = {
        **present,
        "version": max(_version(path, version), _version(SHIPPED, shipped["version"])),
    }
    for kind in _LISTS:
        theirs = {
            name: preset for name, preset in _by_name(path, present, kind).items() if not _is_ours(preset)
        }
        ours = [{**preset, "vendor": {_OWNER: {}}} for preset in _by_name(SHIPPED, shipped, kind).values()]
        for preset in ours:
            name = str(preset["name"])
            if name in theirs or (kind == "configurePresets" and name in tracked):
                where = path if name in theirs else path.with_name("CMakePresets.json")
                raise InputError(
                    f"{where} already has a preset called {name}",
                    "rename or remove it; the kit needs the name",
                )
        merged[kind] = [*theirs.values(), *ours]
    return merged


def _is_ours(preset: Mapping[str, object]) -> bool:
    vendor = preset.get("vendor")
    return isinstance(vendor, dict) and _OWNER in vendor


def _names_tracked(checkout: Path) -> frozenset[str]:
    path = checkout / "CMakePresets.json"
    return frozenset(_by_name(path, _read(path), "configurePresets")) if path.exists() else frozenset()


def _version(path: Path, version: object) -> int:
    if not isinstance(version, int):
        raise FormatError(f"{path}: version is {version!r}", "a presets file has a whole number there")
    return version


def _read(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise InputError(f"cannot read {path}: {problem.strerror}", "check its permissions") from problem
    except ValueError as problem:
        raise FormatError(f"{path} is not JSON: {problem}", "correct it or move it away") from problem
    if not isinstance(content, dict):
        raise FormatError(f"{path} is not a presets file", "correct it or move it away")
    return content


def _by_name(path: Path, content: Mapping[str, object], kind: str) -> dict[str, dict[str, object]]:
    listed = content.get(kind, [])
    if not isinstance(listed, list) or not all(isinstance(item, dict) and "name" in item for item in listed):
        raise FormatError(f"{path}: {kind} is not a list of named presets", "correct it or move it away")
    return {str(item["name"]): item for item in listed}


def _resolve(presets: Mapping[str, Mapping[str, object]], name: str) -> dict[str, str]:
    """A preset's cache variables with those it inherits; what is named first wins, as in CMake."""
    preset = presets[name]
    own = preset.get("cacheVariables", {})
    assert isinstance(own, dict)
    found = {str(key): str(value) for key, value in own.items()}
    parents = preset.get("inherits", [])
    assert isinstance(parents, list)
    for parent in parents:
        found = {**_resolve(presets, str(parent)), **found}
    return found
