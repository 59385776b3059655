"""Profiles a language model: several prompts and several positions of the answer, and one page about both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from model_profiling.config import names
from model_profiling.config.series import Series, WarningLine, warning_lines
from model_profiling.config.settings import Inputs
from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.core.formatting import plural
from model_profiling.models.catalog import NamedModel
from model_profiling.program.language import (
    LanguageModel,
    Phase,
    language_model,
    read_per_step,
    smaller_weights,
)
from model_profiling.program.pte import read_program
from model_profiling.report.breakdown import time_shares
from model_profiling.report.document import render_markdown
from model_profiling.report.language import (
    CaseFinding,
    Language,
    LanguageCase,
    PhaseLatency,
    PhaseName,
    ReadPerToken,
    language_document,
)
from model_profiling.runs.feeding import input_names
from model_profiling.statistics.speedup import median_interval
from model_profiling.targets import open_target, plan_targets
from model_profiling.workflow.measure import USUAL, RunOptions
from model_profiling.workflow.profile import (
    ProfileOptions,
    ProfileOutcome,
    ProgramCase,
    open_program,
    profile_programs,
)
from model_profiling.workflow.report import write_page

PROMPTS, POSITIONS = (32, 128, 512), (0, 256, 1024)
REPORT, FACTS = "llm.md", names.LANGUAGE
BUDGET_S = 10.0
"""For each prompt and each position."""


@dataclass(frozen=True, slots=True)
class LanguageOutcome:
    """What `profile_llm` returns: the figures of the `language` model, the outcome of each of its cases, and
    the page about all. In a notebook it shows that page."""

    language: Language
    outcomes: tuple[ProfileOutcome, ...]
    report: Path
    warnings: tuple[WarningLine, ...] = ()

    def __repr__(self) -> str:
        return f"<LanguageOutcome {self.language.model}, {plural(len(self.outcomes), 'case')}: {self.report}>"

    def _repr_markdown_(self) -> str:
        return render_markdown(language_document(self.language))

    @property
    def verdict(self) -> tuple[str, ...]:
        """The opening sentences of the page."""
        return tuple(answer for _, answer in self.language.answers)


Planned = tuple[LanguageCase, ProgramCase]
"""A case without figures, and what is fed for it."""


def profile_language(
    model: str | NamedModel,
    options: ProfileOptions,
    run: RunOptions = USUAL,
    *,
    prompts: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
) -> LanguageOutcome:
    """Measure all prompt lengths in turns, then all positions, with SME2 on and off. None stands for the
    usual ones, as far as the program goes; where nothing is timed, and with `quick`, the first of each
    phase."""
    plan = plan_targets(options.target)
    if options.budget_s is None and not options.quick and open_target(plan.main).timings_are_latency:
        # A prompt may take seconds: few inferences tell all about it.
        few = {"runs": 3, "warmup": 1, **options.given(("runs", "warmup"))}
        options = options.model_copy(update={"budget_s": BUDGET_S, **few})
    program = open_program(model, options)
    content = read_program(program)
    phases = language_model(content)
    if phases is None:
        raise InputError(
            f"{program.name} is not a language model: no method takes tokens and a position in a cache",
            "use `sme2prof profile`, or export the model with its cache in buffers",
        )
    planned, left_out = _cases(
        phases, prompts, positions, lambda phase: input_names(program, content, phase.method)
    )
    if not planned:
        raise InputError(
            f"{program.name} does not allow {left_out[0]}", "leave that out to get what it allows"
        )
    if plan.main.name == "emulated" or options.quick:
        # A prompt of 512 tokens takes 16 times as long as one of 32, and emulated it shows nothing else.
        given = {"prompt": prompts, "answer": positions}
        shortest = {case.phase: case for case, _ in reversed(planned)}
        fewer = [
            (case, fed)
            for case, fed in planned
            if given[case.phase] is not None or case is shortest[case.phase]
        ]
        if fewer != planned:
            why = "emulation gives no times and the kernels are the same; --target host measures this CPU"
            why = "of --quick" if options.quick else why
            longer = f"longer prompts and later positions, because {why}; --prompt and --context ask for them"
            planned, left_out = fewer, (longer, *left_out)
    outcomes: list[ProfileOutcome] = []
    for _, members in groupby(planned, lambda pair: pair[0].phase):
        # The cases of a phase take turns. Kernels are the same for every length above 1 and at every
        # position: one proof for each phase.
        cases_of_phase = [fed for _, fed in members]
        budget = {"budget_s": options.budget_s * len(cases_of_phase)} if options.budget_s else {}
        asked = options.model_copy(update=budget)
        outcomes += profile_programs([program], asked, run, cases=cases_of_phase, one_proof=True)
    home = names.runs_folder(program, options.outdir)
    cases = tuple(
        _measured_case(case, outcome, home) for (case, _), outcome in zip(planned, outcomes, strict=True)
    )
    remarks = tuple(
        replace(remark, series=Series(case.name))
        for case, outcome in zip(cases, outcomes, strict=True)
        for remark in outcome.all_remarks
    )
    warnings = warning_lines(remarks)
    answers = [of for case, of in zip(cases, outcomes, strict=True) if case.phase == "answer"]
    data = (answers or outcomes)[0].main.data
    manifest = data.run.manifest
    language = Language(
        model=names.variant_of(program)[0],
        program=program.name,
        sha256=manifest.model_sha256 if manifest else "",
        size_bytes=program.stat().st_size,
        cpu=data.cpu,
        has_sme2=data.has_sme2,
        is_arm=data.is_arm,
        context=phases.context,
        cases=cases,
        read=ReadPerToken(*read_per_step(phases.step.method), smaller_weights(phases.step.method)),
        bandwidth=next((rate for _, rate in sorted(data.run.memory_rates.items())), None),
        left_out=left_out,
        warnings=tuple(str(line) for line in warnings),
    )
    files.write_json(home / FACTS, language.facts())
    page = write_page(language_document(language), home / REPORT, f"{language.model}: prompt and answer")
    return LanguageOutcome(language, tuple(outcomes), page, warnings)


def _cases(
    phases: LanguageModel,
    prompts: Sequence[int] | None,
    positions: Sequence[int] | None,
    named: Callable[[Phase], tuple[str, ...]],
) -> tuple[list[Planned], tuple[str, ...]]:
    """Return what fits the program, the prompts first, and why the rest does not."""
    planned, left_out = [], []
    phase = phases.prompt
    usual: Sequence[int] = ()
    if phase is not None:
        usual = _as_far_as(PROMPTS, phase.most) if phase.variable else (phase.most,)
    for tokens in sorted(set(prompts or usual)):
        if phase is not None and tokens in (range(2, phase.most + 1) if phase.variable else usual):
            planned.append(_case("prompt", phase, named(phase), tokens, 0))
            continue
        takes = "takes one token at a time"
        if phase is not None:
            takes = f"{'takes at most' if phase.variable else 'always takes'} {phase.most}"
        left_out.append(f"a prompt of {tokens} tokens, because the program {takes}")
    for position in sorted(set(positions or _as_far_as(POSITIONS, phases.context - 1))):
        if position >= phases.context:
            left_out.append(f"an answer after {position} tokens, because the cache holds {phases.context}")
        else:
            planned.append(_case("answer", phases.step, named(phases.step), 1, position))
    return planned, tuple(left_out)


def _as_far_as(usual: Sequence[int], most: int) -> tuple[int, ...]:
    """The usual numbers; if some are above `most`, that number as well."""
    return (*usual, most) if max(usual) > most else tuple(usual)


def _case(name: PhaseName, phase: Phase, named: tuple[str, ...], tokens: int, position: int) -> Planned:
    numbers = phase.method.input_numbers
    at = named[numbers.index(phase.position)]
    sizes: dict[str, tuple[int, ...]] = {}
    if phase.variable:
        sizes[named[numbers.index(phase.tokens)]] = (1, tokens)
        if phase.positions > 1:
            sizes[at] = (tokens,)
    count = tokens if phase.positions > 1 else 1
    values = {at: tuple(float(position + offset) for offset in range(count))}
    method = phase.method.name
    fed = ProgramCase(method, Inputs(sizes=sizes, values=values))
    return LanguageCase(name, method, tokens, position), fed


def _measured_case(case: LanguageCase, outcome: ProfileOutcome, home: Path) -> LanguageCase:
    data = outcome.main.data
    latencies = []
    order = sorted(data.experiments, key=lambda experiment: data.run.spoken_order(experiment.series))
    for experiment in order:
        if experiment.untraced is None:
            continue
        stats = data.run.robust_stats(experiment.series)
        low, high = (median_interval(stats.end_to_end_rounds_ms) if stats else None) or (None, None)
        series, median = experiment.series, experiment.untraced.median
        measured = experiment.latency.measured if experiment.latency else "wall time, unchecked"
        latencies.append(
            PhaseLatency(series.experiment, series.threads or 1, experiment.sme2, median, low, high, measured)
        )
    headline, coverage, projection = data.headline, data.outlook.coverage, data.outlook.headline
    switched = (pair.speedup for pair in data.pairs if data.run.switches_sme2(pair.pair))
    timed = headline.dumps if headline and data.run.times.are_latencies else None
    shares = time_shares(timed) if timed else {}
    return replace(
        case,
        run=str(outcome.main.run_dir.relative_to(home.resolve())),
        latencies=tuple(latencies),
        speedup=next(switched, None),
        projected=(projection.low, projection.high) if projection else None,
        parts={name: share / 100 for name, share in shares.items()},
        sme2_operators=(len(coverage.proven), len(coverage.operators)) if coverage.tested else None,
        kernels=_kernels(outcome),
        findings=tuple(
            CaseFinding(finding.id, finding.title, finding.action, finding.max_gain_pct)
            for finding in data.findings
        ),
    )


def _kernels(outcome: ProfileOutcome) -> tuple[str, ...]:
    """SME2 kernels that computed something, those called most often first."""
    calls = Counter[str]()
    for place in outcome.main.data.evidence:
        for series in place.kernels:
            for use in series.uses:
                if use.computes_on_sme:
                    calls[use.kernel.name] = max(calls[use.kernel.name], use.calls or 0)
    return tuple(name for name, _ in calls.most_common())
