"""`access`: every address that a kernel uses becomes a host address here, or a fault that is written down.

Bounds and alignment are always checked; initialisation and races where the memory has shadows (access_shadows.py).
"""

from __future__ import annotations

from functools import cache

from llvmlite import ir

from cutesmith.emulator.native.building import I8, I32, I64, PTR, VOID, Body, Value, new_module
from cutesmith.emulator.program.abi import (
    ACCESS_FUNCTION,
    LOCAL_WINDOW,
    PARAMETER_WINDOW,
    SHARED_BASE,
    SHARED_RANK_SHIFT,
    SHARED_WINDOW,
    WINDOW_BYTES,
    Access,
    Context,
    Space,
)
from cutesmith.emulator.sanitizer.fault_table import FaultTable
from cutesmith.emulator.sanitizer.happens_before import is_engine
from cutesmith.emulator.sanitizer.layout import ALLOCATION_WORDS, CACHED_SITES, Allocation, Fault, Sanitizer
from cutesmith.emulator.sanitizer.shadows import Shadows

_PARAMETERS = {"context": PTR, "lane": I32, "address": I64, "bytes": I32, "kind": I32, "site": I32}
_WITH_SPACE = {"context": PTR, "lane": I32, "space": I32, "address": I64, "bytes": I32, "kind": I32, "site": I32}


@cache
def access_ir() -> str:
    """LLVM IR that defines `access` (abi.ACCESS_FUNCTION) and what it needs; nothing in it is host-specific."""
    module = new_module("access")
    faults = FaultTable(module)
    shadows = Shadows(module, faults)
    spaces = {
        Space.GLOBAL: _Global(module, faults, shadows).function,
        Space.SHARED: _shared(module, faults, shadows),
        Space.LOCAL: _local(module, faults, shadows),
        Space.PARAM: _parameter(module, faults),
    }
    access = _dispatch(module, spaces)
    _many_lanes(module, access, shadows.copy)
    _requests(module, access)
    _copy_rows(module, shadows.copy)
    return str(module)


def _dispatch(module: ir.Module, spaces: dict[Space, ir.Function]) -> ir.Function:
    """`access` itself."""
    body = Body(module, ACCESS_FUNCTION, PTR, _WITH_SPACE)
    generic = _generic(module, spaces)
    targets = {**spaces, Space.CONST: spaces[Space.GLOBAL], Space.GENERIC: generic}
    arguments = [body[name] for name in _PARAMETERS]
    for space, function in targets.items():
        with body.when(body.b.icmp_unsigned("==", body["space"], body.number(space, I32))):
            body.b.ret(body.b.call(function, arguments))
    body.b.ret(body.null)
    return body.function


def _generic(module: ir.Module, spaces: dict[Space, ir.Function]) -> ir.Function:
    """Generic addresses: windows of shared, local and parameter memory, else global memory."""
    body = Body(module, "access_generic", PTR, _PARAMETERS, attributes=("noinline",))
    windows = {Space.SHARED: SHARED_WINDOW, Space.LOCAL: LOCAL_WINDOW, Space.PARAM: PARAMETER_WINDOW}
    for space, start in windows.items():
        offset = body.b.sub(body["address"], body.number(start))
        with body.when(body.b.icmp_unsigned("<", offset, body.number(WINDOW_BYTES))):
            body.b.ret(body.b.call(spaces[space], _arguments(body, address=offset)))
    body.b.ret(body.b.call(spaces[Space.GLOBAL], _arguments(body)))
    return body.function


def _arguments(body: Body, **replaced: Value) -> list[Value]:
    return [replaced.get(name, body[name]) for name in _PARAMETERS]


def _new(module: ir.Module, space: Space, faults: FaultTable) -> Body:
    """The function of a space, begun with the check of alignment."""
    body = Body(module, f"access_{space.name.lower()}", PTR, _PARAMETERS, attributes=("noinline",))

    def by_thread() -> Value:  # rows of an engine's tiles need no alignment to their size
        return body.b.not_(is_engine(body))

    size = body.wide(body["bytes"])
    lowest = body.b.and_(size, body.b.neg(size))
    misplaced = body.b.and_(body["address"], body.b.sub(lowest, body.number(1)))
    with body.when(body.b.icmp_unsigned("!=", misplaced, body.number(0)), likely=False), body.when(by_thread()):
        _refuse(body, faults, space, Fault.MISALIGNED)
    return body


def _refuse(body: Body, faults: FaultTable, space: Space, fault: Fault) -> None:
    faults.write(body, fault, body.number(space, I32), body.number(0))
    body.b.ret(body.null)


def _within(body: Body, offset: Value, low: Value, high: Value) -> Value:
    """Whether [offset, offset + bytes) lies in [low, high); all i64, and no sum wraps."""
    b = body.b
    size = body.wide(body["bytes"])
    room = b.sub(high, low)
    inside = b.sub(offset, low)  # wraps to a large number below `low`
    fits = b.icmp_unsigned("<=", size, room)
    return body.all_of(fits, b.icmp_unsigned("<=", inside, b.sub(room, size)))


def _shared(module: ir.Module, faults: FaultTable, shadows: Shadows) -> ir.Function:
    """The address names the block by its rank in the lane's cluster."""
    body = _new(module, Space.SHARED, faults)
    b = body.b
    size = body.word(body["context"], Context.SHARED_BYTES)
    offset = b.and_(body["address"], body.number((1 << SHARED_RANK_SHIFT) - 1))
    rank = b.lshr(body["address"], body.number(SHARED_RANK_SHIFT))
    known = b.icmp_unsigned("<", rank, body.word(body["context"], Context.CLUSTER_BLOCKS))
    sound = b.and_(known, _within(body, offset, body.number(SHARED_BASE), size))
    with body.when(b.not_(sound), likely=False):
        _refuse(body, faults, Space.SHARED, Fault.OUT_OF_BOUNDS)
    clusters = body.word(body["context"], Context.CLUSTER_OF_LANE, PTR)
    block = b.add(body.wide(body.word(clusters, body.wide(body["lane"]), I32)), rank)
    stride = body.word(body["context"], Context.SHARED_STRIDE)
    position = b.add(b.mul(block, stride), offset)
    pointer = body.at(body.word(body["context"], Context.SHARED, PTR), position, I8)
    writers = body.word(body["context"], Sanitizer.SHARED_WRITERS, PTR)
    judged = b.and_(body.set(writers), b.icmp_unsigned("!=", body["kind"], body.number(Access.MBARRIER, I32)))
    with body.when(judged):
        own = body.wide(body.word(body.word(body["context"], Context.BLOCK_OF_LANE, PTR), body.wide(body["lane"]), I32))
        elsewhere = b.and_(b.icmp_unsigned("!=", block, own), b.not_(is_engine(body)))
        with body.when(elsewhere, likely=False):
            visited = body.word(body["context"], Sanitizer.SHARED_VISITED, PTR)
            body.put(ir.Constant(I8, 1), visited, block, I8)
        shadows.check_shared(body, position, pointer)
    b.ret(pointer)
    return body.function


def _local(module: ir.Module, faults: FaultTable, shadows: Shadows) -> ir.Function:
    body = _new(module, Space.LOCAL, faults)
    b = body.b
    size = body.word(body["context"], Context.LOCAL_BYTES)
    with body.when(b.not_(_within(body, body["address"], body.number(0), size)), likely=False):
        _refuse(body, faults, Space.LOCAL, Fault.OUT_OF_BOUNDS)
    position = b.add(b.mul(body.wide(body["lane"]), size), body["address"])
    initialised = body.word(body["context"], Sanitizer.LOCAL_INITIALISED, PTR)
    with body.when(body.set(initialised)):
        shadows.check_initialised(body, body.at(initialised, position, I8), Space.LOCAL)
    b.ret(body.at(body.word(body["context"], Context.LOCAL, PTR), position, I8))
    return body.function


def _parameter(module: ir.Module, faults: FaultTable) -> ir.Function:
    """Addresses with the window (as a symbol gives them) or without; parameters are only read."""
    body = _new(module, Space.PARAM, faults)
    b = body.b
    windowed = b.icmp_unsigned(">=", body["address"], body.number(PARAMETER_WINDOW))
    offset = b.select(windowed, b.sub(body["address"], body.number(PARAMETER_WINDOW)), body["address"])
    size = body.word(body["context"], Sanitizer.PARAMETER_BYTES)
    reads = b.icmp_unsigned("==", body["kind"], body.number(0, I32))
    with body.when(b.not_(b.and_(reads, _within(body, offset, body.number(0), size))), likely=False):
        _refuse(body, faults, Space.PARAM, Fault.OUT_OF_BOUNDS)
    b.ret(body.at(body.word(body["context"], Context.PARAMETERS, PTR), offset, I8))
    return body.function


class _Global:
    """Global memory: the allocation is the one that the instruction hit last, or found by bisection."""

    def __init__(self, module: ir.Module, faults: FaultTable, shadows: Shadows) -> None:
        self._search = _search(module)
        body = _new(module, Space.GLOBAL, faults)
        b = body.b
        table = body.word(body["context"], Context.ALLOCATIONS, PTR)
        hits = body.word(body["context"], Sanitizer.LAST_ALLOCATIONS, PTR)
        hit = body.at(hits, body.wide(b.and_(body["site"], body.number(CACHED_SITES - 1, I32))))
        found = body.local(I64)
        b.store(b.load(hit, typ=I64), found)
        with body.when(b.not_(self._holds(body, table, b.load(found, typ=I64))), likely=False):
            count = body.word(body["context"], Context.ALLOCATION_COUNT)
            index = b.call(self._search, [table, count, body["address"]])
            with body.when(b.icmp_signed("<", index, body.number(0)), likely=False):
                _refuse(body, faults, Space.GLOBAL, Fault.OUT_OF_BOUNDS)
            with body.when(b.not_(self._holds(body, table, index)), likely=False):
                _refuse(body, faults, Space.GLOBAL, Fault.OUT_OF_BOUNDS)
            b.store(index, hit)
            b.store(index, found)
        entry = body.at(table, b.mul(b.load(found, typ=I64), body.number(ALLOCATION_WORDS)))
        pointer = b.inttoptr(b.add(body["address"], body.word(entry, Allocation.HOST_DELTA)), PTR)
        with body.when(b.icmp_unsigned("!=", body.word(entry, Allocation.SHADOWED), body.number(0))):
            shadows.check_global(body, entry, pointer)
        b.ret(pointer)
        self.function = body.function

    def _holds(self, body: Body, table: Value, index: Value) -> Value:
        """Whether the access lies in an allocation; entry 0 exists even in an empty table, and is empty then."""
        entry = body.at(table, body.b.mul(index, body.number(ALLOCATION_WORDS)))
        start, end = body.word(entry, Allocation.START), body.word(entry, Allocation.END)
        return _within(body, body["address"], start, end)


def _search(module: ir.Module) -> ir.Function:
    """i64: the last allocation that starts at or before an address, else -1."""
    body = Body(module, "access_search", I64, {"table": PTR, "count": I64, "address": I64}, attributes=("noinline",))
    b = body.b
    low, high = body.local(I64), body.local(I64)
    b.store(body.number(0), low)
    b.store(body["count"], high)
    with body.repeat_while(lambda: b.icmp_unsigned("<", b.load(low, typ=I64), b.load(high, typ=I64))):
        middle = b.lshr(b.add(b.load(low, typ=I64), b.load(high, typ=I64)), body.number(1))
        start = body.word(body["table"], b.mul(middle, body.number(ALLOCATION_WORDS)))
        with b.if_else(b.icmp_unsigned("<=", start, body["address"])) as (then, otherwise):
            with then:
                b.store(b.add(middle, body.number(1)), low)
            with otherwise:
                b.store(middle, high)
    b.ret(b.sub(b.load(low, typ=I64), body.number(1)))
    return body.function


# ------------------------------------------------------------------------------------------------------ many lanes

_MANY = {"context": PTR, "lanes": PTR, "addresses": PTR, "count": I64, "space": I32, "bytes": I32, "site": I32}


def _many_lanes(module: ir.Module, access: ir.Function, copy: ir.Function) -> None:
    """`access_load`, `access_store` and `access_pointers`: `access` for many lanes in order, and copies.

    `lanes` are int64, `addresses` uint64; `data` has `bytes` for each lane, and stays zero where a load was refused.
    """
    for name, kind in (("access_load", Access.READ), ("access_store", Access.WRITE), ("access_pointers", None)):
        last = {"data": PTR} if kind is not None else {"kind": I32, "pointers": PTR}
        body = Body(module, name, VOID, {**_MANY, **last})
        with body.each(body["count"]) as index:
            what = body.number(kind, I32) if kind is not None else body["kind"]
            lane = body.b.trunc(body.word(body["lanes"], index), I32)
            address = body.word(body["addresses"], index)
            given = {name: body.arguments.get(name) for name in _WITH_SPACE}
            given |= {"lane": lane, "address": address, "kind": what}
            pointer = body.b.call(access, list(given.values()))
            if kind is None:
                body.put(body.b.ptrtoint(pointer, I64), body["pointers"], index)
            else:
                size = body.wide(body["bytes"])
                data = body.at(body["data"], body.b.mul(index, size), I8)
                with body.when(body.set(pointer)):
                    target, source = (data, pointer) if kind is Access.READ else (pointer, data)
                    body.b.call(copy, [target, source, size, body.false])
        body.b.ret_void()


def _requests(module: ir.Module, access: ir.Function) -> None:
    """`access_requests`: as `access_pointers` for engines, with the number of bytes and the cell of each access."""
    arrays = {"lanes": PTR, "addresses": PTR, "cells": PTR, "sizes": PTR}
    parameters = {"context": PTR, **arrays, "count": I64, "space": I32, "site": I32, "kind": I32, "pointers": PTR}
    body = Body(module, "access_requests", VOID, parameters)
    b = body.b
    with body.each(body["count"]) as index:
        body.put(body.word(body["cells"], index), body["context"], int(Sanitizer.ENGINE_CELL))
        given = {name: body.arguments.get(name) for name in _WITH_SPACE}
        lane, size = (b.trunc(body.word(body[name], index), I32) for name in ("lanes", "sizes"))
        given |= {"lane": lane, "bytes": size, "address": body.word(body["addresses"], index)}
        body.put(b.ptrtoint(b.call(access, list(given.values())), I64), body["pointers"], index)
    b.ret_void()


def _copy_rows(module: ir.Module, copy: ir.Function) -> None:
    """`access_copy_rows`: bytes between host addresses, as `access_pointers` gives them, and rows of `data`.

    `gather`: 1 from the addresses to `data`, 0 the other way. Rows whose address is 0 are left out.
    """
    parameters = {"pointers": PTR, "data": PTR, "count": I64, "bytes": I64, "gather": I32}
    body = Body(module, "access_copy_rows", VOID, parameters)
    b = body.b
    with body.each(body["count"]) as index:
        there = body.word(body["pointers"], index, PTR)
        with body.when(body.set(there)):
            here = body.at(body["data"], b.mul(index, body["bytes"]), I8)
            gather = b.icmp_unsigned("!=", body["gather"], body.number(0, I32))
            b.call(copy, [b.select(gather, here, there), b.select(gather, there, here), body["bytes"], body.false])
    b.ret_void()
