"""The instructions of a kernel that initialise, expect, arrive, wait, copy and multiply."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from cutesmith.compiling.engines.reach import Place, Reach
from cutesmith.compiling.engines.thread_values import ThreadValues, Value, parameter_bytes
from cutesmith.emulator.engines.tensor_maps import TensorMap, TensorMapError, UnknownTensorMap, decode
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.ptx.syntax import Address, Immediate, Instruction, Location, Operand, Register, Symbol, bytes_of
from cutesmith.recording.sessions import Launch
from cutesmith.recording.tensor_map_calls import MAP_BYTES

_VECTORS = {"v2": 2, "v4": 4, "v8": 8}


class Act(enum.Enum):
    """What an instruction does to an mbarrier."""

    INIT = enum.auto()
    EXPECT = enum.auto()  # bytes, without an arrival
    ARRIVE = enum.auto()
    ARRIVE_AND_EXPECT = enum.auto()
    WAIT = enum.auto()
    COPY = enum.auto()  # bytes that a copy will bring
    OTHER = enum.auto()  # bytes or arrivals that are not counted here


EXPECTS = (Act.EXPECT, Act.ARRIVE_AND_EXPECT)
ARRIVES = (Act.ARRIVE, Act.ARRIVE_AND_EXPECT)


@dataclass(frozen=True, eq=False)
class Copy:
    """A copy into shared memory: where to, how many bytes (None: not known) in each of `blocks`, and by which map.

    `source`: the global address of a copy without a map. `column`: of one with a map, its first coordinate.
    """

    target: Value
    size: int | None
    blocks: int | None = 1
    map: TensorMap | None = None
    map_error: str = ""
    pair: bool = False
    source: Value | None = None
    column: Value | None = None


@dataclass(frozen=True, eq=False)
class Store:
    """A copy or reduction from `shared` memory to global memory: by a map, or `size` bytes to the address `there`.

    `column`: the first coordinate, with a map.
    """

    instruction: Instruction
    shared: Value
    map: TensorMap | None = None
    map_error: str = ""
    there: Value | None = None
    size: int | None = None
    column: Value | None = None


@dataclass(frozen=True, eq=False)
class Site:
    """An instruction that acts on the mbarrier at `barrier`.

    `amount`: of arrivals or bytes, or the parity that it waits for.
    """

    act: Act
    place: Place
    instruction: Instruction
    barrier: Value
    amount: Value
    copy: Copy | None = None


class Sites:
    """Finds them in one kernel."""

    def __init__(self, program: Program, launch: Launch, values: ThreadValues, reach: Reach) -> None:
        self._program, self._launch, self._values, self._reach = program, launch, values, reach

    def barriers(self) -> Iterator[Site]:
        """All that act on an mbarrier, in the order of the text."""
        for place, instruction in instructions(self._program):
            words = instruction.full_opcode
            if instruction.opcode == "mbarrier":
                yield from self._of_mbarrier(place, instruction)
            elif words.startswith("cp.async.bulk") and "mbarrier::complete_tx::bytes" in instruction.modifiers:
                yield self._copy(place, instruction)
            elif words.startswith(("cp.async.mbarrier.arrive", "tcgen05.commit")):
                yield self._arrival(place, instruction)
            elif words.startswith(("st.async", "red.async", "clusterlaunchcontrol.try_cancel")):
                addresses = [operand for operand in instruction.operands if isinstance(operand, Address)]
                yield self._site(Act.OTHER, place, instruction, addresses[-1], Immediate(0))

    def stores(self) -> Iterator[Store]:
        """All bulk copies and reductions to global memory, in the order of the text."""
        for place, instruction in instructions(self._program):
            words = instruction.full_opcode
            if not words.startswith(("cp.async.bulk", "cp.reduce.async.bulk")) or "bulk_group" not in words.split("."):
                continue
            target, source, *rest = instruction.operands
            threads = self._reach.threads(place)
            shared = self.address(source).among(threads)
            if "tensor" in instruction.modifiers:
                assert isinstance(target, Address)
                column = self._values.number(target.coordinates[0]).among(threads)
                yield Store(instruction, shared, *self.map_of(target), column=column)
            else:
                count = self._values.number(rest[0])
                there = self.address(target).among(threads)
                yield Store(instruction, shared, there=there, size=count.one if count.whole else None)

    def _site(self, act: Act, place: Place, instruction: Instruction, address: Operand, amount: Operand) -> Site:
        threads = self._reach.threads(place)
        barrier, number = self.address(address), self._values.number(amount)
        return Site(act, place, instruction, barrier.among(threads), number.among(threads))

    def address(self, operand: Operand) -> Value:
        """The shared address in `[base + offset]`."""
        assert isinstance(operand, Address)
        base = self._values.number(operand.base)
        return Value(base.known + operand.offset, base.terms)

    def _of_mbarrier(self, place: Place, instruction: Instruction) -> Iterator[Site]:
        words, one = instruction.modifiers, Immediate(1)
        found = [number for number, operand in enumerate(instruction.operands) if isinstance(operand, Address)]
        if not found:
            return
        address, rest = instruction.operands[found[0]], instruction.operands[found[0] + 1 :]
        if words[0] == "init":
            yield self._site(Act.INIT, place, instruction, address, rest[0])
        elif words[0] in ("arrive", "arrive_drop"):
            act = Act.ARRIVE_AND_EXPECT if "expect_tx" in words else Act.ARRIVE
            yield self._site(act, place, instruction, address, rest[0] if rest else one)
        elif words[0] in ("expect_tx", "complete_tx"):
            yield self._site(Act.EXPECT if words[0] == "expect_tx" else Act.OTHER, place, instruction, address, rest[0])
        elif words[0] in ("try_wait", "test_wait"):
            parity = rest[0] if "parity" in words else Register("a state")
            yield self._site(Act.WAIT, place, instruction, address, parity)

    def _arrival(self, place: Place, instruction: Instruction) -> Site:
        counted = instruction.opcode != "cp" or "noinc" in instruction.modifiers
        several = any("multicast" in word for word in instruction.modifiers)
        address = next(operand for operand in instruction.operands if isinstance(operand, (Address, Register)))
        address = address if isinstance(address, Address) else Address(address)
        act = Act.ARRIVE if counted and not several else Act.OTHER
        return self._site(act, place, instruction, address, Immediate(1))

    def _copy(self, place: Place, instruction: Instruction) -> Site:
        target, source, *rest = instruction.operands
        tensor = "tensor" in instruction.modifiers
        size, barrier = (None, rest[0]) if tensor else (rest[0], rest[1])
        if not any(word.startswith("shared") for word in instruction.modifiers[2:5]) or not isinstance(
            barrier, Address
        ):
            return self._site(Act.OTHER, place, instruction, target, Immediate(0))
        blocks: int | None = 1
        if any("multicast" in word for word in instruction.modifiers):
            mask = self._values.number(rest[1 if tensor else 2])
            blocks = None if not mask.whole or mask.one is None else bin(mask.one & 0xFFFF).count("1")
        here = self.address(target).among(self._reach.threads(place))
        pair = "cta_group::2" in instruction.modifiers
        if tensor:
            assert isinstance(source, Address)
            described, error = self.map_of(source)
            box = described.tile_bytes if described else None
            strange = {"im2col", "im2col::w", "tile::gather4", "tile::scatter4"} & set(instruction.modifiers)
            column = self._values.number(source.coordinates[0]).among(self._reach.threads(place))
            copy = Copy(here, None if strange else box, blocks, described, error, pair, column=column)
        else:
            assert size is not None
            count = self._values.number(size)
            start = (
                self.address(source).among(self._reach.threads(place)) if "global" in instruction.modifiers else None
            )
            copy = Copy(here, count.one if count.whole else None, blocks, pair=pair, source=start)
        where = self.address(barrier).among(self._reach.threads(place))
        return Site(Act.COPY, place, instruction, where, self._values.constant(0), copy)

    def map_of(self, operand: Address) -> tuple[TensorMap | None, str]:
        """The tensor map that a copy names, if it is a parameter of the launch; else None, and why it is malformed."""
        base = self._values.number(operand.base)
        if isinstance(operand.base, Symbol) or len(base.terms) != 1 or base.terms[0][1] != 1 or base.one is None:
            return None, ""
        offset = base.one + operand.offset
        data = parameter_bytes(self._program, self._launch, base.terms[0][0], offset, MAP_BYTES)
        if data is None:
            return None, ""
        try:
            return decode(data), ""
        except UnknownTensorMap:
            return None, ""
        except TensorMapError as error:
            return None, str(error)


def instructions(program: Program) -> Iterator[tuple[Place, Instruction]]:
    """All instructions with their places."""
    for block in program.basic_blocks:
        for index, instruction in enumerate(block.instructions):
            yield Place(block.number, index), instruction


def access_bytes(instruction: Instruction) -> int:
    """What one lane of a load or store moves."""
    words = instruction.modifiers
    return bytes_of(words[-1]) * next((count for word, count in _VECTORS.items() if word in words), 1)


def own_place(location: Location | None, source: str) -> str:
    """The line of the kernel's own file, where an instruction of a library was inlined into it."""
    found = location
    while location is not None:
        if source and location.file.endswith(source):
            found = location
            break
        location = location.inlined_at
    return f"{found.file.rsplit('/', 1)[-1]}:{found.line}" if found else ""
