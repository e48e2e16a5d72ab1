"""The PTX of the kernels that are recorded for the copy engine (`copy_cases.py`)."""

from __future__ import annotations

HEADER_WORDS = 16
HEADERS = 4096
"""Bytes before the data: the headers of all sets."""
CLUSTER_SPACE = "shared::cluster"
PTX = """\
.version 8.7
.target sm_90a
.address_size 64
.visible .entry test(.param .b64 out, .param .b64 in, .param .align 128 .b8 map[128])
.reqntid 128, 1, 1
{cluster}
{{
.shared .align 1024 .b8 tile[{tile}];
.shared .align 8 .b64 full;
.reg .b64 %out, %in, %map, %head, %data, %mine, %p<8>;
.reg .b32 %thread, %block, %tile, %full, %c<5>, %place, %rank, %peer, %i, %r<16>;
.reg .b16 %o<3>, %mask;
.reg .pred %first, %done, %more, %asks;
ld.param.b64 %out, [out];
ld.param.b64 %in, [in];
mov.b64 %map, map;
cvta.param.u64 %map, %map;
mov.u32 %thread, %tid.x;
mov.u32 %block, %ctaid.x;
mov.u32 %rank, %cluster_ctarank;
mov.u32 %tile, tile;
mov.u32 %full, full;
setp.eq.u32 %first, %thread, 0;
mul.wide.u32 %head, %block, 64;
add.s64 %head, %in, %head;
ld.global.b32 %c0, [%head];
ld.global.b32 %c1, [%head+4];
ld.global.b32 %c2, [%head+8];
ld.global.b32 %c3, [%head+12];
ld.global.b32 %c4, [%head+16];
ld.global.b16 %o0, [%head+20];
ld.global.b16 %o1, [%head+24];
ld.global.b16 %o2, [%head+28];
ld.global.b32 %place, [%head+32];
ld.global.b16 %mask, [%head+36];
add.s64 %data, %in, {headers};
mul.wide.u32 %mine, %block, {results};
add.s64 %mine, %out, %mine;
@%first mbarrier.init.shared::cta.b64 [%full], 1;
@%first fence.mbarrier_init.release.cluster;
{body}
ret;
}}
"""
_SYNC = "bar.sync 0;\n"
_CLUSTER_SYNC = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
_FENCE = "fence.proxy.async.shared::cta;\n"
_LOOP = """\
shl.b32 %i, %thread, 2;
{name}:
add.u32 %r15, %tile, %i;
cvt.u64.u32 %p7, %i;
{work}
add.u32 %i, %i, 512;
setp.lt.u32 %more, %i, {tile};
@%more bra {name};
"""
_WAIT = """\
mov.u32 %i, 0;
wait:
mbarrier.try_wait.parity.shared::cta.b64 %done, [%full], 0, 1000;
@%done bra over;
add.u32 %i, %i, 1;
setp.lt.u32 %more, %i, 2000;
@%more bra wait;
over:
selp.b32 %r14, 1, 0, %done;
@%first st.global.b32 [%mine+{tile}], %r14;
"""
"""A bounded wait; whether the phase was over is written behind the tile."""
_MBARRIER = "mbarrier::complete_tx::bytes"


def kernel(body: str, tile: int, results: int, cluster: int) -> str:
    """The kernel `test(out, in, map)`; a body names its tile with "{tile}"."""
    shape = f".reqnctapercluster {cluster}, 1, 1" if cluster > 1 else ""
    return PTX.format(
        cluster=shape, tile=tile, headers=HEADERS, results=results, body=body.replace("{tile}", str(tile))
    )


def _loop(name: str, work: str) -> str:
    """Words of the tile: %r15 is the address of one, %p7 its offset."""
    return _LOOP.replace("{name}", name).replace("{work}", work)


_PATTERN = _loop("pattern", "st.shared.b32 [%r15], 0xA5A5A5A5;")
_DUMP = _loop("dump", "add.s64 %p7, %mine, %p7;\nld.shared.b32 %r13, [%r15];\nst.global.b32 [%p7], %r13;")
_IMAGE = "mul.wide.u32 %p6, %block, {tile};\nadd.s64 %p6, %data, %p6;\n" + _loop(
    "image", "add.s64 %p7, %p6, %p7;\nld.global.b32 %r13, [%p7];\nst.shared.b32 [%r15], %r13;"
)


def _coordinates(rank: int) -> str:
    return "{" + ", ".join(f"%c{axis}" for axis in range(rank)) + "}"


def load_body(rank: int, mode: str, size: int, cluster: int = 1, mask: int = 0) -> str:
    """A box to the tile of the set, which then is written out; in a cluster the blocks of the mask get all boxes.

    With several blocks each box goes to a place of its own, 1024 bytes apart.
    """
    sync = _CLUSTER_SYNC if cluster > 1 else _SYNC
    expect = f"@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], {size};\n"
    more, words = "", f"{_MBARRIER}"
    if mode == "im2col":
        more = ", {" + ", ".join(f"%o{axis}" for axis in range(rank - 2)) + "}"
    ask, place = "%first", "add.u32 %r0, %tile, %place;\n"
    if cluster > 1:
        words += ".multicast::cluster"
        more += ", %mask"
        # the first block alone asks: what a block gets is then the same in any order
        ask, place = "%asks", "mov.u32 %r0, %tile;\nsetp.eq.and.u32 %asks, %rank, 0, %first;\n"
        expect = _expect_of_mask(mask, size)
    copy = (
        f"@{ask} cp.async.bulk.tensor.{rank}d.{CLUSTER_SPACE}.global.{mode}.{words} "
        f"[%r0], [%map, {_coordinates(rank)}], [%full]{more};\n"
    )
    wait = _WAIT if cluster == 1 else _wait_of_mask(mask)
    return _PATTERN + _FENCE + sync + expect + (sync if cluster > 1 else "") + place + copy + wait + _DUMP + sync


def _in_mask(mask: int) -> str:
    """%asks: whether this block is in the mask."""
    return f"shr.u32 %r1, {mask}, %rank;\nand.b32 %r1, %r1, 1;\nsetp.ne.u32 %asks, %r1, 0;\n"


def _expect_of_mask(mask: int, size: int) -> str:
    return (
        _in_mask(mask) + "and.pred %asks, %asks, %first;\n"
        f"@%asks mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], {size};\n"
    )


def _wait_of_mask(mask: int) -> str:
    return _in_mask(mask) + "setp.ne.u32 %done, %r1, %r1;\n@!%asks bra over;\n" + _WAIT


def store_body(rank: int, mode: str, operation: str) -> str:
    """The tile of the set to a box of the tensor in the output."""
    opcode = "cp.reduce.async.bulk.tensor" if operation else "cp.async.bulk.tensor"
    word = f".{operation}" if operation else ""
    copy = f"{opcode}.{rank}d.global.shared::cta{word}.{mode}.bulk_group [%map, {_coordinates(rank)}], [%tile];\n"
    return (
        _IMAGE
        + _FENCE
        + _SYNC
        + "@!%first bra end;\n"
        + copy
        + "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nend:\n"
    )


def bulk_load_body(cluster: int, multicast: int = 0) -> str:
    """%c0 bytes from the data to the tile."""
    mine = "mul.wide.u32 %p6, %block, 4096;\nadd.s64 %p6, %data, %p6;\n"
    if cluster == 1:
        expect = "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], %c0;\n"
        copy = f"@%first cp.async.bulk.{CLUSTER_SPACE}.global.{_MBARRIER} [%tile], [%p6], %c0, [%full];\n"
        return _PATTERN + _FENCE + _SYNC + mine + expect + copy + _WAIT + _DUMP
    expect = _in_mask(multicast) + "and.pred %asks, %asks, %first;\n"
    expect += "@%asks mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], %c0;\n" + _CLUSTER_SYNC
    copy = "setp.eq.and.u32 %asks, %rank, 1, %first;\n"
    copy += f"@%asks cp.async.bulk.{CLUSTER_SPACE}.global.{_MBARRIER}.multicast::cluster [%tile], [%p6], %c0, [%full], %mask;\n"  # noqa: E501
    return _PATTERN + _FENCE + _CLUSTER_SYNC + mine + expect + copy + _wait_of_mask(multicast) + _DUMP + _CLUSTER_SYNC


def bulk_store_body(operation: str) -> str:
    """%c0 bytes of the tile to the output, or a reduction."""
    opcode = "cp.reduce.async.bulk" if operation else "cp.async.bulk"
    copy = f"{opcode}.global.shared::cta.bulk_group{operation} [%mine], [%tile], %c0;\n"
    return (
        _IMAGE
        + _FENCE
        + _SYNC
        + "@!%first bra end;\n"
        + copy
        + "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nend:\n"
    )


_PEER = "xor.b32 %peer, %rank, 1;\nmapa.shared::cluster.u32 %r2, %tile, %peer;\nmapa.shared::cluster.u32 %r3, %full, %peer;\n"  # noqa: E501


def bulk_peer_body(operation: str) -> str:
    """%c0 bytes of the upper half of the tile to the lower half of the peer's, or a reduction there."""
    half = "add.u32 %r0, %tile, 2048;\nmin.u32 %c0, %c0, 2048;\n"
    opcode = "cp.reduce.async.bulk" if operation else "cp.async.bulk"
    peer_size = (
        "xor.b32 %r5, %block, 1;\nmul.wide.u32 %p5, %r5, 64;\nadd.s64 %p5, %in, %p5;\nld.global.b32 %r4, [%p5];\n"
        "min.u32 %r4, %r4, 2048;\n"
    )
    expect = "@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], %r4;\n"
    copy = f"@%first {opcode}.{CLUSTER_SPACE}.shared::cta.{_MBARRIER}{operation} [%r2], [%r0], %c0, [%r3];\n"
    return _IMAGE + _FENCE + _CLUSTER_SYNC + _PEER + half + peer_size + expect + copy + _WAIT + _DUMP + _CLUSTER_SYNC


def sent_body(opcode: str, operation: str, kind: str, vectors: int) -> str:
    """Registers of every thread to its place in the lower half of the peer's tile; the operands are in the upper."""
    size = int(kind[1:]) // 8
    bits, register = 8 * size, "%r" if size == 4 else "%p"
    first = 8 if size == 4 else 0
    names = [f"{register}{first + index}" for index in range(vectors)]
    loads = "".join(f"ld.shared.b{bits} {name}, [%r1+{size * index}];\n" for index, name in enumerate(names))
    value = "{" + ", ".join(names) + "}" if vectors > 1 else names[0]
    vector = f".v{vectors}" if vectors > 1 else ""
    total = 128 * size * vectors
    return (
        _IMAGE
        + _CLUSTER_SYNC
        + _PEER
        + f"@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%full], {total};\n"
        + _CLUSTER_SYNC
        + f"mul.lo.u32 %r0, %thread, {size * vectors};\nadd.u32 %r1, %tile, %r0;\nadd.u32 %r1, %r1, 2048;\n"
        + loads
        + f"add.u32 %r2, %r2, %r0;\n{opcode}.{_MBARRIER}{vector}{operation}.{kind} [%r2], {value}, [%r3];\n"
        + _WAIT
        + _DUMP
        + _CLUSTER_SYNC
    )
