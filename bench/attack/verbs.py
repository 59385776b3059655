"""Commands that are killed and run out of disk: the folder each works in, and what must hold afterwards."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from attack.live_run import PROGRAM, Live, write_config
from attack.reader import DATA

RECORDED = DATA / "runs" / "emulated_sme2"
NET = """import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 48), nn.Linear(16, 4)
    def forward(self, x):
        q, k, v = self.first(x).chunk(3, dim=-1)
        return self.last(q * k + v)
def net():
    return Net(), (torch.linspace(-1, 1, 32).reshape(1, 4, 8),)
"""
SCHEDULER = f"127.0.0.1:{20_000 + os.getpid() % 20_000}"
LAB = """import subprocess, sys, distributed
host, port = sys.argv[1].split(":")
with distributed.LocalCluster(n_workers=0, host=host, scheduler_port=int(port), dashboard_address=None):
    print("ready", flush=True)
    while True:
        words = ["worker", "--scheduler", sys.argv[1], "--target", "host"]
        subprocess.run([sys.executable, "-m", "model_profiling", *words], stdout=subprocess.DEVNULL)
"""
"""A scheduler, and a worker that is started again whenever it ends."""


@dataclass(frozen=True, slots=True)
class Verb:
    """`prepare` makes its folder, with what was made once for all. `again` is added to the words when it is
    tried again. `holds` yields what is wrong after that, apart from what is asked of every command."""

    name: str
    words: tuple[str, ...]
    prepare: Callable[[Path, Path], object] = lambda *_: None
    again: tuple[str, ...] = ()
    once: Callable[[Path], object] = lambda _: None
    holds: Callable[[Live], Iterator[str]] = lambda _: iter(())
    environment: Mapping[str, str] = field(default_factory=dict)
    """`{folder}` stands for its folder."""
    beside: Callable[[Path], AbstractContextManager[Live | None]] = lambda _: nullcontext()
    """Processes that it talks to; they are killed instead of its own."""
    rounds: bool = True
    """Whether it always measures the same number of them."""
    same: bool = False
    """Whether it writes the same bytes each time."""
    children: bool = True
    """Whether it starts processes for long enough that they can be met."""
    weight: int = 4

    def live(self, made: Path, folder: Path) -> Live:
        """Everything is there, and nothing has begun."""
        own = {name: value.format(folder=folder) for name, value in self.environment.items()}
        live = Live(folder, own)
        self.prepare(made, folder)
        return live

    def second(self) -> tuple[str, ...]:
        return (*self.words, *self.again)


def _kit(folder: Path, *words: str) -> None:
    ended = Live(folder).call(*words)
    assert ended is not None and ended.code == 0, ended and ended.tail()


def _recorded(made: Path, folder: Path) -> None:
    del made
    shutil.copytree(RECORDED, folder / "run")


def _sweep(made: Path, folder: Path) -> None:
    del made
    sweep = {
        "name": "s",
        "models": [str(PROGRAM)],
        "targets": ["host"],
        "runs": 1,
        "warmup": 0,
        "threads": [1, 2],
    }
    sweep["schedule"] = {"rounds": 2}
    (folder / "s.json").write_text(json.dumps(sweep))


def _cells(live: Live) -> Iterator[str]:
    cells = json.loads((live.folder / "sweep_s" / "cells.json").read_text())["cells"]
    if bad := [cell for cell in cells if cell["state"] != "done"]:
        yield f"not measured: {bad}"


@contextmanager
def _lab(folder: Path) -> Iterator[Live]:
    live = Live(folder, {"XDG_STATE_HOME": str(folder / "lab")})
    lab = live.python("-c", LAB, SCHEDULER)
    assert lab.stdout is not None
    try:
        assert lab.stdout.readline() == b"ready\n", lab.communicate()[1][-500:]
        yield live
    finally:
        live.end_orphans(0.0)
        lab.communicate()


RUNS = sorted(path.parent for path in (DATA / "runs").glob("*/analysis_summary.json"))


def _runs(made: Path, folder: Path) -> None:
    del made
    for run in RUNS:
        shutil.copytree(run, folder / "runs" / run.name)


def _stored(live: Live, runs: int = len(RUNS)) -> Iterator[str]:
    ended = live.call("store", "list", "--json", "--store", "store.db")
    if ended is None or ended.code != 0:
        yield f"list failed: {ended.tail() if ended else 'it did not end'}"
    elif len(json.loads(ended.out)["runs"]) != runs:
        yield f"runs are lost: {ended.out[:300]}"


def _swept(live: Live) -> Iterator[str]:
    yield from _cells(live)
    yield from _stored(live, 1)


def _language(made: Path) -> None:
    _kit(made, "export", "tiny_llama@layers=1,prompt=16,context=32", "--outdir", "language")


def _one_program(made: Path, folder: Path) -> None:
    for path in (made / "language").glob("*"):
        shutil.copy(path, folder / f"lm.pte{path.name.partition('.pte')[2]}")


def _left_over(made: Path, folder: Path) -> None:
    """What a run that was killed left set on a phone."""
    del made
    before = {"low_power": None}
    left = {"device": "one", "mode": "boost", "since": "2026-11-17", "before": before, "schema_version": 1}
    (folder / "sme2prof" / "devices").mkdir(parents=True)
    (folder / "sme2prof" / "devices" / "one.json").write_text(json.dumps(left))


def _configured(target: str) -> Callable[[Path, Path], None]:
    return lambda _, folder: write_config(folder, target)


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_RUN, _RESUME = _words("run c.json"), ("--resume",)
_HERE = "--target host --budget 1 --outdir out"
_OWN_CACHE = {"SME2PROF_CACHE": "{folder}/cache"}
_LAB_SWEEP = _words(f"sweep s.json --scheduler {SCHEDULER} --no-store")
_LLM = _words(f"llm lm.pte --prompt 4 --context 0 {_HERE}")
VERBS: tuple[Verb, ...] = (
    Verb("run", _RUN, _configured("host"), _RESUME, weight=12),
    Verb("run emulated", _RUN, _configured("emulated"), _RESUME, weight=6),
    Verb("analyze", _words("analyze run"), _recorded, same=True, children=False),
    Verb("report", _words("report run"), _recorded, same=True, children=False),
    Verb("report --for", _words("report run --for all"), _recorded, same=True, children=False, weight=6),
    Verb("doctor", ("doctor",), _left_over, environment=_OWN_CACHE),
    Verb("onboard", _words("onboard mine --dir ."), same=True, children=False),
    Verb("store add", _words("store add runs --store store.db"), _runs, holds=_stored, rounds=False,
         children=False, weight=6),
    Verb("sweep", _words("sweep s.json --store store.db"), _sweep, _RESUME, holds=_swept, weight=8),
    Verb("worker", _LAB_SWEEP, _sweep, _RESUME, holds=_cells, beside=_lab, weight=8),
    Verb("llm", _LLM, _one_program, _RESUME, once=_language, rounds=False),
)  # fmt: skip
BY_NAME = {verb.name: verb for verb in VERBS}
