"""Fetch ExecuTorch's sources and build its executor_runner from them.

examples:
  python -m model_profiling.runner.source_build fetch --dest executorch
  python -m model_profiling.runner.source_build build --presets timing
"""

from __future__ import annotations

import argparse
import platform
import shlex
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from model_profiling.core.errors import ArgumentParser, InputError
from model_profiling.core.formatting import printable
from model_profiling.core.progress import Lines
from model_profiling.core.stdio import checked_output
from model_profiling.runner.__main__ import run_program, say
from model_profiling.runner.features import is_arm
from model_profiling.runner.source_build.build import (
    BuildPlan,
    Tools,
    build_runners,
    find_tools,
    plan_builds,
)
from model_profiling.runner.source_build.presets import (
    URL,
    RunnerPreset,
    can_be_fetched,
    choose_presets,
    fetch_source,
    merge_presets,
    runner_presets,
)
from model_profiling.runner.source_build.stand_ins import write_stand_ins
from model_profiling.runner.source_build.toolchain import check_checkout, find_ndk, named_ndk

_NO_CHECKOUT = """\
Nothing was built: each is a small program over the kit's own runner, which switches SME2 at run time. A
config that names one of them uses the kit's runner. To build ExecuTorch's own: --from-source."""
_NOT_NEEDED = """\
These runners are not needed for profiling: the kit's own (runner_path "builtin") compiles in seconds and
switches SME2 at run time. Each runner of ExecuTorch takes 11 to 16 minutes to build on 2 cores; a build
that is stopped continues later."""


@checked_output
def main(argv: list[str] | None = None) -> int:
    options = _parser().parse_args(argv)
    return run_program(lambda: options.run(options) or 0, "stopped; run the same command again to continue")


def _fetch(options: argparse.Namespace) -> None:
    ref, folder = options.ref or _installed_version(), options.executorch
    commit = fetch_source(options.url or URL, ref, folder, progress=Lines())
    _tell(f"{folder} is at {commit}")


def _merge(options: argparse.Namespace) -> None:
    check_checkout(options.executorch.resolve())
    _tell("presets written" if merge_presets(options.executorch) else "presets were already there")


def _build(options: argparse.Namespace) -> None:
    if options.list:
        for preset in runner_presets().values():
            _tell(preset.name + ("" if preset.builds_here else "  (not on this machine)"))
        return
    if options.jobs is not None and options.jobs < 1:
        raise InputError(f"--jobs {options.jobs} is not a number of jobs", "give 1 or more")
    if named_ndk():
        find_ndk()
    absent = can_be_fetched(options.executorch)
    if absent and not (options.from_source or options.url or options.ref):
        _put_stand_ins(options)
        return
    if not absent:
        check_checkout(options.executorch.resolve())
    presets = _presets(options.presets)
    say(_NOT_NEEDED)
    tools = _tools(presets)
    if absent and options.dry_run:
        what = f"{options.ref or _installed_version()} of {options.url or URL}"
        _tell(f"would download {what} into {options.executorch}")
        return
    if absent:
        _fetch(options)
    plans = plan_builds(
        options.executorch, presets, tools, jobs=options.jobs, force=options.force, defines=options.define
    )
    if options.dry_run:
        _show(plans)
        return
    for built in build_runners(options.executorch, plans, tools, progress=Lines()):
        done = f"built in {built.seconds:.0f} s" if built.seconds else "was finished"
        _tell(f"{built.binary}: {done}, {built.verified}")


def _put_stand_ins(options: argparse.Namespace) -> None:
    """For all machines: a config may have been written for another than this one."""
    asked = [name for word in options.presets or () for name in word.split(",") if name]
    presets = choose_presets(asked) if asked else list(runner_presets().values())
    if options.dry_run:
        _tell(f"would write {len(presets)} programs into {options.executorch / 'cmake-out'}")
        return
    for program in write_stand_ins(options.executorch, presets):
        _tell(f"{program}: the kit's runner")
    say(_NO_CHECKOUT)
    if not is_arm(platform.machine()):
        say(f"This machine ({platform.machine()}) is not Arm: they are emulated, and no time is measured.")


def _presets(words: Sequence[str] | None) -> list[RunnerPreset]:
    presets = choose_presets([name for word in words or ["timing"] for name in word.split(",") if name])
    if not presets:
        raise InputError(
            "there is no preset for this machine",
            (
                'use runner_path "builtin", which works here; to build Android runners, set ANDROID_NDK '
                "(--list)"
            ),
        )
    return presets


def _tools(presets: Sequence[RunnerPreset]) -> Tools:
    if not named_ndk() and not any(preset.is_android for preset in presets):
        say("Android runners are left out: ANDROID_NDK is not set")
    tools = find_tools(presets)
    say(f"cmake {tools.cmake.version}")
    for compiler in {preset.platform: tools.compiler_for(preset) for preset in presets}.values():
        say(f"compiler {compiler.c} ({compiler.family} {compiler.version})")
    return tools


def _show(plans: Sequence[BuildPlan]) -> None:
    for plan in plans:
        _tell(f"{plan.preset.name}: {'finished, nothing to do' if plan.finished else 'would run'}")
        for step in () if plan.finished else (plan.configure, plan.build):
            _tell(f"  {shlex.join(step)}")


def _installed_version() -> str:
    """Return the tag of the ExecuTorch that exports the models: another version's runner may refuse them."""
    try:
        return f"v{metadata.version('executorch')}"
    except metadata.PackageNotFoundError as absent:
        raise InputError("ExecuTorch is not installed, so its version is unknown", "give --ref") from absent


def _tell(text: str) -> None:
    print(printable(text), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = ArgumentParser(
        prog="source_build", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="command")
    here = Path("executorch")

    fetch = commands.add_parser(
        "fetch", help=("clone ExecuTorch and its submodules; continues if interrupted")
    )
    what = "folder (default: executorch)"
    fetch.add_argument("--dest", dest="executorch", type=Path, default=here, help=what)
    fetch.set_defaults(run=_fetch)

    merge = commands.add_parser("merge", help="put the kit's presets into CMakeUserPresets.json")
    build = commands.add_parser("build", help="build executor_runner for each preset")
    for command, action in ((merge, _merge), (build, _build)):
        command.add_argument("--executorch", type=Path, default=here, help="checkout (default: executorch)")
        command.set_defaults(run=action)
    for command, when in ((fetch, ""), (build, "if there is no checkout yet: ")):
        command.add_argument(
            "--ref", help=f"{when}tag, branch or commit (default: the installed version's tag)"
        )
        command.add_argument("--url", help=f"{when}repository (default: {URL})")
    what = "fetch ExecuTorch if it is not there, and build it (default: programs over the kit's runner)"
    build.add_argument("--from-source", action="store_true", help=what)
    what = (
        "preset names, or one of timing, xnnlog, all for those that this machine can build (default: timing)"
    )
    build.add_argument("--presets", nargs="+", metavar="PRESET", help=what)
    build.add_argument("--jobs", type=int, help="compile jobs at a time (default: the number of cores)")
    build.add_argument("--force", action="store_true", help="build again, even if finished")
    build.add_argument(
        "--dry-run", action="store_true", help=("check everything and show the commands without running them")
    )
    build.add_argument("--list", action="store_true", help="list the presets and stop")
    more = "one more CMake variable, for every preset"
    build.add_argument("--define", action="append", default=[], metavar="NAME=VALUE", help=more)
    return parser


if __name__ == "__main__":
    sys.exit(main())
