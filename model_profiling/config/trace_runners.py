"""Experiments whose runner writes XNNPACK's log, which shows kernels and takes time: they have no latencies.

The record of the runner's build tells, else its path.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from model_profiling.config.problems import Problem
from model_profiling.config.remarks import Diagnostic
from model_profiling.config.series import Series
from model_profiling.config.settings import ProfileConfig
from model_profiling.core.errors import ProfilingError
from model_profiling.core.records import JsonObject, read_json_object

RECORD = "runner_build.json"
"""Beside every runner that `build_runners.sh` made: how it was built, or that it is the kit's own."""
_WORD = re.compile(r"(?:^|[-_.])(?:xnnlog|xnntrace|trace)(?:$|[-_.])", re.IGNORECASE)


def build_record(program: Path) -> JsonObject:
    """Return what is known about the build of `program`; nothing if there is no record of it."""
    try:
        return read_json_object(program.with_name(RECORD), "")
    except ProfilingError:
        return {}


def why_traced(runner: Path, built: JsonObject) -> str:
    """Return what says that `runner` writes XNNPACK's log; empty if nothing does."""
    if isinstance(built.get("xnnlog"), bool):
        return f"{RECORD} beside it" if built["xnnlog"] else ""
    # The build's folder and the file: folders above them are named after other things.
    return "its path" if any(map(_WORD.search, runner.parts[-2:])) else ""


def traced_as_known(config: ProfileConfig, known: Sequence[str]) -> tuple[ProfileConfig, tuple[Problem, ...]]:
    """Return `config` with mode xnntrace for each experiment for which `known` has a reason, with remarks; an
    experiment that writes mode "timing" is a problem. Pairs that lose a side are dropped."""
    experiments, problems, remarks = list(config.experiments), [], []
    for place, (experiment, why) in enumerate(zip(config.experiments, known, strict=True)):
        if not why or experiment.mode != "timing":
            continue
        what = f"{experiment.runner_path} writes XNNPACK's log ({why}), so its times are not latencies"
        cure = "name a runner built without that log"
        if "mode" in experiment.model_fields_set:
            fix = f"leave mode out, or {cure}"
            problems.append(Problem(f"experiments[{place}].mode", f'is "timing", but {what}', fix))
        experiments[place] = experiment.model_copy(update={"mode": "xnntrace"})
        seen = f"{what}: read as mode xnntrace, which shows kernels and is not compared"
        remarks.append(Diagnostic(Series(experiment.name), "trace_runner", seen, f"for latencies, {cure}"))
    if not remarks:
        return config, ()
    traced = {remark.series.experiment for remark in remarks if remark.series}
    asked = config.analysis.compare_pairs
    left = tuple(pair for pair in asked if not {pair.baseline.experiment, pair.candidate.experiment} & traced)
    analysis = config.analysis.model_copy(update={"compare_pairs": left})
    changed = config.model_copy(update={"experiments": tuple(experiments), "analysis": analysis})
    changed._said_otherwise = (*config.said_otherwise, *remarks)
    return changed, tuple(problems)
