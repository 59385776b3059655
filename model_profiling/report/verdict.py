"""The answers to the three questions of everyone who opens a report, made once from the records.

Every renderer and command repeats them. A latency appears only if times are latencies, a speedup only with
its interval, and SME2 only as far as kernels prove it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from model_profiling.analysis.causes.outside import OUTSIDE
from model_profiling.analysis.evidence import SME2_KERNELS, NotTested
from model_profiling.analysis.series import OVERHEADS, SeriesAnalysis
from model_profiling.config import names
from model_profiling.config.series import Weight
from model_profiling.core.formatting import capitalized, listing, milliseconds, percent, plural, size
from model_profiling.report import breakdown
from model_profiling.report.data import (
    PARITY,
    PairReport,
    ReportData,
    mismatched,
    outputs_differ,
    sme2_pair,
    sme2_pairs,
    spoken_of,
)
from model_profiling.report.document import Answers
from model_profiling.runs import Times
from model_profiling.statistics.measure import MARKS
from model_profiling.statistics.speedup import Verdict

WHERE, SME2, NEXT = "Where does the time go?", "What does SME2 change?", "What next?"

_DOUBTS = {"hot", "stolen", "unchecked"}
"""Kinds of remarks that put a latency in doubt."""
_STEPS = 2
"""The most sentences of the third answer."""
_WORTH_NAMING = 5.0
"""The percentage that a part needs to be named beside the largest."""
_TOLD = 12
"""The most comparisons in one note."""
_MUCH = 0.1
"""The share of the time from which on operators outside delegates are named, cure or not."""


@dataclass(frozen=True, slots=True)
class RunAnswers:
    """The answers of a run, to be read in ten seconds; `notes` are what to know before trusting them."""

    where_time_goes: str
    what_sme2_changes: str
    what_next: str
    notes: tuple[str, ...]
    costs: Mapping[str, float]
    """Latency, load time, peak memory and program size of the first answer, as far as they are known."""
    warnings: tuple[str, ...]
    """Reasons to trust them less; one line for each kind."""
    doubt: str = ""
    """Why the latency of the first answer may be wrong, which that answer says, too."""

    @property
    def sentences(self) -> tuple[str, ...]:
        return self.where_time_goes, self.what_sme2_changes, self.what_next, *self.notes

    @property
    def block(self) -> Answers:
        return Answers(
            ((WHERE, self.where_time_goes), (SME2, self.what_sme2_changes), (NEXT, self.what_next))
        )

    def facts(self) -> dict[str, object]:
        """Return the keys of every JSON file that states the answers."""
        return {
            "answers": {
                "where_time_goes": self.where_time_goes,
                "what_sme2_changes": self.what_sme2_changes,
                "what_next": self.what_next,
            },
            "costs": dict(self.costs),
            "trusted": not self.doubt,
            "doubt": self.doubt,
            "verdict": list(self.sentences),
            "warnings": list(self.warnings),
        }


def answers(data: ReportData) -> RunAnswers:
    compared = data.timed and sme2_pair(data) is not None  # then no question is open in the second answer
    question = data.not_tested[0] if data.not_tested and not compared else None
    steps = list(islice(_next(data, question), _STEPS))
    answered = [question for _, question in steps]
    low = data.outlook.coverage.is_low  # then the cure is advised, and no further measuring
    open_questions = [
        f"{other}." for other in data.not_tested if other not in answered and not (low and other is question)
    ]
    return RunAnswers(
        where_time_goes=" ".join(_where(data)),
        what_sme2_changes=" ".join(_sme2(data, question)),
        what_next=" ".join(sentence for sentence, _ in steps) or _nothing_next(data),
        notes=(*_notes(data), *open_questions),
        costs=_costs(data),
        warnings=tuple(line.text for line in data.warnings),
        doubt=_doubt(data),
    )


def _costs(data: ReportData) -> dict[str, float]:
    found, manifest = spoken_of(data), data.run.manifest
    latency = found.latency if found and data.timed else None
    known = {
        "latency_ms": found.summary.median if found and found.summary and data.timed else None,
        "load_ms": latency.load_ms if latency else None,
        "peak_memory_bytes": latency.peak_memory_bytes if latency else None,
        "program_bytes": manifest.model_bytes if manifest else None,
    }
    return {name: value for name, value in known.items() if value}


def _doubt(data: ReportData) -> str:
    """The first reason why the latency that is spoken of may be wrong."""
    found = spoken_of(data)
    if found is None or found.latency is None or not data.timed:
        return ""
    # By CPU time or undisturbed wall time, busy neighbours are accounted for.
    kinds = _DOUBTS | ({"busy"} if found.latency.measured == "wall time, interrupted" else set())
    doubts = (one for one in data.remarks if one.code in kinds and one.series in (None, found.series))
    return next((remark.said for remark in doubts), "")


# Where does the time go?


def _where(data: ReportData) -> Iterator[str]:
    found = spoken_of(data)
    if not data.timed:
        yield from _where_without_latency(data, found.dumps if found else None)
        return
    if found is None or found.summary is None:
        yield "Not known: no experiment finished with a latency."
        return
    doubt = _doubt(data)
    mark = MARKS.get(found.latency.measured, "") if found.latency and not doubt else ""
    ms = f"{'about ' if doubt else ''}{milliseconds(found.summary.median)} ms{mark}"
    several = len({series.experiment for series in data.run.series}) > 1
    threads = plural(found.series.threads, "thread") if found.series.threads else ""
    said = [", ".join(filter(None, (found.series.experiment if several else "", threads)))]
    if not found.untraced:
        said.append("with the event tracer on, the latency without it was not measured")
    whose = f" ({'; '.join(filter(None, said))})" if any(said) else ""
    why_about = f": {doubt}" if doubt else ""
    if data.is_arm is False:
        yield f"This CPU is not Arm ({data.cpu}): its {ms}{whose} say nothing about Arm{why_about}."
    else:
        yield f"{capitalized(ms)} for one inference{whose}{why_about}."
    if found.dumps is not None:
        yield f"{_largest(found.dumps)}."
    yield from _beside_latency(data)
    faster = [
        (pair.speedup.candidate_median, pair.pair.candidate.threads)
        for pair in data.pairs
        if pair.speedup.verdict is Verdict.FASTER
        and pair.pair.baseline == found.series
        and pair.pair.candidate.experiment == found.series.experiment
    ]
    if faster and data.is_arm is not False:
        least, most = min(faster)
        yield f"With {plural(most or 1, 'thread')} an inference takes {milliseconds(least)} ms."


def _beside_latency(data: ReportData) -> Iterator[str]:
    costs = _costs(data)
    load, memory, program = map(costs.get, ("load_ms", "peak_memory_bytes", "program_bytes"))
    said = [f"loading takes {milliseconds(load)} ms"] if load else []
    said += [f"memory peaks at {size(memory)}"] if memory else []
    said += [f"the program file is {size(program)}"] if program else []
    if said:
        yield f"{capitalized(listing(said))}."


def _where_without_latency(data: ReportData, series: SeriesAnalysis | None) -> Iterator[str]:
    if data.times is Times.UNKNOWN:
        yield (
            "Not known: the machine that made these dumps is not recorded, so its times may not be latencies."
        )
        if series is not None:
            yield f"As recorded: {_largest(series)}."
        return
    was = "was emulated" if data.times is Times.EMULATED else "gathered kernel evidence"
    yield f"Not measured: this run {was}, and its times are not latencies."
    work: Counter[str] = Counter()
    for operator in series.operators if series else ():
        work[operator.category.value] += operator.source.flops or 0
    if work.total():
        name, most = work.most_common(1)[0]
        yield f"Of the arithmetic, {percent(most / work.total())} is in {name}."
    yield from _beside_latency(data)


def _largest(series: SeriesAnalysis) -> str:
    """Say what takes most of the time and what comes next; for an overhead, also why."""
    (name, most), *others = sorted(breakdown.time_shares(series).items(), key=lambda item: -item[1])
    text = f"{name} {'takes most of it' if round(most, 1) > 50 else 'is the largest part'} ({most:.1f}%)"
    # The tracer's part of an overhead does not exist in an inference without it.
    tracers = 100 * series.tracing.share
    for other, share in others:
        if share - (tracers if other in OVERHEADS else 0.0) >= _WORTH_NAMING:
            text += f", then {other} ({share:.1f}%)"
            break
    if series.distorted:
        longer = f"with the event tracer on it takes {breakdown.cost_text(series)} longer"
        text = f"Tracing distorts this model: {longer}. Without the tracer's own time, {text}"
    return f"{text}. {name} is {breakdown.why(series, name)}" if name in OVERHEADS else text


# What does SME2 change?


def _sme2(data: ReportData, question: NotTested | None) -> Iterator[str]:
    pair = sme2_pair(data) if data.timed else None
    if pair is not None:
        yield _change_text(pair)
        if outputs_differ(data, pair):
            yield "But the outputs differ by more than rounding: do not rely on this speed."
        elif none := _no_kernel(data):
            yield none
        elif pair.speedup.verdict is not Verdict.NO_CHANGE and pair.side_by_side:
            yield breakdown.shift_text(*breakdown.largest_parts(pair.side_by_side), pair.side_by_side.sides)
        return
    coverage, projection = data.outlook.coverage, data.outlook.headline
    # Little or nothing on SME2: the reason of most of the arithmetic.
    why_not = f", because {coverage.missing_reasons[0].reason}" if coverage.is_low else ""
    if projection is not None:
        cpu = f"this CPU ({data.cpu}) has no SME2"
        yield f"Projected, not measured: {breakdown.range_text(projection)} as fast; {cpu}."
        yield f"{breakdown.proven_text(coverage)}{why_not}."
        yield f"On this CPU, those operators take {percent(projection.time_share)} of the time."
        return
    evidence = _no_kernel(data) or proof(data)
    if coverage.tested and coverage.operators:
        yield f"{breakdown.proven_text(coverage)}{why_not}."
    elif coverage.tested:
        yield f"Nothing: {coverage.reason}."
    elif evidence:
        yield evidence
    if question:
        yield f"{question.what}: not tested, because {question.because}."
    elif data.timed and (pairs := sme2_pairs(data)):
        yield f"Not comparable: {clause(pairs[0].speedup.reason)}."
    elif not coverage.tested and not proof(data):
        yield "Not known: no experiments with SME2 on and off were compared."


def _change_text(pair: PairReport) -> str:
    """Return the effect of SME2 on the latency, ratio first."""
    found = pair.speedup
    before, after = milliseconds(found.baseline_median), milliseconds(found.candidate_median)
    tracer = ", with the event tracer on" if pair.with_tracer else ""
    interval = f" ({breakdown.interval_text(found)})" if found.low is not None else ""
    times = f"{before} ms without SME2, {after} ms with it{found.mark}{tracer}{interval}"
    ratio = "" if found.ratio is None else f"{found.ratio:.2f}x"
    threads = pair.pair.candidate.threads
    on = f" on {plural(threads, 'thread')}" if threads else ""
    if found.verdict is Verdict.NO_CHANGE:
        return f"No significant change{on} ({ratio}): {times}."
    return f"{'Slower, ' if found.verdict is Verdict.SLOWER else ''}{ratio} as fast{on}: {times}."


def _no_kernel(data: ReportData) -> str:
    """Say that no SME kernel ran although one could have; empty if one did or nothing is known."""
    left_on = [
        (place, found) for place in data.evidence for found in place.kernels if found.sme2 is not False
    ]
    tested = [place for place, found in left_on if found.sme.answer == "none"]
    if not tested or any(found.sme.proves_sme for _, found in left_on):
        return ""
    if tested[0].emulated or data.has_sme2:
        where = "Under emulation no" if tested[0].emulated else "No"
        return f"{where} SME or SME2 kernel ran, although SME2 was on."
    return "No SME or SME2 kernel ran, and it is not recorded whether this CPU has SME2."


# What next?


def _next(data: ReportData, question: NotTested | None) -> Iterator[tuple[str, NotTested | None]]:
    """Yield repairs, then the best saving, then how to answer what the second answer leaves open, each with
    the question that it answers.

    If little of the arithmetic reaches SME2, the cure comes first: hardware with SME2 would not help.
    """
    if failed := next((one for one in data.experiments if one.problem), None):
        fix = failed.result.fix if failed.result else None
        whose = failed.series.among(data.run.series) or "the run"
        yield f"Repair {whose}, which failed: {clause(fix or failed.problem)}.", None
    if data.run.manifest is not None and data.run.manifest.unfinished == "interrupted":
        yield "Run it again to continue the interrupted run.", None
    if any(mismatched(data)) or _wrong_outputs(data):
        yield "Find out why the outputs differ before you rely on any speed.", None
    on_arm = data.timed and data.is_arm is not False
    cures = [found for found in data.findings if found.has_cure]
    # If times show what is worth doing, a finding about no time is not the first advice.
    first = [found for found in cures if found.could_bring or not on_arm][:1]
    if data.outlook.coverage.is_low:
        misses = [found for found in data.findings if found.id == "misses-sme2"]
        none = "No change is known that would let these operators reach SME2."
        yield f"To reach SME2: {misses[0].action}." if misses and misses[0].has_cure else none, None
        first, question = [found for found in first if found.id != "misses-sme2"], None
    advice = [(breakdown.finding_text(found), None) for found in first]
    measuring = []
    if question:
        aim = "see what runs on SME2" if question.what == SME2_KERNELS else "measure SME2"
        measuring = [(f"To {aim}: {question.how}.", question)]
    yield from (*advice, *measuring) if on_arm else (*measuring, *advice)
    if not advice and on_arm and data.analysis is not None:
        check = f"; the list of what to do has {plural(len(cures), 'point')} to check" if cures else ""
        none = f"No change that was found would save 2% of the time or more{check}."
        yield _without_cure(data) or none, None


def _without_cure(data: ReportData) -> str:
    """Name what takes much time outside delegates even where no cure is known; empty if nothing does."""
    for found in data.findings:
        share = found.found_in.spent_by(found.operators).share if found.id == OUTSIDE else 0.0
        if share > _MUCH:
            return f"{found.title}: {percent(share)} of the time."
    return ""


def _nothing_next(data: ReportData) -> str:
    """Return the advice if times do not show what is worth doing and no question is open."""
    if data.analysis is None:
        return "Nothing: there is no dump that shows where the time goes."
    hint = " If these dumps were measured on real hardware, say so with --times hardware."
    return "No change of the model stands out." + (hint if data.times is Times.UNKNOWN else "")


# Notes: what to know before trusting the answers, and what they do not say.


def _notes(data: ReportData) -> Iterator[str]:
    pair = sme2_pair(data) if data.timed else None
    if data.timed:
        yield from (f"{text}." for text in data.merged)
        yield from _other_pairs(data, pair)
    coverage = data.outlook.coverage
    if pair is not None and coverage.tested and coverage.operators:
        yield f"{breakdown.proven_text(coverage)}."
    elif pair is not None and (proven := proof(data)):
        yield proven
    for source, found in mismatched(data):
        top1 = ", in their top-1 too" if found.parity and found.parity.another_top1 else ""
        yield (
            f"The outputs of {found.candidate} differ from those of {found.baseline} by more than "
            f"rounding{top1}, in {source}: find out why before you rely on its speed."
        )
    yield from _wrong_outputs(data)


def _other_pairs(data: ReportData, told: PairReport | None) -> Iterator[str]:
    """Yield the comparisons in no answer: first those with a result, then why others have none."""
    others = [pair for pair in data.pairs if pair is not told and pair.comparable]
    for pair in others[:_TOLD]:
        found = pair.speedup
        times = f"{milliseconds(found.baseline_median)} to {milliseconds(found.candidate_median)} ms"
        yield f"{pair.label}: {found.verdict.value}, {breakdown.speedup_text(found)}; {times}{found.mark}."
    if len(others) > _TOLD:
        yield f"{len(others) - _TOLD} more comparisons are in {names.METRICS}."
    reasons: dict[str, list[str]] = {}
    for pair in data.pairs:
        if not pair.comparable:
            reasons.setdefault(clause(pair.speedup.reason), []).append(pair.label)
    for reason, labels in reasons.items():
        more = f" and {len(labels) - _TOLD} more" if len(labels) > _TOLD else ""
        yield f"{'; '.join(labels[:_TOLD])}{more}: not comparable, because {reason}."


def _wrong_outputs(data: ReportData) -> list[str]:
    """Return other signs that the program computes wrong outputs."""
    parity_differs = any(mismatched(data))
    return [
        f"{capitalized(clause(line.text))}."
        for line in data.warnings
        if line.weight is Weight.OUTPUTS and not (parity_differs and line.kind == PARITY)
    ]


# Sentences that pages use, too.


def proof(data: ReportData) -> str:
    """Return the strongest kernel evidence for SME2, and its source; empty if there is none."""
    found = [
        (place, kernels)
        for place in data.evidence
        for kernels in place.kernels
        if kernels.sme2 is not False and kernels.sme.proves_sme
    ]
    if not found:
        return ""
    strength = ("sme2", "sme", "sme-or-sme2")
    place, kernels = min(found, key=lambda each: strength.index(each[1].sme.answer))
    return f"In {place.named(kernels.series)}, {kernels.sme.text}."


def clause(text: str) -> str:
    return " ".join(text.split()).rstrip(".")
