"""ExecuTorch's custom operators for language models: run on this machine from its own library."""

from __future__ import annotations

import json
import sysconfig

import numpy as np
import pytest
from conftest import ROOT
from said import says

from model_profiling.analysis.causes.matrix import cache_copies
from model_profiling.analysis.findings import SeriesCase
from model_profiling.config.settings import Inputs
from model_profiling.core import process
from model_profiling.program.pte import read_program
from model_profiling.runs.feeding import feed
from model_profiling.targets import Job, TargetChoice
from model_profiling.workflow.language import profile_language
from model_profiling.workflow.profile import ProfileOptions, profile_one

# The same model twice: with attention from plain operators, and with ExecuTorch's custom ones.
PLAIN = "tiny_llama@layers=1,prompt=16,context=32"
CUSTOM = f"{ROOT}/tests/models/custom_llama.py:small"
WANTED = {"llama::custom_sdpa.out", "llama::update_cache.out"}

pytestmark = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_ENABLE_SHARED"), reason="this Python has no shared library"
)


def test_custom_operators_run_here_and_give_the_same_scores(exported, host, tmp_path) -> None:
    scores = []
    for spec, wanted in ((PLAIN, set()), (CUSTOM, WANTED)):
        pte = exported(spec).pte
        (method,) = (each for each in read_program(pte).methods if each.name == "prefill")
        assert {step.name for step in method.operators if step.name.startswith("llama::")} == wanted
        libraries = host.libraries_with(wanted) if wanted else ()
        assert bool(libraries) == bool(wanted)
        fed = feed(pte, "prefill", Inputs(sizes={"tokens": (1, 7)}, values={"input_pos": (3.0,)}))
        given = {"sizes": fed.sizes, "values": fed.values, "state": fed.state}
        job = Job(pte, method="prefill", libraries=libraries, save_outputs=True, **given)
        done = host.execute(job, tmp_path / pte.stem, "process")
        scores.append(np.fromfile(done.result.outputs[0].file, np.float32))
    np.testing.assert_allclose(*scores, atol=1e-4)
    assert not host.libraries_with({"llama::no_such.out"})


def test_a_run_with_custom_operators_says_what_they_cost(exported, tmp_path) -> None:
    options = ProfileOptions(
        target=TargetChoice("host"), method="prefill", quick=True, budget_s=1, outdir=tmp_path
    )
    outcome = profile_one(str(exported(CUSTOM).pte), options)
    says(" ".join(map(str, outcome.warnings)), "library for PyTorch", "peak memory include that")
    assert outcome.analysis is not None
    assert {each.category.value for each in outcome.main.data.analysis.series[0].operators} >= {"GEMM"}

    # Attention is known by what reads the cache, whatever it is made of.
    custom = outcome.main.data.analysis.series[0]
    plain = profile_one(str(exported(PLAIN).pte), options).main.data.analysis.series[0]
    # By their bytes: the cache of so small a model takes less time than a busy machine's noise.
    cases = [SeriesCase(series, about_time=False) for series in (plain, custom)]
    copies = [finding for case in cases if (finding := cache_copies(case, case.series.operators))]
    kinds = [{operator.kind for operator in finding.operators} for finding in copies]
    assert kinds[0] > kinds[1] == {"transpose"}
    says(copies[0].action, "custom_sdpa")
    says(copies[1].action, "order of dimensions")


@pytest.mark.parametrize("custom", [False, True])
def test_a_program_of_export_llm_is_profiled_as_a_language_model(custom, warm_words, tmp_path) -> None:
    sizes = {"dim": 64, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1, "vocab_size": 64, "hidden_dim": 96}
    (tmp_path / "params.json").write_text(json.dumps(sizes))
    words = [
        "base.model_class=llama3", "base.params=params.json", "model.use_kv_cache=True",
        f"model.use_sdpa_with_kv_cache={custom}", "export.max_seq_length=32", "export.max_context_length=32",
        "export.output_name=made.pte", "backend.xnnpack.enabled=True",
    ]  # fmt: skip
    exporting = [*warm_words, "-m", "executorch.extension.llm.export.export_llm", *words]
    made = process.run(exporting, cwd=tmp_path, timeout=500)
    pte = tmp_path / "made.pte"
    assert pte.is_file(), made.tail(20)
    forward = read_program(pte).method("forward")
    assert forward and ({step.name for step in forward.operators} >= WANTED) == custom
    options = ProfileOptions(target=TargetChoice("host"), quick=True, budget_s=1, outdir=tmp_path / "out")
    done = profile_language(str(pte), options, prompts=[8], positions=[16])
    phases = [(case.phase, case.tokens, case.position) for case in done.language.cases]
    assert phases == [("prompt", 8, 0), ("answer", 1, 16)]
    assert all(case.latencies for case in done.language.cases)
