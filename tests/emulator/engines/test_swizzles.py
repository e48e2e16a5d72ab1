"""Swizzles against the tables of the PTX ISA, written down as the chunk that each row's chunks go to."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.engines.swizzles import Swizzle

ROWS = ["01234567", "10325476", "23016745", "32107654", "45670123", "54761032", "67452301", "76543210"]


def chunks(swizzle, row):
    """Where the chunks of 16 bytes of a row of 128 bytes lie."""
    places = swizzle.apply(np.arange(row * 128, row * 128 + 128, 16)) - row * 128
    return "".join(str(place // 16) for place in places)


@pytest.mark.parametrize("row", range(8))
def test_128_bytes(row):
    assert chunks(Swizzle.B128, row) == ROWS[row]
    assert chunks(Swizzle.NONE, row) == "01234567"


def test_64_bytes_change_every_two_of_their_rows():
    assert [chunks(Swizzle.B64, row) for row in range(4)] == ["01234567", "10325476", "23016745", "32107654"]


def test_32_bytes_change_every_four_of_their_rows():
    assert [chunks(Swizzle.B32, row) for row in range(3)] == ["01234567", "10325476", "01234567"]


def test_chunks_of_32_bytes_stay_whole():
    assert [chunks(Swizzle.B128_ATOM_32B, row) for row in range(4)] == ["01234567", "23016745", "45670123", "67452301"]


@pytest.mark.parametrize("swizzle", Swizzle)
def test_a_swizzle_undoes_itself_and_repeats(swizzle):
    addresses = np.arange(4096, dtype=np.uint64)
    moved = swizzle.apply(addresses)
    assert (swizzle.apply(moved) == addresses).all()
    assert (
        moved[: 2 * swizzle.span] % swizzle.span == swizzle.apply(addresses[: 2 * swizzle.span] % swizzle.span)
    ).all()
    assert (moved // swizzle.row == addresses // swizzle.row).all()
