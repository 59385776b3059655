"""`sme2prof history`: what is told, drawn and left out, from a store whose changes are known."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from made_history import Made, made_store
from made_runs import BEGINNING, MadeRun, make_run, recorded
from postgres import PASSWORD, Postgres
from recorded_runs import ARM, X86_64, medians
from said import says

from model_profiling.core.errors import InputError
from model_profiling.core.process import Completed
from model_profiling.report.history import MOST_RUNS, HistorySeries, history_chart
from model_profiling.store.labels import Labels
from model_profiling.store.store import Store
from model_profiling.workflow.stored_runs import load_history

Sme2prof = Callable[..., Completed]
STEP_AT = 40
PHONE = {"device": "phone-3f2a", "device_name": "Pixel 10 <b>|x"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return made_store(
        tmp_path_factory.mktemp("history") / "made.db",
        [
            Made(60, steps={STEP_AT: 0.04}, newer={STEP_AT: {"executorch": "1.5.1"}}),
            Made(130, ms=9, steps={30: -0.1, 90: 0.05}, experiment="linux_sme2_off", threads=2),
            Made(5, run=dict(PHONE)),
            Made(3, times="emulated", run={"device": "emulated", "dtype": "int8"}),
            Made(MOST_RUNS + 20, run={"model": "long"}),
            Made(12, run={"model": "tiny_llama_prefill", "method": "prefill"}),
            Made(12, ms=2, run={"model": "tiny_llama_decode", "method": "decode"}),
        ],
    )


def one(store: Store, **asked: object) -> HistorySeries:
    (series,) = load_history(store, **{"model": "toy_cnn", **asked}).series  # type: ignore[arg-type]
    return series


def test_changes_are_told_with_commits_and_what_else_changed(store: Store, sme2prof: Sme2prof) -> None:
    told = sme2prof("history", "toy_cnn", "--store", store.address)
    assert told.returncode == 0, told.stderr
    facts = json.loads(sme2prof("history", "toy_cnn", "--store", store.address, "--json").stdout)
    by_name = {(each["device"], each["experiment"]): each for each in facts["series"]}
    first = by_name["neoverse-n1-2", "linux_baseline"]
    (change,) = first["changes"]
    assert change["earliest"] <= STEP_AT <= change["latest"]
    assert change["low"] < 0.04 < change["high"]
    assert change["also_changed"] == ["ExecuTorch 1.5.0 -> 1.5.1"]
    at, before = (change[run]["commit"][:10] for run in ("run", "run_before"))
    assert f"commit {at}, after commit {before}" in told.stdout
    second = by_name["neoverse-n1-2", "linux_sme2_off"]
    assert [each["change"] > 0 for each in second["changes"]] == [False, True]
    # The rate is told with every history that was judged, and nothing is claimed of one that is too short.
    for series in (first, second):
        assert f"at most {series['false_alarms']:.1%}" in told.stdout
    assert by_name["phone-3f2a", "linux_baseline"]["too_few_to_tell"]
    assert "5 runs: too few" in told.stdout
    assert facts["left_out"] == [{"reason": "times are emulated", "runs": 3}]
    assert "3 runs left out" in told.stdout


def test_options_narrow_it(store: Store) -> None:
    assert len(one(store, device="pixel").points) == 5
    assert one(store, device="phone-3f2a").key.device_name == PHONE["device_name"]
    assert len(one(store, threads=2).points) == 130
    assert one(store, experiment="linux_sme2_off", backend="xnnpack", dtype="fp16").key.threads == 2
    late = one(store, threads=2, since=datetime(2026, 6, 15))
    assert late.points[0].at == datetime(2026, 6, 15, 4, 1)
    assert not late.changes
    assert not load_history(store, "toy_cnn", dtype="int8").series


def test_a_language_model_stands_for_its_methods(store: Store) -> None:
    history = load_history(store, "tiny_llama")
    assert [series.key.model for series in history.series] == ["tiny_llama_prefill", "tiny_llama_decode"]
    assert one(store, model="tiny_llama_decode").key.model == "tiny_llama_decode"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"model": "toy_cn"}, "'toy_cnn'"),
        ({"dtype": "fp99"}, "--dtype fp99; leave out an option"),
        ({"device": "pixel", "threads": 2}, "--device pixel --threads 2; leave out"),
    ],
)
def test_what_no_run_fits_is_refused_with_what_is_there(
    store: Store, asked: dict[str, object], told: str
) -> None:
    with pytest.raises(InputError, match=told):
        one(store, **asked)


def test_the_page_in_both_forms(store: Store, sme2prof: Sme2prof, tmp_path: Path) -> None:
    page = tmp_path / "history.md"
    done = sme2prof("history", "toy_cnn", "--store", store.address, "--out", page)
    assert done.returncode == 0, done.stderr
    text, html = page.read_text(), page.with_suffix(".html").read_text()
    says(text, "False alarms", "60 runs")
    says(html, "False alarms", "60 runs")
    assert "Pixel 10 <b>" not in html  # escaped
    assert sorted(path.name for path in tmp_path.iterdir()) == ["history.html", "history.md", "history_files"]


def test_long_histories_show_their_newest_runs(store: Store) -> None:
    series = one(store, model="long")
    rows = history_chart(series).spec["datasets"]
    assert isinstance(rows, dict) and len(rows["points"]) == MOST_RUNS
    assert rows["points"][-1]["run"] == len(series.points)


def test_a_cpu_that_is_not_arm_is_marked_in_list_and_history(tmp_path: Path, sme2prof: Sme2prof) -> None:
    store = Store.open(tmp_path / "runs.db", make=True)
    store.add([ARM, X86_64])
    listed = sme2prof("store", "list", "--store", store.address).stdout
    says(listed, f"{medians(X86_64)[0]} (not Arm)", "says nothing about Arm")
    assert listed.count("(not Arm)") == 2 and f"{medians(ARM)[1]} (not Arm)" not in listed
    rows = json.loads(sme2prof("store", "list", "--store", store.address, "--json").stdout)["runs"]
    assert {row["device"]: row["is_arm"] for row in rows} == {
        "made-x86_64-cpu-2-cores": False, "neoverse-n1-2-cores": True,
    }  # fmt: skip
    page = tmp_path / "history.md"
    told = sme2prof("history", "small_cnn", "--store", store.address, "--out", page).stdout
    for text in (told, page.read_text()):
        says(text, "on made x86_64 CPU, 2 cores (not Arm)", "which says nothing about Arm")
        assert "Neoverse-N1, 2 cores (not Arm)" not in text
    facts = json.loads(sme2prof("history", "small_cnn", "--store", store.address, "--json").stdout)
    assert [series["is_arm"] for series in facts["series"]] == [True, True, False]
    sme2prof("store", "add", ARM, "--store", tmp_path / "arm.db")
    assert "not Arm" not in sme2prof("store", "list", "--store", tmp_path / "arm.db").stdout


def test_a_latency_that_went_up_is_found_in_runs_that_were_added(tmp_path: Path) -> None:
    """Runs a day apart, the last eight 6% slower, the last four of another kit."""
    template, chance = recorded(), random.Random(3)
    newer = copy.deepcopy(template)
    newer["manifest.json"]["kit_version"] = "9.9"
    for day in range(24):
        slower = (1.06 if day >= 16 else 1.0) * chance.gauss(1, 0.005)
        run = MadeRun(day, slower, started=BEGINNING + timedelta(days=day), operators=1)
        make_run(tmp_path / "runs" / f"{day}", run, newer if day >= 20 else template)
    store = Store.open(tmp_path / "runs.db", make=True)
    store.add([tmp_path / "runs"], Labels(commit=""))
    series = load_history(store, "small_cnn").series[0]
    (change,) = series.changes
    assert series.points[change.first].date.startswith("2026-01-17")
    assert change.change == pytest.approx(0.06, abs=0.01)
    ((first, text),) = series.news
    assert series.news_at(change) == [] and text.startswith("kit ")
    assert series.points[first].date.startswith("2026-01-21")


@pytest.mark.slow
def test_a_server_answers_like_a_file(postgres: Postgres, tmp_path: Path, sme2prof: Sme2prof) -> None:
    postgres.run("CREATE DATABASE history")
    made = [Made(40, steps={25: 0.05}), Made(3, times="emulated", run={"is_arm": False})]
    addresses = postgres.address("history"), str(tmp_path / "runs.db")
    for address in addresses:
        made_store(address, made)
    server, file = (sme2prof("history", "toy_cnn", "--json", "--store", address) for address in addresses)
    assert server.returncode == 0, server.stderr
    assert json.loads(server.stdout) == json.loads(file.stdout)
    (series,) = json.loads(server.stdout)["series"]
    assert len(series["changes"]) == 1
    pages = [tmp_path / f"{name}.html" for name in ("server", "file")]
    for address, page in zip(addresses, pages, strict=True):
        assert sme2prof("view", address, "--no-browser", "--out", page).returncode == 0
    on_server, in_file = (page.read_text() for page in pages)
    assert PASSWORD not in on_server
    assert on_server.replace("Runs in history", "Runs in runs.db") == in_file
    (error,) = sme2prof("history", "toy", "--store", addresses[0]).stderr.splitlines()
    assert "did you mean 'toy_cnn'?" in error and PASSWORD not in error
