"""Every fault that phones have, while a power mode is set: a run recovers, or ends in one line with nothing
lost, and the phone's settings are as they were before."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from conftest import ON_ARM, missing
from recorded_runs import make_config
from stand_ins import started, wait_until
from virtual_phone import USED, AdbServer, VirtualPhone, journals

from model_profiling.config.settings import ProfileConfig
from model_profiling.core.errors import InputError, SetupError
from model_profiling.core.stdio import Progress, watching
from model_profiling.runs import Manifest
from model_profiling.runs.begin import Start
from model_profiling.runs.journal import TIMED, Entry, Journal
from model_profiling.runs.manifest import read_manifest
from model_profiling.runs.measure import measure_runs
from model_profiling.targets import open_target
from model_profiling.targets.power_mode import MODES
from model_profiling.targets.remote.android import AndroidTarget

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="virtual phones are Linux's")
KIT = "/data/local/tmp/sme2prof-device"
EVIDENCE = "gathering evidence" if ON_ARM else "emulating"
LAST_STAGE = "measuring" if ON_ARM else EVIDENCE  # where times are no latencies there are no rounds


@pytest.fixture(autouse=True)
def own_state(adb: AdbServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", adb.environment["PATH"])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def shared(adb, tmp_path_factory, request) -> Iterator[VirtualPhone]:
    """One phone for all: the kit's runner is sent once."""
    qemu = None if ON_ARM else request.getfixturevalue("emulated").qemu.path
    try:
        phone = VirtualPhone(adb, tmp_path_factory.mktemp("phone"), "Virtual 1", qemu=qemu)
    except SetupError as problem:
        missing(str(problem))
        raise
    with contextlib.closing(phone):
        yield phone


@pytest.fixture
def used(shared: VirtualPhone) -> Iterator[VirtualPhone]:
    """As its owner uses it, and with no program on it yet."""
    shared.shell(f"rm -rf {KIT}/files/*")
    for name in MODES["boost"]:
        shared.change_setting(name, USED.get(name))
    yield shared
    shared.hold(None)
    if shared.state() != "device":  # a test has failed
        shared.reboot()


@dataclass(frozen=True)
class Bench:
    """A phone in use and a small run on it."""

    phone: VirtualPhone
    adb: AdbServer
    config: ProfileConfig

    def target(self) -> AndroidTarget:
        target = open_target(self.config.target)
        assert isinstance(target, AndroidTarget)
        shell = target.shell
        shell.patience_s, shell.probe_s = 30, 2
        return target

    def measure(
        self, target: AndroidTarget | None = None, at: At | None = None, *, resume: bool = False
    ) -> Manifest:
        with watching(at or Progress()):
            (measured,) = measure_runs([self.config], target or self.target(), Start(resume=resume))
        return measured.manifest

    @property
    def manifest(self) -> Manifest:
        found = read_manifest(self.config.output_root)
        assert found is not None
        return found

    @property
    def entries(self) -> list[Entry]:
        return list(Journal(self.config.output_root).entries())

    @property
    def said_of_settings(self) -> list[str]:
        return [remark.seen for remark in self.manifest.warnings if remark.code == "settings"]

    def rounds(self, number: int) -> Bench:
        schedule = self.config.schedule.model_copy(update={"rounds": number})
        return replace(self, config=self.config.model_copy(update={"schedule": schedule}))

    @property
    def mode(self) -> dict[str, str]:
        return dict(MODES[self.config.target.power_mode])

    def check_whole(self) -> None:
        """Everything asked for was measured, and nothing of it is left on the phone or undone."""
        assert self.entries and all(entry.state == "done" for entry in self.entries), self.entries
        assert len({entry.step for entry in self.entries}) == len(self.entries), "measured once"
        rounds = range(self.config.schedule.most_rounds if ON_ARM else 0)
        assert {entry.round for entry in self.entries if entry.kind in TIMED} == set(rounds)
        self.check_nothing_left()

    def check_nothing_left(self) -> None:
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not self.phone.processes(), "something still runs there")
        assert not self.phone.processes()
        left = self.phone.shell(f"ls {KIT}/jobs; find {KIT} -name '*.part'").stdout
        assert not left, left
        assert not journals()


@pytest.fixture
def bench(request, used: VirtualPhone, adb, exported, tmp_path) -> Bench:
    """Asked for indirectly with the power mode."""
    only = [{"name": "only", "runs": 30, "warmup": 0}]
    target = {"remote": used.serial, "power_mode": request.param}
    asked = {"target": target, "schedule": {"rounds": 1}, "program": exported("toy_cnn", "fp32").pte}
    return Bench(used, adb, make_config(tmp_path / "run", only, **asked))


class At(Progress):
    """Does something once when the run says that it has come to a certain point."""

    def __init__(self, point: str, act: Callable[[], object]) -> None:
        self.point, self.act, self.done = point, act, False

    def stage(self, text: str) -> None:
        self.advance(0, 0, text)

    def advance(self, done: int, total: int, text: str = "") -> None:
        del done, total
        if text.startswith(self.point) and not self.done:
            self.done = True
            self.act()


# What a fault can meet. What the phone holds makes a moment last until the fault: none can be missed.


def setting(bench: Bench) -> bool:
    bench.phone.hold("settings")
    return bench.phone.settings() != USED


def pushing(bench: Bench) -> bool:
    # The program is sent after the settings: the phone lets go of the first of them once it holds that.
    bench.phone.hold("settings" if bench.phone.settings() == USED else "sent")
    return any(bench.phone.path(f"{KIT}/files").glob("*/.*.part"))


def running(bench: Bench) -> bool:
    bench.phone.hold(None)
    return any("--model" in words for words in bench.phone.processes())


def running_late(bench: Bench) -> bool:
    """Where rounds are measured, one of them: what was before is kept."""
    return running(bench) and bool(bench.entries) is ON_ARM


def pulling(bench: Bench) -> bool:
    bench.phone.hold("fetched")
    return any(bench.config.output_root.parent.rglob(".process_*.part"))


def restoring(bench: Bench) -> bool:
    # Once the program is there, nothing but the end of the run changes settings.
    sent = any(bench.phone.path(f"{KIT}/files").glob("*/[!.]*"))
    bench.phone.hold("settings" if sent else None)
    return sent and bench.phone.settings() != bench.mode


# The faults.


def adbd_killed(bench: Bench) -> None:
    bench.phone.kill_adbd()
    time.sleep(0.3)
    bench.phone.plug_in(wait=False)


def pulled_out(bench: Bench) -> None:
    bench.phone.pull_out()
    time.sleep(0.3)
    bench.phone.plug_in(wait=False)


def server_killed(bench: Bench) -> None:
    bench.adb.kill()


def rebooted(bench: Bench) -> None:
    bench.phone.reboot()


Moment = Callable[[Bench], bool]
Fault = Callable[[Bench], None]
MOMENTS = (setting, pushing, running, pulling, restoring)
EVERY_MOMENT = tuple(
    (mode, tuple((fault, moment) for moment in MOMENTS))
    for mode, fault in (
        ("boost", adbd_killed),
        ("app", pulled_out),
        ("boost", server_killed),
        ("app", rebooted),
    )
)


@contextlib.contextmanager
def meanwhile(bench: Bench, faults: Sequence[tuple[Fault, Moment]]) -> Iterator[None]:
    """Let each fault happen the first time that the run comes to its moment after the one before."""
    problems: list[BaseException] = []

    def happen() -> None:
        try:
            for number, (fault, moment) in enumerate(faults, 1):
                wait_until(lambda moment=moment: moment(bench), f"it did not come to {moment.__name__}")
                fault(bench)
                if number < len(faults):
                    faults[number][1](bench)
                else:
                    bench.phone.hold(None)
        except BaseException as problem:  # noqa: BLE001 - of another thread: raised again below
            problems.append(problem)

    faults[0][1](bench)
    thread = threading.Thread(target=happen)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if problems:
        raise problems[0]


def named(row: object) -> str | None:
    return row[0][0].__name__ if isinstance(row, tuple) else None


@pytest.mark.parametrize(("bench", "faults"), EVERY_MOMENT, indirect=["bench"], ids=named)
def test_a_phone_that_is_lost_and_comes_back(bench: Bench, faults: Sequence[tuple[Fault, Moment]]) -> None:
    target = bench.target()
    with meanwhile(bench, faults):
        bench.measure(target)
    assert target.shell.times_lost >= len(faults)
    assert bench.phone.settings() == USED
    assert not bench.said_of_settings
    bench.check_whole()


@pytest.mark.skipif(not ON_ARM, reason="times of an emulated phone are no latencies, so there are no rounds")
@pytest.mark.parametrize("bench", ["boost"], indirect=True)
def test_between_rounds_the_phone_restarts_and_its_owner_changes_settings(bench: Bench) -> None:
    def happen() -> None:
        bench.phone.reboot()
        bench.phone.change_setting("low_power", "2")
        bench.phone.change_setting("animator_duration_scale", None)

    bench.rounds(2).measure(at=At("launch 1", happen))
    assert bench.phone.settings() == USED | {"low_power": "2"}, "the owner's choice is left"
    bench.rounds(2).check_whole()


@pytest.mark.parametrize("bench", ["boost"], indirect=True)
def test_a_full_disk_ends_a_run_that_can_be_continued(bench: Bench) -> None:
    full = rf"^{KIT} on android:\S+ cannot be used: there is no space left; free some space there, or name"
    stages = ((0, EVIDENCE), (0, LAST_STAGE), (1, LAST_STAGE))
    bench.phone.small_disk("40m")
    target = bench.target()
    try:
        # No room for the program, none for a job to begin, none for what it leaves.
        for number, (pages, stage) in enumerate(stages):
            kept = bench.entries
            with pytest.raises(InputError, match=full) as said:
                fill = functools.partial(bench.phone.fill_disk, pages=pages)
                bench.measure(target, At(stage, fill), resume=number > 0)
            assert str(said.value).endswith("then run it again") is (number > 0 and ON_ARM)
            assert bench.phone.settings() == USED
            bench.check_nothing_left()
            assert bench.manifest.state == "interrupted"
            assert bench.phone.shell("rm /data/local/tmp/filler").ok
            assert bench.entries[: len(kept)] == kept
        assert bool(bench.entries) is ON_ARM
        bench.measure(target, resume=True)
        assert bench.phone.settings() == USED
        bench.check_whole()
    finally:
        bench.phone.reboot()  # with its own disk


@pytest.mark.parametrize("bench", ["app"], indirect=True)
def test_a_phone_that_is_gone_is_put_right_when_it_is_back(bench: Bench) -> None:
    target = bench.target()
    target.shell.patience_s = 0.5
    gone = r"was lost and did not come back within 0.5 s: .*"
    later = r"the power settings of \S+ are not put back yet \(the next run on it, or sme2prof clean, does"
    said = pytest.raises(SetupError, match=rf"{gone}, then run it again\n{later}")
    with meanwhile(bench, [(lambda bench: bench.phone.switch_off(), running_late)]), said:
        bench.measure(target)
    assert bench.phone.settings() == bench.mode
    assert bench.manifest.state == "interrupted"
    (session,) = bench.manifest.sessions
    assert session.problem and re.search(rf"{gone}; {later}", session.problem)
    assert session.fix and session.fix.endswith("run it again")
    kept = bench.entries
    bench.phone.switch_on()
    assert len(bench.measure(resume=True).sessions) == (2 if ON_ARM else 1)
    assert bench.entries[: len(kept)] == kept
    (said,) = bench.said_of_settings
    assert "in power mode app was cut short: what it had set on" in said
    assert bench.phone.settings() == USED
    bench.check_whole()


@pytest.mark.parametrize("bench", ["boost"], indirect=True)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_run_that_is_ended_from_outside(bench: Bench, number: signal.Signals, sme2prof, tmp_path) -> None:
    """Ctrl-C and a terminal that is closed end a run in order; one that is killed has the next command put
    things back."""
    raw = bench.config.model_dump(mode="json") | {"experiments": [{"name": "long", "runs": 100_000}]}
    (tmp_path / "c.json").write_text(json.dumps(raw))
    words = ("-m", "model_profiling", "run", tmp_path / "c.json")
    with started(*words, stderr=subprocess.PIPE, text=True) as run:
        wait_until(lambda: running_late(bench) or run.poll() is not None, "it does not run")
        assert bench.phone.settings() == bench.mode
        run.send_signal(number)
        said = run.communicate(timeout=60)[1]
    if number == signal.SIGKILL:
        assert bench.phone.settings() == bench.mode
        said = ""
        if ON_ARM:  # something was measured: a run that fails at once says what it has put back, too
            raw["target"]["power_mode"] = "leave"
            (tmp_path / "c.json").write_text(json.dumps(raw))
            said = sme2prof("run", tmp_path / "c.json", "--resume").stderr
            assert "cannot be continued" in said
            assert bench.phone.settings() == USED
        said += sme2prof("clean", "--target", f"android:{bench.phone.serial}").stdout
        assert said.count("in power mode boost was cut short: what it had set on") == 1
    else:
        assert "interrupted" in said and bench.manifest.state == "interrupted"
    assert bench.phone.settings() == USED
    bench.check_nothing_left()
