"""`mbarrier`: barrier objects in shared memory, those of other blocks of the cluster included.

Arrivals release and waits acquire unless they are `.relaxed`; the race check hears of both. `try_wait` suspends the
thread until the phase is over; only when nobody else can go on does it give up and say no, as a GPU does after a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.machine.barrier_objects import BarrierError, BarrierObject
from cutesmith.emulator.machine.lanes import Array, Lanes
from cutesmith.emulator.machine.wave import Wave
from cutesmith.emulator.native.abi import SHARED_BASE, Access, Space
from cutesmith.emulator.operations.registry import lane_operation
from cutesmith.emulator.ptx.syntax import Address, Instruction, Operand, Sink

_SPACES = {"shared": Space.SHARED, "shared::cta": Space.SHARED, "shared::cluster": Space.SHARED}
_WORDS = frozenset(
    "init inval arrive arrive_drop expect_tx complete_tx test_wait try_wait pending_count parity noComplete "
    "release acquire relaxed cta cluster b64".split()
)
_SIZE = 8
_Act = Callable[[BarrierObject, int], None]  # with the index of the lane


@lane_operation("mbarrier.init")
def initialise(lanes: Lanes) -> None:
    """`mbarrier.init [a], count`."""
    address, count = lanes.instruction.operands
    counts = lanes.read(count, np.uint32)
    for index, pointer in _pointers(lanes, address, Access.WRITE):
        _checked(lanes, index, partial(_create, pointer, int(counts[index])))


def _create(pointer: int, count: int) -> None:
    BarrierObject.new(count).write(pointer)


@lane_operation("mbarrier.inval")
def invalidate(lanes: Lanes) -> None:
    """`mbarrier.inval [a]`: the bytes may be used for something else."""
    for index, pointer in _pointers(lanes, lanes.instruction.operands[0], Access.OBJECT):
        if _object(lanes, index, pointer) is not None:
            BarrierObject.erase(pointer)


@lane_operation("mbarrier.arrive", "mbarrier.arrive_drop")
def arrive(lanes: Lanes) -> None:
    """`mbarrier.arrive{.expect_tx}{.noComplete} {state,} [a]{, count}`; `arrive_drop` leaves for good."""
    instruction = lanes.instruction
    drops, expects = "arrive_drop" in instruction.modifiers, "expect_tx" in instruction.modifiers
    state, address, amounts = _arrival_operands(lanes)

    def act(barrier: BarrierObject, index: int) -> None:
        if expects:
            barrier.expect_bytes(int(amounts[index]))
        (barrier.drop if drops else barrier.arrive)(1 if expects else int(amounts[index]))

    _update(lanes, address, act, state)


def _arrival_operands(lanes: Lanes) -> tuple[Operand, Address, Array]:
    """Where the state goes (a Sink if nowhere), the address, the count of arrivals or bytes."""
    operands = list(lanes.instruction.operands)
    state = Sink() if isinstance(operands[0], Address) else operands.pop(0)
    address, *rest = operands
    assert isinstance(address, Address)
    amounts = lanes.read(rest[0], np.uint32) if rest else np.ones(len(lanes.lanes), np.uint32)
    return state, address, amounts


@lane_operation("mbarrier.expect_tx", "mbarrier.complete_tx")
def count_bytes(lanes: Lanes) -> None:
    """`mbarrier.expect_tx [a], bytes` and `mbarrier.complete_tx`."""
    address, amount = lanes.instruction.operands
    sign = 1 if "expect_tx" in lanes.instruction.modifiers else -1
    amounts = lanes.read(amount, np.uint32)
    _update(lanes, address, lambda barrier, index: barrier.expect_bytes(sign * int(amounts[index])), releases=False)


def complete_bytes(lanes: Lanes, address: Operand, count: int) -> None:
    """`count` bytes of each lane, written by an asynchronous store of its own, have arrived."""
    _update(lanes, address, lambda barrier, index: barrier.expect_bytes(-count))


def arrive_for_copies(lanes: Lanes, *, expected: bool) -> None:
    """`cp.async.mbarrier.arrive`: one arrival, for which room is made unless it is `expected`."""

    def act(barrier: BarrierObject, index: int) -> None:
        if not expected:
            barrier.expect_one_more()
        barrier.arrive()

    _update(lanes, lanes.instruction.operands[0], act)


@lane_operation("mbarrier.test_wait", "mbarrier.try_wait")
def wait(lanes: Lanes) -> Array:
    """`mbarrier.{test,try}_wait{.parity} p, [a], state-or-parity{, time}`; the lanes of a `try_wait` that have to wait
    are not done."""
    predicate, address, phase, *_ = lanes.instruction.operands
    by_parity = "parity" in lanes.instruction.modifiers
    phases = lanes.read(phase, np.uint32 if by_parity else np.uint64)
    over = np.ones(len(lanes.lanes), bool)
    seen: list[tuple[int, int]] = []
    for index, pointer in _pointers(lanes, address, Access.OBJECT):
        barrier = _object(lanes, index, pointer)
        if barrier is not None:
            parity = int(phases[index]) & 1 if by_parity else _parity_of(int(phases[index]))
            over[index] = barrier.parity != parity
            seen += [(index, pointer)] if over[index] else []
    _tell(lanes, seen, lanes.wave.memory.acquire)
    done = over | (not _suspends(lanes))
    lanes.write(predicate, over, done)
    return done


def _suspends(lanes: Lanes) -> bool:
    return "try_wait" in lanes.instruction.modifiers and lanes.wave.patient


def _parity_of(state: int) -> int:
    barrier = BarrierObject.unpack(state)
    return barrier.parity if barrier is not None else 0


@lane_operation("mbarrier.pending_count")
def pending_count(lanes: Lanes) -> None:
    """`mbarrier.pending_count d, state`: arrivals that were missing before the one that gave the state."""
    destination, state = lanes.instruction.operands
    words = [BarrierObject.unpack(int(word)) for word in lanes.read(state, np.uint64)]
    lanes.write(destination, np.array([barrier.missing if barrier else 0 for barrier in words], np.uint32))


# ------------------------------------------------------------------------------------------------------------ objects


def _update(lanes: Lanes, address: Operand, act: _Act, state: Operand | None = None, *, releases: bool = True) -> None:
    """Change the object of each lane, one lane after another; the states before go to `state`."""
    before = np.zeros(len(lanes.lanes), np.uint64)
    found = _pointers(lanes, address, Access.OBJECT)
    if releases:
        _tell(lanes, found, lanes.wave.memory.release)
    for index, pointer in found:
        barrier = _object(lanes, index, pointer)
        if barrier is None:
            continue
        before[index] = barrier.pack()
        _checked(lanes, index, partial(act, barrier, index))
        barrier.write(pointer)
    if state is not None and not isinstance(state, Sink):
        lanes.write(state, before)


def _pointers(lanes: Lanes, address: Operand, kind: Access) -> list[tuple[int, int]]:
    """(index of the lane, host address) of every lane whose address is sound."""
    instruction = lanes.instruction
    space, addresses = _space(instruction), _addresses(lanes, address)
    pointers = lanes.wave.memory.pointers(lanes.lanes, space, addresses, _SIZE, kind, instruction.number)
    return [(index, pointer) for index, pointer in enumerate(pointers.tolist()) if pointer]


def _addresses(lanes: Lanes, address: Operand) -> Array:
    if not isinstance(address, Address):
        raise UnsupportedInstruction(lanes.instruction, "the address is not in brackets")
    return lanes.address(address)


def _space(instruction: Instruction) -> Space:
    words = instruction.modifiers
    if instruction.opcode == "mbarrier" and (strange := set(words) - _WORDS - set(_SPACES)):
        raise UnsupportedInstruction(instruction, f".{sorted(strange)[0]}")
    return Space.SHARED if set(words) & set(_SPACES) else Space.GENERIC


def _object(lanes: Lanes, index: int, pointer: int) -> BarrierObject | None:
    """The object there, or None and a finding: the word was never initialised, or has been overwritten."""
    barrier = BarrierObject.read(pointer)
    if barrier is None:
        message = f"`{lanes.instruction.full_opcode}` on {_place(lanes.wave, pointer)}, which is no barrier object"
        lanes.wave.report("invalid_operand", message, lanes.lanes[index : index + 1], lanes.instruction)
    return barrier


def _place(wave: Wave, pointer: int) -> str:
    block, offset = divmod(pointer - wave.shared.ctypes.data, wave.shared.shape[1])
    return f"byte {offset - SHARED_BASE} of the shared memory of block {tuple(wave.blocks[block].tolist())}"


def _checked(lanes: Lanes, index: int, act: Callable[[], None]) -> None:
    """Do it; what a barrier object does not take becomes a finding."""
    try:
        act()
    except BarrierError as error:
        message = f"`{lanes.instruction.full_opcode}`: {error}"
        lanes.wave.report("invalid_operand", message, lanes.lanes[index : index + 1], lanes.instruction)


def _tell(lanes: Lanes, found: list[tuple[int, int]], tell: Callable[[Array, int], None]) -> None:
    """Tell the race check who releases to, or acquires from, which object."""
    if "relaxed" in lanes.instruction.modifiers:
        return
    by_object: dict[int, list[int]] = {}
    for index, pointer in found:
        by_object.setdefault(pointer, []).append(index)
    for pointer, indices in by_object.items():
        tell(lanes.lanes[indices], pointer)


def waits_for(wave: Wave, instruction: Instruction, lane: int) -> str:
    """What a lane that is suspended at a `try_wait` waits for, for the explanation of a deadlock."""
    address = instruction.operands[1]
    assert isinstance(address, Address)
    one = np.array([lane])
    pointer = int(
        wave.memory.pointers(
            one, _space(instruction), wave.address(address, one), _SIZE, Access.OBJECT, instruction.number
        )[0]
    )
    barrier = BarrierObject.read(pointer) if pointer else None
    if barrier is None:
        return "for a barrier object that is none"
    missing = f"{barrier.missing} of {barrier.expected} arrivals"
    more = f" and {barrier.bytes} bytes" if barrier.bytes else ""
    return f"for the barrier object at {_place(wave, pointer)}, whose phase still needs {missing}{more}"
