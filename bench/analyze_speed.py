"""How much faster `sme2prof analyze` is, process start to files written, than ExecuTorch's Inspector alone.

Inspector only reads the dump here, its imports not counted; ours starts Python, reads the dump, the program
and its record, and writes every file. Both are measured in this one run, on the same dump.

  python bench/analyze_speed.py                    exports MobileNetV3-small and records 1,000 runs
  python bench/analyze_speed.py --pte m.pte        records 1,000 runs of that program
  python bench/analyze_speed.py --run-dir DIR      takes the dump in DIR
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WANTED_RATIO = 15
REPEATS = 3

RECORD = """
import sys, torch
from executorch.extension.pybindings.portable_lib import _load_for_executorch
pte, out, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
module = _load_for_executorch(pte, enable_etdump=True)
meta = module.method_meta("forward").input_tensor_meta(0)
dtype = {5: torch.float16, 6: torch.float32}[meta.dtype()]
torch.manual_seed(0)
data = torch.randn(tuple(meta.sizes())).to(dtype)
for _ in range(runs):
    module.forward((data,))
module.write_etdump_result_to_file(out)
"""
INSPECT = """
import sys, time
from executorch.devtools import Inspector
began = time.perf_counter()
inspector = Inspector(etdump_path=sys.argv[1])
seconds = time.perf_counter() - began
timed = [event.perf_data for block in inspector.event_blocks for event in block.events if event.perf_data]
print("RESULT", seconds, sum(len(data.raw) for data in timed))
"""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pte", type=Path, help="a program with one float input")
    parser.add_argument("--run-dir", type=Path, help="a folder with one dump and its program")
    parser.add_argument("--runs", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        run_dir = options.run_dir or _recorded(Path(scratch), options.pte, options.runs)
        return _measured(run_dir)


def _recorded(scratch: Path, pte: Path | None, runs: int) -> Path:
    if pte is None:
        words = ["export", "mobilenet_v3_small", "--dtype", "fp16", "--outdir", str(scratch / "artifacts")]
        subprocess.run([sys.executable, "-m", "model_profiling", *words], cwd=ROOT, check=True)
        pte = next((scratch / "artifacts").glob("*.pte"))
    run_dir = scratch / "runs" / "linux"
    dump = run_dir / "bench" / f"{pte.stem}_bench_t1.etdump"
    dump.parent.mkdir(parents=True)
    subprocess.run(
        [sys.executable, "-c", RECORD, str(pte), str(dump), str(runs)], check=True, stderr=subprocess.DEVNULL
    )
    result = {
        "experiment": "bench",
        "threads": 1,
        "etdump": dump.relative_to(run_dir).as_posix(),
        "mode": "timing",
    }
    manifest = {
        "schema_version": 2,
        "model": str(pte.resolve()),
        "target": {"name": "host", "platform": "linux", "times": "hardware"},
        "results": [result],
    }
    (run_dir / "manifest.json").write_text(json.dumps(manifest))
    return run_dir


def _measured(run_dir: Path) -> int:
    dump = next(run_dir.rglob("*.etdump"))
    ours = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "model_profiling", "analyze", str(run_dir)],
            cwd=ROOT, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        ours.append(time.perf_counter() - began)
    said = subprocess.run(
        [sys.executable, "-c", INSPECT, str(dump)], check=True, capture_output=True, text=True
    ).stdout
    seconds, events = next(line for line in said.splitlines() if line.startswith("RESULT")).split()[1:]
    summary = json.loads((run_dir / "analysis_summary.json").read_text())
    rows = summary["per_etdump"][0]["rows"]
    ratio = float(seconds) / sorted(ours)[len(ours) // 2]
    print(f"dump                 {dump.stat().st_size / 1e6:.1f} MB, {rows} events (Inspector: {events})")
    print(f"Inspector alone      {float(seconds):.2f} s")
    print(f"sme2prof analyze     {', '.join(f'{one:.2f}' for one in ours)} s, process start to files written")
    print(f"ratio                {ratio:.1f}x (wanted: {WANTED_RATIO}x)")
    return 0 if ratio >= WANTED_RATIO and int(events) == rows else 1


if __name__ == "__main__":
    sys.exit(main())
