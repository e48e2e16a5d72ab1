"""`setmaxnreg` by warpgroup: who goes up or down to how many registers, and whether an increase can ever be served."""

from __future__ import annotations

from collections.abc import Iterator

from cutesmith.compiling.engines.barrier_checks import Remark
from cutesmith.compiling.engines.reach import Reach
from cutesmith.compiling.engines.sites import instructions
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.ptx.syntax import Immediate, Instruction
from cutesmith.recording.cubin import CubinKernel
from cutesmith.verdicts import EngineFault

_WARPGROUP = 128
_LEAST, _MOST, _STEP = 24, 256, 8


def check_registers(program: Program, reach: Reach, kernel: CubinKernel, threads: int) -> Iterator[Remark]:
    """Remarks on the `setmaxnreg` of a kernel with so many threads a block; none where ptxas left it out."""
    if not kernel.moves_registers:
        return
    found = [(place, one) for place, one in instructions(program) if one.opcode == "setmaxnreg"]
    start, groups = -(-kernel.registers // _STEP) * _STEP, -(-threads // _WARPGROUP)
    for _, instruction in found:
        yield from _alone(instruction, start)
    if not found:
        return
    ends, last = [start] * groups, None
    for group in range(groups):
        first = slice(group * _WARPGROUP, (group + 1) * _WARPGROUP)
        mine = [one for place, one in found if reach.threads(place)[first].any()]
        if len(mine) > 1:
            yield Remark(f"registers by role: warpgroup {group} may come to {len(mine)} setmaxnreg")
            return
        ends[group] = _count(mine[0]) if mine else start
        last = mine[0] if mine and "inc" in mine[0].modifiers else last
    if last is not None and sum(ends) > groups * start:
        yield Remark(
            f"setmaxnreg leads to {' + '.join(map(str, ends))} = {sum(ends)} registers by warpgroup, and the block "
            f"starts with {groups} x {start} = {groups * start}: an increase waits for ever",
            f"Keep the sum at or below {groups * start}: fewer for those that go up, or fewer kept by the others",
            EngineFault.REGISTERS,
            last,
        )


def _alone(instruction: Instruction, start: int) -> Iterator[Remark]:
    count, remedy = _count(instruction), f"Use a multiple of {_STEP} from {_LEAST} to {_MOST}"
    up = "inc" in instruction.modifiers
    if count % _STEP or not _LEAST <= count <= _MOST:
        yield Remark(f"setmaxnreg to {count} registers", remedy, EngineFault.REGISTERS, instruction)
    elif (count < start) if up else (count > start):
        way = "increases" if up else "decreases"
        remedy = f"Exchange the two, or ask for {'more' if up else 'fewer'} than the {start} that a thread starts with"
        text = f"setmaxnreg {way} to {count} registers, and a thread starts with {start}"
        yield Remark(text, remedy, EngineFault.REGISTERS, instruction)


def _count(instruction: Instruction) -> int:
    (operand,) = instruction.operands
    assert isinstance(operand, Immediate)
    return operand.value
