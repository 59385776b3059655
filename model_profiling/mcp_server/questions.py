"""What an assistant may ask: the arguments of every tool, with their units, choices and limits.

They become the tools' input schemas, so a description here is written for a model that has nothing else.
"""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from model_profiling.analysis.categories import Category
from model_profiling.runner.machine import TargetKind

Dtype = Literal["fp32", "fp16", "int8"]
Backend = Literal["xnnpack", "portable"]

RunPath = Annotated[
    str,
    Field(
        description="Run directory relative to the root, as `runs` and `profile` name it; a folder that "
        "holds exactly one run is that run.",
        examples=["out_toy_cnn/runs/xnnpack_fp16/linux"],
    ),
]
Model = Annotated[
    str,
    Field(
        description="A name from `models`, or path/file.py:factory relative to the root, where factory() "
        "returns (nn.Module, tuple of example inputs).",
        examples=["toy_cnn", "my_model.py:make"],
    ),
]
OutDir = Annotated[
    str | None,
    Field(
        description="Folder relative to the root to write into; left out, out_<model> in the root "
        "(for a program in a folder `artifacts`, the folder above that)."
    ),
]
TimeLimit = Annotated[
    float,
    Field(
        gt=0,
        le=86_400,
        description="Seconds after which the job is ended; what was measured by then is kept.",
    ),
]


class Question(BaseModel):
    """Arguments that nobody knows are refused: a misspelt one must not be dropped."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class AskDoctor(Question):
    pass


class AskModels(Question):
    contains: Annotated[str | None, Field(description="Only names that contain this text.")] = None
    limit: Annotated[int, Field(ge=1, le=200, description="List at most so many.")] = 40


class AskExport(Question):
    model: Model
    dtype: Annotated[Dtype, Field(description="Number format of the program.")] = "fp32"
    backend: Annotated[
        Backend, Field(description="xnnpack: optimized, with SME2; portable: reference kernels, slow.")
    ] = "xnnpack"
    name: Annotated[
        str | None,
        Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", description="Name for the files, instead of the model's."),
    ] = None
    calibration: Annotated[
        str | None,
        Field(description="int8 only: path/file.py:function relative to the root that yields real inputs."),
    ] = None
    seed: Annotated[int, Field(ge=0, le=2**31 - 1, description="Seed for weights and example inputs.")] = 0
    out_dir: OutDir = None
    time_limit_s: TimeLimit = 3600


class AskProfile(Question):
    model: Annotated[
        str,
        Field(
            description="A name from `models`, path/file.py:factory, or path/program.pte that was exported "
            "before; paths are relative to the root.",
            examples=["toy_cnn", "my_model.py:make", "out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte"],
        ),
    ]
    dtype: Annotated[
        Literal["fp32", "fp16", "int8", "all"] | None,
        Field(
            description="Number format to export as [fp32]; `all` measures the three side by side and says "
            "which to ship; leave it out for a .pte."
        ),
    ] = None
    backend: Annotated[Backend | None, Field(description="To export for [xnnpack]; not for a .pte.")] = None
    target: Annotated[
        TargetKind,
        Field(
            description="auto: measure here and prove SME2 kernels under emulation where this CPU has no "
            "SME2. emulated: kernels and outputs only, its times are no latencies. android: a phone that "
            "adb sees. ssh: a machine the user allowed when starting the server."
        ),
    ] = "auto"
    device: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$",
            description="android: the phone's serial; ssh: the host. Nothing for other targets.",
        ),
    ] = None
    threads: Annotated[
        list[Annotated[int, Field(ge=1, le=256)]],
        Field(min_length=1, max_length=8, description="Thread counts to measure, each by itself."),
    ] = [1]
    budget_s: Annotated[
        float | None,
        Field(
            gt=0, le=3600, description="Seconds of measuring at most [30]; six launches are made in any case."
        ),
    ] = None
    precision: Annotated[
        float | None,
        Field(
            gt=0, lt=1, description="Stop once every speedup is known to plus or minus this share [0.005]."
        ),
    ] = None
    ladder: Annotated[
        bool, Field(description="Switch CPU features off one after the other: what does each buy?")
    ] = False
    sample: Annotated[
        bool, Field(description="Also look which kernels run inside each operator; the report shows it.")
    ] = False
    resume: Annotated[
        bool,
        Field(description="Continue a run that was cancelled or cut short, with the same other arguments."),
    ] = False
    out_dir: OutDir = None
    time_limit_s: TimeLimit = 3600


class AskRuns(Question):
    folder: Annotated[str, Field(description="Folder to look in, relative to the root.")] = "."
    contains: Annotated[str | None, Field(description="Only runs whose path contains this text.")] = None
    limit: Annotated[int, Field(ge=1, le=200, description="List at most so many, the latest first.")] = 20


class AskSummary(Question):
    run: RunPath


class AskCompare(Question):
    before: RunPath
    after: RunPath
    regression_limit_pct: Annotated[
        float | None,
        Field(
            ge=0, le=1000, description="Name experiments that are slower beyond chance and by more than this."
        ),
    ] = None
    across_machines: Annotated[
        bool, Field(description="Compare although the CPUs differ: then the machines are the question.")
    ] = False
    limit: Annotated[int, Field(ge=1, le=50, description="Operators to list for each experiment.")] = 10


class AskOperators(Question):
    run: RunPath
    experiment: Annotated[
        str | None, Field(description="Experiment of the run, as `summary` names it; left out, its main one.")
    ] = None
    threads: Annotated[int | None, Field(ge=1, description="Thread count of the experiment.")] = None
    category: Annotated[Category | None, Field(description="Only operators of this category.")] = None
    limit: Annotated[int, Field(ge=1, le=100, description="List at most so many, the longest first.")] = 10


class AskEvidence(Question):
    run: RunPath
    limit: Annotated[int, Field(ge=1, le=100, description="Kernels and missing operators to list.")] = 20


class AskHeadroom(Question):
    run: RunPath


class AskAdvice(Question):
    run: RunPath
    limit: Annotated[int, Field(ge=1, le=30, description="Pieces of advice, the largest gain first.")] = 5


StorePath = Annotated[
    str, Field(description="The store's folder, relative to the root, as `sme2prof store add` made it.")
]


class AskStore(Question):
    store: StorePath = "sme2prof_store"
    sql: Annotated[
        str | None,
        Field(
            max_length=20_000,
            description="One SELECT in DuckDB's SQL; it can only read the store. Left out, the answer lists "
            "the tables and views with the meaning of their columns.",
            examples=[
                "SELECT model, dtype, device, experiment, median_ms, low_ms, high_ms FROM latest_latencies",
                "SELECT name, ms, pct_of_e2e, source_line FROM operator_times "
                "WHERE model = 'toy_cnn' AND place <= 5",
            ],
        ),
    ] = None
    limit: Annotated[int, Field(ge=1, le=500, description="Give at most so many rows.")] = 50


class AskHistory(Question):
    store: StorePath = "sme2prof_store"
    model: Annotated[str, Field(description="The model's name in the store.", examples=["toy_cnn"])]
    dtype: Annotated[str | None, Field(description="Only this number format.")] = None
    backend: Annotated[str | None, Field(description="Only this backend.")] = None
    device: Annotated[
        str | None, Field(description="Only this device, by its name in the store or a part of its name.")
    ] = None
    experiment: Annotated[str | None, Field(description="Only this experiment.")] = None
    threads: Annotated[int | None, Field(ge=1, description="Only this number of threads.")] = None
    since: Annotated[date | None, Field(description="Only runs since this day, in UTC.")] = None
    limit: Annotated[int, Field(ge=1, le=50, description="List at most so many series.")] = 10
