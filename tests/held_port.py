"""A TCP port of this machine that belongs to a test: one that is only free may be anybody's by the time it is
used."""

from __future__ import annotations

import socket


class HeldPort:
    """A port of 127.0.0.1 that nobody else is given while this object lives. Who connects is refused until a
    server listens there that sets SO_REUSEADDR, as sshd and adb do; they may come and go."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.number: int = self._socket.getsockname()[1]

    def __del__(self) -> None:
        self._socket.close()
