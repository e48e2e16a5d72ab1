"""Tensor maps as host code of the DSL encodes them, and the driver's entry point, against what was asked for."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

from cutesmith.emulator.engines.swizzles import Swizzle
from cutesmith.emulator.engines.tensor_maps import Element, TensorMap, TensorMapError, decode, replace_field
from cutesmith.recording.tensor_map_calls import MAP_BYTES, MapField, encode_tiled

WORDS = {  # of nvidia-cutlass-dsl 4.8: a tensor, and the words that its host code wrote
    "f16 (64, 256), rows of a 128B swizzle": (
        "7f0001350000 2000046312 0 0 3f000000ff 0 3f00000000000000 f",
        TensorMap(0x7F00_0135_0000, Element.F16, (256, 64), (512,), (64, 16), (1, 1), Swizzle.B128),
    ),
    "f32 (64, 256), atoms of 32 bytes": (
        "7f0000110000 40000c6392 0 0 3f000000ff 0 1f00000000000000 f",
        TensorMap(0x7F00_0011_0000, Element.F32, (256, 64), (1024,), (32, 16), (1, 1), Swizzle.B128_ATOM_32B),
    ),
    "f16 (100,)": (
        "7f0001458000 40302 0 0 63 0 f00000000000000 0",
        TensorMap(0x7F00_0145_8000, Element.F16, (100,), (), (16,), (1,)),
    ),
    "f16 of five dimensions": (
        "7f0001a7f500 a00240342 1a40000003c0 8340 5f0000004f 400000006 f00000000000002 1020103",
        TensorMap(
            0x7F00_01A7_F500, Element.F16, (80, 96, 7, 5, 3), (160, 15360, 107520, 537600), (16, 4, 2, 3, 2), (1,) * 5
        ),
    ),
    "e2m1 (8, 8192, 8192), two in a byte": (
        "7f0000000000 100002465a2 200000 0 1fff00001fff 7 ff00000000000000 7f",
        TensorMap(
            0x7F00_0000_0000,
            Element.U8,
            (4096, 8192, 8),
            (4096, 1 << 25),
            (128, 128, 1),
            (1,) * 3,
            Swizzle.B128,
            packed=4,
        ),
    ),
    "bf16 (3, 20, 9, 16), windows of 5 x 1 taps, 2 apart": (
        "7f0000000000 200046533 16800000012 0 80000000f 200000013 3f00000000000000 7ffa02fefe",
        TensorMap(
            0x7F00_0000_0000,
            Element.BF16,
            (16, 9, 20, 3),
            (32, 288, 5760),
            (64, 128),
            (1,) * 4,
            Swizzle.B128,
            corners=((-2, -2), (2, -6)),
        ),
    ),
    "f16 (3, 20, 19, 16), windows of 3 x 7 taps in steps of 3": (
        "7f0000000000 200046333 2f800000026 0 120000000f 200000013 3f00009000000000 7f03fffbfb",
        TensorMap(
            0x7F00_0000_0000,
            Element.F16,
            (16, 19, 20, 3),
            (32, 608, 12160),
            (64, 128),
            (1, 3, 3, 1),
            Swizzle.B128,
            corners=((-5, -5), (-1, 3)),
        ),
    ),
    "f64": (
        "7f0000818000 2000040492 0 0 3f0000003f 0 f00000000000000 f",
        TensorMap(0x7F00_0081_8000, Element.F64, (64, 64), (512,), (16, 16), (1, 1)),
    ),
}


def packed(words: str) -> bytes:
    given = [int(word, 16) for word in words.split()]
    return np.array(given + [0x7FF4_3FBE_8180] * (16 - len(given)), np.uint64).tobytes()


@pytest.mark.parametrize("name", WORDS)
def test_what_the_dsl_wrote_is_read(name):
    words, expected = WORDS[name]
    assert decode(packed(words)) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "shape", "tile"),
    [
        ("float32", (70, 96), (16, 32)),
        ("bfloat16", (5, 40, 64), (2, 8, 32)),
        ("uint8", (3, 4, 40, 64), (1, 2, 8, 32)),
        ("int64", (64, 48), (4, 4)),
    ],
)
def test_the_installed_dsl_still_writes_that(dtype, shape, tile):
    import torch
    from cutlass.cute.runtime import from_dlpack

    from cutesmith.recording.open_session import session
    from tests.emulator.kernels import tensor_map

    with session("sm_90a") as recorded:
        tensor = torch.empty(shape, dtype=getattr(torch, dtype), device="cuda")
        view = from_dlpack(tensor, assumed_align=16)
        tensor_map.host(view, tile)
        found = decode(recorded.launches[-1].parameters[0])
    sizes = tuple(reversed(shape))
    strides = tuple(stride * tensor.element_size() for stride in reversed(tensor.stride()))[1:]
    assert (found.sizes, found.strides, found.box) == (sizes, strides, tuple(reversed(tile)))
    assert found.element.value[2] == {"float32": "f32", "bfloat16": "bf16", "uint8": "u8", "int64": "u64"}[dtype]
    assert found.address and found.address % 16 == 0


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("0 0 0 0 0 0 0 0", "not a tensor map"),
        ("7f0001458000 40b02 0 0 63 0 f00000000000000 0", "not understood"),
        ("7f0001458000 40313 0 0 63 0 f00000000000000 0", "im2col with 2 dimensions"),
        ("7f0001458000 40502 0 0 63 0 f00000100000000 0", "last words"),
        ("7f0001458000 40602 0 0 63 0 f00000000000000 0", "element type 12"),
        ("7f0001458008 40302 0 0 63 0 f00000000000000 0", "multiple of 16"),
        ("7f0001458000 1c6302 0 0 63 0 f00000000000000 0", "atoms of code 3"),
    ],
)
def test_what_is_not_understood_is_refused(words, text):
    with pytest.raises(TensorMapError, match=text):
        decode(packed(words))


def call(**changed):
    """(result, map) of the driver's entry point for an f16 tensor of (8, 64)."""
    given = {"data_type": 6, "sizes": (64, 8), "strides": (128,), "box": (32, 4), "steps": (1, 2)} | changed
    arrays = [
        (kind * len(given[name]))(*given[name])
        for name, kind in (("sizes", ctypes.c_uint64), ("strides", ctypes.c_uint64), ("box", ctypes.c_uint32),
                           ("steps", ctypes.c_uint32))
    ]  # fmt: skip
    target = (ctypes.c_uint8 * MAP_BYTES)()
    codes = [given.get(name, 0) for name in ("interleave", "swizzle", "promotion", "fill")]
    places = [ctypes.addressof(array) for array in arrays]
    rank = len(given["sizes"])
    return encode_tiled(ctypes.addressof(target), given["data_type"], rank, 0x7F00_0000_0000, *places, *codes), bytes(
        target
    )


def test_the_entry_point_of_the_driver_is_answered():
    result, encoded = call(swizzle=2, fill=1, promotion=2)
    assert result == 0
    assert decode(encoded) == TensorMap(
        0x7F00_0000_0000, Element.F16, (64, 8), (128,), (32, 4), (1, 2), Swizzle.B64, True
    )
    assert decode(encoded).tile == (32, 2)


def test_packed_elements_of_four_bits_are_counted_in_bytes():
    """CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN8B, and what replaces a field of a map that the DSL encoded."""
    result, encoded = call(data_type=13, sizes=(256, 8), box=(64, 4), swizzle=1)
    assert result == 0
    expected = TensorMap(0x7F00_0000_0000, Element.U8, (128, 8), (128,), (32, 4), (1, 2), Swizzle.B32, packed=4)
    assert decode(encoded) == expected
    assert decode(expected.encode()) == expected
    wider = replace_field(expected.encode(), MapField.GLOBAL_DIM, 0, 512)
    assert decode(wider) == replace(expected, sizes=(256, 8))
    with pytest.raises(TensorMapError, match="no whole bytes"):
        decode(call(data_type=13, sizes=(255, 8), box=(64, 4))[1])


def test_what_the_driver_would_refuse_is_refused():
    assert call(interleave=1)[0] == 1
    assert call(box=(300, 4))[0] == 1
    with pytest.raises(TensorMapError, match="multiple of 16 below"):
        decode(call(strides=(120,))[1])
    with pytest.raises(TensorMapError, match="NaN"):
        decode(call(data_type=2, fill=1)[1])
