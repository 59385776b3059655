"""Any executor_runner is driven through its own flags and read through its own log; a config that names two
binaries is timed, and honest about what they cannot show."""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from recorded_runs import raw_config
from stand_ins import command

from model_profiling.core import process
from model_profiling.core.errors import InputError, RunError, SetupError
from model_profiling.etdump import read_etdump
from model_profiling.runner.build import _flags, installed_sdk, places
from model_profiling.runner.compilers import find_compiler
from model_profiling.runner.features import host_features
from model_profiling.runner.result import OutputFacts, RunnerResult
from model_profiling.targets import Job
from model_profiling.targets.collect import beside
from model_profiling.targets.host import HostTarget
from model_profiling.targets.job import Places, build_command, read_own_times

SOURCE = Path(__file__).with_name("standin_executor_runner.cpp")
NAMES_LINUX = pytest.mark.skipif(sys.platform == "darwin", reason="the stand-in names the Linux library")
LOGS = Path(__file__).parents[1] / "data" / "xnntrace"


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    binary = tmp_path_factory.mktemp("standin") / "executor_runner"
    compiling, linking = _flags(installed_sdk())
    compiler = [*find_compiler().command, *compiling, *places(installed_sdk())]
    built = process.run([*compiler, "-O0", SOURCE, "-o", binary, *linking], timeout=200)
    assert built.ok, built.tail()
    return binary


@NAMES_LINUX
def test_a_runner_of_the_users_own(runner: Path, exported, tmp_path: Path) -> None:
    job = Job(exported("toy_cnn", "fp32").pte, runs=4, warmup=2, etdump=True, runner_path=runner)
    outcome = HostTarget().execute(job, tmp_path, "own")
    result = outcome.result
    assert len(result.iterations_ns) == 4 and min(result.iterations_ns) > 10_000
    assert result.load_ns and result.first_ns and result.warmup == 2
    assert result.outputs == () and result.features_masked == ()
    # It cannot leave warm-up out of its dump, so the outcome says how much of the dump that is.
    assert outcome.etdump is not None and outcome.etdump_warmup_runs == 2
    events = read_etdump(outcome.etdump).to_pandas()
    assert (events["name"] == "Method::execute").sum() == 6
    assert "--num_executions=6" in outcome.log.read_text()


def of_release(runner: Path, number: str) -> Path:
    """The same runner as an earlier ExecuTorch has it."""
    return Path(shutil.copy(runner, runner.with_name(f"{runner.name}_{number}")))


@NAMES_LINUX
def test_a_runner_that_tells_only_the_sum_is_timed_by_its_dump(runner: Path, exported, tmp_path) -> None:
    job = Job(exported("toy_cnn", "fp32").pte, runs=4, warmup=2, runner_path=of_release(runner, "1_0"))
    outcome = HostTarget().execute(job, tmp_path, "old")
    told = outcome.log.read_text()
    assert "print_output" not in told and "method_name" not in told and "Iteration" not in told
    assert len(outcome.result.iterations_ns) == 4 and min(outcome.result.iterations_ns) > 10_000
    assert outcome.etdump is None and not list(tmp_path.glob("*.etdump")), "nobody asked for the dump"
    traced = HostTarget().execute(replace(job, etdump=True), tmp_path, "old")
    assert traced.etdump is not None and traced.etdump_warmup_runs == 2


@NAMES_LINUX
def test_what_an_old_runner_lacks_is_said_in_one_line(runner: Path, exported, tmp_path: Path) -> None:
    job, host = Job(exported("toy_cnn", "fp32").pte, runs=2, warmup=1), HostTarget()
    plain, old = of_release(runner, "1_0_plain"), of_release(runner, "1_0")
    with pytest.raises(RunError, match=r"exit code 1: .*'etdump_path'"):
        host.execute(replace(job, runner_path=plain), tmp_path, "own")
    with pytest.raises(RunError, match=r"exit code 1: .*'method_name'"):
        host.execute(replace(job, runner_path=old, method="backward"), tmp_path, "own")


@NAMES_LINUX
def test_an_empty_dump_is_the_runner_s_failure(runner: Path, exported, tmp_path: Path) -> None:
    """Its experiment fails, as one that crashes; the analysis of the others never meets the file."""
    emptying = """for word; do case $word in --etdump_path=*) : > "${word#*=}" ;; esac; done"""
    own = command(tmp_path, "own", f'{runner} "$@"; {emptying}')
    job = Job(exported("toy_cnn", "fp32").pte, runs=1, etdump=True, runner_path=own)
    with pytest.raises(RunError, match=r"empty ETDump; .*log.*event tracer"):
        HostTarget().execute(job, tmp_path, "own")
    (tmp_path / "own.etdump").write_text("no dump")
    with pytest.raises(RunError, match=r"^the runner wrote an ETDump that cannot be read; .*log"):
        read_own_times(job, "a log without times", tmp_path / "own.etdump")


@NAMES_LINUX
def test_what_it_lacks_and_what_it_refuses_comes_back(runner: Path, exported, tmp_path: Path) -> None:
    job = Job(exported("toy_cnn", "fp32").pte, runs=1)
    for changed, said in (
        ({"runner_path": of_release(runner, "bare")}, "needs the backend XnnpackBackend"),  # though it aborts
        ({"runner_path": runner, "extra_args": ("--turbo=1",)}, r"exit code 1: .*'turbo'"),
    ):
        with pytest.raises(RunError, match=said):
            HostTarget().execute(replace(job, **changed), tmp_path, "own")


def test_what_it_cannot_do_is_refused(runner: Path, exported, tmp_path: Path) -> None:
    job, plain = Job(exported("toy_cnn", "fp32").pte), tmp_path / "plain"
    plain.write_text("not a program")
    (tmp_path / "damaged").write_text("not a program")
    (tmp_path / "damaged").chmod(0o755)
    for changed, error, said in (
        ({"runner_path": runner, "disable": ("sme2",)}, InputError, "switch sme2 off"),
        ({"runner_path": runner, "kernels": True}, InputError, "kernels"),
        ({"runner_path": tmp_path / "gone"}, SetupError, r"gone; .*runner_path"),
        ({"runner_path": plain}, SetupError, r"plain.* executable"),
        ({"runner_path": tmp_path / "damaged"}, SetupError, "cannot start"),
    ):
        with pytest.raises(error, match=said):
            HostTarget().execute(replace(job, **changed), tmp_path, "own")


def test_times_in_the_log_of_a_source_built_runner() -> None:
    """The log is of a real executor_runner: two executions, here taken as one of warm-up and one measured."""
    log = (LOGS / "toy_fp16_sme2off.log").read_text(encoding="utf-8", errors="replace")
    result = read_own_times(Job(Path("toy_fp16.pte"), runs=1, warmup=1), log, None)
    assert result.load_ns == 75_291_503
    assert result.first_ns == 7_727_877_920
    assert result.iterations_ns == (7_697_301_978,)


def test_a_log_without_times() -> None:
    line = "Model file is loaded."
    with pytest.raises(RunError, match="'Iteration N of M: T ms'"):
        read_own_times(Job(Path("x.pte")), f"I 00:00:00.1 executorch:executor_runner.cpp:476] {line}\n", None)


def write_config(folder: Path, exported: Any, experiments: list[dict[str, Any]], budget_s: int) -> None:
    asked = {"program": exported("toy_cnn", "fp32").pte, "schedule": {"rounds": 3, "budget_s": budget_s}}
    (folder / "c.json").write_text(json.dumps(raw_config(folder / "run", experiments, **asked)))


@NAMES_LINUX
def test_two_binaries_are_timed_and_traced(runner: Path, exported, cli, tmp_path: Path) -> None:
    # As ExecuTorch 1.0 has it: it tells the sum of its executions, and each in its dump alone.
    runners = {switch: tmp_path / f"linux-arm64-sme2-{switch}/{runner.name}_1_0" for switch in ("on", "off")}
    for path in runners.values():
        path.parent.mkdir()
        shutil.copy(runner, path)
    # Numbers in quotes and this name of the runner's path are the earlier kit's.
    earlier = {"runs": "3", "warmup": 2, "threads": ["1"]}
    experiments = [
        {"name": f"x_sme2_{switch}", "quiet_runner": str(path), **earlier} for switch, path in runners.items()
    ]
    write_config(tmp_path, exported, experiments, budget_s=60)
    done = cli("run", "c.json")
    assert done.ok, done.tail()
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    told = [(one["sme2"], one["disable"], one["etdump_warmup_runs"]) for one in manifest["results"]]
    assert told == [("on", [], 2), ("off", [], 2)]
    told = {remark["code"] for remark in manifest["warnings"]}
    assert {"tracer_on", "quiet_runner", "quoted_number"} <= told
    assert "is read as runner_path" in done.stderr
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert [one["end_to_end_ms"]["count"] for one in metrics["latencies"]] == [9, 9]
    assert metrics["parity"][0]["parity"] is None
    assert "only the kit's own runner keeps outputs" in metrics["parity"][0]["reason"]
    if "sme2" not in host_features():
        assert "has no SME2" in metrics["comparisons"][0]["speedup"]["reason"]
    # Its dumps hold the warm-up too; the analysis of all three leaves it out.
    summary = json.loads((tmp_path / "run" / "analysis_summary.json").read_text())
    assert [one["runs"] for one in summary["per_etdump"]] == [9, 9]
    # Without a count of kernel calls, only the operators' own names say which path ran.
    kernels = (tmp_path / "run" / "kernel_view.md").read_text()
    assert "Fully Connected" in kernels


@NAMES_LINUX
def test_a_runner_whose_log_shows_kernels_is_never_timed(runner: Path, exported, cli, tmp_path: Path) -> None:
    """Neither its path nor a record beside it says that it writes XNNPACK's log."""
    log = LOGS / "toy_fp16_sme2on.log"
    own = command(tmp_path, "executor_runner", f'grep XNNPACK "{log}" >&2; exec "{runner}" "$@"')
    experiment = {"name": "own", "runner_path": str(own), "runs": 2, "warmup": 1}
    write_config(tmp_path, exported, [experiment], budget_s=5)
    refused = cli("run", "c.json")
    assert refused.returncode == 2 and "Traceback" not in refused.stderr
    (told,) = [line for line in refused.stderr.splitlines() if "XNNPACK" in line]
    assert "times are not latencies" in told and '"mode": "xnntrace"' in told
    assert not (tmp_path / "run/metrics.json").exists()
    # With the mode that it names, it shows kernels and no latency.
    write_config(tmp_path, exported, [experiment | {"mode": "xnntrace"}], budget_s=5)
    done = cli("run", "c.json")
    assert done.ok, done.tail()
    (result,) = json.loads((tmp_path / "run/manifest.json").read_text())["results"]
    assert (result["mode"], result["times"], result["latency"]) == ("xnntrace", "traced", None)
    assert json.loads((tmp_path / "run/metrics.json").read_text())["latencies"] == []
    assert "_f16_" in (tmp_path / "run" / result["kernels"]).read_text()
    assert " ms" not in (tmp_path / "run/report.md").read_text()


@pytest.mark.parametrize("named", ["/there/..", "/there/passwd", "/there/other_output0.bin"])
def test_a_result_that_names_somebody_elses_file_is_refused(named: str, tmp_path: Path) -> None:
    output = OutputFacts(Path(named))
    result = RunnerResult(iterations_ns=(1,), threads=1, warmup=0, outputs=(output,))
    with pytest.raises(RunError, match=re.escape(Path(named).name)):
        beside(result, tmp_path / "job")


def test_a_command_names_only_what_is_there() -> None:
    """A phone's paths, which no file system here has."""
    loader = ("/data/local/tmp/k/ld-linux-aarch64.so.1", "/data/local/tmp/k/runner")
    places = Places("/data/local/tmp/k/m.pte", ("/data/local/tmp/k/i.bin",), "/data/local/tmp/k/7/p")
    job = Job(Path("m.pte"), inputs=(Path("i.bin"),), disable=("sme2",), etdump=True, extra_args=("--x",))
    command = build_command(job, loader, places)
    assert command[:4] == (*loader, "--model", "/data/local/tmp/k/m.pte") and command[-1] == "--x"
    assert all(word in command for word in ("/data/local/tmp/k/i.bin", "/data/local/tmp/k/7/p.etdump"))
    own = build_command(
        Job(Path("m.pte"), runner_path=Path("r"), warmup=2, runs=3, etdump=True), loader, places
    )
    assert own[:3] == (*loader, "--model_path=/data/local/tmp/k/m.pte")
    assert {"--num_executions=5", "--etdump_path=/data/local/tmp/k/7/p.etdump"} <= set(own)
