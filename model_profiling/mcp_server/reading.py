"""The tools that only read: what the machine can do, which models and runs there are, what a run says.

Each calls what the command of the same question calls, and chooses from the same facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from model_profiling.analysis.categories import Category
from model_profiling.analysis.evidence import PlaceEvidence, SeriesEvidence
from model_profiling.core.errors import InputError
from model_profiling.doctor import examine
from model_profiling.mcp_server import answers, questions
from model_profiling.mcp_server.confinement import Cuts, Root
from model_profiling.models import list_models
from model_profiling.report.analysis_json import operator_facts
from model_profiling.report.comparison_document import comparison_facts
from model_profiling.report.data import ReportData
from model_profiling.report.headroom import outlook_facts
from model_profiling.report.pair_text import what_times_are
from model_profiling.report.verdict import answers as answers_of
from model_profiling.run import names
from model_profiling.run.series import Series
from model_profiling.workflow.compare import compare as compare_runs
from model_profiling.workflow.report import gather_report
from model_profiling.workflow.view import run_row

Json = Mapping[str, Any]

_EXPERIMENTS = 16
_LINES = 20
_ASK_EXPERIMENT = "`top_operators` with `experiment` and `threads` shows any of them"


def doctor(root: Root, asked: questions.AskDoctor) -> answers.DoctorAnswer:
    del asked
    found = examine()
    return answers.DoctorAnswer(
        ready=found.ok,
        failed=found.failed,
        checks=[answers.Check(**asdict(check)) for check in found.checks],
        targets=[answers.TargetState(**asdict(target)) for target in found.targets],
        cpu_features=found.cpu_features,
        root=str(root.folder),
        next="`models` lists what can be profiled, `runs` what was profiled already"
        if found.ok
        else "tell the user the fixes of what failed; runs that are there can still be read",
    )


def models(root: Root, asked: questions.AskModels) -> answers.ModelsAnswer:
    del root
    cuts = Cuts()
    found = [entry for entry in list_models() if (asked.contains or "").lower() in entry.name.lower()]
    return answers.ModelsAnswer(
        models=[
            answers.KnownModel(
                name=entry.name,
                source=entry.source,
                description=entry.description,
                inputs=list(entry.inputs) if entry.inputs is not None else None,
                dtypes=list(entry.dtypes),
                options=[f"{option.shown}: {option.meaning}" for option in entry.options],
                missing_packages=list(entry.missing),
            )
            for entry in cuts.cut(found, asked.limit, "models", "give `contains` or a larger `limit`")
        ],
        own_models="any PyTorch model is named by path/file.py:factory, where factory() returns "
        "(module, example_inputs)",
        left_out=cuts.left_out,
    )


def runs(root: Root, asked: questions.AskRuns) -> answers.RunsAnswer:
    cuts = Cuts()
    found = [run for run in root.listing(asked.folder) if (asked.contains or "") in root.shown(run)]
    shown = cuts.cut(found, asked.limit, "runs", "give `folder`, `contains` or a larger `limit`")
    return answers.RunsAnswer(
        runs=[_listed(root, run) for run in shown], found=len(found), left_out=cuts.left_out
    )


def _listed(root: Root, run_dir: Path) -> answers.ListedRun:
    row = run_row(run_dir, root.folder)
    return answers.ListedRun(
        run=row.place,
        model=row.model,
        format=row.format,
        device=row.device,
        date=row.date,
        median_ms=row.latency_value,
        measured=row.measured,
        speedup=row.speedup,
        verdict=row.verdict,
        problem=row.problem,
    )


@dataclass(frozen=True, slots=True)
class _Told:
    """A run with everything its report would say."""

    root: Root
    data: ReportData

    @classmethod
    def of(cls, root: Root, run: str) -> _Told:
        return cls(root, gather_report(root.run_dir(run)))

    @property
    def name(self) -> str:
        return self.root.shown(self.data.run.path)

    @property
    def outlook(self) -> Json:
        return outlook_facts(self.data.outlook)

    @property
    def not_tested(self) -> list[answers.Unanswered]:
        return [answers.Unanswered(**asdict(found)) for found in self.data.not_tested]


def summary(root: Root, asked: questions.AskSummary) -> answers.SummaryAnswer:
    told, cuts = _Told.of(root, asked.run), Cuts()
    data = told.data
    found = answers_of(data)
    manifest, report = data.run.manifest, data.run.path / names.REPORT
    return answers.SummaryAnswer(
        run=told.name,
        model=data.model,
        cpu=data.cpu,
        state=(manifest.unfinished or "finished") if manifest else "unknown: there is no manifest",
        times_are=data.times.value,
        times_mean=what_times_are(data),
        answers=answers.Answers.model_validate(found.facts()["answers"]),
        notes=cuts.cut(found.notes, _LINES, "notes"),
        experiments=[
            _experiment(data, series)
            for series in cuts.cut(data.run.series, _EXPERIMENTS, "experiments", _ASK_EXPERIMENT)
        ],
        compared=[
            answers.Compared(
                label=pair.label,
                baseline=str(pair.pair.baseline),
                candidate=str(pair.pair.candidate),
                speedup=_speedup(pair.speedup.as_dict()),
            )
            for pair in cuts.cut(data.pairs, _EXPERIMENTS, "comparisons", "the report has all")
        ],
        not_tested=told.not_tested,
        warnings=cuts.cut((line.text for line in data.warnings), _LINES, "warnings"),
        report=root.shown(report) if report.is_file() else None,
        left_out=cuts.left_out,
        next="`top_operators` for where the time goes, `kernel_evidence` for what proves SME2, `headroom` "
        "for what SME2 could bring, `advice` for what to change",
    )


def _experiment(data: ReportData, series: Series) -> answers.Experiment:
    (found,) = (one for one in data.experiments if one.series == series)
    dumps = found.dumps
    timed = dumps is not None and dumps.times.are_shown
    untraced = found.latency.end_to_end_ms if found.latency else None
    parts = {name: dumps.spent(part) for name, part in dumps.parts.items()} if dumps else {}
    return answers.Experiment(
        experiment=series.experiment,
        threads=series.threads,
        times_are=found.times.value,
        median_ms=untraced.median if untraced else None,
        traced_ms=dumps.e2e_ms if dumps and timed else None,
        parts=[
            answers.Part(name=name, ms=part.ms if timed else None, share=part.share if timed else None)
            for name, part in parts.items()
        ]
        if timed
        else [],
        operators=len(dumps.operators) if dumps else 0,
    )


def _speedup(facts: Json) -> answers.Speedup:
    kept = {key: facts[key] for key in ("verdict", "reason", "ratio", "low", "high", "confidence")}
    return answers.Speedup(
        **kept, baseline_median_ms=facts["baseline_median"], candidate_median_ms=facts["candidate_median"]
    )


def compare(root: Root, asked: questions.AskCompare) -> answers.CompareAnswer:
    cuts = Cuts()
    share = None if asked.regression_limit_pct is None else asked.regression_limit_pct / 100
    before, after = root.run_dir(asked.before), root.run_dir(asked.after)
    facts: Json = comparison_facts(
        compare_runs(before, after, limit=share, across_machines=asked.across_machines)
    )
    return answers.CompareAnswer(
        headline=facts["headline"],
        regressions=facts["regressions"],
        series=[
            _compared(found, asked.limit, cuts)
            for found in cuts.cut(
                facts["series"], _EXPERIMENTS, "experiments", "`sme2prof compare` shows all"
            )
        ],
        differing=[
            answers.Difference(what=one["what"], before=one["a"], after=one["b"])
            for one in facts["differing"]
        ],
        warnings=cuts.cut(facts["warnings"], _LINES, "warnings"),
        left_out=cuts.left_out,
        next="`advice` of the run that is slower says what to change; not comparable means: measure both "
        "again on one machine",
    )


def _compared(found: Json, limit: int, cuts: Cuts) -> answers.ComparedSeries:
    ordered = sorted(found["operators"], key=_moved, reverse=True)
    return answers.ComparedSeries(
        before=_series_name(found["before"]),
        after=_series_name(found["after"]),
        with_tracer=found["with_tracer"],
        slowdown=found["slowdown"],
        end_to_end=_speedup(found["end_to_end"]),
        categories=[answers.SideBySide(**_sides(one, one["category"])) for one in found["categories"]],
        operators=[
            answers.ChangedOperator(
                **_sides(one, one["operator"]),
                **{key: one[key] for key in ("category", "change", "place", "kernel_before", "kernel_after")},
            )
            for one in cuts.cut(ordered, limit, "operators of an experiment", "give a larger `limit`")
        ],
    )


def _sides(found: Json, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "before_ms": found["baseline_ms"],
        "after_ms": found["candidate_ms"],
        "ratio": found["ratio"],
        "verdict": found["speedup"]["verdict"] if found["speedup"] else None,
    }


def _moved(operator: Json) -> float:
    before, after = (float(operator[key] or 0.0) for key in ("baseline_ms", "candidate_ms"))
    return abs(after - before)


def _series_name(found: Json) -> str:
    return str(Series(found["experiment"], found["threads"]))


def top_operators(root: Root, asked: questions.AskOperators) -> answers.OperatorsAnswer:
    told, cuts = _Told.of(root, asked.run), Cuts()
    series = _chosen(told.data, asked)
    (analysed,) = (one.dumps for one in told.data.experiments if one.series == series and one.dumps)
    found: Sequence[Json] = [
        one for one in operator_facts(analysed) if asked.category in (None, Category(one["category"]))
    ]
    timed = analysed.times.are_shown
    key = "ms" if timed else "flops"
    ordered = sorted(found, key=lambda one: -(one[key] or 0))
    wanted = answers.OperatorFacts.model_fields
    return answers.OperatorsAnswer(
        run=told.name,
        experiment=series.experiment,
        threads=series.threads,
        times_are=analysed.times.value,
        ordered_by="ms" if timed else "flops",
        operators=[
            answers.OperatorFacts.model_validate({name: one.get(name) for name in wanted})
            for one in cuts.cut(ordered, asked.limit, "operators", "give a larger `limit` or a `category`")
        ],
        operators_total=len(found),
        left_out=cuts.left_out,
        next="`advice` says which of them can be made shorter, and how",
    )


def _chosen(data: ReportData, asked: questions.AskOperators) -> Series:
    """The series asked for, else the one the report speaks of."""
    known = [one.series for one in data.experiments if one.dumps]
    if not known:
        raise InputError("this run has no dumps, so its operators are not known", "profile the model again")
    if asked.experiment is None and asked.threads is None:
        headline = data.headline
        return headline.series if headline and headline.series in known else known[0]
    fitting = [
        series
        for series in known
        if asked.experiment in (None, series.experiment) and asked.threads in (None, series.threads)
    ]
    if not fitting:
        raise InputError(
            "the run has no such experiment with dumps", f"it has {'; '.join(map(str, known[:_EXPERIMENTS]))}"
        )
    return fitting[0]


def kernel_evidence(root: Root, asked: questions.AskEvidence) -> answers.EvidenceAnswer:
    told, cuts = _Told.of(root, asked.run), Cuts()
    return answers.EvidenceAnswer(
        run=told.name,
        places=[_place(found, asked.limit, cuts) for found in told.data.evidence],
        coverage=_coverage(told.outlook, asked.limit, cuts),
        not_tested=told.not_tested,
        left_out=cuts.left_out,
        next="claim SME2 only where `answer` proves it; `headroom` says what it could bring where it was not "
        "measured",
    )


def _place(found: PlaceEvidence, limit: int, cuts: Cuts) -> answers.EvidencePlace:
    return answers.EvidencePlace(
        source=found.source,
        emulated=found.emulated,
        series=[
            _kernels(series, limit, cuts) for series in cuts.cut(found.kernels, _EXPERIMENTS, "experiments")
        ],
        outputs=[
            answers.Parity(label=parity.label, verdict=parity.verdict, text=parity.text)
            for parity in cuts.cut(found.parity, _EXPERIMENTS, "comparisons of outputs")
        ],
    )


def _kernels(found: SeriesEvidence, limit: int, cuts: Cuts) -> answers.SeriesKernels:
    return answers.SeriesKernels(
        experiment=found.series.experiment,
        threads=found.series.threads,
        sme2_left_on=found.sme2,
        answer=found.sme.answer,
        text=found.sme.text,
        counted=found.counted,
        note=found.note,
        kernels=[
            answers.KernelFacts(
                name=use.kernel.name, instruction_set=use.kernel.isa, evidence=use.evidence, calls=use.calls
            )
            for use in cuts.cut(found.uses, limit, "kernels of an experiment", "give a larger `limit`")
        ],
    )


def _coverage(outlook: Json, limit: int, cuts: Cuts) -> answers.Coverage:
    found = outlook["sme2_coverage"]
    kept = ("evidence", "reason", "operators", "operators_total", "arithmetic_share")
    missing = cuts.cut(found["missing"], limit, "operators without SME2", "`kernel_evidence` lists more")
    wanted = answers.MissingOperator.model_fields
    return answers.Coverage(
        **{name: found[name] for name in kept},
        missing=[answers.MissingOperator(**{name: one[name] for name in wanted}) for one in missing],
    )


def headroom(root: Root, asked: questions.AskHeadroom) -> answers.HeadroomAnswer:
    told, cuts = _Told.of(root, asked.run), Cuts()
    outlook = told.outlook
    found: Json | None = outlook["sme2_headroom"]
    return answers.HeadroomAnswer(
        run=told.name,
        kind="projection" if found else "none",
        reason=outlook["headroom_reason"],
        projections=[
            _projection(one)
            for one in cuts.cut(found["per_series"] if found else (), _EXPERIMENTS, "projections")
        ],
        factors_from=found["inputs"]["factors"] if found else None,
        coverage=_coverage(outlook, 5, cuts),
        left_out=cuts.left_out,
        next="call it a projection with its range, never a measurement; `advice` says what limits it after "
        "SME2"
        if found
        else "`summary` says what was measured instead, or what is missing",
    )


def _projection(found: Json) -> answers.Projection:
    after, ms = found["bottleneck_after"], found["projected_ms"]
    return answers.Projection(
        experiment=found["experiment"],
        threads=found["threads"],
        speedup_low=found["low"],
        speedup_high=found["high"],
        speedup_ceiling=found["ceiling"],
        time_share=found["time_share"],
        latency_ms=found["latency_ms"],
        projected_ms_low_speedup=ms["low"],
        projected_ms_high_speedup=ms["high"],
        factors=[answers.Factor(**factor) for factor in found["factors"]],
        bottleneck_before=_bottleneck(found["bottleneck_before"]),
        bottleneck_after_low=_bottleneck(after["low"]),
        bottleneck_after_high=_bottleneck(after["high"]),
    )


def _bottleneck(found: Json) -> answers.Part:
    return answers.Part(name=found["category"], ms=None, share=found["share"])


def advised_operator(facts: Json) -> answers.AdvisedOperator:
    """What a finding is about; where one call of the model makes several operators, that call."""
    count = facts.get("operator_count", 1)
    return answers.AdvisedOperator(
        operator=(facts.get("call") if count > 1 else "") or facts["operator"],
        operator_count=count,
        **{name: facts[name] for name in ("module", "source_line", "ms", "share_pct")},
    )


def advice(root: Root, asked: questions.AskAdvice) -> answers.AdviceAnswer:
    told, cuts = _Told.of(root, asked.run), Cuts()
    data = told.data
    advised = []
    for finding in cuts.cut(data.findings, asked.limit, "pieces of advice", "give a larger `limit`"):
        facts: Json = finding.as_dict()
        named = facts["evidence"].get("operators", [])
        shown = cuts.cut(named, 5, "operators of a piece of advice", "`top_operators` lists all")
        kept = ("id", "title", "severity", "subject", "max_gain_pct", "max_gain_of", "action")
        advised.append(
            answers.Advice(
                **{name: facts[name] for name in kept},
                first_step=finding.first_step,
                operators=[advised_operator(one) for one in shown],
                operators_total=facts["evidence"].get("count", 0),
            )
        )
    return answers.AdviceAnswer(
        run=told.name,
        what_next=answers_of(data).what_next,
        advice=advised,
        not_tested=told.not_tested,
        left_out=cuts.left_out,
        next="change the model at the named lines, `profile` it again, then `compare` the two runs",
    )
