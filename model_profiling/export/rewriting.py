"""The user's own call with other code in its place: found by its line, replaced by its position, so that the
rest of the file stays as it is."""

from __future__ import annotations

import ast
import itertools
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

from model_profiling.core.errors import InputError, ProfilingError
from model_profiling.core.safe_read import MIB, read_bytes
from model_profiling.export.templates import fill_in
from model_profiling.models.options import is_user_code
from model_profiling.program.graph_file import Rewrite


class SourceFile:
    """A Python file and the expressions in it."""

    def __init__(self, content: bytes) -> None:
        encoding, _ = tokenize.detect_encoding(BytesIO(content).readline)
        self.encoding = encoding
        self.text = content.decode(encoding)
        self.lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", self.text)
        self.tree = ast.parse(self.text)
        self.parents = {
            child: parent for parent in ast.walk(self.tree) for child in ast.iter_child_nodes(parent)
        }
        self.nodes = list(_evaluated(self.tree))
        self.modules: dict[str, str] = {}
        """Names that imports bind to modules and functions: `F` is torch.nn.functional."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for each in node.names:
                    top = each.name.partition(".")[0]
                    self.modules[each.asname or top] = each.name if each.asname else top
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for each in node.names:
                    self.modules[each.asname or each.name] = f"{node.module}.{each.name}"

    def segment(self, node: ast.expr) -> str:
        return self.between(*_span(node))

    def between(self, line: int, column: int, end_line: int, end_column: int) -> str:
        start, end = self._offset(line, column), self._offset(end_line, end_column)
        return self.text[start:end]

    def replaced(self, rewrites: Sequence[Rewrite]) -> str:
        """The text with all of `rewrites`; one that lies in another's call is applied inside it."""
        text, left = self.text, sorted(rewrites, key=lambda one: (one.start, one.end), reverse=True)
        for number, each in enumerate(left):
            outer = next((at for at, one in enumerate(left) if at > number and one.end >= each.end), None)
            if outer is not None:
                inside = left[outer].new.replace(each.old, each.new, 1)
                left[outer] = replace(left[outer], new=inside)
                continue
            start = self._offset(*each.start)
            text = text[:start] + each.new + text[start + len(each.old) :]
        return text

    def _offset(self, line: int, column: int) -> int:
        """ast counts columns in bytes of UTF-8."""
        if not 0 < line <= len(self.lines):
            return len(self.text)
        before = self.lines[line - 1].encode()[:column].decode(errors="ignore")
        return sum(map(len, self.lines[: line - 1])) + len(before)

    def name_of(self, module: str) -> str | None:
        """What the file calls `torch.nn.functional`: `F`, `nn.functional`; None without such an import."""
        found = [
            name + module.removeprefix(full)
            for name, full in self.modules.items()
            if module == full or module.startswith(f"{full}.")
        ]
        return min(found, key=len, default=None)

    def full_name(self, function: ast.expr) -> str:
        """`torch.nn.functional.glu` for `F.glu`; empty if no import gives it."""
        parts: list[str] = []
        while isinstance(function, ast.Attribute):
            parts, function = [function.attr, *parts], function.value
        if not isinstance(function, ast.Name) or function.id not in self.modules:
            return ""
        return ".".join((self.modules[function.id], *parts))


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below `node` in the order in which Python evaluates expressions: operands first."""
    for child in ast.iter_child_nodes(node):
        yield from _evaluated(child)
        yield child


def _span(node: ast.expr) -> tuple[int, int, int, int]:
    return node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where the model makes a call."""

    file: str
    line: int
    call: str
    """The function's name."""
    layer: str = ""
    """The name of a layer of torch.nn that makes the call: `gate` of `self.gate(x)`."""
    index: object = None
    """Which element `x[0]` takes."""
    turn: int = 0
    """Which of the calls of the line it is, as Python evaluates them."""
    turns: int = 1


_LARGEST = 8 * MIB
_OPERATORS = {"pow": ast.Pow, "matmul": ast.MatMult}
_TENSOR_KEYWORDS = ("input", "self", "tensor", "other")


def read_source(file: Path) -> SourceFile:
    try:
        return SourceFile(read_bytes(file, _LARGEST, follow=True))
    except (SyntaxError, ValueError, RecursionError) as problem:
        raise InputError(f"{file} is not a Python file: {problem}", "correct the file") from problem


class Rewriter:
    """Rewrites calls, and keeps what it read: a line makes many operators."""

    def __init__(self) -> None:
        self._files: dict[str, SourceFile | None] = {}
        self._made: dict[tuple[Place, str], Rewrite | None] = {}

    def rewrite(self, place: Place, template: str) -> Rewrite | None:
        """The call at `place` as `template` has it; None if it lies in a library, or if it is
        not clear which call of the line it is."""
        if place.file not in self._files:
            self._files[place.file] = _user_source(place.file)
        source, key = self._files[place.file], (place, template)
        if key not in self._made:
            self._made[key] = _rewrite(source, place, template) if source else None
        return self._made[key]


def _rewrite(source: SourceFile, place: Place, template: str) -> Rewrite | None:
    found = _calls(source, place)
    if len(found) not in (1, place.turns) or not found:
        return None
    node, operands = found[place.turn if len(found) > 1 else 0]
    new = _filled(source, node, template, operands)
    if new is None:
        return None
    made = Rewrite(place.file, *_span(node), old=source.segment(node), new=new)
    try:
        compile(source.replaced([made]), place.file, "exec", dont_inherit=True)
    except SyntaxError:  # such as a name that is given inside a comprehension
        return None
    return made


def _user_source(file: str) -> SourceFile | None:
    if not is_user_code(file):
        return None
    try:
        return read_source(Path(file))
    except ProfilingError:
        return None


def _calls(source: SourceFile, place: Place) -> list[tuple[ast.expr, list[ast.expr]]]:
    """Expressions that make the call, with their tensors. A frame's line is that of the function's name; if
    none has it, any expression over the line counts."""
    found = [each for node in source.nodes if (each := _operands(source, node, place))]
    exact = [each for each in found if _line(each[0]) == place.line]
    return exact or [
        each for each in found if each[0].lineno <= place.line <= (each[0].end_lineno or each[0].lineno)
    ]


def _line(node: ast.expr) -> int:
    return (node.func.end_lineno if isinstance(node, ast.Call) else None) or node.lineno


def _operands(source: SourceFile, node: ast.AST, place: Place) -> tuple[ast.expr, list[ast.expr]] | None:
    if isinstance(node, ast.Call):
        tensors = _arguments(source, node, place)
        return (node, tensors) if tensors else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, _OPERATORS.get(place.call, ())):
        return node, [node.left, node.right]
    if isinstance(node, ast.Subscript) and place.call == "getitem":
        kept = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        chosen = [each for each in kept if not isinstance(each, ast.Slice)]
        numbered = len(chosen) == 1 and ast.unparse(chosen[0]) == str(place.index)
        plain = all(
            each.lower is each.upper is each.step is None for each in kept if isinstance(each, ast.Slice)
        )
        return (node, [node.value]) if numbered and plain else None
    return None


def _arguments(source: SourceFile, node: ast.Call, place: Place) -> list[ast.expr]:
    """The tensors of a call; empty if it is another call."""
    if any(isinstance(each, ast.Starred) for each in node.args):
        return []
    first = [*node.args, *(each.value for each in node.keywords if each.arg in _TENSOR_KEYWORDS)]
    full = source.full_name(node.func)
    if full:
        return first if full.startswith("torch.") and full.rpartition(".")[2] == place.call else []
    if not isinstance(node.func, ast.Attribute):
        return []
    if place.layer:
        return first if node.func.attr == place.layer else []
    return [node.func.value, *first] if node.func.attr == place.call else []


_SIMPLE = (ast.Name, ast.Attribute)
_ATOMS = (*_SIMPLE, ast.Call, ast.Subscript, ast.Tuple)
_STATEMENTS = (ast.Assign, ast.AnnAssign, ast.Return, ast.keyword, ast.Call, ast.Expr)


def _filled(source: SourceFile, node: ast.expr, template: str, operands: Sequence[ast.expr]) -> str | None:
    """The template with the call's own text; a tensor that is not just a name is computed once."""
    names = {"torch": source.name_of("torch"), "F": source.name_of("torch.nn.functional")}
    if any(f"{{{key}}}" in template and not name for key, name in names.items()):
        return None
    texts = {key: name or "" for key, name in names.items()}
    first: dict[str, str] = {}
    for key, operand in zip("xy", operands, strict=False):
        written = source.segment(operand)
        if template.count(f"{{{key}}}") > 1 and not isinstance(operand, _SIMPLE):
            texts[key] = _free_name(source, key)
            first[key] = f"({texts[key]} := {written})"
        else:
            texts[key] = written if isinstance(operand, _ATOMS) else f"({written})"
    if "{y}" in template and "y" not in texts:
        return None
    new = fill_in(template, texts, first)
    alone = isinstance(source.parents.get(node), _STATEMENTS)
    return new if alone or isinstance(_expression(new), _ATOMS) else f"({new})"


def _expression(text: str) -> ast.expr | None:
    try:
        return ast.parse(f"({text}\n)", mode="eval").body
    except SyntaxError:
        return None


def _free_name(source: SourceFile, wanted: str) -> str:
    """A name that the file does not use."""
    taken = {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
    taken |= {node.arg for node in ast.walk(source.tree) if isinstance(node, ast.arg)}
    names = itertools.chain((f"{wanted}_in",), (f"{wanted}_in{number}" for number in itertools.count(2)))
    return next(name for name in names if name not in taken)


def without_brackets(code: str) -> str:
    """Code for a person to read: brackets around the whole of it belong to the line it was written for."""
    found = _expression(code)
    whole = found is not None and (found.col_offset, found.end_col_offset) == (2, len(code))
    return code[1:-1] if whole else code
