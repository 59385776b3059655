"""What an inference costs the battery, where a phone's fuel gauge was asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from model_profiling.report.document import Block, Paragraph, make_list, make_table
from model_profiling.run.metrics import Latency

if TYPE_CHECKING:
    from model_profiling.targets.device.records import Energy

_NOTE = (
    "Energy of one inference for the whole phone, screen and radio included, from its fuel gauge while the "
    "program ran alone; the interval (95%) is how much the gauge's readings differed, all of which are in "
    "the experiment's _gauge.csv. Gauges differ between phones: compare experiments on one phone."
)


def energy_table(latencies: Sequence[Latency]) -> list[Block]:
    """A table of those that are known, and why others are not; empty where no gauge was asked."""
    asked = [(found, found.energy) for found in latencies if found.energy]
    rows = [row for found, energy in asked if (row := _row(found, energy))]
    blocks: list[Block] = []
    if rows:
        headers = ("experiment", "threads", "mJ for one inference", "interval", "W", "readings")
        blocks = [Paragraph(_NOTE), make_table(headers, rows, numbers=(1, 2, 4, 5))]
    unknown = (f"{found.series}: {energy.reason}" for found, energy in asked if energy.reason)
    return [*blocks, *make_list(unknown)]


def _row(found: Latency, energy: Energy) -> tuple[str, ...] | None:
    if energy.joules is None or energy.low is None or energy.high is None or energy.watts is None:
        return None
    threads = str(found.threads or "")
    interval = f"{1e3 * energy.low:.3g} to {1e3 * energy.high:.3g}"
    watts, readings = f"{energy.watts:.2f}", str(energy.readings)
    return found.experiment, threads, f"{1e3 * energy.joules:.3g}", interval, watts, readings
