"""Memory requests of warps, from the accesses of their lanes: sectors of global memory, wavefronts of shared memory.

A request is what the lanes of a warp access when they execute one instruction once. Global memory answers in sectors
of 32 bytes. Shared memory has 32 banks of 4 bytes: a wavefront serves one word of each bank, to any number of lanes;
8- and 16-byte accesses go by half and quarter warps. CUDA C++ Programming Guide, "Shared Memory", and Nsight Compute's
"Memory Tables" ("L1/TEX: sectors/request", "wavefronts").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.program.abi import WARP, Array

SECTOR = 32
BANKS = 32
WORD = 4
_NOWHERE = np.iinfo(np.int64).max
_MOST_FOR_STRIDE = 4096


@dataclass(frozen=True)
class Requests:
    """Requests of one instruction to one space, all of `size` bytes a lane.

    `addresses`: int64 (requests, 32), by lane of the warp; `active` says which lanes take part. A bulk copy is a
    request of one lane whose size is anything.
    """

    addresses: Array
    active: Array
    size: int

    @property
    def count(self) -> int:
        """How many requests."""
        return len(self.addresses)

    @property
    def accesses(self) -> int:
        """Accesses of single lanes."""
        return int(self.active.sum())

    def sectors(self) -> Array:
        """int64 (requests,): the 32-byte sectors that each request touches."""
        first, last = self.addresses // SECTOR, (self.addresses + self.size - 1) // SECTOR
        if self.size > SECTOR:
            spans: Array = np.where(self.active, last - first + 1, 0).sum(axis=1)
            return spans
        return _distinct(np.where(self.active, first, _NOWHERE))

    def ideal_sectors(self) -> Array:
        """int64 (requests,): as many as the distinct bytes of each request fill."""
        distinct = _distinct(np.where(self.active, self.addresses, _NOWHERE))
        return -(-distinct * self.size // SECTOR)

    def wavefronts(self) -> Array:
        """int64 (requests,): passes through the banks of shared memory; at least one a group that takes part."""
        passes: Array = self._passes().sum(axis=1)
        return passes

    def ideal_wavefronts(self) -> Array:
        """int64 (requests,): one pass for each part of the warp that goes by itself."""
        ideal: Array = (self._passes() > 0).sum(axis=1)
        return ideal

    def contention(self) -> Array:
        """int64 (requests,): most lanes that meet at one address."""
        ordered = np.sort(np.where(self.active, self.addresses, _NOWHERE), axis=1)
        runs = np.zeros(len(ordered), np.int64)
        longest = np.zeros(len(ordered), np.int64)
        for column in range(WARP):
            same = ordered[:, column] == ordered[:, column - 1] if column else False
            runs = np.where(ordered[:, column] == _NOWHERE, 0, np.where(same, runs + 1, 1))
            longest = np.maximum(longest, runs)
        return longest

    def lane_stride(self) -> int | None:
        """Bytes from a lane to the next, where most neighbours agree; None where they do not."""
        addresses, active = self.addresses[:_MOST_FOR_STRIDE], self.active[:_MOST_FOR_STRIDE]
        steps = np.diff(addresses, axis=1)[active[:, 1:] & active[:, :-1]]
        if not len(steps):
            return None
        values, counts = np.unique(steps, return_counts=True)
        best = int(counts.argmax())
        return int(values[best]) if 2 * counts[best] > len(steps) else None

    def _passes(self) -> Array:
        """int64 (requests, groups): wavefronts of each part of the warp."""
        words = max(1, -(-self.size // WORD))
        groups = 1 << (words - 1).bit_length()  # odd sizes come from copies that zero-fill the rest
        shape = (self.count, groups, WARP // groups)
        first = self.addresses.reshape(shape) // WORD
        touched = first[..., None] + np.arange(words)
        touched = np.where(self.active.reshape(shape)[..., None], touched, _NOWHERE).reshape(self.count * groups, -1)
        ordered = np.sort(touched, axis=1)
        fresh = ordered != _NOWHERE
        fresh[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
        rows = np.broadcast_to(np.arange(len(touched))[:, None], touched.shape)[fresh]
        banks = np.bincount(rows * BANKS + ordered[fresh] % BANKS, minlength=len(touched) * BANKS)
        busiest: Array = banks.reshape(len(touched), BANKS).max(axis=1) if len(touched) else banks[:0]
        return busiest.reshape(self.count, groups)


def _distinct(values: Array) -> Array:
    """int64 (rows,): distinct values of each row, _NOWHERE left out."""
    ordered = np.sort(values, axis=1)
    fresh = np.ones(ordered.shape, bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    counts: Array = (fresh & (ordered != _NOWHERE)).sum(axis=1)
    return counts


def requests_of(lanes: Array, addresses: Array, size: int, warp_of_lane: Array, place_in_warp: Array) -> Requests:
    """Requests of one instruction from its accesses in the order in which they were made.

    The k-th accesses of the lanes of a warp are one request: exact where its lanes stay together, as after a barrier.
    """
    order = np.argsort(lanes, kind="stable")
    lanes, addresses = lanes[order], addresses[order].astype(np.int64)
    begins = np.flatnonzero(np.diff(lanes, prepend=-1))
    turn = np.arange(len(lanes)) - np.repeat(begins, np.diff(begins, append=len(lanes)))
    warps = warp_of_lane[lanes].astype(np.int64)
    keys, rows = np.unique(warps * (int(turn.max(initial=0)) + 1) + turn, return_inverse=True)
    table = np.zeros((len(keys), WARP), np.int64)
    active = np.zeros((len(keys), WARP), bool)
    places = place_in_warp[lanes]
    table[rows, places], active[rows, places] = addresses, True
    return Requests(table, active, size)
