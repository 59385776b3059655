"""Configs that nobody wrote: of `sme2prof profile`, and of a sweep's jobs.

Both begin as `sme2prof config new` would make them; what the target's CPU can tell apart of it is found when
it is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from model_profiling.config.new_config import NewConfig, new_config, new_experiments
from model_profiling.config.reading import ProfileConfig, checked_config
from model_profiling.config.settings import Schedule, target_settings
from model_profiling.errors import InputError
from model_profiling.runner.features import Rung, closure
from model_profiling.runner.features import ladder as rungs_of
from model_profiling.targets import Target
from model_profiling.wording import plural

ABOUT_LATENCY = ("runs", "warmup", "mode", "rounds", "precision", "budget_s")
"""What has a meaning only where latencies are measured."""
LADDER = "ladder"
_UP_TO = "upto_"
_EMULATED_TIMEOUT_S = 3600.0


def make_pair_config(target: Target, wanted: NewConfig, root: Path, *, ladder: bool) -> ProfileConfig:
    """The config of one target's run: SME2 on and off, or one experiment per rung of the ladder."""
    wanted = _as_timed(target, wanted)
    raw = _raw_config(target, wanted, root)
    if not target.timings_are_latency:
        raw["schedule"] = {"timeout_s": _EMULATED_TIMEOUT_S, "sample": bool(wanted.sample)}
    if ladder:
        raw |= _target_ladder(target, wanted, root)
    return checked_config(raw, folder=root)


@dataclass(frozen=True, slots=True)
class RungAsked:
    """One rung of a sweep's: `on`, `off`, `ladder`, or a name with what it switches off."""

    name: str
    disable: tuple[str, ...]
    threads: tuple[int, ...]


def make_rung_config(
    target: Target,
    program: Path,
    root: Path,
    rungs: Sequence[RungAsked],
    schedule: Schedule,
    *,
    runs: int,
    warmup: int,
) -> ProfileConfig:
    """The config of one target's run with an experiment for each of `rungs`, each other compared with `on`;
    a ladder stands alone."""
    threads = tuple(dict.fromkeys(count for rung in rungs for count in rung.threads))
    wanted = NewConfig(model=program, kind=target.platform, output_root=root, threads=threads)
    wanted = _as_timed(target, replace(wanted, runs=runs, warmup=warmup))
    raw = _raw_config(target, wanted, root)
    raw["schedule"] = schedule.model_dump(mode="json", exclude_unset=True)
    if not target.timings_are_latency:
        raw["schedule"] = {
            "timeout_s": schedule.timeout_s
            if "timeout_s" in schedule.model_fields_set
            else _EMULATED_TIMEOUT_S,
            "sample": schedule.sample,
        }
    if any(rung.name == LADDER for rung in rungs):
        raw |= _target_ladder(target, wanted, root)
    else:
        raw |= _rung_parts(new_experiments(wanted, root)[0], wanted.kind, rungs)
    return checked_config(raw, folder=root)


def experiment_of_rung(platform: str, rung: str) -> str:
    """What the experiment of a rung is called, and of a ladder how all of its experiments begin."""
    own = {"on": "sme2_on", "off": "sme2_off", LADDER: _UP_TO}
    return f"{platform}_{own.get(rung, rung)}"


def _as_timed(target: Target, wanted: NewConfig) -> NewConfig:
    """`wanted` where nothing is timed: once is enough, and nothing of how to measure holds."""
    if target.timings_are_latency:
        return wanted
    return replace(wanted, runs=1, warmup=0, mode=None, rounds=None, precision=None, budget_s=None)


def _raw_config(target: Target, wanted: NewConfig, root: Path) -> dict[str, object]:
    raw = new_config(wanted, root)
    raw |= {"model": str(wanted.model.resolve()), "output_root": str(root.resolve())}
    raw["target"] = target_settings(target.choice)
    return raw


def _target_ladder(target: Target, wanted: NewConfig, root: Path) -> dict[str, object]:
    target.prepare()
    return _ladder_parts(new_experiments(wanted, root)[0], wanted, rungs_of(target.facts().features))


def _ladder_parts(pattern: dict[str, object], wanted: NewConfig, rungs: Sequence[Rung]) -> dict[str, object]:
    if len(rungs) < 2:
        raise InputError("this CPU has no feature the ladder could take away", "leave --ladder out")
    # Rungs are named by the best feature they still have.
    first = experiment_of_rung(wanted.kind, LADDER)
    rung_names = [f"{first}{rung.left[0] if rung.left else 'neon'}" for rung in rungs]
    experiments = [
        {**pattern, **_switched(name, rung.disable)} for name, rung in zip(rung_names, rungs, strict=True)
    ]
    pairs = [
        {
            "baseline": {"experiment": rung_names[place + 1], "threads": threads},
            "candidate": {"experiment": rung_names[place], "threads": threads},
            "label": f"what {rungs[place].left[0]} buys, {plural(threads, 'thread')}",
        }
        for place in range(len(rungs) - 1)
        for threads in wanted.threads
    ]
    return {"experiments": experiments, "analysis": {"compare_pairs": pairs}}


def _rung_parts(pattern: dict[str, object], kind: str, rungs: Sequence[RungAsked]) -> dict[str, object]:
    """An experiment for each rung, and each other rung against `on` where both have the threads."""
    experiments = [
        {
            **pattern,
            **_switched(experiment_of_rung(kind, rung.name), () if rung.name == "off" else rung.disable),
            **({"sme2": "off"} if rung.name == "off" else {}),
            "threads": list(rung.threads),
        }
        for rung in rungs
    ]
    on = next((rung for rung in rungs if rung.name == "on"), None)
    pairs = [
        {
            "baseline": {"experiment": experiment_of_rung(kind, rung.name), "threads": threads},
            "candidate": {"experiment": experiment_of_rung(kind, on.name), "threads": threads},
            "label": f"{'SME2 on vs off' if rung.name == 'off' else f'everything vs {rung.name}'}, "
            f"{plural(threads, 'thread')}",
        }
        for rung in rungs
        if on is not None and rung is not on
        for threads in on.threads
        if threads in rung.threads
    ]
    return {"experiments": experiments, "analysis": {"compare_pairs": pairs}}


def _switched(name: str, disable: Sequence[str]) -> dict[str, object]:
    off = bool({"sme2", "sme"} & set(closure(disable)))
    return {"name": name, "sme2": "off" if off else "on", "disable": list(disable)}
