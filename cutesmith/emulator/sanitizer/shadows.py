"""What an access does to the shadows: initialised bytes, last writers and readers, races (native code).

Cells are looked at four at a time. What is common is seen at once (never accessed; by this thread; before the block's
last barrier); the rest goes through `access_unordered`. A busy core of an AMD EPYC makes 25 (shared) to 60 (global)
million checked accesses of 16 bytes a second in native loops, and 170 million or more where only bounds are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from llvmlite import ir

from cutesmith.emulator.native.building import (
    I1,
    I8,
    I32,
    I64,
    PTR,
    VOID,
    Body,
    Value,
    all_hold,
    declare,
    is_not_zero,
    is_zero,
    load_vector,
    splat,
    store_vector,
)
from cutesmith.emulator.program.abi import Access, Context, Space
from cutesmith.emulator.sanitizer import cells as cells
from cutesmith.emulator.sanitizer.chunk_checks import GLOBAL_CELLS, SHARED_CELLS, ChunkedCells, chunk_check
from cutesmith.emulator.sanitizer.fault_table import FaultTable
from cutesmith.emulator.sanitizer.happens_before import (
    ORDERED,
    RACE,
    UNDER_WAY,
    HappensBefore,
    Who,
    field,
    is_engine,
    own_site,
    site_has,
)
from cutesmith.emulator.sanitizer.layout import Allocation, Fault, Pending, Sanitizer, Site
from cutesmith.emulator.sanitizer.pending_writes import PendingWrites

_CHECK = {
    "context": PTR, "lane": I32, "space": I32, "address": I64, "bytes": I32, "kind": I32, "site": I32,
    "pointer": PTR, "writers": PTR, "readers": PTR, "warps": PTR, "count": I64,
}  # fmt: skip
_WIDTH = 4  # cells of 64 bits in a vector register


class _Found:
    """Variables of a function: what is wrong with an access. `conflict`, `under_way`, `unfenced`: cells, or 0.

    `ordered`: the cell of a writer and of a reader last found to be ordered before, as neighbours are often equal.
    """

    def __init__(self, body: Body) -> None:
        self.any, self.uninitialised = body.local(I1), body.local(I1)
        self.conflict, self.under_way, self.unfenced, self.rewritten = (body.local(I64) for _ in range(4))
        self.ordered = {True: body.local(I64), False: body.local(I64)}
        for variable in (self.any, self.uninitialised):
            body.b.store(body.false, variable)
        for variable in (self.conflict, self.under_way, self.unfenced, self.rewritten, *self.ordered.values()):
            body.b.store(body.number(0), variable)

    def note(self, body: Body, variable: Value, value: Value) -> None:
        """Set one of them."""
        body.b.store(value, variable)
        body.b.store(body.true, self.any)


class Shadows:
    """Emits the checks that `access` calls once the address is known to be sound."""

    def __init__(self, module: Any, faults: FaultTable) -> None:
        self._faults = faults
        self._orders = HappensBefore(module)
        self._pending = PendingWrites(module, faults)
        self.copy = self._pending.copy
        self._set = declare(module, "llvm.memset.p0.i64", PTR, I8, I64, I1)
        self._initialised = self._initialised_function(module)
        self._note_reader = self._note_reader_function(module)
        self._check = self._check_function(module)
        self._check_chunks = {cells.space: self._chunk_check(module, cells) for cells in (SHARED_CELLS, GLOBAL_CELLS)}

    # ------------------------------------------------------------------------------------------ called by `access`

    def check_shared(self, body: Body, position: Value, pointer: Value) -> None:
        """An access to byte `position` of the wave's shared memory."""
        self._call_chunk_check(body, Space.SHARED, body["context"], position, pointer)

    def check_global(self, body: Body, entry: Value, pointer: Value) -> None:
        """An access inside the allocation of a table entry."""
        b = body.b
        offset = b.sub(body["address"], body.word(entry, Allocation.START))
        initialised = body.word(entry, Allocation.INITIALISED, PTR)
        with body.when(body.set(initialised)):
            self.check_initialised(body, body.at(initialised, offset, I8), Space.GLOBAL)
        with body.when(body.set(body.word(entry, Allocation.WRITERS, PTR))):
            self._call_chunk_check(body, Space.GLOBAL, entry, offset, pointer)

    def _call_chunk_check(self, body: Body, space: Space, table: Value, position: Value, pointer: Value) -> None:
        given = [body[name] for name in ("context", "lane", "address", "bytes", "kind", "site")]
        body.b.call(self._check_chunks[space], [*given, table, position, pointer])

    def _chunk_check(self, module: Any, cells: ChunkedCells) -> Any:
        judge = partial(self._call, space=ir.Constant(I32, cells.space))
        return chunk_check(module, cells, judge, self._pending.settle)

    def check_initialised(self, body: Body, flags: Value, space: Space) -> None:
        """Memory with one flag a byte: a read of an unwritten byte is a fault, a write sets the flags."""
        given = body.arguments | {"space": body.number(space, I32), "flags": flags}
        body.b.call(self._initialised, [given[name] for name in _INITIALISED])

    def _call(self, body: Body, **given: Value) -> None:
        values = {"warps": body.null} | body.arguments | given
        body.b.call(self._check, [values[name] for name in _CHECK])

    # ----------------------------------------------------------------------------------------------- initialisation

    def _initialised_function(self, module: Any) -> Any:
        body = Body(module, "access_initialised", VOID, _INITIALISED, attributes=("noinline",))
        b = body.b
        size = body.wide(body["bytes"])
        reads = b.icmp_unsigned("!=", body["kind"], body.number(Access.WRITE, I32))
        with body.when(reads), body.each(size) as index:
            missing = body.equal(body.word(body["flags"], index, I8), 0)
            with body.when(missing, likely=False):
                self._faults.write(body, Fault.UNINITIALISED_READ, body["space"], body.number(0))
                b.ret_void()
        with body.when(b.icmp_unsigned("!=", body["kind"], body.number(Access.READ, I32))):
            b.call(self._set, [body["flags"], body.number(1, I8), size, body.false])
        b.ret_void()
        return body.function

    # -------------------------------------------------------------------------------------------------------- races

    def _check_function(self, module: Any) -> Any:
        body = Body(module, "access_check", VOID, _CHECK, attributes=("noinline",))
        b = body.b
        waiting = body.word(body["context"], Sanitizer.PENDING, PTR)
        with body.when(b.icmp_unsigned("!=", body.word(waiting, Pending.ACTIVE), body.number(0)), likely=False):
            b.call(self._pending.settle, [body["context"]])
        who = Who(body)
        own = who.cell(body)
        found = _Found(body)
        reads = body.equal(body["kind"], Access.READ)
        with b.if_else(reads) as (read, write):
            with read:
                for index, width in _vectors(body):
                    self._read_cells(body, who, own, found, index, width)
            with write:
                for index, width in _vectors(body):
                    self._write_cells(body, who, own, found, index, width)
        with body.when(b.load(found.any, typ=I1), likely=False):
            self._write_faults(body, found, reads)
        with body.when(site_has(body, own_site(body), Site.READS | Site.WRITES), likely=False):
            b.call(self._orders.synchronise, [body["context"], body["lane"], body["site"]])
        b.ret_void()
        return body.function

    def _write_faults(self, body: Body, found: _Found, reads: Value) -> None:
        """One fault of each kind an access."""
        b = body.b
        with body.when(b.load(found.uninitialised, typ=I1)):
            self._faults.write(body, Fault.UNINITIALISED_READ, body["space"], body.number(0))
        cell = b.load(found.under_way, typ=I64)
        with body.when(b.icmp_unsigned("!=", cell, body.number(0))):
            self._faults.write(body, Fault.MISSING_WAIT, body["space"], cell)
        cell = b.load(found.unfenced, typ=I64)
        with body.when(b.icmp_unsigned("!=", cell, body.number(0))):
            self._faults.write(body, Fault.MISSING_FENCE, body["space"], cell)
        cell = b.load(found.conflict, typ=I64)
        with body.when(b.icmp_unsigned("!=", cell, body.number(0))):
            # an atomic is at fault at once too: batches of pointers to update are written to later than checked
            at_once = body.any_of(reads, body.equal(body["kind"], Access.ATOMIC), is_engine(body))
            with body.b.if_else(at_once) as (fault, write):
                with fault:
                    self._faults.write(body, Fault.RACE, body["space"], cell)
                with write:
                    self._pending.keep(body, cell, body.b.load(found.rewritten, typ=I64))

    def _read_cells(self, body: Body, who: Who, own: Value, found: _Found, index: Value, width: int) -> None:
        b = body.b
        writers = load_vector(body, body["writers"], index, width)
        with body.when(b.not_(all_hold(body, _settled(body, who, own, writers))), likely=False):
            self._judge_each(body, writers, index, width, found, True)
        shared = body.equal(body["space"], Space.SHARED)
        with body.when(b.and_(shared, b.not_(all_hold(body, is_not_zero(body, writers)))), likely=False):
            found.note(body, found.uninitialised, body.true)
        with body.when(body.set(body["readers"])):
            readers = load_vector(body, body["readers"], index, width)
            settled = all_hold(body, _settled(body, who, own, readers))
            with b.if_else(b.or_(settled, is_engine(body))) as (mine, others):  # an engine is the reader to remember
                with mine:
                    store_vector(body, body["readers"], index, splat(body, own, width))
                with others:
                    self._add_reader(body, who, own, readers, index, width)

    def _add_reader(self, body: Body, who: Who, own: Value, readers: Value, index: Value, width: int) -> None:
        """Where all cells say already that many read them, nothing is left to do."""
        b = body.b
        who_read = b.lshr(readers, splat(body, body.number(cells.THREAD_SHIFT), width))
        everywhere = b.icmp_unsigned("==", who_read, splat(body, body.number(cells.EVERYWHERE), width))
        several = b.or_(b.shl(who.serial, body.number(cells.THREAD_BITS)), body.number(cells.SEVERAL))
        in_block = b.icmp_unsigned("==", who_read, splat(body, several, width))
        noted = b.and_(in_block, self._has_warp(body, who, index, width))
        with body.when(b.not_(all_hold(body, b.or_(everywhere, noted)))):
            self._each(
                body, readers, index, width,
                lambda cell, at: b.call(
                    self._note_reader,
                    [body["context"], body["lane"], body["site"], cell, own, body.at(body["readers"], at),
                     self._warps_at(body, at)],
                ),
            )  # fmt: skip

    def _has_warp(self, body: Body, who: Who, index: Value, width: int) -> Value:
        """Whether the masks have the lane's warp, where there are masks."""
        b = body.b
        result = body.local(ir.VectorType(I1, width))
        b.store(ir.Constant(ir.VectorType(I1, width), [1] * width), result)
        with body.when(body.set(body["warps"])):
            bit = b.shl(body.number(1, I32), b.trunc(b.lshr(who.thread, body.number(5)), I32))
            masks = load_vector(body, body["warps"], index, width, I32)
            hit = b.and_(masks, splat(body, bit, width))
            b.store(b.icmp_unsigned("!=", hit, splat(body, body.number(0, I32), width)), result)
        return b.load(result, typ=ir.VectorType(I1, width))

    def _warps_at(self, body: Body, at: Value) -> Value:
        return body.b.select(body.set(body["warps"]), body.at(body["warps"], at, I32), body.null)

    def _write_cells(self, body: Body, who: Who, own: Value, found: _Found, index: Value, width: int) -> None:
        b = body.b
        writers = load_vector(body, body["writers"], index, width)
        with body.when(b.not_(all_hold(body, _settled(body, who, own, writers))), likely=False):
            self._judge_each(body, writers, index, width, found, True)
        atomic = b.and_(body.equal(body["space"], Space.SHARED), body.equal(body["kind"], Access.ATOMIC))
        with body.when(b.and_(atomic, b.not_(all_hold(body, is_not_zero(body, writers)))), likely=False):
            found.note(body, found.uninitialised, body.true)
        with body.when(body.set(body["readers"])):
            readers = load_vector(body, body["readers"], index, width)
            with body.when(b.not_(all_hold(body, is_zero(body, readers)))):
                with body.when(b.not_(all_hold(body, _settled(body, who, own, readers))), likely=False):
                    self._judge_each(body, readers, index, width, found, False)
                store_vector(body, body["readers"], index, splat(body, body.number(0), width))
        store_vector(body, body["writers"], index, splat(body, own, width))

    def _each(self, body: Body, vector: Value, index: Value, width: int, act: Callable[[Value, Value], None]) -> None:
        """One cell after another, through memory, so that the code is there once."""
        b = body.b
        kept = body.local(ir.VectorType(I64, width))
        b.store(vector, kept)
        with body.each(body.number(width)) as part:
            act(body.word(kept, part), b.add(index, part))

    def _judge_each(self, body: Body, vector: Value, index: Value, width: int, found: _Found, writer: bool) -> None:
        """Judge cells, unless all are equal to the one that was judged last."""
        last = splat(body, body.b.load(found.ordered[writer], typ=I64), width)
        with body.when(body.b.not_(all_hold(body, body.b.icmp_unsigned("==", vector, last)))):
            self._each(body, vector, index, width, lambda cell, at: self._judge(body, cell, at, found, writer))

    def _judge(self, body: Body, cell: Value, at: Value, found: _Found, writer: bool) -> None:
        """Note what is wrong with one cell, and how many cells are rewritten in conflict with another write."""
        b = body.b
        result_at = body.local(I32)
        b.store(body.number(ORDERED, I32), result_at)  # for a cell that was never accessed
        again = b.icmp_unsigned("==", cell, b.load(found.ordered[writer], typ=I64))
        with body.when(b.not_(body.any_of(body.equal(cell, 0), again))):
            warps = body.null if writer else self._warps_at(body, at)
            view = self._view(body, cell, writer)
            arguments = [body["lane"], body["site"], cell, warps, body.number(int(writer), I32)]
            b.store(b.call(self._orders.unordered, [view, *arguments]), result_at)
            several = body.equal(field(body, cell, cells.THREAD_SHIFT, cells.THREAD_BITS), cells.SEVERAL)
            with body.when(b.and_(body.equal(b.load(result_at, typ=I32), ORDERED), b.not_(several))):
                b.store(cell, found.ordered[writer])
            if writer:
                self._judge_fence(body, arguments, result_at, found)
        result = b.load(result_at, typ=I32)
        with body.when(body.equal(result, UNDER_WAY)):
            found.note(body, found.under_way, cell)
        with body.when(body.equal(result, RACE)):
            found.note(body, found.conflict, cell)
            if writer:
                b.store(body["count"], found.rewritten)

    def _view(self, body: Body, cell: Value, writer: bool) -> Value:
        """The context whose order decides: of what threads wrote an engine sees what was fenced."""
        threads = body.word(body["context"], Sanitizer.THREADS_VIEW, PTR)
        by_engine = body.b.icmp_signed("<", cell, body.number(0)) if writer else ir.Constant(I1, 1)
        return body.b.select(body.b.and_(body.set(threads), by_engine), threads, body["context"])

    def _judge_fence(self, body: Body, arguments: list[Value], result_at: Value, found: _Found) -> None:
        """An engine's access that threads would have ordered lacks only the fence between the two proxies."""
        b = body.b
        with body.when(b.and_(is_engine(body), body.equal(b.load(result_at, typ=I32), RACE)), likely=False):
            threads = body.word(body["context"], Sanitizer.THREADS_VIEW, PTR)
            with body.when(body.equal(b.call(self._orders.unordered, [threads, *arguments]), ORDERED)):
                found.note(body, found.unfenced, arguments[2])
                b.store(body.number(ORDERED, I32), result_at)

    def _note_reader_function(self, module: Any) -> Any:
        """A cell that another thread has read: replaced if that came before, else it says that several read."""
        parameters = {
            "context": PTR, "lane": I32, "site": I32, "cell": I64, "own": I64, "at": PTR, "warps": PTR,
        }  # fmt: skip
        body = Body(module, "access_note_reader", VOID, parameters, attributes=("noinline",))
        b = body.b
        with body.when(body.equal(body["cell"], 0)):
            b.store(body["own"], body["at"])
            b.ret_void()
        arguments = [body[name] for name in ("context", "lane", "site", "cell", "warps")]
        unordered = b.call(self._orders.unordered, [*arguments, body.number(0, I32)])
        who = Who(body)
        other = field(body, body["cell"], cells.THREAD_SHIFT, cells.THREAD_BITS)
        merged = body.any_of(body.equal(other, cells.SEVERAL), body.equal(other, cells.EVERYWHERE))
        # Strong reads are ORDERED with anything strong but must not replace readers: a merged cell stays merged.
        both_strong = b.and_(merged, site_has(body, own_site(body), Site.STRONG))
        with body.when(b.and_(body.equal(unordered, ORDERED), b.not_(both_strong))):
            b.store(body["own"], body["at"])
            b.ret_void()
        with body.when(b.icmp_signed("<", body["cell"], body.number(0))):
            b.ret_void()  # an engine that may still be reading is the reader to remember
        serial = field(body, body["cell"], cells.SERIAL_SHIFT, cells.SERIAL_BITS)
        same_block = b.icmp_unsigned("==", serial, who.serial)
        with body.when(b.and_(same_block, b.icmp_unsigned("!=", other, body.number(cells.EVERYWHERE)))):
            self._note_in_block(body, who, other)
        self._note_elsewhere(body, who, serial)
        return body.function

    def _note_in_block(self, body: Body, who: Who, other: Value) -> None:
        b = body.b
        bit = b.shl(body.number(1, I32), b.trunc(b.lshr(who.thread, body.number(5)), I32))
        with b.if_else(body.equal(other, cells.SEVERAL)) as (more, second):
            with more, body.when(body.set(body["warps"])):
                b.store(b.or_(b.load(body["warps"], typ=I32), bit), body["warps"])
            with second:
                keep = body.number(~(((1 << cells.THREAD_BITS) - 1) << cells.THREAD_SHIFT))
                several = body.number(cells.SEVERAL << cells.THREAD_SHIFT)
                b.store(b.or_(b.and_(body["cell"], keep), several), body["at"])
                with body.when(body.set(body["warps"])):
                    first = b.shl(body.number(1, I32), b.trunc(b.lshr(other, body.number(5)), I32))
                    b.store(b.or_(first, bit), body["warps"])
        b.ret_void()

    def _note_elsewhere(self, body: Body, who: Who, serial: Value) -> None:
        """Read in several blocks: of this cluster, or of any."""
        b = body.b
        blocks = body.word(body["context"], Context.CLUSTER_BLOCKS)
        inside = b.icmp_unsigned("<", b.sub(serial, who.first_serial), blocks)
        named = b.select(inside, who.first_serial, body.number(0))
        rest = b.and_(body["own"], body.number((1 << cells.THREAD_SHIFT) - 1))
        tag = b.or_(b.shl(named, body.number(cells.SERIAL_SHIFT)), body.number(cells.EVERYWHERE << cells.THREAD_SHIFT))
        b.store(b.or_(tag, rest), body["at"])
        b.ret_void()


_INITIALISED = {
    "context": PTR, "lane": I32, "space": I32, "address": I64, "bytes": I32, "kind": I32, "site": I32, "flags": PTR,
}  # fmt: skip


def _vectors(body: Body) -> Iterator[tuple[Value, int]]:
    """Loops over the cells of an access: first as vectors, then single cells; gives the index and the width."""
    whole = body.b.and_(body["count"], body.number(-_WIDTH))
    with body.each(whole, _WIDTH) as index:
        yield index, _WIDTH
    with body.each(body.b.sub(body["count"], whole)) as index:
        yield body.b.add(whole, index), 1


def _settled(body: Body, who: Who, own: Value, vector: Value) -> Value:
    """Cells that need no second look: never accessed, by this thread, or before the block's last barrier."""
    b, width = body.b, vector.type.count

    def constant(value: int) -> Value:
        return splat(body, body.number(value), width)

    apart = b.xor(vector, splat(body, own, width))
    same_thread = b.icmp_unsigned("<", apart, constant(1 << cells.THREAD_SHIFT))
    same_block = b.icmp_unsigned("<", apart, constant(1 << cells.SERIAL_SHIFT))
    time = b.and_(b.lshr(vector, constant(cells.TIME_SHIFT)), constant(cells.MAX_TIME))
    earlier = b.icmp_unsigned("<", time, splat(body, who.base, width))
    by_thread = splat(body, b.not_(is_engine(body)), width)
    return body.any_of(is_zero(body, vector), b.and_(by_thread, same_thread), b.and_(same_block, earlier))
