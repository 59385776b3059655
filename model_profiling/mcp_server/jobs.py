"""A job that exports or measures: one `sme2prof` command in a process of its own, one at a time.

A process of its own keeps what torch prints off the protocol's stream, and is what makes cancelling real: it
is ended as by Ctrl-C, so that it ends what it measures, keeps what was measured and gives its locks back.
Should the server itself die, the process notices that its stdin ends, and does the same.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread

from model_profiling.core.errors import InputError, RunError, SetupError, system_reason
from model_profiling.core.left_running import end_all, marked, new_mark
from model_profiling.mcp_server import answers, questions
from model_profiling.mcp_server.confinement import Cuts, Root

Told = Callable[[float, str], Awaitable[None]]
"""Hears of progress: seconds since the job began, and what it is doing."""

_KIT = Path(__file__).resolve().parents[2]
# Not `python -m`: that would import whatever lies in the root under the name of a library.
_START = (
    "import sys; sys.path[:] = [place for place in sys.path if place] + [sys.argv.pop(1)]; "
    "from model_profiling.cli.main import main; sys.exit(main())"
)
_SILENCE_S = 4.0
_TO_END_S = 30.0
"""How long a job may take to end in order; a phone's settings are put back in that time."""
_KEPT_LINES = 40
_LONGEST_LINE = 1 << 16
_MOST_OUTPUT = 64 << 20
_LAST_WORDS_S = 2.0
_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: its facts, where it gave any, and the lines for people."""

    code: int
    facts: dict[str, Any] | None
    said: tuple[str, ...]

    def lines(self, kind: str) -> list[str]:
        """Those that begin with `error: ` or `warning: `."""
        return [line.removeprefix(f"{kind}: ") for line in self.said if line.startswith(f"{kind}: ")]


@dataclass
class Jobs:
    """The one job that may run; it counts as running until all of it has ended, cancelled or not."""

    folder: Path
    log: Callable[[str], None]
    """Gets every line a job says that is not progress."""
    running: str = ""
    _since: float = 0.0

    async def run(self, words: Sequence[str], *, time_limit_s: float, told: Told) -> Ended:
        """Run `sme2prof` with `words` in the folder; cancelling ends it in order."""
        if self.running:
            spent = time.monotonic() - self._since
            raise InputError(
                f"`{self.running}` is running, since {spent:.0f} s, and two at once would disturb each other",
                "wait until it has answered or cancel it, then call this again; tools that read answer now",
            )
        self.running, self._since = f"sme2prof {' '.join(words)}", time.monotonic()
        try:
            return await _Job(words, self.folder, told, self._since, self.log).run(time_limit_s)
        finally:
            self.running = ""


@dataclass
class _Job:
    words: Sequence[str]
    folder: Path
    told: Told
    began: float
    log: Callable[[str], None]
    stage: str = "starting"
    heard: float = field(default_factory=time.monotonic)
    output: bytearray = field(default_factory=bytearray)
    said: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))

    async def run(self, time_limit_s: float) -> Ended:
        mark = new_mark()
        child = await self._start(mark)
        try:
            with anyio.move_on_after(time_limit_s) as limit:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._stay_heard)
                    await self._follow(child)
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await _end(child, mark)
        if limit.cancelled_caught:
            raise RunError(
                f"the job was ended at its limit of {time_limit_s:g} s, while it was {self.stage}",
                "call it again with a larger time_limit_s; `profile` with resume=true goes on from there",
            )
        return Ended(child.returncode or 0, _facts(self.output), tuple(self.said))

    async def _start(self, mark: str) -> anyio.abc.Process:
        try:
            return await anyio.open_process(
                [sys.executable, "-c", _START, str(_KIT), *self.words, "--json"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.folder,
                env=marked({**os.environ, "SME2PROF_PROGRESS": "json"}, mark),
                start_new_session=True,
            )
        except OSError as problem:
            reason = system_reason(problem)
            fix = "ask the user to start the server again"
            raise SetupError(f"a job cannot be started in {self.folder}: {reason}", fix) from problem

    async def _follow(self, child: anyio.abc.Process) -> None:
        """Read what it says until it has ended."""
        assert child.stdout is not None and child.stderr is not None
        async with anyio.create_task_group() as readers:
            readers.start_soon(self._keep, child.stdout)
            readers.start_soon(self._listen, child.stderr)
            await _ended(child)
            # Whoever inherited the pipes may hold them open; what the command itself wrote is there.
            readers.cancel_scope.deadline = anyio.current_time() + _LAST_WORDS_S

    async def _keep(self, stdout: anyio.abc.ByteReceiveStream) -> None:
        async for chunk in stdout:
            self.output += chunk[: _MOST_OUTPUT - len(self.output)]

    async def _listen(self, stderr: anyio.abc.ByteReceiveStream) -> None:
        """Progress is passed on; everything else is kept, and goes to the server's own log."""
        rest = b""
        async for chunk in stderr:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                await self._heard(line.decode("utf-8", "replace"))
            rest = rest[:_LONGEST_LINE]
        await self._heard(rest.decode("utf-8", "replace"))

    async def _heard(self, line: str) -> None:
        step = _step(line)
        if step is None:
            if line.strip():
                self.said.append(line)
                self.log(line)
            return
        before, self.stage = self.stage, step
        if before != step:
            await self._tell(step)

    async def _stay_heard(self) -> None:
        """Long stages stay audible, so that no client takes silence for death."""
        while True:
            await anyio.sleep(1.0)
            if time.monotonic() - self.heard >= _SILENCE_S:
                await self._tell(self.stage)

    async def _tell(self, text: str) -> None:
        self.heard = time.monotonic()
        await self.told(self.heard - self.began, text)


async def _end(child: anyio.abc.Process, mark: str) -> None:
    """End it as by Ctrl-C if it still runs; only if that does not help by force, with what it measures."""
    if child.returncode is None:
        with suppress(ProcessLookupError):
            child.terminate()
        with anyio.move_on_after(_TO_END_S):
            await _ended(child)
    if child.returncode is None:
        await anyio.to_thread.run_sync(end_all, child.pid, mark)
        with suppress(ProcessLookupError):
            child.kill()  # where nobody can look for it
        await _ended(child)
    with anyio.move_on_after(_LAST_WORDS_S):
        await child.aclose()


async def _ended(child: anyio.abc.Process) -> None:
    """Not `wait()`: that also waits for whoever else holds its pipes open."""
    while child.returncode is None:
        await anyio.sleep(_LOOK_EVERY_S)


def _step(line: str) -> str | None:
    """`measuring 3/12: text` of a line of progress; None of any other."""
    try:
        step = json.loads(line)
        stage = step["stage"]
    except (ValueError, TypeError, KeyError):
        return None
    amount = f" {step['done']}/{step['total']}" if "done" in step else ""
    text = step.get("text")
    return f"{stage}{amount}: {text}" if text else f"{stage}{amount}"


def _facts(output: bytearray) -> dict[str, Any] | None:
    try:
        facts = json.loads(output)
    except ValueError:
        return None
    return facts if isinstance(facts, dict) else None


# The tools that export and measure: arguments to the words of a `sme2prof` command, facts to an answer.

Json = Mapping[str, Any]

_LINES = 20


@dataclass(frozen=True, slots=True)
class Workshop:
    """Where jobs are done, one at a time, and the machines behind ssh that the user allowed."""

    root: Root
    jobs: Jobs
    ssh_hosts: tuple[str, ...] = field(default=())

    async def export(self, asked: questions.AskExport, told: Told) -> answers.ExportAnswer:
        model = self.root.model(asked.model)
        if model.endswith(".pte"):
            raise InputError(f"{asked.model} is exported already", "call `profile` with it")
        calibration = None if asked.calibration is None else self.root.factory(asked.calibration)
        words = [
            *("export", model, "--dtype", asked.dtype, "--backend", asked.backend),
            *_option("--name", asked.name),
            *_option("--calibration", calibration),
            *_option("--seed", asked.seed or None),
            *_option("--outdir", self.root.outputs(asked.name or model, asked.out_dir)),
        ]
        ended = await self.jobs.run(words, time_limit_s=asked.time_limit_s, told=told)
        return _exported(self.root, _facts_of(ended))

    async def profile(self, asked: questions.AskProfile, told: Told) -> answers.ProfileAnswer:
        model = self.root.model(asked.model)
        words = [
            *("profile", model, "--target", self._target(asked)),
            *_option("--dtype", asked.dtype),
            *_option("--backend", asked.backend),
            *("--threads", ",".join(map(str, asked.threads))),
            *_option("--budget", asked.budget_s),
            *_option("--precision", asked.precision),
            *(f"--{name}" for name in ("ladder", "sample", "resume") if getattr(asked, name)),
            *_option("--outdir", self.root.outputs(model, asked.out_dir)),
        ]
        ended = await self.jobs.run(words, time_limit_s=asked.time_limit_s, told=told)
        return _profiled(self.root, _facts_of(ended), ended)

    def _target(self, asked: questions.AskProfile) -> str:
        if asked.target not in ("android", "ssh"):
            if asked.device is not None:
                raise InputError(f"target {asked.target} has no device", "leave `device` out")
            return asked.target
        if asked.target == "ssh" and asked.device not in self.ssh_hosts:
            allowed = ", ".join(self.ssh_hosts) or "none"
            raise InputError(
                f"ssh is allowed to these hosts: {allowed}",
                "name one of them as `device`, or ask the user to start the server with --ssh HOST",
            )
        return f"{asked.target}:{asked.device}" if asked.device else asked.target


def _option(name: str, value: object) -> Iterator[str]:
    """A word and its value; nothing where none was given."""
    if value is not None:
        yield name
        yield str(value)


def _facts_of(ended: Ended) -> Json:
    """The facts, or the command's own words for why there are none."""
    if ended.facts is not None:
        return ended.facts
    said = " ".join(ended.lines("error") or ended.said[-3:])
    if "--" in said:
        as_here = (
            "options it names are arguments here where this tool has them, others are the user's to give"
        )
        raise InputError(said, as_here)
    raise RunError(said or f"the command ended with {ended.code} and no word")


def _exported(root: Root, facts: Json) -> answers.ExportAnswer:
    cuts = Cuts()
    folder, coverage, accuracy = Path(facts["folder"]), facts["coverage"], facts["accuracy"]
    kept = ("dtype", "backend", "size_bytes", "seconds", "inputs", "outputs")
    return answers.ExportAnswer(
        program=root.shown(folder / facts["pte"]),
        etrecord=root.shown(folder / facts["etrecord"]),
        **{name: facts[name] for name in kept},
        operators=coverage["operators"],
        operators_delegated=coverage["delegated"],
        delegate_partitions=coverage["partitions"],
        inserted_transposes=coverage["inserted_transposes"],
        outside=[_outside(group) for group in cuts.cut(coverage["outside"], _LINES, "groups of operators")],
        outputs_agree=accuracy["ok"],
        against_same_dtype=_deviation(accuracy["lowering"]),
        against_fp32=_deviation(accuracy["precision"]),
        warnings=cuts.cut(facts["warnings"], _LINES, "warnings"),
        left_out=cuts.left_out,
        next="`profile` with `program` as its model"
        if accuracy["ok"]
        else "the outputs differ from PyTorch's by more than rounding: find out why before measuring",
    )


def _outside(group: Json) -> answers.Outside:
    named = ", ".join(f"{count} x {operator}" for operator, count in group["operators"])
    return answers.Outside(
        what=f"{named}: {group['reason']}",
        where=[*group["sources"][:5], *group["modules"][:5]],
        instead=group["remedy"],
    )


def _deviation(found: Json | None) -> answers.Deviation | None:
    if found is None:
        return None
    return answers.Deviation(
        agrees=found["ok"],
        max_rel=found["max_rel"],
        accepted_max_rel=found["tolerance"],
        cosine=found["cosine"],
    )


def _profiled(root: Root, facts: Json, ended: Ended) -> answers.ProfileAnswer:
    several: Json | None = facts.get("side_by_side")
    profiles: Sequence[Json] = list(facts["profiles"].values()) if several else [facts]
    made = [_made(root, run) for found in profiles for run in found["runs"]]
    warnings = dict.fromkeys(line for found in profiles for line in found["warnings"])
    return answers.ProfileAnswer(
        programs=[root.shown(found["program"]) for found in profiles],
        why_here=list(dict.fromkeys(found["targets"] for found in profiles)),
        runs=made,
        dtypes_verdict=several["verdict"] if several else None,
        failed=ended.lines("error")[:_LINES],
        warnings=list(warnings)[:_LINES],
        next=f"`summary` of {made[0].run}, then `top_operators` and `advice`"
        if made
        else "nothing was measured: see `failed`",
    )


def _made(root: Root, run: Json) -> answers.MadeRun:
    return answers.MadeRun(
        run=root.shown(run["run_dir"]),
        state=run["state"],
        target=run["target"]["name"],
        cpu=run["cpu"],
        answers=answers.Answers.model_validate(run["answers"]),
        report=root.shown(run["report"]),
    )
