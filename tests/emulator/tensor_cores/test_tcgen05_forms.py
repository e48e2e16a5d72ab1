"""`tcgen05`: copies of four rows and with decompression, shifted rows, `.ashift`, `.ws`, A in tensor memory, `.sp`."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from cutesmith.emulator.emitters.formats import BF16, E2M1
from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.tensor_cores.column_masks import ColumnMask, ColumnMaskError
from cutesmith.emulator.tensor_cores.instruction_descriptors import Product, ProductForm
from tests.emulator.tensor_cores.tcgen05_kernels import (
    COMMIT,
    LOADED,
    WAIT,
    descriptor,
    instruction_descriptor,
    launch,
    load,
    one,
    store_held,
)
from tests.emulator.tensor_cores.test_tcgen05 import CODES, ENCODE, KINDS, RESULTS
from tests.emulator.tensor_cores.warpgroup_kernels import B

RANDOM = np.random.default_rng(11)
LANES = np.arange(128)
ENDED = f"@%first {COMMIT}\n{WAIT}"
NOTHING = np.zeros((8, 32), np.uint8)
CELLS = LANES[:, None] << 16 | np.arange(8)


def mma(opcode: str, *operands: object) -> str:
    """A product that thread 0 asks for."""
    return f"@%first tcgen05.mma.{opcode} {', '.join(map(str, operands))};"


# ---------------------------------------------------------------------------------------------------- copies and shifts


def test_a_shift_moves_the_rows_of_each_warp_but_its_last():
    """As the DSL says of the two shifts: row r becomes row r + 1, rows 31, 63, 95 and 127 stay."""
    body = f"{store_held(8, 0)}\n@%first tcgen05.shift.cta_group::1.down [%t0];\n{ENDED}\n{load(8)}\n{LOADED}"
    outcome, found = launch(body, NOTHING, NOTHING, 8, held=CELLS)
    assert outcome.findings == ()
    assert (CELLS[np.where(LANES % 32 == 31, LANES, LANES + 1)] == found.T).all()


def test_shifts_and_a_refresh_walk_a_window():
    """After each shift the last row of a warp comes from shared memory, 32 lanes apart, from lane 31 on."""
    rows = (1000 + np.arange(32)).reshape(4, 8).astype(np.uint32)
    refresh = (
        f"{descriptor('%d8', 0)} add.u32 %t2, %t0, {31 << 16};\n@%first tcgen05.cp.cta_group::1.4x256b [%t2], %d8;"
    )
    steps = "@%first tcgen05.shift.cta_group::1.down [%t0];\n" * 2
    body = f"{store_held(8, 0)}\n{refresh}\n{steps}{ENDED}\n{load(8)}\n{LOADED}"
    for order in (0, 1, 2):
        outcome, found = launch(body, rows.view(np.uint8), NOTHING, 8, held=CELLS, order=order)
        assert outcome.findings == ()
        expected = CELLS.reshape(4, 32, 8).copy()
        expected[:, 31] = rows
        for _ in range(2):
            expected[:, :-1] = expected[:, 1:].copy()
        assert (expected.reshape(128, 8) == found.T).all()


@pytest.mark.parametrize(("kind", "form", "shift"), [("e2m1", "b4x16_p64", 2), ("e3m2", "b6x16_p32", 0)])
def test_a_copy_expands_numbers_to_bytes(kind, form, shift):
    """16 numbers of 4 or 6 bits in the first bytes of 16 become 16 bytes: the lower six bits, or bits 2 to 5."""
    codes = RANDOM.integers(0, 16 if kind == "e2m1" else 64, (128, 32)).astype(np.uint8)
    bits = np.unpackbits(codes[:, :, None], axis=2, bitorder="little")[:, :, : E2M1.bits if kind == "e2m1" else 6]
    packed = np.packbits(bits.reshape(128, 2, -1), axis=2, bitorder="little")
    rows = np.full((128, 2, 16), 0xA5, np.uint8)  # padding that must not show
    rows[:, :, : packed.shape[2]] = packed
    copied = f"@%first tcgen05.cp.cta_group::1.128x256b.b8x16.{form} [%t0], %da;"
    outcome, found = launch(f"{copied}\n{ENDED}\n{load(8)}\n{LOADED}", rows.reshape(128, 32), NOTHING, 8)
    assert outcome.findings == ()
    assert (np.ascontiguousarray(found.T).view(np.uint8) == codes << shift).all()


@pytest.mark.parametrize("kind", ["e2m1", "e2m3", "e3m2"])
def test_expanded_numbers_are_an_operand_in_tensor_memory(kind):
    left, right = RANDOM.integers(-2, 3, (128, 32)), RANDOM.integers(-2, 3, (16, 32))
    form = "b4x16_p64" if kind == "e2m1" else "b6x16_p32"
    copied = f"add.u32 %t2, %t0, 64;\n@%first tcgen05.cp.cta_group::1.128x256b.b8x16.{form} [%t2], %da;"
    word = instruction_descriptor(CODES[kind], CODES["e4m3"], 1, 128, 16)
    body = f"{copied}\n{one('f8f6f4', word, a='[%t2]')}\n{ENDED}\n{load(16)}\n{LOADED}"
    outcome, found = launch(body, ENCODE[kind](left), ENCODE["e4m3"](right), 16)
    assert outcome.findings == ()
    assert (found.T.view(np.float32) == left @ right.T).all()


def test_ashift_multiplies_and_then_moves_the_rows_of_a():
    left, right = RANDOM.integers(-4, 5, (128, 16)), RANDOM.integers(-4, 5, (16, 16))
    word = instruction_descriptor(1, 1, 1, 128, 16)
    moved = left[np.where(LANES % 32 == 31, LANES, LANES + 1)]
    first = mma("cta_group::1.kind::f16.ashift", "[%t0]", "[%t2]", "%db", word, 0)
    again = mma("cta_group::1.kind::f16", "[%t3]", "[%t2]", "%db", word, 0)
    body = f"{store_held(8, 64)}\nadd.u32 %t3, %t0, 16; add.u32 %t2, %t0, 64;\n{first}\n{again}\n{ENDED}\n{load(32)}\n{LOADED}"  # noqa: E501
    words = ENCODE["bf16"](left).view(np.uint32)
    outcome, found = launch(body, NOTHING, ENCODE["bf16"](right), 32, held=words)
    assert outcome.findings == ()
    assert (found.T.view(np.float32) == np.concatenate([left @ right.T, moved @ right.T], axis=1)).all()


# -------------------------------------------------------------------------------------------------- weight-stationary


def lanes_of_d(held: np.ndarray, m: int, n: int) -> np.ndarray:
    """D (m, n) from what the lanes hold (128, columns): parts of the columns one below the other."""
    parts = 128 // m
    return np.concatenate([held[part * m : (part + 1) * m, : n // parts] for part in range(parts)], axis=1)


@pytest.mark.parametrize(("m", "n"), [(32, 64), (64, 64), (64, 128), (128, 64)])
@pytest.mark.parametrize(("a", "result"), [("bf16", "f32"), ("f16", "f16"), ("tf32", "f32"), ("e4m3", "f32"), ("s8", "s32")])  # noqa: E501  # fmt: skip
def test_products_of_weight_stationary_mma(m, n, a, result):
    kind = KINDS.get(a, "f8f6f4")
    k = {"f16": 16, "tf32": 8}.get(kind, 32)
    left, right = RANDOM.integers(-2, 3, (m, k)), RANDOM.integers(-2, 3, (n, k))
    word = instruction_descriptor(CODES[a], CODES[a], RESULTS[result], m, n)
    opcode = f"ws.cta_group::1.kind::{kind}.collector::b1::"
    both = [mma(opcode + use, "[%t0]", "%da", "%db", word, add) for use, add in (("fill", 0), ("lastuse", 1))]
    width = n * m // 128
    outcome, found = launch("\n".join([*both, ENDED, load(width), LOADED]), ENCODE[a](left), ENCODE[a](right), width)
    assert outcome.findings == ()
    held = lanes_of_d(found.T, m, n)
    numbers = {"f16": lambda: held.astype(np.uint16).view(np.float16), "s32": lambda: held.view(np.int32)}
    assert (numbers.get(result, lambda: held.view(np.float32))().astype(int) == 2 * left @ right.T).all()


@pytest.mark.parametrize("m", [32, 64])
def test_each_part_of_d_has_its_copy_of_a_in_tensor_memory(m):
    """The copies are different here, so that it shows which part reads which."""
    copies, right = RANDOM.integers(-2, 3, (128, 16)), RANDOM.integers(-2, 3, (64, 16))
    word = instruction_descriptor(1, 1, 1, m, 64)
    product = mma("ws.cta_group::1.kind::f16", "[%t0]", "[%t2]", "%db", word, 0)
    width = 64 * m // 128
    body = f"{store_held(8, 64)}\nadd.u32 %t2, %t0, 64;\n{product}\n{ENDED}\n{load(width)}\n{LOADED}"
    outcome, found = launch(body, NOTHING, ENCODE["bf16"](right), width, held=ENCODE["bf16"](copies).view(np.uint32))
    assert outcome.findings == ()
    parts = [copies[at : at + m] @ right[at // m * width : at // m * width + width].T for at in range(0, 128, m)]
    assert (found.T.view(np.float32) == np.concatenate(parts)).all()


def test_64_rows_of_a_lie_in_the_lanes_of_d():
    """Without `.ws`: 16 lanes of every 32, from lane 16 on here."""
    left, right = RANDOM.integers(-2, 3, (64, 16)), RANDOM.integers(-2, 3, (16, 16))
    lanes = np.arange(64) // 16 * 32 + np.arange(64) % 16 + 16
    held = np.zeros((128, 8), np.uint32)
    held[lanes] = ENCODE["bf16"](left).view(np.uint32)
    product = one("f16", instruction_descriptor(1, 1, 1, 64, 16), d="%t3", a="[%t2]")
    body = f"{store_held(8, 64)}\nadd.u32 %t3, %t0, {16 << 16}; add.u32 %t2, %t3, 64;\n{product}\n{ENDED}\n{load(16)}\n{LOADED}"  # noqa: E501
    outcome, found = launch(body, NOTHING, ENCODE["bf16"](right), 16, held=held)
    assert set(outcome.kinds) == {"uninitialised_read"}  # the other lanes of D
    assert (found.T[lanes].view(np.float32) == left @ right.T).all()


def stationary(m: int, n: int, most_shift: int = 0) -> Product:
    return Product(ProductForm(1, "f16", stationary=True), m, n, BF16, BF16, "f32", most_shift=most_shift)


def mask_word(starts, firsts, skip, use, shift=0, there=1):
    word = there << 39 | skip << 40 | use << 48 | shift << 56
    for part, (start, first) in enumerate(zip(starts, firsts, strict=True)):
        word |= start << 8 * part | first << 32 + part
    return word


@pytest.mark.parametrize(
    ("m", "word", "parts"),
    [
        (128, mask_word([0], [0], 4, 3, there=0), ["0"]),
        (128, mask_word([0], [0], 2, 3), ["11100001110000"]),
        (64, mask_word([0, 0], [1, 0], 2, 3), ["1110000111", "11100001110000"]),
        (32, mask_word([0, 1, 2, 1], [1, 1, 0, 0], 2, 3, 2),
         ["00001110000111", "0000111000011", "111000011100", "1110000111000"]),
    ],
)  # fmt: skip
def test_masks_of_columns_are_those_of_the_examples(m, word, parts):
    """The four examples of the PTX ISA; the last digit is the first column of a part."""
    mask = ColumnMask.decode(word, stationary(m, 128, most_shift=8))
    for found, expected in zip(mask.zeros.reshape(128 // m, -1), parts, strict=True):
        assert "".join(str(int(bit)) for bit in found[: len(expected)][::-1]) == expected
    assert mask.shift == word >> 56


def test_masked_columns_are_zeros_and_others_come_from_behind_the_shift():
    m, n, shift = 64, 64, 3
    left, right = RANDOM.integers(1, 4, (m, 16)), RANDOM.integers(1, 4, (n + shift, 16))
    word = instruction_descriptor(1, 1, 1, m, n, 1 << 30)
    mask = mask_word([1, 0], [0, 1], 1, 4, shift)
    product = mma("ws.cta_group::1.kind::f16", "[%t0]", "%da", "%db", word, 0, "%d8")
    body = f"mov.b64 %d8, {mask};\n{product}\n{ENDED}\n{load(32)}\n{LOADED}"
    outcome, found = launch(body, ENCODE["bf16"](left), ENCODE["bf16"](right), 32)
    assert outcome.findings == ()
    used = [(column + 1) % 7 < 5 for column in range(32)] + [column % 7 >= 2 for column in range(32)]
    expected = left @ right[shift : shift + n].T * np.array(used)
    assert (lanes_of_d(found.T, m, n).view(np.float32) == expected).all()


# -------------------------------------------------------------------------------------------------------------- sparse

PATTERNS = list(itertools.combinations(range(4), 2))


def sparse(rows: int, kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stored elements (rows, k / 2), their codes (rows, chunks), and the whole matrix (rows, k)."""
    width, chunks = (2, 8) if kind == "tf32" else (4, 8 if kind in ("f16", "bf16") else 16)
    whole = np.zeros((rows, width * chunks), int)
    stored, codes = np.zeros((rows, width * chunks // 2), int), np.zeros((rows, chunks), int)
    for row, chunk in np.ndindex(rows, chunks):
        places = [RANDOM.integers(2)] if width == 2 else list(PATTERNS[RANDOM.integers(6)])
        codes[row, chunk] = (0b0100, 0b1110)[places[0]] if width == 2 else places[0] | places[1] << 2
        for index, place in enumerate(places):
            value = RANDOM.integers(-2, 3)
            stored[row, chunk * len(places) + index] = whole[row, chunk * width + place] = value
    return stored, codes, whole


def metadata(codes: np.ndarray, selector: int) -> np.ndarray:
    """uint32 (rows, 2): two columns of tensor memory, as CuTe lays them out; the other column holds something else.

    Shape ((8,2,8),(16,2)) with strides ((1,2048,16),(128,8)) for 16 bits, in bits of 128 lanes; rows below each other
    for 8.
    """
    rows, chunks = codes.shape
    words = np.full((rows, 2), 0x4444_4444, np.uint32)
    words[:, slice(None) if chunks == 16 else selector] = 0
    for row, chunk in np.ndindex(rows, chunks):
        if chunks == 16:
            words[row, chunk // 8] |= np.uint32(int(codes[row, chunk]) << 4 * (chunk % 8))
            continue
        bit = chunk % 4 * 4
        address = row % 8 + 2048 * (row // 8 % 2) + 16 * (row // 16) + 128 * bit + 8 * (chunk // 4)
        words[address % 128, selector] |= np.uint32(int(codes[row, chunk]) << address // 128)
    return words


def dense_b(kind: str, n: int) -> tuple[np.ndarray, np.ndarray, str]:
    """B (n, k) and its bits; PTX that makes its descriptor."""
    k = {"tf32": 16, "f16": 32, "bf16": 32}.get(kind, 64)
    right = RANDOM.integers(-2, 3, (n, k))
    return right, ENCODE[kind](right), descriptor("%db", B, 64)


@pytest.mark.parametrize("selector", [0, 1])
@pytest.mark.parametrize(("a", "result", "n"), [
    ("bf16", "f32", 32), ("f16", "f16", 16), ("tf32", "f32", 16), ("e4m3", "f32", 32), ("s8", "s32", 32),
])  # fmt: skip
def test_products_of_a_sparse_matrix(a, result, n, selector):
    kind = KINDS.get(a, "f8f6f4")
    selector = selector if kind in ("f16", "tf32") else 0
    stored, codes, whole = sparse(128, a)
    right, bits, describe = dense_b(a, n)
    word = instruction_descriptor(CODES[a], CODES[a], RESULTS[result], 128, n, 4 | selector)
    product = mma(f"sp.cta_group::1.kind::{kind}", "[%t0]", "%da", "%db", "[%t2]", word, 0)
    body = f"{store_held(2, 96)}\n{describe} add.u32 %t2, %t0, 96;\n{product}\n{ENDED}\n{load(n)}\n{LOADED}"
    outcome, found = launch(body, ENCODE[a](stored), bits, n, held=metadata(codes, selector))
    assert outcome.findings == ()
    numbers = {"f16": lambda: found.T.astype(np.uint16).view(np.float16), "s32": lambda: found.T.view(np.int32)}
    assert (numbers.get(result, lambda: found.T.view(np.float32))().astype(int) == whole @ right.T).all()


def test_what_a_sparse_matrix_does_not_store_is_not_multiplied():
    """B holds infinities in rows of which A stores nothing; a product with zero would be NaN."""
    stored, codes, whole = sparse(128, "bf16")
    codes[:], whole[:] = 0b0100, 0
    whole[:, 0::4], whole[:, 1::4] = stored[:, 0::2], stored[:, 1::2]
    right = RANDOM.integers(-2, 3, (16, 32)).astype(np.float32)
    right[:, 2::4] = np.inf
    bits = (right.view(np.uint32) >> 16).astype(np.uint16)
    word = instruction_descriptor(1, 1, 1, 128, 16, 4)
    product = mma("sp.cta_group::1.kind::f16", "[%t0]", "%da", "%db", "[%t2]", word, 0)
    body = f"{store_held(2, 96)}\n{descriptor('%db', B, 64)} add.u32 %t2, %t0, 96;\n{product}\n{ENDED}\n{load(16)}\n{LOADED}"  # noqa: E501
    outcome, found = launch(body, ENCODE["bf16"](stored), bits, 16, held=metadata(codes, 0))
    assert outcome.findings == ()
    assert (found.T.view(np.float32) == whole @ np.where(np.isinf(right), 0, right).T).all()


@pytest.mark.parametrize("m", [32, 64, 128])
@pytest.mark.parametrize("a", ["bf16", "e4m3"])
def test_products_of_a_sparse_matrix_that_is_weight_stationary(a, m):
    stored, codes, whole = sparse(m, a)
    right, bits, describe = dense_b(a, 64)
    word = instruction_descriptor(CODES[a], CODES[a], 1, m, 64, 4)
    product = mma(f"ws.sp.cta_group::1.kind::{KINDS.get(a, 'f8f6f4')}", "[%t0]", "%da", "%db", "[%t2]", word, 0)
    width = 64 * m // 128
    body = f"{store_held(2, 96)}\n{describe} add.u32 %t2, %t0, 96;\n{product}\n{ENDED}\n{load(width)}\n{LOADED}"
    held = np.tile(metadata(codes, 0), (128 // m, 1))
    outcome, found = launch(body, ENCODE[a](stored), bits, width, held=held)
    assert outcome.findings == ()
    assert (lanes_of_d(found.T, m, 64).view(np.float32) == whole @ right.T).all()


# -------------------------------------------------------------------------------------------------------- what is wrong

WORD = instruction_descriptor(1, 1, 1, 128, 16)
WS = instruction_descriptor(1, 1, 1, 128, 64)
SCALED = 1 << 7 | 1 << 10 | 16 // 8 << 17 | 1 << 23 | 1 << 27  # e2m1, 128 x 16, scale factors UE8M0
BYTES_WORD = instruction_descriptor(0, 0, 1, 128, 16)
FAULTS = {
    "a shift from lane 5": (
        f"add.u32 %t2, %t0, {5 << 16};\n@%first tcgen05.shift.cta_group::1.down [%t2];", "lane 5: a multiple of 32",
    ),
    "a refresh beyond the lanes": (
        f"add.u32 %t2, %t0, {40 << 16};\n@%first tcgen05.cp.cta_group::1.4x256b [%t2], %da;", "128 lanes",
    ),
    "ashift of shared memory": (
        mma("cta_group::1.kind::f16.ashift", "[%t0]", "%da", "%db", WORD, 0), "`.ashift` moves",
    ),
    "ashift of 64 rows": (
        mma("cta_group::1.kind::f16.ashift", "[%t0]", "[%t0]", "%db", WORD - (4 << 24), 0), "takes 128 rows",
    ),
    "16 columns with .ws": (mma("ws.cta_group::1.kind::f16", "[%t0]", "%da", "%db", WORD, 0), "N one of"),
    "a shift of columns without .ws": (one("f16", WORD | 1 << 30), "only `.ws`"),
    "a mask that shifts too far": (
        f"mov.b64 %d8, {9 << 56};\n{mma('ws.cta_group::1.kind::f16', '[%t0]', '%da', '%db', WS | 1 << 30, 0, '%d8')}",
        "allows 8",
    ),
    "reserved bits of a mask": (
        f"mov.b64 %d8, {1 << 36};\n{mma('ws.cta_group::1.kind::f16', '[%t0]', '%da', '%db', WS, 0, '%d8')}", "reserved",
    ),
    "sparse by opcode alone": (
        mma("sp.cta_group::1.kind::f16", "[%t0]", "%da", "%db", "[%t0]", WORD, 0), "is not sparse",
    ),
    "sparse by descriptor alone": (one("f16", WORD | 4), "is sparse, the opcode not"),
    "a selector of bytes": (
        mma("sp.cta_group::1.kind::f8f6f4", "[%t0]", "%da", "%db", "[%t0]", BYTES_WORD | 5, 0), "sparsity selector 1",
    ),
    "K = 96 on another GPU": (
        mma("cta_group::1.kind::mxf4.block_scale", "[%t0]", "%da", "%db", SCALED | 1 << 31, "[%t0], [%t0]", 0),
        "sm_103a alone",
    ),
    "K = 96 of a sparse matrix": (
        mma(
            "sp.cta_group::1.kind::mxf4.block_scale", "[%t0]", "%da", "%db", "[%t0]", SCALED | 1 << 31 | 4,
            "[%t0], [%t0]", 0,
        ),
        "dense e2m1",
    ),
    "metadata at an odd column": (
        f"add.u32 %t2, %t0, 97;\n{mma('sp.cta_group::1.kind::f16', '[%t0]', '%da', '%db', '[%t2]', WORD | 4, 0)}",
        "an even column",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_what_the_tensor_core_does_not_take_is_a_finding(name):
    body, text = FAULTS[name]
    outcome, _ = launch(f"{body}\n{ENDED}", NOTHING, NOTHING, 0)
    assert any(text in finding.message for finding in outcome.findings), outcome.findings


def test_metadata_without_a_meaning_are_a_finding():
    product = mma("sp.cta_group::1.kind::f16", "[%t0]", "%da", "%db", "[%t2]", WORD | 4, 0)
    body = f"{store_held(2, 96)}\n{descriptor('%db', B, 64)} add.u32 %t2, %t0, 96;\n{product}\n{ENDED}"
    outcome, _ = launch(body, NOTHING, NOTHING, 2, held=np.full((128, 2), 0x4444_4445, np.uint32))
    assert any("no meaning" in finding.message for finding in outcome.findings)


def test_a_shift_that_no_one_waits_for_is_a_race():
    body = f"{store_held(8, 0)}\n@%first tcgen05.shift.cta_group::1.down [%t0];\n{load(8)}\n{LOADED}"
    outcome, _ = launch(body, NOTHING, NOTHING, 8, held=CELLS)
    assert "race" in outcome.kinds


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (f"add.u32 %t2, %t0, {32 << 16};\n@%first tcgen05.shift.cta_group::1.down [%t2];", "which lanes move"),
        (
            mma("sp.cta_group::1.kind::f16", "[%t0]", "%da", "%db", "[%t0]", WORD - (4 << 24) | 4, 0),
            "where metadata lie",
        ),
        (
            mma("cta_group::1.kind::mxf4.block_scale", "[%t0]", "[%t0]", "%db", SCALED, "[%t0], [%t0]", 0),
            "A of e2m1 in tensor memory, two in a byte",
        ),
        (
            "tcgen05.ld.red.sync.aligned.16x32bx2.x2.min.u32 {%t2, %t3}, %r6, [%t1], 4;",
            "tcgen05.ld",
        ),
    ],
)  # fmt: skip
def test_what_is_not_published_is_refused(body, why):
    with pytest.raises(UnsupportedInstruction, match=why):
        launch(body, NOTHING, NOTHING, 0)


def test_a_start_count_behind_the_first_span_is_refused():
    with pytest.raises(ColumnMaskError, match="first span has 4 columns"):
        ColumnMask.decode(mask_word([4], [0], 2, 3), stationary(128, 64))
