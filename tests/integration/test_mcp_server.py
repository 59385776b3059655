"""`sme2prof mcp` through the SDK's own client: a session from doctor to advice, jobs, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest
from assistant import Assistant, assistant
from conftest import ROOT
from documents import blocks_of, missing_line
from mcp import Client
from mcp.shared.exceptions import MCPError
from recorded_runs import ARM, EMULATED, SME2, put
from said import says

from model_profiling.core import process
from model_profiling.core.errors import InputError
from model_profiling.core.files import LockFile
from model_profiling.export.records import BACKENDS
from model_profiling.mcp_server import jobs
from model_profiling.mcp_server.answers import AdvisedOperator
from model_profiling.mcp_server.confinement import Root
from model_profiling.mcp_server.job_tools import JobTools
from model_profiling.mcp_server.jobs import Jobs
from model_profiling.mcp_server.server import KitServer
from model_profiling.models.registry import DTYPES
from model_profiling.program.category import Category
from model_profiling.report.analysis_json import analysis_summary
from model_profiling.report.csv_files import csv_paths
from model_profiling.runner.machine import TargetKind
from model_profiling.store.store import Store
from model_profiling.validation.validate import validate
from model_profiling.workflow.analyse import analyse

RUN = "out_small_cnn/runs/xnnpack_fp16/linux"
EMULATED_RUN = RUN.replace("linux", "emulated")
WITH_SME2 = f"with_sme2/{RUN}"
JOBS = ["export", "profile", "profile_llm"]
OF_A_RUN = ["summary", "llm_summary", "compare", "top_operators", "kernel_evidence", "headroom", "advice"]
TOOLS = ["doctor", "models", *JOBS, "runs", *OF_A_RUN, "query_store", "history"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: runs of a CPU without SME2 and of one with it, and links that lead out of it."""
    folder = tmp_path_factory.mktemp("user") / "root"
    for recorded, place in ((ARM, RUN), (EMULATED, EMULATED_RUN), (SME2, WITH_SME2)):
        shutil.copytree(recorded, folder / place)
    outside = folder.parent / "outside"
    shutil.copytree(folder / "with_sme2", outside)
    (outside / "model.py").write_text("raise SystemExit('this must never be run')\n")
    (folder / "link_out").symlink_to(outside)
    (folder / "empty").mkdir()
    leaking = folder / "leaking"
    shutil.copytree(folder / WITH_SME2, leaking)
    (leaking / "report.md").unlink()
    (leaking / "report.md").symlink_to(outside / "model.py")
    (leaking / "more").symlink_to(outside)
    return folder


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[Assistant]:
    with assistant(root) as connected:
        yield connected


def facts_of(root: Path, run: str) -> dict[str, Any]:
    """What `sme2prof analyze` writes of it."""
    found = analyse(root / run)
    written = [csv_paths(dump.path.parent, dump.stem) for dump in found.dumps]
    content = json.loads(json.dumps(analysis_summary(found, written)))
    assert isinstance(content, dict)
    return content


def test_tools_say_what_they_take_give_and_change(client: Assistant) -> None:
    listed = {tool.name: tool for tool in client.portal.call(client.client.list_tools).tools}
    assert list(listed) == TOOLS
    for name, tool in listed.items():
        assert tool.description and len(tool.description) > 80, name
        assert tool.input_schema["additionalProperties"] is False
        assert tool.output_schema and tool.output_schema["type"] == "object"
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is (name not in JOBS), name
        assert tool.annotations.idempotent_hint is (name not in JOBS[1:]), name
    asked = listed["profile"].input_schema["properties"]
    assert asked["target"]["enum"] == list(get_args(TargetKind))
    says(asked["dtype"]["description"], *DTYPES, "int4:32", "file.py:quantizer", "`all`")
    export = listed["export"].input_schema["properties"]
    says(export["dtype"]["description"], *DTYPES, "int4:32", "file.py:quantizer")
    assert export["backend"]["enum"] == list(BACKENDS)
    assert export["keep"] == asked["keep"] and export["calibration"] == asked["calibration"]
    in_schema = listed["top_operators"].input_schema["$defs"]["Category"]["enum"]
    assert in_schema == [category.value for category in Category]
    assert "title" in listed["advice"].output_schema["$defs"]["Advice"]["properties"]  # a name, not a title


def test_a_store_is_asked_within_the_root_and_within_bounds(client: Assistant, root: Path) -> None:
    store = Store.open(root / "sme2prof_store", make=True)
    store.add([root / RUN, root / WITH_SME2])
    told = client.ask("query_store")
    assert {"runs", "latest_latencies"} <= {table["name"] for table in told["tables"]} and not told["rows"]
    gain = client.ask("query_store", sql="SELECT verdict, ratio, 'nan'::DOUBLE FROM sme2_gains")
    assert [column["type"] for column in gain["columns"]] == ["VARCHAR", "DOUBLE", "DOUBLE"]
    assert gain["rows"] == [["faster", pytest.approx(2.0, abs=0.2), None]] and gain["left_out"] is None
    long = client.ask("query_store", sql="SELECT i, repeat('x', 1000) FROM range(300) t(i)", limit=200)
    assert len(long["rows"][0][1]) == 503 and len(json.dumps(long["rows"])) < 50_000
    assert long["left_out"].startswith("there are more than 200 rows") and "too long" in long["left_out"]
    told = client.ask("history", model="small_cnn", device="made SME2", since="2020-01-01")
    assert {(series["runs"], series["too_few_to_tell"]) for series in told["series"]} == {(1, True)}
    assert {series["last_tokens_per_s"] for series in told["series"]} == {None}
    shutil.copytree(root / WITH_SME2, root / "step")
    put(root / "step" / "manifest.json", "method", "decode")
    put(root / "step" / "manifest.json", "tokens", 2)
    store.add([root / "step"])
    (step,) = client.ask("history", model="small_cnn_decode", experiment="linux_sme2_on", threads=1)["series"]
    assert step["last_tokens_per_s"] == pytest.approx(2e3 / step["last_ms"])
    assert "did you mean 'small_cnn'?" in client.refused("history", model="smal_cnn")
    refused = client.refused("query_store", sql="FROM lattencies")
    assert "did you mean 'latencies'?" in refused
    shutil.copytree(store.root, root.parent / "outside" / "store")
    assert "outside the root" in client.refused("query_store", store="link_out/store", sql="FROM runs")
    assert "there is no store" in client.refused("query_store", store="empty", sql="FROM runs")


@pytest.mark.quick
def test_a_session_from_doctor_to_advice(client: Assistant, root: Path, sme2prof: Callable[..., Any]) -> None:
    ready = client.ask("doctor")
    assert ready["root"] == str(root)
    assert {target["name"] for target in ready["targets"]} == {"host", "emulated", "android", "ssh"}
    assert "toy_cnn" in [model["name"] for model in client.ask("models", contains="toy")["models"]]

    found = client.ask("runs")
    assert {WITH_SME2, RUN} < {run["run"] for run in found["runs"]}
    assert not [run for run in found["runs"] if run["run"].startswith("link_out")]

    facts = facts_of(root, RUN)
    told = client.ask("summary", run=RUN)
    assert told["answers"] == facts["answers"]
    assert told["times_are"] == "hardware"
    (first, second) = told["experiments"]
    assert (first["threads"], second["threads"]) == (1, 2)
    assert sum(part["ms"] for part in first["parts"]) == pytest.approx(first["traced_ms"], rel=1e-4)
    assert told["not_tested"] == facts["not_tested"]
    assert told["report"] == f"{RUN}/report.md"

    operators = client.ask("top_operators", run=RUN, threads=2, limit=3)
    longest = sorted(facts["series"][1]["operators"], key=lambda one: -one["ms"])[:3]
    assert [one["name"] for one in operators["operators"]] == [one["name"] for one in longest]
    assert operators["operators"][0]["ms"] == pytest.approx(longest[0]["ms"], rel=1e-5)
    assert operators["operators"][0]["source"].endswith("small_cnn.py:22")
    assert operators["left_out"].startswith("3 of 11 operators")

    evidence = client.ask("kernel_evidence", run=RUN)
    assert [place["emulated"] for place in evidence["places"]] == [False, True]
    on = evidence["places"][1]["series"][0]
    assert (on["answer"], on["counted"]) == ("sme2", True)
    assert evidence["coverage"]["operators"] == facts["sme2_coverage"]["operators"]

    outlook = client.ask("headroom", run=RUN)
    assert outlook["kind"] == "projection"
    projected = outlook["projections"][0]
    stored = facts["sme2_headroom"]
    assert projected["speedup_low"] == pytest.approx(stored["low"], rel=1e-5)
    assert projected["bottleneck_after_high"]["name"] == stored["bottleneck_after"]["high"]["category"]
    measured = client.ask("headroom", run=WITH_SME2)
    assert (measured["kind"], measured["projections"]) == ("none", [])
    assert measured["reason"] == facts_of(root, WITH_SME2)["headroom_reason"]

    advice = client.ask("advice", run=RUN, limit=2)
    assert [one["id"] for one in advice["advice"]] == [one["id"] for one in facts["findings"]][:2]
    assert advice["what_next"] == facts["answers"]["what_next"]

    changed = client.ask("compare", before=RUN, after=WITH_SME2, across_machines=True, limit=1)
    told_by_command = sme2prof("compare", root / RUN, root / WITH_SME2, "--across-machines", "--json")
    command = json.loads(told_by_command.stdout)
    assert changed["headline"] == command["headline"]
    assert changed["series"][0]["end_to_end"]["verdict"] == "faster"
    assert client.ask("compare", before=RUN, after=WITH_SME2)["headline"].startswith(
        "Not comparable: they were"
    )


def test_questions_at_the_same_time_are_all_answered(client: Assistant) -> None:
    asked = [("summary", RUN), ("advice", WITH_SME2), ("headroom", RUN), ("kernel_evidence", RUN)]
    began = [(tool, client.begin(tool, {"run": run}, [])) for tool, run in asked]
    for (tool, answer), (_, run) in zip(began, asked, strict=True):
        assert client.answer(tool, answer.result(timeout=120))["run"] == run


def test_emulated_times_are_never_given(client: Assistant) -> None:
    told = client.ask("summary", run=EMULATED_RUN)
    assert [one["traced_ms"] for one in told["experiments"]] == [None, None]
    operators = client.ask("top_operators", run=EMULATED_RUN)
    assert operators["ordered_by"] == "flops"
    assert {one["ms"] for one in operators["operators"]} == {None}


@pytest.mark.parametrize("place", ["..", "../outside", "/etc", "link_out", f"link_out/{RUN}", "a\0b"])
def test_nothing_outside_of_the_root_is_read(client: Assistant, place: str) -> None:
    said = client.refused("summary", run=place)
    assert "outside the root" in said or "path is empty" in said
    assert "`runs`" in said
    assert "link to a folder outside" in client.refused("summary", run="leaking")


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("runs", {"folder": "../.."}, "outside the root"),
        ("compare", {"before": RUN, "after": "../outside"}, "outside the root"),
        ("export", {"model": "../outside/model.py:make"}, "outside the root"),
        ("export", {"model": "link_out/model.py:make"}, "outside the root"),
        ("export", {"model": "os:getcwd"}, "import any module"),
        ("export", {"model": "toy_cnn@../../x"}, "not an option of a model"),
        ("export", {"model": "toy_cnn@checkpoint=/etc/passwd"}, "outside the root"),
        ("export", {"model": "toy_cnn", "out_dir": "/tmp/elsewhere"}, "outside the root"),
        ("export", {"model": "toy_cnn", "calibration": "/x.py:batches"}, "outside the root"),
        ("profile", {"model": "link_out/out_small_cnn/artifacts/x.pte"}, "outside the root"),
        ("profile", {"model": "toy_cnn", "out_dir": "link_out"}, "outside the root"),
        ("profile", {"model": "toy_cnn", "target": "ssh", "device": "board"}, "--ssh HOST"),
        ("profile", {"model": "toy_cnn", "target": "host", "device": "x"}, "takes no device"),
        (
            "profile",
            {"model": "toy_cnn", "target": "android", "device": "10.0.0.1:5555"},
            "'device' cannot be",
        ),
        ("profile", {"model": "--debug"}, "there is no model"),
        ("profile", {"model": "toy_cn"}, "'toy_cnn'? the tool `models`"),
        ("profile", {"model": "none.pte"}, "no file none.pte"),
        ("profile", {"model": "toy_cnn", "dtype": "fp8"}, "no number format 'fp8'"),
        ("profile", {"model": "toy_cnn", "dtype": "fp32,int4:30"}, "no groups of 30"),
        ("profile", {"model": "toy_cnn", "dtype": "fp32,../x.py:quantizer"}, "outside the root"),
        ("export", {"model": "toy_cnn", "dtype": "os:getcwd"}, "import any module"),
        ("export", {"model": "toy_cnn", "keep": ["--debug"]}, "'keep"),
        ("export", {"model": "toy_cnn", "calibration": "/x.npz"}, "outside the root"),
        ("profile", {"model": "toy_cnn", "threads": "many"}, "'threads' cannot be"),
        ("profile", {"model": "toy_cnn", "budget_s": -1}, "'budget_s' cannot be -1"),
        ("profile", {"model": "toy_cnn", "method": "--debug"}, "'method' cannot be"),
        ("profile", {"model": "toy_cnn", "lengths": ["--debug=1"]}, "'lengths"),
        ("profile", {"model": "toy_cnn", "values": ["x=y"]}, "'values"),
        ("profile_llm", {"model": "../outside/x.pte"}, "outside the root"),
        ("profile_llm", {"model": "toy_cnn", "prompts": [1]}, "'prompts"),
        ("llm_summary", {"folder": "../outside"}, "outside the root"),
        ("llm_summary", {"folder": "empty"}, "there is no llm.json in empty; "),
        ("summary", {"rum": RUN}, "no argument 'rum'"),
        ("summary", {"run": 7}, "'run' cannot be 7"),
        ("summary", {"run": "no_such_run"}, "no_such_run; the tool `runs`"),
        ("summary", {"run": "empty"}, "empty contains no run"),
        ("summary", {"run": "out_small_cnn"}, f"out_small_cnn/runs/xnnpack_fp16/emulated, {RUN}"),
        ("top_operators", {"run": RUN, "experiment": "off"}, "linux_baseline, 1 thread"),
        ("sumary", {}, "'summary'?"),
    ],
)
def test_errors_say_what_to_do(client: Assistant, tool: str, arguments: dict[str, Any], said: str) -> None:
    assert said in client.refused(tool, **arguments)


def test_files_of_runs_are_resources_and_questions_are_prompts(client: Assistant, root: Path) -> None:
    listed = {found.name: found for found in client.portal.call(client.client.list_resources).resources}
    report = listed[f"{WITH_SME2}/report.md"]
    assert report.mime_type == "text/markdown"
    (content,) = client.portal.call(client.client.read_resource, report.uri).contents
    assert content.text == (root / WITH_SME2 / "report.md").read_text()
    assert not [name for name in listed if name.startswith("link_out")]
    for uri in (
        "sme2prof://run/leaking/report.md",
        "sme2prof://run/..%2Foutside/report.md",
        "sme2prof://run/with_sme2/manifest.json",
        "file:///etc/passwd",
    ):
        with pytest.raises(MCPError):
            client.portal.call(client.client.read_resource, uri)
    filled = client.portal.call(client.client.get_prompt, "where_does_the_time_go", {"run": RUN})
    assert RUN in filled.messages[0].content.text
    with pytest.raises(MCPError, match="run"):
        client.portal.call(client.client.get_prompt, "where_does_the_time_go", {})


def _processes(named: str) -> list[str]:
    """The command lines in which `named` occurs, the server's own left out."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue  # it has just ended
        if any(named in word for word in words) and "mcp" not in words:
            found.append(" ".join(words))
    return found


def _until(holds: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_an_export_tells_where_it_is_and_what_came_of_it(client: Assistant, root: Path) -> None:
    heard: list[str] = []
    (root / "formats.py").write_text(
        "from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (\n"
        "    XNNPACKQuantizer, get_symmetric_quantization_config\n)\n"
        "def mine(): return XNNPACKQuantizer().set_global(get_symmetric_quantization_config())\n"
    )
    asked = {"model": "toy_cnn", "dtype": "formats.py:mine", "keep": ["features.0", "features.2"]}
    made = client.answer("export", client.begin("export", asked, heard).result(timeout=300))
    assert made["outputs_agree"] is True
    assert made["operators_delegated"] == made["operators"] > 0
    assert "lowering toy_cnn_xnnpack_own-mine-kept" in heard
    assert (root / made["program"]).is_file()
    assert (root / made["etrecord"]).is_file()


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_a_cancelled_measurement_leaves_nothing_running_and_goes_on_later(client, root, exported) -> None:
    program = root / "my_toy_cnn.pte"
    shutil.copy(exported("toy_cnn").pte, program)
    heard: list[str] = []
    asked = {"model": program.name, "target": "host", "budget_s": 2, "out_dir": "jobs"}
    first = client.begin("profile", asked, heard)
    _until(lambda: any("launch 1" in text for text in heard))
    assert _processes(program.name)
    refusal = client.refused("export", model="toy_cnn")
    assert f"profile {program.name}" in refusal
    assert "has been running" in refusal

    first.cancel()
    _until(lambda: not _processes(program.name), 20)
    (run_dir,) = (path.parent for path in (root / "jobs").rglob("manifest.json"))
    LockFile(run_dir.parent / f".{run_dir.name}.lock", "the run", "").check_free()
    (left,) = client.ask("runs", folder="jobs")["runs"]
    assert "interrupted" in left["verdict"]
    limited = {**asked, "resume": True, "time_limit_s": 0.2}
    _until(lambda: "has been running" not in client.refused("profile", **limited), 20)
    assert "larger time_limit_s" in client.refused("profile", **limited)

    heard.clear()
    resumed = client.begin("profile", {**asked, "resume": True}, heard)
    done = client.answer("profile", resumed.result(timeout=300))
    assert any(text.startswith("measuring") for text in heard)
    assert any(text.startswith("analysing") for text in heard)
    (run,) = done["runs"]
    assert (root / run["run"], run["state"]) == (run_dir, "finished")
    assert validate(run_dir).ok
    assert client.ask("summary", run=run["run"])["answers"] == run["answers"]
    assert not _processes(program.name)


def test_a_language_model_is_measured_by_phases_and_by_method(client, root, exported) -> None:
    made = exported("tiny_llama@layers=1,prompt=16,context=32")
    program = root / "my_llama.pte"
    shutil.copy(made.pte, program)
    asked = {"model": program.name, "target": "host", "budget_s": 0.5, "out_dir": "out_llm"}
    told = client.ask("profile_llm", **asked, prompts=[8], positions=[31, 32])
    phases = [(case["phase"], case["tokens"], case["position"]) for case in told["cases"]]
    assert phases == [("prompt", 8, 0), ("answer", 1, 31)]
    (left_out,) = told["not_measured"]
    says(left_out, "an answer after 32 tokens", "the cache holds 32")
    written = json.loads((root / told["folder"] / "llm.json").read_text())
    assert told["answers"] == written["answers"] and (root / told["report"]).is_file()
    assert (told["context"], told["weight_bytes_per_token"]) == (32, written["read"]["weights"])
    assert client.ask("llm_summary", folder=told["folder"]) == told
    assert client.ask("summary", run=told["cases"][0]["run"])["state"] == "finished"
    assert f"give one of {told['folder']}" in client.refused("llm_summary", folder="empty")
    (root / "damaged").mkdir()
    (root / "damaged" / "llm.json").write_text('{"schema_version": 1, "model": 7}')
    assert "damaged/llm.json: model: " in client.refused("llm_summary", folder="damaged")

    both = client.ask("profile", **asked, values=["input_pos=2"])
    runs = sorted(Path(run["run"]).parent.name for run in both["runs"])
    assert runs == ["my_llama_decode_input_pos_2", "my_llama_prefill_input_pos_2"]
    refused = client.refused("profile", **asked, method="prefill", lengths=["tokens=99"])
    says(refused, "input tokens can have at most the sizes")


def test_the_session_that_the_page_shows_is_real() -> None:
    (block,) = (one for one in blocks_of("docs/how-to/mcp.md") if one.language == "bash" and not one.not_run)
    done = process.run(
        ["bash", "-e", "-o", "pipefail", "-c", block.text],
        timeout=120,
        cwd=ROOT,
        env={"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
    )
    assert done.ok, done.tail()
    assert not missing_line(block.output, done.stdout), done.stdout


def in_own_loop(work: Callable[[], Awaitable[Any]]) -> Any:
    """In a thread of its own: a browser of other tests keeps a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, work).result()


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_server_that_only_reads_offers_no_jobs(root: Path, mode: str) -> None:
    """To clients that begin with a handshake, as before 2026-07-28, and to those that do not."""

    async def offered() -> list[str]:
        async with Client(KitServer(Root.at(root), read_only=True), mode=mode) as client:
            refused = await client.call_tool("profile", {"model": "toy_cnn"})
            assert refused.is_error
            return [tool.name for tool in (await client.list_tools()).tools]

    assert in_own_loop(offered) == [name for name in TOOLS if name not in JOBS]


def test_ssh_goes_to_hosts_the_user_named(tmp_path: Path) -> None:
    target = JobTools(Root.at(tmp_path), Jobs(tmp_path), ("board",)).target
    assert target("ssh", "board") == "ssh:board"
    assert target("android", None) == "android"
    assert target("android", "R5CT") == "android:R5CT"
    with pytest.raises(InputError, match="these hosts: board"):
        target("ssh", "other")


def test_outputs_stay_inside_the_root(tmp_path: Path) -> None:
    folder = tmp_path / "artifacts"
    folder.mkdir()
    (folder / "m_xnnpack_fp32.pte").write_bytes(b"")
    (folder / "-q8.pte").write_bytes(b"")
    root = Root.at(folder)
    assert root.model("-q8.pte") == "./-q8.pte"
    assert root.outputs("m_xnnpack_fp32.pte", "out") == "out"
    with pytest.raises(InputError, match="outside the root"):
        root.outputs("m_xnnpack_fp32.pte", None)  # it would be written beside `artifacts`
    assert root.outputs("toy_cnn", None) is None
    assert root.model("toy_cnn@size=2,checkpoint=~/w.pt") == "toy_cnn@size=2,checkpoint=./~/w.pt"
    assert root.outputs("toy_cnn@size=2", None) is None
    (folder / "out_toy_cnn_size2").symlink_to(tmp_path)
    with pytest.raises(InputError, match="outside the root"):
        root.outputs("toy_cnn@size=2", None)
    (folder / "out_toy_cnn").symlink_to(tmp_path)
    with pytest.raises(InputError, match="outside the root"):
        root.outputs("toy_cnn", None)


def test_without_the_extra_one_line_says_what_to_install(sme2prof, monkeypatch, tmp_path) -> None:
    monkeypatch.setitem(sys.modules, "mcp_types", None)  # a part of its SDK
    monkeypatch.delitem(sys.modules, "model_profiling.mcp_server.server")
    done = sme2prof("mcp", "--root", tmp_path)
    assert done.returncode == 2
    says(done.stderr, "error: ", "Python package mcp", "-m pip install")
    assert sme2prof("mcp", "--root", tmp_path / "none").stderr.startswith("error: there is no folder")


def test_a_driven_command_ends_with_who_drives_it() -> None:
    code = (
        "import time; from model_profiling.cli.progress import shown_progress\n"
        "with shown_progress() as progress:\n"
        "    progress.stage('measuring'); progress.advance(1, 2); time.sleep(60)"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SME2PROF_PROGRESS": "json"},
    )
    assert child.stdin is not None and child.stderr is not None
    said = [json.loads(child.stderr.readline()) for _ in range(2)]
    assert said == [{"stage": "measuring"}, {"stage": "measuring", "done": 1, "total": 2, "text": ""}]
    child.stdin.close()
    assert child.wait(timeout=20) == -signal.SIGTERM
    child.stderr.close()


def test_a_job_that_ignores_its_end_takes_what_it_measures_along(monkeypatch, tmp_path) -> None:
    told = tmp_path / "pid"
    code = (
        "import signal; from model_profiling.core import process\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"process.run(['sh', '-c', 'echo $$ >{told}; exec sleep 60'], timeout=60)"
    )
    monkeypatch.setattr(jobs, "_TO_END_S", 0.2)
    monkeypatch.setattr(jobs, "_START", f"import sys; sys.path.insert(0, sys.argv[1])\n{code}")

    async def cancelled() -> None:
        with anyio.move_on_after(20) as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_told_soon, told, scope)
                await Jobs(tmp_path).run(["profile"], time_limit_s=30, told=_nobody)

    in_own_loop(cancelled)
    measured = int(told.read_text())
    for _ in range(100):
        if not process.run(["ps", "-o", "pid=", "-p", str(measured)], timeout=20).ok:
            return
        time.sleep(0.05)
    os.kill(measured, signal.SIGKILL)
    pytest.fail("what a job measured outlived it")


async def _told_soon(told: Path, scope: anyio.CancelScope) -> None:
    while not told.exists() or not told.read_text().strip():
        await anyio.sleep(0.05)
    scope.cancel()


async def _nobody(_seconds: float, _text: str) -> None:
    pass


def test_several_operators_of_one_call_are_told_under_its_name() -> None:
    """Their time is that of all of them: under the first one's name it would be longer than the operator."""
    place = {"module": "layer.0", "source_line": "bert.py:192", "ms": 0.24, "share_pct": 10.7}
    one = {"operator": "native_call_where.self_out", "call": "scaled_dot_product_attention", **place}
    several = AdvisedOperator.model_validate({**one, "operator_count": 12})
    assert (several.operator, several.operator_count) == ("scaled_dot_product_attention", 12)
    alone = AdvisedOperator.model_validate({**one, "operator_count": 1})
    assert (alone.operator, alone.operator_count) == ("native_call_where.self_out", 1)
    assert AdvisedOperator.model_validate({"operator": "Transpose", **place}).operator_count == 1


def test_a_line_that_is_no_progress_is_none() -> None:
    """A model may print what looks like it: a KeyError ended the whole job."""
    assert jobs._step('{"stage": "measuring", "done": 1}') is None
    assert jobs._step('{"stage": "measuring", "done": 1, "total": 2}') == "measuring 1/2"
