"""`sme2prof config new|check|schema`."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_profiling.cli import frame
from model_profiling.config.new_config import (
    KINDS,
    Kind,
    NewConfig,
    NewSweep,
    config_schema,
    sweep_schema,
    write_new_config,
    write_new_sweep,
)
from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.core.formatting import plural

if TYPE_CHECKING:
    from collections.abc import Callable

    from model_profiling.config.sweep import SweepConfig


@frame.command(
    "new",
    example="sme2prof config new --model out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte --output my_run.json",
)
@click.option(
    "--model",
    "models",
    type=frame.PATH,
    multiple=True,
    help="The exported program (.pte). For a sweep: any model; repeatable.",
)
@click.option(
    "--output",
    type=frame.FILE,
    show_default="config.json or sweep.json",
    help="File to write, or its folder.",
)
@click.option("--sweep", is_flag=True, help="Make a sweep file: many models, dtypes and targets.")
@click.option(
    "--platform", "kind", type=click.Choice(KINDS), show_default="as in `profile`", help="Where to measure."
)
@click.option(
    "--output-root",
    type=frame.FOLDER,
    show_default="out_MODEL/runs/VARIANT/PLACE",
    help="Folder for the run.",
)
@frame.case_options()
@click.option("--threads", type=frame.Counts(), show_default="1", help="Thread counts, such as 1,2,4.")
@click.option(
    "--runs",
    type=frame.IntRange(1),
    show_default="10",
    help="Traced turns.",
)
@click.option(
    "--warmup", type=frame.IntRange(0), default=3, show_default=True, help="Untimed inferences at the start."
)
@frame.rounds_option
@frame.budget_option
@click.option(
    "--precision",
    type=frame.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    show_default="0.005",
    help="Stop once every speedup is known to plus or minus this share.",
)
@click.option(
    "--serial", "--device", "device", help="Serial of the Android phone, as `adb devices` lists it."
)
@click.option("--host", help="Arm Linux machine to reach with ssh.")
@click.option("--trace", is_flag=True, help="Add experiments that show which kernels ran.")
@click.option("--runner-on", type=frame.PATH, help="Your own executor_runner with SME2.")
@click.option("--runner-off", type=frame.PATH, help="Your own executor_runner without SME2.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def new(
    *,
    models: tuple[Path, ...],
    output: Path | None,
    sweep: bool,
    kind: Kind | None,
    output_root: Path | None,
    threads: tuple[int, ...] | None,
    runs: int | None,
    trace: bool,
    force: bool,
    **asked: Any,  # fields of NewConfig, and those of ProfileOptions that choose a case; typed by click
) -> None:
    """Write a config that compares SME2 on and off.

    On a terminal it asks for what is missing. `sme2prof run` measures the config; for one model, `sme2prof
    profile` does both without a file.
    """
    frame.warn_of_limits(asked["rounds"], asked["precision"])
    here = kind or _usual_platform(asked)
    case = {name: asked.pop(name) for name in ("method", "lengths", "values")}
    if sweep:
        asked |= {"output_root": output_root, "trace": trace}
        asked |= {"method": case["method"], "length": case["lengths"], "input": case["values"]}
        wanted = _new_sweep(models, here, threads or (1,), runs or 10, asked)
        path = write_new_sweep(wanted, output or Path("sweep.json"), force=force)
        _say_written(path, f"sme2prof sweep {path} --dry-run")
        return
    if models[1:]:
        raise InputError("a config has one model", "give --model once, or make a sweep with --sweep")
    model = models[0] if models else None
    if model is None:
        if not sys.stdin.isatty():
            raise InputError("no model is named", "give --model FILE.pte")
        # If the config goes to standard output, the prompts must not.
        aside = output is not None and files.is_stdout(output)
        ask: Callable[..., Any] = partial(click.prompt, err=aside)
        model = Path(ask("Exported program to measure (.pte, from sme2prof export)"))
        if kind is None:
            here = ask(
                "Where: this machine, a phone (android) or emulated", type=click.Choice(KINDS), default=here
            )
        suggested = NewConfig(model, here, **asked, **_chosen(model, case)).root
        output_root = output_root or Path(ask("Folder for the results", default=str(suggested)))
        threads = threads or ask("Thread counts, such as 1,2,4", type=frame.Counts(), default="1")
        runs = runs or ask("Traced inferences, for operator times", type=frame.IntRange(1), default=10)
        trace = trace or click.confirm("Add untimed experiments that list the kernels?", err=aside)
        output = output or Path(ask("Config file to write", default="config.json"))
    asked |= _chosen(model, case)
    config = NewConfig(model, here, output_root, threads or (1,), runs or 10, trace=trace, **asked)
    path = write_new_config(config, output or Path("config.json"), force=force)
    _say_written(path, f"sme2prof run {path}")


def _chosen(model: Path, asked: dict[str, Any]) -> dict[str, Any]:
    """Method and inputs of the config, if any are asked for and the program can take them."""
    if not any(asked.values()):
        return {}
    from model_profiling.runs.feeding import feed
    from model_profiling.workflow.profile import ProfileOptions, one_case

    case = one_case(model, ProfileOptions(**asked))
    feed(model, case.method, case.inputs)  # refuses what the method cannot take
    return {"method": case.method, "inputs": case.inputs}


def _usual_platform(asked: dict[str, Any]) -> Kind:
    """Where to measure if nobody says: on the named device, or where `sme2prof profile` does."""
    from model_profiling.targets import TargetChoice, open_target

    if asked["host"] or asked["device"]:
        return "linux" if asked["host"] else "android"
    return open_target(TargetChoice()).platform


def _say_written(path: Path, next_command: str) -> None:
    if not files.is_stream(path):
        frame.say(f"wrote {path}\nnext: {next_command}")


def _new_sweep(
    models: tuple[Path, ...], kind: Kind, threads: tuple[int, ...], runs: int, asked: dict[str, Any]
) -> NewSweep:
    # A sweep decides these for each run, or has no such setting.
    for name in ("output_root", "trace", "runner_on", "runner_off", "length", "input"):
        if asked[name]:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} does not work with --sweep", "leave one of them out")
    if not models:
        raise InputError("no model is named", "give --model NAME, FILE.py:FACTORY or FILE.pte")
    schedule = {name: asked[name] for name in ("rounds", "precision", "budget_s")}
    given = {name: value for name, value in schedule.items() if value is not None}
    places = asked["device"], asked["host"], asked["method"]
    return NewSweep(tuple(map(str, models)), kind, threads, runs, asked["warmup"], given, *places)


@frame.command("check", example="sme2prof config check my_run.json", facts=True)
@click.argument("path", metavar="CONFIG.json", type=frame.PATH)
@click.option("--no-files", is_flag=True, help="Do not check that the model and the runners exist.")
def check(path: Path, no_files: bool, as_json: bool) -> int:
    """List everything that is wrong with a config or a sweep. Exits with 1 if anything is."""
    from model_profiling.config.problems import Problem, is_sweep, read_object
    from model_profiling.config.reading import config_warnings, pairs, parse_config
    from model_profiling.config.sweep import parse_sweep

    raw = read_object(path)  # read once: it may be a pipe
    config, sweep, problems = None, None, tuple[Problem, ...]()
    if isinstance(raw, Problem):
        problems = (raw,)
    elif is_sweep(raw):
        sweep, problems = parse_sweep(raw, folder=path.parent, files=not no_files)
    else:
        config, problems = parse_config(raw, folder=path.parent, files=not no_files)
    warned = config_warnings(config) if config and not problems else ()
    if as_json:
        found = [asdict(problem) for problem in problems]
        frame.facts({"schema_version": 1, "ok": not problems, "problems": found, "warnings": list(warned)})
        return 1 if problems else 0
    for problem in problems:
        frame.say(f"{path}: {problem.text}; {problem.fix}")
    for text in warned:
        frame.warn(text)
    if sweep is not None and not problems:
        frame.say(f"{path} is fine{'' if no_files else _counted(sweep)}")
    if config is not None and not problems:
        counts = plural(len(config.experiments), "experiment"), plural(len(pairs(config)), "comparison")
        frame.say(f"{path} is fine: {', '.join(counts)}")
        frame.say(f"model        {config.model}")
        frame.say(f"output_root  {config.output_root}")
    return 1 if problems else 0


def _counted(sweep: SweepConfig) -> str:
    from model_profiling.sweep.cells import all_cells, jobs

    cells = all_cells(sweep)
    left_out = sum(each.state == "left out" for each in cells)
    counted = f": {plural(len(cells) - left_out, 'cell')} in {plural(len(jobs(sweep)), 'run')}"
    return f"{counted}{f', {left_out} left out' if left_out else ''}"


@frame.command("schema", example="sme2prof config schema > config.schema.json")
@click.option("--sweep", is_flag=True, help="Print the schema of sweeps.")
def schema(sweep: bool) -> None:
    """Print the JSON Schema of configs, or of sweeps."""
    frame.facts(sweep_schema() if sweep else config_schema())


config_command = frame.group(
    "config",
    "Make, check or describe a config or a sweep file.",
    [new, check, schema],
    example="sme2prof config check my_run.json",
)
