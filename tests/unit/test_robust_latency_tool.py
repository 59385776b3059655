# ruff: noqa: E501  tables read best with one case per line
"""robust_latency_analysis.py on every kind of file it takes, run as a user runs it."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded_runs import SME2, dumps_in
from said import refused, says_together

from model_profiling.compat.input_files import check_latencies, read_latencies
from model_profiling.core import process
from model_profiling.core.errors import FormatError, InputError
from model_profiling.core.records import write_record
from model_profiling.runs import Manifest, Result, Times
from model_profiling.runs.manifest import TargetFacts

TOOL = Path(__file__).resolve().parents[2] / "model_profiling" / "tools" / "robust_latency_analysis.py"


@pytest.fixture
def tool(tmp_path: Path) -> Callable[..., process.Completed]:
    return lambda *words: process.run([sys.executable, TOOL, *words], timeout=60, cwd=tmp_path)


def manifest_of(result: Result) -> Manifest:
    return Manifest(target=TargetFacts(times=Times.HARDWARE), results=(result,))


TIMELINE = """model_id,name,type,delegate_backend,start_us,end_us,duration_ms,pct_total,node_id,run_index,block
toy,Method::execute,runtime,,0,5000,5.0,100,,0,Execute
toy,Convolution,op,XnnpackBackend,0,4000,4.0,80,,0,Execute
toy,Method::execute,runtime,,0,5200,5.2,100,,1,Execute
"""

LEVELS = "\n".join(
    map(",".join, zip(TIMELINE.splitlines(), ("level", "outside", "operator", "run"), strict=True))
)
FILES = {
    "a_timeline.csv": (TIMELINE, "timeline", [[5.0, 5.2]]),
    "levels_timeline.csv": (LEVELS, "timeline", [[5.2]]),
    "list.json": ("[5, 5.5, 6]", "numbers", [[5.0, 5.5, 6.0]]),
    "rounds.json": ("[[5, 6], [7]]", "numbers", [[5.0, 6.0], [7.0]]),
    "result.json": ('{"iterations_ns": [5000000, 6000000]}', "runner result", [[5.0, 6.0]]),
    "old.json": ('{"latencies_ms": [12.3, 12.1], "median_ms": 12.2}', "statistics", [[12.3, 12.1]]),
    "stats.json": ('{"end_to_end_rounds_ms": [[5], [6]]}', "statistics", [[5.0], [6.0]]),
    "plain.txt": ("5.1\n5.2, 5.3\n", "numbers", [[5.1, 5.2, 5.3]]),
}


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_is_understood(tmp_path: Path, name: str) -> None:
    text, kind, rounds = FILES[name]
    path = tmp_path / name
    path.write_text(text)
    found = read_latencies(path)
    assert found.kind == kind
    assert [list(one) for one in found.rounds] == [pytest.approx(one) for one in rounds]


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"[[]]", b"[true]", b"[NaN]", b"[-1]", b"{", b"5.1 five", b"\xff\xfe\x00", b'[{"a": 1}]',
     b"\x10\x00\x00\x00ED00", b"name,duration_ms\nother,1\n", b"name,duration_ms\nMethod::execute,\n"],
)  # fmt: skip
def test_what_holds_no_latencies_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.bin"
    path.write_bytes(content)
    with refused(FormatError, path):
        read_latencies(path)
    with refused(InputError, tmp_path / "gone"):
        check_latencies(tmp_path / "gone")


def test_a_comparison_says_its_verdict(tmp_path: Path, tool: Callable[..., process.Completed]) -> None:
    (tmp_path / "off.json").write_text(json.dumps([[10, 10.1, 9.9]] * 6))
    (tmp_path / "on.json").write_text(json.dumps([[5, 5.05, 4.95]] * 6))
    names = ("--name1", "SME2-off", "--name2", "SME2-on")
    done = tool("off.json", "--compare", "on.json", *names, "--output-dir", ".")
    assert done.ok, done.stderr
    says_together(done.stdout, "SME2-on", "SME2-off", "faster", "2.000x")
    written = json.loads((tmp_path / "off_robust_stats.json").read_text())
    assert written["comparison"]["verdict"] == "faster"


@pytest.mark.parametrize(
    ("file", "text", "why"), [("a.json", "[10, 10]", "1 round"), ("a_timeline.csv", TIMELINE, "tracer on")]
)
def test_single_processes_and_traced_ones_are_shown_but_not_judged(tmp_path, tool, file, text, why):
    (tmp_path / file).write_text(text)
    (tmp_path / "b.json").write_text("[5, 5]")
    done = tool(file, "--compare", "b.json")
    assert done.ok
    says_together(done.stdout, "not comparable", why)


def test_rounds_of_one_run_directory_are_paired(tmp_path, tool):
    """The machine slows down threefold while measuring; only round by round the 5% shows."""
    result = Result(experiment="off", threads=1, latency="off/off_t1_robust_stats.json")
    write_record(tmp_path / "manifest.json", manifest_of(result))
    for name, factor in (("off", 1.05), ("on", 1.0)):
        (tmp_path / name).mkdir()
        rounds = [[factor * speed * jitter for jitter in (1, 1.001, 1.002)] for speed in range(10, 34, 3)]
        content = json.dumps({"end_to_end_rounds_ms": rounds})
        (tmp_path / name / f"{name}_t1_robust_stats.json").write_text(content)
    words = ("off/off_t1_robust_stats.json", "--compare", "on/on_t1_robust_stats.json", "--output", "c.json")
    says_together(tool(*words).stdout, "faster", "1.050x")


def test_a_dump_is_read_without_its_warm_up(tmp_path: Path, tool: Callable[..., process.Completed]) -> None:
    (tmp_path / "own").mkdir()
    dump = Path(shutil.copy(dumps_in(SME2)[0], tmp_path / "own/toy.etdump"))
    found = read_latencies(dump)
    assert found.kind == "etdump" and len(found.flat) > 2
    assert read_latencies(dump, warmup_runs=2).flat == found.flat[2:]
    assert tool(dump, "--output", "stats.json").ok
    # A runner of the user's own leaves its warm-up in the dump; the manifest says how much.
    result = Result(experiment="own", etdump="own/toy.etdump", etdump_warmup_runs=2)
    write_record(tmp_path / "manifest.json", manifest_of(result))
    assert tool(dump, "--output", "rest.json").ok
    assert json.loads((tmp_path / "rest.json").read_text())["end_to_end_rounds_ms"] == [list(found.flat[2:])]
