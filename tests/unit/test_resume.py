"""A run is continued only while everything that makes its results comparable is the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from said import refused

from model_profiling.core.errors import InputError
from model_profiling.core.records import parse_record, record_json
from model_profiling.pipeline.start import check_rounds, check_unchanged
from model_profiling.run import Manifest
from model_profiling.run.manifest import ExecuTorch, Machine, Runner, TargetFacts
from model_profiling.targets import MachineFacts

MANIFEST = Manifest(
    model_sha256="aa",
    target=TargetFacts("host"),
    executorch=ExecuTorch("1.5.1"),
    runner=Runner("b1"),
    machine=Machine(MachineFacts(cpu="N1")),
    settings={"notes": "", "experiments": [{"name": "on", "runs": 10}], "schedule": {"rounds": 4, "seed": 1}},
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
    ("path", "value", "facts"),
    [
        (("model_sha256",), "bb", ("model", "aa", "bb")),
        (("target", "name"), "emulated", ("target", "host", "emulated")),
        (("executorch", "version"), "1.6", ("ExecuTorch", "1.5.1", "1.6")),
        (("runner", "build_id"), "b2", ("runner", "b1", "b2")),
        (("machine", "before", "cpu"), "M4", ("CPU", "N1", "M4")),
        (("settings", "experiments", 0, "runs"), 20, ("experiments[0].runs", "10", "20")),
        (("settings", "experiments"), [], ("experiments", "1", "[]")),
        (("settings", "schedule", "seed"), 2, ("schedule.seed", "1", "2")),
    ],
)
def test_a_changed_run_is_not_continued(path, value, facts):
    with refused(InputError, "runs/linux", *facts):
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
    with refused(InputError, "CPU"):
        check_unchanged(Path("runs/linux"), MANIFEST, other, MANIFEST)


def test_fewer_rounds_than_were_begun_are_refused(tmp_path: Path) -> None:
    check_rounds(tmp_path, 9, 9)
    with refused(InputError, tmp_path, "8 rounds", "round 9", fix="9 rounds"):
        check_rounds(tmp_path, 9, 8)
    with refused(InputError, tmp_path, "1 round", "round 2", fix="2 rounds"):
        check_rounds(tmp_path, 2, 1)
