"""The server: tools, resources and prompts on the official SDK, over stdin and stdout. A failure becomes an
answer that says what is wrong, what to do and which tool to call; tracebacks go to stderr."""

from __future__ import annotations

import json
import os
import signal
import traceback
from collections.abc import Callable, Sequence
from typing import Annotated, Any
from urllib.parse import quote

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceNotFoundError, ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.shared.exceptions import MCPError
from pydantic import Field, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from model_profiling._version import __version__
from model_profiling.core.errors import InputError, ProfilingError
from model_profiling.core.formatting import did_you_mean, printable, size
from model_profiling.core.safe_read import is_regular, read_text
from model_profiling.mcp_server.confinement import Root
from model_profiling.mcp_server.job_tools import JobTools
from model_profiling.mcp_server.jobs import Jobs, log
from model_profiling.mcp_server.store_tools import StoreTools
from model_profiling.mcp_server.tools import About, MachineTools, RunTools
from model_profiling.run import names

_INSTRUCTIONS = (
    "Profiles ExecuTorch models on Arm CPUs: where the time goes, what SME2 changes, what to do next. "
    "Begin with `doctor`. `runs` lists what was measured; `profile` measures again (a minute or more; run "
    "nothing else meanwhile). Then `summary`, and from there `top_operators`, `kernel_evidence`, "
    "`headroom`, `advice`, `compare`. For language models: `profile_llm`, later `llm_summary`. "
    "`query_store` and `history` read stores of many runs. All paths are relative to the root {root}. Times "
    "are milliseconds of one inference; only times of hardware are latencies; a projection is not a "
    "measurement; claim SME2 only if kernel evidence proves it."
)
_FILES = {
    names.REPORT: ("text/markdown", "The report of the run, for people"),
    names.ANALYSIS: ("application/json", "Every fact of the run's analysis; large"),
    names.KERNEL_VIEW: ("text/markdown", "Which kernels ran with SME2 on and off"),
}
"""The files of a run that an assistant may read whole."""
_PLACE = "sme2prof://run/"
_MOST_BYTES = 1_000_000
_MOST_RUNS = 50


class KitServer(MCPServer[Any]):
    def __init__(self, root: Root, *, read_only: bool = False, ssh_hosts: Sequence[str] = ()) -> None:
        jobs = JobTools(root, Jobs(root.folder), tuple(ssh_hosts))
        groups = (MachineTools(root), jobs, RunTools(root), StoreTools(root))
        methods = [getattr(group, name) for group in groups for name in vars(type(group))]
        self._about: dict[str, About] = {
            method.__name__: method.about
            for method in methods
            if hasattr(method, "about") and (method.about.read_only or not read_only)
        }
        tools = [_described(method) for method in methods if getattr(method, "__name__", "") in self._about]
        super().__init__(
            "sme2prof",
            version=__version__,
            title="SME2 ExecuTorch Profiling Kit",
            instructions=_INSTRUCTIONS.format(root=root.folder),
            tools=tools,
            log_level="WARNING",
        )
        self._root = root
        self._arguments = {made.name: made.fn_metadata.arg_model for made in tools}
        for name, (kind, about) in _FILES.items():
            uri = f"{_PLACE}{{+run}}/{name}"
            self.resource(uri, name=name, description=about, mime_type=kind)(_reader(root, name))
        for title, prompt in _PROMPTS.items():
            self.prompt(title=title)(prompt)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> types.CallToolResult:
        """The answer, structured and as text for clients that cannot read structure; or what is wrong."""
        try:
            found = await super().call_tool(name, arguments, context)
        except ToolError as failure:
            return _refused(self._wrong(name, failure.__cause__))
        assert isinstance(found, types.CallToolResult)
        content = _rounded(found.structured_content)
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        return types.CallToolResult(content=[types.TextContent(text=text)], structured_content=content)

    def _wrong(self, name: str, problem: BaseException | None) -> str:
        about = self._about.get(name)
        if about is None:
            hint = did_you_mean(name, self._about) or f"there are {', '.join(self._about)}"
            return f"there is no tool '{name}'; {hint}"
        if isinstance(problem, ValidationError) and problem.title == self._arguments[name].__name__:
            known = list(self._arguments[name].model_fields)
            said = "; ".join(_wrong_argument(known, error) for error in problem.errors()[:5])
            return f"{said}; {name} takes {', '.join(known) or 'no arguments'}"
        if isinstance(problem, ProfilingError):
            said = str(problem)
            # A wrong argument needs no other tool, except for names of runs, which another tool lists.
            asked_wrongly = isinstance(problem, InputError) and not about.read_only
            known_already = asked_wrongly or not about.on_error or "tool `" in said
            return said if known_already else f"{_ended(said)} Next: {about.on_error}"
        log("".join(traceback.format_exception(problem)))
        return f"unexpected {type(problem).__name__}: {problem}; tell the user that this is a bug of the kit"

    async def get_prompt(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        context: Context[Any, Any] | None = None,
    ) -> types.GetPromptResult | types.InputRequiredResult:
        try:
            return await super().get_prompt(name, arguments, context)
        except ValueError as problem:
            raise MCPError(code=types.INVALID_PARAMS, message=str(problem)) from problem

    async def list_resources(self) -> list[types.Resource]:
        return await anyio.to_thread.run_sync(self._run_files)

    def _run_files(self) -> list[types.Resource]:
        paths = (run / name for run in self._root.listing(".")[:_MOST_RUNS] for name in _FILES)
        return [
            types.Resource(
                uri=f"{_PLACE}{quote(self._root.shown(path))}",
                name=self._root.shown(path),
                description=_FILES[path.name][1],
                mime_type=_FILES[path.name][0],
                size=path.stat().st_size,
            )
            for path in paths
            if is_regular(path)
        ]


def serve(root: Root, *, read_only: bool = False, ssh_hosts: Sequence[str] = ()) -> None:
    """Answer one client on stdin and stdout until it disconnects."""
    os.chdir(root.folder)  # relative paths in a run's files start here, as on the command line
    anyio.run(_serve, KitServer(root, read_only=read_only, ssh_hosts=ssh_hosts))


async def _serve(server: KitServer) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_leave_when_told)
        # While it serves, the process's stdout is redirected to stderr, so that no print reaches the client.
        await server.run_stdio_async()
        tasks.cancel_scope.cancel()


async def _leave_when_told() -> None:
    """Exit at once: the thread that waits for stdin would delay an orderly end. A running job sees its own
    stdin end, and ends in order."""
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async for number in signals:
            os._exit(128 + number)


class _Lean(GenerateJsonSchema):
    """No titles that repeat field names: a model reads the whole schema."""

    def field_title_should_be_set(self, schema: object) -> bool:
        del schema
        return False


def _described(method: Any) -> Tool:
    about: About = method.about
    made = Tool.from_function(
        method,
        title=about.title,
        description=" ".join(method.__doc__.split()),
        annotations=types.ToolAnnotations(
            title=about.title,
            read_only_hint=about.read_only,
            destructive_hint=not about.read_only,
            idempotent_hint=about.read_only or method.__name__ == "export",
            open_world_hint=not about.read_only,  # example models and emulators may be fetched
        ),
    )
    facts = made.fn_metadata
    # Refuse unknown arguments: a misspelt one must not be dropped.
    facts.arg_model = type(
        facts.arg_model.__name__, (facts.arg_model,), {"model_config": {"extra": "forbid"}}
    )
    made.parameters = facts.arg_model.model_json_schema(schema_generator=_Lean)
    answer = TypeAdapter(facts.output_model)
    facts.output_schema = answer.json_schema(schema_generator=_Lean, mode="serialization")
    return made


def _reader(root: Root, name: str) -> Any:
    def read(run: str) -> str:
        try:
            path = root.place(f"{root.run_dir(run)}/{name}")
            if not is_regular(path):
                raise InputError(f"{root.shown(path)} is not a file", "`runs` lists the runs")
            if (found := path.stat().st_size) > _MOST_BYTES:
                raise InputError(
                    f"{name} has {size(found)}, which is too large to read at once",
                    "`summary`, `top_operators` and `advice` answer from the same facts",
                )
            return read_text(path, _MOST_BYTES)
        except ProfilingError as problem:
            raise ResourceNotFoundError(str(problem)) from problem

    return read


def _wrong_argument(known: list[str], error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"] if not str(part).startswith(("literal", "tuple[")))
    if error["type"] == "extra_forbidden":
        hint = did_you_mean(where, known)
        return f"there is no argument '{where}'{f', {hint}' if hint else ''}"
    if error["type"] == "missing":
        return f"'{where}' is missing"
    return f"'{where}' cannot be {json.dumps(error['input'], default=str)[:80]}: {error['msg'].lower()}"


def _refused(said: str) -> types.CallToolResult:
    text = f"error: {_ended(printable(' '.join(said.split())))}"
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "?")) else f"{sentence}."


def _rounded(value: Any) -> Any:
    """Round every float inside `value` to six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(inside) for key, inside in value.items()}
    return [_rounded(inside) for inside in value] if isinstance(value, list) else value


# Prompts: which tools to call in which order, and what may be claimed from the answers.

_HONEST = (
    "Quote times with their unit and speedups with their interval. Call a projection a projection. Say "
    "that SME2 ran only if kernel evidence proves it, and say what was not tested."
)


def where_does_the_time_go(
    run: Annotated[str, Field(description="Run directory relative to the root")],
) -> str:
    """Explain a run: the largest parts, the operators behind them, what to change."""
    return (
        f"Explain the run {run}. Call `summary`, then `top_operators` with limit 10, then `advice`. Say in "
        "a few sentences where the time goes, which source lines create the longest operators, what to "
        f"change first, and how much that could save at most. {_HONEST}"
    )


def what_would_sme2_bring(
    model: Annotated[
        str, Field(description="A name from `models`, path/file.py:factory or path/program.pte")
    ],
) -> str:
    """Profile a model and say what SME2 changes, or could change."""
    return (
        f"Find out what SME2 changes for {model}. Call `doctor`, then `profile` with dtype fp16 (no dtype "
        "for a .pte), then `summary`, `kernel_evidence` and `headroom` of its run. Say what was measured, "
        f"what the kernels prove, what is projected, and what the bottleneck is then. {_HONEST}"
    )


def what_changed(
    before: Annotated[str, Field(description="Run directory before the change")],
    after: Annotated[str, Field(description="Run directory after it")],
) -> str:
    """Compare two runs and explain the difference."""
    return (
        f"Compare {before} with {after}: call `compare`, and if something is slower, `advice` of {after}. "
        "Say whether the change is significant, which categories and operators changed, and what else "
        f"differs. {_HONEST}"
    )


_PROMPTS: dict[str, Callable[..., str]] = {
    "Where does the time go?": where_does_the_time_go,
    "What does SME2 change?": what_would_sme2_bring,
    "What changed between two runs?": what_changed,
}
