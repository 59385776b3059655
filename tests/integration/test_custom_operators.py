"""ExecuTorch's custom operators for language models: run on this machine from its own library."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import numpy as np
import pytest
from said import says

from model_profiling.analysis.causes.language import layers_in
from model_profiling.config.settings import Inputs
from model_profiling.core import process
from model_profiling.pipeline.feeding import feed
from model_profiling.program.category import Category
from model_profiling.targets import Job, TargetChoice
from model_profiling.targets.collect import missing_operators
from model_profiling.workflow.profile import ProfileOptions, profile_one

# The same small Transformer twice: with attention from plain operators, and with ExecuTorch's custom ones.
EXPORT = """
import sys
import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.examples.models.llama.llama_transformer import construct_transformer
from executorch.examples.models.llama.model_args import ModelArgs
from executorch.examples.models.llama.source_transformation.custom_kv_cache import (
    replace_kv_cache_with_custom_kv_cache,
)
from executorch.examples.models.llama.source_transformation.sdpa import replace_sdpa_with_custom_op
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

class Called(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens, input_pos):
        return self.model(tokens, {"input_pos": input_pos})

sizes = dict(dim=64, n_layers=1, n_heads=2, n_kv_heads=1, vocab_size=64, hidden_dim=96)
facts = {"get_max_context_len": 32, "get_vocab_size": 64, "use_kv_cache": True}
for path, custom in ((sys.argv[1], False), (sys.argv[2], True)):
    torch.manual_seed(0)
    arguments = ModelArgs(
        **sizes, max_seq_len=32, max_context_len=32, use_kv_cache=True, enable_dynamic_shape=True
    )
    model = construct_transformer(arguments).eval().requires_grad_(False)
    if custom:
        model = replace_sdpa_with_custom_op(replace_kv_cache_with_custom_kv_cache(model))
    lengths = ({1: torch.export.Dim("length", max=31)}, {})
    inputs = (torch.ones(1, 3, dtype=torch.long), torch.tensor([0]))
    program = torch.export.export(Called(model), inputs, dynamic_shapes=lengths, strict=False)
    lowered = to_edge_transform_and_lower(
        program,
        partitioner=[XnnpackPartitioner()],
        constant_methods=facts,
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    open(path, "wb").write(lowered.to_executorch().buffer)
"""


pytestmark = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_ENABLE_SHARED"), reason="this Python has no shared library"
)


@pytest.fixture(scope="module")
def both(warm_words: list[str], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("custom")
    (folder / "export.py").write_text(EXPORT)
    plain, custom = folder / "plain.pte", folder / "custom.pte"
    made = process.run([*warm_words, folder / "export.py", plain, custom], timeout=300)
    assert custom.is_file(), made.tail(20)
    return plain, custom


def test_custom_operators_run_here_and_give_the_same_scores(both, host, tmp_path) -> None:
    scores = {}
    for pte in both:
        wanted = {"llama::custom_sdpa.out", "llama::update_cache.out"} if pte.stem == "custom" else set()
        libraries = host.libraries_with(wanted) if wanted else ()
        assert bool(libraries) == bool(wanted)
        fed = feed(pte, "forward", Inputs(sizes={"tokens": (1, 7)}, values={"input_pos": (3.0,)}))
        job = Job(
            pte, sizes=fed.sizes, values=fed.values, state=fed.state, libraries=libraries, save_outputs=True
        )
        done = host.execute(job, tmp_path / pte.stem, "process")
        scores[pte.stem] = np.fromfile(done.outputs[0], np.float32)
    np.testing.assert_allclose(scores["custom"], scores["plain"], atol=1e-4)
    assert not host.libraries_with({"llama::no_such.out"})


def test_a_run_with_custom_operators_says_what_they_cost(both, tmp_path) -> None:
    options = ProfileOptions(target=TargetChoice("host"), quick=True, budget_s=1, outdir=tmp_path)
    outcome = profile_one(str(both[1]), options)
    says(" ".join(map(str, outcome.warnings)), "library for PyTorch", "peak memory include that")
    assert outcome.analysis is not None
    assert {each.category.value for each in outcome.main.data.analysis.series[0].operators} >= {"GEMM"}

    # Attention is found by what reads the cache, whatever it is made of.
    custom = layers_in(outcome.main.data.analysis.series[0])
    plain = layers_in(profile_one(str(both[0]), options).main.data.analysis.series[0])
    assert [each.kind for each in custom.attention] == ["attention"]
    assert [each.kind for each in plain.attention if each.category is Category.GEMM] == ["matmul"] * 2
    assert "softmax" in {each.kind for each in plain.attention}
    assert {each.kind for each, _ in plain.copies} > {each.kind for each, _ in custom.copies} == {"transpose"}
    for layers in (custom, plain):
        assert layers.embedding and layers.score_bytes == 64 * 64 * 4 and layers.score_rows == 1


def test_where_they_cannot_run_the_error_names_them_and_the_cure() -> None:
    problem, fix = missing_operators(["llama::custom_sdpa.out"])
    says(f"{problem}; {fix}", "llama::custom_sdpa.out", "use_sdpa_with_kv_cache=False")
