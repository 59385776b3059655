"""Models of the families people bring, from PyTorch to a report: what the kit says of each, held against what
an expert wrote down beside them (`expected.toml`), both ways: nothing missing, nothing false."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from zoo.expected import CATEGORIES, EXPECTED, Expected, Outside

from model_profiling.analysis.findings import Finding
from model_profiling.analysis.operators import Operator
from model_profiling.analysis.run import RunAnalysis, advise
from model_profiling.analysis.series import OVERHEADS, UNATTRIBUTED, SeriesAnalysis
from model_profiling.targets import TargetChoice
from model_profiling.workflow.measure import RunOutcome
from model_profiling.workflow.profile import ProfileOptions, profile_one

ZOO = Path(__file__).parent
MAPPED = 0.95
EXPLAINED_ABOVE = 0.10
AROUND = "time outside operators"
# The cheapest to run under QEMU.
EMULATED = ("resnet_model_fp32", "lstm_model_int8")


@dataclass(frozen=True)
class Profiled:
    """A model of the zoo, exported and run a few times."""

    expected: Expected
    outside: list[dict[str, str]]
    """What its export says stays outside."""
    outcome: RunOutcome

    @property
    def analysis(self) -> RunAnalysis:
        assert self.outcome.analysis is not None
        return self.outcome.analysis

    @property
    def series(self) -> SeriesAnalysis:
        return self.analysis.series[0]

    @property
    def lines(self) -> list[str]:
        return (ZOO / self.expected.model.partition(":")[0]).read_text().splitlines()

    def written(self, source: str) -> str:
        """What stands at `vit.py:25` or `vit.py:25 in forward: ...`."""
        place = re.match(r"\S+\.py:(\d+)", source)
        return self.lines[int(place[1]) - 1] if place else ""

    def on_line(self, operator: Operator, part: str) -> bool:
        """Whether the line of the model that made `operator` has `part`."""
        number = operator.source.place.line
        return bool(number) and part in self.lines[number - 1]


def _profiled(expected: Expected, exported: Callable[..., object], target: str, folder: Path) -> Profiled:
    made = exported(f"{ZOO / expected.model}", expected.dtype)
    summary = json.loads(made.summary.read_text())
    few = {"runs": 12, "warmup": 2, "rounds": 3, "budget_s": 5.0} if target == "host" else {}
    options = ProfileOptions(target=TargetChoice(target), outdir=folder, **few)
    outcome = profile_one(str(made.pte), options).main
    return Profiled(expected, summary["coverage"]["undelegated"], outcome)


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda expected: str(expected.name))
def test_on_this_machine(expected: Expected, exported: Callable[..., object], tmp_path: Path) -> None:
    seen = _profiled(expected, exported, "host", tmp_path)
    wrong = [
        *about_export(seen),
        *about_mapping(seen),
        *about_categories(seen),
        *about_precision(seen),
        *about_findings(seen, advise(seen.analysis.series, about_time=False)),
        *about_bounds(seen),
        *about_headline(seen),
    ]
    assert wrong == []
    assert_closure(seen.series)


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("name", EMULATED)
def test_under_emulation(name: str, exported: Callable[..., object], tmp_path: Path) -> None:
    """The same advice, without a time; here the CPU has SME2."""
    (expected,) = (each for each in EXPECTED if each.name == name)
    seen = _profiled(expected, exported, "emulated", tmp_path)
    wrong = [
        *about_mapping(seen),
        *about_categories(seen),
        *about_precision(seen),
        *about_findings(seen, seen.analysis.findings),
    ]
    assert wrong == []
    assert all(finding.max_gain_pct is None for finding in seen.analysis.findings)
    assert_closure(seen.series)


def about_export(seen: Profiled) -> Iterator[str]:
    """What stays outside and why: everything that was expected, and nothing else."""
    left = {
        (_plain(one["operator"]), seen.written(one["source"]), one["reason"]): one for one in seen.outside
    }
    told: set[tuple[str, str, str]] = set()
    for want in seen.expected.outside:
        for operator in want.operators.split():
            fitting = [key for key in left if _fits(key, operator, want)]
            told.update(fitting)
            if not fitting:
                yield f"{operator} at '{want.line}' was expected outside ({want.reason})"
            for key in fitting:
                said = left[key]["replacement"]
                if want.instead not in said:
                    yield f"{operator} at '{want.line}': to write instead: {said or 'nothing'}"
    for key in left.keys() - told:
        yield f"outside without being expected there: {key}"


def _fits(key: tuple[str, str, str], operator: str, want: Outside) -> bool:
    return key[0] == operator and want.line in key[1] and want.reason in key[2]


def about_mapping(seen: Profiled) -> Iterator[str]:
    """How much of the time in delegates belongs to nodes of the program; emulated, how many operators."""
    inside = [operator for operator in seen.series.operators if operator.delegated]
    latencies = seen.series.times.are_latencies
    weights = [operator.typical_ms if latencies else 1.0 for operator in inside]
    mapped = sum(w for w, operator in zip(weights, inside, strict=True) if operator.origin != "unknown")
    if mapped < MAPPED * sum(weights):
        lost = [operator.name for operator in inside if operator.origin == "unknown"]
        yield f"only {mapped / sum(weights):.1%} of what delegates do is mapped; not {lost[:5]}"


def about_categories(seen: Profiled) -> Iterator[str]:
    for operator in seen.series.operators:
        name = _plain(operator.type)
        if name not in CATEGORIES:
            yield f"nobody wrote down what {operator.type} is"
            continue
        # A 1x1 convolution runs as Fully Connected.
        allowed = {CATEGORIES[name]} | ({"Convolution"} if "convolution" in operator.kind else set())
        if operator.category.value not in allowed:
            yield f"{operator.type} is counted as {operator.category.value}"


def about_precision(seen: Profiled) -> Iterator[str]:
    """What matrix operators ran in. A CPU without fp16 arithmetic runs fp16 in fp32."""
    matrix = [each for each in seen.series.operators if each.category.value in ("Convolution", "GEMM")]
    ran = {operator.precision for operator in matrix} - {""}
    if ran != seen.expected.matrix_dtypes and not any(operator.ran_wider for operator in matrix):
        yield f"matrix operators ran in {sorted(ran)}, not in {sorted(seen.expected.matrix_dtypes)}"


def about_findings(seen: Profiled, findings: Iterable[Finding]) -> Iterator[str]:
    """What the program shows, whatever its times."""
    found = {finding.id: finding for finding in findings}
    for advice in seen.expected.found:
        if advice.id not in found:
            yield f"{advice.id} was expected"
        elif advice.line and not any(seen.on_line(each, advice.line) for each in found[advice.id].operators):
            yield f"{advice.id} does not name the line '{advice.line}', but {_lines(found[advice.id])}"
    allowed = {advice.id for advice in seen.expected.found} | seen.expected.may | {"matrix-bound"}
    for false in found.keys() - allowed:
        yield f"{false} was not expected: {found[false].title}; {_lines(found[false])}"


def about_bounds(seen: Profiled) -> Iterator[str]:
    """With latencies: what costs much is said, what is false is not, and no bound is more than everything."""
    findings = {finding.id: finding for finding in seen.analysis.findings}
    timed = any(finding.max_gain_pct is not None for finding in findings.values())
    for wanted in seen.expected.worth if timed else ():
        if wanted not in findings:
            yield f"{wanted} was expected to cost enough to be said: {sorted(findings)}"
    allowed = {advice.id for advice in seen.expected.found} | seen.expected.may | {"matrix-bound"}
    for false in findings.keys() - allowed:
        yield f"{false} was not expected in a report with times: {findings[false]!r}"
    for finding in findings.values():
        if finding.max_gain_pct is not None and not 0 <= finding.max_gain_pct <= 100:
            yield f"{finding!r} is a bound of nothing"


def about_headline(seen: Profiled) -> Iterator[str]:
    """`most` is said of what takes more than half, and what belongs to no operator is explained."""
    series = seen.series
    shares = {part: series.spent(ns).share for part, ns in series.parts.items()}
    where = seen.outcome.answers.where_time_goes
    unattributed = shares[UNATTRIBUTED]
    if series.distorted:
        # Shares are then of the time without what the tracer takes, which is all in what is around operators.
        tracer = series.tracing.share
        around = sum(shares.pop(part) for part in OVERHEADS) - tracer
        shares = {part: share / (1 - tracer) for part, share in {**shares, AROUND: around}.items()}
    largest = max(shares, key=lambda part: shares[part])
    if "takes most" in where and shares[largest] <= 0.5:
        yield f"nothing takes most: {where}"
    if "takes most" in where and largest not in where:
        yield f"{largest} takes most: {where}"
    report = (seen.outcome.run_dir / "report.md").read_text()
    if unattributed > EXPLAINED_ABOVE and not re.search("(?i)unattributed time|outside operators", report):
        yield f"{unattributed:.1%} are unattributed, and the report does not say why"


def assert_closure(series: SeriesAnalysis) -> None:
    """Every nanosecond of every run is in exactly one part."""
    assert (sum(series.parts.values()) == series.breakdown.e2e).all()


def _plain(name: str) -> str:
    """`aten.expand_copy.default`, `native_call_expand_copy.out`: expand; `Add (ND, F32)`: Add."""
    if name[:1].isupper():
        return name.partition(" (")[0]
    bare = name.removeprefix("native_call_").replace("::", ".")
    bare = bare.removeprefix("aten.").removeprefix("dim_order_ops.")
    return bare.partition(".")[0].removesuffix("_copy")


def _lines(finding: Finding) -> str:
    places = (operator.source.place for operator in finding.operators)
    return ", ".join(dict.fromkeys(f"{Path(place.file).name}:{place.line}" for place in places if place.file))
