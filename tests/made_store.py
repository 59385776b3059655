"""Contents of a store that never was: months of some models on some devices, with changes that are known."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta

from model_profiling.report.store_index import (
    Change,
    Kernels,
    Mark,
    Method,
    Point,
    SeriesHistory,
    StoreContents,
    StoredRun,
)
from model_profiling.run import Times

Program = tuple[str, str]
NOISE = 0.01
BEGIN = datetime(2026, 7, 19, 2)
PROGRAMS: tuple[Program, ...] = (
    ("mobilenet_v3_small", "xnnpack fp16"),
    ("mobilenet_v3_small", "xnnpack int8"),
    ("resnet50", "xnnpack fp32"),
    ("resnet50", "xnnpack fp16"),
    ("whisper_tiny_encoder", "xnnpack fp16"),
    ("edgetam_image_encoder", "xnnpack fp16"),
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
UPGRADE, UPGRADED = 95, "ExecuTorch 1.5.0 -> 1.5.1"
NO_FOLDER = "the folder of the run is not there"


def made_store(
    programs: Sequence[Program] = PROGRAMS, devices: dict[str, float] | None = None, days: int = 120
) -> StoreContents:
    """Reports of the first month are gone; ExecuTorch is another one from day 95 on."""
    chance = random.Random(5)
    runs: list[StoredRun] = []
    histories: list[SeriesHistory] = []
    for program in programs:
        base = chance.uniform(2, 60)
        for device, factor in (DEVICES if devices is None else devices).items():
            own = [_run(program, device, day, chance) for day in range(days) if chance.random() < 0.55]
            runs += (run for _, run in own)
            for experiment, threads, share in SERIES:
                series = _series(own, base * factor * share, STEPS.get((program, device)), chance)
                headline = (experiment, threads) == SERIES[0][:2]
                histories.append(SeriesHistory(*program, device, experiment, threads, *series, headline))
        if program[1] == "xnnpack fp16" and program != PROGRAMS[4]:
            runs += (_run(program, EMULATED, day, chance)[1] for day in range(0, days, 7))
    return StoreContents(
        "team_store", tuple(runs), tuple(histories), Method(10, 0.8), "Ask `sme2prof query`."
    )


def _run(program: Program, device: str, day: int, chance: random.Random) -> tuple[int, StoredRun]:
    name = f"{chance.getrandbits(48):012x}"
    emulated = device == EMULATED
    tested = program != PROGRAMS[4]
    kernels = Kernels.RAN_EMULATED if emulated or device.startswith("Neoverse") else Kernels.RAN
    return day, StoredRun(
        id=name,
        measured=(BEGIN + timedelta(days=day, minutes=chance.randrange(300))).isoformat(),
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
    runs: Sequence[tuple[int, StoredRun]], ms: float, step: tuple[int, float] | None, chance: random.Random
) -> tuple[tuple[Point, ...], tuple[Change, ...], tuple[Mark, ...]]:
    at, times = step or (10**6, 1.0)
    points = []
    for day, run in runs:
        median = ms * (times if day >= at else 1) * chance.gauss(1, NOISE)
        points.append(
            Point(
                run.id,
                median,
                median * (1 - chance.uniform(0.002, 0.01)),
                median * (1 + chance.uniform(0.002, 0.01)),
            )
        )
    first = next((run.id for day, run in runs if day >= at), None)
    other = next((run.id for day, run in runs if day >= UPGRADE), None)
    changes = (Change(first, ms, ms * times, times - 1, (UPGRADED,) if at == 95 else ()),) if first else ()
    return tuple(points), changes, (Mark(other, UPGRADED),) if other else ()
