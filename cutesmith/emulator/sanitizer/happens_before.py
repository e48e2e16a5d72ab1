"""Happens-before, natively: may another access and this one have run in either order?

Three mechanisms, from common to rare, all kept by sanitizer/clocks.py:
- *bases*: a barrier of a block, warp or cluster orders everything before a time of it;
- *knowledge*: named barriers over a part of a block, mbarriers: which time of every thread of the cluster a
  thread has learnt of (a vector clock);
- *releases*: a strong store or atomic after a fence, or with `.release`, and a strong read after it, order what the
  releasing thread (within a block) or block (beyond it) did before. Taken generously: any strong read acquires, and
  from every thread that has released.
Two strong accesses (atomic, volatile, relaxed and stronger) never race. What an engine did is ordered only by knowledge
of its channel (actors.py); what it asks of the order is judged in a context of its own (Sanitizer.THREADS_VIEW).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutesmith.emulator.native.building import I1, I8, I32, I64, PTR, VOID, Body, Value
from cutesmith.emulator.program.abi import WARP, Context
from cutesmith.emulator.sanitizer import cells as cells
from cutesmith.emulator.sanitizer.layout import Sanitizer, Site

ORDERED, RACE, UNDER_WAY = 0, 1, 2


class Who:
    """The lane that accesses, as values of the emitted code: its place, its time and what is ordered before it."""

    def __init__(self, body: Body) -> None:
        b, context, lane = body.b, body["context"], body.wide(body["lane"])
        self.lane = lane
        self.block = body.wide(body.word(body.word(context, Context.BLOCK_OF_LANE, PTR), lane, I32))
        self.first = body.wide(body.word(body.word(context, Context.CLUSTER_OF_LANE, PTR), lane, I32))
        self.threads = body.word(context, Sanitizer.THREADS)
        self.thread = b.sub(lane, b.mul(self.block, self.threads))
        self.first_serial = b.add(body.word(context, Sanitizer.FIRST_SERIAL), self.first)
        self.serial = b.add(self.first_serial, b.sub(self.block, self.first))
        self.time = body.word(body.word(context, Sanitizer.TIME, PTR), self.first)
        self.base = body.word(body.word(context, Sanitizer.BLOCK_BASE, PTR), self.block)

    def cell(self, body: Body) -> Value:
        """This access."""
        b = body.b
        own = b.or_(*(b.shl(value, body.number(shift)) for value, shift in
                      ((self.thread, cells.THREAD_SHIFT), (self.time, cells.TIME_SHIFT))))  # fmt: skip
        of_engine = body.word(body["context"], Sanitizer.ENGINE_CELL)
        own = b.select(body.equal(of_engine, 0), own, of_engine)
        return b.or_(b.or_(own_site(body), b.shl(self.serial, body.number(cells.SERIAL_SHIFT))), own)


def is_engine(body: Body) -> Value:
    """Whether the access is one that an engine makes."""
    return body.set(body.word(body["context"], Sanitizer.THREADS_VIEW, PTR))


def field(body: Body, cell: Value, shift: int, bits: int) -> Value:
    """A part of a cell."""
    return body.b.and_(body.b.lshr(cell, body.number(shift)), body.number((1 << bits) - 1))


def own_site(body: Body) -> Value:
    """The number by which cells and flags know the instruction of this access: those after MAX_SITE share it."""
    return body.wide(body.least(body["site"], body.number(cells.MAX_SITE, I32)))


def site_has(body: Body, site: Value, flags: Site) -> Value:
    """Whether an instruction, by the number that cells have, has one of these flags."""
    known = body.word(body.word(body["context"], Sanitizer.SITES, PTR), site, I8)
    return body.b.icmp_unsigned("!=", body.b.and_(known, body.number(flags, I8)), body.number(0, I8))


class HappensBefore:
    """`access_unordered`: ORDERED, RACE or UNDER_WAY for this access and an earlier one; `access_synchronise`."""

    def __init__(self, module: Any) -> None:
        self._any_known = _any_known(module)
        self.unordered = self._unordered(module)
        self.synchronise = _synchronise(module)

    def _unordered(self, module: Any) -> Any:
        """i32 (context, lane, site, cell, reading warps or null, whether the cell is a writer's)."""
        parameters = {"context": PTR, "lane": I32, "site": I32, "cell": I64, "warps": PTR, "writer": I32}
        body = Body(module, "access_unordered", I32, parameters, attributes=("noinline",))
        b = body.b
        other = field(body, body["cell"], cells.THREAD_SHIFT, cells.THREAD_BITS)
        time = field(body, body["cell"], cells.TIME_SHIFT, cells.TIME_BITS)
        serial = field(body, body["cell"], cells.SERIAL_SHIFT, cells.SERIAL_BITS)
        with body.when(body.equal(other, cells.PENDING)):
            b.ret(body.number(UNDER_WAY, I32))
        who = Who(body)
        ordered = _returner(body, ORDERED)
        ordered(body.equal(who.time, cells.MAX_TIME))
        other_site = field(body, body["cell"], 0, cells.SITE_BITS)
        ordered(b.and_(*(site_has(body, site, Site.STRONG) for site in (own_site(body), other_site))))
        with body.when(b.icmp_signed("<", body["cell"], body.number(0))):
            self._of_engine(body, who, serial, other, time)
        with body.when(body.equal(other, cells.EVERYWHERE)):
            with body.when(b.icmp_unsigned("==", serial, who.first_serial)):
                ordered(b.icmp_unsigned("<", time, _cluster_base(body, who)))
                ordered(body.set(_knowledge(body, who)))
            acquired = body.word(body.word(body["context"], Sanitizer.BLOCK_ACQUIRED, PTR), who.serial, I32)
            ordered(b.icmp_unsigned("!=", acquired, body.number(0, I32)))
            b.ret(body.number(RACE, I32))
        with body.when(b.icmp_unsigned("==", serial, who.serial)):
            self._same_block(body, who, other, time)
        with body.when(b.icmp_unsigned("<", b.sub(serial, who.first_serial), _cluster_blocks(body))):
            ordered(b.icmp_unsigned("<", time, _cluster_base(body, who)))
            with body.when(b.icmp_unsigned(">=", other, body.number(cells.MOST_THREADS))):
                ordered(body.set(_knowledge(body, who)))
            with body.when(b.icmp_unsigned("<", other, body.number(cells.MOST_THREADS))):
                column = b.add(b.mul(b.sub(serial, who.first_serial), who.threads), other)
                ordered(self._knows(body, who, column, 1, time))
        acquired = body.word(body.word(body["context"], Sanitizer.BLOCK_ACQUIRED, PTR), who.serial, I32)
        ordered(_released(body, Sanitizer.BLOCK_RELEASED, serial, acquired, time))
        b.ret(body.number(RACE, I32))
        return body.function

    def _of_engine(self, body: Body, who: Who, serial: Value, channel: Value, time: Value) -> None:
        """What an engine did: no barrier orders it for those who have not learnt of it."""
        b, ordered = body.b, _returner(body, ORDERED)
        with body.when(b.icmp_unsigned("<", b.sub(serial, who.first_serial), _cluster_blocks(body))):
            lanes = b.mul(_cluster_blocks(body), who.threads)
            inexact = body.equal(body.word(body["context"], Sanitizer.KNOWLEDGE_WIDTH), 0)
            ordered(b.and_(inexact, b.icmp_unsigned("<", time, who.base)))
            ordered(self._knows(body, who, b.add(lanes, channel), 1, time))
        acquired = body.word(body.word(body["context"], Sanitizer.BLOCK_ACQUIRED, PTR), who.serial, I32)
        ordered(_released(body, Sanitizer.BLOCK_RELEASED, serial, acquired, time))
        b.ret(body.number(RACE, I32))

    def _same_block(self, body: Body, who: Who, other: Value, time: Value) -> None:
        b = body.b
        ordered = _returner(body, ORDERED)
        by_thread = b.not_(is_engine(body))  # an engine comes after nothing but what was fenced
        ordered(b.and_(by_thread, b.icmp_unsigned("==", other, who.thread)))
        ordered(b.icmp_unsigned("<", time, who.base))
        within_warp = b.icmp_unsigned("<", time, _warp_base(body, who))
        warp = b.lshr(who.thread, body.number(5))
        block_column = b.mul(b.sub(who.block, who.first), who.threads)
        with body.when(body.equal(other, cells.SEVERAL)):
            self._several(body, who, time, within_warp, warp, block_column)
        with body.when(b.icmp_unsigned(">=", other, body.number(cells.WARP_WRITERS))):
            writers = b.sub(other, body.number(cells.WARP_WRITERS))
            ordered(b.and_(by_thread, b.icmp_unsigned("==", writers, warp)))
            ordered(self._knows(body, who, b.add(block_column, b.mul(writers, body.number(WARP))), WARP, time))
            b.ret(body.number(RACE, I32))
        ordered(b.and_(b.icmp_unsigned("==", b.lshr(other, body.number(5)), warp), within_warp))
        acquired = body.word(body.word(body["context"], Sanitizer.LANE_ACQUIRED, PTR), who.lane, I32)
        lane = body.b.add(body.b.mul(who.block, who.threads), other)
        ordered(_released(body, Sanitizer.LANE_RELEASED, lane, acquired, time))
        ordered(self._knows(body, who, b.add(block_column, other), 1, time))
        b.ret(body.number(RACE, I32))

    def _several(self, body: Body, who: Who, time: Value, within_warp: Value, warp: Value, block_column: Value) -> None:
        """Many wrote one value, which is not a race; or many read: each reading warp must be ordered before.

        Of a warp one thread is enough: which of its threads read is not known.
        """
        b = body.b
        ordered = _returner(body, ORDERED)
        ordered(b.icmp_unsigned("!=", body["writer"], body.number(0, I32)))
        acquired = body.word(body.word(body["context"], Sanitizer.LANE_ACQUIRED, PTR), who.lane, I32)
        ordered(b.icmp_unsigned("!=", acquired, body.number(0, I32)))
        with body.when(b.not_(body.set(body["warps"]))):
            ordered(b.icmp_unsigned(">", _warp_base(body, who), who.base))
            ordered(body.set(_knowledge(body, who)))
            b.ret(body.number(RACE, I32))
        mask = body.wide(b.load(body["warps"], typ=I32))
        mine = b.shl(body.number(1), warp)
        with body.when(b.icmp_unsigned("==", mask, mine)):
            ordered(within_warp)
            ordered(self._knows(body, who, b.add(block_column, b.shl(warp, body.number(5))), WARP, time))
            b.ret(body.number(RACE, I32))
        with body.each(body.number(WARP)) as reader:
            asked = b.and_(b.and_(mask, b.not_(mine)), b.shl(body.number(1), reader))
            with body.when(b.icmp_unsigned("!=", asked, body.number(0))):
                column = b.add(block_column, b.shl(reader, body.number(5)))
                known = self._knows(body, who, column, WARP, time)
                with body.when(b.not_(known)):
                    b.ret(body.number(RACE, I32))
        b.ret(body.number(ORDERED, I32))

    def _knows(self, body: Body, who: Who, column: Value, count: int, time: Value) -> Value:
        """Whether the lane has learnt of `time` of one of `count` threads from `column` of its cluster on."""
        width = body.word(body["context"], Sanitizer.KNOWLEDGE_WIDTH)
        row = body.b.sub(who.lane, body.b.mul(who.first, who.threads))
        given = [_knowledge(body, who), width, row, column, body.number(count), time]
        return body.b.call(self._any_known, given)


def _any_known(module: Any) -> Any:
    parameters = {"knowledge": PTR, "width": I64, "row": I64, "column": I64, "count": I64, "time": I64}
    body = Body(module, "access_any_known", I1, parameters, attributes=("noinline",))
    b = body.b
    with body.when(b.not_(body.set(body["knowledge"]))):
        b.ret(body.false)
    start = b.mul(body["row"], body["width"])
    with body.each(body["count"]) as index:
        column = b.add(body["column"], index)
        with body.when(b.icmp_unsigned("<", column, body["width"])):
            known = body.wide(body.word(body["knowledge"], b.add(start, column), I32))
            with body.when(b.icmp_unsigned(">=", known, body["time"])):
                b.ret(body.true)
    b.ret(body.false)
    return body.function


def _returner(body: Body, result: int) -> Callable[[Value], None]:
    def give(condition: Value) -> None:
        with body.when(condition):
            body.b.ret(body.number(result, I32))

    return give


def _cluster_blocks(body: Body) -> Value:
    return body.word(body["context"], Context.CLUSTER_BLOCKS)


def _cluster_base(body: Body, who: Who) -> Value:
    return body.word(body.word(body["context"], Sanitizer.CLUSTER_BASE, PTR), who.block)


def _warp_base(body: Body, who: Who) -> Value:
    return body.word(body.word(body["context"], Sanitizer.WARP_BASE, PTR), who.lane)


def _knowledge(body: Body, who: Who) -> Value:
    return body.word(body.word(body["context"], Sanitizer.KNOWLEDGE, PTR), who.first, PTR)


def _released(body: Body, table: Sanitizer, index: Value, acquired: Value, time: Value) -> Value:
    """Whether what happened up to `time` was released, and the first release came before the last acquisition."""
    b = body.b
    entries = body.word(body["context"], table, PTR)
    at = b.shl(index, body.number(1))
    last = body.wide(body.word(entries, at, I32))
    first = body.word(entries, b.add(at, body.number(1)), I32)
    seen = b.and_(b.icmp_unsigned("!=", first, body.number(0, I32)), b.icmp_unsigned("<=", first, acquired))
    return b.and_(seen, b.icmp_unsigned("<=", time, last))


def _synchronise(module: Any) -> Any:
    """void (context, lane, site): what a strong access does to order, after it was checked."""
    parameters = {"context": PTR, "lane": I32, "site": I32}
    body = Body(module, "access_synchronise", VOID, parameters, attributes=("noinline",))
    b = body.b
    site, who = own_site(body), Who(body)
    sequence = body.word(body["context"], Sanitizer.SEQUENCE, PTR)
    with body.when(site_has(body, site, Site.READS)):
        now = b.trunc(b.load(sequence, typ=I64), I32)
        body.put(now, body.word(body["context"], Sanitizer.LANE_ACQUIRED, PTR), who.lane, I32)
        body.put(now, body.word(body["context"], Sanitizer.BLOCK_ACQUIRED, PTR), who.serial, I32)
    with body.when(site_has(body, site, Site.WRITES)):
        releases = site_has(body, site, Site.RELEASES)
        for released, fenced, index in (
            (Sanitizer.LANE_RELEASED, Sanitizer.LANE_FENCED, who.lane),
            (Sanitizer.BLOCK_RELEASED, Sanitizer.BLOCK_FENCED, who.serial),
        ):
            fence = body.word(body.word(body["context"], fenced, PTR), index, I32)
            time = b.select(releases, b.trunc(who.time, I32), fence)
            with body.when(b.icmp_unsigned("!=", time, body.number(0, I32))):
                entries, at = body.word(body["context"], released, PTR), b.shl(index, body.number(1))
                body.put(time, entries, at, I32)
                first = b.add(at, body.number(1))
                with body.when(body.equal(body.word(entries, first, I32), 0)):
                    following = b.add(b.load(sequence, typ=I64), body.number(1))
                    b.store(following, sequence)
                    body.put(b.trunc(following, I32), entries, first, I32)
        with body.when(releases):
            later = body.least(b.add(who.time, body.number(1)), body.number(cells.MAX_TIME))
            body.put(later, body.word(body["context"], Sanitizer.TIME, PTR), who.first)
    b.ret_void()
    return body.function
