"""Looking at runs: one report, a list of many or a store, made when needed, opened where a browser is."""

from __future__ import annotations

import json
import os
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
from made_history import Made, made_store
from made_runs import BEGINNING, MadeRun, make_run, recorded
from recorded_runs import ARM, EMULATED, SME2, X86_64, Json, edit, medians

from model_profiling.core.errors import InputError
from model_profiling.core.process import Completed
from model_profiling.report.combined import render_folder
from model_profiling.runs import Run
from model_profiling.store.labels import Labels
from model_profiling.store.store import Store
from model_profiling.workflow.view import open_page, page_to_view, why_no_browser

Cli = Callable[..., Completed]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: four machines, one of them of another format, and one that is damaged."""
    folder = tmp_path_factory.mktemp("many runs")
    for run in (ARM, SME2, EMULATED, X86_64):
        shutil.copytree(run, folder / "a & b" / run.name)

    def int8(manifest: Json) -> None:
        manifest["model"] = "/elsewhere/<script>alert(1)<_script>_xnnpack_int8.pte"

    edit(folder / "a & b" / X86_64.name / "manifest.json", int8)
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


def test_a_folder_of_runs_gets_a_page(many: Path) -> None:
    viewed = page_to_view(many)
    page = Cells(viewed.path)
    assert viewed.path == many / "runs_index.html" and len(viewed.runs) == 5
    assert page.headings == ["Runs", "Cannot be read"]
    rows = {row[0]: row for row in page.rows if row}
    assert set(rows) == {f"a & b/{recorded.name}" for recorded in (ARM, SME2, EMULATED, X86_64)}
    manifest = Run.open(SME2).manifest
    assert manifest is not None
    measured = manifest.started.replace("T", " ")[:16]
    sme2, emulated = rows["a & b/sme2_hardware"], rows["a & b/emulated_sme2"]
    assert sme2[1:5] == ["small_cnn XNNPACK fp16", "made SME2 CPU", measured, f"{medians(SME2)[0]} ms"]
    assert "2.03x" in sme2[6] and sme2[7].strip() == "SME2: faster"
    assert emulated[4] == emulated[6] == "-" and "no times" in emulated[7]
    assert "not Arm" in rows["a & b/x86_64"][7]
    for link in page.links:
        assert (many / link).is_file(), link
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
    page = render_folder([("a\u202eb", "m\x1b")], [("c", "d\u2066")], "t\u202e")
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
    assert first_column() == ["sme2_hardware", "arm_without_sme2", "x86_64", "emulated_sme2"]
    latency.click()
    assert first_column() == ["arm_without_sme2", "x86_64", "sme2_hardware", "emulated_sme2"]
    assert table.locator("th[aria-sort=descending]").inner_text() == "latency"
    tables = "[...document.querySelectorAll('.table')]"
    assert page.ask(f"{tables}.every((each) => each.scrollWidth <= each.clientWidth + 1)"), "one is clipped"
    assert page.complaints == []


COMMIT = "0123456789abcdef0123456789abcdef01234567"
HOSTILE = '</script><script>alert(1)</script>"><img src=x onerror=alert(2)>'


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`runs` of four machines, of which one has a page and one has been thrown away, and `team.db`."""
    folder = tmp_path_factory.mktemp("many & days")
    for run in (ARM, EMULATED, SME2, X86_64):
        shutil.copytree(run, folder / "runs" / run.name)
    labels = Labels(commit=COMMIT, branch="main", tags=("good",))
    Store.open(folder / "team.db", make=True).add([folder / "runs"], labels)
    (folder / "runs" / SME2.name / "report.html").write_text("its report")
    (folder / "runs" / ARM.name / "report.md").unlink()
    shutil.rmtree(folder / "runs" / X86_64.name)
    return folder


def test_a_store_is_listed_with_latencies_and_reports(home: Path, tmp_path: Path) -> None:
    viewed = page_to_view(home / "team.db")
    assert viewed.path == home / "store_index.html"
    assert {run.name for run in viewed.runs} == {SME2.name, EMULATED.name}
    page = Cells(viewed.path)
    rows = {row[2].partition(",")[0]: row for row in page.rows if row}
    assert set(rows) == {"Neoverse-N1", "made SME2 CPU", "made x86_64 CPU", "emulated"}
    assert {(row[1], row[5], row[6].strip()) for row in rows.values()} == {
        ("small_cnn XNNPACK fp16", COMMIT[:10], "good")
    }
    assert rows["made SME2 CPU"][4] in [f"{median} ms" for median in medians(SME2)]
    assert rows["emulated"][4] == "none: emulated" and "(not Arm)" in rows["made x86_64 CPU"][2]
    assert all("no report" in rows[device][0] for device in ("Neoverse-N1", "made x86_64 CPU"))
    assert set(page.links) == {f"./runs/{SME2.name}/report.html", f"./runs/{EMULATED.name}/report.md"}
    dates = [row[3] for row in page.rows if row]
    assert dates == sorted(dates, reverse=True)
    out = tmp_path / "a page" / "list.html"
    assert page_to_view(home / "team.db", out).path == out
    assert all((out.parent / link).is_file() for link in Cells(out).links)


def test_a_folder_that_was_measured_in_again_links_only_its_newest_run(tmp_path: Path) -> None:
    template, run_dir = recorded(), tmp_path / "nightly"
    store = Store.open(tmp_path / "runs.db", make=True)
    for day in range(3):
        shutil.rmtree(run_dir, ignore_errors=True)
        make_run(run_dir, MadeRun(day, 1.0, started=BEGINNING + timedelta(days=day), operators=1), template)
        (run_dir / "report.html").write_text(f"day {day}")
        store.add([run_dir], Labels(commit=""))
    page = Cells(page_to_view(tmp_path / "runs.db").path)
    assert [("no report" in row[0]) for row in page.rows if row] == [False, True, True]
    assert page.links == ["./nightly/report.html"]


def test_a_large_store_shows_its_newest_runs_and_names_are_only_names(
    tmp_path: Path, opened: Callable[..., Opened]
) -> None:
    made_store(
        tmp_path / "runs.db", [Made(1100, run={"model": HOSTILE, "device_name": HOSTILE, "branch": ""})]
    )
    found = opened(page_to_view(tmp_path / "runs.db").path)
    assert not found.complaints and len(found.requests) == 1
    assert found.page.locator("tbody tr").count() == 1000
    assert "1,000 of 1,100 runs" in found.texts("dl.answers dd")[0]
    assert HOSTILE in found.texts("tbody tr:first-child td:nth-child(2)")[0]
    assert found.page.locator("main img, main script").count() == 0


def test_the_command_makes_the_list_and_says_where(home: Path, tmp_path: Path, sme2prof) -> None:
    done = sme2prof("view", home / "team.db", "--no-browser", "--json")
    facts = json.loads(done.stdout)
    assert done.returncode == 0 and facts["page"] == str(home / "store_index.html")
    assert len(facts["runs"]) == 2
    Store.open(tmp_path / "empty.db", make=True)
    done = sme2prof("view", tmp_path / "empty.db", "--no-browser")
    assert done.returncode == 0 and "store add RUN_DIR" in (tmp_path / "store_index.html").read_text()
    (tmp_path / "notes.txt").write_text("not a database")
    for wrong in (tmp_path / "notes.txt", "postgresql://me:secret@localhost/runs"):
        done = sme2prof("view", wrong, "--no-browser")
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and "secret" not in done.stderr
