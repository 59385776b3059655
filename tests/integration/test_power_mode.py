"""Power modes on a phone with a real adbd: set, read back, and put back whatever happens."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from said import says
from virtual_phone import USED, VirtualPhone, journals

from model_profiling.core.errors import InputError, SetupError
from model_profiling.runner.machine import PowerMode
from model_profiling.targets import TargetChoice
from model_profiling.targets.remote.android import AndroidTarget

pytestmark = pytest.mark.usefixtures("own_state")
SCALES = ("animator_duration_scale", "transition_animation_scale", "window_animation_scale")


@pytest.fixture
def open_phone(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AndroidTarget]:
    def opened(phone: VirtualPhone, mode: PowerMode = "boost") -> AndroidTarget:
        monkeypatch.setenv("PATH", phone.server.environment["PATH"])
        target = AndroidTarget(TargetChoice("android", remote=phone.serial, power_mode=mode))
        target.shell.patience_s = 1.0
        return target

    return opened


def use(phone: VirtualPhone) -> None:
    for name, value in USED.items():
        phone.change_setting(name, value)


@pytest.mark.parametrize(("mode", "scale", "awake"), [("boost", "0", "15"), ("app", "1", "1")])
def test_a_mode_is_set_and_everything_put_back(phone, open_phone, mode, scale, awake) -> None:
    use(phone)
    target = open_phone(phone, mode)
    with target.held_ready():
        wanted = {"low_power": "0", "stay_on_while_plugged_in": awake, **dict.fromkeys(SCALES, scale)}
        assert phone.settings() == wanted
        (journal,) = journals()
        assert phone.path("/data/props").read_text().count(journal.stem) == 1, "named after its own number"
        with pytest.raises(InputError, match="in use"), open_phone(phone).held_ready():
            pass
    assert phone.settings() == USED
    assert not journals()
    assert target.take_notes() == ()


def test_a_phone_that_lets_nobody_change_its_settings(phone, open_phone) -> None:
    use(phone)
    phone.refuse_settings()
    refused = pytest.raises(SetupError, match=r"WRITE_SECURE_SETTINGS")
    with refused, open_phone(phone).held_ready():
        raise AssertionError("nothing may be measured so")
    assert phone.settings() == USED
    assert not journals()


def test_a_command_that_fails_after_putting_things_back_says_so(phone, open_phone, sme2prof) -> None:
    use(phone)
    with pytest.raises(SetupError), open_phone(phone).held_ready():
        phone.pull_out()
        raise SetupError("gone")
    phone.plug_in()
    phone.shell("mkdir -p /data/local/tmp/mine/sme2prof-device/things")
    failed = sme2prof("clean", "--target", f"android:{phone.serial}", "--device-path", "/data/local/tmp/mine")
    assert failed.returncode == 2 and phone.settings() == USED
    warning, error = failed.stderr.splitlines()
    assert warning.startswith("warning: a run of ") and "is back as it was" in warning
    assert error.startswith("error: ")


def test_a_good_run_whose_phone_goes_at_the_end_is_a_good_run(phone, open_phone) -> None:
    target = open_phone(phone)
    with target.held_ready():
        phone.kill_adbd()
    says(target.take_notes()[0], "power settings", "not put back")
    phone.plug_in()
    with open_phone(phone, "leave").held_ready():
        assert phone.settings() == {}
