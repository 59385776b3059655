"""What is fetched shows its name, its size and how far it is; of pip's other words only errors are shown."""

from __future__ import annotations

import os
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from model_profiling.core import fetching, process
from model_profiling.core.progress import current_progress, watching

ROOT = Path(__file__).resolve().parents[2]
WHEEL = "large-1.0-py3-none-any.whl"
SIZE = 8_000_000
HALF = 4
"""Of the 8 MB that progress counts."""


def make_wheel(path: Path) -> bytes:
    info = "large-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("large.py", "#" * SIZE)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: large\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path.read_bytes()


@pytest.fixture
def go_on() -> threading.Event:
    """Until it is set, the large package is sent half-way only."""
    return threading.Event()


@pytest.fixture
def index(tmp_path: Path, go_on: threading.Event) -> Iterator[str]:
    """The address of a package index with one large package."""
    content = make_wheel(tmp_path / WHEEL)

    class Index(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_page = not self.path.endswith(".whl")
            page = f'<html><body><a href="/files/{WHEEL}">{WHEEL}</a></body></html>'.encode()
            body = page if is_page else content
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if is_page else "application/octet-stream")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            half = len(body) // 2
            self.wfile.write(body[:half])
            if not is_page:
                go_on.wait(60)
            self.wfile.write(body[half:])

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/simple"
        server.shutdown()


class Kept:
    def __init__(self, half_seen: threading.Event | None = None) -> None:
        self.stages: list[str] = []
        self.counts: set[tuple[int, int]] = set()
        self._half_seen = half_seen or threading.Event()

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def advance(self, done: int, total: int, text: str = "", left_s: float | None = None) -> None:
        del text, left_s
        self.counts.add((done, total))
        if done == HALF:
            self._half_seen.set()


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of pip's but the test's."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")


@pytest.mark.usefixtures("settings")
def test_a_download_shows_its_name_its_size_and_how_far_it_is(index, go_on, tmp_path):
    seen = Kept(go_on)
    with watching(seen):
        words = ("download", "--no-deps", "--index-url", index, "--dest", tmp_path / "got", "large")
        done = fetching.pip(*words, timeout=120)
    assert done.ok and (tmp_path / "got" / WHEEL).is_file(), done.tail()
    assert seen.stages == [f"fetching {WHEEL} (8.0 MB)"]
    assert (HALF, 8) in seen.counts, "half of it was there for a while"


@pytest.mark.usefixtures("settings")
def test_set_up_says_what_it_fetches_and_not_what_pip_thinks_of_the_settings(index, go_on, tmp_path):
    go_on.set()
    own = [sys.executable, "-m", "model_profiling.runner.pip", "install", "--no-deps", "--no-compile"]
    nowhere = (tmp_path / "nowhere").as_uri()
    words = [*own, "--index-url", index, "--extra-index-url", nowhere, "--target", tmp_path / "into"]
    done = process.run([*words, "large"], timeout=120, cwd=ROOT)
    assert done.ok and (tmp_path / "into" / "large.py").is_file(), done.tail()
    assert done.stderr.splitlines() == [f"fetching {WHEEL} (8.0 MB)", "installing 1 package"]
    assert done.stdout == ""
    done = process.run([*words, "large==2.0"], timeout=120, cwd=ROOT)
    assert done.returncode == 1 and "ERROR: No matching distribution found for large==2.0" in done.stderr


def test_what_apt_would_fetch_is_added_up() -> None:
    said = (
        "Reading package lists...\n"
        "'http://mirror/debian/pool/q/qemu-user_1%3a11.1_amd64.deb' qemu-user_1%3a11.1_amd64.deb"
        " 70500000 SHA256:00\n"
        "'http://mirror/debian/pool/g/libc6_2.36_amd64.deb' libc6_2.36_amd64.deb 500 SHA256:00\n"
    )
    sizes = fetching.apt_sizes(said)
    assert sum(sizes.values()) == 70_500_500
    assert fetching.described(["qemu-user"], tuple(sizes)) == "qemu-user and 1 package they need"
    assert fetching.described(["qemu-user", "libc6"], tuple(sizes)) == "qemu-user, libc6"


def test_who_watches_is_told_only_while_it_does() -> None:
    seen = Kept()
    with watching(seen):
        current_progress().stage("now")
    current_progress().stage("later")
    assert seen.stages == ["now"]
