"""The code that only a Mac runs, on what a Mac answers (tests/data/macos says where that is from)."""

import importlib
import itertools
import json
import os
import runpy
import shlex
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded_runs import PROGRAM, ROUNDS, RUNS, SME2, load
from replay import ReplayTarget
from said import refused, says
from stand_ins import command, linked, mac_commands

from model_profiling import targets
from model_profiling.core import process
from model_profiling.core.errors import InputError, SetupError
from model_profiling.runner import features
from model_profiling.runner.compilers import find_compiler
from model_profiling.runner.features import host_features
from model_profiling.targets import TargetChoice, plan_targets
from model_profiling.targets.execution import Transport
from model_profiling.targets.host import HostTarget, host_facts

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "model_profiling" / "scripts"
TEMPLATE = ROOT / "model_profiling" / "configs" / "templates" / "mac_template.json"
A_MAC_HAS = (
    *("bash", "sh", "env", "cat", "sed", "grep", "tr", "cksum", "dirname", "basename", "rm", "mkdir"),
    *("mktemp", "cp", "mv", "ln", "ls", "head", "tail", "cut", "sort", "id", "git"),
    *("cc", "c++", "g++", "clang++", "as", "ld"),
)


@pytest.fixture
def mac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Python believes that it runs on the Mac named by the test's parameter (an M4 unless it says)."""
    name: str = getattr(request, "param", "m4")
    folder = mac_commands(tmp_path / "commands", name)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    return name


@pytest.mark.parametrize(
    ("mac", "cpu", "features", "memory", "system", "on_battery"),
    [
        ("m4", "Apple M4", "bf16 dotprod fp16 i8mm sme sme2", 16, "macOS 15.5", False),
        ("m1", "Apple M1", "dotprod fp16", 8, "macOS 14.7", True),
    ],
    indirect=["mac"],
)
@pytest.mark.usefixtures("mac")
def test_a_mac_is_described_by_its_own_commands(cpu, features, memory, system, on_battery):
    facts = host_facts(None)
    assert (facts.cpu, facts.machine, facts.os) == (cpu, "arm64", system)
    assert " ".join(facts.features) == features
    assert facts.memory_bytes == memory * 2**30
    assert (facts.on_battery, facts.is_arm) == (on_battery, True)
    assert facts.has_sme2 is ("sme2" in features)


def test_a_mac_that_answers_nothing_is_unknown_not_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(features, "_MAC_FOLDERS", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    facts = host_facts(None)
    assert (facts.cpu, facts.features, facts.memory_bytes, facts.on_battery) == ("arm64", (), None, None)
    command(tmp_path, "sysctl", "exit 1")
    assert features.sysctl("hw.memsize") == "" and not host_features()
    # Cron and editors start programs with a PATH that leaves /usr/sbin out, where sysctl is.
    command(tmp_path / "usr_sbin", "sysctl", "echo Apple M9")
    monkeypatch.setattr(features, "_MAC_FOLDERS", str(tmp_path / "usr_sbin"))
    (tmp_path / "sysctl").unlink()
    assert features.sysctl("machdep.cpu.brand_string") == "Apple M9"


@pytest.mark.usefixtures("mac")
def test_processes_cannot_be_pinned_on_a_mac() -> None:
    with refused(SetupError, "Linux"):
        Transport().run(["true"], folder="", timeout=5, cores=[0])
    assert Transport().run(["true"], folder="", timeout=5, cores=[]).ok


@pytest.mark.parametrize(("mac", "reason"), [("m4", "has SME2"), ("m1", "Linux only")], indirect=["mac"])
@pytest.mark.usefixtures("mac")
def test_auto_on_a_mac_never_asks_for_an_emulator(reason: str) -> None:
    plan = plan_targets(TargetChoice())
    assert plan.main == plan.evidence == TargetChoice("host") and reason in plan.reason


# Loaded while this is still the system it is: on a Mac, Python's own modules ask for Apple's.
importlib.import_module("psutil")


def run_mac_pipeline(config: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    script = SCRIPTS / "mac_pipeline.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--config", str(config)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    return int(ended.value.code or 0)


@pytest.mark.parametrize("mac", ["m4", "m1"], indirect=True)
def test_mac_pipeline_runs_its_template_to_a_report(mac, tmp_path, monkeypatch, capsys):
    """The device is a recorded run; what the pipeline asks the Mac for is asked of its commands."""
    asked = json.loads(TEMPLATE.read_text())
    asked |= {"model": str(PROGRAM), "output_root": str(tmp_path / "run")}
    asked["schedule"] = {"rounds": ROUNDS}
    for experiment in asked["experiments"]:
        experiment["runs"] = RUNS
    config = tmp_path / "mac.json"
    config.write_text(json.dumps(asked))
    device = ReplayTarget(SME2, machine=host_facts(None), system="mac")
    monkeypatch.setitem(targets._KINDS, "host", lambda _choice: device)
    assert run_mac_pipeline(config, monkeypatch) == 0
    said = capsys.readouterr()
    manifest = load(tmp_path / "run" / "manifest.json")
    assert manifest["target"]["platform"] == "mac"
    assert manifest["machine"]["before"]["cpu"] == f"Apple {mac.upper()}"
    assert ("mac_sme2_on" in said.out) or "SME2 on vs off" in said.out
    assert ("x as fast on " in said.out) is (mac == "m4"), "an M1 has no SME2 to switch"
    assert ("battery" in said.err) is (mac == "m1")
    report = (tmp_path / "run" / "report.md").read_text()
    version = features.mac_says("sw_vers", "-productVersion").strip()
    assert f"Apple {mac.upper()}" in report and f"macOS {version}" in report


@pytest.mark.skipif(sys.platform != "linux", reason="it asks about Linux")
def test_mac_pipeline_names_the_script_for_this_system(tmp_path, monkeypatch, capsys):
    assert run_mac_pipeline(tmp_path / "none.json", monkeypatch) == 2
    says(capsys.readouterr().err, "Linux", "linux_pipeline.py")
    assert HostTarget.platform == "linux" == HostTarget.place, "as its folders are called"


@pytest.fixture
def mac_path(tmp_path: Path) -> str:
    """A PATH with the commands a Mac has and none besides."""
    return str(linked(mac_commands(tmp_path / "only", "m4"), A_MAC_HAS))


def test_prerequisites_are_checked_with_a_mac_s_commands(mac_path: str) -> None:
    words = ["bash", SCRIPTS / "check_prereqs.sh", "--python", sys.executable]
    done = process.run(words, timeout=100, env={"PATH": mac_path})
    assert done.returncode == 0, done.tail()
    done = process.run(["bash", SCRIPTS / "install_test_packages.sh"], timeout=30, env={"PATH": mac_path})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), "tests ask a Mac for no package"


@pytest.mark.slow
def test_setup_runs_with_a_mac_s_commands(mac_path: str, tmp_path: Path) -> None:
    """All of it but pip's part: the environment is there, the runner is built, the result is checked."""
    kit = tmp_path / "kit"
    kit.mkdir()
    (kit / "model_profiling").symlink_to(ROOT / "model_profiling")
    (kit / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    (kit / "requirements").symlink_to(ROOT / "requirements")
    command(kit / ".venv" / "bin", "python", f'exec {sys.executable} "$@"')
    words = ["sh", "-c", "cat pyproject.toml requirements/*.txt | cksum"]
    crc, size = process.run(words, timeout=10, cwd=kit).stdout.split()
    (kit / ".venv" / ".installed").write_text(f"{kit}\n{crc}-{size} run\n")
    # By its own name, the compiler is the one that has compiled the runner before.
    env = {"PATH": mac_path, "PYTHONPATH": str(ROOT), "CXX": shlex.join(find_compiler().command)}
    # On a machine that is not Arm the runner is one for emulation.
    linked(Path(mac_path), ["aarch64-linux-gnu-g++"])
    done = process.run(["bash", kit / "model_profiling/scripts/setup_repo.sh"], timeout=300, env=env)
    assert done.returncode == 0, done.tail()
    assert "removing .venv" not in done.stdout and "installing" not in done.stdout
    assert "== building the runner" in done.stdout and done.stdout.rstrip().endswith("ready")


@pytest.mark.parametrize(
    ("off", "all_off"),
    [
        (["sme2"], ("sme2", "sme")),
        (["sme"], ("sme2", "sme")),
        ([features.SME2_ONLY, "sme2"], ("sme2", "sme")),
        (["sve"], ("sve2", "sve")),
        (["sve2"], ("sve2",)),
        (["dotprod"], ("i8mm", "dotprod")),
    ],
)
def test_a_feature_takes_along_what_needs_it(off: list[str], all_off: tuple[str, ...]) -> None:
    assert features.closure(off) == all_off
    assert {"sme2", "sme2p1", "sme", "sme_f16f16"} <= set(features.cpuinfo_flags(["sme2"]))
    assert features.cpuinfo_flags([features.SME2_ONLY]) == ("sme2", "sme2p1"), "it leaves SME"


def test_an_unknown_feature_is_named_and_the_ladder_has_a_rung_with_sme_alone() -> None:
    with refused(InputError, "'avx512'", fix=", ".join(features.FEATURES)):
        features.closure(["avx512"])
    rungs = features.ladder({"sme2", "sme", "i8mm"})
    assert [rung.left for rung in rungs] == [("sme2", "sme", "i8mm"), ("sme", "i8mm"), ("i8mm",), ()]


@given(st.lists(st.sampled_from((*features.FEATURES, features.SME2_ONLY))))
def test_closure_is_idempotent_and_only_grows(asked: list[str]) -> None:
    once = features.closure(asked)
    assert features.closure(once) == once
    assert set(features.cpuinfo_flags(asked)) == set(features.cpuinfo_flags(once))
    assert set(asked) - {features.SME2_ONLY} <= set(once)


@given(st.sets(st.sampled_from(features.FEATURES)))
def test_ladder_goes_from_everything_to_nothing_one_at_a_time(present: set[str]) -> None:
    rungs = features.ladder(present)
    assert set(rungs[0].left) == present and rungs[0].disable == ()
    assert rungs[-1].left == ()
    for above, below in itertools.pairwise(rungs):
        assert len(above.left) == len(below.left) + 1
        cleared = set(features.cpuinfo_flags(below.disable))
        assert set(features.features_of_flags(cleared)) >= present - set(below.left)
        assert not set(features.features_of_flags(cleared)) & set(below.left)


def test_listings_of_linux_and_macos_count_what_every_core_has() -> None:
    linux = "processor\t: 0\nFeatures\t: fp asimd aes fphp asimdhp cpuid asimddp\nCPU implementer\t: 0x41\n"
    assert features.from_proc_cpuinfo(linux) == {"dotprod", "fp16"}
    assert features.from_proc_cpuinfo("model name : Some x86\nflags : avx2\n") == frozenset()
    little = linux.replace("asimddp", "").replace("processor\t: 0", "processor\t: 1")
    assert features.from_proc_cpuinfo(linux + little) == {"fp16"}
    mac = "".join(f"hw.optional.arm.FEAT_{name}: 1\n" for name in ("FP16", "DotProd", "I8MM", "BF16", "SME"))
    mac += "hw.optional.arm.FEAT_SME2: 1\nhw.optional.arm.FEAT_SME2p1: 0\nhw.optional.arm.sme_max_svl_b: 64\n"
    assert features.from_sysctl(mac) == {"sme2", "sme", "i8mm", "bf16", "dotprod", "fp16"}
