"""How much of a program's matrix arithmetic was proven to run on SME2, which operators miss it, and why.

The whole is everything in the program that multiplies matrices, whatever ran, delegated or not, so it is the
same in every report. Without the program, the operators that ran are used.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from model_profiling.analysis import matching
from model_profiling.analysis.evidence import PlaceEvidence, SeriesEvidence
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.config.series import Series
from model_profiling.core.formatting import as_code
from model_profiling.program.matrix_work import MatrixWork, matrix_work, unseen_delegates
from model_profiling.runs import Run, Times
from model_profiling.runs.evidence import MatrixOperator, OperatorProof
from model_profiling.statistics.speedup import Verdict

# Open questions about SME2, with reasons and the commands that would answer them.

LOW_SHARE = 0.25
"""A smaller share of the matrix arithmetic on SME2 is low: the rest matters more than what SME2 brings."""
_ON_SME2 = "a machine that has SME2 (`sme2prof doctor --devices` lists products that have it)"

SME2_KERNELS = "SME2 kernels"
"""The question whether such kernels run; emulation answers it."""


@dataclass(frozen=True, slots=True)
class NotTested:
    """An open question; each part is a clause."""

    what: str
    because: str
    next: str

    def __str__(self) -> str:
        return f"{self.what}: not tested, because {self.because}; next: {self.how}"

    @property
    def how(self) -> str:
        """What to do next, a command marked as code."""
        return as_code(self.next)


def not_tested(run: Run, evidence: Sequence[PlaceEvidence]) -> tuple[NotTested, ...]:
    kernels = kernels_not_tested(run, evidence)
    return (*((kernels,) if kernels else ()), *_latency(run))


def kernels_not_tested(run: Run, evidence: Sequence[PlaceEvidence]) -> NotTested | None:
    """Why nothing shows whether SME2 kernels run; None if something does."""
    answers = {kernels.sme.answer for place in evidence for kernels in place.kernels}
    if answers & {"sme2", "sme", "sme-or-sme2", "none"}:
        return None
    what, manifest = SME2_KERNELS, run.manifest
    kept = run.evidence
    if kept is not None and kept.problem:
        command = profile_command(run, emulated=True)
        # What --quick left out, the command does.
        alone = "--quick" in kept.problem
        return NotTested(what, kept.problem, command if alone else f"{kept.fix}; then `{command}`")
    if manifest is None:
        return NotTested(what, "there is no list of kernels beside these dumps", profile_command(run))
    if manifest.has_sme2 is False:
        cpu = "this CPU is not an Arm CPU" if manifest.is_arm is False else "this CPU has no SME2"
        because = f"{cpu}, and no emulated run of this program was made"
        emulate = profile_command(run, emulated=True)
        if run.platform == "mac":  # where nothing can be emulated
            command, program = profile_command(run), _found_at(manifest.model)
            emulate = (
                f"`{command} --evidence ssh:HOST`, with a Linux machine that has the kit; or copy {program} "
                f"there, run `{command} --target emulated`, and give its run directory to --evidence"
            )
        return NotTested(what, because, emulate)
    notes = [kernels.note for place in evidence for kernels in place.kernels if kernels.note]
    return NotTested(
        what, notes[0] if notes else "no process recorded which kernels it ran", profile_command(run)
    )


def _latency(run: Run) -> Iterator[NotTested]:
    what, manifest = "What SME2 changes in latency", run.manifest
    if manifest is None:
        return
    there = f"copy {_found_at(manifest.model)} to {_ON_SME2}, and run `{profile_command(run)}` there"
    if run.times is Times.EMULATED:
        yield NotTested(what, "emulated times are not latencies", there)
    elif run.times is not Times.HARDWARE:
        return
    elif manifest.is_arm is False:
        yield NotTested(what, f"this CPU ({manifest.cpu}) is not an Arm CPU", there)
    elif manifest.has_sme2 is False:
        yield NotTested(what, f"this CPU ({manifest.cpu}) has no SME2", there)
    elif manifest.has_sme2 and (because := _not_compared(run)):
        yield NotTested(what, because, profile_command(run))


def _not_compared(run: Run) -> str:
    """Why no pair of SME2 on and off has an answer; empty if one has."""
    reasons = []
    for pair in (pair for pair in run.pairs if run.switches_sme2(pair)):
        found = run.comparison(pair)
        if found is not None and found.speedup.verdict is not Verdict.NOT_COMPARABLE:
            return ""
        reasons.append(pair.not_comparable or (found.speedup.reason if found else ""))
    return next(filter(None, reasons), "no pair of SME2 on and off was compared")


def _found_at(model: str) -> str:
    """The program's place below the current folder; elsewhere its name alone, as reports are shared."""
    path, here = Path(model or "MODEL.pte"), Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path.name)


def profile_command(run: Run, *, emulated: bool = False) -> str:
    """The command that answers the question; emulation runs here, where the program is."""
    model = run.manifest.model if run.manifest and run.manifest.model else "MODEL.pte"
    words = ["sme2prof", "profile", model if emulated else Path(model).name]
    words += run.manifest.case_words if run.manifest else []
    return shlex.join([*words, *(("--target", "emulated") if emulated else ())])


@dataclass(frozen=True, slots=True)
class Sme2Row:
    """One matrix operator of the program: did SME2 run it?"""

    operator: MatrixOperator
    ran: bool | None
    """None if that was not tested."""
    share: float | None
    """Share of all matrix arithmetic, from 0 to 1; None without a program."""
    work: MatrixWork | None = None
    """Its description in the program, if there is one."""

    @property
    def reason(self) -> str:
        """Why it did not run on SME2."""
        return self.operator.why_not or matching.REASON_NOT_KNOWN

    @property
    def cause(self) -> str:
        return self.operator.cause or matching.NOT_KNOWN


NO_MATRICES = "no: not a matrix operator"
IN_EMULATION = "in emulation"
"""The answer about an operator that SME kernels ran in an emulated run."""
_ON_SME = ", on SME"
RAN = frozenset(f"{how}{isa}" for how in ("yes", IN_EMULATION) for isa in ("", _ON_SME))
"""Every answer about an operator that SME kernels ran."""


class MissingReason(NamedTuple):
    """Operators that miss SME2 for one reason."""

    reason: str
    cause: str
    operators: int
    share: float
    """Of all matrix arithmetic, as far as it is known."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """What ran on SME2, by executed kernels; or why that was not tested."""

    evidence: Literal["executed", "not tested"]
    reason: str
    """The basis of the answer, or why there is none."""
    next_command: str = ""
    isa: str = ""
    """The strongest instruction set that ran: SME2, SME, or empty for neither."""
    operators: tuple[MatrixOperator, ...] = ()
    """Every operator of the program that multiplies matrices, tested or not."""
    work: tuple[MatrixWork, ...] = ()
    """The program's description of each of `operators`; empty without a program."""
    proven_by: Series | None = None
    ran: tuple[MatrixOperator, ...] = ()
    """The operators as they ran with SME2 on: one that ran as several appears several times."""
    emulated: bool = False
    unseen: tuple[str, ...] = ()
    """Delegates with unknown operators, and so unknown arithmetic."""

    @property
    def tested(self) -> bool:
        return self.evidence == "executed"

    @property
    def yes(self) -> str:
        """The answer about an operator that SME kernels ran."""
        return f"{IN_EMULATION if self.emulated else 'yes'}{'' if self.isa == 'SME2' else _ON_SME}"

    @property
    def proven(self) -> tuple[MatrixOperator, ...]:
        return tuple(operator for operator in self.operators if operator.on_sme and self.tested)

    @property
    def uncounted(self) -> int:
        """Number of operators with unknown arithmetic, which no share includes."""
        return sum(operator.flops is None for operator in self.operators)

    @property
    def flops(self) -> int:
        return sum(operator.flops or 0 for operator in self.proven)

    @property
    def flops_total(self) -> int:
        return sum(operator.flops or 0 for operator in self.operators)

    @property
    def arithmetic_share(self) -> float | None:
        """Share of all known matrix arithmetic, from 0 to 1; None if none is known."""
        return self.flops / self.flops_total if self.tested and self.flops_total else None

    @property
    def is_low(self) -> bool:
        """Whether so little of the matrix work runs on SME2 that hardware with SME2 would hardly help."""
        share = self.arithmetic_share
        if share is None:
            return self.tested and bool(self.operators) and not self.proven
        return share < LOW_SHARE

    @property
    def rows(self) -> tuple[Sme2Row, ...]:
        whole, none = self.flops_total, (None,) * len(self.operators)
        return tuple(
            Sme2Row(
                operator,
                operator.on_sme if self.tested else None,
                operator.flops / whole if operator.flops is not None and whole else None,
                work,
            )
            for operator, work in zip(self.operators, self.work or none, strict=True)
        )

    @property
    def missing(self) -> tuple[Sme2Row, ...]:
        """Those that SME2 did not run, most of the arithmetic first."""
        return tuple(
            sorted((row for row in self.rows if row.ran is False), key=lambda row: -(row.share or 0))
        )

    @property
    def missing_reasons(self) -> tuple[MissingReason, ...]:
        """Why operators are missing, the reason of most of the arithmetic first."""
        found: dict[tuple[str, str], list[float]] = {}
        for each in self.missing:
            found.setdefault((each.reason, each.cause), []).append(each.share or 0.0)
        reasons = (MissingReason(*why, len(shares), sum(shares)) for why, shares in found.items())
        return tuple(sorted(reasons, key=lambda each: -each.share))


def coverage_of(
    run: Run, evidence: Sequence[PlaceEvidence], series: Sequence[SeriesAnalysis] = ()
) -> Coverage:
    """What the evidence proves about the operators of `run`, its own first; `series` provide the program."""
    work, unseen = _work(series)
    proofs = [(place, place.operators) for place in evidence if place.operators is not None]
    for place, proof in proofs:
        if not proof.not_tested:
            return _tested(proof, place, work, unseen)
    known = tuple(map(matching.unproven_work, work))
    if not proofs and (question := kernels_not_tested(run, evidence)):
        because, command = question.because, question.next
    else:
        command, has_sme2 = profile_command(run), run.manifest.has_sme2 if run.manifest else None
        because = "the evidence in this run does not say which operators ran on SME2"
        if proofs:
            because = proofs[0][1].not_tested
        elif has_sme2 is None:
            because = "it is not recorded whether the CPU that made these dumps has SME2"
        elif has_sme2:
            because = "no dump of an experiment with SME2 on can be read"
    return Coverage("not tested", because, command, operators=known, work=work, unseen=unseen)


def on_sme_of(
    coverage: Coverage, found: SeriesEvidence, series: SeriesAnalysis | None
) -> tuple[int, int] | None:
    """How many operators of `coverage` ran on SME kernels in one series, and of how many; None if unknown."""
    every = coverage.operators
    if not every or found.sme.answer in ("untested", "unknown"):
        return None
    if found.sme.answer == "none":
        return 0, len(every)
    if series is not None:
        proof = matching.prove_operators(series, found.uses, found.sme)
        if proof.not_tested:
            return None
        every = proof.operators
        if coverage.work:
            every = tuple(matching.proven_work(coverage.work, proof.operators))
    elif coverage.proven_by != found.series:
        return None
    return sum(operator.on_sme for operator in every), len(every)


def sme2_by_operator(series: SeriesAnalysis, coverage: Coverage, *, can_switch: bool) -> Mapping[int, str]:
    """For each operator of `series`, by its place, whether SME2 kernels run it: `yes`, `no` and why, or `not
    tested`. `can_switch` says whether the CPU has SME2, so that it may be off."""
    off = series.sme2 is False and can_switch
    said = "no: SME2 is off" if off else "not tested"
    if coverage.tested and not off:
        said = "no: no SME kernel was seen to run it"
    found = dict.fromkeys(map(series.place, series.operators), NO_MATRICES)
    found |= dict.fromkeys(map(series.place, matching.matrix_operators(series)), said)
    if off or not coverage.tested:
        return found
    places = matching.matrix_operators_by_key(series)
    for missing in coverage.missing:
        for each in places.get(missing.operator.key.in_program, ()):
            found[series.place(each)] = f"no: {missing.reason}"
    for _, measured in matching.match_proven(series, coverage.ran)[0]:
        found |= dict.fromkeys(map(series.place, measured), coverage.yes)
    return found


def _work(series: Sequence[SeriesAnalysis]) -> tuple[tuple[MatrixWork, ...], tuple[str, ...]]:
    graph = next((found.graph for found in series if found.graph), None)
    if graph is None:
        return (), ()
    ran = {operator.method for found in series for operator in found.operators}
    methods = [method for method in graph.program.methods if method.name in ran]
    work = tuple(each for method in methods for each in matrix_work(graph, method))
    return work, tuple(name for method in methods for name in unseen_delegates(method))


def _tested(
    proof: OperatorProof, place: PlaceEvidence, work: Sequence[MatrixWork], unseen: tuple[str, ...]
) -> Coverage:
    operators = tuple(matching.proven_work(work, proof.operators)) if work else proof.operators
    source = place.named(proof.series)
    if not operators:
        reason = f"the model has no matrix operators, as {source} shows"
    elif proof.isa:
        reason = f"confirmed by kernel calls counted in {source}"
    else:
        reason = f"no SME or SME2 kernel ran in {source}, although SME2 was on"
    return Coverage(
        "executed",
        reason,
        isa=proof.isa,
        operators=operators,
        work=tuple(work),
        proven_by=proof.series,
        ran=proof.operators,
        emulated=place.emulated,
        unseen=unseen if work else proof.unseen,
    )
