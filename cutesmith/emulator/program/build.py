"""A PTX entry function made ready for native code and the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from cutesmith.emulator.instructions.roles import CONDITION_CODE
from cutesmith.emulator.program.basic_blocks import BasicBlock, Program, SuspensionPoint
from cutesmith.emulator.program.calls import without_calls
from cutesmith.emulator.program.contraction import contracted
from cutesmith.emulator.program.control_flow import cut
from cutesmith.emulator.program.layout import aligned, place, place_registers, place_shared
from cutesmith.emulator.program.liveness import Liveness, Regions, back_edges
from cutesmith.emulator.ptx.syntax import Function, Instruction, Module, Symbol, Variable
from cutesmith.emulator.ptx.traversal import parts
from cutesmith.emulator.ptx.types import bits_of

_LOCAL_ALIGN = 16


def build(module: Module, function: Function, is_native: Callable[[Instruction], bool]) -> Program:
    """Cut a function into basic blocks, find what lives where, and lay out its memory; its calls are inlined.

    `is_native` says which instructions native code executes.
    """
    function = contracted(without_calls(module, function))
    basic_blocks = cut(function, is_native)
    suspension_points = tuple(
        basic_block.end for basic_block in basic_blocks if isinstance(basic_block.end, SuspensionPoint)
    )
    resumes = sorted({point.resume for point in suspension_points})
    back = back_edges(basic_blocks, (0, *resumes))
    entries = tuple(sorted({0, *resumes, *(target for _, target in back)}))
    liveness, widths = Liveness(basic_blocks), _widths(function)
    regions = Regions(basic_blocks, liveness, back)
    slots, slot_count = place_registers(list(_points(basic_blocks, entries, liveness)), widths)
    instructions = tuple(statement for statement in function.body if isinstance(statement, Instruction))
    used = _used_symbols(instructions)
    shared, static_shared, dynamic = place_shared(_in_space(module, function, "shared", used))
    local = place(variable for variable in function.variables if variable.space == "local")
    parameters = place(function.parameters)
    return Program(
        module=module,
        function=function,
        basic_blocks=basic_blocks,
        suspension_points=suspension_points,
        entries=entries,
        regions={number: regions.region(number) for number in entries},
        live={
            basic_block.number: liveness.numbering.names(liveness.at_start[basic_block.number])
            for basic_block in basic_blocks
        },
        widths=widths,
        slots=slots,
        slot_count=slot_count,
        instructions=instructions,
        shared_symbols=shared,
        static_shared=static_shared,
        dynamic_symbols=dynamic,
        local_symbols=local.offsets,
        local_bytes=aligned(local.size, max(_LOCAL_ALIGN, local.align)),
        parameters=parameters.offsets,
        parameter_bytes=parameters.size,
        module_variables=tuple(
            variable for variable in (*module.variables, *function.variables) if variable.space in ("global", "const")
        ),
    )


def _widths(function: Function) -> dict[str, int]:
    return {name: bits_of(kind) for name, kind in function.registers.items()} | {CONDITION_CODE: 1}


def _points(basic_blocks: tuple[BasicBlock, ...], entries: Iterable[int], liveness: Liveness) -> Iterator[list[str]]:
    """What is in the frame together: what is live at an entry, or around a suspension point."""
    ordered, starts = liveness.numbering.ordered, set(entries)
    for basic_block in basic_blocks:
        if basic_block.number in starts:
            yield ordered(liveness.at_start[basic_block.number])
        if isinstance(basic_block.end, SuspensionPoint):
            around = liveness.at_end[basic_block.number] | liveness.at_start[basic_block.end.resume]
            yield ordered(around | liveness.point_operands(basic_block.number))


def _used_symbols(instructions: Iterable[Instruction]) -> frozenset[str]:
    return frozenset(
        part.name
        for instruction in instructions
        for operand in instruction.operands
        for part in parts(operand)
        if isinstance(part, Symbol)
    )


def _in_space(module: Module, function: Function, space: str, used: frozenset[str]) -> list[Variable]:
    """Variables that the function declares, and those of the module that it uses."""
    of_module = [variable for variable in module.variables if variable.name in used]
    return [variable for variable in (*of_module, *function.variables) if variable.space == space]
