"""Boxes and descriptors in shared memory: malformed maps, alignment, and layouts that do not fit together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cutesmith.compiling.engines.barrier_checks import Remark
from cutesmith.compiling.engines.reach import Reach
from cutesmith.compiling.engines.sites import Site, Store, instructions
from cutesmith.compiling.engines.thread_values import Held, ThreadValues, Value, Words
from cutesmith.emulator.engines.swizzles import Swizzle
from cutesmith.emulator.engines.tensor_maps import TensorMap
from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.program.abi import SHARED_BASE, Array
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.ptx.syntax import Instruction, Operand, Register
from cutesmith.emulator.tensor_cores import instruction_descriptors
from cutesmith.emulator.tensor_cores.descriptors import (
    TCGEN05,
    WGMMA,
    DescriptorError,
    DescriptorFormat,
    MatrixDescriptor,
    OperandTile,
)
from cutesmith.emulator.tensor_cores.instruction_descriptors import ProductForm
from cutesmith.emulator.tensor_cores.product_operands import ProductOperands
from cutesmith.emulator.tensor_cores.warpgroup_forms import parse_multiply
from cutesmith.verdicts import EngineFault

_TMA_ALIGN = 128
_BULK_ALIGN = 16
_FIELD = 1 << 14  # what a descriptor's address may add to its start


@dataclass(frozen=True, eq=False)
class DescribedOperand:
    """An operand of a product in shared memory; `varies`: its start depends on what is not known, such as the stage."""

    name: str
    instruction: Instruction
    descriptor: MatrixDescriptor
    tile: OperandTile
    varies: bool

    @property
    def words(self) -> str:
        """The descriptor in words."""
        return f"{self.name}: {self.descriptor.explain(self.tile)}"


@dataclass(frozen=True)
class DescriptorsRead:
    """Descriptors that are known, and remarks on the others."""

    operands: tuple[DescribedOperand, ...]
    remarks: tuple[Remark, ...]


def read_descriptors(program: Program, values: ThreadValues, reach: Reach, shared_bytes: int) -> DescriptorsRead:
    """The operands of all `wgmma` and `tcgen05.mma` that come from shared memory."""
    operands, remarks, unknown = [], [], 0
    for place, instruction in instructions(program):
        for name, word, format, tile in _operands(instruction, values):
            value = _descriptor(values.held(word), reach.threads(place))
            if value is None or tile is None:
                unknown += 1
                continue
            known, varies = value
            try:
                descriptor = MatrixDescriptor.decode(known, format)
            except DescriptorError as error:
                remedy = "Build it with the DSL's `make_smem_desc` or from the layout atom of the operand"
                remarks.append(Remark(f"{name}: {error}", remedy, EngineFault.BAD_DESCRIPTOR, instruction))
                continue
            operand = DescribedOperand(name, instruction, descriptor, tile, varies)
            operands.append(operand)
            remarks += _beyond(operand, shared_bytes)
    if unknown:
        remarks.append(Remark(f"{unknown} descriptors: they are computed from what is not known"))
    return DescriptorsRead(tuple(operands), tuple(remarks))


def _beyond(operand: DescribedOperand, shared_bytes: int) -> Iterator[Remark]:
    """A descriptor whose tile ends beyond the shared memory of the launch."""
    if operand.varies:
        return
    end, limit = int(operand.descriptor.addresses(operand.tile).max()) + 16, SHARED_BASE + shared_bytes
    if end > limit:
        text = f"{operand.name} reads up to byte {end} of shared memory, which ends at {limit} ({operand.words})"
        remedy = "Check the descriptor's start and strides against the buffer, or ask for more dynamic shared memory"
        yield Remark(text, remedy, EngineFault.BAD_DESCRIPTOR, operand.instruction)


def _operands(
    instruction: Instruction, values: ThreadValues
) -> Iterator[tuple[str, Operand, DescriptorFormat, OperandTile | None]]:
    words = instruction.full_opcode
    if words.startswith("wgmma.mma_async"):
        try:
            multiply = parse_multiply(instruction)
        except UnsupportedInstruction:
            return
        if not multiply.a_in_registers:
            yield "A of wgmma", multiply.a, WGMMA, multiply.tile_a
        yield "B of wgmma", multiply.b, WGMMA, multiply.tile_b
    elif words.startswith("tcgen05.mma"):
        form = ProductForm.parse(instruction)
        product = _product(form, instruction, values) if form else None
        _, a, b, *_ = instruction.operands
        if isinstance(a, Register):
            yield "A of tcgen05.mma", a, TCGEN05, product.tile_a() if product else None
        yield "B of tcgen05.mma", b, TCGEN05, product.tile_b() if product else None


def _product(
    form: ProductForm, instruction: Instruction, values: ThreadValues
) -> instruction_descriptors.Product | None:
    """What the instruction descriptor asks for, where it is known and one of a product that is executed."""
    word = values.number(ProductOperands.of(instruction, form).descriptor)
    if not word.whole or word.one is None:
        return None
    try:
        return instruction_descriptors.decode(word.one & 0xFFFF_FFFF, form)
    except (instruction_descriptors.InstructionDescriptorError, instruction_descriptors.UnsupportedProductError):
        return None


def _descriptor(held: Held, threads: Array) -> tuple[int, bool] | None:
    """The 64 bits with atoms at zero, and whether there are any; None where other fields than the start vary."""
    if isinstance(held, Words):
        low, high = held.low.among(threads), held.high.among(threads)
        if not high.whole or high.one is None:
            return None
        return ((high.one & 0xFFFF_FFFF) << 32) | int(low.known[0]) & 0xFFFF_FFFF, _moves(low)
    if not isinstance(held, Value) or any(abs(factor) >= _FIELD for _, factor in held.terms):
        return None
    value = held.among(threads)
    return (int(value.known[0]) & (1 << 64) - 1, _moves(value)) if _is_descriptor(value) else None


def _moves(value: Value) -> bool:
    return bool(value.terms) or value.one is None


def _is_descriptor(value: Value) -> bool:
    """Whether its upper half is the same for all threads and not empty, as it is where only a start was computed."""
    upper = value.known >> 32
    return bool((upper == upper[0]).all() and upper[0])


def check_operands(sites: Iterable[Site], stores: Iterable[Store]) -> Iterator[Remark]:
    """Remarks on boxes and bulk copies, to and from shared memory."""
    copies = [(site.instruction, site.copy) for site in sites if site.copy is not None]
    unknown = 0
    for instruction, copy in copies:
        yield from _malformed(copy.map_error, instruction)
        if copy.map is not None:
            unknown += not _decided(copy.target)
            yield from _box(instruction, copy.target, copy.map.swizzle, "copied to")
            yield from _row_start(instruction, copy.column, copy.map)
        else:
            parts = (("its destination in shared memory", copy.target), ("its source in global memory", copy.source))
            yield from _bulk_alignment(instruction, copy.size, *parts)
    for store in stores:
        yield from _malformed(store.map_error, store.instruction)
        if store.map is not None:
            unknown += not _decided(store.shared)
            yield from _box(store.instruction, store.shared, store.map.swizzle, "stored from")
            yield from _row_start(store.instruction, store.column, store.map)
        else:
            parts = (("its source in shared memory", store.shared), ("its destination in global memory", store.there))
            yield from _bulk_alignment(store.instruction, store.size, *parts)
    if unknown:
        yield Remark(f"the alignment of {unknown} copies: their addresses are computed from what is not known")


def _malformed(error: str, instruction: Instruction) -> Iterator[Remark]:
    if error:
        remedy = "Encode it with `cute.nvgpu.cpasync.make_tiled_tma_atom`, or correct the arguments of the driver call"
        yield Remark(f"a malformed tensor map: {error}", remedy, EngineFault.BAD_TENSOR_MAP, instruction)


def _decided(shared: Value) -> bool:
    """Whether the alignment of a box is known."""
    return shared.one is not None and not shared.multiple % _TMA_ALIGN


def _box(instruction: Instruction, shared: Value, swizzle: Swizzle, done: str) -> Iterator[Remark]:
    """Where in shared memory a box begins."""
    start = shared.one
    if start is None or not _decided(shared):
        return
    if start % _TMA_ALIGN:
        yield Remark(
            f"a box is {done} byte {start} of shared memory: TMA needs a multiple of {_TMA_ALIGN}",
            "Allocate its buffer with `byte_alignment=1024`, which serves every swizzle",
            EngineFault.MISALIGNED,
            instruction,
        )
    elif start % swizzle.span:
        yield Remark(
            f"whether the threads that use the box at byte {start} know that its {swizzle.row}-byte swizzle, whose "
            f"pattern takes {swizzle.span} bytes, begins inside the pattern"
        )


def _row_start(instruction: Instruction, column: Value | None, described: TensorMap) -> Iterator[Remark]:
    """Where in the rows of its tensor a box begins, if that is known to within a unit of 16 bytes."""
    unit = _BULK_ALIGN * 8 // described.packed // described.element_bytes  # in elements
    if column is None or column.one is None or column.multiple % unit or described.padded:
        return
    if past := described.byte_of(column.one % unit):
        yield Remark(
            f"a box begins {past} bytes past a multiple of {_BULK_ALIGN} in the rows of its tensor: "
            "a GPU ends the launch with an illegal instruction",
            f"Begin at a multiple of {unit} elements, and skip the elements before it when shared memory is read",
            EngineFault.MISALIGNED,
            instruction,
        )


def _bulk_alignment(instruction: Instruction, size: int | None, *parts: tuple[str, Value | None]) -> Iterator[Remark]:
    """A copy without a tensor map: both addresses and the size are multiples of 16."""
    wrong = [
        (name, value.one % _BULK_ALIGN)
        for name, value in parts
        if value is not None and value.one is not None and not value.multiple % _BULK_ALIGN
        if value.one % _BULK_ALIGN
    ]
    if size is not None and size % _BULK_ALIGN:
        wrong.append((f"its size of {size} bytes", size % _BULK_ALIGN))
    for name, past in wrong:
        yield Remark(
            f"a bulk copy: {name} is {past} past a multiple of {_BULK_ALIGN}",
            "Copy units of 16 bytes from and to multiples of 16; the rest with ordinary loads and stores",
            EngineFault.MISALIGNED,
            instruction,
        )
