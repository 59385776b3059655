"""What counts as the same output, by number type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from model_profiling.errors import FormatError, InputError
from model_profiling.statistics.parity import OutputFile, compare_arrays, compare_outputs, read_output


def test_identical() -> None:
    a = np.array([[1.0, 2.0, np.nan, np.inf]], dtype=np.float32)
    parity = compare_arrays(a, a.copy(), "float32")
    assert (parity.verdict, parity.differing, parity.max_abs) == ("identical", 0, 0.0)
    assert parity.cosine == 1.0 and parity.top1_agrees is True


def test_last_bits_differ_within_tolerance() -> None:
    a = np.linspace(-3, 3, 1000, dtype=np.float16)
    b = np.nextafter(a, np.float16(10))
    parity = compare_arrays(a, b, "float16")
    assert parity.verdict == "within tolerance"
    assert 0 < parity.max_abs < 0.003
    assert parity.differing == 1000 and parity.beyond_tolerance == 0
    assert parity.cosine > 0.9999


def test_one_wrong_element_is_a_mismatch() -> None:
    a = np.ones((1, 10), dtype=np.float32)
    b = a.copy()
    b[0, 7] = 1.5
    parity = compare_arrays(a, b, "float32")
    assert (parity.verdict, parity.beyond_tolerance, parity.max_abs) == ("mismatch", 1, 0.5)
    assert parity.top1_agrees is False
    assert parity.max_rel == pytest.approx(0.5 / 1.5)


def test_a_value_near_zero_is_not_a_large_relative_difference() -> None:
    a = np.array([10.0, 2.0, 1e-6], dtype=np.float16)
    b = np.array([10.0, 2.002, 0.0], dtype=np.float16)
    parity = compare_arrays(a, b, "float16")
    assert parity.max_rel == pytest.approx(0.00195 / 2.002, rel=0.02)
    assert compare_arrays(np.zeros(3), np.zeros(3), "float32").max_rel == 0.0


def test_nan_in_one_run_only_is_a_mismatch_that_says_so() -> None:
    a = np.array([1.0, 2.0], dtype=np.float32)
    parity = compare_arrays(a, np.array([1.0, np.nan], dtype=np.float32), "float32")
    assert parity.verdict == "mismatch"
    assert parity.note == "1 element is NaN or infinite in one run only"


def test_quantized_rounding_of_one_step_is_allowed_and_four_are_not() -> None:
    a = np.arange(0, 256, dtype=np.float32) * 0.1
    assert compare_arrays(a, a + np.float32(0.1), "float32").verdict == "mismatch"
    assert compare_arrays(a, a + np.float32(0.1), "float32", quantized=True).verdict == "within tolerance"
    assert compare_arrays(a, a + np.float32(0.4), "float32", quantized=True).verdict == "mismatch"


def test_a_difference_without_bound_is_still_a_figure_that_json_can_hold() -> None:
    parity = compare_arrays(np.array([1e308, 1.0]), np.array([-1e308, 1.0]), "float64")
    assert parity.verdict == "mismatch"
    assert all(np.isfinite([parity.max_abs, parity.max_rel, parity.cosine]))


def test_whole_numbers_are_exact_but_int8_may_round() -> None:
    a = np.array([5, 6], dtype=np.int64)
    assert compare_arrays(a, a + 1, "int64").verdict == "mismatch"
    assert compare_arrays(a.astype(np.int8), a.astype(np.int8) + 1, "int8").verdict == "within tolerance"


@given(npst.arrays(np.float32, npst.array_shapes(max_dims=3), elements=st.floats(-1e6, 1e6, width=32)))
def test_an_output_agrees_with_itself_and_comparison_is_symmetric_in_size(a: np.ndarray) -> None:
    assert compare_arrays(a, a, "float32").verdict == "identical"
    b = (a + np.float32(1)).astype(np.float32)
    assert compare_arrays(a, b, "float32").max_abs == compare_arrays(b, a, "float32").max_abs


def test_files_are_read_in_their_own_type_and_order(tmp_path: Path) -> None:
    logical = np.arange(24, dtype=np.float16).reshape(1, 2, 3, 4)
    path = tmp_path / "nhwc.bin"
    path.write_bytes(logical.transpose(0, 2, 3, 1).tobytes())
    output = OutputFile(path, "float16", (1, 2, 3, 4), (0, 2, 3, 1))
    assert np.array_equal(read_output(output), logical)
    assert compare_outputs([output], [output]).verdict == "identical"


def test_bfloat16_is_read_exactly(tmp_path: Path) -> None:
    path = tmp_path / "b.bin"
    path.write_bytes(np.array([0x3F80, 0xC000], dtype=np.uint16).tobytes())
    assert read_output(OutputFile(path, "bfloat16", (2,))).tolist() == [1.0, -2.0]


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"\0" * 8)
    with pytest.raises(FormatError, match=r"has 8 bytes, not those of float32\[3\]"):
        read_output(OutputFile(path, "float32", (3,)))
    with pytest.raises(InputError, match="cannot read the output"):
        read_output(OutputFile(tmp_path / "gone.bin", "float32", (2,)))
    with pytest.raises(InputError, match="output 0 is float32"):
        compare_outputs([OutputFile(path, "float32", (2,))], [OutputFile(path, "float16", (4,))])
    with pytest.raises(InputError, match="1 outputs cannot be compared with 0"):
        compare_outputs([OutputFile(path, "float32", (2,))], [])
