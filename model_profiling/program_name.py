"""int8 programs are named `_int8` here and `_q8` by older tools; either name finds the other's file."""

from __future__ import annotations

from pathlib import Path

_TWINS = (("_q8", "_int8"), ("_int8", "_q8"))
_DTYPES = {"fp32": "fp32", "fp16": "fp16", "int8": "int8", "q8": "int8"}


def exported_dtype(stem: str) -> str:
    """The precision a program was exported in, by its name `<model>_<backend>_<dtype>`; empty where that does
    not say."""
    return _DTYPES.get(stem.rpartition("_")[2], "")


def under_either_name(path: Path) -> Path:
    """`path`, or the same program under its other int8 name when only that one exists."""
    if not path.exists():
        for mine, other in _TWINS:
            if path.stem.endswith(mine):
                twin = path.with_name(path.stem.removesuffix(mine) + other + path.suffix)
                if twin.is_file():
                    return twin
    return path
