"""What counts as the same output, by number type."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from said import refused, says
from strategies import outputs

from model_profiling.config.names import computes_in
from model_profiling.core.errors import FormatError, InputError
from model_profiling.runner.result import OutputFacts
from model_profiling.runs.figures import compare_outputs, read_output
from model_profiling.statistics.parity import compare_arrays, together


def test_identical_within_tolerance_and_a_mismatch() -> None:
    a = np.array([[1.0, 2.0, np.nan, np.inf]], dtype=np.float32)
    parity = compare_arrays(a, a.copy(), "float32")
    assert (parity.verdict, parity.differing, parity.max_abs) == ("identical", 0, 0.0)
    assert (parity.top1_rows, parity.top1_differs) == (1, 0)
    a = np.linspace(-3, 3, 1000, dtype=np.float16)
    b = np.nextafter(a, np.float16(10))
    parity = compare_arrays(a, b, "float16")
    assert parity.verdict == "within tolerance"
    assert 0 < parity.max_abs < 0.003
    assert parity.differing == 1000
    a = np.ones((1, 10), dtype=np.float32)
    b = a.copy()
    b[0, 7] = 1.5
    parity = compare_arrays(a, b, "float32")
    assert (parity.verdict, parity.differing, parity.max_abs) == ("mismatch", 1, 0.5)
    assert parity.top1_differs == 1 and parity.of_largest == 0.5
    # A difference without bound is still a figure.
    assert compare_arrays(np.zeros(3), np.zeros(3), "float32").of_largest == 0.0
    parity = compare_arrays(np.array([1e308, 1.0]), np.array([-1e308, 1.0]), "float64")
    assert parity.verdict == "mismatch"
    assert all(np.isfinite([parity.max_abs, parity.of_largest, parity.rms_of_rms]))


def test_nan_infinities_whole_and_quantized_numbers() -> None:
    a = np.array([1.0, 2.0], dtype=np.float32)
    parity = compare_arrays(a, np.array([1.0, np.nan], dtype=np.float32), "float32")
    assert parity.verdict == "mismatch"
    says(parity.note, "1 element", "NaN", "only one")
    masked = np.array([1.0, -np.inf, 3.0], dtype=np.float32)
    found = compare_arrays(masked, masked + np.float32([1e-5, 0, 0]), "float32")
    assert found.verdict == "within tolerance"
    assert compare_arrays(masked, -masked, "float32").verdict == "mismatch"
    a = np.arange(0, 256, dtype=np.float32) * 0.1
    assert compare_arrays(a, a + np.float32(0.1), "float32").verdict == "mismatch"
    assert compare_arrays(a, a + np.float32(0.1), "float32", quantized=True).verdict == "within tolerance"
    assert compare_arrays(a, a + np.float32(0.4), "float32", quantized=True).verdict == "mismatch"
    a = np.array([5, 6], dtype=np.int64)
    assert compare_arrays(a, a + 1, "int64").verdict == "mismatch"
    assert compare_arrays(a.astype(np.int8), a.astype(np.int8) + 1, "int8").verdict == "within tolerance"


def test_probabilities_are_held_to_their_own_scale() -> None:
    """Of a thousand classes none is above 0.02, which is what float16 logits may differ by."""
    chance = np.random.default_rng(3)
    scores = np.exp(chance.normal(size=(1, 1000)))
    a = (scores / scores.sum() / 2).astype(np.float16)
    b = (a * np.exp(chance.normal(scale=0.5, size=a.shape))).astype(np.float16)
    assert a.max() < 0.02
    wrong = compare_arrays(a, b, "float16")
    assert wrong.verdict == "mismatch"
    assert wrong.top1_differs == 1 and wrong.text.startswith("mismatch; another top-1")
    rounded = compare_arrays(a, np.nextafter(a, np.float16(1)), "float16")
    assert rounded.verdict == "within tolerance" and rounded.rms_of_rms < 0.01


def test_small_numbers_are_judged_beside_large_ones_and_together() -> None:
    beside = np.array([1.0, 1e-40], dtype=np.float32)
    assert compare_arrays(beside, np.float32([1, 0]), "float32").verdict == "within tolerance"
    # Half precision keeps its subnormal numbers: a softmax over a whole vocabulary consists of them.
    tokens = np.linspace(1e-5, 5e-5, 100, dtype=np.float16)
    assert compare_arrays(tokens, tokens[::-1], "float16").verdict == "mismatch"
    assert compare_arrays(tokens, tokens + np.float16(6e-8), "float16").verdict == "within tolerance"
    a = np.full(10_000, 0.01, dtype=np.float16)
    a[0] = 1
    b = a + np.float16(0.015)
    found = compare_arrays(a, b, "float16")
    assert found.of_largest == pytest.approx(0.015, rel=0.01)
    assert found.verdict == "mismatch" and found.rms_of_rms == pytest.approx(1.06, rel=0.01)


def test_zeros_constants_and_scalars() -> None:
    zeros = np.zeros((2, 3), dtype=np.float32)
    nothing = compare_arrays(zeros, zeros, "float32")
    assert nothing.verdict == "identical"
    says(nothing.text, "every value", "0")
    assert compare_arrays(zeros, zeros + np.float32(1e-3), "float32").verdict == "mismatch"
    same = np.full((2, 5), 7, dtype=np.float32)
    tied = compare_arrays(same, same + np.float32([0, 0, 1e-6, 0, 0]), "float32")
    assert (tied.verdict, tied.top1_differs) == ("within tolerance", 2)
    says(tied.text, "top-1", "2 of 2")
    scalar = np.array(2.5, dtype=np.float32)
    assert compare_arrays(scalar, scalar, "float32").top1_rows == 0
    assert compare_arrays(np.zeros((0, 3)), np.zeros((0, 3)), "float32").verdict == "identical"


@pytest.mark.parametrize("shape", [(1, 8, 4, 4), (100, 4), (1, 100, 4), (1, 197, 768), (16000,), ()])
def test_pixels_boxes_features_and_sound_have_no_top1_and_tokens_have(shape: tuple[int, ...]) -> None:
    a = np.random.default_rng(0).normal(size=shape)
    assert compare_arrays(a, a, "float32").top1_rows == 0
    scores = np.random.default_rng(0).normal(size=(1, 7, 300))
    found = compare_arrays(scores, scores, "float32", of_tokens=True)
    assert (found.top1_differs, found.top1_rows) == (0, 7)


def test_what_has_no_bound_or_is_answered_is_counted_not_subtracted() -> None:
    """Class 501 is not nearly class 500, and int64 holds what a float does not."""
    other = compare_arrays(np.int64([500]), np.int64([501]), "int64")
    assert (other.verdict, other.differing, other.elements) == ("mismatch", 1, 1)
    assert compare_arrays(np.int64([2**53]), np.int64([2**53 + 1]), "int64").verdict == "mismatch"
    pixels = np.zeros(10_000, dtype=np.int64)
    few, many = pixels.copy(), pixels.copy()
    few[:5], many[:50] = 1, 1
    nearly = compare_arrays(pixels, few, "int64")
    assert (nearly.verdict, nearly.differing, nearly.elements) == ("within tolerance", 5, 10_000)
    says(nearly.text, "5 of 10000")
    assert compare_arrays(pixels, many, "int64").verdict == "mismatch"
    assert compare_arrays(np.array([True]), np.array([False]), "bool").verdict == "mismatch"
    with refused(InputError, "complex64"):
        compare_arrays(np.zeros(1, dtype=np.complex64), np.zeros(1, dtype=np.complex64), "complex64")
    a = np.array([[1.0, 2.0]])
    good, bad = (compare_arrays(a, b, "float32", index=i) for i, b in enumerate((a, a[:, ::-1])))
    both = together((good, bad))
    assert both.verdict == "mismatch" and both.another_top1
    assert both.verdict == "mismatch"
    says(both.text, "output 1", "another top-1")
    assert together(()).verdict == "identical"


@given(outputs())
def test_an_output_agrees_with_itself_and_comparison_is_symmetric_in_size(a: np.ndarray) -> None:
    assert compare_arrays(a, a, "float32").verdict == "identical"
    b = (a + np.float32(1)).astype(np.float32)
    assert compare_arrays(a, b, "float32").max_abs == compare_arrays(b, a, "float32").max_abs


@given(outputs(), st.integers(-40, 40), st.integers(1, 40), st.randoms(use_true_random=False))
def test_the_unit_of_an_output_changes_no_verdict(a, exponent, off, chance):
    b = np.array([value * (1 + chance.uniform(-1, 1) * 2.0**-off) for value in a.ravel()], dtype=np.float32)
    b = b.reshape(a.shape)
    assume(a.any())
    found = compare_arrays(a, b, "float32")
    scaled = compare_arrays(*(np.ldexp(side, exponent) for side in (a, b)), "float32")
    for what in ("text", "of_largest", "rms_of_rms"):
        assert getattr(scaled, what) == getattr(found, what)


@given(outputs(1), st.randoms(use_true_random=False))
def test_the_order_of_elements_changes_no_verdict(a: np.ndarray, chance: random.Random) -> None:
    b = np.array([value * (1 + chance.uniform(-3e-4, 3e-4)) for value in a], dtype=np.float32)
    order = chance.sample(range(a.size), a.size)
    found, moved = compare_arrays(a, b, "float32"), compare_arrays(a[order], b[order], "float32")
    assert (found.verdict, found.of_largest) == (moved.verdict, moved.of_largest)


@given(outputs(), st.data(), st.sampled_from(["float32", "float16"]))
def test_one_planted_mismatch_is_found(a: np.ndarray, data: st.DataObject, dtype: str) -> None:
    a = np.clip(a, -6e4, 6e4).astype(dtype)
    largest = float(np.abs(a).max())
    assume(largest > 2.0**-10)
    place = data.draw(st.integers(0, a.size - 1))
    b = a.astype(np.float64)
    b.flat[place] += {"float32": 3e-4, "float16": 6e-2}[dtype] * largest
    found = compare_arrays(a, b, dtype)
    assert found.verdict == "mismatch"


def test_files_are_read_in_their_own_type_and_order(tmp_path: Path) -> None:
    logical = np.arange(24, dtype=np.float16).reshape(1, 2, 3, 4)
    path = tmp_path / "nhwc.bin"
    path.write_bytes(logical.transpose(0, 2, 3, 1).tobytes())
    output = OutputFacts(path, "float16", (1, 2, 3, 4), (0, 2, 3, 1))
    assert np.array_equal(read_output(output), logical)
    assert compare_outputs([output], [output]).verdict == "identical"
    path = tmp_path / "b.bin"
    path.write_bytes(np.array([0x3F80, 0xC000], dtype=np.uint16).tobytes())
    assert read_output(OutputFacts(path, "bfloat16", (2,))).tolist() == [1.0, -2.0]


def test_half_precision_that_ends_in_float32_is_judged_as_half_precision(tmp_path: Path) -> None:
    """`.float()` as a model's last step gives no digit back."""
    paths = [tmp_path / "a.bin", tmp_path / "b.bin"]
    values = np.linspace(-1, 1, 64, dtype=np.float32).astype(np.float16)
    for path, shift in zip(paths, (0, 2e-3), strict=True):
        path.write_bytes((values + np.float16(shift)).astype(np.float32).tobytes())
    one, other = ([OutputFacts(path, "float32", (64,))] for path in paths)
    assert compare_outputs(one, other).verdict == "mismatch"
    half = compare_outputs(one, other, half=True)
    assert half.verdict == "within tolerance" and half.outputs[0].dtype == "float32"
    fp16, fp32 = (computes_in(Path(f"net_xnnpack_{dtype}.pte"), "fp16") for dtype in ("fp16", "fp32"))
    assert fp16 and not fp32


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"\0" * 8)
    with refused(FormatError, path, "8 bytes", "float32[3]"):
        read_output(OutputFacts(path, "float32", (3,)))
    with refused(InputError, "gone.bin"):
        read_output(OutputFacts(tmp_path / "gone.bin", "float32", (2,)))
    with refused(InputError, "output 0", "float32", "float16"):
        compare_outputs([OutputFacts(path, "float32", (2,))], [OutputFacts(path, "float16", (4,))])
    with refused(InputError, "1 outputs", "0"):
        compare_outputs([OutputFacts(path, "float32", (2,))], [])
