"""Run directories as the kit before this one lays them out (no `schema_version`), made of recorded dumps.

`lay_out_flat` is what its pipelines leave, `lay_out_folders` what its documents show and its checks expect,
`lay_out_bare` what is left where neither manifest nor metrics were written.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median

from recorded_runs import DATA, PROGRAM, SME2

from model_profiling.etdump import read_etdump

ON, OFF = "mac_sme2_on", "mac_sme2_off"
TRACED_ON, TRACED_OFF = f"{ON}_xnntrace", f"{OFF}_xnntrace"
STEM = PROGRAM.stem
_TRACES = DATA.parent / "xnntrace"
_LOGS = {TRACED_ON: _TRACES / "toy_fp16_sme2on.log", TRACED_OFF: _TRACES / "toy_fp16_sme2off.log"}
_KERNELS = (
    "model_id", "kernel_name", "category", "count", "dtype", "xnn_op", "variant", "ukernel_shape",
    "arch_chain", "has_sme", "has_sme2",
)  # fmt: skip


def recorded_dump(experiment: str) -> Path:
    """The recorded dump that stands for `experiment`; its runs are all told."""
    switch = "on" if experiment == ON else "off"
    return SME2 / f"linux_sme2_{switch}" / f"{STEM}_linux_sme2_{switch}_t1.etdump"


def latencies_ms(experiment: str) -> list[float]:
    """`Method::execute` of every run."""
    table = read_etdump(recorded_dump(experiment))
    chosen = table.name == table.name_index("Method::execute")
    return [ns / 1e6 for ns in table.duration_ns[chosen].tolist()]


def lay_out_bare(out: Path, *, with_model: bool = True) -> Path:
    """Only dumps, all in one folder, named after the model or after the experiment alone."""
    run_dir = _home(out)
    for experiment in (ON, OFF):
        name = f"{STEM}_{experiment}" if with_model else experiment
        shutil.copy(recorded_dump(experiment), run_dir / f"{name}_t1.etdump")
    return run_dir


def lay_out_flat(out: Path) -> Path:
    """Everything in one folder, with a pipeline summary and no manifest; paths as of another machine."""
    run_dir, elsewhere = lay_out_bare(out), Path("/somewhere/else/runs/mac")
    runs: list[dict[str, object]] = []
    for experiment in (ON, OFF):
        stem = f"{STEM}_{experiment}_t1"
        latencies = latencies_ms(experiment)
        stats = {"count": len(latencies), "mean_ms": mean(latencies), "median_ms": median(latencies)}
        stats_path = f"{stem}_exec_all_runs_timeline_robust_stats.json"
        _write(run_dir / stats_path, {**stats, "latencies_ms": latencies, "name": f"{experiment}_t1"})
        (run_dir / f"{stem}_latency.log").write_text("Model executed successfully.\n")
        files = {"latency_log": "_latency.log", "etdump": ".etdump"}
        paths = {key: str(elsewhere / f"{stem}{ending}") for key, ending in files.items()}
        metrics = {**stats, "cv_percent": 1.0, "robust_stats_path": str(elsewhere / stats_path)}
        runs.append(_entry(experiment, "timing", len(latencies), paths=paths, metrics=metrics))
    for experiment, log in _LOGS.items():
        stem = f"{STEM}_{experiment}_t1"
        shutil.copy(log, run_dir / f"{stem}_xnntrace.log")
        _write_kernels(run_dir / f"{stem}_kernels.csv", log, stem)
        # The path of a dump that a traced run does not make is in its summary all the same.
        files = {"etdump": ".etdump", "xnntrace_log": "_xnntrace.log", "kernel_csv": "_kernels.csv"}
        paths = {key: str(elsewhere / f"{stem}{ending}") for key, ending in files.items()}
        runs.append(_entry(experiment, "xnntrace", 1, paths=paths, metrics={}))
    versus = f"{STEM}_{OFF}_t1_exec_all_runs_timeline_vs_{STEM}_{ON}_t1_exec_all_runs_timeline"
    _write(run_dir / f"{versus}_robust_comparison.json", {"speedup": {"median_based": 2.0}})
    (run_dir / "kernel_view_gemm.md").write_text("| Kernel Name |\n|---|\n")
    told = {"model": f"out_small_cnn/artifacts/{STEM}.pte", "generated_at": "2025-12-20T10:11:12+00:00"}
    summary = {**told, "output_root": str(elsewhere), "runs": runs}
    _write(run_dir / f"{STEM}_pipeline_summary.json", summary)
    (run_dir / f"{STEM}_pipeline_summary.md").write_text("# Pipeline Summary\n")
    return run_dir


def lay_out_folders(out: Path) -> Path:
    """A folder for each experiment, with manifest, metrics and an analysis."""
    run_dir = _home(out)
    results = []
    for experiment in (ON, OFF):
        name = f"{experiment}/{experiment}_t1"
        (run_dir / experiment).mkdir()
        shutil.copy(recorded_dump(experiment), run_dir / f"{name}.etdump")
        (run_dir / f"{name}.log").write_text("Model executed successfully.\n")
        latencies = latencies_ms(experiment)
        figures = {
            "runs": len(latencies), "threads": 1, "latency_ms": latencies, "median_ms": median(latencies),
            "min_ms": min(latencies), "max_ms": max(latencies),
            "etdump": f"out_small_cnn/runs/mac/{name}.etdump", "etdump_rel": f"{name}.etdump",
            "log": f"out_small_cnn/runs/mac/{name}.log", "log_rel": f"{name}.log",
        }  # fmt: skip
        results.append({"experiment": experiment, "metrics": figures})
    manifest = {
        "generated_at": "2025-12-20T10:11:12Z", "model": f"out_small_cnn/artifacts/{STEM}.pte",
        "config": "model_profiling/configs/examples/mac_mobilenet_fp16.json",
        "executorch": {"present": True, "sha": "0123456789abcdef", "dirty": False}, "results": results,
    }  # fmt: skip
    _write(run_dir / "manifest.json", manifest)
    _write(run_dir / "metrics.json", {"results": results})
    parts = {"Convolution": 4.1, "GEMM": 0.3, "Other": 1.1}
    dumps = [{"etdump": f"{name}/{name}_t1.etdump", "categories_ms": parts, "rows": 9} for name in (ON, OFF)]
    told = {"run_dir": "out_small_cnn/runs/mac", "etrecord": None, "etdump_count": 2, "csv_files": []}
    analysis = {**told, "category_totals_ms": parts, "per_etdump": dumps}
    _write(run_dir / "analysis_summary.json", analysis)
    return run_dir


def _home(out: Path) -> Path:
    """`out_small_cnn` with its program and an empty run directory."""
    shutil.copytree(PROGRAM.parent, out / "out_small_cnn" / "artifacts")
    run_dir = out / "out_small_cnn" / "runs" / "mac"
    run_dir.mkdir(parents=True)
    return run_dir


def _entry(experiment: str, mode: str, runs: int, **more: object) -> dict[str, object]:
    told = {"experiment": experiment, "threads": 1, "mode": mode, "status": "ok", "runs": runs}
    return {**told, "warmup": 10, **more}


def _write_kernels(path: Path, log: Path, stem: str) -> None:
    counts: dict[str, int] = defaultdict(int)
    for line in log.read_text(errors="replace").splitlines():
        if "microkernel '" in line:
            counts[line.split("microkernel '")[1].split("'")[0]] += 1
    assert counts
    rows = [{"model_id": stem, "kernel_name": name, "count": count} for name, count in counts.items()]
    _write_rows(path, _KERNELS, rows)


def _write_rows(path: Path, columns: Sequence[str], rows: Sequence[dict[str, object]]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerows(rows)


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2))
