"""evidence.json: kernels and outputs that another run of the same program proved, copied into a run.

A CPU without SME2 gives latencies; emulation of the same program (told by its SHA-256) shows what SME2 runs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.formatting import did_you_mean
from model_profiling.core.records import read_json_object, read_record
from model_profiling.core.safe_read import is_there
from model_profiling.program.category import Category
from model_profiling.program.records import OperatorKey
from model_profiling.run import names
from model_profiling.run.manifest import Manifest, read_manifest
from model_profiling.run.metrics import PairParity
from model_profiling.run.series import Series
from model_profiling.run.times import Times


@dataclass(frozen=True, slots=True)
class KernelWork:
    """How often a kernel was called for m rows, n columns and a depth of k. Those that it does not have are
    None, and all where more sizes were met than are kept."""

    m: int | None
    n: int | None
    k: int | None
    calls: int


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One kernel of a process: called, and how often where that was counted, or only configured."""

    name: str
    evidence: Literal["executed", "configured"]
    calls: int | None = None
    worked_on: tuple[KernelWork, ...] = ()
    """Empty where sizes were not kept."""


@dataclass(frozen=True, slots=True)
class KernelList:
    """The kernels of one series."""

    series: Series
    sme2: bool | None
    kernels: tuple[KernelCall, ...]
    counted: bool
    """Every KleidiAI call was listed; only then is absence a proof."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixOperator:
    """An operator that multiplies matrices, as it ran with SME2 on.

    What it is called changes with its kernel, so it is known by its place in the program.
    """

    method: str
    chain_index: int
    instruction_id: int
    occurrence: int
    node: int
    """Position in the delegate's graph; -1 outside delegates and where no program tells."""
    order: int
    """Which operator that multiplies matrices it is in its call, counted from 0."""
    of: int
    """How many of them its call has."""
    name: str
    category: Category
    kind: str
    backend: str
    flops: int | None
    rows: int | None
    """Of the result, seen as one matrix (the M of a GEMM); None where no program tells."""
    on_sme: bool
    why_not: str = ""
    """Why it runs on no SME or SME2 kernel, as far as that is known."""
    module_path: str = ""
    source: str = ""
    """`model.py:22`."""
    cause: str = ""
    """The same as `why_not` in a word or two, `dtype` say; empty where it is not known and in older files."""
    precision: str = ""
    """What it computed in; empty where nothing tells and in older files."""

    @property
    def key(self) -> OperatorKey:
        return OperatorKey(self.method, self.chain_index, self.instruction_id, self.occurrence, self.node)


@dataclass(frozen=True, slots=True)
class OperatorProof:
    """Which operators of a program ran on SME or SME2 kernels, in one series with SME2 on."""

    series: Series
    operators: tuple[MatrixOperator, ...] = ()
    isa: str = ""
    """The strongest that ran, SME2 or SME; empty where neither did."""
    not_tested: str = ""
    """Why the series proves nothing; empty where it does."""
    unseen: tuple[str, ...] = ()
    """Delegates that reported no operators: what they compute is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one run proved; `place` is where, `made` when. Where none could be had, `problem` and `fix`."""

    schema_version: Literal[1] = 1
    model_sha256: str
    place: str
    cpu: str
    times: Times
    made: str = ""
    executorch: str = ""
    kernels: tuple[KernelList, ...] = ()
    parity: tuple[PairParity, ...] = ()
    operators: OperatorProof | None = None
    """None in files of earlier versions."""
    problem: str = ""
    fix: str = ""


def read_evidence(run_dir: Path) -> Evidence | None:
    path = run_dir / names.EVIDENCE
    return read_record(Evidence, path, "profile again, or remove the file") if is_there(path) else None


def proving_run(run_dir: Path, model_sha256: str) -> Path | None:
    """The newest finished emulated run of the same program beside `run_dir`; itself it is not."""
    here = run_dir.resolve()
    found: list[tuple[str, Path]] = []
    for path in sorted(here.parent.glob(f"*/{names.MANIFEST}")) if model_sha256 else ():
        if path.parent != here and (manifest := _readable(path.parent)) is not None:
            same = manifest.model_sha256 == model_sha256
            if same and manifest.target.times is Times.EMULATED and manifest.has_ended:
                found.append((manifest.started, path.parent))
    return max(found)[1] if found else None


def _readable(run_dir: Path) -> Manifest | None:
    try:
        return read_manifest(run_dir)
    except (FormatError, InputError):
        return None  # a damaged neighbour proves nothing, and is not this run's trouble


# How many times faster SME2 is taken to make an operator, as a range; a projection is made with these.
# The usual ranges hold unless a user gives others. Those are kept in the run they were given for, in
# sme2_factors.json, so that every file made of the run afterwards is made with them.

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
    numbers = value if isinstance(value, list) and len(value) == 2 else ()
    if not all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in numbers):
        numbers = ()
    if not (numbers and 0 < numbers[0] <= numbers[1] < math.inf):
        raise FormatError(f"{source} is no range above 0 from low to high", _FIX)
    return Range(float(numbers[0]), float(numbers[1]))


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
