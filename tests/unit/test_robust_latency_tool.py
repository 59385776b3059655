# ruff: noqa: E501  tables read best with one case per line
"""robust_latency_analysis.py on timelines of this kit and of the earlier one, run as a user runs it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from said import refused, says_together

from model_profiling.compat.timelines import check_latencies, read_latencies
from model_profiling.core import process
from model_profiling.core.errors import FormatError, InputError

TOOL = Path(__file__).resolve().parents[2] / "model_profiling" / "tools" / "robust_latency_analysis.py"


@pytest.fixture
def tool(tmp_path: Path) -> Callable[..., process.Completed]:
    return lambda *words: process.run([sys.executable, TOOL, *words], timeout=60, cwd=tmp_path)


TIMELINE = """model_id,name,type,delegate_backend,start_us,end_us,duration_ms,pct_total,node_id,run_index,block
toy,Method::execute,runtime,,0,5000,5.0,100,,0,Execute
toy,Convolution,op,XnnpackBackend,0,4000,4.0,80,,0,Execute
toy,Method::execute,runtime,,0,5200,5.2,100,,1,Execute
"""
LEVELS = "\n".join(
    map(",".join, zip(TIMELINE.splitlines(), ("level", "outside", "operator", "run"), strict=True))
)


@pytest.mark.parametrize(("text", "latencies"), [(TIMELINE, (5.0, 5.2)), (LEVELS, (5.2,))])
def test_the_runs_of_a_timeline_are_its_latencies(tmp_path: Path, text: str, latencies: object) -> None:
    path = tmp_path / "a_timeline.csv"
    path.write_text(text)
    assert read_latencies(path) == latencies


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe\x00",
        b"name,duration_ms\nMethod::execute,5\n",
        TIMELINE.replace("5.0,100", "five,100").encode(),
        TIMELINE.replace("5.0,100", "-1,100").encode(),
        TIMELINE.replace("5.0,100", "nan,100").encode(),
        TIMELINE.replace("Method::execute", "other").encode(),
    ],
)
def test_what_holds_no_latencies_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.csv"
    path.write_bytes(content)
    with pytest.raises((FormatError, InputError), match=r"odd\.csv"):
        read_latencies(path)
    with refused(InputError, tmp_path / "gone"):
        check_latencies(tmp_path / "gone")


def test_two_files_are_shown_beside_each_other_but_not_judged(tmp_path: Path, tool) -> None:
    (tmp_path / "off_timeline.csv").write_text(TIMELINE)
    (tmp_path / "on_timeline.csv").write_text(TIMELINE.replace("5.", "2."))
    names = ("--name1", "SME2-off", "--name2", "SME2-on", "--output-dir", ".")
    done = tool("--timeline-csv", "off_timeline.csv", "--compare", "on_timeline.csv", *names)
    assert done.ok, done.stderr
    says_together(done.stdout, "SME2-off", "SME2-on")
    assert "tracer on" in done.stdout and "no verdict" in done.stdout
    written = json.loads((tmp_path / "off_timeline_robust_stats.json").read_text())
    assert (written["name"], written["count"], written["median_ms"]) == ("SME2-off", 2, pytest.approx(5.1))
