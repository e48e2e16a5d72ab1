"""Registers used while a `wgmma` writes them, or without a fence: the checks of program/accumulators.py, executed."""

from __future__ import annotations

import numpy as np

from cutesmith.emulator.faults import FaultKind
from cutesmith.emulator.machine.lanes import LaneBatch
from cutesmith.emulator.machine.suspensions import lane_operation
from cutesmith.emulator.machine.warpgroups import Warpgroups
from cutesmith.emulator.program.accumulators import CHECK
from cutesmith.emulator.ptx.syntax import Vector
from cutesmith.emulator.state.findings import where
from cutesmith.emulator.tensor_cores.in_flight import MultiplicationsInFlight, serials_in


@lane_operation(f"{CHECK}.in_flight")
def check_in_flight(batch: LaneBatch) -> None:
    """The next instruction uses these registers: report it where they hold accumulators in flight."""
    if not batch.memory.sanitize:
        return
    (registers,) = batch.instruction.operands
    assert isinstance(registers, Vector)
    groups = batch.machine.unit(Warpgroups).of_lane[batch.lanes]
    accumulators = batch.machine.unit(MultiplicationsInFlight).accumulators
    for register in registers.elements:
        serials = serials_in(batch.read(register))
        early = np.flatnonzero(serials)
        known = [accumulators.get((int(groups[lane]), int(serials[lane]))) for lane in early]
        early = early[[accumulator is not None for accumulator in known]]
        if len(early):
            source = next(accumulator.instruction for accumulator in known if accumulator is not None)
            writer = f"`{source.full_opcode}` at {where(source.location)}"
            message = f"`{_opcode(batch)}` uses registers that {writer} writes, before a `wgmma.wait_group` covers it"
            batch.wave.report(FaultKind.MISSING_WAIT, message, batch.lanes[early], batch.instruction, source.location)
            return


@lane_operation(f"{CHECK}.unfenced")
def check_unfenced(batch: LaneBatch) -> None:
    """The next instruction multiplies with registers that were written since the last fence."""
    if batch.memory.sanitize:
        message = f"`{_opcode(batch)}` with registers that were written since the last `wgmma.fence`"
        batch.wave.report(FaultKind.MISSING_FENCE, message, batch.lanes, batch.instruction)


def _opcode(batch: LaneBatch) -> str:
    """The instruction that is checked."""
    return ".".join(batch.instruction.modifiers[1:])
