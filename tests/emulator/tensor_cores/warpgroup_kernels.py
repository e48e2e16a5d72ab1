"""PTX of one block that fills shared memory with operands and multiplies them by `wgmma`, for the tests.

Operands are K-major without swizzle: eight rows of 16 bytes are together, the next 16 bytes of k follow after 128
bytes, the next eight rows after those of k.
"""

from __future__ import annotations

import numpy as np

from tests.emulator.machine.launches import emulate

A, B = 0, 4096
BYTES = 16384
WAIT = "wgmma.wait_group.sync.aligned 0;"
COMMIT = "wgmma.commit_group.sync.aligned;"
FENCE = "wgmma.fence.sync.aligned;"
BF16 = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16"


def image(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """uint8 (BYTES,): the bits of A (64, k) and B (n, k) where the descriptors of `program` say."""
    data = np.zeros(BYTES, np.uint8)
    for matrix, start in ((a, A), (b, B)):
        rows = np.ascontiguousarray(matrix).view(np.uint8)
        for row, content in enumerate(rows):
            for chunk in range(len(content) // 16):
                at = start + row // 8 * 8 * len(content) + chunk * 128 + row % 8 * 16
                data[at : at + 16] = content[16 * chunk : 16 * chunk + 16]
    return data


def descriptor(name: str, start: int) -> str:
    """PTX that makes a descriptor of an operand at byte `start` of shared memory."""
    return (
        f"mov.u32 %r1, operands; add.u32 %r1, %r1, {start}; shr.u32 %r1, %r1, 4; cvt.u64.u32 {name}, %r1; "
        f"or.b64 {name}, {name}, {8 << 16 | 16 << 32};"
    )


def registers(count: int, prefix: str = "%c") -> str:
    """A vector of registers."""
    return "{" + ", ".join(f"{prefix}{index}" for index in range(count)) + "}"


def program(body: str, count: int, threads: int = 128) -> str:
    """Load D from `p1` and A's registers from `p2`, run `body`, store D to `p3`; descriptors are %da and %db."""
    lines = [
        f".reg .b32 %c<{max(count, 1)}>; .reg .b32 %a<4>; .reg .b64 %da, %db; .reg .b32 %x<8>;"
        f" .shared .align 1024 .b8 operands[{BYTES}];",
        "mov.u32 %r0, %tid.x; mov.u32 %r2, operands; ld.param.u64 %d0, [p0];",
    ]
    copied = "mul.lo.u32 %r3, %r0, 8; cvt.u64.u32 %d1, %r3; add.u64 %d2, %d0, %d1; add.u32 %r4, %r2, %r3;"
    copied += "".join(
        f" ld.global.b64 %d3, [%d2+{at}]; st.shared.b64 [%r4+{at}], %d3;" for at in range(0, BYTES, 8 * threads)
    )
    lines.append(copied)
    lines.append("ld.param.u64 %d4, [p1]; ld.param.u64 %d5, [p2]; ld.param.u64 %d6, [p3]; mul.wide.u32 %d7, %r0, 4;")
    lines.append("add.u64 %d4, %d4, %d7; add.u64 %d5, %d5, %d7; add.u64 %d6, %d6, %d7;")
    lines.append(" ".join(f"ld.global.b32 %c{i}, [%d4+{4 * threads * i}];" for i in range(count)))
    lines.append(" ".join(f"ld.global.b32 %a{i}, [%d5+{4 * threads * i}];" for i in range(4)))
    lines.append(f"{descriptor('%da', A)} {descriptor('%db', B)} setp.eq.u32 %p0, %r0, %r0;")
    lines.append("fence.proxy.async.shared::cta; bar.sync 0;")
    lines.append(body)
    lines.append(" ".join(f"st.global.b32 [%d6+{4 * threads * i}], %c{i};" for i in range(count)))
    return "\n".join([*lines, "ret;"])


FIRST = program("BODY", 0).splitlines().index("BODY") + 1
"""The number of the body's first line."""


def launch(body, a, b, d, fragments=None, *, threads=128, **options):
    """(Outcome, uint32 (registers, threads) of D) of a body; `d` uint32 (registers, threads), A and B as bits."""
    given = np.zeros((4, threads), np.uint32) if fragments is None else fragments
    out = np.zeros_like(d)
    code = program(body, len(d), threads)
    return emulate(code, image(a, b), np.ascontiguousarray(d), given, out, block=threads, **options), out


def accumulator_place(register: int, thread: int, bits: int) -> tuple[int, list[int]]:
    """Row and columns of what a register of D holds: figure "WGMMA .m64nNk16 register fragment layout for matrix D"."""
    warp, lane = divmod(thread, 32)
    per = 32 // bits
    element = register * per
    row = 16 * warp + lane // 4 + 8 * (element // 2 % 2)
    column = element // 4 * 8 + lane % 4 * 2 + element % 2
    return row, [column + index for index in range(per)]


def scattered(matrix: np.ndarray) -> np.ndarray:
    """uint32 (registers, 128) of D as threads hold it, from its bits uint16 or uint32 (64, n)."""
    bits = matrix.itemsize * 8
    count = matrix.size // 128 * bits // 32
    found = np.zeros((count, 128), np.uint32)
    for register in range(count):
        for thread in range(128):
            row, columns = accumulator_place(register, thread, bits)
            for index, column in enumerate(columns):
                found[register, thread] |= np.uint32(matrix[row, column]) << np.uint32(16 * index)
    return found


def gathered(held: np.ndarray, bits: int) -> np.ndarray:
    """The bits (64, n) of D from what threads hold: the inverse of `scattered`."""
    per = 32 // bits
    matrix = np.zeros((64, len(held) * 2 * per), np.uint32 if bits == 32 else np.uint16)
    for register in range(len(held)):
        for thread in range(128):
            row, columns = accumulator_place(register, thread, bits)
            for index, column in enumerate(columns):
                matrix[row, column] = int(held[register, thread]) >> (bits * index) & ((1 << bits) - 1)
    return matrix


def fragments_of(matrix: np.ndarray) -> np.ndarray:
    """uint32 (4, 128): A (64, k) of 8-, 16- or 32-bit elements in registers, as the PTX ISA's figures show."""
    per = 4 // matrix.itemsize
    found = np.zeros((4, 128), np.uint32)
    for register in range(4):
        for thread in range(128):
            warp, lane = divmod(thread, 32)
            row = 16 * warp + lane // 4 + 8 * (register % 2)
            column = 4 * per * (register // 2) + per * (lane % 4)
            for index in range(per):
                bits = int(matrix[row, column + index]) << (matrix.itemsize * 8 * index)
                found[register, thread] |= np.uint32(bits)
    return found
