#!/usr/bin/env python3
"""Exports a model: `python model_profiling/export/export_model.py --model M --dtype D --outdir F`."""

import sys
from pathlib import Path

sys.path[:0] = map(str, [*Path(__file__).resolve().parents][2:3])  # the clone, if this file is in one
from model_profiling.compat import start

if __name__ == "__main__":
    sys.exit(start("scripts.run_export", "Export a PyTorch model to .pte; the same as `sme2prof export`."))
