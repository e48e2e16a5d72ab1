"""`cp.async`: copies from global to shared memory that a thread waits for later (machine/pending_copies.py)."""

from __future__ import annotations

import numpy as np

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.machine.lanes import Array, Lanes
from cutesmith.emulator.native.abi import Access, Space
from cutesmith.emulator.operations.message_barriers import arrive_for_copies
from cutesmith.emulator.operations.registry import lane_operation
from cutesmith.emulator.ptx.syntax import Address, Immediate, Instruction, Operand, Register

_HINTS = frozenset(("L2::cache_hint", "L2::64B", "L2::128B", "L2::256B"))
_SIZES = {"ca": (4, 8, 16), "cg": (16,)}


@lane_operation("cp.async.ca.shared.global", "cp.async.ca.shared::cta.global")
@lane_operation("cp.async.cg.shared.global", "cp.async.cg.shared::cta.global")
def copy(lanes: Lanes) -> None:
    """`cp.async.{ca,cg}.shared.global [dst], [src], size{, src-size | ignore-src}{, cache-policy}`."""
    instruction = lanes.instruction
    target, source, size = _operands(instruction)
    taken = _source_bytes(lanes, size)
    sound = _aligned(lanes, source, size, taken)
    data = _read_source(lanes, lanes.address(source), size, np.where(sound, taken, 0))
    memory, addresses = lanes.wave.memory, lanes.address(target)
    pointers = memory.pointers(lanes.lanes, Space.SHARED, addresses, size, Access.WRITE, instruction.number)
    kept = pointers != 0
    memory.copies.issue(lanes.lanes[kept], pointers[kept], data[kept], instruction.number)


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


def _source_bytes(lanes: Lanes, size: int) -> Array:
    """How many bytes each lane reads; the rest of what it writes are zeros. int64 (n,)."""
    instruction = lanes.instruction
    hinted = "L2::cache_hint" in instruction.modifiers
    optional = instruction.operands[3 : len(instruction.operands) - hinted]
    if not optional:
        return np.full(len(lanes.lanes), size, np.int64)
    if _is_predicate(lanes, optional[0]):
        return np.where(lanes.read(optional[0], np.bool_), 0, size)
    given = lanes.read(optional[0], np.uint32).astype(np.int64)
    over = given > size
    if over.any():
        message = f"src-size {int(given[over][0])} of a copy of {size} bytes"
        lanes.wave.report("invalid_operand", message, lanes.lanes[over], instruction)
    return np.asarray(np.minimum(given, size))


def _is_predicate(lanes: Lanes, operand: Operand) -> bool:
    return isinstance(operand, Register) and lanes.wave.program.widths[operand.name] == 1


def _aligned(lanes: Lanes, source: Address, size: int, taken: Array) -> Array:
    """Whether a source that is read in part is aligned to the whole copy, as it must be; a fault where it is not."""
    addresses = lanes.address(source)
    wrong: Array = (taken > 0) & (taken < size) & (addresses % np.uint64(size) != 0)
    if wrong.any():
        message = f"`{lanes.instruction.full_opcode}` from {int(addresses[wrong][0]):#x}, no multiple of {size}"
        lanes.wave.report("misaligned", message, lanes.lanes[wrong], lanes.instruction)
    return np.logical_not(wrong)


def _read_source(lanes: Lanes, addresses: Array, size: int, taken: Array) -> Array:
    """uint8 (n, size): what is read, filled up with zeros."""
    data = np.zeros((len(lanes.lanes), size), np.uint8)
    memory, site = lanes.wave.memory, lanes.instruction.number
    for count in np.unique(taken[taken > 0]).tolist():
        chosen = taken == count
        data[chosen, :count] = memory.load(lanes.lanes[chosen], Space.GLOBAL, addresses[chosen], count, site)
    return data


@lane_operation("cp.async.commit_group")
def commit(lanes: Lanes) -> None:
    """What the thread has issued since the last one is a group."""
    lanes.wave.memory.copies.commit(lanes.lanes)


@lane_operation("cp.async.wait_group")
def wait_group(lanes: Lanes) -> None:
    """All but the last N groups are complete."""
    allowed = lanes.instruction.operands[0]
    if not isinstance(allowed, Immediate):
        raise UnsupportedInstruction(lanes.instruction, "the number of groups is no constant")
    lanes.wave.memory.copies.wait_groups(lanes.lanes, allowed.value)


@lane_operation("cp.async.wait_all")
def wait_all(lanes: Lanes) -> None:
    """Everything that the thread has issued is complete."""
    lanes.wave.memory.copies.wait_all(lanes.lanes)


@lane_operation("cp.async.mbarrier.arrive")
def arrive(lanes: Lanes) -> None:
    """The barrier object hears of it when the thread's copies are complete: they are, at once.

    Without `.noinc` the arrival is one that the barrier did not expect yet.
    """
    lanes.wave.memory.copies.wait_all(lanes.lanes)
    arrive_for_copies(lanes, expected="noinc" in lanes.instruction.modifiers)
