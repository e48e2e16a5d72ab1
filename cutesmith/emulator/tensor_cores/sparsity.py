"""Sparse A: which columns its stored elements have, from metadata in registers or in tensor memory.

A chunk of four neighbouring columns has two stored elements, and four bits of metadata with their places, the first
in the lower two bits. tf32 stores one of two columns and takes the same four bits as two halves of 16 bits would;
types of 4 bits store two pairs of four. PTX ISA, "Sparse matrix storage" of `mma.sp`, `wgmma.mma_async.sp` and
`tcgen05.mma.sp`. Where metadata lie are figures there. In registers it is as an H100 takes them, in tensor memory as
CuTe lays them out (mma_traits_sm100_frag.hpp).
"""

from __future__ import annotations

import numpy as np

from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.tensor_cores.arithmetic import TensorCore
from cutesmith.emulator.tensor_cores.multiplication import Multiplication, compute

_CODE = np.uint32(15)
ROWS, _QUAD = 16, 4  # rows of A in a warp; lanes that hold its elements, and chunks that one of them describes
HALVES = (0b0100, 0b1110)
"""Of tf32: the first, or the second of two columns."""
ORDERED = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)
DIFFERENT = tuple(code for code in range(16) if code & 3 != code >> 2)
"""What `mma.sp` takes without `ordered_metadata`, and `tcgen05.mma.sp`."""


def chunk_columns(bits: int) -> int:
    """Columns of A that four bits of metadata describe, by the bits of an element."""
    return {32: 2, 4: 8}.get(bits, 4)


def selectors(k: int, bits: int) -> range:
    """The sparsity selectors of `mma.sp` and `wgmma.mma_async.sp`: which lanes of a quad have metadata, if not all."""
    return range(_QUAD * _QUAD * chunk_columns(bits) // k)


def meaningful(codes: Array, bits: int, known: tuple[int, ...]) -> Array:
    """bool: which codes have a meaning."""
    return np.isin(codes, HALVES if bits == 32 else known)


def columns(codes: Array, bits: int) -> Array:
    """int64 (w, rows, stored): the column of each stored element, from codes (w, rows, chunks)."""
    width = chunk_columns(bits)
    starts = np.arange(codes.shape[-1]) * width
    if width == 2:
        places = (codes >= 8)[..., None].astype(np.int64)
    else:
        places = np.stack([codes & 3, codes >> 2], axis=-1).astype(np.int64)
        if width == 8:
            places = (2 * places[..., None] + np.arange(2)).reshape(*codes.shape, 4)
    found: Array = (starts[:, None] + places).reshape(*codes.shape[:-1], -1)
    return found


def metadata_places(selector: int, chunks: int, bits: int) -> tuple[Array, Array]:
    """int64 (16, chunks) each: the lane of a warp whose register has the four bits of a chunk, and which four of it.

    Types of 16 and 32 bits: a register has four chunks of a row, and in its upper half four of the row 8 below. Rows of
    four chunks come from the lane of a quad that the selector names, rows of eight from the pair of lanes.
    Narrower types: a register has eight chunks of one row, even lanes of rows 0 to 7 and odd lanes of rows 8 to 15.
    Rows of eight chunks come from the pair of lanes that the selector names, longer ones from the whole quad.
    """
    row, chunk = np.mgrid[:ROWS, :chunks]
    quad = _QUAD * (row % 8)
    if bits <= 8:
        return quad + 2 * selector + row // 8 + 2 * (chunk // 8), chunk % 8
    return quad + selector * (chunks // 4) + chunk // 4, 4 * (row // 8) + chunk % 4


def warp_codes(words: Array, selector: int, k: int, bits: int) -> Array:
    """uint32 (w, 16, chunks) from the metadata registers of warps (w, 32), for rows of `k` elements of `bits`."""
    lane, code = metadata_places(selector, k // chunk_columns(bits), bits)
    found: Array = words[:, lane].astype(np.uint32) >> (4 * code).astype(np.uint32) & _CODE
    return found


def tensor_memory_codes(words: Array, bits: int, selector: int) -> Array:
    """uint32 (rows, 16 or 8) from two columns of tensor memory (rows, 2), lanes as rows.

    Types of up to 8 bits: 16 codes of a row in its two words. Wider types: one word, in the column that the selector
    names, whose lane holds four codes of a row and of the row 8 below; the lanes 8 further on have the other four.
    """
    shifts = 4 * np.arange(8, dtype=np.uint32)
    codes = words[:, :, None] >> shifts & _CODE  # (rows, columns, 8)
    if bits <= 8:
        return np.ascontiguousarray(codes.reshape(len(words), 16))
    row, chunk = np.arange(len(words))[:, None], np.arange(8)
    lane = row // 16 * 16 + row % 8 + 8 * (chunk // 4)
    found: Array = codes[lane, selector, 4 * (row % 16 // 8) + chunk % 4]
    return found


def compute_sparse(form: Multiplication, a: Array, b: Array, c: Array, core: TensorCore, chosen: Array) -> Array:
    """As `compute`, of stored elements of A (w, m, stored) whose columns are `chosen`; each row has its own B."""
    matrices = np.arange(len(a))[:, None, None]
    own = b[matrices, chosen]  # (w, m, stored, n)
    rows = len(a) * form.m
    left, addend = a.reshape(rows, 1, -1), np.ascontiguousarray(c.reshape(rows, 1, -1))
    found = compute(form, np.ascontiguousarray(left), own.reshape(rows, -1, b.shape[2]), addend, core)
    return found.reshape(c.shape)
