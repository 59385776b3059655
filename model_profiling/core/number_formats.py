"""Number formats: what `--dtype` accepts, and the word that stands for each in file names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from model_profiling.core.errors import InputError

Named = Literal["fp32", "fp16", "int8", "int8-dynamic", "int4"]
Kind = Named | Literal["own"]
FORMATS: tuple[Named, ...] = get_args(Named)
"""The formats with a name of their own, in the order in which they are shown."""
USUAL = FORMATS[:3]
"""The formats that a new model is checked in and a new sweep begins with."""
FORMATS_HELP = f"{', '.join(FORMATS)}, int4:GROUP, or FILE.py:quantizer"
GROUP_STEP = 32
"""XNNPACK's groups of 4-bit weights are multiples of this."""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """One number format, as the user asked for it."""

    text: str
    kind: Kind
    group: int | None = None
    """How many 4-bit weights share a scale; None for one scale per output channel."""

    @property
    def quantized(self) -> bool:
        return self.kind not in ("fp32", "fp16")

    @property
    def has_ranges(self) -> bool:
        """Whether the ranges of activations are observed when exporting."""
        return self.kind in ("int8", "own")

    def word(self, *, kept: bool = False, optimized: bool = False) -> str:
        """The word in file names; programs with layers `kept` in float32, or with rewrites, have another."""
        word = f"own-{self.text.rpartition(':')[2]}" if self.kind == "own" else self.text.replace(":", "-")
        word = f"{word}-kept" if kept and self.kind != "fp32" else word
        return f"{word}-optimized" if optimized else word


def parse_format(text: str) -> NumberFormat:
    """Read `int8-dynamic`, `int4:32` or `FILE.py:quantizer`."""
    for kind in FORMATS:
        if text == kind:
            return NumberFormat(text, kind)
    name, _, rest = text.rpartition(":")
    if name == "int4":
        if not rest.isdecimal() or int(rest) == 0 or int(rest) % GROUP_STEP:
            raise InputError(f"int4 has no groups of {rest}", f"give a multiple of {GROUP_STEP}, as int4:32")
        return NumberFormat(text, "int4", int(rest))
    if name and rest.isidentifier():
        return NumberFormat(text, "own")
    raise InputError(f"there is no number format '{text}'", f"choose from {FORMATS_HELP}")


def parse_keep(pairs: Iterable[str]) -> tuple[str, ...]:
    """Read `MODULE=fp32` words: the modules that stay in float32."""
    modules = []
    for pair in pairs:
        module, _, wanted = pair.partition("=")
        if not module or wanted != "fp32":
            raise InputError(f"'{pair}' does not say what to keep", "write MODULE=fp32, as features.0=fp32")
        modules.append(module)
    return tuple(dict.fromkeys(modules))
