"""What a reader sorts, searches and opens in a page: every operator, the tree of modules, one run's timeline."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from browser.in_chromium import Opened, write_blocks
from playwright.sync_api import Locator
from strategies import made_series

from model_profiling.report.html.json_text import json_text

Open, Written = Callable[..., Opened], Callable[[str], Path]
OPERATORS, MODULES, TIMELINE = (f'[data-kind="{kind}"]' for kind in ("operators", "modules", "timeline"))


def column(found: Opened, header: str) -> list[str]:
    """The cells below a header of the table of operators."""
    headers = found.texts(f"{OPERATORS} .operators th, {OPERATORS} th")
    place = headers.index(header)
    return found.texts(f"{OPERATORS} > div > .table tbody tr:not(.inside) > :nth-child({place + 1})")


def figures(cells: list[str]) -> list[float]:
    return [float(cell.rstrip("x%")) for cell in cells if cell != "-"]
