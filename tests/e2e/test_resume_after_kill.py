"""Kill -9 at any moment of a run, then resume: the same set of results, nothing lost, nothing doubled."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import ROOT

from model_profiling.runs.journal import Journal
from model_profiling.validation.validate import validate

ROUNDS = 3
SEED = 20261115


@dataclass(frozen=True)
class Trial:
    """One killed and resumed run."""

    run_dir: Path
    kept: dict[str, int]
    """Steps that were done when the kill came, with how often the journal names each."""
    resumed: subprocess.CompletedProcess[bytes]


def write_config(folder: Path, model: Path) -> Path:
    folder.mkdir()
    experiments = [{"name": name, "runs": 2, "warmup": 0} for name in ("one", "two")]
    config = {
        "model": str(model),
        "output_root": str(folder / "run"),
        "target": {"name": "host"},
        "experiments": experiments,
        "schedule": {"rounds": ROUNDS, "seed": 1, "budget_s": 2},
        "analysis": {"compare_pairs": [{"baseline": "two", "candidate": "one"}]},
    }
    (folder / "c.json").write_text(json.dumps(config))
    return folder


def start(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "model_profiling", "run", "c.json", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finished(child: subprocess.Popen[bytes]) -> subprocess.CompletedProcess[bytes]:
    out, err = child.communicate(timeout=120)
    return subprocess.CompletedProcess(child.args, child.returncode, out, err)


def journal_lines(run_dir: Path) -> dict[str, int]:
    """How often each step was finished, over all sessions."""
    found: dict[str, int] = {}
    try:
        content = (run_dir / "journal.jsonl").read_bytes()
    except FileNotFoundError:
        return found
    for line in content[: content.rfind(b"\n") + 1].splitlines():
        entry = json.loads(line)
        key = f"{entry['kind']}/{entry['round']}/{entry['experiment']}/t{entry['threads']}"
        found[key] = found.get(key, 0) + 1
    return found


def killed_and_resumed(folder: Path, moment: tuple[int, float]) -> Trial:
    """Kill a run some time after so many of its processes have finished; a loaded machine changes neither."""
    processes, delay = moment
    child = start(folder)
    while child.poll() is None and sum(journal_lines(folder / "run").values()) < processes:
        time.sleep(0.002)
    time.sleep(delay)
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=60)
    kept = journal_lines(folder / "run")
    return Trial(folder / "run", kept, finished(start(folder, "--resume")))


def names(run_dir: Path) -> set[str]:
    """Every file. Which pictures a report has depends on how many inferences a turn held, and so on the
    machine."""
    return {path.relative_to(run_dir).as_posix() for path in run_dir.rglob("*") if path.suffix != ".svg"}


def shape(run_dir: Path) -> Any:
    """What a run found, without the figures that differ from run to run."""
    manifest = json.loads((run_dir / "manifest.json").read_text())
    metrics = json.loads((run_dir / "metrics.json").read_text())
    rows = [(one["experiment"], one["threads"], one["state"], one["rounds"]) for one in manifest["results"]]
    counts = [(one["experiment"], one["way"], one["rounds"]) for one in metrics["latencies"]]
    return manifest["state"], rows, counts, [one["parity"]["verdict"] for one in metrics["parity"]]


def check_counts(run_dir: Path) -> None:
    """Every inference in the journal that counts is in the statistics, once; launches are whole and alike."""
    journal = Journal(run_dir)
    entries = [entry for entry in journal.entries() if entry.kind == "untraced"]
    launches = {
        entry.round: {each.launch for each in entries if each.round == entry.round} for entry in entries
    }
    assert all(len(found) == 1 for found in launches.values())
    assert all(found != {None} for found in launches.values())
    for latency in json.loads((run_dir / "metrics.json").read_text())["latencies"]:
        own = [entry for entry in entries if entry.experiment == latency["experiment"]]
        kept = journal.latencies_ms(own[0].series, journal.rounds_of(own[0].series))
        assert latency["end_to_end_ms"]["count"] == sum(map(len, kept))
        assert len({(len(entry.turns_ns), len(entry.iterations_ns)) for entry in own}) == 1


def test_kills_at_any_moment_lose_nothing_and_double_nothing(exported, tmp_path: Path) -> None:
    model = exported("toy_cnn", "fp16").pte
    reference = write_config(tmp_path / "reference", model)
    whole = finished(start(reference))
    assert whole.returncode == 0, whole.stderr.decode()
    planned = set(journal_lines(reference / "run"))
    assert len(planned) == 2 + 2 * 2 * ROUNDS

    draw = random.Random(SEED)
    # In the first half: while this waits for a core, a run goes on, and must not have ended.
    amid = (draw.randint(1, len(planned) // 2), draw.uniform(0, 0.05))
    # Before the first process starts, and while the results are analysed and written.
    moments = (amid, (0, draw.uniform(0, 1)), (len(planned), draw.uniform(0.1, 1)))
    folders = [write_config(tmp_path / f"kill{number}", model) for number in range(len(moments))]
    with ThreadPoolExecutor(2) as pool:
        trials = list(pool.map(killed_and_resumed, folders, moments))

    for trial in trials:
        assert trial.resumed.returncode == 0, trial.resumed.stderr.decode()
        assert shape(trial.run_dir) == shape(reference / "run")
        check_counts(trial.run_dir)
        assert names(trial.run_dir) == names(reference / "run")
        valid = validate(trial.run_dir)
        assert valid.ok, valid.as_text()
        assert {entry.step.key for entry in Journal(trial.run_dir).entries()} == planned
        lines = journal_lines(trial.run_dir)
        repeated = {key for key, count in lines.items() if count > 1}
        # Only the round the kill fell into may have been measured again, and never the evidence.
        assert len({key.split("/")[1] for key in repeated}) <= 1
        assert not any(key.startswith("evidence/") for key in repeated)
        assert repeated <= set(trial.kept)
    assert 0 < len(trials[0].kept) < len(planned), "the kill fell before the first or after the last process"
