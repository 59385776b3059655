"""Where a scheduler is, who is trusted, what a worker offers, and the files that go between."""

import dataclasses
import hashlib
import os
import sys
from pathlib import Path

import pytest
from said import refused

from model_profiling.core.errors import FormatError, InputError
from model_profiling.sweep.cluster import check_versions, device_of
from model_profiling.sweep.messages import Hashes, Offer, SentFiles, Versions, own_versions
from model_profiling.sweep.worker import (
    Tls,
    WorkerOptions,
    checked_cores,
    offered_devices,
    parse_scheduler,
    parse_tls,
)

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


@pytest.mark.parametrize(("listen", "warned"), [("192.0.2.7", True), ("127.0.0.1", False)])
def test_a_worker_that_others_reach_without_certificates_says_so(sme2prof, listen: str, warned: bool) -> None:
    done = sme2prof("worker", "--scheduler", "127.0.0.1:9", "--listen", listen, "--no-exports")
    assert done.returncode == 2 and "nothing to do" in done.stderr
    assert (f"anybody who can reach {listen} can run code here" in done.stderr) == warned


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


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def fill(folder: Path, **held: bytes) -> Path:
    for name, content in held.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def test_a_listing_leaves_out_what_is_under_way(tmp_path: Path) -> None:
    run = fill(tmp_path / "run", journal_dot_jsonl=b"{}\n", on__a=b"dump", _dot_work__process=b"half")
    (run / ".manifest.json.12.part").write_bytes(b"half")
    (run / "link").symlink_to(run / "on")
    hashes = Hashes()
    assert hashes.listing(run) == {"journal.jsonl": sha256(b"{}\n"), "on/a": sha256(b"dump")}
    (run / "on/a").write_bytes(b"another dump")
    assert hashes.listing(run)["on/a"] == sha256(b"another dump")


def test_a_run_is_the_same_on_the_other_side(tmp_path: Path) -> None:
    here = fill(tmp_path / "here", journal_dot_jsonl=b"1\n2\n", manifest_dot_json=b"{}", on__dump=b"new")
    there = fill(tmp_path / "there", journal_dot_jsonl=b"1\n", manifest_dot_json=b"{}", off__dump=b"old")
    hashes = Hashes()
    sent = SentFiles.of(here, hashes.listing(here), hashes.listing(there))
    assert set(sent.contents) == {"journal.jsonl", "on/dump"}
    sent.lay_out(there, hashes, "worker w")
    assert Hashes().listing(there) == sent.listing
    SentFiles(sent.listing).lay_out(there, hashes, "worker w")  # nothing is lacking, so nothing is read


def test_the_journal_is_written_when_all_it_tells_of_is_there(tmp_path, monkeypatch):
    """A kill in the middle must not leave lines of files that never arrived."""
    here = fill(tmp_path / "here", journal_dot_jsonl=b"1\n", manifest_dot_json=b"{}", z__dump=b"dump")
    written: list[str] = []
    monkeypatch.setattr("model_profiling.core.files.write_bytes", lambda path, _: written.append(path.name))
    SentFiles.of(here, Hashes().listing(here), {}).lay_out(tmp_path / "there", Hashes(), "worker w")
    assert written == ["dump", "journal.jsonl", "manifest.json"]


@pytest.mark.parametrize("contents", [{"a": b"wrong"}, {}], ids=["forged", "missing"])
def test_what_is_not_what_it_was_called_is_refused(contents: dict[str, bytes], tmp_path: Path) -> None:
    sent = SentFiles({"a": sha256(b"right"), "b": sha256(b"b")}, {"b": b"b", **contents})
    with refused(FormatError, "was damaged on the way"):
        sent.lay_out(tmp_path, Hashes(), "worker w")
    assert not list(tmp_path.iterdir())
