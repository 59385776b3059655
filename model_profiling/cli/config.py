"""`sme2prof config new|check|schema`."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import click

from model_profiling import files
from model_profiling.cli import frame
from model_profiling.config.new_config import KINDS, Kind, NewConfig, write_new_config
from model_profiling.config.settings import ScheduleMode
from model_profiling.errors import InputError
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
@click.option("--model", type=click.Path(path_type=Path), help="The exported program (.pte).")
@click.option("--output", type=frame.FILE, help="The config to write, or a folder for it.")
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
    model: Path | None,
    output: Path | None,
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


@frame.command("check", example="sme2prof config check my_run.json", facts=True)
@click.argument("path", metavar="CONFIG.json", type=click.Path(path_type=Path))
@click.option("--no-files", is_flag=True, help="Leave out whether the model and the runners exist.")
def check(path: Path, no_files: bool, as_json: bool) -> int:
    """Say everything that is wrong with a config; exits with 1 if anything is."""
    from model_profiling.config.reading import check_config, config_warnings, load_config, pairs
    from model_profiling.wording import plural

    problems = check_config(path, files=not no_files)
    config = None if problems else load_config(path, files=not no_files)
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


@frame.command("schema", example="sme2prof config schema > config.schema.json")
def schema() -> None:
    """Print the JSON Schema of configs."""
    from model_profiling.config.schema import config_schema

    frame.facts(config_schema())


command = click.Group(
    "config",
    commands=[new, check, schema],
    help="Make, check or describe a config.",
    epilog="\b\nExample:\n  sme2prof config check my_run.json",
    params=[frame.debug_option()],
)
