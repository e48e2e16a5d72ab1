"""Matrix multiplications: operands, special values, what other SMs do differently (test_recorded.py has the rest)."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.machine.settings import Settings
from cutesmith.emulator.tensor_cores.arithmetic import tensor_core_of
from cutesmith.emulator.tensor_cores.fragments import fragment_order, unpack
from cutesmith.emulator.tensor_cores.multiplication import Multiplication, compute
from cutesmith.emulator.tensor_cores.warp_multiply import parse_multiplication
from tests.emulator.machine.launches import run_warps

BF16 = "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
CODE = f"{BF16} {{%r0, %r1, %r2, %r3}}, {{%r4, %r5, %r6, %r7}}, {{%r8, %r9}}, {{%r10, %r11, %r12, %r13}};"


def dot(a, b, c=0.0, sm=90, kind="bf16", result="f32"):
    """D[0][0] of a multiplication whose first row, first column and addend are given."""
    k = len(a)
    form = Multiplication(16, k, kind, kind, result)
    matrices = np.zeros((1, 16, k)), np.zeros((1, k, 8)), np.zeros((1, 16, 8))
    matrices[0][0, 0], matrices[1][0, :, 0], matrices[2][0, 0, 0] = a, b, c
    shift = np.uint32(16 if kind == "bf16" else 0)
    bits = [(matrix.astype(np.float32).view(np.uint32) >> shift).astype(np.uint64) for matrix in matrices[:2]]
    addend = matrices[2].astype(np.float32).view(np.uint32) if result == "f32" else matrices[2].astype(np.float16)
    addend = addend if result == "f32" else addend.view(np.uint16)
    d = compute(form, *bits, addend.astype(np.uint64), tensor_core_of(sm))[0, 0, 0]
    return np.uint32(d).view(np.float32) if result == "f32" else np.uint16(d).view(np.float16)


def ones(*places, k=16, value=1.0):
    row = np.zeros(k)
    row[list(places)] = value
    return row


@pytest.mark.parametrize(("sm", "fraction"), [(70, 23), (80, 24), (90, 25)])
def test_addends_are_cut_below_the_largest_exponent(sm, fraction):
    """Of 1 + 4 (2^-(F + 1)) - 1 nothing is left; of 1 + 4 (2^-F) - 1 four units are (in one chunk of k)."""
    k = tensor_core_of(sm).chunk // 2
    tiny = 2.0 ** -(fraction // 2)
    for exponent, expected in ((fraction, 2 * 2.0**-fraction), (fraction + 1, 0.0)):
        a = np.array([1.0, -1.0, tiny, tiny] + [0.0] * (16 - 4))
        b = np.array([1.0, 1.0, 2.0**-exponent / tiny, 2.0**-exponent / tiny] + [0.0] * (16 - 4))
        assert dot(a, b, sm=sm) == expected, (k, exponent)


@pytest.mark.parametrize(("sm", "chunk"), [(70, 4), (80, 8), (90, 16)])
def test_a_chunk_of_k_is_one_sum(sm, chunk):
    """A tiny addend survives 1 - 1 only in another chunk."""
    for place in range(2, 16):
        a = ones(0) - ones(1) + ones(place, value=2.0**-30)
        assert dot(a, np.ones(16), sm=sm) == (2.0**-30 if place >= chunk else 0.0)


def test_float32_results_are_truncated_and_float16_ones_rounded():
    assert dot(ones(0, 1), np.array([1.0, 1.75 * 2.0**-24] + [0.0] * 14)) == np.float32(1)
    assert dot(-ones(0, 1), np.array([1.0, 1.75 * 2.0**-24] + [0.0] * 14)) == np.float32(-1)
    bits = np.float16(1).view(np.uint16)
    half = np.zeros((1, 16, 16), np.uint64), np.zeros((1, 16, 8), np.uint64), np.zeros((1, 16, 8), np.uint64)
    half[0][0, 0, :2], half[1][0, 0, 0], half[1][0, 1, 0] = bits, bits, np.float16(1.5 * 2.0**-11).view(np.uint16)
    d = compute(Multiplication(16, 16, "f16", "f16", "f16"), *half, tensor_core_of(90))[0, 0, 0]
    assert np.uint16(d).view(np.float16) == np.float16(1 + 2.0**-10)


def test_special_values():
    inf, nan = float("inf"), float("nan")
    assert dot(ones(0), ones(0), inf) == inf
    assert dot(ones(0, value=inf), ones(0), -1.0) == inf
    for a, b, c in (
        (ones(0, value=inf), ones(0), -inf),
        (ones(0, value=inf), ones(1), 0.0),
        (ones(3, value=nan), ones(3), 1.0),
    ):
        assert dot(a, b, c).view(np.uint32) == 0x7FFFFFFF
    assert dot(-ones(0, value=0.0), ones(0), -0.0).view(np.uint32) == 0  # never -0
    assert dot(ones(0, value=2.0**127), ones(0, value=2.0), 0.0) == inf
    assert dot(ones(0, value=2.0**-70), ones(0, value=2.0**-79)).view(np.uint32) == 1  # subnormal numbers are kept


def test_constants_and_shared_registers_as_operands():
    """D may be C's registers, and C may be written as constants."""
    one = np.full((1, 32), 0x3F80_3F80, np.uint64)
    values = {f"%r{index}": one for index in range(4, 10)} | {f"%r{index}": one * 0 for index in range(4)}
    code = f"{BF16} {{%r0, %r1, %r2, %r3}}, {{%r4, %r5, %r6, %r7}}, {{%r8, %r9}}, {{0f3F800000, 0f40000000, 0, %r3}};"
    found = run_warps(code, values, "%r0", "%r1", "%r2", "%r3")
    assert [float(bits[0, 5].astype(np.uint32).view(np.float32)) for bits in found] == [17, 18, 16, 16]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("k", [8, 16])
@pytest.mark.parametrize("exponents", ["any", "close"])
def test_the_code_for_registers_gives_every_bit_of_the_general_product(kind, k, exponents):
    """Of four warps with all kinds of numbers, or with numbers of similar size."""
    random = np.random.default_rng(k)
    form = Multiplication(16, k, kind, kind, "f32")
    sizes = {"a": k // 4, "b": k // 8, "c": 4}
    held = {name: random.integers(0, 1 << 32, (4, count, 32), np.uint64) for name, count in sizes.items()}
    if exponents == "close":  # no NaN, no Inf, and factors of similar size
        held = {name: words & np.uint64(0x8FFF_8FFF) | np.uint64(0x3000_3000) for name, words in held.items()}
    names = {"a": [4, 5, 6, 7][: k // 4], "b": [8, 9][: k // 8], "c": [10, 11, 12, 13]}
    values = {f"%r{name}": held[side][:, index] for side, them in names.items() for index, name in enumerate(them)}
    code = BF16.replace("bf16", kind).replace("k16", f"k{k}") + " {%r0, %r1, %r2, %r3}"
    for them in names.values():
        code += ", {" + ", ".join(f"%r{name}" for name in them) + "}"
    found = np.stack(run_warps(f"{code};", values, "%r0", "%r1", "%r2", "%r3"), axis=1)

    def matrix(side, rows, columns, bits):
        elements = unpack(held[side], bits).reshape(4, -1)
        order = fragment_order(side, rows, columns, bits)
        return elements.take(order, axis=1).reshape(4, rows, columns)

    matrices = matrix("a", 16, k, 16), matrix("b", k, 8, 16), matrix("c", 16, 8, 32)
    expected = compute(form, *matrices, tensor_core_of(90)).reshape(4, -1)
    assert (found.reshape(4, -1)[:, fragment_order("c", 16, 8, 32)] == expected).all()
    assert (expected == 0x7FFF_FFFF).any() == (exponents == "any")


def test_the_target_chooses_the_tensor_cores():
    """PTX for sm_90a sums 16 products at once; told to be sm_80, 8."""
    a, b = np.zeros((1, 32), np.uint64), np.full((1, 32), 0x3F80_3F80, np.uint64)
    values = {f"%r{index}": a.copy() for index in range(14)} | {"%r8": b, "%r9": b}
    values["%r4"][0, 0] = 0xBF80_3F80  # A[0, 0] = 1, A[0, 1] = -1
    values["%r6"][0, 0] = 0x3080  # A[0, 8] = 2^-30
    for sm, expected in ((0, 0), (80, 0x3080 << 16)):
        (found,) = run_warps(CODE, values, "%r0", settings=Settings(tensor_core_sm=sm))
        assert found[0, 0] == expected


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.f16.f16.f32", "no such shape"),
        ("mma.sp.sync.aligned.m16n8k128.row.col.f64.f64.f64.f64", "no such shape"),
        ("mma.sync.aligned.m16n8k32.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0", "no such form"),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", "no such shape"),
        ("mma.sync.aligned.m16n8k8.row.col.f32.f16.bf16.f32", "no such shape"),
        ("mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32", "no such shape"),
        ("mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "no such shape"),
        ("mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32", "no such shape"),
    ],
)
def test_other_forms_are_refused_by_name(form, why):
    code = f"{form} {{%r0, %r1}}, {{%r2}}, {{%r3}}, {{%r0, %r1}};"
    with pytest.raises(UnsupportedInstruction, match=why) as caught:
        run_warps(code, {"%r0": np.zeros((1, 32))})
    assert f"`{form}`" in str(caught.value)


def test_forms_are_read_from_their_names():
    assert parse_multiplication("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.u8.s8.s32") == Multiplication(
        16, 32, "u8", "s8", "s32", satfinite=True
    )
    form = parse_multiplication("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc")
    assert form == Multiplication(16, 256, "b1", "b1", "s32", operation="xor")
