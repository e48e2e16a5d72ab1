"""Every instruction that the emulated GPU executes: importing this module fills the instruction table."""

from __future__ import annotations

from cutesmith.emulator.emitters import (  # noqa: F401  # noqa: F401
    approximations,
    atomics,
    bits,
    comparisons,
    conversions,
    float_instructions,
    integers,
    memory,
    moves,
    scale_formats,
)
from cutesmith.emulator.errors import PtxSyntaxError
from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.instructions.table import Native, execution_of
from cutesmith.emulator.machine import barriers, cluster_barriers  # noqa: F401
from cutesmith.emulator.machine.suspensions import Suspension
from cutesmith.emulator.operations import (  # noqa: F401
    async_copies,
    bulk_copies,
    cluster_launches,
    matrices,
    mbarriers,
    register_pool,
    system,
    tcgen05_allocation,
    tcgen05_copies,
    tcgen05_requests,
    tcgen05_transfers,
    tensor_copies,
    tensor_map_updates,
    warps,
)
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.program.build import build
from cutesmith.emulator.ptx.syntax import Instruction, Module
from cutesmith.emulator.tensor_cores import (  # noqa: F401
    register_checks,
    warp_block_scaling,
    warp_multiply,
    warpgroup_multiply,
)


def build_program(module: Module, entry: str) -> Program:
    """The program of the entry function of that name; calls of functions with a body are inlined.

    Raises PtxSyntaxError when there is no such function, UnsupportedInstruction for all forms that are not executed.
    """
    function = module.functions.get(entry)
    if function is None or function.kind != "entry":
        names = ", ".join(name for name, other in module.functions.items() if other.kind == "entry") or "none"
        raise PtxSyntaxError(f"the PTX module has no entry function `{entry}`; it has: {names}")
    known: dict[str, bool] = {}
    missing: dict[str, UnsupportedInstruction] = {}

    def is_native(instruction: Instruction) -> bool:
        opcode = instruction.full_opcode
        if opcode not in known:
            try:
                execution = execution_of(instruction)
            except UnsupportedInstruction as error:
                missing[opcode] = error
                return False
            known[opcode] = isinstance(execution, Native)
            if isinstance(execution, Suspension) and (why := execution.refused(instruction)):
                missing[opcode] = UnsupportedInstruction(instruction, why)
        return known[opcode]

    program = build(module, function, is_native)
    if missing:
        raise UnsupportedInstruction.together(list(missing.values()))
    return program
