"""What rewriting a model's graph brought: the record behind `optimization.json`, and its page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from model_profiling.core.formatting import MISSING, listing, milliseconds, percent, plural
from model_profiling.export.catalogue import CHANNELS_LAST, IMAGES_CHANGED
from model_profiling.report import document as doc
from model_profiling.report.breakdown import ratio_text, speedup_text
from model_profiling.report.dtypes import OnSme2, tested_cell
from model_profiling.statistics.speedup import Speedup, Verdict

Decision = Literal["kept", "dropped", "not measured"]


@dataclass(frozen=True, slots=True)
class Place:
    """Calls of one operator at one line of the model."""

    operator: str
    source: str
    """`model.py:12: the line`; empty if the trace did not keep it."""
    modules: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class RewriteOutcome:
    """One kind of rewrite that fits the model, and why it was kept or dropped."""

    name: str
    decision: Decision
    because: str
    why: tuple[str, ...]
    instead: tuple[str, ...]
    places: tuple[Place, ...] = ()
    gain: Speedup | None = None
    """All rewrites compared with all but this one; it chose, and is not the reported speedup."""

    @property
    def count(self) -> int:
        return sum(place.count for place in self.places)


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """The original or the rewritten program; `program` and `run` are relative to the record's folder."""

    program: str
    sha256: str
    delegate_calls: int
    operators_outside: int
    outputs_agree: bool
    deviation: float | None
    """The largest difference from PyTorch in the same dtype, as a share of the outputs' range."""
    tolerance: float | None = None
    from_float32: float | None = None
    """The same from PyTorch in float32: what the number format itself costs."""
    sme2: OnSme2 | None = None
    run: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimization:
    schema_version: Literal[1] = 1
    model: str
    source: str
    dtype: str
    backend: str
    cpu: str = ""
    original: ProgramFacts
    optimized: ProgramFacts | None = None
    """None if nothing helped."""
    rewrites: tuple[RewriteOutcome, ...] = ()
    kept: tuple[str, ...] = ()
    """The names that `--optimize` applies again."""
    speedup: Speedup | None = None
    """From turns that were not used to choose; None if nothing was timed."""
    not_timed: str = ""
    """Why no times were measured; the choice is then by structure alone."""
    left: tuple[str, ...] = ()
    """What stays outside the delegates with every rewrite that fits."""

    @property
    def helped(self) -> bool:
        return self.optimized is not None

    @property
    def verdict(self) -> str:
        """`1.36x as fast (95% interval 1.35 to 1.37); outputs agree; 2 rewrites kept of 3`."""
        kept = f"{plural(len(self.kept), 'rewrite')} kept of {len(self.rewrites)}"
        if self.optimized is None:
            if not self.rewrites:
                return "Nothing to change: no rewrite of the catalogue fits this model"
            if self.speedup and self.speedup.ratio is not None:
                return f"Nothing helped: measured again, {speedup_text(self.speedup, ' as fast')} is no gain"
            return f"{'Not timed' if self.not_timed else 'Nothing helped'}; {kept}"
        agree = "outputs agree" if self.optimized.outputs_agree else "outputs differ, as they did before"
        if self.optimized.outputs_agree and not self.original.outputs_agree:
            agree = "outputs now agree with PyTorch, which the original's do not"
        if self.speedup is None:
            before, after = self.original, self.optimized
            outside = f"operators outside: {before.operators_outside} before, {after.operators_outside} after"
            calls = f"delegate calls: {before.delegate_calls} before, {after.delegate_calls} after"
            return f"Not timed; {outside}; {calls}; {agree}; {kept}"
        return f"{speedup_text(self.speedup, ' as fast')}; {agree}; {kept}"


def optimization_document(found: Optimization) -> list[doc.Block]:
    left = [doc.Heading("What stays outside the delegates"), *doc.make_list(found.left)]
    return [
        doc.Heading(f"Optimizing {found.model}, {found.dtype}", 1),
        doc.Paragraph((doc.Strong(f"{found.verdict}."),)),
        *doc.make_list(_notes(found)),
        sides_table(found),
        *_rewrites(found),
        *_instead(found),
        *(left if found.left else []),
    ]


def _notes(found: Optimization) -> Iterator[doc.Text]:
    if found.not_timed:
        yield f"No time was measured: {found.not_timed}. The table below is about structure alone."
    elif found.speedup is not None:
        yield (
            f"Measured on {found.cpu or 'this CPU'}, both programs in the same launches. The turns that "
            "chose the rewrites are not among them."
        )
    if CHANNELS_LAST in found.kept:
        yield f"Before you use it: {IMAGES_CHANGED}."
    for side in (found.original, found.optimized):
        if side and side.sme2 and side.sme2.evidence == "not tested":
            yield f"What runs on SME2 was not checked: {side.sme2.reason}."
            break


def sides_table(found: Optimization) -> doc.ShownTable:
    """What differs between the programs, in a table that fits a terminal."""
    sides = [side for side in (found.original, found.optimized) if side is not None]
    speedup = found.speedup
    times = (speedup.baseline_median, speedup.candidate_median) if speedup else (None, None)
    rows: list[tuple[str, ...]] = []
    if speedup and speedup.ratio is not None and found.optimized:
        rows.append(("latency, median ms", *(milliseconds(each) for each in times)))
    rows += [
        ("operators outside", *(str(side.operators_outside) for side in sides)),
        ("delegate calls", *(str(side.delegate_calls) for side in sides)),
        ("matrix operators on SME2", *(tested_cell(side.sme2, _on_sme2) for side in sides)),
        ("difference from PyTorch", *(_of_range(side.deviation) for side in sides)),
    ]
    if found.dtype != "fp32":
        rows.append(("difference from float32", *(_of_range(side.from_float32) for side in sides)))
    return doc.make_table(("", "original", "optimized")[: len(sides) + 1], rows, range(1, len(sides) + 1))


def _of_range(deviation: float | None) -> str:
    return MISSING if deviation is None else f"{deviation:.2g} of the range"


def _on_sme2(found: OnSme2) -> str:
    share = percent(found.arithmetic_share)
    return f"{found.operators} of {found.operators_total} ({share} of the arithmetic)"


def _rewrites(found: Optimization) -> Iterator[doc.Block]:
    if not found.rewrites:
        return
    yield doc.Heading("What was changed")
    yield rewrites_table(found)
    for each in found.rewrites:
        if each.decision != "dropped":
            yield doc.Items((doc.Item((doc.Strong(each.name), f": {'; '.join(each.why)}"), _places(each)),))


def rewrites_table(found: Optimization) -> doc.ShownTable:
    columns: tuple[doc.TableColumn[RewriteOutcome], ...] = (
        doc.TableColumn("rewrite", lambda each: each.name),
        doc.Number("calls", lambda each: str(each.count)),
        doc.Number(
            "brings", lambda each: ratio_text(each.gain, 2) if each.gain and each.gain.ratio else MISSING
        ),
        doc.TableColumn("decision", lambda each: f"{each.decision}: {each.because}"),
    )
    return doc.table_of(found.rewrites, columns)


def _places(each: RewriteOutcome) -> tuple[str, ...]:
    return tuple(
        f"{place.count} x {place.operator}"
        + (f" at {place.source}" if place.source else "")
        + (f" in {listing(place.modules[:3])}" if any(place.modules[:3]) else "")
        + (f" and {len(place.modules) - 3} more" if len(place.modules) > 3 else "")
        for place in each.places
    )


def _instead(found: Optimization) -> Iterator[doc.Block]:
    kept = [each for each in found.rewrites if each.decision != "dropped"]
    if kept and found.helped:
        yield doc.Heading("The same in your own model")
        yield doc.Items(
            tuple(doc.Item(each.name, tuple((doc.Code(text),) for text in each.instead)) for each in kept)
        )


def judged(gain: Speedup | None) -> tuple[Decision, str]:
    """Whether a rewrite is kept, by what leaving it out costs."""
    if gain is None or gain.ratio is None:
        return "dropped", gain.reason if gain else "the program is the same without it"
    if gain.verdict is Verdict.FASTER:
        return "kept", "slower without it"
    slower = gain.verdict is Verdict.SLOWER
    return "dropped", "faster without it" if slower else "no difference beyond noise"
