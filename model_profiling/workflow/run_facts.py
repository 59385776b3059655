"""What a manifest says about the machine, the software and the command, as lines of a report."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from model_profiling.report.data import Fact
from model_profiling.workflow.run_files import FactsEntry, Manifest


def run_facts(manifest: Manifest | None) -> tuple[Fact, ...]:
    """What was measured, on what, with what; what is not known is left out."""
    return tuple(fact for fact in _facts(manifest) if fact.value) if manifest else ()


def commands(manifest: Manifest | None, run_dir: Path) -> tuple[str, ...]:
    """The commands that make the run and its report again."""
    report = shlex.join(("sme2prof", "report", str(run_dir)))
    if manifest is not None and manifest.command_line:
        return shlex.join(_typed(manifest.command_line)), report
    if manifest is not None and manifest.config_file:
        return shlex.join(("sme2prof", "run", manifest.config_file)), report
    return (report,)


def _facts(manifest: Manifest) -> Iterator[Fact]:
    yield Fact("Program", manifest.model)
    yield Fact("SHA-256", manifest.model_sha256)
    if manifest.machine.before is not None:
        yield from _machine(manifest.machine.before, manifest.machine.after)
    yield Fact("ExecuTorch", manifest.executorch.version or "")
    yield Fact("ExecuTorch commit", manifest.executorch.sha or "")
    yield Fact("Runner build", manifest.runner.build_id or "")
    yield Fact("Compiler", manifest.runner.compiler or "")
    yield Fact("Kit", manifest.kit_version)
    if manifest.sessions:
        yield Fact("Measured", manifest.sessions[0].started)
    if manifest.schedule.seed is not None:
        yield Fact("Seed of the order", str(manifest.schedule.seed))


def _machine(before: FactsEntry, after: FactsEntry | None) -> Iterator[Fact]:
    yield Fact("CPU", f"{before.cpu} ({before.cores} cores, {before.machine})")
    yield Fact("CPU features", " ".join(before.features) or "none that the kit switches")
    yield Fact("System", before.os)
    if before.memory_bytes:
        yield Fact("Memory", f"{before.memory_bytes / 2**30:.1f} GiB")
    yield Fact("Clock governor", before.governor or "not told")
    yield Fact("Load average", _change(before.load_average, after.load_average if after else None))
    yield Fact("Temperature", _change(before.temperature_c, after.temperature_c if after else None, " C"))
    for name, version in sorted(before.versions.items()):
        if name not in ("executorch", "compiler"):  # the manifest has them from the runner itself
            yield Fact(name, version)


def _change(before: float | None, after: float | None, unit: str = "") -> str:
    if before is None:
        return "not told"
    text = f"{before:.1f}{unit} before"
    return text if after is None else f"{text}, {after:.1f}{unit} after"


def _typed(words: Sequence[str]) -> Sequence[str]:
    """The command as it was typed; where the program was installed is no use to anyone else."""
    if Path(words[0]).name in ("sme2prof", "__main__.py"):
        return ("sme2prof", *words[1:])
    return words
