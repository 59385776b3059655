"""`pytest test-cases --model NAME`: the same as `python test-cases/test_....py --model NAME`."""

from __future__ import annotations

import made_once
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--model", default="toy_cnn", help="what to test: a name, or file.py:factory")


def pytest_configure(config: pytest.Config) -> None:
    made_once.use_model(config.getoption("--model"))
