"""The commands that an assistant may use, as tools: one table, schemas from click's own declarations, and
arguments as words of a command line. Every text that an assistant gives is checked here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import click

from model_profiling.core.errors import InputError
from model_profiling.core.files import as_path, is_utf8

Json = dict[str, Any]
SCRATCH = "\0"
"""Stands for a folder of the job that is removed after it; no text that an assistant gives can contain it."""
_SEPARATORS = re.compile("[,=@:]")
_MOST_PARTS = 64
_MODULE = re.compile(r"(?!(?:android|ssh|store|int4):)[A-Za-z_][\w.]*(?<!\.py):[A-Za-z_]\w*")


@dataclass(frozen=True)
class Tool:
    """A command as a tool. `allowed` are its arguments and options that an assistant may use, `fixed`
    are options that are always given, `note` is what an assistant must know beside the command's help."""

    name: str
    allowed: str = ""
    note: str = ""
    words: str = ""
    """The command, if the tool is not named after it."""
    fixed: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    """The parts of its answer that are shown if none are asked for; all without them."""
    takes_programs: bool = True
    command: click.Command = field(default=click.Command(None), compare=False)

    def of(self, program: click.Command) -> Tool:
        command: click.Command | None = program
        for word in self._words:
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), word)
        assert command is not None
        return replace(self, command=command)

    @property
    def _words(self) -> list[str]:
        return (self.words or self.name.replace("_", " ")).split()

    @cached_property
    def parameters(self) -> dict[str, click.Parameter]:
        """The allowed parameters by what a person types: `fail_on_regression` for `--fail-on-regression`."""
        by_name = {option.opts[0].lstrip("-").replace("-", "_"): option for option in self.command.params}
        return {name: by_name[name] for name in self.allowed.split()}

    def command_line(self, values: Mapping[str, Any], root: Root) -> list[str]:
        """The words for these arguments: checked, and none can be read as another option."""
        options, arguments = list[str](), list[str]()
        for name, value in values.items():
            parameter = self.parameters[name]
            items = value if isinstance(value, list) else [value]
            for text in (item for item in items if isinstance(item, str)):
                root.check(name, text)
                if text.endswith(".pte") and not self.takes_programs:
                    raise InputError(f"{text} is a program", "`compare_programs` measures two programs")
            if isinstance(parameter, click.Argument):
                arguments += map(str, items)
            elif value is True:
                options.append(parameter.opts[0])
            elif value is not False:
                options += [f"{parameter.opts[0]}={item}" for item in items]
        return [*self._words, *self.fixed, *options, "--json", "--", *arguments]


def schema_of(parameter: click.Parameter) -> Json:
    """The JSON schema of an argument or option, as click declares it; the command checks the value itself."""
    kind = parameter.type
    schema: Json = {"type": "string"}
    if getattr(parameter, "is_flag", False):
        schema = {"type": "boolean"}
    elif getattr(parameter, "flag_value", None) == "":
        schema = {"type": ["boolean", "string"]}
    elif isinstance(kind, click.Choice):
        schema = {"type": "string", "enum": list(kind.choices)}
    elif isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
        schema = {"type": "integer" if isinstance(kind, click.types.IntParamType) else "number"}
    if parameter.multiple or parameter.nargs == -1:
        schema = {"type": "array", "items": schema}
    if not isinstance(parameter, click.Option):
        return {**schema, "description": f"{parameter.human_readable_name} in the tool's description."}
    if isinstance(parameter.default, str | int | float):
        schema["default"] = parameter.default
    form = f" [{parameter.metavar}]" if parameter.metavar else ""
    usual = f" Default: {parameter.show_default}." if isinstance(parameter.show_default, str) else ""
    return {**schema, "description": f"{parameter.help}{form}{usual}"}


@dataclass(frozen=True, slots=True)
class Root:
    """The only folder in which an assistant may name something, and the hosts that the user allowed."""

    folder: Path
    ssh_hosts: tuple[str, ...] = ()

    @classmethod
    def at(cls, folder: Path, ssh_hosts: tuple[str, ...] = ()) -> Root:
        if not folder.is_dir():
            raise InputError(f"there is no folder {folder}", "give the folder with your models and runs")
        if folder.resolve().name == "artifacts":
            raise InputError("results are written beside a folder artifacts", "give the folder above it")
        return cls(folder.resolve(), ssh_hosts)

    def check(self, name: str, text: str) -> None:
        """Refuse a text that names something outside the root, as a whole or in part (`FILE.py:function`). A
        word that is not meant as a path is a name inside the root, and passes."""
        if "\0" in text or not is_utf8(text) or text == "-":
            raise InputError(f"{name} is - or contains NUL or broken UTF-8", "give a plain name or text")
        kind, _, device = text.partition(":")
        if kind == "ssh" and device not in self.ssh_hosts:
            allowed = ", ".join(self.ssh_hosts) or "no host"
            raise InputError(f"ssh is allowed to {allowed}", "only the user can allow more: mcp --ssh HOST")
        if kind == "android" and ":" in device:
            raise InputError(f"{device} is an address", "give the serial of a phone that adb lists")
        for part in _parts_of(name, text) if name != "sql" else ():
            if _MODULE.fullmatch(part):
                raise InputError(
                    f"{part} could import any module", "give a file in the root: file.py:function"
                )
            self._check_path(part)

    def _check_path(self, text: str) -> None:
        try:
            place = (self.folder / as_path(text)).resolve()
        except (OSError, RuntimeError) as problem:  # a loop of links
            raise InputError(f"{text} cannot be resolved: {problem}", "give another path") from problem
        if text.startswith("~") or not place.is_relative_to(self.folder):
            raise InputError(f"{text} is outside the root {self.folder}", "give a relative path inside it")


def _parts_of(name: str, text: str) -> set[str]:
    """The text, and every part of it from one separator to any later one."""
    ends = [-1, *(mark.start() for mark in _SEPARATORS.finditer(text)), len(text)]
    if len(ends) > _MOST_PARTS:
        raise InputError(f"{name} has more than {_MOST_PARTS} parts", "give fewer")
    return {text[start + 1 : end] for start, end in combinations(ends, 2)} - {""}


_MEASURING = " target threads budget outdir no_wait"
READING = (
    Tool("doctor", note="Call it first, and when a job fails because something is missing."),
    Tool("models"),
    Tool(
        "runs",
        "place",
        "As a tool it opens nothing: it lists the run directories in a folder, such as `.`.",
        words="view",
        fixed=("--no-browser", f"--out={SCRATCH}/index.html"),
        parts=("runs", "problems"),
    ),
    Tool(
        "analyze",
        "run_dir model etrecord times",
        "As a tool it writes nothing. Start here for any question about a run. `part` shows more: `findings` "
        "(what to change), `series.0.operators` with `sort_by` ms (the longest operators), `sme2_coverage` "
        "(what ran on SME2, and how that is known), `sme2_headroom` (a projection, never a measurement).",
        fixed=(f"--out={SCRATCH}",),
        parts=("model", "times", "answers", "costs", "category_totals_ms", "not_tested", "warnings"),
    ),
    Tool("validate", "run_dir"),
    Tool(
        "compare",
        "a b against store device across_machines times "
        "fail_on_regression fail_on_memory fail_on_load fail_on_change",
        "As a tool it measures nothing: `compare_programs` is for two .pte files.",
        takes_programs=False,
    ),
    Tool("history", "model dtype backend device threads experiment since store"),
    Tool("query", "sql store views rows", "Begin with `views`: it lists tables, views and their columns."),
    Tool("store_list", "store model device tag last"),
    Tool("config_check", "path"),
)
JOBS = (
    Tool("export", "model dtype keep calibrate optimize by_layer backend outdir name seed save_graph"),
    Tool(
        "profile",
        "model dtype keep calibrate optimize method length input quick sample ladder evidence" + _MEASURING,
        "Run nothing else on the machine meanwhile. Then `analyze` the run.",
    ),
    Tool("optimize", "model dtype keep calibrate backend only method length input" + _MEASURING),
    Tool("llm", "model prompt context dtype optimize quick" + _MEASURING),
    Tool("run", "config only analysis_only resume no_wait budget evidence"),
    Tool("compare_programs", "a b method length input" + _MEASURING, words="compare"),
    Tool("report", "run_dirs out title for share zip times"),
    Tool("sweep", "file dry_run outdir store no_store resume"),
)
"""They export, measure or write: they may take long, run one at a time, and are not offered read-only."""
