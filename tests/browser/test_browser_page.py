"""report.html as people meet it: without a complaint, wide or narrow, by eye, ear, keyboard and on paper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from browser.in_chromium import RECORDED, Opened, serious_problems, write_blocks
from recorded_runs import ARM, SME2, X86_64

from model_profiling.core.formatting import printable
from model_profiling.report.charts import PARTS, axis, layer, layered
from model_profiling.report.combined import combined_document
from model_profiling.report.comparison_document import comparison_page
from model_profiling.report.document import Chart, Code, Folded, Heading, Paragraph, make_list, make_table
from model_profiling.workflow.compare import compare
from model_profiling.workflow.report import gather_report

RUNS = pytest.mark.parametrize("run", RECORDED)
Open, Written = Callable[..., Opened], Callable[[str], Path]
CONTENT = "#report"
_OVERFLOW = "document.documentElement.scrollWidth - innerWidth"


@RUNS
@pytest.mark.parametrize(("width", "dark"), [(1280, False), (400, True)])
def test_a_page_is_drawn_without_a_complaint_or_a_request_and_nothing_is_cut(
    opened: Open, written: Written, run: str, width: int, dark: bool
) -> None:
    file = written(run)
    found = opened(file, width=width, dark=dark)
    assert not found.complaints
    assert found.requests == [file.as_uri()]
    assert found.ask(_OVERFLOW) <= 0, "the page scrolls sideways"
    assert not found.page.locator(".drawing:not(:has(*)):not(:empty)").count(), "an error instead of a chart"
    _open_everything(found)
    assert found.ask("cut.js") == []


@pytest.mark.parametrize(
    ("run", "dark"), [("sme2_hardware", False), ("arm_without_sme2", True), ("emulated_sme2", False)]
)
def test_axe_finds_nothing_serious(opened: Open, written: Written, run: str, dark: bool) -> None:
    found = opened(written(run), dark=dark)
    _open_everything(found)
    # Thousands of marks that are hidden from readers of the screen only take time here.
    found.ask("for (const each of document.querySelectorAll('.drawing > [aria-hidden=true]')) each.remove()")
    assert not serious_problems(found)


def _open_everything(found: Opened) -> None:
    """All that is folded, one table of a chart's numbers, and one operator."""
    found.ask("for (const each of document.querySelectorAll('details:not(.numbers)')) each.open = true")
    if found.page.locator("details.numbers summary").count():  # a page without times has no chart
        found.page.locator("details.numbers summary").first.click()
    if found.page.locator(".open").count():
        found.page.locator(".open").first.click()
    found.page.wait_for_timeout(50)


def test_charts_show_every_part_of_the_data(opened: Open, written: Written) -> None:
    found = opened(written("sme2_hardware"))
    chart = found.page.locator("#chart-categories")
    bars = chart.locator(".mark-rect path").count()
    assert bars == 2 * len(PARTS)
    assert set(PARTS) <= set(chart.locator("svg text").all_text_contents())
    assert "Convolution" in (chart.locator(".drawing").get_attribute("aria-label") or "")
    chart.locator("summary").click()
    rows = chart.locator("tbody tr")
    rows.first.wait_for()
    assert rows.count() == bars
    assert rows.first.inner_text().split("\t")[:2] != ["", ""]


def test_charts_fit_their_place_and_follow_it(opened: Open, written: Written) -> None:
    found = opened(written("sme2_hardware"), width=1280)
    wide = _width(found)
    found.page.set_viewport_size({"width": 400, "height": 800})
    found.page.wait_for_function("document.querySelector('.drawing svg').getBoundingClientRect().width < 400")
    assert 200 < _width(found) < 400 < wide


def _width(found: Opened) -> float:
    return float(found.ask("document.querySelector('.drawing svg').getBoundingClientRect().width"))


@pytest.mark.quick
def test_the_first_screen_shows_the_answer_and_contents_lead_to_sections(opened, written) -> None:
    found = opened(written("sme2_hardware"))
    box = found.page.locator("dl.answers").bounding_box()
    assert box and box["y"] + box["height"] < 900
    assert len(found.texts("dl.answers dt")) == 3
    links = found.page.locator(".contents a")
    headings = found.texts("main h2")
    assert links.all_inner_texts() == headings
    links.last.click()
    assert found.ask("document.querySelector(location.hash + ' h2').textContent") == headings[-1]


@pytest.mark.quick
def test_a_button_turns_light_and_dark(opened: Open, written: Written) -> None:
    found = opened(written("sme2_hardware"))
    ground = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('.drawing text')).fill"
    light = found.ask(ground), found.ask(ink)
    button = found.page.locator("#theme")
    assert button.inner_text() == "Dark colours"
    button.click()
    dark = found.ask(ground), found.ask(ink)
    assert light[0] != dark[0] and light[1] != dark[1]
    assert button.inner_text() == "Light colours"
    button.click()
    assert (found.ask(ground), found.ask(ink)) == light


def test_on_paper_a_dark_page_is_light_and_has_no_controls(opened: Open, written: Written) -> None:
    found = opened(written("arm_without_sme2"), dark=True)
    found.page.emulate_media(media="print", color_scheme="dark")
    assert found.ask("getComputedStyle(document.querySelector('h1')).color") == "rgb(26, 30, 36)"
    assert found.ask("getComputedStyle(document.querySelector('.drawing text')).fill") == "rgb(82, 91, 104)"
    for hidden in (".controls", "#theme", ".contents", ".skip"):
        assert not found.page.locator(hidden).first.is_visible()
    assert len(found.page.pdf()) > 20_000


def test_folded_details_are_open_on_paper(opened: Open, tmp_path: Path) -> None:
    found = opened(write_blocks(tmp_path, [Heading("A"), Folded("more", (Paragraph("inside"),))]))
    inside = found.page.locator("text=inside")
    assert not inside.is_visible()
    found.ask("dispatchEvent(new Event('beforeprint'))")
    assert inside.is_visible()
    found.ask("dispatchEvent(new Event('afterprint'))")
    assert not inside.is_visible()


def test_the_keyboard_reaches_everything(opened: Open, written: Written) -> None:
    found = opened(written("sme2_hardware"))
    found.page.keyboard.press("Tab")
    assert found.ask("document.activeElement.className") == "skip"
    assert found.page.locator(".skip").bounding_box()["x"] >= 0  # type: ignore[index]
    found.page.keyboard.press("Enter")
    assert found.ask("document.activeElement.id") == "report"
    seen = set()
    for _ in range(60):
        found.page.keyboard.press("Tab")
        seen.add(found.ask("document.activeElement.tagName + ' ' + document.activeElement.className"))
    assert {"SUMMARY ", "BUTTON open", "INPUT ", "SELECT "} <= seen
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert found.ask(outline) != "none", "the focus is not seen"


def test_hostile_names_in_titles_and_charts_are_only_names(opened: Open, tmp_path: Path) -> None:
    hostile = (
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(2)>',
        "</script><!--<script>",
        "a\u2028b",
    )
    name = "".join(hostile)
    bars = layer("rows", "bar", x="ms", y="operator", tip={"operator": name, "ms": name})
    rows = [{"operator": each, "ms": place} for place, each in enumerate(hostile)]
    spec = layered({"rows": rows}, [bars], axis(name), {"type": "nominal"}, {"step": 22})
    table = make_table((name,), [(Code(each),) for each in hostile])
    blocks = [Heading(name, 1), Paragraph(name), table, *make_list(hostile)]
    blocks += [Chart("hostile", name, name, spec, name), Folded(name, (Paragraph(name),))]
    found = opened(write_blocks(tmp_path, blocks, name))
    _open_everything(found)
    assert not found.complaints
    assert found.requests == [(tmp_path / "report.html").as_uri()]
    assert found.page.locator("main img, main script:not([type='application/json'])").count() == 0
    assert found.page.title() == printable(name)
    shown = found.page.locator("main").inner_text()
    assert all(each.split("\u2028")[0] in shown for each in hostile)


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
