"""What instruction emitters rely on, shown by emitters of the test's own in the IR of one region."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from cutesmith.emulator.errors import EmulationError
from cutesmith.emulator.native import jit
from cutesmith.emulator.native.emitter import Emitter, ModuleText
from cutesmith.emulator.native.logs import Instrumentation
from cutesmith.emulator.native.regions import RegionWriter
from cutesmith.emulator.program.abi import EXITED, FAULTED, Access, Space
from cutesmith.emulator.program.basic_blocks import BasicBlock, Program
from cutesmith.emulator.ptx.syntax import Immediate, Register, Sink, Vector
from tests.emulator.native.straight import HOST_ACCESS, Machine, straight

INPUTS = ("%r1", "%r2", "%rd1", "%p1")
OUTPUTS = ("%r3", "%r4", "%rd2", "%p2")


class OneBody(RegionWriter):
    """A region whose first instruction is written by a function of the test."""

    def __init__(self, program: Program, module: ModuleText, write: Callable[[Emitter], None]) -> None:
        super().__init__(program, module, program.regions[0], Instrumentation())
        self._write = write

    def _basic_block(self, basic_block: BasicBlock) -> None:
        self.emitter.block(f"bb.{basic_block.number}")
        self.emitter.instruction = self.program.instructions[0]
        self._write(self.emitter)
        self._end(basic_block)


def run(write: Callable[[Emitter], None], **inputs: list[int]) -> tuple[Machine, Callable[[str], list[int]]]:
    """Run what `write` emits on lanes of the given inputs (`r1`, …); the machine and a reader of registers."""
    program = straight("mov.u32 %r3, 0;", INPUTS, OUTPUTS)
    module = ModuleText()
    module.functions.append(OneBody(program, module, write).text())
    machine = Machine(program, len(next(iter(inputs.values()))))
    for name, values in inputs.items():
        machine.frame[program.slots[f"%{name}"]] = values
    native = jit.compile_text(module.text(), HOST_ACCESS, (0,))
    native.run(0, machine.context, np.arange(machine.lanes, dtype=np.int32))
    return machine, lambda name: machine.register(f"%{name}").tolist()


def test_values_are_cut_or_extended_to_the_width_asked_for():
    def write(emitter: Emitter) -> None:
        register = Register("%r1")
        emitter.assign(Register("%rd2"), emitter.value(register, 64, signed=True), 64)
        emitter.assign(Register("%r3"), emitter.value(register, 8, signed=True), 8, signed=True)
        emitter.assign(Register("%r4"), emitter.value(register, 8), 8)

    _, read = run(write, r1=[0x8000_0080, 0x17F])
    assert read("rd2") == [0xFFFF_FFFF_8000_0080, 0x17F]
    assert read("r3") == [0xFFFF_FF80, 0x7F] and read("r4") == [0x80, 0x7F]


def test_code_under_a_condition_leaves_other_lanes_alone():
    def write(emitter: Emitter) -> None:
        emitter.assign(Register("%r3"), "1", 32)
        with emitter.when(emitter.value(Register("%p1"), 1)):
            emitter.assign(Register("%r3"), emitter.op("add i32 {}, 6", emitter.value(Register("%r3"), 32)), 32)
        emitter.assign(Register("%r4"), emitter.value(Register("%r3"), 32), 32)

    _, read = run(write, p1=[0, 1, 1, 0])
    assert read("r3") == read("r4") == [1, 7, 7, 1]


def test_blocks_branch_and_select():
    def write(emitter: Emitter) -> None:
        small = emitter.op("icmp ult i32 {}, 10", emitter.value(Register("%r1"), 32))
        low, high, after = (emitter.new_label(hint) for hint in ("low", "high", "after"))
        emitter.branch(small, low, high)
        emitter.block(low)
        emitter.assign(Register("%r3"), "100", 32)
        emitter.jump(after)
        emitter.block(high)
        emitter.assign(Register("%r3"), emitter.value(Register("%r1"), 32), 32)
        emitter.jump(after)
        emitter.block(after)
        emitter.assign(Register("%r4"), emitter.select(small, "i32", "1", "2"), 32)

    _, read = run(write, r1=[3, 30])
    assert read("r3") == [100, 30] and read("r4") == [1, 2]


def test_vectors_sinks_and_negated_predicates():
    def write(emitter: Emitter) -> None:
        emitter.assign(Vector((Register("%r3"), Sink())), emitter.value(Register("%rd1"), 64), 64)
        packed = emitter.value(Vector((Register("%r1"), Immediate(7))), 64)
        emitter.assign(Register("%rd2"), packed, 64)
        emitter.assign(Register("%p2"), emitter.value(Register("%p1", negated=True), 1), 1)

    _, read = run(write, rd1=[0x1_0000_0002], r1=[5], p1=[1])
    assert read("r3") == [2] and read("rd2") == [7 << 32 | 5] and read("p2") == [0]


def test_helpers_and_library_functions_are_called():
    helper = "define internal i32 @twice(i32 %x) {\n%y = shl i32 %x, 1\nret i32 %y\n}"

    def write(emitter: Emitter) -> None:
        value = f"i32 {emitter.value(Register('%r1'), 32)}"
        for destination in ("%r3", "%r4"):
            emitter.assign(Register(destination), emitter.helper("twice", helper, "i32", value), 32)
        number = emitter.op("uitofp i32 {} to double", emitter.value(Register("%r1"), 32))
        for function in ("log2", "llvm.exp2.f64", "llvm.tanh.f64", "llvm.sin.f64", "llvm.cos.f64", "llvm.log2.f64"):
            number = emitter.intrinsic(function, "double", f"double {number}")
        emitter.assign(Register("%rd2"), emitter.to_bits(number, "double"), 64)

    _, read = run(write, r1=[21, 2])
    assert read("r3") == read("r4") == [42, 4]
    wanted = [np.log2(np.cos(np.sin(np.tanh(np.exp2(np.log2(float(x))))))) for x in (21, 2)]
    assert np.allclose(np.array(read("rd2"), np.uint64).view(np.float64), wanted, rtol=1e-14)


def test_a_function_that_is_missing_is_an_error_and_not_a_crash():
    def write(emitter: Emitter) -> None:
        emitter.intrinsic("no_such_function", "void")

    with pytest.raises(EmulationError, match="no_such_function"):
        run(write, r1=[1])


def test_a_fault_ends_the_lane():
    def write(emitter: Emitter) -> None:
        emitter.fault_unless(emitter.op("icmp ne i32 {}, 4", emitter.value(Register("%r1"), 32)))
        emitter.assign(Register("%r3"), "1", 32)

    machine, read = run(write, r1=[3, 4, 5])
    assert machine.status.tolist() == [EXITED, FAULTED, EXITED] and read("r3") == [1, 0, 1]


def test_an_access_gives_a_host_pointer():
    data = np.array([40, 41], np.uint32)

    def write(emitter: Emitter) -> None:
        pointer = emitter.access(Space.GLOBAL, emitter.value(Register("%rd1"), 64), 4, Access.READ)
        emitter.assign(Register("%r3"), emitter.op("load i32, ptr {}", pointer), 32)

    machine, read = run(write, rd1=[data.ctypes.data, 0, data.ctypes.data + 4])
    assert read("r3") == [40, 0, 41] and machine.status.tolist() == [EXITED, FAULTED, EXITED]
