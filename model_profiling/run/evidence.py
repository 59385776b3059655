"""evidence.json: kernels and outputs that another run of the same program proved, copied into a run.

A CPU without SME2 gives latencies; emulation of the same program (told by its SHA-256) shows what SME2 runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from model_profiling.errors import FormatError, InputError
from model_profiling.json_record import read_record
from model_profiling.program.category import Category
from model_profiling.reading import is_there
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
    def call(self) -> tuple[str, int, int, int]:
        return self.method, self.chain_index, self.instruction_id, self.occurrence


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
