"""The cells of shared memory: one for each 16 bytes as long as these are equal, one for each byte where they differ.

Engines and wide accesses of threads touch whole chunks of 16 bytes, so that most chunks have one cell. The first access
to a part of a chunk copies its cell to its bytes; an access to whole chunks that leaves equal cells in each makes them
one again. The cells of bytes mean nothing where the chunk has its own, and need not be cleared for a new wave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir

from cutesmith.emulator.native.building import I1, I32, I64, PTR, VOID, Body, Value, all_hold, splat
from cutesmith.emulator.program.abi import SHARED_UNIT, Array
from cutesmith.emulator.sanitizer.layout import Pending, Sanitizer
from cutesmith.emulator.state.lent_arrays import LentArrays
from cutesmith.emulator.state.wave import Wave

CHUNK = SHARED_UNIT
_SHIFT = CHUNK.bit_length() - 1
APART = (1 << 64) - 1  # in place of a writer's cell of a chunk: its bytes have their own (no access has this cell)


class SharedCells:
    """Cells of a wave's shared memory as arrays: of chunks (blocks * bytes / 16,), and of bytes (blocks * bytes,).

    `writers`, `readers`: uint64; `warps`: uint32, which warps have read where the reader says SEVERAL.
    """

    def __init__(self, wave: Wave, lent: LentArrays) -> None:
        size = wave.shared.size
        kinds = {"writers": np.uint64, "readers": np.uint64, "warps": np.uint32}
        self._of_chunks = {name: lent.take(f"{name} of chunks", (size // CHUNK,), kind) for name, kind in kinds.items()}
        self._of_bytes = {name: lent.take(name, (size,), kind, fill=None) for name, kind in kinds.items()}
        self._shape = wave.shared.shape
        for word, array in (
            (Sanitizer.SHARED_WRITERS, self._of_bytes["writers"]),
            (Sanitizer.SHARED_READERS, self._of_bytes["readers"]),
            (Sanitizer.SHARED_READING_WARPS, self._of_bytes["warps"]),
            (Sanitizer.CHUNK_WRITERS, self._of_chunks["writers"]),
            (Sanitizer.CHUNK_READERS, self._of_chunks["readers"]),
            (Sanitizer.CHUNK_READING_WARPS, self._of_chunks["warps"]),
        ):
            wave.context[word] = array.ctypes.data

    def write(self, start: int, size: int, cell: int) -> None:
        """Bytes in a row have been written: `cell` is their writer, readers stay."""
        if start % CHUNK == 0 and size % CHUNK == 0:
            chunks = slice(start // CHUNK, (start + size) // CHUNK)
            writers = self._of_chunks["writers"][chunks]
            if not (writers == np.uint64(APART)).any():
                writers[:] = np.uint64(cell)
                return
        self.write_bytes(np.arange(start, start + size), np.uint64(cell))

    def write_bytes(self, touched: Array, cells: Array | np.uint64) -> None:
        """The same for bytes anywhere (their places, of any shape)."""
        self._set_apart(touched // CHUNK)
        self._of_bytes["writers"][touched] = cells

    def of_block(self, block: int) -> tuple[Array, Array]:
        """uint64 (bytes,) each: the writers and the readers of every byte of a block's shared memory."""
        size = self._shape[1]
        self._set_apart(np.arange(block * size // CHUNK, (block + 1) * size // CHUNK))
        bytes_of_block = slice(block * size, (block + 1) * size)
        return self._of_bytes["writers"][bytes_of_block], self._of_bytes["readers"][bytes_of_block]

    def _set_apart(self, chunks: Array) -> None:
        whole = np.unique(chunks)
        whole = whole[self._of_chunks["writers"][whole] != np.uint64(APART)]
        for name, cells in self._of_chunks.items():
            self._of_bytes[name].reshape(-1, CHUNK)[whole] = cells[whole][:, None]
        self._of_chunks["writers"][whole] = np.uint64(APART)


# ------------------------------------------------------------------------------------------------------- native code

_SHADOWS = {
    "writers": (I64, Sanitizer.CHUNK_WRITERS, Sanitizer.SHARED_WRITERS),
    "readers": (I64, Sanitizer.CHUNK_READERS, Sanitizer.SHARED_READERS),
    "warps": (I32, Sanitizer.CHUNK_READING_WARPS, Sanitizer.SHARED_READING_WARPS),
}
_PARAMETERS = {
    "context": PTR, "lane": I32, "address": I64, "bytes": I32, "kind": I32, "site": I32,
    "position": I64, "pointer": PTR,
}  # fmt: skip
_CHUNKS = {"context": PTR, "first": I64, "count": I64}
Judge = Callable[..., None]  # (body, **what `access_check` needs beside the arguments)


def shared_check(module: Any, judge: Judge, settle: Any) -> Any:
    """void access_check_shared(…): judge an access to byte `position` of the wave's shared memory.

    `judge` emits the call that judges cells; `settle`: the function that judges the write which is kept.
    """
    split, join = _split_function(module, settle), _join_function(module)
    body = Body(module, "access_check_shared", VOID, _PARAMETERS, attributes=("noinline",))
    b = body.b
    first, size = b.lshr(body["position"], body.number(_SHIFT)), body.wide(body["bytes"])
    last = b.lshr(b.add(body["position"], b.sub(size, body.number(1))), body.number(_SHIFT))
    chunks = b.add(b.sub(last, first), body.number(1))
    of_chunks = _at(body, first, 1)
    whole = body.equal(b.and_(b.or_(body["position"], size), body.number(CHUNK - 1)), 0)
    with body.when(whole):
        apart = body.local(I1)
        b.store(body.false, apart)
        with body.each(chunks) as index:
            here = body.equal(body.word(of_chunks["writers"], index), APART)
            b.store(b.or_(b.load(apart, typ=I1), here), apart)
        with body.when(b.not_(b.load(apart, typ=I1))):
            judge(body, count=chunks, **of_chunks)
            b.ret_void()
    b.call(split, [body["context"], first, chunks])
    judge(body, count=size, **_at(body, body["position"], 2))
    with body.when(whole):
        b.call(join, [body["context"], first, chunks])
    b.ret_void()
    return body.function


def _at(body: Body, index: Value, level: int) -> dict[str, Value]:
    """The cells from `index` on, of chunks (level 1) or bytes (2)."""
    return {
        name: body.at(body.word(body["context"], shadow[level], PTR), index, shadow[0])
        for name, shadow in _SHADOWS.items()
    }


@contextmanager
def _each_chunk(body: Body) -> Iterator[tuple[dict[str, Value], dict[str, Value], Value]]:
    """A loop over `count` chunks from `first` on: their cells, those of their bytes, whether these count."""
    with body.each(body["count"]) as index:
        chunk = body.b.add(body["first"], index)
        of_chunk = _at(body, chunk, 1)
        apart = body.equal(body.b.load(of_chunk["writers"], typ=I64), APART)
        yield of_chunk, _at(body, body.b.shl(chunk, body.number(_SHIFT)), 2), apart


def _split_function(module: Any, settle: Any) -> Any:
    """void access_split_chunks(context, first, count): the bytes of these chunks have their own cells from now on."""
    body = Body(module, "access_split_chunks", VOID, _CHUNKS, attributes=("noinline",))
    b = body.b
    waiting = body.word(body["context"], Sanitizer.PENDING, PTR)  # names cells that this may move
    with body.when(b.icmp_unsigned("!=", body.word(waiting, Pending.ACTIVE), body.number(0)), likely=False):
        b.call(settle, [body["context"]])
    with _each_chunk(body) as (of_chunk, of_bytes, apart), body.when(b.not_(apart)):
        for name, (kind, *_) in _SHADOWS.items():
            b.store(splat(body, b.load(of_chunk[name], typ=kind), CHUNK), of_bytes[name], align=kind.width // 8)
        b.store(ir.Constant(I64, APART), of_chunk["writers"])
    b.ret_void()
    return body.function


def _join_function(module: Any) -> Any:
    """void access_join_chunks(context, first, count): chunks whose bytes have equal cells have one again."""
    body = Body(module, "access_join_chunks", VOID, _CHUNKS, attributes=("noinline",))
    b = body.b
    waiting = body.word(body["context"], Sanitizer.PENDING, PTR)  # its cells are those of bytes
    with body.when(b.icmp_unsigned("!=", body.word(waiting, Pending.ACTIVE), body.number(0)), likely=False):
        b.ret_void()
    with _each_chunk(body) as (of_chunk, of_bytes, apart), body.when(apart):
        equal = [_all_equal(body, of_bytes[name], kind) for name, (kind, *_) in _SHADOWS.items()]
        with body.when(body.all_of(*equal)):
            for name, (kind, *_) in _SHADOWS.items():
                b.store(b.load(of_bytes[name], typ=kind), of_chunk[name])
    b.ret_void()
    return body.function


def _all_equal(body: Body, cells: Value, kind: Any) -> Value:
    """Whether the cells of a chunk's bytes are all equal to the first."""
    every = body.b.load(cells, typ=ir.VectorType(kind, CHUNK), align=kind.width // 8)
    flags = body.b.icmp_unsigned("==", every, splat(body, body.b.load(cells, typ=kind), CHUNK))
    return all_hold(body, flags)
