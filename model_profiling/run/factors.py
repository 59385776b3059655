"""How many times faster SME2 is taken to make an operator, as a range; a projection is made with these.

The usual ranges hold unless a user gives others. Those are kept in the run they were given for, in
sme2_factors.json, so that every file made of the run afterwards is made with them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from model_profiling import files
from model_profiling.errors import FormatError, InputError
from model_profiling.json_record import read_json_object
from model_profiling.program.category import Category
from model_profiling.reading import is_there
from model_profiling.run import names
from model_profiling.wording import did_you_mean

CONV, GEMM, ONE_ROW = Category.CONV.value, Category.GEMM.value, "GEMM with one row"
_FIX = 'give LOW:HIGH such as 3:15, or a file such as {"Convolution": [3, 15], "GEMM": [2, 8]}'


@dataclass(frozen=True, slots=True)
class Range:
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


PUBLISHED = Range(3, 15)
"""What has been published for convolution and GEMM."""
FIELD = Range(0.33, 1)
"""What the field reports of GEMM with one row, where SME2 is slower or at best no faster."""


@dataclass(frozen=True, slots=True)
class Factors:
    """A range for each kind of operator that has SME2 kernels."""

    ranges: Mapping[str, Range]
    given: bool = False
    """By the user; otherwise they are the usual ones."""

    @property
    def origin(self) -> str:
        return "given with --sme2-factor" if self.given else "the usual ranges"

    def of(self, name: str) -> Range:
        return self.ranges[name]


USUAL = Factors({CONV: PUBLISHED, GEMM: PUBLISHED, ONE_ROW: FIELD})


def parse_factors(text: str) -> Factors:
    """`LOW:HIGH` for convolution and GEMM, or the name of a file with a range for each kind."""
    found = re.fullmatch(r"\s*([^:]+):([^:]+)", text)
    numbers = [_number(word) for word in found.groups()] if found else []
    if found and None not in numbers:
        given = _range(numbers, f"--sme2-factor {text}")
        return Factors({**USUAL.ranges, CONV: given, GEMM: given}, given=True)
    path = Path(text)
    if not path.is_file():
        raise InputError(f"--sme2-factor {text} is neither LOW:HIGH nor a file", _FIX)
    return _factors(read_json_object(path, _FIX, follow=True), str(path))


def read_factors(run_dir: Path) -> Factors:
    """Those kept in a run, or the usual ones."""
    path = run_dir / names.FACTORS
    return _factors(read_json_object(path, "remove the file"), str(path)) if is_there(path) else USUAL


def keep_factors(run_dir: Path, factors: Factors) -> None:
    content = {name: [each.low, each.high] for name, each in factors.ranges.items()}
    files.write_json(run_dir / names.FACTORS, {"schema_version": 1, **content})


def _factors(content: Mapping[str, object], source: str) -> Factors:
    ranges = dict(USUAL.ranges)
    for key, value in content.items():
        if key == "schema_version":
            continue
        name = CONV if key == Category.CONV.label else key
        if name not in ranges:
            known = f"known are {', '.join(ranges)}"
            raise FormatError(f"{source}: {key} has no SME2 factor", did_you_mean(key, ranges) or known)
        ranges[name] = _range(value, f"{source}: {key}: {json.dumps(value)}")
    return Factors(ranges, given=True)


def _range(value: object, source: str) -> Range:
    if not isinstance(value, list) or len(value) != 2:
        raise FormatError(f"{source} is no range", _FIX)
    low, high = value
    for bound in (low, high):
        if isinstance(bound, bool) or not isinstance(bound, int | float) or not math.isfinite(bound):
            raise FormatError(f"{source} is no range of numbers", _FIX)
    if not 0 < low <= high:
        raise FormatError(f"{source} is no range above 0 from low to high", _FIX)
    return Range(float(low), float(high))


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
