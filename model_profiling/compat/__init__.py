"""What users of the earlier kit know: its scripts and tools, its files, and how it spelled a config."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path
from typing import NoReturn

from model_profiling.core.formatting import in_short, printable
from model_profiling.core.stdio import checked_output


def start(name: str, *arguments: object, **options: object) -> int:
    """Call `module.function` of this room for a documented script, which may run before set-up."""
    module, _, function = name.partition(".")
    try:
        script = getattr(importlib.import_module(f"{__name__}.{module}"), function)
    except ModuleNotFoundError as missing:
        cure = "run setup_repo.sh in a clone of the kit, and use its .venv/bin/python"
        sys.stderr.write(f"error: {Path(sys.argv[0]).name} needs the Python module {missing.name}; {cure}\n")
        return 2
    return checked_output(script)(*arguments, **options)


class ArgumentParser(argparse.ArgumentParser):
    """Reports errors in one printable line; argparse echoes arguments raw, and a terminal may obey them."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{printable(in_short(f'error: {message}; see `{self.prog} --help`'))}\n")
