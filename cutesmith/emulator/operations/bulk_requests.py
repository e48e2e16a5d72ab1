"""What the instructions of bulk copies share: reading their modifiers and operands, and asking the copy engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cutesmith.emulator.engines.copy_engine import Combine, Copy, CopyEngine, Landing
from cutesmith.emulator.engines.mbarrier_state import NOT_ONE, parities
from cutesmith.emulator.engines.places import CHUNK, Place, SharedTile
from cutesmith.emulator.faults import FaultKind, UnsupportedInstruction
from cutesmith.emulator.machine.initialisations import Initialisations
from cutesmith.emulator.machine.lanes import LaneBatch
from cutesmith.emulator.program.abi import SHARED_RANK_SHIFT, SHARED_WINDOW, WINDOW_BYTES, Access, Array, Space
from cutesmith.emulator.ptx.syntax import Address, Instruction, Operand
from cutesmith.emulator.sanitizer.actors import Channel, Engine, Request

MBARRIER = "mbarrier::complete_tx::bytes"
GROUP = "bulk_group"
MULTICAST = "multicast::cluster"
HINT = "L2::cache_hint"
_MBARRIER_BYTES = 8
_OFFSET = (1 << SHARED_RANK_SHIFT) - 1


@dataclass(frozen=True)
class Form:
    """The modifiers of a bulk copy: `words` without those of the state spaces."""

    target: str
    source: str
    words: frozenset[str]

    @property
    def counted(self) -> bool:
        """Whether an mbarrier counts the bytes; else they belong to a bulk group."""
        return MBARRIER in self.words


def take_words(instruction: Instruction, modifiers: tuple[str, ...], *known: str) -> frozenset[str]:
    """The modifiers as a set; raises UnsupportedInstruction for one that is not `known`."""
    if strange := [word for word in modifiers if word not in known]:
        raise UnsupportedInstruction(instruction, f".{strange[0]}")
    return frozenset(modifiers)


def address_operand(instruction: Instruction, operand: Operand) -> Address:
    """An operand in brackets; raises UnsupportedInstruction for another."""
    if not isinstance(operand, Address):
        raise UnsupportedInstruction(instruction, "an address is not in brackets")
    return operand


def shared_addresses(batch: LaneBatch, operand: Operand) -> Array:
    """int64 shared addresses with the rank of their block, also of generic addresses."""
    addresses = batch.address(address_operand(batch.instruction, operand)).astype(np.int64)
    generic = (addresses >= SHARED_WINDOW) & (addresses < SHARED_WINDOW + WINDOW_BYTES)
    return np.where(generic, addresses - SHARED_WINDOW, addresses)


@dataclass(slots=True)
class LaneRequest:
    """One lane at an instruction of bulk copies; what is wrong with its operands becomes a finding.

    `index` in the batch; `lane` in the wave. `sharers`: lanes of its warp that ask for the same.
    """

    batch: LaneBatch
    index: int
    lane: int
    sound: bool = True
    sharers: tuple[int, ...] = ()

    def refuse(self, message: str, kind: FaultKind = FaultKind.INVALID_OPERAND) -> None:
        """A finding for this lane, which asks for nothing then."""
        batch = self.batch
        batch.wave.report(kind, f"`{batch.instruction.full_opcode}`: {message}", batch.lanes[[self.index]], batch.instruction)  # noqa: E501  # fmt: skip
        self.sound = False

    def need_aligned(self, address: int, unit: int, what: str) -> None:
        """Refuse an address that is not a multiple."""
        if address % unit:
            self.refuse(f"{what} {address & _OFFSET:#x} is not a multiple of {unit}", FaultKind.MISALIGNED)

    def named(self, key: tuple[object, ...]) -> Request:
        """The request of a channel with that key."""
        batch = self.batch
        return batch.memory.request(self.lane, Channel(Engine.COPY, key), batch.instruction.number)

    def reading(self, target: Landing | None) -> Request:
        """The request that reads the source: observed with the first destination's mbarrier, or by `.read` waits."""
        if target is not None and target.mbarrier:
            return target.request
        return self.named(("reads of bulk groups", self.lane))

    def mbarrier_at(self, address: int) -> int:
        """The host address of an mbarrier, 0 where there is none."""
        return mbarriers_at([self], [address])[0]

    def landing(self, address: int, mbarrier: int, size: int, kind: Access) -> Landing | None:
        """A destination in shared memory whose bytes an mbarrier counts."""
        return landings([Wanted(self, address, size, mbarrier=mbarrier)], kind)[0]

    def blocks_of(
        self, mask: int | None, address: int, mbarrier: int, *, pair: bool = False
    ) -> Iterator[tuple[int, int]]:
        """Shared addresses of destination and mbarrier in each block of a mask, or those that were given.

        With `pair`, the mbarrier is in that block of each pair (even or odd) in which the given one is.
        """
        if mask is None:
            yield address, mbarrier
            return
        blocks = self.batch.wave.cluster_blocks
        if not mask or mask >> blocks:
            self.refuse(f"the mask {mask:#x} of blocks in a cluster of {blocks}")
            return
        for rank in range(blocks):
            if mask >> rank & 1:
                counting = rank & ~1 | mbarrier >> SHARED_RANK_SHIFT & 1 if pair else rank
                yield rank << SHARED_RANK_SHIFT | address & _OFFSET, counting << SHARED_RANK_SHIFT | mbarrier & _OFFSET

    def begin(
        self, source: Place | None, reading: Request, landings: list[Landing | None], combine: Combine | None = None
    ) -> None:
        """Ask the copy engine, unless something was refused."""
        targets = [landing for landing in landings if landing is not None]
        if source is None or not self.sound or len(targets) < len(landings):
            return
        copy = Copy(self.lane, self.batch.instruction, source, reading, targets, combine, self.sharers)
        self.batch.machine.unit(CopyEngine).begin(copy, grouped=not any(target.mbarrier for target in targets))


class Wanted(NamedTuple):
    """`size` bytes of shared memory that a lane wants to be read or filled: `order`, `span`, `chunk` as in SharedTile.

    `mbarrier`: the shared address of the one that counts them.
    """

    lane: LaneRequest
    address: int
    size: int
    order: Array | None = None
    span: int = 0
    mbarrier: int = 0
    chunk: int = CHUNK


def mbarriers_at(lanes: Sequence[LaneRequest], addresses: Sequence[int]) -> list[int]:
    """The host addresses of mbarriers that lanes at one instruction name, 0 and a finding where there is none."""
    batch, where = lanes[0].batch, np.array(addresses, np.uint64)
    asking = batch.lanes[[lane.index for lane in lanes]]
    site = batch.instruction.number
    found = batch.memory.pointers(asking, Space.SHARED, where, _MBARRIER_BYTES, Access.MBARRIER, site)
    exist, _ = parities(batch.memory.gather(found, _MBARRIER_BYTES).view(np.uint64)[:, 0])
    batch.machine.unit(Initialisations).check(asking, found, batch.instruction)
    pointers: list[int] = found.tolist()
    for index in np.flatnonzero(~exist).tolist():
        if pointers[index]:
            lanes[index].refuse(f"{batch.wave.shared_place(pointers[index])} {NOT_ONE}")
        lanes[index].sound = False
    return pointers


def shared_tiles(wanted: Sequence[Wanted], requests: Sequence[Request], kind: Access) -> list[SharedTile | None]:
    """Bytes of shared memory, checked, gaps included where there is a `span`; None where refused."""
    addresses = np.array([want.address for want in wanted], np.uint64)
    sizes = [want.span or want.size for want in wanted]
    memory = wanted[0].lane.batch.memory
    tiles: list[SharedTile | None] = []
    for want, pointer in zip(
        wanted, memory.requested_each(requests, addresses, sizes, Space.SHARED, kind).tolist(), strict=True
    ):
        want.lane.sound &= bool(pointer)
        tiles.append(SharedTile(pointer, want.size, want.order, want.span, want.chunk) if pointer else None)
    return tiles


def landings(wanted: Sequence[Wanted], kind: Access) -> list[Landing | None]:
    """Destinations in shared memory whose bytes mbarriers count; None where refused."""
    counters = mbarriers_at([want.lane for want in wanted], [want.mbarrier for want in wanted])
    requests = [want.lane.named(("mbarrier", counter)) for want, counter in zip(wanted, counters, strict=True)]
    found = zip(shared_tiles(wanted, requests, kind), requests, counters, strict=True)
    return [Landing(tile, request, counter) if tile and counter else None for tile, request, counter in found]


def lane_requests(batch: LaneBatch) -> list[LaneRequest]:
    """Every lane of a batch."""
    return [LaneRequest(batch, index, lane) for index, lane in enumerate(batch.lanes.tolist())]


def once_a_warp(ask: Callable[[LaneBatch], None], batch: LaneBatch) -> Array:
    """Ask for the lanes of warps that have converged; the others, bool (n,) False, wait for the rest of theirs.

    After `if elect_one: …` the compiled code of a GPU brings a warp together again, which PTX does not show.
    """
    there = batch.machine.converged(batch.lanes)
    if there.any():
        ask(LaneBatch(batch.machine, batch.instruction, batch.lanes[there]))
    return there


def warp_requests(batch: LaneBatch, *operands: Array) -> list[LaneRequest]:
    """The lanes of a batch, those of a warp with equal operands (n,) as one.

    A GPU runs bulk stores once for a warp whose lanes agree: kernels of the DSL reduce into global memory without
    electing a lane, and the sum is added once. Copies that an mbarrier counts elect one, so they are not merged.
    """
    warps = batch.machine.warps.warp_of_lane[batch.lanes]
    asked = np.stack([warps, *(values.astype(np.int64) for values in operands)], axis=1)
    starts = np.flatnonzero(np.append(True, (asked[1:] != asked[:-1]).any(axis=1)))
    found: dict[tuple[int, ...], LaneRequest] = {}
    lanes = batch.lanes.tolist()
    for key, (start, end) in zip(asked[starts].tolist(), pairwise([*starts.tolist(), len(asked)]), strict=True):
        first = found.setdefault(tuple(key), LaneRequest(batch, start, lanes[start]))
        first.sharers += tuple(lanes[start + (first.index == start) : end])
    return list(found.values())
