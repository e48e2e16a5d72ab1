"""LLVM IR of a region: what instruction emitters write with, and the loop over lanes around it.

An instruction emitter is a function `(emitter, instruction) -> None` registered with `instructions.table.native`. It
reads operands as SSA names, computes with `op` and `intrinsic`, and sets destinations:

    @native("popc")
    def population_count(emitter: Emitter, instruction: Instruction) -> None:
        destination, source = instruction.operands
        count = emitter.intrinsic("llvm.ctpop.i32", "i32", f"i32 {emitter.value(source, 32)}")
        emitter.assign(destination, count, 32)

PTX registers are typed by their width alone: i1, i16, i32, i64, i128; floats are bitcast at each use. Guards are the
emitter's business: the code of a guarded instruction runs under a branch, so stores and faults need no care.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.instructions.forms import literal_bits
from cutesmith.emulator.program.abi import (
    ACCESS_FUNCTION,
    CLOCKS,
    PARAMETER_WINDOW,
    SHARED_RANK_SHIFT,
    SPECIAL_ROWS,
    Access,
    Space,
)
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.ptx.syntax import (
    Address,
    Guard,
    Immediate,
    Instruction,
    Operand,
    Register,
    Sink,
    SpecialRegister,
    Symbol,
    Vector,
)

FLOAT_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}
_ACCESS = f"declare ptr @{ACCESS_FUNCTION}(ptr, i32, i32, i64, i32, i32, i32)"
_RARE = "!prof !1"  # the second way of a branch is hardly ever taken


class ModuleText:
    """The LLVM module of a program while it is written: declarations, helper functions, region functions."""

    def __init__(self) -> None:
        self.declarations: dict[str, str] = {ACCESS_FUNCTION: _ACCESS}
        self.helpers: dict[str, str] = {}
        self.functions: list[str] = []

    def text(self) -> str:
        """The module as textual LLVM IR."""
        metadata = '!0 = !{}\n!1 = !{!"branch_weights", i32 4096, i32 1}\n'
        return "\n".join((*self.declarations.values(), *self.helpers.values(), *self.functions, metadata))


class Emitter:
    """Writes the code of one region; `instruction` is the one being emitted, `program` what it belongs to."""

    def __init__(self, program: Program, module: ModuleText) -> None:
        self.program = program
        self.module = module
        self.instruction: Instruction | None = None
        self.lines: list[str] = []
        self.registers: dict[str, None] = {}  # those that the region mentions
        self._names = 0
        self._known: dict[str, str] = {}  # register -> SSA name that holds it, valid where the current block is reached

    # ---------------------------------------------------------------------------------------------- writing code

    def emit(self, text: str) -> None:
        """Write one line of LLVM IR."""
        self.lines.append(text)

    def op(self, template: str, *values: str) -> str:
        """Write `%new = template.format(*values)` and return the new SSA name: `op("add i32 {}, {}", a, b)`."""
        name = self.new_name()
        self.lines.append(f"{name} = {template.format(*values) if values else template}")
        return name

    def new_name(self) -> str:
        """An SSA name that is not in use."""
        self._names += 1
        return f"%t{self._names}"

    def intrinsic(self, name: str, result: str, *arguments: str) -> str:
        """Call a function outside the module, declared on the way: `intrinsic("llvm.fabs.f32", "float", f"float {x}")`.

        Arguments carry their type. Besides LLVM's intrinsics the functions of the C library and libm may be called.
        """
        self.declare(name, result, *(argument.rsplit(" ", 1)[0] for argument in arguments))
        return self._call(name, result, arguments)

    def declare(self, name: str, result: str, *types: str) -> None:
        """Declare a function outside the module, for the text of a `helper` that calls it."""
        self.module.declarations.setdefault(name, f"declare {result} @{name}({', '.join(types)})")

    def helper(self, name: str, text: str, result: str, *arguments: str) -> str:
        """Call a function whose definition `text` (`define internal …`) joins the module once."""
        self.module.helpers.setdefault(name, text)
        return self._call(name, result, arguments)

    def _call(self, name: str, result: str, arguments: tuple[str, ...]) -> str:
        call = f"call {result} @{name}({', '.join(arguments)})"
        if result == "void":
            self.emit(call)
            return ""
        return self.op(call.replace("{", "{{").replace("}", "}}"))

    def select(self, condition: str, kind: str, chosen: str, otherwise: str) -> str:
        """`condition ? chosen : otherwise` of LLVM type `kind`."""
        return self.op(f"select i1 {{}}, {kind} {{}}, {kind} {{}}", condition, chosen, otherwise)

    # ------------------------------------------------------------------------------------------------ blocks

    def new_label(self, hint: str = "block") -> str:
        """A label that is not in use (without its colon)."""
        self._names += 1
        return f"{hint}.{self._names}"

    def branch(self, condition: str, chosen: str, otherwise: str) -> None:
        """End the block: go to one label or the other."""
        self.emit(f"br i1 {condition}, label %{chosen}, label %{otherwise}")

    def jump(self, label: str) -> None:
        """End the block: go to a label."""
        self.emit(f"br label %{label}")

    def block(self, label: str) -> None:
        """Begin a block; what registers hold is read again in it."""
        self._known = {}
        self.emit(f"{label}:")

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """Code in the `with` body runs only where `condition` (i1) holds; no SSA name may leave it, registers may."""
        body, after = self.new_label("do"), self.new_label("after")
        before = dict(self._known)
        self.branch(condition, body, after)
        self.emit(f"{body}:")
        yield
        self.jump(after)
        unchanged = {name: value for name, value in before.items() if self._known.get(name) == value}
        self.block(after)
        self._known = unchanged

    def fault_unless(self, condition: str) -> None:
        """Go on where `condition` (i1) holds; else the lane ends as FAULTED (a finding must have been written)."""
        label = self.new_label("sound")
        self.emit(f"br i1 {condition}, label %{label}, label %fault, {_RARE}")
        self.emit(f"{label}:")

    # ---------------------------------------------------------------------------------------------- operands

    def width(self, operand: Operand) -> int:
        """Declared bits of a register; 64 for symbols and addresses, 32 for special registers, 0 for an immediate."""
        if isinstance(operand, Register):
            return self.program.widths[operand.name]
        if isinstance(operand, SpecialRegister):
            return 64 if operand.name in ("%clock64", "%globaltimer", "%gridid") else 32
        return 0 if isinstance(operand, Immediate) else 64

    def value(self, operand: Operand, bits: int, *, signed: bool = False) -> str:
        """The operand as an i<bits> SSA name or constant.

        A wider register is truncated, a narrower one zero-extended (sign-extended if `signed`); `!%p` is inverted; a
        float literal is converted to the float type of that width and gives its bit pattern; a symbol gives its
        address as `Wave.symbol` does; a vector is packed from equal parts, the first lowest.
        """
        if isinstance(operand, Immediate):
            return self.literal(operand, bits)
        if isinstance(operand, Register):
            held = self.resize(self.held(operand.name), self.width(operand), bits, signed=signed)
            return self.op(f"xor i{bits} {{}}, {'true' if bits == 1 else 1}", held) if operand.negated else held
        if isinstance(operand, SpecialRegister):
            return self.resize(self.special(operand.name), self.width(operand), bits)
        if isinstance(operand, Symbol):
            return self.resize(self.symbol(operand), 64, bits)
        if isinstance(operand, Address):
            return self.resize(self.address(operand), 64, bits)
        if isinstance(operand, Vector):
            return self.pack([self.value(part, bits // len(operand.elements)) for part in operand.elements], bits)
        raise self.unsupported(f"operand {operand!r} has no single value")

    def to_float(self, bits: str, kind: str) -> str:
        """Integer bits as a float of the same width."""
        return self.op(f"bitcast i{FLOAT_BITS[kind]} {{}} to {kind}", bits)

    def to_bits(self, value: str, kind: str) -> str:
        """A float's bits as an integer of the same width."""
        return self.op(f"bitcast {kind} {{}} to i{FLOAT_BITS[kind]}", value)

    def assign(self, operand: Operand, value: str, bits: int, *, signed: bool = False) -> None:
        """Set a register from an i<bits> value, truncated or extended to its width.

        A Sink swallows the value, a vector takes equal parts of it, the lowest first.
        """
        if isinstance(operand, Sink):
            return
        if isinstance(operand, Vector):
            part = bits // len(operand.elements)
            for register, field in zip(operand.elements, self.unpack(value, bits, part)):
                self.assign(register, field, part, signed=signed)
            return
        if not isinstance(operand, Register):
            raise self.unsupported(f"{operand!r} is not a destination")
        width = self.width(operand)
        value = self.resize(value, bits, width, signed=signed)
        self.touch(operand.name)
        self._known[operand.name] = value
        self.emit(f"store i{width} {value}, ptr {alloca(operand.name)}")
        self.assigned(operand.name, value, width)

    def begin(self) -> None:
        """The current instruction is about to be executed (its guard holds); instrumentation overrides this."""

    def assigned(self, register: str, value: str, bits: int) -> None:
        """A register has been set; instrumentation overrides this."""

    def resize(self, value: str, bits: int, wanted: int, *, signed: bool = False) -> str:
        """An i<bits> value as i<wanted>: truncated, or zero- or sign-extended."""
        if bits == wanted:
            return value
        how = "trunc" if wanted < bits else "sext" if signed else "zext"
        return self.op(f"{how} i{bits} {{}} to i{wanted}", value)

    def pack(self, parts: Sequence[str], bits: int) -> str:
        """Equal i<bits / n> parts, lowest first, as one i<bits>."""
        part = bits // len(parts)
        packed = self.resize(parts[0], part, bits)
        for position, value in enumerate(parts[1:], 1):
            field = self.op(f"shl i{bits} {{}}, {position * part}", self.resize(value, part, bits))
            packed = self.op(f"or i{bits} {{}}, {{}}", packed, field)
        return packed

    def unpack(self, value: str, bits: int, part: int) -> list[str]:
        """An i<bits> value cut into i<part> fields, lowest first."""
        fields = [value] + [self.op(f"lshr i{bits} {{}}, {shift}", value) for shift in range(part, bits, part)]
        return [self.resize(field, bits, part) for field in fields]

    def literal(self, operand: Immediate, bits: int) -> str:
        """A literal as an i<bits> constant; a float literal gives its pattern in the float type of that width."""
        if operand.float_bits:
            return str(literal_bits(operand, np.dtype(f"u{max(bits, 8) // 8}")))
        value = operand.value & ((1 << bits) - 1)
        return ("true" if value else "false") if bits == 1 else str(value)

    def touch(self, register: str) -> None:
        """The region needs a stack slot for this register."""
        self.registers[register] = None

    def held(self, name: str) -> str:
        """What a register holds, in its declared width."""
        if name not in self._known:
            self.touch(name)
            self._known[name] = self.op(f"load i{self.program.widths[name]}, ptr {alloca(name)}")
        return self._known[name]

    # -------------------------------------------------------------------------------- special registers, addresses

    def special(self, name: str) -> str:
        """A special register as i32, or i64 for `%clock64`, `%globaltimer` and `%gridid`."""
        if name in CLOCKS:
            clock = self.op(f"lshr i64 %clock, {CLOCKS[name]}")
            return clock if name in ("%clock64", "%globaltimer") else self.resize(clock, 64, 32)
        if name == "%gridid":
            low, high = (self.resize(self.special(f"%gridid_{part}"), 32, 64) for part in ("lo", "hi"))
            return self.op("or i64 {}, {}", low, self.op("shl i64 {}, 32", high))
        if name not in SPECIAL_ROWS:
            raise self.unsupported(f"special register {name}")
        row = self.op(f"mul i64 %lane.count, {SPECIAL_ROWS[name]}")
        pointer = self.op("getelementptr i32, ptr %special.lane, i64 {}", row)
        return self.op("load i32, ptr {}, !invariant.load !0", pointer)

    def symbol(self, operand: Symbol) -> str:
        """The i64 address of a variable in its own space; `.global` and `.const` ones are read from MODULE_SYMBOLS."""
        program, name = self.program, operand.name
        if name in program.shared_symbols:
            rank = self.resize(self.special("%cluster_ctarank"), 32, 64)
            base = self.op(f"shl i64 {{}}, {SHARED_RANK_SHIFT}", rank)
            return self.op(f"add i64 {{}}, {program.shared_symbols[name] + operand.offset}", base)
        if name in program.local_symbols:
            return str(program.local_symbols[name] + operand.offset)
        if name in program.parameters:
            return str(PARAMETER_WINDOW + program.parameters[name] + operand.offset)
        names = [variable.name for variable in program.module_variables]
        if name not in names:
            raise self.unsupported(f"the address of {name}")
        pointer = self.op(f"getelementptr i64, ptr %module.symbols, i64 {names.index(name)}")
        base = self.op("load i64, ptr {}, !invariant.load !0", pointer)
        return self.op(f"add i64 {{}}, {operand.offset}", base) if operand.offset else base

    def address(self, operand: Address) -> str:
        """The i64 address `[base + offset]`; with a 32-bit base it wraps at 32 bits."""
        if isinstance(operand.base, Symbol):
            return self.symbol(Symbol(operand.base.name, operand.base.offset + operand.offset))
        if isinstance(operand.base, Immediate):
            return str((operand.base.value + operand.offset) & (2**64 - 1))
        bits = self.width(operand.base)
        base = self.value(operand.base, bits)
        return self.resize(self.op(f"add i{bits} {{}}, {operand.offset}", base) if operand.offset else base, bits, 64)

    def access(self, space: Space, address: str, size: int, kind: Access) -> str:
        """The host pointer of a checked access of `size` bytes to an i64 address; a refused lane ends."""
        assert self.instruction is not None
        pointer = self.op(
            f"call ptr @{ACCESS_FUNCTION}(ptr %context, i32 %lane, i32 {int(space)}, i64 {{}}, i32 {size}, "
            f"i32 {int(kind)}, i32 {self.instruction.number})",
            address,
        )
        self.fault_unless(self.op("icmp ne ptr {}, null", pointer))
        return pointer

    def at(self, pointer: str, offset: int) -> str:
        """A host pointer plus some bytes."""
        return self.op(f"getelementptr i8, ptr {{}}, i64 {offset}", pointer) if offset else pointer

    def elements(self, operand: Operand, count: int) -> tuple[Operand, ...]:
        """The registers of `count` elements: those of a vector, or the operand itself."""
        elements = operand.elements if isinstance(operand, Vector) and count > 1 else (operand,)
        if len(elements) != count:
            raise self.unsupported(f"{len(elements)} registers for {count} elements")
        return elements

    def guard(self, guard: Guard) -> str:
        """The i1 value of a guard."""
        return self.value(Register(guard.register, guard.negated), 1)

    def unsupported(self, why: str = "") -> UnsupportedInstruction:
        """The error to raise for a form of the current instruction that is not executed."""
        assert self.instruction is not None
        return UnsupportedInstruction(self.instruction, why)


def alloca(register: str) -> str:
    """The SSA name of the stack slot of a register."""
    return f'%"{register}"'
