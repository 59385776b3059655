"""Damaged files for every reader, in workers that are watched: no crash, no hang, no spike, no surprise.

Which input a case is follows from the seed, the reader and the case's number, and from what earlier rounds
found worth keeping: an input that reached new lines or a refusal never seen before is damaged again later.
With one worker the same seed always gives the same inputs; every find is kept as it was in any case.
"""

from __future__ import annotations

import errno
import hashlib
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from attack.damage import damaged
from attack.finds import Find, PartResult
from attack.readers import BY_NAME, READERS, Reader
from attack.seen_lines import Line, SeenLines, by_module

MEMORY = 2**30
"""Bytes a worker may grow by."""
SECONDS, WAIT = 5.0, 6
"""Of processor time for one input, which a busy machine does not change; by the clock it is so many times."""
ROUND, BATCH = 20_000, 250
KEPT, KEPT_BYTES = 120, 60_000
"""Of a reader's inputs, how many are kept to be damaged again, and how long they may be."""
LONGEST_MESSAGE = 4000
_SLOW = "takes longer than {:g} s"
READING_ROOMS = ("etdump", "program", "run", "runner", "config", "targets")
Corpus = dict[str, list[bytes]]


class TooSlow(BaseException):
    """Not an Exception, so that no reader can swallow it."""


@dataclass(frozen=True, slots=True)
class Batch:
    reader: str
    first: int
    count: int


@dataclass(slots=True)
class Answer:
    """What came of a batch."""

    outcomes: Counter[str] = field(default_factory=Counter)
    finds: list[tuple[int, str, str, bytes]] = field(default_factory=list)
    """Case, what, where, input."""
    kept: list[bytes] = field(default_factory=list)
    lines: set[Line] = field(default_factory=set)
    seconds: float = 0.0
    slowest: float = 0.0
    grown: int = 0


def input_of(reader: Reader, corpus: Sequence[bytes], seeds: int, seed: int, case: int) -> bytes:
    """The damaged file that a case is; the first `seeds` of the corpus are whole."""
    place = READERS.index(reader) if reader in READERS else 0
    chance = random.Random((seed << 56) | (place << 48) | case)
    grown = len(corpus) > seeds and chance.random() < 0.5
    start = chance.randrange(seeds, len(corpus)) if grown else chance.randrange(seeds)
    return damaged(reader.kind, corpus[start], corpus, chance)


def work(link: Connection, now: Any, seed: int, folder: Path) -> None:
    """A worker: takes the corpus, then answers batches until it is told nothing more. `now` tells who watches
    what it is doing."""
    corpus: Corpus = link.recv()
    tempfile.tempdir = str(folder)  # which is removed when this worker is ended
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, _too_slow)
    whole = {reader.name: len(reader.seeds()) for reader in READERS if reader.name in corpus}
    started = _limit_memory()
    desk = Desk(folder, started)
    try:
        while (job := link.recv()) is not None:
            if isinstance(job, dict):
                for name, more in job.items():
                    corpus[name] += more
                continue
            answer = Answer()
            before = len(desk.seen.lines)
            reader = BY_NAME[job.reader]
            # What another reader left is no neighbour: a damaged manifest there would end every reading.
            (folder / reader.name).mkdir(exist_ok=True)
            for case in range(job.first, job.first + job.count):
                now[0] = case
                data = input_of(reader, corpus[job.reader], whole[job.reader], seed, case)
                now[1] = time.monotonic_ns()
                _try(reader, data, case, desk, answer)
                now[1] = 0
            if len(desk.seen.lines) > before:
                answer.lines = set(desk.seen.lines)
            answer.grown = _most_memory() - started
            link.send(answer)
    except Exception:  # noqa: BLE001  # of the campaign's own, not of a reader: nothing it says counts then
        link.send(traceback.format_exc())


@dataclass(frozen=True, slots=True)
class Desk:
    """What a worker has all the time: a folder in memory, the lines it saw, the refusals it knows."""

    folder: Path
    began_with: int
    """Bytes."""
    seen: SeenLines = field(default_factory=SeenLines)
    refusals: set[str] = field(default_factory=set)


def _try(reader: Reader, data: bytes, case: int, desk: Desk, answer: Answer) -> None:
    from model_profiling.core.errors import ProfilingError

    lines = len(desk.seen.lines)
    began = time.process_time()
    _rang.clear()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_REAL, WAIT * SECONDS)
    new = ""
    try:
        with desk.seen.watching(case):
            reader.read(data, desk.folder / reader.name)
        answer.outcomes["read"] += 1
    except ProfilingError as refusal:
        answer.outcomes["refused"] += 1
        new = f"{reader.name} {re.sub('[0-9]+|/[^ ]*', '#', refusal.problem[:300])}"
        if starved(refusal):
            answer.finds.append((case, f"takes more than {MEMORY >> 20} MB", _where(refusal), data))
        elif not refusal.problem.strip() or len(str(refusal)) > LONGEST_MESSAGE or "\n" in str(refusal):
            told = f"a refusal of {len(str(refusal)):,} characters, {str(refusal).count(chr(10)) + 1} lines"
            answer.finds.append((case, told, _where(refusal), data))
    except TooSlow as problem:
        answer.outcomes["FOUND"] += 1
        answer.finds.append((case, _SLOW.format(SECONDS), _where(problem), data))
    except MemoryError as problem:
        answer.outcomes["FOUND"] += 1
        answer.finds.append((case, f"takes more than {MEMORY >> 20} MB", _where(problem), data))
    except BaseException as problem:  # noqa: BLE001  # whatever else it is, it is what we look for
        answer.outcomes["FOUND"] += 1
        answer.finds.append((case, f"{type(problem).__name__}: {problem!s:.200}", _where(problem), data))
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
    took = time.process_time() - began
    if _rang and not any(found[:2] == (case, _SLOW.format(SECONDS)) for found in answer.finds):
        # The alarm came where Python ignores what is raised (a finalizer), and the reader went on.
        answer.finds.append((case, _SLOW.format(SECONDS), "", data))
    if sys.platform != "linux" and _most_memory() - desk.began_with > MEMORY:  # no limit holds it there
        answer.finds.append((case, f"takes more than {MEMORY >> 20} MB", "", data))
    answer.seconds += took
    answer.slowest = max(answer.slowest, took)
    worth = len(desk.seen.lines) > lines or (new and new not in desk.refusals)
    if worth and len(data) <= KEPT_BYTES:
        desk.refusals.add(new)
        answer.kept.append(data)


def starved(problem: BaseException | None) -> bool:
    """Whether memory that was refused is behind a refusal: without a limit it would have been taken."""
    while problem is not None:
        if isinstance(problem, MemoryError) or getattr(problem, "errno", None) == errno.ENOMEM:
            return True
        problem = problem.__cause__ or problem.__context__
    return False


def _where(problem: BaseException) -> str:
    """The last lines of the traceback, in the order they were called."""
    return "".join(traceback.format_tb(problem.__traceback__)[-4:])


_rang: list[int] = []
"""Alarms since the reader began."""


def _too_slow(number: int, frame: object) -> None:
    del frame
    _rang.append(number)
    raise TooSlow


def _limit_memory() -> int:
    """Let this process grow by so much and no more; returns what it has taken at most until now."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return _most_memory()


def _most_memory() -> int:
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


class Worker:
    """A process that works, and what it is doing."""

    def __init__(self, seed: int, corpus: Corpus) -> None:
        # Addresses that allocators reserve for each thread, and never use, count as memory.
        os.environ.update(ARROW_DEFAULT_MEMORY_POOL="system", MALLOC_ARENA_MAX="2")
        context = multiprocessing.get_context("spawn")  # it starts small, so the limit means what it says
        self.now = context.RawArray("q", 2)
        self.link, other = context.Pipe()
        memory = Path("/dev/shm")
        # Made and removed here: a worker may not live to do so.
        self.folder = Path(tempfile.mkdtemp(prefix="attack-", dir=memory if memory.is_dir() else None))
        self.process = context.Process(target=work, args=(other, self.now, seed, self.folder), daemon=True)
        self.process.start()
        other.close()
        # By its own pipe: handing it over at the start would wait for ever for one that dies first.
        self.link.send(corpus)
        self.batch: Batch | None = None

    def give(self, batch: Batch) -> None:
        self.batch = batch
        self.link.send(batch)

    def hangs(self) -> bool:
        """Whether the time limit inside of it did not help: it is stuck in code that takes no signal."""
        since = self.now[1]
        return bool(since) and time.monotonic_ns() - since > 2 * WAIT * SECONDS * 1e9

    def end(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.link.close()
        shutil.rmtree(self.folder, ignore_errors=True)


class Campaign:
    """Inputs for all readers, in rounds."""

    def __init__(self, seed: int, workers: int, readers: Sequence[Reader], finds: Path) -> None:
        self.seed, self.readers, self.finds_folder = seed, readers, finds
        self.corpus: Corpus = {reader.name: reader.seeds() for reader in readers}
        self.whole = {name: len(files) for name, files in self.corpus.items()}
        self.next_case = dict.fromkeys(self.corpus, 0)
        self.answers = {name: Answer() for name in self.corpus}
        self.finds: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
        self.workers = [Worker(seed, self.corpus) for _ in range(workers)]

    def round(self, inputs: int) -> None:
        """Damage and read `inputs` files, and learn from them."""
        batches = list(self._batches(inputs))
        kept: dict[Batch, list[bytes]] = {}
        waiting = batches[::-1]
        while waiting or any(worker.batch for worker in self.workers):
            for place, worker in enumerate(self.workers):
                if worker.batch is None and waiting:
                    worker.give(waiting.pop())
                elif worker.batch is not None and worker.hangs():
                    self._lost(
                        place, f"hangs for {2 * WAIT * SECONDS:.0f} s in code that takes no signal", waiting
                    )
            busy = {worker.link: place for place, worker in enumerate(self.workers) if worker.batch}
            for ready in wait(list(busy), timeout=1.0):
                place = busy[ready]  # type: ignore[index]
                batch = self.workers[place].batch
                assert batch is not None
                try:
                    answer = self.workers[place].link.recv()
                except (EOFError, ConnectionError):
                    self.workers[place].process.join()
                    code = self.workers[place].process.exitcode
                    self._lost(place, f"ends the process with {code}", waiting)
                    continue
                if isinstance(answer, str):
                    raise RuntimeError(f"the campaign itself is broken:\n{answer}")
                self.workers[place].batch = None
                kept[batch] = answer.kept
                self._add(batch, answer)
        self._grow([(batch, kept.get(batch, [])) for batch in batches])

    def _batches(self, inputs: int) -> Iterator[Batch]:
        shares = sum(reader.share for reader in self.readers)
        for reader in self.readers:
            left = max(1, round(inputs * reader.share / shares))
            while left > 0:
                count = min(BATCH, left)
                yield Batch(reader.name, self.next_case[reader.name], count)
                self.next_case[reader.name] += count
                left -= count

    def _grow(self, kept: Sequence[tuple[Batch, list[bytes]]]) -> None:
        more: Corpus = {}
        for batch, files in kept:
            room = KEPT + self.whole[batch.reader] - len(self.corpus[batch.reader])
            taken = [data for data in files if data not in self.corpus[batch.reader]][: max(0, room)]
            if taken:
                self.corpus[batch.reader] += taken
                more.setdefault(batch.reader, []).extend(taken)
        for worker in self.workers:
            worker.link.send(more)

    def _add(self, batch: Batch, answer: Answer) -> None:
        whole = self.answers[batch.reader]
        whole.outcomes += answer.outcomes
        whole.lines |= answer.lines
        whole.seconds += answer.seconds
        whole.slowest = max(whole.slowest, answer.slowest)
        whole.grown = max(whole.grown, answer.grown)
        for case, what, where, data in answer.finds:
            self._found(batch.reader, case, what, where, data)

    def _found(self, reader: str, case: int, what: str, where: str, data: bytes) -> None:
        places = re.findall(r'File "[^"]*?([\w./]+)", line (\d+)', where)
        key = (reader, what.partition(":")[0], ":".join(places[-1]) if places else "")
        known = self.finds.setdefault(key, [])
        if len(known) < 3:
            self.finds_folder.mkdir(parents=True, exist_ok=True)
            name = f"{reader.replace(' ', '_')}-{hashlib.sha256(data).hexdigest()[:12]}"
            (self.finds_folder / name).write_bytes(data)
            about = {"reader": reader, "seed": self.seed, "case": case, "what": what, "where": where}
            (self.finds_folder / f"{name}.json").write_text(json.dumps(about, indent=1))
        known.append((case, f"{what}\n{where}"))

    def _lost(self, place: int, what: str, waiting: list[Batch]) -> None:
        """A worker is gone with the input it was reading and what it found before; another reads all but that
        one input again."""
        worker = self.workers[place]
        batch, case = worker.batch, int(worker.now[0])
        assert batch is not None
        worker.end()
        data = input_of(
            BY_NAME[batch.reader], self.corpus[batch.reader], self.whole[batch.reader], self.seed, case
        )
        self._found(batch.reader, case, what, "", data)
        self.answers[batch.reader].outcomes["FOUND"] += 1
        self.workers[place] = Worker(self.seed, self.corpus)
        before, after = case - batch.first, batch.first + batch.count - case - 1
        again = (Batch(batch.reader, batch.first, before), Batch(batch.reader, case + 1, after))
        waiting += [part for part in again if part.count]

    def end(self) -> None:
        for worker in self.workers:
            worker.end()


def fuzz(
    inputs: int, seed: int, *, workers: int = 1, only: Sequence[str] = (), finds: Path = Path("attack_finds")
) -> PartResult:
    """Read `inputs` damaged files, divided among the readers by their shares."""
    readers = [reader for reader in READERS if not only or reader.name in only]
    began = time.monotonic()
    campaign = Campaign(seed, workers, readers, finds)
    try:
        for first in range(0, inputs, ROUND):
            campaign.round(min(ROUND, inputs - first))
            done = min(first + ROUND, inputs)
            print(f"{done:,} inputs, {len(campaign.finds)} kinds of finds", file=sys.stderr, flush=True)
    finally:
        campaign.end()
    seconds = time.monotonic() - began
    found = tuple(
        Find("fuzz", f"{reader} case {cases[0][0]} and {len(cases) - 1} more", *cases[0][1].split("\n", 1))
        for (reader, _, _), cases in sorted(campaign.finds.items())
    )
    tried = sum(sum(answer.outcomes.values()) for answer in campaign.answers.values())
    lines = {line for answer in campaign.answers.values() for line in answer.lines}
    coverage = by_module(lines)
    figures = {
        "readers": {name: _figures(campaign, name) for name in campaign.answers},
        "coverage": {name: [seen, whole] for name, seen, whole in coverage},
    }
    return PartResult("fuzz", tried, seconds, found, figures=figures, lines=_table(campaign, coverage))


def _figures(campaign: Campaign, name: str) -> dict[str, object]:
    answer = campaign.answers[name]
    return {
        **answer.outcomes,
        "seeds": campaign.whole[name],
        "kept": len(campaign.corpus[name]) - campaign.whole[name],
        "mean_ms": round(1e3 * answer.seconds / max(1, sum(answer.outcomes.values())), 3),
        "slowest_s": round(answer.slowest, 3),
        "grown_mb": answer.grown >> 20,
    }


def _table(campaign: Campaign, coverage: Sequence[tuple[str, int, int]]) -> tuple[str, ...]:
    rows = [f"{'reader':12} {'inputs':>9} {'read':>9} {'refused':>9} {'found':>6} {'seeds':>6} {'kept':>5} "
            f"{'mean ms':>8} {'slowest s':>9} {'grown MB':>8}"]  # fmt: skip
    for name, answer in campaign.answers.items():
        told, counts = _figures(campaign, name), answer.outcomes
        rows.append(
            f"{name:12} {sum(counts.values()):9,} {counts['read']:9,} {counts['refused']:9,} "
            f"{counts['FOUND']:6,} {told['seeds']:>6} {told['kept']:>5} {told['mean_ms']:>8} "
            f"{told['slowest_s']:>9} {told['grown_mb']:>8}"
        )
    rows += ["", f"{'lines of functions that ran':46} {'seen':>6} {'of':>6}"]
    together = ("together", sum(row[1] for row in coverage), sum(row[2] for row in coverage))
    for name, seen, whole in (*_shown(coverage), together):
        rows.append(f"{name:46} {seen:6,} {whole:6,} {100 * seen / max(1, whole):5.0f}%")
    return tuple(rows)


def _shown(coverage: Sequence[tuple[str, int, int]]) -> Iterator[tuple[str, int, int]]:
    """The rooms that read what others wrote by module, the rooms that use it in one line each."""
    rooms: dict[str, tuple[str, int, int]] = {}
    for name, seen, whole in coverage:
        room = name.partition("/")[0]
        key = name if room in READING_ROOMS or "/" not in name else f"{room}/"
        _, before, of = rooms.get(key, (key, 0, 0))
        rooms[key] = (key, before + seen, of + whole)
    yield from rooms.values()


def replay(path: Path) -> None:
    """Read one saved input again, in this process: what it raises is shown as it is."""
    reader = BY_NAME[json.loads(path.with_name(f"{path.name}.json").read_text())["reader"]]
    with tempfile.TemporaryDirectory() as folder:
        reader.read(path.read_bytes(), Path(folder))
