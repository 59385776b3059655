"""evidence.json: kernels and outputs proven by another run of the same program, copied into a run.

A CPU without SME2 gives latencies; an emulated run of the same program (same SHA-256) shows what SME2 runs.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.records import read_record
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
        other = None
        with contextlib.suppress(FormatError, InputError):  # a damaged neighbour proves nothing
            other = read_manifest(path.parent)
        if other is None or path.parent == here:
            continue
        same = other.model_sha256 == manifest.model_sha256 and other.fed == manifest.fed
        same = same and manifest.method in ("", other.method)
        if same and other.target.times is Times.EMULATED and other.has_ended:
            runs.append((other.started, path.parent))
    return max(runs)[1] if runs else None


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
