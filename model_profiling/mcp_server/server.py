"""The server itself: tools, resources and prompts on the official SDK, over stdin and stdout.

The only module here that loads the SDK. Whatever goes wrong becomes an answer that says what is wrong, what
to do and which tool to call next; tracebacks go to the log, which is stderr.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ValidationError

from model_profiling._version import __version__
from model_profiling.core.errors import InputError, ProfilingError
from model_profiling.core.formatting import did_you_mean, listing, printable, size
from model_profiling.core.safe_read import is_regular, read_text
from model_profiling.core.stdio import say_aside
from model_profiling.mcp_server.confinement import Root, rounded
from model_profiling.mcp_server.jobs import Jobs, Workshop
from model_profiling.mcp_server.tools import TOOLS, Tool
from model_profiling.run import names

# Questions worth a recipe: which tools to call in which order, and what may be claimed from them.

_HONEST = (
    "Quote times with their unit and speedups with their interval. Call a projection a projection. Say that "
    "SME2 ran only where kernel evidence proves it, and name what was not tested."
)


@dataclass(frozen=True, slots=True)
class Prompt:
    name: str
    title: str
    description: str
    arguments: Mapping[str, str]
    """Each with its description; all are required."""
    text: str

    def filled(self, given: Mapping[str, str]) -> str:
        missing = [name for name in self.arguments if not given.get(name)]
        if missing:
            raise InputError(f"{self.name} lacks {', '.join(missing)}", "give every argument")
        return f"{self.text.format(**given)} {_HONEST}"


PROMPTS = (
    Prompt(
        "where_does_the_time_go",
        "Where does the time go?",
        "Explain a run: the largest parts, the operators behind them, what to change.",
        {"run": "Run directory relative to the root"},
        "Explain the run {run}. Call `summary`, then `top_operators` with limit 10, then `advice`. Say in a "
        "few sentences where the time goes, which source lines make the longest operators, and what to "
        "change first with the most it could save.",
    ),
    Prompt(
        "what_would_sme2_bring",
        "What does SME2 bring?",
        "Profile a model and say what SME2 changes, or could change.",
        {"model": "A name from `models`, path/file.py:factory or path/program.pte"},
        "Find out what SME2 brings to {model}. Call `doctor`, then `profile` with dtype fp16 (no dtype for "
        "a .pte), then `summary`, `kernel_evidence` and `headroom` of its run. Say what was measured, what "
        "was proven by kernels, what is projected, and what becomes the bottleneck afterwards.",
    ),
    Prompt(
        "what_changed",
        "What changed between two runs?",
        "Compare two runs and explain the difference.",
        {"before": "Run directory before the change", "after": "Run directory after it"},
        "Compare {before} with {after}: call `compare`, and where something is slower `advice` of {after}. "
        "Say whether the change is beyond chance, which categories and operators moved, and what else "
        "differs.",
    ),
)


def prompt_named(name: str) -> Prompt:
    found = {prompt.name: prompt for prompt in PROMPTS}
    if name not in found:
        raise InputError(f"there is no prompt '{name}'", did_you_mean(name, found) or ", ".join(found))
    return found[name]


# The files of runs that an assistant may read whole: the report, its facts, the kernels.

SCHEME = "sme2prof://run/"
FILES = {
    names.REPORT: ("text/markdown", "The report of the run, for people"),
    names.ANALYSIS: ("application/json", "Every fact of the run's analysis; large"),
    names.KERNEL_VIEW: ("text/markdown", "Which kernels ran with SME2 on and off"),
}
_MOST_BYTES = 1_000_000
_MOST_RUNS = 50


@dataclass(frozen=True, slots=True)
class RunFile:
    uri: str
    name: str
    description: str
    mime_type: str
    path: Path

    @property
    def bytes(self) -> int:
        return self.path.stat().st_size


def run_files(root: Root) -> list[RunFile]:
    """Those of the latest runs."""
    found = []
    for run_dir in root.listing(".")[:_MOST_RUNS]:
        run = root.shown(run_dir)
        for name, (mime_type, description) in FILES.items():
            if is_regular(run_dir / name):
                uri = f"{SCHEME}{quote(f'{run}/{name}')}"
                found.append(RunFile(uri, f"{run}/{name}", description, mime_type, run_dir / name))
    return found


def read_run_file(root: Root, uri: str) -> tuple[str, str]:
    """The text and its kind."""
    if not uri.startswith(SCHEME):
        raise InputError(f"{uri} is no file of a run", f"resources are called {SCHEME}RUN/{names.REPORT}")
    run, _, name = unquote(uri.removeprefix(SCHEME)).rpartition("/")
    if name not in FILES:
        raise InputError(f"{name} is not offered", f"read {listing(FILES)} of a run")
    path = root.place(f"{root.run_dir(run or '.')}/{name}")
    if not is_regular(path):
        raise InputError(f"{root.shown(path)} is no file", "`runs` lists the runs there are")
    if (found := path.stat().st_size) > _MOST_BYTES:
        raise InputError(
            f"{name} has {size(found)}, too much to read whole",
            "`summary`, `top_operators` and `advice` answer from the same facts",
        )
    return read_text(path, _MOST_BYTES), FILES[name][0]


Context = ServerRequestContext[Any, Any]

_INSTRUCTIONS = (
    "Profiles ExecuTorch models on Arm CPUs: where the time goes, what SME2 changes, what to do next. Begin "
    "with `doctor`. `runs` lists what was measured; `profile` measures anew (a minute or more; let nothing "
    "else run meanwhile). Then `summary`, and from there `top_operators`, `kernel_evidence`, `headroom`, "
    "`advice`, `compare`. Stores of many runs answer `query_store` and `history`. All paths are "
    "relative to the root {root}. Times are milliseconds of one inference; only times of hardware are "
    "latencies; a projection is no measurement; claim SME2 only where kernel evidence proves it."
)


@dataclass(frozen=True, slots=True)
class Service:
    """What answers one client."""

    workshop: Workshop
    tools: dict[str, Tool]

    @property
    def root(self) -> Root:
        return self.workshop.root

    def server(self) -> Server[Any]:
        return Server(
            "sme2prof",
            version=__version__,
            title="SME2 ExecuTorch Profiling Kit",
            instructions=_INSTRUCTIONS.format(root=self.root.folder),
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
        )

    async def _list_tools(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        del context, params
        return types.ListToolsResult(tools=[_described(tool) for tool in self.tools.values()])

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        tool = self.tools.get(params.name)
        try:
            if tool is None:
                hint = did_you_mean(params.name, self.tools) or f"there are {', '.join(self.tools)}"
                raise InputError(f"there is no tool '{params.name}' here", hint)
            asked = _asked(tool, params.arguments or {})
        except InputError as problem:
            return _refused(str(problem))
        try:
            return _answered(await self._done(tool, asked, context))
        except ProfilingError as problem:
            # Who asked wrongly asks again; only of the names of runs another tool knows more.
            asked_wrongly = isinstance(problem, InputError) and not tool.read_only
            return _refused(str(problem), "" if asked_wrongly else tool.on_error)
        except Exception as problem:  # noqa: BLE001  a defect of ours is an answer, too; its traceback is logged
            log("".join(traceback.format_exception(problem)))
            kind = type(problem).__name__
            return _refused(f"unexpected {kind}: {problem}; tell the user: it is a defect of the kit")

    async def _done(self, tool: Tool, asked: BaseModel, context: Context) -> BaseModel:
        if tool.do is not None:
            return await tool.do(self.workshop, asked, functools.partial(_tell, context))
        assert tool.read is not None
        # In a thread: reading a large run must not keep a job's progress or a cancellation waiting.
        answer: BaseModel = await _in_thread(functools.partial(tool.read, self.root, asked))
        return answer

    async def _list_resources(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        del context, params
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=found.uri,
                    name=found.name,
                    description=found.description,
                    mime_type=found.mime_type,
                    size=found.bytes,
                )
                for found in await _in_thread(functools.partial(run_files, self.root))
            ]
        )

    async def _list_templates(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        del context, params
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template=f"{SCHEME}{{+run}}/{name}", name=name, description=about, mime_type=kind
                )
                for name, (kind, about) in FILES.items()
            ]
        )

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        del context
        uri = str(params.uri)
        try:
            text, kind = await _in_thread(functools.partial(read_run_file, self.root, uri))
        except ProfilingError as problem:
            raise MCPError(code=types.INVALID_PARAMS, message=str(problem), data={"uri": uri}) from problem
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=uri, text=text, mime_type=kind)]
        )

    async def _list_prompts(
        self, context: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListPromptsResult:
        del context, params
        return types.ListPromptsResult(
            prompts=[
                types.Prompt(
                    name=prompt.name,
                    title=prompt.title,
                    description=prompt.description,
                    arguments=[
                        types.PromptArgument(name=name, description=about, required=True)
                        for name, about in prompt.arguments.items()
                    ],
                )
                for prompt in PROMPTS
            ]
        )

    async def _get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        del context
        try:
            prompt = prompt_named(params.name)
            text = prompt.filled(params.arguments or {})
        except InputError as problem:
            raise MCPError(code=types.INVALID_PARAMS, message=str(problem)) from problem
        message = types.PromptMessage(role="user", content=types.TextContent(text=text))
        return types.GetPromptResult(description=prompt.description, messages=[message])


def serve(root: Root, *, read_only: bool = False, ssh_hosts: Sequence[str] = ()) -> None:
    """Answer one client on stdin and stdout until it hangs up."""
    os.chdir(root.folder)  # what a run's files name is meant from here, as on the command line
    anyio.run(_serve, make_server(root, read_only=read_only, ssh_hosts=ssh_hosts))


def make_server(root: Root, *, read_only: bool = False, ssh_hosts: Sequence[str] = ()) -> Server[Any]:
    offered = {tool.name: tool for tool in TOOLS if tool.read_only or not read_only}
    workshop = Workshop(root, Jobs(root.folder, log), tuple(ssh_hosts))
    return Service(workshop, offered).server()


async def _serve(server: Server[Any]) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_leave_when_told)
        # While it serves, the process's own stdout is stderr: whatever prints does not reach the client.
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def _leave_when_told() -> None:
    """At once: the thread that waits for stdin would hold up an orderly end. A running job sees by its own
    stdin that nobody waits for it, and ends in order."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for number in signals:
            os._exit(128 + number)


def log(text: str) -> None:
    """To stderr, where clients keep it."""
    say_aside(printable(text.rstrip()))


async def _in_thread(call: Callable[[], Any]) -> Any:
    return await anyio.to_thread.run_sync(call, abandon_on_cancel=True)


async def _tell(context: Context, seconds: float, text: str) -> None:
    await context.session.report_progress(round(seconds, 3), None, printable(text))


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=tool.read_only,
            destructive_hint=not tool.read_only,
            idempotent_hint=tool.name != "profile",
            open_world_hint=not tool.read_only,  # example models and emulators may be fetched
        ),
    )


def _asked(tool: Tool, given: dict[str, Any]) -> BaseModel:
    try:
        return tool.question.model_validate(given)
    except ValidationError as problem:
        known = list(tool.question.model_fields)
        said = "; ".join(_wrong(tool, error) for error in problem.errors()[:5])
        taken = f"{tool.name} takes {', '.join(known)}" if known else f"{tool.name} takes no arguments"
        raise InputError(said, taken) from problem


def _wrong(tool: Tool, error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"] if not str(part).startswith(("literal", "list[")))
    if error["type"] == "extra_forbidden":
        hint = did_you_mean(where, tool.question.model_fields)
        return f"there is no argument '{where}'{f', {hint}' if hint else ''}"
    if error["type"] == "missing":
        return f"'{where}' is missing"
    return f"'{where}' cannot be {json.dumps(error['input'], default=str)[:80]}: {error['msg'].lower()}"


def _answered(answer: BaseModel) -> types.CallToolResult:
    """Structured, and the same as text for clients that know no structure."""
    content = rounded(answer.model_dump(mode="json"))
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=content)


def _refused(said: str, next_tool: str = "") -> types.CallToolResult:
    said = printable(" ".join(said.split()))
    after = f" Next: {next_tool}." if next_tool and "tool `" not in said else ""
    text = f"error: {said}{'' if said.endswith(('.', '?')) else '.'}{after}"
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
