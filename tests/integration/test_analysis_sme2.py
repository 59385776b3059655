"""SME2 on and off, for real under QEMU: what changed its name is paired, and no time is called a latency."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from conftest import missing
from recorded_dumps import record, target
from said import says

from model_profiling.core.errors import SetupError
from model_profiling.program.category import Category
from model_profiling.run import Times
from model_profiling.workflow.analyse import analyse

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="QEMU's user mode runs on Linux only")


@pytest.fixture(scope="module")
def run_dir(exported, tmp_path_factory) -> tuple[Path, Path]:
    try:
        target("emulated")
    except SetupError as problem:
        missing(str(problem))
    art = exported("toy_cnn", "fp32")
    folder = tmp_path_factory.mktemp("runs") / "emulated"
    for experiment, disable in (("sme2_on", ()), ("sme2_off", ("sme2",))):
        stem = f"{art.pte.stem}_{experiment}_t1"
        record(art.pte, folder / experiment, stem, on="emulated", warmup=0, runs=2, disable=disable)
    return folder, art.pte


@pytest.mark.parametrize("with_program", [True, False])
def test_operators_that_moved_to_sme2_kernels_are_paired(run_dir, with_program) -> None:
    folder, pte = run_dir
    analysis = analyse(folder, model=pte if with_program else None)
    assert [dump.dump.sme2 for dump in analysis.dumps] == [False, True]
    assert all(dump.breakdown.closes and dump.runs == 2 for dump in analysis.dumps)
    (pairing,) = analysis.pairings
    assert pairing.matched_by == ("graph node" if with_program else "order")
    changed = pairing.changed("kernel changed")
    assert {one.families for one in changed} == {("F32", "PF32")}
    assert [one.category for one in changed].count(Category.CONV) == 3
    assert all(one.main.packed for one in changed)
    assert len(pairing.operators) == len(analysis.dumps[0].operators)


def test_emulated_times_give_neither_speedups_nor_findings_about_time(run_dir: tuple[Path, Path]) -> None:
    folder, pte = run_dir
    analysis = analyse(folder, model=pte)
    assert {dump.times for dump in analysis.dumps} == {Times.EMULATED}
    (pairing,) = analysis.pairings
    assert pairing.traced_ratio is None and "an emulated run" in pairing.not_comparable
    assert {finding.max_gain_pct for finding in analysis.findings} <= {None}


CONV1D = """
import torch

def make():
    return torch.nn.Conv1d(1, 32, 64, stride=32), (torch.randn(1, 1, 4096),)
"""


@pytest.mark.usefixtures("emulated")
def test_where_nothing_reaches_sme2_the_cure_comes_first_and_hardware_is_no_advice(
    tmp_path, sme2prof
) -> None:
    (tmp_path / "conv1d.py").write_text(CONV1D)
    words = ("--target", "emulated", "--outdir", tmp_path / "out", "--json")
    done = sme2prof("profile", f"{tmp_path / 'conv1d.py'}:make", *words)
    assert done.returncode == 0, done.stderr
    answers = json.loads(next((tmp_path / "out").rglob("analysis_summary.json")).read_text())["answers"]
    says(answers["what_sme2_changes"], "only matrix operator did not use SME2", "because", "depthwise")
    assert answers["what_next"].startswith("To reach SME2: use a plain convolution")
    assert "machine that has SME2" not in answers["what_next"]
