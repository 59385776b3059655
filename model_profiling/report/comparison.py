"""The result of comparing two measurements: one record for every renderer, the gates and the exit code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from model_profiling.analysis.pairing import CategoryPair, OperatorPair, Pairing
from model_profiling.analysis.structure import Aspect, Differences
from model_profiling.config import names
from model_profiling.config.series import Series, default_label, name_series
from model_profiling.core.formatting import MISSING, change, listing, milliseconds, percent, plural, several
from model_profiling.report import document as doc
from model_profiling.report import tables
from model_profiling.report.breakdown import ratio_text, speedup_text
from model_profiling.report.document import render_markdown
from model_profiling.report.tables import Records
from model_profiling.runs import Times
from model_profiling.runs.records import PairSpeedup
from model_profiling.runs.times import marked
from model_profiling.statistics.speedup import Speedup, Verdict, Way

GateAnswer = Literal["passed", "failed", "no answer"]
NOT_MEASURED = "A has it, B has not"


CaseOutcome = Literal["passed", "failed", "skipped", "error"]
"""`failed`: the answer is no. `error`: there is no answer. `skipped`: the question was not asked."""


@dataclass(frozen=True, slots=True)
class Case:
    """One question and its outcome; `message` is one line, `details` may be longer."""

    name: str
    outcome: CaseOutcome
    message: str = ""
    details: str = ""
    aspect: Aspect | None = None
    """What it asks about apart from time."""

    @property
    def question(self) -> str:
        return f"{self.aspect} of {self.name}" if self.aspect else self.name


@dataclass(frozen=True, slots=True)
class SideFacts:
    """One of the two things compared; a field is empty if its files do not say."""

    name: str
    """As the user wrote it."""
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

    @property
    def program(self) -> str:
        """Return `toy_cnn XNNPACK int8`."""
        model, variant = names.spoken_variant(self.model)
        return " ".join((model, *variant))


@dataclass(frozen=True, slots=True, repr=False)
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
    turns_ms: tuple[float, float] | None = None
    """What was compared: typical turns of both sides; None if times with the tracer were."""

    @property
    def parts(self) -> tuple[CategoryPair, ...]:
        """The parts of end-to-end time; empty if times may not be compared."""
        return self.pairing.categories if self.pairing and not self.pairing.not_comparable else ()

    @property
    def operators(self) -> tuple[OperatorPair, ...]:
        return self.pairing.operators if self.pairing else ()

    @property
    def name(self) -> str:
        return default_label(self.before, self.after)

    @property
    def compared_ms(self) -> tuple[float | None, float | None]:
        """The times that the speedup is of."""
        return self.turns_ms or (self.end_to_end.baseline_median, self.end_to_end.candidate_median)

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


@dataclass(frozen=True, slots=True, repr=False)
class Comparison:
    """What `compare` returns: two measurements, B judged against A. A notebook shows its answer and table.

    `speedups`, `category_changes` and `operator_changes` are tables with `to_pandas()`; `regressions` is
    empty where nothing is slower than `limit` allows.
    """

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

    def __repr__(self) -> str:
        models = " and ".join(dict.fromkeys(side.model for side in (self.a, self.b) if side.model)) or "model"
        return f"<Comparison {models}: {headline(self).rstrip('.')}>"

    def _repr_markdown_(self) -> str:
        return render_markdown([doc.Heading(headline(self)), end_to_end_table(self)])

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
    def _pairings(self) -> list[Pairing]:
        return [found.pairing for found in self.series if found.pairing]

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
    def cases(self) -> tuple[Case, ...]:
        """A question for each experiment, and for each kind of difference that fails."""
        return (*_timed_cases(self), *_structure_cases(self))

    @property
    def unanswered(self) -> tuple[tuple[str, str], ...]:
        """What should be judged but cannot be, each with the reason."""
        return tuple((case.question, case.message) for case in self.cases if case.outcome == "error")

    @property
    def answer(self) -> GateAnswer | None:
        """The result for a build; None if nothing is gated. A failure outweighs missing answers."""
        if not self.is_gated:
            return None
        outcomes = {case.outcome for case in self.cases}
        return "failed" if "failed" in outcomes else "no answer" if "error" in outcomes else "passed"

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


def _timed_cases(comparison: Comparison) -> Iterator[Case]:
    for row in comparison.series:
        found = row.end_to_end
        if not row.comparable:
            seen = "" if found.ratio is None else f"{ratio_text(found)}, without a verdict"
            unasked: CaseOutcome = "error" if comparison.limit is not None else "skipped"
            yield Case(row.name, unasked, found.reason, seen)
        elif row in comparison.regressions:
            message = f"{percent(row.slowdown)} slower, more than the {percent(comparison.limit)} allowed"
            yield Case(row.name, "failed", message, found.reason)
        else:
            yield Case(row.name, "passed", found.verdict.value, found.reason)
    for series in comparison.only_a:
        yield Case(str(series), "error" if comparison.is_gated else "skipped", NOT_MEASURED)


def _structure_cases(comparison: Comparison) -> Iterator[Case]:
    for aspect in comparison.gated:
        for found in comparison.differences:
            if aspect != "kernels" and found.only_kernels:
                continue
            if changes := found.of(aspect):
                message = f"{aspect} changed: {plural(len(changes), 'difference')}"
                yield Case(found.name, "failed", message, "\n".join(map(str, changes)), aspect)
            elif why := found.unknown.get(aspect):
                yield Case(found.name, "error", why, aspect=aspect)
            else:
                notes = "\n".join(found.notes)
                yield Case(found.name, "passed", f"{aspect} did not change", notes, aspect)


# The comparison in one line, with the result of every gate.


def headline(comparison: Comparison) -> str:
    """Return one line: the result of each gate, failures first; without gates, the largest change."""
    if comparison.answer is None:
        return _largest(comparison)
    said = list(_gate_sentences(comparison))
    if comparison.limit is not None:
        said.insert(0, _about_time(comparison, comparison.limit))
    if comparison.only_a:
        said.append((False, f"No answer: only A has {name_series(comparison.only_a)}."))
    return " ".join(sentence for _, sentence in sorted(said, key=lambda each: each[0]))


def _about_time(comparison: Comparison, limit: float) -> tuple[bool, str]:
    """Return whether the time gate passed, and its sentence."""
    if comparison.regressions:
        worst = max(comparison.regressions, key=lambda found: found.slowdown or 0.0)
        slower = percent(worst.slowdown)
        said = f"Regression: B is {slower} slower than A in {worst.name}"
        return False, f"{said}, more than the {percent(limit)} allowed{about_arm(comparison)}."
    if comparison.not_comparable:
        count = plural(len(comparison.not_comparable), "experiment")
        return False, f"No answer: {count} cannot be compared."
    return True, f"No regression beyond {percent(limit)}{about_arm(comparison)}."


def _largest(comparison: Comparison) -> str:
    """Say which side is faster, in the experiment that differs most."""
    if comparison.not_comparable and not any(found.faster for found in comparison.series):
        reasons = dict.fromkeys(found.end_to_end.reason for found in comparison.not_comparable)
        return f"Not comparable: {next(iter(reasons))}{' (and more reasons)' if len(reasons) > 1 else ''}."
    largest = max(comparison.series, key=lambda found: (found.faster is not None, abs(found.slowdown or 0.0)))
    where = f" in {largest.name}" if len(comparison.series) > 1 else ""
    a, b = named_sides(comparison)
    fast, slow, found = b, "A", largest.end_to_end
    if largest.faster == "A":
        fast, slow = a, "B"
        found = replace(
            found, ratio=_inverse(found.ratio), low=_inverse(found.high), high=_inverse(found.low)
        )
    faster = speedup_text(found, f" as fast as {slow}{where}")
    said = f"{fast} is {faster}{about_arm(comparison)}."
    return said if largest.faster else f"No significant difference: {said}"


def _inverse(ratio: float | None) -> float | None:
    return 1 / ratio if ratio else None


def named_sides(comparison: Comparison) -> tuple[str, str]:
    """Return `A` and `B`, with their programs if these differ."""
    a, b = comparison.a.program, comparison.b.program
    return (f"A ({a})", f"B ({b})") if a and b and a != b else ("A", "B")


def about_arm(comparison: Comparison) -> str:
    """Return `, on x86_64: says nothing about Arm` if a side was measured on a CPU that is not Arm."""
    sides = {name: side for name, side in (("A", comparison.a), ("B", comparison.b)) if side.is_arm is False}
    if not sides:
        return ""
    cpus = listing(dict.fromkeys(side.machine or "a CPU that is not Arm" for side in sides.values()))
    return f", {'' if len(sides) == 2 else f'{next(iter(sides))} '}on {cpus}: says nothing about Arm"


def _gate_sentences(comparison: Comparison) -> Iterator[tuple[bool, str]]:
    """Yield the result of each gate not about time, and whether it passed; passed ones share one sentence."""
    unchanged = []
    for aspect in comparison.gated:
        found = [each for asked, each in comparison.changed if asked == aspect]
        unknown = [each for each in comparison.differences if each.unknown.get(aspect)]
        if found:
            count = sum(len(each.of(aspect)) for each in found)
            yield False, f"{aspect.capitalize()} changed: {plural(count, 'difference')} in {_where(found)}."
        if unknown:
            yield False, f"No answer: {aspect} of {_where(unknown)} cannot be compared."
        unchanged += [] if found or unknown else [aspect]
    if unchanged:
        yield True, f"{listing(unchanged).capitalize()} did not change."


def _where(found: Sequence[Differences]) -> str:
    return found[0].name if len(found) == 1 else plural(len(found), "experiment")


def end_to_end_table(comparison: Comparison) -> doc.ShownTable:
    def verdict(found: SeriesComparison) -> doc.Text:
        word = found.end_to_end.verdict.value
        return doc.Strong(f"{word}, beyond the limit") if found in comparison.regressions else word

    units = dict.fromkeys(several(found.end_to_end.unit) for found in comparison.series)
    is_arm = False not in (comparison.a.is_arm, comparison.b.is_arm)
    columns: tuple[doc.TableColumn[SeriesComparison], ...] = (
        doc.TableColumn("experiment", lambda found: marked(found.name, is_arm)),
        doc.Number("A ms", lambda found: milliseconds(found.compared_ms[0])),
        doc.Number("B ms", lambda found: milliseconds(found.compared_ms[1])),
        doc.Number("change", lambda found: change(found.end_to_end.ratio)),
        doc.Number("speedup of B", lambda found: ratio_text(found.end_to_end)),
        doc.TableColumn("verdict", verdict),
        doc.TableColumn("measured", lambda found: found.end_to_end.measured or MISSING),
        doc.Number(" or ".join(units), lambda found: str(found.end_to_end.rounds or MISSING)),
    )
    # The only experiment needs no name, unless that says that its CPU is not Arm.
    return doc.table_of(comparison.series, columns[1:] if is_arm and len(comparison.series) == 1 else columns)
