"""The tools that export and measure: arguments become a `sme2prof` command, its facts become the answer.

A job is one command in a separate process, one at a time. The process keeps torch's prints off the
protocol's stream and makes cancelling real: it is ended as by Ctrl-C, so that it stops what it measures,
keeps the results and releases its locks. If the server dies, the process sees its stdin end, and does so too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import anyio.abc
import anyio.to_thread
from mcp.server.mcpserver import Context

from model_profiling.core.errors import InputError, RunError
from model_profiling.core.formatting import printable
from model_profiling.core.left_running import end_all, marked, new_mark
from model_profiling.core.number_formats import FORMATS, parse_format
from model_profiling.core.stdio import say_aside
from model_profiling.mcp_server.answers import ExportAnswer, ProfileAnswer, answer
from model_profiling.mcp_server.confinement import Root
from model_profiling.mcp_server.tools import SEE_DOCTOR, arg, tool
from model_profiling.runner.machine import TargetKind

Json = Mapping[str, Any]
Backend = Literal["xnnpack", "portable"]
Client = Context[Any, Any]

OutDir = Annotated[
    str | None,
    arg(
        "Folder to write to, relative to the root. Default: out_<model> in the root (for a program in a "
        "folder `artifacts`, the folder above it)."
    ),
]
_FORMATS = f"{', '.join(FORMATS)}, int4:32 (a scale per 32 weights), or path/file.py:quantizer in the root"
Keep = Annotated[
    tuple[Annotated[str, arg("", pattern=r"^[A-Za-z_0-9][A-Za-z_0-9.]*$")], ...],
    arg("Modules that stay in fp32, by path in the model.", examples=[["features.0"]], max_length=256),
]
Calibration = Annotated[
    str | None,
    arg(
        "Real inputs, for the ranges of int8 and for accuracy: path/file.py:function that yields them, or "
        "path/file.npz, relative to the root.",
    ),
]
TimeLimit = Annotated[
    float, arg("Time limit in seconds; what was measured by then is kept.", gt=0, le=86_400)
]


@dataclass(frozen=True, slots=True)
class JobTools:
    """Jobs, one at a time; `ssh_hosts` are the machines that the user allowed."""

    root: Root
    jobs: Jobs
    ssh_hosts: tuple[str, ...] = ()

    @tool("Export a model to ExecuTorch", on_error=SEE_DOCTOR, read_only=False)
    async def export(
        self,
        client: Client,
        *,
        model: Annotated[
            str,
            arg(
                "A name from `models`, or path/file.py:factory relative to the root, where factory() "
                "returns (nn.Module, tuple of example inputs).",
                examples=["toy_cnn", "my_model.py:make"],
            ),
        ],
        dtype: Annotated[str, arg(f"Number format of the program: {_FORMATS}.")] = "fp32",
        keep: Keep = (),
        backend: Annotated[
            Backend, arg("xnnpack: optimized, with SME2; portable: reference kernels, slow.")
        ] = "xnnpack",
        name: Annotated[
            str | None,
            arg("Name for the files, instead of the model's name.", pattern=r"^[A-Za-z_][A-Za-z0-9_]*$"),
        ] = None,
        calibration: Calibration = None,
        seed: Annotated[int, arg("Seed for weights and example inputs.", ge=0, le=2**31 - 1)] = 0,
        out_dir: OutDir = None,
        time_limit_s: TimeLimit = 3600,
    ) -> ExportAnswer:
        """Lower a PyTorch model to a .pte program, run it once and compare it with PyTorch: what was
        delegated, what was not and why, whether outputs agree. Use it to see how a model is lowered;
        `profile` exports too. Takes 10 s to minutes. Runs the factory's code. Writes into the root and
        replaces an earlier export of the same name."""
        word = self.root.model(model)
        if word.endswith(".pte"):
            raise InputError(f"{model} is already exported", "call `profile` with it")
        options = {
            **self._exporting(dtype, keep, calibration),
            "--backend": backend,
            "--name": name,
            "--seed": seed or None,
            "--outdir": self.root.outputs(name or word, out_dir),
        }
        facts, _ = await self._run(client, ["export", word, *_words(options)], time_limit_s)
        folder, agree = Path(facts["folder"]), facts["accuracy"]["ok"]
        made = {
            "program": self.root.shown(folder / facts["pte"]),
            "etrecord": self.root.shown(folder / facts["etrecord"]),
            "outside": map(_outside, facts["coverage"]["outside"]),
            "next": "`profile` with `program` as its model"
            if agree
            else "the outputs differ from PyTorch by more than rounding: find out why before measuring",
        }
        return answer(ExportAnswer, **{**facts, **made})

    @tool("Measure a model", on_error=SEE_DOCTOR, read_only=False)
    async def profile(
        self,
        client: Client,
        *,
        model: Annotated[
            str,
            arg(
                "A name from `models`, path/file.py:factory, or path/program.pte that was exported "
                "before; paths are relative to the root.",
                examples=["toy_cnn", "my_model.py:make", "out_toy_cnn/artifacts/toy_cnn_xnnpack_fp16.pte"],
            ),
        ],
        dtype: Annotated[
            str | None,
            arg(
                f"Number format to export to [fp32]: {_FORMATS}. Several with commas, or `all` that suit the "
                "model, are compared, and the answer says which to ship. Leave it out for a .pte."
            ),
        ] = None,
        keep: Keep = (),
        calibration: Calibration = None,
        backend: Annotated[
            Backend | None, arg("Backend to export for [xnnpack]; leave it out for a .pte.")
        ] = None,
        target: Annotated[
            TargetKind,
            arg(
                "auto: measure here, and find SME2 kernels under emulation if this CPU has no SME2. "
                "emulated: kernels and outputs only, its times are not latencies. android: a phone that "
                "adb finds. ssh: a machine that the user allowed when starting the server."
            ),
        ] = "auto",
        device: Annotated[
            str | None,
            arg(
                "android: the phone's serial; ssh: the host. Leave it out for other targets.",
                pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$",
            ),
        ] = None,
        threads: Annotated[
            tuple[Annotated[int, arg("", ge=1, le=256)], ...],
            arg("Thread counts to measure, one after another.", min_length=1, max_length=8),
        ] = (1,),
        budget_s: Annotated[
            float | None,
            arg("Time limit for measuring in seconds [30]; at least six launches are made.", gt=0, le=3600),
        ] = None,
        precision: Annotated[
            float | None,
            arg("Stop once every speedup is known to plus or minus this share [0.005].", gt=0, lt=1),
        ] = None,
        ladder: Annotated[
            bool, arg("Switch CPU features off one after the other, to see what each gains.")
        ] = False,
        sample: Annotated[
            bool, arg("Also sample which kernels run inside each operator; the report shows them.")
        ] = False,
        resume: Annotated[
            bool, arg("Continue a run that was cancelled or interrupted; give the same other arguments.")
        ] = False,
        out_dir: OutDir = None,
        time_limit_s: TimeLimit = 3600,
    ) -> ProfileAnswer:
        """Measure a model: latency, where the time goes, and SME2 on and off if the CPU has it;
        otherwise a baseline, and emulation shows which SME2 kernels run. Exports first if needed. Takes
        about a minute (budget_s), longer under emulation; one job at a time. Do not use the machine for
        anything else meanwhile. An earlier finished run is kept under its date. Then call `summary`."""
        word = self.root.model(model)
        options = {
            "--target": self.target(target, device),
            **self._exporting(dtype, keep, calibration),
            "--backend": backend,
            "--threads": ",".join(map(str, threads)),
            "--budget": budget_s,
            "--precision": precision,
            "--ladder": ladder,
            "--sample": sample,
            "--resume": resume,
            "--outdir": self.root.outputs(word, out_dir),
        }
        facts, failed = await self._run(client, ["profile", word, *_words(options)], time_limit_s)
        several: Json | None = facts.get("side_by_side")
        profiles: list[Json] = list(facts["profiles"].values()) if several else [facts]
        runs = [self._made(run) for found in profiles for run in found["runs"]]
        return answer(
            ProfileAnswer,
            programs=[self.root.shown(found["program"]) for found in profiles],
            why_here=list(dict.fromkeys(found["targets"] for found in profiles)),
            runs=runs,
            dtypes_verdict=several["verdict"] if several else None,
            failed=failed,
            warnings=dict.fromkeys(line for found in profiles for line in found["warnings"]),
            next=f"`summary` of {runs[0]['run']}, then `top_operators` and `advice`"
            if runs
            else "nothing was measured: see `failed`",
        )

    def _exporting(
        self, dtype: str | None, keep: tuple[str, ...], calibration: str | None
    ) -> dict[str, object]:
        """Options of both commands; files that they name are inside the root, because their code runs."""
        if dtype is not None and dtype != "all":
            formats = [parse_format(word.strip()) for word in dtype.split(",")]
            dtype = ",".join(
                self.root.factory(each.text) if each.kind == "own" else each.text for each in formats
            )
        if calibration is not None:
            calibration = (
                self.root.word(self.root.file(calibration, ".npz"))
                if calibration.endswith(".npz")
                else self.root.factory(calibration)
            )
        kept = [f"{module}=fp32" for module in keep]
        return {"--dtype": dtype, "--keep": kept, "--calibrate": calibration}

    def target(self, kind: TargetKind, device: str | None) -> str:
        if kind not in ("android", "ssh"):
            if device is not None:
                raise InputError(f"target {kind} takes no device", "leave `device` out")
            return kind
        if kind == "ssh" and device not in self.ssh_hosts:
            allowed = ", ".join(self.ssh_hosts) or "none"
            raise InputError(
                f"ssh is allowed only to these hosts: {allowed}",
                "give one of them as `device`, or ask the user to start the server with --ssh HOST",
            )
        return f"{kind}:{device}" if device else kind

    async def _run(self, client: Client, words: list[str], time_limit_s: float) -> Outcome:
        async def tell(seconds: float, text: str) -> None:
            await client.report_progress(round(seconds, 3), None, printable(text))

        return await self.jobs.run(words, time_limit_s=time_limit_s, told=tell)

    def _made(self, run: Json) -> dict[str, Any]:
        places = {"run": run["run_dir"], "report": run["report"]}
        return {**run, **{name: self.root.shown(place) for name, place in places.items()}}


def _words(options: Mapping[str, object]) -> list[str]:
    """The given options as words: a flag alone, any other option with its value or each of its values."""
    words: list[str] = []
    for option, value in options.items():
        if value is True:
            words.append(option)
        elif value is not None and value is not False:
            for each in value if isinstance(value, list) else [value]:
                words += [option, str(each)]
    return words


def _outside(group: Json) -> Json:
    named = ", ".join(f"{count} x {operator}" for operator, count in group["operators"])
    where = [*group["sources"][:5], *group["modules"][:5]]
    return {**group, "what": f"{named}: {group['reason']}", "where": where}


Told = Callable[[float, str], Awaitable[None]]
"""Receives progress: seconds since the job began, and what it is doing."""
Outcome = tuple[dict[str, Any], list[str]]
"""The facts of a command, and the errors it reported besides."""

_KIT = Path(__file__).resolve().parents[2]
# Not `python -m`: that would import any file in the root that has the name of a library.
_START = (
    "import sys; sys.path[:] = [place for place in sys.path if place] + [sys.argv.pop(1)]; "
    "from model_profiling.cli.main import main; sys.exit(main())"
)
_SILENCE_S = 4.0
_TO_END_S = 30.0
"""How long a job may take to end in order; in that time it restores a phone's settings."""
_KEPT_LINES = 40
_LONGEST_LINE = 1 << 16
_MOST_OUTPUT = 64 << 20
_LAST_WORDS_S = 2.0
_LOOK_EVERY_S = 0.05


@dataclass
class Jobs:
    """The one job that may run; it counts as running until all of it has ended, even if cancelled."""

    folder: Path
    running: str = ""
    _since: float = 0.0

    async def run(self, words: Sequence[str], *, time_limit_s: float, told: Told) -> Outcome:
        """Run `sme2prof` with `words` in the folder; cancelling ends the command in order."""
        if self.running:
            spent = time.monotonic() - self._since
            raise InputError(
                (
                    f"`{self.running}` has been running for {spent:.0f} s, and two jobs at once would "
                    "disturb each other"
                ),
                (
                    "wait for its answer or cancel it, then call this again; tools that only read work "
                    "meanwhile"
                ),
            )
        self.running, self._since = f"sme2prof {' '.join(words)}", time.monotonic()
        try:
            return await _Job(words, self.folder, told, self._since).run(time_limit_s)
        finally:
            self.running = ""


@dataclass
class _Job:
    words: Sequence[str]
    folder: Path
    told: Told
    began: float
    stage: str = "starting"
    heard: float = field(default_factory=time.monotonic)
    output: bytearray = field(default_factory=bytearray)
    said: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT_LINES))

    async def run(self, time_limit_s: float) -> Outcome:
        mark = new_mark()
        child = await anyio.open_process(
            [sys.executable, "-c", _START, str(_KIT), *self.words, "--json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=marked({**os.environ, "SME2PROF_PROGRESS": "json"}, mark),
            start_new_session=True,
        )
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
                f"the job was stopped at its time limit of {time_limit_s:g} s, while it was {self.stage}",
                "call it again with a larger time_limit_s; `profile` with resume=true continues from there",
            )
        return self._outcome(child.returncode or 0)

    def _outcome(self, code: int) -> Outcome:
        errors = [line.removeprefix("error: ") for line in self.said if line.startswith("error: ")]
        with suppress(ValueError):
            return json.loads(self.output), errors
        said = " ".join(errors or list(self.said)[-3:])
        if "--" in said:
            as_here = "options in this message are arguments here if this tool has them"
            raise InputError(said, f"{as_here}; only the user can give others")
        raise RunError(said or f"the command ended with {code} and no message")

    async def _follow(self, child: anyio.abc.Process) -> None:
        assert child.stdout is not None and child.stderr is not None
        async with anyio.create_task_group() as readers:
            readers.start_soon(self._keep, child.stdout)
            readers.start_soon(self._listen, child.stderr)
            await _ended(child)
            # Other processes may hold the inherited pipes open; all that the command wrote is already there.
            readers.cancel_scope.deadline = anyio.current_time() + _LAST_WORDS_S

    async def _keep(self, stdout: anyio.abc.ByteReceiveStream) -> None:
        async for chunk in stdout:
            self.output += chunk[: _MOST_OUTPUT - len(self.output)]

    async def _listen(self, stderr: anyio.abc.ByteReceiveStream) -> None:
        """Pass on progress; keep every other line and copy it to the server's log."""
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
                log(line)
            return
        before, self.stage = self.stage, step
        if before != step:
            await self._tell(step)

    async def _stay_heard(self) -> None:
        """Repeat the stage after a few silent seconds, so that no client takes the job for dead."""
        while True:
            await anyio.sleep(1.0)
            if time.monotonic() - self.heard >= _SILENCE_S:
                await self._tell(self.stage)

    async def _tell(self, text: str) -> None:
        self.heard = time.monotonic()
        await self.told(self.heard - self.began, text)


async def _end(child: anyio.abc.Process, mark: str) -> None:
    """End a running child as by Ctrl-C; if that fails, kill it and what it measures."""
    if child.returncode is None:
        with suppress(ProcessLookupError):
            child.terminate()
        with anyio.move_on_after(_TO_END_S):
            await _ended(child)
    if child.returncode is None:
        await anyio.to_thread.run_sync(end_all, child.pid, mark)
        with suppress(ProcessLookupError):
            child.kill()  # if end_all could not kill it
        await _ended(child)
    with anyio.move_on_after(_LAST_WORDS_S):
        await child.aclose()


async def _ended(child: anyio.abc.Process) -> None:
    """Not `wait()`: that also waits for other processes that hold the pipes open."""
    while child.returncode is None:
        await anyio.sleep(_LOOK_EVERY_S)


def log(text: str) -> None:
    """Write to stderr, where clients keep it."""
    say_aside(printable(text.rstrip()))


def _step(line: str) -> str | None:
    """`measuring 3/12: text` for a line of progress, None for any other."""
    try:
        step = json.loads(line)
        stage = step["stage"]
    except (ValueError, TypeError, KeyError):
        return None
    amount = f" {step['done']}/{step['total']}" if "done" in step else ""
    text = step.get("text")
    return f"{stage}{amount}: {text}" if text else f"{stage}{amount}"
