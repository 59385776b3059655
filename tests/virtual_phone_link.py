"""The cable of a virtual phone: a TCP proxy on loopback that can be pulled out, plugged in and be slow."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

from held_port import HeldPort


class Link:
    """Passes connections on to a port of this machine; `serial` is what adb calls the phone behind it."""

    def __init__(self) -> None:
        self._held = HeldPort()
        self.serial = f"127.0.0.1:{self._held.number}"
        self._listener = socket.socket()
        self._port = 0
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.bytes_per_s: float | None = None
        self.passed = 0
        """Bytes that went either way since the cable was made."""

    def plug_in(self, port: int) -> None:
        """Connections go to `port` of this machine."""
        self.pull_out()
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", self._held.number), backlog=8)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def pull_out(self) -> None:
        """Every connection breaks, and none can be made."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for end in self._open:
                _shut(end)
            self._open.clear()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._port), timeout=5)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                with self._lock:
                    self._open |= {near, far}
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(4096 if self.bytes_per_s else 1 << 18):
                if self.bytes_per_s:
                    time.sleep(len(block) / self.bytes_per_s)
                sink.sendall(block)
                self.passed += len(block)
        for end in (source, sink):
            _shut(end)


def _shut(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
