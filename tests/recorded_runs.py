"""The recorded run directories of `tests/data/runs`: replayed by today's code, or copied to be spoilt."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from replay import ReplayTarget

from model_profiling.config import names
from model_profiling.config.reading import parse_config
from model_profiling.config.settings import ProfileConfig
from model_profiling.runs.journal import Journal
from model_profiling.workflow.measure import USUAL, RunOptions, RunOutcome, run_config

Json = dict[str, Any]
DATA = Path(__file__).parent / "data" / "runs"
ARM, EMULATED = DATA / "arm_without_sme2", DATA / "emulated_sme2"
X86_64, SME2 = DATA / "x86_64", DATA / "sme2_hardware"
PROGRAM = DATA / "programs" / "small_cnn_xnnpack_fp16.pte"
INT8 = DATA / "programs" / "small_cnn_xnnpack_int8.pte"
ROUNDS, RUNS, TURN = 6, 5, 4
"""Launches, turns of each traced program, and inferences in a turn."""

ON_AND_OFF: tuple[Json, ...] = tuple(
    {"name": f"linux_sme2_{switch}", "sme2": switch, "threads": [1]} for switch in ("on", "off")
)


def pair(baseline: str, candidate: str, label: str | None = None, threads: tuple[int, int] = (1, 1)) -> Json:
    """An entry of `compare_pairs`."""
    asked: Json = {
        "baseline": {"experiment": baseline, "threads": threads[0]},
        "candidate": {"experiment": candidate, "threads": threads[1]},
    }
    return asked if label is None else {**asked, "label": label}


def raw_config(
    run_dir: Path, experiments: Sequence[Json], *, program: Path = PROGRAM, **more: object
) -> Json:
    """A config file's content, for this machine unless `more` says another."""
    asked = {"model": str(program), "output_root": str(run_dir), "target": {"name": "host"}}
    return {**asked, "experiments": list(experiments), **more}


def make_config(
    run_dir: Path,
    experiments: Sequence[Json] = ON_AND_OFF,
    *,
    pairs: Sequence[Json] = (),
    program: Path = PROGRAM,
    **more: object,
) -> ProfileConfig:
    experiments = [{"runs": RUNS, "warmup": 1, **experiment} for experiment in experiments]
    asked = {"schedule": {"rounds": ROUNDS, "seed": 3}, "analysis": {"compare_pairs": list(pairs)}, **more}
    return parse_config(raw_config(run_dir, experiments, program=program, **asked), folder=run_dir.parent)


def replay(
    recorded: Path | ReplayTarget,
    run_dir: Path,
    experiments: Sequence[Json] = ON_AND_OFF,
    *,
    options: RunOptions = USUAL,
    **config: Any,
) -> RunOutcome:
    """Run a config in `run_dir` on what was recorded: the whole pipeline, without a process."""
    target = recorded if isinstance(recorded, ReplayTarget) else ReplayTarget(recorded)
    return run_config(make_config(run_dir, experiments, **config), options, target=target)


def emulated_experiments() -> list[Json]:
    once: Json = {"runs": 1, "warmup": 0}
    return [{"name": f"emulated_sme2_{switch}", "sme2": switch, **once} for switch in ("on", "off")]


def lay_out(
    folder: Path, recorded: Path = ARM, *, emulated: bool = True, threads: Sequence[int] = (1,)
) -> Path:
    """`out_small_cnn` in `folder` as `sme2prof profile` leaves it, with runs replayed by today's code.

    What SME2 and, where there are several counts, more threads bring is compared on the host.
    """
    out = folder / "out_small_cnn"
    shutil.copytree(PROGRAM.parent, out / "artifacts")
    program = out / "artifacts" / PROGRAM.name
    runs = out / "runs" / "xnnpack_fp16"
    if emulated:
        replay(EMULATED, runs / "emulated", emulated_experiments(), program=program)
    pairs = [pair("linux_sme2_off", "linux_sme2_on", "SME2")]
    pairs += [pair("linux_sme2_on", "linux_sme2_on", "threads", (1, more)) for more in threads[1:]]
    experiments = [{**experiment, "threads": list(threads)} for experiment in ON_AND_OFF]
    replay(recorded, runs / "linux", experiments, pairs=pairs, program=program)
    return out


def copied(home: Path, to: Path) -> Path:
    """A copy of a laid-out folder to spoil; its files name the copied program."""
    out = to / home.name
    shutil.copytree(home, out)
    for path in out.rglob("*.json"):
        path.write_text(path.read_text().replace(str(home), str(out)))
    return out


def dumps_in(folder: Path) -> list[Path]:
    """Every dump, those of later rounds too."""
    return sorted(path for path in folder.rglob(f"*{names.DUMP}*") if names.is_dump(path))


def load(path: Path) -> Json:
    content = json.loads(path.read_text())
    assert isinstance(content, dict)
    return content


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def medians(run_dir: Path) -> list[str]:
    """The latencies in a run's metrics, in their order and as they are shown."""
    return [f"{found['end_to_end_ms']['median']:.3f}" for found in load(run_dir / names.METRICS)["latencies"]]


def assert_same_figures(found: object, recorded: object, where: str = "") -> None:
    """The same keys and words, and numbers that agree to nine digits: libraries of mathematics differ in the
    last ones from one CPU to another."""
    if isinstance(recorded, dict) and isinstance(found, dict):
        assert found.keys() == recorded.keys(), where
        for key, value in recorded.items():
            assert_same_figures(found[key], value, f"{where}.{key}")
    elif isinstance(recorded, list) and isinstance(found, list):
        assert len(found) == len(recorded), where
        for number, (one, other) in enumerate(zip(found, recorded, strict=True)):
            assert_same_figures(one, other, f"{where}[{number}]")
    elif isinstance(recorded, float) and isinstance(found, float):
        assert found == pytest.approx(recorded, rel=1e-9, nan_ok=True), where
    else:
        assert found == recorded, where


def edit(path: Path, change: Callable[[Json], object]) -> None:
    """Change a JSON file in place."""
    content = load(path)
    change(content)
    path.write_text(json.dumps(content))


def rename_launches(run_dir: Path, rename: Callable[[str], str]) -> None:
    """As if it had been measured at another time."""
    launches = {entry.launch for entry in Journal(run_dir).entries() if entry.launch}
    for path in (run_dir / names.JOURNAL, run_dir / names.MANIFEST):
        text = path.read_text()
        for launch in launches:
            text = text.replace(launch, rename(launch))
        path.write_text(text)


def slow_down(run_dir: Path, factor: float, only: str = "*") -> None:
    def slow(stats: Json) -> None:
        rounds = stats["end_to_end_rounds_ms"]
        stats["end_to_end_rounds_ms"] = [[value * factor for value in latencies] for latencies in rounds]

    for path in run_dir.rglob(f"{only}_robust_stats.json"):
        edit(path, slow)


def put(path: Path, place: str, value: object) -> None:
    """Give one place of a JSON file, as `results.0.kernels`, another value."""

    def change(content: Json) -> None:
        at: Any = content
        *way, last = (int(key) if key.isdigit() else key for key in place.split("."))
        for key in way:
            at = at[key]
        if isinstance(at, list):
            at[last : last + 1] = [value]
        else:
            at[last] = value

    edit(path, change)
