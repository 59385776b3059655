"""A real PostgreSQL for tests: a cluster in a temporary folder, on loopback, a database for each test."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from stand_ins import wait_until

PASSWORD = "s3cret-of-tests"
_PLACES = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/opt/homebrew/opt/postgresql*/bin")


def postgres_folder() -> Path | None:
    """The folder of the server's programs; Debian keeps it off the PATH."""
    if on_path := shutil.which("initdb"):
        return Path(on_path).resolve().parent
    folders = [folder for place in _PLACES for folder in Path("/").glob(place[1:])]
    return next((folder for folder in sorted(folders, reverse=True) if (folder / "initdb").is_file()), None)


@dataclass(frozen=True)
class Postgres:
    port: int

    def address(self, database: str, user: str = "kit", password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def run(self, sql: str, database: str = "postgres") -> None:
        import psycopg

        with psycopg.connect(self.address(database), autocommit=True) as connection:
            connection.execute(sql)  # type: ignore[call-overload]


@contextlib.contextmanager
def running_postgres() -> Iterator[Postgres]:
    """The server refuses to run as root: it runs as Debian's `postgres` then."""
    programs = postgres_folder()
    assert programs is not None
    user = "postgres" if os.getuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # readable for that user
    if user:
        shutil.chown(folder, user)

    def call(words: Sequence[object]) -> None:
        subprocess.run([*map(str, words)], check=True, capture_output=True, user=user, cwd=folder)

    secret = folder / "secret"
    secret.write_text(PASSWORD)
    secret.chmod(0o644)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["-D", folder / "data", "--username=kit", "--auth=scram-sha-256", "--pwfile", secret]
    settings = {"listen_addresses": "127.0.0.1", "port": port, "unix_socket_directories": folder}
    try:
        call([programs / "initdb", *words, "--encoding=UTF8", "--no-sync", "--locale", "C.UTF-8"])
        options = ["-F", *(word for name, value in settings.items() for word in ("-c", f"{name}={value}"))]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "user": user, "cwd": folder}
        with subprocess.Popen([programs / "postgres", "-D", folder / "data", *options], **quiet) as server:
            try:
                ready = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
                wait_until(
                    lambda: subprocess.run(ready, check=False).returncode == 0, "PostgreSQL starts", 60
                )
                yield Postgres(port)
            finally:
                server.send_signal(signal.SIGQUIT)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
