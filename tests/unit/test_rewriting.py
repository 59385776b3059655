"""A call in a user's file is found by its line and replaced by its position; the rest stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_profiling.core.errors import InputError
from model_profiling.export.rewriting import Place, Rewriter, read_source

GLU = "{x}[:, :4] * {x}[:, 4:].sigmoid()"
HEAD = """import torch
import torch.nn.functional as F
from torch.nn.functional import glu as gated

"""


def rewritten(tmp_path: Path, text: str, call: str = "glu", template: str = GLU, **place: object) -> str:
    """`text` with the call at its first line, or `line`, rewritten."""
    file = tmp_path / "model.py"
    head = str(place.pop("head", HEAD))
    file.write_text(f"{head}def forward(self, x, y):\n{text}\n", encoding="utf-8")
    number = head.count("\n") + 1 + int(str(place.pop("line", 1)))
    made = Rewriter().rewrite(Place(str(file), number, call, **place), template)  # type: ignore[arg-type]
    if made is None:
        return "not rewritten"
    source = read_source(file)
    assert source.between(*made.start, *made.end) == made.old
    return source.replaced([made]).partition("x, y):\n")[2].rstrip("\n")


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("    return F.glu(x, dim=1)", "    return x[:, :4] * x[:, 4:].sigmoid()"),
        (
            "    return F.glu(dim=1, input=self.kept)",
            "    return self.kept[:, :4] * self.kept[:, 4:].sigmoid()",
        ),
        ("    return gated(x, 1) + y", "    return (x[:, :4] * x[:, 4:].sigmoid()) + y"),
        ("    y = torch.nn.functional.glu(x)", "    y = x[:, :4] * x[:, 4:].sigmoid()"),
        ("    y = self.c(F.glu(x))  # é", "    y = self.c(x[:, :4] * x[:, 4:].sigmoid())  # é"),
        ("    é = 'é'; y = F.glu(x)", "    é = 'é'; y = x[:, :4] * x[:, 4:].sigmoid()"),
        (
            "    return F.glu(\n        self.conv(x),  # wide\n        1,\n    )",
            "    return (x_in := self.conv(x))[:, :4] * x_in[:, 4:].sigmoid()",
        ),
        (
            "    return [x_in for x_in in F.glu(x + 1)]",
            "not rewritten",  # Python gives no names in the iterable of a comprehension
        ),
        ("    return F.glu(*x)", "not rewritten"),
        ("    return other.glu(x) if x else glu(y)", "    return (other[:, :4] * other[:, 4:].sigmoid()) "),
        ("    return F.glu(x) + F.glu(y)", "not rewritten"),
        ("    return F.gelu(x)", "not rewritten"),
    ],
)
def test_a_function_is_replaced_with_its_own_tensor(tmp_path, line, wanted) -> None:
    assert rewritten(tmp_path, line).startswith(wanted)


def test_the_turn_tells_calls_of_one_line_apart(tmp_path) -> None:
    line = "    return F.glu(F.glu(x)) + F.glu(y)"
    found = [rewritten(tmp_path, line, template="{x}.y()", turn=turn, turns=3) for turn in range(3)]
    assert [each.removeprefix("    return ") for each in found] == [
        "F.glu(x.y()) + F.glu(y)",
        "F.glu(x).y() + F.glu(y)",
        "F.glu(F.glu(x)) + y.y()",
    ]


@pytest.mark.parametrize(
    ("line", "call", "template", "place", "wanted"),
    [
        ("    return x.chunk(2, 1)", "chunk", "({x}[0], {x}[1])", {}, "    return (x[0], x[1])"),
        ("    return torch.chunk(x, 2)", "chunk", "({x}[0], {x}[1])", {}, "    return (x[0], x[1])"),
        ("    x.unsqueeze_(0)", "unsqueeze", "{x}.reshape(1, 2)", {}, "not rewritten"),
        ("    return -x**3", "pow", "{x} * {x}", {}, "    return -(x * x)"),
        ("    return x[:, 0] + x[:, 1]", "getitem", "{x}.b()", {"index": 1}, "    return x[:, 0] + x.b()"),
        ("    return x[0, 1]", "getitem", "{x}.b()", {"index": 1}, "not rewritten"),
        ("    return (x + y) @ y", "matmul", "{torch}.bmm({x}, {y})", {}, "    return torch.bmm((x + y), y)"),
        ("    return self.gate(x)", "glu", "{x}.b()", {"layer": "gate"}, "    return x.b()"),
        ("    return self.layers(x)", "glu", "{x}.b()", {"layer": "1"}, "not rewritten"),
        ("    return (x\n        .roll(1))", "roll", "{x}.b()", {"line": 2}, "    return (x.b())"),
    ],
)
def test_methods_operators_and_layers(tmp_path, line, call, template, place, wanted) -> None:
    assert rewritten(tmp_path, line, call, template, **place) == wanted


@pytest.mark.parametrize(
    ("head", "wanted"),
    [
        ("import torch as th\n", "    return th.nn.functional.pad(th.cat((x, y)))"),
        ("import torch\nfrom torch import nn\n", "    return nn.functional.pad(torch.cat((x, y)))"),
        ("from torch import nn\n", "not rewritten"),
    ],
)
def test_modules_have_the_names_of_the_file(tmp_path, head, wanted) -> None:
    template = "{F}.pad({torch}.cat(({x}, {y})))"
    assert rewritten(tmp_path, "    return x @ y", "matmul", template, head=head) == wanted


def test_line_ends_and_encoding_stay(tmp_path) -> None:
    file = tmp_path / "old.py"
    text = "# coding: latin-1\r\nimport torch\r\ndef f(x):\r\n    a = 'é'; return x.glu()\r\n\x0c# é\r\n"
    file.write_bytes(text.encode("latin-1"))
    made = Rewriter().rewrite(Place(str(file), 4, "glu"), "{x}.relu()")
    assert made is not None
    source = read_source(file)
    assert source.replaced([made]).encode(source.encoding) == text.replace("glu", "relu").encode("latin-1")


def test_a_call_inside_a_replaced_call_is_replaced_too(tmp_path) -> None:
    file = tmp_path / "model.py"
    file.write_text(f"{HEAD}def forward(x):\n    return F.glu(x.roll(1)) + x.roll(2)\n", encoding="utf-8")
    rewriter, line = Rewriter(), HEAD.count("\n") + 2
    places = Place(str(file), line, "glu"), *(Place(str(file), line, "roll", turn=n, turns=2) for n in (0, 1))
    made = [rewriter.rewrite(place, "{x}[1]" if place.call == "roll" else GLU) for place in places]
    text = read_source(file).replaced([each for each in made if each])
    assert text.endswith("    return ((x_in := x[1])[:, :4] * x_in[:, 4:].sigmoid()) + x[1]\n")


def test_a_library_is_never_rewritten_and_a_broken_file_says_so(tmp_path) -> None:
    library = tmp_path / "site-packages" / "lib.py"
    library.parent.mkdir()
    library.write_text("def f(x):\n    return x.glu()\n")
    assert Rewriter().rewrite(Place(str(library), 2, "glu"), GLU) is None
    assert Rewriter().rewrite(Place(str(tmp_path / "gone.py"), 2, "glu"), GLU) is None
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    with pytest.raises(InputError, match=r"broken\.py is not a Python file"):
        read_source(broken)
