"""Copies with interleaved tensor maps, against indices written by hand; what a missing wait and wrong maps say."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from cutesmith.emulator.engines.tensor_maps import TensorMapError, UnknownTensorMap, decode
from cutesmith.emulator.faults import FaultKind
from cutesmith.recording.tensor_map_calls import MAP_BYTES, TiledMapCall, encode_tiled
from evals.studies.emulator import record_copies
from evals.studies.emulator.copy_cases import load
from evals.studies.emulator.copy_kernels import HEADERS
from evals.studies.emulator.interleave_cases import sliced
from tests.emulator.machine.launches import address_of, emulate
from tests.emulator.operations.test_tensor_copies import OUT, SETUP, WAIT


@pytest.mark.parametrize("interleave", [1, 2])
def test_a_box_goes_over_width_height_and_images_of_one_slice(interleave):
    unit = 16 * interleave
    map = sliced("u32", (6, 4, 3, 2), (4, 2, 1, 2), interleave)
    case = load("by hand", map, ((3, -1, 2, 0),))
    out, data = record_copies.run(case), case.inputs()[HEADERS:]
    line, plane, image = map.strides
    row = 0
    for n in range(2):
        for height in (-1, 0):
            for width in (3, 4, 5, 6):
                inside = height >= 0 and width < 6
                start = width * unit + height * line + 2 * plane + n * image
                expected = data[start : start + unit] if inside else np.zeros(unit, np.uint8)
                place = row * unit
                if interleave == 2 and place >> 7 & 1:  # halves of 32 bytes change places in every other 128 bytes
                    expected = np.concatenate([expected[16:], expected[:16]])
                assert (out[place : place + unit] == expected).all(), (n, height, width)
                row += 1
    assert row * unit == map.tile_bytes == 4 * 2 * 2 * unit


def call(**changed: object) -> bytes:
    given = {"address": 1 << 20, "data_type": 2, "sizes": (6, 4, 3), "strides": (128, 512), "box": (4, 1, 2),
             "steps": (1, 1, 1), "interleave": 1, **changed}  # fmt: skip
    return TiledMapCall(**given).pack()  # type: ignore[arg-type]


def test_the_slice_is_a_dimension_of_the_map():
    found = decode(call())
    assert (found.rank, found.coordinates, found.tile, found.tile_bytes) == (4, 3, (4, 4, 1, 2), 128)
    assert (found.sizes, found.strides) == ((4, 6, 4, 3), (16, 128, 512))


@pytest.mark.parametrize(
    ("changed", "error", "text"),
    [
        ({"swizzle": 1}, TensorMapError, "slices of 16 bytes none"),
        ({"interleave": 2}, TensorMapError, "need a swizzle of 32"),
        ({"interleave": 2, "swizzle": 1, "strides": (48, 512)}, TensorMapError, "stride of 48"),
        ({"box": (3, 1, 2)}, TensorMapError, "3 elements wide"),
        ({"box": (8, 4), "corners": ((0,), (0,))}, UnknownTensorMap, "im2col of 8 channels"),
    ],
)
def test_what_the_driver_refuses_or_is_not_settled_says_so(changed, error, text):
    with pytest.raises(error, match=text):
        decode(call(**changed))


@pytest.mark.parametrize(("interleave", "rank", "result"), [(1, 3, 0), (2, 4, 0), (3, 3, 1), (1, 2, 1)])
def test_the_entry_point_of_the_driver_takes_what_the_driver_takes(interleave, rank, result):
    target = (ctypes.c_uint8 * MAP_BYTES)()
    words = [(ctypes.c_uint64 * 5)(8, 4, 3, 2, 2), (ctypes.c_uint64 * 4)(256, 1024, 4096, 8192)]
    words += [(ctypes.c_uint32 * 5)(4, 1, 1, 1, 1), (ctypes.c_uint32 * 5)(2, 1, 1, 1, 1)]
    places = [ctypes.addressof(one) for one in words]
    assert encode_tiled(ctypes.addressof(target), 2, rank, 1 << 20, *places, interleave, interleave - 1, 0, 0) == result
    if not result:
        assert decode(bytes(target)).steps[1] == 2  # a step along the width counts, unlike that of channels


def copied(wait):
    """What a launch says that loads slice 2 from column 1 and line 1 of two images on, and whether it is right."""
    array = np.arange(2 * 3 * 4 * 6 * 4, dtype=np.float32).reshape(2, 3, 4, 6, 4)
    out = np.zeros(2 * 3 * 4 * 4 * 4, np.uint8)  # images, lines, columns, channels, bytes
    sizes, strides = array.shape[3::-1], array.strides[2::-1]
    map = TiledMapCall(address_of(1), 7, sizes, strides, (4, 3, 1, 2), (1,) * 4, interleave=1).pack()
    ask = f"""@!%p1 bra wait;
mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {out.nbytes};
cp.async.bulk.tensor.4d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r3], [%d2, {{1, 1, 2, 0}}], [%r2];
"""
    outcome = emulate(SETUP + ask + wait + OUT.format(size=out.nbytes), out, array, maps=[map])
    right = (out.view(np.float32).reshape(2, 3, 4, 4) == array[:, 2, 1:4, 1:5]).all()
    return outcome, right


def test_a_copy_that_is_waited_for_is_right_and_silent():
    outcome, right = copied(WAIT)
    assert right and outcome.findings == ()


def test_a_copy_that_nothing_waits_for_is_found_and_gives_wrong_numbers():
    outcome, right = copied("wait:\n")
    assert not right and FaultKind.MISSING_WAIT in {finding.kind for finding in outcome.findings}
