"""Buffers in shared memory that are written with one swizzle and read with another.

TMA swizzles by its tensor map, tensor cores by their descriptors. Of what threads write and read, the swizzle follows
from their addresses. A buffer is judged only where all that may write it is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cutesmith.compiling.engines.barrier_checks import Remark
from cutesmith.compiling.engines.operand_checks import DescribedOperand
from cutesmith.compiling.engines.shared_accesses import Moved, SharedAccesses, followed, is_image
from cutesmith.compiling.engines.sites import Copy, Site
from cutesmith.emulator.engines.swizzles import Swizzle
from cutesmith.emulator.ptx.syntax import Instruction
from cutesmith.verdicts import EngineFault

_ONE_LAYOUT = (
    "Make the tensor map and the descriptor from one layout of shared memory: "
    "`sm90_utils.make_smem_layout_a` or `make_smem_layout_b`"
)
_ONE_TENSOR = "Access shared memory by the tensor that has the swizzle: `allocate_tensor(…, swizzle=layout.inner)`"


def check_swizzles(
    sites: Iterable[Site], operands: Sequence[DescribedOperand], accesses: SharedAccesses
) -> Iterator[Remark]:
    """Remarks on operands of tensor cores, and on boxes that threads read."""
    copies = [(site.instruction, site.copy) for site in sites if site.copy is not None]
    if not copies and not operands:
        return
    written = list(accesses.written())
    told: set[tuple[str, Instruction | None]] = set()
    for operand in operands:  # one for each step along k
        for remark in _operand(operand, copies, written):
            if (operand.name, remark.partner) not in told:
                told.add((operand.name, remark.partner))
                yield remark
    yield from _boxes_read(copies, written, list(accesses.read()))


def _operand(
    operand: DescribedOperand, copies: list[tuple[Instruction, Copy]], written: list[Moved]
) -> Iterator[Remark]:
    start, swizzle = operand.descriptor.start, operand.descriptor.swizzle
    boxes = [(one, copy.map.swizzle) for one, copy in copies if copy.map is not None and _holds(copy, start)]
    if boxes:
        kinds = {kind for _, kind in boxes}
        by_threads = [move for move in written if move.shared is not None and _writes(move, operand)]
        if swizzle not in kinds and not by_threads:
            yield _otherwise_read(operand, boxes[0][0], "TMA writes it", boxes[0][1])
        return
    here = [move for move in written if _writes(move, operand)]
    found = followed(here)
    if not found or swizzle in found or any(_may_write(copy, operand) for _, copy in copies):
        return
    if found[0] is Swizzle.NONE and is_image(here):
        return  # a tile that was swizzled before it came to global memory
    yield _otherwise_read(operand, here[0].instruction, "threads write it", found[0])


def _otherwise_read(operand: DescribedOperand, writer: Instruction, done: str, written: Swizzle) -> Remark:
    start, swizzle = operand.descriptor.start, operand.descriptor.swizzle
    return Remark(
        f"{operand.name} reads byte {start} of shared memory with {_named(swizzle)} ({operand.words}), and {done} with "
        f"{_named(written)}",
        _ONE_LAYOUT,
        EngineFault.WRONG_SWIZZLE,
        operand.instruction,
        writer,
    )


def _boxes_read(copies: list[tuple[Instruction, Copy]], written: list[Moved], read: list[Moved]) -> Iterator[Remark]:
    """Boxes whose rows threads store to global memory in another order."""
    for instruction, copy in copies:
        start = copy.target.one
        if copy.map is None or copy.size is None or start is None:
            continue
        end = start + copy.map.shared_bytes
        here = [move for move in read if move.shared is not None and move.meets(start, end)]
        inside = all(((move.shared >= start) & (move.shared < end)).all() for move in here if move.shared is not None)
        others = any(move.meets(start, end) for move in written) or any(
            other is not copy and _meets(other, start, end) for _, other in copies
        )
        found = followed(here)
        if found and inside and not others and copy.map.swizzle not in found:
            yield Remark(
                f"threads read the box at byte {start} of shared memory with {_named(found[0])}, "
                f"and TMA writes it with {_named(copy.map.swizzle)}",
                _ONE_TENSOR,
                EngineFault.WRONG_SWIZZLE,
                here[0].instruction,
                instruction,
            )


def _writes(move: Moved, operand: DescribedOperand) -> bool:
    places = operand.descriptor.addresses(operand.tile)
    return move.meets(int(places.min()), int(places.max()) + 16)


def _may_write(copy: Copy, operand: DescribedOperand) -> bool:
    places = operand.descriptor.addresses(operand.tile)
    return _meets(copy, int(places.min()), int(places.max()) + 16)


def _meets(copy: Copy, start: int, end: int) -> bool:
    """Whether a copy may write to these bytes."""
    at = copy.target.one
    return at is None or copy.size is None or (at < end and at + copy.size > start)


def _holds(copy: Copy, start: int) -> bool:
    at = copy.target.one
    return at is not None and at <= start < at + (copy.size or 0)


def _named(swizzle: Swizzle) -> str:
    return "no swizzle" if swizzle is Swizzle.NONE else f"a {swizzle.row}-byte swizzle"
