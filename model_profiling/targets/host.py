"""The machine this Python runs on."""

from __future__ import annotations

import os
import platform
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from model_profiling.core import process
from model_profiling.runner.build import RunnerBuild, build_runner
from model_profiling.runner.features import host_features, mac_says, sysctl
from model_profiling.runner.machine import FILES, MachineAnswers, MachineFacts, PlatformName, TargetChoice
from model_profiling.runner.result import read_report
from model_profiling.targets.execution import Route, Target, Transport


def host_facts(build: RunnerBuild | None, **versions: str) -> MachineFacts:
    """Return the current facts of this machine, with the versions of `build` and the caller."""
    versions = {"python": platform.python_version(), **(build.versions if build else {}), **versions}
    facts = _mac_facts(versions) if sys.platform == "darwin" else this_machine().facts(versions)
    return replace(facts, features=tuple(sorted(host_features())))


def this_machine() -> MachineAnswers:
    texts = {
        name: {str(path): _read(path) or "" for path in Path("/").glob(pattern.lstrip("/"))}
        for name, pattern in FILES.items()
    }
    kernel = {"machine": platform.machine(), "system": platform.release()}
    return MachineAnswers({**texts, **{name: {"-": text} for name, text in kernel.items()}})


def _mac_facts(versions: Mapping[str, str]) -> MachineFacts:
    memory, source = (
        sysctl("hw.memsize"),
        re.search(r"drawing from '([^'\n]+)'", mac_says("pmset", "-g", "batt")),
    )
    return MachineFacts(
        cpu=sysctl("machdep.cpu.brand_string") or platform.machine(),
        machine=platform.machine(),
        cores=os.cpu_count() or 1,
        os=f"macOS {mac_says('sw_vers', '-productVersion').strip() or platform.mac_ver()[0]}".strip(),
        memory_bytes=int(memory) if memory.isdecimal() else None,
        versions=dict(versions),
        on_battery=source[1] == "Battery Power" if source else None,
    )


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def custom_operators(build: RunnerBuild) -> tuple[Path, ...]:
    """Return the libraries with the custom operators of ExecuTorch's language models, in the order to open
    them: they are made for PyTorch, and need Python's own. Empty if this installation does not have them."""
    folder = build.library_path.parent / "extension" / "llm" / "custom_ops"
    own, operators = Path(str(sysconfig.get_config_var("LIBDIR"))), folder / "libcustom_ops_aot_lib.so"
    named = [str(sysconfig.get_config_var(name)) for name in ("INSTSONAME", "LDLIBRARY")]
    python = [own / name for name in named if ".so" in name and (own / name).is_file()]
    return (python[0], operators) if python and operators.is_file() else ()


class HostTarget(Target):
    name = "host"
    choice = TargetChoice("host")
    platform: PlatformName = "mac" if sys.platform == "darwin" else "linux"
    place: str = platform
    timings_are_latency = True

    def prepare(self) -> None:
        if self.build is None:
            self.build = build_runner()

    def _route(self) -> Route:
        if self.build is None:
            return Route((), Transport())
        return Route((str(self.build.path),), Transport(), (self.build.library_path,))

    def operators(self) -> frozenset[str] | None:
        return self._operators(()) if self.build else None

    def libraries_with(self, operators: Iterable[str]) -> tuple[Path, ...]:
        libraries = custom_operators(self.build) if self.build else ()
        return libraries if libraries and self._operators(libraries).issuperset(operators) else ()

    def _operators(self, libraries: Sequence[Path]) -> frozenset[str]:
        assert self.build is not None
        words = [word for path in libraries for word in ("--library", path)]
        answer = process.run([*self._prefix, self.build.path, "--features-only", *words], timeout=300)
        return read_report(answer.stdout).operators if answer.ok or not libraries else frozenset()

    @property
    def _prefix(self) -> tuple[str, ...]:
        """What starts the runner."""
        return ()

    def facts(self) -> MachineFacts:
        return host_facts(self.build)
