"""Functions of libraries: named by the symbol that holds an address, told apart where there is none."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest
from conftest import arm_xnnpack

from model_profiling.core.errors import FormatError
from model_profiling.runner.code_files import read_functions
from model_profiling.runner.elf import segments_of
from model_profiling.runner.elf_functions import relocated_to
from model_profiling.runner.functions import (
    CodeFunctions,
    Extents,
    Function,
    arm_addresses,
    arm_multiplies,
    x86_addresses,
)
from model_profiling.runner.sdk import installed_sdk

FMLA, LDR, RET = 0x4F801214, 0x3CC104B3, 0xD65F03C0


def of_wheel(name: str) -> Path:
    found = sorted(installed_sdk().libraries.glob(f"lib{name}.*"))
    if not found:
        pytest.skip(f"the wheel has no {name}")
    return found[0]


@pytest.fixture(scope="module")
def xnnpack() -> CodeFunctions:
    return read_functions(of_wheel("executorch_backend_xnnpack"))


def test_an_address_has_the_name_of_the_symbol_that_holds_it(xnnpack: CodeFunctions) -> None:
    place = xnnpack.named.names.index("xnn_invoke_runtime")
    start, end = int(xnnpack.named.starts[place]), int(xnnpack.named.ends[place])
    for address in (start, (start + end) // 2, end - 1):
        assert xnnpack.holding(address) == Function(start, end, "xnn_invoke_runtime")
    after = xnnpack.holding(end)
    assert after is None or after.name != "xnn_invoke_runtime"
    assert xnnpack.build_id and len(xnnpack.build_id) >= 32


def test_a_function_without_a_symbol_is_told_apart_and_has_no_name(xnnpack: CodeFunctions) -> None:
    starts = xnnpack.unnamed.starts.tolist()
    hidden = [start for start in starts if xnnpack.named.holding(start) is None]
    assert len(hidden) > 500, "most of XNNPACK is hidden"
    for start in hidden[:: len(hidden) // 20]:
        found = xnnpack.holding(start)
        assert found is not None and found.name == "" and found.start == start < found.end
    assert xnnpack.holding(0) is None and xnnpack.holding(1 << 40) is None


def test_instructions_tell_which_functions_multiply() -> None:
    xnnpack = read_functions(arm_xnnpack())
    told = {
        name: xnnpack.multiplies(Function(int(start), int(end)))
        for name, start, end in zip(
            xnnpack.named.names, xnnpack.named.starts, xnnpack.named.ends, strict=True
        )
    }
    gemms = [name for name in told if name.startswith("xnn_f16_gemm_minmax_ukernel")]
    others = [name for name in told if "_pack_" in name or "copysign" in name or "_maxpool_" in name]
    assert len(gemms) >= 2 and all(told[name] for name in gemms)
    assert len(others) > 20 and not any(told[name] for name in others)


def test_a_multiply_add_is_known_by_its_bits() -> None:
    assert arm_multiplies(np.array([FMLA] * 4 + [LDR] * 60 + [RET], np.uint32))
    assert not arm_multiplies(np.array([FMLA] * 3 + [RET], np.uint32))
    assert not arm_multiplies(np.array([FMLA] * 4 + [LDR] * 200, np.uint32))
    assert not arm_multiplies(np.array([], np.uint32))


def test_functions_in_assembly_begin_where_their_address_is_taken() -> None:
    # adrp x3, one page on; nop; add x3, x3, #0x10; and the same with another register between.
    adrp, add, other = 0xB0000003, 0x91004063, 0x91004084
    words = np.array([adrp, 0xD503201F, add, adrp, other], np.uint32)
    assert arm_addresses(words, 0x4000).tolist() == [0x5010]
    assert not len(arm_addresses(np.zeros(0, np.uint32), 0))


def x86_library(code: bytes) -> bytes:
    """One segment at 0x1000 and nothing that names or unwinds what is in it."""
    header = struct.pack("<6s10xHHIQQQIHHHHHH", b"\x7fELF\2\1", 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 120, 0x1000, 0x1000, len(code), len(code), 4096)
    return header + segment + code


def test_those_of_x86_64_begin_where_an_instruction_takes_their_address(tmp_path: Path) -> None:
    # lea rax, [rip + 0x10]; lea r9, [rip - 0x7]; what only resembles one; then two functions.
    code = b"\x48\x8d\x05\x10\0\0\0" + b"\x4c\x8d\x0d\xf9\xff\xff\xff" + b"\x48\x8d\x45\x10\0\0\0"
    (tmp_path / "lib.so").write_bytes(x86_library(code.ljust(0x40, b"\x90")))
    found = read_functions(tmp_path / "lib.so")
    assert found.holding(0x1006) is None
    assert found.holding(0x1008) == Function(0x1007, 0x1017)
    assert found.holding(0x103F) == Function(0x1017, 0x1040) and found.holding(0x1040) is None
    assert x86_addresses(np.zeros(3, np.uint8), 0).tolist() == []


def test_what_the_loader_writes_into_tables_are_functions_too(xnnpack: CodeFunctions) -> None:
    path = of_wheel("executorch_backend_xnnpack")
    if path.suffix != ".so":
        pytest.skip("in a Mach-O file every function is in a list")
    data = path.read_bytes()
    code = [each for each in segments_of(data) if each.executable]
    written = np.concatenate(relocated_to(data)).tolist()
    leads = [to for to in written if any(each.address <= to < each.address + each.size for each in code)]
    assert len(leads) >= 2
    for to in leads:
        found = xnnpack.holding(to)
        assert found is not None and found.start == to


def test_of_two_symbols_at_one_address_the_longer_holds() -> None:
    extents = Extents.of([(8, 12, "short"), (8, 20, "long"), (30, 40, "next")])
    assert extents.holding(15) == Function(8, 20, "long")
    assert extents.holding(20) is None and extents.holding(7) is None


def macho(*, names: bool = True) -> bytes:
    """A library with two functions at 0x400 and 0x440, the first of them named; its code ends at 0x460."""
    strings = b"\0_kai_kernel_made_up\0_data\0"
    symbols = struct.pack("<IBBHQ", 1, 0x0F, 1, 0, 0x10400) + struct.pack("<IBBHQ", 21, 0x01, 0, 0, 0)
    starts = bytes([0x80, 0x08, 0x40, 0])
    code_end, tail = 0x460, 0x480
    segment = struct.pack("<II16sQQQQiiII", 0x19, 152, b"__TEXT", 0x10000, 0x1000, 0, 0x1000, 5, 5, 1, 0)
    segment += struct.pack("<16s16sQQ8I", b"__text", b"__TEXT", 0x10400, code_end - 0x400, *[0] * 8)
    commands = [segment, struct.pack("<II", 0x1B, 24) + bytes(range(16))]
    commands.append(struct.pack("<IIII", 0x26, 16, tail, len(starts)))
    if names:
        at = tail + len(starts)
        commands.append(struct.pack("<IIIIII", 2, 24, at, 2, at + len(symbols), len(strings)))
    body = b"".join(commands)
    header = struct.pack("<8I", 0xFEEDFACF, 0x0100000C, 0, 6, len(commands), len(body), 0, 0)
    return (header + body).ljust(tail, b"\0") + starts + symbols + strings


def test_mach_o_functions_begin_where_its_list_says(tmp_path: Path) -> None:
    path = tmp_path / "lib.dylib"
    path.write_bytes(macho())
    found = read_functions(path)
    assert found.build_id == bytes(range(16)).hex()
    assert found.holding(0x404) == Function(0x400, 0x440, "kai_kernel_made_up")
    assert found.holding(0x440) == Function(0x440, 0x460)
    assert found.holding(0x460) is None and found.holding(0x3FF) is None
    fat = struct.pack(">II", 0xCAFEBABE, 1) + struct.pack(">IIIII", 0x0100000C, 0, 64, len(macho()), 0)
    path.write_bytes(fat.ljust(64, b"\0") + macho(names=False))
    assert read_functions(path).holding(0x404) == Function(0x400, 0x440)


def test_no_damaged_library_does_more_than_be_refused(tmp_path: Path) -> None:
    dice, path = random.Random(13), tmp_path / "damaged"
    for whole in (of_wheel("executorch_etdump").read_bytes(), macho()):
        for number in range(120):
            content = bytearray(whole if number % 3 else whole[: dice.randrange(len(whole))])
            for _ in range(dice.choice((1, 4, 30)) if content else 0):
                content[dice.randrange(min(len(content), 4096 if number % 2 else len(content)))] = (
                    dice.randrange(256)
                )
            path.write_bytes(bytes(content))
            try:
                found = read_functions(path)
            except FormatError as refused:
                assert str(path) in refused.problem and refused.fix
            else:
                found.holding(0x1000)
    with pytest.raises(FormatError, match="cannot be read"):
        read_functions(tmp_path / "gone")
