"""Which rewrites `--optimize` applies: those that were saved for this model and format, else by structure."""

from __future__ import annotations

import json
from pathlib import Path

from said import refused

from model_profiling.core.errors import FormatError, InputError
from model_profiling.export.catalogue import ONLY_IF_MEASURED
from model_profiling.export.rewrites import chosen_rewrites, names

SAVED = {"schema_version": 1, "model": "net", "source": "net.py:make", "kept": ["attention", "layer norm"]}


def saved(folder: Path, **changed: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "optimization.json").write_text(json.dumps(SAVED | changed))
    return folder


def chosen(optimize: object, home: Path, model: str = "net") -> tuple[str, ...] | None:
    program = home / "artifacts" / f"{model}_xnnpack_fp16-optimized.pte"
    return chosen_rewrites(optimize, model, "net.py:make", program)  # type: ignore[arg-type]


def test_a_saved_choice_is_applied_by_its_file_and_by_its_folder(tmp_path: Path) -> None:
    folder = saved(tmp_path / "elsewhere")
    for named in (folder, folder / "optimization.json", str(folder)):
        assert chosen(named, tmp_path) == ("attention", "layer norm")
    assert chosen(folder, tmp_path, "renamed") == ("attention", "layer norm"), "its source is the same"
    assert chosen(saved(tmp_path / "nothing", kept=[]), tmp_path) == ()


def test_without_a_file_the_choice_for_this_format_is_found_or_structure_chooses(tmp_path: Path) -> None:
    by_structure = chosen(True, tmp_path)
    assert by_structure == tuple(name for name in names() if name not in ONLY_IF_MEASURED)
    saved(tmp_path / "runs" / "xnnpack_fp32-optimized")
    assert chosen(True, tmp_path) == by_structure
    saved(tmp_path / "runs" / "xnnpack_fp16-optimized", model="other", source="other.py:make")
    assert chosen(True, tmp_path) == by_structure
    saved(tmp_path / "runs" / "xnnpack_fp16-optimized")
    assert chosen(True, tmp_path) == ("attention", "layer norm")
    assert chosen(False, tmp_path) is None and chosen((), tmp_path) is None


def test_a_file_that_holds_no_choice_for_this_model_is_refused(tmp_path: Path) -> None:
    with refused(InputError, "gone.json", fix="optimization.json"):
        chosen("gone.json", tmp_path)
    with refused(InputError, "other", "net", fix="this model"):
        chosen(saved(tmp_path, model="other", source="other.py:make"), tmp_path)
    with refused(InputError, "faster maths", fix="sme2prof optimize"):
        chosen(saved(tmp_path, kept=["faster maths"]), tmp_path)
    for damaged in ("{", "[]", "{}", json.dumps(SAVED | {"kept": "attention"}), '{"schema_version": 2}'):
        (tmp_path / "optimization.json").write_text(damaged)
        with refused(FormatError, "optimization.json", fix="sme2prof optimize"):
            chosen(tmp_path, tmp_path)
