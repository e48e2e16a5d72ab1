"""Region functions: loops and fuel, suspension points, instrumentation, float environment, threads, confinement."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from cutesmith.emulator.instruction_set import build_program
from cutesmith.emulator.native import jit
from cutesmith.emulator.native.logs import NO_REGISTER, accesses, new_log, trace_steps, traced_registers
from cutesmith.emulator.native.regions import Instrumentation, program_text
from cutesmith.emulator.program.abi import EXITED, FAULTED, Access, Context, Space, preempted_at
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.ptx.parser import parse
from tests.emulator.native.straight import HOST_ACCESS, Machine, straight

HEAD = ".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 out, .param .u32 steps) {\n"
REGISTERS = ".reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<9>;\n"
LOOP = """
    ld.param.u32 %r1, [steps];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, 0;
AGAIN:
    mad.lo.u32 %r2, %r2, 1664525, 1013904223;
    add.u32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r3, %r1;
    @%p1 bra AGAIN;
    ld.param.u64 %rd1, [out];
    mov.u32 %r4, %tid.x;
    mul.wide.u32 %rd2, %r4, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r2;
    ret;
"""


def program(body: str) -> Program:
    return build_program(parse(f"{HEAD}{REGISTERS}{body}}}\n"), "k")


class Launch(Machine):
    """A machine with an output word a lane and a number of steps as parameters."""

    def __init__(self, program: Program, lanes: int, steps: int) -> None:
        super().__init__(program, lanes)
        self.out = np.zeros(lanes, np.uint32)
        self.special[0] = np.arange(lanes)
        self.parameters[:8] = np.array([self.out.ctypes.data], np.uint64).view(np.uint8)
        self.parameters[8:12] = np.array([steps], np.uint32).view(np.uint8)

    def wanted(self) -> np.ndarray:
        value = np.arange(self.lanes, dtype=np.uint32)
        for _ in range(int(self.parameters[8:12].view(np.uint32)[0])):
            value = value * np.uint32(1664525) + np.uint32(1013904223)
        return value


def test_a_lane_out_of_fuel_gives_way_and_goes_on_where_it_was():
    machine = Launch(program(LOOP), 7, steps=100)
    machine.context[Context.FUEL] = 30
    counts = np.zeros(len(machine.program.basic_blocks), np.uint64)
    machine.context[Context.COUNTS] = counts.ctypes.data
    machine.run(profile=True)
    loop = next(iter(machine.program.regions[0].back_edges))[1]
    assert (machine.status == preempted_at(loop)).all() and not machine.out.any()
    assert counts[0] == 7 and counts[loop] == 7 * 31  # the first time, and 30 back edges
    for _ in range(3):
        machine.run(loop)
    assert (machine.status == EXITED).all() and (machine.out == machine.wanted()).all()


def test_only_the_lanes_that_are_named_run():
    machine = Launch(program(LOOP), 9, steps=3)
    chosen = np.array([8, 0, 5], np.int32)
    machine.run(lanes=chosen)
    assert np.flatnonzero(machine.status == EXITED).tolist() == [0, 5, 8]
    assert (machine.out[chosen] == machine.wanted()[chosen]).all() and np.count_nonzero(machine.out) == 3


def test_a_suspension_point_keeps_what_lives_in_the_frame():
    body = """
    mov.u32 %r1, %tid.x;
    add.u32 %r2, %r1, 10;
    bar.sync 0;
    add.u32 %r3, %r2, %r1;
    ld.param.u64 %rd1, [out];
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r3;
    ret;
    """
    machine = Launch(program(body), 4, steps=0)
    machine.run()
    assert machine.status.tolist() == [machine.program.suspension_points[0].number] * 4 and not machine.out.any()
    machine.run(machine.program.suspension_points[0].resume)
    assert machine.status.tolist() == [EXITED] * 4 and machine.out.tolist() == [10, 12, 14, 16]


def test_a_switch_goes_where_its_register_says():
    body = """
    mov.u32 %r1, %tid.x;
    targets: .branchtargets A, B, C;
    brx.idx %r1, targets;
A:  mov.u32 %r2, 100;  bra END;
B:  mov.u32 %r2, 200;  bra END;
C:  mov.u32 %r2, 300;
END:
    ld.param.u64 %rd1, [out];
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r2;
    ret;
    """
    machine = Launch(program(body), 5, steps=0)
    machine.run()
    assert machine.out.tolist() == [100, 200, 300, 0, 0]
    assert machine.status.tolist() == [EXITED, EXITED, EXITED, FAULTED, FAULTED]


def test_the_log_has_every_access_and_says_what_it_lost():
    machine = Launch(program(LOOP), 5, steps=1)
    log = new_log(4)
    machine.context[Context.ACCESS_LOG] = log.ctypes.data
    machine.run(accesses=True)
    fields = accesses(log)
    store = next(item for item in machine.program.instructions if item.opcode == "st")
    assert fields["lane"].tolist() == [0, 1, 2, 3] and log[0] - log[1] == 1
    assert (fields["address"] == machine.out.ctypes.data + 4 * np.arange(4)).all()
    assert set(fields["site"].tolist()) == {store.number}
    assert set(zip(fields["space"], fields["kind"], fields["bytes"])) == {(Space.GLOBAL, Access.WRITE, 4)}


def test_a_trace_shows_each_instruction_and_what_it_set():
    code = "add.u32 %r2, %r1, 1;\n@%p1 mov.u32 %r3, 7;\nmov.b64 {%r4, %r5}, %rd1;"
    traced = straight(code, ("%r1", "%p1", "%rd1"), ("%r2", "%r3"))
    machine = Machine(traced, 4)
    machine.frame[traced.slots["%r1"]] = [5, 6, 7, 8]
    machine.frame[traced.slots["%p1"]] = [0, 0, 1, 0]
    machine.frame[traced.slots["%rd1"]] = 9 << 32 | 3
    log = new_log(64, range(1, 3))
    machine.context[Context.TRACE] = log.ctypes.data
    machine.run(trace=True)
    names = traced_registers(traced)
    steps = [
        (
            int(s["lane"]),
            int(s["instruction"]),
            names[s["register"]] if s["register"] != NO_REGISTER else "",
            int(s["value"]),
        )
        for s in trace_steps(log)
    ]
    first, second, third = (item.number for item in traced.instructions)
    tail = [(third, "", 0), (third, "%r4", 3), (third, "%r5", 9)]
    assert steps == [
        (lane, *step)
        for lane, extra in ((1, []), (2, [(second, "", 0), (second, "%r3", 7)]))
        for step in [(first, "", 0), (first, "%r2", 6 + lane), *extra, *tail]
    ]


def test_the_same_code_is_compiled_once():
    first, second = (jit.compile_program(program(LOOP), HOST_ACCESS) for _ in range(2))
    other = jit.compile_program(program(LOOP), HOST_ACCESS, Instrumentation(profile=True))
    assert first is second and other is not first


@pytest.fixture
def flushed_denormals() -> Iterator[None]:
    if not torch.set_flush_denormal(True):
        pytest.fail("this processor cannot flush subnormals")
    yield
    torch.set_flush_denormal(False)


SUBNORMALS = """define void @run_0(ptr %context, ptr %lanes, i64 %count) {
%saved = call i64 @enter_ieee()
call void @halve(ptr %lanes)
call void @leave_ieee(i64 %saved)
ret void
}
define internal void @halve(ptr %at) noinline {
%x = load float, ptr %at
%y = fmul float %x, 5.0e-1
store float %y, ptr %at
ret void
}
declare i64 @enter_ieee()
declare void @leave_ieee(i64)
declare ptr @access(ptr, i32, i32, i64, i32, i32, i32)"""


def test_subnormals_survive_a_thread_that_flushes_them(flushed_denormals: None):
    native = jit.compile_text(SUBNORMALS, HOST_ACCESS, (0,))
    data = np.array([0x0080_0000], np.int32)  # the smallest normal number
    context = np.zeros(64, np.int64)
    native.run(0, context, data)
    assert data.tolist() == [0x0040_0000]
    assert torch.tensor([1e-38]).mul(0.5).item() == 0.0  # the caller's own setting is as it was


def test_no_product_is_fused_with_a_sum():
    """(1 + 2^-12)^2 - (1 + 2^-11) is 2^-24 if fused, and 0 if the product is rounded first."""
    text = program_text(straight("mov.u32 %r1, 0;", (), ("%r1",)))
    assert "fast" not in text and "contract" not in text
    body = SUBNORMALS.replace(
        "%y = fmul float %x, 5.0e-1", "%p = fmul float %x, %x\n%y = fadd float %p, 0xBFF0020000000000"
    )
    native = jit.compile_text(body, HOST_ACCESS, (0,))
    data = np.array([1 + 2.0**-12], np.float32).view(np.int32)
    native.run(0, np.zeros(64, np.int64), data)
    assert data.view(np.float32).tolist() == [0.0]


def test_threads_run_the_same_code_at_once():
    machines = [Launch(program(LOOP), 64, steps=2000 + i) for i in range(4)]
    threads = [threading.Thread(target=machine.run) for machine in machines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((machine.out == machine.wanted()).all() for machine in machines)


def test_a_context_of_another_shape_is_refused():
    native = jit.compile_program(program(LOOP), HOST_ACCESS)
    with pytest.raises(ValueError, match="int64"):
        native.run(0, np.zeros(3, np.int64), np.zeros(1, np.int32))


CONFINED = """
import numpy as np
from cutesmith.sandbox.confinement import confine
from cutesmith.emulator.native.jit import compile_text
layers = confine()
text = '''{text}'''
data = np.array([2.0], np.float32).view(np.int32)
compile_text(text, '''{access}''', (0,)).run(0, np.zeros(64, np.int64), data)
print(layers["no_new_privileges"], data.view(np.float32)[0])
"""


def test_code_is_made_inside_a_confined_worker(tmp_path: Path):
    script = CONFINED.format(text=SUBNORMALS, access=HOST_ACCESS)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(sys.platform.startswith("linux")), "1.0"]
