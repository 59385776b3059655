"""Looking at runs: one report, a list of many or a store, made when needed, opened where a browser is."""

from __future__ import annotations

import copy
import json
import os
import random
import re
import shutil
import sys
from collections.abc import Callable
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from browser.in_chromium import Opened
from made_runs import BEGINNING, MadeRun, make_run, recorded
from recorded_runs import ARM, EMULATED, SME2, X86_64, Json, edit, medians

from model_profiling.core.errors import InputError
from model_profiling.core.process import Completed
from model_profiling.report.combined import IndexRow, render_index
from model_profiling.report.document import plain
from model_profiling.report.store_index import Kernels, StoreContents, StoredRun, answers
from model_profiling.run import Run, Times
from model_profiling.store.run_rows import Labels
from model_profiling.store.store import Store
from model_profiling.workflow.history import store_contents
from model_profiling.workflow.view import open_page, page_to_view, why_no_browser

Cli = Callable[..., Completed]
ABOUT_SEVERAL = ("dtypes.html", "comparison.html", "combined_report.html", "report.html")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: four machines, one of them of another format, and one that is damaged; pages about
    several runs."""
    folder = tmp_path_factory.mktemp("many runs")
    for run in (ARM, SME2, EMULATED, X86_64):
        shutil.copytree(run, folder / "a & b" / run.name)

    def int8(manifest: Json) -> None:
        manifest["model"] = "/elsewhere/<script>alert(1)<_script>_xnnpack_int8.pte"

    edit(folder / "a & b" / X86_64.name / "manifest.json", int8)
    for name in (*ABOUT_SEVERAL, "other.html"):
        (folder / "a & b" / name).touch()
    shutil.copytree(ARM, folder / "damaged")
    (folder / "damaged" / "metrics.json").write_text("{")
    return folder


class Cells(HTMLParser):
    """The rows of every table, and where each links to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.links: list[str] = []
        self.headings: list[str] = []
        self._tag = ""
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag = tag if tag != "wbr" else self._tag
        if tag == "tr":
            self.rows.append([])
        elif tag == "td":
            self.rows[-1].append("")
        elif tag == "a" and not (link := unquote(dict(attrs)["href"] or "")).startswith("#"):
            self.links.append(link)

    def handle_data(self, data: str) -> None:
        if self._tag == "h2":
            self.headings.append(data)
            self._tag = ""
        elif self.rows and self.rows[-1] and self._tag in ("td", "a"):
            self.rows[-1][-1] += data


def test_a_folder_of_runs_gets_a_page_by_model_and_format(many: Path) -> None:
    viewed = page_to_view(many)
    page = Cells(viewed.path)
    assert viewed.path == many / "runs_index.html" and len(viewed.runs) == 5
    assert page.headings[1:] == ["small_cnn, XNNPACK fp16", "Cannot be read"] and "int8" in page.headings[0]
    rows = {row[0]: row for row in page.rows if row}
    assert set(rows) == {f"a & b/{recorded.name}" for recorded in (ARM, SME2, EMULATED, X86_64)}
    manifest = Run.open(SME2).manifest
    assert manifest is not None
    measured = manifest.started.replace("T", " ")[:16]
    sme2, emulated = rows["a & b/sme2_hardware"], rows["a & b/emulated_sme2"]
    assert sme2[1:4] == ["made SME2 CPU", measured, f"{medians(SME2)[0]} ms"] and "2.02x" in sme2[5]
    assert sme2[6].strip() == "SME2: faster"
    assert emulated[3] == emulated[5] == "-" and "no times" in emulated[6]
    assert "not Arm" in rows["a & b/x86_64"][6]
    for link in page.links:
        assert (many / link).is_file(), link
    assert page.links[:4] == [f"./a & b/{name}" for name in ABOUT_SEVERAL]
    (problem,) = viewed.problems
    assert "metrics.json" in problem
    assert "<script>alert" not in viewed.path.read_text()


def test_the_page_moves_with_the_folder(many: Path, tmp_path: Path) -> None:
    page_to_view(many)
    moved = tmp_path / "moved"
    shutil.copytree(many, moved)
    assert all((moved / link).is_file() for link in Cells(moved / "runs_index.html").links)
    out = tmp_path / "elsewhere" / "list.html"
    assert page_to_view(many, out).path == out
    assert all((out.parent / link).is_file() for link in Cells(out).links)


def test_a_page_that_came_with_a_run_is_not_opened(tmp_path: Path) -> None:
    """It may hold any program, however new it is."""
    run_dir = tmp_path / "linux"
    shutil.copytree(X86_64, run_dir)
    page = run_dir / "report.html"
    page.write_text("<script>alert(1)</script>")
    os.utime(page, (4e9, 4e9))
    assert page_to_view(run_dir).path == page and "alert(1)" not in page.read_text()
    page.write_text("<script>alert(1)</script>")
    assert page_to_view(tmp_path).path == page and "alert(1)" not in page.read_text()
    assert page_to_view(page).path == page


@pytest.mark.parametrize(
    ("environment", "system", "reason"),
    [
        ({"CI": "true", "BROWSER": "firefox", "DISPLAY": ":0"}, "linux", "CI"),
        ({"BROWSER": "firefox"}, "linux", None),
        ({"SSH_CONNECTION": "1", "DISPLAY": ":0"}, "linux", "ssh"),
        ({"SSH_TTY": "/dev/pts/1"}, "darwin", "ssh"),
        ({}, "linux", "display"),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", None),
        ({}, "darwin", None),
    ],
)
def test_where_no_browser_is_expected(environment: dict[str, str], system: str, reason: str | None) -> None:
    said = why_no_browser(environment, system)
    assert said is None if reason is None else reason in (said or "")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system chooses the browser")
def test_the_users_browser_gets_the_page(many: Path, tmp_path: Path, cli: Cli) -> None:
    browser = tmp_path / "browser.sh"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/asked\n')
    browser.chmod(0o755)
    done = cli("view", many, "--json", BROWSER=f"{browser} %s", CI="")
    facts = json.loads(done.stdout)
    assert done.returncode == 0 and facts["opened"] and facts["not_opened_because"] is None
    assert (tmp_path / "asked").read_text().strip() == (many / "runs_index.html").as_uri()


def test_the_command_says_where_the_page_is(many: Path, tmp_path: Path, monkeypatch, sme2prof) -> None:
    page = str(many / "runs_index.html")
    monkeypatch.setenv("CI", "true")
    quiet = sme2prof("view", many, "--no-browser")
    assert (quiet.returncode, quiet.stdout.strip()) == (0, page) and "metrics.json" in quiet.stderr
    assert "CI" in (open_page(Path(page)) or "")
    assert re.fullmatch(rf"not opened.* CI .*{page}\n", sme2prof("view", many).stdout)
    for wrong in (tmp_path / "mistyped", tmp_path):
        done = sme2prof("view", wrong)
        assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "did you mean 'view'?" in sme2prof("veiw", many).stderr


def test_when_no_run_can_be_read_that_is_the_answer(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="none of the 2 runs"):
        page_to_view(tmp_path)


def test_a_page_that_is_there_is_not_written_elsewhere(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("")
    with pytest.raises(InputError, match="is a page already"):
        page_to_view(page, tmp_path / "other.html")
    with pytest.raises(InputError, match=r"other\.txt.*; .*other\.html"):
        page_to_view(tmp_path, tmp_path / "other.txt")


def test_a_folder_that_may_not_be_written_to(many: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, _: Path(path) != many)  # root may write everywhere
    with pytest.raises(InputError, match="--out"):
        page_to_view(many)
    assert page_to_view(many, tmp_path / "list.html").path.is_file()


def test_names_in_the_list_have_nothing_unseen_in_them() -> None:
    page = render_index([IndexRow("a\u202eb", model="m\x1b"), IndexRow("c", problem="d\u2066")], "t\u202e")
    assert page.count("\\u202e") == 3 and "\\u001b" in page and "\\u2066" in page
    assert not {"\u202e", "\x1b", "\u2066"} & set(page)


def test_the_list_is_sorted_by_a_click(many: Path, opened: Callable[..., Opened]) -> None:
    page_to_view(many)
    page = opened(many / "runs_index.html")
    table = page.page.locator("table").last

    def first_column() -> list[str]:
        return [name.rpartition("/")[2] for name in table.locator("td:first-child").all_inner_texts()]

    latency = table.get_by_role("button", name="latency")
    latency.click()
    assert first_column() == ["sme2_hardware", "arm_without_sme2", "emulated_sme2"]
    latency.click()
    assert first_column() == ["arm_without_sme2", "sme2_hardware", "emulated_sme2"]
    assert table.locator("th[aria-sort=descending]").inner_text() == "latency"
    tables = "[...document.querySelectorAll('.table')]"
    assert page.ask(f"{tables}.every((each) => each.scrollWidth <= each.clientWidth + 1)"), "one is clipped"
    assert page.complaints == []


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
        ("small_cnn", "XNNPACK fp16", f"{COMMIT[:10]}+", ("good",))
    }
    kernels = {device: run.kernels for device, run in runs.items()}
    assert kernels.pop("made SME2 CPU") is Kernels.RAN
    assert set(kernels.values()) == {Kernels.RAN_EMULATED}
    assert runs["emulated"].times is Times.EMULATED
    assert runs["made SME2 CPU"].report == f"../runs/{SME2.name}/report.html"
    assert runs["emulated"].report == f"../runs/{EMULATED.name}/report.md"
    assert (runs["Neoverse-N1"].report, runs["made x86_64 CPU"].report) == ("", "")
    assert "no report" in runs["Neoverse-N1"].no_report and "missing" in runs["made x86_64 CPU"].no_report


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
    assert f"{medians(SME2)[0]} ms" in card.inner_text()
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
    assert re.match(r"Yes\b.*\b1 of 1 history.*small_cnn XNNPACK fp16.*made x86_64 CPU", plain(answer))
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
    assert sum("missing" in why for why in gone) == 1, "another night's report is not its own"


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
