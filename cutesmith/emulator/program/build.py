"""A PTX entry function made ready for native code and the scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from cutesmith.emulator.faults import PtxSyntaxError
from cutesmith.emulator.operations import registry
from cutesmith.emulator.program.calls import without_calls
from cutesmith.emulator.program.contraction import contracted
from cutesmith.emulator.program.control_flow import cut
from cutesmith.emulator.program.layout import aligned, place, place_registers, place_shared
from cutesmith.emulator.program.liveness import Liveness, Regions, back_edges
from cutesmith.emulator.program.pieces import Piece, Program, Stop
from cutesmith.emulator.program.roles import CONDITION_CODE
from cutesmith.emulator.ptx.syntax import Function, Instruction, Module, Symbol, Variable
from cutesmith.emulator.ptx.traversal import parts
from cutesmith.emulator.ptx.types import bits_of

_LOCAL_ALIGN = 16


def build_program(module: Module, entry: str) -> Program:
    """Cut the entry function of that name into pieces, find what lives where, and lay out its memory.

    Calls of functions with a body are inlined. Raises PtxSyntaxError when there is no such function, and
    UnsupportedInstruction for the first instruction that nobody executes.
    """
    function = module.functions.get(entry)
    if function is None or function.kind != "entry":
        names = ", ".join(name for name, other in module.functions.items() if other.kind == "entry") or "none"
        raise PtxSyntaxError(f"the PTX module has no entry function `{entry}`; it has: {names}")
    return build(module, function, _native_test())


def build(module: Module, function: Function, is_native: Callable[[Instruction], bool]) -> Program:
    """The program of a function, where `is_native` says which instructions native code executes."""
    function = contracted(without_calls(module, function))
    pieces = cut(function, is_native)
    stops = tuple(piece.end for piece in pieces if isinstance(piece.end, Stop))
    resumes = sorted({stop.resume for stop in stops})
    back = back_edges(pieces, (0, *resumes))
    entries = tuple(sorted({0, *resumes, *(target for _, target in back)}))
    liveness, widths = Liveness(pieces), _widths(function)
    regions = Regions(pieces, liveness, back)
    slots, slot_count = place_registers(list(_points(pieces, entries, liveness)), widths)
    instructions = tuple(statement for statement in function.body if isinstance(statement, Instruction))
    used = _used_symbols(instructions)
    shared, static_shared, dynamic = place_shared(_in_space(module, function, "shared", used))
    local = place(variable for variable in function.variables if variable.space == "local")
    parameters = place(function.parameters)
    return Program(
        module=module,
        function=function,
        pieces=pieces,
        stops=stops,
        entries=entries,
        regions={number: regions.region(number) for number in entries},
        live={piece.number: liveness.numbering.names(liveness.at_start[piece.number]) for piece in pieces},
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


def _native_test() -> Callable[[Instruction], bool]:
    kinds: dict[str, bool] = {}

    def is_native(instruction: Instruction) -> bool:
        opcode = instruction.full_opcode
        if opcode not in kinds:
            kinds[opcode] = registry.kind_of(instruction) == "native"
        return kinds[opcode]

    return is_native


def _widths(function: Function) -> dict[str, int]:
    return {name: bits_of(kind) for name, kind in function.registers.items()} | {CONDITION_CODE: 1}


def _points(pieces: tuple[Piece, ...], entries: Iterable[int], liveness: Liveness) -> Iterator[list[str]]:
    """What is in the frame together: what is live at an entry, or around a stop."""
    ordered, starts = liveness.numbering.ordered, set(entries)
    for piece in pieces:
        if piece.number in starts:
            yield ordered(liveness.at_start[piece.number])
        if isinstance(piece.end, Stop):
            around = liveness.at_end[piece.number] | liveness.at_start[piece.end.resume]
            yield ordered(around | liveness.stop_operands(piece.number))


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
