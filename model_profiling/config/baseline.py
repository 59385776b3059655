"""Fits a config to a machine: merges experiments that its CPU cannot tell apart.

Measuring the same code twice and calling it SME2 on and off would make noise look like an answer, so without
SME2 such experiments are measured once, as a baseline.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from model_profiling.config.series import StandsFor, without_switch
from model_profiling.config.settings import ComparePair, Experiment, ProfileConfig, Side
from model_profiling.runner.features import SME2_ONLY


@dataclass(frozen=True, slots=True)
class OnCpu:
    """A config as one CPU can run it, and which experiments stand for others."""

    config: ProfileConfig
    stands_for: tuple[StandsFor, ...] = ()

    def renamed(self, names: Iterable[str]) -> frozenset[str]:
        """The names here of experiments of the original config."""
        now = {old: merged.experiment for merged in self.stands_for for old in merged.names}
        return frozenset(now.get(name, name) for name in names)


def fit_to_machine(config: ProfileConfig, features: Collection[str], latencies: bool) -> OnCpu:
    """Adapt `config` to the machine: measure once what a CPU with `features` cannot tell apart, and repeat
    nothing if times are not latencies. Not merged: experiments with the user's own runners, which have no
    switch, and an experiment that is asked for twice, because there noise is the question."""
    if not latencies:
        once = {"runs": 1, "warmup": 0}  # all runs give the same kernels and outputs
        experiments = tuple(experiment.model_copy(update=once) for experiment in config.experiments)
        config = config.model_copy(update={"experiments": experiments})
    if "sme2" in features:
        return OnCpu(config)
    groups: dict[object, list[Experiment]] = {}  # experiments that are the same on this CPU
    for experiment in config.experiments:
        off = {"sme2" if name == SME2_ONLY else name for name in experiment.switched_off} & set(features)
        rest = experiment.model_dump_json(exclude={"name", "sme2", "disable", "threads"})
        same = groups.get((rest, *sorted(off)), [])
        twice = any(member.switched_off == experiment.switched_off for member in same)
        own = experiment.runner is not None or twice
        groups.setdefault(experiment.name if own else (rest, *sorted(off)), []).append(experiment)
    names: dict[str, str] = {}
    merged, stands_for = [], []
    for members in groups.values():
        first, name = members[0], members[0].name
        if first.runner is None:
            name = _free_name(first.name, {*names.values(), *(group[0].name for group in groups.values())})
            counts = dict.fromkeys(count for member in members for count in member.threads)
            first = first.model_copy(update={"name": name, "sme2": None, "threads": tuple(counts)})
        merged.append(first)
        old = tuple(member.name for member in members)
        names |= dict.fromkeys(old, name)
        if old != (name,):
            stands_for.append(StandsFor(name, old))
    pairs = tuple(_pairs(config.analysis.compare_pairs, names))
    analysis = config.analysis.model_copy(update={"compare_pairs": pairs})
    update = {"experiments": tuple(merged), "analysis": analysis}
    return OnCpu(config.model_copy(update=update), tuple(stands_for))


def _free_name(first: str, taken: Collection[str]) -> str:
    name = free = without_switch(first, "baseline")
    number = 2
    while free != first and free in taken:
        number, free = number + 1, f"{name}_{number}"
    return free


def _pairs(pairs: Iterable[ComparePair], names: dict[str, str]) -> Iterator[ComparePair]:
    """The pairs that still have two different sides."""
    for pair in pairs:
        before, after = (
            Side(experiment=names[side.experiment], threads=side.threads)
            for side in (pair.baseline, pair.candidate)
        )
        if before != after:
            yield pair.model_copy(update={"baseline": before, "candidate": after})
