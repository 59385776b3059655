"""The documents that this kit was asked for with, typed in their order. Where they say `mac`, these walks say
the system at hand; a Mac's and a phone's parts run on stand-ins (test_macos.py, test_target_android.py).
Set-up itself is the first part of `make test`."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from model_profiling.core.process import Completed, run

ROOT = Path(__file__).resolve().parents[2]
HERE = "mac" if sys.platform == "darwin" else "linux"
Type = Callable[..., Completed]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone, as far as the documents' commands need it, set up already, with a model exported."""
    kit = tmp_path_factory.mktemp("walk") / "executorch_sme2_kit"
    kept_out = shutil.ignore_patterns("__pycache__", "out_*")
    shutil.copytree(ROOT / "model_profiling", kit / "model_profiling", ignore=kept_out)
    return kit


@pytest.fixture(scope="module")
def typed(kit: Path) -> Type:
    """`typed("python", ...)` in the clone's folder, with its environment active; it must succeed."""

    def call(*words: str | Path) -> Completed:
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        done = run(words, timeout=600, cwd=kit, env={"PATH": path, "PYTHONPATH": str(kit)})
        assert done.ok, f"{words}: {done.tail(20)}"
        return done

    return call


def expanded(kit: Path, pattern: str) -> list[str]:
    """As a shell expands it; one file at least."""
    found = sorted(str(path.relative_to(kit)) for path in kit.glob(pattern))
    assert found, pattern
    return found


def test_build_export_config_run_analyse_report(kit: Path, typed: Type) -> None:
    """The overview's quick start and the profiling skill's Option A, in one run directory."""
    typed("bash", "model_profiling/scripts/build_runners.sh")
    assert len(expanded(kit, "executorch/cmake-out/*/executor_runner")) >= 12
    out = "model_profiling/out_toy_cnn"
    export = ("python", "model_profiling/export/export_model.py", "--model", "toy_cnn", "--dtype", "fp16")
    typed(*export, "--outdir", f"{out}/artifacts/")
    config = "model_profiling/configs/my_run.json"
    typed("cp", f"model_profiling/configs/templates/{HERE}_template.json", config)
    content = json.loads((kit / config).read_text())
    content["model"] = f"{out}/artifacts/toy_cnn_xnnpack_fp16.pte"
    assert all(
        (kit / each["runner_path"]).exists() for each in content["experiments"] if "runner_path" in each
    )
    (kit / config).write_text(json.dumps(content, indent=2))
    runs = f"{out}/runs/{HERE}"
    typed("python", f"model_profiling/scripts/{HERE}_pipeline.py", "--config", config, "--budget", "1")
    assert all((kit / dump).stat().st_size for dump in expanded(kit, f"{runs}/*/*.etdump"))
    typed("python", "model_profiling/scripts/validate_results.py", "--results", runs)
    typed("python", "model_profiling/scripts/analyze_results.py", "--run-dir", runs)
    typed("python", "model_profiling/scripts/generate_report.py", "--run-dir", runs)
    for name in (
        "manifest.json",
        "metrics.json",
        "analysis_summary.json",
        "*_pipeline_summary.md",
        "report.md",
    ):
        expanded(kit, f"{runs}/{name}")
    timeline = expanded(kit, f"{runs}/*/*_all_runs_timeline.csv")[0]
    words = ("--timeline-csv", timeline, "--output-dir", runs, "--verbose")
    typed("python", "model_profiling/tools/analyze_etdump_csv.py", *words)


def test_timing_then_trace_with_runners_of_the_earlier_kit(kit: Path, typed: Type) -> None:
    """The skill's second workflow: for latency a config of the earlier kit, unchanged; for kernels a copy of
    a template with the paths of trace runners."""
    runner = "executorch/cmake-out/mac-arm64"
    model = "model_profiling/out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte"

    def config(name: str, experiments: list[dict[str, object]]) -> str:
        for experiment, side in zip(experiments, ("", "-sme2-off"), strict=True):
            ending = "-xnnlog" if name == "trace" else ""
            experiment["runner_path"] = f"{runner}{side}{ending}/executor_runner"
        content = {"model": model, "output_root": "out_toy_cnn/runs/both", "experiments": experiments}
        path = kit / f"model_profiling/configs/{name}_config.json"
        path.write_text(json.dumps({**content, "target": {"name": "emulated"}}))
        return str(path.relative_to(kit))

    pipeline = f"model_profiling/scripts/{HERE}_pipeline.py"
    earlier = [{"name": f"timing_sme2_{side}", "num_runs": 2, "num_threads": 1} for side in ("on", "off")]
    typed("python", pipeline, "--config", config("timing", earlier))
    template = json.loads((kit / "model_profiling/configs/templates/mac_template.json").read_text())
    typed("python", pipeline, "--config", config("trace", template["experiments"]))
    runs = "model_profiling/out_toy_cnn/runs/both"
    typed("python", "model_profiling/scripts/analyze_results.py", "--run-dir", runs)
    manifest = json.loads((kit / runs / "manifest.json").read_text())
    assert {row["experiment"] for row in manifest["results"]} == {
        f"{name}_sme2_{side}" for name in ("timing", "mac") for side in ("on", "off")
    }


def test_the_learning_path_quickstart(kit: Path, typed: Type) -> None:
    """Smoke test, then its run analysed again by the path that the overview prints."""
    typed("python", "model_profiling/scripts/validate_setup.py", "--prerequisites")
    typed("python", "model_profiling/scripts/run_quick_test.py")
    run_dir = "model_profiling/out_toy_cnn/runs/mac"  # on every system
    typed("python", "model_profiling/scripts/validate_results.py", "--results", run_dir)
    typed("python", "model_profiling/scripts/analyze_results.py", "--run-dir", run_dir)
    expanded(kit, f"{run_dir}/analysis_summary.json")
    model = expanded(kit, "model_profiling/out_toy_cnn/artifacts/*_fp16.pte")[0]
    typed("python", "model_profiling/scripts/generate_config.py", "--model", model, "--output", "made.json")
    typed("python", "model_profiling/scripts/validate_pipeline.py", "--config", "made.json")
