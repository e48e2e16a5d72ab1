"""Writes that conflict with another access, until it is known whether they change anything (native code).

Many threads that write one value race without harm. So such a write is kept with a copy of the bytes that it is about
to overwrite, and judged before the next access is checked.
"""

from __future__ import annotations

from typing import Any

from cutesmith.emulator.native.building import I1, I8, I32, I64, PTR, VOID, Body, Value, declare
from cutesmith.emulator.sanitizer import cells as cells
from cutesmith.emulator.sanitizer.fault_table import FaultTable
from cutesmith.emulator.sanitizer.happens_before import field
from cutesmith.emulator.sanitizer.layout import MOST_COMPARED, Fault, Pending, Sanitizer

_NARROW = {
    "lane": Pending.LANE,
    "space": Pending.SPACE,
    "bytes": Pending.BYTES,
    "kind": Pending.KIND,
    "site": Pending.SITE,
}
"""Words that keep arguments of 32 bits."""


class PendingWrites:
    """`settle`: the function `access_settle(context)`, which judges the write that is kept, if there is one."""

    def __init__(self, module: Any, faults: FaultTable) -> None:
        self.copy = declare(module, "llvm.memcpy.p0.p0.i64", PTR, PTR, I64, I1)
        self.settle = _settle(module, faults)

    def keep(self, body: Body, conflict: Value, rewritten: Value) -> None:
        """Remember the write of `body`, the cell that it conflicts with, and how many cells of writers it replaces."""
        b = body.b
        waiting = body.word(body["context"], Sanitizer.PENDING, PTR)
        size = body.least(body.wide(body["bytes"]), body.number(MOST_COMPARED))
        words = {
            Pending.ACTIVE: body.number(1),
            Pending.POINTER: b.ptrtoint(body["pointer"], I64),
            Pending.COMPARED: size,
            Pending.CELL: conflict,
            Pending.WRITERS: b.ptrtoint(body["writers"], I64),
            Pending.COUNT: rewritten,
            Pending.ADDRESS: body["address"],
        } | {word: body.wide(body[name]) for name, word in _NARROW.items()}
        for word, value in words.items():
            body.put(value, waiting, int(word))
        b.call(self.copy, [body.at(waiting, Pending.OLD), body["pointer"], size, body.false])


def _settle(module: Any, faults: FaultTable) -> Any:
    """void access_settle(context): judge the pending write, if there is one."""
    body = Body(module, "access_settle", VOID, {"context": PTR}, attributes=("noinline", "cold"))
    b = body.b
    waiting = body.word(body["context"], Sanitizer.PENDING, PTR)
    with body.when(body.equal(body.word(waiting, Pending.ACTIVE), 0)):
        b.ret_void()
    body.put(body.number(0), waiting, int(Pending.ACTIVE))
    pointer = body.word(waiting, Pending.POINTER, PTR)
    names = {"address": Pending.ADDRESS, "cell": Pending.CELL}
    body.arguments |= {name: body.word(waiting, word) for name, word in names.items()}
    body.arguments |= {name: b.trunc(body.word(waiting, word), I32) for name, word in _NARROW.items()}
    with body.each(body.word(waiting, Pending.COMPARED)) as index:
        old = body.word(body.at(waiting, Pending.OLD), index, I8)
        with body.when(b.icmp_unsigned("!=", old, body.word(pointer, index, I8))):
            faults.write(body, Fault.RACE, body["space"], body["cell"])
            b.ret_void()
    _name_warps(body, waiting)
    b.ret_void()
    return body.function


def _name_warps(body: Body, waiting: Value) -> None:
    """Several threads wrote one value: the cells name their warp, or SEVERAL."""
    b = body.b
    writers = body.word(waiting, Pending.WRITERS, PTR)
    before = field(body, body["cell"], cells.THREAD_SHIFT, cells.THREAD_BITS)
    before_warp = b.select(
        b.icmp_unsigned("<", before, body.number(cells.MOST_THREADS)),
        b.add(b.lshr(before, body.number(5)), body.number(cells.WARP_WRITERS)),
        before,
    )
    with body.each(body.word(waiting, Pending.COUNT)) as index:
        cell = body.word(writers, index)
        now = field(body, cell, cells.THREAD_SHIFT, cells.THREAD_BITS)
        warp = b.add(b.lshr(now, body.number(5)), body.number(cells.WARP_WRITERS))
        same_block = body.equal(b.lshr(b.xor(cell, body["cell"]), body.number(cells.SERIAL_SHIFT)), 0)
        same_warp = b.and_(same_block, b.icmp_unsigned("==", warp, before_warp))
        tag = b.shl(b.select(same_warp, warp, body.number(cells.SEVERAL)), body.number(cells.THREAD_SHIFT))
        rest = b.and_(cell, body.number(~(((1 << cells.THREAD_BITS) - 1) << cells.THREAD_SHIFT)))
        body.put(b.or_(rest, tag), writers, index)
