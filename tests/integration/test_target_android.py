"""`android` on virtual phones with a real adbd: what a job leaves, what each fault costs, what remains."""

from __future__ import annotations

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import ON_ARM
from said import says
from stand_ins import command, linked
from virtual_phone import AdbServer, VirtualPhone

from model_profiling.core.errors import InputError, ProfilingError, RunError, SetupError
from model_profiling.runner.features import AARCH64_LINUX, this_platform
from model_profiling.runs import Run, Times
from model_profiling.runs.manifest import read_manifest
from model_profiling.targets import Job, LockstepJob, TargetChoice, open_target, parse_target
from model_profiling.targets.emulated import aarch64_sysroot
from model_profiling.targets.remote.android import AndroidTarget, choose, find_adb

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="virtual phones are Linux's")
CONFIGS = Path(__file__).resolve().parents[2] / "model_profiling" / "configs"
KIT = "/data/local/tmp/sme2prof-device"


@pytest.fixture(autouse=True)
def on_path(adb: AdbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", adb.environment["PATH"])


def target_of(phone: VirtualPhone) -> AndroidTarget:
    target = open_target(parse_target(f"android:{phone.serial}"))
    assert isinstance(target, AndroidTarget)
    target.shell.patience_s, target.shell.probe_s = 30, 2
    return target


def runner(folder: Path, body: str) -> Path:
    """A runner of the user's own, which is a script of the phone's shell."""
    path = command(folder, "runner", "")
    path.write_text(f"#!/system/bin/sh\n{body}\n")
    return path


@pytest.mark.quick
def test_a_phone_without_a_c_library_runs_the_kits_runner(arm_phone, exported, tmp_path) -> None:
    target = target_of(arm_phone)
    target.prepare()
    assert target.timings_are_latency is ON_ARM, "under QEMU times are the emulator's"
    facts = target.facts()
    assert facts.is_arm and facts.has_sme2 is not ON_ARM and "Virtual 1, Android 15" in facts.os
    assert target.place == f"android-{arm_phone.serial.replace(':', '-')}" and target.platform == "android"
    assert open_target(target.choice).name == target.name
    assert target.choice == TargetChoice("android", remote=arm_phone.serial)
    named = tmp_path / "a b;reboot.pte"
    shutil.copy(exported("toy_cnn", "fp32").pte, named)
    job = Job(named, etdump=True, save_outputs=True, kernels=True)
    outcome = target.execute(job, tmp_path / "here", "job")
    assert outcome.result.kernels_note is None
    assert any("sme2" in name for name in outcome.result.kernels) is not ON_ARM
    assert outcome.etdump is not None and outcome.etdump.stat().st_size
    assert outcome.result.outputs[0].file.stat().st_size == 4000
    assert outcome.log.read_text().startswith(f"$ adb -s {arm_phone.serial} shell {KIT}/programs/")
    both = LockstepJob((Job(named), Job(named, warmup=2)), cycles=2, turn_length=1)
    turns = target.execute_lockstep(both, tmp_path, "turns")
    assert turns.launch.cycles == 2
    assert target.build is not None
    with pytest.raises(RunError, match="correct extra_args"):  # it started: a runner for glibc is helped, too
        target.execute(Job(named, runner_path=target.build.path), tmp_path / "here", "own")
    assert not arm_phone.processes() and not list(arm_phone.path(f"{KIT}/jobs").iterdir())
    again, before = target_of(arm_phone), arm_phone.link.passed
    again.prepare()
    again.execute(Job(named, cpu_affinity=(0,)), tmp_path / "here", "again")
    assert not again.folder.sent and arm_phone.link.passed - before < 200_000, "a second run pushes nothing"


@pytest.mark.timeout(1800)  # the first time on a machine, the compiler compiles its own libraries
def test_a_mac_measures_on_a_phone_with_the_c_library_of_a_folder(
    arm_phone: VirtualPhone, exported, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python believes that it runs on a Mac: no apt, no compiler for Linux, no C library but the folder's."""
    job = Job(exported("toy_cnn", "fp32").pte, save_outputs=True)
    usual = target_of(arm_phone)
    usual.prepare()
    expected = usual.execute(job, tmp_path / "linux", "job").result.outputs[0].file.read_bytes()
    libraries = Path("/") if this_platform() == AARCH64_LINUX else aarch64_sysroot()
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    monkeypatch.setenv("PATH", str(linked(tmp_path / "commands", ["adb", "sh", "env"])))
    monkeypatch.setenv("SME2PROF_SYSROOT", str(libraries))
    target = target_of(arm_phone)
    target.prepare()
    assert target.build is not None and target.build.compiler.endswith("from the ziglang wheel")
    outcome = target.execute(job, tmp_path / "mac", "job")
    assert outcome.result.outputs[0].file.read_bytes() == expected


def test_a_phone_that_forgot_everything_is_given_it_again(arm_phone, exported, tmp_path) -> None:
    arm_phone.small_disk("40m")  # which is gone with the next boot
    target = target_of(arm_phone)
    target.prepare()
    sent = len(target.folder.sent)
    arm_phone.reboot()
    outcome = target.execute(Job(exported("toy_cnn", "fp32").pte), tmp_path / "here", "job")
    assert len(outcome.result.iterations_ns) == 1 and target.shell.times_lost == 1
    assert len(target.folder.sent) == 2 * sent + 1 and arm_phone.path(f"{KIT}/.sme2prof").exists()


@pytest.mark.usefixtures("warm_words")  # pytest does not let two threads set a fixture up at once
def test_two_phones_at_once_with_the_shipped_config(
    adb, arm_phones, exported, sme2prof, script, tmp_path
) -> None:
    raw = json.loads((CONFIGS / "templates/android_template.json").read_text())
    raw |= {"model": str(exported("toy_cnn", "fp32").pte), "schedule": {"rounds": 2, "budget_s": 1}}
    raw["target"].pop("power_mode")
    runs = []
    for number, model in enumerate(("Virtual 1", "Virtual 2")):
        phone, config = arm_phones(model), tmp_path / f"phone{number}.json"
        target, run_dir = {**raw["target"], "remote": phone.serial}, tmp_path / f"run{number}"
        config.write_text(json.dumps({**raw, "output_root": str(run_dir), "target": target}))
        runs.append((phone, config, run_dir, model))
    words = ("scripts/android_pipeline.py", "--config")
    with ThreadPoolExecutor() as pool:
        ended = list(pool.map(lambda each: script(*words, each[1], **adb.environment), runs))
    for (phone, _, run_dir, model), done in zip(runs, ended, strict=True):
        assert done.ok, done.tail(20)
        manifest = read_manifest(run_dir)
        assert manifest is not None and manifest.state == "finished" and manifest.machine.before is not None
        assert f"Example {model}, Android 15" in manifest.machine.before.os
        assert manifest.target.name == f"android:{phone.serial}" and manifest.target.platform == "android"
        assert manifest.target.times is (Times.HARDWARE if ON_ARM else Times.EMULATED)
        names = {result.experiment for result in manifest.results}
        assert names == ({"android_baseline"} if ON_ARM else {"android_sme2_on", "android_sme2_off"})
        assert (run_dir / "report.md").is_file() and Run.open(run_dir).dumps
        assert sme2prof("validate", run_dir).ok
    cleaned = sme2prof("clean", "--target", f"android:{phone.serial}")
    assert cleaned.stdout == f"removed the kit's folder from android:{phone.serial}\n"
    assert not phone.path(KIT).exists()
    config.write_text(json.dumps({**raw, "output_root": "elsewhere", "target": {"name": "host"}}))
    refused = script(*words, config)
    assert refused.returncode == 2
    says(refused.stderr, "host", "android")


def test_what_a_phone_refuses_is_one_line_with_a_cure(phone, phones, exported, tmp_path, monkeypatch) -> None:
    pte = exported("toy_cnn", "fp32").pte
    with pytest.raises(InputError, match=r"\b2 devices.*: android:127"):
        phones("Virtual 2")
        open_target(TargetChoice("android")).place  # noqa: B018
    monkeypatch.setenv("ANDROID_SERIAL", phone.serial)
    assert open_target(TargetChoice("android")).name == f"android:{phone.serial}"
    monkeypatch.delenv("ANDROID_SERIAL")
    with pytest.raises(SetupError, match=r"R5CT; .* android:127\.0\.0\.1:"):
        open_target(TargetChoice("android", device="R5CT")).prepare()
    with pytest.raises(SetupError, match=r"connect to 127\.0\.0\.1:1: .*network debugging"):
        open_target(parse_target("android:127.0.0.1:1")).prepare()
    system = open_target(TargetChoice("android", remote=phone.serial, device_path="/system"))
    assert isinstance(system, AndroidTarget)
    with pytest.raises(InputError, match=rf"/system/sme2prof-device .*{phone.serial}.*\bwritten"):
        system.folder.open()
    target = target_of(phone)
    target.folder.open()
    crash = runner(tmp_path, "kill -ILL $$")
    with pytest.raises(RunError, match=r"SIGILL; .*CPU feature"):
        target.execute(Job(pte, runner_path=crash), tmp_path / "here", "job")
    gone = runner(tmp_path, "exit 0")
    gone.write_text("#!/system/bin/nobody\n")
    with pytest.raises(SetupError, match=rf"{KIT}/files/\w+/runner: .*loader"):
        target.execute(Job(pte, runner_path=gone), tmp_path / "here", "job")
    phone.small_disk("1m")
    full = target_of(phone)
    full.folder.open()
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(2 << 20))
    with pytest.raises(InputError, match="no space left"):
        full.folder.put(large)
    assert full.folder.put(pte), "what has room goes there"


def test_a_phone_that_runs_nothing_from_its_folder_says_so(arm_phone, exported, tmp_path) -> None:
    arm_phone.small_disk("40m,noexec")
    target = target_of(arm_phone)
    with pytest.raises(SetupError, match=rf"{KIT}/programs/\w+/ld-linux-aarch64\.so\.1: .*noexec"):
        target.prepare()
    pte, own = exported("toy_cnn", "fp32").pte, runner(tmp_path, "echo hi")
    for cores in ((), (0,)):
        with pytest.raises(SetupError, match=rf"{KIT}/files/\w+/runner: .*noexec.*; .*another folder"):
            target.execute(Job(pte, runner_path=own, cpu_affinity=cores), tmp_path / "here", "job")


@pytest.mark.parametrize(
    ("state", "cure"),
    [
        ("unauthorized", "unlock"),
        ("offline", "unplug"),
        ("no permissions (user in plugdev group; are your udev rules wrong?); see [url]", "udev"),
        ("recovery", "start Android"),
    ],
)
def test_a_phone_that_is_not_ready_says_what_to_do(state: str, cure: str, tmp_path, monkeypatch) -> None:
    """These states need a phone's screen: what adb says of them is told by a stand-in."""
    listed = f"printf 'List of devices attached\\nR5CT\\t{state}\\n'"
    answers = f"case $1 in version) echo 'Version 34.0.5' ;; devices) {listed} ;; esac"
    monkeypatch.setenv("PATH", f"{command(tmp_path, 'adb', answers).parent}:/usr/bin:/bin")
    with pytest.raises(SetupError, match=r"^android:R5CT ") as caught:
        open_target(TargetChoice("android")).prepare()
    assert cure in caught.value.fix


def test_which_device_is_meant() -> None:
    assert choose({"A": "device", "B": "offline"}) == "A"
    with pytest.raises(SetupError, match="no device"):
        choose({})
    assert parse_target("android:h:5555") == TargetChoice("android", remote="h:5555")


def test_adb_is_looked_for_in_the_sdk_and_an_old_one_is_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    if shutil.which("adb") is None:
        with pytest.raises(SetupError, match="no adb"):
            find_adb()
    sdk = tmp_path / "sdk"
    monkeypatch.setenv("ANDROID_HOME", str(sdk))
    command(sdk / "platform-tools", "adb", "echo 'Version 35.0.2-1'")
    if shutil.which("adb") is None:
        assert find_adb().path == sdk / "platform-tools/adb"
    command(tmp_path / "old", "adb", "echo 'Version 23.1'")
    monkeypatch.setenv("PATH", f"{tmp_path / 'old'}:/usr/bin:/bin")
    assert find_adb().version == "35.0.2"
    monkeypatch.delenv("ANDROID_HOME")
    with pytest.raises(ProfilingError, match=r"23\.1\b.*\b28\b"):
        find_adb()
