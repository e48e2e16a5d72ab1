"""Calls: functions with a body are inlined, parameters of calls become registers, system calls stay.

What stays is `call (returns), name, (arguments)` with operands (Vector, Symbol, Vector) whose elements are registers or
literals, one a parameter, in the order of the callee's parameters; a parameter that is an array is a Vector of the
registers stored in it, by offset. `st.param` and `ld.param` of the call sequence are moves to and from these registers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.program.parameter_cells import Cells
from cutesmith.emulator.ptx.syntax import (
    Function,
    Guard,
    Instruction,
    Label,
    LabelReference,
    Location,
    Module,
    Operand,
    Register,
    Symbol,
    Variable,
    Vector,
    mapped,
    with_body,
)

SYSTEM_CALLS = ("vprintf", "__assertfail")
"""Functions that the driver provides; the handler of `call` executes them."""


def without_calls(module: Module, function: Function) -> Function:
    """The function with calls inlined or lowered, its instructions numbered again.

    Raises UnsupportedInstruction for recursion, calls through a register, and functions that have no body.
    """
    if not any(isinstance(statement, Instruction) and statement.opcode == "call" for statement in function.body):
        return function
    return _Inliner(module, function).inlined()


@dataclass(frozen=True)
class _Copy:
    """A function being copied into the entry: the suffix of its names, the functions that it is in, the call."""

    function: Function
    suffix: str
    callers: tuple[str, ...]
    call: Instruction | None = None

    @cached_property
    def names(self) -> dict[str, str]:
        """New names of registers, variables and labels; shared variables are one for all copies."""
        function = self.function
        local = [*function.registers, *function.branch_targets]
        local += [statement.name for statement in function.body if isinstance(statement, Label)]
        local += [variable.name for variable in (*function.parameters, *function.returns)]
        names = {name: name + self.suffix for name in local} if self.suffix else {}
        for variable in function.variables if self.suffix else ():
            own = variable.space in ("local", "param")
            names[variable.name] = variable.name + (self.suffix if own else f".{function.name}")
        return names

    @property
    def end(self) -> str:
        """The label after the copied body."""
        return f"end{self.suffix}"

    def variables(self, *groups: tuple[Variable, ...]) -> list[Variable]:
        """Variables under their new names."""
        return [replace(variable, name=self.names.get(variable.name, variable.name)) for g in groups for variable in g]


class _Inliner:
    def __init__(self, module: Module, function: Function) -> None:
        self._module, self._entry = module, function
        self._cells = Cells(dict(function.registers))
        self._variables: dict[str, Variable] = {}
        self._body: list[Instruction | Label] = []
        self._branch_targets: dict[str, tuple[str, ...]] = {}
        self._copies = 0

    def inlined(self) -> Function:
        """The entry function without calls of functions that have a body."""
        self._copy(_Copy(self._entry, "", (self._entry.name,)))
        return replace(
            with_body(self._entry, self._body),
            registers=self._cells.registers,
            variables=tuple(self._variables.values()),
            branch_targets=self._branch_targets,
        )

    def _copy(self, copy: _Copy) -> None:
        own = copy.variables(copy.function.variables)
        self._cells.declare(variable for variable in own if variable.space == "param")
        self._variables.update((variable.name, variable) for variable in own if variable.space != "param")
        for name, targets in copy.function.branch_targets.items():
            self._branch_targets[name + copy.suffix] = tuple(target + copy.suffix for target in targets)
        for statement in copy.function.body:
            if isinstance(statement, Label):
                self._body.append(Label(statement.name + copy.suffix))
            else:
                instruction = _renamed(statement, copy)
                if instruction.opcode == "call":
                    self._call(instruction, copy)
                elif copy.call is not None and instruction.opcode == "ret":
                    self._body.append(_jump(instruction, copy.end, instruction.guard))
                else:
                    moves = self._cells.moves(instruction)
                    self._body += [instruction] if moves is None else moves

    def _call(self, call: Instruction, copy: _Copy) -> None:
        callee = call.operands[1]
        function = self._module.functions.get(callee.name) if isinstance(callee, Symbol) else None
        if function is None:
            raise UnsupportedInstruction(call, "the function to call is known only at run time")
        if function.body:
            self._inline(call, function, copy)
        elif function.name in SYSTEM_CALLS:
            self._body.append(replace(call, operands=(self._values(call, 0), callee, self._values(call, 2))))
        else:
            raise UnsupportedInstruction(call, f"function `{function.name}` has no body")

    def _values(self, call: Instruction, place: int) -> Vector:
        return Vector(tuple(self._cells.value(operand, call) for operand in _elements(call, place)))

    def _inline(self, call: Instruction, function: Function, outer: _Copy) -> None:
        if function.name in outer.callers:
            raise UnsupportedInstruction(call, f"function `{function.name}` calls itself")
        self._copies += 1
        inner = _Copy(function, f".{function.name}.{self._copies}", (*outer.callers, function.name), call)
        self._declare(inner)
        if call.guard is not None:
            self._body.append(_jump(call, inner.end, Guard(call.guard.register, not call.guard.negated)))
        for formal, actual in zip(_formals(inner, function.parameters), _elements(call, 2)):
            self._body += self._cells.transfer(actual, formal, call)
        self._copy(inner)
        self._body.append(Label(inner.end))
        for formal, actual in zip(_formals(inner, function.returns), _elements(call, 0)):
            self._body += self._cells.transfer(formal, actual, call)

    def _declare(self, inner: _Copy) -> None:
        function = inner.function
        self._cells.registers.update((inner.names[name], kind) for name, kind in function.registers.items())
        formal = inner.variables(function.parameters, function.returns)
        self._cells.declare(variable for variable in formal if variable.space == "param")


def _elements(call: Instruction, place: int) -> tuple[Operand, ...]:
    operand = call.operands[place]
    assert isinstance(operand, Vector)
    return operand.elements


def _formals(copy: _Copy, variables: tuple[Variable, ...]) -> list[Operand]:
    renamed = copy.variables(variables)
    return [Register(v.name) if v.space == "reg" else Symbol(v.name) for v in renamed]


def _jump(instruction: Instruction, label: str, guard: Guard | None) -> Instruction:
    return replace(instruction, opcode="bra", modifiers=(), operands=(LabelReference(label),), guard=guard)


def _renamed(instruction: Instruction, copy: _Copy) -> Instruction:
    if copy.call is None:
        return instruction

    def change(operand: Operand) -> Operand:
        if isinstance(operand, (Register, Symbol, LabelReference)) and operand.name in copy.names:
            return replace(operand, name=copy.names[operand.name])
        return operand

    guard = instruction.guard and replace(instruction.guard, register=copy.names[instruction.guard.register])
    operands = tuple(mapped(operand, change) for operand in instruction.operands)
    location = _called_at(instruction.location, copy.call.location)
    return replace(instruction, operands=operands, guard=guard, location=location)


def _called_at(location: Location | None, caller: Location | None) -> Location | None:
    """The chain of a location, ended by the place of the call."""
    if location is None:
        return caller
    return replace(location, inlined_at=_called_at(location.inlined_at, caller))
