"""`wgmma`: every type against float64 and integers, and what waits, fences and early uses do."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.device import emulated_device
from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.tensor_cores.warpgroup_forms import parse_form
from cutesmith.problems.loading import load_file
from tests.emulator.machine.launches import program_of
from tests.emulator.tensor_cores.warpgroup_kernels import (
    BF16,
    COMMIT,
    FENCE,
    FIRST,
    WAIT,
    fragments_of,
    gathered,
    launch,
    registers,
    scattered,
)
from tests.kernel_files import kernel_file

RANDOM = np.random.default_rng(20)


def bf16(values):
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def e4m3(values):
    """Bits of small integers, up to 8."""
    table = {0: 0, 1: 0x38, 2: 0x40, 3: 0x44, 4: 0x48, 5: 0x4A, 6: 0x4C, 7: 0x4E, 8: 0x50}
    return np.array([[table[abs(int(v))] | (0x80 if v < 0 else 0) for v in row] for row in values], np.uint8)


def e5m2(values):
    return (values.astype(np.float16).view(np.uint16) >> 8).astype(np.uint8)


ENCODE = {
    "f16": lambda v: v.astype(np.float16).view(np.uint16),
    "bf16": bf16,
    "tf32": lambda v: v.astype(np.float32).view(np.uint32),
    "e4m3": e4m3,
    "e5m2": e5m2,
    "s8": lambda v: v.astype(np.int8).view(np.uint8),
    "u8": lambda v: v.astype(np.uint8),
}
K = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}
SUMS = {"f32": np.float32, "f16": np.float16, "s32": np.int32}
SIGNED = "1, 1"


def constants(kind, in_registers=False, signs=SIGNED):
    """What follows the predicate of D."""
    if kind in ("s8", "u8"):
        return ""
    return f", {signs}" + (", 0" if in_registers else ", 0, 0") * (kind in ("f16", "bf16"))


def one(opcode, count, kind="bf16", adds="%p0", a="%da", signs=SIGNED, d="%c"):
    """The text of one multiplication."""
    return f"{opcode} {registers(count, d)}, {a}, %db, {adds}{constants(kind, a != '%da', signs)};"


@pytest.mark.sampled(3)
@pytest.mark.parametrize("source", ["shared", "registers"])
@pytest.mark.parametrize(
    ("a", "b", "result", "n"),
    [
        ("f16", "f16", "f32", 8), ("f16", "f16", "f16", 64), ("bf16", "bf16", "f32", 256), ("tf32", "tf32", "f32", 24),
        ("e4m3", "e4m3", "f32", 16), ("e4m3", "e5m2", "f16", 8), ("e5m2", "e4m3", "f32", 32),
        ("e5m2", "e5m2", "f16", 16),
        ("s8", "s8", "s32", 8), ("u8", "s8", "s32", 48), ("s8", "u8", "s32", 24), ("u8", "u8", "s32", 96),
    ],
)  # fmt: skip
def test_products_of_small_integers_are_exact(a, b, result, n, source):
    k = K[a]
    left = RANDOM.integers(0 if a == "u8" else -2, 3, (64, k))
    right = RANDOM.integers(0 if b == "u8" else -2, 3, (n, k))
    addend = RANDOM.integers(-50, 50, (64, n))
    dtype = np.dtype(SUMS[result])
    bits = f"u{dtype.itemsize}"
    opcode = f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{result}.{a}.{b}"
    count = n * dtype.itemsize // 8
    operand = "{%a0, %a1, %a2, %a3}" if source == "registers" else "%da"
    body = f"{FENCE}\n{one(opcode, count, a, a=operand)}\n{COMMIT}\n{WAIT}"
    in_memory = ENCODE[a](left if source == "shared" else left * 0)
    given = scattered(addend.astype(dtype).view(bits))
    outcome, held = launch(body, in_memory, ENCODE[b](right), given, fragments_of(ENCODE[a](left)))
    assert outcome.findings == ()
    expected = left.astype(np.int64) @ right.astype(np.int64).T + addend
    assert (gathered(held, dtype.itemsize * 8).view(dtype).astype(np.int64) == expected).all()


def numbers(n=8, k=16, d=None):
    """A, B as bf16 bits, D's registers, and A B^T, from small integers."""
    left, right = RANDOM.integers(-3, 4, (64, k)), RANDOM.integers(-3, 4, (n, k))
    addend = np.zeros((64, n), np.float32) if d is None else d
    return bf16(left), bf16(right), scattered(addend.view(np.uint32)), (left @ right.T).astype(np.float32)


def result_of(held):
    return gathered(held, 32).view(np.float32)


def test_random_values_are_near_float64():
    left, right = RANDOM.standard_normal((64, 16)), RANDOM.standard_normal((64, 16))
    a, b = bf16(left), bf16(right)
    opcode = BF16.replace("n8", "n64")
    body = f"{FENCE}\n{one(opcode, 32)}\n{COMMIT}\n{WAIT}"
    _, held = launch(body, a, b, np.zeros((32, 128), np.uint32))
    exact = [(bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for bits in (a, b)]
    np.testing.assert_allclose(result_of(held), exact[0] @ exact[1].T, rtol=2**-20, atol=2**-20)


@pytest.mark.parametrize("signs", ["1, -1", "-1, 1", "-1, -1"])
def test_negation(signs):
    a, b, d, product = numbers()
    _, held = launch(f"{FENCE}\n{one(BF16, 4, signs=signs)}\n{COMMIT}\n{WAIT}", a, b, d)
    assert (result_of(held) == product * (1 if signs == "-1, -1" else -1)).all()


def test_the_predicate_says_whether_d_is_added():
    ones = np.ones((64, 8), np.float32)
    a, b, d, product = numbers(d=ones)
    for adds, expected in (("%p0", product + 1), ("!%p0", product), ("0", product), ("1", product + 1)):
        outcome, held = launch(f"{FENCE}\n{one(BF16, 4, adds=adds)}\n{COMMIT}\n{WAIT}", a, b, d)
        assert outcome.findings == ()
        assert (result_of(held) == expected).all(), adds


def test_integers_wrap_or_saturate():
    left, right = np.full((64, 32), 127, np.int64), np.full((8, 32), 127, np.int64)
    addend = np.full((64, 8), 2**31 - 1, np.int32)
    for word, expected in (("", -(2**31) + 32 * 127 * 127 - 1), (".satfinite", 2**31 - 1)):
        opcode = f"wgmma.mma_async.sync.aligned.m64n8k32{word}.s32.s8.s8"
        body = f"{FENCE}\n{one(opcode, 4, 's8')}\n{COMMIT}\n{WAIT}"
        _, held = launch(body, ENCODE["s8"](left), ENCODE["s8"](right), scattered(addend.view(np.uint32)))
        assert (held.view(np.int32) == expected).all()


def test_single_bits():
    left, right = RANDOM.integers(0, 2, (64, 256)), RANDOM.integers(0, 2, (8, 256))
    packed = [np.packbits(bits.astype(np.uint8), axis=1, bitorder="little") for bits in (left, right)]
    opcode = "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc"
    _, held = launch(f"{FENCE}\n{one(opcode, 4, 's8')}\n{COMMIT}\n{WAIT}", *packed, np.zeros((4, 128), np.uint32))
    assert (gathered(held, 32) == left @ right.T).all()


def test_multiplications_of_a_group_and_of_several_add_up():
    a, b, d, product = numbers()
    for between in ("", f"{COMMIT}\n", f"{COMMIT}\nwgmma.wait_group.sync.aligned 1;\n"):
        body = f"{FENCE}\n" + between.join(f"{one(BF16, 4)}\n" for _ in range(3)) + f"{COMMIT}\n{WAIT}"
        outcome, held = launch(body, a, b, d)
        assert outcome.findings == ()
        assert (result_of(held) == 3 * product).all()


def test_operands_are_read_as_late_as_the_wait():
    """Shared memory that is overwritten between the multiplication and its wait gives the new product."""
    a, b, d, product = numbers()
    begin = f"{FENCE}\n{one(BF16, 4)}\n{COMMIT}\n"
    overwrite = "mov.b64 %d9, 0; add.u32 %r4, %r2, %r3; st.shared.b64 [%r4], %d9; st.shared.b64 [%r4+1024], %d9;\n"
    outcome, held = launch(f"{begin}{WAIT}\n{overwrite}", a, b, d)
    assert outcome.findings == ()  # CUTLASS too takes a wait for that of the whole warpgroup
    assert (result_of(held) == product).all()
    outcome, held = launch(f"{begin}{overwrite}bar.sync 0;\n{WAIT}", a, b, d)
    assert (result_of(held) == 0).all()
    assert (outcome.kinds, outcome.lines) == (["race"], [(FIRST + 3, FIRST + 1)])
    assert "that the engine behind `wgmma.mma_async" in outcome.findings[0].message


def test_operands_that_threads_have_stored_need_a_proxy_fence():
    a, b, d, _ = numbers()
    store = "mov.b64 %d9, 0; add.u32 %r4, %r2, %r3; st.shared.b64 [%r4], %d9;\n"
    end = f"bar.sync 0;\n{FENCE}\n{one(BF16, 4)}\n{COMMIT}\n{WAIT}"
    outcome, _ = launch(store + end, a, b, d)
    assert (outcome.kinds, outcome.lines) == (["missing_fence"], [(FIRST + 3, FIRST)])
    assert launch(f"{store}fence.proxy.async.shared::cta;\n{end}", a, b, d)[0].findings == ()
    assert launch(f"{store}bar.sync 0;\nfence.proxy.async;\n{end}", a, b, d)[0].findings == ()


# --------------------------------------------------------------------------------------------- accumulators in flight

USE = "add.f32 %c1, %c1, %c1;"


@pytest.mark.parametrize("sanitize", [True, False])
@pytest.mark.parametrize(
    "middle",
    [f"{COMMIT}", "", f"{COMMIT}\nwgmma.wait_group.sync.aligned 1;", f"{WAIT}"],
    ids=["no wait", "no commit", "one group short", "wait without commit"],
)
def test_an_accumulator_that_is_used_too_early_is_found_and_wrong(middle, sanitize):
    a, b, d, product = numbers()
    body = f"{FENCE}\n{one(BF16, 4)}\n{middle}\n{USE}\n{COMMIT}\n{WAIT}"
    outcome, held = launch(body, a, b, d, sanitize=sanitize)
    assert np.isnan(held[1].view(np.float32)).all()
    if sanitize:
        line = FIRST + 3 + middle.count("\n")
        assert (outcome.kinds, outcome.lines) == (["missing_wait"], [(line, FIRST + 1)])
        assert "`add.f32` uses registers that `wgmma.mma_async" in outcome.findings[0].message


def test_what_is_waited_for_may_be_used():
    a, b, d, product = numbers()
    body = f"{FENCE}\n{one(BF16, 4)}\n{COMMIT}\n{WAIT}\n" + "\n".join(f"add.f32 %c{i}, %c{i}, %c{i};" for i in range(4))
    outcome, held = launch(body, a, b, d)
    assert outcome.findings == ()
    assert (result_of(held) == 2 * product).all()


def test_copies_of_registers_carry_what_is_in_flight():
    """A loop of a compiler rotates registers with `mov`: no use of them, and the results land in the copies."""
    a, b, d, product = numbers()
    moves = "\n".join(f"mov.b32 %x{i}, %c{i};" for i in range(4))
    back = "\n".join(f"mov.b32 %c{i}, %x{i};" for i in range(4))
    clears = "\n".join(f"mov.b32 %c{i}, 0f7fc00000;" for i in range(4))
    body = f"{FENCE}\n{one(BF16, 4)}\n{COMMIT}\n{moves}\n{one(BF16, 4, d='%x')}\n{COMMIT}\n{WAIT}\n{clears}\n{back}"
    outcome, held = launch(body, a, b, d)
    assert outcome.findings == ()
    assert (result_of(held) == 2 * product).all()


def test_a_constant_over_an_accumulator_in_flight_is_found():
    a, b, d, _ = numbers()
    outcome, _ = launch(f"{FENCE}\n{one(BF16, 4)}\n{COMMIT}\nmov.b32 %c2, 0;\n{WAIT}", a, b, d)
    assert (outcome.kinds, outcome.lines) == (["missing_wait"], [(FIRST + 3, FIRST + 1)])


def test_a_use_on_a_path_that_is_not_taken_is_no_finding():
    """The wait is skipped only where the use is skipped too; data flow alone cannot know that."""
    a, b, d, product = numbers()
    body = f"{FENCE}\n{one(BF16, 4)}\n{COMMIT}\n@!%p0 bra late;\n{WAIT}\nlate:\n@!%p0 bra end;\n{USE}\nend:\n{WAIT}"
    outcome, held = launch(body, a, b, d)
    assert outcome.findings == ()
    assert (held[1].view(np.float32) == 2 * scattered(product.view(np.uint32))[1].view(np.float32)).all()


def test_another_shape_on_accumulators_in_flight_is_found():
    a, b, d, _ = numbers(n=16)
    body = f"{FENCE}\n{one(BF16.replace('n8', 'n16'), 8)}\n{one(BF16, 4)}\n{COMMIT}\n{WAIT}"
    outcome, _ = launch(body, a, b, d)
    assert (outcome.kinds, outcome.lines) == (["missing_wait"], [(FIRST + 2, 0)])
    assert "in another shape" in outcome.findings[0].message


# --------------------------------------------------------------------------------------------------------------- fences


def test_the_first_multiplication_needs_a_fence():
    a, b, d, product = numbers()
    outcome, held = launch(f"{one(BF16, 4)}\n{COMMIT}\n{WAIT}", a, b, d)
    assert (set(outcome.kinds), outcome.lines[0][0]) == ({"missing_fence"}, FIRST)
    assert (result_of(held) == product).all()


@pytest.mark.parametrize("touch", [USE, "ld.global.b32 %c0, [%d4];", "shfl.sync.idx.b32 %c3, %c3, 0, 31, -1;"])
def test_registers_that_were_written_need_a_fence(touch):
    a, b, d, _ = numbers()
    begin, end = f"{FENCE}\n{one(BF16, 4)}\n{COMMIT}\n{WAIT}\n{touch}\n", f"{one(BF16, 4)}\n{COMMIT}\n{WAIT}"
    outcome, _ = launch(begin + end, a, b, d)
    assert (outcome.kinds, outcome.lines) == (["missing_fence"], [(FIRST + 5, 0)])
    assert launch(f"{begin}{FENCE}\n{end}", a, b, d)[0].findings == ()


def test_registers_of_a_need_a_fence_too():
    a, b, d, _ = numbers()
    multiply = one(BF16, 4, a="{%a0, %a1, %a2, %a3}")
    touch = "xor.b32 %a2, %a2, 1;"
    outcome, _ = launch(f"{FENCE}\n{touch}\n{multiply}\n{COMMIT}\n{WAIT}", a, b, d, fragments_of(a))
    assert (outcome.kinds, outcome.lines) == (["missing_fence"], [(FIRST + 2, 0)])
    assert launch(f"{touch}\n{FENCE}\n{multiply}\n{COMMIT}\n{WAIT}", a, b, d, fragments_of(a))[0].findings == ()


def test_infinite_pairs_are_no_accumulators_in_flight():
    """As one word of 32 bits, (1, Inf) of bf16 is a signalling NaN, as the tokens of accumulators are."""
    _, b, d, _ = numbers()
    a = bf16(np.tile([1.0, np.inf], (64, 8)))
    body = f"{FENCE}\n{one(BF16, 4, a='{%a0, %a1, %a2, %a3}')}\n{COMMIT}\n{WAIT}"
    outcome, held = launch(body, a, b, d, fragments_of(a))
    assert outcome.findings == () and not np.isfinite(result_of(held)).any()


def test_constants_need_no_fence():
    """Compilers write them wherever they like."""
    a, b, d, product = numbers()
    zeros = " ".join(f"mov.b32 %c{i}, 0f00000000;" for i in range(4))
    outcome, held = launch(f"{FENCE}\n{zeros}\n{one(BF16, 4)}\n{COMMIT}\n{WAIT}", a, b, d)
    assert outcome.findings == ()
    assert (result_of(held) == product).all()


# ------------------------------------------------------------------------------------------------ operands, warpgroups


def test_a_descriptor_beyond_shared_memory_ends_the_launch():
    a, b, d, _ = numbers()
    outcome, _ = launch(f"{FENCE}\nadd.u64 %db, %db, 1023;\n{one(BF16, 4)}\n{COMMIT}\n{WAIT}", a, b, d)
    assert (outcome.kinds[-1], outcome.lines[-1][0]) == ("out_of_bounds", FIRST + 2)


def test_descriptors_must_agree_within_a_warpgroup():
    a, b, d, _ = numbers()
    outcome, _ = launch(f"{FENCE}\ncvt.u64.u32 %db, %r0;\n{one(BF16, 4)}\n{COMMIT}\n{WAIT}", a, b, d)
    assert (outcome.kinds[0], outcome.lines[0][0]) == ("invalid_operand", FIRST + 2)
    assert "differs between the threads of a warpgroup" in outcome.findings[0].message


def test_operands_that_nobody_has_written_are_found():
    a, b, d, _ = numbers()
    outcome, _ = launch(f"{FENCE}\nadd.u64 %db, %db, 512;\n{one(BF16, 4)}\n{COMMIT}\n{WAIT}", a, b, d)
    assert outcome.findings == ()  # written, if with other things
    outcome, _ = launch(
        f"{FENCE}\nadd.u64 %db, %db, 768;\n{one(BF16, 4)}\n{COMMIT}\n{WAIT}\n.shared .align 1024 .b8 more[1024];\n"
        "mov.u32 %x0, more;",
        a, b, d,
    )  # fmt: skip
    assert [(kind, line) for kind, (line, _) in zip(outcome.kinds, outcome.lines)] == [
        ("uninitialised_read", FIRST + 2)
    ]


def test_a_part_of_a_warpgroup_cannot_multiply():
    a, b, d, _ = numbers()
    outcome, _ = launch(f"{FENCE}\n{one(BF16, 4)}\n{COMMIT}\n{WAIT}", a, b, d[:, :64], threads=64)
    assert outcome.kinds[0] == "invalid_operand"
    assert "all 128 threads of a warpgroup" in outcome.findings[0].message


def test_a_warp_that_does_not_come_is_a_deadlock():
    a, b, d, _ = numbers()
    body = f"{FENCE}\nsetp.lt.u32 %p1, %r0, 32;\n@%p1 bar.sync 1, 64;\n{one(BF16, 4)}\n{COMMIT}\n{WAIT}"
    outcome, _ = launch(body, a, b, d)
    messages = [finding.message for finding in outcome.findings if finding.kind == "deadlock"]
    assert any("for the rest of their warpgroup: warps 0 wait at kernel.ptx" in message for message in messages)


def test_two_warpgroups_multiply_on_their_own():
    a, b, d, product = numbers()
    both = np.concatenate([d, d], axis=1)
    body = f"setp.lt.u32 %p1, %r0, 128;\n{FENCE}\n{one(BF16, 4, adds='%p1')}\n@%p1 bra skip;\n{one(BF16, 4)}\nskip:\n{COMMIT}\n{WAIT}"  # noqa: E501
    outcome, held = launch(body, a, b, both, threads=256)
    assert outcome.findings == ()
    assert (result_of(held[:, :128]) == product).all()
    assert (result_of(held[:, 128:]) == 2 * product).all()


@pytest.mark.parametrize(
    ("opcode", "why"),
    [
        ("wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.f16.f16", "no such shape"),
        ("wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16", "no such shape"),
        ("wgmma.mma_async.sync.aligned.m64n264k16.f32.f16.f16", "no such shape"),
        ("wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8", "no such shape"),
        ("wgmma.mma_async.sync.aligned.m64n8k8.f32.f16.f16", "no such shape"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f16.bf16.bf16", "no such shape"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16", "no such shape"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.satfinite.f32.f16.f16", "no such shape"),
        ("wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1", "no such shape"),
    ],
)
def test_other_forms_are_refused_by_name(opcode, why):
    a, b, d, _ = numbers()
    with pytest.raises(UnsupportedInstruction, match=why) as caught:
        launch(f"{FENCE}\n{one(opcode, 4)}\n{COMMIT}\n{WAIT}", a, b, d)
    assert f"`{opcode}`" in str(caught.value)


def test_registers_and_constants_must_fit_the_form():
    a, b, d, _ = numbers()
    for text, why in ((one(BF16, 3), "D has 4 registers"), (one(BF16, 4, "tf32"), "4 constants")):
        with pytest.raises(UnsupportedInstruction, match=why):
            launch(f"{FENCE}\n{text}\n{COMMIT}\n{WAIT}", a, b, d)


def test_forms_are_read_from_their_names():
    form = parse_form("wgmma.mma_async.sync.aligned.m64n96k32.satfinite.s32.u8.s8")
    assert (form.product.n, form.product.k, form.product.satfinite) == (96, 32, True)
    assert (form.result_registers, form.negates, form.transposes) == (48, False, False)


def test_checks_are_only_put_where_something_may_be_wrong():
    code = f".reg .b32 %c<4>; .reg .b64 %da, %db;\n{FENCE}\n{one(BF16, 4, adds='1')}\n{COMMIT}\n{WAIT}\n{USE}\nret;"
    assert not [i for i in program_of(code, 0).instructions if i.opcode == "accumulators"]


@pytest.mark.slow
def test_a_gemm_of_the_dsl_without_tma():
    with emulated_device("sm_90a") as device:
        file = load_file(kernel_file("gemm_wgmma"))
        x, weight = file.get_inputs()
        out = file.kernel_fn(x, weight).cpu()
    assert device.findings == ()
    np.testing.assert_allclose(out, x.cpu().double() @ weight.cpu().double().T, rtol=1e-4, atol=1e-4)
