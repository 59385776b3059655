"""The answers to the three questions of everyone who opens a report, made once from the records.

Every renderer and command repeats them. A latency appears only if times are latencies, a speedup only with
its interval, and SME2 only as far as kernels prove it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from model_profiling.analysis.causes.outside import OUTSIDE
from model_profiling.analysis.evidence import SME2_KERNELS, NotTested
from model_profiling.analysis.pairing import Pairing
from model_profiling.analysis.series import OVERHEADS, SeriesAnalysis
from model_profiling.core.formatting import capitalized, listing, milliseconds, percent, plural, size
from model_profiling.report.breakdown import (
    break_down,
    cost_text,
    interval_text,
    largest_parts,
    shift_text,
    shown_parts,
    why,
)
from model_profiling.report.data import (
    ExperimentReport,
    PairReport,
    ReportData,
    mismatched,
    outputs_differ,
    sme2_pair,
    sme2_pairs,
)
from model_profiling.report.document import Answers, Block, Chart, make_list
from model_profiling.report.headroom import proven_text, range_text
from model_profiling.report.notes import clause, finding_text, notes, proof, wrong_outputs
from model_profiling.runs import Times
from model_profiling.statistics.measure import MARKS
from model_profiling.statistics.speedup import Verdict

WHERE, SME2, NEXT = "Where does the time go?", "What does SME2 change?", "What next?"

_AROUND = "time outside operators"
_DOUBTS = {"hot", "unchecked"}
"""Kinds of remarks that put a latency in doubt."""
_STEPS = 2
"""The most sentences of the third answer."""
_WORTH_NAMING = 0.05
_MUCH = 0.1
"""The share of time that a part or an operator needs to be named beside the largest."""


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

    def opening(self, picture: Chart | None = None) -> list[Block]:
        return [self.block, *([picture] if picture else []), *make_list(self.notes)]

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
    return _Asked(data).answers()


def verdict(data: ReportData) -> tuple[str, ...]:
    return answers(data).sentences


@dataclass(frozen=True, slots=True)
class _Asked:
    data: ReportData

    def answers(self) -> RunAnswers:
        steps = list(islice(self._next(), _STEPS))
        todo = " ".join(sentence for sentence, _ in steps) or self._nothing_next()
        open_questions = [
            question
            for question in self.data.not_tested
            if question is not self.question
            or (not self.data.outlook.coverage.is_low and question not in [answers for _, answers in steps])
        ]
        below = (*notes(self.data), *(f"{question}." for question in open_questions))
        warnings = tuple(line.text for line in self.data.warnings)
        where, sme2 = " ".join(self._where()), " ".join(self._sme2())
        return RunAnswers(where, sme2, todo, below, self._costs(), warnings, self._doubt())

    @property
    def question(self) -> NotTested | None:
        """The open question that the second answer names; none if a pair answers it."""
        if self.data.timed and self.sme2_pair is not None:
            return None
        questions = self.data.not_tested
        return questions[0] if questions else None

    @property
    def sme2_pair(self) -> PairReport | None:
        return sme2_pair(self.data)

    @property
    def spoken_of(self) -> ExperimentReport | None:
        """The experiment of the first answer: the candidate of the SME2 pair, or else the headline."""
        pair = self.sme2_pair if self.data.timed else None
        after = [one for one in self.data.experiments if pair and one.series == pair.pair.candidate]
        return after[0] if after and after[0].summary else self.data.headline

    def _costs(self) -> dict[str, float]:
        found, manifest = self.spoken_of, self.data.run.manifest
        latency = found.latency if found and self.data.timed else None
        known = {
            "latency_ms": found.summary.median if found and found.summary and self.data.timed else None,
            "load_ms": latency.load_ms if latency else None,
            "peak_memory_bytes": latency.peak_memory_bytes if latency else None,
            "program_bytes": manifest.model_bytes if manifest else None,
        }
        return {name: value for name, value in known.items() if value}

    def _doubt(self) -> str:
        """The first reason why the latency that is spoken of may be wrong."""
        found = self.spoken_of
        if found is None or found.latency is None or not self.data.timed:
            return ""
        # By CPU time or undisturbed wall time, busy neighbours are accounted for.
        kinds = _DOUBTS | ({"busy"} if found.latency.measured == "wall time, interrupted" else set())
        return next(
            (
                remark.said
                for remark in self.data.remarks
                if remark.code in kinds and remark.series in (None, found.series)
            ),
            "",
        )

    def _beside_latency(self) -> Iterator[str]:
        costs = self._costs()
        load, memory, program = map(costs.get, ("load_ms", "peak_memory_bytes", "program_bytes"))
        said = [f"loading takes {milliseconds(load)} ms"] if load else []
        said += [f"memory peaks at {size(memory)}"] if memory else []
        said += [f"the program file is {size(program)}"] if program else []
        if said:
            yield f"{capitalized(listing(said))}."

    def _where(self) -> Iterator[str]:
        data, found = self.data, self.spoken_of
        if not data.timed:
            yield from self._where_without_latency()
            return
        if found is None or found.summary is None:
            yield "Not known: no experiment finished with a latency."
            return
        doubt = self._doubt()
        mark = MARKS.get(found.latency.measured, "") if found.latency and not doubt else ""
        ms = f"{'about ' if doubt else ''}{milliseconds(found.summary.median)} ms{mark}"
        several = len({series.experiment for series in data.run.series}) > 1
        threads = plural(found.series.threads, "thread") if found.series.threads else ""
        said = [", ".join(filter(None, (found.series.experiment if several else "", threads)))]
        if found.latency is None or found.latency.end_to_end_ms is None:
            said.append("with the event tracer on, the latency without it was not measured")
        whose = f" ({'; '.join(filter(None, said))})" if any(said) else ""
        if data.is_arm is False:
            yield f"This CPU is not Arm ({data.cpu}): its {ms}{whose} say nothing about Arm."
        else:
            yield f"{capitalized(ms)} for one inference{whose}{f': {doubt}' if doubt else ''}."
        if found.dumps is not None:
            yield f"{_largest(found.dumps)}."
        yield from self._beside_latency()
        if data.is_arm is not False:
            yield from self._more_threads(found)

    def _more_threads(self, spoken_of: ExperimentReport) -> Iterator[str]:
        """Say what the fastest thread count takes, if a comparison calls it faster."""
        ours = spoken_of.series
        faster = {
            pair.pair.candidate
            for pair in self.data.pairs
            if pair.speedup.verdict is Verdict.FASTER
            and pair.pair.baseline == ours
            and pair.pair.candidate.experiment == ours.experiment
        }
        known = [(one.summary.median, one.series) for one in self.data.experiments if one.summary]
        known = [(ms, series) for ms, series in known if series in faster]
        if known:
            ms, series = min(known, key=lambda each: each[0])
            yield f"With {plural(series.threads or 1, 'thread')} an inference takes {milliseconds(ms)} ms."

    def _where_without_latency(self) -> Iterator[str]:
        data, found = self.data, self.spoken_of
        series = found.dumps if found else None
        if data.times is Times.UNKNOWN:
            yield (
                "Not known: the machine that made these dumps is not recorded, so its times may not be "
                "latencies."
            )
            if series is not None:
                yield f"As recorded: {_largest(series)}."
            return
        was = "was emulated" if data.times is Times.EMULATED else "gathered kernel evidence"
        yield f"Not measured: this run {was}, and its times are not latencies."
        if series is not None and (work := _largest_work(series)):
            yield work
        yield from self._beside_latency()

    def _sme2(self) -> Iterator[str]:
        pair = self.sme2_pair if self.data.timed else None
        if pair is not None:
            yield _change_text(pair)
            yield from self._with_more_threads(pair)
            if outputs_differ(self.data, pair):
                yield "But the outputs differ by more than rounding: do not rely on this speed."
            elif none := self._no_kernel():
                yield none
            elif pair.speedup.verdict is not Verdict.NO_CHANGE and pair.side_by_side:
                yield _bottleneck_shift(pair.side_by_side)
            return
        found = self.data.outlook.headline
        if found is not None:
            cpu = f"this CPU ({self.data.cpu}) has no SME2"
            yield f"Projected, not measured: {range_text(found)} as fast; {cpu}."
            yield f"{proven_text(self.data.outlook.coverage)}{self._why_not()}."
            yield f"On this CPU, those operators take {percent(found.time_share)} of the time."
            return
        coverage = self.data.outlook.coverage
        if coverage.tested and coverage.operators:
            yield f"{proven_text(coverage)}{self._why_not()}."
        elif coverage.tested:
            yield f"Nothing: {coverage.reason}."
        elif none := self._no_kernel():
            yield none
        elif proven := proof(self.data):
            yield proven
        if self.question:
            yield f"{self.question.what}: not tested, because {self.question.because}."
        elif self.data.timed and (pairs := sme2_pairs(self.data)):
            yield f"Not comparable: {clause(pairs[0].speedup.reason)}."
        elif not coverage.tested and not proof(self.data):
            yield "Not known: no experiments with SME2 on and off were compared."

    def _with_more_threads(self, told: PairReport) -> Iterator[str]:
        """Say what SME2 brings with another thread count, if that was measured too."""
        pairs = (pair for pair in sme2_pairs(self.data) if pair.comparable)
        others = {pair.pair.candidate.threads: pair.speedup.ratio for pair in pairs}
        others.pop(told.pair.candidate.threads)
        for threads, ratio in list(others.items())[:1]:
            yield f"With {plural(threads or 1, 'thread')}: {ratio:.2f}x."

    def _why_not(self) -> str:
        """Why little or nothing runs on SME2: the reason of most of the arithmetic; empty if enough does."""
        coverage = self.data.outlook.coverage
        return f", because {coverage.missing_reasons[0].reason}" if coverage.is_low else ""

    def _to_reach_sme2(self) -> str:
        misses = [found for found in self.data.findings if found.id == "misses-sme2"]
        if misses and misses[0].has_cure:
            return f"To reach SME2: {misses[0].action}."
        return "No change is known that would let these operators reach SME2."

    def _next(self) -> Iterator[tuple[str, NotTested | None]]:
        """Yield repairs, then the best saving, then how to answer what the second answer leaves open, each
        with the question that it answers.

        If little of the arithmetic reaches SME2, the cure comes first: hardware with SME2 would not help.
        """
        data = self.data
        for experiment in data.experiments:
            if experiment.problem:
                fix = experiment.result.fix if experiment.result else None
                whose = experiment.series.among(data.run.series) or "the run"
                yield f"Repair {whose}, which failed: {clause(fix or experiment.problem)}.", None
                break
        manifest = data.run.manifest
        if manifest is not None and manifest.unfinished == "interrupted":
            yield "Run it again to continue the interrupted run.", None
        if any(mismatched(data)) or wrong_outputs(data):
            yield "Find out why the outputs differ before you rely on any speed.", None
        on_arm = data.timed and data.is_arm is not False
        # If times show what is worth doing, a finding about no time is not the first advice.
        first = [found for found in data.findings if found.has_cure and (found.could_bring or not on_arm)][:1]
        question = self.question
        if data.outlook.coverage.is_low:
            first, question = [found for found in first if found.id != "misses-sme2"], None
            yield self._to_reach_sme2(), None
        advice = [(finding_text(found), None) for found in first]
        measuring = [(_to_answer(question), question)] if question else []
        yield from (*advice, *measuring) if on_arm else (*measuring, *advice)
        if not advice and on_arm and data.analysis is not None:
            others = [found for found in data.findings if found.has_cure]
            check = f"; the list of what to do has {plural(len(others), 'point')} to check" if others else ""
            none = f"No change that was found would save 2% of the time or more{check}."
            yield self._without_cure() or none, None

    def _without_cure(self) -> str:
        """Name what takes much time outside delegates even where no cure is known; empty if nothing does."""
        for found in self.data.findings:
            share = found.found_in.spent_by(found.operators).share if found.id == OUTSIDE else 0.0
            if share > _MUCH:
                return f"{found.title}: {percent(share)} of the time."
        return ""

    def _nothing_next(self) -> str:
        """Return the advice if times do not show what is worth doing and no question is open."""
        data = self.data
        if data.analysis is None:
            return "Nothing: there is no dump that shows where the time goes."
        hint = " If these dumps were measured on real hardware, say so with --times hardware."
        return "No change of the model stands out." + (hint if data.times is Times.UNKNOWN else "")

    def _no_kernel(self) -> str:
        """Say that no SME kernel ran although one could have; empty if one did or nothing is known."""
        left_on = [
            (place, kernels)
            for place in self.data.evidence
            for kernels in place.kernels
            if kernels.sme2 is not False
        ]
        if any(kernels.sme.proves_sme for _, kernels in left_on):
            return ""
        tested = [place for place, kernels in left_on if kernels.sme.answer == "none"]
        if tested and (tested[0].emulated or self.data.has_sme2):
            where = "Under emulation no" if tested[0].emulated else "No"
            return f"{where} SME or SME2 kernel ran, although SME2 was on."
        return (
            "No SME or SME2 kernel ran, and it is not recorded whether this CPU has SME2." if tested else ""
        )


def _bottleneck_shift(pairing: Pairing) -> str:
    """Say whether the bottleneck moved or, if it did not, which part's share grew most."""
    before, after = largest_parts(pairing)
    if before.name != after.name:
        return shift_text(before, after, pairing.sides)
    grown = max(shown_parts(pairing), key=lambda part: part.candidate_share - part.baseline_share)
    if grown.candidate_share - grown.baseline_share < 0.01:
        return shift_text(before, after, pairing.sides)
    shares = f"{percent(before.baseline_share)} of the time to {percent(before.candidate_share)}"
    said = f"{before.name} goes from {shares}"
    if grown.name != before.name:
        said += f", {grown.name} from {percent(grown.baseline_share)} to {percent(grown.candidate_share)}"
    return f"{said}."


def _change_text(pair: PairReport) -> str:
    """Return the effect of SME2 on the latency, ratio first."""
    found = pair.speedup
    tracer = ", with the event tracer on" if pair.with_tracer else ""
    times = (
        f"{milliseconds(found.baseline_median)} ms without SME2, {milliseconds(found.candidate_median)} ms "
        f"with it{found.mark}{tracer}"
    )
    ratio = "" if found.ratio is None else f"{found.ratio:.2f}x"
    threads = pair.pair.candidate.threads
    on = f" on {plural(threads, 'thread')}" if threads else ""
    if interval := interval_text(found):
        times += f" ({interval})"
    if found.verdict is Verdict.NO_CHANGE:
        return f"No significant change{on} ({ratio}): {times}."
    return f"{'Slower, ' if found.verdict is Verdict.SLOWER else ''}{ratio} as fast{on}: {times}."


def _to_answer(question: NotTested) -> str:
    aim = "see what runs on SME2" if question.what == SME2_KERNELS else "measure SME2"
    return f"To {aim}: {question.how}."


def time_shares(series: SeriesAnalysis) -> dict[str, float]:
    """Return each part's share of the time in percent; without the tracer's own time if that distorts it."""
    shares = {name: shown.percent for name, shown in break_down(series).parts.items()}
    if series.distorted:
        # Operators' own times hold, so the time without the tracer's part divides in the same way.
        tracers = 100 * series.tracing.share
        real = 100 / max(0.1, 100 - tracers)
        around = sum(shares.pop(name) for name in OVERHEADS)
        shares = {name: share * real for name, share in shares.items()}
        shares[_AROUND] = max(0.0, (around - tracers) * real)
    return shares


def _largest(series: SeriesAnalysis) -> str:
    """Say what takes most of the time and what comes next; for an overhead, also why."""
    shares, tracers = time_shares(series), 100 * series.tracing.share
    (name, most), *others = sorted(shares.items(), key=lambda item: -item[1])
    it = "" if series.distorted else " of it"
    text = f"{name} {f'takes most{it}' if round(most, 1) > 50 else 'is the largest part'} ({most:.1f}%)"
    # The tracer's part of an overhead does not exist in an inference without it.
    named = [
        (other, share)
        for other, share in others
        if share - (tracers if other in OVERHEADS else 0.0) >= 100 * _WORTH_NAMING
    ]
    if named:
        other, share = named[0]
        said = other in OVERHEADS and tracers >= 100 * _WORTH_NAMING
        part = f", {tracers:.1f} of them for the tracer" if said else ""
        text += f", then {other} ({share:.1f}%{part})"
    if series.distorted:
        longer = f"with the event tracer on it takes {cost_text(series)} longer"
        text = f"Tracing distorts this model: {longer}. Without the tracer's own time, {text}"
    return f"{text}. {name} is {why(series, name)}" if name in OVERHEADS else text


def _largest_work(series: SeriesAnalysis) -> str:
    """Say which category does most of the arithmetic, if times mean nothing."""
    known = [operator for operator in series.operators if operator.source.flops is not None]
    whole = sum(operator.source.flops or 0 for operator in known)
    if not whole:
        return ""
    work: dict[str, int] = {}
    for operator in known:
        work[operator.category.value] = work.get(operator.category.value, 0) + (operator.source.flops or 0)
    name = max(work, key=lambda each: work[each])
    that_is_known = " that is known" if len(known) < len(series.operators) else ""
    return f"Of the arithmetic{that_is_known}, {percent(work[name] / whole)} is in {name}."
