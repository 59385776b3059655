"""Packages of the kit's extras: loaded when they are asked for, and only then."""

from __future__ import annotations

import importlib
from types import ModuleType

from model_profiling.errors import SetupError


def needed(module: str, extra: str) -> ModuleType:
    """`module`, which `extra` brings; where it is not installed, an error with what installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as problem:
        from model_profiling.own_commands import install_extra  # reads what is installed: not for nothing

        package = module.partition(".")[0]
        raise SetupError(f"the Python package {package} is not installed", install_extra(extra)) from problem
