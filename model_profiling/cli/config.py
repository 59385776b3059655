"""`sme2prof config new|check|schema`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from model_profiling.cli import frame
from model_profiling.config.new_config import config_schema, config_template, free_path, sweep_schema
from model_profiling.config.reading import (
    ConfigError,
    Problem,
    config_warnings,
    is_sweep,
    parse_config,
    read_object,
)
from model_profiling.config.sweep import parse_sweep
from model_profiling.core import files
from model_profiling.core.formatting import plural
from model_profiling.runner.machine import target_kinds


@frame.command(
    "new",
    example="sme2prof config new --model out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte --output my_run.json",
)
@click.option("--model", type=frame.PATH, required=True, help="The exported program (.pte).")
@click.option("--target", default="auto", show_default=True, help=f"Where: {', '.join(target_kinds())}.")
@click.option("--trace", is_flag=True, help="Add experiments that show which kernels ran.")
@click.option("--output", type=frame.FILE, show_default="standard output", help="File or folder to write to.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
def new(*, model: Path, target: str, trace: bool, output: Path | None, force: bool) -> None:
    """Print or write a config that compares SME2 on and off, for you to edit.

    `sme2prof run` measures the config; for one model, `sme2prof profile` does both without a file. All
    settings are in docs/reference/config.md. Sweeps: docs/how-to/sweeps.md has one to copy.
    """
    path, folder = free_path(output, force=force) if output else (None, Path.cwd())
    content = config_template(model, target, folder, trace=trace)
    parse_config(content, folder=folder)
    if path is None:
        frame.facts(content)
    else:
        files.write_json(path, content)
        frame.say(f"wrote {path}\nnext: sme2prof run {path}")


@frame.command("check", example="sme2prof config check my_run.json", facts=True)
@click.argument("path", metavar="CONFIG.json", type=frame.PATH)
def check(path: Path, as_json: bool) -> int:
    """List everything that is wrong with a config or a sweep. Exits with 1 if anything is."""
    config, sweep, problems = None, None, tuple[Problem, ...]()
    try:
        raw = read_object(path)
        if is_sweep(raw):
            sweep = parse_sweep(raw, folder=path.parent)
        else:
            config = parse_config(raw, folder=path.parent)
    except ConfigError as error:
        problems = error.problems
    warnings = config_warnings(config) if config else ()
    if as_json:
        listed = [asdict(problem) for problem in problems]
        frame.facts({"schema_version": 1, "ok": not problems, "problems": listed, "warnings": list(warnings)})
        return 1 if problems else 0
    for problem in problems:
        frame.say(f"{path}: {problem.text}; {problem.fix}")
    for text in warnings:
        frame.warn(text)
    if problems:
        return 1
    if sweep is not None:
        frame.say(f"{path} is fine; `sme2prof sweep {path} --dry-run` lists its cells")
    if config is not None:
        counts = plural(len(config.experiments), "experiment"), plural(len(config.pairs), "comparison")
        frame.say(f"{path} is fine: {', '.join(counts)}")
        frame.say(f"model        {config.model}\noutput_root  {config.output_root}")
    return 0


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
