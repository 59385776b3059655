"""Contents of a store that never was: months of some models on some devices, with changes that are known."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta

from model_profiling.report.history import HistoryPoint, HistorySeries, Mark, SeriesKey
from model_profiling.report.store_index import Kernels, StoreContents, StoredRun
from model_profiling.run import Times
from model_profiling.statistics.change_points import ChangePoint, ChangePoints, false_alarms

Program = tuple[str, str]
NOISE = 0.01
BEGIN = datetime(2026, 7, 19, 2)
PROGRAMS: tuple[Program, ...] = (
    ("mobilenet_v3_small", "XNNPACK fp16"),
    ("mobilenet_v3_small", "XNNPACK int8"),
    ("resnet50", "XNNPACK fp32"),
    ("resnet50", "XNNPACK fp16"),
    ("whisper_tiny_encoder", "XNNPACK fp16"),
    ("edgetam_image_encoder", "XNNPACK fp16"),
)
DEVICES = {"Phone A (3f2a)": 1.0, "Phone B (a81c)": 0.8, "Neoverse-N1, 4 cores": 1.9}
EMULATED = "emulated"
STEPS = {
    (PROGRAMS[2], "Phone A (3f2a)"): (95, 1.058),
    (PROGRAMS[4], "Phone B (a81c)"): (98, 1.036),
    (PROGRAMS[1], "Phone A (3f2a)"): (60, 0.943),
}
"""From which day a program on a device takes so many times as long."""
SERIES = (("sme2_on", 1, 1.0), ("sme2_off", 1, 1.7), ("sme2_on", 4, 0.4))
UPGRADE, UPGRADED = 95, ("ExecuTorch", "1.5.0", "1.5.1")
NO_FOLDER = "the folder of the run is not there"


def made_store(
    programs: Sequence[Program] = PROGRAMS, devices: dict[str, float] | None = None, days: int = 120
) -> StoreContents:
    """Reports of the first month are gone; ExecuTorch is another one from day 95 on."""
    chance = random.Random(5)
    runs: list[StoredRun] = []
    histories: list[HistorySeries] = []
    for program in programs:
        base = chance.uniform(2, 60)
        for device, factor in (DEVICES if devices is None else devices).items():
            own = [_run(program, device, day, chance) for day in range(days) if chance.random() < 0.55]
            runs += (run for _, run in own)
            for experiment, threads, share in SERIES:
                backend, _, dtype = program[1].rpartition(" ")
                key = SeriesKey(program[0], dtype, backend, device, device, experiment, threads)
                step = STEPS.get((program, device))
                histories.append(_series(key, own, base * factor * share, step, chance))
        if program[1] == "XNNPACK fp16" and program != PROGRAMS[4]:
            runs += (_run(program, EMULATED, day, chance)[1] for day in range(0, days, 7))
    first = frozenset(
        each.key for each in histories if (each.key.experiment, each.key.threads) == SERIES[0][:2]
    )
    return StoreContents("team_store", tuple(runs), tuple(histories), first, "Ask `sme2prof query`.")


def _run(program: Program, device: str, day: int, chance: random.Random) -> tuple[int, StoredRun]:
    name = f"{chance.getrandbits(48):012x}"
    emulated = device == EMULATED
    tested = program != PROGRAMS[4]
    kernels = Kernels.RAN_EMULATED if emulated or device.startswith("Neoverse") else Kernels.RAN
    return day, StoredRun(
        id=name,
        at=BEGIN + timedelta(days=day, minutes=chance.randrange(300)),
        model=program[0],
        format=program[1],
        device=device,
        times=Times.EMULATED if emulated else Times.HARDWARE,
        kernels=kernels if tested else Kernels.NOT_TESTED,
        commit=f"{(day * 7919 + 123457) * 31 % 0xFFFFFFF:07x}",
        branch="main",
        tags=("good",) if day % 30 == 0 else (),
        report="" if day < 30 else f"../runs/{name}/report.html",
        no_report=NO_FOLDER if day < 30 else "",
    )


def _series(
    key: SeriesKey,
    runs: Sequence[tuple[int, StoredRun]],
    ms: float,
    step: tuple[int, float] | None,
    chance: random.Random,
) -> HistorySeries:
    at, times = step or (10**6, 1.0)
    points = []
    for day, run in runs:
        median = ms * (times if day >= at else 1) * chance.gauss(1, NOISE)
        low, high = (median * (1 + sign * chance.uniform(0.002, 0.01)) for sign in (-1, 1))
        points.append(HistoryPoint(run.id, run.id, run.at, median, low, high, commit=run.commit))
    first = next((place for place, (day, _) in enumerate(runs) if day >= at), None)
    other = next((place for place, (day, _) in enumerate(runs) if day >= UPGRADE), None)
    changes = () if first is None else (made_change(first, ms, ms * times),)
    found = ChangePoints(len(points), changes, (), NOISE, false_alarms(len(points)))
    return HistorySeries(key, tuple(points), found, () if other is None else (Mark(other, *UPGRADED),))


def made_change(first: int, before: float, after: float, until: int | None = None) -> ChangePoint:
    """A drift where its last run is given."""
    share, last = after / before - 1, first if until is None else until
    return ChangePoint(first, first, last, last, share, share, share, before, after, until is not None)
