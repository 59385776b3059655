"""Is the kit's runner as quick as ExecuTorch's own Python runtime, and what does tracing cost?

Every round runs the same program, on the same threads and input, in a process of each kind, in turn:
`executorch.runtime` (the peer), the kit's runner, and the kit's runner writing an ETDump. The peer's time is
that of `Method.execute(inputs)`, which sets the inputs too, so the kit is charged for setting its own. The
quickest tenth of a process's executions stands for it: nothing else on the machine disturbed those.

    python bench/runner_overhead.py FILE.pte [--threads 1] [--rounds 12] [--seconds 1.5]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from model_profiling.core import process
from model_profiling.targets import Job
from model_profiling.targets.host import HostTarget

PEER = """
import json, sys, time
import torch
from executorch.extension.pybindings import portable_lib
from executorch.runtime import Runtime
pte, threads, warmup, runs = sys.argv[1], *map(int, sys.argv[2:])
# Before the method is loaded: XNNPACK keeps the pool it was loaded with.
portable_lib._unsafe_reset_threadpool(threads)
method = Runtime.get().load_program(pte).load_method("forward")
meta = method.metadata.input_tensor_meta(0)
types = {6: torch.float32, 5: torch.float16}
inputs = [torch.ones(meta.sizes(), dtype=types[meta.dtype()])]
for _ in range(warmup):
    method.execute(inputs)
times = []
for _ in range(runs):
    began = time.perf_counter_ns()
    method.execute(inputs)
    times.append(time.perf_counter_ns() - began)
print(json.dumps(times))
"""


def peer_ms(pte: Path, threads: int, warmup: int, runs: int) -> float:
    done = process.run([sys.executable, "-c", PEER, pte, *map(str, (threads, warmup, runs))], timeout=600)
    if not done.ok:
        sys.exit(f"the peer failed:\n{done.tail()}")
    return quick(json.loads(done.stdout.splitlines()[-1])) / 1e6


def quick(times: Sequence[int]) -> float:
    return statistics.mean(sorted(times)[: max(1, len(times) // 10)])


def kit_ms(host: HostTarget, job: Job, into: Path) -> float:
    """What an execution takes, with the setting of its inputs."""
    result = host.execute(job, into, "bench").result
    assert result.loop_ns is not None
    setting = (result.loop_ns - sum(result.iterations_ns)) / len(result.iterations_ns)
    return (quick(result.iterations_ns) + setting) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pte", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=1.5, help="measured time of each process")
    options = parser.parse_args()
    host = HostTarget()
    host.prepare()
    with tempfile.TemporaryDirectory() as folder:
        into, warmup = Path(folder), 10
        plain = Job(options.pte, threads=options.threads, warmup=warmup, runs=20, fill="ones")
        runs = max(20, round(options.seconds * 1000 / kit_ms(host, plain, into)))
        plain = Job(options.pte, threads=options.threads, warmup=warmup, runs=runs, fill="ones")
        traced = Job(options.pte, threads=options.threads, warmup=warmup, runs=runs, fill="ones", etdump=True)
        rounds = []
        for number in range(options.rounds):
            # The order turns, so that no one always runs on the CPU another has warmed.
            measures = [
                ("peer", lambda: peer_ms(options.pte, options.threads, warmup, runs)),
                ("kit", lambda: kit_ms(host, plain, into)),
                ("traced", lambda: kit_ms(host, traced, into)),
            ]
            turned = measures[number % 3 :] + measures[: number % 3]
            rounds.append({name: measure() for name, measure in turned})
            print(
                "  ".join(f"{name} {rounds[-1][name]:8.4f} ms" for name in ("peer", "kit", "traced")),
                flush=True,
            )
    # Disturbance only ever adds time, so the best round of each kind is the one to compare.
    best = {name: min(r[name] for r in rounds) for name in ("peer", "kit", "traced")}
    kit, tracing = best["kit"] / best["peer"], best["traced"] / best["kit"]
    print(f"\n{options.pte.name}, {options.threads} threads, best of {options.rounds} rounds of {runs}:")
    print(f"kit's runner / executorch.runtime   {kit:.4f}  (at most 1.01: {'yes' if kit <= 1.01 else 'NO'})")
    print(f"with the tracer / without           {tracing:.4f}")
    return 0 if kit <= 1.01 else 1


if __name__ == "__main__":
    sys.exit(main())
