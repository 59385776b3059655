#!/usr/bin/env python3
"""Exporting works on this installation: fp16 and int8, anew, each file whole and each program checked.

example:
  python test-cases/test_model_export.py --model toy_cnn
"""

from __future__ import annotations

import sys

from made_once import export_anew, main

from model_profiling.export.records import ExportResult
from model_profiling.program.pte import read_program


def _is_a_good_export(export: ExportResult) -> None:
    assert export.pte.is_file() and export.etrecord.is_file() and export.summary.is_file()
    assert 1_000 < export.size_bytes == export.pte.stat().st_size < 4_000_000_000
    assert export.pte.read_bytes()[4:8].startswith(b"ET"), "the mark of ExecuTorch's program files"
    methods = read_program(export.pte).methods
    assert [method.name for method in methods] == ["forward"]
    assert export.coverage.delegated > 0, "XNNPACK took over no operator"
    assert export.accuracy.ok, export.accuracy.problem or "outputs differ from PyTorch's"


def test_export_fp16() -> None:
    _is_a_good_export(export_anew("fp16"))


def test_export_int8() -> None:
    export = export_anew("int8")
    _is_a_good_export(export)
    assert export.calibration, "int8 says what its ranges were observed on"


if __name__ == "__main__":
    sys.exit(main(globals(), __doc__))
