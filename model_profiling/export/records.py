"""What an export produced and how it was checked; plain records, free of torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from model_profiling.program.undelegated import OutsideGroup, Undelegated, group_outside
from model_profiling.wording import plural, size

SCHEMA_VERSION = 3
EXAMPLE_INPUTS = "the example inputs alone"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much of the model the backend took over."""

    delegated: int
    partitions: int
    undelegated: tuple[Undelegated, ...]
    inserted_transposes: int
    """Layout changes that lowering put into the backend's graphs; nobody's model contains them."""

    @property
    def operators(self) -> int:
        return self.delegated + len(self.undelegated)

    @property
    def outside(self) -> tuple[OutsideGroup, ...]:
        """What stayed outside by reason; what one call of the model leaves outside stands together."""
        return group_outside(self.undelegated)

    @property
    def share(self) -> float:
        """Delegated part of all operators, 0 to 1."""
        return self.delegated / self.operators if self.operators else 0.0


_SMALLEST = 2.0**-126
"""Below it float32 loses digits, and backends may take a number for zero."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """The largest difference between two sets of outputs."""

    max_abs: float
    max_rel: float
    """`max_abs` over the largest magnitude of the reference output, unless that has vanished."""
    cosine: float
    tolerance: float
    """The `max_rel` that is still accepted."""
    largest: float | None = None
    """The largest magnitude of the reference's numbers with a fraction; None where it has none."""

    @property
    def vanished(self) -> bool:
        """Whether the reference is zero, or too small for float32 to hold its digits: it tells nothing."""
        return self.largest is not None and self.largest < _SMALLEST

    @property
    def ok(self) -> bool:
        return self.max_rel <= self.tolerance


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The program's outputs on the example inputs, against PyTorch twice."""

    lowering: Deviation
    """Against eager PyTorch in the program's own dtype: what lowering and the backend changed."""
    precision: Deviation
    """Against eager PyTorch in float32: what the dtype itself costs."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    """An exported program, its companions, and the checks it passed."""

    model: str
    source: str
    dtype: str
    backend: str
    seed: int
    pte: Path
    etrecord: Path
    graph: Path | None
    summary: Path
    sha256: str
    size_bytes: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    coverage: Coverage
    accuracy: Accuracy
    seconds: float
    versions: dict[str, str]
    calibration: str
    """What the ranges of an int8 program were observed on; empty for the others."""
    warnings: tuple[str, ...]

    def __repr__(self) -> str:
        taken = f"{self.coverage.delegated} of {plural(self.coverage.operators, 'operator')} delegated"
        checked = "" if self.accuracy.lowering.ok else ", outputs differ from PyTorch"
        return f"<ExportResult {self.pte}: {size(self.size_bytes)}, {taken}{checked}>"

    def as_dict(self) -> dict[str, object]:
        """For JSON; paths are relative to the summary's own folder."""
        content = asdict(self)
        for key in ("pte", "etrecord", "graph", "summary"):
            path: Path | None = content[key]
            content[key] = path.name if path else None
        coverage = self.coverage
        content["coverage"] |= {
            "operators": coverage.operators,
            "share": coverage.share,
            "outside": [asdict(group) | {"count": group.count} for group in coverage.outside],
        }
        content["accuracy"]["lowering"]["ok"] = self.accuracy.lowering.ok
        content["accuracy"]["precision"]["ok"] = self.accuracy.precision.ok
        return {"schema_version": SCHEMA_VERSION, **content}
