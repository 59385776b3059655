"""What an export produced and how it was checked; plain records, free of torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Undelegated:
    """An operator that stayed outside the backend, and why, where that is known."""

    operator: str
    node: str
    module_path: str
    reason: str


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
    def share(self) -> float:
        """Delegated part of all operators, 0 to 1."""
        return self.delegated / self.operators if self.operators else 0.0


@dataclass(frozen=True, slots=True)
class Deviation:
    """The largest difference between two sets of outputs."""

    max_abs: float
    max_rel: float
    """`max_abs` over the largest magnitude of the reference output."""
    cosine: float
    tolerance: float
    """The `max_rel` that is still accepted."""

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
    warnings: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """For JSON; paths are relative to the summary's own folder."""
        content = asdict(self)
        for key in ("pte", "etrecord", "graph", "summary"):
            path: Path | None = content[key]
            content[key] = path.name if path else None
        content["coverage"] |= {"operators": self.coverage.operators, "share": self.coverage.share}
        content["accuracy"]["lowering"]["ok"] = self.accuracy.lowering.ok
        content["accuracy"]["precision"]["ok"] = self.accuracy.precision.ok
        return {"schema_version": SCHEMA_VERSION, **content}
