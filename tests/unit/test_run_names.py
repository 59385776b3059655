"""What files of a run are called, and what a name says back."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_profiling.run import Series
from model_profiling.run.names import (
    RunFiles,
    default_run_dir,
    dump_stem,
    earlier_name,
    series_of_dump,
    variant_of,
)

ON = Series("mac_sme2_on", 2)


def test_names_follow_the_contract(tmp_path: Path) -> None:
    place = RunFiles(tmp_path, "toy_xnnpack_fp16")
    first, later = place.dump(ON, 0), place.dump(ON, 3)
    assert place.relative(first) == "mac_sme2_on/toy_xnnpack_fp16_mac_sme2_on_t2.etdump"
    assert place.relative(later) == "mac_sme2_on/rounds/toy_xnnpack_fp16_mac_sme2_on_t2_r3.etdump_round"
    assert place.summary("md").name == "toy_xnnpack_fp16_pipeline_summary.md"
    assert series_of_dump(first, tmp_path) == (ON, 0)
    assert series_of_dump(later, tmp_path) == (ON, 3)
    assert dump_stem(later.name) == dump_stem(first.name) == first.stem
    earlier = later.with_name(f"{later.stem}.etdump")
    assert series_of_dump(earlier, tmp_path) == (ON, 3), "as earlier kits named it"
    assert place.boundaries(ON, 3).name == f"{later.name}.boundaries"


@pytest.mark.parametrize(
    ("path", "series", "number"),
    [
        ("m_on_t4.etdump", Series("m_on", 4), 0),
        ("toy_xnnpack_fp16_mac_sme2_on_t4.etdump", Series("mac_sme2_on", 4), 0),
        ("toy_xnnpack_fp16_t4.etdump", Series("toy_xnnpack_fp16", 4), 0),
        ("m.etdump", Series("m"), 0),
        ("off/x.etdump", Series("off"), 0),
        # Outside of rounds/ an ending that looks like a round's is a part of the name.
        ("off/model_r2.etdump", Series("off"), 0),
        ("off/model_t2_r1.etdump", Series("off", 2), 0),
    ],
)
def test_a_bare_dump_is_known_by_its_folder_or_its_name(path: str, series: Series, number: int) -> None:
    assert series_of_dump(Path("runs") / path, Path("runs")) == (series, number)


@pytest.mark.parametrize(
    "ending",
    [
        ".etdump",
        "_r3.etdump",
        "_r3.etdump_round",
        "_r3.etdump_round.boundaries",
        "_robust_stats.json",
        "_kernels.csv",
        "_exec_e2e.csv",
        "_exec_e2e_robust_stats.json",
        "_exec_ops_stats.csv",
        "_exec_all_runs_timeline.csv",
        "_exec_run0_timeline.csv",
        "_all_runs_timeline.csv",
        ".csv",
    ],
)
def test_every_file_made_of_a_dump_leads_back_to_it(ending: str) -> None:
    for stem in ("toy_on_t1", "toy_exec_model_on_t1"):
        assert dump_stem(f"{stem}{ending}") == stem


@pytest.mark.parametrize(
    ("program", "model", "variant"),
    [
        ("toy_cnn_xnnpack_fp16.pte", "toy_cnn", "xnnpack_fp16"),
        ("a_portable_int8.pte", "a", "portable_int8"),
        ("from_elsewhere.pte", "from_elsewhere", "from_elsewhere"),
        ("xnnpack_fp16.pte", "xnnpack_fp16", "xnnpack_fp16"),
        ("toy_xnnpack_fp16_old.pte", "toy_xnnpack_fp16_old", "toy_xnnpack_fp16_old"),
    ],
)
def test_the_variant_is_the_stem_without_the_models_name(program: str, model: str, variant: str) -> None:
    assert variant_of(Path(program)) == (model, variant)


def test_runs_of_an_export_lie_beside_its_artifacts_others_in_a_folder_of_the_model() -> None:
    exported = Path("out_toy/artifacts/toy_xnnpack_fp16.pte")
    assert default_run_dir(exported, "mac") == Path("out_toy/runs/xnnpack_fp16/mac")
    assert default_run_dir(exported, "mac", Path("x")) == Path("x/runs/xnnpack_fp16/mac")
    assert default_run_dir(Path("models/m.pte"), "linux") == Path("out_m/runs/m/linux")
    other = Path("out_toy/artifacts/toy_xnnpack_int8.pte")
    assert default_run_dir(other, "mac") != default_run_dir(exported, "mac"), "neither erases the other's"


def test_an_earlier_run_is_named_after_the_moment_it_began(tmp_path: Path) -> None:
    run_dir = tmp_path / "linux"
    moment = "2026-01-02T03:04:05+0000"
    for name in ("linux-20260102-030405", "linux-20260102-030405-2", "linux-20260102-030405-3"):
        kept = earlier_name(run_dir, moment)
        assert kept == tmp_path / name
        kept.mkdir()
    assert earlier_name(run_dir, "").name == "linux-00000000-000000"
