"""The tools that only read: what this machine can do, which models and runs exist, what a run says.

A tool is a method: its signature gives the input schema, its return type the output schema, its docstring the
description, written for a model that sees nothing else. It calls what the corresponding command calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field

from model_profiling.core.errors import InputError
from model_profiling.core.formatting import listing
from model_profiling.core.records import read_record
from model_profiling.doctor import examine
from model_profiling.mcp_server import answers
from model_profiling.mcp_server.answers import answer
from model_profiling.mcp_server.confinement import Root
from model_profiling.models import list_models
from model_profiling.program.category import Category
from model_profiling.report.analysis_json import operator_facts
from model_profiling.report.comparison_document import comparison_facts
from model_profiling.report.data import ExperimentReport, ReportData
from model_profiling.report.headroom import outlook_facts
from model_profiling.report.language import Language
from model_profiling.report.pair_text import what_times_are
from model_profiling.report.verdict import answers as answers_of
from model_profiling.run import names
from model_profiling.run.series import Series
from model_profiling.workflow.compare import compare as compare_runs
from model_profiling.workflow.language import FACTS as LLM_FACTS
from model_profiling.workflow.language import REPORT as LLM_REPORT
from model_profiling.workflow.report import gather_report
from model_profiling.workflow.view import run_row

Json = Mapping[str, Any]
Method = TypeVar("Method", bound=Callable[..., Any])

SEE_DOCTOR = "`doctor` says whether something is missing on this machine"
_SEE_RUNS = "`runs` lists the run directories"
_MOST_NAMED = 8


@dataclass(frozen=True, slots=True)
class About:
    """What is known about a tool besides its signature."""

    title: str
    on_error: str = ""
    """The tool to call when this one fails and the error names none."""
    read_only: bool = True


def tool(title: str, *, on_error: str = "", read_only: bool = True) -> Callable[[Method], Method]:
    def note(method: Method) -> Method:
        method.about = About(title, on_error, read_only)  # type: ignore[attr-defined]
        return method

    return note


def arg(about: str, **rules: Any) -> Any:
    return Field(description=about, **rules)


def limit(most: int, about: str) -> Any:
    return arg(about, ge=1, le=most)


RunPath = Annotated[
    str,
    arg(
        "Run directory relative to the root, as in the answers of `runs` and `profile`; a folder with "
        "exactly one run stands for that run.",
        examples=["out_toy_cnn/runs/xnnpack_fp16/linux"],
    ),
]


@dataclass(frozen=True, slots=True)
class MachineTools:
    root: Root

    @tool("Check this machine")
    def doctor(self) -> answers.DoctorAnswer:
        """What this machine can measure and what is missing, each with its fix. Call it first in a session,
        and when `export` or `profile` fails because something is missing. Takes seconds, changes nothing."""
        found = examine()
        return answer(
            answers.DoctorAnswer,
            ready=found.ok,
            failed=found.failed,
            checks=found.checks,
            targets=found.targets,
            cpu_features=found.cpu_features,
            root=str(self.root.folder),
            next="`models` lists what can be profiled, `runs` what was already profiled"
            if found.ok
            else "tell the user the fixes of the failed checks; existing runs can still be read",
        )

    @tool("List known models")
    def models(
        self,
        contains: Annotated[str, arg("Only names that contain this text.")] = "",
        limit: Annotated[int, limit(200, "List at most this many.")] = 40,
    ) -> answers.ModelsAnswer:
        """The models that `export` and `profile` know by name, with their inputs and number formats. Not
        needed for the user's own model: give path/file.py:factory."""
        return answer(
            answers.ModelsAnswer,
            limit,
            models=[entry for entry in list_models() if contains.lower() in entry.name.lower()],
            next="for any other PyTorch model, give path/file.py:factory, where factory() returns (module, "
            "example_inputs)",
        )


def language_answer(
    root: Root, facts: Json, folder: Path, failed: Sequence[str] = ()
) -> answers.LanguageAnswer:
    """What `llm.json` in `folder` says, with paths as an assistant names them."""
    told = {
        "cases": [{**case, "run": root.shown(folder / case["run"])} for case in facts["cases"]],
        "folder": root.shown(folder),
        "report": root.shown(folder / LLM_REPORT),
        "not_measured": facts["left_out"],
        "left_out": None,
        "failed": failed,
        "next": "say what limits each phase; `summary` and `advice` of a case's run say more about it",
    }
    return answer(answers.LanguageAnswer, **{**facts, **told})


@dataclass(frozen=True, slots=True)
class RunTools:
    root: Root

    @tool("List runs")
    def runs(
        self,
        folder: Annotated[str, arg("Folder to look in, relative to the root.")] = ".",
        contains: Annotated[str, arg("Only runs whose path contains this text.")] = "",
        limit: Annotated[int, limit(200, "List at most this many, the latest first.")] = 20,
    ) -> answers.RunsAnswer:
        """The run directories in the root, the latest first, each with model, device, latency and verdict.
        Call it to find the `run` that the other tools need."""
        found = [run for run in self.root.listing(folder) if contains in self.root.shown(run)]
        cuts = answers.Cuts()
        shown = cuts.cut(found, limit, "runs", "give `folder`, `contains` or a larger `limit`")
        return answer(
            answers.RunsAnswer,
            runs=[run_row(run, self.root.folder) for run in shown],
            found=len(found),
            left_out="".join(cuts.said) or None,
            next="`summary` of one of them",
        )

    @tool("The answers of a run", on_error=_SEE_RUNS)
    def summary(self, run: RunPath) -> answers.SummaryAnswer:
        """The three answers of a run (where the time goes, what SME2 changes, what next), its experiments
        with the time in each category, its comparisons, and what was not tested. Start here for any question
        about a run."""
        data = gather_report(self.root.run_dir(run))
        found = answers_of(data)
        manifest, report = data.run.manifest, data.run.path / names.REPORT
        return answer(
            answers.SummaryAnswer,
            run=self._name(data),
            model=data.model,
            cpu=data.cpu,
            state=(manifest.unfinished or "finished") if manifest else "unknown: there is no manifest",
            times_are=data.times,
            times_mean=what_times_are(data),
            answers=found.facts()["answers"],
            notes=found.notes,
            experiments=map(_experiment, data.experiments),
            compared=data.pairs,
            not_tested=data.not_tested,
            warnings=(line.text for line in data.warnings),
            report=self.root.shown(report) if report.is_file() else None,
            next="`top_operators` for where the time goes, `kernel_evidence` for whether SME2 ran, "
            "`headroom` for what SME2 could bring, `advice` for what to change",
        )

    @tool("The phases of a language model")
    def llm_summary(
        self,
        folder: Annotated[
            str,
            arg("Folder with `llm.json`, as `profile_llm` names it.", examples=["out_tiny_llama/runs"]),
        ],
    ) -> answers.LanguageAnswer:
        """What `profile_llm` or `sme2prof llm` found: time to the first token, tokens per second at each
        position, kernels, memory traffic and advice, for prompt and answer apart. Measures nothing."""
        path = self.root.place(f"{folder}/{LLM_FACTS}")
        if not path.is_file():
            known = [self.root.shown(found.parent) for found in self.root.folder.glob(f"*/runs/{LLM_FACTS}")]
            fix = f"give one of {listing(known[:_MOST_NAMED])}" if known else "`profile_llm` makes one"
            raise InputError(f"there is no {LLM_FACTS} in {folder}", fix)
        found = read_record(Language, path, "call `profile_llm` again")
        return language_answer(self.root, found.facts(), path.parent)

    @tool("Compare two runs", on_error=_SEE_RUNS)
    def compare(
        self,
        before: RunPath,
        after: RunPath,
        regression_limit_pct: Annotated[
            float | None,
            arg("Report experiments that are significantly slower, by more than this.", ge=0, le=1000),
        ] = None,
        across_machines: Annotated[
            bool, arg("Compare even if the CPUs differ, to compare the machines.")
        ] = False,
        limit: Annotated[int, limit(50, "Operators to list for each experiment.")] = 10,
    ) -> answers.CompareAnswer:
        """What changed from one run to another, with confidence intervals and verdicts, down to operators.
        Use it after a change of the model, or to look for a regression. Measures nothing. For SME2 on and
        off within one run use `summary`."""
        found = compare_runs(
            self.root.run_dir(before),
            self.root.run_dir(after),
            limit=None if regression_limit_pct is None else regression_limit_pct / 100,
            across_machines=across_machines,
        )
        facts: dict[str, Any] = comparison_facts(found)
        for series in facts["series"]:
            series["operators"].sort(key=_moved, reverse=True)
        facts["next"] = (
            "`advice` of the slower run says what to change; if not comparable, measure both again on one "
            "machine"
        )
        return answer(answers.CompareAnswer, limit, **facts)

    @tool("The longest operators", on_error=_SEE_RUNS)
    def top_operators(
        self,
        run: RunPath,
        experiment: Annotated[
            str | None, arg("Experiment of the run, as in `summary`. Default: its main one.")
        ] = None,
        threads: Annotated[int | None, arg("Thread count of the experiment.", ge=1)] = None,
        category: Annotated[Category | None, arg("Only operators of this category.")] = None,
        limit: Annotated[int, limit(100, "List at most this many, the longest first.")] = 10,
    ) -> answers.OperatorsAnswer:
        """The operators that take longest in one experiment of a run, with share, shapes, arithmetic, module
        and source line. Use it to say where in the model the time goes. Without latencies
        (emulated), they are ordered by arithmetic and have no times."""
        data = gather_report(self.root.run_dir(run))
        series = _chosen(data, experiment, threads)
        (analysed,) = (one.dumps for one in data.experiments if one.series == series and one.dumps)
        found: list[Json] = [
            one for one in operator_facts(analysed, data) if category in (None, Category(one["category"]))
        ]
        key = "ms" if analysed.times.are_shown else "flops"
        return answer(
            answers.OperatorsAnswer,
            limit,
            run=self._name(data),
            experiment=series.experiment,
            threads=series.threads,
            times_are=analysed.times,
            ordered_by=key,
            operators=sorted(found, key=lambda one: -(one[key] or 0)),
            operators_total=len(found),
            next="`advice` says which of them can be made shorter, and how",
        )

    @tool("Which kernels ran", on_error=_SEE_RUNS)
    def kernel_evidence(
        self,
        run: RunPath,
        limit: Annotated[int, limit(100, "Kernels and missing operators to list.")] = 20,
    ) -> answers.EvidenceAnswer:
        """Which kernels ran in a run, whether that proves SME2, which matrix operators ran without it and
        why, and whether outputs with SME2 on and off agree. Call it before claiming that SME2 was or was not
        used."""
        data = gather_report(self.root.run_dir(run))
        return answer(
            answers.EvidenceAnswer,
            limit,
            run=self._name(data),
            places=data.evidence,
            coverage=outlook_facts(data.outlook)["sme2_coverage"],
            not_tested=data.not_tested,
            next="claim SME2 only if `answer` proves it; `headroom` says what it could bring if it was not "
            "measured",
        )

    @tool("What SME2 could bring", on_error=_SEE_RUNS)
    def headroom(self, run: RunPath) -> answers.HeadroomAnswer:
        """What SME2 could bring to a model measured on an Arm CPU without it: a projection with its range and
        the next bottleneck, or why there is none. Never present it as a measurement."""
        data = gather_report(self.root.run_dir(run))
        outlook: Json = outlook_facts(data.outlook)
        found: Json | None = outlook["sme2_headroom"]
        return answer(
            answers.HeadroomAnswer,
            5,
            run=self._name(data),
            kind="projection" if found else "none",
            reason=outlook["headroom_reason"],
            projections=found["per_series"] if found else [],
            factors_from=found["inputs"]["factors"] if found else None,
            coverage=outlook["sme2_coverage"],
            next="call it a projection and give its range, never a measurement; `advice` says what limits "
            "the model after SME2"
            if found
            else "`summary` says what was measured instead, or what is missing",
        )

    @tool("What to change", on_error=_SEE_RUNS)
    def advice(
        self,
        run: RunPath,
        limit: Annotated[int, limit(30, "Pieces of advice, the largest gain first.")] = 5,
    ) -> answers.AdviceAnswer:
        """What to change in the model or its export, the largest possible gain first, with operators, source
        lines and the most that it could save. Call it when the user asks how to make the model faster."""
        data = gather_report(self.root.run_dir(run))
        return answer(
            answers.AdviceAnswer,
            limit,
            run=self._name(data),
            what_next=answers_of(data).what_next,
            advice=[{**finding.as_dict(), "first_step": finding.first_step} for finding in data.findings],
            not_tested=data.not_tested,
            next="change the model at these lines, `profile` it again, then `compare` the two runs",
        )

    def _name(self, data: ReportData) -> str:
        return self.root.shown(data.run.path)


def _experiment(found: ExperimentReport) -> Json:
    dumps = found.dumps
    untraced = found.latency.end_to_end_ms if found.latency else None
    timed = dumps if dumps and dumps.times.are_shown else None
    parts = {name: timed.spent(part) for name, part in timed.parts.items()} if timed else {}
    return {
        "experiment": found.series.experiment,
        "threads": found.series.threads,
        "times_are": found.times,
        "median_ms": untraced.median if untraced else None,
        "traced_ms": timed.e2e_ms if timed else None,
        "parts": [{"name": name, "ms": part.ms, "share": part.share} for name, part in parts.items()],
        "operators": len(dumps.operators) if dumps else 0,
    }


def _moved(operator: Json) -> float:
    before, after = (float(operator[key] or 0.0) for key in ("baseline_ms", "candidate_ms"))
    return abs(after - before)


def _chosen(data: ReportData, experiment: str | None, threads: int | None) -> Series:
    """The series asked for, or the one the report is about."""
    known = [one.series for one in data.experiments if one.dumps]
    if not known:
        raise InputError("this run has no dumps, so its operators are not known", "profile the model again")
    if experiment is None and threads is None:
        headline = data.headline
        return headline.series if headline and headline.series in known else known[0]
    for series in known:
        if experiment in (None, series.experiment) and threads in (None, series.threads):
            return series
    raise InputError("the run has no such experiment with dumps", f"it has {'; '.join(map(str, known[:16]))}")
