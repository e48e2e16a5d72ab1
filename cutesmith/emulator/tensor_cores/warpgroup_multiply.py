"""`wgmma`: D = A B + D of a warpgroup, carried out behind its back; `fence`, `commit_group` and `wait_group`.

PTX ISA, "Asynchronous warpgroup level multiply-and-accumulate operation". Multiplications under way are a unit of the
machine (in_flight.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice

import numpy as np

from cutesmith.emulator.faults import FaultKind, UnsupportedInstruction
from cutesmith.emulator.machine.warpgroups import THREADS, WARPS, WarpgroupBatch, warpgroup_operation
from cutesmith.emulator.program.abi import WARP, Access, Array, Space
from cutesmith.emulator.ptx.syntax import Immediate, Operand, Vector, bits_of
from cutesmith.emulator.sanitizer.actors import Asked, Channel, Engine, Request
from cutesmith.emulator.tensor_cores.descriptors import CHUNK, DescriptorError, MatrixDescriptor, OperandTile
from cutesmith.emulator.tensor_cores.fragments import fragment_order, unpack
from cutesmith.emulator.tensor_cores.in_flight import (
    Accumulator,
    Issued,
    MultiplicationsInFlight,
    chunk_addresses,
    matrix_of,
    registers_of,
    serials_in,
    tokens,
)
from cutesmith.emulator.tensor_cores.native_tokens import hold_tokens
from cutesmith.emulator.tensor_cores.sparsity import ORDERED, columns, meaningful, warp_codes
from cutesmith.emulator.tensor_cores.warpgroup_forms import ROWS, WarpgroupMultiply

_DENSE_CHUNKS = 2
"""Chunks of k in a row of a dense operand: every swizzle has as many in its rows."""


@warpgroup_operation("wgmma.mma_async")
def multiply(batch: WarpgroupBatch) -> None:
    """Every form of `wgmma.mma_async{.sp}`."""
    unit = batch.machine.unit(MultiplicationsInFlight)
    form = unit.read(batch.instruction)
    unfenced = ~unit.fenced[batch.groups]
    if unfenced.any():
        _report(batch, FaultKind.MISSING_FENCE, "without a `wgmma.fence` before it", unfenced)
    requests = [
        batch.machine.memory.request(lane, Channel(Engine.TENSOR_CORE, group), batch.instruction.number)
        for lane, group in zip(batch.lanes[:, 0].tolist(), batch.groups.tolist(), strict=True)
    ]
    in_registers = isinstance(form.a, Vector)
    warps = batch.lanes[:, ::WARP]  # (w, 4): the first threads
    warps = warps[:, :1] if all(batch.machine.memory.engines_see_alike(row) for row in warps) else warps
    operands = [_Operand(form.b, form.tile_b, whole=True)]
    operands += [] if in_registers else [_Operand(form.a, form.tile_a)]
    b, *more = _chunks(batch, requests, operands, warps)
    a = _fragments(batch, form) if in_registers else more[0]
    accumulates = batch.uniform(form.scale_d, np.bool_)
    chosen = None if form.metadata is None else _chosen(batch, form, form.metadata)
    serials = _accumulators(batch, form)
    commits = unit.committed[batch.groups]
    unit.issue(Issued(batch.instruction, form, batch.groups, serials, commits, a, b, accumulates, requests, chosen))


@warpgroup_operation("wgmma.fence")
def fence(batch: WarpgroupBatch) -> None:
    """`wgmma.fence.sync.aligned`: registers that were used before it may be accumulators or A after it."""
    batch.machine.unit(MultiplicationsInFlight).fenced[batch.groups] = True


@warpgroup_operation("wgmma.commit_group")
def commit(batch: WarpgroupBatch) -> None:
    """`wgmma.commit_group.sync.aligned`: what was issued since the last one is a group."""
    batch.machine.unit(MultiplicationsInFlight).committed[batch.groups] += 1


@warpgroup_operation("wgmma.wait_group")
def wait(batch: WarpgroupBatch) -> None:
    """`wgmma.wait_group.sync.aligned N`: all but the last N groups are complete; their accumulators land."""
    allowed = batch.instruction.operands[0]
    if not isinstance(allowed, Immediate):
        raise UnsupportedInstruction(batch.instruction, "the number of groups is not a constant")
    unit = batch.machine.unit(MultiplicationsInFlight)
    requests, finished = unit.complete(batch.groups, allowed.value)
    for group, lanes in zip(batch.groups.tolist(), batch.lanes, strict=True):
        if group in requests:
            batch.machine.memory.awaited(lanes, requests[group])
    if finished:
        _land(batch, finished)


def _report(batch: WarpgroupBatch, kind: FaultKind, what: str, where: Array) -> None:
    """A finding of the sanitizer about some of the warpgroups: "`wgmma…` without a fence"."""
    if batch.machine.memory.sanitize:
        message = f"`{batch.instruction.full_opcode}` {what}"
        batch.machine.wave.report(kind, message, batch.lanes[where].ravel()[::THREADS], batch.instruction)


# ------------------------------------------------------------------------------------------------------------ operands


@dataclass(frozen=True)
class _Operand:
    """An operand in shared memory: each warp reads the `whole` of it (B), or its own rows (of A)."""

    descriptor: Operand
    tile: OperandTile
    whole: bool = False

    def addresses(self, batch: WarpgroupBatch) -> Array:
        """uint64 (w, chunks); none, and a finding, where a descriptor is not sound."""
        words = batch.uniform(self.descriptor, np.uint64)
        if self.tile.chunks[1] > _DENSE_CHUNKS:
            self._need_whole_rows(batch, words)
        ranks = batch.machine.wave.special_register("%cluster_ctarank", batch.lanes[:, 0])
        try:
            return chunk_addresses(tuple(words.tolist()), tuple(ranks.tolist()), self.tile)
        except DescriptorError as error:
            message = f"`{batch.instruction.full_opcode}`: {error}"
            batch.machine.wave.report(FaultKind.INVALID_OPERAND, message, batch.lanes.ravel(), batch.instruction)
            return np.zeros((len(words), 0), np.uint64)

    def _need_whole_rows(self, batch: WarpgroupBatch, words: Array) -> None:
        for word in words.tolist():
            descriptor = MatrixDescriptor.decode(word)
            if not descriptor.holds(self.tile):
                what = f"rows longer than their {descriptor.swizzle.row}-byte swizzle"
                raise UnsupportedInstruction(batch.instruction, what)


def _chunks(batch: WarpgroupBatch, requests: list[Request], operands: list[_Operand], warps: Array) -> list[Array]:
    """uint64 (w, *chunks) for each operand: host addresses of its chunks, 0 where refused, once the access is checked.

    The check of order is made for each of `warps`.
    """
    asked: list[Asked] = []
    for operand in operands:
        for request, chunks, asking in zip(requests, operand.addresses(batch), warps, strict=True):
            many = len(asking) > 1
            addresses = np.tile(chunks, len(asking)) if operand.whole and many else chunks
            who = np.repeat(asking, len(addresses) // len(asking)) if many else None
            asked.append(Asked(request, addresses, CHUNK, who))
    pointers = iter(batch.machine.memory.requested(asked, Space.SHARED, Access.READ))
    result = []
    for operand in operands:
        found = np.zeros((len(requests), math.prod(operand.tile.chunks)), np.uint64)
        for row, checked in zip(found, islice(pointers, len(found)), strict=True):
            row[: len(checked)] = checked[: len(row)]
        result.append(found.reshape(-1, *operand.tile.chunks))
    return result


def _fragments(batch: WarpgroupBatch, form: WarpgroupMultiply) -> Array:
    """Bits (w, 64, k) of A from registers, as they are now."""
    assert isinstance(form.a, Vector)
    bits, depth = form.tile_a.bits, form.tile_a.depth
    registers = _read(batch, form.a)  # (4, w, 128)
    early = batch.machine.unit(MultiplicationsInFlight).writes(batch.groups, registers)
    if early.any():
        what = "reads as A what a `wgmma` under way writes, without a wait for it"
        _report(batch, FaultKind.MISSING_WAIT, what, early)
    by_warp = registers.reshape(len(form.a.elements), -1, WARP).swapaxes(0, 1)
    elements = unpack(np.ascontiguousarray(by_warp), bits).reshape(len(by_warp), -1)
    matrix = elements.take(fragment_order("a", ROWS // WARPS, depth, bits), axis=1)
    kept: Array = matrix.reshape(-1, ROWS, depth).astype(f"u{max(8, bits) // 8}")
    return kept


def _chosen(batch: WarpgroupBatch, form: WarpgroupMultiply, metadata: Operand) -> Array:
    """int64 (w, 64, stored): the columns of the stored elements of a sparse A; a finding for what has no meaning."""
    product = form.form.product
    bits = bits_of(product.a)
    words = batch.machine.wave.read(metadata, batch.lanes.ravel(), np.uint32).reshape(-1, WARP)
    codes = warp_codes(words, form.selector, product.k, bits).reshape(len(batch.lanes), ROWS, -1)
    strange: Array = np.asarray((~meaningful(codes, bits, ORDERED)).any(axis=(1, 2)))
    if strange.any():
        _report(batch, FaultKind.INVALID_OPERAND, "has metadata that have no meaning", strange)
    return columns(codes, bits)


def _read(batch: WarpgroupBatch, vector: Vector) -> Array:
    """uint64 (registers, w, 128)."""
    wave, lanes = batch.machine.wave, batch.lanes.ravel()
    rows = batch.machine.unit(MultiplicationsInFlight).rows(vector)
    first, last = int(lanes[0]), int(lanes[-1]) + 1
    if len(rows) == len(vector.elements) and last - first == len(lanes):
        values = wave.frame[rows[:, 0], first:last]  # five times as fast
    elif len(rows) == len(vector.elements):
        values = wave.frame[rows, lanes]
    else:
        values = np.stack([wave.read(part, lanes).astype(np.uint64) for part in vector.elements])
    return np.asarray(values).reshape(len(vector.elements), *batch.lanes.shape)


# -------------------------------------------------------------------------------------------------------- accumulators


def _accumulators(batch: WarpgroupBatch, form: WarpgroupMultiply) -> Array:
    """Serial numbers (w,) of the accumulators: those in flight that D's registers hold, or new ones from their values.

    The registers of new ones hold tokens afterwards.
    """
    unit, product = batch.machine.unit(MultiplicationsInFlight), form.form.product
    count = len(form.d.elements)
    held = _held(batch, form)
    if held is not None:
        return held
    registers = _read(batch, form.d)
    serials = serials_in(registers[0, :, 0])
    chained = (serials > 0) & (registers == tokens(serials, count)[:, :, None]).all(axis=(0, 2))
    for index in np.flatnonzero(chained):
        chained[index] = unit.holds(int(batch.groups[index]), int(serials[index]), product)
    if chained.all():
        return serials
    mixed = ~chained & (serials_in(registers) > 0).any(axis=(0, 2))
    if mixed.any():
        what = "has accumulators of which others write a part, in another shape, without a wait for them"
        _report(batch, FaultKind.MISSING_WAIT, what, mixed)
    fresh = np.flatnonzero(~chained)
    if len(fresh):
        new = unit.new_serials(batch.groups[fresh])
        serials = serials.copy()
        serials[fresh] = new
        bits = matrix_of(registers[:, fresh], bits_of(product.result))
        for group, serial, matrix in zip(batch.groups[fresh].tolist(), new.tolist(), bits, strict=True):
            unit.accumulators[group, serial] = Accumulator(product, matrix, batch.instruction)
        lanes = batch.lanes[fresh].ravel()
        marks = np.repeat(tokens(new, count), THREADS, axis=1)
        batch.machine.wave.frame[unit.rows(form.d), lanes] = marks
    return serials


def _held(batch: WarpgroupBatch, form: WarpgroupMultiply) -> Array | None:
    """Serial numbers (w,) where each warpgroup has one accumulator in flight, in all registers of D; else None."""
    unit, frame = batch.machine.unit(MultiplicationsInFlight), batch.machine.wave.frame
    rows = unit.rows(form.d)[:, 0]
    if len(rows) < len(form.d.elements):
        return None
    serials = serials_in(frame[rows[0], batch.lanes[:, 0]])
    for group, serial, first in zip(batch.groups.tolist(), serials.tolist(), batch.lanes[:, 0].tolist(), strict=True):
        if not (serial and unit.holds(group, serial, form.form.product)):
            return None
        if not hold_tokens(frame, rows, first, THREADS, int(tokens(np.array([serial]), 1)[0, 0])):
            return None
    return serials


def _land(batch: WarpgroupBatch, finished: dict[tuple[int, int], Accumulator]) -> None:
    """Put results where tokens are, in the registers that live on."""
    frame, rows = batch.machine.wave.frame, _rows_after(batch)
    lanes_of = dict(zip(batch.groups.tolist(), batch.lanes, strict=True))
    for (group, serial), accumulator in finished.items():
        lanes = lanes_of[group]
        results = registers_of(accumulator.bits[None], bits_of(accumulator.product.result))[:, 0]
        held = rows[serials_in(frame[rows, lanes[0]]) == serial]
        if not len(held):
            held = rows  # not in the first thread, perhaps in others
        words = frame[held[:, None], lanes]
        mine = serials_in(words) == serial
        places = (words & np.uint64(127)).astype(np.int64)
        columns = np.broadcast_to(np.arange(THREADS), words.shape)
        words[mine] = results[places[mine], columns[mine]]
        frame[held[:, None], lanes] = words


def _rows_after(batch: WarpgroupBatch) -> Array:
    """Rows of the frame of all 32-bit registers that are live after the instruction."""
    program = batch.machine.wave.program
    live = program.live[batch.point.resume]
    return np.array(sorted(program.slots[name] for name in live if program.widths[name] == 32), np.int64)
