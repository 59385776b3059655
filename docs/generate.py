"""Writes what pages say that follows from the code or from `steps.toml`: the parts between
`<!-- generated: NAME -->` or `<!-- step: NAME -->` and `<!-- end -->`, all agent skills, all agentic kits.

`make docs` runs it; `.ci/test_documents.py` compares what is committed with what it writes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import click  # noqa: E402
from pydantic import TypeAdapter  # noqa: E402

from model_profiling import facts  # noqa: E402
from model_profiling.cli.main import GROUPS, program  # noqa: E402
from model_profiling.config import settings  # noqa: E402
from model_profiling.runner.machine import TargetChoice  # noqa: E402
from model_profiling.store.tables import TABLES, VIEWS, StoreTable  # noqa: E402

SKILLS, KITS = "agent_skill_ml_profiling", "agentic-kits"
_REGION = re.compile(r"(<!-- (generated|step): (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _items(rows: Iterable[tuple[str, str]]) -> str:
    return "".join(f"- {name}: {' '.join(text.split())}\n" for name, text in rows)


def _plain(text: str) -> str:
    return text.replace("<", "&lt;")


# Commands, from click.


def _each_command() -> Iterator[tuple[str, str, click.Command]]:
    """The group's title, the words to type, and the command."""
    whole = program()
    for title, names in GROUPS.items():
        for name in names:
            command = whole.get_command(click.Context(whole), name)
            assert command is not None
            if isinstance(command, click.Group):
                yield from ((title, f"{name} {sub}", each) for sub, each in command.commands.items())
            else:
                yield title, name, command


def commands() -> str:
    parts: list[str] = []
    for title, words, command in _each_command():
        if f"## {title}\n" not in "".join(parts):
            parts.append(f"\n## {title}\n\n| command | does |\n|---|---|\n")
        summary = " ".join((command.help or "").split("\n\n")[0].split())
        arguments = [param.make_metavar(click.Context(command)) for param in _arguments(command)]
        typed = " ".join(("sme2prof", words, *arguments)).replace("|", "\\|")
        parts.append(f"| `{typed}` | {summary} |\n")
    return "".join(parts).lstrip("\n")


def _arguments(command: click.Command) -> list[click.Argument]:
    return [param for param in command.params if isinstance(param, click.Argument)]


# Configs, from the settings' own descriptions.


def _settings(model: Any) -> str:
    schema = TypeAdapter(model).json_schema()

    def lines() -> Iterator[tuple[str, str]]:
        for name, setting in schema["properties"].items():
            default = setting.get("default")
            known = "required" if name in schema.get("required", ()) else json.dumps(default)
            in_words = default in (None, "", [], {}) or isinstance(default, dict)
            note = "" if in_words and known != "required" else f" ({known})"
            yield f"`{name}`{note}", _plain(setting.get("description", ""))

    return _items(lines())


def config() -> str:
    sections: Mapping[str, Any] = {
        "At the top": settings.ProfileConfig,
        "In each of `experiments`": settings.Experiment,
        "In `target`": TargetChoice,
        "In `schedule`": settings.Schedule,
        "In `inputs`": settings.Inputs,
        "In `analysis`": settings.AnalysisSettings,
        "In each of `analysis.compare_pairs`": settings.ComparePair,
        "In `baseline` and `candidate`, if they are no name": settings.Side,
    }
    features = ", ".join(f"`{name}`" for name in get_args(settings.Feature))
    return "\n".join(f"{title}:\n\n{_settings(model)}" for title, model in sections.items()) + (
        f"\n`disable` takes {features}.\n"
    )


# Facts, of reports and stores.


def _columns(columns: Iterable[facts.Column]) -> str:
    return _items((f"`{column.name}`", _plain(column.meaning)) for column in columns)


def report() -> str:
    lists: Mapping[str, Sequence[facts.Column]] = {
        "An operator": facts.OPERATOR_FACTS,
        "An experiment": facts.EXPERIMENT_FACTS,
        "A category": facts.CATEGORY_FACTS,
        "A kernel": facts.KERNEL_FACTS,
        "A comparison": facts.SPEEDUP_FACTS,
        "A category of a comparison": facts.CATEGORY_CHANGE_FACTS,
        "An operator of a comparison": facts.OPERATOR_CHANGE_FACTS,
    }
    seen: set[str] = set()
    parts = []
    for title, columns in lists.items():
        new = [column for column in columns if f"{column.name}{column.meaning}" not in seen]
        seen |= {f"{column.name}{column.meaning}" for column in columns}
        parts.append(f"### {title}\n\n{_columns(new)}")
    return "\n".join(parts)


def store() -> str:
    tables, views = _rows(TABLES), _rows(VIEWS)
    return f"| table | a row for |\n| --- | --- |\n{tables}\n| view | a row for |\n| --- | --- |\n{views}"


def _rows(tables: Mapping[str, StoreTable]) -> str:
    return "".join(
        f"| `{each.name}` | {each.meaning.removeprefix('a row for ')} |\n" for each in tables.values()
    )


GENERATED: Mapping[str, Callable[[], str]] = {
    made.__name__: made for made in (commands, config, report, store)
}


# The steps of the workflow, and what is made of them.

Step = Mapping[str, Any]
WORKFLOW: Mapping[str, Any] = tomllib.loads((ROOT / "docs/steps.toml").read_text(encoding="utf-8"))
STEPS: Mapping[str, Step] = WORKFLOW["steps"]


def _fence(language: str, text: str, mark: str = "") -> str:
    above = f"<!-- {mark} -->\n" if mark else ""
    return f"{above}```{language}\n{text.strip()}\n```\n"


def _shown(step: Step, *, facts: bool) -> str:
    """What it proves, its command and what that prints. For an assistant, `facts` go to a file, and a check
    is in place of the output."""
    to_file = f" --json > {step['json']}" if facts and "json" in step else ""
    not_run = f"not run: {step['not_run']}" if "not_run" in step else ""
    text = f"{step['proves']}\n\n" + _fence("bash", step["run"].strip() + to_file, not_run)
    if "output" in step and not (facts and "check" in step):
        machine = f"output: {step['machine']}" if "machine" in step else ""
        text += ("\n" if machine else "") + _fence("text", step["output"], machine)
    return text


def _failures(steps: Iterable[Step]) -> str:
    rows = (f"| {' | '.join(row)} |\n" for step in steps for row in step.get("fails", ()))
    return "| symptom | cause | fix |\n|---|---|---|\n" + "".join(rows)


def _criteria(steps: Iterable[Step]) -> str:
    return "".join(f"- [ ] {step['done']}\n" for step in steps if "done" in step)


def skill(made: Step) -> str:
    steps = [STEPS[name] for name in made["steps"]]
    parts = [
        f"---\nname: {made['name']}\ndescription: {made['description']}\n---\n\n# {made['title']}\n",
        f"{made['intro']}\n",
        f"## Prerequisites\n\n{made['needs']}\n",
    ]
    for step in steps:
        title = step["title"]
        if step.get("clone"):
            title = f"In a clone: {title[0].lower()}{title[1:]}"
        parts.append(f"## {title}\n\n{_shown(step, facts=True)}")
        if "check" in step:
            parts.append(f"Check:\n\n{_fence('bash', step['check'])}")
    parts.append(f"## Decide\n\n{made['decide'].strip()}\n")
    parts.append(f"## Expected\n\n{made['expected']}\n")
    parts.append(f"## Failures\n\n{_failures(steps)}")
    parts.append(f"## Checklist\n\n{_criteria(steps)}\nNext skill: {made['next']}.\n")
    return "\n".join(parts)


def kit(made: Step) -> str:
    steps = [STEPS[name] for name in made["steps"]]
    last = [STEPS[name] for name in made.get("last", ())]
    parts = [f"# {made['title']}\n", f"**Objective:** {made['objective']}\n\n**Needs:** {made['needs']}\n"]
    parts += [_step_of_kit(number, step) for number, step in enumerate(steps, 1)]
    if "failures_of" in made:
        rows = _failures(STEPS[name] for name in made["failures_of"])
        parts.append(f"## Step {len(steps) + 1}: Find the line\n\n{rows}")
    parts += [_step_of_kit(number, step) for number, step in enumerate(last, len(steps) + 2)]
    parts += [f"{made['after'].strip()}\n"] if "after" in made else []
    own = "".join(f"- [ ] {criterion}\n" for criterion in made.get("criteria", ()))
    parts.append(f"## Success criteria\n\n{own or _criteria(steps)}\nNext: {made['next']}.\n")
    return "\n".join(parts)


def _step_of_kit(number: int, step: Step) -> str:
    text = f"## Step {number}: {step['title'][0].upper()}{step['title'][1:]}\n\n{_shown(step, facts=True)}"
    if "not_run" in step:
        return text
    check = f"\n\n{_fence('bash', step['check'])}" if "check" in step else " exit 0 of the command.\n"
    text += f"\n**Validation:**{check}"
    fails = "".join(f"- {symptom} ({cause}): {fix}\n" for symptom, cause, fix in step.get("fails", ()))
    return text + (f"\n**If it fails:**\n\n{fails}" if fails else "")


# Files.


def filled_in(text: str) -> str:
    """A page with its generated parts as they must be."""

    def made(kind: str, name: str) -> str:
        return GENERATED[name]() if kind == "generated" else _shown(STEPS[name], facts=False)

    return _REGION.sub(lambda region: f"{region[1]}{made(region[2], region[3])}{region[4]}", text)


def files() -> dict[Path, str]:
    """Every file that is made or has made parts, with its text."""
    pages = [*(ROOT / "docs").glob("*/*.md"), ROOT / "README.md"]
    texts = {page: page.read_text(encoding="utf-8") for page in pages}
    filled = {page: filled_in(text) for page, text in texts.items() if _REGION.search(text)}
    skills = {ROOT / SKILLS / f"{name}.md": skill(made) for name, made in WORKFLOW["skills"].items()}
    kits = {ROOT / KITS / f"{name}.md": kit(made) for name, made in WORKFLOW["kits"].items()}
    return {**filled, **skills, **kits}


if __name__ == "__main__":
    for page, text in files().items():
        page.write_text(text, encoding="utf-8")
