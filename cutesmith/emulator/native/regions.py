"""The native function of a region: a loop over lanes that runs pieces until the lane stops, and its instrumentation."""

from __future__ import annotations

from dataclasses import dataclass

from cutesmith.emulator.native.abi import EXITED, FAULTED, Access, Context, Space, preempted_at
from cutesmith.emulator.native.emitter import Emitter, ModuleText, alloca
from cutesmith.emulator.operations import registry
from cutesmith.emulator.program.pieces import Branch, Exit, Jump, Piece, Program, Region, Stop, Switch
from cutesmith.emulator.ptx.syntax import Instruction, Register

# Words of the context that a region function reads once, where it needs them, by the SSA name that holds them.
_POINTERS = {
    "frame": Context.FRAME,
    "stops": Context.STOPS,
    "special": Context.SPECIAL,
    "parameters": Context.PARAMETERS,
    "counts": Context.COUNTS,
    "module.symbols": Context.MODULE_SYMBOLS,
    "access.log": Context.ACCESS_LOG,
    "counts.of.lanes": Context.LANE_COUNTS,
    "trace": Context.TRACE,
}
_NUMBERS = {"lane.count": Context.LANES, "fuel": Context.FUEL, "clock": Context.CLOCK}


@dataclass(frozen=True)
class Instrumentation:
    """What native code writes down while it runs.

    `profile`: how often each piece ran (COUNTS); `lanes`: and each lane of it (LANE_COUNTS). `accesses`: every checked
    access (ACCESS_LOG). `trace`: every register that is set (TRACE). The layouts are those of `native/logs.py`.
    """

    profile: bool = False
    lanes: bool = False
    accesses: bool = False
    trace: bool = False


def program_text(program: Program, instrumentation: Instrumentation = Instrumentation()) -> str:
    """LLVM IR of all region functions `run_<piece>` of a program; raises UnsupportedInstruction."""
    module = ModuleText()
    for region in program.regions.values():
        module.functions.append(RegionWriter(program, module, region, instrumentation).text())
    return module.text()


class RegionWriter:
    """Writes `run_<piece>` of one region: prologue, its pieces, what happens at their ends."""

    def __init__(self, program: Program, module: ModuleText, region: Region, instrumentation: Instrumentation) -> None:
        self.program = program
        self.module = module
        self.region = region
        self.instrumentation = instrumentation
        module.declarations.update(_ENVIRONMENT)
        self.emitter = _emitter(program, module, instrumentation)

    def text(self) -> str:
        """The function and its wrapper."""
        for number in sorted(self.region.pieces):
            self._piece(self.program.pieces[number])
        body, self.emitter.lines = self.emitter.lines, []
        self._load_registers()
        loads, self.emitter.lines = self.emitter.lines, []
        number = self.region.entry
        allocas = [f"{alloca(name)} = alloca i{self.program.widths[name]}" for name in self.emitter.registers]
        code = "\n".join((_LANE_LOOP, *loads, f"br label %piece.{number}", *body, _LANE_END))
        head = (_HEAD.format(number=number), *allocas, *_context_words(code))
        return "\n".join((*head, code, "}", _WRAPPER.format(number=number)))

    def _load_registers(self) -> None:
        for name in sorted(self.region.loads):
            self.emitter.touch(name)
            self._move(name, store=False)

    def _move(self, name: str, *, store: bool) -> None:
        """Copy a register between its alloca and its row of the frame (two rows if it has 128 bits)."""
        emitter, bits = self.emitter, self.program.widths[name]
        rows = [self._row(self.program.slots[name] + half) for half in range(2 if bits == 128 else 1)]
        if store:
            value = emitter.held(name)
            for half, row in enumerate(rows):
                part = emitter.op(f"lshr i{bits} {{}}, {64 * half}", value) if half else value
                emitter.emit(f"store i64 {emitter.resize(part, bits, 64)}, ptr {row}")
            return
        words = [emitter.op("load i64, ptr {}", row) for row in rows]
        value = emitter.resize(words[0], 64, bits)
        if bits == 128:
            high = emitter.op("shl i128 {}, 64", emitter.resize(words[1], 64, 128))
            value = emitter.op("or i128 {}, {}", value, high)
        emitter.emit(f"store i{bits} {value}, ptr {alloca(name)}")

    def _row(self, slot: int) -> str:
        offset = self.emitter.op(f"mul i64 %lane.count, {slot}")
        return self.emitter.op("getelementptr i64, ptr %frame.lane, i64 {}", offset)

    # ---------------------------------------------------------------------------------------------------- pieces

    def _piece(self, piece: Piece) -> None:
        emitter = self.emitter
        emitter.block(f"piece.{piece.number}")
        if self.instrumentation.profile:
            self._count(piece.number)
        if self.instrumentation.lanes:
            self._count_of_lane(piece.number)
        for instruction in piece.instructions:
            self._instruction(instruction)
        self._end(piece)

    def _count(self, piece: int) -> None:
        pointer = self.emitter.op(f"getelementptr i64, ptr %counts, i64 {piece}")
        count = self.emitter.op("load i64, ptr {}", pointer)
        self.emitter.emit(f"store i64 {self.emitter.op('add i64 {}, 1', count)}, ptr {pointer}")

    def _count_of_lane(self, piece: int) -> None:
        emitter = self.emitter
        with emitter.when(emitter.op("icmp ne ptr %counts.of.lanes, null")):
            row = emitter.op(f"mul i64 %lane.count, {piece}")
            pointer = emitter.op("getelementptr i32, ptr %counts.of.lanes, i64 {}", row)
            pointer = emitter.op("getelementptr i32, ptr {}, i64 %lane.wide", pointer)
            count = emitter.op("load i32, ptr {}", pointer)
            emitter.emit(f"store i32 {emitter.op('add i32 {}, 1', count)}, ptr {pointer}")

    def _instruction(self, instruction: Instruction) -> None:
        emitter = self.emitter
        emitter.instruction = instruction
        if registry.kind_of(instruction) != "native":
            raise emitter.unsupported("it is no native instruction")
        emit = registry.native_emitter(instruction)
        if instruction.guard is None:
            emitter.begin()
            emit(emitter, instruction)
            return
        with emitter.when(emitter.guard(instruction.guard)):
            emitter.begin()
            emit(emitter, instruction)

    def _end(self, piece: Piece) -> None:
        emitter, end = self.emitter, piece.end
        if isinstance(end, Stop):
            self._leave(piece, end.number)
        elif isinstance(end, Exit):
            self._leave(piece, EXITED)
        elif isinstance(end, Jump):
            target = self._edge(piece, end.target)
            emitter.jump(target)
        elif isinstance(end, Branch):
            condition = emitter.guard(end.guard)
            emitter.branch(condition, self._edge(piece, end.taken), self._edge(piece, end.otherwise))
        else:
            self._switch(piece, end)
        self._loops(piece)

    def _switch(self, piece: Piece, end: Switch) -> None:
        emitter = self.emitter
        index = emitter.value(end.register, 32)
        ways = " ".join(f"i32 {i}, label %{self._edge(piece, target)}" for i, target in enumerate(end.targets))
        outside = emitter.new_label("outside")
        emitter.emit(f"switch i32 {index}, label %{outside} [{ways}]")
        emitter.block(outside)  # a jump to nowhere is written down as an access to address 0
        emitter.instruction = self._jump_through(end.register)
        emitter.access(Space.GLOBAL, "0", 4, Access.READ)
        emitter.jump("fault")

    def _jump_through(self, register: Register) -> Instruction:
        jumps = (item for item in self.program.instructions if item.opcode == "brx" and register in item.operands)
        return next(jumps)

    def _edge(self, piece: Piece, target: int) -> str:
        back = (piece.number, target) in self.region.back_edges
        return f"loop.{piece.number}.{target}" if back else f"piece.{target}"

    def _loops(self, piece: Piece) -> None:
        """Back edges of a piece: the lane goes on while it has fuel, else it leaves and resumes at the target."""
        for target in sorted(to for start, to in self.region.back_edges if start == piece.number):
            emitter = self.emitter
            emitter.block(f"loop.{piece.number}.{target}")
            fuel = emitter.op("load i64, ptr %fuel.left")
            emitter.emit(f"store i64 {emitter.op('sub i64 {}, 1', fuel)}, ptr %fuel.left")
            dry = emitter.new_label("dry")
            emitter.branch(emitter.op("icmp sgt i64 {}, 0", fuel), f"piece.{target}", dry)
            emitter.block(dry)
            self._leave(piece, preempted_at(target))

    def _leave(self, piece: Piece, code: int) -> None:
        for name in sorted(self.region.stores.get(piece.number, ())):
            self._move(name, store=True)
        self.emitter.emit(f"store i32 {code}, ptr %stop")
        self.emitter.jump("next")


def _emitter(program: Program, module: ModuleText, instrumentation: Instrumentation) -> Emitter:
    if not (instrumentation.accesses or instrumentation.trace):
        return Emitter(program, module)
    from cutesmith.emulator.native.logs import LoggingEmitter  # it extends Emitter, and is rarely needed

    return LoggingEmitter(program, module, log_accesses=instrumentation.accesses, trace=instrumentation.trace)


def _context_words(code: str) -> list[str]:
    """Loads of the context's words that `code` names."""
    words = [(name, "ptr", word) for name, word in _POINTERS.items()]
    words += [(name, "i64", word) for name, word in _NUMBERS.items()]
    lines = []
    for name, kind, word in words:
        if f"%{name}" in code:
            lines.append(f"%{name}.at = getelementptr i64, ptr %context, i64 {int(word)}")
            lines.append(f"%{name} = load {kind}, ptr %{name}.at")
    return lines


_HEAD = """define internal void @lanes_{number}(ptr %context, ptr %lanes, i64 %count) noinline nounwind {{
begin:
%fuel.left = alloca i64"""

_LANE_LOOP = """br label %each
each:
%index = phi i64 [0, %begin], [%index.next, %next]
%more = icmp slt i64 %index, %count
br i1 %more, label %lane.begin, label %end
lane.begin:
%lane.at = getelementptr i32, ptr %lanes, i64 %index
%lane = load i32, ptr %lane.at
%lane.wide = zext i32 %lane to i64
%frame.lane = getelementptr i64, ptr %frame, i64 %lane.wide
%special.lane = getelementptr i32, ptr %special, i64 %lane.wide
%stop = getelementptr i32, ptr %stops, i64 %lane.wide
store i64 %fuel, ptr %fuel.left"""

_LANE_END = f"""fault:
store i32 {FAULTED}, ptr %stop
br label %next
next:
%index.next = add i64 %index, 1
br label %each
end:
ret void"""

# Floats are computed as IEEE says whatever the calling thread has set (torch.set_flush_denormal); see jit.py.
_ENVIRONMENT = {
    "enter_ieee": "declare i64 @enter_ieee()",
    "leave_ieee": "declare void @leave_ieee(i64)",
}
_WRAPPER = """define void @run_{number}(ptr %context, ptr %lanes, i64 %count) nounwind {{
%saved = call i64 @enter_ieee()
call void @lanes_{number}(ptr %context, ptr %lanes, i64 %count)
call void @leave_ieee(i64 %saved)
ret void
}}"""
