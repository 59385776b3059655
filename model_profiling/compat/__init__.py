"""What users of the earlier kit know: its scripts and tools, its files, and how it spelled a config."""

from __future__ import annotations

import argparse
from typing import NoReturn

from model_profiling.core.formatting import in_short, printable


class ArgumentParser(argparse.ArgumentParser):
    """Reports errors in one printable line; argparse echoes arguments raw, and a terminal may obey them."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{printable(in_short(f'error: {message}; see `{self.prog} --help`'))}\n")
