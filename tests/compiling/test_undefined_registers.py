"""Reads of registers that nothing has written: of listings by hand, and of a real kernel whose code was made wrong."""

from __future__ import annotations

import re
import struct

import pytest

from cutesmith.compiling.compilation import compile_kernel, looked_at
from cutesmith.compiling.sass import disassembled, disassembler
from cutesmith.compiling.undefined_registers import UndefinedRead, undefined_reads
from cutesmith.problems.loading import load_file
from cutesmith.recording.open_session import session
from tests.kernel_files import kernel_file

NO_OPERATION = struct.pack("<QQ", 0x7918, 0xFC000000000000)


def listing(*lines: str) -> str:
    """As nvdisasm prints a kernel; a line is a label or an instruction."""
    rows, place = [".text.kernel:"], 0
    for line in lines:
        rows.append(f"{line}:" if line.startswith(".L") else f"        /*{place:04x}*/    {line} ;")
        place += 0 if line.startswith(".L") else 16
    return "\n".join(rows)


def read_of(*lines: str) -> list[int]:
    return [read.register for read in undefined_reads(listing(*lines))]


def test_the_thread_s_number_that_comes_too_late_is_told_with_its_place():
    """What ptxas made of a product with weights of 4 bits, whose bytes lay apart."""
    (read,) = undefined_reads(
        listing("LDC R1, c[0x0][0x28]", "SHF.R.U32.HI R133, RZ, 0x5, R89.reuse", "S2R R77, SR_TID.X", "EXIT")
    )
    assert read == UndefinedRead("kernel", 0x10, "SHF.R.U32.HI R133, RZ, 0x5, R89", 89)
    assert str(read) == "`SHF.R.U32.HI R133, RZ, 0x5, R89` at 0x10 reads R89"


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["@P0 BRA `(.L_x_1)", "MOV R4, 0x1", ".L_x_1", "STG.E desc[UR4][R4.64], R4", "EXIT"], []),
        (["@P0 BRA `(.L_x_1)", "MOV R4, 0x1", "EXIT", ".L_x_1", "IADD3 R5, R4, 0x1, RZ", "EXIT"], [4]),
        (["MOV R2, 0x0", ".L_x_0", "@P1 IADD3 R2, R3, R2, RZ", "MOV R3, 0x1", "@P0 BRA `(.L_x_0)", "EXIT"], []),
        (["BRA `(.L_x_1)", ".L_x_0", "IADD3 R2, R9, 0x1, RZ", ".L_x_1", "EXIT", ".L_x_2", "BRA `(.L_x_2)"], []),
        (["CALL.REL.NOINC `($f)", "IADD3 R5, R4, 0x1, RZ", "EXIT"], []),
    ],
    ids=["written on one way", "written on the other way", "written at a loop's end", "never reached", "leaves"],
)
def test_a_register_counts_as_written_where_any_way_writes_it(lines, found):
    assert read_of(*lines) == found


@pytest.mark.parametrize(
    ("write", "register"),
    [
        ("LDG.E.128 R4, desc[UR4][UR6.64]", 7),
        ("IMAD.WIDE.U32 R4, RZ, 0x4, RZ", 5),
        ("CS2R R4, SRZ", 5),
        ("LOP3.LUT P0, R4, RZ, 0x3, RZ, 0xc0, !PT", 4),
        ("SHFL.BFLY PT, R4, RZ, 0x1, 0x1f", 4),
        ("@!P2 MOV R4, 0x1", 4),
        ("HGMMA.64x128x16.F32.BF16 R4, gdesc[UR8], !UPT, gsb0", 67),
    ],
)
def test_what_an_instruction_writes(write, register):
    assert read_of(write, f"STG.E desc[UR4][UR6.64], R{register}", "EXIT") == []
    assert read_of(write, "STG.E desc[UR4][UR6.64], R3", "EXIT") == [3]


def test_instructions_that_only_read_write_nothing():
    for text in ("ISETP.GE.AND P0, PT, R8, R9, PT", "STS [R8], R9", "BAR.SYNC R8, R9", "R2UR UR4, R8, R9"):
        assert set(read_of(text, "IADD3 R5, R9, 0x1, RZ", "EXIT")) == {8, 9}


def test_the_half_of_a_register_that_a_permutation_leaves_may_be_anything():
    assert read_of("PRMT R18, RZ, 0x7632, R18", "EXIT") == []
    assert read_of("PRMT R18, R8, 0x7632, R19", "EXIT") == [8, 19]


def test_a_kernel_whose_thread_never_asks_for_its_number_is_told():
    """The fault is put into real machine code: the instruction that reads the number becomes one that does nothing."""
    program = disassembler() or pytest.skip("nvdisasm is not installed")
    path = kernel_file("relu_tvm_ffi")
    with session("sm_90a", fake=True) as recorded:
        file = load_file(path)
        file.kernel_fn(*file.get_inputs())
    (cubin,) = (module.cubin for module in recorded.modules)
    (report,) = compile_kernel(path, ["sm_90a"]).archs
    right, wrong = (disassembled(each, program)[0] for each in (cubin, without_the_thread_s_number(cubin)))
    assert looked_at(report, [right]) is report
    (kernel,) = looked_at(report, [wrong]).kernels
    assert kernel.undefined_registers
    assert re.search(r"nothing has written: `.*` at 0x[0-9a-f]+ reads R\d+", kernel.notes[-1])


def without_the_thread_s_number(cubin: bytes) -> bytes:
    """The cubin whose only `S2R Rn, SR_TID.X` is a NOP."""
    words = struct.iter_unpack("<QQ", cubin[: len(cubin) // 16 * 16])
    (at,) = (n for n, (low, high) in enumerate(words) if low & 0xFFFF == 0x7919 and high >> 8 & 0xFF == 0x21)
    return cubin[: 16 * at] + NO_OPERATION + cubin[16 * at + 16 :]
