"""The page of a store says what the records say: of everything, also where it has no room for all."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from made_store import DEVICES, PROGRAMS, STEPS, made_change, made_store
from said import says, says_together

from model_profiling.report import store_index
from model_profiling.report.document import plain
from model_profiling.report.history import HistorySeries
from model_profiling.report.store_index import (
    Kernels,
    StoreContents,
    answers,
    fit_page,
    page_data,
    render_store,
)
from model_profiling.statistics.change_points import FEWEST_RUNS, ChangePoint

MADE = made_store()
FEW = made_store(PROGRAMS[:1], {"Phone": 1.0}, 40)


def told(contents: StoreContents) -> list[str]:
    return [plain(answer) for _, answer in answers(contents).entries]


def changed(series: HistorySeries, *changes: ChangePoint) -> HistorySeries:
    return replace(series, found=replace(series.found, changes=changes))


def drawn(contents: StoreContents) -> Any:
    found = re.search(r'<script type="application/json">(.*?)</script>', render_store(contents), re.DOTALL)
    assert found
    return json.loads(found[1])


def test_the_answers_are_of_all_runs() -> None:
    inventory, slower, kernels = told(MADE)
    last = f"{max(run.at for run in MADE.runs):%Y-%m-%d}"
    models = len({name for name, _ in PROGRAMS})
    says(inventory, f"{len(MADE.runs):,} runs", "2026-07-19", last)
    says(inventory, f"{models} models", f"{len(DEVICES)} devices", "emulator")
    judged = len(PROGRAMS) * len(DEVICES)
    says(slower, "yes", f"2 of {judged}", "resnet50 XNNPACK fp32", "Phone A (3f2a)", "5.8% slower")
    says_together(slower, "1", "faster")
    says(kernels, "yes", "5 of 6 programs", "not tested: whisper_tiny_encoder XNNPACK fp16")


@pytest.mark.parametrize(
    ("shares", "answer"),
    [
        ((0.5, -0.008), ("yes", "48.8% slower")),
        ((-0.5, 0.2), ("yes", "20.0% slower")),
        ((0.5, -0.33), ("no", "none")),
        ((0.5, -0.4), ("no", "1 became faster")),
        ((-0.2, -0.1), ("no", "1 became faster")),
    ],
)
def test_slower_is_said_by_the_best_level_there_was(shares, answer):
    """An improvement of 0.8% after a loss of 50% does not make a series faster."""
    made = [made_change(number, 1.0, 1.0 + share) for number, share in enumerate(shares, start=1)]
    histories = tuple(changed(each, *made) for each in FEW.histories)
    says(told(replace(FEW, histories=histories))[1], *answer)


def test_neither_a_level_that_came_back_nor_too_few_runs_are_slower() -> None:
    back = made_change(40, 2.0, 1.0)
    histories = tuple(changed(each, *each.changes, back) if each.changes else each for each in MADE.histories)
    answer = told(replace(MADE, histories=histories))[1]
    assert answer.startswith("No")
    says(answer, "18 histories", "none", "3")
    short = tuple(
        replace(each, points=each.points[:3], found=replace(each.found, runs=3)) for each in FEW.histories
    )
    says(told(replace(FEW, histories=short))[1], "not known", f"{FEWEST_RUNS} runs", "3")


@pytest.mark.parametrize(
    ("states", "answer"),
    [
        ((Kernels.RAN, Kernels.NOT_TESTED), ("yes", "1 of 1")),
        ((Kernels.RAN, Kernels.NONE_RAN), ("not proven", "none ran", "mobilenet_v3_small XNNPACK fp16")),
        ((Kernels.NONE_RAN, Kernels.RAN_EMULATED), ("yes", "1 of 1")),
        (
            (Kernels.NONE_RAN, Kernels.SME_RAN),
            ("not proven", "SME or SME2", "mobilenet_v3_small XNNPACK fp16"),
        ),
        ((Kernels.NOT_TESTED, Kernels.NOT_TESTED), ("not tested",)),
    ],
)
def test_the_newest_test_of_kernels_counts(states: tuple[Kernels, Kernels], answer: tuple[str, ...]) -> None:
    runs = [replace(run, kernels=state) for run, state in zip(FEW.runs[:2], states, strict=True)]
    for order in (runs, runs[::-1]):
        says(told(replace(FEW, runs=tuple(order)))[2], *answer)


def test_a_store_that_fits_is_whole_and_an_empty_one_says_how_to_fill_it() -> None:
    runs, histories, note = fit_page(MADE)
    assert note == "" and set(runs) == set(MADE.runs) and len(histories) == len(MADE.histories)
    assert [run.at for run in runs] == sorted((run.at for run in MADE.runs), reverse=True)
    page = render_store(StoreContents("empty", (), ()))
    assert "sme2prof store add RUN_DIR" in page and "<table" not in page


def test_a_large_store_keeps_the_newest_and_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    most_runs, most_histories, most_points = 300, 12, 20
    for name, most in (("RUNS", most_runs), ("HISTORIES", most_histories), ("POINTS", most_points)):
        monkeypatch.setattr(store_index, name, most)
    runs, histories, note = fit_page(MADE)
    by_date = sorted(MADE.runs, key=lambda run: run.at, reverse=True)
    assert {run.id for run in runs} == {run.id for run in by_date[:most_runs]}
    assert f"{most_runs} of {len(MADE.runs):,} runs" in note and MADE.command in note
    assert f"{most_histories} of {len(MADE.histories)} histories" in note
    data: Any = page_data(MADE, runs, histories)
    for history in data["histories"]:
        assert history["headline"] and history["left"] > 0
        assert 0 < len(history["runs"]) == len(history["ms"]) <= most_points
        assert max(history["runs"]) < most_runs
    kept = {(series.key.model, series.key.format, series.key.device_name) for series in histories}
    assert {(*program, device) for program, device in STEPS} <= kept
    assert plain(answers(MADE).entries[1][1]) in re.sub(r"<[^>]*>", "", render_store(MADE))


def test_a_page_of_ten_thousand_runs_is_of_bounded_size() -> None:
    programs = [(f"model_{number}", dtype) for number in range(14) for dtype in ("fp16", "int8")]
    made = made_store(programs, {f"Phone {number}": 1 + number / 7 for number in range(6)}, 110)
    assert len(made.runs) > 10_000 and len(render_store(made)) < 2_500_000


def test_data_and_tables_tell_the_same() -> None:
    page, data = render_store(MADE), drawn(MADE)
    assert len(data["runs"]) == len(MADE.runs) and len(data["histories"]) == len(MADE.histories)
    changes = [each for each in data["histories"] if each["changes"] and each["headline"]]
    assert len(changes) == len(STEPS)
    for each in changes:
        ((at, before, after, share, _, day),) = each["changes"]
        assert (
            0 < at < len(each["ms"])
            and f"{abs(100 * share):.1f}% " in page
            and share == pytest.approx(after / before - 1, abs=1e-3)
        )
        assert f"{each['ms'][-1]:.2f} ms</a>" in page and f">{day} " in page


def test_nothing_unseen_and_nothing_that_runs() -> None:
    runs = tuple(replace(run, model="m\u202e\x1b", device="<script>alert(1)</script>") for run in FEW.runs)
    page = render_store(replace(FEW, runs=runs, name="n\u2066"))
    assert not {"\u202e", "\x1b", "\u2066"} & set(page) and "<script>alert" not in page


def test_a_drift_that_began_before_the_page_is_drawn_from_there_and_told_whole(monkeypatch):
    (history,) = (each for each in FEW.histories if each.key in FEW.headlines)
    last = len(history.points) - 1
    made = replace(FEW, histories=(changed(history, made_change(1, 1.0, 1.21, until=last)),))
    says(told(made)[1], "21.0% gradually slower")
    half = len(history.points) // 2
    monkeypatch.setattr(store_index, "POINTS", len(history.points) - half)
    page = render_store(made)
    assert "1.000 ms" in page and "1.210 ms" in page
    ((at, before, after, share, until, _),) = drawn(made)["histories"][0]["changes"]
    assert (at, before, after, share, until) == (1 - half, 1.0, 1.21, 0.21, last - half)
