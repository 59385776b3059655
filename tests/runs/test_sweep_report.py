"""Jobs of a sweep, measured by replay: the configs they make, how their cells end, and the sweep's page."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from recorded_runs import ARM, EMULATED, INT8, PROGRAM, RUNS, SME2, X86_64, load
from replay import ReplayTarget
from said import says

from model_profiling.config.sweep import load_sweep
from model_profiling.core.errors import InputError, RunError
from model_profiling.runs.begin import Start
from model_profiling.runs.measure import measure_runs
from model_profiling.sweep import dispatch
from model_profiling.sweep.cells import SweepFolder, cell_outcomes, jobs, open_sweep
from model_profiling.targets import Job as Process

TARGETS = ("host", "emulated", "ssh:fast", "android:GONE")


@pytest.fixture(scope="module")
def swept(arm_home: Path, sme2_home: Path, tmp_path_factory: pytest.TempPathFactory) -> SweepFolder:
    """A sweep over three machines and a phone that was not there."""
    place = tmp_path_factory.mktemp("swept")
    raw = {"name": "three", "models": [str(PROGRAM)], "targets": TARGETS}
    (place / "sweep.json").write_text(json.dumps(raw))
    sweep = load_sweep(place / "sweep.json")
    arm, sme2 = (home / "runs" / "xnnpack_fp16" for home in (arm_home, sme2_home))
    measured = {"host": arm / "linux", "emulated": arm / "emulated", "ssh:fast": sme2 / "linux"}
    with open_sweep(place / "out", sweep) as folder:
        for job in jobs(sweep):
            if job.target in measured:
                shutil.copytree(measured[job.target], folder.run_dir(job))
                folder.conclude(job)
            else:
                folder.fail(job, "there is no device GONE", "connect it")
        folder.end()
        return folder


def broken(process: Process) -> None:
    if process.disable:
        raise RunError("the program ended with signal 4", "leave that rung out", log_tail="")


def test_every_cell_ends_once_with_its_reason(swept: SweepFolder) -> None:
    assert swept.record.counts() == {"done": 6, "failed": 2}
    for failed in (each for each in swept.record.cells if each.state == "failed"):
        assert (failed.cell.target, failed.run_dir) == ("android:GONE", None)
        assert (failed.reason, failed.fix) == ("there is no device GONE", "connect it")
    done = {each.cell.target: each.run_dir for each in swept.record.cells if each.state == "done"}
    assert done["ssh:fast"] == f"runs/{PROGRAM.stem}/ssh-fast"


def test_the_page_shows_every_cell_and_no_latency_of_an_emulated_one(swept: SweepFolder) -> None:
    page, _ = dispatch.write_sweep_report(swept.path, swept.record)
    text = page.read_text()
    says(text.partition("\n")[0], "three", "6 of 8 cells", "2 failed")
    says(text, "there is no device GONE; connect it")
    _, _, below = text.partition("## Experiments")
    lines = [line for line in below.splitlines() if line.startswith("| [small_cnn")]
    shown = [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in lines]
    assert len(shown) == 5, "two thread counts on the host, on and off on ssh:fast, and the emulated run"
    (emulated,) = [row for row in shown if row[0].partition("](")[0].endswith("/emulated")]
    assert "no latency: not measured on hardware" in emulated
    fast = {row[-3] for row in shown if row[0].partition("](")[0].endswith("/ssh-fast")}
    medians = {f"{each['end_to_end_ms']['median']:.3f}" for each in load(SME2 / "metrics.json")["latencies"]}
    assert len(fast) == 2 and fast <= medians
    linked = set(re.findall(r"\]\(([^)]*)\)", text))
    assert len(linked) == 3 and all((swept.path / file).is_file() for file in linked)
    assert (swept.path / "report.html").is_file()


def test_the_command_shows_what_came_of_it(swept: SweepFolder, sme2prof, monkeypatch, tmp_path: Path) -> None:
    """Measuring has tests of its own; here its answer is the sweep above."""
    monkeypatch.setattr(dispatch, "run_sweep", lambda *_: swept)
    words = ("sweep", swept.path.parent / "sweep.json", "--outdir", swept.path)
    shown = sme2prof(*words, "--store", tmp_path / "store")
    assert shown.returncode == 2
    says(shown.stdout, "6 of 8 cells", "2 failed", str(tmp_path / "store"))
    assert shown.stderr.strip().splitlines()[-1].startswith("error: ")
    facts = json.loads(sme2prof(*words, "--no-store", "--json").stdout)
    assert facts["counts"] == {"done": 6, "failed": 2} and facts["store"] is None

    def interrupted(*_: object) -> SweepFolder:
        raise KeyboardInterrupt

    monkeypatch.setattr(dispatch, "run_sweep", interrupted)
    cut = sme2prof(*words, "--no-store")
    assert cut.returncode == 130
    says(cut.stderr, f"sme2prof sweep {words[1]} --outdir {swept.path} --no-store --resume")


def test_rungs_become_experiments_that_are_compared_with_on(tmp_path: Path) -> None:
    rungs = ["on", "off", {"name": "no_dot", "disable": ["dotprod"]}]
    raw = {"name": "rungs", "models": [str(INT8)], "threads": [1, 2], "rungs": rungs}
    raw |= {"power_mode": "boost"}
    (tmp_path / "s.json").write_text(json.dumps(raw))
    (job,) = jobs(load_sweep(tmp_path / "s.json"))
    config = job.config(INT8, tmp_path / "run", ReplayTarget(SME2))
    found = {each.name: (each.sme2, each.switched_off, each.threads) for each in config.experiments}
    assert found == {
        "linux_sme2_on": ("on", (), (1, 2)),
        "linux_sme2_off": ("off", ("sme2", "sme"), (1, 2)),
        "linux_no_dot": ("on", ("i8mm", "dotprod"), (1, 2)),
    }
    assert [str(pair.baseline) for pair in config.pairs] == [
        "linux_sme2_off, 1 thread", "linux_sme2_off, 2 threads", "linux_no_dot, 1 thread",
        "linux_no_dot, 2 threads",
    ]  # fmt: skip
    assert config.method is None
    cases = {"toy_cnn": [{"method": "decode", "values": {"at": [5]}}, {"sizes": {"x": [1, 8]}}]}
    (tmp_path / "s.json").write_text(json.dumps({**raw, "models": [str(INT8), "toy_cnn"], "cases": cases}))
    planned = jobs(load_sweep(tmp_path / "s.json"))
    made = [each.config(INT8, tmp_path / "run", ReplayTarget(SME2)) for each in planned]
    assert [(each.method, each.inputs.sizes, each.inputs.values) for each in made] == [
        (None, {}, {}), ("decode", {}, {"at": (5,)}), (None, {"x": (1, 8)}, {}),
    ]  # fmt: skip
    (tmp_path / "s.json").write_text(json.dumps({**raw, "rungs": ["ladder"]}))
    (job,) = jobs(load_sweep(tmp_path / "s.json"))
    ladder = job.config(INT8, tmp_path / "run", ReplayTarget(ARM))
    assert ladder.experiments[0].name.startswith("linux_upto_")
    assert all(each.threads == (1, 2) for each in ladder.experiments)
    emulated = job.config(INT8, tmp_path / "run", ReplayTarget(EMULATED))
    assert emulated.experiments[0].runs == 1 and emulated.schedule.timeout_s == 3600
    with pytest.raises(InputError, match="ladder"):
        job.config(INT8, tmp_path / "run", ReplayTarget(X86_64))


def test_a_rung_that_fails_is_one_cell_that_failed(tmp_path: Path) -> None:
    raw = {"name": "one", "models": [str(PROGRAM)], "runs": RUNS, "schedule": {"rounds": 6, "seed": 3}}
    (tmp_path / "s.json").write_text(json.dumps(raw))
    (job,) = jobs(load_sweep(tmp_path / "s.json"))
    target = ReplayTarget(SME2, before=broken)
    measure_runs([job.config(PROGRAM, tmp_path / "run", target)], target, Start())
    ended = cell_outcomes(job, tmp_path / "run")
    assert [(record.state, record.reason) for record in ended] == [
        ("done", ""), ("failed", "the program ended with signal 4"),
    ]  # fmt: skip
    assert {record.state for record in cell_outcomes(job, tmp_path / "nothing")} == {"failed"}
