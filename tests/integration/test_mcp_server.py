"""`sme2prof mcp` through the SDK's own client: every tool on real data, jobs, and what is refused."""

from __future__ import annotations

import functools
import json
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import click
import psutil
import pytest
from assistant import Assistant, assistant
from conftest import ROOT
from mcp import Client
from recorded_runs import ARM, EMULATED, PROGRAM, SME2
from said import says
from stand_ins import wait_until

from model_profiling.cli.main import program
from model_profiling.core import process
from model_profiling.core.errors import InputError
from model_profiling.core.files import LockFile
from model_profiling.mcp_server import jobs
from model_profiling.mcp_server.commands import JOBS, READING, Root
from model_profiling.mcp_server.server import KitServer
from model_profiling.validation.validate import validate

RUN = "out_small_cnn/runs/xnnpack_fp16/linux"
EMULATED_RUN = RUN.replace("linux", "emulated")
WITH_SME2 = f"with_sme2/{RUN}"
STORE = "team.db"
ABOUT_JOBS = ["job_status", "cancel_job"]
TO_READ = [tool.name for tool in READING]


def printed(root: Path, *words: str) -> Any:
    """What the command prints in the root with `--json`."""
    argv = [sys.executable, "-m", "model_profiling", *words, "--json"]
    done = process.run(argv, timeout=120, cwd=root, env={"PYTHONPATH": str(ROOT)})
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: runs of a CPU without SME2 and of one with it, and a link that leads out."""
    folder = tmp_path_factory.mktemp("user") / "root"
    for recorded, place in ((ARM, RUN), (EMULATED, EMULATED_RUN), (SME2, WITH_SME2)):
        shutil.copytree(recorded, folder / place)
    outside = folder.parent / "outside"
    shutil.copytree(folder / "with_sme2", outside)
    (outside / "model.py").write_text("raise SystemExit('this must never be run')\n")
    (folder / "link_out").symlink_to(outside)
    (folder / "round").symlink_to("round")
    return folder


@pytest.fixture(scope="module")
def stored(root: Path) -> None:
    assert len(printed(root, "store", "add", RUN, WITH_SME2, "--store", STORE)["runs"]) == 2


@pytest.fixture(scope="module")
def client(root: Path) -> Iterator[Assistant]:
    with assistant(root) as connected:
        yield connected


@pytest.mark.quick
def test_tools_are_what_click_declares(client: Assistant) -> None:
    listed = {tool.name: tool for tool in client.portal.call(client.client.list_tools).tools}
    assert list(listed) == [*TO_READ, *(tool.name for tool in JOBS), *ABOUT_JOBS]
    for tool in (tool.of(program()) for tool in READING + JOBS):
        shown = listed[tool.name]
        properties = shown.input_schema["properties"]
        assert shown.description and shown.description.startswith((tool.command.help or "").splitlines()[0])
        assert shown.annotations is not None and shown.annotations.read_only_hint is (tool in READING)
        for name, parameter in tool.parameters.items():
            assert parameter.required == (name in shown.input_schema["required"])
            if isinstance(parameter, click.Option):
                assert properties[name]["description"].startswith(parameter.help)
    asked = listed["profile"].input_schema["properties"]
    assert listed["optimize"].input_schema["properties"]["backend"]["enum"] == ["xnnpack", "portable"]
    assert asked["budget"]["type"] == "number" and asked["budget"]["description"].endswith("Default: 30.")
    assert asked["target"]["default"] == "auto"
    assert asked["keep"]["type"] == "array" and asked["quick"]["type"] == "boolean"
    assert asked["optimize"]["type"] == ["boolean", "string"]
    assert not {"debug", "force", "json", "power_mode", "quiet"} & asked.keys()
    assert not {"csv", "parquet", "out"} & listed["query"].input_schema["properties"].keys()
    assert not {"scheduler", "tls_key"} & listed["sweep"].input_schema["properties"].keys()


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("doctor", {}, ["doctor"]),
        ("models", {"limit": 200}, ["models"]),
        ("validate", {"run_dir": RUN, "limit": 50}, ["validate", RUN]),
        ("compare", {"a": RUN, "b": WITH_SME2}, ["compare", RUN, WITH_SME2]),
        ("history", {"model": "small_cnn", "store": STORE}, ["history", "small_cnn", "--store", STORE]),
        ("store_list", {"store": STORE}, ["store", "list", "--store", STORE]),
        (
            "query",
            {"sql": "SELECT count(*) AS runs\nFROM runs", "store": STORE},
            ["query", "SELECT count(*) AS runs\nFROM runs", "--store", STORE],
        ),
        ("config_check", {"path": f"{RUN}/config.json"}, ["config", "check", f"{RUN}/config.json"]),
    ],
)
def test_an_answer_is_what_the_command_prints(client, root, tool, arguments, words) -> None:
    answer = client.ask(tool, **arguments)
    whole = printed(root, *words)
    assert answer["state"] == "done" and answer["other_parts"] == []
    for key, value in whole.items():
        if not any(cut.startswith(key) for cut in answer["cut"]):
            assert answer["answer"][key] == value, key


@pytest.mark.quick
def test_a_run_answers_part_by_part_and_stays_as_it_is(client, root: Path, tmp_path: Path) -> None:
    assert set(client.facts("runs", place=".")["runs"]) == {RUN, EMULATED_RUN, WITH_SME2}
    before = {path: path.stat().st_mtime_ns for path in (root / RUN).rglob("*")}
    summary = client.ask("analyze", run_dir=RUN)
    assert {path: path.stat().st_mtime_ns for path in (root / RUN).rglob("*")} == before
    whole = printed(root, "analyze", RUN, "--out", str(tmp_path))
    assert summary["answer"]["answers"] == whole["answers"]
    assert {"findings", "series", "sme2_headroom"} <= set(summary["other_parts"])
    assert summary["exit_code"] == 0

    longest = client.facts("analyze", run_dir=RUN, part=["series.0.operators"], sort_by="ms", limit=3)
    times = [operator["ms"] for operator in longest["series.0.operators"]]
    assert times == sorted((operator["ms"] for operator in whole["series"][0]["operators"]), reverse=True)[:3]
    assert len(longest["series.0.operators"][0]["output_shape"]) == 4  # a shape is never cut

    # The earlier answer is kept: other parts of it need no second analysis.
    rest = client.ask("job_status", job=summary["job"], part=["findings", "sme2_coverage.reason"], limit=2)
    assert rest["answer"]["findings"] == whole["findings"][:2]
    assert rest["cut"][0] == f"findings: 2 of {len(whole['findings'])} items"
    assert rest["answer"]["sme2_coverage.reason"] == whole["sme2_coverage"]["reason"]
    second = client.facts("job_status", job=summary["job"], part=["findings"], first=1, limit=1)
    assert second["findings"] == whole["findings"][1:2]

    large = client.ask("job_status", job=summary["job"], part=list(whole), limit=200)
    assert len(json.dumps(large["answer"], ensure_ascii=False)) <= 40_000
    assert any("series" in cut for cut in large["cut"])
    for wrong in ({"part": ["series.9"]}, {"part": ["finding"]}, {"part": ["findings"], "sort_by": "ms"}):
        client.refused("job_status", job=summary["job"], **wrong)


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    [
        ("analyze", {"run_dir": "../outside"}, "outside the root"),
        ("analyze", {"run_dir": "/etc"}, "outside the root"),
        ("analyze", {"run_dir": f"link_out/{RUN}"}, "outside the root"),
        ("analyze", {"run_dir": RUN, "model": "link_out/x.pte"}, "outside the root"),
        ("analyze", {"run_dir": "round/x"}, "round"),
        ("analyze", {"run_dir": "a\0b"}, "NUL"),
        ("analyze", {"run_dir": "-"}, "is -"),
        ("analyze", {"run_dir": "no\nsuch"}, "there is no run directory no"),
        ("analyze", {"run_dir": RUN, "times": "--debug"}, "is not one of"),
        ("analyze", {"rundir": RUN}, "'rundir' was unexpected"),
        ("analyze", {}, "'run_dir' is a required property"),
        ("analyze", {"run_dir": 7}, "$.run_dir: 7 is not of type 'string'"),
        ("report", {"run_dirs": [RUN, "link_out"]}, "outside the root"),
        ("report", {"run_dirs": [RUN], "out": "../page.md"}, "outside the root"),
        ("compare", {"a": "a.pte", "b": "b.pte"}, "`compare_programs`"),
        ("query", {"sql": "SELECT 1", "store": "postgresql://host/db"}, "outside the root"),
        ("query", {"sql": "DROP TABLE runs", "store": STORE}, ""),
        ("export", {"model": "link_out/model.py:make"}, "outside the root"),
        ("export", {"model": "os:getcwd"}, "could import any module"),
        ("export", {"model": "toy_cnn", "dtype": "os:getcwd"}, "could import any module"),
        ("export", {"model": "edgetam_image_encoder@checkpoint=/w.pt"}, "outside the root"),
        ("export", {"model": "edgetam_image_encoder@size=512,checkpoint=link_out/w.pt"}, "outside the root"),
        ("export", {"model": "toy_cnn", "keep": ["--debug"]}, "does not say what to keep"),
        ("profile", {"model": "toy_cnn", "dtype": "fp32,../x.py:quantizer"}, "outside the root"),
        ("profile", {"model": "toy_cnn", "target": "ssh:board"}, "ssh is allowed to no host"),
        ("profile", {"model": "toy_cnn", "target": "android:10.0.0.1:5555"}, "is an address"),
        ("profile", {"model": "toy_cnn", "budget": -1}, "--budget"),
        ("profile", {"model": "toy_cnn", "length": ["x=1" + ",1" * 100]}, "more than 64 parts"),
        ("profile", {"model": "toy_cnn", "power_mode": "boost"}, "'power_mode' was unexpected"),
        ("sumary", {}, "there is no tool 'sumary'"),
        ("analyse", {}, "'analyze'?"),
        ("job_status", {"job": "job-0"}, "there is no job 'job-0'"),
    ],
)
def test_what_is_refused(client: Assistant, tool: str, arguments: dict[str, Any], problem: str) -> None:
    assert problem in client.refused(tool, **arguments)


def test_paths_are_checked_whole_and_in_parts(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a:link").symlink_to(tmp_path)
    root = Root.at(tmp_path / "root", ("board",))
    fine = ("x", "-q8.pte", "fp32,int4:32", "x.py:make", "ssh:board", "android:R5CT", "m@size=2", "3:15")
    for text in fine:
        root.check("model", text)
    root.check("sql", "SELECT '/etc/passwd', 'a:b'")
    wrong = ("m@checkpoint=a:link/w.pt,size=2", "m@checkpoint=~/w.pt", "a:link", "ssh:other", "x.py:f,b.c:d")
    for text in wrong:
        with pytest.raises(InputError):
            root.check("model", text)
    (tmp_path / "artifacts").mkdir()
    with pytest.raises(InputError, match="the folder above"):
        Root.at(tmp_path / "artifacts")


def _running(name: str) -> list[list[str]]:
    """The command lines in which `name` occurs, the server's own left out."""
    lines = [found.info["cmdline"] or [] for found in psutil.process_iter(["cmdline"])]
    return [words for words in lines if name in " ".join(words) and "mcp" not in words]


def test_an_export_tells_where_it_is_and_what_came_of_it(client: Assistant, root: Path) -> None:
    heard: list[str] = []
    (root / "formats.py").write_text(
        "from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (\n"
        "    XNNPACKQuantizer, get_symmetric_quantization_config\n)\n"
        "def mine(): return XNNPACKQuantizer().set_global(get_symmetric_quantization_config())\n"
    )
    asked = {"model": "toy_cnn", "dtype": "formats.py:mine", "keep": ["features.0=fp32"], "wait_s": 300}
    made = client.answer("export", client.begin("export", asked, heard).result(timeout=300))["answer"]
    assert made["accuracy"]["ok"] is True
    assert "lowering toy_cnn_xnnpack_own-mine-kept" in heard
    assert (root / made["folder"] / made["pte"]).is_file()


def test_a_cancelled_measurement_leaves_nothing_running_and_goes_on_later(client, root, exported) -> None:
    own = root / "my_toy_cnn.pte"
    shutil.copy(exported("toy_cnn").pte, own)
    asked = {"model": own.name, "target": "host", "budget": 20, "outdir": "measured"}
    begun = client.ask("profile", **asked, wait_s=0)
    status = functools.partial(client.ask, "job_status", job=begun["job"], wait_s=0)
    assert (begun["state"], begun["answer"]) == ("running", {})
    wait_until(lambda: "launch " in status()["stage"], "a launch")
    assert _running(own.name)
    assert f"{begun['job']} (profile) has been running" in client.refused("export", model="toy_cnn")

    ended = client.ask("cancel_job", job=begun["job"])
    assert ended["state"] == "cancelled" and "the same command continues" in " ".join(ended["messages"])
    assert not _running(own.name)
    (run_dir,) = (path.parent for path in (root / "measured").rglob("manifest.json"))
    LockFile(run_dir.parent / f".{run_dir.name}.lock", "the run", "").check_free()
    limited = client.ask("profile", **asked, time_limit_s=0.5)
    assert limited["state"] == "stopped at its time limit"

    # A call that the client takes back before it has an id ends its job.
    heard: list[str] = []
    call = client.begin("profile", {**asked, "outdir": "taken_back", "wait_s": 300}, heard)
    assert client.facts("analyze", run_dir=RUN)  # reading goes on meanwhile
    wait_until(lambda: any("launch" in text for text in heard), "a launch")
    call.cancel()
    wait_until(lambda: "has been running" not in client.refused("run", config="none.json"), "its end", 30)
    assert not _running(own.name)

    done = client.ask("profile", **asked, wait_s=300)
    (run,) = done["answer"]["runs"]
    assert (root / run["run_dir"], run["state"]) == (run_dir, "finished")
    assert validate(run_dir).ok
    assert client.facts("analyze", run_dir=run["run_dir"])["answers"] == run["answers"]


def test_every_job_does_its_work(client: Assistant, root: Path, exported) -> None:
    """One call of each that no other test makes, as short as it may be."""
    shutil.copy(PROGRAM, root / "small.pte")
    wait = {"wait_s": 300}
    both = {"a": "small.pte", "b": "small.pte", "target": "host", "budget": 0.5}
    compared = client.facts("compare_programs", **both, **wait)
    (change,) = (series["end_to_end"] for series in compared["series"])
    # By chance, six launches fall on one side in 3% of all calls.
    assert change["verdict"] == "no significant change" or not change["low"] <= 1 <= change["high"]
    config = {
        "model": "small.pte", "output_root": "from_config", "target": {"name": "host"},
        "experiments": [{"name": "first", "runs": 2, "threads": 1}], "schedule": {"budget_s": 0.5},
    }  # fmt: skip
    (root / "config.json").write_text(json.dumps(config))
    assert client.facts("run", config="config.json", **wait)["state"] == "finished"
    pages = client.facts("report", run_dirs=["from_config"], out="page.md", **wait)
    assert (root / "page.md").is_file() and "answers" in pages
    sweep = {"name": "few", "models": ["small.pte"], "targets": ["host"], "threads": [1, 2]}
    (root / "sweep.json").write_text(json.dumps(sweep))
    cells = client.facts("sweep", file="sweep.json", dry_run=True, no_store=True, **wait)["cells"]
    assert {cell["threads"] for cell in cells} == {1, 2}

    made = exported("tiny_llama@layers=1,prompt=16,context=32")
    shutil.copy(made.pte, root / "my_llama.pte")
    language = client.facts(
        "llm", model="my_llama.pte", target="host", budget=0.5, prompt="8", context="31", **wait
    )
    assert [(case["phase"], case["tokens"]) for case in language["cases"]] == [("prompt", 8), ("answer", 1)]


@pytest.mark.parametrize("kill", [False, True])
def test_jobs_end_with_the_client_and_with_the_server(root: Path, exported, kill: bool) -> None:
    own = root / f"left_{kill}.pte"
    shutil.copy(exported("toy_cnn").pte, own)
    asked = {"model": own.name, "target": "host", "budget": 60, "outdir": f"left_{kill}", "wait_s": 0}
    with assistant(root) as leaving:
        leaving.ask("profile", **asked)
        wait_until(lambda: _running(own.name), "its job")
        if kill:
            alive = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
            servers = [child for child in alive if "mcp" in child.cmdline()]
            max(servers, key=psutil.Process.create_time).kill()  # the other is that of the other tests
            wait_until(lambda: not _running(own.name), "its job's end", 30)
    wait_until(lambda: not _running(own.name), "its job's end", 30)


@pytest.mark.quick
@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_server_that_only_reads_offers_no_jobs(root: Path, mode: str) -> None:
    """To clients that begin with a handshake, as before 2026-07-28, and to those that do not."""

    async def offered() -> list[str]:
        async with Client(KitServer(Root.at(root), program(), read_only=True).sdk, mode=mode) as client:
            refused = await client.call_tool("profile", {"model": "toy_cnn"})
            assert refused.is_error
            return [tool.name for tool in (await client.list_tools()).tools]

    with ThreadPoolExecutor(1) as pool:  # a browser of other tests keeps a loop running in this one
        assert pool.submit(anyio.run, offered).result() == [*TO_READ, *ABOUT_JOBS]


def test_without_the_extra_one_line_says_what_to_install(sme2prof, monkeypatch, tmp_path) -> None:
    monkeypatch.setitem(sys.modules, "mcp_types", None)  # a part of its SDK
    monkeypatch.delitem(sys.modules, "model_profiling.mcp_server.server")
    done = sme2prof("mcp", "--root", tmp_path)
    assert done.returncode == 2
    says(done.stderr, "error: ", "Python package mcp", "-m pip install")
    assert sme2prof("mcp", "--root", tmp_path / "none").stderr.startswith("error: there is no folder")


def test_a_job_that_ignores_its_end_takes_what_it_started_along(monkeypatch, tmp_path) -> None:
    told = tmp_path / "pid"
    code = (
        "import signal; from model_profiling.core import process\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"process.run(['sh', '-c', 'echo $$ >{told}; exec sleep 60'], timeout=60)"
    )
    monkeypatch.setattr(jobs, "_TO_END_S", 0.2)
    monkeypatch.setattr(jobs, "_START", f"import sys; sys.path.insert(0, sys.argv[1])\n{code}")
    job = jobs.ToolJobs(tmp_path).start("profile", [], 60, alone=True)
    wait_until(lambda: told.exists() and told.read_text().strip(), "its process")
    job.cancel()
    assert job.finished.wait(20) and job.state == "cancelled"
    wait_until(lambda: not psutil.pid_exists(int(told.read_text())), "its process's end", 20)
