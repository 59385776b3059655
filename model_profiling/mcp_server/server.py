"""The server: the commands of the table as tools on the official SDK, over stdin and stdout. An answer is the
command's own JSON, selected and cut to a size that a model can read; it says what was cut."""

from __future__ import annotations

import json
import os
import signal
import time
from inspect import cleandoc
from typing import Any

import anyio
import anyio.to_thread
import click
import mcp_types as types
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from pydantic import BaseModel, Field

from model_profiling._version import __version__
from model_profiling.core.errors import InputError, ProfilingError, RunError
from model_profiling.core.formatting import did_you_mean, printable
from model_profiling.mcp_server.commands import JOBS, READING, Json, Root, Tool, schema_of
from model_profiling.mcp_server.jobs import State, ToolJob, ToolJobs

Client = ServerRequestContext[Any]

_INSTRUCTIONS = (
    "Profiles ExecuTorch models on Arm CPUs: where the time goes, what SME2 changes, what to do next. Each "
    "tool is a command of `sme2prof`; an option in a message, such as --dtype, is the argument dtype. Begin "
    "with `doctor`. `runs` lists what was measured, `profile` measures (a minute or more), `analyze` answers "
    "questions about a run. Paths are relative to the root {root}. Only times of hardware are latencies; a "
    "projection is not a measurement; claim SME2 only if kernel evidence proves it."
)
_LOOK_EVERY_S, _SILENCE_S, _AFTER_SIGNAL_S = 0.05, 4.0, 5.0
_MOST_TEXT, _MOST_CUTS, _SHAPE = 40_000, 20, 8
"""Characters of an answer, lines about what was cut, and items of a list that is never cut."""


class CallOptions(BaseModel):
    """What an assistant may add to every call: how much of the answer it wants, and how long it waits."""

    part: list[str] = Field(default=[], description="Keys to show, such as findings or series.0.operators.")
    sort_by: str = Field(default="", description="Sort lists in `part` by this key, the largest first.")
    first: int = Field(default=0, ge=0, description="Begin lists in `part` at this item, counted from 0.")
    limit: int = Field(default=20, ge=1, le=200, description="The most items of a list.")
    wait_s: float = Field(default=60, ge=0, le=600, description="Then it goes on as a job: see `job_status`.")
    time_limit_s: float = Field(default=3600, gt=0, le=86_400, description="Then it is ended as by Ctrl-C.")


class ToolAnswer(BaseModel):
    job: str = Field(description="Its id: `job_status` gives more of this answer.")
    state: State
    command: str
    stage: str = Field(description="What it does, or did last.")
    seconds: float
    exit_code: int | None = Field(description="0: done; 1: the answer is no; 2: a part of it failed.")
    messages: list[str] = Field(description="Warnings and errors.")
    answer: Json = Field(default={}, description="The facts that the command printed.")
    cut: list[str] = Field(default=[], description="Lists that are not shown whole.")
    other_parts: list[str] = Field(default=[], description="Keys that are not shown: ask with `part`.")


def _as_tool(name: str, about: str, arguments: Json, required: list[str], *, changes: bool) -> types.Tool:
    schema = {"properties": arguments, "required": required, "additionalProperties": False}
    return types.Tool(
        name=name,
        description=about,
        input_schema={"type": "object", **schema},
        output_schema=ToolAnswer.model_json_schema(mode="serialization"),
        annotations=types.ToolAnnotations(read_only_hint=not changes, destructive_hint=changes),
    )


def _described(tool: Tool) -> types.Tool:
    arguments = {name: schema_of(parameter) for name, parameter in tool.parameters.items()}
    required = [name for name, parameter in tool.parameters.items() if parameter.required]
    about = "\n\n".join(filter(None, (cleandoc(tool.command.help or ""), tool.note)))
    return _as_tool(tool.name, about, arguments | _OPTIONS, required, changes=tool in JOBS)


_OPTIONS = CallOptions.model_json_schema()["properties"]
_OF_JOB = {"job": {"type": "string"}, **{name: _OPTIONS[name] for name in _OPTIONS if name != "time_limit_s"}}
_STATUS = "What a job does, or its answer; also other parts of an earlier answer, without asking again."
_CANCEL = "End a job as by Ctrl-C. What was measured is kept; the same call with `resume` continues it."
_JOB_TOOLS = (
    _as_tool("job_status", _STATUS, _OF_JOB, ["job"], changes=False),
    _as_tool("cancel_job", _CANCEL, {"job": _OF_JOB["job"]}, ["job"], changes=True),
)


class KitServer:
    """The tools, and the jobs that they started."""

    def __init__(self, root: Root, program: click.Command, *, read_only: bool = False) -> None:
        self.root, self.jobs = root, ToolJobs(root.folder)
        self._commands = {tool.name: tool.of(program) for tool in (READING if read_only else READING + JOBS)}
        self._tools = {tool.name: tool for tool in (*map(_described, self._commands.values()), *_JOB_TOOLS)}
        self.sdk = Server[Any](
            "sme2prof",
            version=__version__,
            title="SME2 ExecuTorch Profiling Kit",
            instructions=_INSTRUCTIONS.format(root=root.folder),
            on_list_tools=self._list,
            on_call_tool=self._call,
        )

    async def _list(self, _: Client, _page: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(self._tools.values()))

    async def _call(self, client: Client, call: types.CallToolRequestParams) -> types.CallToolResult:
        """The answer, structured and as text for clients that cannot read structure; or what is wrong."""
        try:
            content = (await self._answer(client, call.name, call.arguments or {})).model_dump()
        except ProfilingError as problem:
            text = f"error: {printable(' '.join(str(problem).split()))}"
            return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=content)

    async def _answer(self, client: Client, name: str, arguments: Json) -> ToolAnswer:
        if name not in self._tools:
            hint = did_you_mean(name, self._tools) or f"there are {', '.join(self._tools)}"
            raise InputError(f"there is no tool '{name}'", hint)
        if wrong := list(Draft202012Validator(self._tools[name].input_schema).iter_errors(arguments)):
            problems = "; ".join(f"{error.json_path}: {error.message[:200]}" for error in wrong[:3])
            raise InputError(problems, f"correct the arguments of {name}")
        tool = self._commands.get(name)
        own = {key: value for key, value in arguments.items() if tool and key in tool.parameters}
        options = CallOptions(**{key: value for key, value in arguments.items() if key not in own})
        if tool is None:
            job = self.jobs.get(arguments["job"])
            if name == "cancel_job":
                job.cancel()
            await _follow(client, job, options.wait_s)
            return _answer_of(job, self._commands[job.tool], options)
        words = await anyio.to_thread.run_sync(tool.command_line, own, self.root)
        job = self.jobs.start(name, words, options.time_limit_s, alone=tool in JOBS)
        try:
            await _follow(client, job, options.wait_s)
        except BaseException:  # the client takes its call back, and never learns the id
            job.cancel()
            raise
        return _answer_of(job, tool, options)


async def _follow(client: Client, job: ToolJob, wait_s: float) -> None:
    """Wait for a job, and report each new stage; after silence the same again, as a sign of life."""
    until, reported, stage = time.monotonic() + wait_s, 0.0, ""
    while not job.finished.is_set() and time.monotonic() < until:
        if job.stage != stage or time.monotonic() - reported >= _SILENCE_S:
            reported, stage = time.monotonic(), job.stage
            await client.session.report_progress(round(reported - job.began, 3), None, stage)
        await anyio.sleep(_LOOK_EVERY_S)


def _answer_of(job: ToolJob, tool: Tool, options: CallOptions) -> ToolAnswer:
    """The state of a job, with the parts of its answer that are asked for, or the usual ones."""
    if job.state == "failed":
        errors = [line.removeprefix("error: ") for line in job.messages if line.startswith("error: ")]
        raise RunError(" ".join(errors) or f"{job.tool} ended with {job.child.returncode}: {job.stage}")
    answer = ToolAnswer(
        job=job.id,
        state=job.state,
        command=printable(f"sme2prof {' '.join(job.words)}"),
        stage=job.stage,
        seconds=round(time.monotonic() - job.began, 1),
        exit_code=job.child.returncode,
        messages=list(job.messages),
    )
    if job.state != "done" or (facts := job.facts()) is None:
        return answer
    parts = options.part or [key for key in tool.parts if key in facts] or list(facts)
    chosen = {part: _part(facts, part) for part in parts}
    for part in options.part:
        if isinstance(chosen[part], list):
            chosen[part] = _sorted(chosen[part], options.sort_by)[options.first :]
    content, cut = _bounded(chosen, options.limit)
    others = [key for key in facts if key not in {part.partition(".")[0] for part in parts}]
    return answer.model_copy(update={"answer": content, "cut": cut, "other_parts": others})


def _part(facts: Json, name: str) -> Any:
    value: Any = facts
    for step in name.split("."):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            keys = ", ".join(value) if isinstance(value, dict) else "only numbers of items, if it is a list"
            raise InputError(f"the answer has no part {name}", f"in place of {step} there are: {keys}")
    return value


def _sorted(items: list[Any], key: str) -> list[Any]:
    try:
        return sorted(items, key=lambda item: item[key] or 0, reverse=True) if key else items
    except (LookupError, TypeError) as problem:
        raise InputError(f"the items cannot be sorted by {key}", "give a key with numbers") from problem


def _bounded(content: Json, limit: int) -> tuple[Json, list[str]]:
    """The content with lists of at most `limit` items, or fewer so that it fits; and what was cut."""
    cuts: list[str] = []
    bounded = _cut(content, limit, "", cuts)
    if len(json.dumps(bounded, ensure_ascii=False)) <= _MOST_TEXT:
        more = [f"{len(cuts) - _MOST_CUTS} more lists"] if len(cuts) > _MOST_CUTS else []
        return bounded, cuts[:_MOST_CUTS] + more
    if limit == 0:
        raise InputError("the answer is too large", "ask for fewer or smaller parts with `part`")
    return _bounded(content, limit // 2)


def _cut(value: Any, limit: int, name: str, cuts: list[str]) -> Any:
    if isinstance(value, dict):
        return {key: _cut(inside, limit, f"{name}.{key}".lstrip("."), cuts) for key, inside in value.items()}
    if not isinstance(value, list) or (limit and _is_short(value)):
        return value
    if len(value) > limit:
        cuts.append(f"{name}: {limit} of {len(value)} items")
    return [_cut(item, limit, f"{name}.{number}", cuts) for number, item in enumerate(value[:limit])]


def _is_short(items: list[Any]) -> bool:
    """Whether they are a shape, or the steps of a finding, which mean nothing when cut."""
    return len(items) <= _SHAPE and not any(isinstance(item, dict | list) for item in items)


def serve(root: Root, program: click.Command, *, read_only: bool = False) -> None:
    """Answer one client on stdin and stdout until it disconnects; then end its jobs."""
    anyio.run(_serve, KitServer(root, program, read_only=read_only))


async def _serve(server: KitServer) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_end_on_signal, server.jobs)
        # While it serves, the process's stdout is redirected to stderr, so that no print reaches the client.
        async with stdio_server() as (read, write):
            await server.sdk.run(read, write, server.sdk.create_initialization_options())
        await anyio.to_thread.run_sync(server.jobs.end_all)
        tasks.cancel_scope.cancel()


async def _end_on_signal(jobs: ToolJobs) -> None:
    """Exit soon: the thread that waits for stdin would delay an orderly end."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for number in signals:
            await anyio.to_thread.run_sync(jobs.end_all, _AFTER_SIGNAL_S)
            os._exit(128 + number)
