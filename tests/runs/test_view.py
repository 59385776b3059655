"""Looking at runs: one report or a list of many, made when needed, opened where there is a browser."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from browser.in_chromium import Opened
from recorded_runs import ARM, EMULATED, SME2, X86_64, Json, edit

from model_profiling.core.errors import InputError
from model_profiling.core.process import Completed
from model_profiling.report.combined import IndexRow, render_index
from model_profiling.run import Run
from model_profiling.workflow.view import open_page, page_to_view, why_no_browser

Cli = Callable[..., Completed]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs: four machines, one of them of another format, and one that is damaged."""
    folder = tmp_path_factory.mktemp("many runs")
    for recorded in (ARM, SME2, EMULATED, X86_64):
        shutil.copytree(recorded, folder / "a & b" / recorded.name)

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
        self._tag = tag
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
    assert page.headings[1:] == ["small_cnn, xnnpack fp16", "Cannot be read"] and "int8" in page.headings[0]
    rows = {row[0]: row for row in page.rows if row}
    assert set(rows) == {f"a & b/{recorded.name}" for recorded in (ARM, SME2, EMULATED, X86_64)}
    manifest = Run.open(SME2).manifest
    assert manifest is not None
    measured = manifest.started.replace("T", " ")[:16]
    sme2, emulated = rows["a & b/sme2_hardware"], rows["a & b/emulated_sme2"]
    assert sme2[1:4] == ["made SME2 CPU", measured, "0.666 ms"] and "2.02x" in sme2[5]
    assert sme2[6].strip() == "SME2: faster"
    assert emulated[3] == emulated[5] == "-" and "no times" in emulated[6]
    assert "not Arm" in rows["a & b/x86_64"][6]
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
    assert page.complaints == []
