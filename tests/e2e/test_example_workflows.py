"""The example workflows of `docs/examples/github-actions` run as they stand, in a folder as they expect it.

GitHub's own steps are left out: a checkout is made by the test, and the cache is the folder that stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from documents import make_environment
from recorded_runs import edit
from ruamel.yaml import YAML
from working_tree import ROOT

from model_profiling.core import process

EXAMPLES = ROOT / "docs" / "examples" / "github-actions"
MODEL = """
import torch
from torch import nn

def make():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), {after}), (torch.ones(1, 3, 16, 16),)
"""
_SETTING_UP = re.compile(r"setup_repo\.sh|pip install")


def steps_of(name: str) -> tuple[dict[str, str], list[dict[str, Any]]]:
    (job,) = YAML(typ="safe").load(EXAMPLES / name)["jobs"].values()
    return job.get("env", {}), job["steps"]


class Job:
    """A runner's workspace, in which the commands of a workflow run one after the other."""

    def __init__(self, folder: Path, warm: str) -> None:
        self.place = folder / "work"
        self.place.mkdir()
        self._environment = folder / "environment"
        make_environment(self._environment)
        self._warm = warm
        self._path = folder / "path"

    def run(self, workflow: str, event: str, only: str = "") -> Iterator[tuple[str, process.Completed]]:
        """Each step's commands, or those with `only`, and what came of them, up to the first that failed."""
        environment, steps = steps_of(workflow)
        environment = {name: value for name, value in environment.items() if name != "SME2PROF_CACHE"}
        for step in steps:
            commands, condition = step.get("run", ""), step.get("if", "")
            for_others = any(f"'{name}'" in condition for name in {"push", "pull_request"} - {event})
            if only not in commands or not commands or _SETTING_UP.search(commands) or for_others:
                continue
            done = process.run(
                ["bash", "-e", "-o", "pipefail", "-c", commands],
                timeout=300,
                cwd=self.place,
                env={
                    **environment,
                    "PATH": f"{self._environment / 'bin'}:/usr/bin:/bin",
                    "GITHUB_PATH": str(self._path),
                    "GITHUB_SHA": "c0ffee",
                    "GITHUB_REF_NAME": "main",
                    "DOCUMENTED_ROOT": str(ROOT),
                    "DOCUMENTED_WARM": self._warm,
                },
            )
            yield commands, done
            if not done.ok:
                return


@pytest.fixture
def job(tmp_path: Path, warm_python: str) -> Job:
    return Job(tmp_path, warm_python)


@pytest.mark.usefixtures("emulated")
def test_kernels_and_structure_are_gated_without_arm_hardware(job: Job) -> None:
    (job.place / "base").mkdir()
    (job.place / "base" / "my_model.py").write_text(MODEL.format(after="nn.ReLU()"))
    # An activation that XNNPACK does not take: the program gains an operator outside the delegate.
    (job.place / "my_model.py").write_text(MODEL.format(after="nn.GELU()"))
    *_, (command, done) = job.run("kernel-gate.yml", "pull_request")
    assert "compare" in command and done.returncode == 1, done.stdout + done.stderr
    assert "Structure changed" in done.stdout
    assert "appeared" in (job.place / "kernels.md").read_text()
    assert list(ElementTree.parse(job.place / "kernels.xml").getroot().iter("failure"))


def test_latency_is_judged_against_the_store_that_main_left(job: Job) -> None:
    (job.place / "my_model.py").write_text(MODEL.format(after="nn.ReLU()"))
    *_, (command, pushed) = job.run("latency-gate.yml", "push")
    assert "store add" in command and pushed.returncode == 0, pushed.stdout + pushed.stderr
    assert "1 run added" in pushed.stdout and (job.place / "sme2prof.db").is_file()
    run = job.place / "out_my_model_make" / "runs" / "xnnpack_fp16" / "linux"

    def another(manifest: dict[str, Any]) -> None:
        manifest["sessions"][0]["started"] = "2026-12-01T10:00:00+00:00"

    edit(run / "manifest.json", another)  # as if measured again: what the step before does takes long
    *_, (command, asked) = job.run("latency-gate.yml", "pull_request", only="compare")
    assert "store add" not in command and asked.returncode == 0, asked.stdout + asked.stderr
    assert "store:last-good (" in (job.place / "latency.md").read_text()
    (suite,) = ElementTree.parse(job.place / "latency.xml").getroot()
    assert int(suite.get("tests", "0")) >= 1 and suite.get("errors") == suite.get("skipped") == "0"
