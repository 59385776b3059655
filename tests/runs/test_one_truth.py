"""Whatever run is made, and whatever happens to it: its files and its report state one set of verdicts.

Runs are drawn from a seed: which machine, which experiments, what is compared, what fails, what gets lost.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pages import section, tables
from recorded_runs import ARM, EMULATED, RUNS, SME2, X86_64, Json, load, pair, replay
from replay import ReplayTarget

from model_profiling.core.errors import RunError
from model_profiling.report.data import ReportData
from model_profiling.report.document import render_markdown
from model_profiling.report.run_report import run_document
from model_profiling.runs import Run
from model_profiling.statistics.speedup import Verdict
from model_profiling.targets import Job
from model_profiling.workflow.analyse import analyse, write_analysis
from model_profiling.workflow.measure import RunOptions
from model_profiling.workflow.report import gather_report, write_report

SEEDS = (10239, 10240, 10243, 10246, 10247, 10248, 10249)
"""Few that reach every kind of run; each costs seconds."""
ONCE = "metrics.json", "analysis_summary.json", "*_robust_stats.json"
LOSSES = [*((name, 1) for name in ONCE), ("*.etdump", 2), ("*.etdump", 99)]
"""Which files get lost, and how many of them."""
ANSWERS = [verdict.value for verdict in Verdict if verdict is not Verdict.NOT_COMPARABLE]
Stated = list[tuple[str, str]]
SUMMARY, METRICS = "analysis_summary.json", "metrics.json"


@dataclass
class Drawn:
    """One run to make, and what then happens to it."""

    recorded: Path
    experiments: list[Json]
    pairs: list[Json]
    rounds: int
    failing: set[str]
    interrupted_after: int | None
    resumed: bool
    lost: tuple[str, int]
    jobs: list[Job] = field(default_factory=list)

    def before(self, job: Job) -> None:
        """What happens instead of a process: an experiment is told by its extra argument."""
        self.jobs.append(job)
        if self.interrupted_after is not None and len(self.jobs) > self.interrupted_after:
            self.interrupted_after = None
            raise KeyboardInterrupt
        if job.extra_args[0] in self.failing:
            raise RunError("the runner crashed with SIGILL", "look at the log")


def draw(seed: int) -> Drawn:
    dice = random.Random(seed)
    recorded = dice.choice([ARM, X86_64, SME2, SME2, EMULATED])
    runs = {"runs": 1, "warmup": 0} if recorded == EMULATED else {"runs": RUNS}
    experiments: list[Json] = []
    for couple in dice.sample(["a", "b", "plain"], dice.randint(1, 2)):
        for switch in dice.choice([("on", "off"), ("off", "on"), ("on", "off"), ("on",)]):
            name, threads = f"{couple}_sme2_{switch}", dice.choice([[1], [1], [1, 2]])
            about = {"name": name, "sme2": switch, "threads": threads, "extra_args": [name]}
            experiments.append({**about, **runs})
    if dice.random() < 0.2:
        trace = {"name": "trace", "mode": "xnntrace", "extra_args": ["trace"], "sme2": "on"}
        experiments.append({**trace, **runs})
    timed = [experiment for experiment in experiments if "mode" not in experiment]
    pairs = []
    if dice.random() < 0.4 and len(timed) > 1:
        before, after = dice.sample(timed, 2)
        threads = dice.choice(before["threads"]), dice.choice(after["threads"])
        pairs.append(pair(before["name"], after["name"], dice.choice([None, "mine | yours"]), threads))
    names = [experiment["name"] for experiment in experiments]
    rounds = dice.choice([1, 3, 3])
    failing = {dice.choice(names)} if dice.random() < 0.25 and len(names) > 1 else set()
    interrupted_after = dice.randint(1, 14) if dice.random() < 0.3 else None
    resumed, lost = dice.random() < 0.5, dice.choice([("nothing", 0), *LOSSES])
    return Drawn(recorded, experiments, pairs, rounds, failing, interrupted_after, resumed, lost)


def stated(run_dir: Path, pattern: str) -> Stated:
    """The pairs and verdicts of a file."""
    (path,) = run_dir.glob(pattern)
    found = load(path)
    pairs = found["pairs"] if pattern == SUMMARY else found["comparisons"]
    return [(entry["label"], entry["e2e" if pattern == SUMMARY else "speedup"]["verdict"]) for entry in pairs]


def assert_the_page_says(data: ReportData, text: str, expected: Stated) -> None:
    """Where times are no latencies, the page has no answer at all."""
    page = run_document(data)
    assert text == render_markdown(page)
    if not data.timed:
        assert not [word for word in ANSWERS if f" {word} " in text]
        return
    shown = [row for rows in tables(section(page, "Latency"), "comparison") for row in rows]
    assert [(row[0].removesuffix(" (with the tracer)"), row[-1]) for row in shown] == expected
    in_text = [line for line in section_of(text, "Latency") if line.startswith("|") and line.endswith("|")]
    for label, verdict in expected:
        escaped = label.replace("|", r"\|")
        assert any(line.startswith(f"| {escaped}") and line.endswith(f"| {verdict} |") for line in in_text)


def section_of(text: str, heading: str) -> list[str]:
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0].splitlines()


def make_run(drawn: Drawn, run_dir: Path) -> None:
    target = ReplayTarget(drawn.recorded, before=drawn.before)
    config: Json = {"pairs": drawn.pairs, "schedule": {"rounds": drawn.rounds, "seed": 3}}
    try:
        replay(target, run_dir, drawn.experiments, **config)
    except KeyboardInterrupt:
        if drawn.resumed:
            replay(target, run_dir, drawn.experiments, options=RunOptions(resume=True), **config)


def assert_one_truth(run_dir: Path) -> Stated:
    """What every file that is there says, and what is written anew."""
    run = Run.open(run_dir)
    if run.dumps:
        write_analysis(analyse(run))
    report, data = write_report(run_dir)
    expected = [(found.label, found.speedup.verdict.value) for found in data.pairs]
    assert [label for label, _ in expected] == [found.label for found in run.pairs]
    assert not [found.label for found in data.pairs if found.pair.not_comparable and found.comparable]
    if run.dumps:
        assert stated(run_dir, SUMMARY) == expected
    if run.metrics is not None and run.manifest is not None:
        assert stated(run_dir, METRICS) == expected
    assert_the_page_says(data, report.read_text(), expected)
    return expected


@pytest.mark.parametrize(
    "seed", [*SEEDS[:3], *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[3:])]
)
def test_every_file_states_the_same_pairs_and_verdicts(tmp_path: Path, seed: int) -> None:
    drawn, run_dir = draw(seed), tmp_path / "linux"
    make_run(drawn, run_dir)
    if (run_dir / "metrics.json").exists() and Run.open(run_dir).dumps:
        found = [stated(run_dir, name) for name in (SUMMARY, METRICS, "*_pipeline_summary.json")]
        assert found[0] == found[1] == found[2]
    if not Run.open(run_dir).dumps and not (run_dir / "metrics.json").exists():
        return  # cut short before anything was measured
    before = assert_one_truth(run_dir)
    pattern, count = drawn.lost
    for path in sorted(run_dir.rglob(pattern))[:count]:
        path.unlink()
    if Run.open(run_dir).series:
        after = assert_one_truth(run_dir)
        assert [label for label, _ in after] == [label for label, _ in before]


def test_what_is_drawn_reaches_every_kind_of_run() -> None:
    drawn = [draw(seed) for seed in SEEDS]
    assert {one.recorded for one in drawn} == {ARM, X86_64, SME2, EMULATED}
    assert {one.lost for one in drawn} == {("nothing", 0), *LOSSES}
    assert any(one.lost == LOSSES[-1] for one in drawn if one.recorded == SME2 and one.rounds > 1)
    cut_short = [one for one in drawn if one.interrupted_after is not None]
    assert any(one.failing for one in drawn) and {one.resumed for one in cut_short} == {True, False}
    assert any(one.pairs for one in drawn)
    assert any(len(one.experiments) == 4 and not one.pairs for one in drawn), "two couples, nothing asked for"


@pytest.mark.parametrize("recorded", [ARM, X86_64, SME2, EMULATED], ids=lambda path: path.name)
def test_a_lost_manifest_leaves_one_truth(recorded: Path, tmp_path: Path) -> None:
    once: Json = {"runs": 1, "warmup": 0} if recorded == EMULATED else {}
    experiments = [{"name": f"x_sme2_{switch}", "sme2": switch, **once} for switch in ("on", "off")]
    run_dir = replay(recorded, tmp_path / "linux", experiments).run_dir
    (run_dir / "manifest.json").unlink()
    # Nothing else may call a time a latency, so no answer stands: not even the one that metrics.json holds.
    none = set() if recorded in (ARM, X86_64) else {Verdict.NOT_COMPARABLE.value}
    assert {verdict for _, verdict in assert_one_truth(run_dir)} == none
    assert not [finding.id for finding in gather_report(run_dir).findings if "sme2" in finding.id]
