"""What the runner does with a real program on this machine."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import ON_ARM, ROOT
from said import says

from model_profiling.core import process
from model_profiling.etdump import read_etdump
from model_profiling.export.catalogue import CHANNELS_LAST
from model_profiling.export.exporter import export_model
from model_profiling.runner import features
from model_profiling.runs.figures import read_output
from model_profiling.targets import Job, Outcome
from model_profiling.targets.host import HostTarget

Run = Callable[..., Outcome]
TYPED = f"{ROOT}/tests/models/unseen.py:typed"


@pytest.fixture
def run(host: HostTarget, tmp_path: Path) -> Run:
    def execute(model: Path, stem: str = "job", **options: object) -> Outcome:
        return host.execute(Job(model=model, **options), tmp_path, stem)

    return execute


def test_every_execution_is_timed_and_the_circumstances_are_told(run, exported, host) -> None:
    outcome = run(exported("toy_cnn", "fp32").pte, runs=7, warmup=2)
    result = outcome.result
    assert len(result.iterations_ns) == 7 and min(result.iterations_ns) > 10_000
    assert result.warmup == 2 and result.threads == 1 and not result.traced
    assert result.load_ns is not None and result.load_ns > 0
    assert result.first_ns is not None and result.first_ns > 0
    assert result.loop_ns is not None and result.loop_ns >= sum(result.iterations_ns)
    assert result.peak_memory_bytes is not None and 1 << 20 < result.peak_memory_bytes < 1 << 30
    assert host.build is not None
    assert result.build_id == host.build.build_id
    assert result.executorch_version == host.build.executorch_version
    assert [(o.dtype, o.shape, o.nan, o.inf) for o in result.outputs] == [("float32", (1, 1000), 0, 0)]
    assert outcome.etdump is None and result.outputs[0].file is None
    assert result.kernels == {} and result.kernels_note is None
    assert "--executions 7" in outcome.log.read_text()


def test_memory_and_loading_add_up(run, exported) -> None:
    result = run(exported("mobilenet_v3_small", "fp32").pte, runs=2, warmup=1, threads=2).result
    costs = result.costs
    loading = ("read", "verify", "plan", "initialize", "pack")
    assert costs is not None and sum(costs.stage_ns[stage] for stage in loading) == result.load_ns
    assert costs.stage_ns["execute"] + costs.stage_ns["set up"] == result.first_ns
    # The weights are in memory twice when it has most: 10 MB mapped and 10 MB packed.
    assert costs.peak_stage == "pack" and min(costs.memory_bytes[part] for part in ("program", "pack")) > 9e6
    assert sum(costs.memory_bytes.values()) == pytest.approx(result.peak_memory_bytes, rel=0.05)


def test_a_cold_start_reads_the_program_from_the_disk(run, exported) -> None:
    pte = exported("toy_cnn", "fp32").pte
    warm = run(pte).result.costs
    assert warm.cached_share is warm.cached_loading is None
    outcome = run(pte, cold=True)
    cold = outcome.result.costs
    # A file system in memory keeps its files there.
    assert cold.cached_share is not None and (cold.load_major_faults > 0) == (cold.cached_share < 1)
    # Half of its loading is packing 0.9 MB of weights, which then come from a file that is gone again.
    cached = cold.cached_loading
    assert cached is not None and 0 < 2 * cached.with_ns < cached.without_ns
    assert cached.file_bytes == pytest.approx(pte.stat().st_size, rel=0.1)
    assert not list(outcome.log.parent.rglob("*.weights"))


def test_the_dump_holds_the_measured_executions_alone(run: Run, exported) -> None:
    outcome = run(exported("toy_cnn", "fp32").pte, runs=5, warmup=3, etdump=True)
    assert outcome.etdump is not None and outcome.etdump_warmup_runs == 0 and outcome.result.traced
    events = read_etdump(outcome.etdump).to_pandas()
    executes = events[events["name"] == "Method::execute"]
    assert len(executes) == 5 and executes["run_index"].nunique() == 5
    # The clock around the call and the tracer inside it saw the same executions.
    pairs = zip(executes["duration_ns"], outcome.result.iterations_ns, strict=True)
    apart = [outside - inside for inside, outside in pairs]
    assert min(apart) >= 0 and min(apart) < 1_000_000


def test_a_thousand_executions_fit_in_one_dump(run: Run, exported) -> None:
    outcome = run(exported(TYPED, "fp16", "portable").pte, runs=1500, warmup=1, etdump=True)
    assert outcome.etdump is not None
    events = read_etdump(outcome.etdump).to_pandas()
    assert (events["name"] == "Method::execute").sum() == 1500


def test_the_same_seed_gives_the_same_output_and_another_does_not(run: Run, exported) -> None:
    pte = exported("toy_cnn", "fp32").pte
    checksums = [run(pte, seed=seed).result.outputs[0].checksum for seed in (1, 1, 2)]
    assert checksums[0] == checksums[1] != checksums[2]


def test_a_program_that_takes_channels_last_is_given_the_same_image(
    run: Run, exported, tmp_path: Path
) -> None:
    last = export_model("toy_cnn", outdir=tmp_path, optimize=(CHANNELS_LAST,))
    says(str(last.warnings), "channels last")
    assert last.coverage.partitions == 1 and CHANNELS_LAST in last.rewritten
    image = tmp_path / "image.bin"
    np.random.default_rng(1).standard_normal((1, 3, 224, 224), "f4").tofile(image)
    for given in ({}, {"inputs": (image,)}):
        both = (
            run(pte, stem, save_outputs=True, **given).result.outputs[0]
            for pte, stem in ((exported("toy_cnn", "fp32").pte, "usual"), (last.pte, "last"))
        )
        np.testing.assert_allclose(*map(read_output, both), rtol=1e-4, atol=1e-5)


def test_threads_are_what_was_asked_for(run: Run, exported) -> None:
    pte = exported("toy_cnn", "fp32").pte
    one, two = run(pte, threads=1).result, run(pte, threads=2).result
    assert (one.threads, two.threads) == (1, 2)
    assert one.outputs[0].checksum == two.outputs[0].checksum


def test_the_memory_is_as_fast_beside_neighbours(run: Run, exported) -> None:
    """Neighbours that only compute take the CPU, which is not the memory's time."""
    model = exported("toy_cnn", "fp32").pte

    def rate(stem: str) -> float:
        found = run(model, stem, runs=1, memory_rate=True).result.memory_read_rate
        assert found is not None
        return found

    alone, endless = rate("alone"), [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(endless, start_new_session=True) for _ in range(4 * (os.cpu_count() or 1))]
    try:
        assert 0.6 < rate("beside") / alone < 1.6
    finally:
        for each in busy:
            each.kill()
            each.wait()


def test_inputs_of_every_type_are_made_right(run: Run, exported) -> None:
    pte = exported(TYPED, "fp16", "portable").pte

    def values(outcome: Outcome) -> list[np.ndarray]:
        types = zip(outcome.result.outputs[:4], ("f2", "i1", "i8", "?"), strict=True)
        return [np.fromfile(output.file, dtype) for output, dtype in types]

    made = run(pte, seed=5, save_outputs=True)
    half, byte, index, flag = values(made)
    assert [o.dtype for o in made.result.outputs[:4]] == ["float16", "int8", "int64", "bool"]
    assert np.all((half >= -1) & (half < 1)) and len(np.unique(half)) > 10
    assert byte.min() < -10 and byte.max() > 10
    assert index.min() >= 0 and index.max() < 10 and len(np.unique(index)) > 3
    assert 0 < flag.sum() < flag.size
    half, byte, index, flag = values(run(pte, "ones", fill="ones", save_outputs=True))
    assert np.all(half == 1) and np.all(byte == 1) and np.all(index == 1) and not flag.any()


def test_input_files_arrive_and_nan_and_infinity_are_counted(run: Run, exported, tmp_path: Path) -> None:
    values = {
        "half": np.array([0] * 3 + [2] * 17, dtype="f2"),
        "byte": np.arange(20, dtype="i1"),
        "index": np.arange(20, dtype="i8") * 1_000_000_007,
        "flag": np.zeros(20, dtype="?"),
    }
    paths = []
    for name, array in values.items():
        paths.append(tmp_path / f"{name}.bin")
        paths[-1].write_bytes(array.tobytes())
    pte = exported(TYPED, "fp16", "portable").pte
    _, byte, index, _, ratio, inverse = run(
        pte, inputs=tuple(paths), save_outputs=True, runs=2
    ).result.outputs
    assert np.array_equal(np.fromfile(byte.file, "i1"), values["byte"])
    assert np.array_equal(np.fromfile(index.file, "i8"), values["index"])
    assert (ratio.nan, ratio.inf) == (3, 0)
    assert (inverse.nan, inverse.inf) == (0, 3)


def test_features_are_what_the_system_reports_and_go_off_when_asked(arm, exported, tmp_path) -> None:
    pte, present = exported("toy_cnn", "fp32").pte, set(arm.facts().features)
    everything = arm.execute(Job(pte), tmp_path, "all").result
    assert set(everything.features_present) == present
    assert everything.features_verified and everything.features_masked == ()
    lowest = features.ladder(present)[-1]
    masked = arm.execute(Job(pte, disable=lowest.disable), tmp_path, "none").result
    assert set(masked.features_masked) == set(masked.features_present) == present


@pytest.mark.skipif(ON_ARM, reason="says what happens on a CPU that is not Arm; this one is")
def test_switching_arm_features_off_elsewhere_says_it_means_nothing(run: Run, exported) -> None:
    result = run(exported("toy_cnn", "fp32").pte, disable=("sme2",)).result
    assert result.features_masked == ()
    assert "not an Arm CPU" in (result.features_note or "")


@pytest.mark.skipif(
    "dotprod" not in features.host_features(),
    reason="only times of an Arm CPU with dotprod show it; emulation counts kernels, but of SME only",
)
def test_a_feature_switched_off_changes_the_kernels_chosen(run: Run, exported) -> None:
    """int8 without dotprod takes XNNPACK's slower kernels: the switch reaches XNNPACK itself."""
    pte = exported("toy_cnn", "int8").pte
    with_it = run(pte, runs=20, warmup=2).result
    without = run(pte, runs=20, warmup=2, disable=("dotprod",)).result
    assert min(without.iterations_ns) > 1.5 * min(with_it.iterations_ns)
    assert without.outputs[0].checksum == with_it.outputs[0].checksum


def test_kernels_are_counted_on_request(run: Run, exported) -> None:
    result = run(exported("toy_cnn", "fp32").pte, kernels=True).result
    if platform.system() == "Linux" and ON_ARM:
        assert result.kernels and result.kernels_note is None
    else:
        assert result.kernels_note


def test_the_binary_explains_itself(host: HostTarget) -> None:
    assert host.build is not None
    help_text = process.run([host.build.path, "--help"], timeout=60)
    assert help_text.ok and "--disable FLAG,FLAG" in help_text.stdout
    wrong = process.run([host.build.path, "--modle", "x"], timeout=60)
    assert wrong.returncode == 2 and re.match("sme2prof-runner: unknown .*--modle x", wrong.stderr)
    facts = json.loads(process.run([host.build.path, "--features-only"], timeout=60).stdout)
    assert facts["schema_version"] == 1 and facts["layout_verified"] is ON_ARM


def test_the_documented_command_finds_the_runner() -> None:
    """By which docs/reference/runner.md lets people run it by hand."""
    text = (ROOT / "docs" / "reference" / "runner.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^.*--help$", text, re.MULTILINE)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = process.run(["bash", "-c", command], timeout=300, cwd=ROOT, env={"PATH": path})
    assert done.ok, done.stderr
    assert "--etdump" in done.stdout
