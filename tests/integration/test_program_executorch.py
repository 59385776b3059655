"""Programs and records as exported today: read as ExecuTorch reads them, and tied to real events."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Artifact

from model_profiling.core import process
from model_profiling.etdump import read_etdump
from model_profiling.program.delegates import delegate_named, protocol
from model_profiling.program.etrecord import read_etrecord
from model_profiling.program.pte import read_program
from model_profiling.program.records import GraphNode
from model_profiling.targets import Job
from model_profiling.targets.host import HostTarget

VIEW = Path(__file__).with_name("executorch_view.py")
MODELS = [("toy_cnn", "int8"), ("toy_cnn", "fp32"), ("mobilenet_v3_small", "fp16")]
OTHERS = Path(__file__).resolve().parents[1] / "models"
SEVERAL = """
import torch
from torch import nn
from torch.nn import functional


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.group = nn.LayerNorm(8), nn.GroupNorm(2, 8)

    def forward(self, rows, image):
        pooled = functional.max_pool2d(image, 3, 2, 1, return_indices=True)
        mean = functional.avg_pool2d(image, (2, 4))
        adapted = functional.adaptive_avg_pool2d(image, 4)
        normal = self.layer(rows), self.group(image), rows.cumsum(1)
        return *torch.topk(rows, 3), *torch.max(rows, 1), *rows.split(2), *pooled, mean, adapted, *normal


def several():
    return Several().eval(), (torch.randn(4, 8), torch.randn(1, 8, 64, 64))
"""


@pytest.fixture(scope="module")
def views(warm_words: list[str], exported) -> dict[tuple[str, str], dict[str, list[dict[str, object]]]]:
    """Each program as ExecuTorch's own readers show it."""
    words = {case: str(exported(*case).pte) for case in MODELS}
    done = process.run([*warm_words, VIEW, "programs", *words.values()], timeout=300)
    assert done.ok, done.tail(30)
    seen = json.loads(done.stdout)
    return {case: seen[word] for case, word in words.items()}


CUSTOM = [
    "llama::channelwise_gated_delta_rule.out", "llama::custom_quantized_sdpa.out", "llama::custom_sdpa.out",
    "llama::fallback.out", "llama::fast_hadamard_transform.out", "llama::gated_delta_rule.out",
    "llama::quantized_moe_ffn.out", "llama::sdpa_with_kv_cache.out", "llama::update_cache.out",
    "llama::update_cache_with_indices.out", "preprocess::tile_crop.out",
]  # fmt: skip
"""What the wheel's library of custom operators adds."""


def test_every_operator_of_the_installed_executorch_has_a_category() -> None:
    from executorch.extension.pybindings import portable_lib  # loads torch

    names = portable_lib._get_operator_names()
    assert {"aten::_local_scalar_dense", "executorch_prim::et_copy_index.tensor"} < {*names}
    names += CUSTOM  # registered with the others once a test has loaded their library
    assert not [name for name in names if not protocol.describe(name).known]


@pytest.mark.parametrize("case", MODELS)
def test_every_node_is_what_executorchs_schema_says(case, exported, views) -> None:
    method = read_program(exported(*case).pte).methods[0]
    view = views[case]
    assert [step.name for step in method.operators] == view["operators"]
    assert len(method.delegates) == len(view["graphs"]) > 0
    for delegate, graph in zip(method.delegates, view["graphs"], strict=True):
        values = dict(map(_value, graph["xvalues"]))
        assert len(delegate.nodes) == len(graph["xnodes"])
        for node, theirs in zip(delegate.nodes, graph["xnodes"], strict=True):
            _compare(node, theirs, values)


def _value(entry: dict) -> tuple[int, dict]:
    content = entry["xvalue_union"]
    content = content.get("tensor_value", content)
    return content["id_out"], content


def _compare(node: GraphNode, theirs: dict, values: dict[int, dict]) -> None:
    content = theirs["xnode_union"]
    assert f"XNN{node.kind}" == theirs["xnode_union_type"]
    assert node.debug_handle == theirs["debug_handle"]
    named = {key: number for key, number in content.items() if key.endswith("_id") and number in values}
    outputs = [number for key, number in named.items() if key.startswith("output")]
    assert list(node.output_ids) == outputs
    assert sorted(node.input_ids) == sorted(n for key, n in named.items() if not key.startswith("output"))
    numbers, tensors = (*node.input_ids, *node.output_ids), (*node.inputs, *node.outputs)
    for number, tensor in zip(numbers, tensors, strict=True):
        assert list(tensor.shape) == values[number].get("dims", [])
        assert f"xnn_datatype_{tensor.dtype}" == values[number]["datatype"]
        assert tensor.constant == (values[number]["constant_buffer_idx"] > 0)
    if node.window is not None and "kernel_height" in content:
        assert node.window.kernel == (content["kernel_height"], content["kernel_width"])
        assert node.window.stride == (content["subsampling_height"], content["subsampling_width"])
        assert node.window.groups == content["groups"]
        sides = ("top", "right", "bottom", "left")
        assert node.window.padding == tuple(content[f"padding_{side}"] for side in sides)
    limits = theirs.get("output_min_max")
    ends = [limits["output_min"], limits["output_max"]] if limits else []
    limited = tuple(end if math.isfinite(end) else None for end in ends)
    assert node.clamp == (limited if any(end is not None for end in limited) else None)
    assert list(node.permutation) == content.get("perm", [])


@pytest.mark.parametrize("model", ["unseen.py:unet", "operators.py:operators"])
def test_other_architectures_align_too(model: str, exported, host: HostTarget, tmp_path: Path) -> None:
    """Each event of a delegate stands for nodes, and every node has its event."""
    pte = exported(f"{OTHERS / model}").pte
    dump = host.execute(Job(pte, runs=1, warmup=1, etdump=True), tmp_path, "aligned").etdump
    table, method = read_etdump(dump), read_program(pte).methods[0]
    for call in method.instructions:
        if call.kind == "delegate":
            own = table.is_delegated & (table.instruction_id == call.instruction_id)
            names, nodes = table.text(table.name[own]), method.delegates[call.delegate].nodes
            matches = delegate_named(call.name).align(nodes, list(names))
            assert matches and all(matches)
            assert sum(len(members) for members in matches) == len(nodes)


def test_operators_with_several_outputs_count_each_tensor_once(exported, tmp_path: Path) -> None:
    """As torch's schemas have them: what is returned is no input, and what is written is written once."""
    # Programs are kept by the file's name, so it changes with the model.
    file = tmp_path / f"several_{hashlib.sha256(SEVERAL.encode()).hexdigest()[:8]}.py"
    file.write_text(SEVERAL)
    method = read_program(exported(f"{file}:several", backend="portable").pte).methods[0]
    rows, image, channels, index = 4 * 8 * 4, 8 * 64 * 64 * 4, 8 * 4, 8
    expected = {
        "aten::topk.values": ([(4, 8)], [(4, 3)] * 2, 32, rows + 12 * (4 + index)),
        "aten::max.dim_max": ([(4, 8)], [(4,)] * 2, 32, rows + 4 * (4 + index)),
        "aten::split_with_sizes_copy.out": ([(4, 8)], [(2, 8)] * 2, 0, 2 * rows),
        "aten::max_pool2d_with_indices.out": (
            [(1, 8, 64, 64)], [(1, 8, 32, 32)] * 2, 8 * 32 * 32 * 9, image + 8 * 32 * 32 * (4 + index),
        ),
        "aten::avg_pool2d.out": ([(1, 8, 64, 64)], [(1, 8, 32, 16)], 8 * 32 * 16 * 8, image + image // 8),
        "aten::_adaptive_avg_pool2d.out": ([(1, 8, 64, 64)], [(1, 8, 4, 4)], 32_768, image + 8 * 16 * 4),
        "aten::native_layer_norm.out": ([(4, 8), (8,), (8,)], [(4, 8), (4, 1), (4, 1)], 32, 352),
        "aten::native_group_norm.out": (
            [(1, 8, 64, 64), (8,), (8,)], [(1, 8, 64, 64), (1, 2), (1, 2)],
            32_768, 2 * image + 2 * channels + 2 * 2 * 4,
        ),
        "aten::cumsum.out": ([(4, 8)], [(4, 8)], 32, 2 * rows),
    }  # fmt: skip
    assert {step.name for step in method.operators} == set(expected)
    for step in method.operators:
        inputs, outputs = ([tensor.shape for tensor in side] for side in (step.inputs, step.outputs))
        assert (inputs, outputs, step.flops, step.bytes_moved) == expected[step.name], step.name


def test_the_shapes_of_the_record_are_those_of_the_program(exported: Callable[..., Artifact]) -> None:
    artifact = exported("toy_cnn", "fp32")
    record = read_etrecord(artifact.etrecord)
    for node in read_program(artifact.pte).methods[0].delegates[0].nodes:
        if node.inserted:
            continue
        source = record.ref("forward", node.debug_handle)
        assert source is not None
        assert math.prod(source.shape) == node.outputs[0].elements
        assert source.dtype == node.outputs[0].dtype
