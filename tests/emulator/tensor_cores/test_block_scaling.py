"""Block-scaled products: the arithmetic against exact sums, and a kernel that copies scale factors to tensor memory."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.emitters.formats import E2M1, E4M3
from cutesmith.emulator.tensor_cores.arithmetic import decode as values_of
from cutesmith.emulator.tensor_cores.block_scaling import multiply
from cutesmith.emulator.tensor_cores.instruction_descriptors import Product, ProductForm
from cutesmith.emulator.tensor_cores.single_thread_products import pieces_of_d, regions_of_scales
from tests.emulator.machine.launches import emulate
from tests.emulator.tensor_cores.tcgen05_kernels import COMMIT, LOADED, PAIR_COMMIT, WAIT, descriptor, load, program
from tests.emulator.tensor_cores.warpgroup_kernels import image

RANDOM = np.random.default_rng(8)
M, N = 128, 16
SCALES, SCALES_OF_B = 8192, 12288  # bytes of shared memory


def bits(shape, limit):
    return RANDOM.integers(0, limit, shape).astype(np.uint8)


@pytest.mark.parametrize(
    ("kind", "block", "number", "fine", "longer"),
    [
        ("mxf8f6f4", 32, E4M3, False, False),
        ("mxf4", 32, E2M1, False, False),
        ("mxf4", 32, E2M1, False, True),
        ("mxf4nvf4", 32, E2M1, False, False),
        ("mxf4nvf4", 16, E2M1, True, False),
        ("mxf4nvf4", 16, E2M1, True, True),
    ],
)
def test_sums_that_need_no_cut_are_exact(kind, block, number, fine, longer):
    product = Product(ProductForm(1, kind, block), M, N, number, number, "f32", fine=fine, longer=longer)
    limit = 0x7 if number is E2M1 else 0x48
    a, b = bits((M, product.depth), limit), bits((N, product.depth), limit)
    a[0], b[3] = 0, 0
    scales = [(bits((rows, product.depth // block), 3) + (56 if fine else 126)).astype(np.uint8) for rows in (M, N)]
    d = RANDOM.integers(-9, 9, (M, N)).astype(np.float32)
    found = multiply(product, a, b, d.view(np.uint32), (scales[0], scales[1])).view(np.float32)
    factors = [values_of(E4M3, part)[0] if fine else 2.0 ** (part.astype(int) - 127) for part in scales]
    left, right = (values_of(number, part)[0] * np.repeat(scale, block, axis=1) for part, scale in ((a, factors[0]), (b, factors[1])))  # noqa: E501  # fmt: skip
    np.testing.assert_allclose(found, left @ right.T + d, rtol=2**-22, atol=2**-20)


def test_a_scale_factor_that_is_no_number_spoils_its_row():
    product = Product(ProductForm(1, "mxf8f6f4", 32), M, N, E4M3, E4M3, "f32")
    a, b = bits((M, 32), 0x40), bits((N, 32), 0x40)
    scales = np.full((M, 1), 127, np.uint8), np.full((N, 1), 127, np.uint8)
    scales[0][5] = 0xFF
    found = multiply(product, a, b, np.zeros((M, N), np.uint32), scales)
    assert (found[5] == 0x7FFFFFFF).all()
    assert np.isfinite(np.delete(found, 5, axis=0).view(np.float32)).all()


def test_scale_factors_come_through_tensor_memory():
    """E4M3 ones times ones: 32 times the scale factors of row and column."""
    ones = np.full((M, 32), 0x38, np.uint8)
    data = image(ones, ones[:N])
    scales = bits((M, 4), 4) + 125
    for row in range(M):  # 16 bytes for each of 32 rows: four bytes of the rows r, r + 32, r + 64, r + 96
        at = SCALES + row % 32 // 8 * 256 + row % 8 * 16 + row // 32 * 4
        data[at : at + 4] = scales[row]
    copies = "".join(f"@%first tcgen05.cp.cta_group::1.32x128b.warpx4 [%t{name}], %da;\n" for name in (2, 3))
    which = 2  # byte of the four
    word = N // 8 << 17 | 1 << 23 | 1 << 27 | which << 29 | which << 4
    mma = f"@%first tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [%t0], %d8, %db, {word}, [%t2], [%t3], 0;"
    body = f"mov.b64 %d8, %da;\nadd.u32 %t2, %t0, 64; add.u32 %t3, %t0, 96;\n{descriptor('%da', SCALES)}\n{copies}{mma}"
    found = np.zeros((N, 128), np.uint32)
    code = program(f"{body}\n@%first {COMMIT}\n{WAIT}\n{load(N)}\n{LOADED}", N)
    outcome = emulate(code, data, found, block=128)
    assert outcome.findings == ()
    factors = 2.0 ** (scales[:, which].astype(int) - 127)
    assert (found.T.view(np.float32) == 32 * factors[:, None] * factors[None, :N]).all()


def scale_image(data, start, words):
    """Put rows of four words (uint8 (rows, 16)) where a copy of 128 bits a row reads them."""
    for row, content in enumerate(words):
        at = start + row // 8 * 256 + row % 8 * 16
        data[at : at + 16] = content


@pytest.mark.parametrize("m", [128, 256])
def test_a_pair_of_blocks_has_factors_of_b_with_the_columns_of_d(m):
    """With 64 rows a block each half of the lanes has the factors of its half of the columns (CuTe's tmem_sf_frg)."""
    rows, n = m // 2, 128
    halves = rows == 64
    of_a, of_b = bits((m,), 4) + 125, bits((n,), 4) + 125
    images = []
    for block in range(2):
        ones = np.full((rows, 32), 0x38, np.uint8)
        data = image(ones, np.full((n // 2, 32), 0x38, np.uint8))
        words = np.zeros((32, 4, 4), np.uint8)
        words[:, : rows // 32, 0] = of_a[block * rows :][:rows].reshape(-1, 32).T
        scale_image(data, SCALES, words.reshape(32, 16))
        parts = of_b.reshape(2 if halves else 1, -1, 32)
        words = np.zeros((32 * len(parts), 4, 4), np.uint8)
        for part, factors in enumerate(parts):
            words[32 * part : 32 * part + 32, : len(factors), 0] = factors.T
        scale_image(data, SCALES_OF_B, words.reshape(-1, 16))
        images.append(data)
    shape = "64x128b.warpx2::01_23" if halves else "32x128b.warpx4"
    word = n // 8 << 17 | 1 << 23 | m // 128 << 27
    count = n // 2 if halves else n
    body = f"""mov.b64 %d8, %da;
add.u32 %t2, %t0, 128; add.u32 %t3, %t0, 160;
{descriptor("%da", SCALES)}
@%leads tcgen05.cp.cta_group::2.32x128b.warpx4 [%t2], %da;
{descriptor("%da", SCALES_OF_B)}
@%leads tcgen05.cp.cta_group::2.{shape} [%t3], %da;
@%leads tcgen05.mma.cta_group::2.kind::mxf8f6f4.block_scale [%t0], %d8, %db, {word}, [%t2], [%t3], 0;
@%leads {PAIR_COMMIT}
{WAIT}
{load(count)}
{LOADED}"""
    found = np.zeros((2, count, 128), np.uint32)
    code = program(body, count, columns=256, blocks=2)
    outcome = emulate(code, np.concatenate(images), found, block=128, grid=2, cluster=2)
    assert outcome.findings == ()
    d = found.view(np.float32).transpose(0, 2, 1)  # block, lane, register
    if halves:
        d = d.reshape(2, 2, 64, count).transpose(0, 2, 1, 3)
    factors = [2.0 ** (part.astype(int) - 127) for part in (of_a, of_b)]
    assert (d.reshape(m, n) == 32 * factors[0][:, None] * factors[1]).all()


@pytest.mark.parametrize(("first", "n"), [(0, 128), (2, 128), (0, 256), (2, 256)])
def test_with_k_96_scale_factors_go_on_behind_the_words_of_all_rows(first, n):
    """Six bytes of a row: words of four blocks of k, 4 columns apart for A, and for B as many as its columns take."""
    product = Product(ProductForm(1, "mxf4nvf4", 16), M, n, E2M1, E2M1, "f32", scale_ids=(first, first), longer=True)
    (piece,) = pieces_of_d(product, (0,), 0, 0)
    of_a, of_b = regions_of_scales(product, piece, [300, 400])
    assert [(region.column, region.count) for region in of_a] == [(300, 4), (304, 4)]
    assert [(region.column, region.count) for region in of_b] == [(400, n // 32), (400 + n // 32, n // 32)]


@pytest.mark.parametrize(("m", "blocks"), [(64, 1), (128, 1), (128, 2), (256, 2)])
def test_pieces_of_d_cover_the_matrix_once(m, blocks):
    product = Product(ProductForm(blocks, "f16"), m, 64, E4M3, E4M3, "f32")
    covered, cells = np.zeros((m, 64), int), set()
    for piece in pieces_of_d(product, tuple(range(blocks)), 0, 0):
        covered[piece.rows, piece.columns] += 1
        assert len(piece.region.lanes) == piece.rows.stop - piece.rows.start
        cells |= {
            (piece.region.block, lane, column) for lane in piece.region.lanes for column in range(piece.region.count)
        }
    assert (covered == 1).all() and len(cells) == m * 64
