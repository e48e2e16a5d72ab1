"""The address space of a launch: checked access for handlers, and what barriers tell the sanitizer."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from cutesmith.emulator.machine.allocation_table import AllocationTable
from cutesmith.emulator.native.jit import compiled_access
from cutesmith.emulator.program.abi import Access, Array, Context, Space
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.sanitizer import cells
from cutesmith.emulator.sanitizer.access import access_ir
from cutesmith.emulator.sanitizer.actors import Asked, Channel, Request
from cutesmith.emulator.sanitizer.block_ends import RemoteArrivals, report_accesses_after_end
from cutesmith.emulator.sanitizer.clocks import Clocks
from cutesmith.emulator.sanitizer.explanations import Explainer
from cutesmith.emulator.sanitizer.fault_table import FaultBuffer
from cutesmith.emulator.sanitizer.launch_clocks import LaunchClocks
from cutesmith.emulator.sanitizer.layout import (
    CACHED_SITES,
    PENDING_WORDS,
    Sanitizer,
    site_flags,
)
from cutesmith.emulator.sanitizer.shared_shadows import SharedCells
from cutesmith.emulator.state.allocations import Allocations
from cutesmith.emulator.state.lent_arrays import LentArrays
from cutesmith.emulator.state.wave import Wave

_COMMON: list[Any] = [ctypes.c_void_p] * 3 + [ctypes.c_int64] + [ctypes.c_int32] * 3


class Memory:
    """The memory of one launch of `program`.

    Bounds and alignment are always checked; with `sanitize` also initialisation, races and missing waits. `unchecked`
    names the allocations whose shadows would be too large. Faults become findings of the wave at `drain`.
    `phases_over`: of which objects phases have ended, mbarriers by host address, one after another.
    `module_symbols`: addresses of the module's `.global` and `.const` variables. `lent`: arrays of launches
    that have ended.
    """

    def __init__(
        self, program: Program, allocations: Allocations, *, sanitize: bool = True, lent: LentArrays | None = None
    ) -> None:
        self.allocations = allocations
        self.lent = LentArrays() if lent is None else lent
        self.sanitize = sanitize
        self.phases_over: list[Hashable] = []
        self.module_symbols = allocations.variables(program.module, program.module_variables)
        self._symbol_table = np.array([self.module_symbols[v.name] for v in program.module_variables] or [0], np.int64)
        self._faults = FaultBuffer()
        self._launch_clocks = LaunchClocks()
        self._sites = site_flags(program)
        self._pending = np.zeros(PENDING_WORDS, np.int64)
        self._hits = np.zeros(CACHED_SITES, np.int64)
        self._visited: Array = np.zeros(0, np.uint8)  # by block of the wave: whether another block came to its memory
        self._table = AllocationTable.of(allocations.all, self.lent, shadowed=sanitize)
        self.unchecked = self._table.unchecked

    def attach(self, wave: Wave) -> None:
        """A new wave of the launch begins: fill the words of its context that belong to memory and sanitizer."""
        self.wave = wave
        self._seen: dict[int, set[Hashable]] = {}  # by lane: what relaxed waits have seen since its last fence
        self._fenced: set[int] = set()
        self.clocks = Clocks(wave, self._launch_clocks)
        context = wave.context
        context[Context.ALLOCATIONS] = self._table.words.ctypes.data
        context[Context.ALLOCATION_COUNT] = len(self.allocations.all)
        context[Context.FAULTS] = self._faults.address
        context[Context.MODULE_SYMBOLS] = self._symbol_table.ctypes.data
        context[Sanitizer.PARAMETER_BYTES] = wave.program.parameter_bytes
        context[Sanitizer.LAST_ALLOCATIONS] = self._hits.ctypes.data
        context[Sanitizer.SITES] = self._sites.ctypes.data
        context[Sanitizer.PENDING] = self._pending.ctypes.data
        self.clocks.fill(context)
        if self.sanitize:
            self._shadow_wave(wave)
        self._engine_context = self.clocks.engine_context()
        self._engine_address = int(self._engine_context.ctypes.data)

    def _shadow_wave(self, wave: Wave) -> None:
        """Cells for the shared memory of the wave's blocks, flags for the local memory of its lanes."""
        self._shared_cells = SharedCells(wave, self.lent)
        self._local_initialised = self.lent.take("initialised", wave.local.shape, np.uint8)
        self._visited = np.zeros(len(wave.blocks), np.uint8)
        self._arrivals = RemoteArrivals()
        wave.context[Sanitizer.LOCAL_INITIALISED] = self._local_initialised.ctypes.data
        wave.context[Sanitizer.SHARED_VISITED] = self._visited.ctypes.data

    # ------------------------------------------------------------------------------------------------------ access

    def load(self, lanes: Array, space: Space, addresses: Array, size: int, site: int) -> Array:
        """uint8 (n, size); zeros where the access was refused. `site`: the instruction's number."""
        data = np.zeros((len(lanes), size), np.uint8)
        self._call("access_load", lanes, space, addresses, size, site, data.ctypes.data)
        return data

    def store(self, lanes: Array, space: Space, addresses: Array, data: Array, site: int) -> None:
        """Write uint8 (n, size), in the order of `lanes`."""
        data = np.ascontiguousarray(data, np.uint8)
        self._call("access_store", lanes, space, addresses, data.shape[1], site, data.ctypes.data)

    def pointers(self, lanes: Array, space: Space, addresses: Array, size: int, kind: Access, site: int) -> Array:
        """uint64 host addresses of checked accesses, 0 where refused; of conflicting writes all values are compared
        before the next access is checked, so write at once."""
        pointers = np.zeros(len(lanes), np.uint64)
        self._call("access_pointers", lanes, space, addresses, size, site, int(kind), pointers.ctypes.data)
        return pointers

    def _call(self, name: str, lanes: Array, space: Space, addresses: Array, size: int, site: int, *last: int) -> None:
        lanes = np.ascontiguousarray(lanes, np.int64)
        addresses = np.ascontiguousarray(addresses, np.uint64)
        where = self.wave.context.ctypes.data
        _function(name)(where, lanes.ctypes.data, addresses.ctypes.data, len(lanes), int(space), size, site, *last)

    def drain(self) -> None:
        """Turn the faults that native code wrote down into findings of the wave."""
        _function("access_settle")(self.wave.context.ctypes.data)
        if self._faults.empty:
            return
        explainer = Explainer(self.wave, self.allocations, self.clocks.first_serial)
        for record in self._faults.take():
            self.wave.findings.add(explainer.finding(record), int(record["site"]))

    # ------------------------------------------------------------------------------------------------------ engines

    def requested(self, asked: Sequence[Asked], space: Space, kind: Access) -> list[Array]:
        """uint64 host addresses of what engines will access for one instruction, 0 where refused, for each request.

        They are checked now, by what the lanes know. Bytes of shared memory that are written (WRITE) are under way
        until `landed`; updates (ATOMIC) are not.
        """
        requests, addresses, sizes, lanes = zip(*asked, strict=True)
        counts = [len(each) for each in addresses]
        words = np.repeat(_words_of(requests, sizes, space, kind), counts, axis=1)
        bounds = list(pairwise(accumulate(counts, initial=0)))
        for (begin, end), others in zip(bounds, lanes, strict=True):
            if others is not None:
                words[0, begin:end] = others
        pointers = self._check_requests(words, np.concatenate(addresses), space, requests[0].site, kind)
        return [pointers[begin:end] for begin, end in bounds]

    def requested_each(
        self, requests: Sequence[Request], addresses: Array, sizes: Sequence[int], space: Space, kind: Access
    ) -> Array:
        """The same, uint64 (n,), for requests of one access each."""
        return self._check_requests(_words_of(requests, sizes, space, kind), addresses, space, requests[0].site, kind)

    def _check_requests(self, words: Array, addresses: Array, space: Space, site: int, kind: Access) -> Array:
        lanes, cells_of, sizes = (int(row.ctypes.data) for row in words)
        pointers = np.empty(len(addresses), np.uint64)
        where = np.ascontiguousarray(addresses, np.uint64)
        scalars = (len(addresses), int(space), site, int(kind))
        arrays = (lanes, where.ctypes.data, cells_of, sizes)
        _function("access_requests")(self._engine_address, *arrays, *scalars, pointers.ctypes.data)
        return pointers

    def engines_see_alike(self, lanes: Array) -> bool:
        """Whether these lanes of one block come after the same, as far as requests to engines go."""
        return not self.sanitize or self.clocks.engines_see_alike(lanes)

    def landed(self, request: Request, pointer: int, size: int) -> None:
        """An engine has written bytes of shared memory at a host address."""
        if self.sanitize:
            start = pointer - self.wave.shared_start
            serial = self.clocks.first_serial + int(self.wave.block_of_lane[request.lane])
            cell = _cell_of(request) | serial << cells.SERIAL_SHIFT | min(request.site, cells.MAX_SITE)
            self._shared_cells.write(start, size, cell)

    def gather(self, pointers: Array, size: int) -> Array:
        """uint8 (n, size): the bytes at host addresses that were checked; zeros where 0."""
        rows = np.zeros((len(pointers), size), np.uint8)
        self.gather_to(rows.ctypes.data, pointers, size)
        return rows

    def gather_to(self, target: int, pointers: Array, size: int) -> None:
        """Copy `size` bytes from each host address that is not 0 to a host address, one after another."""
        _function("access_copy_rows")(pointers.ctypes.data, target, len(pointers), size, 1)

    def scatter(self, pointers: Array, rows: Array) -> None:
        """Write uint8 (n, size) to host addresses that were checked; those that are 0 are left out."""
        rows = np.ascontiguousarray(rows)
        _function("access_copy_rows")(pointers.ctypes.data, rows.ctypes.data, len(rows), rows.shape[1], 0)

    def request(self, lane: int, channel: Channel, site: int) -> Request:
        """A lane asks an engine for something: how the race check names it from now on."""
        if not self.sanitize:
            return Request(lane, 0, 0, site)
        return Request(lane, *self.clocks.request(lane, channel), site)

    def completes(self, request: Request, key: Hashable) -> None:
        """An engine has done what was asked for: who waits for the phase of `key` will know."""
        if self.sanitize:
            self.clocks.land(request.lane, key, request.channel, request.time)

    def finished(self, request: Request, key: Hashable, known: Array | None) -> None:
        """All that a lane asked an engine for is done, which came after what is `known`: waiters for `key` learn it."""
        if self.sanitize and known is not None:
            known = known.copy()
            column = self.clocks.column(request.channel)
            known = np.pad(known, (0, max(0, column + 1 - len(known))))
            known[column] = max(known[column], request.time)
            self.clocks.finish(request.lane, key, known)

    def known(self, lanes: Array) -> Array | None:
        """What any of these lanes of one cluster knows of, by columns (sanitizer/clocks.py); None: not kept."""
        return self.clocks.known(lanes) if self.sanitize else None

    def is_known(self, known: Array, request: Request) -> bool:
        """Whether it is `known` (columns,) that what was asked for is done."""
        return bool(known[self.clocks.column(request.channel)] >= request.time)

    def awaited(self, lanes: Array, request: Request) -> None:
        """Lanes of one block have waited for what was asked for, and for all that the channel was asked before."""
        if self.sanitize:
            self.clocks.learn_channel(lanes, request.channel, request.time)

    def proxy_fence(self, lanes: Array) -> None:
        """These lanes have executed `fence.proxy.async`."""
        if self.sanitize and len(lanes):
            self.clocks.proxy_fence(np.asarray(lanes, np.int64))

    def phase_over(self, lane: int, key: Hashable) -> None:
        """A phase of `key`, in the cluster of the lane, is over: what was released to it can be acquired."""
        self.phases_over.append(key)
        if self.sanitize:
            self.clocks.complete(int(self.wave.cluster_of_lane[lane]), key)

    # ------------------------------------------------------------------------------------------------------- order

    def blocks_ended(self) -> None:
        """All lanes of the wave have ended: look for uses of shared memory of blocks that may have ended before."""
        if self.sanitize:
            self._arrivals.report_late(self.wave, self.clocks)
        if self.sanitize and self._visited.any():
            blocks = np.flatnonzero(self._visited).tolist()
            report_accesses_after_end(self.wave, self.clocks, blocks, self._shared_cells)

    def synchronise_blocks(self, blocks: Array) -> None:
        """All lanes of each of these blocks of the wave have met at a barrier."""
        if self.sanitize:
            self.clocks.synchronise_blocks(np.asarray(blocks, np.int64))

    def synchronise_lanes(self, lanes: Array) -> None:
        """These lanes have met at a barrier (or arrived there before): a part of one block."""
        if self.sanitize:
            self.clocks.synchronise_lanes(np.asarray(lanes, np.int64))

    def synchronise_warps(self, members: Array, active: Array) -> None:
        """The active lanes of each warp have met at `bar.warp.sync`.

        Other `.sync` instructions order no memory, as the PTX ISA says of them.
        """
        if self.sanitize and active.any():
            self.clocks.synchronise_warps(members, active)

    def release_cluster(self, lanes: Array) -> None:
        """These lanes have arrived at their cluster's barrier: what they did comes before what its waiters do next."""
        if self.sanitize:
            self.clocks.release_cluster(lanes)

    def acquire_cluster(self, lanes: Array) -> None:
        """These lanes have waited for their cluster's barrier."""
        if self.sanitize:
            self.clocks.acquire_cluster(lanes)

    def fence(self, lanes: Array) -> None:
        """These lanes have executed a fence of memory (`fence.acq_rel`, `fence.sc`, `membar`), of any scope."""
        if self.sanitize and len(lanes):
            self.clocks.fence(np.asarray(lanes, np.int64))
            self.fence_relaxed(lanes)

    def fence_relaxed(self, lanes: Array) -> None:
        """A fence of these lanes acquires what they saw by relaxed waits; their relaxed arrivals after it release."""
        for lane in np.asarray(lanes).tolist() if self.sanitize else ():
            self._fenced.add(lane)
            for key in self._seen.pop(lane, ()):
                self.clocks.acquire(np.array([lane]), key)

    def see(self, lanes: Array, key: Hashable) -> None:
        """These lanes have waited for a phase of `key` by relaxed waits: a fence may acquire it."""
        for lane in lanes.tolist() if self.sanitize else ():
            self._seen.setdefault(lane, set()).add(key)

    def release_fenced(self, lanes: Array, key: Hashable) -> None:
        """These lanes arrive at `key` relaxed: those that have executed a fence release to it."""
        fenced = [lane for lane in lanes.tolist() if lane in self._fenced]
        if fenced:
            self.release(np.array(fenced), key)

    def release(self, lanes: Array, key: Hashable) -> None:
        """What these lanes of one cluster did comes before what acquirers of `key` do next."""
        if self.sanitize:
            self.clocks.release(np.asarray(lanes, np.int64), key)

    def arriving(self, lanes: Array, pointers: Array, site: int) -> None:
        """These lanes arrive at mbarriers, and what they release there comes before what its waiters do next."""
        if self.sanitize and self.wave.cluster_blocks > 1:
            self._arrivals.note(self.wave, self.clocks, lanes, pointers, site)

    @property
    def orders_waits(self) -> bool:
        """Whether there is anything that a wait could acquire."""
        return self.sanitize and self.clocks.orders_waits

    def acquire(self, lanes: Array, key: Hashable) -> None:
        """These lanes of one cluster have seen what was released to `key`."""
        if self.sanitize:
            self.clocks.acquire(np.asarray(lanes, np.int64), key)

    def copies_issued(self, lanes: Array, pointers: Array, size: int, site: int) -> None:
        """Copies of these lanes are under way to host addresses (n,) in the wave's shared memory, of 4 to 16 bytes."""
        self._mark(lanes, pointers, size, cells.PENDING, cells.MAX_TIME, site)

    def copies_landed(self, lanes: Array, pointers: Array, size: int, site: int) -> None:
        """Their bytes have arrived, and count as written now by the threads that issued them."""
        self._mark(lanes, pointers, size, lanes % self.wave.threads_per_block, self.clocks.time_of(lanes), site)

    def _mark(
        self, lanes: Array, pointers: Array, size: int, thread: Array | int, time: Array | int, site: int
    ) -> None:
        if self.sanitize:
            starts = (pointers - np.uint64(self.wave.shared_start)).astype(np.int64)
            packed = cells.pack(self.clocks.serial_of(lanes), thread, time, site)
            self._shared_cells.write_rows(starts, size, packed)


def _words_of(requests: Sequence[Request], sizes: Sequence[int], space: Space, kind: Access) -> Array:
    """int64 (3, n): lanes, cells and sizes of requests, as native code takes them."""
    words = np.array(requests, np.int64).T
    channels, times = words[1], words[2]
    if kind is Access.WRITE and space is Space.SHARED:  # under way until they have landed
        channels, times = np.full_like(channels, cells.PENDING), np.full_like(times, cells.MAX_TIME)
    engine = np.int64(cells.ENGINE - (1 << 64))
    return np.stack([words[0], channels << cells.THREAD_SHIFT | times << cells.TIME_SHIFT | engine, np.array(sizes)])


def _cell_of(request: Request) -> int:
    """The cell of a request's accesses, without what native code adds."""
    return request.channel << cells.THREAD_SHIFT | request.time << cells.TIME_SHIFT | cells.ENGINE


_LAST: dict[str, list[Any]] = {
    "access_load": [ctypes.c_void_p],
    "access_store": [ctypes.c_void_p],
    "access_pointers": [ctypes.c_int32, ctypes.c_void_p],
}


_OTHERS: dict[str, list[Any]] = {
    "access_settle": [ctypes.c_void_p],
    "access_requests": [ctypes.c_void_p] * 5 + [ctypes.c_int64] + [ctypes.c_int32] * 3 + [ctypes.c_void_p],
    "access_copy_rows": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32],
}


@cache
def _function(name: str) -> Callable[..., None]:
    """A function of the IR of `access`."""
    types: list[Any] = _OTHERS.get(name) or [*_COMMON, *_LAST[name]]
    address = compiled_access(access_ir()).get_function_address(name)
    return ctypes.CFUNCTYPE(None, *types)(address)
