"""`sme2prof view STORE`: recorded runs, added to a store, on one page with their reports."""

from __future__ import annotations

import copy
import json
import random
import re
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from browser.in_chromium import Opened
from made_runs import BEGINNING, MadeRun, make_run, recorded
from recorded_runs import ARM, EMULATED, SME2, X86_64

from model_profiling.report.document import plain
from model_profiling.report.store_index import Kernels, StoreContents, StoredRun, answers
from model_profiling.run import Times
from model_profiling.store.run_rows import Labels
from model_profiling.store.store import Store
from model_profiling.workflow.history import store_contents
from model_profiling.workflow.view import page_to_view

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`runs` of four machines, of which one has a page and one has been thrown away, and `store`."""
    folder = tmp_path_factory.mktemp("many & days")
    for run in (ARM, EMULATED, SME2, X86_64):
        shutil.copytree(run, folder / "runs" / run.name)
    labels = Labels(commit=COMMIT, branch="main", dirty=True, tags=("good",))
    Store.open(folder / "store", make=True).add([folder / "runs"], labels)
    (folder / "runs" / SME2.name / "report.html").write_text("its report")
    (folder / "runs" / ARM.name / "report.md").unlink()
    shutil.rmtree(folder / "runs" / X86_64.name)
    return folder


@pytest.fixture(scope="module")
def contents(home: Path) -> StoreContents:
    return store_contents(Store.open(home / "store"), home / "store")


def _by_device(contents: StoreContents) -> dict[str, StoredRun]:
    return {run.device.partition(",")[0]: run for run in contents.runs}


def test_runs_are_told_with_what_is_proven_and_where_their_reports_are(contents: StoreContents) -> None:
    runs = _by_device(contents)
    assert set(runs) == {"Neoverse-N1", "made SME2 CPU", "made x86_64 CPU", "emulated"}
    assert {(run.model, run.format, run.commit, run.tags) for run in runs.values()} == {
        ("small_cnn", "xnnpack fp16", f"{COMMIT[:10]}+", ("good",))
    }
    kernels = {device: run.kernels for device, run in runs.items()}
    assert kernels.pop("made SME2 CPU") is Kernels.RAN
    assert set(kernels.values()) == {Kernels.RAN_EMULATED}
    assert runs["emulated"].times is Times.EMULATED
    assert runs["made SME2 CPU"].report == f"../runs/{SME2.name}/report.html"
    assert runs["emulated"].report == f"../runs/{EMULATED.name}/report.md"
    assert (runs["Neoverse-N1"].report, runs["made x86_64 CPU"].report) == ("", "")
    assert "no report" in runs["Neoverse-N1"].no_report and "not there" in runs["made x86_64 CPU"].no_report


def test_a_store_is_viewed_at_its_address(home: Path, tmp_path: Path, sme2prof, monkeypatch) -> None:
    """`file://` goes the way of `s3://`; a path would have lost a slash of either."""
    monkeypatch.setenv("SME2PROF_CACHE", str(tmp_path / "cache"))
    page, words = tmp_path / "page.html", ("view", f"file://{home / 'store'}", "--no-browser")
    nowhere = sme2prof(*words)
    assert nowhere.returncode == 2 and "--out" in nowhere.stderr
    done = sme2prof(*words, "--out", page)
    assert done.returncode == 0, done.stderr
    assert "Neoverse-N1" in page.read_text() and "<h1>Runs in store</h1>" in page.read_text()


def test_a_history_for_every_series_and_one_that_speaks_for_each_device(contents: StoreContents) -> None:
    own = [history for history in contents.histories if history.key.device_name.startswith("made SME2 CPU")]
    assert {(history.key.experiment, history.key.threads) for history in own} == {
        (f"linux_sme2_{switch}", threads) for switch in ("on", "off") for threads in (1, 2)
    }
    (headline,) = (history for history in own if history.key in contents.headlines)
    assert (headline.key.experiment, headline.key.threads) == ("linux_sme2_on", 1)
    (point,) = headline.points
    assert point.low_ms and point.high_ms and point.low_ms < point.median_ms < point.high_ms
    assert not [history for history in contents.histories if history.key.device == "emulated"]


def test_the_page_leads_to_the_reports(home: Path, opened: Callable[..., Opened]) -> None:
    viewed = page_to_view(home / "store")
    assert viewed.path == home / "store" / "store_index.html"
    assert {run.resolve().name for run in viewed.runs} == {SME2.name, EMULATED.name}
    found = opened(viewed.path)
    assert not found.complaints
    assert len(found.texts(".card")) == 3
    card = found.page.locator(".card", has_text="made SME2 CPU")
    assert "0.666 ms" in card.inner_text()
    card.locator("svg a").click()
    assert found.page.url.endswith(f"/runs/{SME2.name}/report.html")
    assert found.page.locator("body").inner_text() == "its report"


def test_a_latency_that_went_up_is_told(tmp_path: Path) -> None:
    """Runs a day apart, the last eight 6% slower, the last four of another kit."""
    told, chance = recorded(), random.Random(3)
    told_later = copy.deepcopy(told)
    told_later["manifest.json"]["kit_version"] = "9.9"
    for day in range(24):
        slower = (1.06 if day >= 16 else 1.0) * chance.gauss(1, 0.005)
        made = MadeRun(day, slower, started=BEGINNING + timedelta(days=day), operators=1)
        make_run(tmp_path / "runs" / f"{day}", made, told_later if day >= 20 else told)
    store = Store.open(tmp_path / "store", make=True)
    store.add([tmp_path / "runs"], Labels(commit=""))
    contents = store_contents(store, tmp_path)
    (history,) = (history for history in contents.histories if history.key in contents.headlines)
    (change,) = history.changes
    assert f"{history.points[change.first].at:%Y-%m-%d}" == "2026-01-17"
    assert change.change == pytest.approx(0.06, abs=0.01)
    (mark,) = history.marks
    assert history.marks_at(change) == () and mark.text.startswith("kit ")
    assert f"{history.points[mark.first].at:%Y-%m-%d}" == "2026-01-21"
    _, answer = answers(contents).entries[1]
    assert re.match(r"Yes\b.*\b1 of 1 history.*small_cnn xnnpack fp16.*made x86_64 CPU", plain(answer))
    assert 0 < history.found.false_alarms < 0.05


def test_a_run_that_was_kept_aside_keeps_its_own_report(tmp_path: Path) -> None:
    """The same sweep every night: its folder holds the last one, those before lie under their dates."""
    told, sweep = recorded(), tmp_path / "sweep_nightly"
    store = Store.open(tmp_path / "store", make=True)
    for day in range(3):
        begun = BEGINNING + timedelta(days=day)
        if day:
            kept = (begun - timedelta(days=1, minutes=2)).astimezone().strftime("%Y%m%d-%H%M%S")
            sweep.rename(tmp_path / f"sweep_nightly-{kept}")
        run_dir = sweep / "runs" / "small_cnn" / "host"
        make_run(run_dir, MadeRun(day, 1.0, started=begun, operators=1), told)
        (run_dir / "report.html").write_text(f"day {day}")
        store.add([sweep], Labels(commit=""))
    pages = [(tmp_path / run.report).read_text() for run in store_contents(store, tmp_path).runs]
    assert pages == ["day 0", "day 1", "day 2"]
    shutil.rmtree(next(tmp_path.glob("sweep_nightly-*")))
    gone = [run.no_report for run in store_contents(store, tmp_path).runs]
    assert sum("not there" in why for why in gone) == 1, "another night's report is not its own"


def test_elsewhere_links_are_relative_to_the_page(home: Path, tmp_path: Path) -> None:
    out = tmp_path / "a page" / "list.html"
    contents = store_contents(Store.open(home / "store"), out.parent)
    (run, *_) = (run for run in contents.runs if run.report.endswith(".html"))
    assert (out.parent / run.report).resolve() == home / "runs" / SME2.name / "report.html"
    assert page_to_view(home / "store", out).path == out and out.is_file()


def test_the_command_makes_the_page_and_says_where(home: Path, tmp_path: Path, sme2prof) -> None:
    done = sme2prof("view", home / "store", "--no-browser", "--json")
    facts = json.loads(done.stdout)
    assert done.returncode == 0 and facts["page"] == str(home / "store" / "store_index.html")
    assert len(facts["runs"]) == 2
    empty = tmp_path / "empty"
    Store.open(empty, make=True)
    done = sme2prof("view", empty, "--no-browser")
    assert done.returncode == 0 and "store add RUN_DIR" in (empty / "store_index.html").read_text()
