"""Names of kernels and operators, over every name in the installed ExecuTorch: what they prove."""

import importlib.util
import re
from pathlib import Path

import pytest
from conftest import arm_xnnpack
from said import says
from strategies import graph

from model_profiling.analysis.kernels import (
    KernelUse,
    classify,
    classify_operator,
    compare_kernels,
    configured_kernels,
    executed_kernels,
    matrix_share,
    operator_kernels,
    sme_verdict,
    unknown_kernels,
)
from model_profiling.program.category import Category, operator_type
from model_profiling.program.delegates import describe

# What a trace run of the toy model in fp16 listed under emulated SME2, and with SME1 only.
SME2_RUN = {
    "kai_run_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa": 12,
    "kai_run_matmul_clamp_f16_f16_f16p2vlx2b_1x16vl_sme2_dot": 1,
    "kai_run_lhs_imatmul_pack_x16p2vlx2_x16p_sme": 12,
}
SME1_RUN = {
    "kai_run_matmul_clamp_f16_f16p2vlx2_f16p2vlx2b_2vlx2vl_sme_mopa": None,
    "kai_run_matmul_clamp_f16_f16_f16p2vlx2b_1x8vl_sme_mla": None,
    "kai_run_lhs_imatmul_pack_x16p2vlx2_x16p_sme": None,
}


def is_kernel(symbol: str) -> bool:
    """Whether a symbol names a kernel, rather than one of the small functions that tell its tile sizes."""
    name = symbol.removeprefix("_")
    return name.startswith(("kai_run_", "kai_kernel_")) or (
        name.startswith("xnn_") and "_ukernel" in name and not re.search(r"_get_[mnk]r$", name)
    )


def wheel_names() -> list[str]:
    """Every kernel name in the XNNPACK backend of ExecuTorch's Arm wheel: no other has KleidiAI's."""
    names = re.findall(rb"(?:kai_(?:run|kernel)_|xnn_\w+_ukernel)\w+", arm_xnnpack().read_bytes())
    return sorted({name.decode() for name in names if is_kernel(name.decode())})


def test_every_kernel_name_of_the_wheel_is_read_and_agrees_with_its_own_words() -> None:
    names = wheel_names()
    assert sum(name.startswith("kai_run_") for name in names) >= 50
    assert sum(name.startswith("xnn_") for name in names) >= 40
    assert unknown_kernels(executed_kernels(dict.fromkeys(names))) == ()
    for name in names:
        kernel = classify(name)
        words = set(re.split(r"_+", name))
        assert kernel.has_sme2 == bool(words & {"sme2", "neonsme2"}), name
        assert kernel.has_sme == bool(words & {"sme", "neonsme", "sme2", "neonsme2"}), name
        assert (kernel.role == "packing") == ("pack" in name), name
        assert kernel.dtype and classify(f"_{name}") == kernel, "as macOS spells it"


NAMES = (Path(__file__).parents[1] / "data/kernel_names.txt").read_text().splitlines()[1:]


@pytest.mark.parametrize(("symbol", "said"), [row.split(" ", 1) for row in NAMES])
def test_a_name_is_taken_apart(symbol: str, said: str) -> None:
    kernel = classify(symbol)
    parts = (kernel.isa, kernel.role, kernel.dtype, kernel.operation, kernel.variant, kernel.shape)
    assert " ".join(part or "-" for part in parts) == said


@pytest.mark.parametrize(
    "name",
    [
        "xnn_f32_frobnicate_ukernel__neon_u8",
        "xnn_f32_gemm_minmax_ukernel_4x8__quantumcore",
        "kai_run_frobnicate_f32_f32_sme2",
        "memcpy",
        "",
    ],
)
def test_a_name_outside_the_grammar_is_unknown_and_listed(name: str) -> None:
    use = KernelUse(classify(name), "configured", None)
    assert unknown_kernels([use]) == (name,)


@pytest.mark.parametrize(
    ("event", "proves_sme"),
    [
        ("Convolution (NHWC, PF16) IGEMM #1", True),
        ("Fully Connected (NC, PF32) GEMM #12", True),
        ("Convolution (NHWC, PQS8, QS8, QC8W) IGEMM #2", True),
        ("Batch Matrix Multiply (NC, PF16) GEMM", True),
        ("Convolution (NHWC, F16) IGEMM #1", False),
        ("Fully Connected (NC, QS8, QC8W) GEMM #1", False),
        ("Fully Connected (NC, QP8, F32, QC4W) GEMM #1", None),
        ("Convolution (NHWC, PF16) DWConv #1", None),
    ],
)
def test_only_packed_matrix_labels_prove_sme(event: str, proves_sme: bool | None) -> None:
    kernel = classify_operator(event)
    assert kernel.has_sme is proves_sme
    assert kernel.has_sme2 is not True, "a label never tells SME2 from SME"
    for other in ("Transpose (ND, X16) #1", "DELEGATE_CALL", "Invalid Unary Op #3"):
        assert classify_operator(other) is None and operator_kernels([other]) == ()


def test_verdicts_rest_on_what_ran() -> None:
    sme2 = sme_verdict(executed_kernels(SME2_RUN), traced=True)
    assert sme2.answer == "sme2"
    says(sme2.text, "2 SME2 kernels ran 13 times")
    sme1 = sme_verdict(executed_kernels(SME1_RUN), traced=True)
    assert sme1.answer == "sme"
    says(sme1.text, "2 SME kernels ran")
    assert sme_verdict((), traced=True).answer == "none"
    packing = executed_kernels({"kai_run_lhs_pack_f32p2vlx1_f32_sme": 4})
    assert sme_verdict(packing, traced=True).answer == "none", "packing alone is not called SME"
    assert executed_kernels(dict.fromkeys(SME2_RUN, 0)) == (), "what was not called did not run"
    assert sme_verdict((), traced=False).answer == "unknown"
    for event, answer in (
        ("Convolution (NHWC, PF16) IGEMM #1", "sme-or-sme2"),
        ("Convolution (NHWC, F16) IGEMM #1", "none"),
        ("Convolution (NHWC, F32) DWConv", "unknown"),
        ("Fully Connected (NC, QP8, F32, QC4W) GEMM #1", "unknown"),
    ):
        assert sme_verdict(operator_kernels([event]), traced=False).answer == answer
    name = "xnn_pf32_gemm_minmax_ukernel_32x32__neonsme2"
    configured = configured_kernels([name, name])
    assert [(use.kernel.name, use.calls) for use in configured] == [(name, None)]
    assert sme_verdict(configured, traced=False).answer == "unknown", "what was configured proves nothing"


def test_two_runs_are_laid_side_by_side_with_their_share_of_the_matrix_work() -> None:
    configured = configured_kernels([*SME2_RUN, "xnn_f32_vadd_ukernel__neon_u8"])
    pairs = compare_kernels([*configured, *executed_kernels(SME2_RUN)], executed_kernels(SME1_RUN))
    table = {pair.kernel.name: pair for pair in pairs}
    packing = table["kai_run_lhs_imatmul_pack_x16p2vlx2_x16p_sme"]
    assert packing.on and packing.off and (packing.on.calls, packing.off.calls) == (12, None)
    mopa = table["kai_run_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa"]
    assert mopa.on and mopa.on.evidence == "executed" and mopa.off is None
    assert pairs[-1].kernel.name == "xnn_f32_vadd_ukernel__neon_u8", "what only was configured comes last"
    # What a real dump of MobileNetV3-small in fp16 holds with SME2 on: few operators take its path.
    events = [
        "Convolution (NHWC, PF16) IGEMM #1",
        *(f"Fully Connected (NC, PF16) GEMM #{n}" for n in (1, 2)),
        *(f"Fully Connected (NC, F16) GEMM #{n}" for n in range(1, 41)),
        *(f"Convolution (NHWC, F16) DWConv #{n}" for n in range(1, 12)),
    ]
    uses = operator_kernels([*events, "Mean (ND) #1"])
    (conv,) = (use for use in uses if use.kernel.name == "Convolution (NHWC, PF16) IGEMM")
    assert (conv.calls, conv.evidence) == (1, "executed") and matrix_share(uses) == (3, 43)
    assert matrix_share(executed_kernels(SME2_RUN)) == (0, 0)


@pytest.mark.parametrize(
    ("library", "names", "least"),
    [
        ("executorch_backend_xnnpack", rb"[A-Z][A-Za-z0-9 ]+ \([A-Z0-9, ]+\)(?=\0)", 150),
        ("executorch_kernels_optimized", rb"native_call_[\w.]+(?=\0)", 10),
        ("executorch_kernels_quantized", rb"native_call_[\w.]+(?=\0)", 10),
    ],
)
def test_every_operator_in_the_libraries_is_known(library: str, names: bytes, least: int) -> None:
    found = importlib.util.find_spec("executorch")
    assert found is not None and found.submodule_search_locations
    folder = Path(next(iter(found.submodule_search_locations))) / "lib"
    content = next(folder.glob(f"lib{library}.*")).read_bytes()
    known = {name.decode(): describe(name.decode()).known for name in re.findall(names, content)}
    assert len(known) > least and [name for name, one in known.items() if not one] == []


@pytest.mark.parametrize(
    ("name", "node", "category", "kind", "family"),
    [
        ("Convolution (NHWC, F16) IGEMM #1", "", Category.CONV, "convolution", "F16"),
        ("Convolution (NHWC, PF16) IGEMM #1", "Conv2d", Category.CONV, "convolution", "PF16"),
        ("Convolution (NHWC, PQS8, QS8, QC8W) IGEMM #1", "", Category.CONV, "convolution", "PQS8, QS8, QC8W"),
        ("Fully Connected (NC, F16) GEMM #3", "Conv2d", Category.CONV, "pointwise convolution", "F16"),
        ("Fully Connected (NC, F16) GEMM #3", "FullyConnected", Category.GEMM, "linear", "F16"),
        ("Batch Matrix Multiply (NC, F32) #1", "", Category.GEMM, "matmul", "F32"),
        ("Transpose (ND, X32) #2", "", Category.DATA_MOVEMENT, "transpose", "X32"),
        ("Copy (NC, X32) #1", "Concatenate2", Category.DATA_MOVEMENT, "concatenate", "X32"),
        ("Convert (NC, F32, QD8) #1", "", Category.DATA_MOVEMENT, "convert", "F32, QD8"),
        ("Convert (NC, F32, QS8) #1", ">Convert", Category.DATA_MOVEMENT, "quantize", "F32, QS8"),
        ("Convert (NC, QS8, F32) #1", "Convert>", Category.DATA_MOVEMENT, "dequantize", "QS8, F32"),
        ("Pack LH (X16) #1", "Conv2d", Category.DATA_MOVEMENT, "pack", "X16"),
        ("Invalid Unary Op #3", "", Category.ELEMENTWISE, "unary", ""),
        ("Invalid Unary Op #3", "Hardswish", Category.ELEMENTWISE, "activation", ""),
        ("Add (ND) #1", "", Category.ELEMENTWISE, "binary", ""),
        ("Mean (ND) Reduce2 #1", "", Category.OTHER, "reduction", ""),
        ("native_call_convolution.out", "", Category.CONV, "convolution", ""),
        ("native_call__to_dim_order_copy.out", "", Category.DATA_MOVEMENT, "copy", ""),
        ("aten::addmm.out", "", Category.GEMM, "linear", ""),
        ("aten_convolution_default", "", Category.CONV, "convolution", ""),
    ],
)
def test_names_from_real_dumps(name: str, node: str, category: Category, kind: str, family: str) -> None:
    found = describe(name, "XnnpackBackend", graph(node)[0] if node else None)
    assert (found.category, found.kind, found.family) == (category, kind, family) and found.known


def test_a_label_tells_packing_and_types_and_an_unknown_name_is_other() -> None:
    packed = ("PF16", "PF32", "PQS8, QC8W", "QP8, F32, QC4W")
    own = ("F16", "F32", "QS8, QC8W", "QD8, F32, QC8W")
    assert all(describe(f"Fully Connected (NC, {family})").packed for family in packed)
    assert not any(describe(f"Fully Connected (NC, {family})").packed for family in own)
    (convolution,), (addition,) = graph("Conv2d"), graph("Add")
    label = "Convolution (NHWC, PF16) IGEMM #1"
    assert describe(label, "XnnpackBackend", convolution).dtype == "fp16"
    assert describe(label, "XnnpackBackend", addition).dtype == describe(label).dtype == ""
    assert describe("Pack LH (X16) #1", "XnnpackBackend", convolution).dtype == ""
    for name in ("my_npu_fused_block_7", "Frobnicate (NC, F32) #1", "", "OPERATOR_CALL"):
        found = describe(name)
        assert found.category is Category.OTHER and not found.known
    names = ("Transpose (ND, X32) #12", "native_call_add.out", "weird #name")
    types = ["Transpose (ND, X32)", "native_call_add.out", "weird #name"]
    assert [operator_type(name) for name in names] == types, "without its counter"
