"""What the page about a language model says of its phases, and what it leaves unsaid."""

from dataclasses import replace

import pytest
from said import says

from model_profiling.report.language import Language, LanguageCase, PhaseLatency, ReadPerToken
from model_profiling.statistics.speedup import compare_rounds

KERNEL = "kai_run_matmul_clamp_f32_f32_f32p2vlx1b_1x16vl_sme2_mla"
BLOCKS = "kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa"


def answer(position: int, ms: float, noise: float = 0.01) -> LanguageCase:
    ends = ms * (1 - noise), ms * (1 + noise)
    latency = PhaseLatency("made", 1, None, ms, *ends)
    parts = {"GEMM": 0.7, "Data Movement": 0.3}
    return LanguageCase("answer", "decode", 1, position, "run", (latency,), parts=parts)


def language(*cases: LanguageCase, bandwidth: float | None = None) -> Language:
    read = ReadPerToken(400_000_000, 0, {"int8-dynamic": 100_000_000, "int4": 50_000_000})
    return Language(
        model="made", program="made.pte", sha256="", size_bytes=1, cpu="CPU", has_sme2=None, is_arm=True,
        context=4096, cases=cases, read=read, bandwidth=bandwidth,
    )  # fmt: skip


def told(found: Language, question: str) -> str:
    return next(text for asked, text in found.answers if asked.startswith(question))


def test_small_weights_leave_a_smaller_model() -> None:
    found = language(answer(0, 10), bandwidth=4.2e10)
    small = replace(found, read=ReadPerToken(400_000_000, 0))
    says(told(small, "What next"), "Memory is the limit: only a smaller model reads less, SME2 does not help")


@pytest.mark.parametrize(
    ("bandwidth", "said"),
    [
        (4.2e10, "Memory is the limit: smaller weights help (100.0 MB with int8-dynamic and 50.0 MB with"),
        (4e11, "Memory is not the limit here, GEMM is the largest part (70.0%)"),
        (2e10, "200.0% of what this memory gives (20000.0 MB). Memory is not the limit here"),
    ],
)
def test_memory_is_the_limit_only_if_reading_explains_most_of_the_time(bandwidth: float, said: str) -> None:
    says(told(language(answer(0, 10), bandwidth=bandwidth), "What next"), said)


@pytest.mark.parametrize(("bandwidth", "said"), [(2e9, "is not known"), (2e10, "is not the limit")])
def test_size_alone_says_nothing_about_memory_as_the_limit(bandwidth: float, said: str) -> None:
    """Weights that caches may hold, read at the memory's own rate, and at a tenth of it."""
    found = replace(language(answer(0, 10), bandwidth=bandwidth), read=ReadPerToken(20_000_000, 0))
    says(told(found, "What next"), said)


def test_kernels_of_a_single_row_are_a_risk_until_they_are_measured() -> None:
    emulated = replace(answer(0, 10), kernels=(KERNEL, BLOCKS))
    text = told(language(emulated), "What does SME2")
    says(text, f"Risk: kernels for a single row ({KERNEL})", "issue 10719", "not measured here")
    measured = replace(emulated, speedup=compare_rounds([[2.0] * 5] * 6, [[3.0] * 5] * 6))
    assert "Risk" not in told(language(measured), "What does SME2")
    prompt = replace(emulated, phase="prompt", tokens=32)
    assert "Risk" not in told(language(prompt), "What does SME2")
