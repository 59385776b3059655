"""What a reader sorts, searches and opens in a page: every operator, and one run with its modules."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from browser.in_chromium import Opened, write_blocks
from made_series import made_page

from model_profiling.report.run_report import run_document

Open, Written = Callable[..., Opened], Callable[[str], Path]
OPERATORS, TIMELINE = (f'[data-kind="{kind}"]' for kind in ("operators", "timeline"))
PAGE_BYTES = 2_500_000


def column(found: Opened, header: str) -> list[str]:
    """The cells below a header of the table of operators."""
    place = found.texts(f"{OPERATORS} .table th >> visible=true").index(header)
    return found.texts(f"{OPERATORS} tbody tr:not(.inside) > :nth-child({place + 1}) >> visible=true")


def figures(cells: list[str]) -> list[float]:
    return [float(cell.rstrip("x%")) for cell in cells if cell != "-"]


def test_operators_sort_by_every_column(opened: Open, explored: Written) -> None:
    found = opened(explored("sme2_hardware"))
    for header in ("operator", "SME2 on ms", "speedup"):
        button = found.page.locator(f"{OPERATORS} th button", has_text=header).first
        for _ in range(2):
            button.click()
            head = found.page.locator(f"{OPERATORS} th[aria-sort]")
            assert head.inner_text() == header
            down = head.get_attribute("aria-sort") == "descending"
            cells = column(found, header)
            if header == "operator":
                assert cells == sorted(cells, key=str.lower, reverse=down)
            else:
                assert figures(cells) == sorted(figures(cells), reverse=down)
                assert "-" not in cells[: len(figures(cells))], "what is missing stands last"
            assert found.ask("document.activeElement.textContent") == header, "the focus stays"


def test_operators_are_found_by_name_module_and_source_line(opened: Open, explored: Written) -> None:
    found = opened(explored("sme2_hardware"))
    search = found.page.locator(f"{OPERATORS} input[type=search]")
    status = found.page.locator(f"{OPERATORS} [role=status]")
    assert status.inner_text() == "11 operators"
    for words, header, wanted in (
        ("x16) #", "operator", "Transpose"),
        ("module:features", "layer", "features."),
        ("features.2", "layer", "features.2 Conv2d"),
        ("small_cnn.py:24", "source", "small_cnn.py:24"),
        ("flatten transpose(1", "source", "small_cnn.py:22"),
    ):
        search.fill(words)
        cells = column(found, header)
        assert cells and all(wanted in cell for cell in cells), words
        assert status.inner_text() == f"{len(cells)} of 11 operators"
    search.fill("nothing is called so")
    assert status.inner_text() == "0 of 11 operators"
    search.fill("")
    found.page.locator(f"{OPERATORS} label", has_text="Category").locator("select").select_option("GEMM")
    assert column(found, "category") == ["GEMM", "GEMM"]


def test_operators_are_chosen_and_sorted_by_sme2(opened: Open, explored: Written) -> None:
    found = opened(explored("sme2_hardware"))
    cells = column(found, "SME2")
    assert set(cells) == {"yes", "no: not a matrix operator"}
    chooser = found.page.locator(f"{OPERATORS} label", has_text="SME2").last.locator("select")
    assert chooser.locator("option").all_inner_texts() == ["all", "no", "yes"]
    chooser.select_option("yes")
    assert column(found, "SME2") == ["yes"] * cells.count("yes")
    assert set(column(found, "category")) == {"Convolution", "GEMM"}
    chooser.select_option("")
    found.page.locator(f"{OPERATORS} th button", has_text="SME2").last.click()
    assert column(found, "SME2") == sorted(cells)
    found.page.locator(f"{OPERATORS} select").first.select_option("2")
    assert set(column(found, "SME2")) == {"no: SME2 is off", "no: not a matrix operator"}


def test_twenty_operators_are_shown_and_the_rest_is_one_click_away(opened: Open, tmp_path: Path) -> None:
    data = made_page(89)
    found = opened(write_blocks(tmp_path, run_document(data), data.title))
    assert len(column(found, "operator")) == 20
    found.page.get_by_text("Show 69 more of 89").click()
    assert len(column(found, "operator")) == 89


def test_a_row_opens_with_shapes_cost_kernels_and_source(opened: Open, explored: Written) -> None:
    found = opened(explored("sme2_hardware"))
    opener = found.page.locator(f"{OPERATORS} .open", has_text="IGEMM #2").first
    opener.focus()
    found.page.keyboard.press("Enter")
    assert opener.get_attribute("aria-expanded") == "true"
    inside = found.page.locator(f"{OPERATORS} tr.inside")
    before, after = (inside.locator(".sides > div").nth(side) for side in (0, 1))
    assert "linux_sme2_off" in before.inner_text() and "linux_sme2_on" in after.inner_text()
    for words in ("1 x 112 x 112 x 16", "1 x 56 x 56 x 32", "28.901", "torch.flatten", "p90 ms"):
        assert words in after.inner_text()
    assert "kai_run_matmul" in after.inner_text() and "kai_run" not in before.inner_text()
    opener.click()
    assert inside.count() == 0


def test_another_pair_or_experiment_can_be_chosen(opened: Open, explored: Written) -> None:
    found = opened(explored("sme2_hardware"))
    chooser = found.page.locator(f"{OPERATORS} select").first
    labels = chooser.locator("option").all_inner_texts()
    assert labels == ["SME2 off → SME2 on", "1 thread → 2 threads", "linux_sme2_off, 2 threads"]
    before = column(found, "SME2 on ms")
    chooser.select_option("1")
    assert column(found, "2 threads ms") != before
    chooser.select_option("2")
    assert figures(column(found, "ms")) == sorted(figures(column(found, "ms")), reverse=True)


def test_the_timeline_nests_and_can_be_looked_into(opened: Open, explored: Written) -> None:
    found = opened(explored("arm_without_sme2"))
    bars = found.ask(
        f"""[...document.querySelectorAll('{TIMELINE} .flame g')].map((bar) => {{
            const box = bar.querySelector('rect');
            const sizes = ['x', 'y', 'width'].map((name) => Number(box.getAttribute(name)));
            return [bar.getAttribute('aria-label'), ...sizes]; }})"""
    )
    assert bars[0][0].startswith("Method::execute")
    rows = sorted({bar[2] for bar in bars})
    assert len(rows) == 4, "execute, calls, modules, operators"
    for upper, lower in pairwise(rows):
        above = [(x, x + width) for _, x, y, width in bars if y == upper]
        for _, x, y, width in bars:
            if y == lower:
                assert any(left - 0.1 <= x and x + width <= right + 0.1 for left, right in above)
    found.page.locator(f"{TIMELINE} .flame g[aria-label^='delegate call']").first.click()
    assert "delegate call" in found.page.locator(f"{TIMELINE} .crumbs").inner_text()
    found.page.get_by_text("The whole run").click()
    assert found.page.locator(f"{TIMELINE} .flame g").count() == len(bars)
    found.page.locator(f"{TIMELINE} .flame g[tabindex='0']").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        found.page.keyboard.press(key)
    assert "features." in (found.ask("document.activeElement.getAttribute('aria-label')") or "")
    found.page.keyboard.press("Enter")
    found.page.locator(f"{TIMELINE} .crumbs").get_by_text("Show its operators").click()
    assert all(cell.startswith("features.") for cell in column(found, "layer"))


def test_an_emulated_run_shows_arithmetic_and_never_a_time(opened: Open, explored: Written) -> None:
    found = opened(explored("emulated_sme2"))
    assert not found.page.locator(TIMELINE).count()
    assert figures(column(found, "million operations"))[0] == 28.9
    found.page.locator(f"{OPERATORS} .open").first.click()
    inside = found.page.locator(f"{OPERATORS} tr.inside").inner_text()
    assert "million operations" in inside and "fp16" in inside
    found.ask("for (const each of document.querySelectorAll('details')) each.open = true")
    everything = found.page.locator(OPERATORS)
    for text in everything.all_inner_texts():
        assert " ms" not in text


def test_a_series_of_five_thousand_operators_stays_small_and_says_what_it_left_out(
    opened: Open, tmp_path: Path
) -> None:
    data = made_page(5_000)
    file = write_blocks(tmp_path, run_document(data), data.title)
    assert file.stat().st_size < PAGE_BYTES
    found = opened(file)
    assert not found.complaints
    assert "2001 operators" in found.page.locator(f"{OPERATORS} [role=status]").inner_text()
    for kind in (OPERATORS, TIMELINE):
        assert "To keep this page small" in found.page.locator(f"{kind} .note").first.inner_text()
    assert len(column(found, "operator")) == 20
    found.page.locator(f"{OPERATORS} .more").click()
    assert len(column(found, "operator")) == 1020
    found.page.locator(f"{OPERATORS} input[type=search]").fill("layers.499.block.9")
    assert len(column(found, "operator")) < 2


def test_a_run_of_hostile_names_is_only_named_so(opened: Open, tmp_path: Path) -> None:
    hostile = (
        "<script>alert(1)</script>", '"><img src=x onerror=alert(2)>', "</script><b>bold</b>", "<!--<script>",
        "javascript:alert(4)", "a\u2028b",
    )  # fmt: skip
    data = made_page(30, lambda number: f"{hostile[number % 6]} (F16) #{number}")
    found = opened(write_blocks(tmp_path, run_document(data), data.title))
    found.page.locator(f"{OPERATORS} .more").click()
    found.page.locator(f"{OPERATORS} .open").first.click()
    found.page.locator(f"{TIMELINE} .flame g").nth(3).click()
    found.page.locator(f"{TIMELINE} .flame g").nth(3).hover()
    found.ask("for (const each of document.querySelectorAll('details')) each.open = true")
    assert not found.complaints and len(found.requests) == 1
    assert found.page.locator("main img, main b, main script:not([type='application/json'])").count() == 0
    assert "<script>alert(1)</script>" in found.page.locator("h1").inner_text()
    assert len([name for name in column(found, "operator") if name.startswith("<script>")]) == 5
