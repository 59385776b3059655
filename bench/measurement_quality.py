"""How often a way to compare two programs is wrong, and how often it sees a real 1, 2, 3 or 5%.

Programs are stacks of 100, 101, 103 and 105 equal layers. On a machine that is quiet, has one or two busy
neighbours (each keeps every core busy), a load that comes and goes, and with two threads, the kit measures
launches whose programs take turns and rounds of whole processes. Trials are drawn from these pools for:

  naive                all of A, then all of B: ratio of medians, and with a rank test on the inferences
  hyperfine            whole commands, all of A, then all of B: mean and deviation, and with Welch's t-test
  google-benchmark     both loaded once, repetitions in random order, U test on repetitions
  the kit's rounds     a process of each in random order, compared round by round
  the kit's lockstep   six launches, twelve, and until the interval is within 0.5% or 22.5 s are spent, which
                       is what `profile` leaves of its 30 s for latencies

The time that twelve launches of two programs take is what the others get too, but google-benchmark, which
gets one launch. A difference below 0.3% is not claimed. What is printed is Markdown; the last table says
whether the promises hold, and so does the exit code.

  python bench/measurement_quality.py --keep pool.json         38 minutes of measuring, a few of judging
  python bench/measurement_quality.py --from pool.json         judges it again
      --into bench/figures/measuring.md --picture bench/figures/power.svg and fills the page
  python bench/measurement_quality.py --quick                  eight minutes, to try it
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from quality import page
from quality.figures import judge_all, outcomes
from quality.neighbours import leave
from quality.picture import draw
from quality.pools import CONDITIONS, Campaign, keep, measure, read
from quality.programs import LAYERS, exported

from model_profiling.core.errors import ProfilingError
from model_profiling.targets.host import HostTarget

MINUTES = 38.0
QUICK_MINUTES = 8.0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--conditions", nargs="+", choices=CONDITIONS, default=list(CONDITIONS))
    parser.add_argument(
        "--minutes", type=float, help=f"of measuring, for all conditions together (default: {MINUTES:g})"
    )
    parser.add_argument("--trials", type=int, default=400, help="of each method, condition and difference")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_MINUTES:g} minutes and 100 trials, to try it"
    )
    parser.add_argument("--keep", type=Path, help="write the measurements here, after every condition")
    parser.add_argument("--from", dest="sources", type=Path, nargs="+", help="judge what was kept earlier")
    parser.add_argument("--programs", type=Path, help="make the programs here, and use those that are there")
    parser.add_argument("--into", type=Path, help="put tables and picture into this page, between its marks")
    parser.add_argument("--picture", type=Path, help="draw the power curves into this SVG file")
    asked = parser.parse_args()
    if asked.trials < 1:
        parser.error("--trials: one is the least")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    try:
        campaign = read(asked.sources) if asked.sources else measured(asked)
        trials = min(asked.trials, 100) if asked.quick else asked.trials
        figures = judge_all(campaign, trials, asked.seed)
        found = outcomes(campaign, figures)
        print(page.whole(campaign, figures, found, trials))
        if asked.picture:
            draw(asked.picture, figures)
        if asked.into:
            shown = page.linked(asked.picture, asked.into) if asked.picture else ""
            text = shown + page.short(campaign, figures, found, trials)
            page.put_into(asked.into, text, "bench/measurement_quality.py")
    except ProfilingError as problem:
        sys.exit(f"measurement_quality: {problem}")
    return 1 if any(outcome.holds is False for outcome in found) else 0


def measured(asked: argparse.Namespace) -> Campaign:
    minutes = asked.minutes or (QUICK_MINUTES if asked.quick else MINUTES)
    whole = sum(condition.weight for condition in CONDITIONS.values())
    campaign = Campaign(machine=machine(), seed=asked.seed, pools={})
    with tempfile.TemporaryDirectory() as scratch:
        programs = exported(asked.programs or Path(scratch), list(LAYERS))
        for name in asked.conditions:
            condition = CONDITIONS[name]

            def told(what: str, name: str = name) -> None:
                print(f"{name}: {what}", file=sys.stderr, flush=True)

            seconds = 60 * minutes * condition.weight / whole
            campaign.pools[name] = measure(
                condition, programs, seconds=seconds, seed=asked.seed, scratch=Path(scratch), told=told
            )
            if asked.keep:
                keep(asked.keep, campaign)
    return campaign


def machine() -> str:
    facts = HostTarget().facts()
    system = facts.os.partition(", kernel")[0]
    return f"{facts.cpu or facts.machine}, {facts.cores} cores, {system}, {date.today():%d %B %Y}"


if __name__ == "__main__":
    sys.exit(main())
