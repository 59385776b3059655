"""Programs with a method for the prompt and one for a token: exported, run, and compared with PyTorch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from model_profiling.core.errors import InputError
from model_profiling.export import export_model
from model_profiling.export.accuracy import quietly
from model_profiling.export.records import read_export
from model_profiling.models.catalog import load_model

TWO_METHODS = f"{Path(__file__).parents[1] / 'models' / 'two_methods.py'}:TwoMethods"
TINY = "tiny_llama@layers=1,prompt=16,context=32"


@pytest.mark.quick
@pytest.mark.parametrize("dtype", ["fp32", "fp16", "int8-dynamic", "int4"])
def test_methods_share_what_the_model_writes(dtype: str, exported) -> None:
    """The export runs both in turn, so that equal outputs mean a shared buffer."""
    from executorch.runtime import Runtime

    made = read_export(exported(TWO_METHODS, dtype).pte)
    assert made.accuracy.ok, made.accuracy
    given = "float16" if dtype == "fp16" else "float32"
    assert [(each.name, each.inputs) for each in made.methods] == [
        ("write", {"x": f"8x32 {given}"}),
        ("read", {"x": f"1x32 {given}"}),
    ]
    program = Runtime.get().load_program(made.pte)
    ends = program.load_method("get_ends").execute([])
    assert program.load_method("get_width").execute([]) == [32] and ends == [3, 5]
    read, x = program.load_method("read"), torch.ones(1, 32, dtype=getattr(torch, given))
    fresh = read.execute([x])[0].clone()
    write, read = program.load_method("write"), program.load_method("read")
    for rows in (3, 16):
        write.execute([x.expand(rows, 32).contiguous()])
    assert not torch.allclose(read.execute([x])[0], fresh, atol=1e-3)


def _scores(pte: Path, tokens: torch.Tensor, pieces: list[tuple[str, int]]) -> torch.Tensor:
    """The scores after all tokens, given to the program in pieces."""
    from executorch.runtime import Runtime

    with quietly():
        program = Runtime.get().load_program(pte)
        loaded = {method: program.load_method(method) for method, _ in pieces}
        at = 0
        for method, length in pieces:
            part = tokens[:, at : at + length].contiguous()
            scores = loaded[method].execute([part, torch.tensor([at])])[0].clone()
            at += length
    assert at == tokens.shape[1]
    return scores


def _eager(spec: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return load_model(spec).model.get_eager_model().eval()


@pytest.mark.quick
def test_prompts_of_any_length_and_tokens_after_them_give_the_scores_of_pytorch(exported) -> None:
    made = exported(TINY)
    tokens = torch.randint(0, 512, (1, 12))
    with quietly(), torch.no_grad():
        expected = _eager(TINY)(tokens, torch.tensor([0]))
    for pieces in ([("prefill", 12)], [("prefill", 9), ("prefill", 2), ("decode", 1)], [("decode", 1)] * 12):
        assert torch.allclose(_scores(made.pte, tokens, pieces), expected, atol=1e-5)

    record = json.loads(made.summary.read_text())
    assert [each["name"] for each in record["methods"]] == ["prefill", "decode"]
    assert list(record["methods"][0]["inputs"]) == ["tokens", "input_pos"]
    outside = {
        method: {(each["operator"], each["reason"]) for each in record["coverage"]["undelegated"]}
        for method in ("prefill", "decode")
        for each in record["coverage"]["undelegated"]
        if each["method"] == method
    }
    assert all(outside.values())


@pytest.mark.parametrize("dtype", ["fp16", "int8-dynamic", "int4"])
def test_a_language_model_in_every_format(dtype: str, exported) -> None:
    made = read_export(exported(TINY, dtype).pte)
    assert made.accuracy.ok, made.accuracy
    tokens = torch.randint(0, 512, (1, 12))
    whole = _scores(made.pte, tokens, [("prefill", 12)])
    pieces = _scores(made.pte, tokens, [("prefill", 11), ("decode", 1)])
    assert torch.nn.functional.cosine_similarity(whole.float(), pieces.float()).item() > 0.99


def test_one_method_takes_prompts_and_tokens(exported) -> None:
    made = exported(f"{TINY},methods=1")
    tokens = torch.randint(0, 512, (1, 12))
    whole = _scores(made.pte, tokens, [("forward", 12)])
    assert torch.allclose(_scores(made.pte, tokens, [("forward", 11), ("forward", 1)]), whole, atol=1e-5)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("tiny_llama@prompt=256", "a prompt of 256 tokens does not fit a cache for 128"),
        ("tiny_llama@methods=3", "no layout with 3 methods"),
        ("smollm2@checkpoint=missing.pth", "there is no file missing.pth"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        export_model(spec, outdir=tmp_path)
