"""Questions worth a recipe: which tools to call in which order, and what may be claimed from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from model_profiling.errors import InputError
from model_profiling.wording import did_you_mean

_HONEST = (
    "Quote times with their unit and speedups with their interval. Call a projection a projection. Say that "
    "SME2 ran only where kernel evidence proves it, and name what was not tested."
)


@dataclass(frozen=True, slots=True)
class Prompt:
    name: str
    title: str
    description: str
    arguments: Mapping[str, str]
    """Each with its description; all are required."""
    text: str

    def filled(self, given: Mapping[str, str]) -> str:
        missing = [name for name in self.arguments if not given.get(name)]
        if missing:
            raise InputError(f"{self.name} lacks {', '.join(missing)}", "give every argument")
        return f"{self.text.format(**given)} {_HONEST}"


PROMPTS = (
    Prompt(
        "where_does_the_time_go",
        "Where does the time go?",
        "Explain a run: the largest parts, the operators behind them, what to change.",
        {"run": "Run directory relative to the root"},
        "Explain the run {run}. Call `summary`, then `top_operators` with limit 10, then `advice`. Say in a "
        "few sentences where the time goes, which source lines make the longest operators, and what to "
        "change first with the most it could save.",
    ),
    Prompt(
        "what_would_sme2_bring",
        "What does SME2 bring?",
        "Profile a model and say what SME2 changes, or could change.",
        {"model": "A name from `models`, path/file.py:factory or path/program.pte"},
        "Find out what SME2 brings to {model}. Call `doctor`, then `profile` with dtype fp16 (no dtype for "
        "a .pte), then `summary`, `kernel_evidence` and `headroom` of its run. Say what was measured, what "
        "was proven by kernels, what is projected, and what becomes the bottleneck afterwards.",
    ),
    Prompt(
        "what_changed",
        "What changed between two runs?",
        "Compare two runs and explain the difference.",
        {"before": "Run directory before the change", "after": "Run directory after it"},
        "Compare {before} with {after}: call `compare`, and where something is slower `advice` of {after}. "
        "Say whether the change is beyond chance, which categories and operators moved, and what else "
        "differs.",
    ),
)


def prompt_named(name: str) -> Prompt:
    found = {prompt.name: prompt for prompt in PROMPTS}
    if name not in found:
        raise InputError(f"there is no prompt '{name}'", did_you_mean(name, found) or ", ".join(found))
    return found[name]
