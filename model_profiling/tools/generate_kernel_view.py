#!/usr/bin/env python3
"""Write the kernel view: which kernels ran or were configured with SME2 on, and which with SME2 off.

A run directory gives one section for each pair it compares: thread counts, or the rungs of a ladder.

examples:
  python model_profiling/tools/generate_kernel_view.py --run-dir out_toy_cnn/runs/xnnpack_fp16/linux
  python model_profiling/tools/generate_kernel_view.py --sme2-on on_kernels.csv --sme2-off off_kernels.csv
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
try:
    from model_profiling.analysis.kernels import KernelUse, read_kernels_csv
    from model_profiling.analysis.xnntrace import kernel_uses, read_xnntrace
    from model_profiling.cli.frame import say, say_wrote
    from model_profiling.cli.script import output_file, run_tool, tool_parser
    from model_profiling.config import names
    from model_profiling.config.series import Series
    from model_profiling.core import files
    from model_profiling.core.stdio import checked_output
    from model_profiling.report.text import render_markdown
    from model_profiling.report.tool_files import KernelSection, evidence_of_file, kernel_document
    from model_profiling.workflow.analyse import kernel_sections
except ModuleNotFoundError as missing:
    cure = "run setup_repo.sh in a clone of the kit, and use its .venv/bin/python"
    sys.stderr.write(f"error: {Path(__file__).name} needs the Python module {missing.name}; {cure}\n")
    sys.exit(2)


@checked_output
def main(argv: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    if bool(options.run_dir) == bool(options.sme2_on or options.sme2_off):
        parser.error("give --run-dir, or --sme2-on and --sme2-off")
    if not options.run_dir and not (options.sme2_on and options.sme2_off):
        parser.error("--sme2-on and --sme2-off go together")
    return run_tool(_write, options)


def _write(options: argparse.Namespace) -> int:
    out = options.out
    if options.run_dir:
        sections = kernel_sections(options.run_dir)
        out = out or options.run_dir / names.KERNEL_VIEW
    else:
        on, off = _evidence(options.sme2_on), _evidence(options.sme2_off)
        sections = (
            KernelSection(
                "", evidence_of_file(Series("SME2 on"), on), evidence_of_file(Series("SME2 off"), off)
            ),
        )
    document = kernel_document(sections, title=options.title, filter_op=options.filter_op)
    text = render_markdown(document)
    if out is None:
        say(text.rstrip("\n"))
    else:
        files.write_out(out, text)
        say_wrote(out)
    return 0


def _evidence(path: Path) -> tuple[KernelUse, ...]:
    if path.suffix == ".csv":
        return read_kernels_csv(path, follow=True)
    return kernel_uses(read_xnntrace(path, follow=True))


def _parser() -> argparse.ArgumentParser:
    parser = tool_parser(__doc__)
    parser.add_argument("--run-dir", type=Path, help="a run directory: a section for each pair it compares")
    parser.add_argument("--sme2-on", type=Path, help="kernels.csv or XNNPACK log of a run with SME2 on")
    parser.add_argument("--sme2-off", type=Path, help="the same of a run with SME2 off")
    parser.add_argument(
        "--out", type=output_file, help="file to write (default: kernel_view.md in --run-dir, or stdout)"
    )
    parser.add_argument(
        "--filter-op", default="", help="only kernels with this in their name or role, e.g. gemm"
    )
    parser.add_argument("--title", default="Kernel view", help="the first heading")
    return parser


if __name__ == "__main__":
    sys.exit(main())
