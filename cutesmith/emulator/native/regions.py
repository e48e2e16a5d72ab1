"""The native function of a region: a loop over lanes that runs basic blocks until each lane is suspended."""

from __future__ import annotations

from contextlib import nullcontext

from cutesmith.emulator.instructions.table import Native, execution_of
from cutesmith.emulator.native.emitter import Emitter, ModuleText, alloca
from cutesmith.emulator.native.logs import NO_INSTRUMENTATION, Instrumentation, LoggingEmitter
from cutesmith.emulator.program.abi import EXITED, FAULTED, Access, Context, Space, preempted_at
from cutesmith.emulator.program.basic_blocks import (
    BasicBlock,
    Branch,
    Exit,
    Jump,
    Program,
    Region,
    SuspensionPoint,
    Switch,
)

# Words of the context that a region function reads once, where it needs them, by the SSA name that holds them.
_POINTERS = {
    "frame": Context.FRAME,
    "status": Context.STATUS,
    "special": Context.SPECIAL,
    "parameters": Context.PARAMETERS,
    "counts": Context.COUNTS,
    "module.symbols": Context.MODULE_SYMBOLS,
    "access.log": Context.ACCESS_LOG,
    "counts.of.lanes": Context.LANE_COUNTS,
    "trace": Context.TRACE,
}
_NUMBERS = {"lane.count": Context.LANES, "fuel": Context.FUEL, "clock": Context.CLOCK}


def program_text(program: Program, instrumentation: Instrumentation = NO_INSTRUMENTATION) -> str:
    """LLVM IR of all region functions `run_<basic_block>` of a program; raises UnsupportedInstruction."""
    module = ModuleText()
    for region in program.regions.values():
        module.functions.append(RegionWriter(program, module, region, instrumentation).text())
    return module.text()


class RegionWriter:
    """Writes `run_<basic_block>` of one region: prologue, its basic blocks, what happens at their ends."""

    def __init__(self, program: Program, module: ModuleText, region: Region, instrumentation: Instrumentation) -> None:
        self.program = program
        self.module = module
        self.region = region
        self.instrumentation = instrumentation
        module.declarations.update(_ENVIRONMENT)
        logs = instrumentation.accesses or instrumentation.trace
        self.emitter = LoggingEmitter(program, module, instrumentation) if logs else Emitter(program, module)

    def text(self) -> str:
        """The function and its wrapper."""
        for number in sorted(self.region.basic_blocks):
            self._basic_block(self.program.basic_blocks[number])
        body, self.emitter.lines = self.emitter.lines, []
        for name in sorted(self.region.loads):
            self.emitter.touch(name)
            self._move(name, store=False)
        loads, self.emitter.lines = self.emitter.lines, []
        number = self.region.entry
        allocas = [f"{alloca(name)} = alloca i{self.program.widths[name]}" for name in self.emitter.registers]
        code = "\n".join((_LANE_LOOP, *loads, f"br label %bb.{number}", *body, _LANE_END))
        head = (_HEAD.format(number=number), *allocas, *_context_words(code))
        return "\n".join((*head, code, "}", _WRAPPER.format(number=number)))

    def _move(self, name: str, *, store: bool) -> None:
        """Copy a register between its alloca and its row of the frame (two rows if it has 128 bits)."""
        emitter, bits = self.emitter, self.program.widths[name]
        slots = [self.program.slots[name] + half for half in range(2 if bits == 128 else 1)]
        offsets = [emitter.op(f"mul i64 %lane.count, {slot}") for slot in slots]
        rows = [emitter.op("getelementptr i64, ptr %frame.lane, i64 {}", offset) for offset in offsets]
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

    # ---------------------------------------------------------------------------------------------------- basic blocks

    def _basic_block(self, basic_block: BasicBlock) -> None:
        emitter = self.emitter
        emitter.block(f"bb.{basic_block.number}")
        if self.instrumentation.profile:
            pointer = emitter.op(f"getelementptr i64, ptr %counts, i64 {basic_block.number}")
            count = emitter.op("load i64, ptr {}", pointer)
            emitter.emit(f"store i64 {emitter.op('add i64 {}, 1', count)}, ptr {pointer}")
        if self.instrumentation.count_lanes:
            with emitter.when(emitter.op("icmp ne ptr %counts.of.lanes, null")):
                row = emitter.op(f"mul i64 %lane.count, {basic_block.number}")
                pointer = emitter.op("getelementptr i32, ptr %counts.of.lanes, i64 {}", row)
                pointer = emitter.op("getelementptr i32, ptr {}, i64 %lane.wide", pointer)
                count = emitter.op("load i32, ptr {}", pointer)
                emitter.emit(f"store i32 {emitter.op('add i32 {}, 1', count)}, ptr {pointer}")
        for instruction in basic_block.instructions:
            emitter.instruction = instruction
            execution = execution_of(instruction)
            if not isinstance(execution, Native):
                raise emitter.unsupported("native code does not execute it")
            with emitter.when(emitter.guard(instruction.guard)) if instruction.guard else nullcontext():
                emitter.begin()
                execution.emit(emitter, instruction)
        self._end(basic_block)

    def _end(self, basic_block: BasicBlock) -> None:
        emitter, end = self.emitter, basic_block.end
        if isinstance(end, SuspensionPoint):
            self._leave(basic_block, end.number)
        elif isinstance(end, Exit):
            self._leave(basic_block, EXITED)
        elif isinstance(end, Jump):
            target = self._edge(basic_block, end.target)
            emitter.jump(target)
        elif isinstance(end, Branch):
            condition = emitter.guard(end.guard)
            emitter.branch(condition, self._edge(basic_block, end.taken), self._edge(basic_block, end.otherwise))
        else:
            self._switch(basic_block, end)
        self._loops(basic_block)

    def _switch(self, basic_block: BasicBlock, end: Switch) -> None:
        emitter = self.emitter
        index = emitter.value(end.register, 32)
        ways = " ".join(f"i32 {i}, label %{self._edge(basic_block, target)}" for i, target in enumerate(end.targets))
        outside = emitter.new_label("outside")
        emitter.emit(f"switch i32 {index}, label %{outside} [{ways}]")
        emitter.block(outside)  # a jump to nowhere is written down as an access to address 0
        jumps = (item for item in self.program.instructions if item.opcode == "brx" and end.register in item.operands)
        emitter.instruction = next(jumps)
        emitter.access(Space.GLOBAL, "0", 4, Access.READ)
        emitter.jump("fault")

    def _edge(self, basic_block: BasicBlock, target: int) -> str:
        back = (basic_block.number, target) in self.region.back_edges
        return f"loop.{basic_block.number}.{target}" if back else f"bb.{target}"

    def _loops(self, basic_block: BasicBlock) -> None:
        """Back edges of a basic block: the lane goes on while it has fuel, else it leaves and resumes at the target."""
        for target in sorted(to for start, to in self.region.back_edges if start == basic_block.number):
            emitter = self.emitter
            emitter.block(f"loop.{basic_block.number}.{target}")
            fuel = emitter.op("load i64, ptr %fuel.left")
            emitter.emit(f"store i64 {emitter.op('sub i64 {}, 1', fuel)}, ptr %fuel.left")
            dry = emitter.new_label("dry")
            emitter.branch(emitter.op("icmp sgt i64 {}, 0", fuel), f"bb.{target}", dry)
            emitter.block(dry)
            self._leave(basic_block, preempted_at(target))

    def _leave(self, basic_block: BasicBlock, code: int) -> None:
        for name in sorted(self.region.stores.get(basic_block.number, ())):
            self._move(name, store=True)
        self.emitter.emit(f"store i32 {code}, ptr %status.lane")
        self.emitter.jump("next")


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
%status.lane = getelementptr i32, ptr %status, i64 %lane.wide
store i64 %fuel, ptr %fuel.left"""

_LANE_END = f"""fault:
store i32 {FAULTED}, ptr %status.lane
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
