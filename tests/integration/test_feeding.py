"""What a method is fed: lengths of dynamic inputs, values, positions, and state that does not carry over."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from said import says

from model_profiling import profile, profile_llm
from model_profiling.analysis import findings
from model_profiling.analysis.causes import matrix
from model_profiling.analysis.findings import SeriesCase
from model_profiling.analysis.series import SeriesAnalysis
from model_profiling.cli.main import main
from model_profiling.config import names
from model_profiling.config.settings import Inputs
from model_profiling.core.errors import InputError
from model_profiling.facts import EXPERIMENT_FACTS, MeasuredSeries, row_cells
from model_profiling.program.language import Phase, language_model
from model_profiling.program.pte import lengths_at, read_program
from model_profiling.runs import Run
from model_profiling.runs.feeding import feed
from model_profiling.targets import Job, TargetChoice
from model_profiling.workflow.language import _cases, profile_language
from model_profiling.workflow.profile import ProfileOptions, profile_one
from model_profiling.workflow.python_api import ProfileSettings

# Adds each input to a cache of 16 rows at a position, and multiplies the whole cache: the second execution
# sees what the first one left. The length of the input may vary.
EXPORT = """
from torch.export import Dim

class Caching(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("cache", torch.zeros(16, 8))
        self.embed = nn.Embedding(32, 8)
        self.layer = nn.Linear(8, 24)

    def forward(self, tokens, input_pos):
        rows = torch.arange(tokens.shape[1]) + input_pos
        added = self.cache[rows] + self.embed(tokens)[0]
        self.cache.index_put_((rows,), added)
        return self.layer(added), self.cache.sum(0)

inputs = (torch.zeros(1, 5, dtype=torch.long), torch.tensor([0]))
model, lengths = Caching().eval().requires_grad_(False), {1: Dim("length", max=11)}
program = torch.export.export(model, inputs, dynamic_shapes={"tokens": lengths, "input_pos": {}})
save(program, get_max_context_len=16, get_vocab_size=32, use_kv_cache=True)
"""


@pytest.fixture(scope="module")
def caching(scripted: Callable[..., Path]) -> Path:
    return scripted("caching", EXPORT)


def fed(pte: Path, *, runs: int = 1, state: bool = True, **inputs: object) -> Job:
    found = feed(pte, "forward", Inputs.model_validate(inputs))
    given = {"sizes": found.sizes, "values": found.values, "state": found.state if state else ()}
    return Job(pte, warmup=0, runs=runs, save_outputs=True, **given)


def test_every_execution_starts_from_the_first_state(caching, host, tmp_path) -> None:
    def outputs(name: str, **asked: object) -> list[bytes]:
        done = host.execute(fed(caching, **asked), tmp_path, name)  # type: ignore[arg-type]
        return [output.file.read_bytes() for output in done.result.outputs]

    once = outputs("once")
    assert outputs("often", runs=4) == once
    assert outputs("carried", runs=4, state=False) != once, "without it the cache grows"
    assert outputs("later", values={"input_pos": [3]})[0] == once[0], "another place of an empty cache"


def test_a_length_changes_what_runs_and_the_work_that_is_shown(caching, host, tmp_path) -> None:
    for length in (1, 4, 11):
        done = host.execute(fed(caching, sizes={"tokens": [1, length]}), tmp_path, f"length{length}")
        assert done.result.outputs[0].file.stat().st_size == length * 24 * 4
    method = read_program(caching).method("forward")
    assert method is not None and method.variable == (True, False)
    assert [state.tensor.shape for state in method.state] == [(16, 8)]

    def work(length: int) -> int:
        lengths = lengths_at(method, {0: (1, length)})
        assert lengths is not None
        at_length = read_program(caching, {"forward": lengths}).method("forward")
        assert at_length is not None
        (layer,) = (node for each in at_length.delegates for node in each.nodes if "Fully" in node.kind)
        assert layer.inputs[0].shape == (length, 8) and layer.inputs[1].shape == (24, 8)
        return layer.flops

    assert work(11) == 11 * work(1) > 0


def test_a_program_whose_bound_is_also_another_size_is_not_guessed_at(caching) -> None:
    method = read_program(caching).method("forward")
    assert method is not None
    bound = replace(method, inputs=(replace(method.inputs[0], shape=(1, 8)), method.inputs[1]))
    assert lengths_at(bound, {0: (1, 4)}) is None, "8 is also the width of the layer"


def test_the_position_is_zero_unless_it_is_given(caching) -> None:
    assert feed(caching, "forward", Inputs()).values == ((1, (0.0,)),)
    assert feed(caching, "forward", Inputs(values={"input_pos": (7,)})).values == ((1, (7.0,)),)
    model = language_model(read_program(caching))
    assert model is not None and model.prompt is not None
    assert (model.prompt.tokens, model.prompt.position, model.prompt.most) == (0, 1, 11)
    assert model.context == 16


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"sizes": {"words": [1, 2]}},
            "has no input 'words'; choose from tokens and input_pos",
        ),
        ({"sizes": {"tokens": [2]}}, "input tokens has 2 dimensions (1x11); give a size for each"),
        ({"sizes": {"tokens": [1, 12]}}, "input tokens can have at most the sizes 1x11"),
        (
            {"sizes": {"input_pos": [3]}},
            "input_pos always has the sizes 1: it was exported with a fixed",
        ),
        ({"values": {"x": [1]}}, "has no input 'x'"),
    ],
)
def test_what_a_method_cannot_take_is_refused_in_one_line(caching, asked, said) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        feed(caching, "forward", Inputs.model_validate(asked))


def test_profile_takes_a_length_and_its_run_says_so(caching, tmp_path) -> None:
    options = ProfileOptions(
        target=TargetChoice("host"), lengths={"tokens": (1, 9)}, values={"input_pos": (2.0,)},
        quick=True, budget_s=1, outdir=tmp_path,
    )  # fmt: skip
    outcome = profile_one(str(caching), options)
    assert outcome.main.run.manifest.spoken_case == ("tokens 9", "input_pos 2")
    assert outcome.main.run_dir.parent.name == "caching_tokens_9_input_pos_2"
    assert outcome.analysis is not None
    layers = [each for each in outcome.main.data.analysis.series[0].operators if each.source.node_kind]
    assert {shape[0] for each in layers for shape in each.source.input_shapes} == {9}
    command = "sme2prof profile caching.pte --length tokens=1x9 --input input_pos=2"
    says((outcome.main.run_dir / "report.md").read_text(), command)


def test_python_chooses_a_length_and_profiles_both_phases(caching, tmp_path) -> None:
    settings: ProfileSettings = {"target": "host", "quick": True, "budget_s": 1, "outdir": tmp_path}
    with pytest.raises(InputError, match="input tokens can have at most the sizes 1x11"):
        profile(caching, lengths={"tokens": 12}, **settings)
    outcome = profile(caching, method="forward", lengths={"tokens": 3}, values={"input_pos": 2}, **settings)
    assert outcome.main.run.manifest.spoken_case == ("tokens 3", "input_pos 2")
    assert outcome.report.is_file()

    with pytest.raises(InputError, match="prompts"):
        profile_llm(caching, prompts=1, **settings)  # type: ignore[arg-type]
    told = profile_llm(caching, prompts=[4], positions=[12], **settings)
    assert [case.name for case in told.language.cases] == ["prompt of 4 tokens", "answer after 12 tokens"]
    assert told.report == tmp_path / "runs" / "llm.md" and told.report.is_file()
    assert repr(told) == f"<LanguageOutcome caching, 2 cases: {told.report}>"
    assert all(sentence in told._repr_markdown_() for sentence in told.verdict[:1])


def test_programs_are_compared_at_a_length_and_a_position(caching, sme2prof, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    other = tmp_path / "other.pte"
    shutil.copy(caching, other)
    short = ("--target", "host", "--budget", "1")
    words = ["compare", caching, other, *short, "--input", "input_pos=2", "--json"]
    several = sme2prof(*words, "--length", "tokens=3,4")
    assert several.returncode == 2 and "write INPUT=N" in several.stderr
    assert "has no input 'words'" in sme2prof(*words, "--length", "words=3").stderr
    done = sme2prof(*words, "--length", "tokens=3")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["series"][0]["end_to_end"]["ratio"] > 0
    home = Path("out_compare") / "caching_vs_other_tokens_3_input_pos_2"
    made = [json.loads(path.read_text()) for path in home.rglob(names.MANIFEST)]
    assert [each["fed"] for each in made] == ["tokens_3_input_pos_2"] * 2
    wrong = sme2prof("compare", home / "a", home / "b", "--length", "tokens=3")
    assert wrong.returncode == 2 and "--length is for programs" in wrong.stderr


def test_prompt_and_answer_are_measured_apart(caching, tmp_path, monkeypatch) -> None:
    options = ProfileOptions(target=TargetChoice("host"), budget_s=1, outdir=tmp_path)
    done = profile_language(str(caching), options, prompts=(4, 9, 64), positions=(0, 12, 16))
    found = done.language
    assert [case.name for case in found.cases] == [
        "prompt of 4 tokens", "prompt of 9 tokens", "answer after 0 tokens", "answer after 12 tokens",
    ]  # fmt: skip
    assert found.left_out == (
        "a prompt of 64 tokens, because the program takes at most 11",
        "an answer after 16 tokens, because the cache holds 16",
    )
    told = json.loads((tmp_path / "runs" / "llm.json").read_text())
    page = (tmp_path / "runs" / "llm.md").read_text()
    for case, written in zip(found.cases, told["cases"], strict=True):
        (latency,) = case.latencies
        assert latency.low_ms <= latency.median_ms <= latency.high_ms
        run = Run.open(tmp_path / "runs" / case.run)
        metrics = run.metrics.latency(run.series[0])
        assert latency.median_ms == metrics.end_to_end_ms.median
        row = row_cells(EXPERIMENT_FACTS, MeasuredSeries.of(run, run.series[0]))
        assert row[-3:] == (case.tokens, case.position, pytest.approx(latency.tokens_per_s(case.tokens)))
        assert written["latencies"][0]["tokens_per_s"] == pytest.approx(case.tokens * 1e3 / latency.median_ms)
        assert sum(case.parts.values()) == pytest.approx(1, abs=0.01)
        says(page, latency.rate(case.tokens).replace(" tokens/s", ""))
    assert found.read.weights == 24 * 8 * 4 + 24 * 4 + 11 * 8 * 4, "the layer, its bias, rows of the table"
    assert found.read.cache == 16 * 8 * 4 and found.bandwidth is not None and found.bandwidth > 1e8
    says(page, "Sampling and tokenizing are not part", "Left out: an answer after 16 tokens")
    says(page, "Memory is not the limit")
    read = found.read.weights
    assert found.read.smaller == {"int8-dynamic": read - 24 * 8 * 3, "int4": read - 24 * 8 * 7 // 2}
    data = [outcome.main.data for outcome in done.outcomes]
    for case, of_run in zip(found.cases, data, strict=True):
        assert [each.id for each in case.findings] == [each.id for each in of_run.findings]
    says(page, found.cases[1].findings[0].title)
    # The shares of operators of some hundred nanoseconds depend on what else the machine does.
    monkeypatch.setattr(findings, "WORTH", 0.0)
    _limits(data[1].analysis.series[0], data[2].analysis.series[0])


def _limits(prompt: SeriesAnalysis, answer: SeriesAnalysis) -> None:
    """What is found in each phase and could be saved, as on an Arm CPU."""
    contexts = [SeriesCase(each) for each in (prompt, answer)]
    copied, same = (matrix.cache_copies(each, each.series.operators) for each in contexts)
    assert copied is not None and same is not None
    # Written as a new tensor, and that copied back.
    says(copied.title, "2 copies of the whole KV cache: 1.0 kB in each inference")
    says(same.title, "1.0 kB for one token")
    says(copied.action, "run_reinplace_pass=True", "`update_cache`")
    assert copied.evidence["bytes"] == 2 * 16 * 8 * 4 and copied.evidence["bytes_per_token"] == 1024 // 9
    assert copied.max_gain_pct == prompt.gain_pct(prompt.spent_by(copied.operators).ms)
    assert {each.kind for each in copied.operators} == {"scatter", "copy"}

    scores, none = (matrix.unused_scores(each, each.series.operators) for each in contexts)
    assert scores is not None and none is None
    says(scores.title, "scores of the last token only, not of all 9")
    assert scores.max_gain_pct == prompt.gain_pct(prompt.spent_by(scores.operators).ms * 8 / 9)


def test_a_quick_look_measures_one_prompt_and_one_position(caching, tmp_path, capsys) -> None:
    words = ["llm", str(caching), "--target", "host", "--quick", "--budget", "1", "--json"]
    assert main([*words, "--outdir", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(case["tokens"], case["position"]) for case in told["cases"]] == [(11, 0), (1, 0)]
    says(told["left_out"][0], "longer prompts and later positions, because of --quick")
    assert any("--quick makes intervals wider" in line for line in told["warnings"])
    for case in told["cases"]:
        assert Run.open(tmp_path / "runs" / case["run"]).manifest.schedule.rounds == 6
    assert main([*words, "--outdir", str(tmp_path / "b"), "--prompt", "4,9"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [case["tokens"] for case in told["cases"]] == [4, 9, 1]


def test_emulated_phases_show_their_kernels_and_no_rates(caching, tmp_path, capsys) -> None:
    """One prompt and one position stand for all."""
    words = ["llm", str(caching), "--target", "emulated", "--json"]
    assert main([*words, "--outdir", str(tmp_path)]) == 0
    told = json.loads(capsys.readouterr().out)
    prompt, answer = told["cases"]
    assert not told["warnings"], "nobody gave --budget, so it is not said to have no effect"
    assert not prompt["latencies"] and prompt["sme2_operators"] == answer["sme2_operators"] == [1, 1]
    assert "mopa" in prompt["kernels"][0] and "1x" in answer["kernels"][0]
    says(told["answers"]["Where does the time go?"], "No latency was measured")
    assert not prompt["parts"] and not answer["parts"], "emulated times say nothing"
    risk = "Risk: kernels for a single row (", answer["kernels"][0], "issue 10719", "not measured here"
    says(told["answers"]["What does SME2 change?"], *risk)
    assert (prompt["tokens"], answer["position"]) == (11, 0)
    says(told["left_out"][0], "longer prompts and later positions", "--target host measures this CPU")


def test_a_prompt_that_a_program_cannot_take_is_left_out_with_the_reason(caching) -> None:
    model = language_model(read_program(caching))
    assert model is not None and model.prompt is not None

    def asked(prompt: Phase | None, prompts: tuple[int, ...] | None) -> tuple[list[int], tuple[str, ...]]:
        found, left_out = _cases(
            replace(model, prompt=prompt), prompts, (0,), lambda _: ("tokens", "input_pos")
        )
        return [case.tokens for case, _ in found if case.phase == "prompt"], left_out

    fixed = replace(model.prompt, variable=False)
    assert asked(fixed, None) == ([11], ())
    assert asked(fixed, (8, 11)) == ([11], ("a prompt of 8 tokens, because the program always takes 11",))
    assert asked(None, None) == ([], ())
    assert asked(None, (8,)) == ([], ("a prompt of 8 tokens, because the program takes one token at a time",))


def test_what_cannot_be_measured_is_refused(exported, caching, capsys) -> None:
    assert main(["llm", str(exported("toy_cnn", "fp32").pte)]) == 2
    says(capsys.readouterr().err, "is not a language model", "use `sme2prof profile`")
    assert main(["llm", str(caching), "--prompt", "64", "--context", "99"]) == 2
    says(
        capsys.readouterr().err, "does not allow a prompt of 64 tokens, because the program takes at most 11"
    )
    assert main(["llm", str(caching), "--prompt", "1"]) == 2
    says(capsys.readouterr().err, "1 is too small: at least 2")
