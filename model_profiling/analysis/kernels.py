"""Kernels: what a name says (instruction set, role, data types), which ran, and what that says about SME2.

Executed: a call that happened (a kernel's call count, or an operator in a dump). Configured: a table entry in
XNNPACK's log, a candidate that may never run, so it is never counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from model_profiling.core import files
from model_profiling.core.errors import FormatError
from model_profiling.core.formatting import plural
from model_profiling.core.records import csv_text, read_table
from model_profiling.core.safe_read import MIB, read_text
from model_profiling.program.category import operator_type
from model_profiling.program.delegates import describe
from model_profiling.runner.xnnpack_log import XnnTrace
from model_profiling.runs.records import KernelCall

# Names, parsed by grammar, not by substring: what the grammar does not know is `unknown`, never guessed.

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


# Evidence.

Sizes = tuple[int | None, int | None, int | None]
_SIZES: dict[str, Callable[[int, int, int], Sizes]] = {
    "matmul": lambda m, n, k: (m, n, k),
    "imatmul": lambda m, n, _: (m, n, None),
    "lhs_imatmul_pack": lambda m, pieces, length: (m, None, pieces * length),
    **dict.fromkeys(
        ("rhs_imatmul_pack", "imatmul_pack_rhs"), lambda n, pieces, length: (None, n, pieces * length)
    ),
    **dict.fromkeys(("lhs_pack", "lhs_quant_pack"), lambda m, k, _: (m, None, k)),
    **dict.fromkeys(("rhs_pack", "rhs_quant_pack"), lambda _, n, k: (None, n, k)),
}
"""Reads a KleidiAI kernel's first three arguments as m, n and k, by its operation; `_` is none of the three.
Where rows are gathered through pointers, k is the number of pieces times their length; an indirect product
(`imatmul`) has four sizes, and its k was not kept."""
_NO_ROOM = (0, 0, 0)


def sizes_cell(symbol: str, sizes: Iterable[Sequence[int]]) -> str:
    """`m=16 n=128 k=576: 49; m=...`: the sizes that a kernel was called with, each with its calls."""
    read = _SIZES.get(classify(symbol).operation)
    found: Counter[str] = Counter()
    for *size, calls in (size for size in sizes if len(size) == 4):
        known = read(*size) if read and tuple(size) != _NO_ROOM else (None, None, None)
        named = zip("mnk", known, strict=True)
        found[" ".join(f"{name}={value}" for name, value in named if value is not None)] += calls
    return "; ".join(f"{text}: {calls}" for text, calls in found.most_common())


Evidence = Literal["executed", "configured"]


@dataclass(frozen=True, slots=True)
class KernelUse:
    """One kernel and the evidence for it; `calls` is None if not counted."""

    kernel: Kernel
    evidence: Evidence
    calls: int | None
    worked_on: str = ""
    """Sizes that it was called with, as `sizes_cell` writes them."""

    @property
    def computes(self) -> bool:
        """Whether it is an executed kernel that does more than pack operands."""
        ran = self.evidence == "executed" and self.kernel.library != "operator"
        return ran and self.kernel.role != "packing"

    @property
    def computes_on_sme(self) -> bool:
        return self.computes and self.kernel.isa in ("SME2", "SME")

    @property
    def as_call(self) -> KernelCall:
        """Its form in files."""
        return KernelCall(self.kernel.name, self.evidence, self.calls)


@dataclass(frozen=True, slots=True)
class KernelPair:
    """One kernel in a run with SME2 on and in one with it off; None where it does not appear."""

    kernel: Kernel
    on: KernelUse | None
    off: KernelUse | None

    @property
    def executed(self) -> bool:
        return any(use is not None and use.evidence == "executed" for use in (self.on, self.off))


@dataclass(frozen=True, slots=True)
class SmeVerdict:
    """Whether SME2 or SME kernels ran; `untested` if the CPU could not have run any."""

    answer: Literal["sme2", "sme", "sme-or-sme2", "none", "unknown", "untested"]
    text: str

    @property
    def proves_sme(self) -> bool:
        return self.answer in ("sme2", "sme", "sme-or-sme2")


def executed_kernels(
    calls: Mapping[str, int | None], sizes: Mapping[str, Sequence[Sequence[int]]] | None = None
) -> tuple[KernelUse, ...]:
    """Uses from a trace run's list of called symbols, and the `sizes` they were called with."""
    ran = ((symbol, count) for symbol, count in calls.items() if count != 0)
    return _ordered(
        KernelUse(classify(symbol), "executed", count, sizes_cell(symbol, (sizes or {}).get(symbol, ())))
        for symbol, count in ran
    )


def operator_kernels(event_names: Iterable[str]) -> tuple[KernelUse, ...]:
    """Uses from the names of a dump's events: its matrix operators by family, with their counts."""
    families = Counter(operator_type(name.strip()) for name in event_names)
    described = ((classify_operator(family), count) for family, count in families.items())
    return _ordered(KernelUse(kernel, "executed", count) for kernel, count in described if kernel is not None)


def configured_kernels(names: Iterable[str]) -> tuple[KernelUse, ...]:
    return _ordered(KernelUse(classify(name), "configured", None) for name in dict.fromkeys(names))


def unknown_kernels(uses: Iterable[KernelUse]) -> tuple[str, ...]:
    """Kernels with unreadable names. Operators are skipped: labels need not tell the instruction set."""
    return tuple(use.kernel.name for use in uses if use.kernel.library != "operator" and not use.kernel.known)


def compare_kernels(on: Iterable[KernelUse], off: Iterable[KernelUse]) -> tuple[KernelPair, ...]:
    """Pair the kernels of two runs by name; executed ones come before configured ones."""
    left, right = _strongest(on), _strongest(off)
    kernels = {name: use.kernel for name, use in {**right, **left}.items()}
    pairs = [KernelPair(kernel, left.get(name), right.get(name)) for name, kernel in kernels.items()]
    return tuple(sorted(pairs, key=lambda pair: (not pair.executed, *_order(pair.kernel))))


def sme_verdict(uses: Iterable[KernelUse], *, traced: bool) -> SmeVerdict:
    """What the evidence says about SME2; `traced`: the run listed every KleidiAI call it made."""
    known = tuple(uses)
    executed = [use for use in known if use.evidence == "executed" and use.kernel.role != "packing"]
    for isa, answer in (("SME2", "sme2"), ("SME", "sme"), (SME_OR_SME2, "sme-or-sme2")):
        found = [use for use in executed if use.kernel.isa == isa]
        if found:
            return SmeVerdict(answer, _count(isa, found))  # type: ignore[arg-type]
    if traced:
        return SmeVerdict("none", "no SME or SME2 kernel ran")
    operators = [use.kernel for use in executed if _multiplies(use.kernel)]
    if operators and all(kernel.has_sme is False for kernel in operators):
        return SmeVerdict("none", "no operator in the dump used an SME or SME2 kernel")
    if any(use.kernel.has_sme for use in known):
        return SmeVerdict("unknown", "SME kernels were configured, but there is no evidence that they ran")
    return SmeVerdict("unknown", "no kernel evidence")


def matrix_share(uses: Iterable[KernelUse]) -> tuple[int, int]:
    """How many matrix operators took an SME path, of how many: one SME2 kernel says nothing of the rest."""
    counted = [use for use in uses if _multiplies(use.kernel)]
    sme = sum(use.calls or 0 for use in counted if use.kernel.has_sme)
    return sme, sum(use.calls or 0 for use in counted)


def _multiplies(kernel: Kernel) -> bool:
    return kernel.library == "operator" and kernel.role == "matmul"


def _count(isa: str, uses: list[KernelUse]) -> str:
    kind = "operator" if uses[0].kernel.library == "operator" else "kernel"
    ran = f"{plural(len(uses), f'{isa} {kind}')} ran"
    if any(use.calls is None for use in uses):
        return ran
    calls = sum(use.calls or 0 for use in uses)
    return f"{ran} {'once' if calls == 1 else f'{calls} times'}"


def _strongest(uses: Iterable[KernelUse]) -> dict[str, KernelUse]:
    best: dict[str, KernelUse] = {}
    for use in uses:
        if use.kernel.name not in best or use.evidence == "executed":
            best[use.kernel.name] = use
    return best


_ISA_ORDER = {isa: rank for rank, isa in enumerate((SME_OR_SME2, *ISAS, *OTHER_ISAS, UNKNOWN))}
_ROLE_ORDER = {role: rank for rank, role in enumerate(("matmul", "depthwise", "convolution", "packing"))}


def _order(kernel: Kernel) -> tuple[bool, int, int, str]:
    role = _ROLE_ORDER.get(kernel.role, len(_ROLE_ORDER))
    return kernel.library == "operator", _ISA_ORDER[kernel.isa], role, kernel.name


def _ordered(uses: Iterable[KernelUse]) -> tuple[KernelUse, ...]:
    return tuple(sorted(uses, key=lambda use: _order(use.kernel)))


COLUMNS = (
    "model_id", "kernel_name", "category", "count", "dtype", "xnn_op", "variant", "ukernel_shape",
    "arch_chain", "has_sme", "has_sme2", "evidence", "worked_on",
)  # fmt: skip
_NAME = "kernel_name"
_MOST_BYTES = 4 * MIB
"""A row has some hundred bytes, and a model some hundred kernels."""


def write_kernels_csv(path: Path, model_id: str, uses: Iterable[KernelUse]) -> None:
    """One row per use. An empty `count` means not counted: configured kernels never have one."""
    rows = (
        (
            model_id, use.kernel.name, use.kernel.role, "" if use.calls is None else str(use.calls),
            use.kernel.dtype, use.kernel.operation, use.kernel.variant, use.kernel.shape,
            use.kernel.arch_chain, _flag(use.kernel.has_sme), _flag(use.kernel.has_sme2), use.evidence,
            use.worked_on,
        )
        for use in uses
    )  # fmt: skip
    files.write_text(path, csv_text((COLUMNS, *rows)))


def read_kernels_csv(path: Path, *, follow: bool = False) -> tuple[KernelUse, ...]:
    """Read a kernels.csv; rows from kits without an `evidence` column count as configured."""
    columns, rows = read_table(read_text(path, _MOST_BYTES, follow=follow), path, "use a kernels.csv")
    if _NAME not in columns:
        raise FormatError(f"{path} has no column {_NAME}", "use a kernels.csv")
    return tuple(_use(f"{path}, row {number}", row) for number, row in enumerate(rows, start=1))


def use_of(call: KernelCall) -> KernelUse:
    kernel = classify_operator(call.name) or classify(call.name)
    if call.evidence == "configured":
        return KernelUse(kernel, "configured", None)
    return KernelUse(kernel, "executed", call.calls)


def _flag(value: bool | None) -> str:
    return "" if value is None else str(int(value))


def _use(where: str, row: dict[str, str]) -> KernelUse:
    name, evidence = row[_NAME].strip(), (row.get("evidence") or "configured").strip()
    if evidence == "configured":
        return use_of(KernelCall(name, "configured"))
    count = row.get("count", "").strip()
    if evidence != "executed" or not re.fullmatch("[0-9]{0,19}", count):
        raise FormatError(
            f"{where}: evidence {evidence[:40]!r} with count {count[:40]!r}",
            "evidence must be executed or configured, and count a whole number",
        )
    return use_of(KernelCall(name, "executed", int(count) if count else None))


def kernel_uses(trace: XnnTrace) -> tuple[KernelUse, ...]:
    """The log as kernel evidence: announced kernels are configured, matrix operators it ran are executed."""
    return (*configured_kernels(trace.configured), *operator_kernels(trace.operators))
