"""Makes the pictures of a report in `images/`, from a recorded run, with the system's Chromium.

    python docs/make_pictures.py [FOLDER]

The run is `tests/data/runs/sme2_hardware`, whose times with SME2 are made up; its pictures say how a report
looks and nothing about SME2.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).resolve().parent
RUN = HERE.parent / "tests" / "data" / "runs" / "sme2_hardware"
sys.path[:0] = [str(HERE.parent)]

from model_profiling.workflow.report import write_report  # noqa: E402

MOST_BYTES = 150_000


def first_screen(_page: Page) -> None:
    """As it opens."""


def where_the_time_goes(page: Page) -> None:
    page.locator("#where-the-time-goes").scroll_into_view_if_needed()
    page.evaluate("document.querySelector('#where-the-time-goes').scrollIntoView()")


def operators(page: Page) -> None:
    page.locator(".open").first.click()
    page.evaluate("document.querySelector('[data-kind=operators]').scrollIntoView()")


def modules_and_timeline(page: Page) -> None:
    page.evaluate("document.querySelector('[data-kind=modules]').scrollIntoView()")


PICTURES = (
    ("report.png", 1200, 720, "light", first_screen),
    ("report_operators.png", 1280, 860, "light", operators),
    ("report_dark.png", 1200, 760, "dark", modules_and_timeline),
    ("report_narrow.png", 400, 860, "light", where_the_time_goes),
)


def make_pictures(folder: Path) -> None:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        sys.exit("error: there is no Chromium; apt-get install chromium")
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as driver:
        run = Path(scratch) / RUN.name
        shutil.copytree(RUN, run)
        write_report(run)
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name, width, height, scheme, look in PICTURES:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if scheme == "dark" else "light",
                reduced_motion="reduce",
            )
            page = context.new_page()
            page.goto((run / "report.html").as_uri())
            page.wait_for_function("!document.querySelector('.drawing:not([data-drawn])')")
            look(page)
            page.wait_for_timeout(300)
            picture = page.screenshot()
            context.close()
            assert len(picture) < MOST_BYTES, f"{name} has {len(picture)} bytes"
            (folder / name).write_bytes(picture)
        browser.close()


if __name__ == "__main__":
    make_pictures(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "images")
