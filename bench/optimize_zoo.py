"""What does `sme2prof optimize` bring to models nobody here wrote? One row for each, whatever becomes of it.

    pip install transformers
    python bench/optimize_zoo.py [FILE.py:FACTORY ...] [--dtypes fp32,fp16] [--structure]

Each model (by default those of foreign_models.py) goes through `optimize` on this machine. With --structure
it is exported twice, as it is and with what `--optimize` chooses by structure, and nothing is timed: this is
also what a CPU that is not Arm can tell. A row says which rewrites are in, operators outside and delegate
calls before and after, the speedup with its interval, and the difference from PyTorch before and after.
`optimize.json` and `optimize.md` in the folder (--out) hold the table; rows that are there already are not
made again. Exits with 1 if anything failed, outputs differ where they agreed before, or a program is slower.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from zoo_campaign import MISSING, each_of, short

from model_profiling.core.errors import ProfilingError
from model_profiling.core.formatting import counts
from model_profiling.export.exporter import export_model
from model_profiling.export.records import ExportResult, read_export
from model_profiling.statistics.speedup import Verdict
from model_profiling.targets import TargetChoice
from model_profiling.workflow.optimize import optimize_model
from model_profiling.workflow.profile import ProfileOptions

MODELS = f"{Path(__file__).with_name('foreign_models.py')}:*"


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
    rewrites: str = ""
    before: Side | None = None
    after: Side | None = None
    """None if nothing helped."""
    speedup: str = "not timed"
    slower: bool = False
    outside: str = ""
    """The operators that are still outside."""
    failed: str = ""
    seconds: float = 0.0

    @property
    def wrong(self) -> bool:
        return bool(self.before and self.after and self.before.agrees and not self.after.agrees)


def by_structure(row: Row, model: str, home: Path) -> Row:
    before, after = (export_model(model, dtype=row.dtype, outdir=home, optimize=o) for o in (False, True))
    row = replace(row, rewrites=counts(after.rewritten), before=Side.of(before), after=Side.of(after))
    return replace(row, outside=left(after))


def measured(row: Row, model: str, home: Path, budget_s: float) -> Row:
    options = ProfileOptions(target=TargetChoice("host"), dtype=row.dtype, budget_s=budget_s, outdir=home)
    outcome = optimize_model(model, options)
    found, before = outcome.optimization, read_export(outcome.original)
    row = replace(row, before=Side.of(before), outside=left(before))
    if outcome.program is not None:
        after = read_export(outcome.program)
        row = replace(row, rewrites=counts(after.rewritten), after=Side.of(after), outside=left(after))
    if gain := found.speedup:
        interval = f"{gain.ratio:.2f} ({gain.low:.2f} to {gain.high:.2f})" if gain.low else MISSING
        row = replace(row, speedup=interval, slower=gain.verdict is Verdict.SLOWER)
    return row


def left(made: ExportResult) -> str:
    return counts(Counter(each.operator.split(".")[1] for each in made.coverage.undelegated))


def cells(row: Row) -> tuple[str, ...]:
    def pair(name: str) -> str:
        sides = [getattr(side, name) for side in (row.before, row.after) if side]
        words = ("not checked" if each is None else f"{each:.4g}" for each in sides)
        return " → ".join(words) or MISSING

    failed = " ".join(row.failed.split()).replace("|", "/")[:160]
    return (
        *(row.model.partition(":")[2], row.dtype, failed or row.rewrites or "none fits"),
        *(pair("outside"), row.outside or MISSING, pair("delegates")),
        *(row.speedup, pair("deviation") + (" **wrong**" if row.wrong else "")),
    )


HEADER = (
    *("model", "dtype", "rewrites (calls)", "operators outside", "still outside", "delegate calls"),
    *("times as fast", "difference from PyTorch"),
)


def markdown(rows: Sequence[Row]) -> str:
    table = [HEADER, tuple("---" for _ in HEADER), *map(cells, rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in table)


def read_rows(path: Path) -> list[Row]:
    if not path.is_file():
        return []
    rows = [Row(**each) for each in json.loads(path.read_text())]
    sides = [[Side(**side) if side else None for side in (row.before, row.after)] for row in rows]
    return [replace(row, before=b, after=a) for row, (b, a) in zip(rows, sides, strict=True)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="FILE.py:FACTORY", help="FILE.py:* for all its MODELS")
    parser.add_argument("--dtypes", default="fp32,fp16", help="number formats, separated by commas")
    parser.add_argument("--structure", action="store_true", help="only export, and time nothing")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of measuring for each")
    parser.add_argument(
        "--seconds", type=float, default=36_000, help="begin no further model after this time"
    )
    parser.add_argument("--out", type=Path, default=Path("out_optimize"))
    options = parser.parse_args()
    began, record = time.monotonic(), options.out / "optimize.json"
    options.out.mkdir(parents=True, exist_ok=True)
    done = read_rows(record)
    models = [each for given in options.models or [MODELS] for each in each_of(given)]
    for dtype in options.dtypes.split(","):
        for model in models:
            row, started = Row(short(model), dtype), time.process_time()
            late = time.monotonic() - began > options.seconds
            if late or any((each.model, each.dtype) == (row.model, dtype) for each in done):
                continue
            home = (options.out / f"{row.model.replace(':', '_')}_{dtype}").resolve()
            try:
                row = (
                    by_structure(row, model, home)
                    if options.structure
                    else measured(row, model, home, options.budget)
                )
            except ProfilingError as problem:
                row = replace(row, failed=str(problem))
            # A failure of the kit's own is what this looks for.
            except Exception as problem:  # noqa: BLE001
                row = replace(row, failed=f"of the kit itself: {type(problem).__name__}: {problem}")
            done.append(replace(row, seconds=round(time.process_time() - started, 1)))
            print(" ".join((*cells(done[-1]), f"({done[-1].seconds} s)")), flush=True)
            record.write_text(json.dumps([asdict(each) for each in done], indent=2) + "\n")
            (options.out / "optimize.md").write_text(markdown(done))
    print(f"\n{markdown(done)}")
    return 1 if any(row.failed or row.wrong or row.slower for row in done) else 0


if __name__ == "__main__":
    sys.exit(main())
