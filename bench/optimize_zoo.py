"""What does `sme2prof optimize` bring to models nobody here wrote? One row for each, whatever becomes of it.

    pip install transformers
    python bench/optimize_zoo.py [FILE.py:FACTORY ...] [--dtypes fp32,fp16] [--structure]

Each model (by default those of foreign_models.py in fp32 and fp16, and six of them in int8) goes through
`optimize` on this machine, which needs an Arm CPU. With --structure it is exported twice, as it is and with
what `--optimize` chooses by structure, and nothing is timed. A row says which rewrites are in, operators
outside and delegate calls before and after, the speedup with its interval, and the difference from PyTorch
before and after. `optimize.json` and `optimize.md` in the folder (--out) hold the table, written after each
row. The same command goes on where it was stopped, and tries again what failed.

At the end it compares with what was promised: EfficientNet 300 times as fast, wav2vec2 2.5, Swin 1.5, the
median of all rows 1.1 (where nothing helped: 1), none slower, none wrong, none that cannot be checked. Exits
with 1 if any of this is not so, or anything failed.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from zoo_campaign import MISSING, each_apart, each_of, short

from model_profiling.core import files
from model_profiling.core.errors import ProfilingError
from model_profiling.core.formatting import counts
from model_profiling.export.exporter import export_model
from model_profiling.export.records import ExportResult, read_export
from model_profiling.runner.features import is_arm
from model_profiling.statistics.speedup import Verdict
from model_profiling.targets import TargetChoice
from model_profiling.workflow.optimize import optimize_model
from model_profiling.workflow.profile import ProfileOptions

MODELS = f"{Path(__file__).with_name('foreign_models.py')}:*"
IN_INT8 = ("efficientnet", "mobilenet_v2", "resnet", "vit", "distilbert", "lstm")
PROMISED = {"efficientnet": 300.0, "wav2vec2": 2.5, "swin": 1.5}
"""Times as fast in fp32, at least. These models come first."""
PROMISED_MEDIAN = 1.1


@dataclass(frozen=True, slots=True)
class Side:
    outside: int
    delegates: int
    deviation: float | None
    """None if there was nothing to compare, or PyTorch's own outputs are zero."""
    agrees: bool

    @classmethod
    def of(cls, made: ExportResult) -> Side:
        compared = made.accuracy.lowering
        deviation = float(f"{compared.max_rel:.2g}") if compared and not compared.vanished else None
        outside = len(made.coverage.undelegated)
        return cls(outside, made.coverage.partitions, deviation, made.accuracy.ok)


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one model in one dtype."""

    model: str
    dtype: str
    cpu: str = ""
    """Where it was measured; empty if nothing was timed."""
    rewrites: str = ""
    before: Side | None = None
    after: Side | None = None
    """None if nothing helped."""
    times_as_fast: tuple[float, float, float] | None = None
    """Measured for the choice, with its interval."""
    slower: bool = False
    outside: str = ""
    """The operators that are still outside."""
    failed: str = ""
    seconds: float = 0.0

    @property
    def wrong(self) -> bool:
        return bool(self.before and self.after and self.before.agrees and not self.after.agrees)

    @property
    def unchecked(self) -> bool:
        return any(side.deviation is None for side in (self.before, self.after) if side)

    @property
    def gain(self) -> float:
        return self.times_as_fast[0] if self.after and self.times_as_fast else 1.0


@dataclass(frozen=True, slots=True)
class Asked:
    model: str
    dtype: str
    home: Path
    structure: bool
    budget_s: float

    def failed(self, why: str) -> Row:
        return Row(short(self.model), self.dtype, failed=why)


def worked(asked: Asked) -> Row:
    row, began = Row(short(asked.model), asked.dtype), time.process_time()
    try:
        row = by_structure(row, asked) if asked.structure else measured(row, asked)
    except ProfilingError as problem:
        row = replace(row, failed=str(problem))
    # A failure of the kit's own is what this looks for.
    except Exception as problem:  # noqa: BLE001
        row = replace(row, failed=f"of the kit itself: {type(problem).__name__}: {problem}")
    return replace(row, seconds=round(time.process_time() - began, 1))


def by_structure(row: Row, asked: Asked) -> Row:
    before, after = (
        export_model(asked.model, dtype=row.dtype, outdir=asked.home, optimize=optimize)
        for optimize in (False, True)
    )
    row = replace(row, rewrites=counts(after.rewritten), before=Side.of(before), after=Side.of(after))
    return replace(row, outside=left(after))


def measured(row: Row, asked: Asked) -> Row:
    options = ProfileOptions(
        target=TargetChoice("host"), dtype=row.dtype, budget_s=asked.budget_s, outdir=asked.home
    )
    outcome = optimize_model(asked.model, options)
    found, before = outcome.optimization, read_export(outcome.original)
    row = replace(row, cpu=found.cpu, before=Side.of(before), outside=left(before))
    if outcome.program is not None:
        after = read_export(outcome.program)
        row = replace(row, rewrites=counts(after.rewritten), after=Side.of(after), outside=left(after))
    if (gain := found.speedup) and gain.ratio and gain.low and gain.high:
        row = replace(row, times_as_fast=(gain.ratio, gain.low, gain.high))
        row = replace(row, slower=gain.verdict is Verdict.SLOWER)
    return row


def left(made: ExportResult) -> str:
    return counts(Counter(each.operator.split(".")[1] for each in made.coverage.undelegated))


def kept_promises(rows: Sequence[Row]) -> Iterator[tuple[bool, str]]:
    """Each promise, and whether it is kept."""
    names = {
        "failed": [row for row in rows if row.failed],
        "wrong": [row for row in rows if row.wrong],
        "not checked": [row for row in rows if row.unchecked],
        "slower": [row for row in rows if row.slower],
    }
    for what, those in names.items():
        listed = ", ".join(f"{row.model.partition(':')[2]} {row.dtype}" for row in those)
        yield not those, f"{what}: {listed or 'none'}"
    if not any(row.cpu for row in rows):
        return
    for name, least in PROMISED.items():
        gains = [row.gain for row in rows if row.model.endswith(f":{name}") and row.dtype == "fp32"]
        if gains:
            yield gains[0] >= least, f"{name}: {gains[0]:.4g} times as fast, at least {least:g} promised"
    middle = statistics.median(row.gain for row in rows if not row.failed)
    yield middle >= PROMISED_MEDIAN, f"median: {middle:.3g}, at least {PROMISED_MEDIAN:g} promised"


def cells(row: Row) -> tuple[str, ...]:
    def pair(name: str) -> str:
        sides = [getattr(side, name) for side in (row.before, row.after) if side]
        words = ("not checked" if each is None else f"{each:.4g}" for each in sides)
        return " → ".join(words) or MISSING

    failed = " ".join(row.failed.split()).replace("|", "/")[:160]
    gain = "not timed"
    if row.cpu:
        interval = row.times_as_fast
        gain = "{:.4g} ({:.4g} to {:.4g})".format(*interval) if interval else "nothing helped"
    return (
        *(row.model.partition(":")[2], row.dtype, failed or row.rewrites or "none fits"),
        *(pair("outside"), row.outside or MISSING, pair("delegates")),
        *(gain, pair("deviation") + (" **wrong**" if row.wrong else "")),
    )


HEADER = (
    *("model", "dtype", "rewrites (calls)", "operators outside", "still outside", "delegate calls"),
    *("times as fast", "difference from PyTorch"),
)


def markdown(rows: Sequence[Row]) -> str:
    table = [HEADER, tuple("---" for _ in HEADER), *map(cells, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in table)


def read_rows(path: Path, *, structure: bool) -> list[Row]:
    """The rows that need not be made again."""
    if not path.is_file():
        return []
    read = (Row(**each) for each in json.loads(path.read_text()))
    rows = [row for row in read if not row.failed and bool(row.cpu) is not structure]
    return [
        replace(
            row,
            before=Side(**row.before) if row.before else None,
            after=Side(**row.after) if row.after else None,
            times_as_fast=tuple(row.times_as_fast) if row.times_as_fast else None,
        )
        for row in rows
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="FILE.py:FACTORY", help="FILE.py:* for all its MODELS")
    parser.add_argument("--dtypes", help="number formats of all models, separated by commas")
    parser.add_argument("--structure", action="store_true", help="only export, and time nothing")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of measuring for each")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for each model and dtype")
    parser.add_argument("--out", type=Path, default=Path("out_optimize"))
    options = parser.parse_args()
    if not options.structure and not is_arm(platform.machine()):
        parser.error(f"this CPU ({platform.machine()}) is not an Arm CPU: give --structure")
    models = [each for given in options.models or [MODELS] for each in each_of(given)]
    models.sort(key=lambda model: model.rpartition(":")[2] not in PROMISED)
    dtypes = options.dtypes.split(",") if options.dtypes else ("fp32", "fp16", "int8")
    record = options.out / "optimize.json"
    done = read_rows(record, structure=options.structure)
    known = {(row.model, row.dtype) for row in done}
    asked = [
        Asked(model, dtype, home.resolve(), options.structure, options.budget)
        for dtype in dtypes
        for model in models
        if (short(model), dtype) not in known
        and (options.dtypes or dtype != "int8" or model.rpartition(":")[2] in IN_INT8)
        for home in [options.out / f"{short(model).replace(':', '_')}_{dtype}"]
    ]
    for row in each_apart(worked, asked, options.limit, Asked.failed):
        done.append(row)
        print(" ".join((*cells(row), f"({row.seconds} s)")), flush=True)
        files.make_folder(options.out)
        files.write_text(record, json.dumps([asdict(each) for each in done], indent=2) + "\n")
        files.write_text(options.out / "optimize.md", markdown(done))
    promises = list(kept_promises(done))
    print(f"\n{markdown(done)}")
    for kept, promise in promises:
        print("yes" if kept else "NO ", promise)
    return 0 if all(kept for kept, _ in promises) else 1


if __name__ == "__main__":
    sys.exit(main())
