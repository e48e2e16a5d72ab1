"""A PTX entry function made ready for native code and the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from cutesmith.emulator.instructions.roles import CONDITION_CODE
from cutesmith.emulator.program.accumulators import fills_registers_later, with_register_checks
from cutesmith.emulator.program.basic_blocks import BasicBlock, Program, SuspensionPoint
from cutesmith.emulator.program.calls import without_calls
from cutesmith.emulator.program.contraction import contracted
from cutesmith.emulator.program.control_flow import cut
from cutesmith.emulator.program.layout import aligned, place, place_registers, place_shared
from cutesmith.emulator.program.liveness import Liveness, Regions, back_edges
from cutesmith.emulator.ptx.syntax import Function, Instruction, Module, Symbol, bits_of, parts

_LOCAL_ALIGN = 16


def build(module: Module, function: Function, is_native: Callable[[Instruction], bool]) -> Program:
    """Cut a function into basic blocks, find what lives where, and lay out its memory; its calls are inlined.

    `is_native` says which instructions native code executes.
    """
    function = contracted(without_calls(module, function))
    basic_blocks = cut(function, is_native)
    if fills_registers_later(function):
        function = with_register_checks(function, basic_blocks)
        basic_blocks = cut(function, is_native)
    suspension_points = tuple(end for end in (part.end for part in basic_blocks) if isinstance(end, SuspensionPoint))
    resumes = sorted({point.resume for point in suspension_points})
    back = back_edges(basic_blocks, (0, *resumes))
    entries = tuple(sorted({0, *resumes, *(target for _, target in back)}))
    widths = {name: bits_of(kind) for name, kind in function.registers.items()} | {CONDITION_CODE: 1}
    liveness = Liveness(basic_blocks)
    regions = Regions(basic_blocks, liveness, back)
    slots, slot_count = place_registers(list(_points(basic_blocks, entries, liveness)), widths)
    instructions = tuple(statement for statement in function.body if isinstance(statement, Instruction))
    operands = (operand for instruction in instructions for operand in instruction.operands)
    used = {part.name for operand in operands for part in parts(operand) if isinstance(part, Symbol)}
    declared = (*(variable for variable in module.variables if variable.name in used), *function.variables)
    shared, static_shared, dynamic = place_shared([variable for variable in declared if variable.space == "shared"])
    local = place(variable for variable in function.variables if variable.space == "local")
    parameters = place(function.parameters)
    return Program(
        module=module,
        function=function,
        basic_blocks=basic_blocks,
        suspension_points=suspension_points,
        entries=entries,
        regions={number: regions.region(number) for number in entries},
        live={number: liveness.numbering.names(mask) for number, mask in enumerate(liveness.at_start)},
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


def _points(basic_blocks: tuple[BasicBlock, ...], entries: Iterable[int], liveness: Liveness) -> Iterator[list[str]]:
    """What is in the frame together: what is live at an entry, or around a suspension point."""
    ordered, starts = liveness.numbering.ordered, set(entries)
    for basic_block in basic_blocks:
        if basic_block.number in starts:
            yield ordered(liveness.at_start[basic_block.number])
        if isinstance(basic_block.end, SuspensionPoint):
            around = liveness.at_end[basic_block.number] | liveness.at_start[basic_block.end.resume]
            yield ordered(around | liveness.point_operands(basic_block.number))
