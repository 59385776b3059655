"""The runner under AddressSanitizer and UndefinedBehaviorSanitizer: over a whole program, damaged ones, and
arguments nobody should give.
"""

from __future__ import annotations

import os
import platform
import random
import re
import shlex
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import ROOT, missing

from model_profiling.core import process
from model_profiling.etdump import read_etdump
from model_profiling.etdump.reader import EXACT, read_timed
from model_profiling.runner import build
from model_profiling.runner.result import read_lockstep_result, read_result

TYPED = f"{ROOT}/tests/models/unseen.py:typed"
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
# -g1 has the file and the line, which is all that a report shows. Optimising what is checked everywhere
# takes longer than compiling it.
FLAGS = (*SANITIZE, "-g1", "-O0")
FAULT = 99
LEAKS_CAN_BE_FOUND = sys.platform == "linux"
FAILURE_H = Path(build.__file__).with_name("failure.h")
CODES = {0, *(int(code) for code in re.findall(r"(?m)^  k\w+ = (\d+),", FAILURE_H.read_text()))}

REPORT = re.compile(r"runtime error: .*|ERROR: (?:Address|Leak)Sanitizer: .*")
# operator new cannot throw under AddressSanitizer: this report is its word for std::bad_alloc.
OUT_OF_MEMORY = re.compile(r"allocator is out of memory|allocation-size-too-big|out-of-memory")
FRAME = re.compile(r"(?m)^ +#\d+ 0x[0-9a-f]+ .*$")
# Between a fault and the code that made it: the sanitizer, the C library, ExecuTorch's way to end a process.
BETWEEN = re.compile(
    r"libsanitizer|libasan|libubsan|interceptor|unknown module|nptl/|sysdeps/|/libc\.|abort|operator new"
    r"| in (?:__asan_)?(?:mem|str|malloc|calloc|realloc|free)\w* "
)


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> build.RunnerBuild:
    made = tmp_path_factory.mktemp("probe") / "probe.so"
    probe = [*build.find_compiler().command, *SANITIZE, "-shared", "-x", "c++", os.devnull, "-o", made]
    if not process.run(probe, timeout=60).ok:
        missing("a compiler with AddressSanitizer and UndefinedBehaviorSanitizer")
    return build.build_runner(extra_flags=FLAGS)


def run(runner: build.RunnerBuild, *words: object, leaks: bool = False) -> process.Completed:
    # The leak check costs seconds even in an empty program, so only some runs pay for it.
    options = f"detect_leaks={int(leaks)}:exitcode={FAULT}:handle_abort=1"
    options += ":allocator_may_return_null=1:max_allocation_size_mb=512"
    # The sanitizer opens libraries in the runner's stead, and does not know where the runner looks for them.
    env = {"ASAN_OPTIONS": options, "LD_LIBRARY_PATH": str(runner.library_path)}
    return process.run([runner.path, *map(str, words)], timeout=120, env=env)


def fault_of_ours(done: process.Completed) -> str | None:
    """The report of a fault in the runner. ExecuTorch's libraries are not instrumented and may crash over a
    damaged program: what is reported inside them is theirs."""
    report = REPORT.search(done.stderr)
    if report is None or OUT_OF_MEMORY.search(report[0]):
        return None
    if report[0].startswith("ERROR: Address"):
        stack = done.stderr[report.end() :].partition("\n\n")[0]
        made_by = [line for line in FRAME.findall(stack) if not BETWEEN.search(line)]
        if not made_by or "libexecutorch" in made_by[0]:
            return None
    return done.stderr[report.start() :]


def one_line_of(done: process.Completed) -> str:
    (line,) = re.findall(r"(?m)^sme2prof-runner: (.+)$", done.stderr)
    return str(line)


def damaged_programs(whole: bytes) -> Iterator[bytes]:
    """Cut at many places, and with bytes changed: mostly near the beginning, where the structure is."""
    for kept in (0, 7, 32, 64, 200, 1000, 1900, 4000, len(whole) // 2, len(whole) - 1):
        yield whole[:kept]
    dice = random.Random(20)
    for number in range(24):
        content = bytearray(whole)
        reach = 4096 if number % 4 else len(whole)
        for _ in range(dice.choice((1, 1, 2, 8))):
            content[dice.randrange(reach)] = dice.choice((0, 1, 0x7F, 0x80, 0xFF))
        yield bytes(content)


def test_a_whole_and_a_refused_program_are_run_without_fault_or_leak(sanitized, exported, tmp_path) -> None:
    pte = exported("toy_cnn", "fp32").pte
    dump, result = tmp_path / "x.etdump", tmp_path / "x.json"
    outputs = ("--output-prefix", tmp_path / "x")
    traces = ("--etdump", dump, "--boundaries", tmp_path / "x.etdump.boundaries")
    traces += ("--sample", tmp_path / "x.seen")
    everything = (*traces, *outputs, "--result", result, "--count-kernels", "--executions", 3)
    cut = tmp_path / "cut.pte"
    cut.write_bytes(pte.read_bytes()[:100_000])
    with ThreadPoolExecutor(2) as pool:
        whole, refused = pool.map(
            lambda words: run(sanitized, *words, leaks=LEAKS_CAN_BE_FOUND),
            [("--model", pte, *everything, "--threads", 2), ("--model", cut, "--count-kernels")],
        )
    if "LeakSanitizer has encountered a fatal error" in whole.stderr:
        missing("the right to trace a process, which LeakSanitizer needs")
    assert whole.ok, whole.tail(40)
    assert refused.returncode in (3, 4) and one_line_of(refused), refused.tail(40)
    told = read_result(result)
    assert len(told.iterations_ns) == 3 and told.threads == 2
    assert (read_etdump(dump).to_pandas()["name"] == "Method::execute").sum() == 3
    assert (tmp_path / "x0.bin").stat().st_size == told.outputs[0].bytes
    if sys.platform == "linux" and platform.machine() == "aarch64":
        assert told.kernels and told.kernels_note is None
    left = {path.name for path in tmp_path.iterdir()}
    assert left - {"x.etdump.boundaries"} == {"cut.pte", "x.etdump", "x.json", "x.seen", "x0.bin"}
    if sys.platform == "linux":
        assert told.boundaries_unavailable is None and read_timed(dump).clock == EXACT


def test_a_launch_and_one_that_fails_are_run_without_fault_or_leak(sanitized, exported, tmp_path) -> None:
    pte, typed = exported("toy_cnn", "fp32").pte, exported(TYPED, "fp16", "portable").pte
    cut, result, dump = (tmp_path / name for name in ("cut.pte", "x.json", "x.etdump"))
    cut.write_bytes(pte.read_bytes()[:100_000])
    one = ("--child", "--model", pte, "--output-prefix", tmp_path / "x", "--etdump", dump)
    one = (*one, "--boundaries", tmp_path / "x.etdump.boundaries")
    two = ("--child", "--model", typed, "--threads", 2)
    turns = ("--lockstep", "--cycles", 3, "--turn-length", 2)
    refused = run(sanitized, *turns, *two, "--child", "--model", cut)
    assert REPORT.search(refused.stderr) is None, refused.tail(40)
    assert refused.returncode in (3, 4) and one_line_of(refused).startswith("child 1 (cut.pte): ")
    # A child leaks as a single run would: one of them is enough.
    whole = run(sanitized, *turns, "--result", result, *one, leaks=LEAKS_CAN_BE_FOUND)
    if "LeakSanitizer has encountered a fatal error" in whole.stderr:
        missing("the right to trace a process, which LeakSanitizer needs")
    assert whole.ok, whole.tail(40)
    (told,) = read_lockstep_result(result).results
    assert len(told.iterations_ns) == 6 and (tmp_path / "x0.bin").stat().st_size == told.outputs[0].bytes
    assert (read_etdump(dump).to_pandas()["name"] == "Method::execute").sum() == 6
    assert told.boundaries_unavailable is not None or not read_timed(dump).misfit


def test_inputs_and_outputs_of_every_type_are_handled_without_fault(sanitized, exported, tmp_path) -> None:
    pte = exported(TYPED, "fp16", "portable").pte
    for fill in ("random", "ones"):
        done = run(sanitized, "--model", pte, "--fill", fill, "--output-prefix", tmp_path / fill)
        assert done.ok and len(list(tmp_path.glob(f"{fill}*.bin"))) == 6, done.tail(40)


def test_no_damaged_program_makes_the_runner_misbehave(sanitized, exported, tmp_path) -> None:
    whole = exported("toy_cnn", "fp32").pte.read_bytes()
    refused = 0
    for number, content in enumerate(damaged_programs(whole)):
        pte = tmp_path / f"{number}.pte"
        pte.write_bytes(content)
        asked = ("--etdump", tmp_path / "x.etdump", "--output-prefix", tmp_path / "x", "--count-kernels")
        done = run(sanitized, "--model", pte, *asked, "--result", tmp_path / "x.json", "--time-limit", 30)
        fault = fault_of_ours(done)
        assert fault is None, f"{pte.name}: {fault}"
        assert done.returncode in CODES or REPORT.search(done.stderr), f"{pte.name}: {done.tail(40)}"
        if done.returncode not in (0, FAULT):
            refused += 1
            assert one_line_of(done)
    assert refused > 10


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("", 2, "--model is required"),
        ("--model", 2, "missing value.* --model"),
        ("--modle=x", 2, "unknown .*--modle x"),
        ("--model=", 2, "--model is required"),
        ("--model PTE --threads 0", 2, "start at 1"),
        ("--model PTE --threads ' -1'", 2, "--threads .*' -1'"),
        ("--model PTE --executions 4294967296", 2, "--executions .*4294967296"),
        ("--model PTE --sample-hz 0", 2, "--sample-hz start at 1"),
        ("--model PTE --sample gone/x", 8, "cannot write gone/x: no such file"),
        ("--model PTE --seed 18446744073709551616", 2, "--seed .*18446744073709551616"),
        ("--model PTE --time-limit 1e300", 2, "--time-limit .*1e300"),
        ("--model PTE --time-limit 1e-9", 124, "time limit reached"),
        ("--model PTE --fill zeros", 2, "unknown .*--fill zeros"),
        ("--model FOLDER", 3, "cannot open|is not a usable program"),
        ("--model gone.pte", 3, "cannot open gone.pte"),
        ("--model PTE --method ''", 7, "method '';.* forward"),
        ("--model PTE --input gone.bin", 7, "input file gone.bin"),
        ("--model PTE --input FOLDER", 7, "input file"),
        ("--model PTE --input PTE", 7, r"has more than (\d+) bytes; input 0 .* needs \1$"),
        ("--lockstep", 2, "--child"),
        ("--lockstep --child --model x", 2, "--cycles"),
        ("--lockstep --cycles 1 --turn-length 0 --child --model x", 2, "--turn-length"),
        ("--lockstep --cycles 1 --model x --child", 2, "unknown .*: --model x"),
        ("--lockstep --cycles 2 --child --model ''", 2, "--model is required"),
        ("--lockstep --cycles 1 --child --model gone.pte", 3, r"child 0 \(gone.pte\): cannot open"),
        ("--lockstep --cycles 9 --time-limit 1e-9 --child --model PTE", 124, "child 0"),
        ("--model PTE --result FOLDER", 8, "cannot write .*: "),
        ("--model PTE --result gone/x.json", 8, "cannot write gone/x.json: no such file"),
        ("--model PTE --etdump gone/x", 8, "cannot write gone/x: no such file"),
        ("--model PTE --output-prefix gone/x", 8, "cannot write gone/x0.bin"),
    ],
)
def test_arguments_nobody_should_give(sanitized, exported, tmp_path, words, code, said) -> None:
    meant = {"PTE": exported("toy_cnn", "fp32").pte, "FOLDER": tmp_path}
    done = run(sanitized, *(meant.get(word, word) for word in shlex.split(words)))
    assert REPORT.search(done.stderr) is None, done.tail(40)
    assert done.returncode == code and re.search(said, one_line_of(done)), done.tail(40)
    assert list(tmp_path.iterdir()) == []
