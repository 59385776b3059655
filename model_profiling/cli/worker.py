"""`sme2prof worker`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from model_profiling.cli import frame
from model_profiling.sweep.addresses import parse_scheduler, parse_tls


def _cores(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[int, ...]:
    """Numbers with commas between them, from 0."""
    words = [word.strip() for word in text.split(",")] if text is not None else []
    if not all(word.isascii() and word.isdigit() and len(word) < 6 for word in words):
        raise click.BadParameter("give numbers of CPUs like 3 or 2,3")
    cores = tuple(map(int, words))
    if len(set(cores)) != len(cores):
        raise click.BadParameter("a CPU stands there twice")
    return cores


@frame.command(
    "worker",
    example="""sme2prof worker --scheduler 127.0.0.1:8786 --host --quiet-cores 2,3
    sme2prof worker --scheduler 127.0.0.1:8786 --device android:R5CT1234ABC --no-exports
    sme2prof worker --scheduler tls://lab:8786 --listen 192.0.2.7 --emulated
        --tls-ca ca.pem --tls-cert worker.pem --tls-key worker.key""",
)
@click.option("--scheduler", required=True, metavar="ADDRESS", help="Of the Dask scheduler: HOST:PORT.")
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="DEVICE",
    help="A device that this machine reaches: android:SERIAL or ssh:HOST (repeatable).",
)
@click.option("--host", is_flag=True, help="Offer this machine itself to measure on, as host@MACHINE.")
@click.option("--emulated", is_flag=True, help="Offer emulation.")
@click.option("--no-exports", "exports", flag_value=False, default=True, help="Export nothing here.")
@click.option(
    "--quiet-cores",
    callback=_cores,
    metavar="LIST",
    help="CPUs that measuring here is pinned to and all else keeps off, such as 2,3.",
)
@click.option("--name", help="Of this worker [default: the machine's and a number].")
@click.option("--machine", help="What sweeps call this machine in host@MACHINE [default: its name].")
@click.option(
    "--listen", metavar="ADDRESS", help="An address of this machine to be reached at [default: loopback]."
)
@click.option("--tls-ca", type=frame.PATH, help="Certificate of the authority, in PEM.")
@click.option("--tls-cert", type=frame.PATH, help="This worker's certificate, in PEM.")
@click.option("--tls-key", type=frame.PATH, help="Its key, in PEM.")
def command(
    *,
    scheduler: str,
    tls_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    **asked: Any,  # click has typed them; they are the fields of WorkerOptions
) -> int:
    """Serve sweeps: measure on the devices named here, and export models, until interrupted.

    Whoever reaches the scheduler can run code here: docs/sweeps.md says how to keep it to your team.
    """
    from model_profiling.sweep.worker import WorkerOptions, run_worker

    chosen = parse_scheduler(scheduler, parse_tls(tls_ca, tls_cert, tls_key))
    run_worker(WorkerOptions(chosen, **asked), frame.say)
    return 0
