"""Each way a run can break, made real, and the one line it becomes."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import ON_ARM, missing
from recorded_runs import make_config
from said import says
from stand_ins import Routed

from model_profiling.config.settings import ProfileConfig
from model_profiling.core import process
from model_profiling.core.errors import FormatError, InputError, RunError
from model_profiling.runner.compilers import find_compiler
from model_profiling.runner.features import AARCH64_LINUX, this_platform
from model_profiling.targets import Job
from model_profiling.targets.collect import missing_operators
from model_profiling.targets.emulated import EmulatedTarget
from model_profiling.targets.execution import Route, Transport
from model_profiling.targets.host import HostTarget
from model_profiling.workflow.measure import RunOptions, run_config

SHIMS = Path(__file__).parents[1] / "data/shims"
# An operator that no runner of ExecuTorch's has.
CUSTOM_OPERATOR = """
library = torch.library.Library("testing", "FRAGMENT")
library.define("twice(Tensor x) -> Tensor")
library.define("twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
library.impl("twice", lambda x: x * 2, "CompositeExplicitAutograd")
library.impl("twice.out", lambda x, *, out: out.copy_(x * 2), "CompositeExplicitAutograd")


class Custom(nn.Linear):
    def forward(self, x):
        return torch.ops.testing.twice(super().forward(x)).cumsum(1)


exported = torch.export.export(Custom(8, 8).eval(), (torch.randn(1, 8),))
save(exported)
"""


@pytest.fixture(scope="module")
def custom(scripted: Callable[..., Path]) -> Path:
    return scripted("custom", CUSTOM_OPERATOR)


@pytest.mark.parametrize("place", ["host", "emulated"])
def test_missing_operators_are_named_before_anything_is_measured(place, custom, request, tmp_path) -> None:
    target = request.getfixturevalue(place)
    with pytest.raises(InputError) as refused:
        run_config(one_experiment(custom, tmp_path / "run", target.name), target=target)
    assert refused.value.problem == "custom.pte needs testing::twice.out, which the runner does not have"
    says(refused.value.fix, "decomposed or delegated", "runner_path")
    assert not (tmp_path / "run").exists()
    with pytest.raises(RunError) as failed:
        target.execute(Job(custom), tmp_path, "job")
    assert (failed.value.problem, failed.value.fix) == (refused.value.problem, refused.value.fix)


def test_the_cure_for_the_operators_of_export_llm_names_its_option() -> None:
    missing, cure = missing_operators(["llama::update_cache.out", "llama::custom_sdpa.out"] * 2)
    assert missing == "llama::custom_sdpa.out, llama::update_cache.out, which the runner does not have"
    says(cure, "without custom operators", "use_sdpa_with_kv_cache=False", "runner_path")
    several, _ = missing_operators(f"own::{name}.out" for name in "abcdef")
    assert several.startswith("own::a.out, own::b.out, ")
    says(several, "own::d.out and 2 more")


def test_a_failure_with_a_cause_of_its_own_is_not_blamed_on_memory(host, custom, tmp_path) -> None:
    if sys.platform != "linux":
        pytest.skip("the shim is for Linux")
    library = shim("errno.c", tmp_path, find_compiler(this_platform()).command)
    words = ["env", f"LD_PRELOAD={library}", host.build.path, "--model", custom]
    done = process.run(words, timeout=60)
    says(done.stderr, "cannot load method 'forward'", "OperatorMissing")
    assert done.returncode == 4


def shim(source: str, folder: Path, compiler: tuple[str, ...]) -> Path:
    """Compile a source of tests/data/shims into a library that can stand in front of the others."""
    library = folder / "shim.so"
    language = "c" if source.endswith(".c") else "c++"
    words = ["-x", language, SHIMS / source, "-shared", "-fPIC", "-D_GNU_SOURCE", "-o", library, "-ldl"]
    built = process.run([*compiler, *words], timeout=60)
    assert built.ok, built.tail()
    return library


@pytest.fixture
def shimmed(arm, tmp_path, monkeypatch) -> HostTarget | EmulatedTarget:
    """A Linux machine with Arm's features, and the shim in front of its cpuinfo."""
    if sys.platform != "linux":
        pytest.skip("the shim is for Linux")
    library = shim("cpuinfo.c", tmp_path, find_compiler(AARCH64_LINUX).command)
    # QEMU hands what QEMU_SET_ENV names to the emulated process alone.
    monkeypatch.setenv(*("LD_PRELOAD", str(library)) if ON_ARM else ("QEMU_SET_ENV", f"LD_PRELOAD={library}"))
    return arm


def test_masking_is_refused_when_cpuinfo_has_another_layout(shimmed, exported, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("SHIM_SHIFT", "1")
    pte = exported("toy_cnn", "fp32").pte
    with pytest.raises(RunError, match=r"switched off.*(operating system|\d+)"):
        shimmed.execute(Job(pte, disable=("fp16",)), tmp_path, "off")
    untouched = shimmed.execute(Job(pte), tmp_path, "on").result
    assert not untouched.features_verified and untouched.features_note
    config = one_experiment(pte, tmp_path / "run", shimmed.name)
    outcome = run_config(config, target=shimmed)
    assert any(line.text.endswith(untouched.features_note) for line in outcome.warnings)
    # A later session has nothing to run and still knows.
    again = run_config(config, RunOptions(resume=True), target=shimmed)
    assert again.run.manifest is not None
    (remark,) = again.run.manifest.warnings
    assert remark.seen.endswith(untouched.features_note)


def one_experiment(pte: Path, run_dir: Path, target: str) -> ProfileConfig:
    asked = {"target": {"name": target}, "schedule": {"rounds": 1, "budget_s": 1}}
    return make_config(run_dir, [{"name": "x", "runs": 1, "warmup": 0}], program=pte, **asked)


def test_a_feature_reported_but_not_usable_is_a_named_crash(shimmed, exported, tmp_path, monkeypatch) -> None:
    assert shimmed.build is not None
    transport = Transport()
    if isinstance(shimmed, EmulatedTarget):
        assert shimmed.qemu is not None
        transport = Transport(tuple("max,sme=off" if w == "max" else w for w in shimmed.qemu.prefix))
    elif shimmed.facts().has_sme2:
        pytest.skip("this CPU has what the shim would invent")
    monkeypatch.setenv("SHIM_LIE", "1")
    job, runner = Job(exported("toy_cnn", "fp32").pte), (str(shimmed.build.path),)
    with pytest.raises(RunError) as caught:
        Routed(Route(runner, transport)).execute(job, tmp_path, "job")
    assert "SIGILL" in caught.value.problem and "CPU feature" in caught.value.fix
    assert "Resetting threadpool" in caught.value.log_tail
    assert "Resetting threadpool" in (tmp_path / "job.log").read_text()


@pytest.mark.parametrize("kept", [0, 5, 40, 5_000])
def test_a_truncated_program(host: HostTarget, exported, tmp_path: Path, kept: int) -> None:
    cut = tmp_path / "cut.pte"
    cut.write_bytes(exported("toy_cnn", "fp32").pte.read_bytes()[:kept])
    with pytest.raises(FormatError, match=rf"cut\.pte .*\b{kept}( of \d+)? bytes; export"):
        host.execute(Job(cut), tmp_path, "job")


@pytest.mark.parametrize(
    ("backend", "old", "new", "error", "said"),
    [
        ("xnnpack", b"XH00", b"XH99", RunError, "'forward'"),
        ("xnnpack", b"ET12", b"ET13", FormatError, r"ET13.*ET12"),
        ("xnnpack", b"XnnpackBackend", b"UnknownBackend", RunError, "backend UnknownBackend"),
        ("portable", b"aten::convolution", b"aten::convolutiom", RunError, r"aten::convolutiom\.out, which"),
    ],
    ids=["delegate", "version", "backend", "operator"],
)
def test_a_program_with_a_changed_name(host, exported, tmp_path, backend, old, new, error, said) -> None:
    content = exported("toy_cnn", "fp32", backend).pte.read_bytes()
    assert old in content and len(old) == len(new)
    damaged = tmp_path / "damaged.pte"
    damaged.write_bytes(content.replace(old, new))
    with pytest.raises(error, match=said):
        host.execute(Job(damaged), tmp_path, "job")


def test_the_installed_executorch_still_writes_the_format_we_check_for(exported) -> None:
    assert exported("toy_cnn", "fp32").pte.read_bytes()[4:8] == b"ET12"


def test_something_that_is_not_a_program(host: HostTarget, exported, tmp_path: Path) -> None:
    content = bytearray(exported("toy_cnn", "fp32").pte.read_bytes())
    content[64:1024] = b"\xff" * 960
    for name, wrong, said in (
        ("broken", content, r"broken\.pte .*; export"),
        ("picture", b"\x89PNG\r\n\x1a\n" + b"\0" * 100, r"picture\.pte is not "),
    ):
        (tmp_path / f"{name}.pte").write_bytes(wrong)
        with pytest.raises(FormatError, match=said):
            host.execute(Job(tmp_path / f"{name}.pte"), tmp_path, "job")
    with pytest.raises(InputError, match=r"gone\.pte; export"):
        host.execute(Job(tmp_path / "gone.pte"), tmp_path, "job")


def test_out_of_memory(host: HostTarget, exported, tmp_path: Path) -> None:
    if shutil.which("prlimit") is None:
        missing("prlimit")
    assert host.build is not None
    pte = exported("mobilenet_v3_small", "fp16").pte
    runner = (str(host.build.path),)
    wide = Transport(prefix=("prlimit", "--as=2000000000", "--"))
    assert Routed(Route(runner, wide)).execute(Job(pte), tmp_path, "wide").result.iterations_ns
    tight = Transport(prefix=("prlimit", "--as=33000000", "--"))
    with pytest.raises(RunError, match="out of memory"):
        Routed(Route(runner, tight)).execute(Job(pte), tmp_path, "tight")


def test_inputs_that_do_not_fit(host: HostTarget, exported, tmp_path: Path) -> None:
    pte = exported("toy_cnn", "fp32").pte
    small = tmp_path / "small.bin"
    small.write_bytes(b"\0" * 10)
    needed = 4 * 3 * 224 * 224  # the picture that toy_cnn takes, in fp32
    with pytest.raises(InputError, match=rf"small\.bin .*\b10 bytes; input 0 \(float32\) .*\b{needed}\b"):
        host.execute(Job(pte, inputs=(small,)), tmp_path, "job")
    full = tmp_path / "full.bin"
    full.write_bytes(b"\0" * needed)
    with pytest.raises(InputError, match=r"\b1 tensor input.*\b2 input files"):
        host.execute(Job(pte, inputs=(full, full)), tmp_path, "job")
    with pytest.raises(InputError, match=r"input file .*gone\.bin"):
        host.execute(Job(pte, inputs=(tmp_path / "gone.bin",)), tmp_path, "job")


def test_names_and_numbers_that_cannot_be(host: HostTarget, exported, tmp_path: Path) -> None:
    pte = exported("toy_cnn", "fp32").pte
    for wrong, said in (
        ({"method": "backward"}, r"'backward'.*\bforward"),
        ({"disable": ("sme3",)}, "CPU feature 'sme3'"),
    ):
        with pytest.raises(InputError, match=said):
            host.execute(Job(pte, **wrong), tmp_path, "job")


@pytest.mark.parametrize("limit", ["abc", "10s", "", "-1", "0", "nan", "inf"])
def test_a_time_limit_that_is_no_time(host: HostTarget, exported, limit: str) -> None:
    assert host.build is not None
    words = [host.build.path, "--model", exported("toy_cnn", "fp32").pte, "--time-limit", limit]
    done = process.run(words, timeout=60)
    assert not done.ok
    says(done.stderr, "--time-limit", f"'{limit}'")


def test_an_unwritable_place_and_a_full_disk(host: HostTarget, exported, tiny_disk: Path) -> None:
    job = Job(exported("toy_cnn", "fp32").pte, runs=600, etdump=True)
    with pytest.raises(InputError, match=r"job\.etdump: no space left on device"):
        host.execute(job, tiny_disk, "job")
    assert [path.name for path in tiny_disk.iterdir()] == ["job.log"]


def test_what_cannot_be_replaced_is_left_as_it_is(host: HostTarget, tmp_path: Path) -> None:
    assert host.build is not None
    pipe, kept = tmp_path / "pipe", tmp_path / "kept.json"
    os.mkfifo(pipe)
    refused = process.run([host.build.path, "--features-only", "--result", pipe], timeout=60)
    assert refused.returncode == 8 and str(pipe) in refused.stderr and pipe.is_fifo()
    kept.write_text("an earlier result")
    # A folder in the place of the hidden sibling: nothing can be written beside the result.
    (tmp_path / f".{kept.name}.part").mkdir()
    refused = process.run([host.build.path, "--features-only", "--result", kept], timeout=60)
    assert refused.returncode == 8 and "kept.json: is a directory" in refused.stderr
    assert kept.read_text() == "an earlier result"


def test_a_standard_output_that_is_full(host: HostTarget) -> None:
    if not Path("/dev/full").exists():
        missing("/dev/full")
    assert host.build is not None
    done = process.run(["sh", "-c", '"$0" --features-only > /dev/full', host.build.path], timeout=60)
    assert done.returncode == 8 and "standard output" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the shim is for Linux")
def test_an_error_nobody_foresaw_is_one_line(host: HostTarget, exported, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", str(shim("throwing.cpp", tmp_path, find_compiler().command)))
    with pytest.raises(RunError, match="thrown by the test"):
        host.execute(Job(exported("toy_cnn", "fp32").pte), tmp_path, "job")


def test_a_failed_run_does_not_pass_off_an_earlier_result(host: HostTarget, exported, tmp_path: Path) -> None:
    pte = exported("toy_cnn", "fp32").pte
    host.execute(Job(pte, etdump=True, save_outputs=True), tmp_path, "job")
    with pytest.raises(InputError):
        host.execute(Job(pte, method="backward"), tmp_path, "job")
    assert [path.name for path in tmp_path.iterdir()] == ["job.log"]
