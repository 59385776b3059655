"""`xnntrace_to_kernels.py` and `generate_kernel_view.py`: which kernels ran, from logs and lists of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from model_profiling.analysis.kernels import (
    KernelUse,
    kernel_uses,
    kernels_csv,
    read_kernels_csv,
    read_xnntrace,
    unknown_kernels,
)
from model_profiling.cli.frame import say, say_wrote, warn
from model_profiling.compat.scripts import output_file, run_tool, tool_parser
from model_profiling.config import names
from model_profiling.config.series import Series
from model_profiling.core import files
from model_profiling.core.stdio import checked_output
from model_profiling.report.text import render_markdown
from model_profiling.report.tool_files import KernelSection, evidence_of_file, kernel_document
from model_profiling.workflow.analyse import kernel_sections


@checked_output
def xnntrace_to_kernels(description: str | None, argv: Sequence[str] | None = None) -> int:
    parser = tool_parser(description)
    parser.add_argument("--xnntrace", type=Path, required=True, help="the runner's log, or an Android logcat")
    parser.add_argument("--out", type=output_file, required=True, help="the kernels.csv to write")
    parser.add_argument("--model-id", help="first column of every row (default: the log's name)")
    parser.add_argument("--pid", type=int, help="process to take from a logcat with several")
    return run_tool(_list_kernels, parser.parse_args(argv))


def _list_kernels(options: argparse.Namespace) -> None:
    uses = kernel_uses(read_xnntrace(options.xnntrace, pid=options.pid, follow=True))
    files.write_out(options.out, kernels_csv(options.model_id or options.xnntrace.stem, uses))
    say(f"wrote {len(uses)} rows to {files.display_name(options.out)}")
    for name in unknown_kernels(uses):
        warn(f"the kit cannot read the kernel name {name}")


@checked_output
def generate_kernel_view(description: str | None, argv: Sequence[str] | None = None) -> int:
    parser = tool_parser(description)
    parser.add_argument("--run-dir", type=Path, help="a run directory, for every pair it compares")
    parser.add_argument("--sme2-on", type=Path, help="kernels.csv or log of the run with SME2 on")
    parser.add_argument("--sme2-off", type=Path, help="kernels.csv or log of the run with SME2 off")
    parser.add_argument(
        "--out", type=output_file, help="file to write (default: kernel_view.md in --run-dir, or stdout)"
    )
    parser.add_argument(
        "--filter-op", default="", help="only kernels with this in their name or role, e.g. gemm"
    )
    parser.add_argument("--title", default="Kernel view", help="the first heading")
    options = parser.parse_args(argv)
    lists = [options.sme2_on, options.sme2_off]
    if any(lists) if options.run_dir else not all(lists):
        parser.error("give --run-dir, or --sme2-on and --sme2-off")
    return run_tool(_write_view, options)


def _write_view(options: argparse.Namespace) -> None:
    out = options.out
    if options.run_dir:
        sections = kernel_sections(options.run_dir)
        out = out or options.run_dir / names.KERNEL_VIEW
    else:
        on = evidence_of_file(Series("SME2 on"), _uses_in(options.sme2_on))
        off = evidence_of_file(Series("SME2 off"), _uses_in(options.sme2_off))
        sections = (KernelSection("", on, off),)
    text = render_markdown(kernel_document(sections, title=options.title, filter_op=options.filter_op))
    if out is None:
        say(text.rstrip("\n"))
    else:
        files.write_out(out, text)
        say_wrote(out)


def _uses_in(path: Path) -> tuple[KernelUse, ...]:
    if path.suffix == ".csv":
        return read_kernels_csv(path, follow=True)
    return kernel_uses(read_xnntrace(path, follow=True))
