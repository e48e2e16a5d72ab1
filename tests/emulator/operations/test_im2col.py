"""im2col: the pixels that a convolution multiplies, taken from an image that is padded with numpy."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from cutesmith.emulator.engines.tensor_maps import decode
from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.recording.tensor_map_calls import MAP_BYTES, encode_im2col
from tests.emulator.machine.launches import address_of, emulate
from tests.emulator.operations.test_tensor_copies import OUT, SETUP, WAIT, coordinates, tensor_map


def image_map(array, pixels, channels, lower, upper, steps):
    """The map that the driver's entry point encodes for an array (images, …, channels) that is array 1 of a launch."""
    rank, target = array.ndim, (ctypes.c_uint8 * MAP_BYTES)()
    given = [
        (kind * len(part))(*part)
        for kind, part in (
            (ctypes.c_uint64, array.shape[::-1]),
            (ctypes.c_uint64, array.strides[::-1][1:]),
            (ctypes.c_int32, lower),
            (ctypes.c_int32, upper),
            (ctypes.c_uint32, (1, *steps, 1)),
        )
    ]
    *places, stepping = [ctypes.addressof(part) for part in given]
    codes = (stepping, 0, 0, 0, 0)
    assert not encode_im2col(ctypes.addressof(target), 6, rank, address_of(1), *places, channels, pixels, *codes)
    return bytes(target)


def load(array, described, start, offsets):
    """Shared memory as elements after a load."""
    rank, out = array.ndim, np.zeros(decode(described).tile_bytes, np.uint8)
    where, taps = coordinates(start), coordinates(offsets)
    ask = f"""@!%p1 bra wait;
mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {len(out)};
cp.async.bulk.tensor.{rank}d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%r3], [%d2, {where}], [%r2], {taps};
"""  # noqa: E501
    outcome = emulate(SETUP + ask + WAIT + OUT.format(size=len(out)), out, array, maps=[described])
    assert outcome.findings == ()
    return out.view(array.dtype)


def lowered(array, pad, taps, steps):
    """(pixels, channels): for every output pixel of a convolution the input pixel under one tap of its filter.

    Zeros follow the last image.
    """
    spatial = array.ndim - 2
    wide = np.pad(array, [(0, 0), *[(pad, pad)] * spatial, (0, 0)])
    cuts = [slice(tap, tap + size + 2 * pad - 2, step)
            for tap, size, step in zip(reversed(taps), array.shape[1:-1], reversed(steps))]  # fmt: skip
    rows = wide[(slice(None), *cuts)].reshape(-1, array.shape[-1])
    return np.pad(rows, [(0, 64), (0, 0)])


@pytest.mark.parametrize("steps", [(1, 1), (2, 2), (1, 2)])
@pytest.mark.parametrize("taps", [(0, 0), (2, 1), (1, 2)])
def test_a_tap_of_a_3_by_3_filter_in_rows_of_output_pixels(taps, steps):
    array = np.arange(1, 3 * 6 * 7 * 16 + 1).reshape(3, 6, 7, 16).astype(np.float16)
    rows = lowered(array, 1, taps, steps)
    described = image_map(array, 20, 8, (-1, -1), (-1, -1), steps)
    tile = load(array, described, (8, -1, -1, 0), taps).reshape(20, 8)
    assert (tile == rows[:20, 8:]).all()
    width, height = (-(-size // step) for size, step in zip((7, 6), steps))
    later = load(array, described, (0, -1 + 3 * steps[0], -1 + 2 * steps[1], 1), taps).reshape(20, 8)
    first = width * height + 2 * width + 3
    assert (later == rows[first : first + 20, :8]).all()


@pytest.mark.parametrize("spatial", [1, 3])
def test_lines_and_solids(spatial):
    shape = (2, *(4, 3, 5)[-spatial:], 8)
    array = np.arange(1, np.prod(shape) + 1).reshape(shape).astype(np.float16)
    taps = (1, 0, 2)[:spatial]
    described = image_map(array, 9, 8, (-1,) * spatial, (-1,) * spatial, (1,) * spatial)
    tile = load(array, described, (0, *[-1] * spatial, 0), taps).reshape(9, 8)
    assert (tile == lowered(array, 1, taps, (1,) * spatial)[:9]).all()


@pytest.mark.parametrize("mode", ["im2col::w", "im2col::w::128"])
def test_modes_that_go_along_the_width_alone_are_refused_by_name(mode):
    code = f"cp.async.bulk.tensor.4d.shared::cta.global.{mode}.mbarrier::complete_tx::bytes [%r3], [%d2, {{0, 0, 0, 0}}], [%r2], {{0, 0}};\nret;"  # noqa: E501
    plain = tensor_map(np.zeros((2, 4, 4, 8), np.float16), (8, 2, 2, 1)).encode()
    with pytest.raises(UnsupportedInstruction, match=rf"\.{mode}"):
        emulate(SETUP + code, np.zeros(64), np.zeros((2, 4, 4, 8), np.float16), maps=[plain])


def test_a_map_of_the_other_mode_is_a_finding():
    array = np.zeros((2, 4, 4, 8), np.float16)
    code = "cp.async.bulk.tensor.4d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%r3], [%d2, {0, 0, 0, 0}], [%r2], {0, 0};\nend: ret;"  # noqa: E501
    plain = tensor_map(array, (8, 2, 2, 1)).encode()
    outcome = emulate(SETUP + "@!%p1 bra end;\n" + code, np.zeros(64), array, maps=[plain])
    assert outcome.kinds == ["invalid_operand"] and "for im2col" in outcome.findings[0].message
