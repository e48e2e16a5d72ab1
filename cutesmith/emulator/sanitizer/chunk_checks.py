"""Cells of chunks: one for many bytes as long as these are equal, one for each piece where they differ (native code).

Engines and wide accesses of threads touch whole chunks, so that most chunks have one cell. The first access to a part
of a chunk copies its cell to its pieces; an access to whole chunks that leaves equal cells in each makes them one
again. The cells of pieces mean nothing where the chunk has its own.

| memory | chunk | piece | cells of |
|---|---|---|---|
| shared | 16 bytes | a byte | writers, readers, the warps that read |
| an allocation of global memory | 128 bytes | an element | writers, readers |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from cutesmith.emulator.native.building import (
    I1,
    I32,
    I64,
    PTR,
    VOID,
    Body,
    Value,
    all_hold,
    load_vector,
    splat,
    store_vector,
)
from cutesmith.emulator.program.abi import SHARED_UNIT, Space
from cutesmith.emulator.sanitizer.layout import GLOBAL_CHUNK, Allocation, Pending, Sanitizer

APART = (1 << 64) - 1  # in place of a writer's cell of a chunk: its pieces have their own (no access has this cell)
_WIDTH = 8  # pieces in a vector register: a chunk has 8 or more
_PARAMETERS = {
    "context": PTR, "lane": I32, "address": I64, "bytes": I32, "kind": I32, "site": I32,
    "table": PTR, "position": I64, "pointer": PTR,
}  # fmt: skip
_CHUNKS = {"context": PTR, "table": PTR, "first": I64, "count": I64}
Judge = Callable[..., None]  # (body, **what `access_check` needs beside the arguments)


@dataclass(frozen=True)
class ChunkedCells:
    """Where the cells of a memory are: words of a table that point to those of chunks and of pieces, by their role.

    `granule`: the table's word with log2 of the bytes of a piece; None where a piece is a byte.
    """

    space: Space
    chunk: int
    words: dict[str, tuple[Any, int, int]]
    granule: int | None = None

    @property
    def shift(self) -> int:
        """log2 of the bytes of a chunk."""
        return self.chunk.bit_length() - 1

    def piece_shift(self, body: Body) -> Value:
        """log2 of the bytes of a piece."""
        return body.number(0) if self.granule is None else body.word(body["table"], self.granule)

    def of_chunks(self, body: Body, index: Value) -> dict[str, Value]:
        """The cells of chunks from `index` on."""
        words = self.words.items()
        return {name: body.at(body.word(body["table"], word, PTR), index, kind) for name, (kind, word, _) in words}

    def of_pieces(self, body: Body, index: Value) -> dict[str, Value]:
        """The cells of pieces from `index` on."""
        words = self.words.items()
        return {name: body.at(body.word(body["table"], word, PTR), index, kind) for name, (kind, _, word) in words}


SHARED_CELLS = ChunkedCells(
    Space.SHARED,
    SHARED_UNIT,
    {
        "writers": (I64, Sanitizer.CHUNK_WRITERS, Sanitizer.SHARED_WRITERS),
        "readers": (I64, Sanitizer.CHUNK_READERS, Sanitizer.SHARED_READERS),
        "warps": (I32, Sanitizer.CHUNK_READING_WARPS, Sanitizer.SHARED_READING_WARPS),
    },
)
"""Their table is the context; positions are those of the wave's shared memory."""
GLOBAL_CELLS = ChunkedCells(
    Space.GLOBAL,
    GLOBAL_CHUNK,
    {
        "writers": (I64, Allocation.CHUNK_WRITERS, Allocation.WRITERS),
        "readers": (I64, Allocation.CHUNK_READERS, Allocation.READERS),
    },
    Allocation.GRANULE,
)
"""Their table is the allocation's entry; positions are those in the allocation."""


def chunk_check(module: Any, cells: ChunkedCells, judge: Judge, settle: Any) -> Any:
    """void access_check_MEMORY(…): judge an access to byte `position`; one smaller than a piece is not judged.

    `judge` emits the call that judges cells; `settle`: the function that judges the write which is kept.
    """
    split, join = _split_function(module, cells, settle), _join_function(module, cells)
    body = Body(module, f"access_check_{cells.space.name.lower()}", VOID, _PARAMETERS, attributes=("noinline",))
    b = body.b
    size, piece = body.wide(body["bytes"]), cells.piece_shift(body)
    count = b.lshr(size, piece)
    with body.when(body.equal(count, 0), likely=False):
        b.ret_void()
    first = b.lshr(body["position"], body.number(cells.shift))
    last = b.lshr(b.add(body["position"], b.sub(size, body.number(1))), body.number(cells.shift))
    of_chunks = cells.of_chunks(body, first)
    of_pieces = cells.of_pieces(body, b.lshr(body["position"], piece))
    is_apart = body.equal(b.load(of_chunks["writers"], typ=I64), APART)
    with body.when(b.and_(is_apart, b.icmp_unsigned("==", first, last))):  # most accesses of threads
        judge(body, count=count, **of_pieces)
        with body.when(body.equal(size, cells.chunk), likely=False):
            b.call(join, [body["context"], body["table"], first, body.number(1)])
        b.ret_void()
    chunks = b.add(b.sub(last, first), body.number(1))
    apart = body.local(I1)
    b.store(is_apart, apart)
    with body.each(chunks) as index:
        b.store(b.or_(b.load(apart, typ=I1), body.equal(body.word(of_chunks["writers"], index), APART)), apart)
    whole = body.equal(b.and_(b.or_(body["position"], size), body.number(cells.chunk - 1)), 0)
    with body.when(b.and_(whole, b.not_(b.load(apart, typ=I1)))):
        judge(body, count=chunks, **of_chunks)
        b.ret_void()
    given = [body["context"], body["table"], first, chunks]
    b.call(split, given)
    judge(body, count=count, **of_pieces)
    with body.when(whole):
        b.call(join, given)
    b.ret_void()
    return body.function


@contextmanager
def _each_chunk(body: Body, cells: ChunkedCells) -> Iterator[tuple[dict[str, Value], dict[str, Value], Value, Value]]:
    """A loop over `count` chunks from `first` on: their cells, those of their pieces, how many, whether these count."""
    b = body.b
    shift = b.sub(body.number(cells.shift), cells.piece_shift(body))
    pieces = b.shl(body.number(1), shift)
    with body.each(body["count"]) as index:
        chunk = b.add(body["first"], index)
        of_chunk = cells.of_chunks(body, chunk)
        apart = body.equal(b.load(of_chunk["writers"], typ=I64), APART)
        yield of_chunk, cells.of_pieces(body, b.shl(chunk, shift)), pieces, apart


def _split_function(module: Any, cells: ChunkedCells, settle: Any) -> Any:
    """void access_split_MEMORY(…): the pieces of these chunks have their own cells from now on."""
    body = Body(module, f"access_split_{cells.space.name.lower()}", VOID, _CHUNKS, attributes=("noinline",))
    b = body.b
    waiting = body.word(body["context"], Sanitizer.PENDING, PTR)  # names cells that this may move
    with body.when(b.icmp_unsigned("!=", body.word(waiting, Pending.ACTIVE), body.number(0)), likely=False):
        b.call(settle, [body["context"]])
    with _each_chunk(body, cells) as (of_chunk, of_pieces, pieces, apart), body.when(b.not_(apart)):
        for name, (kind, *_) in cells.words.items():
            cell = splat(body, b.load(of_chunk[name], typ=kind), _WIDTH)
            with body.each(pieces, _WIDTH) as index:
                store_vector(body, of_pieces[name], index, cell, kind)
        b.store(ir.Constant(I64, APART), of_chunk["writers"])
    b.ret_void()
    return body.function


def _join_function(module: Any, cells: ChunkedCells) -> Any:
    """void access_join_MEMORY(…): chunks whose pieces have equal cells have one again."""
    body = Body(module, f"access_join_{cells.space.name.lower()}", VOID, _CHUNKS, attributes=("noinline",))
    b = body.b
    waiting = body.word(body["context"], Sanitizer.PENDING, PTR)  # its cells are those of pieces
    with body.when(b.icmp_unsigned("!=", body.word(waiting, Pending.ACTIVE), body.number(0)), likely=False):
        b.ret_void()
    with _each_chunk(body, cells) as (of_chunk, of_pieces, pieces, apart), body.when(apart):
        equal = body.local(I1)
        b.store(body.true, equal)
        for name, (kind, *_) in cells.words.items():
            one = splat(body, b.load(of_pieces[name], typ=kind), _WIDTH)
            with body.each(pieces, _WIDTH) as index:
                same = b.icmp_unsigned("==", load_vector(body, of_pieces[name], index, _WIDTH, kind), one)
                b.store(b.and_(b.load(equal, typ=I1), all_hold(body, same)), equal)
        with body.when(b.load(equal, typ=I1)):
            for name, (kind, *_) in cells.words.items():
                b.store(b.load(of_pieces[name], typ=kind), of_chunk[name])
    b.ret_void()
    return body.function
