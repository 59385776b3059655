"""What files of a run are called, which series are compared and how that is called, and which may be."""

from dataclasses import replace
from pathlib import Path

import pytest
from said import says

from model_profiling.config.names import (
    RunFiles,
    dump_stem,
    earlier_name,
    fed_in_words,
    run_home,
    series_of_dump,
    spoken_variant,
    variant_of,
)
from model_profiling.config.series import (
    Series,
    Switch,
    default_label,
    make_pair,
    natural_pairs,
    switch_in_name,
)
from model_profiling.runner.features import SME2_ONLY
from model_profiling.runs import Times, why_not_comparable
from model_profiling.runs.times import Origin

ON = Series("mac_sme2_on", 2)


def test_names_follow_the_contract(tmp_path: Path) -> None:
    place = RunFiles(tmp_path, "toy_xnnpack_fp16")
    first, later = place.dump(ON, 0), place.dump(ON, 3)
    assert place.relative(first) == "mac_sme2_on/toy_xnnpack_fp16_mac_sme2_on_t2.etdump"
    assert place.relative(later) == "mac_sme2_on/rounds/toy_xnnpack_fp16_mac_sme2_on_t2_r3.etdump_round"
    assert place.summary("md").name == "toy_xnnpack_fp16_pipeline_summary.md"
    assert series_of_dump(first, tmp_path) == (ON, 0) and series_of_dump(later, tmp_path) == (ON, 3)
    assert dump_stem(later.name) == dump_stem(first.name) == first.stem
    earlier = later.with_name(f"{later.stem}.etdump")
    assert series_of_dump(earlier, tmp_path) == (ON, 3), "as earlier kits named it"
    assert place.boundaries(ON, 3).name == f"{later.name}.boundaries"
    assert earlier_name(tmp_path / "linux", "").name == "linux-00000000-000000"


@pytest.mark.parametrize(
    ("path", "series", "number"),
    [
        ("toy_xnnpack_fp16_mac_sme2_on_t4.etdump", Series("mac_sme2_on", 4), 0),
        ("toy_xnnpack_fp16_t4.etdump", Series("toy_xnnpack_fp16", 4), 0),
        ("m.etdump", Series("m"), 0),
        ("off/x.etdump", Series("off"), 0),
        # Outside of rounds/ an ending that looks like a round's is a part of the name.
        ("off/model_t2_r1.etdump", Series("off", 2), 0),
    ],
)
def test_a_bare_dump_is_known_by_its_folder_or_its_name(path: str, series: Series, number: int) -> None:
    assert series_of_dump(Path("runs") / path, Path("runs")) == (series, number)


@pytest.mark.parametrize(
    "ending",
    [
        ".etdump", "_r3.etdump", "_r3.etdump_round", "_r3.etdump_round.boundaries", "_robust_stats.json",
        "_kernels.csv", "_exec_e2e.csv", "_exec_e2e_robust_stats.json", "_exec_ops_stats.csv",
        "_exec_all_runs_timeline.csv", "_exec_run0_timeline.csv", "_all_runs_timeline.csv", ".csv",
    ],
)  # fmt: skip
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


def test_inputs_and_programs_are_named_in_short() -> None:
    found = fed_in_words({"tokens": (1, 512)}, {"at": (3, 7), "cache_position": tuple(range(512))})
    assert found == ("tokens 512", "at 3,7", "cache_position 0-511")
    assert spoken_variant("toy_cnn_portable_int8-dynamic") == ("toy_cnn", ("portable", "int8-dynamic"))
    assert spoken_variant("someones_own") == ("someones_own", ())


def test_runs_of_an_export_lie_beside_its_artifacts_others_in_a_folder_of_the_model() -> None:
    exported = Path("out_toy/artifacts/toy_xnnpack_fp16.pte")
    assert run_home(exported) / "mac" == Path("out_toy/runs/xnnpack_fp16/mac")
    assert run_home(exported, Path("x")) / "mac" == Path("x/runs/xnnpack_fp16/mac")
    assert run_home(Path("models/m.pte")) / "linux" == Path("out_m/runs/m/linux")
    other = Path("out_toy/artifacts/toy_xnnpack_int8.pte")
    assert run_home(other) / "mac" != run_home(exported) / "mac", "neither erases the other's"


def pairs_of(*names: str, threads: tuple[int | None, ...] = (1,)) -> list[tuple[str, str]]:
    """Baseline and candidate of the pairs among experiments whose names say whether SME2 is on."""
    series = [Series(name, count) for name in names for count in threads]
    found = natural_pairs((each, switch_in_name(each.experiment)) for each in series)
    return [(str(pair.baseline), str(pair.candidate)) for pair in found]


def test_off_is_paired_with_on_where_nothing_else_is_there() -> None:
    assert pairs_of("x_sme2_on", "x_sme2_off", threads=(1, 4)) == [
        ("x_sme2_off, 1 thread", "x_sme2_on, 1 thread"),
        ("x_sme2_off, 4 threads", "x_sme2_on, 4 threads"),
    ]
    couples = pairs_of("a_sme2_on", "a_sme2_off", "b_sme2_on", "b_sme2_off", threads=(None,))
    assert couples == [("a_sme2_off", "a_sme2_on"), ("b_sme2_off", "b_sme2_on")], "two pairs, not four"
    assert pairs_of("one", "two") == pairs_of("a_sme2_on", "b_sme2_on") == pairs_of() == []
    switches: list[tuple[Series, Switch | None]] = [(Series("fast"), "on"), (Series("slow"), "off")]
    (pair,) = natural_pairs(switches)
    assert (pair.baseline, pair.candidate) == (Series("slow"), Series("fast"))
    assert natural_pairs([*switches, (Series("third"), None)]) == ()
    assert natural_pairs([(Series("fast", 1), "on"), (Series("slow", 2), "off")]) == ()


@pytest.mark.parametrize(
    ("text", "switch"),
    [
        ("mac_sme2_on", "on"),
        ("SME2-On", "on"),
        ("cmake-out/mac-arm64-sme2-off/executor_runner", "off"),
        ("no_sme2", "off"),
        ("without-sme2_on", "off"),
        ("mac_sme2", None),
        ("on", None),
    ],
)
def test_what_a_name_says_about_sme2(text: str, switch: Switch | None) -> None:
    assert switch_in_name(text) == switch


def test_labels_and_series_are_named_by_what_is_looked_at_and_what_differs() -> None:
    off, on = Series("off", 1), Series("on", 1)
    assert default_label(off, on) == make_pair(off, on).label == "on vs off, 1 thread"
    assert default_label(off, Series("on", 4)) == "on, 4 threads vs off, 1 thread"
    assert default_label(Series("off"), Series("on")) == "on vs off"
    assert make_pair(off, on, "what SME2 buys").label == "what SME2 buys"
    on, off, more = Series("on", 1), Series("off", 1), Series("on", 2)
    assert [each.among((on, off)) for each in (on, off)] == ["on", "off"]
    assert [each.among((on, more)) for each in (on, more)] == ["1 thread", "2 threads"]
    assert more.among((on, off, more)) == "on, 2 threads"
    assert (on.among((on,)), on.spoken((on,)), Series("on").spoken((Series("on"),))) == ("", "1 thread", "on")


OFF_SIDE = Origin(
    "off", Times.HARDWARE, threads=1, cpu="M4", program="aa", features=frozenset({"sme2", "sme", "fp16"}),
    disabled=("sme2", "sme"), sme2=False,
)  # fmt: skip
ON_SIDE = replace(OFF_SIDE, name="on", disabled=(), sme2=True)
NO_SME2 = frozenset({"fp16"})
OLD_ON = replace(ON_SIDE, features=NO_SME2)


def both(**changes: object) -> tuple[Origin, Origin]:
    return replace(OFF_SIDE, **changes), replace(ON_SIDE, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("baseline", "candidate"),
    [
        (OFF_SIDE, ON_SIDE),
        (OFF_SIDE, OFF_SIDE),
        # Where the same code would run, something else differs: the program, or the threads.
        (replace(OFF_SIDE, features=NO_SME2, program="bb"), OLD_ON),
        (replace(OFF_SIDE, features=NO_SME2), replace(ON_SIDE, features=NO_SME2, threads=4)),
        # Nothing is known of the CPU's features, or of the CPU itself.
        both(features=None),
        (replace(OFF_SIDE, cpu=""), ON_SIDE),
        # The switch takes more away than SME2, and the CPU has some of that.
        (replace(OFF_SIDE, features=NO_SME2, disabled=("sme2", "fp16")), OLD_ON),
        # The user's own runners differ in who knows what, on a CPU that has SME2.
        both(own_runner=True, disabled=()),
        # The same case, said in two ways; a file that does not know its method.
        (
            replace(OFF_SIDE, method="decode", fed="input_pos_0", tokens=1, position=0),
            replace(ON_SIDE, method="decode", tokens=1, position=0),
        ),
        (OFF_SIDE, replace(ON_SIDE, method="decode", tokens=1, position=0)),
    ],
)
def test_may_be_compared(baseline: Origin, candidate: Origin) -> None:
    assert why_not_comparable(baseline, candidate) is None


@pytest.mark.parametrize(
    ("baseline", "candidate", "why"),
    [
        (*both(times=Times.EMULATED), ("emulated",)),
        (OFF_SIDE, replace(ON_SIDE, times=Times.TRACED), ("on", "traces kernels")),
        (replace(OFF_SIDE, times=Times.UNKNOWN), ON_SIDE, ("off", "machine")),
        (OFF_SIDE, replace(ON_SIDE, cpu="N1"), ("M4", "N1", "--across-machines")),
        (*both(features=NO_SME2, cpu="N1"), ("N1", "no SME2")),
        (replace(OLD_ON, disabled=(SME2_ONLY,)), OLD_ON, ("no SME2",)),
        (replace(OLD_ON, disabled=("i8mm",)), OLD_ON, ("no i8mm",)),
        (*both(own_runner=True, disabled=(), features=NO_SME2), ("no SME2",)),
        (*both(features=NO_SME2, cpu=""), ("not named", "no SME2")),
        (
            replace(OFF_SIDE, method="decode", tokens=1, position=0),
            replace(ON_SIDE, method="decode", tokens=1, position=8),
            ("off ran decode, 1 token at position 0; on ran decode, 1 token at position 8",),
        ),
        (replace(OFF_SIDE, method="forward", fed="x_32"), replace(ON_SIDE, method="forward"), ("x 32",)),
        (replace(OFF_SIDE, method="prefill"), replace(ON_SIDE, method="decode"), ("different cases",)),
    ],
)
def test_may_not_be_compared_and_why(baseline: Origin, candidate: Origin, why: tuple[str, ...]) -> None:
    says(why_not_comparable(baseline, candidate) or "", *why)


def test_machines_may_be_compared_when_they_are_the_question() -> None:
    other = replace(ON_SIDE, cpu="N1")
    assert why_not_comparable(OFF_SIDE, other, across_machines=True) is None
    lesser = replace(OFF_SIDE, cpu="N1", features=NO_SME2)
    assert why_not_comparable(lesser, ON_SIDE, across_machines=True) is None, "one CPU has no SME2"
    assert why_not_comparable(replace(OFF_SIDE, method="a"), replace(other, method="b"), across_machines=True)
    emulated = replace(other, times=Times.EMULATED)
    assert why_not_comparable(OFF_SIDE, emulated, across_machines=True) is not None
