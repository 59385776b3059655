"""What an inference costs a phone's battery: its fuel gauge is read while one program runs by itself.

A gauge tells what flows out of the battery for the whole phone, screen and radio included, a few times a
second at best. So a program runs for many seconds, and the error says how much the readings differed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from model_profiling.targets.device.records import Energy, Gauge
from model_profiling.targets.device.state import amperes, volts
from model_profiling.wording import plural

ENDING = "_gauge.txt"
"""Of the file with the readings, beside the others of a job."""
_PERIOD_S = 0.2
# A gauge averages over the last second or so: what it says at first is of the time before.
_SETTLING_S = 2.0
_FEWEST = 5
# Two-sided 95% of Student's t for 4, 5, ... degrees of freedom; with more, the last one is near enough.
_T_95 = (2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110)


def metered(argv: Sequence[str], gauge: Gauge, file: str) -> tuple[str, ...]:
    """`argv`, with the gauge read into `file` as long as it runs; the last line tells when it ended."""
    # The shell's own `read` starts no process: what is measured is to be `argv`, not the meter.
    script = (
        '{ while :; do read -r u x </proc/uptime; read -r c <"$1"; read -r v <"$2"; echo "$u $c $v"; '
        f'sleep {_PERIOD_S}; done >"$3" 2>/dev/null & }}; m=$!; f=$3; shift 3; '
        '"$@"; s=$?; read -r u x </proc/uptime; kill $m; wait $m 2>/dev/null; echo "end $u" >>"$f"; exit $s'
    )
    return ("sh", "-c", script, "sh", gauge.current, gauge.voltage, file, *argv)


def most_bytes(limit_s: float) -> int:
    """How much `metered` writes at most while a job runs, with room to spare."""
    return 64 * math.ceil(2 * limit_s / _PERIOD_S) + (64 << 10)


@dataclass(frozen=True, slots=True)
class Reading:
    """The gauge at one moment: as it told current and voltage, and what that means."""

    uptime_s: float
    current: str
    voltage: str
    amperes: float
    volts: float

    @property
    def watts(self) -> float:
        return self.amperes * self.volts


@dataclass(frozen=True, slots=True)
class Metered:
    """What `metered` wrote of a program whose inferences were the last thing it did."""

    readings: tuple[Reading, ...]
    end_s: float | None
    busy_s: float

    def counts(self, reading: Reading) -> bool:
        """Whether it is of the inferences alone."""
        return (
            self.end_s is not None
            and self.end_s - self.busy_s + _SETTLING_S <= reading.uptime_s <= self.end_s
        )


def read_metered(text: str, iterations_ns: Sequence[int]) -> Metered:
    """The readings in a meter's file; lines that are not whole are left out."""
    ended = re.search(r"(?m)^end ([0-9]{1,9}\.[0-9]{1,4})$", text)
    found: list[Reading] = []
    for line in text.splitlines():
        words = line.split()
        if len(words) == 3 and re.fullmatch(r"[0-9]{1,9}\.[0-9]{1,4}", words[0]):
            current, voltage, at = amperes(words[1]), volts(words[2]), float(words[0])
            # Time that stands still or goes back is no clock's.
            later = not found or at > found[-1].uptime_s
            if current is not None and voltage is not None and later:
                found.append(Reading(at, words[1], words[2], current, voltage))
    return Metered(tuple(found), float(ended[1]) if ended else None, sum(iterations_ns) / 1e9)


def energy_of(metered: Metered, inferences: int) -> Energy:
    """The energy of one inference."""
    end, busy_s = metered.end_s, metered.busy_s
    if end is None or not inferences:
        return Energy(reason="the readings of the fuel gauge have no end")
    powers = [(reading.uptime_s, reading.watts) for reading in metered.readings if metered.counts(reading)]
    # One of each: what a gauge repeats is no further reading.
    different = [watts for watts, _ in groupby(watts for _, watts in powers)]
    if len(different) < _FEWEST:
        told = plural(len(different), "different reading")
        return Energy(
            readings=len(different),
            reason=f"the fuel gauge told {told} in {busy_s:.0f} s, {_FEWEST} are needed",
        )
    held = [(later - at, watts) for (at, watts), (later, _) in pairwise([*powers, (end, 0.0)])]
    mean = sum(lasted * watts for lasted, watts in held) / sum(lasted for lasted, _ in held)
    error = _half_interval(different)
    seconds = busy_s / inferences
    return Energy(
        joules=mean * seconds,
        low=max(mean - error, 0.0) * seconds,
        high=(mean + error) * seconds,
        watts=mean,
        readings=len(different),
    )


def readings_csv(metered: Metered, inferences: int) -> str:
    """Every reading, so that the figure can be made again: a column says which count for it, the last line
    when the inferences ended, how many there were and how long they took together."""
    lines = ["uptime_s,current,voltage,amperes,volts,counted,inferences,busy_s"]
    lines += [
        f"{reading.uptime_s:.2f},{reading.current},{reading.voltage},{reading.amperes:.6f},{reading.volts:.6f},"
        f"{int(metered.counts(reading))},,"
        for reading in metered.readings
    ]
    if metered.end_s is not None:
        lines.append(f"{metered.end_s:.2f},,,,,,{inferences},{metered.busy_s:.6f}")
    return "\n".join(lines) + "\n"


def _half_interval(values: Sequence[float]) -> float:
    count = len(values)
    mean = sum(values) / count
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (count - 1))
    return _T_95[min(count - _FEWEST, len(_T_95) - 1)] * spread / math.sqrt(count)
