"""What an export produced and how it was checked: plain records without torch."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from model_profiling.core.errors import FormatError
from model_profiling.core.formatting import plural, size
from model_profiling.core.records import parse_record, read_json_object
from model_profiling.program.graph_file import OutsideGroup, Undelegated, group_outside
from model_profiling.program.records import NoiseByLayer
from model_profiling.statistics.parity import OutputParity, Parity, Verdict

BACKENDS = ("xnnpack", "portable")
SCHEMA_VERSION = 3
EXAMPLE_INPUTS = "the example inputs only"


@dataclass(frozen=True, slots=True)
class DelegationCoverage:
    """How much of the model the backend took."""

    delegated: int
    partitions: int
    undelegated: tuple[Undelegated, ...]
    inserted_transposes: int
    """Layout changes that lowering inserted into the backend's graphs; the model does not contain them."""

    @property
    def operators(self) -> int:
        return self.delegated + len(self.undelegated)

    @property
    def outside(self) -> tuple[OutsideGroup, ...]:
        """What stayed outside, grouped by reason; the operators of one call in the model stay together."""
        return group_outside(self.undelegated)

    @property
    def share(self) -> float:
        """The delegated share of all operators, 0 to 1."""
        return self.delegated / self.operators if self.operators else 0.0


_SMALLEST = 2.0**-126
"""Below this float32 loses digits, and backends may treat a number as zero."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """How far one set of outputs is from another, in total and per output."""

    max_abs: float
    max_rel: float
    """`max_abs` over the reference's largest magnitude, unless that vanished; for integers the share that
    differs."""
    tolerance: float
    """The largest accepted `max_rel`."""
    largest: float | None
    """The largest magnitude among the reference's floating-point values; None if it has none."""
    verdict: Verdict
    outputs: tuple[OutputParity, ...]

    @property
    def vanished(self) -> bool:
        """Whether the reference is zero or too small for float32 to hold its digits, and so shows nothing."""
        return self.largest is not None and self.largest < _SMALLEST

    @property
    def ok(self) -> bool:
        """Whether it is within the tolerance, or both are too small to be compared."""
        return self.verdict != "mismatch" or (self.vanished and 0 < self.max_abs < _SMALLEST)

    @property
    def distance(self) -> str:
        """`0.25 of their range, 0.47 RMS (accepted 0.03, 0.12 RMS); another top-1`."""
        rms, accepted = "", f"accepted {self.tolerance:g}"
        spread = [output for output in self.outputs if output.rms_of_rms is not None]
        if spread:
            worst = max(spread, key=lambda output: output.rms_of_rms or 0.0)
            rms = f", {worst.rms_of_rms:.2g} RMS"
            accepted += f", {worst.tolerance.rms:g} RMS" if worst.tolerance.rms else ""
        remarks = f"; {self.remarks}" if self.remarks else ""
        return f"{self.max_rel:.2g} of their range{rms} ({accepted}){remarks}"

    @property
    def remarks(self) -> str:
        return Parity(self.outputs, self.verdict).remarks

    @property
    def text(self) -> str:
        """The verdict with what figures alone do not say."""
        return Parity(self.outputs, self.verdict).text


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The program's outputs compared with PyTorch, twice; None if it gave none."""

    lowering: Deviation | None = None
    """Against eager PyTorch in the program's dtype: the effect of lowering and of the backend."""
    precision: Deviation | None = None
    """Against eager PyTorch in float32: the cost of the dtype itself."""
    real_inputs: int = 0
    """How many calibration inputs `precision` was computed on; 0 for the example inputs."""
    problem: str = ""
    """Why the program cannot be used as it is: it does not run, or gives no numbers."""
    fix: str = ""
    layers: NoiseByLayer | None = None
    """By layer; None if that was not asked for."""
    where: str = ""
    """`, first in OPERATOR in MODULE at LINE`, if it computes something else than PyTorch from there on."""

    @property
    def ok(self) -> bool:
        """Whether it computes what PyTorch computes in the same dtype."""
        return not self.problem and self.lowering is not None and self.lowering.ok


@dataclass(frozen=True, slots=True)
class Applied:
    """A call that a rewrite replaced, or a value that is computed once."""

    rewrite: str
    operator: str
    module: str
    source: str
    """`model.py:12: the line`; empty if the trace did not keep it."""


@dataclass(frozen=True, slots=True)
class ExportedMethod:
    """One method of a program. What the program itself says of its methods is not repeated here."""

    name: str
    inputs: dict[str, str]
    """By name, in order: the example that the method was traced with, as `1x32 int64`."""
    delegated: int
    operators: int
    partitions: int


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
    coverage: DelegationCoverage
    accuracy: Accuracy
    seconds: float
    versions: dict[str, str]
    calibration: str
    """The inputs that ranges of activations were observed on; empty for formats without them."""
    warnings: tuple[str, ...]
    keep: tuple[str, ...] = ()
    """The modules that stayed in float32."""
    methods: tuple[ExportedMethod, ...] = ()
    """In the order in which an application calls them; `inputs` and `outputs` are those of the first."""
    rewrites: tuple[Applied, ...] = ()
    """Where the graph was rewritten, in all methods."""

    @property
    def rewritten(self) -> dict[str, int]:
        """How many calls each rewrite replaced."""
        return dict(Counter(each.rewrite for each in self.rewrites))

    def __repr__(self) -> str:
        taken = f"{self.coverage.delegated} of {plural(self.coverage.operators, 'operator')} delegated"
        checked = "" if self.accuracy.ok else f", {self.accuracy.problem or 'outputs differ from PyTorch'}"
        return f"<ExportResult {self.pte}: {size(self.size_bytes)}, {taken}{checked}>"

    def as_dict(self) -> dict[str, object]:
        """Content for JSON; paths are relative to the summary's folder."""
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
        content["accuracy"]["ok"] = self.accuracy.ok
        for kind in ("lowering", "precision"):
            found: Deviation | None = getattr(self.accuracy, kind)
            if found is not None:
                content["accuracy"][kind] |= {"ok": found.ok, "text": found.text}
        return {"schema_version": SCHEMA_VERSION, **content}


_AGAIN = "export the model again"


def read_export(pte: Path) -> ExportResult:
    summary = Path(f"{pte}.json")
    content = read_json_object(summary, _AGAIN, follow=True)
    if content.get("schema_version") != SCHEMA_VERSION:
        raise FormatError(f"{summary} was written by another version of the kit", _AGAIN)
    found = parse_record(ExportResult, content, str(summary), _AGAIN)
    graph = found.graph and pte.parent / found.graph
    etrecord = pte.parent / found.etrecord
    return replace(found, pte=pte, etrecord=etrecord, graph=graph, summary=summary)
