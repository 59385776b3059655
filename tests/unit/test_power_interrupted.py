"""Interrupts while a phone's settings are put back, with a phone that is a dictionary."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from model_profiling.core.errors import SetupError
from model_profiling.core.process import Completed
from model_profiling.targets.device.power_mode import NAMES, PowerSettings

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Phone:
    """Keeps settings; `meanwhile` happens before each change."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {"low_power": "1"}
        self.meanwhile: Callable[[], None] = lambda: None

    def run(self, argv: list[str], *, timeout: float) -> Completed:
        del timeout
        if argv[0] == "settings":
            self.meanwhile()
            _, verb, _, name, *value = argv
            self.settings.pop(name, None)
            self.settings |= {name: value[0]} if verb == "put" else {}
        said = "".join(f"{name}={self.settings.get(name, 'null')}\n" for name in NAMES)
        return Completed(tuple(argv), 0, said, "", 0.0, False)


@pytest.fixture
def phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Phone:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return Phone()


def hold(phone: Phone, meanwhile: Callable[[], None], *, interrupted: bool) -> None:
    with PowerSettings(phone, "the phone", "own-id").held("boost", lambda step: step()):
        assert phone.settings["low_power"] == "0"
        phone.meanwhile = meanwhile
        if interrupted:
            raise KeyboardInterrupt


@pytest.mark.parametrize("interrupted", [True, False])
@pytest.mark.parametrize("number", ENDING)
def test_a_signal_waits_until_everything_is_back(number: int, interrupted: bool, phone: Phone) -> None:
    def ended(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, ended)
    try:
        with pytest.raises(KeyboardInterrupt) as stopped:
            hold(phone, lambda: signal.raise_signal(number), interrupted=interrupted)
        assert signal.getsignal(number) is ended and not stopped.value.args
    finally:
        signal.signal(number, before)
    assert phone.settings == {"low_power": "1"}


def test_an_interrupt_without_the_phone_says_what_is_left_to_do(phone: Phone) -> None:
    def gone() -> None:
        raise SetupError("gone")

    with pytest.raises(KeyboardInterrupt, match="settings of the phone"):
        hold(phone, gone, interrupted=True)
    phone.meanwhile = lambda: None
    PowerSettings(phone, "the phone", "own-id").finish_earlier()
    assert phone.settings == {"low_power": "1"}


def test_a_phone_lost_while_earlier_settings_are_put_back_is_waited_for(phone: Phone) -> None:
    def gone() -> None:
        raise SetupError("gone")

    with pytest.raises(KeyboardInterrupt):
        hold(phone, gone, interrupted=True)
    times = iter(["lost", "there again"])
    phone.meanwhile = lambda: gone() if next(times, "") == "lost" else None

    def again(step: Callable[[], None]) -> None:
        try:
            step()
        except SetupError:
            step()

    settings = PowerSettings(phone, "the phone", "own-id")
    with settings.held("app", again):
        assert phone.settings["stay_on_while_plugged_in"] == "1"
    assert phone.settings == {"low_power": "1"}


def test_a_value_that_is_no_number_is_put_back(phone: Phone) -> None:
    phone.settings = {"low_power": "1", "window_animation_scale": "nan"}
    hold(phone, lambda: None, interrupted=False)
    assert phone.settings == {"low_power": "1", "window_animation_scale": "nan"}
