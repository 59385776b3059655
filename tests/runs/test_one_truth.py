"""Whatever run is made, and whatever happens to it: its files and its report state one set of verdicts."""

from __future__ import annotations

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

ANSWERS = [verdict.value for verdict in Verdict if verdict is not Verdict.NOT_COMPARABLE]
Stated = list[tuple[str, str]]
SUMMARY, METRICS = "analysis_summary.json", "metrics.json"


@dataclass
class Case:
    """One run to make, and what then happens to it."""

    recorded: Path
    threads: dict[str, list[int]]
    """Of each experiment, whose name says what SME2 is."""
    rounds: int = 3
    pairs: tuple[Json, ...] = ()
    lost: tuple[str, int] = ("nothing", 0)
    """Which files get lost, and how many of them."""
    failing: str = ""
    interrupted_after: int | None = None
    resumed: bool = False
    jobs: list[Job] = field(default_factory=list)

    @property
    def experiments(self) -> list[Json]:
        """Each is told by its extra argument; `trace` only traces kernels."""
        runs = {"runs": 1, "warmup": 0} if self.recorded == EMULATED else {"runs": RUNS}
        return [
            {"name": name, "sme2": "off" if name.endswith("off") else "on", "extra_args": [name], **runs}
            | ({"mode": "xnntrace"} if name == "trace" else {"threads": threads})
            for name, threads in self.threads.items()
        ]

    def before(self, job: Job) -> None:
        """What happens instead of a process."""
        self.jobs.append(job)
        if self.interrupted_after is not None and len(self.jobs) > self.interrupted_after:
            self.interrupted_after = None
            raise KeyboardInterrupt
        if job.extra_args[0] == self.failing:
            raise RunError("the runner crashed with SIGILL", "look at the log")


ONE, BOTH = [1], [1, 2]
MINE = (pair("b_sme2_off", "b_sme2_on", "mine | yours"),)
CASES = {
    "cut short": Case(X86_64, {"a_sme2_on": BOTH}, 1, lost=("*.etdump", 2), interrupted_after=13),
    "no summary": Case(ARM, {"a_sme2_on": ONE, "a_sme2_off": ONE}, 1, lost=(SUMMARY, 1)),
    "no dumps": Case(SME2, {"b_sme2_on": ONE, "b_sme2_off": ONE}, pairs=MINE, lost=("*.etdump", 99)),
    "two couples": Case(
        ARM, {"b_sme2_on": BOTH, "b_sme2_off": BOTH, "plain_sme2_off": ONE, "plain_sme2_on": BOTH}, 1,
        lost=("*_robust_stats.json", 1),
    ),
    "one fails": Case(EMULATED, {"a_sme2_on": ONE, "a_sme2_off": ONE}, failing="a_sme2_off"),
    "resumed": Case(SME2, {"plain_sme2_on": ONE, "trace": ONE}, interrupted_after=7, resumed=True),
    "no metrics": Case(SME2, {"b_sme2_on": BOTH, "b_sme2_off": ONE}, 1, pairs=MINE, lost=(METRICS, 1)),
}  # fmt: skip


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
    section_of_page = text.partition("\n## Latency\n")[2].partition("\n## ")[0].splitlines()
    in_text = [line for line in section_of_page if line.startswith("|") and line.endswith("|")]
    for label, verdict in expected:
        escaped = label.replace("|", r"\|")
        assert any(line.startswith(f"| {escaped}") and line.endswith(f"| {verdict} |") for line in in_text)


def make_run(case: Case, run_dir: Path) -> None:
    target = ReplayTarget(case.recorded, before=case.before)
    config: Json = {"pairs": case.pairs, "schedule": {"rounds": case.rounds, "seed": 3}}
    try:
        replay(target, run_dir, case.experiments, **config)
    except KeyboardInterrupt:
        if case.resumed:
            replay(target, run_dir, case.experiments, options=RunOptions(resume=True), **config)


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


SLOW = list(CASES)[3:]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in CASES]
)
def test_every_file_states_the_same_pairs_and_verdicts(tmp_path: Path, name: str) -> None:
    case, run_dir = CASES[name], tmp_path / "linux"
    make_run(case, run_dir)
    if (run_dir / "metrics.json").exists() and Run.open(run_dir).dumps:
        found = [stated(run_dir, name) for name in (SUMMARY, METRICS, "*_pipeline_summary.json")]
        assert found[0] == found[1] == found[2]
    if not Run.open(run_dir).dumps and not (run_dir / "metrics.json").exists():
        return  # cut short before anything was measured
    before = assert_one_truth(run_dir)
    pattern, count = case.lost
    for path in sorted(run_dir.rglob(pattern))[:count]:
        path.unlink()
    if Run.open(run_dir).series:
        after = assert_one_truth(run_dir)
        assert [label for label, _ in after] == [label for label, _ in before]


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
