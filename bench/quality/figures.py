"""How often each method is wrong and how often it finds what is there: shares of many trials of a pool."""

from __future__ import annotations

import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from model_profiling.core.errors import InputError
from model_profiling.statistics.lockstep import compare_launches
from quality.methods import ADAPTIVE, METHODS, Method
from quality.neighbours import cores
from quality.pools import CHECKED, CONDITIONS, Campaign, Launch, Pool
from quality.programs import EFFECTS, Pair

THRESHOLD = 0.003
"""The least difference that is claimed: what the issue of a 1% change asks for."""
FALSE_ALLOWED = 0.05
NOISY = 0.20
"""From this spread of processes' medians on a machine counts as noisy."""
REFUSED = 0.95
"""From this share of trials on a condition counts as refused."""
NOISY_WANTED = {0.01: 0.80, 0.02: 0.95, 0.03: 0.95}
QUIET_WANTED = {0.01: 0.95}


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one method under one condition. `claimed` is the share of trials that said "slower", by how much
    more work there was; without any it is the share that said anything. `wrong_way` said "faster"."""

    seconds: float
    claimed: dict[float, float]
    false_without_threshold: float
    wrong_way: float
    refused: float


def judge(pool: Pool, method: Method, trials: int, seed: str) -> Figures:
    draw = random.Random(seed)
    answers = {work: [method(pool, pair, draw) for _ in range(trials)] for work, pair in EFFECTS.items()}

    def share(work: float, *wanted: int, threshold: float = THRESHOLD) -> float:
        return float(np.mean([answer.claims(threshold) in wanted for answer in answers[work]]))

    claimed = {work: share(work, -1) if work else share(work, -1, 1) for work in EFFECTS}
    wrong_way = float(np.mean([share(work, 1) for work in EFFECTS if work]))
    seconds = float(np.mean([answer.seconds for each in answers.values() for answer in each]))
    refused = float(np.mean([answer.refused for each in answers.values() for answer in each]))
    return Figures(seconds, claimed, share(0.0, -1, 1, threshold=0.0), wrong_way, refused)


def judge_all(campaign: Campaign, trials: int, seed: int) -> dict[str, dict[str, Figures]]:
    """By condition and method; as many conditions at a time as there are cores."""
    names = list(campaign.pools)
    with ProcessPoolExecutor(cores()) as judges:
        asked = [judges.submit(_judge_pool, campaign.pools[name], trials, f"{seed} {name}") for name in names]
        return {name: one.result() for name, one in zip(names, asked, strict=True)}


def _judge_pool(pool: Pool, trials: int, seed: str) -> dict[str, Figures]:
    return {title: judge(pool, method, trials, seed) for title, method in METHODS.items()}


def spread(pool: Pool) -> float:
    """Of the medians of processes of one program, as a share of their mean."""
    medians = [np.median(one["100"].iterations_ns) for one in pool.rounds]
    return float(np.std(medians) / np.mean(medians))


def undisturbed(pool: Pool, pair: Pair) -> float:
    """How much longer the candidate's fastest 1% take: what is really there, as far as a machine can say."""
    fastest = [
        np.percentile(np.concatenate([np.ravel(one.turns_ns[name]) for one in pool.launches]), 1)
        for name in pair
    ]
    return float(fastest[1] / fastest[0] - 1)


@dataclass(frozen=True, slots=True)
class Seen:
    """What launches say of a pair: how much longer the candidate takes, between which bounds, and how far a
    launch typically lies from the middle."""

    more: float
    low: float
    high: float
    apart: float


def seen(launches: tuple[Launch, ...], pair: Pair = CHECKED) -> Seen:
    sides = [[launch.turns_ns[name] for launch in launches] for name in pair]
    found = compare_launches(sides[0], sides[1])
    if found.ratio is None or found.low is None or found.high is None:
        raise InputError(f"{len(launches)} launches say too little: {found.reason}", "measure for longer")
    alone = [compare_launches([ours], [theirs]).ratio or np.nan for ours, theirs in zip(*sides, strict=True)]
    apart = 1.4826 * float(np.median(np.abs(np.log(alone) - np.log(found.ratio))))
    return Seen(1 / found.ratio - 1, 1 / found.high - 1, 1 / found.low - 1, apart)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Whether what was promised of a condition holds; None where nothing was."""

    condition: str
    wanted: str
    holds: bool | None


def outcomes(campaign: Campaign, figures: dict[str, dict[str, Figures]]) -> list[Outcome]:
    """The promises: on a noisy machine 2% and 3% nearly always and 1% mostly, on a quiet one 1% nearly
    always, and hardly ever something that is not there; or a refusal within two launches."""
    found = []
    for name, pool in campaign.pools.items():
        method = figures[name][ADAPTIVE]
        claimed = method.claimed
        if method.refused >= REFUSED:
            why = f"refused after {method.seconds:.1f} s in {method.refused:.0%} of trials"
            found.append(Outcome(name, why, claimed[0.0] <= FALSE_ALLOWED))
            continue
        if spread(pool) >= NOISY:
            wanted = NOISY_WANTED
        elif not CONDITIONS[name].neighbours.count:
            wanted = QUIET_WANTED
        else:
            why = f"nothing is promised: neighbours, but processes spread by {spread(pool):.0%} only"
            found.append(Outcome(name, why, None))
            continue
        words = ", ".join(f"{share:.0%} of {work:.0%}" for work, share in wanted.items())
        holds = claimed[0.0] <= FALSE_ALLOWED and all(
            claimed[work] >= share for work, share in wanted.items()
        )
        found.append(Outcome(name, f"at most {FALSE_ALLOWED:.0%} false, at least {words} found", holds))
    return found
