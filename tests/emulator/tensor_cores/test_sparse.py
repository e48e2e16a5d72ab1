"""`mma.sp.sync` and `wgmma.mma_async.sp`: products with a sparse A against the whole matrix; metadata; refusals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cutesmith.emulator.faults import KernelFault, UnsupportedInstruction
from tests.emulator.machine.launches import emulate, run_warps
from tests.emulator.tensor_cores.test_warpgroup_multiply import ENCODE
from tests.emulator.tensor_cores.warpgroup_kernels import (
    COMMIT,
    FENCE,
    WAIT,
    B,
    fragments_of,
    gathered,
    image,
    program,
    registers,
)

RANDOM = np.random.default_rng(31)
PATTERNS = list(itertools.combinations(range(4), 2))
WIDTHS = {"tf32": 2, "s4": 8, "u4": 8}
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4}


def sparse(rows: int, k: int, kind: str, low: int = -2):
    """Stored elements (rows, k / 2), codes (rows, chunks), the whole matrix (rows, k)."""
    width = WIDTHS.get(kind, 4)
    whole, stored, codes = np.zeros((rows, k), int), np.zeros((rows, k // 2), int), np.zeros((rows, k // width), int)
    for row, chunk in np.ndindex(*codes.shape):
        if width == 2:
            first = RANDOM.integers(2)
            codes[row, chunk], places = (0b0100, 0b1110)[first], [first]
        else:
            pair = PATTERNS[RANDOM.integers(6)]
            codes[row, chunk] = pair[0] | pair[1] << 2
            places = list(pair) if width == 4 else [2 * one + part for one in pair for part in (0, 1)]
        for index, place in enumerate(places):
            value = RANDOM.integers(low, 4)
            stored[row, chunk * len(places) + index] = whole[row, chunk * width + place] = value
    return stored, codes, whole


def metadata_of_a_warp(codes: np.ndarray, selector: int, bits: int) -> np.ndarray:
    """uint32 (32,): the figures of `mma.sp` for 4, 8 and 16 chunks of a row; other lanes hold what has no meaning."""
    chunks = codes.shape[1]
    words = np.zeros(32, np.uint32)
    for lane in range(32):
        group, quad = divmod(lane, 4)
        if chunks == 4 and quad == selector:
            parts = [codes[group], codes[group + 8]]
        elif chunks == 8 and quad // 2 == selector and bits <= 8:
            parts = [codes[group + 8 * (quad % 2)]]
        elif chunks == 8 and quad // 2 == selector:
            half = slice(quad % 2 * 4, quad % 2 * 4 + 4)
            parts = [codes[group, half], codes[group + 8, half]]
        elif chunks == 16:
            parts = [codes[group + 8 * (quad % 2), quad // 2 * 8 : quad // 2 * 8 + 8]]
        else:
            continue
        for place, code in enumerate(np.concatenate(parts)):
            words[lane] |= np.uint32(int(code) << 4 * place)
    return words


def words_of(numbers: np.ndarray, bits: int) -> np.ndarray:
    """uint32 (…) of patterns (…, per): the first is lowest."""
    per = 32 // bits
    shifted = numbers.reshape(*numbers.shape[:-1], per).astype(np.uint64) << np.arange(
        per, dtype=np.uint64
    ) * np.uint64(bits)
    return shifted.sum(axis=-1).astype(np.uint64)


def patterns(kind: str, values: np.ndarray) -> np.ndarray:
    return values & 15 if kind.endswith("4") else ENCODE[kind](values)


def warp_registers(matrix: np.ndarray, bits: int, rows: int) -> list[np.ndarray]:
    """uint64 (1, 32) registers of A (16, columns), or of B^T (8, columns): neighbours along k in a register."""
    per = 32 // bits
    found = []
    for block, half in itertools.product(range(matrix.shape[1] // (4 * per)), range(rows // 8)):
        words = np.zeros((1, 32), np.uint64)
        for lane in range(32):
            row, column = lane // 4 + 8 * half, 4 * per * block + per * (lane % 4)
            words[0, lane] = words_of(matrix[row, column : column + per], bits)
        found.append(words)
    return found


def run_sparse(opcode: str, stored, codes, right, kinds, selector=0, words=None):
    """Bits of D (16, 8) of a warp, C = 0; `right` is B^T (8, k)."""
    a = warp_registers(patterns(kinds[0], stored), BITS[kinds[0]], 16)
    b = warp_registers(patterns(kinds[1], right), BITS[kinds[1]], 8)
    given = [
        *a,
        *b,
        (metadata_of_a_warp(codes, selector, BITS[kinds[0]]) if words is None else words)[None].astype(np.uint64),
    ]
    values = {f"%r{index + 4}": register for index, register in enumerate(given)}
    names = list(values)
    first, second = ", ".join(names[: len(a)]), ", ".join(names[len(a) : -1])
    count = 2 if opcode.endswith("f16") else 4
    d, c = ", ".join(f"%r{index}" for index in range(count)), ", ".join(["0"] * count)
    code = f"{opcode} {{{d}}}, {{{first}}}, {{{second}}}, {{{c}}}, {names[-1]}, {selector:#x};"
    found = run_warps(code, values, *(f"%r{index}" for index in range(count)))
    result = np.zeros((16, 8), np.uint32)
    for register, lane in np.ndindex(count, 32):
        word = int(found[register][0, lane])
        if count == 2:
            row, column = lane // 4 + 8 * register, lane % 4 * 2
            result[row, column], result[row, column + 1] = word & 0xFFFF, word >> 16
        else:
            result[lane // 4 + 8 * (register // 2), lane % 4 * 2 + register % 2] = word
    return result


@pytest.mark.parametrize("ordered", ["", "::ordered_metadata"])
@pytest.mark.parametrize(
    ("shape", "result", "a", "b", "selector"),
    [
        ("m16n8k16", "f32", "f16", "f16", 0), ("m16n8k16", "f16", "f16", "f16", 3),
        ("m16n8k32", "f32", "f16", "f16", 1), ("m16n8k32", "f16", "f16", "f16", 0),
        ("m16n8k16", "f32", "bf16", "bf16", 2), ("m16n8k32", "f32", "bf16", "bf16", 1),
        ("m16n8k8", "f32", "tf32", "tf32", 1), ("m16n8k16", "f32", "tf32", "tf32", 1),
        ("m16n8k64", "f32", "e4m3", "e5m2", 0), ("m16n8k64", "f32", "e5m2", "e5m2", 0),
        ("m16n8k32", "s32", "s8", "u8", 1), ("m16n8k64", "s32", "u8", "s8", 0),
        ("m16n8k64", "s32", "s4", "s4", 1), ("m16n8k128", "s32", "u4", "s4", 0),
    ],
)  # fmt: skip
def test_products_of_a_warp(shape, result, a, b, selector, ordered):
    k = int(shape.removeprefix("m16n8k"))
    stored, codes, whole = sparse(16, k, a, 0 if a.startswith("u") else -2)
    right = RANDOM.integers(0 if b.startswith("u") else -2, 4, (8, k))
    opcode = f"mma.sp{ordered}.sync.aligned.{shape}.row.col.{result}.{a}.{b}.{result}"
    found = run_sparse(opcode, stored, codes, right, (a, b), selector)
    numbers = {"f16": lambda: found.astype(np.uint16).view(np.float16), "s32": lambda: found.view(np.int32)}
    assert (numbers.get(result, lambda: found.view(np.float32))() == whole @ right.T).all()


F16 = "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


def test_what_is_not_stored_is_not_multiplied():
    stored, codes, _ = sparse(16, 16, "f16")
    codes[:] = 0b0100
    right = np.zeros((8, 16)) + np.where(np.arange(16) % 4 < 2, 1.0, np.inf)
    a = warp_registers(patterns("f16", stored), 16, 16)
    b = warp_registers(right.astype(np.float16).view(np.uint16), 16, 8)
    values = {f"%r{index + 4}": register for index, register in enumerate([*a, *b])}
    values["%r9"] = metadata_of_a_warp(codes, 0, 16)[None].astype(np.uint64)
    code = f"{F16} {{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {{%r6, %r7}}, {{0, 0, 0, 0}}, %r9, 0;"
    found = run_warps(code, values, "%r0", "%r2")
    for register, half in zip(found, (0, 8)):
        sums = register[0].astype(np.uint32).view(np.float32)
        assert (sums == stored.sum(axis=1)[half + np.arange(32) // 4]).all()


def test_one_order_of_indices_is_for_ordered_metadata_alone():
    """Places 2 and 1, in that order: without `ordered_metadata` they are taken; twice the same place never is."""
    stored, codes, _ = sparse(16, 16, "f16")
    codes[:] = 0b0110
    right = RANDOM.integers(-2, 4, (8, 16))
    chosen = np.stack([4 * np.arange(4) + 2, 4 * np.arange(4) + 1], axis=1).ravel()
    found = run_sparse(F16.replace("::ordered_metadata", ""), stored, codes, right, ("f16", "f16"))
    assert (found.view(np.float32) == stored @ right[:, chosen].T).all()
    with pytest.raises(KernelFault, match="no meaning"):
        run_sparse(F16, stored, codes, right, ("f16", "f16"))
    with pytest.raises(KernelFault, match="no meaning"):
        run_sparse(F16.replace("::ordered_metadata", ""), stored, codes * 0 + 0b0101, right, ("f16", "f16"))


@pytest.mark.parametrize(("shape", "selector", "most"), [("m16n8k16", 4, 4), ("m16n8k32", 2, 2)])
def test_a_selector_that_does_not_exist_is_refused(shape, selector, most):
    k = int(shape.removeprefix("m16n8k"))
    stored, codes, _ = sparse(16, k, "f16")
    with pytest.raises(UnsupportedInstruction, match=f"below {most}"):
        run_sparse(F16.replace("m16n8k16", shape), stored, codes, np.zeros((8, k), int), ("f16", "f16"), selector)


# ----------------------------------------------------------------------------------------------------------- warpgroups

DESCRIBE = "mov.u32 %r1, operands; add.u32 %r1, %r1, {start}; shr.u32 %r1, %r1, 4; cvt.u64.u32 %db, %r1; or.b64 %db, %db, {bits};"  # noqa: E501
"""B has rows of 64 bytes: the next eight rows follow after 512."""


def launch(opcode, stored, codes, right, kind, *, in_registers=False, selector=0, body=None, **options):
    """(Outcome, registers of D) of `D = A B`, twice: the second time D is added."""
    bits_a, bits_b = patterns(kind, stored), patterns(kind, right)
    n = len(right)
    count = n // 4 if opcode.split(".")[-3] == "f16" else n // 2
    words = np.concatenate(
        [metadata_of_a_warp(codes[16 * warp : 16 * warp + 16], selector, BITS[kind]) for warp in range(4)]
    )
    a = registers(4, "%a") if in_registers else "%da"
    constants = "" if kind.startswith(("s", "u")) else ", 1, 1"
    if BITS[kind] == 16:
        constants += ", 0" if in_registers else ", 0, 0"
    first, again = (
        f"{opcode} {registers(count)}, {a}, %db, %x0, {selector}, {adds}{constants};" for adds in ("%p1", "%p0")
    )
    load = "ld.param.u64 %d8, [p4]; mul.wide.u32 %d9, %r0, 4; add.u64 %d8, %d8, %d9; ld.global.b32 %x0, [%d8];"
    lines = [load, DESCRIBE.format(start=B, bits=8 << 16 | 32 << 32), "setp.ne.u32 %p1, %r0, %r0;", FENCE]
    lines += [first, again, COMMIT, WAIT] if body is None else body
    given = fragments_of(bits_a) if in_registers else np.zeros((4, 128), np.uint32)
    d, out = np.zeros((count, 128), np.uint32), np.zeros((count, 128), np.uint32)
    code = program("\n".join(lines), count)
    arrays = (image(bits_a, bits_b), d, given, out, words)
    return emulate(code, *arrays, block=128, **options), out


@pytest.mark.sampled(2)
@pytest.mark.parametrize("in_registers", [False, True])
@pytest.mark.parametrize(
    ("k", "result", "kind", "n", "selector"),
    [
        (32, "f32", "f16", 16, 0), (32, "f16", "f16", 8, 1), (32, "f32", "bf16", 128, 1), (16, "f32", "tf32", 8, 1),
        (64, "f32", "e4m3", 16, 0), (64, "f16", "e5m2", 8, 0), (64, "s32", "s8", 16, 0), (64, "s32", "u8", 8, 0),
    ],
)  # fmt: skip
def test_products_of_a_warpgroup(k, result, kind, n, selector, in_registers):
    stored, codes, whole = sparse(64, k, kind, 0 if kind == "u8" else -2)
    right = RANDOM.integers(0 if kind == "u8" else -2, 4, (n, k))
    opcode = f"wgmma.mma_async.sp.sync.aligned.m64n{n}k{k}.{result}.{kind}.{kind}"
    for order in (0, 1):
        outcome, held = launch(
            opcode, stored, codes, right, kind, in_registers=in_registers, selector=selector, order=order
        )
        assert outcome.findings == ()
        found = gathered(held, 16 if result == "f16" else 32)
        numbers = {"f16": lambda: found.view(np.float16), "s32": lambda: found.view(np.int32)}  # noqa: B023
        assert (numbers.get(result, lambda: found.view(np.float32))() == 2 * whole @ right.T).all()  # noqa: B023


def test_metadata_of_a_warpgroup_without_a_meaning_are_a_finding():
    stored, codes, _ = sparse(64, 32, "f16")
    codes[40, 3] = 0b0110
    outcome, _ = launch(
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16", stored, codes, np.zeros((8, 32), int), "f16"
    )
    assert [finding.kind for finding in outcome.findings][:1] == ["invalid_operand"]


@pytest.mark.parametrize(
    ("opcode", "selector", "why"),
    [
        ("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16", 2, "below 2"),
        ("wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.f16.f16", 0, "no such shape"),
        ("wgmma.mma_async.sp.sync.aligned.m64n8k512.s32.b1.b1", 0, "no such shape"),
    ],
)
def test_other_forms_of_a_warpgroup_are_refused(opcode, selector, why):
    stored, codes, _ = sparse(64, 32, "f16")
    with pytest.raises(UnsupportedInstruction, match=why):
        launch(opcode, stored, codes, np.zeros((8, 32), int), "f16", selector=selector)


def test_rows_of_b_beyond_their_swizzle_are_refused():
    """64 bytes of k do not fit into a swizzle's rows of 32: where the rest lies is not published."""
    stored, codes, _ = sparse(64, 32, "f16")
    opcode = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
    multiply = f"{opcode} {registers(4)}, %da, %db, %x0, 0, %p1, 1, 1, 0, 0;"
    body = [f"or.b64 %db, %db, {3 << 62};", multiply, COMMIT, WAIT]
    with pytest.raises(UnsupportedInstruction, match="32-byte swizzle"):
        launch(opcode, stored, codes, np.zeros((8, 32), int), "f16", body=body)
