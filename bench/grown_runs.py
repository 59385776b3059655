"""Run directories of any size, made of recorded ones: more series, more dumps, more events, more runs.

A small run is replayed by today's code from `tests/data/runs`; larger ones are copies of it in which every
file and every record that names an experiment is there as often as asked for. Nothing is measured, and the
figures in them are those of the recorded run, over and over.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from recorded_runs import ROUNDS, SME2, pair, replay
from strategies import Block, Dump, ProfileEvent

from model_profiling.config import names
from model_profiling.etdump import read_etdump

BASE_SERIES = 10
_EXPERIMENT = re.compile(r"(\d{4})(_sme2_(?:on|off))")
_TEXTS = (".json", ".jsonl", ".csv", ".log", ".md")
_MADE_LATER = (names.REPORT, names.KERNEL_VIEW, names.ANALYSIS)
"""What the commands that are measured write themselves."""


def base_run(run_dir: Path, series: int = BASE_SERIES) -> Path:
    """As many series, each SME2-off one compared with the SME2-on one of the same number."""
    numbers = range(series // 2)
    experiments = [
        {"name": f"{number:04}_sme2_{switch}", "sme2": switch, "threads": [1]}
        for number in numbers
        for switch in ("off", "on")
    ]
    pairs = [pair(f"{number:04}_sme2_off", f"{number:04}_sme2_on") for number in numbers]
    replay(SME2, run_dir, experiments, pairs=pairs)
    return run_dir


def recorded_run(run_dir: Path) -> Path:
    """The recorded run itself under such names, and of each series the first dump: quickly made."""
    for path in sorted(SME2.rglob("*")):
        place = Path(_numbered(str(path.relative_to(SME2))))
        if path.is_dir() or names.ROUNDS in place.parts or place.parts[0].startswith(_MADE_LATER):
            continue
        if path.suffix in _TEXTS:
            _write(run_dir / place, _numbered(path.read_text()))
        else:
            _copy(path, run_dir / place, 0)
    manifest = json.loads((run_dir / names.MANIFEST).read_text())
    for result in manifest["results"]:
        del result["etdump_rounds"][1:], result["etdump_launches"][1:]
    _write(run_dir / names.MANIFEST, json.dumps(manifest))
    return run_dir


def with_series(run_dir: Path, to: Path, times: int) -> Path:
    """A copy of a `base_run` with so many times its series and pairs."""
    step = 1 + max(int(found[1]) for place in run_dir.iterdir() if (found := _EXPERIMENT.match(place.name)))
    for path in sorted(run_dir.rglob("*")):
        place = path.relative_to(run_dir)
        if path.is_dir() or place.parts[0].startswith(_MADE_LATER) or path.suffix == names.HTML:
            continue
        if _EXPERIMENT.match(place.parts[0]):
            for copy in range(times):
                _copy(path, to / _renamed(str(place), copy * step), copy * step)
        elif path.name == names.JOURNAL:
            _write(to / place, "".join(_lines(path.read_text(), times, step)))
        elif path.suffix == ".json" and path.name != names.GRAPH:
            content = _multiplied(json.loads(path.read_text()), times, step)
            _write(to / place, json.dumps(_moved(content, run_dir, to)))
        else:
            _copy(path, to / place, 0)
    return to


def with_dumps(run_dir: Path, to: Path, times: int) -> Path:
    """A copy with so many times the launches of each series, and a dump for each; its figures are to be
    computed again (`sme2prof run CONFIG --analysis-only`)."""
    shutil.copytree(run_dir, to)
    files = names.RunFiles(to, "")
    lines = []
    for line in (to / names.JOURNAL).read_text().splitlines():
        entry = json.loads(line)
        for copy in range(times if entry["launch"] else 1):
            more = dict(entry)
            if copy:
                more["round"] += copy * ROUNDS
                more["launch"] = f"{entry['launch'][:-2]}{copy:02x}"
                if entry["etdump"]:
                    more["etdump"] = _copied_dump(files, entry, more["round"])
            lines.append(json.dumps(more) + "\n")
    _write(to / names.JOURNAL, "".join(lines))
    for name in (names.MANIFEST, names.CONFIG):
        content = _moved(json.loads((to / name).read_text()), run_dir, to)
        settings = content.get("settings", content)
        settings["schedule"]["rounds"] = times * ROUNDS
        if name == names.MANIFEST:
            schedule = content["schedule"]
            schedule.update(rounds=times * ROUNDS, rounds_done=times * ROUNDS)
            evidence, *rounds = schedule["order"]
            schedule["order"] = [evidence, *_more_rounds(rounds, times)]
        _write(to / name, json.dumps(content))
    return to


def with_events(run_dir: Path, to: Path, times: int) -> Path:
    """A copy in which every dump holds so many times the inferences."""
    shutil.copytree(run_dir, to)
    for path in [found for found in to.rglob("*") if names.is_dump(found)]:
        path.write_bytes(_longer(path, times))
    return to


def with_runs(run_dir: Path, to: Path, count: int) -> Path:
    """A folder of so many copies of a run."""
    for number in range(count):
        shutil.copytree(run_dir, to / f"run_{number:04}")
    return to


def _numbered(text: str) -> str:
    return text.replace("linux_sme2_", "0000_sme2_")


def _renamed(text: str, more: int) -> str:
    return _EXPERIMENT.sub(lambda found: f"{int(found[1]) + more:04}{found[2]}", text)


def _copy(path: Path, to: Path, more: int) -> None:
    if path.suffix in _TEXTS:
        _write(to, _renamed(path.read_text(), more))
    else:
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, to)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def _lines(text: str, times: int, step: int) -> list[str]:
    lines = text.splitlines(keepends=True)
    return [_renamed(line, copy * step) for copy in range(times) for line in lines]


def _multiplied(content: Any, times: int, step: int) -> Any:
    """Every list with what names an experiment in it as often as asked for."""
    if isinstance(content, dict):
        return {key: _multiplied(value, times, step) for key, value in content.items()}
    if not isinstance(content, list):
        return content
    if any(isinstance(entry, list) for entry in content):
        return [_multiplied(entry, times, step) for entry in content]
    once = [entry for entry in content if not _EXPERIMENT.search(json.dumps(entry))]
    often = [entry for entry in content if _EXPERIMENT.search(json.dumps(entry))]
    return [
        *once,
        *(json.loads(_renamed(json.dumps(entry), copy * step)) for copy in range(times) for entry in often),
    ]


def _moved(content: Any, run_dir: Path, to: Path) -> Any:
    return json.loads(json.dumps(content).replace(str(run_dir), str(to)))


def _more_rounds(rounds: list[list[str]], times: int) -> list[list[str]]:
    def later(key: str, copy: int) -> str:
        kind, number, rest = key.split("/", 2)
        return f"{kind}/{int(number) + copy * ROUNDS}/{rest}"

    return [[later(key, copy) for key in keys] for copy in range(times) for keys in rounds]


def _copied_dump(files: names.RunFiles, entry: dict[str, Any], number: int) -> str:
    source = files.path / entry["etdump"]
    home = source.parent.parent if source.parent.name == names.ROUNDS else source.parent
    stem = names.dump_stem(source.name)
    to = home / names.ROUNDS / f"{stem}_r{number}{names.ROUND_DUMP}"
    shutil.copyfile(source, to)
    return files.relative(to)


def _longer(path: Path, times: int) -> bytes:
    """The dump with its inferences over and over, each time later."""
    rows = read_etdump(path).to_pandas()
    length = int(rows.end_ns.max() - rows.start_ns.min()) + 1000
    inferences = [group for _, group in rows.groupby("run_index", sort=True)]
    return Dump(
        tuple(_block(group, copy * length) for copy in range(times) for group in inferences), True, False
    ).to_bytes()


def _block(rows: Any, late: int) -> Block:
    events = tuple(
        ProfileEvent(
            None if event.is_delegated else event.name,
            event.chain_index,
            event.instruction_id,
            event.delegate_id,
            event.delegate_name if event.is_delegated else None,
            None,
            event.start_ns + late,
            event.end_ns + late,
        )
        for event in rows.itertuples()
    )
    return Block("Execute", -1, (), events)
