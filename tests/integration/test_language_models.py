"""Programs with a method for the prompt and one for a token: exported, run, and compared with PyTorch."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from said import refused

from model_profiling.config.settings import Inputs
from model_profiling.core.errors import ExportError, InputError
from model_profiling.export import export_model
from model_profiling.export.accuracy import quietly
from model_profiling.export.catalogue import CACHE, CACHE_OPERATORS
from model_profiling.export.outside import VARYING
from model_profiling.export.records import read_export
from model_profiling.models.catalog import file_name_of, load_model
from model_profiling.models.transformers_folder import TransformersModel
from model_profiling.program.language import smaller_weights
from model_profiling.program.pte import read_program
from model_profiling.runs.feeding import feed

TWO_METHODS = f"{Path(__file__).parents[1] / 'models' / 'two_methods.py'}:TwoMethods"
TINY = "tiny_llama@layers=1,prompt=16,context=32"


@pytest.mark.parametrize(
    "dtype",
    [*(pytest.param(each, marks=pytest.mark.quick) for each in ("fp32", "int8-dynamic")), "fp16", "int4"],
)
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

    # Traced for up to 17 tokens, a prime number; without a length the 16 that were asked for are run.
    usual, most = (feed(made.pte, "prefill", Inputs(sizes=each)) for each in ({}, {"tokens": [1, 17]}))
    assert (usual.tokens, usual.sizes, usual.lengths) == (16, ((0, (1, 16)),), {17: 16})
    assert (most.tokens, most.sizes) == (17, ())

    record = json.loads(made.summary.read_text())
    assert [each["name"] for each in record["methods"]] == ["prefill", "decode"]
    assert list(record["methods"][0]["inputs"]) == ["tokens", "input_pos"]
    reshapes = {
        each["method"]
        for each in record["coverage"]["undelegated"]
        if each["operator"] == "aten.view_copy.default" and each["reason"] == VARYING
    }
    written = [each for each in record["coverage"]["undelegated"] if "index_put" in each["operator"]]
    assert len(written) == 4 and all(each["instruction"] >= 0 for each in written), "now in place"
    assert reshapes == {"prefill"}  # nodes of both methods have the same names, but reasons of their own


@pytest.mark.parametrize("dtype", ["fp16", "int8-dynamic", "int4"])
def test_a_language_model_in_every_format(dtype: str, exported) -> None:
    made = read_export(exported(TINY, dtype).pte)
    assert made.accuracy.ok, made.accuracy
    tokens = torch.randint(0, 512, (1, 12))
    whole = _scores(made.pte, tokens, [("prefill", 12)])
    pieces = _scores(made.pte, tokens, [("prefill", 11), ("decode", 1)])
    assert torch.nn.functional.cosine_similarity(whole.float(), pieces.float()).item() > 0.99

    smaller = {"fp16": ["int8-dynamic", "int4"], "int8-dynamic": ["int4"], "int4": []}
    assert list(smaller_weights(read_program(made.pte).method("decode"))) == smaller[dtype]


def test_one_method_takes_prompts_and_tokens_also_in_executorchs_own_runner(exported, tmp_path) -> None:
    made = exported(f"{TINY},methods=1")
    tokens = torch.randint(0, 512, (1, 12))
    whole = _scores(made.pte, tokens, [("forward", 12)])
    assert torch.allclose(_scores(made.pte, tokens, [("forward", 11), ("forward", 1)]), whole, atol=1e-5)

    from executorch.extension.llm.runner import GenerationConfig, TextLLMRunner
    from tokenizers import Tokenizer, models, pre_tokenizers

    # A token for each letter; the others only come out.
    words = ["<unk>", "<s>", "</s>", *map(chr, range(ord("a"), ord("z") + 1))]
    words += [f"<{number}>" for number in range(len(words), 512)]
    tokenizer = Tokenizer(models.BPE({word: number for number, word in enumerate(words)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    settings = GenerationConfig()
    settings.max_new_tokens, settings.temperature, settings.echo = 4, 0.0, False
    said: list[str] = []
    with quietly():
        runner = TextLLMRunner(str(made.pte), str(tmp_path / "tokenizer.json"))
        runner.generate("hello", settings, said.append)

    model, known = _eager(TINY), [words.index(letter) for letter in "hello"]
    with quietly(), torch.no_grad():
        for _ in range(4):
            known.append(int(model(torch.tensor([known]), torch.tensor([0])).argmax()))
    assert said == [words[token] for token in known[5:]]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("tiny_llama@prompt=256", "a prompt of 256 tokens does not fit a cache for 128"),
        ("tiny_llama@methods=3", "no layout with 3 methods"),
    ],
)
def test_options_that_do_not_fit_are_refused(spec: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        export_model(spec, outdir=tmp_path)


CONFIGS = {
    "llama": {"model_type": "llama", "max_position_embeddings": 64},
    "qwen2": {"model_type": "qwen2", "max_position_embeddings": 64},
    "mistral": {"model_type": "mistral", "max_position_embeddings": 64, "sliding_window": 8},
}
SMALL = {
    "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 96, "bos_token_id": 1, "eos_token_id": [2, 3],
}  # fmt: skip


def _folder(place: Path, kind: str, layers: int = 3) -> Path:
    folder = place / f"my-{kind}.v1"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**SMALL, **CONFIGS[kind], "num_hidden_layers": layers}))
    return folder


@pytest.mark.quick
def test_a_transformers_folder_is_a_model_with_options(tmp_path: Path) -> None:
    folder = _folder(tmp_path, "llama")
    assert file_name_of(str(folder)) == "my_llama_v1"
    assert file_name_of(f"{folder}@layers=3,context=64") == "my_llama_v1"  # its own sizes
    model = load_model(f"{folder}@layers=1,context=32").model
    assert isinstance(model, TransformersModel)
    assert (model.context, model.prompt, model.layers) == (32, 16, 1)
    length = model.get_dynamic_shapes()[0][1]
    assert length.max == 17  # divides no other size: shapes at other lengths can be told
    with pytest.raises(InputError, match="'my_llama_v1' has no option 'layer'"):
        load_model(f"{folder}@layer=1")
    if sys.version_info >= (3, 11):  # transformers is here
        (folder / "config.json").write_text('{"model_type": "t5", "num_hidden_layers": 1}')
        with pytest.raises(
            InputError, match=r"is an encoder with a decoder.*; any other model needs a factory"
        ):
            load_model(str(folder)).model.get_eager_model()
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty has no config.json; give the folder of a transformers"):
        load_model(str(tmp_path / "empty"))


@pytest.mark.quick
def test_without_transformers_the_error_says_what_to_install(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"needs the Python package 'transformers'.* pip install"):
        export_model(str(_folder(tmp_path, "llama")), outdir=tmp_path)


class Trap:
    """Unpickled, it would leave a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.mark),)


def test_pickles_in_inputs_are_not_run(tmp_path: Path) -> None:
    inputs, mark = tmp_path / "inputs.npz", tmp_path / "ran"
    np.savez(inputs, np.array([Trap(mark)], object))
    with refused(InputError, inputs, "cannot be read"):
        export_model("toy_cnn", dtype="int8", calibration=str(inputs), outdir=tmp_path)
    assert not mark.exists()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="transformers needs Python 3.11")
def test_code_in_a_transformers_folder_is_not_run(tmp_path: Path, monkeypatch) -> None:
    folder = _folder(tmp_path, "llama")
    code = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    (folder / "config.json").write_text(json.dumps({**SMALL, "model_type": "evil", "auto_map": code}))
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.setattr("builtins.input", lambda _: "y")
    with pytest.raises(InputError, match=r"custom code .*needs a factory"):
        export_model(str(folder), outdir=tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="transformers needs Python 3.11")
@pytest.mark.parametrize(
    ("kind", "dtype", "saved"), [("llama", "fp16", False), ("qwen2", "int8-dynamic", True)]
)
def test_a_transformers_model_from_its_config_or_its_weights(
    kind: str, dtype: str, saved: bool, tmp_path: Path
) -> None:
    import transformers

    folder = _folder(tmp_path, kind, layers=1 if saved else 3)
    config = transformers.AutoConfig.from_pretrained(folder, num_hidden_layers=1)
    torch.manual_seed(1 if saved else 0)
    with quietly():
        plain = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        if saved:
            plain.save_pretrained(folder)
            assert (folder / "model.safetensors").is_file()
        made = export_model(f"{folder}@layers=1,prompt=16,context=32", dtype=dtype, outdir=tmp_path)
    assert made.accuracy.ok, made.accuracy
    tokens = torch.randint(0, 96, (1, 12))
    with torch.no_grad():
        expected = plain(tokens, use_cache=False).logits[:, -1]
    scores = _scores(made.pte, tokens, [("prefill", 9), ("decode", 1), ("prefill", 2)]).float()
    assert torch.nn.functional.cosine_similarity(scores, expected).item() > 0.999


@pytest.mark.parametrize(
    "own",
    [True, pytest.param(False, marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="transformers"))],
)
def test_a_cache_in_place_gives_the_same_scores_without_copies_of_it(tmp_path: Path, own: bool) -> None:
    named = "tiny_llama" if own else _folder(tmp_path, "llama", layers=1)
    spec = f"{named}@layers=1,prompt=16,context=32"
    plain, placed = (
        export_model(spec, outdir=tmp_path / word, optimize=names)
        for word, names in (("plain", ()), ("placed", (CACHE,)))
    )
    assert placed.accuracy.ok and placed.rewritten == {CACHE: 2}, "in both methods"
    assert (
        placed.rewrites[0].module
        == f"model.{'layers.0.attention.SDPA' if own else 'model.layers.0.self_attn'}"
    )
    decode = read_program(placed.pte).method("decode")
    (cache, _) = (state.tensor for state in decode.state)
    writing = {step.name for step in decode.operators for each in step.outputs if each.nbytes >= cache.nbytes}
    assert writing <= set(CACHE_OPERATORS) <= {step.name for step in decode.operators}
    tokens, pieces = torch.randint(0, 96, (1, 12)), [("prefill", 9), ("decode", 1), ("prefill", 2)]
    torch.testing.assert_close(*(_scores(each.pte, tokens, pieces) for each in (plain, placed)))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="transformers needs Python 3.11")
def test_attention_with_a_window_has_no_cache_in_place(tmp_path: Path) -> None:
    windowed = f"{_folder(tmp_path, 'mistral', layers=1)}@prompt=16,context=32"
    with pytest.raises(ExportError, match="window"):
        export_model(windowed, outdir=tmp_path, optimize=(CACHE,))
