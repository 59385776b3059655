"""A sweep whose workers are not as they should be: busy, of another version, or lying."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import Artifact

from model_profiling.config.sweep import SweepConfig
from model_profiling.config.sweep_reading import load_sweep
from model_profiling.errors import InputError
from model_profiling.pipeline.left import Left
from model_profiling.run import Run
from model_profiling.store.opened import Store
from model_profiling.sweep import engine
from model_profiling.sweep.addresses import parse_scheduler
from model_profiling.sweep.cluster import workers_for
from model_profiling.sweep.engine import SweepOptions, run_sweep
from model_profiling.sweep.messages import Failed, Lacking, Offer, Versions, VisitAsk, Visited
from model_profiling.sweep.station import Station
from model_profiling.sweep.transfer import PIECE
from model_profiling.sweep.worker import worker_settings

distributed = pytest.importorskip("distributed")
HERE = "host@here"


@contextlib.contextmanager
def served_by(*stations: Station) -> Iterator[str]:
    """A scheduler on loopback with a worker for each station, all in this process."""
    silent = {"host": "127.0.0.1", "dashboard": False, "dashboard_address": "127.0.0.1:0"}
    made = {"cls": distributed.Scheduler, "options": {**silent, "port": 0}}
    workers = {}
    for station in stations:
        options = {**worker_settings(station), "host": "127.0.0.1"}
        options["local_directory"] = str(station.folder / "dask")
        workers[options.pop("name")] = {"cls": distributed.Worker, "options": options}
    try:
        with distributed.SpecCluster(workers=workers, scheduler=made, silence_logs=False) as own:
            yield own.scheduler_address
    finally:
        for station in stations:
            station.close()


def made_sweep(folder: Path, *models: Path) -> SweepConfig:
    asked = {
        "name": "small",
        "models": [str(model) for model in models],
        "rungs": ["on"],
        "targets": [HERE],
        "runs": 1,
        "warmup": 0,
        "schedule": {"mode": "rounds", "rounds": 2},
    }
    (folder / "sweep.json").write_text(json.dumps(asked))
    return load_sweep(folder / "sweep.json")


@dataclass
class Heard:
    stages: list[str] = field(default_factory=list)

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def advance(self, done: int, total: int, text: str = "", left_s: float | None = None) -> None:
        del done, total, text, left_s


class Liar(Station):
    """Measures what is called `good`, once the device is free; of other programs it says something else."""

    busy = 2

    def visit(self, ask: VisitAsk) -> Visited | Lacking | Failed:
        name = ask.job.program.name
        if name != "good":
            return self.lie(name)
        if self.busy:
            type(self).busy -= 1
            return Failed(self.address, self.name, "it is in use", "wait", in_use=True)
        return super().visit(ask)

    def lie(self, name: str) -> Visited | Lacking | Failed:
        evil, sha256 = b"evil", hashlib.sha256(b"evil").hexdigest()
        answers: dict[str, object] = {
            "outside": self.visited({"../../../evil": sha256}, {sha256: evil}),
            "hidden": self.visited({".lock": sha256}, {sha256: evil}),
            "forged": self.visited({"journal.jsonl": "0" * 64}, {"0" * 64: evil}),
            "endless": self.visited({"journal.jsonl": "1" * 64}, {}),
            "insatiable": Lacking(self.address, ()),
            "nonsense": "done",
        }
        return answers[name]  # type: ignore[return-value]

    def visited(self, listing: dict[str, str], contents: dict[str, bytes]) -> Visited:
        return Visited(self.address, self.name, listing, contents, over=True, left=Left())

    def get(self, sweep: str, name: str, offset: int) -> bytes:
        return bytes(PIECE) if name.startswith("runs/endless") else super().get(sweep, name, offset)


def test_a_worker_that_lies_costs_its_own_cells(
    exported: Callable[..., Artifact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_MOST_BYTES", PIECE)
    lies = ("outside", "hidden", "forged", "endless", "insatiable", "nonsense")
    models = [tmp_path / f"{name}.pte" for name in (*lies, "good")]
    for model in models:
        shutil.copyfile(exported("toy_cnn").pte, model)
    outdir, heard = tmp_path / "a" / "b" / "out", Heard()
    store = Store.open(tmp_path / "store", make=True)
    with served_by(Liar("liar", tmp_path / "worker", (HERE,), exports=False)) as address:
        options = SweepOptions(outdir, parse_scheduler(address), store=store)
        outcome = run_sweep(made_sweep(tmp_path, *models), options, heard)
    found = {each.cell.program.name: each for each in outcome.record.cells}
    assert found.pop("good").state == "done"
    assert f"waiting for {HERE}: it is in use" in heard.stages
    reasons = {name: each.reason for name, each in found.items()}
    assert all(each.state == "failed" for each in found.values()), found
    assert "../../../evil" in reasons["outside"] and "hidden" in reasons["hidden"]
    assert "is not what was sent" in reasons["forged"] and "does not end" in reasons["endless"]
    assert "again and again" in reasons["insatiable"] and "something else" in reasons["nonsense"]
    assert not list(tmp_path.rglob("evil")) and not list(outdir.rglob(".lock"))
    (stored,) = store.rows("SELECT run_dir FROM runs")
    assert Path(stored["run_dir"]) == outdir / "runs" / "good" / "host-here"
    manifest = Run.open(outdir / "runs" / "good" / "host-here").manifest
    assert manifest is not None and [each.end for each in manifest.sessions] == ["done"]


def test_another_version_is_named_and_refused(exported: Callable[..., Artifact], tmp_path: Path) -> None:
    old = Station("old", tmp_path / "worker", (HERE,), exports=False, versions=Versions("0.1", "1.0"))
    sweep = made_sweep(tmp_path, exported("toy_cnn").pte)
    with (
        served_by(old) as address,
        pytest.raises(InputError, match=r"worker old runs sme2prof 0\.1 with ExecuTorch 1\.0, this sweep"),
    ):
        run_sweep(sweep, SweepOptions(tmp_path / "out", parse_scheduler(address)))


def test_a_device_that_several_workers_reach_is_asked_for_at_one_of_them() -> None:
    ours, theirs = Versions("2", "1"), Versions("1", "1")
    offers = [
        Offer("tcp://a", "a", theirs, ("android:X", "emulated")),
        Offer("tcp://b", "b", ours, ("android:X", "emulated")),
        Offer("tcp://c", "c", ours, ("android:X", "emulated")),
    ]
    assert workers_for("android:X", offers, ours) == ("tcp://b",)
    assert workers_for("android:X", offers, ours, ("tcp://c",)) == ("tcp://c",)
    assert workers_for("android:X", offers[:2], ours, ("tcp://c",)) == ("tcp://b",)
    assert workers_for("android:X", offers[:1], ours) == ()
    assert workers_for("emulated", offers, ours) == ("tcp://b", "tcp://c")
