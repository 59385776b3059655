"""Parses kernel names of KleidiAI and XNNPACK: instruction set, role, data types, tile.

Names are parsed by grammar, not by substring; what the grammar does not know is `unknown`, never guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from model_profiling.program.category import operator_type
from model_profiling.program.delegates import describe

UNKNOWN = "unknown"
# Strongest first, in the order of the runner's ablation ladder. `portable` is a KleidiAI routine whose name
# promises no instruction set. The others are from other architectures and appear in logs of other machines.
ISAS = ("SME2", "SME", "SVE2", "SVE", "i8mm", "bf16", "dotprod", "fp16", "NEON", "scalar", "portable")
OTHER_ISAS = ("x86",)
SME_OR_SME2 = "SME or SME2"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel or operator family, by its name. `has_sme2` is None if the name does not tell."""

    name: str
    library: str
    isa: str = UNKNOWN
    role: str = UNKNOWN
    dtype: str = ""
    operation: str = ""
    variant: str = ""
    shape: str = ""
    arch_chain: str = ""
    has_sme: bool | None = None
    has_sme2: bool | None = None

    @property
    def known(self) -> bool:
        return UNKNOWN not in (self.isa, self.role)


# The first pattern that matches a whole word of the architecture chain wins. Strongest first, so that
# `neondotfp16arith` is dot product and `asm_aarch64_neonfma_cortex_a75` is NEON.
_XNN_ISA = (
    (r"neonsme2", "SME2"),
    (r"neonsme", "SME"),
    (r"neoni8mm.*", "i8mm"),
    (r"neonbf16", "bf16"),
    (r"neondot.*", "dotprod"),
    (r"(neon)?fp16arith", "fp16"),
    (r"neon(fma|v8|fp16|mlal)?", "NEON"),
    (r"(s?sse\d*|avx|fma3|f16c|amd64).*", "x86"),
    (r"scalar|armsimd32|vfp", "scalar"),
)

_XNN_ROLES = {
    "matmul": "gemm igemm spmm ppmm",
    "packing": "packw packx packb packq pack_lh",
    "depthwise": "dwconv dwconv2d_chw",
    "convolution": "conv_hwc conv_hwc2chw",
    "transpose": "transposec transposev",
    "copy": "copy fill pad",
    "convert": "vcvt",
    "softmax": "raddexpminusmax raddextexp raddstoreexpminusmax vscaleexpminusmax vscaleextexp lut32norm",
    "reduce": "rsum rsum2 rdsum rdsum2 rmax rmin rminmax rdmax rdmin rdminmax",
    "pooling": "maxpool avgpool argmaxpool unpool",
    "resize": "ibilinear ibilinear_chw",
    "elementwise": "lut",
}
_ROLE_OF = {operation: role for role, words in _XNN_ROLES.items() for operation in words.split()}

_XNN_DTYPE = re.compile(r"(p?f\d+|bf16|p?q[a-z]\d+|q[bc]\d+u?w|qb4|[sux]\d+|xx|f32acc|to)")
_XNN_NAME = re.compile(
    r"xnn_(?P<head>\w+?)_ukernel(?:_(?P<shape>[^_\n]+(?:_[^_\n]{1,99})*?))?__(?P<arch>\w+)"
)
_TILE = re.compile(r"\d+x\d+v?|\d+p\d*[cx]?\d*v?|u\d+v?")

_KAI_NAME = re.compile(r"kai_(?:run|kernel)_(?P<body>\w+)")
_KAI_OPERATION = re.compile(
    r"(?P<operation>(?:lhs|rhs)_(?:\w+?_)?pack|i?matmul_pack_(?:lhs|rhs)|i?matmul|dwconv)"
    r"(?P<variant>(?:_(?:clamp|transpose|pack|kxn|nxk))*)_(?P<rest>\w+)"
)
_KAI_ISA = (
    (r"sme2(p\d+)?", "SME2"),
    (r"sme1?", "SME"),
    (r"sve2(p\d+)?", "SVE2"),
    (r"sve", "SVE"),
    (r"i8mm", "i8mm"),
    (r"dotprod", "dotprod"),
    (r"bf16", "bf16"),
    (r"fp16", "fp16"),
    (r"neon", "NEON"),
)
_KAI_TILE = re.compile(r"\d+(v[ls])?x\d+(v[ls])?(x\d+)?|\d+xc|s\d+")
_KAI_DTYPE = re.compile(r"(?P<element>bf16|[fxsuqi][a-z]*\d+[a-z\d]*?)(?P<packed>p.*)?")


def classify(symbol: str) -> Kernel:
    """Describe the kernel a symbol names; fields the name does not tell are `unknown` or empty."""
    name = symbol.removeprefix("_").strip()
    if match := _KAI_NAME.fullmatch(name):
        return _classify_kleidiai(name, match["body"])
    if match := _XNN_NAME.fullmatch(name):
        return _classify_xnnpack(name, match["head"], match["shape"] or "", match["arch"])
    return Kernel(name, UNKNOWN)


def _isa(rules: tuple[tuple[str, str], ...], words: list[str], otherwise: str) -> str:
    return next((isa for rule, isa in rules if any(re.fullmatch(rule, word) for word in words)), otherwise)


def _classify_xnnpack(name: str, head: str, shape: str, arch: str) -> Kernel:
    words = head.split("_")
    count = next((i for i, word in enumerate(words) if not _XNN_DTYPE.fullmatch(word)), len(words))
    # `gemm minmax fp32` is an operation and its variant; some operations are two words.
    after = count + (2 if "_".join(words[count : count + 2]) in _ROLE_OF else 1)
    operation = "_".join(words[count:after])
    chain = arch.split("_")
    isa = _isa(_XNN_ISA, chain, UNKNOWN)
    # All elementwise operations of XNNPACK are called v<something>.
    other_role = "elementwise" if re.fullmatch(r"v[a-z]\w*", operation) else UNKNOWN
    return Kernel(
        name=name,
        library="xnnpack",
        isa=isa,
        role=_ROLE_OF.get(operation, other_role),
        dtype="_".join(words[:count]),
        operation=operation,
        variant="_".join(words[after:]),
        shape=shape or next((word for word in chain if _TILE.fullmatch(word)), ""),
        arch_chain=arch,
        has_sme=isa in ("SME", "SME2"),
        has_sme2=isa == "SME2",
    )


def _classify_kleidiai(name: str, body: str) -> Kernel:
    match = _KAI_OPERATION.fullmatch(body)
    if match is None:
        return Kernel(name, "kleidiai")
    operation = match["operation"]
    words = match["rest"].split("_")
    # Where the instruction sets begin; data types come first and may be called bf16 too.
    begins = (place for place, word in enumerate(words) if word.startswith(("neon", "sve", "sme")))
    start = next(begins, len(words))
    types, tiles = [], []
    for word in words[:start]:
        if _KAI_TILE.fullmatch(word):
            tiles.append(word)
        elif found := _KAI_DTYPE.fullmatch(word):
            types.append(found["element"])
    isa = _isa(_KAI_ISA, words[start:], "portable")
    instruction = [word for word in words[start:] if not _isa(_KAI_ISA, [word], "")]
    return Kernel(
        name=name,
        library="kleidiai",
        isa=isa,
        role="packing" if "pack" in operation else "depthwise" if operation == "dwconv" else "matmul",
        dtype="_".join(dict.fromkeys(types)),
        operation=operation,
        variant="_".join([*match["variant"].split("_")[1:], *instruction]),
        shape="_".join(tiles),
        arch_chain="_".join(words[start:]),
        has_sme=isa in ("SME", "SME2"),
        has_sme2=isa == "SME2",
    )


def classify_operator(event_name: str) -> Kernel | None:
    """Describe a delegate's matrix operator by its name; None for every other event."""
    name = operator_type(event_name.strip())
    what = describe(name)
    if what.matrix is None:
        return None
    sme = what.matrix.takes_sme
    return Kernel(
        name=name,
        library="operator",
        isa=SME_OR_SME2 if sme else UNKNOWN,
        role=what.matrix.role,
        dtype=what.family.replace(", ", "_"),
        operation=what.matrix.operation,
        variant=what.matrix.path,
        has_sme=sme,
        has_sme2=False if sme is False else None,
    )
