"""Makes the pictures of reports in `images/`, from recorded runs, with the system's Chromium.

    python docs/make_pictures.py [FOLDER]

`report.png` is of a run as it was measured, on a CPU without SME2. The others are of `sme2_hardware`, whose
times with SME2 are made up: they say how a report looks and nothing about SME2. `latency.png` and
`categories.png` are charts of `sme2_hardware`'s report. `optimization.png` is of the model in the learning
path, as recorded where nothing could be timed. `stack.svg` is drawn by hand.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

HERE = Path(__file__).resolve().parent
RUNS = HERE.parent / "tests" / "data" / "runs"
MEASURED, MADE = "arm_without_sme2", "sme2_hardware"
sys.path.insert(0, str(HERE.parent))

from model_profiling.core.records import read_record  # noqa: E402
from model_profiling.report.optimization import Optimization, optimization_document  # noqa: E402
from model_profiling.workflow.report import write_page, write_report  # noqa: E402

MOST_BYTES = 150_000


def first_screen(_page: Page) -> None:
    """As it opens."""


def operators(page: Page) -> None:
    page.locator(".open").first.click()
    page.evaluate("document.querySelector('[data-kind=operators]').scrollIntoView()")


def timeline(page: Page) -> None:
    page.evaluate("document.querySelector('[data-kind=timeline]').scrollIntoView()")


PICTURES = (
    ("report.png", MEASURED, 1200, 800, "light", first_screen),
    ("report_sme2.png", MADE, 1200, 760, "light", first_screen),
    ("report_operators.png", MADE, 1280, 860, "light", operators),
    ("report_dark.png", MADE, 1200, 760, "dark", timeline),
    ("report_narrow.png", MADE, 400, 860, "light", first_screen),
)

CHARTS = (("latency.png", "latency.svg", 660, 370), ("categories.png", "categories.svg", 660, 285))


def make_pictures(folder: Path) -> None:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        sys.exit("error: there is no Chromium; apt-get install chromium")
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as driver:
        for recorded in (MEASURED, MADE):
            write_report(Path(shutil.copytree(RUNS / recorded, Path(scratch) / recorded)), pictures=True)
        found = read_record(Optimization, RUNS.parent / "optimization.json", "record it again")
        optimized = write_page(
            optimization_document(found), Path(scratch) / "optimized" / "optimization.md", "Optimizing"
        )
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 780})
        page.goto(optimized.with_suffix(".html").as_uri())
        page.screenshot(path=folder / "optimization.png")
        page.close()
        for name, chart, width, height in CHARTS:
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto((Path(scratch) / MADE / "report_files" / chart).as_uri())
            page.screenshot(path=folder / name)
            page.close()
        for name, recorded, width, height, scheme, look in PICTURES:
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if scheme == "dark" else "light",
                reduced_motion="reduce",
            )
            page = context.new_page()
            page.goto((Path(scratch) / recorded / "report.html").as_uri())
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
