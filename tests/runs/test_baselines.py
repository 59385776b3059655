"""`sme2prof compare --against store:BASELINE`: which stored run is meant, what it answers, what is kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from recorded_runs import ARM, EMULATED, SME2, Json, edit, load, rename_launches, slow_down
from said import says

from model_profiling.core.errors import InputError
from model_profiling.runs import Times
from model_profiling.statistics.speedup import Verdict
from model_profiling.store.labels import Labels
from model_profiling.store.store import Store
from model_profiling.workflow.compare import compare
from model_profiling.workflow.stored_runs import compare_with_baseline, find_baseline, judged_run

pytestmark = pytest.mark.usefixtures("elsewhere")
HERE = Labels(commit="c0ffee", branch="main")
GATE = ("--fail-on-regression", 5)


def another(recorded: Path, to: Path, day: int) -> Path:
    """The same measurements as if made on another day of December, in other launches."""
    shutil.copytree(recorded, to)
    rename_launches(to, lambda launch: f"{day:02}{launch[2:]}")

    def later(manifest: Json) -> None:
        for session in manifest["sessions"]:
            session["started"] = f"2026-12-{day:02}T10:00:00+00:00"

    edit(to / "manifest.json", later)
    _slim(to)
    return to


def _slim(run_dir: Path) -> None:
    """One thread and one dump of each series, which is read in a quarter of the time."""

    def first(manifest: Json) -> None:
        manifest["results"] = [
            {**result, "etdump_rounds": [], "etdump_launches": [], "boundaries": []}
            for result in manifest["results"]
            if result["threads"] == 1
        ]

    def one_thread(metrics: Json) -> None:
        metrics["latencies"] = [each for each in metrics["latencies"] if each["threads"] == 1]

    edit(run_dir / "manifest.json", first)
    edit(run_dir / "metrics.json", one_thread)
    for path in (*run_dir.glob("*/rounds"), *run_dir.glob("*/*_t2*")):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("runs")
    made = {name: another(SME2, home / name, day) for name, day in (("one", 1), ("two", 2), ("three", 3))}
    return {**made, "emulated": another(EMULATED, home / "emulated", 4)}


@pytest.fixture(scope="module")
def filled(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Store.open(tmp_path_factory.mktemp("filled") / "store.db", make=True)
    made.add([runs["one"], runs["emulated"]], HERE)
    made.add([runs["two"]], Labels(commit="beef", branch="main", tags=("release",)))
    return Path(made.address)


@pytest.fixture
def store(filled: Path, tmp_path: Path) -> Store:
    """Two runs on one device and one of another, under emulation."""
    return Store.open(shutil.copy(filled, tmp_path / "store.db"))


def id_of(run_dir: Path) -> str:
    return str(judged_run(run_dir)["run_id"])


def test_a_stored_run_answers_as_its_directory_does(store: Store, runs: dict[str, Path]) -> None:
    """The same statistics on the same latencies, whatever became of the directory."""
    stored = compare_with_baseline(runs["three"], store=store, limit=0.05)
    named = compare(runs["two"], runs["three"], limit=0.05)
    assert stored.answer == named.answer == "passed" and len(stored.series) == len(named.series) == 2
    for ours, theirs in zip(stored.series, named.series, strict=True):
        assert ours.after == theirs.after and ours.way == theirs.way == "apart"
        assert ours.end_to_end.as_dict() == pytest.approx(theirs.end_to_end.as_dict())
    assert stored.differing_facts == named.differing_facts == ()
    assert "beef" in stored.a.name and id_of(runs["two"])[:12] in stored.a.name


def phase(recorded: Path, to: Path, day: int, position: int = 5) -> Path:
    """The run as one of a language model's step."""

    def step(manifest: Json) -> None:
        manifest |= {"method": "decode", "fed": f"input_pos_{position}", "tokens": 1, "position": position}

    edit(another(recorded, to, day) / "manifest.json", step)
    return to


def test_phases_of_a_language_model_are_compared_and_other_cases_refused(tmp_path, sme2prof) -> None:
    a, b, other = (
        phase(SME2, tmp_path / name, day, at) for name, day, at in (("a", 8, 5), ("b", 9, 5), ("c", 9, 6))
    )
    slow_down(b, 1.5)
    median = load(SME2 / "metrics.json")["latencies"][0]["end_to_end_ms"]["median"]
    fast = f"{1e3 / median:,.0f}"
    compared = json.loads(sme2prof("compare", a, b, "--json").stdout)["series"][0]
    assert compared["compared_ms"]["b"] == pytest.approx(1.5 * compared["compared_ms"]["a"])
    done = sme2prof("compare", a, b, *GATE)
    assert done.returncode == 1
    says(done.stdout, "more than the 5.0% allowed")
    says(sme2prof("compare", a, b).stdout, "A is 1.50x as fast as B")
    store = Store.open(tmp_path / "store.db", make=True)
    store.add([a], HERE)
    stored = sme2prof("compare", b, "--against", "store:last-good", "--store", store.address, *GATE)
    assert stored.stdout.splitlines()[-1] == done.stdout.splitlines()[-1]
    for found in (
        sme2prof("compare", a, other, *GATE),
        sme2prof("compare", other, "--against", f"store:{id_of(a)}", "--store", store.address, *GATE),
    ):
        assert found.returncode == 2
        says(found.stderr, "A ran decode, 1 token at position 5; B ran decode, 1 token at position 6")
    # A history is asked for by the model's name, or by that of one of its cases.
    for model in ("small_cnn", "small_cnn_decode_input_pos_5"):
        says(sme2prof("history", model, "--store", store.address).stdout, f"ms ({fast} tokens/s)")
    (row,) = store.rows("SELECT * FROM latencies WHERE sme2")
    assert (row["tokens"], row["position"]) == (1, 5)
    assert row["tokens_per_s"] == pytest.approx(1e3 / row["median_ms"])


def test_the_last_good_is_the_newest_that_nobody_calls_bad(store: Store, runs: dict[str, Path]) -> None:
    judged = judged_run(runs["three"])

    def last_good() -> str:
        return str(find_baseline(store, "last-good", judged)["run_id"])

    assert last_good() == id_of(runs["two"])
    with pytest.raises(InputError, match="did you mean 'last-good'"):
        find_baseline(store, "last-goood", judged)
    store.tag([id_of(runs["two"])], ["bad"])
    assert last_good() == id_of(runs["one"])
    store.tag([id_of(runs["two"])], ["bad"], remove=True)
    assert last_good() == id_of(runs["two"])
    store.tag([id_of(runs["one"]), id_of(runs["two"])], ["bad"])
    with pytest.raises(InputError, match=r"no other run 'last-good' of small_cnn .*add one that is good"):
        last_good()


def test_a_run_is_never_its_own_baseline(store: Store, runs: dict[str, Path], tmp_path: Path) -> None:
    """Whether it is in the store already, and wherever its copy lies."""
    moved = tmp_path / "moved"
    shutil.copytree(runs["two"], moved)
    assert find_baseline(store, "last-good", judged_run(moved))["run_id"] == id_of(runs["one"])
    with pytest.raises(InputError, match="no other run in"):
        find_baseline(store, id_of(moved)[:8], judged_run(moved))
    with pytest.raises(InputError, match="no other run in"):
        find_baseline(store, "release", judged_run(moved))


def test_a_baseline_is_meant_by_tag_name_or_id(store: Store, runs: dict[str, Path]) -> None:
    judged, two = judged_run(runs["three"]), id_of(runs["two"])
    for word in ("release", "small_cnn_xnnpack_fp16/linux", two, two[:6]):
        assert find_baseline(store, word, judged)["run_id"] == two
    # A tag that several have means the newest that fits; one that none fits is refused with what it is of.
    store.tag([id_of(runs["one"])], ["release"])
    assert find_baseline(store, "release", judged)["run_id"] == two
    store.tag([id_of(runs["emulated"])], ["elsewhere"])
    with pytest.raises(InputError, match=r"'elsewhere' .*made SME2 CPU.*emulated"):
        find_baseline(store, "elsewhere", judged)


def test_another_device_is_refused_unless_machines_are_the_question(
    store: Store, runs: dict[str, Path], sme2prof, tmp_path: Path
) -> None:
    arm = another(ARM, tmp_path / "arm", 5)
    done = sme2prof("compare", arm, "--against", "store:last-good", "--store", store.address, *GATE)
    assert done.returncode == 2 and "Neoverse-N1" in done.stderr and "made SME2 CPU" in done.stderr
    assert done.stderr.count("\n") == 1 and "--across-machines" in done.stderr
    named = f"store:{id_of(runs['two'])}"
    words = ("compare", arm, "--against", named, "--store", store.address, *GATE)
    assert sme2prof(*words).returncode == 2
    across = sme2prof(*words, "--across-machines", "--json")
    assert across.returncode == 1, across.stderr
    # The newest of all is emulated, which no machine is.
    assert find_baseline(store, "last-good", judged_run(arm), across_machines=True)["times"] == "hardware"
    assert [found["what"] for found in json.loads(across.stdout)["differing"]] == ["CPU"]


def test_an_emulator_is_no_other_machine_to_be_judged_by(runs: dict[str, Path], tmp_path: Path) -> None:
    """Nor is the run itself, which the store may have: what is said then leads somewhere."""
    store = Store.open(tmp_path / "store.db", make=True)
    store.add([runs["emulated"], runs["one"]], Labels(commit=""))
    with pytest.raises(InputError, match=r"no other run .*emulated QEMU") as refused:
        find_baseline(store, "last-good", judged_run(runs["one"]))
    assert "--across-machines" not in refused.value.fix and "store add" in refused.value.fix


def test_a_named_machine_has_baselines_of_its_own(runs: dict[str, Path], tmp_path: Path) -> None:
    """Two boards of one kind are told apart by the name that their owner gives them."""
    store = Store.open(tmp_path / "store.db", make=True)
    store.add([runs["one"]], Labels(commit="", device="board-1"))
    with pytest.raises(InputError, match=r"no other run .*small_cnn.*--across-machines"):
        compare_with_baseline(runs["two"], store=store)
    assert compare_with_baseline(runs["two"], store=store, device="board-1", limit=0.05).answer == "passed"


def test_emulated_baselines_have_no_times(store: Store, tmp_path: Path) -> None:
    timed = compare_with_baseline(another(EMULATED, tmp_path / "b", 6), store=store, limit=0.05)
    assert timed.answer == "no answer" and timed.a.times is Times.EMULATED
    assert {each.end_to_end.verdict for each in timed.series} == {Verdict.NOT_COMPARABLE}


def test_a_regression_that_is_kept_as_bad_is_no_baseline(
    store: Store, runs: dict[str, Path], sme2prof, tmp_path: Path
) -> None:
    b = another(SME2, tmp_path / "b", 7)
    slow_down(b, 1.25)
    junit, page = tmp_path / "j.xml", tmp_path / "s.md"
    done = sme2prof(
        "compare", b, "--against", "store:last-good", "--store", store.address, *GATE,
        "--out", junit, "--out", page,
    )  # fmt: skip
    assert done.returncode == 1 and "Regression" in done.stdout, done.stderr
    assert "store:last-good" in page.read_text()
    (suite,) = ElementTree.parse(junit).getroot()
    assert suite.get("failures") == "2"
    assert not store.rows("SELECT 1 FROM runs WHERE run_id = :run_id", run_id=id_of(b)), "it only reads"
    assert sme2prof("store", "add", b, "--tag", "bad", "--store", store.address).ok
    assert find_baseline(store, "last-good", judged_run(runs["three"]))["run_id"] == id_of(runs["two"])
    assert sme2prof("store", "tag", id_of(b), "bad", "--remove", "--store", store.address).ok
    assert find_baseline(store, "last-good", judged_run(runs["three"]))["run_id"] == id_of(b)


def test_the_first_run_has_no_answer_and_the_command_that_adds_it(
    runs: dict[str, Path], sme2prof, tmp_path: Path
) -> None:
    place = tmp_path / "store.db"
    words = ("compare", runs["one"], "--against", "store:last-good", "--store", place, *GATE)
    none = sme2prof(*words)
    assert none.returncode == 2 and "there is no store" in none.stderr and not place.exists()
    assert sme2prof("store", "add", runs["one"], "--store", place).ok
    alone = sme2prof(*words)
    assert alone.returncode == 2
    says(alone.stderr, "small_cnn", "store add")
    second = sme2prof(words[0], runs["two"], *words[2:])
    assert second.returncode == 0
    says(second.stdout, "No regression", "5.0%")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--against", "last-good"), "is not a baseline"),
        (("--against", "store:"), "is not a baseline"),
        (("--against", "store:x", "--times", "hardware"), "--times"),
        (("--against", "store:x", "--fail-on-change", "kernels"), "two run directories"),
        (("--against", "store:x", "--force"), "--force"),
        (("--store", "x", SME2), "--store"),
        (("--against", "store:x", SME2), "one run and its baseline"),
        ((), "--against store:last-good"),
    ],
)
def test_words_that_do_not_go_together_are_refused(words: tuple[object, ...], said: str, sme2prof) -> None:
    done = sme2prof("compare", SME2, *words)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1
