"""The page of a store says what the records say: of everything, also where it has no room for all."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from made_store import DEVICES, PROGRAMS, STEPS, made_store

from model_profiling.report.document import plain
from model_profiling.report.store_index import Kernels, Method, SeriesHistory, StoreContents, render_store
from model_profiling.report.store_index.answers import answers
from model_profiling.report.store_index.page_size import HISTORIES, POINTS, RUNS, fitted

MADE = made_store()
FEW = made_store(PROGRAMS[:1], {"Phone": 1.0}, 40)


def told(contents: StoreContents) -> list[str]:
    return [plain(answer) for _, answer in answers(contents).entries]


def test_the_answers_are_of_all_runs() -> None:
    inventory, slower, kernels = told(MADE)
    assert inventory.startswith(f"{len(MADE.runs):,} runs, 2026-07-19 to 2026-11-")
    assert inventory.endswith(
        f"{len({name for name, _ in PROGRAMS})} models on {len(DEVICES)} devices and an emulator."
    )
    judged = len(PROGRAMS) * len(DEVICES)
    assert slower.startswith(
        f"Yes: 2 of {judged} histories, most of all resnet50 xnnpack fp32 on Phone A (3f2a), 5.8%"
    )
    assert slower.endswith("1 became faster.")
    assert kernels == "Yes: proven for 5 of 6 programs; not tested: whisper_tiny_encoder xnnpack fp16."


def test_a_level_that_came_back_is_not_slower() -> None:
    """The last change counts."""
    histories = tuple(
        replace(each, changes=(*each.changes, replace(each.changes[0], before_ms=2.0, after_ms=1.0)))
        if each.changes
        else each
        for each in MADE.histories
    )
    assert told(replace(MADE, histories=histories))[1].startswith(
        "No: of 18 histories, none became slower. 3 "
    )


def test_too_few_runs_are_not_judged() -> None:
    short = tuple(replace(each, points=each.points[:3], changes=()) for each in FEW.histories)
    assert told(replace(FEW, histories=short))[1] == (
        "Not known yet: it takes 10 runs of one model on one device to tell a change from noise, "
        "and there are 3 at most."
    )


@pytest.mark.parametrize(
    ("states", "answer"),
    [
        ((Kernels.RAN, Kernels.NOT_TESTED), "Yes: proven for 1 of 1 program."),
        ((Kernels.RAN, Kernels.NONE_RAN), "Not proven: none ran in mobilenet_v3_small xnnpack fp16."),
        ((Kernels.NONE_RAN, Kernels.RAN_EMULATED), "Yes: proven for 1 of 1 program."),
        (
            (Kernels.NONE_RAN, Kernels.SME_RAN),
            "Not proven: SME or SME2, which is not told: mobilenet_v3_small xnnpack fp16.",
        ),
        ((Kernels.NOT_TESTED, Kernels.NOT_TESTED), "Not tested: no run has kernel evidence."),
    ],
)
def test_the_newest_test_of_kernels_counts(states: tuple[Kernels, Kernels], answer: str) -> None:
    runs = [replace(run, kernels=state) for run, state in zip(FEW.runs[:2], states, strict=True)]
    for order in (runs, runs[::-1]):
        assert told(replace(FEW, runs=tuple(order)))[2] == answer


def test_an_empty_store_says_how_to_fill_it() -> None:
    page = render_store(StoreContents("empty", (), (), Method(10, 0)))
    assert "sme2prof store add RUN_DIR" in page and "<table" not in page


def test_a_store_that_fits_is_whole() -> None:
    short, note = fitted(MADE)
    assert note == "" and set(short.runs) == set(MADE.runs) and len(short.histories) == len(MADE.histories)
    assert [run.measured for run in short.runs] == sorted((run.measured for run in MADE.runs), reverse=True)


def test_a_large_store_keeps_the_newest_and_what_changed() -> None:
    """The answers are of what was left out, too."""
    many = FEW.runs * (RUNS // len(FEW.runs) + 2)
    runs = tuple(
        replace(run, id=str(place), measured=f"2026-01-01T{place:08}") for place, run in enumerate(many)
    )
    changed = next(each for each in MADE.histories if each.changes)
    point = changed.points[0]

    def history(number: int) -> SeriesHistory:
        points = tuple(replace(point, run=str(place)) for place in range(len(runs) - 2 * POINTS, len(runs)))
        change = (replace(changed.changes[0], run=points[-2].run),) if number % 3 == 0 else ()
        return replace(changed, model=f"m{number}", points=points, changes=change)

    histories = tuple(history(number) for number in range(HISTORIES + 9))
    short, note = fitted(replace(FEW, runs=runs, histories=histories))
    assert short.runs[0].id == str(len(runs) - 1) and len(short.runs) == RUNS
    assert len(short.histories) == HISTORIES
    assert {each.model for each in histories if each.changes} <= {each.model for each in short.histories}
    assert all(len(each.points) == each.left_out == POINTS for each in short.histories)
    assert f"{RUNS:,} of {len(runs):,} runs" in note and f"{HISTORIES} of {HISTORIES + 9} histories" in note
    assert FEW.command in note


def test_data_and_tables_tell_the_same() -> None:
    page = render_store(MADE)
    found = re.search(r'<script type="application/json" id="store">(.*?)</script>', page, re.DOTALL)
    assert found
    data = json.loads(found[1])
    assert len(data["runs"]) == len(MADE.runs) and len(data["histories"]) == len(MADE.histories)
    changes = [each for each in data["histories"] if each["changes"] and each["headline"]]
    assert len(changes) == len(STEPS)
    for each in changes:
        ((at, before, after),) = each["changes"]
        assert 0 < at < len(each["ms"]) and f"{abs(100 * (after / before - 1)):.1f}% " in page
        assert f"{each['ms'][-1]:.2f} ms</a>" in page


def test_nothing_unseen_and_nothing_that_runs() -> None:
    runs = tuple(replace(run, model="m\u202e\x1b", device="<script>alert(1)</script>") for run in FEW.runs)
    page = render_store(replace(FEW, runs=runs, name="n\u2066"))
    assert not {"\u202e", "\x1b", "\u2066"} & set(page) and "<script>alert" not in page
