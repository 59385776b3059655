"""libFuzzer through atheris, where its wheel is installed (x86_64): the same readers, guided by branches.

Each reader has a process of its own, because libFuzzer takes over the one it runs in. Half of the inputs are
made by the campaign's own damage, which knows the formats, half by libFuzzer's.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from attack.finds import Find, PartResult

BENCH = Path(__file__).resolve().parents[1]
SECONDS, MEGABYTES = 10, 1400
"""For one input; a worker without input takes some 250 MB."""


def engine() -> Literal["atheris", "mutator"]:
    """The better one of those that are here."""
    return "atheris" if importlib.util.find_spec("atheris") else "mutator"


def fuzz(
    inputs: int, seed: int, *, only: Sequence[str] = (), finds: Path = Path("attack_finds")
) -> PartResult:
    """Give each reader its share of `inputs`, one after the other."""
    from attack.readers import READERS
    from model_profiling.core import process

    readers = [reader for reader in READERS if not only or reader.name in only]
    shares = sum(reader.share for reader in readers)
    began, tried, found, figures = time.monotonic(), 0, [], {}
    for reader in readers:
        runs = max(1, round(inputs * reader.share / shares))
        words = [
            sys.executable,
            "-m",
            "attack.guided",
            reader.name,
            str(runs),
            str(seed),
            str(finds.absolute()),
        ]
        path = os.pathsep.join((str(BENCH), str(BENCH.parent)))
        done = process.run(words, timeout=120 + runs * 0.5, env={"PYTHONPATH": path})
        ended = re.search(r"Done (\d+) runs", done.stderr)
        last = re.findall(r"#(\d+)\s.*cov: (\d+) ft: (\d+) corp: (\d+)", done.stderr)
        tried += int(ended[1]) if ended else int(last[-1][0]) if last else 0
        figures[reader.name] = {"branches": int(last[-1][1]), "corpus": int(last[-1][3])} if last else {}
        if not done.ok:
            kept = re.findall(r"Test unit written to (\S+)", done.stderr)
            what = next(
                iter(re.findall(r"(?m)^ *(?:=== Uncaught.*|\w*(?:Error|Exception): .*)$", done.stderr)), ""
            )
            for place in kept:
                about = {"reader": reader.name, "seed": seed, "what": what}
                Path(f"{place}.json").write_text(json.dumps(about), encoding="utf-8")
            case = f"{reader.name}, {', '.join(kept) or 'no input kept'}"
            found.append(Find("fuzz", case, what or f"ended with {done.returncode}", done.tail(30)))
    lines = [f"{name:12} {told}" for name, told in figures.items()]
    seconds = time.monotonic() - began
    return PartResult("fuzz", tried, seconds, tuple(found), figures=figures, lines=tuple(lines))


def _child(name: str, runs: str, seed: str, finds: str) -> None:
    import atheris

    with atheris.instrument_imports(include=["model_profiling"]):
        from attack.damage import damaged
        from attack.readers import BY_NAME
        from model_profiling.core.errors import ProfilingError
    reader = BY_NAME[name]
    whole = reader.seeds()
    work = Path(tempfile.mkdtemp(prefix="attack-"))
    for number, data in enumerate(whole):
        (work / f"seed{number}").write_bytes(data)
    folder = Path(tempfile.mkdtemp(prefix="attack-"))

    def one(data: bytes) -> None:
        with contextlib.suppress(ProfilingError):
            reader.read(data, folder)

    def mutate(data: bytes, most: int, number: int) -> bytes:
        chance = random.Random(number)
        own = chance.random() < 0.5
        made = damaged(reader.kind, data, whole, chance) if own else atheris.Mutate(data, most)
        return bytes(made[:most])

    Path(finds).mkdir(parents=True, exist_ok=True)
    longest = max(len(data) for data in whole) * 2
    words = [f"-runs={runs}", f"-seed={seed}", f"-timeout={SECONDS}", f"-rss_limit_mb={MEGABYTES}"]
    words += [f"-max_len={longest}", f"-artifact_prefix={finds}/{name.replace(' ', '_')}-", str(work)]
    atheris.Setup([sys.argv[0], *words], one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    _child(*sys.argv[1:])
