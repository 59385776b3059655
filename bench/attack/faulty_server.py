"""A server on 127.0.0.1 that answers as a bad line or a bad server would: cuts, stalls, wrong lengths."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

Fault = Literal[
    "none", "cut", "stall", "too long", "too short", "changed", "empty", "error", "loop", "no hash"
]
FAULTS: tuple[Fault, ...] = ("cut", "stall", "too long", "too short", "changed", "empty", "error", "loop")


class FaultyServer(ThreadingHTTPServer):
    """Serves `files` by their paths; those that end with `faulty` come out as `fault` says."""

    daemon_threads = True

    def __init__(self, files: Mapping[str, bytes], fault: Fault, faulty: str) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.files, self.fault, self.faulty = files, fault, faulty
        self.over = threading.Event()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Who is cut off hangs up; that is no news."""

    @contextlib.contextmanager
    def serving(self) -> Iterator[str]:
        thread = threading.Thread(target=self.serve_forever, daemon=True)
        thread.start()
        try:
            yield self.address
        finally:
            self.over.set()
            self.shutdown()
            self.server_close()


class _Answers(BaseHTTPRequestHandler):
    server: FaultyServer

    def do_GET(self) -> None:
        name = self.path.partition("#")[0].partition("?")[0]
        data = self.server.files.get(name)
        fault = self.server.fault if name.endswith(self.server.faulty) else "none"
        if data is None or fault == "error":
            self.send_error(404 if data is None else 503)
            return
        if fault == "loop":
            self.send_response(302)
            self.send_header("Location", self.path)
            self.end_headers()
            return
        half = len(data) // 2
        length, sent = {
            "too long": (len(data) + 1000, data),
            "too short": (half, data[:half]),
            "changed": (len(data), data[:half] + bytes(64) + data[half + 64 :]),
            "empty": (0, b""),
            "cut": (len(data), data[:half]),
            "stall": (len(data), data[:half]),
        }.get(fault, (len(data), data))
        self.send_response(200)
        kind = "text/html" if name.endswith("/") else "application/octet-stream"
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(sent)
        self.wfile.flush()
        if fault == "stall":
            self.server.over.wait(60)
        if fault in ("cut", "too long", "stall"):
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


def package_index(package: str, wheel: str, data: bytes, *, hashes: bool) -> dict[str, bytes]:
    """A package index with one wheel in it."""
    mark = f"#sha256={hashlib.sha256(data).hexdigest()}" if hashes else ""
    page = f'<!DOCTYPE html><html><body><a href="/files/{wheel}{mark}">{wheel}</a></body></html>'
    return {f"/simple/{package}/": page.encode(), f"/files/{wheel}": data}
