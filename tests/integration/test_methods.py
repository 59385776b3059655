"""Programs with several methods: each method's operators, work, shapes and kernels are its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from said import says

from model_profiling.core.errors import InputError
from model_profiling.program.pte import read_program
from model_profiling.runs import Run
from model_profiling.runs.feeding import one_method
from model_profiling.targets import Job, TargetChoice
from model_profiling.workflow.analyse import analyse
from model_profiling.workflow.profile import ProfileOptions, profile_one

# Each method takes (rows, width) and multiplies by two matrices, width x hidden and hidden x width: all have
# the same steps, so that only the name tells which one ran.
EXPORT = """
import json
programs = {}
for name, (rows, width, hidden) in json.loads(sys.argv[2]).items():
    layers = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width)).eval()
    programs[name] = torch.export.export(layers, (torch.randn(rows, width),))
save(programs, get_vocabulary_size=32000)
"""
Sizes = Mapping[str, tuple[int, int, int]]
TWO: Sizes = {"prefill": (32, 64, 128), "decode": (1, 64, 128)}
THREE: Sizes = {"encode": (8, 32, 96), "forward": (4, 32, 64), "adapt": (16, 16, 48)}
Export = Callable[[str, Sizes], Path]


@pytest.fixture(scope="module")
def exported_methods(scripted: Callable[..., Path]) -> Export:
    return lambda name, methods: scripted(name, EXPORT, json.dumps(methods))


def check_method(run_dir: Path, method: str, size: tuple[int, int, int]) -> None:
    """All that is said of the run is of `method`: operators, shapes, work, places in the model, coverage."""
    rows, width, hidden = size
    run = Run.open(run_dir)
    assert run.manifest is not None and run.manifest.method == method
    analysis = analyse(run)
    assert analysis.proven is not None
    work = analysis.proven.coverage.work
    assert {each.method for each in work} == {method}
    assert [each.flops for each in work] == [pytest.approx(2 * rows * width * hidden, rel=0.05)] * 2
    assert analysis.series and not any(dump.misfits for each in analysis.series for dump in each.rounds)
    for series in analysis.series:
        matrices = [each for each in series.operators if each.source.node_kind == "FullyConnected"]
        assert {each.method for each in series.operators} == {method}
        assert [each.source.input_shapes for each in matrices] == [((rows, width),), ((rows, hidden),)]
        assert [each.source.output_shape for each in matrices] == [(rows, hidden), (rows, width)]
        assert [each.source.module_path for each in matrices] == ["0", "2"]


def test_each_method_is_profiled_as_itself(exported_methods, tmp_path) -> None:
    pte = exported_methods("three", THREE)
    for method, size in THREE.items():
        short = {"target": TargetChoice("host"), "runs": 2, "rounds": 6, "budget_s": 1, "outdir": tmp_path}
        outcome = profile_one(str(pte), ProfileOptions(method=method, **short))
        own = "three" if method == "forward" else f"three_{method}"
        assert outcome.main.run.manifest.method == method
        assert outcome.main.run_dir.parent == tmp_path / "runs" / own
        assert outcome.main.run.model_name == own and list(outcome.main.run_dir.glob(f"*/{own}_*.etdump"))
        check_method(outcome.main.run_dir, method, size)


def test_kernels_under_emulation_follow_the_rows_of_each_method(exported_methods, emulated, tmp_path) -> None:
    pte, used, rows = exported_methods("two", TWO), {}, {}
    for method in TWO:
        outcome = emulated.execute(Job(pte, method=method, warmup=0, kernels=True), tmp_path, method)
        used[method] = {name for name in outcome.result.kernels if "matmul_clamp" in name}
        rows[method] = {calls[0] for name in used[method] for calls in outcome.result.kernel_sizes[name]}
    assert used["prefill"] and all("mopa" in kernel for kernel in used["prefill"])
    assert used["decode"] and all("_1x" in kernel for kernel in used["decode"])
    assert rows["decode"] == {1} and 1 < min(rows["prefill"]) <= max(rows["prefill"]) <= 32


def test_what_cannot_be_chosen_is_one_line_that_lists_the_methods(exported_methods, tmp_path) -> None:
    pte = exported_methods("two", TWO)
    assert read_program(pte).method("get_vocabulary_size") is not None
    assert one_method(pte, "decode") == "decode"
    for wrong in ("forward", "get_vocabulary_size"):
        with pytest.raises(InputError, match=rf"two\.pte has no method '{wrong}'; choose from decode and"):
            one_method(pte, wrong)
    with pytest.raises(InputError, match=r"several methods: decode and prefill; choose one .*--method"):
        profile_one(str(pte), ProfileOptions(outdir=tmp_path))
    assert not (tmp_path / "runs").exists()


def test_a_bare_dump_that_fits_two_methods_gets_no_shapes_of_either(exported_methods, host, tmp_path) -> None:
    pte = exported_methods("two", TWO)
    for method in TWO:
        dump = host.execute(Job(pte, method=method, runs=2, etdump=True), tmp_path / method, "bare").etdump
        analysis = analyse(dump, model=pte).series[0].first
        (warning,) = (each.seen for each in analysis.warnings if each.code == "misfit")
        says(warning, "several methods", "decode and prefill", "left out")
        assert all(operator.source.input_shapes == () for operator in analysis.operators)
