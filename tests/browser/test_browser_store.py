"""The page of a store as people meet it: ten seconds to see what changed, one click to the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from browser.in_chromium import Opened, serious_problems, write_blocks
from made_store import DEVICES, EMULATED, NO_FOLDER, PROGRAMS, SERIES, STEPS, made_store
from recorded_runs import ARM, SME2, X86_64
from said import says

from model_profiling.report.combined import combined_document
from model_profiling.report.comparison_document import comparison_page
from model_profiling.report.store_index import StoreContents, render_store
from model_profiling.workflow.compare import compare
from model_profiling.workflow.report import gather_report

Open = Callable[..., Opened]
CELLS = len(PROGRAMS) * len(DEVICES)
HOSTILE = "</script><script>alert(1)</script>\"><img src=x onerror=alert(2)>'"


@pytest.fixture(scope="module")
def contents() -> StoreContents:
    return made_store()


@pytest.fixture(scope="module")
def page(contents: StoreContents, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _written(tmp_path_factory.mktemp("store"), contents)


def _written(folder: Path, contents: StoreContents) -> Path:
    file = folder / "store_index.html"
    file.write_text(render_store(contents), encoding="utf-8")
    return file


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
def test_it_is_drawn_without_a_complaint_or_a_request(opened, page: Path, width: int, dark: bool) -> None:
    found = opened(page, width=width, dark=dark)
    assert not found.complaints and found.requests == [page.as_uri()]
    assert found.ask("document.documentElement.scrollWidth - innerWidth") <= 0, "the page scrolls sideways"


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (400, False), (400, True)])
def test_pages_of_two_runs_fit(opened: Open, tmp_path: Path, width: int, dark: bool) -> None:
    """`compare` and the combined page: nothing is wider than the page; a narrow one scrolls its tables."""
    compared = comparison_page(compare(SME2, ARM, across_machines=True))
    runs = [gather_report(run) for run in (SME2, ARM, X86_64)]
    combined = combined_document(runs, "Three runs")
    for title, blocks in (compared, ("Three runs", combined)):
        found = opened(write_blocks(tmp_path, blocks, title), width=width, dark=dark)
        found.ask("document.querySelectorAll('details').forEach(details => details.open = true)")
        assert not found.complaints
        assert found.ask("document.documentElement.scrollWidth - innerWidth") <= 0
        cut = found.ask(
            "[...document.querySelectorAll('.table')].filter(box => box.scrollWidth > box.clientWidth + 1)"
            ".map(box => box.querySelector('thead').innerText)"
        )
        assert width < 1280 or not cut


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_serious(opened: Open, tmp_path: Path, dark: bool) -> None:
    few = made_store(PROGRAMS[2:3], {"Phone A (3f2a)": 1.0}, 110)
    found = opened(_written(tmp_path, few), dark=dark, width=400 if dark else 1280)
    found.page.locator(".card summary").first.click()
    found.ask("for (const row of document.querySelectorAll('tbody tr:nth-child(n + 5)')) row.remove()")
    assert not serious_problems(found)


@pytest.mark.quick
def test_ten_seconds_tell_what_changed_and_one_click_leads_there(opened: Open, page: Path) -> None:
    found = opened(page)
    answers = found.texts("dl.answers dd")
    assert f"2 of {CELLS} histories" in answers[1] and "resnet50 XNNPACK fp32 on Phone A" in answers[1]
    box = found.page.locator("#what-changed").bounding_box()
    assert box and box["y"] + box["height"] < 900, "the changes are on the first screen"
    rows = found.texts("#what-changed tbody tr")
    assert len(rows) == len(STEPS)
    worst = next(row for row in rows if "resnet50" in row)
    assert "5.8% slower" in worst and "Phone A (3f2a)" in worst
    found.page.locator("#what-changed a[href^='#']", has_text="resnet50").click()
    card = found.page.locator(".card:focus")
    assert card.locator("h3").inner_text() == "resnet50 XNNPACK fp32"
    assert card.locator(".change.slower").count() == card.locator(".level.slower").count() == 1


def test_slower_ones_stand_first_and_filters_leave_what_is_asked(
    opened: Open, page: Path, contents: StoreContents
) -> None:
    found = opened(page)
    states = found.texts(".card .state > :first-child")
    assert [state.split(" ", 1)[1] for state in states[:3]] == ["5.8% slower", "3.6% slower", "5.7% faster"]
    assert len(states) == CELLS and states[3] == "no change found"
    choose = found.page.locator
    choose("select[name=experiment]").select_option("all")
    assert found.texts("#latency-over-the-runs .count")[0].startswith(f"{CELLS * len(SERIES)} histories")
    choose("select[name=experiment]").select_option(index=0)
    choose("select[name=charts]").select_option("slower")
    assert len(found.texts(".card")) == 2
    choose("select[name=charts]").select_option("all")
    choose("select[name=device]").select_option("Phone B (a81c)")
    found.page.get_by_role("searchbox").fill("resnet50 fp16")
    (card,) = found.texts(".card h3")
    assert card == "resnet50 XNNPACK fp16"
    assert found.texts(".matrix tbody td:first-child:visible") == ["resnet50 XNNPACK fp16"]
    assert found.page.locator(".matrix thead th:visible").count() == 3
    asked = (*PROGRAMS[3], "Phone B (a81c)")
    own = [run for run in contents.runs if (run.model, run.format, run.device) == asked]
    assert found.texts("#runs .count") == [f"{len(own)} of {len(contents.runs):,} runs"]
    found.page.get_by_role("button", name="Clear").click()
    choose("select[name=dates]").select_option("last 7 days")
    newest = max(run.at for run in contents.runs)
    assert found.texts("#runs tbody td:first-child")[0] == f"{newest:%Y-%m-%d %H:%M}"
    assert all("runs, 2026-11" in text for text in found.texts(".card .readout"))


def test_a_run_is_pointed_at_and_followed_by_mouse_and_keyboard(
    opened: Open, page: Path, contents: StoreContents
) -> None:
    reports = {run.id: run for run in contents.runs}
    told = (each for each in contents.histories if each.key in contents.headlines)
    history = next(each for each in told if each.key.model == "resnet50")
    newest, oldest = reports[history.points[-1].run_id], reports[history.points[0].run_id]
    found = opened(page)
    cards = found.page.locator(".card", has_text="resnet50 XNNPACK fp32")
    card = cards.filter(has_text=history.key.device_name).first
    link = card.locator("svg a")
    svg = card.locator("svg")
    box = svg.bounding_box()
    assert box
    svg.hover(position={"x": box["width"] - 3, "y": 20})
    assert newest.commit in card.locator(".readout").inner_text()
    assert link.get_attribute("href") == newest.report
    svg.hover(position={"x": 2, "y": 20})
    assert link.get_attribute("href") is None and NO_FOLDER in card.locator(".readout").inner_text()
    found.page.mouse.move(0, 0)
    link.focus()
    found.page.keyboard.press("End")
    found.page.keyboard.press("ArrowLeft")
    assert reports[history.points[-2].run_id].report == link.get_attribute("href")
    found.page.keyboard.press("Home")
    assert link.get_attribute("role") == "img" and oldest.commit in (link.get_attribute("aria-label") or "")
    card.locator("summary").click()
    assert card.locator("tbody tr").count() == len(history.points)
    assert card.locator("tbody a").first.get_attribute("href") == newest.report


def test_the_runs_are_all_there_and_sorted_by_a_click(opened, page: Path, contents: StoreContents) -> None:
    found = opened(page)
    assert found.texts("#runs .count") == [f"{len(contents.runs):,} runs"]
    found.page.get_by_role("button", name="latency").click()
    column = [float(text.split()[0]) for text in found.texts("#runs td:nth-child(4)")]
    assert column == sorted(column) and len(column) == 50
    found.page.locator("#runs .more").click()
    assert found.page.locator("#runs tbody tr").count() == 100
    found.page.locator("select[name=device]").select_option(EMULATED)
    (state,) = set(found.texts("#runs td:nth-child(6)"))
    says(state, "finished", "emulated")


def test_hostile_names_are_only_names(opened: Open, tmp_path: Path) -> None:
    made = made_store(PROGRAMS[:1], {"Phone": 1.0}, 40)
    words = {"model": HOSTILE, "device": HOSTILE, "commit": HOSTILE, "tags": (HOSTILE,)}
    runs = tuple(replace(run, **words, report=f"../{HOSTILE}/report.html") for run in made.runs)
    named = {"model": HOSTILE, "device_name": HOSTILE, "experiment": HOSTILE}
    histories = tuple(replace(each, key=replace(each.key, **named)) for each in made.histories)
    headlines = frozenset(each.key for each in histories)
    spoilt = replace(made, name=HOSTILE, runs=runs, histories=histories, headlines=headlines)
    found = opened(_written(tmp_path, spoilt))
    assert not found.complaints and len(found.requests) == 1
    assert found.page.locator("main img, main script:not([type='application/json'])").count() == 0
    assert HOSTILE in found.texts(".card h3")[0]
    assert found.ask("document.querySelector('#runs tbody a').protocol") == "file:"
