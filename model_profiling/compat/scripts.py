"""The documented scripts: most are a command of `sme2prof` with an option in place of the argument."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from model_profiling.cli import frame
from model_profiling.cli.frame import fail, say, warn
from model_profiling.cli.main import main as sme2prof
from model_profiling.cli.main import run_reporting_failures
from model_profiling.compat import ArgumentParser
from model_profiling.config import names
from model_profiling.core import files
from model_profiling.core.errors import InputError
from model_profiling.core.stdio import shown_progress
from model_profiling.runner.machine import target_kinds

_COMBINED = "combined_report.md"
_SYSTEMS = {"darwin": ("a Mac", "mac_pipeline.py"), "linux": ("Linux", "linux_pipeline.py")}


def tool_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser whose examples name the tool as it was started: as a file of the repository or a command."""
    frame.remember(())
    name = Path(sys.argv[0]).name
    if name.startswith("sme2prof-"):
        description = re.sub(r"python model_profiling/tools/\w+\.py", name, description or "")
    return ArgumentParser(
        description=description,
        epilog="A tool of the earlier kit, for its users; new work uses `sme2prof` (see `sme2prof help`).",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def run_tool(
    work: Callable[[argparse.Namespace], int | None],
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None = None,
) -> int:
    """Do the work of a tool; a failure, also of an argument, is one line and exit code 2."""
    return run_reporting_failures(lambda: work(parser.parse_args(argv)))


def run_script(command: str, option: str, description: str | None) -> int:
    """Run `command` on what `option` names; other options are the command's."""
    parser = _parser_of(command, description)
    parser.add_argument(option, dest="run_dir", required=True)
    options, rest = parser.parse_known_args()
    return sme2prof([command, options.run_dir, *rest])


def run_pipeline(
    description: str | None, *, system: str = "", android: bool = False, argv: Sequence[str] | None = None
) -> int:
    """Run the config that --config names; a script for one `system` refuses to run on another."""
    parser = _parser_of("run", description)
    parser.add_argument("--config", required=True, help="the config to run")
    parser.add_argument(
        "--only", nargs="*", action="extend", default=[], metavar="EXPERIMENT", help="run only these"
    )
    parser.add_argument("--verbose", action="store_true", help="say where the words of every process are")
    if android:
        what = "the phone on the network: --target android:HOST:PORT"
        parser.add_argument("--remote-device", metavar="HOST:PORT", help=what)
    options, rest = parser.parse_known_args(argv)
    if system and sys.platform != system:
        here, script = _SYSTEMS.get(sys.platform, (sys.platform, "sme2prof run"))
        fail(f"this is {here}, not {_SYSTEMS[system][0]}; use {script}")
        return 2
    if options.verbose:
        warn("the command of each process and all it printed are in the .log beside its dump")
    device = f":{options.remote_device}" if android and options.remote_device else ""
    if device and "--target" in rest:
        fail("--remote-device and --target both name a phone; give one of them")
        return 2
    rest = _with(("--target", f"android{device}"), rest) if android else rest
    only = [word for name in options.only for word in ("--only", name)]
    return sme2prof(["run", options.config, *only, *rest])


def run_combined_report(description: str | None, argv: Sequence[str] | None = None) -> int:
    """Several runs on one page: any number, or a Mac's and a phone's, of which one may be missing; their page
    is written beside them by default."""
    parser = _parser_of("report", description)
    parser.add_argument("--run-dirs", "--run-dir", nargs="+", default=[], help="run directories")
    parser.add_argument("--mac-dir", type=Path, help="the run directory of a Mac")
    parser.add_argument("--android-dir", type=Path, help="the run directory of a phone")
    parser.add_argument("--model-name", help="the model, for the first heading; runs know theirs")
    options, rest = parser.parse_known_args(argv)
    two = [path for path in (options.mac_dir, options.android_dir) if path]
    there = [path for path in two if path.exists()]
    if not options.run_dirs and not there:
        missing = f"there is neither {two[0]} nor {two[-1]}" if len(set(two)) > 1 else "no run is named"
        fail(f"{missing}; give --run-dirs, or --mac-dir and --android-dir")
        return 2
    for path in two:
        if path not in there:
            warn(f"there is no {path}: the page is without it")
    if options.model_name:
        rest = _with(("--title", f"{options.model_name}: several runs"), rest)
    page = there[0].resolve().parent / _COMBINED if there else Path(_COMBINED)
    return sme2prof(["report", *options.run_dirs, *map(str, there), *_with(("--out", str(page)), rest)])


def run_export(description: str | None, argv: Sequence[str] | None = None) -> int:
    """Export the model that --model names; --quantize means int8 and warns if --dtype says otherwise."""
    parser = _parser_of("export", description)
    parser.add_argument("--model", required=True, help="a registered name, or file.py:factory")
    parser.add_argument("--dtype", help="fp32, fp16 (default) or int8")
    parser.add_argument("--quantize", action="store_true", help="int8, whatever --dtype says")
    parser.add_argument("--outdir", required=True, help="folder to write to")
    parser.add_argument("--verbose", action="store_true", help="also show what PyTorch and ExecuTorch say")
    options, rest = parser.parse_known_args(argv)
    dtype = "int8" if options.quantize else options.dtype or "fp16"
    if options.quantize and options.dtype not in (None, "int8"):
        warn(f"--quantize makes int8, with float32 around it: --dtype {options.dtype} has no effect")
    words = ["export", options.model, "--dtype", dtype, "--outdir", options.outdir, *rest]
    return sme2prof([*words, *["--debug"] * options.verbose])


def _parser_of(command: str, description: str | None) -> argparse.ArgumentParser:
    parser = tool_parser(description)
    parser.epilog = f"Further options are those of `sme2prof {command}`; see `sme2prof {command} --help`."
    parser.allow_abbrev = False
    return parser


def _with(defaults: Sequence[str], rest: Sequence[str]) -> list[str]:
    """`rest`, plus `defaults` if it lacks that option."""
    given = any(word.partition("=")[0] == defaults[0] for word in rest)
    return [*rest, *(() if given else defaults)]


def validate_pipeline(description: str | None) -> int:
    """Check what the config that --config names needs and, if it has run already, its results."""
    from model_profiling.config.reading import load_config

    parser = _parser_of("config check", description)
    parser.add_argument("--config", required=True, help="the config to check")
    options, rest = parser.parse_known_args()
    wrong = sme2prof(["config", "check", options.config, *rest])
    run_dir = None if wrong else load_config(Path(options.config)).output_root
    if run_dir is None or not (run_dir / names.MANIFEST).is_file():
        return wrong
    return sme2prof(["validate", str(run_dir), *rest])


def generate_config(description: str | None) -> int:
    parser = tool_parser(description)
    parser.add_argument("--model", type=Path, help="the exported program (.pte); asked for if it is missing")
    parser.add_argument("--output", type=frame.output_file, help="file or folder (default: config.json)")
    parser.add_argument("--target", help=f"where to measure: {', '.join(target_kinds())} (default: auto)")
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")
    return run_tool(_generate_config, parser)


def _generate_config(options: argparse.Namespace) -> None:
    from model_profiling.config.new_config import config_template, free_path
    from model_profiling.config.reading import parse_config

    model, output, target = options.model, options.output, options.target or "auto"
    further: dict[str, Any] = {}
    if model is None:
        if not sys.stdin.isatty():
            raise InputError("no model is named", "give --model FILE.pte")
        ask: Callable[..., Any] = click.prompt
        model = Path(ask("Exported program to measure (.pte, from sme2prof export)"))
        target = options.target or ask(f"Where: {', '.join(target_kinds())}", default="auto")
        suggested = config_template(model, target, Path.cwd())["output_root"]
        further["output_root"] = Path(ask("Folder for the results", default=suggested))
        further["threads"] = ask("Thread counts, such as 1,2,4", type=frame.Counts(), default="1")
        further["trace"] = ask("Add experiments that list the kernels?", type=bool, default=False)
        output = output or Path(ask("Config file to write", default="config.json"))
    path, folder = free_path(output or Path("config.json"), force=options.force)
    content = config_template(model, target, folder, **further)
    parse_config(content, folder=folder)
    files.write_json(path, content)
    frame.say(f"wrote {path}\nnext: sme2prof run {path}")


_NAMES = {"darwin": "mac", "linux": "linux"}


def run_quick_test(description: str | None) -> int:
    # Where the documents look for it when this runs from the repository.
    usual = Path("model_profiling" if Path("model_profiling").is_dir() else "", "out_toy_cnn")
    parser = tool_parser(description)
    parser.add_argument("--target", help="host (default), emulated, auto, android[:SERIAL] or ssh:HOST")
    parser.add_argument(
        "--platform",
        choices=(*_NAMES.values(), "android"),
        help="the system that this must run on; android: the phone that adb sees",
    )
    parser.add_argument("--dtype", default="fp16", choices=("fp32", "fp16", "int8"))
    parser.add_argument("--outdir", type=frame.output_folder, default=usual, help="default: %(default)s")
    return run_tool(_test, parser)


def _test(options: argparse.Namespace) -> int:
    # Imported here: the other scripts need none of these.
    from model_profiling.targets import open_target, parse_target, plan_targets
    from model_profiling.validation.validate import validate
    from model_profiling.workflow.measure import RunOptions, run_together
    from model_profiling.workflow.profile import ProfileOptions, find_or_export, make_config

    here = _NAMES.get(sys.platform, sys.platform)
    if options.platform not in (None, here, "android"):
        fix = "leave --platform out: this tests the machine on which it runs"
        raise InputError(f"this is {here}, not {options.platform}", fix)
    choice = parse_target(options.target or ("android" if options.platform == "android" else "host"))
    # In the folder where documents look for it, on whatever system; an earlier run is kept under its date.
    run_dir = options.outdir / "runs" / ("android" if choice.name == "android" else "mac")
    with shown_progress(lines=True):
        target = open_target(plan_targets(choice).main)
        program = find_or_export("toy_cnn", ProfileOptions(dtype=options.dtype, outdir=options.outdir))
        config = make_config(target, program, run_dir, ProfileOptions(budget_s=6))
        (outcome,) = run_together([config], target, RunOptions(force=True))
    validation = validate(outcome.run_dir)
    say(f"exported {program}\n\n{outcome.run_dir}\n{validation.as_text()}")
    for result in outcome.failed:
        say(f"failed: {result.series}: {result.problem}")
    ok = validation.ok and not outcome.failed
    say("success" if ok else "failure")
    return 0 if ok else 1
