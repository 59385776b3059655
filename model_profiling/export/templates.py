"""What to write instead of a call, derived from the arguments that the trace recorded.

A template names the call's tensors `{x}` and `{y}`, torch `{torch}` and torch.nn.functional `{F}`; one
without `{x}` is words for a person.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from model_profiling.program.etrecord import source_line

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram


@dataclass(frozen=True, slots=True)
class TracedCall:
    """One call of a torch function: what it was given and what it made; sizes are fixed numbers."""

    operator: str
    given: Mapping[str, object]
    """By the operator's own parameter names, defaults included."""
    shapes: tuple[tuple[int, ...], ...]
    """Of its tensors, in the order of its parameters."""
    made: tuple[int, ...]
    is_half: bool
    widths_vary: bool = False
    """Whether the same line is also called with other sizes, so that the code may not name them."""
    turn: tuple[int, int] = (0, 1)
    """Which of how many such calls of its line it is, in the order of the trace."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.shapes[0]

    def number(self, name: str) -> int:
        value = self.given[name]
        if not isinstance(value, int):
            raise NotDerivable
        return value

    def numbers(self, name: str) -> tuple[int, ...]:
        value = self.given[name]
        found = tuple(value) if isinstance(value, list | tuple) else (value,)
        if not all(type(each) is int for each in found):
            raise NotDerivable
        return found

    def dim(self, name: str = "dim") -> int:
        return self.number(name) % len(self.shape)

    def lacks(self, *names: str) -> bool:
        """Whether these optional parameters have no effect."""
        return not any(self.given.get(name) for name in names)

    def of_images(self, name: str = "dim") -> bool:
        """Whether the dimensions are the last two of four, which XNNPACK takes."""
        return len(self.shape) == 4 and {each % 4 for each in self.numbers(name)} == {2, 3}


class NotDerivable(Exception):
    """The call's arguments are not those that a template is for."""


Template = Callable[[TracedCall], "str | None"]


def made_from(*operators: str) -> Callable[[Template], Template]:
    """A template for these traced operators only: lowering may make the same operator of other calls."""

    def limited(template: Template) -> Template:
        def checked(call: TracedCall) -> str | None:
            return template(call) if call.operator.rstrip("_") in operators else None

        return checked

    return limited


def traced_call(node: torch.fx.Node, program: ExportedProgram) -> TracedCall | None:
    """The call that a node of the lowered graph comes from; None if the trace does not say."""
    sources = node.meta.get("from_node") or []
    if not sources:
        return None
    source = sources[-1]
    while source.from_node:
        source = source.from_node[-1]
    nodes = program.graph.nodes
    found = next((each for each in nodes if each.name == source.name and each.op == "call_function"), None)
    call = _call(found) if found is not None else None
    if found is None or call is None:
        return None
    line = source_line(found.stack_trace or "")
    alike = [
        each for each in nodes if each.target == found.target and source_line(each.stack_trace or "") == line
    ]
    others = [_call(each) for each in alike if each is not found]
    vary = any(other is None or (other.shapes, other.made) != (call.shapes, call.made) for other in others)
    here = [each for each in alike if _modules(each) == _modules(found)]
    return replace(call, widths_vary=vary, turn=(here.index(found), len(here)))


def _modules(node: torch.fx.Node) -> list[object]:
    """Which modules were being called; a module called twice has two keys."""
    return list(node.meta.get("nn_module_stack") or {})


def _call(node: torch.fx.Node) -> TracedCall | None:
    """None if a size is dynamic."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return None
    given = {each.name: each.default_value for each in schema.arguments}
    given |= dict(zip(given, node.args, strict=False)) | dict(node.kwargs)
    shapes = [_shape(value.meta.get("val")) for value in given.values() if hasattr(value, "meta")]
    made = node.meta.get("val")
    made = made[0] if isinstance(made, list | tuple) and made else made
    known = [shape for shape in (*shapes, _shape(made)) if shape is not None]
    if len(known) != len(shapes) + 1 or not shapes:
        return None
    half = str(getattr(made, "dtype", "")).endswith("float16")
    return TracedCall(schema.name.partition("::")[2], given, tuple(known[:-1]), known[-1], half)


def _shape(value: object) -> tuple[int, ...] | None:
    """None if a size is dynamic."""
    sizes = tuple(getattr(value, "shape", ()))
    return sizes if hasattr(value, "shape") and all(type(size) is int for size in sizes) else None


def derived(template: Template, call: TracedCall) -> str | None:
    try:
        return template(call)
    except (NotDerivable, KeyError):
        return None


# Templates; `tests/integration/test_rewritten_models.py` exports each before and after.


def _slice(call: TracedCall, dim: int, part: str) -> str:
    """`[:, 2:4]` for a part of dimension 1."""
    return f"[{'..., ' if dim and dim == len(call.shape) - 1 else ':, ' * dim}{part}]"


@made_from("glu")
def gated(call: TracedCall) -> str:
    dim = call.dim()
    half = f"{{x}}.shape[{dim}] // 2" if call.widths_vary else str(call.shape[dim] // 2)
    return f"{{x}}{_slice(call, dim, f':{half}')} * {{x}}{_slice(call, dim, f'{half}:')}.sigmoid()"


@made_from("chunk", "split", "split_with_sizes")
def slices(call: TracedCall) -> str | None:
    """The parts of `chunk` and `split`, as a tuple."""
    dim = call.dim()
    size = call.shape[dim]
    if "split_sizes" in call.given:
        sizes = call.numbers("split_sizes")
    else:
        step = call.number("split_size") if "split_size" in call.given else -(-size // call.number("chunks"))
        sizes = tuple(min(step, size - at) for at in range(0, size, step))
    if call.widths_vary:
        if len(set(sizes)) > 1 or "chunks" not in call.given:
            return None
        whole, count = f"{{x}}.shape[{dim}]", len(sizes)
        ends = ["", *(f"{whole} * {n} // {count}".replace(" * 1 ", " ") for n in range(1, count)), ""]
    else:
        ends = ["", *(str(end) for end in itertools.accumulate(sizes))]
    parts = (f"{{x}}{_slice(call, dim, f'{a}:{b}')}" for a, b in itertools.pairwise(ends))
    return f"({', '.join(parts)}{',' if len(sizes) == 1 else ''})"


@made_from("avg_pool2d")
def pooled(call: TracedCall) -> str | None:
    """An average over the whole image; a window in ceil mode may be larger than the image."""
    kernel = _pair(call.numbers("kernel_size"))
    covers = all(window >= size for window, size in zip(kernel, call.shape[-2:], strict=True))
    whole = covers and len(call.shape) == 4 and call.made[-2:] == (1, 1)
    return "{x}.mean((2, 3), keepdim=True)" if whole and _not_padded(call) else None


@made_from("avg_pool2d")
def padded_first(call: TracedCall) -> str | None:
    high, wide = _pair(call.numbers("padding"))
    if not call.lacks("ceil_mode", "divisor_override") or not call.given["count_include_pad"]:
        return None
    kernel, stride = _pair(call.numbers("kernel_size")), _pair(call.numbers("stride") or (0,))
    stride = kernel if stride == (0, 0) else stride
    return (
        f"{{F}}.avg_pool2d({{F}}.pad({{x}}, {(wide, wide, high, high)}), {_short(kernel)}, {_short(stride)})"
    )


def _not_padded(call: TracedCall) -> bool:
    return not any(call.numbers("padding")) and call.lacks("divisor_override")


def _pair(values: Sequence[int]) -> tuple[int, int]:
    return values[0], values[-1]


def _short(values: tuple[int, int]) -> str:
    return str(values[0] if values[0] == values[1] else values)


@made_from("mean")
def averaged(call: TracedCall) -> str | None:
    flat = "" if call.given["keepdim"] else ".flatten(1)"
    whole = call.of_images() and call.lacks("dtype")
    return f"{{x}}.mean((2, 3), keepdim=True){flat}" if whole else None


@made_from("sum")
def summed(call: TracedCall) -> str | None:
    if call.widths_vary or not call.of_images() or not call.lacks("dtype"):
        return None
    if call.is_half:
        return "mean over the last two dimensions with keepdim=True, times their size as a buffer"
    scaled = f"{{x}}.mean((2, 3), keepdim=True) * {float(math.prod(call.shape[2:]))}"
    return scaled if call.given["keepdim"] else f"({scaled}).flatten(1)"


@made_from("amax")
def maximum(call: TracedCall) -> str | None:
    if call.widths_vary or not call.of_images():
        return None
    flat = "" if call.given["keepdim"] else ".flatten(1)"
    return f"{{F}}.max_pool2d({{x}}, {_short(_pair(call.shape[2:]))}){flat}"


@made_from("hardsigmoid")
def hard_sigmoid(call: TracedCall) -> str | None:
    words = "F.relu6(x + 3.0) * (1 / 6) with both numbers as buffers"
    return words if call.is_half else "{F}.relu6({x} + 3.0) * (1 / 6)"


@made_from("silu")
def silu(_: TracedCall) -> str:
    return "{x} * {x}.sigmoid()"


@made_from("elu")
def elu(call: TracedCall) -> str | None:
    alpha = call.given["alpha"]
    if not call.given["scale"] == call.given["input_scale"] == 1:
        return None
    if call.is_half:
        return "torch.relu(x) - alpha * torch.relu(one - torch.exp(x)) with buffers for both numbers"
    return f"{{x}}.relu() - {'' if alpha == 1 else f'{alpha} * '}(1.0 - {{x}}.exp()).relu()"


@made_from("roll")
def rolled(call: TracedCall) -> str | None:
    shifts, dims = call.numbers("shifts"), [dim % len(call.shape) for dim in call.numbers("dims")]
    moves = {dim: shift for dim, shift in zip(dims, shifts, strict=False) if shift}
    if not dims or len(moves) != len(shifts) or any(abs(moves[dim]) >= call.shape[dim] for dim in moves):
        return None

    def joined(chosen: Mapping[int, str]) -> str:
        dim = next((dim for dim in sorted(moves) if dim not in chosen), None)
        if dim is None:
            last = max(chosen)
            return f"{{x}}[{', '.join(chosen.get(each, ':') for each in range(last + 1))}]"
        parts = (joined({**chosen, dim: part}) for part in (f"{-moves[dim]}:", f":{-moves[dim]}"))
        return f"{{torch}}.cat(({', '.join(parts)}), {dim})"

    return joined({})


@made_from("softmax")
def softmax_last(call: TracedCall) -> str | None:
    dim = call.dim()
    return f"{{x}}.transpose({dim}, -1).softmax(-1).transpose({dim}, -1)" if call.lacks("dtype") else None


@made_from("squeeze", "unsqueeze")
def reshaped(call: TracedCall) -> str | None:
    return None if call.widths_vary else f"{{x}}.reshape{call.made if call.made else '(())'}"


@made_from("select")
def selected(call: TracedCall) -> str | None:
    dim, index = call.dim(), call.number("index")
    part = f"{index}:{'' if index == -1 else index + 1}"
    return None if call.widths_vary else f"{{x}}{_slice(call, dim, part)}.reshape{call.made or '(())'}"


@made_from("unbind")
def unbound(call: TracedCall) -> str | None:
    dim = call.dim()
    parts = (f"{{x}}{_slice(call, dim, f'{n}:{n + 1}')}.reshape{call.made}" for n in range(call.shape[dim]))
    return None if call.widths_vary else f"({', '.join(parts)},)"


@made_from("pow")
def powered(call: TracedCall) -> str | None:
    exponent = call.given["exponent"]
    return (
        {0.5: "{x}.sqrt()", 3: "{x} * {x} * {x}"}.get(exponent) if isinstance(exponent, int | float) else None
    )


@made_from("matmul")
def batched(call: TracedCall) -> str | None:
    left, right = call.shapes
    if left[:-2] != right[:-2] or len(left) < 3:
        return None
    if len(left) == 3:
        return "{torch}.bmm({x}, {y})"
    if call.widths_vary:
        return None
    flat = f"{{x}}.reshape{(-1, *left[-2:])}, {{y}}.reshape{(-1, *right[-2:])}"
    return f"{{torch}}.bmm({flat}).reshape{call.made}"


def fill_in(template: str, texts: Mapping[str, str], first: Mapping[str, str] | None = None) -> str:
    """Fill the template in; `first` is for the first use of a name."""
    left = dict(first or {})
    return re.sub(r"\{(x|y|torch|F)\}", lambda found: left.pop(found[1], texts[found[1]]), template)


def in_words(template: str) -> str:
    """The template for a call whose text is not known."""
    return fill_in(template, {"x": "x", "y": "y", "torch": "torch", "F": "F"})


def is_code(template: str) -> bool:
    return "{x}" in template
