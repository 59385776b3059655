"""Where a scheduler is, who is trusted, and what a worker offers: bad words are refused in one line."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import pytest
from said import refused

from model_profiling.core.errors import InputError
from model_profiling.sweep.addresses import Tls, parse_scheduler, parse_tls
from model_profiling.sweep.cluster import check_versions, device_of
from model_profiling.sweep.messages import Offer, Versions, own_versions
from model_profiling.sweep.worker import WorkerOptions, checked_cores, offered_devices

PEM = Path(__file__)
TLS = Tls(PEM, PEM, PEM)
HERE = parse_scheduler("127.0.0.1:8786")


@pytest.mark.parametrize(
    ("text", "address", "loopback"),
    [
        ("127.0.0.1:8786", "tcp://127.0.0.1:8786", True),
        ("localhost:1", "tcp://localhost:1", True),
        ("[::1]:8786", "tcp://[::1]:8786", True),
        ("tcp://lab-3.example:8786/", "tcp://lab-3.example:8786", False),
        ("127.evil.example:80", "tcp://127.evil.example:80", False),
    ],
)
def test_addresses(text: str, address: str, loopback: bool) -> None:
    found = parse_scheduler(text)
    assert (found.address, found.is_loopback) == (address, loopback)


@pytest.mark.parametrize("text", ["", "lab", "lab:", ":8786", "lab:0", "lab:99999", "http://lab:1", "a b:1"])
def test_other_words_are_no_address(text: str) -> None:
    with refused(InputError, text, "scheduler"):
        parse_scheduler(text)


def test_certificates_and_address_agree(tmp_path: Path) -> None:
    assert parse_scheduler("lab:1", TLS).address == "tls://lab:1"
    for text, tls in (("tls://lab:1", None), ("tcp://lab:1", TLS)):
        with refused(InputError, "certificates"):
            parse_scheduler(text, tls)
    assert parse_tls(None, None, None) is None
    with refused(InputError, "three files"):
        parse_tls(PEM, None, PEM)
    with refused(InputError, tmp_path / "none.pem"):
        parse_tls(PEM, PEM, tmp_path / "none.pem")


def test_a_worker_offers_what_it_is_told() -> None:
    options = WorkerOptions(
        HERE, ("android:S1", "ssh:board", "android:S1"), host=True, emulated=True, machine="m"
    )
    assert offered_devices(options) == ("host@m", "emulated", "android:S1", "ssh:board")
    for device in ("host", "emulated", "android", "ssh:", "teapot"):
        with pytest.raises(InputError):
            offered_devices(WorkerOptions(HERE, (device,)))
    with refused(InputError, "nothing", "worker"):
        offered_devices(WorkerOptions(HERE, exports=False))
    with refused(InputError, "CPU" if sys.platform == "linux" else "Linux"):
        checked_cores((60000,))


def offer(name: str, *devices: str) -> Offer:
    return Offer(f"tcp://{name}:1", name, own_versions(), devices)


def test_host_is_the_only_machine_that_offers_itself() -> None:
    one, two = offer("a", "host@a", "android:S"), offer("b", "host@b")
    assert device_of("host", [one]) == "host@a"
    assert device_of("host@b", [one, two]) == "host@b"
    assert device_of("android:S", [two]) is None
    assert device_of("host", [one, two], known="host@a") == "host@a"  # another machine came along
    assert device_of("host", [two], known="host@a") is None
    with refused(InputError, "host@a, host@b"):
        device_of("host", [one, two])


def test_workers_of_other_versions_are_refused_by_both_names() -> None:
    check_versions([offer("a")])
    other = Offer("tcp://b:1", "b", Versions("0.0.1", "1.0"))
    own = own_versions()
    with refused(InputError, "worker b", "0.0.1", "ExecuTorch 1.0", *dataclasses.astuple(own)):
        check_versions([offer("a"), other])


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system pins nothing to a core")
def test_only_cpus_that_may_be_used_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 7, 13})
    with refused(InputError, "CPU 3", fix="0, 7, 13"):
        checked_cores((3,))
