"""Finds out, before a run begins, which of the user's own runners write XNNPACK's log."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

from model_profiling.analysis.xnntrace import parse_xnntrace
from model_profiling.config.problems import require
from model_profiling.config.reading import ProfileConfig
from model_profiling.config.settings import Experiment
from model_profiling.config.trace_runners import traced_as_known
from model_profiling.core.errors import ProfilingError
from model_profiling.core.safe_read import MOST_LOG, read_text
from model_profiling.targets import Job, Target
from model_profiling.targets.command import LOG


def traced_as_logged(config: ProfileConfig, target: Target) -> ProfileConfig:
    """Run one inference with each runner that is to be timed, and look for XNNPACK's lines in its log."""
    found: dict[Path, str] = {}
    for experiment in config.experiments:
        if experiment.mode == "timing" and (own := experiment.runner) and own not in found:
            found[own] = "its log has XNNPACK's lines" if _logs(config, experiment, target) else ""
    return require(*traced_as_known(config, [_of(found, each) for each in config.experiments]))


def traced_as_begun(config: ProfileConfig, settings: Mapping[str, object]) -> ProfileConfig:
    """Return `config` with the modes that its run found: the runners may be gone by now."""
    listed = settings.get("experiments")
    begun = {each.get("name"): each.get("mode") for each in (listed if isinstance(listed, list) else ())}
    known = [
        "as the run found" if each.runner and begun.get(each.name) == "xnntrace" else ""
        for each in config.experiments
    ]
    return require(*traced_as_known(config, known))


def _of(found: Mapping[Path, str], experiment: Experiment) -> str:
    return found.get(experiment.runner, "") if experiment.runner else ""


def _logs(config: ProfileConfig, experiment: Experiment, target: Target) -> bool:
    job = Job(
        config.model,
        config.method or "forward",
        experiment.threads[0],
        warmup=0,
        inputs=config.inputs.files,
        timeout_s=config.schedule.timeout_s,
        extra_args=experiment.extra_args,
        runner_path=experiment.runner,
    )
    with tempfile.TemporaryDirectory(prefix="sme2prof-") as folder:
        with contextlib.suppress(ProfilingError):  # the run itself reports it
            target.execute(job, Path(folder), "look")
        log = Path(folder, f"look{LOG}")
        trace = parse_xnntrace(read_text(log, MOST_LOG)) if log.is_file() else None
    return bool(trace and (trace.configured or trace.calls))
