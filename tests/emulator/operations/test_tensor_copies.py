"""Boxes of tensors: edges, strides, swizzles, multicast and reductions against a model that goes by element."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.engines.swizzles import Swizzle
from cutesmith.emulator.engines.tensor_maps import Element, TensorMap
from cutesmith.emulator.faults import FaultKind, UnsupportedInstruction
from tests.emulator.machine.launches import address_of, emulate, zeros
from tests.emulator.operations.tensor_model import ROW, boxed, stored

SWIZZLES = {"none": Swizzle.NONE, "32B": Swizzle.B32, "64B": Swizzle.B64, "128B": Swizzle.B128}
ELEMENTS = {"u1": Element.U8, "u2": Element.U16, "u4": Element.U32, "f2": Element.F16, "f4": Element.F32,
            "f8": Element.F64, "u8": Element.U64, "i4": Element.S32}  # fmt: skip

# p0: array of bytes that shared memory is copied to, or comes from; p1: the tensor. The first thread asks.
SETUP = """mov.u32 %r1, %tid.x;
mov.u32 %r2, tile;
mov.u32 %r3, boxes;
ld.param.u64 %d1, [p0];
setp.eq.u32 %p1, %r1, 0;
mov.b64 %d2, m0;
cvta.param.u64 %d2, %d2;
@%p1 mbarrier.init.shared.b64 [%r2], 1;
fence.mbarrier_init.release.cluster;
bar.sync 0;
"""
WAIT = "wait: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0;\n@!%p2 bra wait;\n"
OUT = """mov.u32 %r5, %r1;
out: setp.ge.u32 %p3, %r5, {size};
@%p3 bra end;
add.u32 %r6, %r3, %r5;
cvt.u64.u32 %d3, %r5;
add.u64 %d3, %d1, %d3;
ld.shared.u8 %r7, [%r6];
st.global.u8 [%d3], %r7;
add.u32 %r5, %r5, 32;
bra out;
end: ret;
"""
IN = """mov.u32 %r5, %r1;
in: setp.ge.u32 %p3, %r5, {size};
@%p3 bra ready;
add.u32 %r6, %r3, %r5;
cvt.u64.u32 %d3, %r5;
add.u64 %d3, %d1, %d3;
ld.global.u8 %r7, [%d3];
st.shared.u8 [%r6], %r7;
add.u32 %r5, %r5, 32;
bra in;
ready: fence.proxy.async.shared::cta;
bar.sync 0;
"""


def tensor_map(array, box, swizzle="none", steps=None, **more):
    """The map of an array that is array 1 of a launch, its contiguous axis last."""
    return TensorMap(
        address=address_of(1),
        element=ELEMENTS[array.dtype.str[1:]],
        sizes=tuple(reversed(array.shape)),
        strides=tuple(reversed(array.strides))[1:],
        box=box,
        steps=steps or (1,) * len(box),
        swizzle=SWIZZLES[swizzle],
        **more,
    )


def coordinates(start):
    return "{" + ", ".join(map(str, start)) + "}"


def load(array, box, start, *, words="", settings=None, **given):
    """(outcome, bytes of shared memory) after a load of a box."""
    described = tensor_map(array, box, **given)
    size, rank = described.tile_bytes, array.ndim
    ask = f"""@!%p1 bra wait;
mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {size};
cp.async.bulk.tensor.{rank}d.shared::cta.global{words}.mbarrier::complete_tx::bytes [%r3], [%d2, {coordinates(start)}], [%r2];
"""  # noqa: E501
    out = np.zeros(described.shared_bytes if described.padded else size, np.uint8)
    base = array if array.base is None else array.base
    outcome = emulate(
        SETUP + ask + WAIT + OUT.format(size=out.size), out, base, maps=[described.encode()], **settings or {}
    )
    return outcome, out


def values(*shape, dtype="f2", seed=0):
    drawn = np.random.default_rng(seed).integers(1, 100, shape)
    return drawn.astype(dtype)


CASES = [
    (values(64), (32,), (8,)),
    (values(10, 40), (16, 4), (8, 2)),
    (values(10, 40), (16, 4), (32, 8)),  # over both far edges
    (values(10, 40), (16, 4), (-8, -2)),  # over both near ones
    (values(10, 40), (16, 4), (104, 100)),  # all outside
    (values(3, 6, 16, dtype="f4"), (8, 3, 2), (12, 4, 2)),
    (values(2, 3, 4, 16, dtype="u1"), (16, 3, 2, 2), (0, 2, 2, 1)),
    (values(2, 2, 3, 4, 16), (16, 2, 2, 2, 1), (8, 3, -1, 1, 1)),
    (values(6, 8, dtype="f8"), (4, 4), (6, 3)),
]


@pytest.mark.parametrize(("array", "box", "start"), CASES, ids=lambda case: str(getattr(case, "shape", case)))
def test_a_box_is_loaded_and_filled_with_zeros_outside(array, box, start):
    outcome, tile = load(array, box, start, words=".tile")
    assert outcome.findings == ()
    assert (tile == boxed(array, box, start)).all()


@pytest.mark.parametrize(("start", "distance"), [((3, 2), 6), ((-4, 0), -8), ((7, 0), 14)])
def test_a_box_that_begins_between_units_of_16_bytes_ends_the_launch(start, distance):
    for copy in (load, store):
        (finding,) = copy(values(10, 40), (16, 4), start)[0].findings
        assert finding.kind is FaultKind.MISALIGNED
        assert f"begins {distance} bytes into the rows" in finding.message and "multiple of 16" in finding.message


@pytest.mark.parametrize("swizzle", ["32B", "64B", "128B"])
def test_rows_are_swizzled(swizzle):
    array, columns = values(40, 128), ROW[swizzle] // 2
    outcome, tile = load(array, (columns, 32), (8, 15), swizzle=swizzle)
    assert outcome.findings == ()
    assert (tile == boxed(array, (columns, 32), (8, 15), swizzle=swizzle)).all()


@pytest.mark.parametrize("swizzle", ["none", "128B"])
@pytest.mark.parametrize(("bits", "chunk"), [(4, 8), (6, 12)])
def test_packed_elements_are_padded_to_16_bytes(bits, chunk, swizzle):
    """128 elements of 4 or 6 bits take 128 bytes, of which each 16 begin with 16 elements (PTX ISA, "Sub-byte Types").

    An mbarrier counts the bytes of the tensor, as the DSL's `global_tx_bytes` says; coordinates are elements.
    """
    array = values(8, 2 * 16 * bits, dtype="u1")  # 256 elements a row
    outcome, tile = load(array, (16 * bits, 4), (128, 6), swizzle=swizzle, packed=bits, chunk=chunk)
    assert outcome.findings == ()
    rows = SWIZZLES[swizzle].apply(np.arange(512))
    found = tile[rows].reshape(4, 8, 16)[..., :chunk].reshape(4, -1)
    assert (found[:2] == array[6:, 16 * bits :]).all() and not found[2:].any()


def test_what_padded_elements_do_not_allow():
    given = {"packed": 4, "chunk": 8}
    (finding,) = load(values(8, 128, dtype="u1"), (64, 4), (64, 0), **given)[0].findings
    assert "begins at element 64 of a row, which is not a multiple of 128" in finding.message
    for box, swizzle, says in (((32, 4), "none", "a box has 128"), ((64, 4), "64B", "none or one of 128")):
        (finding,) = load(values(8, 128, dtype="u1"), box, (0, 0), swizzle=swizzle, **given)[0].findings
        assert "malformed" in finding.message and says in finding.message
    with pytest.raises(UnsupportedInstruction, match="whose elements have padding"):
        store(values(8, 128, dtype="u1"), (64, 4), (0, 0), **given)


def test_rows_that_are_apart_and_steps_between_them():
    whole = values(12, 3, 48)
    array = whole[:, 1, :]  # rows are 3 * 96 bytes apart
    outcome, tile = load(array, (16, 6), (24, 1), steps=(1, 2))
    model = boxed(array, (16, 6), (24, 1), steps=(1, 2))
    described = tensor_map(array, (16, 6), steps=(1, 2))
    assert described.strides == (288,) and described.tile == (16, 3)
    assert outcome.findings == () and len(tile) == len(model)
    first = boxed(whole.reshape(36, 48), (16, 6 * 3), (24, 3), steps=(1, 6))  # array 1 begins at `whole`
    assert (tile == first).all()


def test_outside_of_the_tensor_may_be_nan():
    array = values(4, 16)
    _, tile = load(array, (16, 4), (8, 2), fill_nan=True)
    model = boxed(array, (16, 4), (8, 2)).view(np.uint16)
    model[model == 0] = 0x7FF7
    assert (tile.view(np.uint16) == model).all()


@pytest.mark.parametrize("order", range(5))
def test_every_order_of_completion_gives_the_same(order):
    array = values(10, 40)
    outcome, tile = load(array, (16, 4), (8, 2), settings={"order": order})
    assert outcome.findings == () and (tile == boxed(array, (16, 4), (8, 2))).all()


def store(array, box, start, operation="", tile=None, **given):
    """(outcome, the tensor) after a store of a box."""
    described = tensor_map(array, box, **given)
    tile = np.arange(described.tile_bytes, dtype=np.uint8) if tile is None else tile
    kind, dot = ("cp.reduce.async.bulk.tensor", f".{operation}") if operation else ("cp.async.bulk.tensor", "")
    ask = f"""@!%p1 bra end;
{kind}.{array.ndim}d.global.shared::cta{dot}.tile.bulk_group [%d2, {coordinates(start)}], [%r3];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0;
end: ret;
"""
    target = array.copy()
    code = SETUP + IN.format(size=len(tile)) + ask
    return emulate(code, tile, target, maps=[described.encode()]), target, tile


@pytest.mark.parametrize("start", [(-8, 0), (0, -1), (-16, -4)])
@pytest.mark.parametrize("operation", ["", "add"])
def test_a_store_that_begins_before_the_tensor_ends_the_launch(start, operation):
    tile = values(4, 16, seed=1).view(np.uint8).ravel()
    (finding,) = store(values(10, 40), (16, 4), start, operation, tile)[0].findings
    assert finding.kind is FaultKind.OUT_OF_BOUNDS and f"before the tensor, at {start}" in finding.message


STORED = [case for case in CASES if min(case[2]) >= 0]


@pytest.mark.parametrize(("array", "box", "start"), STORED, ids=lambda case: str(getattr(case, "shape", case)))
def test_a_box_is_stored_and_clipped(array, box, start):
    outcome, target, tile = store(array, box, start)
    assert outcome.findings == ()
    expected = stored(array, tile, box, start)
    assert (target.view(np.uint8) == expected.view(np.uint8)).all()


@pytest.mark.parametrize("swizzle", ["32B", "64B", "128B"])
def test_swizzled_rows_are_stored_in_order(swizzle):
    array, columns = values(40, 128), ROW[swizzle] // 2
    outcome, target, tile = store(array, (columns, 8), (8, 35), swizzle=swizzle)
    assert outcome.findings == ()
    assert (target.view(np.uint16) == stored(array, tile, (columns, 8), (8, 35), swizzle).view(np.uint16)).all()


REDUCTIONS = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
              "xor": np.bitwise_xor}  # fmt: skip


@pytest.mark.parametrize(
    ("operation", "dtype"),
    [
        ("add", "u4"),
        ("add", "f4"),
        ("add", "f2"),
        ("min", "u4"),
        ("max", "i4"),
        ("and", "u4"),
        ("or", "u8"),
        ("xor", "u4"),
    ],
)
def test_a_box_is_reduced_into_the_tensor(operation, dtype):
    array, given = values(6, 16, dtype=dtype), values(4, 8, dtype=dtype, seed=1)
    outcome, target, tile = store(array, (8, 4), (8, 4), operation, given.view(np.uint8).ravel())
    assert outcome.findings == ()
    assert (target == stored(array, tile, (8, 4), (8, 4), combine=REDUCTIONS[operation])).all()


def test_a_box_goes_to_all_blocks_of_the_mask():
    """Two blocks of four get the tile that block 0 asks for; each waits at its own mbarrier."""
    array = values(8, 16)
    described = tensor_map(array, (16, 4))
    size = described.tile_bytes
    code = (
        SETUP
        + f"""barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mov.u32 %r10, %cluster_ctarank;
and.b32 %r11, %r10, 1;
setp.eq.u32 %p5, %r11, 0;
@%p5 bra done;
@!%p1 bra wait;
mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {size};
setp.ne.u32 %p6, %r10, 1;
@%p6 bra wait;
mov.b16 %h1, 10;
cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r3], [%d2, {{0, 2}}], [%r2], %h1;
"""  # noqa: E501
        + WAIT
        + f"""shr.u32 %r12, %r10, 1;
mul.lo.u32 %r12, %r12, {size};
cvt.u64.u32 %d5, %r12;
add.u64 %d1, %d1, %d5;
"""
        + OUT.format(size=size).replace("end: ret;", "end:")
        + "done: barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\nret;"
    )
    out = np.zeros(2 * size, np.uint8)
    outcome = emulate(code, out, array, grid=4, cluster=4, maps=[described.encode()])
    assert outcome.findings == ()
    assert (out.reshape(2, size) == boxed(array, (16, 4), (0, 2))).all()
    wrong = emulate(code.replace("%h1, 10", "%h1, 2"), out, array, grid=4, cluster=4, maps=[described.encode()])
    assert "deadlock" in wrong.kinds and f"{size} bytes" in wrong.findings[0].message
    beyond = emulate(code.replace("%h1, 10", "%h1, 26"), out, array, grid=4, cluster=4, maps=[described.encode()])
    assert "invalid_operand" in beyond.kinds


def ask(described, text="[%r3], [%d2, {0, 0}], [%r2]", words="tile.mbarrier::complete_tx::bytes"):
    code = f"@!%p1 bra end;\ncp.async.bulk.tensor.2d.shared::cta.global.{words} {text};\nend: ret;"
    return emulate(SETUP + code, zeros(64), values(8, 64), maps=[described.encode()])


@pytest.mark.parametrize(("swizzle", "column"), [("none", 16), ("64B", 8), ("64B", -8), ("none", 48)])
def test_four_rows_are_gathered(swizzle, column):
    array, rows = values(9, 64), (7, 2, -1, 2)
    described, size = tensor_map(array, (32, 1), swizzle), 4 * 32 * 2
    code = f"""@!%p1 bra wait;
mbarrier.arrive.expect_tx.shared.b64 _, [%r2], {size};
cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r3], [%d2, {coordinates((column, *rows))}], [%r2];
"""  # noqa: E501
    out = np.zeros(size, np.uint8)
    outcome = emulate(SETUP + code + WAIT + OUT.format(size=size), out, array, maps=[described.encode()])
    gathered = np.stack([array[row] if row >= 0 else np.zeros_like(array[0]) for row in rows])
    assert outcome.findings == ()
    assert (out == boxed(gathered, (32, 4), (column, 0), swizzle=swizzle)).all()


def test_four_rows_are_scattered():
    array, rows, size = values(9, 64), (7, 2, 12, 0), 4 * 16 * 2
    tile = values(4, 16, seed=3).view(np.uint8).ravel()
    code = f"""@!%p1 bra end;
cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%d2, {coordinates((8, *rows))}], [%r3];
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
end: ret;"""
    expected = array.copy()
    for row, given in zip(rows, tile.view(np.float16).reshape(4, 16)):
        if row < 9:
            expected[row, 8:24] = given
    outcome = emulate(SETUP + IN.format(size=size) + code, tile, array, maps=[tensor_map(array, (16, 1)).encode()])
    assert outcome.findings == ()
    assert (array == expected).all()


def test_rows_are_gathered_of_boxes_of_one_row_only():
    words, text = "tile::gather4.mbarrier::complete_tx::bytes", "[%r3], [%d2, {0, 0, 1, 2, 3}], [%r2]"
    (finding,) = ask(tensor_map(values(8, 64), (16, 4)), text, words).findings
    assert finding.kind == "invalid_operand" and "one row" in finding.message


PREFETCH = "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%d2, {0, 0}];\nret;"


def test_what_is_not_settled_is_refused_by_name():
    array = values(8, 64)
    with pytest.raises(UnsupportedInstruction, match=r"\.im2col::w"):
        ask(tensor_map(array, (16, 4)), words="im2col::w.mbarrier::complete_tx::bytes")
    unknown = bytes([0] * 6 + [1] * 122)
    with pytest.raises(UnsupportedInstruction, match="not a tensor map of a tiled tensor"):
        emulate(SETUP + PREFETCH, zeros(64), array, maps=[unknown])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (tensor_map(values(8, 64), (32, 4), "32B").encode(), "its swizzle takes at most 32"),
        (tensor_map(values(8, 64), (4, 4)).encode(), "rows of 8 bytes in its box: a multiple of 16 is needed"),
        (tensor_map(values(8, 64), (12, 4)).encode(), "rows of 24 bytes in its box: a multiple of 16 is needed"),
        (tensor_map(values(8, 64, dtype="u1"), (17, 4)).encode(), "rows of 17 bytes in its box"),
        (tensor_map(values(64), (20,)).encode(), "rows of 40 bytes in its box"),
        (bytes(128), "malformed: these 128 bytes are not a tensor map"),
    ],
)
def test_a_malformed_map_is_a_finding(data, words):
    (finding,) = emulate(SETUP + PREFETCH, zeros(64), values(8, 64), maps=[data]).findings
    assert finding.kind == "invalid_operand" and words in finding.message


def test_wrong_operands_are_findings():
    described = tensor_map(values(8, 64), (16, 4))
    misplaced = ask(described, "[%r3+64], [%d2, {0, 0}], [%r2]")
    assert misplaced.kinds == ["misaligned"] and "not a multiple of 128" in misplaced.findings[0].message
    assert ask(described, "[%r3+16384], [%d2, {0, 0}], [%r2]").kinds == ["out_of_bounds"]
    assert "is not an mbarrier" in ask(described, "[%r3], [%d2, {0, 0}], [%r2+64]").findings[0].message


def test_a_tensor_that_is_larger_than_its_memory_is_out_of_bounds():
    array = values(8, 64)
    outcome, _ = load(array, (16, 4), (0, 6))
    assert outcome.findings == ()
    described = tensor_map(array, (16, 4))
    longer = TensorMap(**{**vars(described), "sizes": (64, 9)})
    code = "@!%p1 bra end;\ncp.async.bulk.prefetch.tensor.2d.L2.global.tile [%d2, {0, 0}];\nmbarrier.arrive.expect_tx.shared.b64 _, [%r2], 128;\ncp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%r3], [%d2, {0, 6}], [%r2];\nend: ret;"  # noqa: E501
    assert "out_of_bounds" in emulate(SETUP + code, zeros(64), array, maps=[longer.encode()]).kinds
