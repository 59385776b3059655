"""The runner looks where its threads are: on this machine, with SME2 under QEMU, and in a whole run."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from model_profiling.config import names
from model_profiling.targets import Job
from model_profiling.targets.emulated import EmulatedTarget

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads have timers of their own on Linux")
SMALL = Path(__file__).parents[1] / "data" / "runs" / "programs" / "small_cnn_xnnpack_fp16.pte"


def test_every_thread_is_seen_in_the_operators_it_works_for(host, exported, tmp_path: Path) -> None:
    job = Job(exported("toy_cnn", "fp32").pte, threads=2, runs=30)
    plain = host.execute(job, tmp_path, "plain")
    looked_at = host.execute(replace(job, sample_hz=4000), tmp_path, "sampled")
    assert plain.samples is None
    checksums = [[each.checksum for each in run.result.outputs] for run in (plain, looked_at)]
    assert checksums[0] == checksums[1]
    found = looked_at.samples
    assert found is not None and found.unavailable is None and found.unknown_operators is None
    assert found.executions == 30 and found.taken == found.kept > 60
    (operators,) = found.operators_of_calls
    assert all(call in (-1, 0) and -1 <= operator < operators for call, operator, *_ in found.seen)
    seen = {row[2] for row in found.seen}
    assert len(seen) == 2 and 0 in seen, "the thread that executes, and the pool's"
    assert sum(row[4] for row in found.seen if row[1] >= 0) > 0.9 * found.kept
    assert not [file.problem for file in found.files if "executorch" in file.name and file.problem]


def test_with_sme2_the_kernels_seen_are_the_kernels_counted(emulated: EmulatedTarget, tmp_path: Path) -> None:
    outcome = emulated.execute(Job(SMALL, runs=3, kernels=True, sample_hz=2000), tmp_path, "x")
    samples = outcome.samples
    assert samples is not None and samples.unavailable is None and samples.unknown_operators is None
    sizes = outcome.result.kernel_sizes
    sampled = {samples.functions[row[3]].name for row in samples.seen}
    seen = {name for name in sampled if name.startswith("kai_run_")}
    assert any("_sme2_" in name for name in sampled), sampled
    assert seen <= set(outcome.result.kernels)
    assert {name: sum(size[3] for size in sizes[name]) for name in sizes} == dict(outcome.result.kernels)
    multiplied = {row[:2] for row in samples.seen if "_matmul_" in samples.functions[row[3]].name}
    assert len(multiplied) >= 2 and all(operator >= 0 for _, operator in multiplied)


def test_a_run_shows_inside_its_operators(exported, tmp_path: Path, sme2prof) -> None:
    pte = exported("toy_cnn", "fp32").pte
    words = ("--target", "host", "--quick", "--budget", 1, "--sample", "--quiet")
    done = sme2prof("profile", pte, *words, "--outdir", tmp_path)
    assert done.returncode == 0, done.tail()
    (record,) = tmp_path.rglob(f"*{names.SAMPLES}")
    run_dir = record.parents[1]
    manifest = json.loads((run_dir / names.MANIFEST).read_text())
    assert [result["samples"] for result in manifest["results"]] == [f"{record.parent.name}/{record.name}"]
    moved = run_dir.rename(tmp_path / "moved")
    (moved / names.REPORT).unlink()
    assert sme2prof("report", moved).returncode == 0
    report = (moved / names.REPORT).read_text()
    assert "Inside the operators" in report and "parts add up to the operator" in report
    (inside,) = json.loads((moved / names.ANALYSIS).read_text())["inside_operators"]
    assert inside["shares_are_of_time"] and inside["samples"] > 30
    assert all("linux-vdso" in note for note in inside["notes"]), "operators are known, and every library"
    largest = max(inside["operators"], key=lambda each: each["samples"])
    assert largest["name"].startswith("Convolution")
    assert sum(largest["parts"].values()) == pytest.approx(1)
    assert sme2prof("validate", moved).returncode == 0
    kept = moved / record.relative_to(run_dir)
    hostile = json.loads(kept.read_text())
    hostile["seen"][0][3] = len(hostile["functions"])
    for content in ({}, hostile):
        kept.write_text(json.dumps(content))
        assert sme2prof("report", moved).returncode == 0
        assert f"{kept.name}: " in (moved / names.REPORT).read_text(), "what is wrong with it"
