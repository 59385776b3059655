"""`sme2prof config new|check|schema`."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

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
from model_profiling.config.settings import ScheduleMode
from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.run.names import default_run_dir


def _threads(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(map(frame.is_count, words)):
        raise click.BadParameter("give counts like 1 or 1,2,4")
    return tuple(int(word) for word in words)


@frame.command(
    "new",
    example="sme2prof config new --model out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte --output my_run.json",
)
@click.option(
    "--model",
    "models",
    type=click.Path(path_type=Path),
    multiple=True,
    help="The exported program (.pte); of a sweep, any model, once or more.",
)
@click.option("--output", type=frame.FILE, help="The config to write, or a folder for it.")
@click.option("--sweep", is_flag=True, help="Make a sweep: many models, dtypes and targets.")
@click.option("--platform", "kind", type=click.Choice(KINDS), help="Where to measure; default: this machine.")
@click.option("--output-root", type=frame.FOLDER, help="The run directory.")
@click.option("--threads", type=_threads, metavar="TEXT", help="Thread counts, such as 1,2,4. Default: 1.")
@click.option("--runs", type=click.IntRange(1), help="Traced turns, or runs per process. Default: 10.")
@click.option("--warmup", type=click.IntRange(0), default=3, show_default=True, help="Untimed inferences.")
@click.option("--mode", type=click.Choice(get_args(ScheduleMode)), help="Take turns, or one by one.")
@click.option("--rounds", type=click.IntRange(1), help="The most launches, or how many rounds.")
@frame.budget_option
@click.option("--precision", type=click.FloatRange(0, 1, min_open=True), help="Stop early when this close.")
@click.option("--device", help="Serial of the Android device.")
@click.option("--host", help="Arm Linux machine to reach with ssh.")
@click.option("--trace", is_flag=True, help="Add kernel-evidence experiments.")
@click.option("--runner-on", type=click.Path(path_type=Path), help="Your executor_runner with SME2.")
@click.option("--runner-off", type=click.Path(path_type=Path), help="Your executor_runner without SME2.")
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
    **asked: Any,  # click has typed them; they are fields of NewConfig
) -> None:
    """Make a config that compares SME2 on and off. Asks for what is missing on a terminal."""
    here: Kind = "mac" if platform.system() == "Darwin" else "linux"
    if sweep:
        _refuse_of_sweeps(output_root=output_root, trace=trace, **asked)
        _new_sweep(models, kind or here, threads or (1,), runs or 10, output, force=force, **asked)
        return
    if models[1:]:
        raise InputError("a config is of one model", "give --model once, or make a sweep with --sweep")
    model = models[0] if models else None
    if model is None:
        if not sys.stdin.isatty():
            raise InputError("no model is named", "give --model FILE.pte")
        # Not into the config, where that goes to standard output.
        aside = output is not None and files.is_stdout(output)
        model = Path(click.prompt("Exported program (.pte)", err=aside))
        kind = kind or click.prompt("Measure on", type=click.Choice(KINDS), default=here, err=aside)
        suggested = default_run_dir(model, kind or here)
        output_root = output_root or Path(click.prompt("Run directory", default=str(suggested), err=aside))
        threads = threads or click.prompt("Thread counts", value_proc=_threads, default="1", err=aside)
        runs = runs or click.prompt("Turns with the tracer on", type=click.IntRange(1), default=10, err=aside)
        trace = trace or click.confirm("Add kernel-evidence experiments?", default=False, err=aside)
        output = output or Path(click.prompt("Write the config to", default="config.json", err=aside))
    wanted = NewConfig(
        model=model,
        kind=kind or here,
        output_root=output_root,
        threads=threads or (1,),
        runs=runs or 10,
        trace=trace,
        **asked,
    )
    path = write_new_config(wanted, output or Path("config.json"), force=force)
    if not files.is_stream(path):
        frame.say(f"wrote {path}")
        frame.say(f"next: sme2prof run {path}")


def _refuse_of_sweeps(**asked: object) -> None:
    """Options that a sweep decides for each of its runs."""
    for name in ("output_root", "trace", "runner_on", "runner_off"):
        if asked[name]:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{option} has no meaning for a sweep", "leave it out, or leave out --sweep")


def _new_sweep(
    models: tuple[Path, ...],
    kind: Kind,
    threads: tuple[int, ...],
    runs: int,
    output: Path | None,
    *,
    force: bool,
    **asked: Any,
) -> None:
    if not models:
        raise InputError("no model is named", "give --model NAME, FILE.py:FACTORY or FILE.pte")
    schedule = {name: asked[name] for name in ("mode", "rounds", "precision", "budget_s")}
    given = {name: value for name, value in schedule.items() if value is not None}
    wanted = NewSweep(
        tuple(map(str, models)), kind, threads, runs, asked["warmup"], given, asked["device"], asked["host"]
    )
    path = write_new_sweep(wanted, output or Path("sweep.json"), force=force)
    if not files.is_stream(path):
        frame.say(f"wrote {path}")
        frame.say(f"next: sme2prof sweep {path} --dry-run")


@frame.command("check", example="sme2prof config check my_run.json", facts=True)
@click.argument("path", metavar="CONFIG.json", type=click.Path(path_type=Path))
@click.option("--no-files", is_flag=True, help="Leave out whether the model and the runners exist.")
def check(path: Path, no_files: bool, as_json: bool) -> int:
    """Say everything that is wrong with a config or a sweep; exits with 1 if anything is."""
    from model_profiling.config.problems import Problem, is_sweep, read_object
    from model_profiling.config.reading import config_warnings, pairs, parse_config
    from model_profiling.core.formatting import plural

    raw = read_object(path)  # once: it may come through a pipe
    problems: tuple[Problem, ...]
    if isinstance(raw, Problem):
        config, problems = None, (raw,)
    elif is_sweep(raw):
        return _check_sweep(path, raw, as_json=as_json, no_files=no_files)
    else:
        config, problems = parse_config(raw, folder=path.parent, files=not no_files)
        config = None if problems else config
    warned = config_warnings(config) if config else ()
    if as_json:
        found = [asdict(problem) for problem in problems]
        frame.facts({"schema_version": 1, "ok": not problems, "problems": found, "warnings": list(warned)})
        return 1 if problems else 0
    for problem in problems:
        frame.say(f"{path}: {problem.text}; {problem.fix}")
    if config is None:
        return 1
    for text in warned:
        frame.warn(text)
    experiments, comparisons = len(config.experiments), len(pairs(config))
    frame.say(f"{path} is fine: {plural(experiments, 'experiment')}, {plural(comparisons, 'comparison')}")
    frame.say(f"model        {config.model}")
    frame.say(f"output_root  {config.output_root}")
    return 0


def _check_sweep(path: Path, raw: dict[str, object], *, as_json: bool, no_files: bool) -> int:
    from model_profiling.config.sweep import parse_sweep
    from model_profiling.core.formatting import plural
    from model_profiling.sweep.cells import all_cells, jobs

    sweep, problems = parse_sweep(raw, folder=path.parent, files=not no_files)
    if as_json:
        found = [asdict(problem) for problem in problems]
        frame.facts({"schema_version": 1, "ok": not problems, "problems": found, "warnings": []})
        return 1 if problems else 0
    for problem in problems:
        frame.say(f"{path}: {problem.text}; {problem.fix}")
    if sweep is None or problems:
        return 1
    if no_files:
        frame.say(f"{path} is fine")
        return 0
    cells = all_cells(sweep)
    left_out = sum(each.state == "left out" for each in cells)
    counted = f"{plural(len(cells) - left_out, 'cell')} in {plural(len(jobs(sweep)), 'run')}"
    frame.say(f"{path} is fine: {counted}{f', {left_out} left out' if left_out else ''}")
    return 0


@frame.command("schema", example="sme2prof config schema > config.schema.json")
@click.option("--sweep", is_flag=True, help="Of sweeps.")
def schema(sweep: bool) -> None:
    """Print the JSON Schema of configs, or of sweeps."""
    frame.facts(sweep_schema() if sweep else config_schema())


command = click.Group(
    "config",
    commands=[new, check, schema],
    help="Make, check or describe a config or a sweep.",
    epilog="\b\nExample:\n  sme2prof config check my_run.json",
    params=[frame.debug_option()],
)
