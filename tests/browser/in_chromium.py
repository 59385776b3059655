"""Pages in a real browser: Debian's Chromium without a window, one for all tests, never on a network."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conftest import missing
from recorded_runs import ARM, EMULATED, SME2, X86_64

from model_profiling.report.data import ReportData
from model_profiling.report.document import Block, Explorer, Heading
from model_profiling.report.html import render_html
from model_profiling.report.run_report import run_document
from model_profiling.workflow.analyse import write_analysis
from model_profiling.workflow.report import gather_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

RECORDED = {run.name: run for run in (SME2, ARM, EMULATED, X86_64)}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass
class Opened:
    """A page, and everything that it complained of or asked for."""

    page: Page
    folder: Path
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def ask(self, script: str, argument: Any = None) -> Any:
        """What a script answers, or that in a file of this folder (`cut.js`)."""
        if script.endswith(".js"):
            script = Path(__file__).with_name(script).read_text()
        return self.page.evaluate(script, argument)

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright, which drives a browser")
    program = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if program is None:
        missing("Chromium (apt-get install chromium)")
    with sync_playwright() as driver:
        # Root, which containers run as, has no sandbox; the pages are the tests' own.
        opened = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Callable[..., Opened]]:
    """`opened(file, width=400, dark=True)`: a page as a reader finds it, drawn to the end."""
    contexts = []

    def load(file: Path, *, width: int = 1280, dark: bool = False) -> Opened:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        found = Opened(page, file.parent)
        page.on("console", lambda line: found.complaints.append(f"{line.type}: {line.text}"))
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (found.complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: found.requests.append(request.url))
        page.goto(file.as_uri())
        page.wait_for_function("!document.querySelector('.drawing:not([data-drawn])')")
        return found

    yield load
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ReportData]:
    """`recorded("sme2_hardware")`: a copy of that run, analysed, with the files that its analysis writes."""

    @functools.cache
    def gather(name: str) -> ReportData:
        data = gather_report(shutil.copytree(RECORDED[name], tmp_path_factory.mktemp(name) / name))
        assert data.analysis is not None
        write_analysis(data.analysis)
        return data

    return gather


@pytest.fixture(scope="session")
def written(recorded: Callable[[str], ReportData]) -> Callable[[str], Path]:
    """`written("sme2_hardware")`: that run's page, with the files of the run beside it."""

    @functools.cache
    def write(name: str) -> Path:
        data = recorded(name)
        return write_blocks(data.run.path, run_document(data), data.title)

    return write


@pytest.fixture(scope="session")
def explored(
    recorded: Callable[[str], ReportData], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """`explored("sme2_hardware")`: only what its page lets a reader explore, which opens sooner."""

    @functools.cache
    def write(name: str) -> Path:
        blocks = [block for block in run_document(recorded(name)) if isinstance(block, Explorer)]
        alone = [replace(block, instead=()) for block in blocks]
        return write_blocks(tmp_path_factory.mktemp("explored"), [Heading("Explore"), *alone])

    return write


def write_blocks(folder: Path, blocks: Sequence[Block], title: str = "A page") -> Path:
    page = folder / "report.html"
    page.write_text(render_html(blocks, title), encoding="utf-8")
    return page


def serious_problems(found: Opened) -> list[tuple[str, str]]:
    """What axe finds that keeps somebody from reading the page."""
    from axe_playwright_python.sync_playwright import Axe

    problems = Axe().run(found.page, options={"resultTypes": ["violations"]}).response["violations"]
    serious = [each for each in problems if each["impact"] in ("serious", "critical")]
    return [(each["id"], each["nodes"][0]["html"][:200]) for each in serious]
