"""Gathers what kernels and outputs prove about a run: its own, and those of another run kept in it; and which
questions about SME2 they leave open."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.analysis.kernels import (
    KernelUse,
    SmeVerdict,
    configured_kernels,
    executed_kernels,
    kernel_uses,
    operator_kernels,
    read_kernels_csv,
    sme_verdict,
    use_of,
)
from model_profiling.analysis.matching import prove_operators
from model_profiling.analysis.operators import analyse_dump
from model_profiling.analysis.series import SeriesAnalysis, series_of
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core.errors import FormatError
from model_profiling.core.formatting import as_code
from model_profiling.core.safe_read import MOST_LOG, inside, is_there, read_text
from model_profiling.etdump import read_etdump
from model_profiling.etdump.reader import read_timed
from model_profiling.runner.xnnpack_log import parse_xnntrace, read_xnntrace
from model_profiling.runs import Evidence, Run, Times
from model_profiling.runs.journal import Entry
from model_profiling.runs.records import KernelList, OperatorProof, PairParity, proving_run
from model_profiling.statistics.speedup import Verdict


@dataclass(frozen=True, slots=True)
class SeriesEvidence:
    """The kernels of one series, and what they prove about SME2."""

    series: Series
    sme2: bool | None
    uses: tuple[KernelUse, ...]
    sme: SmeVerdict
    counted: bool
    """Whether every KleidiAI call was listed; only then does absence prove anything."""
    note: str = ""
    """Why kernels could not be counted; empty where they were."""

    @property
    def instruction_sets(self) -> Mapping[str, int]:
        """Number of different kernels called per instruction set, without packing."""
        return Counter(use.kernel.isa for use in self.uses if use.computes)


@dataclass(frozen=True, slots=True)
class PlaceEvidence:
    """Kernels and parity of outputs from one place: this run or an emulated one."""

    source: str
    emulated: bool
    kernels: tuple[SeriesEvidence, ...]
    parity: tuple[PairParity, ...]
    operators: OperatorProof | None = None
    """Operators that ran on SME kernels; None if the place has no SME2 or its file does not say."""

    @property
    def series(self) -> tuple[Series, ...]:
        return tuple(found.series for found in self.kernels)

    def named(self, series: Series) -> str:
        """The source of a proof: `this run`, with the series if there are several."""
        label = series.among(self.series)
        return f"{self.source} ({label})" if label else self.source


def gather_evidence(run: Run, analysed: Sequence[SeriesAnalysis]) -> tuple[PlaceEvidence, ...]:
    """All evidence about `run`, its own first; `analysed` are its series."""
    parity = run.metrics.parity if run.metrics else ()
    kernels = own_kernels(run, analysed)
    proof = _operator_proof(run, kernels, {found.series: found for found in analysed}.get)
    own = PlaceEvidence("this run", run.times is Times.EMULATED, kernels, parity, proof)
    kept = kept_evidence(run)
    if kept is None:
        return (own,)
    proven = tuple(
        proving(one.series, one.sme2, tuple(map(use_of, one.kernels)), one.counted, note=one.note)
        for one in kept.kernels
    )
    when = f" on {kept.made[:10]}" if kept.made else ""
    other = kept.fed.replace("_", " ") if run.manifest and kept.fed != run.manifest.fed else ""
    source = f"an emulated run of the same program{f' with other inputs ({other})' if other else ''}{when}"
    release = run.manifest.executorch.version if run.manifest else None
    if release and kept.executorch and kept.executorch != release:
        source += f" with ExecuTorch {kept.executorch}, not {release}"
    return own, PlaceEvidence(source, True, proven, kept.parity, kept.operators)


def kept_evidence(run: Run) -> Evidence | None:
    """Evidence from another run of the same program: kept in `run`, else that of an emulated run beside it,
    made later."""
    kept, manifest = run.evidence, run.manifest
    if kept is not None and not kept.problem:
        return kept
    if manifest is None or manifest.has_sme2 is not False or not manifest.target.times.are_latencies:
        return None
    prover = proving_run(run.path, manifest)
    return evidence_record(Run.open(prover)) if prover else None


def own_kernels(run: Run, analysed: Sequence[SeriesAnalysis]) -> tuple[SeriesEvidence, ...]:
    """Kernels of each series, from `_kernels.csv` and the operators of the dumps."""
    has_sme2 = run.manifest.has_sme2 if run.manifest else None
    known = {found.series: found for found in analysed}
    found = []
    for series in run.series:
        result = run.result(series)
        uses = listed_kernels(run, series)
        dumps = known.get(series)
        if dumps is not None and not any(use.kernel.library == "operator" for use in uses):
            uses = (*uses, *operator_kernels(operator.name for operator in dumps.operators))
        counted = bool(result and result.counted_kernels)
        note = (result.kernels_note or "") if result else ""
        found.append(proving(series, run.sme2_of(series), uses, counted, has_sme2=has_sme2, note=note))
    return tuple(found)


def listed_kernels(run: Run, series: Series) -> tuple[KernelUse, ...]:
    """Kernels of the series' `_kernels.csv`, else of its log; empty if it has neither."""
    result = run.result(series)
    path = run.path / result.kernels if result and result.kernels else None
    if path and is_there(path):
        return read_kernels_csv(path)
    log = run.path / result.xnntrace_log if result and result.xnntrace_log else None
    return kernel_uses(read_xnntrace(log)) if log and is_there(log) else ()


def proving(
    series: Series,
    sme2: bool | None,
    uses: tuple[KernelUse, ...],
    counted: bool,
    *,
    has_sme2: bool | None = True,
    note: str = "",
) -> SeriesEvidence:
    verdict = sme_verdict(uses, traced=counted)
    if counted and verdict.proves_sme:  # calls are counted in a process of its own, which runs once
        verdict = replace(verdict, text=f"{verdict.text} in one inference")
    if has_sme2 is False and verdict.answer in ("none", "unknown"):
        verdict = SmeVerdict("untested", "not tested: this CPU has no SME2")
    return SeriesEvidence(series, sme2, uses, verdict, counted, note)


def evidence_record(run: Run) -> Evidence:
    """What `run` proved, for storing in another run of its program."""
    assert run.manifest is not None
    own = own_kernels(run, ())
    return Evidence(
        model_sha256=run.manifest.model_sha256,
        place=run.path.name,
        cpu=run.manifest.cpu,
        times=run.times,
        made=run.manifest.started,
        fed=run.manifest.fed,
        executorch=run.manifest.executorch.version or "",
        kernels=tuple(
            KernelList(one.series, one.sme2, tuple(use.as_call for use in one.uses), one.counted, one.note)
            for one in own
        ),
        parity=run.metrics.parity if run.metrics else (),
        operators=_operator_proof(run, own, lambda series: _first_round(run, series)),
    )


_STRENGTH = ("sme2", "sme", "sme-or-sme2", "none", "unknown", "untested")


def _operator_proof(
    run: Run, kernels: Sequence[SeriesEvidence], analysed: Callable[[Series], SeriesAnalysis | None]
) -> OperatorProof | None:
    """From the series with SME2 on that proves most; None if the CPU has no SME2 or no dump is left."""
    if run.manifest is None or not run.manifest.has_sme2:
        return None
    left_on = [found for found in kernels if found.sme2 is not False]
    left_on.sort(key=lambda found: (_STRENGTH.index(found.sme.answer), found.series.threads or 0))
    for found in left_on:
        if dumps := analysed(found.series):
            return prove_operators(dumps, found.uses, found.sme)
    return None


def _first_round(run: Run, series: Series) -> SeriesAnalysis | None:
    dump = next((dump for dump in run.dumps if dump.series == series), None)
    if dump is None:
        return None
    try:
        found = analyse_dump(read_timed(dump.path), dump, run.programs().explaining(dump.path))
    except FormatError:
        return None  # what it could have proven is then "not tested"
    return series_of([found])


def kernels_of_process(entry: Entry | None, dump: Path | None, run_dir: Path) -> tuple[KernelUse, ...]:
    """Executed kernels, then the dump's operators, then kernels that a log only configured."""
    called = executed_kernels(entry.kernels, entry.kernel_sizes) if entry else ()
    # Count operators over the executions that kernels were counted in: all of the evidence process's own
    # dump, the last of a dump made for timing.
    operators: tuple[KernelUse, ...] = ()
    if dump is not None:
        table = read_etdump(dump)
        chosen = table.is_delegated
        if not (entry is not None and entry.etdump) and chosen.any():
            chosen &= table.run_index == int(table.run_index[chosen].max())
        operators = operator_kernels(str(name) for name in table.text(table.name[chosen]))
    configured: Iterable[KernelUse] = ()
    if entry is not None and entry.log and entry.log.endswith(names.XNNTRACE_LOG):
        log = read_text(inside(run_dir, entry.log, names.JOURNAL), MOST_LOG)
        configured = configured_kernels(parse_xnntrace(log).configured)
    return (*called, *operators, *configured)


# Open questions about SME2, with reasons and the commands that would answer them.

_ON_SME2 = "a machine that has SME2 (an Apple M4 or newer, a phone with Arm's C1 cores)"

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
        if run.platform == "mac":  # where nothing can be emulated
            there = f"`{profile_command(run)} --evidence ssh:HOST`, with a Linux machine that has the kit"
            return NotTested(what, because, there)
        return NotTested(what, because, profile_command(run, emulated=True))
    notes = [kernels.note for place in evidence for kernels in place.kernels if kernels.note]
    return NotTested(
        what, notes[0] if notes else "no process recorded which kernels it ran", profile_command(run)
    )


def _latency(run: Run) -> Iterator[NotTested]:
    what, manifest = "What SME2 changes in latency", run.manifest
    if manifest is None:
        return
    # The program's place below the current folder; elsewhere its name alone, as reports are shared.
    path, here = Path(manifest.model or "MODEL.pte"), Path.cwd()
    program = path.relative_to(here) if path.is_relative_to(here) else path.name
    there = f"copy {program} to {_ON_SME2}, and run `{profile_command(run)}` there"
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


def profile_command(run: Run, *, emulated: bool = False) -> str:
    """The command that answers the question; emulation runs here, where the program is."""
    model = run.manifest.model if run.manifest and run.manifest.model else "MODEL.pte"
    words = ["sme2prof", "profile", model if emulated else Path(model).name]
    words += run.manifest.case_words if run.manifest else []
    return shlex.join([*words, *(("--target", "emulated") if emulated else ())])
