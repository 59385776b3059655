"""A run is continued only while everything that makes its results comparable is the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from model_profiling.errors import InputError
from model_profiling.json_record import parse_record, record_json
from model_profiling.pipeline.resume import check_rounds, check_unchanged
from model_profiling.run import Manifest
from model_profiling.run.manifest import ExecuTorch, Machine, Runner, TargetFacts
from model_profiling.targets import MachineFacts

MANIFEST = Manifest(
    model_sha256="aa",
    target=TargetFacts("host"),
    executorch=ExecuTorch("1.5.1"),
    runner=Runner("b1"),
    machine=Machine(MachineFacts(cpu="N1")),
    settings={
        "notes": "",
        "experiments": [{"name": "on", "runs": 10}],
        "schedule": {"rounds": 4, "seed": 1},
    },
    results=(),
)


def changed(path: tuple[str | int, ...], value: object) -> Manifest:
    content = record_json(MANIFEST)
    place = content
    for key in path[:-1]:
        place = place[key]  # type: ignore[index, assignment]
    place[path[-1]] = value  # type: ignore[index]
    return parse_record(Manifest, content, "changed", "")


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("model_sha256",), "bb", "the model's content was aa, now it is bb"),
        (("target", "name"), "emulated", "the target was host"),
        (("executorch", "version"), "1.6", "the ExecuTorch version was 1.5.1"),
        (("runner", "build_id"), "b2", "the runner was b1"),
        (("machine", "before", "cpu"), "M4", "the CPU was N1"),
        (("settings", "experiments", 0, "runs"), 20, r"experiments\[0\].runs was 10, now it is 20"),
        (("settings", "experiments"), [], "experiments was 1 of them"),
        (("settings", "schedule", "seed"), 2, "schedule.seed was 1, now it is 2"),
    ],
)
def test_a_changed_run_is_not_continued(path: tuple[str | int, ...], value: object, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_unchanged(Path("runs/linux"), MANIFEST, MANIFEST, changed(path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [(("notes",), "later"), (("schedule", "rounds"), 12), (("analysis",), {"confidence": 0.9})],
)
def test_more_rounds_and_notes_may_change(path: tuple[str, ...], value: object) -> None:
    check_unchanged(Path("runs/linux"), MANIFEST, MANIFEST, changed(("settings", *path), value))


def test_a_part_is_held_against_its_own_config_and_machine() -> None:
    """What another config put into the run may be as it is."""
    other = replace(MANIFEST, settings={"experiments": [{"name": "trace"}]}, machine=Machine())
    check_unchanged(Path("runs/linux"), other, MANIFEST, MANIFEST)
    with pytest.raises(InputError, match="the CPU was"):
        check_unchanged(Path("runs/linux"), MANIFEST, other, MANIFEST)


def test_fewer_rounds_than_were_begun_are_refused(tmp_path: Path) -> None:
    check_rounds(tmp_path, 9, 9)
    with pytest.raises(InputError, match="with 8 rounds: round 9 was begun; ask for 9 rounds or more"):
        check_rounds(tmp_path, 9, 8)
    with pytest.raises(InputError, match="with 1 round: round 2 was begun"):
        check_rounds(tmp_path, 2, 1)
