"""`cp.async`: copies from global to shared memory that a thread waits for later (pending_copies.py)."""

from __future__ import annotations

import numpy as np

from cutesmith.emulator.faults import FaultKind, UnsupportedInstruction
from cutesmith.emulator.machine.lanes import LaneBatch
from cutesmith.emulator.machine.suspensions import lane_operation
from cutesmith.emulator.operations.mbarriers import arrive_for_copies
from cutesmith.emulator.operations.pending_copies import PendingCopies
from cutesmith.emulator.program.abi import Access, Array, Space
from cutesmith.emulator.ptx.syntax import Address, Immediate, Instruction, Register

_HINTS = frozenset(("L2::cache_hint", "L2::64B", "L2::128B", "L2::256B"))
_SIZES = {"ca": (4, 8, 16), "cg": (16,)}


@lane_operation("cp.async.{ca,cg}.shared{,::cta}.global")
def copy(batch: LaneBatch) -> None:
    """`cp.async.{ca,cg}.shared.global [dst], [src], size{, src-size | ignore-src}{, cache-policy}`."""
    instruction = batch.instruction
    target, source, size = _operands(instruction)
    taken = _source_bytes(batch, size)
    memory, site, addresses = batch.memory, instruction.number, batch.address(source)
    wrong: Array = (taken > 0) & (taken < size) & (addresses % np.uint64(size) != 0)
    if wrong.any():  # a source that is read in part must be aligned to the whole copy
        message = f"`{instruction.full_opcode}` from {int(addresses[wrong][0]):#x}, not a multiple of {size}"
        batch.wave.report(FaultKind.MISALIGNED, message, batch.lanes[wrong], instruction)
    taken = np.where(wrong, 0, taken)
    data = np.zeros((len(batch.lanes), size), np.uint8)
    for count in np.unique(taken[taken > 0]).tolist():
        chosen = taken == count
        data[chosen, :count] = memory.load(batch.lanes[chosen], Space.GLOBAL, addresses[chosen], count, site)
    pointers = memory.pointers(batch.lanes, Space.SHARED, batch.address(target), size, Access.WRITE, site)
    kept = pointers != 0
    batch.machine.unit(PendingCopies).issue(batch.lanes[kept], pointers[kept], data[kept], site)


def _operands(instruction: Instruction) -> tuple[Address, Address, int]:
    target, source, size = instruction.operands[:3]
    level = instruction.modifiers[1]
    unknown = set(instruction.modifiers[4:]) - _HINTS
    if unknown:
        raise UnsupportedInstruction(instruction, f".{sorted(unknown)[0]}")
    if not isinstance(target, Address) or not isinstance(source, Address):
        raise UnsupportedInstruction(instruction, "an address is not in brackets")
    if not isinstance(size, Immediate) or size.value not in _SIZES[level]:
        raise UnsupportedInstruction(instruction, f"it copies one of {_SIZES[level]} bytes")
    return target, source, size.value


def _source_bytes(batch: LaneBatch, size: int) -> Array:
    """How many bytes each lane reads; the rest of what it writes are zeros. int64 (n,)."""
    instruction = batch.instruction
    hinted = "L2::cache_hint" in instruction.modifiers
    optional = instruction.operands[3 : len(instruction.operands) - hinted]
    if not optional:
        return np.full(len(batch.lanes), size, np.int64)
    operand = optional[0]
    if isinstance(operand, Register) and batch.wave.program.widths[operand.name] == 1:
        return np.where(batch.read(operand, np.bool_), 0, size)
    given = batch.read(optional[0], np.uint32).astype(np.int64)
    over = given > size
    if over.any():
        message = f"src-size {int(given[over][0])} of a copy of {size} bytes"
        batch.wave.report(FaultKind.INVALID_OPERAND, message, batch.lanes[over], instruction)
    return np.asarray(np.minimum(given, size))


@lane_operation("cp.async.commit_group")
def commit(batch: LaneBatch) -> None:
    """What the thread has issued since the last one is a group."""
    batch.machine.unit(PendingCopies).commit(batch.lanes)


@lane_operation("cp.async.wait_group")
def wait_group(batch: LaneBatch) -> None:
    """All but the last N groups are complete."""
    allowed = batch.instruction.operands[0]
    if not isinstance(allowed, Immediate):
        raise UnsupportedInstruction(batch.instruction, "the number of groups is not a constant")
    batch.machine.unit(PendingCopies).wait_groups(batch.lanes, allowed.value)


@lane_operation("cp.async.wait_all")
def wait_all(batch: LaneBatch) -> None:
    """Everything that the thread has issued is complete."""
    batch.machine.unit(PendingCopies).wait_all(batch.lanes)


@lane_operation("cp.async.mbarrier.arrive")
def arrive(batch: LaneBatch) -> None:
    """Tell the mbarrier that the thread's copies are complete: they are, at once.

    Without `.noinc` the arrival is one that the barrier did not expect yet.
    """
    batch.machine.unit(PendingCopies).wait_all(batch.lanes)
    arrive_for_copies(batch, expected="noinc" in batch.instruction.modifiers)
