"""The report on a launch's engines: descriptors in words, findings with their lines, what is undecided."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from math import prod

from cutesmith.compiling.engines.barrier_arrays import sort_out
from cutesmith.compiling.engines.barrier_checks import Remark, check_barriers
from cutesmith.compiling.engines.operand_checks import DescribedOperand, check_operands, read_descriptors
from cutesmith.compiling.engines.reach import Reach
from cutesmith.compiling.engines.register_checks import check_registers
from cutesmith.compiling.engines.shared_accesses import SharedAccesses
from cutesmith.compiling.engines.sites import Sites, own_place
from cutesmith.compiling.engines.swizzle_checks import check_swizzles
from cutesmith.compiling.engines.thread_values import ThreadValues
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.program.build import build
from cutesmith.emulator.ptx.parser import parse
from cutesmith.recording.cubin import CubinKernel
from cutesmith.recording.sessions import Launch
from cutesmith.verdicts import EngineFinding, EngineReport


def program_of(launch: Launch, ptx: str) -> Program:
    """The program of a launched kernel; raises EmulationError where the emulated GPU cannot read it."""
    return _program(launch.kernel, ptx)


@functools.lru_cache(maxsize=32)
def _program(kernel: str, ptx: str) -> Program:
    """Read once for the launches of a kernel, which may be on many grids."""
    module = parse(ptx)
    return build(module, module.functions[kernel], lambda _: True)


def engine_report(launch: Launch, kernel: CubinKernel, program: Program, source: str = "") -> EngineReport:
    """What a launched kernel asks of its engines; `source` is the file whose lines are named."""
    values = ThreadValues(program, launch)
    reach = Reach(program, values)
    found = Sites(program, launch, values, reach)
    sites = tuple(found.barriers())
    read = read_descriptors(program, values, reach, kernel.static_smem_bytes + launch.dynamic_smem)
    remarks = [
        *check_registers(program, reach, kernel, prod(launch.block)),
        *read.remarks,
        *check_operands(sites, found.stores()),
        *check_swizzles(sites, read.operands, SharedAccesses(program, launch, reach)),
        *check_barriers(sort_out(sites), reach, launch.cluster),
    ]
    return EngineReport(
        descriptors=_in_words(read.operands),
        findings=tuple(dict.fromkeys(_finding(remark, source) for remark in remarks if remark.fault is not None)),
        undecided=tuple(dict.fromkeys(remark.message for remark in remarks if remark.fault is None)),
    )


def _in_words(operands: Iterable[DescribedOperand]) -> tuple[str, ...]:
    """One line for each kind of operand: the first in the text, and how many more differ in their start alone."""
    kinds: dict[object, list[DescribedOperand]] = {}
    for operand in operands:
        form = operand.descriptor
        key = (operand.name, operand.tile, form.leading if form.leading < 1 << 12 else 0, form.stride, form.swizzle)
        kinds.setdefault(key, []).append(operand)
    return tuple(same[0].words + (f" ({len(same)} such)" if len(same) > 1 else "") for same in kinds.values())


def _finding(remark: Remark, source: str) -> EngineFinding:
    assert remark.fault is not None
    place, partner = (
        own_place(each.location if each else None, source) for each in (remark.instruction, remark.partner)
    )
    message = f"{remark.message}, in {partner}" if partner else remark.message
    return EngineFinding(fault=remark.fault, message=message, remedy=remark.remedy, place=place)
