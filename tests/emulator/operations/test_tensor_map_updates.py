"""Tensor maps that a kernel changes: every field against the same map encoded at once, and the fences between."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from cutesmith.emulator.engines.tensor_maps import TensorMapError, decode, replace_field
from cutesmith.recording.tensor_map_calls import MapField
from tests.emulator.machine.launches import address_of, emulate
from tests.emulator.operations.tensor_model import boxed
from tests.emulator.operations.test_tensor_copies import OUT, SETUP, WAIT, tensor_map, values

SIZE = 16 * 4 * 2
# The map m0 is copied to 128 bytes of global memory (array 2), changed there or in shared memory, and used from there.
COPY = """ld.param.u64 %d10, [p2];
mov.b64 %d11, m0;
mul.wide.u32 %d12, %r1, 4;
add.u64 %d13, %d10, %d12;
add.u64 %d14, %d11, %d12;
ld.param.b32 %r20, [%d14];
st.global.b32 [%d13], %r20;
add.u32 %r21, %r3, 8192;
mul.lo.u32 %r22, %r1, 4;
add.u32 %r22, %r21, %r22;
st.shared.b32 [%r22], %r20;
bar.sync 0;
"""
IN_PLACE = """@!%p1 bra changed;
tensormap.replace.tile.global_address.global.b1024.b64 [%d10], {address};
tensormap.replace.tile.global_dim.global.b1024.b32 [%d10], 1, 3;
{release}
{acquire}
changed:
"""
THROUGH_SHARED = """@!%p1 bra changed;
tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r21], {address};
tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%r21], 1, 3;
changed: bar.warp.sync 0xffffffff;
tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d10], [%r21], 128;
@%p1 {acquire}
"""
LOAD = f"""@!%p1 bra wait;
mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {SIZE};
cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r3], [%d10, {{8, 0}}], [%r2];
"""
RELEASE = "fence.proxy.tensormap::generic.release.gpu;"
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%d10], 128;"


def changed_and_loaded(how, **fences):
    """(outcome, tile, what it should be) of a box of the second of two tensors, whose map is made from the first's."""
    both = values(8, 32)
    out, room = np.zeros(SIZE, np.uint8), np.zeros(32, np.uint32)
    described = tensor_map(both[:4], (16, 4))
    second = address_of(1) + both[4:].ctypes.data - both.ctypes.data
    code = SETUP + COPY + how.format(address=second, **fences) + LOAD + WAIT + OUT.format(size=SIZE)
    outcome = emulate(code, out, both, room, maps=[described.encode()])
    return outcome, out, boxed(both[4:7], (16, 4), (8, 0))


@pytest.mark.parametrize("how", [IN_PLACE, THROUGH_SHARED], ids=["in place", "through shared memory"])
def test_a_map_that_the_kernel_changes_is_used_as_changed(how):
    outcome, tile, expected = changed_and_loaded(how, release=RELEASE, acquire=ACQUIRE)
    assert outcome.findings == ()
    assert (tile == expected).all()


@pytest.mark.parametrize(
    ("how", "fences", "missing"),
    [
        (IN_PLACE, {"release": "", "acquire": ACQUIRE}, "release"),
        (IN_PLACE, {"release": RELEASE, "acquire": ""}, "acquire"),
        (THROUGH_SHARED, {"acquire": "membar.cta;"}, "acquire"),
    ],
)
def test_a_missing_fence_is_a_finding(how, fences, missing):
    outcome, _, _ = changed_and_loaded(how, **fences)
    assert outcome.kinds == ["missing_fence"]
    assert f"tensormap::generic.{missing}`" in outcome.findings[0].message


@pytest.mark.parametrize(("when", "kinds"), [("under way", ["race"]), ("done", [])])
def test_a_map_changes_only_after_the_copies_that_use_it(when, kinds):
    both = values(8, 32)
    again = "@%p1 tensormap.replace.tile.global_dim.global.b1024.b32 [%d10], 1, 2;\n"
    changed = IN_PLACE.format(address=address_of(1), release=RELEASE, acquire=ACQUIRE)
    ends = again + WAIT if when == "under way" else WAIT + again
    arrays = (np.zeros(SIZE, np.uint8), both, np.zeros(32, np.uint32))
    code = SETUP + COPY + changed + LOAD + ends + OUT.format(size=SIZE)
    outcome = emulate(code, *arrays, maps=[tensor_map(both[:4], (16, 4)).encode()])
    assert outcome.kinds == kinds
    lines = code.splitlines()
    for change, copy in outcome.lines:
        assert lines[change - 1] in again
        assert lines[copy - 1] in LOAD


FIELDS = [
    (MapField.GLOBAL_ADDRESS, 0, 4096, {"address": 4096}),
    (MapField.GLOBAL_DIM, 1, 77, {"sizes": (64, 77)}),
    (MapField.GLOBAL_STRIDE, 0, 256, {"strides": (256,)}),
    (MapField.BOX_DIM, 1, 2, {"box": (16, 2)}),
    (MapField.ELEMENT_STRIDE, 1, 2, {"steps": (1, 2)}),
]


@pytest.mark.parametrize(("field", "index", "value", "expected"), FIELDS, ids=lambda given: str(given))
def test_a_field_is_replaced(field, index, value, expected):
    described = tensor_map(values(8, 64), (16, 4))
    after = decode(replace_field(described.encode(), field, index, value))
    assert after == dataclasses.replace(described, **expected)


def test_a_map_may_be_made_from_zeros():
    described = tensor_map(values(6, 8, 64, dtype="f8"), (16, 4, 2), "128B")
    data = bytes(128)
    slots = [(MapField.GLOBAL_ADDRESS, 0, described.address), (MapField.ELEMTYPE, 0, 9), (MapField.SWIZZLE_MODE, 0, 3)]
    slots += [(MapField.GLOBAL_DIM, axis, size) for axis, size in enumerate(described.sizes)]
    slots += [(MapField.BOX_DIM, axis, size) for axis, size in enumerate(described.box)]
    slots += [(MapField.GLOBAL_STRIDE, axis, size) for axis, size in enumerate(described.strides)]
    slots += [(MapField.ELEMENT_STRIDE, axis, 1) for axis in range(3)]
    for field, index, value in [*slots, (MapField.RANK, 0, 2)]:
        data = replace_field(data, field, index, value)
    assert decode(data) == described


def test_what_does_not_fit_is_refused():
    data = tensor_map(values(8, 64), (16, 4)).encode()
    for field, index, value in [(MapField.GLOBAL_DIM, 0, 0), (MapField.BOX_DIM, 5, 1), (MapField.GLOBAL_STRIDE, 4, 16)]:
        with pytest.raises(TensorMapError):
            replace_field(data, field, index, value)
    with pytest.raises(TensorMapError, match="not a tensor map"):
        replace_field(bytes([1] * 128), MapField.RANK, 0, 1)
