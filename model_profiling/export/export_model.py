"""Exports a model: `python model_profiling/export/export_model.py --model M --dtype D --outdir F`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Export a PyTorch model to .pte; the same as `sme2prof export`."
    )
    parser.add_argument("--model", required=True, help="a registered name, or file.py:factory")
    parser.add_argument("--dtype", default="fp32", help="fp32, fp16 or int8")
    parser.add_argument("--quantize", action="store_true", help="the same as --dtype int8")
    parser.add_argument("--backend", default="xnnpack", help="xnnpack or portable")
    parser.add_argument("--outdir", required=True, help="folder to write to")
    parser.add_argument("--save-graph", action="store_true", help="also write graph.json")
    options = parser.parse_args()
    if options.quantize and options.dtype == "fp16":
        parser.error("--quantize makes int8, --dtype asks for fp16; choose one")

    from model_profiling.cli.main import main as sme2prof

    words = ["export", options.model, "--dtype", "int8" if options.quantize else options.dtype]
    words += ["--backend", options.backend, "--outdir", options.outdir]
    return sme2prof(words + ["--save-graph"] * options.save_graph)


if __name__ == "__main__":
    sys.exit(main())
