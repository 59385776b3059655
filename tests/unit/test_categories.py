"""The tables of categories against the names that the installed ExecuTorch can really write into a dump."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest
from strategies import graph

from model_profiling.program.category import Category, operator_type
from model_profiling.program.delegates import describe


def _library(name: str) -> bytes:
    found = importlib.util.find_spec("executorch")
    assert found is not None and found.submodule_search_locations
    folder = Path(next(iter(found.submodule_search_locations))) / "lib"
    return next(folder.glob(f"lib{name}.*")).read_bytes()


def test_every_operator_type_in_the_xnnpack_library_is_known() -> None:
    strings = re.findall(rb"[A-Z][A-Za-z0-9 ]+ \([A-Z0-9, ]+\)(?=\0)", _library("executorch_backend_xnnpack"))
    names = {text.decode() for text in strings}
    assert len(names) > 150
    assert sorted(name for name in names if not describe(name).known) == []


@pytest.mark.parametrize("library", ["executorch_kernels_optimized", "executorch_kernels_quantized"])
def test_every_native_call_in_the_kernel_libraries_is_known(library: str) -> None:
    names = {text.decode() for text in re.findall(rb"native_call_[\w.]+(?=\0)", _library(library))}
    assert len(names) > 10
    assert sorted(name for name in names if not describe(name).known) == []


@pytest.mark.parametrize(
    ("name", "node", "category", "kind", "family"),
    [
        ("Convolution (NHWC, F16) IGEMM #1", "", Category.CONV, "convolution", "F16"),
        ("Convolution (NHWC, PF16) IGEMM #1", "Conv2d", Category.CONV, "convolution", "PF16"),
        ("Convolution (NHWC, QC8) DWConv #12", "", Category.CONV, "depthwise convolution", "QC8"),
        ("Convolution (NHWC, PQS8, QS8, QC8W) IGEMM #1", "", Category.CONV, "convolution", "PQS8, QS8, QC8W"),
        ("Fully Connected (NC, QS8, QC8W) GEMM #3", "", Category.GEMM, "linear", "QS8, QC8W"),
        ("Fully Connected (NC, F16) GEMM #3", "Conv2d", Category.CONV, "pointwise convolution", "F16"),
        ("Fully Connected (NC, F16) GEMM #3", "FullyConnected", Category.GEMM, "linear", "F16"),
        ("Batch Matrix Multiply (NC, F32) #1", "", Category.GEMM, "matmul", "F32"),
        ("Transpose (ND, X32) #2", "", Category.DATA_MOVEMENT, "transpose", "X32"),
        ("Copy (NC, X32) #1", "Concatenate2", Category.DATA_MOVEMENT, "concatenate", "X32"),
        ("Static Reshape (NC) #1", "", Category.DATA_MOVEMENT, "reshape", ""),
        ("Convert (NC, F32, QD8) #1", "", Category.DATA_MOVEMENT, "convert", "F32, QD8"),
        ("Convert (NC, F32, QS8) #1", ">Convert", Category.DATA_MOVEMENT, "quantize", "F32, QS8"),
        ("Convert (NC, QS8, F32) #1", "Convert>", Category.DATA_MOVEMENT, "dequantize", "QS8, F32"),
        ("Convert (NC, F32, F16) #1", "Convert", Category.DATA_MOVEMENT, "convert", "F32, F16"),
        ("Pack LH (X16) #1", "Conv2d", Category.DATA_MOVEMENT, "pack", "X16"),
        ("Invalid Unary Op #3", "", Category.ELEMENTWISE, "unary", ""),
        ("Invalid Unary Op #3", "Hardswish", Category.ELEMENTWISE, "activation", ""),
        ("Add (ND) #1", "", Category.ELEMENTWISE, "binary", ""),
        ("Mean (ND) Reduce2 #1", "", Category.OTHER, "reduction", ""),
        ("native_call_convolution.out", "", Category.CONV, "convolution", ""),
        ("native_call__to_dim_order_copy.out", "", Category.DATA_MOVEMENT, "copy", ""),
        ("native_call_quantize_per_tensor.out", "", Category.DATA_MOVEMENT, "quantize", ""),
        ("aten::addmm.out", "", Category.GEMM, "linear", ""),
        ("aten_convolution_default", "", Category.CONV, "convolution", ""),
    ],
)
def test_names_from_real_dumps(name: str, node: str, category: Category, kind: str, family: str) -> None:
    found = describe(name, "XnnpackBackend", graph(node)[0] if node else None)
    assert (found.category, found.kind, found.family) == (category, kind, family)
    assert found.known


def test_a_name_nobody_knows_is_other_and_says_so() -> None:
    for name in ("my_npu_fused_block_7", "Frobnicate (NC, F32) #1", "", "OPERATOR_CALL"):
        found = describe(name)
        assert found.category is Category.OTHER and not found.known


def test_packed_families_are_told_from_xnnpacks_own() -> None:
    packed = ("PF16", "PF32", "PQS8, QC8W", "QP8, F32, QC4W")
    own = ("F16", "F32", "QS8, QC8W", "QD8, F32, QC8W")
    assert all(describe(f"Fully Connected (NC, {family})").packed for family in packed)
    assert not any(describe(f"Fully Connected (NC, {family})").packed for family in own)


def test_a_label_proves_what_a_computing_node_computes_in() -> None:
    (convolution,), (addition,) = graph("Conv2d"), graph("Add")
    label = "Convolution (NHWC, PF16) IGEMM #1"
    assert describe(label, "XnnpackBackend", convolution).dtype == "fp16"
    assert describe(label, "XnnpackBackend", addition).dtype == describe(label).dtype == ""
    assert describe("Pack LH (X16) #1", "XnnpackBackend", convolution).dtype == ""


def test_the_type_is_the_name_without_its_counter() -> None:
    assert operator_type("Transpose (ND, X32) #12") == "Transpose (ND, X32)"
    assert operator_type("native_call_add.out") == "native_call_add.out"
    assert operator_type("weird #name") == "weird #name"
