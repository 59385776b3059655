"""Runners built from an ExecuTorch source checkout, for those who want ExecuTorch's own executor_runner.

The kit's own runner needs none of this. See docs/source_builds.md.
"""

from model_profiling.runner.source_build.build import BuildPlan, BuiltRunner, build_runners, plan_builds
from model_profiling.runner.source_build.fetch import fetch_source
from model_profiling.runner.source_build.presets import RunnerPreset, merge_presets, runner_presets

__all__ = [
    "BuildPlan",
    "BuiltRunner",
    "RunnerPreset",
    "build_runners",
    "fetch_source",
    "merge_presets",
    "plan_builds",
    "runner_presets",
]
