"""Subprocesses with a time limit, their output kept, and nothing left running behind them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_profiling.errors import SetupError, system_reason


@dataclass(frozen=True, slots=True)
class Completed:
    """How a subprocess ended and everything it said."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool

    @property
    def ok(self) -> bool:
        return self.returncode == 0 and not self.timed_out

    @property
    def signal_name(self) -> str | None:
        """The signal that ended it, also when a shell or an emulator reports it as 128+N."""
        number = -self.returncode if self.returncode < 0 else self.returncode - 128
        if self.timed_out or number <= 0:
            return None
        try:
            return signal.Signals(number).name
        except ValueError:
            return None

    def tail(self, lines: int = 12) -> str:
        said = [line for line in (self.stdout + "\n" + self.stderr).splitlines() if line.strip()]
        return "\n".join(said[-lines:])


def run(
    argv: Sequence[str | Path],
    *,
    timeout: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Completed:
    """Run `argv` in its own process group; at `timeout` seconds the whole group is killed.

    `env` adds to the inherited environment. A failing command is a value, not an exception; only a
    program that cannot be started at all raises.
    """
    words = tuple(str(word) for word in argv)
    began = time.monotonic()
    child = start(words, cwd=cwd, env=env)
    timed_out = False
    try:
        out, err = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        timed_out = True
        kill_group(child)
        out, err = child.communicate()
    except BaseException:
        kill_group(child)
        child.communicate()
        raise
    return Completed(
        argv=words,
        returncode=child.returncode,
        stdout=out.decode("utf-8", "replace"),
        stderr=err.decode("utf-8", "replace"),
        seconds=time.monotonic() - began,
        timed_out=timed_out,
    )


def start(
    argv: Sequence[str],
    *,
    fed: bool = False,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start `argv` in a session of its own, its output piped here, and its input too if it is `fed`.

    `env` adds to the inherited environment. Whoever starts it waits for it, or ends it with `kill_group`.
    """
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if fed else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env={**os.environ, **env} if env is not None else None,
            start_new_session=True,
        )
    except OSError as problem:
        reason = system_reason(problem)
        raise SetupError(f"cannot start {argv[0]}: {reason}", "install it or correct its path") from problem


def kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill the child and everything it started."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        child.kill()
