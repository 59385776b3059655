"""What a config comes to on a CPU without SME2, where much is measured once; both names of int8."""

from pathlib import Path
from typing import Any

import pytest

from model_profiling.config.names import under_either_name
from model_profiling.config.reading import parse_config
from model_profiling.config.settings import ProfileConfig
from model_profiling.runs.begin import OnCpu, fit_to_machine

PLAIN_ARM = ("dotprod", "fp16")
EVERYTHING = ("sme2", "sme", "i8mm", "dotprod", "fp16")


def config(*experiments: dict[str, Any], compare: tuple[tuple[str, str], ...] = ()) -> ProfileConfig:
    raw = {
        "model": "m.pte",
        "output_root": "out",
        "experiments": list(experiments),
        "analysis": {"compare_pairs": [{"baseline": a, "candidate": b} for a, b in compare]},
    }
    return parse_config(raw, folder=Path(), files=False)


ON, OFF = ({"name": f"linux_sme2_{switch}", "sme2": switch} for switch in ("on", "off"))
SHIPPED = (ON, OFF)


def on_cpu(config: ProfileConfig, features: tuple[str, ...]) -> OnCpu:
    return fit_to_machine(config, features, latencies=True)


def named(found: OnCpu) -> list[str]:
    return [experiment.name for experiment in found.config.experiments]


def stood_for(found: OnCpu) -> dict[str, tuple[str, ...]]:
    return {each.experiment: each.names for each in found.stands_for}


def test_a_config_runs_as_it_is_with_sme2_and_once_where_times_are_no_latencies() -> None:
    made = config(*SHIPPED)
    assert on_cpu(made, EVERYTHING) == OnCpu(made) and len(made.pairs) == 1
    made = config({**ON, "runs": 10, "warmup": 3}, {**OFF, "mode": "xnntrace"})
    fitted = fit_to_machine(made, EVERYTHING, latencies=False).config
    assert [(each.runs, each.warmup) for each in fitted.experiments] == [(1, 0), (1, 0)]


@pytest.mark.parametrize("features", [PLAIN_ARM, ()])
def test_on_and_off_are_one_baseline_without_sme2(features: tuple[str, ...]) -> None:
    found = on_cpu(config(*SHIPPED, compare=(("linux_sme2_off", "linux_sme2_on"),)), features)
    assert named(found) == ["linux_baseline"] and not found.config.pairs
    assert stood_for(found) == {"linux_baseline": ("linux_sme2_on", "linux_sme2_off")}
    (baseline,) = found.config.experiments
    assert baseline.sme2 is None and baseline.switched_off == ()
    assert found.renamed({"linux_sme2_off"}) == {"linux_baseline"}
    assert on_cpu(found.config, features).config == found.config, "what was measured once stays as it is"


def test_threads_are_those_of_any_and_one_alone_is_not_called_on_or_off_either() -> None:
    found = on_cpu(config({**ON, "threads": [1, 2]}, {**OFF, "threads": [4, 1]}), ())
    assert [baseline.threads for baseline in found.config.experiments] == [(1, 2, 4)]
    assert named(on_cpu(config(OFF), PLAIN_ARM)) == ["linux_baseline"]
    assert named(on_cpu(config({"name": "my-on"}), PLAIN_ARM)) == ["my-baseline"]
    alone = on_cpu(config({"name": "conveyor"}), PLAIN_ARM)
    assert named(alone) == ["conveyor"] and not alone.stands_for


def test_what_can_be_told_apart_or_is_another_measurement_stays_so() -> None:
    disabled: dict[str, list[str]] = {"upto_dotprod": [], "upto_fp16": ["dotprod"], "no_i8mm": ["i8mm"]}
    rungs = [{"name": name, "disable": off} for name, off in disabled.items()]
    asked = (("upto_fp16", "upto_dotprod"), ("no_i8mm", "upto_dotprod"))
    found = on_cpu(config(*rungs, compare=asked), PLAIN_ARM)
    assert named(found) == ["upto_dotprod", "upto_fp16"]
    assert stood_for(found) == {"upto_dotprod": ("upto_dotprod", "no_i8mm")}
    (pair,) = found.config.pairs
    assert (pair.baseline.experiment, pair.candidate.experiment) == ("upto_fp16", "upto_dotprod")
    found = on_cpu(config({**ON, "cpu_affinity": [0]}, {**OFF, "cpu_affinity": [1]}), PLAIN_ARM)
    assert named(found) == ["linux_baseline", "linux_baseline_2"]
    found = on_cpu(config({"name": "first"}, {"name": "second"}), PLAIN_ARM)
    assert named(found) == ["first", "second"] and not found.stands_for
    runners = [{**each, "runner_path": f"build/{each['name']}/executor_runner"} for each in SHIPPED]
    found = on_cpu(config(*runners), PLAIN_ARM)
    assert named(found) == ["linux_sme2_on", "linux_sme2_off"] and not found.stands_for
    traces = [{**each, "name": f"{each['name']}_trace", "mode": "xnntrace"} for each in SHIPPED]
    assert named(on_cpu(config(*SHIPPED, *traces), PLAIN_ARM)) == ["linux_baseline", "linux_baseline_trace"]


def test_either_name_finds_the_file_that_is_there(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "m_xnnpack_int8.pte", tmp_path / "m_xnnpack_q8.pte"
    assert under_either_name(theirs) == theirs, "nothing is there: the name stays for the error message"
    ours.touch()
    assert under_either_name(theirs) == ours
    theirs.touch()
    assert under_either_name(theirs) == theirs
    ours.unlink()
    assert under_either_name(ours) == theirs
    assert under_either_name(tmp_path / "m_xnnpack_fp16.pte").name == "m_xnnpack_fp16.pte"
    theirs.rename(ours)
    raw = {"model": theirs.name, "output_root": "runs", "experiments": [ON]}
    assert parse_config(raw, folder=tmp_path).model == ours, "a config with the older name still works"
