"""Reads ETRecords (.etrecord): the line of the model for each debug handle.

An ETRecord is a zip. Only its plain JSON members are read; nothing is unpickled, and too large members are
refused.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeAlias, cast

from model_profiling.core.errors import FormatError
from model_profiling.core.safe_read import open_regular, parse_json
from model_profiling.program.records import EtRecord, SourceRef

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_IDENTIFIER = "ETRECORD_V0"
_GRAPH = "edge_dialect_exported_program"
_GRAPH_PARTS = ("_state_dict", "_constants", "_example_inputs")
_HANDLE_MAP = "debug_handle_map"
# For all members together; the largest real record has 3 MB.
_MOST_BYTES = 64 * 2**20
# The most that zipfile may request in one piece, such as the list of members.
_MOST_AT_ONCE = 4 * 2**20
_BLOCK = 2**20
_FIX = "export the model again"
_LONGEST_NUMBER = 20
_LONGEST_NAME = 4096
_LONGEST_CODE = 1000
_QUANTIZING = "quantized_decomposed."

_FRAME = re.compile(r'File "([^"\n]*)", line (\d{1,9}), in [^\n]*(?:\n(?![ \t]*File ")([^\n]*))?')
_TORCH_FILE = re.compile(
    r"(?:site|dist)-packages[/\\](?:torch|torchao|executorch)[/\\]|[/\\]torch[/\\](?:nn|utils|_\w+)[/\\.]"
)

_DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "fp16", 7: "fp32", 8: "fp64", 12: "bool",
    13: "bf16", 28: "uint16", 29: "fp8e4m3fn", 30: "fp8e5m2", 31: "fp8e4m3fnuz", 32: "fp8e5m2fnuz",
}  # fmt: skip


def read_etrecord(source: Path | bytes) -> EtRecord:
    name = "the ETRecord" if isinstance(source, bytes) else str(source)
    stream = io.BytesIO(source) if isinstance(source, bytes) else open_regular(source, follow=True)
    try:
        with stream, zipfile.ZipFile(_SmallSteps(stream)) as archive:
            members = {info.filename: info for info in archive.infolist()}
            if _IDENTIFIER not in members:
                fix = "use the .etrecord that was exported with the program"
                raise FormatError(f"{name} is not an ETRecord", fix)
            graphs = dict(_graph_members(members))
            wanted = [members[member] for member in (*graphs, _HANDLE_MAP) if member in members]
            if sum(info.file_size for info in wanted) > _MOST_BYTES:
                raise FormatError(f"{name} is refused: it is too large when unpacked", _FIX)
            # One at a time: the JSON of a graph takes far more memory than what is kept of it.
            sources, inputs = {}, {}
            for member, method in graphs.items():
                graph = _parse(name, archive, members[member])
                sources[method], inputs[method] = _sources(graph), _inputs(graph)
                del graph
            handles = _parse(name, archive, members[_HANDLE_MAP]) if _HANDLE_MAP in members else {}
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, ValueError) as problem:
        raise FormatError(f"{name} is a damaged ETRecord: {problem}", _FIX) from problem
    only = next(iter(sources), "forward")
    return EtRecord(source=name, sources=sources, handles=_handles(handles, only), inputs=inputs)


class _SmallSteps:
    """A file that is safe from a reader that requests as much as the archive claims to hold."""

    def __init__(self, stream: BinaryIO) -> None:
        self.seek, self.tell, self.seekable = stream.seek, stream.tell, stream.seekable
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        if size > _MOST_AT_ONCE:
            raise zipfile.BadZipFile("it claims to list more members than a record has")
        return self._stream.read(size)


def _parse(name: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Json:
    member_name = info.filename[:200]
    if info.flag_bits & 1 or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise FormatError(f"{name} has a member that exporters do not write: {member_name}", _FIX)
    content = bytearray()
    with archive.open(info) as member:
        # In blocks: a stream that holds more than it claims is not unpacked beyond that.
        while block := member.read(_BLOCK):
            content += block
    return cast("Json", parse_json(content, f"{name}: {member_name}", _FIX, endless=True))


def _graph_members(members: dict[str, zipfile.ZipInfo]) -> Iterator[tuple[str, str]]:
    for member in members:
        if any(member.endswith(part) and member.removesuffix(part) in members for part in _GRAPH_PARTS):
            continue
        if member == _GRAPH:
            yield member, "forward"
        elif member.startswith(_GRAPH + "/"):
            yield member, member.removeprefix(_GRAPH + "/")


def _sources(graph: Json) -> dict[int, SourceRef]:
    """The source of each debug handle. If nodes share a handle the last one counts, but an operator takes
    precedence over its quantizing."""
    body = _table(_table(_table(graph).get("graph_module")).get("graph"))
    tensors = _table(body.get("tensor_values"))
    nodes = [_table(entry) for entry in _list(body.get("nodes"))]
    modules = _modules(nodes)
    sources: dict[int, SourceRef] = {}
    for node, (module_path, module_class) in zip(nodes, modules, strict=True):
        metadata = _table(node.get("metadata"))
        handle = _text(metadata.get("debug_handle"))
        if not handle.isdecimal() or len(handle) > _LONGEST_NUMBER:
            continue
        known = sources.get(int(handle))
        if known is not None and _is_quantizing(node) and not known.target.startswith(_QUANTIZING):
            continue
        file, line, code = source_line(_text(metadata.get("stack_trace")))
        shape, dtype = _output(node, tensors)
        sources[int(handle)] = SourceRef(
            debug_handle=int(handle),
            node=_name(_text(node.get("name"))),
            target=_name(_target(node)),
            module_path=_name(module_path),
            module_class=_name(module_class),
            file=_name(file),
            line=line,
            code=code[:_LONGEST_CODE],
            shape=shape,
            dtype=dtype,
            call=_name(called(_text(metadata.get("torch_fn")))),
        )
    return sources


def _inputs(graph: Json) -> tuple[str, ...]:
    """The names of what a caller gives, in order."""
    signature = _table(_table(_table(graph).get("graph_module")).get("signature"))
    given = (_table(_table(spec).get("user_input")) for spec in _list(signature.get("input_specs")))
    return tuple(
        _name(_text(_table(next(iter(_table(each.get("arg")).values()), None)).get("name")))
        for each in given
        if each
    )


def _name(text: str) -> str:
    if len(text) > _LONGEST_NAME:
        raise ValueError(f"a name is {len(text)} characters long")
    return text


def called(function: str) -> str:
    """`roll` from `builtin_function_or_method.roll`, the form in which traces name a call."""
    return function.rpartition(".")[2].strip("_")


def _modules(nodes: list[dict[str, Json]]) -> list[tuple[str, str]]:
    """Each node's module. A quantizing node has none recorded: it gets the module whose result it converts,
    or else the one it converts for."""
    found = [_module(_text(_table(node.get("metadata")).get("nn_module_stack"))) for node in nodes]
    place = {_text(node.get("name")): index for index, node in enumerate(nodes)}
    producers = [place.get(_first_input(node), -1) for node in nodes]
    orphans = [index for index, node in enumerate(nodes) if _is_quantizing(node) and not found[index][0]]
    for index in orphans:
        if 0 <= producers[index] < index:
            found[index] = found[producers[index]]
    consumers = {producer: index for index, producer in reversed(list(enumerate(producers)))}
    for index in reversed(orphans):
        if found[index] == ("", "") and consumers.get(index, -1) > index:
            found[index] = found[consumers[index]]
    return found


def _target(node: dict[str, Json]) -> str:
    return _text(node.get("target")).removeprefix("executorch.exir.dialects.edge.ops.")


def _is_quantizing(node: dict[str, Json]) -> bool:
    return _target(node).startswith(_QUANTIZING)


def _first_input(node: dict[str, Json]) -> str:
    for argument in _list(node.get("inputs")):
        tensor = _table(_table(_table(argument).get("arg")).get("as_tensor"))
        if tensor:
            return _text(tensor.get("name"))
    return ""


def _module(stack: str) -> tuple[str, str]:
    """Path and class of the innermost module; the stack is `key,path,class` joined by semicolons."""
    innermost = stack.rpartition(";")[2].partition(",")[2]
    path, _, kind = innermost.rpartition(",")
    return path, "" if "<locals>" in kind else kind


def source_line(trace: str) -> tuple[str, int, str]:
    """The innermost frame of the model's own code; empty if torch's frames are the only ones."""
    frames = [(match[1], int(match[2]), (match[3] or "").strip()) for match in _FRAME.finditer(trace)]
    own = [frame for frame in frames if not _TORCH_FILE.search(frame[0])]
    return (own or [("", 0, "")])[-1]


def _output(node: dict[str, Json], tensors: dict[str, Json]) -> tuple[tuple[int, ...], str]:
    first = next(iter(_list(node.get("outputs"))), None)
    meta = _table(tensors.get(_text(_table(_table(first).get("as_tensor")).get("name"))))
    sizes = [_table(size).get("as_int") for size in _list(meta.get("sizes"))]
    shape = tuple(size for size in sizes if isinstance(size, int))
    number = meta.get("dtype")
    dtype = _DTYPES.get(number, "") if isinstance(number, int) else ""
    return shape if len(shape) == len(sizes) else (), dtype


def _handles(content: Json, only_method: str) -> dict[str, dict[int, tuple[int, ...]]]:
    """Debug handles per instruction; records of a single method may omit its name."""
    table = _table(content)
    if any(not isinstance(per_method, dict) for per_method in table.values()):
        table = {only_method: content}
    return {
        method: {
            int(instruction): tuple(handle for handle in _list(found) or [found] if isinstance(handle, int))
            for instruction, found in _table(per_method).items()
            if instruction.isdecimal() and len(instruction) <= _LONGEST_NUMBER
        }
        for method, per_method in table.items()
    }


def _table(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""
