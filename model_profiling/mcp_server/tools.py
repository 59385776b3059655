"""The table of tools: what each is for, what it takes and gives, and whether it changes anything.

A new tool is one row here, its arguments in `questions.py` and its answer in `answers.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from model_profiling.mcp_server import answers, questions, reading, store_reading
from model_profiling.mcp_server.confinement import Root
from model_profiling.mcp_server.doing import Workshop
from model_profiling.mcp_server.job import Told


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool; it has either `read` or `do`."""

    name: str
    title: str
    description: str
    question: type[questions.Question]
    answer: type[answers.Answer]
    read: Callable[[Root, Any], BaseModel] | None = None
    """Reads files and changes nothing."""
    do: Callable[[Workshop, Any, Told], Awaitable[BaseModel]] | None = None
    """A job: writes into the root, takes seconds to minutes, reports progress, can be cancelled."""
    on_error: str = ""
    """Which tool to call when this one fails and the error names none."""

    @property
    def read_only(self) -> bool:
        return self.read is not None

    @property
    def input_schema(self) -> dict[str, Any]:
        return _lean(self.question.model_json_schema())

    @property
    def output_schema(self) -> dict[str, Any]:
        return _lean(self.answer.model_json_schema(mode="serialization"))


def _lean(schema: dict[str, Any]) -> dict[str, Any]:
    """Without the titles that only repeat names: a model reads all of it."""
    lean: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs"):
            lean[key] = {name: _lean(inside) for name, inside in value.items()}
        elif isinstance(value, dict):
            lean[key] = _lean(value)
        elif isinstance(value, list):
            lean[key] = [_lean(inside) if isinstance(inside, dict) else inside for inside in value]
        elif key != "title":
            lean[key] = value
    return lean


_SEE_DOCTOR = "`doctor` says whether this machine lacks something"
_SEE_RUNS = "`runs` lists the run directories there are"

TOOLS: tuple[Tool, ...] = (
    Tool(
        "doctor",
        "Check this machine",
        "What this machine can measure and what is missing, each with its fix. Call it first in a session, "
        "and when `export` or `profile` fails for want of something. Takes seconds, changes nothing.",
        questions.AskDoctor,
        answers.DoctorAnswer,
        read=reading.doctor,
    ),
    Tool(
        "models",
        "List known models",
        "The models that `export` and `profile` know by name, with their inputs and number formats. Not "
        "needed for a model of the user's own, which is named path/file.py:factory.",
        questions.AskModels,
        answers.ModelsAnswer,
        read=reading.models,
    ),
    Tool(
        "export",
        "Export a model to ExecuTorch",
        "Lower a PyTorch model to a .pte program, run it once and compare it with PyTorch: what was "
        "delegated, what stayed outside and why, whether outputs agree. Use it to see how a model lowers; "
        "`profile` exports by itself. Takes 10 s to minutes. Runs the factory's code. Writes into the root "
        "and replaces an earlier export of the same name.",
        questions.AskExport,
        answers.ExportAnswer,
        do=Workshop.export,
        on_error=_SEE_DOCTOR,
    ),
    Tool(
        "profile",
        "Measure a model",
        "Measure a model: latency, where the time goes, and SME2 on against off where the CPU has it; "
        "elsewhere a baseline, with SME2 kernels proven under emulation. Exports first where needed. Takes "
        "about a minute (budget_s), longer under emulation; one job at a time. Do not use the machine for "
        "anything else meanwhile. An earlier finished run is kept under its date. Then call `summary`.",
        questions.AskProfile,
        answers.ProfileAnswer,
        do=Workshop.profile,
        on_error=_SEE_DOCTOR,
    ),
    Tool(
        "runs",
        "List runs",
        "The run directories in the root, the latest first, each with model, device, latency and verdict. "
        "Call it to find the `run` that the other tools ask for.",
        questions.AskRuns,
        answers.RunsAnswer,
        read=reading.runs,
    ),
    Tool(
        "summary",
        "What a run says",
        "The three answers of a run (where the time goes, what SME2 changes, what next), its experiments "
        "with the time in each category, its comparisons, and what was not tested. Start here for any "
        "question about a run.",
        questions.AskSummary,
        answers.SummaryAnswer,
        read=reading.summary,
        on_error=_SEE_RUNS,
    ),
    Tool(
        "compare",
        "Compare two runs",
        "What changed from one run to another, with confidence intervals and verdicts, down to operators. "
        "Use it after a change of the model, or to look for a regression. Measures nothing. For SME2 on "
        "against off within one run use `summary`.",
        questions.AskCompare,
        answers.CompareAnswer,
        read=reading.compare,
        on_error=_SEE_RUNS,
    ),
    Tool(
        "top_operators",
        "The longest operators",
        "The operators that take longest in one experiment of a run, with share, shapes, arithmetic, module "
        "and source line. Use it to say where in the model the time goes. Where times mean nothing "
        "(emulated), they are ordered by arithmetic and have no times.",
        questions.AskOperators,
        answers.OperatorsAnswer,
        read=reading.top_operators,
        on_error=_SEE_RUNS,
    ),
    Tool(
        "kernel_evidence",
        "Which kernels ran",
        "Which kernels ran in a run, whether that proves SME2, which matrix operators ran without it and "
        "why, and whether outputs with SME2 on and off agree. Call it before claiming that SME2 was or was "
        "not used.",
        questions.AskEvidence,
        answers.EvidenceAnswer,
        read=reading.kernel_evidence,
        on_error=_SEE_RUNS,
    ),
    Tool(
        "headroom",
        "What SME2 could bring",
        "What SME2 could bring to a model measured on an Arm CPU without it: a projection with its range "
        "and the next bottleneck, or why there is none. Never present it as a measurement.",
        questions.AskHeadroom,
        answers.HeadroomAnswer,
        read=reading.headroom,
        on_error=_SEE_RUNS,
    ),
    Tool(
        "advice",
        "What to change",
        "What to change in the model or its export, the largest possible gain first, with operators, source "
        "lines and the most it could save. Call it when the user asks how to make the model faster.",
        questions.AskAdvice,
        answers.AdviceAnswer,
        read=reading.advice,
        on_error=_SEE_RUNS,
    ),
    Tool(
        "query_store",
        "Ask a store of runs",
        "Ask a store of many runs in SQL: which dtype, device or thread count is fastest, which operators or "
        "kernels changed, what failed. Without `sql` it lists the tables and views with their columns: call "
        "it so first. It only reads; what takes longer than 20 s is ended. For one run use `summary`.",
        questions.AskStore,
        answers.StoreAnswer,
        read=store_reading.query_store,
        on_error="`query_store` without `sql` lists tables and columns",
    ),
)
