# ruff: noqa: E501  the tables read best with one case per line
"""Configs: what is read, what is refused and in which words, and the files that ship."""

import json
import os
import shutil
import subprocess
import sys
import typing
from pathlib import Path

import pytest
from click.testing import CliRunner
from said import refused, says, says_together

from model_profiling.cli.config import config_command as command
from model_profiling.config.new_config import config_schema
from model_profiling.config.reading import ConfigError, config_warnings, load_config, on_target, parse_config
from model_profiling.config.series import Pair, Series
from model_profiling.config.settings import Feature
from model_profiling.core.errors import InputError
from model_profiling.runner.features import FEATURES, SME2_ONLY
from model_profiling.targets import TargetChoice, parse_target, plan_targets

ROOT = Path(__file__).resolve().parents[2]
SHIPPED_SCHEMA = ROOT / "model_profiling" / "configs" / "schema.json"
SHIPPED = sorted((ROOT / "model_profiling" / "configs").glob("*/*.json"))

Raw = dict[str, typing.Any]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "m.pte").write_bytes(b"\0\0\0\0ET12")
    runner = tmp_path / "executor_runner"
    runner.write_text("#!/bin/sh\n")
    runner.chmod(0o755)
    (tmp_path / "plain.txt").write_text("text")
    (tmp_path / "folder.pte").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def good() -> Raw:
    names = {"baseline": "linux_sme2_off", "candidate": "linux_sme2_on"}
    sides = {side: {"experiment": name, "threads": 1} for side, name in names.items()}
    return {
        "model": "m.pte",
        "output_root": "out/runs/linux",
        "experiments": [
            {"name": "linux_sme2_on", "sme2": "on", "runs": 10, "threads": [1, 2]},
            {"name": "linux_sme2_off", "sme2": "off", "runs": 10, "threads": [1, 2]},
            {"name": "trace", "mode": "xnntrace", "runs": 1},
        ],
        "analysis": {"compare_pairs": [{**sides, "label": "one thread"}]},
    }


def written(place: Path, config: Raw | str | bytes, name: str = "c.json") -> Path:
    path = place / name
    if isinstance(config, bytes):
        path.write_bytes(config)
    else:
        path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return path


DROP = object()


def changed(changes: Raw) -> Raw:
    """A good config with these values at these places."""
    config = good()
    for place, value in changes.items():
        *steps, last = (int(step) if step.isdigit() else step for step in place.split("."))
        here: typing.Any = config
        for step in steps:
            here = here.setdefault(step, {}) if isinstance(here, dict) else here[step]
        if value is DROP:
            del here[last]
        elif last == len(here):
            here.append(value)
        else:
            here[last] = value
    return config


# Each row: what is done to a good config, words of the error (the field, and what is wrong), words of the cure.
BAD: list[tuple[str, Raw, str, str]] = [
    ("no model", {"model": DROP}, "model missing", 'add "model"'),
    ("empty experiments", {"experiments": []}, "experiments list", "at least 1 item"),
    ("typing error at the top", {"experimets": []}, "experimets", "'experiments'"),
    ("typing error inside", {"experiments.0.warmpu": 1}, "experiments[0].warmpu", "'warmup'"),
    ("runs at the top", {"runs": 5}, "runs", "experiments"),
    ("runs zero", {"experiments.0.runs": 0}, "experiments[0].runs 0", "equal 1"),
    ("runs huge", {"experiments.0.runs": 10**12}, "experiments[0].runs", "1000000"),
    ("num_runs text", {"experiments.0.runs": DROP, "experiments.0.num_runs": "x"},
     'experiments[0].num_runs "x"', "valid integer"),
    ("runs twice", {"experiments.0.num_runs": 5}, "experiments[0] num_runs", "'runs'"),
    ("threads twice", {"experiments.0.num_threads": 1}, "num_threads", "'threads'"),
    ("threads repeated", {"experiments.0.threads": [1, 1]}, "threads 1", "once"),
    ("sme2 word", {"experiments.0.sme2": "yes"}, 'experiments[0].sme2 "yes"', "'on' 'off'"),
    ("disable unknown", {"experiments.0.disable": ["i8m"]}, "disable[0]", "'i8mm'"),
    ("disable sme2 while on", {"experiments.0.disable": ["sme2"]}, "[0].disable", 'sme2 "off"'),
    ("disable with own runner", {"experiments.2": {
        "name": "x", "runner_path": "executor_runner", "disable": ["i8mm"]}}, "experiments[2].disable", "builtin"),
    ("name missing", {"experiments.1.name": DROP}, "experiments[1].name missing", 'add "name"'),
    ("name with slash", {"experiments.0.name": "a/b"}, 'experiments[0].name "a/b"', "A-Za-z0-9"),
    ("name of a folder of the kit", {"experiments.0.name": "Artifacts"}, "experiments[0].name 'Artifacts'", "another name"),
    ("name twice", {"experiments.2.name": "linux_sme2_on"}, "experiments[2].name", "own name"),
    ("name twice but for case", {"experiments.2.name": "LINUX_sme2_ON"}, "[2].name", "own name"),
    ("affinity a range", {"experiments.0.cpu_affinity": "4-7"}, "cpu_affinity 4-7", "[4, 5]"),
    ("extra_args our flag", {"experiments.0.extra_args": ["--threads=2"]}, "extra_args[0] --threads=2", "setting"),
    ("runner missing", {"experiments.0.runner_path": "nope/executor_runner"}, "[0].runner_path", "build"),
    ("runner not executable", {"experiments.0.runner_path": "plain.txt"}, "runner_path", "chmod +x"),
    ("runner a folder", {"experiments.0.runner_path": "folder.pte"}, "runner_path", "builtin"),
    ("one stock runner for both", {"experiments.0.runner_path": "executor_runner", "experiments.1.runner_path": "executor_runner"}, "experiments[1].sme2", "without SME2"),
    ("one stock runner, sides by name", {"analysis": DROP, "experiments.0": {"name": "x_sme2_on", "runner_path": "executor_runner"}, "experiments.1": {"name": "x_sme2_off", "runner_path": "./executor_runner"}}, "experiments[1].sme2", "without SME2"),
    ("model missing", {"model": "gone.pte"}, "model gone.pte", "export"),
    ("model not pte", {"model": "plain.txt"}, "model 'plain.txt'", ".pte"),
    ("model a folder", {"model": "folder.pte"}, "folder.pte folder", "export"),
    ("output_root a file", {"output_root": "plain.txt"}, "output_root", "folder"),
    ("pair unknown experiment", {"analysis.compare_pairs.0.baseline.experiment": "linux_sme2_of"},
     "compare_pairs[0].baseline.experiment", "'linux_sme2_off'"),
    ("pair unknown threads", {"analysis.compare_pairs.0.baseline.threads": 8}, "baseline.threads 8", "1, 2"),
    ("pair threads left open", {"analysis.compare_pairs.0.baseline.threads": DROP}, "baseline.threads", "1, 2"),
    ("pair with itself", {"analysis.compare_pairs.0.candidate": {"experiment": "linux_sme2_off", "threads": 1}},
     "compare_pairs[0] itself", "different"),
    ("pair of a trace", {"analysis.compare_pairs.0.baseline": "trace"}, "baseline.experiment", "timing experiment"),
    ("device on the host", {"target": {"name": "host", "device": "X"}}, "target.device", "drop device"),
    ("power mode on the host", {"target": {"name": "host", "power_mode": "boost"}},
     "target.power_mode", "drop power_mode"),
    ("device path, no device", {"target": {"device_path": "/tmp/x"}}, "target.device_path", "android"),
    ("ssh, no host", {"target": {"name": "ssh"}}, "target.host missing", "machine"),
    ("host as option", {"target": {"name": "ssh", "host": "-oX"}}, "target.host", ""),
    ("two devices", {"target": {"device": "X", "remote": "h:1"}}, "target.remote", "one"),
    ("remote without port", {"target.remote": "phone"}, "target.remote", "192.0.2.7:5555"),
    ("device_path relative", {"target.device_path": "tmp/x"}, "target.device_path", "/data/local/tmp"),
    ("input file missing", {"inputs.files": ["gone.bin"]}, "inputs.files[0]", "path"),
    ("version of the future", {"schema_version": 2}, "schema_version 2", "1"),
    ("CPUs without end", {"experiments.0.cpu_affinity": ",".join(["0-9999"] * 200)}, "cpu_affinity", "[4, 5]"),
    ("a long key", {"k" * 1_000_000: 1}, "not known key", "schema_version model"),
]  # fmt: skip

BAD_TEXT: list[tuple[str, str | bytes, str, str]] = [
    ("empty file", "", "line 1 column 1", "config new"),
    ("list", "[]", "object", "config new"),
    ("trailing comma", '{\n "model": "a.pte",\n}', "line 3 column 1", "comma"),
    ("single quotes", "{'model': 1}", "line 1 column 2", "double quotes"),
    ("a comment", '{\n // model\n "model": "a"}', "line 2 column 2", "notes"),
    ("missing comma", '{"model": "a"\n "output_root": "b"}', "line 2 column 2", "add"),
    ("cut off", '{"model": "a"', "line 1 column 14", "bracket"),
    ("two objects", "{}{}", "line 1 column 3", "one object"),
    ("UTF-16", '{"model": "a"}'.encode("utf-16"), "utf-8 byte 0xff", "UTF-8"),
    ("Latin-1", '{\n"notes": "é"}'.encode("latin-1"), "byte 0xe9 position 12", "UTF-8"),
    ("nested without end", "[" * 200_000, "recursion depth", "correct"),
]


def complains(path: Path, names: str, cure: str) -> None:
    """The file is refused by name, and the rest of the error has these words."""
    with refused(InputError, path) as caught:
        load_config(path)
    says(caught.value.problem.replace(str(path), ""), *names.split())
    says(caught.value.fix, *cure.split())


@pytest.mark.parametrize(
    ("content", "names", "cure"),
    [row[1:] for row in (*BAD, *BAD_TEXT)],
    ids=[row[0] for row in (*BAD, *BAD_TEXT)],
)
def test_a_bad_config_is_told_its_field_or_place_and_its_cure(place, content, names, cure):
    complains(written(place, changed(content) if isinstance(content, dict) else content), names, cure)


def test_files_that_are_no_configs_are_named_and_all_problems_listed_at_once(place: Path) -> None:
    for name, cure in (("m.pte", "sme2prof profile"), ("gone.json", "config new"), ("folder.pte", "profile")):
        with refused(InputError, name, fix=cure):
            load_config(place / name)
    with refused(InputError, place, "folder"):
        load_config(place)
    path = written(place, changed({"experiments.0.runs": 0, "modle": "x"}))
    with pytest.raises(ConfigError) as refusal:
        load_config(path)
    assert {problem.where for problem in refusal.value.problems} == {"experiments[0].runs", "modle"}
    complains(path, "experiments[0].runs is 0", "equal to 1, such as 10 (1 more: `sme2prof config check`")
    raw = good() | {"experiments": [{"name": "x", "runs": "ten"}]}
    with pytest.raises(ConfigError) as refusal:
        load_config(written(place, raw))
    (only,) = refusal.value.problems
    assert only.where == "experiments[0].runs", "a wrong entry does not make its list empty"


def test_a_good_config_is_read_and_does_not_change(place: Path) -> None:
    config = load_config(written(place, good()))
    assert config.model == place / "m.pte" and config.output_root == place / "out/runs/linux"
    assert [one.switched_off for one in config.experiments] == [(), ("sme2", "sme"), ()]
    assert config.pairs[0].label == "one thread"
    assert config_warnings(config) == ()
    few = load_config(written(place, good() | {"schedule": {"rounds": 3}}))
    says(" ".join(config_warnings(few)), "rounds", "3")
    content = b"\xef\xbb\xbf" + json.dumps(good()).encode()
    config = load_config(written(place, content))
    with pytest.raises(ValueError, match="frozen"):
        config.method = "other"  # type: ignore[misc]
    assert parse_config(json.loads(config.model_dump_json()), folder=place) == config


def test_an_old_config_with_two_runners_works_and_pairs_left_out_are_found(place: Path) -> None:
    own = "executorch/cmake-out/mac-arm64{}/executor_runner"
    config = load_config(earlier_config(place, ("first", "second"), runner_path=own.format("")))
    assert [one.sme2 for one in config.experiments] == ["on", "off"], "by the folders of their runners"
    assert config.experiments[1].runner == place / own.format("-sme2-off")
    assert config.experiments[1].switched_off == ()
    assert config.pairs == (Pair("SME2 on vs off, 1 thread", Series("second", 1), Series("first", 1)),)
    another = {"name": "linux_no_i8mm", "disable": ["i8mm"], "threads": 2}
    raw = changed({"analysis": DROP, "experiments.1.threads": [2, 4], "experiments.3": another})
    (pair,) = load_config(written(place, raw)).pairs
    assert (pair.baseline, pair.candidate) == (Series("linux_sme2_off", 2), Series("linux_sme2_on", 2))


def earlier_config(place, names=("a_sme2_on", "a_sme2_off"), **first):
    """As the kit before this one has them: two binaries under executorch/, nothing said of SME2."""
    runners = [f"executorch/cmake-out/mac-arm64{side}/executor_runner" for side in ("", "-sme2-off")]
    for runner in runners:
        (place / runner).parent.mkdir(parents=True)
        (place / runner).write_text("#!/bin/sh\n")
        (place / runner).chmod(0o755)
    on = {"name": names[0], "mode": "timing", "runs": 10, "warmup": 1, "threads": [1], **first}
    off = {**on, "name": names[1], "runner_path": runners[1]}
    off.pop("quiet_runner", None)
    return written(place, changed({"experiments": [on, off], "analysis.compare_pairs": []}))


def test_what_only_the_earlier_kit_knew_is_read_with_a_warning(place: Path) -> None:
    quiet = "executorch/cmake-out/mac-arm64/executor_runner"
    config = load_config(earlier_config(place, quiet_runner=quiet, runs="20", threads=["1", 2]))
    first = config.experiments[0]
    assert (first.runner, first.runs, first.threads, first.sme2) == (place / quiet, 20, (1, 2), "on")
    said = config_warnings(config)
    says_together("\n".join(said), "experiments[0].quiet_runner", "runner_path")
    says_together("\n".join(said), "experiments[0].runs", "20")
    assert on_target(config, TargetChoice("host")).said_otherwise == config.said_otherwise, "copies keep it"
    pair = "analysis.compare_pairs.0"
    config = load_config(written(place, changed({f"{pair}.label": "", f"{pair}.baseline.threads": "1"})))
    assert config.pairs[0].baseline == Series("linux_sme2_off", 1)
    assert [remark.code for remark in config.said_otherwise] == ["quoted_number"]


@pytest.mark.parametrize(
    ("folder", "recorded", "mode"),
    [
        ("mac-arm64-xnnlog", None, "xnntrace"),
        ("build_trace", None, "xnntrace"),
        ("mac-arm64", True, "xnntrace"),
        ("mac-arm64", None, "timing"),
        ("my-trace/mac-arm64", None, "timing"),
        ("my-trace", False, "timing"),
    ],
)
def test_a_runner_that_logs_its_kernels_is_not_timed(place: Path, folder, recorded, mode) -> None:
    runner = place / folder / "executor_runner"
    runner.parent.mkdir(parents=True)
    (place / "executor_runner").rename(runner)
    if recorded is not None:
        (runner.parent / "runner_build.json").write_text(json.dumps({"xnnlog": recorded}))
    own = {"name": "linux_sme2_on", "runner_path": f"{folder}/executor_runner", "threads": [1]}
    as_timing = changed({"experiments.0": {**own, "mode": "timing"}, "analysis": DROP})
    assert load_config(written(place, as_timing)).experiments[0].mode == mode
    config = load_config(written(place, changed({"experiments.0": own, "analysis": DROP})))
    assert config.experiments[0].mode == mode
    said = "\n".join(config_warnings(config))
    assert (f"linux_sme2_on: {own['runner_path']} writes XNNPACK's log" in said) is (mode == "xnntrace")
    assert len(config.pairs) == (mode == "timing")
    if mode == "xnntrace":
        path = written(place, changed({"experiments.0": own}))
        complains(path, "candidate.experiment xnntrace", "remove pair")


def test_the_kits_own_runner_can_stand_for_runners_that_were_never_built(place: Path) -> None:
    path = earlier_config(place, runner_path="cmake-out/mac-arm64/executor_runner")
    found = load_config(path).experiments[0].runner
    assert found == place / "executorch/cmake-out/mac-arm64/executor_runner", "also in the checkout"
    for runner in (place / "executorch").rglob("executor_runner"):
        runner.unlink()
    complains(path, "runner_path", "--builtin-runner build_runners.sh")
    config = load_config(path, builtin=True)
    assert [(each.runner, each.sme2) for each in config.experiments] == [(None, "on"), (None, "off")]


def test_paths_are_looked_for_beside_the_config_first(place: Path) -> None:
    folder = place / "configs"
    folder.mkdir()
    path = written(folder, good())
    assert load_config(path).model == place / "m.pte"
    assert load_config(path).output_root == place / "out/runs/linux"
    (folder / "m.pte").write_bytes(b"\0\0\0\0ET12")
    assert load_config(path).model == folder / "m.pte"
    assert load_config(path).output_root == folder / "out/runs/linux"
    (place / "out/runs/linux").mkdir(parents=True)
    (folder / "m.pte").unlink()
    raw = good() | {"model": "gone.pte"}
    found = load_config(written(folder, raw), files=False)
    assert found.output_root == place / "out/runs/linux", "results are found when their model is gone"


def test_a_setting_may_be_written_in_several_ways(place: Path) -> None:
    own = {"name": "linux_sme2_off", "num_runs": 7, "num_threads": 1, "cpu_affinity": 5}
    raw = changed({"experiments.0": own, "experiments.2": DROP, "experiments.1": DROP, "analysis": DROP})
    (found,) = load_config(written(place, raw)).experiments
    assert (found.runs, found.threads, found.sme2, found.cpu_affinity) == (7, (1,), "off", (5,))
    raw["experiments"][0]["cpu_affinity"] = [3]
    assert load_config(written(place, raw)).experiments[0].cpu_affinity == (3,)


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ({"name": "android"}, "android"),
        ({"device": "X"}, "android"),
        ({"remote": "h:1"}, "android"),
        ({"host": "board"}, "ssh"),
        ({"name": "ssh", "host": "me@board", "device_path": "/srv/kit"}, "ssh"),
    ],
)
def test_a_device_that_is_named_is_the_target(place: Path, target: Raw, kind: str) -> None:
    config = load_config(written(place, good() | {"target": target}))
    assert config.target.name == kind and not config_warnings(config)


def test_the_command_line_names_the_device_where_the_config_does_not(place: Path) -> None:
    def chosen(target: Raw, text: str) -> TargetChoice:
        config = load_config(written(place, good() | {"target": target}))
        return on_target(config, parse_target(text)).target

    assert chosen({}, "android") == TargetChoice("android")
    assert chosen({"device": "A", "power_mode": "boost"}, "android").device == "A"
    other = chosen({"device": "A", "power_mode": "boost"}, "android:h:1")
    assert other == TargetChoice("android", remote="h:1", power_mode="boost")
    with refused(InputError, "host", "android"):
        chosen({"name": "host"}, "android")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_configs_are_valid_without_a_warning(path: Path) -> None:
    config = load_config(path, files=False)
    assert not config_warnings(config)
    assert config.pairs
    kind = path.name.split("_")[0]
    assert [one.name for one in config.experiments[:2]] == [f"{kind}_sme2_on", f"{kind}_sme2_off"]
    assert config.output_root.match(f"out_*/runs/{kind}")
    names = {f"{path.parent.name}/{path.name}" for path in SHIPPED}
    assert names >= {f"templates/{each}_template.json" for each in ("mac", "android", "linux")}
    assert names >= {f"examples/{each}_mobilenet_fp16.json" for each in ("mac", "android")}
    assert "examples/linux_toy_cnn.json" in names


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_a_shipped_config_that_names_trace_runners_traces(path: Path, place: Path) -> None:
    """A trace config as the documents make it: a copy with another runner_path."""
    sides = {"on": place / "mac-arm64-xnnlog", "off": place / "mac-arm64-sme2-off-xnnlog"}
    for folder in sides.values():
        folder.mkdir()
        shutil.copy(place / "executor_runner", folder)
    content = json.loads(path.read_text(encoding="utf-8"))
    for experiment in content["experiments"]:
        experiment["runner_path"] = str(sides[experiment["sme2"]] / "executor_runner")
    config = load_config(written(place, {**content, "model": "m.pte"}))
    assert {experiment.mode for experiment in config.experiments} == {"xnntrace"} and not config.pairs


def test_the_shipped_schema_is_current_and_describes_every_setting() -> None:
    assert json.loads(SHIPPED_SCHEMA.read_text(encoding="utf-8")) == config_schema()
    assert described(config_schema()) == []
    assert set(typing.get_args(Feature)) == {*FEATURES, SME2_ONLY}


def described(node: object, path: str = "") -> list[str]:
    """Every property in the schema that lacks a description."""
    if isinstance(node, list):
        return [gap for part in node for gap in described(part, path)]
    if not isinstance(node, dict):
        return []
    gaps = []
    for name, setting in node.get("properties", {}).items():
        gaps += [] if setting.get("description") else [f"{path}.{name}"]
    return gaps + [gap for name, part in node.items() for gap in described(part, f"{path}/{name}")]


def test_new_check_and_schema_from_the_command_line(place: Path) -> None:
    run = CliRunner()

    def made(*words: str) -> typing.Any:
        return run.invoke(command, ["new", "--model", "m.pte", *words])

    assert made("--output", "a.json").output.endswith("next: sme2prof run a.json\n")
    # Where nobody says, a config is for the place that `profile` takes, and a device names its own.
    config = load_config(place / "a.json")
    assert config.target == plan_targets(TargetChoice()).main and len(config.pairs) == 1
    for target, folder in (("ssh:board", "ssh-board"), ("android", "android"), ("android:X", "android-X")):
        assert made("--output", f"{folder}.json", "--target", target).exit_code == 0
        config = load_config(place / f"{folder}.json")
        assert config.target == parse_target(target)
        assert config.output_root == place / "out_m/runs/m" / folder
    assert made("--trace", "--output", "new").exit_code == 0
    config = load_config(place / "new" / "config.json")
    assert [one.mode for one in config.experiments] == ["timing", "timing", "xnntrace", "xnntrace"]
    assert isinstance(made("--output", "a.json").exception, InputError)
    assert made("--output", "a.json", "--force", "--target", "host").exit_code == 0
    gone = run.invoke(command, ["new", "--model", "gone.pte", "--output", "gone.json"])
    assert isinstance(gone.exception, InputError) and not (place / "gone.json").exists()
    assert run.invoke(command, ["new"]).exit_code == 2, "it asks nothing"
    fine = run.invoke(command, ["check", "a.json"], standalone_mode=False)
    assert fine.return_value == 0
    assert "is fine" in fine.output
    raw = json.loads((place / "a.json").read_text())
    raw["experiments"][0]["rnus"] = 1
    bad = written(place, raw)
    told = run.invoke(command, ["check", str(bad), "--json"], standalone_mode=False)
    assert told.return_value == 1
    assert json.loads(told.output)["problems"][0]["where"] == "experiments[0].rnus"
    schema = run.invoke(command, ["schema"])
    assert json.loads(schema.output)["title"] == "SME2 profiling config"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a pseudo-terminal")
def test_questions_are_asked_on_a_terminal(place: Path) -> None:
    """A person answers on a real pseudo-terminal: the model, then Enter for every suggestion."""
    import pty

    script = ROOT / "model_profiling" / "scripts" / "generate_config.py"
    leader, follower = pty.openpty()
    terminal = {"stdin": follower, "stdout": follower, "stderr": subprocess.PIPE}
    child = subprocess.Popen([sys.executable, script], cwd=place, **terminal)
    os.close(follower)
    os.write(leader, b"m.pte\n" + b"\n" * 6)
    _, complaint_text = child.communicate(timeout=60)
    os.close(leader)
    assert child.returncode == 0, complaint_text
    assert load_config(place / "config.json").model == place / "m.pte"


def test_generate_config_by_flags(place: Path) -> None:
    script = ROOT / "model_profiling" / "scripts" / "generate_config.py"

    def generate(*words: str) -> subprocess.CompletedProcess[str]:
        asked = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 60}
        return subprocess.run([sys.executable, script, *words], cwd=place, check=False, **asked)

    done = generate("--model", "m.pte", "--output", "made", "--target", "emulated")
    assert done.returncode == 0, done.stderr
    assert load_config(place / "made" / "config.json").experiments[1].name == "emulated_sme2_off"
    lacking = generate()
    assert lacking.returncode == 2
    assert lacking.stderr.startswith("error: ") and lacking.stderr.count("\n") == 1
    says(lacking.stderr, "--model FILE.pte")
