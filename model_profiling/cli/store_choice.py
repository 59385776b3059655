"""The options of `compare` that are about a store: which one, and whether the judged run is kept in it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from model_profiling.analysis.structure import Aspect
from model_profiling.cli.store import store_option
from model_profiling.errors import ProfilingError
from model_profiling.report.comparison import Comparison
from model_profiling.store.opened import Store
from model_profiling.workflow.baselines import (
    LAST_GOOD,
    Kept,
    baseline_word,
    compare_with_baseline,
    keep_verdict,
)


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """What the user said about the store."""

    address: str | None
    device: str | None
    add: bool
    first_is_good: bool

    @property
    def given(self) -> str:
        """The first option of them that was given; empty where none was."""
        options = {
            "--store": self.address,
            "--device": self.device,
            "--add": self.add,
            "--first-is-good": self.first_is_good,
        }
        return next((option for option, value in options.items() if value), "")

    def compare(
        self,
        run_dir: Path,
        against: str,
        limit: float | None,
        fail_on: tuple[Aspect, ...],
        *,
        across_machines: bool,
    ) -> Comparison:
        word = baseline_word(against)
        if self.add and limit is None and not fail_on:
            raise click.UsageError("--add keeps a verdict: give a --fail-on-... gate")
        if self.first_is_good and not self.add:
            raise click.UsageError("--first-is-good without --add would pass for ever: nothing is kept")
        if self.first_is_good and word != LAST_GOOD:
            raise click.UsageError(f"--first-is-good is about store:{LAST_GOOD}")
        return compare_with_baseline(
            run_dir,
            word,
            store=Store.open(self.address, make=self.first_is_good),
            limit=limit,
            across_machines=across_machines,
            fail_on=fail_on,
            device=self.device,
            first_is_good=self.first_is_good,
        )

    def keep(self, run_dir: Path, comparison: Comparison) -> tuple[Kept | None, ProfilingError | None]:
        """The kept run, or why it could not be kept: the verdict is told before that."""
        if not self.add:
            return None, None
        try:
            return keep_verdict(Store.open(self.address), run_dir, comparison, device=self.device), None
        except ProfilingError as problem:
            return None, problem


def store_options(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """Options passed on together as `kept_in`."""

    @functools.wraps(function)
    def call(
        store: str | None, device: str | None, add: bool, first_is_good: bool, **given: object
    ) -> int | None:
        return function(kept_in=StoreChoice(store, device, add, first_is_good), **given)

    options = (
        store_option,
        click.option("--device", metavar="NAME", help="With --against: what the store calls this machine."),
        click.option("--add", is_flag=True, help="With --against: keep the run, tagged good or bad."),
        click.option(
            "--first-is-good",
            is_flag=True,
            help="With --add: pass where the store has no run of this model on this device yet.",
        ),
    )
    for option in reversed(options):
        call = option(call)
    return call
