"""Arguments of the scripts: what is wrong with them is one line, as everywhere."""

from __future__ import annotations

import argparse
from typing import NoReturn

from model_profiling.printable import in_short, printable


class ArgumentParser(argparse.ArgumentParser):
    """Python's own repeats the words of the command line as they are, which a terminal may obey."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{printable(in_short(f'error: {message}; see `{self.prog} --help`'))}\n")
