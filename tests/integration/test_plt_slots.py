"""Calls of a library are led elsewhere and back, however it was linked: lazily, at once, without a PLT."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from model_profiling.core import process
from model_profiling.runner import build

TEXTS = Path(__file__).parents[1] / "data/plt_slots"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slots")
    sources = Path(build.__file__).parent
    compiler = build.find_compiler().command
    words = [*compiler, "-std=c++17", f"-I{sources}", TEXTS / "program.cpp", sources / "plt_slots.cpp"]
    done = process.run([*words, "-o", folder / "program", "-ldl"], timeout=120)
    assert done.ok, done.tail()
    return folder / "program"


@pytest.mark.skipif(sys.platform != "linux", reason="slots are found with glibc")
@pytest.mark.parametrize(
    ("flags", "jump_and_closed"),
    [
        (("-Wl,-z,lazy", "-Wl,-z,relro"), "10 1"),
        (("-Wl,-z,now", "-Wl,-z,relro"), "11 0"),
        (("-fno-plt", "-Wl,-z,now", "-Wl,-z,relro"), "01 0"),
        (("-fno-plt", "-Wl,-z,norelro"), "00 1"),
    ],
)
def test_a_call_is_led_elsewhere_and_back(program, flags, jump_and_closed) -> None:
    library = program.with_name("library.so")
    made = [*build.find_compiler().command, "-shared", "-fPIC", *flags, TEXTS / "library.cpp"]
    done = process.run([*made, "-o", library], timeout=60)
    assert done.ok, done.tail()
    answer = process.run([program, library], timeout=60)
    assert answer.ok and answer.stdout.strip() == f"2 1 {jump_and_closed}", answer.tail()
