"""The tools' answers: facts of the command line, selected and bounded for a model to read.

Each type names the facts that it takes from a record or a command's JSON, and where they are in it; the
tools' output schemas are generated from these types. Times are milliseconds of one inference, shares 0 to 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar, cast

from pydantic import (
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    create_model,
    model_validator,
)

from model_profiling.analysis.coverage import NotTested
from model_profiling.core.errors import Check
from model_profiling.doctor import TargetState
from model_profiling.facts import JSON_TYPES
from model_profiling.facts.operators import facts_for
from model_profiling.run.series import Series
from model_profiling.run.times import Times
from model_profiling.statistics.speedup import Speedup

Item = TypeVar("Item")
Number = float | None


@dataclass
class Cuts:
    """Shortens lists and remembers what was left out."""

    limit: int = 0
    said: list[str] = field(default_factory=list)

    def cut(self, items: Iterable[Item], most: int, what: str, more: str = "") -> list[Item]:
        """The first `most` items; `more` says how to see the others."""
        every = list(items)
        if len(every) > most:
            self.said.append(f"{most} of {len(every)} {what} are listed{f'; {more}' if more else ''}")
        return every[:most]


def first(what: str, more: str = "", most: int | None = None) -> BeforeValidator:
    """A validator that shortens a list to `most` items, or to the question's `limit`."""

    def cut(items: Iterable[object], info: ValidationInfo) -> list[object]:
        cuts = cast(Cuts, info.context)
        return cuts.cut(items, cuts.limit if most is None else most, what, more)

    return BeforeValidator(cut)


def fact(about: str = "", path: str = "", default: Any = ...) -> Any:
    """A field with its meaning; `path` says where the fact is if not under the field's name."""
    steps = [int(step) if step.lstrip("-").isdigit() else step for step in path.split(".")]
    alias = AliasPath(str(steps[0]), *steps[1:]) if path else None
    return Field(default, description=about or None, validation_alias=alias)


class Chosen(BaseModel):
    """Facts of a record or of a JSON object."""

    model_config = ConfigDict(
        frozen=True, from_attributes=True, validate_by_name=True, validate_by_alias=True
    )


class Answer(Chosen):
    next: str
    left_out: str | None = fact(
        "What is not listed and how to get it; null if everything is listed.", default=None
    )


Given = TypeVar("Given", bound=Answer)


def answer(kind: type[Given], limit: int = 0, /, **facts: object) -> Given:
    """Make an answer, shorten its lists and say what was left out."""
    cuts = Cuts(limit)
    found = kind.model_validate(facts, context=cuts)
    said = ([found.left_out] if found.left_out else []) + cuts.said
    return found.model_copy(update={"left_out": ". ".join(dict.fromkeys(said)) or None})


Lines = Annotated[list[str], first("lines", most=20)]
SeriesName = Annotated[
    str, BeforeValidator(lambda found: str(Series(**found) if isinstance(found, Mapping) else found))
]


class DoctorAnswer(Answer):
    ready: bool = fact("Whether models can be measured on this machine.")
    failed: str = fact("Names of the checks that failed; empty if none did.")
    checks: list[Check]
    targets: list[TargetState]
    cpu_features: dict[str, bool] = fact("Arm's CPU features; all false on other CPUs.")
    root: str = fact("The folder that all paths are relative to.")


class KnownModel(Chosen):
    name: str
    source: str = fact("kit, or executorch for its example models.")
    description: str
    inputs: list[str] | None
    dtypes: list[str]
    options: Annotated[
        list[str], BeforeValidator(lambda found: [f"{option.shown}: {option.meaning}" for option in found])
    ] = fact("What may follow its name: name@size=512.")
    missing_packages: list[str] = fact(path="missing")


class ModelsAnswer(Answer):
    models: Annotated[list[KnownModel], first("models", "give `contains` or a larger `limit`")]


class Outside(Chosen):
    what: str = fact("Operators the backend did not take, and its reason.")
    where: list[str]
    instead: str = fact("What to write instead; empty if unknown.", "remedy")


class Deviation(Chosen):
    agrees: bool = fact(path="ok")
    max_rel: float = fact("Largest difference, as a share of the outputs' range.")
    accepted_max_rel: float = fact(path="tolerance")
    cosine: float


class ExportAnswer(Answer):
    program: str = fact("The .pte, relative to the root: pass it to `profile`.")
    etrecord: str
    dtype: str
    backend: str
    size_bytes: int
    seconds: float
    inputs: list[str]
    outputs: list[str]
    operators: int = fact(path="coverage.operators")
    operators_delegated: int = fact(path="coverage.delegated")
    delegate_partitions: int = fact(path="coverage.partitions")
    inserted_transposes: int = fact(path="coverage.inserted_transposes")
    outside: Annotated[list[Outside], first("groups of operators", most=20)]
    outputs_agree: bool = fact("Whether the program computes what PyTorch computes.", "accuracy.ok")
    against_same_dtype: Deviation | None = fact(path="accuracy.lowering")
    against_fp32: Deviation | None = fact(path="accuracy.precision")
    warnings: Lines


class MadeRun(Chosen):
    run: str = fact("The run directory, relative to the root: pass it to `summary`.")
    state: str = fact("finished, or why not.")
    target: str = fact(path="target.name")
    cpu: str
    answers: dict[str, str] = fact("Where the time goes, what SME2 changes, what next.")
    report: str = fact("The report for people, relative to the root.")


class ProfileAnswer(Answer):
    programs: list[str]
    why_here: list[str] = fact("Why this target was chosen.")
    runs: Annotated[list[MadeRun], first("runs", "`runs` lists all", 32)] = fact(
        "Of each format, method and length: the run with the answers, then the one with the kernel evidence."
    )
    dtypes_verdict: str | None = fact("Which number format to ship, if several were measured.")
    failed: Lines
    warnings: Lines


class PhaseLatency(Chosen):
    experiment: str
    threads: int
    sme2: bool | None = fact("Whether SME2 was on; null if the CPU has none.")
    median_ms: float
    low_ms: Number = fact("Of the confidence interval; null with too few launches.")
    high_ms: Number
    tokens_per_s: float


class PhaseCase(Chosen):
    phase: Literal["prompt", "answer"]
    tokens: int
    position: int = fact("Tokens in the cache before.")
    method: str
    run: str = fact("Its run directory: pass it to `summary` or `top_operators`.")
    latencies: Annotated[list[PhaseLatency], first("latencies of a case", "`summary` of its run", 16)] = fact(
        "Empty if times are not latencies."
    )
    speedup: Speedup | None = fact("SME2 on over off, on a CPU that has it.")
    projected: list[float] | None = fact("Lowest and highest speedup by SME2; not a measurement.")
    parts: dict[str, float] = fact("Share of the time by category.")
    sme2_operators: list[int] | None = fact(
        "Matrix operators on SME2 kernels, and all of them; null if not tested."
    )
    kernels: Annotated[list[str], first("kernels of a case", "`kernel_evidence` of its run", 4)]
    load_ms: Number
    peak_memory_bytes: int | None
    advice: str = fact(path="next")


class LanguageAnswer(Answer):
    folder: str = fact("Where the facts are: pass it to `llm_summary`.")
    model: str
    program: str
    cpu: str
    context: int = fact("Tokens that the cache holds.")
    vocabulary: int | None
    answers: dict[str, str] = fact("Where the time goes, what SME2 changes, what next, in both phases.")
    cases: Annotated[list[PhaseCase], first("cases", "the report lists all", 16)]
    weight_bytes_per_token: int = fact("Read for each token of the answer.", "read.weights")
    cache_bytes_per_token: int = fact(path="read.cache")
    memory_bytes_per_s: Number = fact("What this machine's memory gives; null if unknown.", "bandwidth")
    not_measured: Lines = fact("Prompts and positions that the program cannot take, and why.")
    failed: Lines
    warnings: Lines
    report: str


class ListedRun(Chosen):
    run: str = fact(path="place")
    model: str
    format: str
    device: str
    date: str
    median_ms: Number = fact("Of one inference; null if times are not latencies.", "latency_value")
    measured: str = fact("The experiment with this latency.")
    speedup: str = fact("As in the reports; empty if nothing is compared.")
    verdict: str
    problem: str = fact("Why the run cannot be read; empty if it can.")


class RunsAnswer(Answer):
    runs: list[ListedRun]
    found: int


class ComparedPair(Chosen):
    label: str
    baseline: SeriesName = fact(path="pair.baseline")
    candidate: SeriesName = fact(path="pair.candidate")
    speedup: Speedup


class Part(Chosen):
    name: str = fact("A category, or an overhead.", "category")
    ms: Number = fact("Null if times are not latencies.", default=None)
    share: Number


class Experiment(Chosen):
    experiment: str
    threads: int | None
    times_are: Times
    median_ms: Number = fact("Without the event tracer; null if not measured.")
    traced_ms: Number = fact("With the tracer on; the parts add up to it.")
    parts: list[Part]
    operators: int


class SummaryAnswer(Answer):
    run: str
    model: str
    cpu: str
    state: str
    times_are: Times = fact("Timing validity: only times of hardware are latencies.")
    times_mean: str
    answers: dict[str, str] = fact("Where the time goes, what SME2 changes, what next.")
    notes: Lines = fact("What to know before relying on the answers.")
    experiments: Annotated[
        list[Experiment],
        first("experiments", "`top_operators` with `experiment` and `threads` shows any", 16),
    ]
    compared: Annotated[list[ComparedPair], first("comparisons", "the report lists all", 16)]
    not_tested: list[NotTested]
    warnings: Lines
    report: str | None


class ComparedCategory(Chosen):
    name: str = fact(path="category")
    before_ms: Number = fact(path="baseline_ms")
    after_ms: Number = fact(path="candidate_ms")
    ratio: Number
    verdict: str | None = fact(path="speedup.verdict", default=None)


class ComparedOperator(ComparedCategory):
    name: str = fact(path="operator")
    category: str
    change: str = fact("same, or how it was matched.")
    place: str
    kernel_before: str
    kernel_after: str


class ComparedSeries(Chosen):
    before: SeriesName
    after: SeriesName
    with_tracer: bool = fact("Compared with the event tracer on, because nothing else was measured.")
    slowdown: Number = fact("Share of time added; negative if faster.")
    end_to_end: Speedup
    categories: list[ComparedCategory]
    operators: Annotated[
        list[ComparedOperator], first("operators of an experiment", "give a larger `limit`")
    ] = fact("The largest changes in time first.")


class Difference(Chosen):
    what: str
    before: str = fact(path="a")
    after: str = fact(path="b")


class CompareAnswer(Answer):
    headline: str
    regressions: list[str]
    series: Annotated[list[ComparedSeries], first("experiments", "`sme2prof compare` shows all", 16)]
    differing: list[Difference] = fact("What else differs between the two.")
    warnings: Lines


_OPERATOR: dict[str, Any] = {
    fact.name: (Annotated[JSON_TYPES[fact.kind], Field(description=fact.meaning)], None)
    for fact in facts_for("assistant")
}
if TYPE_CHECKING:
    OperatorFacts: TypeAlias = Any
else:
    OperatorFacts = create_model("OperatorFacts", __base__=Chosen, **_OPERATOR)


class OperatorsAnswer(Answer):
    run: str
    experiment: str
    threads: int | None
    times_are: Times
    ordered_by: Literal["ms", "flops"]
    operators: Annotated[list[OperatorFacts], first("operators", "give a larger `limit` or a `category`")]
    operators_total: int


class KernelFacts(Chosen):
    name: str = fact(path="kernel.name")
    instruction_set: str = fact(path="kernel.isa")
    evidence: str = fact("executed: calls were counted, which proves; configured and operator do not prove.")
    calls: int | None


class SeriesKernels(Chosen):
    experiment: str = fact(path="series.experiment")
    threads: int | None = fact(path="series.threads")
    sme2_left_on: bool | None = fact(path="sme2")
    answer: str = fact("sme2, sme, sme-or-sme2, none, unknown or untested.", "sme.answer")
    text: str = fact(path="sme.text")
    counted: bool = fact(
        "Whether every KleidiAI call was listed: only then does a missing kernel prove anything."
    )
    note: str
    kernels: Annotated[list[KernelFacts], first("kernels of an experiment", "give a larger `limit`")] = fact(
        path="uses"
    )


class Parity(Chosen):
    label: str
    verdict: str
    text: str


class EvidencePlace(Chosen):
    source: str
    emulated: bool
    series: Annotated[list[SeriesKernels], first("experiments", most=16)] = fact(path="kernels")
    outputs: Annotated[list[Parity], first("comparisons of outputs", most=16)] = fact(
        "Whether on and off compute the same.", "parity"
    )


class MissingOperator(Chosen):
    name: str
    cause: str
    reason: str
    share: Number
    module_path: str
    source: str


class Coverage(Chosen):
    evidence: str = fact("executed, or not tested.")
    reason: str
    operators: int | None = fact("Matrix operators proven to run on SME2 kernels.")
    operators_total: int | None
    arithmetic_share: Number = fact("Share of the matrix arithmetic on SME2 kernels.")
    missing: Annotated[list[MissingOperator], first("operators without SME2", "`kernel_evidence` lists more")]


class EvidenceAnswer(Answer):
    run: str
    places: list[EvidencePlace]
    coverage: Coverage
    not_tested: list[NotTested]


class Projection(Chosen):
    experiment: str
    threads: int | None
    speedup_low: float = fact(path="low")
    speedup_high: float = fact(path="high")
    speedup_ceiling: Number = fact("If SME2 operators took no time at all; null: no bound.", "ceiling")
    time_share: Number = fact("Share of the time in operators proven to run on SME2.")
    latency_ms: Number
    projected_ms_low_speedup: Number = fact(path="projected_ms.low")
    projected_ms_high_speedup: Number = fact(path="projected_ms.high")
    factors: list[dict[str, Any]] = fact("Of each kind of operator, with its share of the time.")
    bottleneck_before: Part
    bottleneck_after_low: Part = fact(path="bottleneck_after.low")
    bottleneck_after_high: Part = fact(path="bottleneck_after.high")


class HeadroomAnswer(Answer):
    run: str
    kind: Literal["projection", "none"] = fact("A projection is not a measurement; say so.")
    reason: str | None = fact("Why there is no projection.")
    projections: Annotated[list[Projection], first("projections", most=16)]
    factors_from: str | None
    coverage: Coverage


class AdvisedOperator(Chosen):
    operator: str = fact("Its name; for several, the call of the model that creates them.")
    operator_count: int = fact("How many operators `ms` and `share_pct` cover.", default=1)
    module: str
    source_line: str
    ms: Number
    share_pct: Number

    @model_validator(mode="before")
    @classmethod
    def _name_several_by_their_call(cls, facts: dict[str, Any]) -> dict[str, Any]:
        several = facts.get("operator_count", 1) > 1
        return {**facts, "operator": facts["call"]} if several and facts.get("call") else facts


class Advice(Chosen):
    id: str
    title: str
    severity: Literal["high", "medium", "low", "info"]
    subject: str
    max_gain_pct: Number = fact("Upper bound; null if times do not show it.")
    max_gain_of: str | None
    action: str
    first_step: str
    operators: Annotated[
        list[AdvisedOperator], first("operators of a piece of advice", "`top_operators` lists all", 5)
    ] = fact(path="evidence.operators", default=[])
    operators_total: int = fact(path="evidence.count", default=0)


class AdviceAnswer(Answer):
    run: str
    what_next: str
    advice: Annotated[list[Advice], first("pieces of advice", "give a larger `limit`")] = fact(
        "Each operator is in one piece of advice only, so the bounds do not overlap."
    )
    not_tested: list[NotTested]
