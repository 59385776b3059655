"""How often the kit's verdict is wrong, how often it sees a real 3%, and what the naive way says of the same.

Each round runs three processes of the kit's runner in random order: a program, the same program again, and
the same program with 33 instead of 32 equal layers, which is 3% more work. Each trial is a block of
consecutive rounds; blocks overlap by half. The naive way is "all of A, then all of B, ratio of medians": A
from one block, B from the block after it.

  python bench/measurement_quality.py                  100 trials of 24 rounds, about ten minutes
  python bench/measurement_quality.py --keep pool.json keeps what was measured
  python bench/measurement_quality.py --from pool.json judges it again
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from model_profiling.export import export_model
from model_profiling.files import write_json
from model_profiling.statistics.speedup import (
    PRACTICAL_THRESHOLD,
    Speedup,
    Verdict,
    compare_rounds,
    precise_enough,
)
from model_profiling.targets import Job, TargetChoice, open_target

FALSE_ALLOWED = 0.05
FOUND_WANTED = 0.80
PRECISION = 0.02
LAYERS = 32

MODELS = """
import torch

class Stack(torch.nn.Module):
    def __init__(self, layers):
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(
            *[torch.nn.Conv2d(24, 24, 3, padding=1) for _ in range(layers)]
        )

    def forward(self, x):
        return self.body(x)

class Model:
    layers = 0

    def get_eager_model(self):
        return Stack(self.layers).eval()

    def get_example_inputs(self):
        return (torch.randn(1, 24, 24, 24),)

class As_it_is(Model):
    layers = LAYERS

class With_more_work(Model):
    layers = LAYERS + 1
"""

Pool = list[dict[str, list[float]]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=24, help="rounds in each trial")
    parser.add_argument("--runs", type=int, default=15, help="timed inferences in each process")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="write the measurements here")
    parser.add_argument("--from", dest="source", type=Path, help="judge measurements kept earlier")
    options = parser.parse_args()
    if options.source:
        pool: Pool = json.loads(options.source.read_text(encoding="utf-8"))["rounds"]
    else:
        # The naive way takes its B from the block after the last.
        rounds = (options.trials + 3) * options.rounds // 2
        with tempfile.TemporaryDirectory() as scratch:
            pool = measured(Path(scratch), rounds, options.runs, options.seed)
    if options.keep:
        write_json(options.keep, {"schema_version": 1, "rounds": pool})
    return judged(pool, options.rounds)


def measured(scratch: Path, rounds: int, runs: int, seed: int) -> Pool:
    programs = exported(scratch)
    target = open_target(TargetChoice("host"))
    target.prepare()
    order = random.Random(seed)
    pool: Pool = []
    began = time.monotonic()
    for number in range(rounds):
        names = list(programs)
        order.shuffle(names)
        taken = {}
        for name in names:
            job = Job(programs[name], warmup=3, runs=runs)
            outcome = target.execute(job, scratch, "process")
            taken[name] = [time_ns / 1e6 for time_ns in outcome.result.iterations_ns]
        pool.append(taken)
        if number % 100 == 99:
            took = time.monotonic() - began
            print(f"{number + 1} of {rounds} rounds, {took:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    return pool


def exported(scratch: Path) -> dict[str, Path]:
    source = scratch / "stack.py"
    source.write_text(MODELS.replace("LAYERS", str(LAYERS)), encoding="utf-8")
    plain = export_model(f"{source}:As_it_is", dtype="fp32", outdir=scratch / "plain").pte
    more = export_model(f"{source}:With_more_work", dtype="fp32", outdir=scratch / "more").pte
    return {"baseline": plain, "same": plain, "slower": more}


def judged(pool: Pool, size: int) -> int:
    starts = range(0, len(pool) - 2 * size + 1, size // 2)
    blocks = [pool[start : start + size] for start in starts]
    after = [pool[start + size : start + 2 * size] for start in starts]
    twins = compare_rounds(series(pool, "baseline"), series(pool, "same"))
    truth = compare_rounds(series(pool, "baseline"), series(pool, "slower"))
    medians = [float(np.median(one)) for one in series(pool, "baseline")]
    print(f"{len(blocks)} trials of {size} rounds; over all {len(pool)} rounds:")
    print(f"  the same program       {twins.reason}")
    print(f"  {LAYERS + 1} layers against {LAYERS}   {truth.reason}")
    spread = np.std(medians) / np.mean(medians)
    print(f"  processes' medians     {np.median(medians):.2f} ms, spread {spread:.0%}")
    print(f"{'':42}{'no difference':>16}{'3% more work':>16}{'called faster':>16}")
    kit_wrong, kit_found = row("the kit", [verdicts(block) for block in blocks])
    early = [stopped(block) for block in blocks]
    used = float(np.mean([len(block) for block in early]))
    row(f"the kit, --precision {PRECISION} ({used:.0f} rounds)", [verdicts(block) for block in early])
    pairs = list(zip(blocks, after, strict=True))
    row("naive: ratio of medians", [naive(*pair, tested=False) for pair in pairs])
    row("naive, tested on iterations", [naive(*pair, tested=True) for pair in pairs])
    good = kit_wrong <= FALSE_ALLOWED and kit_found >= FOUND_WANTED
    print(
        f"{'pass' if good else 'FAIL'}: at most {FALSE_ALLOWED:.0%} false, at least {FOUND_WANTED:.0%} found"
    )
    return 0 if good else 1


def series(rounds: Sequence[dict[str, list[float]]], name: str) -> list[list[float]]:
    return [one[name] for one in rounds]


def verdicts(block: Sequence[dict[str, list[float]]]) -> tuple[Verdict, Verdict]:
    def against(name: str) -> Speedup:
        return compare_rounds(series(block, "baseline"), series(block, name))

    return against("same").verdict, against("slower").verdict


def stopped(block: Sequence[dict[str, list[float]]]) -> Sequence[dict[str, list[float]]]:
    """The block as far as it would have been measured, had its second comparison been watched."""
    for count in range(6, len(block)):
        if precise_enough(series(block[:count], "baseline"), series(block[:count], "slower"), PRECISION):
            return block[:count]
    return block


def naive(
    first: Sequence[dict[str, list[float]]], then: Sequence[dict[str, list[float]]], *, tested: bool
) -> tuple[Verdict, Verdict]:
    def against(name: str) -> Verdict:
        from scipy.stats import mannwhitneyu

        ours = np.concatenate(series(first, "baseline"))
        theirs = np.concatenate(series(then, name))
        ratio = float(np.median(ours) / np.median(theirs))
        certain = not tested or mannwhitneyu(ours, theirs).pvalue < 0.05
        if not certain or max(ratio, 1 / ratio) - 1 < PRACTICAL_THRESHOLD:
            return Verdict.NO_CHANGE
        return Verdict.FASTER if ratio > 1 else Verdict.SLOWER

    return against("same"), against("slower")


def row(title: str, trials: Sequence[tuple[Verdict, Verdict]]) -> tuple[float, float]:
    judged_same = np.mean([same in (Verdict.FASTER, Verdict.SLOWER) for same, _ in trials])
    found = np.mean([slower is Verdict.SLOWER for _, slower in trials])
    reversed_ = np.mean([slower is Verdict.FASTER for _, slower in trials])
    print(f"{title:42}{f'{judged_same:.0%} false':>16}{f'{found:.0%} found':>16}{f'{reversed_:.0%}':>16}")
    return float(judged_same), float(found)


if __name__ == "__main__":
    sys.exit(main())
