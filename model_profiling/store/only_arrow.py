"""PyArrow without numpy and pandas, for processes that only pass rows on and are waited for."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


class OnlyArrow:
    """A finder of modules for `sys.meta_path`. Where numpy and pandas are installed, pyarrow loads them, for
    nothing: that takes as long as a question."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        del path, target
        if name in ("numpy", "pandas"):
            raise ModuleNotFoundError("not needed here", name=name)


@contextlib.contextmanager
def only_arrow() -> Iterator[None]:
    """What is loaded in the block is loaded so. Not for a library's callers: pyarrow never asks again, and
    `to_pandas` fails from then on."""
    finder = OnlyArrow()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
