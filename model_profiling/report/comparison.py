"""The result of comparing two measurements: records for the renderers, the gate and the exit code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from model_profiling.analysis.pairing import CategoryPair, OperatorPair, Pairing
from model_profiling.analysis.structure import Aspect, Differences
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.report import tables
from model_profiling.report.tables import Records
from model_profiling.runs import Times
from model_profiling.runs.metrics import PairSpeedup
from model_profiling.statistics.speedup import Speedup, Verdict, Way

Answer = Literal["passed", "failed", "no answer"]
NOT_MEASURED = "A has it, B has not"


@dataclass(frozen=True, slots=True)
class SideFacts:
    """One of the two things compared; a field is empty if its files do not say."""

    name: str
    """As the user wrote it."""
    kind: str
    """`run directory`, `dump`, `latencies` or `stored run`."""
    model: str
    model_sha256: str
    platform: str
    cpu: str
    executorch: str
    runner_build: str
    times: Times
    is_arm: bool | None = None
    """Whether its CPU is an Arm CPU; None if unknown."""
    machine: str = ""
    """Such as `x86_64`."""
    tokens: int | None = None
    """Tokens in one inference of a language model."""

    @property
    def program(self) -> str:
        """Return `toy_cnn XNNPACK int8`."""
        model, variant = names.spoken_variant(self.model)
        return " ".join((model, *variant))


@dataclass(frozen=True, slots=True)
class SeriesComparison:
    """One experiment of the second side compared with one of the first."""

    before: Series
    after: Series
    end_to_end: Speedup
    with_tracer: bool
    """Whether traced times were compared because a side lacks latencies without the tracer."""
    pairing: Pairing | None
    """Categories and operators side by side; None if a side has no dumps."""
    notes: tuple[str, ...]
    way: Way
    """Whether the two sides took turns, ran side by side, or were measured at different times."""

    def __repr__(self) -> str:
        return f"<SeriesComparison {self.name}: {self.end_to_end.in_short}>"

    @property
    def parts(self) -> tuple[CategoryPair, ...]:
        """The parts of end-to-end time; empty if times may not be compared."""
        return self.pairing.categories if self.pairing and not self.pairing.not_comparable else ()

    @property
    def operators(self) -> tuple[OperatorPair, ...]:
        return self.pairing.operators if self.pairing else ()

    @property
    def name(self) -> str:
        return str(self.after) if self.before == self.after else f"{self.after} vs {self.before}"

    @property
    def comparable(self) -> bool:
        return self.end_to_end.verdict is not Verdict.NOT_COMPARABLE

    @property
    def faster(self) -> Literal["A", "B"] | None:
        """The side that is significantly faster."""
        verdict = self.end_to_end.verdict
        return "B" if verdict is Verdict.FASTER else "A" if verdict is Verdict.SLOWER else None

    @property
    def slowdown(self) -> float | None:
        """How much longer the second side takes, as a share: 0.05 is 5% longer; negative is faster."""
        ratio = self.end_to_end.ratio
        return None if ratio is None else 1 / ratio - 1

    @property
    def worst_slowdown(self) -> float | None:
        """The largest slowdown that the measurement does not rule out."""
        low = self.end_to_end.low
        return None if low is None else 1 / low - 1

    def regressed(self, limit: float) -> bool:
        """Whether the second side is significantly slower, by more than `limit`."""
        slower = self.end_to_end.verdict is Verdict.SLOWER
        return slower and self.slowdown is not None and self.slowdown > limit

    def could_hide(self, limit: float) -> bool:
        """Whether a slowdown of more than `limit` could be hidden by noise."""
        return (
            self.comparable
            and not self.regressed(limit)
            and self.worst_slowdown is not None
            and self.worst_slowdown > limit
        )


@dataclass(frozen=True, slots=True)
class ComparisonFacts:
    """Two measurements, B judged against A."""

    a: SideFacts
    b: SideFacts
    series: tuple[SeriesComparison, ...]
    only_a: tuple[Series, ...]
    only_b: tuple[Series, ...]
    limit: float | None
    """A slowdown above this share fails; None if times are not gated."""
    differences: tuple[Differences, ...] = ()
    """Differences apart from time, per experiment; also in what emulation proved for each side."""
    gated: tuple[Aspect, ...] = ()
    """The kinds of difference that fail."""

    @property
    def tokens(self) -> int | None:
        """Tokens in one inference, if both sides have the same number."""
        return self.a.tokens if self.a.tokens == self.b.tokens else None

    @property
    def speedups(self) -> Records:
        """End to end, experiment by experiment."""
        return tables.speedup_table(
            PairSpeedup(found.name, found.before, found.after, found.end_to_end, found.with_tracer)
            for found in self.series
        )

    @property
    def category_changes(self) -> Records:
        """Each category of each experiment, in A and in B."""
        return tables.category_changes(self._pairings)

    @property
    def operator_changes(self) -> Records:
        """Each operator of each experiment, in A and in B."""
        return tables.operator_changes(self._pairings)

    @property
    def _pairings(self) -> list[tuple[str, Pairing]]:
        return [(found.name, found.pairing) for found in self.series if found.pairing]

    @property
    def regressions(self) -> tuple[SeriesComparison, ...]:
        if self.limit is None:
            return ()
        return tuple(found for found in self.series if found.regressed(self.limit))

    @property
    def not_comparable(self) -> tuple[SeriesComparison, ...]:
        return tuple(found for found in self.series if not found.comparable)

    @property
    def changed(self) -> tuple[tuple[Aspect, Differences], ...]:
        """The differences that fail."""
        return tuple(
            (aspect, found) for aspect in self.gated for found in self.differences if found.of(aspect)
        )

    @property
    def is_gated(self) -> bool:
        """Whether a build asks for an answer."""
        return self.limit is not None or bool(self.gated)

    @property
    def unanswered(self) -> tuple[tuple[str, str], ...]:
        """What should be judged but cannot be, each with the reason."""
        if not self.is_gated:
            return ()
        times = self.not_comparable if self.limit is not None else ()
        return (
            *((str(series), NOT_MEASURED) for series in self.only_a),
            *((found.name, found.end_to_end.reason) for found in times),
            *(
                (f"{aspect} of {found.name}", why)
                for aspect in self.gated
                for found in self.differences
                if (why := found.unknown(aspect))
            ),
        )

    @property
    def answer(self) -> Answer | None:
        """The result for a build; None if nothing is gated. A failure outweighs missing answers."""
        if not self.is_gated:
            return None
        if self.regressions or self.changed:
            return "failed"
        return "no answer" if self.unanswered else "passed"

    @property
    def differing_facts(self) -> tuple[tuple[str, str, str], ...]:
        """Other facts that both sides state and that differ: name, value in A, value in B."""
        named = (
            ("program", self.a.model, self.b.model),
            ("program's content (SHA-256)", self.a.model_sha256[:16], self.b.model_sha256[:16]),
            ("platform", self.a.platform, self.b.platform),
            ("CPU", self.a.cpu, self.b.cpu),
            ("ExecuTorch", self.a.executorch, self.b.executorch),
            ("runner build", self.a.runner_build, self.b.runner_build),
        )
        return tuple(row for row in named if row[1] and row[2] and row[1] != row[2])
