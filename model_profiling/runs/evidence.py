"""evidence.json: kernels and outputs proven by another run of the same program, copied into a run.

A CPU without SME2 gives latencies; an emulated run of the same program (same SHA-256) shows what SME2 runs.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core import files
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.formatting import did_you_mean
from model_profiling.core.records import read_json_object, read_record
from model_profiling.core.safe_read import is_there
from model_profiling.program.category import Category
from model_profiling.program.records import OperatorKey
from model_profiling.runner.samples import Samples
from model_profiling.runs.manifest import Manifest, Result, read_manifest
from model_profiling.runs.metrics import PairParity
from model_profiling.runs.times import Times


@dataclass(frozen=True, slots=True)
class KernelWork:
    """Calls of a kernel with m rows, n columns and depth k; a size is None if absent or not kept."""

    m: int | None
    n: int | None
    k: int | None
    calls: int


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One kernel of a process: executed (with the number of calls if counted) or only configured."""

    name: str
    evidence: Literal["executed", "configured"]
    calls: int | None = None
    worked_on: tuple[KernelWork, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelList:
    series: Series
    sme2: bool | None
    kernels: tuple[KernelCall, ...]
    counted: bool
    """Whether every KleidiAI call was listed; only then does absence prove anything."""
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixOperator:
    """An operator that multiplies matrices, as it ran with SME2 on. It is identified by its place in the
    program, because its name changes with its kernel."""

    method: str
    chain_index: int
    instruction_id: int
    occurrence: int
    node: int
    """Position in the delegate's graph; -1 outside delegates and without a program."""
    order: int
    """Its index among the matrix operators of its call, from 0."""
    of: int
    """Number of matrix operators in its call."""
    name: str
    category: Category
    kind: str
    backend: str
    flops: int | None
    rows: int | None
    """Rows of the result as one matrix (the M of a GEMM); None without a program."""
    on_sme: bool
    why_not: str = ""
    """Why it runs on no SME or SME2 kernel, if known."""
    module_path: str = ""
    source: str = ""
    """For example `model.py:22`."""
    cause: str = ""
    """`why_not` in a word or two, such as `dtype`; empty if unknown and in older files."""
    precision: str = ""
    """The type it computed in; empty if unknown and in older files."""

    @property
    def key(self) -> OperatorKey:
        return OperatorKey(self.method, self.chain_index, self.instruction_id, self.occurrence, self.node)


@dataclass(frozen=True, slots=True)
class OperatorProof:
    """Which operators of a program ran on SME or SME2 kernels, in one series with SME2 on."""

    series: Series
    operators: tuple[MatrixOperator, ...] = ()
    isa: str = ""
    """The strongest that ran, SME2 or SME; empty if neither did."""
    not_tested: str = ""
    """Why the series proves nothing; empty if it does."""
    unseen: tuple[str, ...] = ()
    """Delegates that reported no operators, so it is unknown what they compute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What one run proved (`place`: where, `made`: when), or `problem` and `fix` if nothing is proven."""

    schema_version: Literal[1] = 1
    model_sha256: str
    place: str
    cpu: str
    times: Times
    made: str = ""
    fed: str = ""
    """Sizes and values of inputs that were asked for: `tokens_32_input_pos_0`."""
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


def proving_run(run_dir: Path, manifest: Manifest) -> Path | None:
    """Return the newest finished emulated run of the same program, method (if known) and inputs beside
    `run_dir`, other than itself."""
    here = run_dir.resolve()
    runs: list[tuple[str, Path]] = []
    for path in sorted(here.parent.glob(f"*/{names.MANIFEST}")) if manifest.model_sha256 else ():
        if path.parent != here and (other := _readable(path.parent)) is not None:
            same = other.model_sha256 == manifest.model_sha256 and other.fed == manifest.fed
            same = same and manifest.method in ("", other.method)
            if same and other.target.times is Times.EMULATED and other.has_ended:
                runs.append((other.started, path.parent))
    return max(runs)[1] if runs else None


def _readable(run_dir: Path) -> Manifest | None:
    try:
        return read_manifest(run_dir)
    except (FormatError, InputError):
        return None  # a damaged neighbour proves nothing and does not concern this run


def read_samples(run_dir: Path, result: Result | None) -> Samples | None:
    """Return the stack samples of a result, from the file beside its dumps."""
    path = run_dir / result.samples if result and result.samples else None
    if path is None or not is_there(path):
        return None
    fix = f"sample it again, or remove the file *{names.SAMPLES}"
    samples = read_record(Samples, path, fix)
    functions, held = len(samples.functions), len(samples.files)
    if not (
        all(
            call >= -1 and operator >= -1 and thread >= 0 and 0 <= function < functions and count > 0
            for call, operator, thread, function, count in samples.seen
        )
        and all(-1 <= function.file < held for function in samples.functions)
    ):
        raise FormatError(f"{path}: its samples do not match the functions and files that it lists", fix)
    return samples


# SME2 factors: how many times faster SME2 is assumed to make an operator, as a range, for projections.
# Factors that the user gives are kept in sme2_factors.json of the run, so that all its later files use them.

CONV, GEMM, ONE_ROW = Category.CONV.value, Category.GEMM.value, "GEMM with one row"
_FIX = 'give LOW:HIGH such as 3:15, or a file such as {"Convolution": [3, 15], "GEMM": [2, 8]}'


@dataclass(frozen=True, slots=True)
class Range:
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


PUBLISHED = Range(3, 15)
"""Published for convolution and GEMM."""
FIELD = Range(0.33, 1)
"""Reported from the field for GEMM with one row, where SME2 is slower or at best no faster."""


@dataclass(frozen=True, slots=True)
class Factors:
    ranges: Mapping[str, Range]
    given: bool = False

    @property
    def origin(self) -> str:
        return "given with --sme2-factor" if self.given else "published ranges"

    def of(self, name: str) -> Range:
        return self.ranges[name]


USUAL = Factors({CONV: PUBLISHED, GEMM: PUBLISHED, ONE_ROW: FIELD})


def parse_factors(text: str) -> Factors:
    """Parse `LOW:HIGH` for convolution and GEMM, or read a file with a range for each kind."""
    bounds = re.fullmatch(r"([^:\n]+):([^:\n]+)", text)
    numbers = [_number(word) for word in bounds.groups()] if bounds else []
    if bounds and None not in numbers:
        given = _range(numbers, f"--sme2-factor {text}")
        return Factors({**USUAL.ranges, CONV: given, GEMM: given}, given=True)
    path = Path(text)
    if not path.is_file():
        raise InputError(f"--sme2-factor {text} is neither LOW:HIGH nor a file", _FIX)
    return _factors(read_json_object(path, _FIX, follow=True), str(path))


def read_factors(run_dir: Path) -> Factors:
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
            raise FormatError(f"{source}: unknown key {key}", did_you_mean(key, ranges) or known)
        ranges[name] = _range(value, f"{source}: {key}: {json.dumps(value)}")
    return Factors(ranges, given=True)


def _range(value: object, source: str) -> Range:
    numbers = value if isinstance(value, list) and len(value) == 2 else ()
    if not all(isinstance(bound, int | float) and not isinstance(bound, bool) for bound in numbers):
        numbers = ()
    if not (numbers and 0 < numbers[0] <= numbers[1] < math.inf):
        raise FormatError(f"{source} is not a range from low to high, both above 0", _FIX)
    return Range(float(numbers[0]), float(numbers[1]))


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
