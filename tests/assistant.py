"""The official SDK's own client, talking to `sme2prof mcp` in a real process, called from ordinary tests."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
from anyio.from_thread import BlockingPortal, start_blocking_portal
from conftest import ROOT
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult

Json = dict[str, Any]


@dataclass
class Assistant:
    """A connected client."""

    portal: BlockingPortal
    client: Client
    schemas: dict[str, Json] = field(default_factory=dict)

    def ask(self, tool: str, **arguments: object) -> Json:
        """The structured answer, checked against the schema that the server published for it."""
        return self.answer(tool, self._call(tool, arguments))

    def facts(self, tool: str, **arguments: object) -> Json:
        """What the command printed, as far as the tool shows it."""
        answer = self.ask(tool, **arguments)
        assert answer["state"] == "done", answer
        facts = answer["answer"]
        assert isinstance(facts, dict)
        return facts

    def answer(self, tool: str, result: CallToolResult) -> Json:
        (block,) = result.content
        assert block.type == "text"
        assert not result.is_error, block.text
        content = result.structured_content
        jsonschema.validate(content, self.schemas[tool])
        assert json.loads(block.text) == content
        assert isinstance(content, dict)
        return content

    def refused(self, tool: str, **arguments: object) -> str:
        """The words of an answer that is an error."""
        found = self._call(tool, arguments)
        (block,) = found.content
        assert block.type == "text"
        assert found.is_error, block.text
        assert block.text.startswith("error: ")
        assert "Traceback" not in block.text
        assert "\n" not in block.text
        return block.text

    def begin(self, tool: str, arguments: Json, progress: list[str]) -> Future[CallToolResult]:
        """A call that goes on by itself: its `progress` grows, cancelling it tells the server."""

        async def heard(done: float, total: float | None, message: str | None) -> None:
            del done, total
            progress.append(message or "")

        return self.portal.start_task_soon(
            functools.partial(self.client.call_tool, tool, arguments, progress_callback=heard)
        )

    def _call(self, tool: str, arguments: Json) -> CallToolResult:
        return self.portal.call(self.client.call_tool, tool, arguments)


@contextlib.contextmanager
def assistant(root: Path, *words: str) -> Iterator[Assistant]:
    """Connected to a server of its own for `root`."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "model_profiling", "mcp", "--root", str(root), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    stray: list[Exception] = []

    async def noted(message: object) -> None:
        if isinstance(message, Exception):
            stray.append(message)

    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(server, message_handler=noted)) as client,
    ):
        listed = portal.call(client.list_tools).tools
        yield Assistant(portal, client, {tool.name: tool.output_schema or {} for tool in listed})
    assert stray == [], "something other than the protocol was on stdout"
