"""What the bench of methods rests on: pools that read back, methods that say what they saw, neighbours."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from said import refused, says_together

BENCH = Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

from quality import figures, methods, neighbours, page, picture, pools  # noqa: E402
from quality.programs import EFFECTS, LAYERS  # noqa: E402

from model_profiling.core.errors import FormatError, InputError  # noqa: E402


def made_up(drift: float = 0.0, launches: int = 30, waited: int = 0, threads: int = 1) -> pools.Pool:
    """Programs that take 1 ms for 100 layers, give or take 0.2% by launch; from process to process the
    machine gets slower, by `drift` in all. Threads that use 1 ms of CPU time wait for `waited` ns more."""
    noise = random.Random(5)

    def inference(name: str, level: float) -> int:
        return round(1e4 * LAYERS[name] * level * (1 + 0.001 * noise.random()))

    def launch() -> pools.Launch:
        turns = {}
        for name in LAYERS:
            dealt = 1 + noise.gauss(0, 0.002)
            turns[name] = tuple(tuple(inference(name, dealt) for _ in range(4)) for _ in range(5))
        return pools.Launch(0.5, turns, dict.fromkeys(LAYERS, (10**6, waited)))

    def processes(number: int) -> dict[str, pools.Process]:
        level = 1 + drift * number / 40 + noise.gauss(0, 0.0002)
        return {
            name: pools.Process(
                number / 10 + at / 100, 0.1 * level, tuple(inference(name, level) for _ in range(5))
            )
            for at, name in enumerate(LAYERS)
        }

    made = tuple(launch() for _ in range(launches))
    return pools.Pool(threads, 0, 4, 5, made, made[:6], tuple(processes(number) for number in range(40)))


@pytest.fixture(scope="module")
def steady() -> pools.Pool:
    return made_up()


def test_lockstep_finds_what_is_there_and_nothing_else(steady: pools.Pool) -> None:
    for count, method in ((6, methods.launches(6)), (7, methods.adaptive)):
        found = figures.judge(steady, method, 25, "seed")
        assert found.claimed[0.0] <= 0.04 and found.wrong_way == 0
        assert min(found.claimed[work] for work in (0.01, 0.02, 0.03, 0.05)) >= 0.96
        assert found.seconds == pytest.approx(count * 0.2, rel=0.1)


def test_two_threads_without_their_cores_are_refused_after_two_launches() -> None:
    found = figures.judge(made_up(waited=10**6, threads=2), methods.adaptive, 5, "seed")
    assert found.refused == 1 and found.seconds == pytest.approx(0.4)
    assert figures.judge(made_up(waited=10**6), methods.adaptive, 5, "seed").refused == 0


def test_all_of_one_then_all_of_the_other_takes_a_drift_for_a_difference(steady: pools.Pool) -> None:
    drifting = made_up(drift=0.10)
    for method in (methods.naive, methods.naive_tested, methods.hyperfine_tested):
        assert figures.judge(drifting, method, 20, "seed").claimed[0.0] == 1
    assert figures.judge(drifting, methods.rounds, 20, "seed").claimed[0.0] == 0
    assert figures.judge(steady, methods.naive, 20, "seed").claimed[0.0] == 0
    assert figures.judge(steady, methods.naive, 20, "seed").false_without_threshold == 1


def test_a_method_gets_its_trial_in_the_order_of_time(steady: pools.Pool) -> None:
    pair = EFFECTS[0.03]
    for seed in range(20):
        ours, theirs, _ = methods._halves(steady, pair, random.Random(seed))
        began = [process.began_s for process in (*ours, *theirs)]
        assert len(ours) == len(theirs) >= 3 and began == sorted(began)


def test_what_is_promised_depends_on_how_far_processes_spread(steady: pools.Pool) -> None:
    everything = {work: 1.0 if work else 0.0 for work in EFFECTS}
    perfect = figures.Figures(1, everything, 0, 0, 0)
    weak = figures.Figures(1, {**everything, 0.01: 0.85}, 0, 0, 0)
    wild = made_up(drift=2.0)
    campaign = pools.Campaign(machine="", seed=1, pools={"quiet": steady, "one": steady, "two": wild})
    for figure, wanted in ((perfect, [True, None, True]), (weak, [False, None, True])):
        shown = {name: {methods.ADAPTIVE: figure} for name in campaign.pools}
        assert [outcome.holds for outcome in figures.outcomes(campaign, shown)] == wanted


def test_pools_read_back_and_are_put_together(steady: pools.Pool, tmp_path: Path) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    pools.keep(first, pools.Campaign(machine="here", seed=3, pools={"quiet": steady}))
    pools.keep(second, pools.Campaign(machine="here", seed=3, pools={"two": steady}))
    assert pools.read([first, second]).pools == {"quiet": steady, "two": steady}
    with refused(InputError, first, "quiet"):
        pools.read([first, first])
    content = json.loads(first.read_text())
    content["pools"]["quiet"]["launches"] = []
    second.write_text(json.dumps(content))
    with refused(InputError, second, "no condition"):
        pools.read([second])
    second.write_text(first.read_text()[:-100])
    with refused(FormatError, second, "JSON"):
        pools.read([second])


def test_tables_go_between_the_marks_of_a_page(steady: pools.Pool, tmp_path: Path) -> None:
    campaign = pools.Campaign(machine="here", seed=3, pools={"quiet": steady})
    curve = figures.Figures(1, dict.fromkeys(EFFECTS, 0.5), 0, 0, 0)
    shown = {"quiet": dict.fromkeys(methods.METHODS, curve)}
    text = page.short(campaign, shown, figures.outcomes(campaign, shown), 10)
    says_together(text, "the kit's rounds", "50.0% / 50% / 50% / 50%")
    assert "| FAIL |" in text
    document = tmp_path / "docs" / "page.md"
    document.parent.mkdir()
    begin, end = "<!-- bench/x.py --into: begin -->", "<!-- bench/x.py --into: end -->"
    document.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    for _ in range(2):
        page.put_into(document, text, "bench/x.py")
        assert document.read_text() == f"before\n{begin}\n{text}\n{end}\nafter\n"
    with refused(InputError, document, "bench/y.py"):
        page.put_into(document, text, "bench/y.py")
    assert "](images/power.svg)" in page.linked(tmp_path / "docs" / "images" / "power.svg", document)


def is_gone(pid: int) -> bool:
    for _ in range(200):
        state = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
        )
        if state.stdout.strip() == "" or state.stdout.startswith("Z"):
            return True
        time.sleep(0.05)
    return False


BENCHING = """
import signal, sys, time
from quality import neighbours
neighbours.cores = lambda: 1
signal.signal(signal.SIGTERM, neighbours.leave)
with neighbours.working(neighbours.Neighbours(1, changing=True), 1) as pids:
    print(*pids, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_neighbours_end_with_the_bench(number: signal.Signals) -> None:
    bench = subprocess.Popen(
        [sys.executable, "-c", BENCHING],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(BENCH)},
    )
    with bench:
        (pid,) = map(int, bench.stdout.readline().split())
        bench.send_signal(number)
        bench.wait(20)
    assert is_gone(pid)


def test_a_picture_of_the_figures(tmp_path: Path) -> None:
    curve = figures.Figures(1, dict.fromkeys(EFFECTS, 0.5), 0, 0, 0)
    shown = {name: dict.fromkeys(methods.METHODS, curve) for name in ("quiet", "two")}
    path = tmp_path / "curves.svg"
    picture.draw(path, shown)
    text = path.read_text(encoding="utf-8")
    assert text.startswith("<svg") and "two busy neighbours" in text and "hyperfine" in text


def test_a_neighbour_is_one_process_for_each_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "cores", lambda: 1)
    with neighbours.working(neighbours.Neighbours(2), 1) as pids:
        assert len(pids) == 2
    assert all(map(is_gone, pids))
    with neighbours.working(neighbours.Neighbours(), 1) as none:
        assert none == ()
