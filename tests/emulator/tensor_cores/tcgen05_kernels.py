"""PTX of one block, or of a pair, that multiplies operands in shared memory by `tcgen05.mma`, for the tests.

Operands are K-major without swizzle, as in warpgroup_kernels.py. Thread t reads lane t of tensor memory.
"""

from __future__ import annotations

import numpy as np

from tests.emulator.machine.launches import emulate
from tests.emulator.tensor_cores.warpgroup_kernels import BYTES, A, B, image

COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar];"
WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p2, [%bar], 0; @!%p2 bra W;"
LOADED = "tcgen05.wait::ld.sync.aligned;"
PAIR_COMMIT = "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%bar], 3;"
_DESCRIPTOR = 8 << 16 | 1 << 46
HELD = 12288
"""The byte of shared memory from which on words for the lanes of tensor memory lie, 8 for each."""


def descriptor(name: str, start: int, row: int = 32) -> str:
    """PTX that makes a descriptor of an operand at byte `start` of shared memory, whose rows have `row` bytes."""
    return (
        f"mov.u32 %r1, operands; add.u32 %r1, %r1, {start}; shr.u32 %r1, %r1, 4; cvt.u64.u32 {name}, %r1; "
        f"or.b64 {name}, {name}, {_DESCRIPTOR | row // 2 << 32};"
    )


def store_held(columns: int, at: int) -> str:
    """Store words of shared memory, `columns` for each lane, to tensor memory from column `at` on."""
    loads = " ".join(f"ld.shared.b32 %c{index}, [%t3+{HELD + 4 * index}];" for index in range(columns))
    return (
        f"mul.lo.u32 %t2, %r0, 32; add.u32 %t3, %r2, %t2; {loads} add.u32 %t2, %t1, {at};\n"
        f"tcgen05.st.sync.aligned.32x32b.x{columns}.b32 [%t2], {registers(columns)};\n"
        "tcgen05.wait::st.sync.aligned; bar.sync 0;"
    )


def with_held(data: np.ndarray, words: np.ndarray) -> np.ndarray:
    """An image of shared memory with uint32 (128, columns) where `store_held` reads them."""
    held = np.zeros((128, 8), np.uint32)
    held[:, : words.shape[1]] = words
    data[HELD : HELD + held.nbytes] = held.view(np.uint8).ravel()
    return data


def registers(count: int, prefix: str = "%c") -> str:
    return "{" + ", ".join(f"{prefix}{index}" for index in range(count)) + "}"


def load(count: int, address: str = "%t1", shape: str = "32x32b", more: str = "") -> str:
    """A load of `count` registers."""
    per = {"16x128b": 2, "16x256b": 4}.get(shape.split(".")[0], 1)
    return f"tcgen05.ld.sync.aligned.{shape}.x{count // per}{more}.b32 {registers(count)}, [{address}];"


def one(kind: str, idesc: int, enable: str = "0", d: str = "%t0", a: str = "%da") -> str:
    """A product that thread 0 asks for."""
    return f"@%first tcgen05.mma.cta_group::1.kind::{kind} [{d}], {a}, %db, {idesc}, {enable};"


def program(body: str, count: int, columns: int = 128, blocks: int = 1) -> str:
    """Allocate `columns`, run `body`, store registers %c of each thread to `p1` (blocks, count, 128).

    `p0` holds the image of shared memory of each of 1 or 2 blocks. %first is the first thread of a block, %leads that
    of block 0.
    """
    everyone = "bar.sync 0;" if blocks == 1 else "barrier.cluster.arrive; barrier.cluster.wait;"
    group = f"cta_group::{blocks}.sync.aligned"
    lines = [
        f".reg .b32 %c<{max(count, 1)}>; .reg .b32 %t<4>; .reg .b32 %bar; .reg .b64 %da, %db;"
        " .reg .pred %first, %leads, %warp0;"
        f" .shared .align 1024 .b8 operands[{BYTES}]; .shared .align 8 .b8 sync[16];",
        "mov.u32 %r0, %tid.x; mov.u32 %r2, operands; mov.u32 %bar, sync; ld.param.u64 %d0, [p0]; mov.u32 %r5, %ctaid.x;"
        f" mul.wide.u32 %d1, %r5, {BYTES}; add.u64 %d0, %d0, %d1;",
        "mul.lo.u32 %r3, %r0, 8; cvt.u64.u32 %d1, %r3; add.u64 %d2, %d0, %d1; add.u32 %r4, %r2, %r3;"
        + "".join(f" ld.global.b64 %d3, [%d2+{at}]; st.shared.b64 [%r4+{at}], %d3;" for at in range(0, BYTES, 1024)),
        "setp.eq.u32 %first, %r0, 0; setp.lt.u32 %warp0, %r0, 32; setp.eq.and.u32 %leads, %r5, 0, %first;",
        "@%first mbarrier.init.shared.b64 [%bar], 1;",
        f"@%warp0 tcgen05.alloc.{group}.shared::cta.b32 [%bar+8], {columns};",
        f"{descriptor('%da', A)} {descriptor('%db', B)}",
        f"fence.proxy.async.shared::cta; {everyone}",
        "ld.shared.b32 %t0, [%bar+8]; and.b32 %t1, %r0, 96; shl.b32 %t1, %t1, 16; add.u32 %t1, %t1, %t0;",
        body,
        "ld.param.u64 %d6, [p1]; mul.wide.u32 %d7, %r0, 4; add.u64 %d6, %d6, %d7;"
        f" mul.wide.u32 %d7, %r5, {512 * count}; add.u64 %d6, %d6, %d7;",
        " ".join(f"st.global.b32 [%d6+{512 * index}], %c{index};" for index in range(count)),
        f"{everyone} @%warp0 tcgen05.dealloc.{group}.b32 %t0, {columns};",
    ]
    return "\n".join([*lines, "ret;"])


FIRST = program("BODY", 0).splitlines().index("BODY") + 1
"""The number of the body's first line."""


def launch(body, a, b, count, *, columns=128, out=None, held=None, **options):
    """(Outcome, uint32 (count, 128): registers of each thread) of a body; A (128, k) and B (n, k) as bits.

    `held`: uint32 (128, up to 8), what `store_held` stores.
    """
    found = np.zeros((count, 128), np.uint32) if out is None else out
    data = image(a, b) if held is None else with_held(image(a, b), held)
    return emulate(program(body, count, columns), data, found, block=128, **options), found


def instruction_descriptor(a: int, b: int, d: int, m: int, n: int, more: int = 0) -> int:
    """The bits of a dense kind."""
    return d << 4 | a << 7 | b << 10 | n // 8 << 17 | m // 16 << 24 | more
