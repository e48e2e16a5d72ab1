"""Matrix descriptors: their fields, where operands are by the PTX ISA's rules, and that the DSL's layouts agree."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

from cutesmith.emulator.device import emulated_device
from cutesmith.emulator.engines.swizzles import Swizzle
from cutesmith.emulator.tensor_cores.descriptors import (
    TCGEN05,
    WGMMA,
    DescriptorError,
    Major,
    MatrixDescriptor,
    OperandTile,
)

SWIZZLES = (Swizzle.NONE, Swizzle.B32, Swizzle.B64, Swizzle.B128)


def test_the_fields_of_a_descriptor():
    """A constant of the DSL for a bf16 tile, K-major with a 128-byte swizzle: 4611686293305360384 + (address >> 4)."""
    descriptor = MatrixDescriptor.decode(4611686293305360384 | 0x1400 >> 4)
    assert descriptor == MatrixDescriptor(0x1400, leading=0x10, stride=1024, base_offset=0, swizzle=Swizzle.B128)
    assert descriptor.encode() == 4611686293305360384 | 0x1400 >> 4


@pytest.mark.parametrize("format", [WGMMA, TCGEN05], ids=lambda format: format.name)
def test_encoding_is_the_inverse_of_decoding(format):
    for swizzle in format.swizzles.values():
        descriptor = MatrixDescriptor(0x3FFF0, 0x120, 0x3FFF0, 5, swizzle)
        assert MatrixDescriptor.decode(descriptor.encode(format), format) == descriptor


def test_a_swizzle_that_does_not_exist_is_refused():
    with pytest.raises(DescriptorError, match="tcgen05 has no swizzle 3"):
        MatrixDescriptor.decode(3 << 61, TCGEN05)


def test_tcgen05_has_other_codes():
    word = 2 << 61 | 1 << 46 | 64 << 32
    assert MatrixDescriptor.decode(word, TCGEN05).swizzle is Swizzle.B128
    assert MatrixDescriptor.decode(1 << 62, WGMMA).swizzle is Swizzle.B128


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_k_major(swizzle, bits):
    """Rows of the swizzle's width, groups of eight rows `stride` apart; without a swizzle k goes on at `leading`."""
    tile = OperandTile(24, 256 // bits, bits)
    found = MatrixDescriptor(4096, 2080, 1024, 0, swizzle).addresses(tile)
    for row in range(24):
        for half in (0, 1):
            k = half * (2080 if swizzle is Swizzle.NONE else 16)
            at = 4096 + row // 8 * 1024 + row % 8 * swizzle.row + k
            count = {16: 1, 32: 2, 64: 4, 128: 8}[swizzle.row]
            assert found[row, half] == at ^ (at >> 7 & count - 1) << 4


@pytest.mark.parametrize("swizzle", SWIZZLES)
def test_mn_major(swizzle):
    """A chunk is 8 rows at one k; `leading` and `stride` change places without a swizzle."""
    tile = OperandTile(128, 16, 16, Major.MN)
    found = MatrixDescriptor(1024, 2048, 3072, 0, swizzle).addresses(tile)
    per = swizzle.row // 16
    for chunk in range(16):
        for k in range(16):
            if swizzle is Swizzle.NONE:
                at = 1024 + chunk * 3072 + k % 8 * 16 + k // 8 * 2048
            else:
                at = 1024 + chunk // per * 2048 + chunk % per * 16 + k % 8 * swizzle.row + k // 8 * 3072
            assert found[chunk, k] == at ^ (at >> 7 & per - 1) << 4


def test_the_swizzle_acts_on_addresses_and_the_base_offset_moves_it():
    tile = OperandTile(8, 16, 16)
    inside = MatrixDescriptor(1024 + 32, 16, 1024, 0, Swizzle.B128).addresses(tile)
    assert inside[:, 0].tolist() == [1024 + 128 * row + ((2 ^ row) << 4) for row in range(8)]
    moved = MatrixDescriptor(1024 + 3 * 128, 16, 1024, 3, Swizzle.B128).addresses(tile)
    assert moved[:, 0].tolist() == [1024 + 128 * (row + 3) + (row << 4) for row in range(8)]


@pytest.mark.parametrize("index", range(8))
def test_48_bytes_of_k_go_on_in_the_next_buffer(index):
    """768 numbers of 4 bits in three buffers of 128 bytes a row; the descriptor of each 96 names the next buffer."""
    buffers = (1024, 4096, 2048)  # in no order
    start = 48 * index
    leading = buffers[(start // 128 + 1) % 3]
    word = (
        (buffers[start // 128] + start % 128) // 16
        | leading // 16 << 16
        | 1024 // 16 << 32
        | 1 << 46
        | 1 << 52
        | 2 << 61
    )
    found = MatrixDescriptor.decode(word, TCGEN05).addresses(OperandTile(16, 96, 4))
    for row in range(16):
        for chunk in range(3):
            buffer, inside = divmod(start + 16 * chunk, 128)
            piece = inside // 16 ^ row % 8  # the 128-byte swizzle, in a buffer that begins at a multiple of 1024
            assert found[row, chunk] == buffers[buffer] + 128 * row + 16 * piece


def test_descriptors_in_words():
    plain = MatrixDescriptor(2048, 128, 256, 0, Swizzle.NONE)
    assert plain.explain(OperandTile(64, 16, 16)) == (
        "64 rows x 16, K-major, no swizzle, from byte 2048 of shared memory; "
        "8 rows further: 256 bytes, 16 bytes of k further: 128 bytes"
    )
    assert plain.explain(OperandTile(64, 16, 16, Major.MN)).endswith(
        "8 rows further: 256 bytes, 8 of k further: 128 bytes"
    )
    swizzled = MatrixDescriptor(2048, 8192, 1024, 2, Swizzle.B128)
    assert swizzled.explain(OperandTile(256, 32, 8)) == (
        "256 rows x 32, K-major, 128-byte swizzle, from byte 2048 of shared memory, base offset 2; "
        "8 rows further: 1024 bytes"
    )
    assert swizzled.explain(OperandTile(256, 16, 16, Major.MN)).endswith(
        "64 rows further: 8192 bytes, 8 of k further: 1024 bytes"
    )


def test_elements_of_a_tile():
    data = np.arange(2 * 8 * 2 * 16, dtype=np.uint8).reshape(2, 8, 2, 16)
    assert (OperandTile(8, 32, 8).elements(data) == data.reshape(2, 8, 32)).all()
    by_k = np.arange(2 * 1 * 16 * 8, dtype=np.uint16).reshape(2, 1, 16, 8)
    found = OperandTile(8, 16, 16, Major.MN).elements(by_k.view(np.uint8).reshape(2, 1, 16, 16))
    assert (found == by_k[:, 0].swapaxes(1, 2)).all()
    bits = OperandTile(8, 256, 1).elements(data)
    assert bits[0, 1, :8].tolist() == [int(bit) for bit in f"{32:08b}"[::-1]]


KINDS = ("INTER", "SW32", "SW64", "SW128")


@pytest.fixture(scope="module")
def laid_out():
    """`product` of kernels/wgmma_layouts.py on an emulated device, the warpgroup module and the majors."""
    with emulated_device("sm_90a") as device:
        from cutlass.cute.nvgpu import OperandMajorMode, warpgroup

        module = importlib.import_module("tests.emulator.kernels.wgmma_layouts")
        yield device, module.product, warpgroup.SmemLayoutAtomKind, OperandMajorMode


def small_numbers(seed, k, dtype):
    values = torch.randint(-3, 4, (64, k), generator=torch.Generator().manual_seed(seed))
    return (values.abs() if dtype is torch.uint8 else values).to(dtype).to("cuda")


def check(laid_out, a, b, result, kinds, order=(0, 1)):
    device, product, known, majors = laid_out
    given = [getattr(known, kind) for kind in kinds] + [getattr(majors, kind.split("_")[0]) for kind in kinds]
    before = len(device.findings)
    found = product(a, b, result, *given, order)
    assert device.findings[before:] == ()
    assert torch.equal(found.double().cpu(), a.double().cpu() @ b.double().cpu().T)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("index", range(8))
def test_layouts_of_the_dsl_with_every_swizzle_and_major(laid_out, index):
    """The product of small integers is exact only if each chunk is read from where the DSL's layout has put it."""
    kinds = [f"{major}_{swizzle}" for major in ("K", "MN") for swizzle in KINDS]
    dtype, order = ((torch.float16, (0, 1)), (torch.bfloat16, (1, 0)))[index % 2]
    a, b = small_numbers(index, 128, dtype), small_numbers(index + 9, 128, dtype)
    check(laid_out, a, b, torch.float32, (kinds[index], kinds[(3 * index + 5) % 8]), order)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("a", "b", "result", "kinds"),
    [
        (torch.float8_e4m3fn, torch.float8_e5m2, torch.float32, ("K_SW128", "K_SW32")),
        (torch.float8_e5m2, torch.float8_e4m3fn, torch.float16, ("K_INTER", "K_SW64")),
        (torch.int8, torch.uint8, torch.int32, ("K_SW32", "K_INTER")),
        (torch.uint8, torch.int8, torch.int32, ("K_SW64", "K_SW128")),
    ],
)
def test_layouts_of_the_dsl_of_bytes(laid_out, a, b, result, kinds):
    check(laid_out, small_numbers(1, 128, a), small_numbers(2, 128, b), result, kinds)
