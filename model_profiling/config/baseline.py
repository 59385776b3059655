"""Fits a config to a machine: merges experiments that its CPU cannot tell apart.

Measuring the same code twice and calling it SME2 on and off would make noise look like an answer, so without
SME2 such experiments are measured once, as a baseline.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
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


def on_cpu(config: ProfileConfig, features: Collection[str]) -> OnCpu:
    """Fit `config` to a CPU with `features`. Not merged: experiments with the user's own runners, which have
    no switch, and an experiment that is asked for twice, because there noise is the question."""
    if "sme2" in features:
        return OnCpu(config)
    groups: list[list[Experiment]] = []  # experiments that are the same on this CPU
    for experiment in config.experiments:
        same = next((group for group in groups if _may_join(group, experiment, features)), None)
        if same is None:
            groups.append([experiment])
        else:
            same.append(experiment)
    names: dict[str, str] = {}
    experiments, stands_for = [], []
    for group in groups:
        name = _new_name(group[0], taken={*names.values(), *(group[0].name for group in groups)})
        old = tuple(member.name for member in group)
        names |= dict.fromkeys(old, name)
        experiments.append(_measured(group, name))
        if old != (name,):
            stands_for.append(StandsFor(name, old))
    pairs = tuple(_pairs(config.analysis.compare_pairs, names))
    analysis = config.analysis.model_copy(update={"compare_pairs": pairs})
    update = {"experiments": tuple(experiments), "analysis": analysis}
    return OnCpu(config.model_copy(update=update), tuple(stands_for))


def once_each(config: ProfileConfig) -> ProfileConfig:
    """Run everything once: where times are not latencies, all runs give the same kernels and outputs."""
    once = {"runs": 1, "warmup": 0}
    experiments = tuple(experiment.model_copy(update=once) for experiment in config.experiments)
    return config.model_copy(update={"experiments": experiments})


def asks_to_repeat(config: ProfileConfig) -> bool:
    """Whether the config explicitly asks for more than one run of an experiment."""
    return any(
        (experiment.runs > 1 and "runs" in experiment.model_fields_set)
        or (experiment.warmup > 0 and "warmup" in experiment.model_fields_set)
        for experiment in config.experiments
    )


def _may_join(group: list[Experiment], experiment: Experiment, features: Collection[str]) -> bool:
    first = group[0]
    settings = ("runner_path", "mode", "cpu_affinity", "extra_args")
    return (
        experiment.runner is None
        and all(getattr(first, name) == getattr(experiment, name) for name in settings)
        and _effect(first, features) == _effect(experiment, features)
        and all(member.switched_off != experiment.switched_off for member in group)
    )


def _effect(experiment: Experiment, features: Collection[str]) -> set[str]:
    """The features of this CPU that the experiment switches off."""
    return {"sme2" if name == SME2_ONLY else name for name in experiment.switched_off} & set(features)


def _new_name(first: Experiment, taken: Collection[str]) -> str:
    name = first.name if first.runner is not None else without_switch(first.name, "baseline")
    number, free = 2, name
    while free != first.name and free in taken:
        number, free = number + 1, f"{name}_{number}"
    return free


def _measured(group: list[Experiment], name: str) -> Experiment:
    first = group[0]
    if first.runner is not None:
        return first
    counts = dict.fromkeys(count for member in group for count in member.threads)
    most = {field: max(getattr(member, field) for member in group) for field in ("runs", "warmup")}
    return first.model_copy(update={"name": name, "sme2": None, "threads": tuple(counts), **most})


def _pairs(pairs: Iterable[ComparePair], names: dict[str, str]) -> Iterable[ComparePair]:
    """The pairs that still have two different sides."""
    for pair in pairs:
        before, after = (
            Side(experiment=names[side.experiment], threads=side.threads)
            for side in (pair.baseline, pair.candidate)
        )
        if before != after:
            yield pair.model_copy(update={"baseline": before, "candidate": after})
