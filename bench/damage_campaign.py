"""Damage dumps, programs and records at random and read them: nothing but a clear refusal may come of it.

    python bench/damage_campaign.py [--files 120000] [--seed 1] [--workers 2] [MORE FILES]

Every reading happens in a worker whose address space may grow by at most 512 MB and that gets ten seconds
per file. The seeds are the small files in tests/data/etdump, dumps and records made here, and whatever is
named on the command line (.etdump, .pte, .etrecord). Exits with 1 if a reader failed in any other way than
by refusing.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import random
import resource
import signal
import sys
import time
import traceback
import zipfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from strategies import AllocationEvent, Block, DebugEvent, Dump, ProfileEvent, damage  # noqa: E402

from model_profiling.errors import FormatError  # noqa: E402
from model_profiling.etdump import read_etdump  # noqa: E402
from model_profiling.program import read_etrecord, read_program  # noqa: E402
from model_profiling.program.delegates import delegate_named  # noqa: E402

MEMORY_ALLOWED = 512 * 2**20
SECONDS_ALLOWED = 10
CASES_PER_BATCH = 500


class TooSlow(BaseException):
    """Not an Exception, so that no reader can swallow it."""


def made_dump() -> bytes:
    """Every kind of event, twice over, with and without each optional field."""
    profile = [
        ProfileEvent("Method::execute", -1, 0, -1, None, None, 10, 900),
        ProfileEvent(None, 0, 3, -1, "Convolution (NHWC, F32) IGEMM #1", b"", 20, 400),
        ProfileEvent(None, 0, 3, 12, None, b"metadata", 400, 500),
        ProfileEvent("x" * 280, 0, 4, -1, None, None, 500, 600),
    ]
    others = [AllocationEvent(1, 4096), DebugEvent("aten::add.out", 2, -1, None, True)]
    block = Block("Execute", 1, ("method", "planned"), (*profile, *others))
    return Dump((block, block), write_defaults=False, size_prefixed=True).to_bytes()


def made_record() -> bytes:
    """An ETRecord with one of everything the reader looks at."""
    node = {
        "name": "aten_convolution_default",
        "target": "executorch.exir.dialects.edge.ops.aten.convolution.default",
        "inputs": [{"name": "input", "arg": {"as_tensor": {"name": "x"}}}],
        "outputs": [{"as_tensor": {"name": "aten_convolution_default"}}],
        "metadata": {
            "debug_handle": "1",
            "nn_module_stack": "L__self__,,net.Net;L__self__c1,c1,torch.nn.modules.conv.Conv2d",
            "stack_trace": 'File "net.py", line 10, in forward\n    x = self.c1(x)',
        },
    }
    tensors = {"aten_convolution_default": {"dtype": 7, "sizes": [{"as_int": 1}, {"as_int": 16}]}}
    graph = {"graph_module": {"graph": {"nodes": [node, node], "tensor_values": tensors}}}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ETRECORD_V0", "")
        archive.writestr("edge_dialect_exported_program/forward", json.dumps(graph))
        archive.writestr("debug_handle_map", json.dumps({"forward": {"0": [1, 2], "1": 3}}))
    return stream.getvalue()


def seeds(more: list[Path]) -> list[tuple[str, bytes]]:
    named = [*sorted((ROOT / "tests" / "data" / "etdump").glob("*.[ep]t*")), *more]
    found = [(path.suffix[1:], path.read_bytes()) for path in named]
    return [*found, ("etdump", made_dump()), ("etrecord", made_record())]


def read(kind: str, data: bytes) -> None:
    """Read a file and use what came of it, as an analysis would."""
    if kind == "etdump":
        table = read_etdump(data)
        table.text(table.name)
    elif kind == "pte":
        program = read_program(data)
        for method in program.methods:
            for delegate in method.delegates:
                events = ["Convolution (NHWC, F32) IGEMM #1", "Clamp (NC) #1"]
                delegate_named(delegate.backend).align(delegate.nodes, events)
    else:
        record = read_etrecord(data)
        for method in record.handles:
            record.refs_of_instruction(method, 0)


def too_slow(number: int, frame: object) -> None:
    del number, frame
    raise TooSlow


def prepare_worker() -> None:
    # Free the worker of what the parent already uses, then let it grow by so much and no more.
    with Path("/proc/self/statm").open() as statm:
        pages = int(statm.read().split()[0])
    limit = pages * resource.getpagesize() + MEMORY_ALLOWED
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGALRM, too_slow)


def batch(job: tuple[int, int, list[tuple[str, bytes]]]) -> tuple[Counter[str], list[str], float]:
    """Read one batch of damaged files; returns outcomes, reports of failures, and the slowest reading."""
    first, count, files = job
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    slowest = 0.0
    for case in range(first, first + count):
        chance = random.Random(case)
        kind, whole = files[chance.randrange(len(files))]
        data = damage(whole, chance)
        began = time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, SECONDS_ALLOWED)
        try:
            read(kind, data)
            outcomes[f"{kind} read"] += 1
        except FormatError:
            outcomes[f"{kind} refused"] += 1
        except BaseException as problem:  # noqa: BLE001  # whatever else it is, it is what we look for
            outcomes[f"{kind} FAILED: {type(problem).__name__}"] += 1
            failures.append(f"case {case} ({kind}):\n{traceback.format_exc(limit=-3)}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        slowest = max(slowest, time.perf_counter() - began)
    return outcomes, failures, slowest


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=120_000, help="how many damaged files to read")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("more", nargs="*", type=Path, help="further files to damage")
    options = parser.parse_args()
    files = seeds(options.more)
    base = options.seed * 10_000_000
    jobs = [
        (base + first, min(CASES_PER_BATCH, options.files - first), files)
        for first in range(0, options.files, CASES_PER_BATCH)
    ]
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    slowest = 0.0
    began = time.perf_counter()
    # Workers of "spawn" start small, so the limit on their memory means what it says.
    with multiprocessing.get_context("spawn").Pool(options.workers, prepare_worker) as pool:
        for counted, reports, longest in pool.imap_unordered(batch, jobs):
            outcomes += counted
            failures += reports
            slowest = max(slowest, longest)
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:8}  {outcome}")
    seconds = time.perf_counter() - began
    print(
        f"{sum(outcomes.values())} damaged files from {len(files)} seeds in {seconds:.0f} s; "
        f"{len(failures)} failures; slowest reading {slowest:.2f} s; "
        f"memory growth capped at {MEMORY_ALLOWED >> 20} MB"
    )
    for report in failures[:5]:
        print(report)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
