"""Run directories of the kit before this one, in each of its layouts, go through every command.

What its runs cannot say (the machine, a latency without the tracer) is said to be missing, never made up.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from recorded_runs import ARM, DATA, PROGRAM, SME2, edit, load, replay

from model_profiling.config.series import Series
from model_profiling.core.errors import FormatError, InputError
from model_profiling.etdump import read_etdump
from model_profiling.runs import Manifest, Run, Times
from model_profiling.runs.begin import settle_earlier
from model_profiling.runs.folders import runs_in
from model_profiling.validation.validate import validate
from model_profiling.workflow.analyse import analyse
from model_profiling.workflow.measure import RunOptions

ON, OFF = "mac_sme2_on", "mac_sme2_off"
STEM = PROGRAM.stem
_LOGS = {f"{ON}_xnntrace": "toy_fp16_sme2on.log", f"{OFF}_xnntrace": "toy_fp16_sme2off.log"}
LAYOUTS = {
    "flat": f"{STEM}_{{}}_t1.etdump",
    "folders": "{0}/{0}_t1.etdump",
    "bare": f"{STEM}_{{}}_t1.etdump",
    "bare, named after the experiment": "{}_t1.etdump",
}
"""Where the dump of an experiment lies. Only dumps, in one folder; with a summary; or with a folder for each
experiment, manifest, metrics and an analysis."""


def recorded_dump(experiment: str) -> Path:
    """The recorded dump that stands for `experiment`; its runs are all told."""
    switch = "on" if experiment == ON else "off"
    return SME2 / f"linux_sme2_{switch}" / f"{STEM}_linux_sme2_{switch}_t1.etdump"


def latencies_ms(experiment: str) -> list[float]:
    """`Method::execute` of every run."""
    table = read_etdump(recorded_dump(experiment))
    chosen = table.name == table.name_index("Method::execute")
    return [ns / 1e6 for ns in table.duration_ns[chosen].tolist()]


def lay_out(out: Path, layout: str) -> Path:
    """`out_small_cnn` with its program and a run directory: dumps, traces, and whatever that kit wrote beside
    them, which is kept in `tests/data/earlier_kit`, with paths as of another machine."""
    shutil.copytree(PROGRAM.parent, out / "out_small_cnn" / "artifacts")
    run_dir, written = out / "out_small_cnn" / "runs" / "mac", DATA.parent / "earlier_kit" / layout
    shutil.copytree(written, run_dir) if written.is_dir() else run_dir.mkdir(parents=True)
    for experiment in (ON, OFF):
        shutil.copy(recorded_dump(experiment), run_dir / LAYOUTS[layout].format(experiment))
    for experiment, log in _LOGS.items() if layout == "flat" else ():
        shutil.copy(DATA.parent / "xnntrace" / log, run_dir / f"{STEM}_{experiment}_t1_xnntrace.log")
    return run_dir


ON_1, OFF_1 = Series(ON, 1), Series(OFF, 1)


@pytest.fixture(params=LAYOUTS)
def run_dir(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return lay_out(tmp_path, request.param)


def states(run_dir: Path) -> dict[str, str]:
    return {check.name: check.status for check in validate(run_dir).checks}


def test_series_and_sides_follow_from_their_names_and_nothing_is_claimed(run_dir: Path) -> None:
    run = Run.open(run_dir)
    assert {ON_1, OFF_1} <= set(run.series) and {dump.series for dump in run.dumps} == {ON_1, OFF_1}
    assert (run.sme2_of(ON_1), run.sme2_of(OFF_1)) == (True, False)
    assert run.times is Times.UNKNOWN and {dump.times for dump in run.dumps} == {Times.UNKNOWN}
    (pair,) = run.pairs
    assert (pair.baseline, pair.candidate) == (OFF_1, ON_1)
    assert pair.not_comparable is not None
    assert [remark.code for remark in run.warnings] == ["unknown_machine"]
    said = Run.open(run_dir, times=Times.HARDWARE)
    assert said.times is Times.HARDWARE and said.pairs[0].not_comparable is None


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
def test_every_command_takes_them(run_dir: Path, tmp_path: Path, sme2prof) -> None:
    assert validate(run_dir).ok, validate(run_dir).as_text()
    done = sme2prof("analyze", run_dir)
    assert done.ok and "without latencies or speedups" in done.stderr.replace("\n", " ")
    named = next(run_dir.rglob("*.etdump")).name.startswith(STEM) or Run.open(run_dir).manifest
    assert bool(named) is ("features.0" in done.stdout), "the program beside the runs explains the operators"
    found = {entry["experiment"]: entry for entry in load(run_dir / "analysis_summary.json")["per_etdump"]}
    for experiment in (ON, OFF):
        latencies = sorted(latencies_ms(experiment))
        typical = latencies[len(latencies) // 4 : len(latencies) - len(latencies) // 4]
        assert found[experiment]["e2e_ms"] == pytest.approx(sum(typical) / len(typical))
    every: tuple[tuple[object, ...], ...] = (
        ("report", run_dir, "--for", "perfetto"),
        ("compare", run_dir, run_dir),
        ("validate", run_dir),
    )
    if list(run_dir.glob("*_pipeline_summary.json")):
        # Pages are large; what they are made of is asked for in every layout.
        every += (
            ("view", run_dir, "--no-browser"),
            ("report", run_dir, "--share", "--out", tmp_path / "shared.html"),
            ("report", run_dir, "--zip", "--out", tmp_path / "run.zip"),
        )
    for words in every:
        done = sme2prof(*words)
        assert done.ok, (words, done.stdout, done.stderr)
    page = (run_dir / "report.md").read_text()
    assert not re.search(r"\d\.\d\dx", page), "a speedup"
    dump = next(run_dir.rglob("*_t1.etdump"))
    assert sme2prof("analyze", dump, "--out", tmp_path / "one").ok
    assert analyse(dump).series[0].times is Times.UNKNOWN


def test_the_users_word_makes_times_of_them_and_they_still_validate(run_dir: Path, sme2prof) -> None:
    done = sme2prof("analyze", run_dir, "--times", "hardware")
    assert done.ok and "1 round" in done.stdout
    assert "with the event tracer on" in done.stdout, "a traced time is no latency"
    assert validate(run_dir).ok, validate(run_dir).as_text()


def test_without_manifest_and_metrics_validate_remarks_and_exits_0(tmp_path: Path, sme2prof) -> None:
    flat, folders = lay_out(tmp_path / "a", "flat"), lay_out(tmp_path / "b", "folders")
    assert states(flat)["manifest"] == "skipped" and states(flat)["files"] == "optional"
    (folders / "metrics.json").unlink()
    assert states(folders) | {"files": "optional"} == states(folders) and validate(folders).ok
    (folders / "manifest.json").unlink()
    assert states(folders)["manifest"] == "skipped" and sme2prof("validate", folders).returncode == 0
    next(flat.glob("*_latency.log")).unlink()
    next(folders.rglob("*.etdump")).write_bytes(b"ED00")
    assert states(folders)["dumps"] == "fail", "what is here is still looked at"


def test_a_summary_names_the_traced_experiments_and_their_kernels(tmp_path: Path) -> None:
    run_dir = lay_out(tmp_path, "flat")
    run = Run.open(run_dir)
    assert run.series == (ON_1, OFF_1, *(Series(name, 1) for name in _LOGS))
    assert run.model_name == STEM and not run.results[2].etdump
    facts = analyse(run_dir)
    traced = {found.experiment: found.sme2 for found in run.results if found.kernels}
    assert traced == dict(zip(_LOGS, ("on", "off"), strict=True))
    assert not any("missing" in warning.seen for warning in facts.warnings)
    for listed in run_dir.glob("*_kernels.csv"):
        listed.unlink()
    assert validate(run_dir).ok and "2 lists" in validate(run_dir).as_text(), "the logs still tell"


def test_a_dump_that_was_lost_is_told(tmp_path: Path) -> None:
    run_dir = lay_out(tmp_path, "folders")
    (run_dir / ON / f"{ON}_t1.etdump").unlink()
    assert any("missing" in remark.seen for remark in Run.open(run_dir).warnings)
    assert states(run_dir)["files"] == "fail"


def test_a_folder_of_them_is_several_runs(tmp_path: Path, sme2prof) -> None:
    mac = lay_out(tmp_path, "flat")
    android = mac.with_name("android")
    lay_out(tmp_path / "other", "folders").rename(android)
    assert runs_in(mac.parent) == (android, mac)
    done = sme2prof("report", mac, android, "--out", tmp_path / "combined.md")
    assert done.ok and (tmp_path / "combined.md").is_file()
    assert sme2prof("view", mac.parent, "--no-browser").ok


@pytest.mark.parametrize("layout", ["flat", "folders"])
def test_a_new_run_keeps_them_under_their_date(tmp_path: Path, layout: str) -> None:
    run_dir = lay_out(tmp_path, layout)
    with pytest.raises(InputError, match=r"earlier kit; .*sme2prof analyze"):
        replay(ARM, run_dir, program=PROGRAM, options=RunOptions(analysis_only=True))
    if layout == "flat":
        kept = settle_earlier(run_dir, Manifest(results=()), resume=False, force=False)[1]
        assert kept is not None and kept == run_dir.with_name("mac-20251220-101112") and Run.open(kept).dumps
        return
    done = replay(ARM, run_dir, program=PROGRAM)
    assert done.moved == run_dir.with_name("mac-20251220-101112")
    assert Run.open(done.moved).dumps and load(run_dir / "manifest.json")["schema_version"] == 3


@pytest.mark.parametrize(
    "content",
    [
        {"results": []},
        {"model": "m.pte"},
        {"model": 7, "results": []},
        {"model": "m.pte", "results": [7]},
        {"model": "m.pte", "results": [{"experiment": ["a"]}]},
        {"model": "m.pte", "results": [{"metrics": {"threads": 1}}]},
    ],
)
def test_what_only_looks_like_one_is_refused(tmp_path: Path, content: dict[str, object]) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(FormatError, match=r"manifest\.json: "):
        Run.open(tmp_path)


def test_odd_entries_do_not_lead_out_of_the_run(tmp_path: Path) -> None:
    run_dir = lay_out(tmp_path, "folders")
    outside = str(next(ARM.rglob("*.etdump")))

    def elsewhere(manifest: dict[str, list[dict[str, dict[str, object]]]]) -> None:
        manifest["results"][0]["metrics"].update(etdump=outside, etdump_rel=f"../../{PROGRAM.name}")

    edit(run_dir / "manifest.json", elsewhere)
    assert {dump.path.parent.parent for dump in Run.open(run_dir).dumps} == {run_dir}
