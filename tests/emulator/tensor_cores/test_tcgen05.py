"""`tcgen05`: products of every type, layouts of D, what tensor memory allows, and what waits and commits order."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.faults import UnsupportedInstruction
from tests.emulator.machine.launches import program_of
from tests.emulator.tensor_cores.tcgen05_kernels import (
    COMMIT,
    FIRST,
    LOADED,
    WAIT,
    instruction_descriptor,
    launch,
    load,
    one,
    program,
    registers,
)
from tests.emulator.tensor_cores.test_warpgroup_multiply import ENCODE as FLOATS

RANDOM = np.random.default_rng(5)
E2M1 = {0: 0, 1: 2, 2: 4, 3: 5, 4: 6}


def fields(table, sign, values):
    return np.array([[table[abs(int(v))] | (sign if v < 0 else 0) for v in row] for row in values], np.uint8)


def e2m1(values):
    """Four bits each, 16 of them in the first half of 16 bytes."""
    bits = fields(E2M1, 8, values)
    packed = (bits[:, 0::2] | bits[:, 1::2] << 4).reshape(len(bits), -1, 8)
    return np.concatenate([packed, np.zeros_like(packed)], axis=2).reshape(len(bits), -1)


def six_bits(table):
    def encode(values):
        """Six bits each, 16 of them in the first 12 of 16 bytes."""
        bits = np.unpackbits(fields(table, 32, values)[:, :, None], axis=2, bitorder="little")[:, :, :6]
        packed = np.packbits(bits.reshape(len(bits), -1, 96), axis=2, bitorder="little")
        return np.concatenate([packed, np.zeros((len(bits), packed.shape[1], 4), np.uint8)], axis=2).reshape(
            len(bits), -1
        )

    return encode


ENCODE = {
    **FLOATS,
    "e2m1": e2m1,
    "e2m3": six_bits({0: 0, 1: 8, 2: 16, 3: 20, 4: 24}),
    "e3m2": six_bits({0: 0, 1: 12, 2: 16, 3: 18, 4: 20}),
}
KINDS = {"f16": "f16", "bf16": "f16", "tf32": "tf32", "s8": "i8", "u8": "i8"}
CODES = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5, "u8": 0, "s8": 1}
DEPTHS = {"f16": 16, "tf32": 8}
RESULTS = {"f16": 0, "f32": 1, "s32": 2}


def integers(shape, kind):
    return RANDOM.integers(0 if kind == "u8" else -4, 5, shape)


@pytest.mark.parametrize("m", [64, 128])
@pytest.mark.parametrize(
    ("a", "b", "result", "n"),
    [
        ("f16", "f16", "f32", 64), ("f16", "f16", "f16", 32), ("bf16", "bf16", "f32", 128), ("tf32", "tf32", "f32", 16),
        ("e4m3", "e4m3", "f32", 32), ("e4m3", "e5m2", "f16", 16), ("e2m1", "e4m3", "f32", 16),
        ("e5m2", "e2m1", "f32", 16), ("e2m3", "e3m2", "f32", 16), ("e2m1", "e2m1", "f32", 16),
        ("s8", "s8", "s32", 16), ("u8", "s8", "s32", 32),
    ],
)  # fmt: skip
def test_products_of_small_integers_are_exact(a, b, result, n, m):
    kind = KINDS.get(a, "f8f6f4")
    k = DEPTHS.get(kind, 32)
    left, right = integers((m, k), a), integers((n, k), b)
    left, right = (left * (k <= 16) + np.clip(left, -2, 2) * (k > 16)), np.clip(right, -2, 2)
    word = instruction_descriptor(CODES[a], CODES[b], RESULTS[result], m, n)
    body = f"{one(kind, word)} {one(kind, word, '1')}\n@%first {COMMIT}\n{WAIT}\n{load(n)}\n{LOADED}"
    rows = np.concatenate([ENCODE[a](left), np.zeros_like(ENCODE[a](left[:1])).repeat(128 - m, 0)])
    outcome, held = launch(body, rows, ENCODE[b](right), n)
    assert set(outcome.kinds) <= ({"uninitialised_read"} if m == 64 else set())  # 64 lanes hold nothing then
    lanes = np.arange(m) if m == 128 else np.arange(m) // 16 * 32 + np.arange(m) % 16
    found = (
        held.T[lanes].astype(np.uint16).view(np.float16)
        if result == "f16"
        else held.T[lanes].view({"f32": np.float32, "s32": np.int32}[result])
    )
    assert (found.astype(np.int64) == 2 * left @ right.T).all()


WORD = instruction_descriptor(1, 1, 1, 128, 16)
ONES = FLOATS["bf16"](np.ones((128, 16)))
RIGHT = integers((16, 16), "bf16")
GIVEN = (ONES, FLOATS["bf16"](RIGHT), 16)
SUMS = RIGHT.sum(axis=1)
MULTIPLY = f"{one('f16', WORD)}\n@%first {COMMIT}\n{WAIT}"


@pytest.mark.parametrize("bits", [1 << 13, 1 << 14, 3 << 13])
def test_negation(bits):
    _, held = launch(f"{one('f16', WORD | bits)}\n@%first {COMMIT}\n{WAIT}\n{load(16)}\n{LOADED}", *GIVEN)
    assert (held.T.view(np.float32) == SUMS * (1 if bits == 3 << 13 else -1)).all()


def test_lanes_of_d_that_are_disabled_stay_what_they_were():
    masked = one("f16", WORD, "{%t2, %t3, %t3, %t3}, 1")
    body = (
        f"{one('f16', WORD)}\nmov.b32 %t2, 6; mov.b32 %t3, 0;\n{masked}\n@%first {COMMIT}\n{WAIT}\n{load(16)}\n{LOADED}"
    )
    outcome, held = launch(body, *GIVEN)
    twice = np.full(128, 2)
    twice[1:3] = 1
    assert outcome.findings == ()
    assert (held.T.view(np.float32) == SUMS * twice[:, None]).all()


def test_d_is_scaled_before_it_is_added():
    body = f"{one('f16', WORD)}\n{one('f16', WORD, '1, 2')}\n@%first {COMMIT}\n{WAIT}\n{load(16)}\n{LOADED}"
    _, held = launch(body, *GIVEN)
    assert (held.T.view(np.float32) == SUMS * 1.25).all()


@pytest.mark.parametrize(
    ("shape", "count", "place"),
    [
        ("32x32b", 8, lambda t, r: (t, r)),
        ("16x64b", 4, lambda t, r: (t // 4 + 8 * (t % 2), 2 * r + t // 2 % 2)),
        ("16x128b", 4, lambda t, r: (t // 4 + 8 * (r % 2), 4 * (r // 2) + t % 4)),
        ("16x256b", 4, lambda t, r: (t // 4 + 8 * (r // 2), 2 * (t % 4) + r % 2)),
    ],
)
def test_shapes_of_loads_and_stores(shape, count, place):
    """Rows of ones times B: a cell's column shows. Stored with 32x32b, each cell is lane << 16 | column."""
    cells = "shl.b32 %t2, %r0, 16;" + "".join(f" add.u32 %c{index}, %t2, {index};" for index in range(8))
    stores = f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%t1], {registers(8)}; tcgen05.wait::st.sync.aligned;"
    body = f"{cells}\n{stores}\nbar.sync 0;\n{load(count, shape=shape)}\n{LOADED}"
    outcome, held = launch(body, ONES, FLOATS["bf16"](RIGHT), 8)
    assert outcome.findings == ()
    for thread in range(128):
        for register in range(count):
            lane, column = place(thread % 32, register)
            assert held[register, thread] == (lane + thread // 32 * 32) << 16 | column


def test_halves_are_packed_and_unpacked():
    values = "".join(f" mov.b32 %c{index}, {(2 * index + 2) << 16 | 2 * index + 1};" for index in range(4))
    store = f"tcgen05.st.sync.aligned.32x32b.x4.unpack::16b.b32 [%t1], {registers(4)}; tcgen05.wait::st.sync.aligned;"
    outcome, held = launch(f"{values}\n{store}\n{load(8)}\n{LOADED}", ONES, FLOATS["bf16"](RIGHT), 8)
    assert outcome.findings == ()
    assert (np.arange(1, 9) == held.T).all()
    packed = f"{values}\n{store}\n{load(4, more='.pack::16b')}\n{LOADED}"
    _, held = launch(packed, ONES, FLOATS["bf16"](RIGHT), 4)
    assert ([(2 * index + 2) << 16 | 2 * index + 1 for index in range(4)] == held.T).all()


NAN, CANONICAL = 0x7FC0_0001, 0x7FFF_FFFF


def bits(*values):
    return np.array(values, np.float32).view(np.uint32).tolist()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("wait", [LOADED, ""])
@pytest.mark.parametrize(
    ("form", "words", "expected"),
    [
        ("min.f32", bits(3, -2, 0.5, -7), bits(-7)[0]),
        ("max.f32", bits(-3, -2, -0.5, -7), bits(-0.5)[0]),
        ("max.abs.f32", bits(3, -2, 0.5, -7), bits(7)[0]),
        ("min.f32", bits(0.0, -0.0, 1, np.inf), bits(-0.0)[0]),
        ("max.f32", [*bits(-5, -np.inf, -6), NAN], bits(-5)[0]),
        ("min.NaN.f32", [*bits(1, 2, 3), NAN], CANONICAL),
        ("max.abs.NaN.f32", [NAN | 1 << 31, *bits(1, 2, 3)], CANONICAL),
        ("min.f32", [NAN, NAN, NAN | 1 << 31, NAN], CANONICAL),
        ("max.u32", [1, 0xFFFF_FFFF, 7, 9], 0xFFFF_FFFF),
        ("max.s32", [1, 0xFFFF_FFFF, 7, 9], 9),
        ("min.s32", [1, 0xFFFF_FFFF, 7, 9], 0xFFFF_FFFF),
    ],
)
def test_a_load_with_a_reduction_gives_the_registers_and_the_least_or_largest(form, words, expected, wait):
    values = "".join(f" mov.b32 %c{index}, {word};" for index, word in enumerate(words))
    store = f"tcgen05.st.sync.aligned.32x32b.x4.b32 [%t1], {registers(4)}; tcgen05.wait::st.sync.aligned;"
    reduced = f"tcgen05.ld.red.sync.aligned.32x32b.x4.{form} {registers(4)}, %c4, [%t1];"
    for order in (0, 1, 2):
        outcome, held = launch(f"{values}\n{store}\n{reduced}\n{wait}", ONES, FLOATS["bf16"](RIGHT), 5, order=order)
        assert outcome.findings == ()
        assert (np.array([*words, expected]) == held.T).all()


def test_random_values_are_near_float64():
    left, right = RANDOM.standard_normal((128, 16)), RANDOM.standard_normal((64, 16))
    a, b = FLOATS["bf16"](left), FLOATS["bf16"](right)
    word = instruction_descriptor(1, 1, 1, 128, 64)
    _, held = launch(f"{one('f16', word)}\n@%first {COMMIT}\n{WAIT}\n{load(64)}\n{LOADED}", a, b, 64)
    exact = [(bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for bits in (a, b)]
    np.testing.assert_allclose(held.T.view(np.float32), exact[0] @ exact[1].T, rtol=2**-20, atol=2**-20)


# -------------------------------------------------------------------------------------------------------- what is wrong

FAULTS = {
    "no wait for the product": (f"{one('f16', WORD)}\n@%first {COMMIT}\n{load(16)}\n{LOADED}", "race", 2),
    "no commit": (f"{one('f16', WORD)}\n{load(16)}\n{LOADED}", "race", 1),
    "nothing was multiplied": (f"{load(16)}\n{LOADED}", "uninitialised_read", 0),
    "no such type of A": (f"{one('f16', WORD | 7 << 7)}", "invalid_operand", 0),
    "columns that no one allocated": (f"add.u32 %t2, %t0, 124;\n{one('f16', WORD, d='%t2')}", "tensor_memory", 1),
    "another warp's lanes": (f"{MULTIPLY}\n{load(16, '%t0')}\n{LOADED}", "tensor_memory", 3),
    "stored while it may still be loaded": (
        f"{MULTIPLY}\n{load(16)}\nmov.b32 %t2, 0;\n"
        "tcgen05.st.sync.aligned.32x32b.x1.b32 [%t1], {%t2};\ntcgen05.wait::ld.sync.aligned;",
        "missing_wait",
        5,
    ),
    "stored and loaded without a wait": (
        "mov.b32 %t2, 7;\ntcgen05.st.sync.aligned.32x32b.x1.b32 [%t1], {%t2};\n"
        "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%c0}, [%t1];\ntcgen05.wait::ld.sync.aligned;",
        "missing_wait",
        2,
    ),
    "freed twice": ("@%warp0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %t0, 128;", "tensor_memory", None),
    "never freed": (
        "@%warp0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%bar+8], 32;",
        "tensor_memory",
        0,
    ),
    "allocated after the permit was given back": (
        "@%warp0 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
        "@%warp0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%bar+8], 32;",
        "tensor_memory",
        1,
    ),
    "more columns than there are": (
        "@%warp0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%bar+8], 512;",
        "deadlock",
        0,
    ),
    "33 columns": (
        "@%warp0 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%bar+8], 33;",
        "tensor_memory",
        0,
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_at_its_line(name):
    body, kind, line = FAULTS[name]
    outcome, _ = launch(body, *GIVEN)
    found = [(finding.kind, lines[0] - FIRST) for finding, lines in zip(outcome.findings, outcome.lines, strict=True)]
    assert (kind, line) in found or (line is None and kind in outcome.kinds), found


def test_products_of_two_threads_need_the_fences():
    """Warp 1 adds to what warp 0 multiplies: ordered by a barrier alone it is not."""
    second = f"@%p3 tcgen05.mma.cta_group::1.kind::f16 [%t0], %da, %db, {WORD}, 1;\n@%p3 {COMMIT}"
    fences = {"before": "tcgen05.fence::before_thread_sync;", "after": "tcgen05.fence::after_thread_sync;"}

    def text(before, after):
        given = ("setp.eq.u32 %p3, %r0, 32;", one("f16", WORD), before, "bar.sync 0;", after, second, WAIT)
        return "\n".join((*given, load(16), LOADED))

    outcome, held = launch(text(**fences), *GIVEN)
    assert outcome.findings == ()
    assert (held.T.view(np.float32) == SUMS * 2).all()
    for left_out in fences:
        outcome, _ = launch(text(**{**fences, left_out: ""}), *GIVEN)
        assert "missing_fence" in outcome.kinds


@pytest.mark.parametrize("order", range(4))
def test_a_right_program_gives_the_same_in_every_order_of_completion(order):
    outcome, held = launch(f"{MULTIPLY}\n{load(16)}\n{LOADED}", *GIVEN, order=order)
    assert outcome.findings == ()
    assert (held.T.view(np.float32) == SUMS).all()


def test_all_forms_that_are_missing_are_named_at_once():
    split = f"tcgen05.ld.red.sync.aligned.16x32bx2.x4.min.f32 {registers(4)}, %c4, [%t0], 8;"
    body = f"{split}\ntcgen05.cp.cta_group::1.32x128b [%t0], %da;\n"
    body += "tcgen05.mma.ws.cta_group::2.kind::f16 [%t0], %da, %db, 0, 0;"
    with pytest.raises(UnsupportedInstruction) as refused:
        program_of(program(body, 5), 2)
    assert "tcgen05.cp.cta_group::1.32x128b" in refused.value.message
    assert "tcgen05.ld.red.sync.aligned.16x32bx2.x4.min.f32" in refused.value.message
    assert "tcgen05.mma.ws.cta_group::2.kind::f16" in refused.value.message
