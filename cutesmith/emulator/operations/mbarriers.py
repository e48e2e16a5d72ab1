"""`mbarrier` instructions on mbarriers in shared memory, those of other blocks of the cluster included.

Arrivals release and waits acquire; where they are `.relaxed`, a fence beside them does. The race check is told of both.
`try_wait` suspends the lane until the phase is over. It gives up and says no only when no other lane can go on, as a
GPU does after a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from cutesmith.emulator.engines.mbarrier_state import (
    MOST_ARRIVALS,
    NOT_ONE,
    PARITY_SHIFT,
    Mbarrier,
    MbarrierError,
    new_words,
    parities,
)
from cutesmith.emulator.faults import FaultKind, UnsupportedInstruction
from cutesmith.emulator.machine.initialisations import Initialisations
from cutesmith.emulator.machine.lanes import LaneBatch
from cutesmith.emulator.machine.machine import Machine, Unit
from cutesmith.emulator.machine.rings import Mbarriers
from cutesmith.emulator.machine.suspensions import lane_operation
from cutesmith.emulator.program.abi import Access, Array, Space
from cutesmith.emulator.ptx.syntax import Address, Instruction, Operand, Sink

_SPACES = {"shared": Space.SHARED, "shared::cta": Space.SHARED, "shared::cluster": Space.SHARED}
_WORDS = frozenset(
    "init inval arrive arrive_drop expect_tx complete_tx test_wait try_wait pending_count parity noComplete "
    "release acquire relaxed cta cluster b64".split()
)
_SIZE = 8
_Act = Callable[[Mbarrier, int], None]  # with the index of the lane


@lane_operation("mbarrier.init")
def initialise(batch: LaneBatch) -> None:
    """`mbarrier.init [a], count`."""
    address, count = batch.instruction.operands
    counts, pointers = batch.read(count, np.uint32), _host_addresses(batch, address, Access.WRITE)
    wrong = (pointers > 0) & ((counts < 1) | (counts > MOST_ARRIVALS))
    for lane, asked in zip(batch.lanes[wrong], counts[wrong].tolist(), strict=True):
        what = f"`{batch.instruction.full_opcode}`: an mbarrier for {asked} arrivals: 1 to {MOST_ARRIVALS}"
        batch.wave.report(FaultKind.INVALID_OPERAND, what, np.array([lane]), batch.instruction)
    sound = (pointers > 0) & ~wrong
    batch.memory.scatter(pointers[sound], new_words(counts[sound]).view(np.uint8).reshape(-1, _SIZE))
    batch.machine.unit(Mbarriers).initialised(pointers[sound], counts[sound])
    batch.machine.unit(Initialisations).initialised(batch.lanes[sound], pointers[sound], batch.instruction)


@lane_operation("mbarrier.inval")
def invalidate(batch: LaneBatch) -> None:
    """`mbarrier.inval [a]`: the bytes may be used for something else."""
    for index, pointer in _pointers(batch, batch.instruction.operands[0], Access.MBARRIER):
        if _mbarrier_at(batch, index, pointer) is not None:
            Mbarrier.erase(pointer)


@lane_operation("mbarrier.arrive", "mbarrier.arrive_drop")
def arrive(batch: LaneBatch) -> None:
    """`mbarrier.arrive{.expect_tx}{.noComplete} {state,} [a]{, count}`; `arrive_drop` leaves for good."""
    instruction = batch.instruction
    drops, expects = "arrive_drop" in instruction.modifiers, "expect_tx" in instruction.modifiers
    operands = list(instruction.operands)
    state = Sink() if isinstance(operands[0], Address) else operands.pop(0)
    address, *rest = operands
    amounts = batch.read(rest[0], np.uint32) if rest else np.ones(len(batch.lanes), np.uint32)

    def act(barrier: Mbarrier, index: int) -> None:
        if expects:
            barrier.expect_bytes(int(amounts[index]))
        (barrier.drop if drops else barrier.arrive)(1 if expects else int(amounts[index]))

    _update(batch, address, act, state)


@lane_operation("mbarrier.expect_tx", "mbarrier.complete_tx")
def count_bytes(batch: LaneBatch) -> None:
    """`mbarrier.expect_tx [a], bytes` and `mbarrier.complete_tx`."""
    address, amount = batch.instruction.operands
    sign = 1 if "expect_tx" in batch.instruction.modifiers else -1
    amounts = batch.read(amount, np.uint32)
    _update(batch, address, lambda barrier, index: barrier.expect_bytes(sign * int(amounts[index])), releases=False)


def arrive_for_copies(batch: LaneBatch, *, expected: bool) -> None:
    """`cp.async.mbarrier.arrive`: one arrival, for which room is made unless it is `expected`."""

    def act(barrier: Mbarrier, index: int) -> None:
        if not expected:
            barrier.expect_one_more()
        barrier.arrive()

    _update(batch, batch.instruction.operands[0], act)


class _Sleepers(Unit):
    """Lanes that wait for a phase at one `try_wait`, by the mbarrier that wakes them.

    `asleep`: bool (lanes,). Waking looks only at the mbarriers whose phases have ended since the last time.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.asleep = np.zeros(machine.wave.lane_count, bool)
        self._by_mbarrier: dict[int, dict[int, list[Array]]] = {}  # by the instruction's number, then by address
        self._seen: dict[int, int] = {}

    def wake(self, site: int, *, everyone: bool) -> None:
        """Wake those at the instruction whose mbarriers have ended a phase."""
        sleepers, over = self._by_mbarrier.setdefault(site, {}), self.machine.memory.phases_over
        ended = set(over[self._seen.get(site, 0) :])
        self._seen[site] = len(over)
        for pointer in [pointer for pointer in sleepers if everyone or pointer in ended]:
            for lanes in sleepers.pop(pointer):
                self.asleep[lanes] = False

    def put_to_sleep(self, site: int, pointer: int, lanes: Array) -> None:
        """These lanes wait at the instruction for a phase of that mbarrier."""
        self._by_mbarrier[site].setdefault(pointer, []).append(lanes)
        self.asleep[lanes] = True


def _waits_for(machine: Machine, instruction: Instruction, lane: int) -> str:
    """What a lane that is suspended at a `try_wait` waits for, for the explanation of a deadlock."""
    batch = LaneBatch(machine, instruction, np.array([lane]))
    found = _pointers(batch, instruction.operands[1], Access.MBARRIER)
    barrier = Mbarrier.read(found[0][1]) if found else None
    if barrier is None:
        return "for an mbarrier that is not initialised"
    needs = [f"{barrier.missing} of {barrier.expected} arrivals"] if barrier.missing else []
    needs += [f"{barrier.bytes} bytes"] if barrier.bytes > 0 else []
    more = f"; {-barrier.bytes} bytes came that it was not told to expect" if barrier.bytes < 0 else ""
    missing = " and ".join(needs) or "no arrival"
    place = machine.wave.shared_place(found[0][1])
    return f"for the mbarrier at {place}, whose phase (parity {barrier.parity}) still needs {missing}{more}"


def _phases_over(machine: Machine) -> int:
    return len(machine.memory.phases_over)


@lane_operation("mbarrier.test_wait", "mbarrier.try_wait", waits_for=_waits_for, changes=_phases_over)
def wait(batch: LaneBatch) -> Array:
    """`mbarrier.{test,try}_wait{.parity} p, [a], state-or-parity{, time}`; the lanes of a `try_wait` that have to wait
    are not done."""
    sleepers, site, patient = batch.machine.unit(_Sleepers), batch.instruction.number, batch.machine.patient
    waits = "try_wait" in batch.instruction.modifiers and patient
    sleepers.wake(site, everyone=not patient)
    awake = ~sleepers.asleep[batch.lanes]
    done = awake.copy()
    if not awake.any():
        return done
    asking = LaneBatch(batch.machine, batch.instruction, batch.lanes[awake])
    over, pointers = _phases_ended(asking)
    answered = over | (not waits)
    asking.write(batch.instruction.operands[0], over, answered)
    done[awake] = answered
    for pointer, lanes in _by_mbarrier(pointers[~answered], asking.lanes[~answered]):
        sleepers.put_to_sleep(site, pointer, lanes)
    return done


def _phases_ended(batch: LaneBatch) -> tuple[Array, Array]:
    """bool (n,): whether the phase that each lane asks for is over, which those lanes acquire; and (n,) mbarriers."""
    _, address, phase, *_ = batch.instruction.operands
    by_parity = "parity" in batch.instruction.modifiers
    phases = batch.read(phase, np.uint32 if by_parity else np.uint64)
    asked = (phases if by_parity else phases >> np.uint64(PARITY_SHIFT)) & phases.dtype.type(1)
    pointers = _host_addresses(batch, address, Access.MBARRIER)
    batch.machine.unit(Initialisations).check(batch.lanes, pointers, batch.instruction)
    exists, parity = parities(batch.memory.gather(pointers, _SIZE).view(np.uint64)[:, 0])
    for index in np.flatnonzero(~exists & (pointers > 0)).tolist():
        _mbarrier_at(batch, index, int(pointers[index]))
    ended = (asked.astype(bool) ^ parity) & exists
    tell = batch.memory.see if "relaxed" in batch.instruction.modifiers else batch.memory.acquire
    waited = ended & bool(batch.memory.orders_waits)
    for pointer, lanes in _by_mbarrier(pointers[waited], batch.lanes[waited]):
        tell(lanes, pointer)
    return ended | ~exists, pointers


def _by_mbarrier(pointers: Array, lanes: Array) -> Iterator[tuple[int, Array]]:
    """Each mbarrier, and which of the lanes are at it."""
    order = np.argsort(pointers, kind="stable")
    ordered, lanes = pointers[order], lanes[order]
    starts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    for start, end in pairwise([*([0] if len(ordered) else ()), *starts.tolist(), len(ordered)]):
        yield int(ordered[start]), lanes[start:end]


@lane_operation("mbarrier.pending_count")
def pending_count(batch: LaneBatch) -> None:
    """`mbarrier.pending_count d, state`: arrivals that were missing before the one that gave the state."""
    destination, state = batch.instruction.operands
    words = [Mbarrier.unpack(int(word)) for word in batch.read(state, np.uint64)]
    batch.write(destination, np.array([barrier.missing if barrier else 0 for barrier in words], np.uint32))


# --------------------------------------------------------------------------------------------------------- mbarriers


def _update(
    batch: LaneBatch, address: Operand, act: _Act, state: Operand | None = None, *, releases: bool = True
) -> None:
    """Change the mbarrier of each lane, one lane after another; the states before go to `state`."""
    before = np.zeros(len(batch.lanes), np.uint64)
    pointers = _host_addresses(batch, address, Access.MBARRIER)
    sound = np.flatnonzero(pointers)
    batch.machine.unit(Initialisations).check(batch.lanes, pointers, batch.instruction)
    if releases:
        _release(batch, pointers[sound], batch.lanes[sound])
    for index, pointer in zip(sound.tolist(), pointers[sound].tolist(), strict=True):
        barrier = _mbarrier_at(batch, index, pointer)
        if barrier is None:
            continue
        before[index] = barrier.pack()
        _checked(batch, index, partial(act, barrier, index))
        barrier.write(pointer)
        if "expect_tx" in batch.instruction.modifiers:
            batch.machine.unit(Mbarriers).counts_bytes(pointer)
        if barrier.phases:
            batch.memory.phase_over(int(batch.lanes[index]), pointer)
    if state is not None and not isinstance(state, Sink):
        batch.write(state, before)


def _release(batch: LaneBatch, pointers: Array, lanes: Array) -> None:
    """Tell the race check what arrivals release; those at scope `.cta` release nothing to another block."""
    memory, wave, words = batch.memory, batch.wave, batch.instruction.modifiers
    relaxed = "relaxed" in words
    if "cta" in words and wave.cluster_blocks > 1:
        own = wave.blocks_at(pointers) == wave.block_of_lane[lanes]
        pointers, lanes = pointers[own], lanes[own]
    if len(lanes) and not relaxed:  # who waits for an arrival that releases nothing does not learn of it here
        memory.arriving(lanes, pointers.astype(np.int64), batch.instruction.number)
    release = memory.release_fenced if relaxed else memory.release
    for pointer, mine in _by_mbarrier(pointers, lanes):
        release(mine, pointer)


def _pointers(batch: LaneBatch, address: Operand, kind: Access) -> list[tuple[int, int]]:
    """(index of the lane, host address) of every lane whose address is sound."""
    return [(index, pointer) for index, pointer in enumerate(_host_addresses(batch, address, kind).tolist()) if pointer]


def _host_addresses(batch: LaneBatch, address: Operand, kind: Access) -> Array:
    """uint64 host addresses, 0 where an address is not sound."""
    instruction = batch.instruction
    if not isinstance(address, Address):
        raise UnsupportedInstruction(batch.instruction, "the address is not in brackets")
    words = instruction.modifiers
    if instruction.opcode == "mbarrier" and (strange := set(words) - _WORDS - set(_SPACES)):
        raise UnsupportedInstruction(instruction, f".{sorted(strange)[0]}")
    space = Space.SHARED if set(words) & set(_SPACES) else Space.GENERIC
    return batch.memory.pointers(batch.lanes, space, batch.address(address), _SIZE, kind, instruction.number)


def _mbarrier_at(batch: LaneBatch, index: int, pointer: int) -> Mbarrier | None:
    """The mbarrier there, or None and a finding: the word was never initialised, or has been overwritten."""
    barrier = Mbarrier.read(pointer)
    if barrier is None:
        place = batch.wave.shared_place(pointer)
        message = f"`{batch.instruction.full_opcode}` on {place}, which {NOT_ONE}"
        batch.wave.report(FaultKind.INVALID_OPERAND, message, batch.lanes[index : index + 1], batch.instruction)
    return barrier


def _checked(batch: LaneBatch, index: int, act: Callable[[], None]) -> None:
    """Do it; what an mbarrier does not take becomes a finding."""
    try:
        act()
    except MbarrierError as error:
        message = f"`{batch.instruction.full_opcode}`: {error}"
        batch.wave.report(FaultKind.INVALID_OPERAND, message, batch.lanes[index : index + 1], batch.instruction)
