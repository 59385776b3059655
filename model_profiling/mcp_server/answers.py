"""What the tools answer: the facts of the command line's JSON, chosen and bounded for a model to read.

They become the tools' output schemas. Times are milliseconds of one inference, shares are 0 to 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, create_model

from model_profiling.facts.fact import JSON_TYPES
from model_profiling.facts.operators import facts_for

Number = float | None
TimesAre = Annotated[
    Literal["hardware", "traced", "emulated", "unknown"],
    Field(description="What the times are; only those of hardware are latencies."),
]


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Bounded(Answer):
    left_out: Annotated[
        str | None, Field(description="What is not listed and how to get it; null where everything is.")
    ] = None


class Check(Answer):
    name: str
    status: Literal["pass", "fail", "optional", "skipped"]
    found: str
    fix: str


class TargetState(Answer):
    name: str
    available: bool
    detail: str


class DoctorAnswer(Answer):
    ready: Annotated[bool, Field(description="Whether models can be measured on this machine.")]
    failed: Annotated[str, Field(description="Names of what failed; empty where nothing did.")]
    checks: list[Check]
    targets: list[TargetState]
    cpu_features: Annotated[dict[str, bool], Field(description="Arm's; all false on other CPUs.")]
    root: Annotated[str, Field(description="The folder that all paths are relative to.")]
    next: str


class KnownModel(Answer):
    name: str
    source: Annotated[str, Field(description="kit, or executorch for its example models.")]
    description: str
    inputs: list[str] | None
    dtypes: list[str]
    options: Annotated[list[str], Field(description="What may follow its name: name@size=512.")]
    missing_packages: list[str]


class ModelsAnswer(Bounded):
    models: list[KnownModel]
    own_models: str


class Outside(Answer):
    what: Annotated[str, Field(description="Operators the backend did not take, and its reason.")]
    where: list[str]
    instead: Annotated[str, Field(description="What to write instead; empty where nothing is known.")]


class Deviation(Answer):
    agrees: bool
    max_rel: Annotated[float, Field(description="Largest difference, as a share of the outputs' range.")]
    accepted_max_rel: float
    cosine: float


class ExportAnswer(Bounded):
    program: Annotated[str, Field(description="The .pte, relative to the root: pass it to `profile`.")]
    etrecord: str
    dtype: str
    backend: str
    size_bytes: int
    seconds: float
    inputs: list[str]
    outputs: list[str]
    operators: int
    operators_delegated: int
    delegate_partitions: int
    inserted_transposes: int
    outside: list[Outside]
    outputs_agree: Annotated[bool, Field(description="Whether the program computes what PyTorch computes.")]
    against_same_dtype: Deviation | None
    against_fp32: Deviation | None
    warnings: list[str]
    next: str


class Answers(Answer):
    """The three answers that every report of the kit begins with."""

    where_time_goes: str
    what_sme2_changes: str
    what_next: str


class MadeRun(Answer):
    run: Annotated[str, Field(description="The run directory, relative to the root: pass it to `summary`.")]
    state: Annotated[str, Field(description="finished, or why not.")]
    target: str
    cpu: str
    answers: Answers
    report: Annotated[str, Field(description="The report for people, relative to the root.")]


class ProfileAnswer(Answer):
    programs: list[str]
    why_here: Annotated[list[str], Field(description="Why it was measured where it was.")]
    runs: Annotated[list[MadeRun], Field(description="The run that answers first, then the one that proves.")]
    dtypes_verdict: Annotated[str | None, Field(description="Which number format to ship, of several.")] = (
        None
    )
    failed: list[str]
    warnings: list[str]
    next: str


class ListedRun(Answer):
    run: str
    model: str
    format: str
    device: str
    date: str
    median_ms: Annotated[Number, Field(description="Of one inference; null where times are no latencies.")]
    measured: Annotated[str, Field(description="Which experiment that is of.")]
    speedup: Annotated[str, Field(description="As the reports say it; empty where nothing is compared.")]
    verdict: str
    problem: Annotated[str, Field(description="Why the run cannot be read; empty where it can.")]


class RunsAnswer(Bounded):
    runs: list[ListedRun]
    found: int


class Speedup(Answer):
    verdict: Annotated[str, Field(description="faster, slower, no significant change, or not comparable.")]
    reason: str
    ratio: Annotated[Number, Field(description="Above 1 the candidate is faster.")]
    low: Number
    high: Number
    confidence: float
    baseline_median_ms: Number
    candidate_median_ms: Number


class Compared(Answer):
    label: str
    baseline: str
    candidate: str
    speedup: Speedup


class Part(Answer):
    name: Annotated[str, Field(description="A category, or an overhead.")]
    ms: Annotated[Number, Field(description="Null where times mean nothing.")]
    share: Number


class Experiment(Answer):
    experiment: str
    threads: int | None
    times_are: TimesAre
    median_ms: Annotated[Number, Field(description="Without the event tracer; null where not measured.")]
    traced_ms: Annotated[Number, Field(description="With the tracer on; the parts add up to it.")]
    parts: list[Part]
    operators: int


class Unanswered(Answer):
    what: str
    because: str
    next: str


class SummaryAnswer(Bounded):
    run: str
    model: str
    cpu: str
    state: str
    times_are: TimesAre
    times_mean: str
    answers: Answers
    notes: Annotated[list[str], Field(description="What to know before trusting the answers.")]
    experiments: list[Experiment]
    compared: list[Compared]
    not_tested: list[Unanswered]
    warnings: list[str]
    report: str | None
    next: str


class SideBySide(Answer):
    name: str
    before_ms: Number
    after_ms: Number
    ratio: Number
    verdict: str | None


class ChangedOperator(SideBySide):
    category: str
    change: Annotated[str, Field(description="same, or how it was matched.")]
    place: str
    kernel_before: str
    kernel_after: str


class ComparedSeries(Answer):
    before: str
    after: str
    with_tracer: Annotated[bool, Field(description="Compared with the event tracer on, for want of better.")]
    slowdown: Annotated[Number, Field(description="Share of time added; negative where faster.")]
    end_to_end: Speedup
    categories: list[SideBySide]
    operators: Annotated[list[ChangedOperator], Field(description="The largest changes in time first.")]


class Difference(Answer):
    what: str
    before: str
    after: str


class CompareAnswer(Bounded):
    headline: str
    regressions: list[str]
    series: list[ComparedSeries]
    differing: Annotated[list[Difference], Field(description="What else differs between the two.")]
    warnings: list[str]
    next: str


_OPERATOR: dict[str, Any] = {
    fact.name: (Annotated[JSON_TYPES[fact.kind], Field(description=fact.meaning)], ...)
    for fact in facts_for("assistant")
}
if TYPE_CHECKING:
    OperatorFacts: TypeAlias = Any
else:
    OperatorFacts = create_model("OperatorFacts", __base__=Answer, **_OPERATOR)


class OperatorsAnswer(Bounded):
    run: str
    experiment: str
    threads: int | None
    times_are: TimesAre
    ordered_by: Literal["ms", "flops"]
    operators: list[OperatorFacts]
    operators_total: int
    next: str


class KernelFacts(Answer):
    name: str
    instruction_set: str
    evidence: Annotated[
        str, Field(description="executed proves; configured and operator do not count calls.")
    ]
    calls: int | None


class SeriesKernels(Answer):
    experiment: str
    threads: int | None
    sme2_left_on: bool | None
    answer: Annotated[str, Field(description="sme2, sme, sme-or-sme2, none, unknown or untested.")]
    text: str
    counted: Annotated[bool, Field(description="Every KleidiAI call was listed: only then absence proves.")]
    note: str
    kernels: list[KernelFacts]


class Parity(Answer):
    label: str
    verdict: str
    text: str


class EvidencePlace(Answer):
    source: str
    emulated: bool
    series: list[SeriesKernels]
    outputs: Annotated[list[Parity], Field(description="Whether on and off compute the same.")]


class MissingOperator(Answer):
    name: str
    cause: str
    reason: str
    share: Number
    module_path: str
    source: str


class Coverage(Answer):
    evidence: Annotated[str, Field(description="executed, or not tested.")]
    reason: str
    operators: Annotated[int | None, Field(description="Matrix operators proven to run on SME2 kernels.")]
    operators_total: int | None
    arithmetic_share: Annotated[Number, Field(description="Of the matrix arithmetic, on SME2 kernels.")]
    missing: list[MissingOperator]


class EvidenceAnswer(Bounded):
    run: str
    places: list[EvidencePlace]
    coverage: Coverage
    not_tested: list[Unanswered]
    next: str


class Factor(Answer):
    operators: str
    count: int
    time_share: Number
    low: float
    high: float


class Projection(Answer):
    experiment: str
    threads: int | None
    speedup_low: float
    speedup_high: float
    speedup_ceiling: Annotated[Number, Field(description="With SME2 operators for free; null: no bound.")]
    time_share: Annotated[Number, Field(description="Of the time, in operators proven to run on SME2.")]
    latency_ms: Number
    projected_ms_low_speedup: Number
    projected_ms_high_speedup: Number
    factors: list[Factor]
    bottleneck_before: Part
    bottleneck_after_low: Part
    bottleneck_after_high: Part


class HeadroomAnswer(Bounded):
    run: str
    kind: Annotated[
        Literal["projection", "none"], Field(description="A projection is never a measurement; say so.")
    ]
    reason: Annotated[str | None, Field(description="Why there is none.")]
    projections: list[Projection]
    factors_from: str | None
    coverage: Coverage
    next: str


class AdvisedOperator(Answer):
    operator: Annotated[
        str, Field(description="Its name; of several, the call of the model that makes them.")
    ]
    operator_count: Annotated[int, Field(description="How many operators `ms` and `share_pct` are of.")]
    module: str
    source_line: str
    ms: Number
    share_pct: Number


class Advice(Answer):
    id: str
    title: str
    severity: Literal["high", "medium", "low", "info"]
    subject: str
    max_gain_pct: Annotated[Number, Field(description="At the very most; null where times do not tell.")]
    max_gain_of: str | None
    action: str
    first_step: str
    operators: list[AdvisedOperator]
    operators_total: int


class AdviceAnswer(Bounded):
    run: str
    what_next: str
    advice: Annotated[list[Advice], Field(description="No operator is in two: the bounds do not overlap.")]
    not_tested: list[Unanswered]
    next: str


class StoreColumn(Answer):
    name: str
    type: Annotated[str, Field(description="As DuckDB calls it.")]
    meaning: Annotated[str, Field(description="Of a column of the store; empty in an answer.")] = ""


class StoreTable(Answer):
    name: str
    kind: Literal["table", "view"]
    meaning: str
    columns: list[StoreColumn]


class StoreAnswer(Bounded):
    store: str
    columns: list[StoreColumn]
    rows: Annotated[
        list[list[Any]], Field(description="A value for each column; null where nothing is known.")
    ]
    tables: Annotated[
        list[StoreTable], Field(description="What can be asked; only where no `sql` was given.")
    ]
    next: str


class HistoryChange(Answer):
    """A change of level; `first` is the first run at the new one."""

    at: Annotated[str, Field(description="When that run was measured, in UTC.")]
    run_id: str
    commit: str
    commit_before: str
    change: Annotated[float, Field(description="Of the typical latency: 0.03 is 3% slower.")]
    low: float
    high: float
    drift: Annotated[bool, Field(description="Whether it came little by little, from that run on.")]
    also_changed: Annotated[list[str], Field(description="What else was not as before: kit, ExecuTorch, ...")]


class HistoryOfSeries(Answer):
    name: str
    device: str
    runs: int
    first_at: str
    last_at: str
    last_ms: float
    last_low_ms: Number
    last_high_ms: Number
    too_few_to_tell: Annotated[bool, Field(description="Whether there are too few runs to see any change.")]
    false_alarm_rate: Annotated[
        float, Field(description="Of how many such histories without a change one is shown, at the most.")
    ]
    changes: list[HistoryChange]
    said: Annotated[list[str], Field(description="The same in sentences.")]


class HistoryAnswer(Bounded):
    store: str
    model: str
    method: Annotated[str, Field(description="How changes are found.")]
    series: list[HistoryOfSeries]
    without_latency: Annotated[list[str], Field(description="Runs that are in no series, and why.")]
    next: str
