"""Multiplications of warpgroups under way: issued, committed in groups, and carried out when a wait covers them.

That is the latest moment that the rules allow, so what a kernel does too early shows: operands in shared memory are
read only then, and until then the registers of an accumulator hold *tokens*. A token is a signalling NaN as float32
that names the accumulator and the register's place in it. Copies of registers carry tokens along; the wait replaces
them by results in whatever registers they are.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from cutesmith.emulator.machine.machine import Machine, Unit
from cutesmith.emulator.machine.warpgroups import THREADS, WARPS
from cutesmith.emulator.program.abi import SHARED_RANK_SHIFT, Array
from cutesmith.emulator.ptx.syntax import Instruction, Register, Vector, bits_of
from cutesmith.emulator.sanitizer.actors import Request
from cutesmith.emulator.tensor_cores.arithmetic import WARPGROUP_CORE
from cutesmith.emulator.tensor_cores.descriptors import CHUNK, MatrixDescriptor, OperandTile
from cutesmith.emulator.tensor_cores.multiplication import Multiplication, compute
from cutesmith.emulator.tensor_cores.sparsity import compute_sparse
from cutesmith.emulator.tensor_cores.warpgroup_forms import ROWS, WarpgroupMultiply, parse_multiply

_NAN = 0x7F80_0000
_PLACE_BITS, _SERIAL_BITS = 7, 15  # 128 registers; the rest of a mantissa below its quiet bit
_SERIALS = (1 << _SERIAL_BITS) - 1


def tokens(serials: Array, count: int) -> Array:
    """uint64 (count, w): what the registers of an accumulator hold, by its serial number (from 1), (w,)."""
    words: Array = _NAN | serials << _PLACE_BITS | np.arange(count)[:, None]
    return words.astype(np.uint64)


def serials_in(registers: Array) -> Array:
    """The serial number that each register's token names, 0 for what is not a token."""
    words = registers.astype(np.uint32)
    found: Array = np.where(words >> 22 == _NAN >> 22, words >> _PLACE_BITS & _SERIALS, 0)
    return found.astype(np.int64)


@dataclass
class Issued:
    """A multiplication of w warpgroups: their numbers, serial numbers of accumulators, and groups, each int64 (w,).

    `a`: bits (w, 64, k) from registers, or host addresses of chunks, uint64 (w, *chunks); `b` such addresses.
    `accumulates` (w,): whether D is added. `requests`: how the race check names what is read, one a warpgroup.
    `chosen`: of a sparse A, the columns of its stored elements (w, 64, stored).
    """

    instruction: Instruction
    multiply: WarpgroupMultiply
    groups: Array
    serials: Array
    commits: Array
    a: Array
    b: Array
    accumulates: Array
    requests: list[Request]
    chosen: Array | None = None

    def select(self, chosen: Array) -> Issued:
        """For some of the warpgroups."""
        arrays = {name: getattr(self, name)[chosen] for name in "groups serials commits a b accumulates".split()}
        requests = [request for request, kept in zip(self.requests, chosen, strict=True) if kept]
        return replace(self, **arrays, requests=requests, chosen=None if self.chosen is None else self.chosen[chosen])


@dataclass
class Accumulator:
    """An accumulator in flight: bits uint32 (64, n), the form's product, who issued it last, how many times in all."""

    product: Multiplication
    bits: Array
    instruction: Instruction
    under_way: int = 0


class MultiplicationsInFlight(Unit):
    """The tensor cores of a wave.

    `fenced`: bool (warpgroups,), whether a warpgroup has executed `wgmma.fence`. `committed`: int64 (warpgroups,), how
    many groups it has committed. `accumulators`: by (warpgroup, serial number).
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        count = -(-machine.wave.lane_count // THREADS) + len(machine.wave.blocks)
        self.fenced = np.zeros(count, bool)
        self.committed = np.zeros(count, np.int64)
        self.accumulators: dict[tuple[int, int], Accumulator] = {}
        self._serials = np.zeros(count, np.int64)
        self._read: dict[int, WarpgroupMultiply] = {}
        self._rows: dict[int, tuple[Vector, Array]] = {}  # by identity of the operand, which is kept
        self._queue: list[Issued] = []

    def read(self, instruction: Instruction) -> WarpgroupMultiply:
        """A `wgmma.mma_async`, its operands sorted; each instruction is read once."""
        if instruction.number not in self._read:
            self._read[instruction.number] = parse_multiply(instruction)
        return self._read[instruction.number]

    def rows(self, vector: Vector) -> Array:
        """Rows of the frame that a vector's registers have, (registers, 1); what else it holds is left out."""
        if id(vector) not in self._rows:
            slots = self.machine.wave.program.slots
            rows = [slots[part.name] for part in vector.elements if isinstance(part, Register)]
            self._rows[id(vector)] = vector, np.array(rows, np.int64)[:, None]
        return self._rows[id(vector)][1]

    # ------------------------------------------------------------------------------------------------------- issue

    def new_serials(self, groups: Array) -> Array:
        """A serial number for a new accumulator of each of these warpgroups; they begin again after 32767."""
        self._serials[groups] = self._serials[groups] % _SERIALS + 1
        return self._serials[groups]

    def writes(self, groups: Array, registers: Array) -> Array:
        """Whether, of each warpgroup, one of its registers (r, w, 128) holds a token of what is under way, bool (w,).

        A pair of bf16 of which one is Inf looks like a token too, of an accumulator that is hardly there.
        """
        serials = serials_in(registers)
        found: Array = np.asarray((serials > 0).any(axis=(0, 2)))
        for index in np.flatnonzero(found):
            named = np.unique(serials[:, index]).tolist()
            found[index] = any((int(groups[index]), serial) in self.accumulators for serial in named)
        return found

    def holds(self, group: int, serial: int, product: Multiplication) -> bool:
        """Whether that accumulator is in flight, in the shape of the product."""
        known = self.accumulators.get((group, serial))
        return known is not None and known.product.result == product.result and known.product.n == product.n

    def issue(self, issued: Issued) -> None:
        """Put a multiplication, whose accumulators are known, into the queue."""
        for group, serial in zip(issued.groups.tolist(), issued.serials.tolist(), strict=True):
            accumulator = self.accumulators[group, serial]
            accumulator.under_way += 1
            accumulator.instruction = issued.instruction
        self._queue.append(issued)

    # -------------------------------------------------------------------------------------------------------- wait

    def complete(self, groups: Array, allowed: int) -> tuple[dict[int, Request], dict[tuple[int, int], Accumulator]]:
        """Carry out all but the last `allowed` committed groups of these warpgroups.

        The last request of each warpgroup that was carried out, and the accumulators on which nothing is under way any
        more: they are forgotten.
        """
        limits = np.full(len(self.committed), np.iinfo(np.int64).min)
        limits[groups] = self.committed[groups] - allowed
        requests: dict[int, Request] = {}
        finished = {}
        taken = list(self._take(limits))
        for chain in _chains(taken):
            self._carry_out(chain)
        for issued in taken:
            requests.update(zip(issued.groups.tolist(), issued.requests, strict=True))
            for key in zip(issued.groups.tolist(), issued.serials.tolist(), strict=True):
                accumulator = self.accumulators[key]
                accumulator.under_way -= 1
                if not accumulator.under_way:
                    finished[key] = self.accumulators.pop(key)
        return requests, finished

    def _take(self, limits: Array) -> Iterator[Issued]:
        """Remove from the queue what belongs to groups before a number that depends on the warpgroup, in order."""
        left = []
        for issued in self._queue:
            over = issued.commits < limits[issued.groups]
            if over.all():
                yield issued
                continue
            left.append(issued)
            if over.any():
                left[-1] = issued.select(~over)
                yield issued.select(over)
        self._queue = left

    def _carry_out(self, chain: list[Issued]) -> None:
        """Read the operands and multiply: one product over the k of all."""
        first = chain[0]
        multiply = first.multiply
        product = multiply.form.product
        keys = list(zip(first.groups.tolist(), first.serials.tolist(), strict=True))
        if multiply.a_in_registers:
            a = np.concatenate([issued.a for issued in chain], axis=2)
        else:
            a = np.ascontiguousarray(self._operands([issued.a for issued in chain], multiply.tile_a).swapaxes(1, 2))
            a = a.reshape(*a.shape[:2], -1)
        b = self._operands([issued.b for issued in chain], multiply.tile_b)
        if multiply.negate_a != multiply.negate_b:
            b = b ^ b.dtype.type(1 << (bits_of(product.b) - 1))
        b = np.ascontiguousarray(b.swapaxes(2, 3))
        c = np.stack([self.accumulators[key].bits for key in keys])
        c[~first.accumulates] = 0
        given = product, a, b.reshape(len(b), -1, b.shape[3]), c, WARPGROUP_CORE
        d = (compute(*given) if first.chosen is None else compute_sparse(*given, first.chosen)).astype(np.uint32)
        for key, bits in zip(keys, d, strict=True):
            self.accumulators[key].bits = bits

    def _operands(self, pointers: list[Array], tile: OperandTile) -> Array:
        """Bits (w, c, extent, depth) of c operands (w, *chunks) in shared memory, as they are now."""
        chunks = np.stack(pointers, axis=1)
        data = self.machine.memory.gather(chunks.ravel(), CHUNK)
        elements = tile.elements(data.reshape(-1, *tile.chunks, CHUNK))
        return elements.reshape(*chunks.shape[:2], *elements.shape[1:])


def _chains(taken: list[Issued]) -> Iterator[list[Issued]]:
    """Multiplications, those that go on with the same accumulators in one piece.

    Each instruction is one sum that is rounded, so that their sums over the k of all are the same; clamped sums, single
    bits and sparse matrices go alone. Only the order of multiplications with the same accumulators matters.
    """
    chains: dict[tuple[int, ...], list[Issued]] = {}  # by the accumulators
    owners: dict[tuple[int, int], tuple[int, ...]] = {}
    for issued in taken:
        pairs = list(zip(issued.groups.tolist(), issued.serials.tolist(), strict=True))
        key = tuple(number for pair in pairs for number in pair)
        chain = chains.get(key)
        if chain is not None and _goes_on(chain[-1], issued):
            chain.append(issued)
            continue
        for before in {owners[pair] for pair in pairs if pair in owners} & chains.keys():
            yield chains.pop(before)
        chains[key] = [issued]
        owners.update(dict.fromkeys(pairs, key))
    yield from chains.values()


def _goes_on(before: Issued, after: Issued) -> bool:
    alike = ("form", "negate_a", "negate_b", "tile_a", "tile_b", "a_in_registers")
    product = before.multiply.form.product
    return (
        not (product.satfinite or product.operation or product.sparse)
        and all(getattr(before.multiply, name) == getattr(after.multiply, name) for name in alike)
        and bool(after.accumulates.all())
    )


@functools.lru_cache(1024)
def chunk_addresses(descriptors: tuple[int, ...], ranks: tuple[int, ...], tile: OperandTile) -> Array:
    """uint64 (w, chunks): shared addresses of what descriptors (w,) point to, in blocks of these ranks (w,)."""
    places = [MatrixDescriptor.decode(word).addresses(tile).ravel() for word in descriptors]
    addresses: Array = np.stack(places) + (np.array(ranks, np.int64) << SHARED_RANK_SHIFT)[:, None]
    return addresses.astype(np.uint64)


def matrix_of(registers: Array, bits: int) -> Array:
    """uint32 (w, 64, n) from the registers of accumulators, uint64 (registers, w, 128); `bits` of an element."""
    count, groups = registers.shape[:2]
    per = 32 // bits
    words = np.ascontiguousarray(registers, np.uint32).view(f"u{bits // 8}")
    # register: (column block, [row half,] [pair]) and lane: (warp, row, quad); packed elements are columns
    fields = words.reshape(count * per // 4, 2, 2 // per, groups, WARPS, 8, 4, per)
    ordered = fields.transpose(3, 4, 1, 5, 0, 6, 2, 7)  # w, warp, half, row, block, quad, pair, element
    return ordered.reshape(groups, ROWS, -1).astype(np.uint32)


def registers_of(matrix: Array, bits: int) -> Array:
    """uint64 (registers, w, 128) from uint32 (w, 64, n): the inverse of `matrix_of`."""
    groups, _, columns = matrix.shape
    per = 32 // bits
    fields = matrix.astype(f"u{bits // 8}").reshape(groups, WARPS, 2, 8, columns // 8, 4, 2 // per, per)
    ordered = np.ascontiguousarray(fields.transpose(4, 2, 6, 0, 1, 3, 5, 7))
    words = ordered.view(np.uint32).reshape(-1, groups, THREADS)
    return words.astype(np.uint64)
