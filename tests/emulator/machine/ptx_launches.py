"""PTX text as a launch over arrays: each is an allocation of its own, the parameters `p0`, `p1`, … its addresses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutesmith.devices import SM_VERSIONS
from cutesmith.emulator.faults import Finding, KernelFault
from cutesmith.emulator.instruction_set import build_program
from cutesmith.emulator.machine.launch import LaunchRun
from cutesmith.emulator.machine.memory import Memory
from cutesmith.emulator.machine.settings import Settings
from cutesmith.emulator.native.jit import compile_program
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.ptx.parser import parse
from cutesmith.emulator.sanitizer.access import access_ir
from cutesmith.emulator.state.allocations import Allocations
from tests.emulator.machine.bench import KERNEL, launch

FIRST_ADDRESS = 0x7F00_0000_0000
GAP = 1 << 20


def address_of(number: int) -> int:
    """The device address of the array of that number."""
    return FIRST_ADDRESS + number * GAP


@dataclass(frozen=True)
class Outcome:
    """The findings of a launch; `lines` are the numbers of lines in the PTX text that was given."""

    findings: tuple[Finding, ...]

    @property
    def kinds(self) -> list[str]:
        return [finding.kind for finding in self.findings]

    @property
    def lines(self) -> list[tuple[int, int]]:
        """(line, line of the other access or 0) of each finding."""
        places = [(finding.location, finding.other) for finding in self.findings]
        return [(first.line if first else 0, second.line if second else 0) for first, second in places]


def emulate(code, *arrays, fresh=(), declare="", grid=1, block=32, cluster=1, dynamic=0, **settings) -> Outcome:
    """Run PTX (one instruction a line: the line is the location of its findings); arrays are changed in place."""
    allocations = Allocations()
    for number, array in enumerate(arrays):
        allocations.add_array(array, address_of(number), f"array {number}", fresh=number in fresh)
    return emulate_in(allocations, len(arrays), code, declare, (grid, block, cluster, dynamic), Settings(**settings))


def emulate_in(allocations, arrays, code, declare="", shape=(1, 32, 1, 0), settings=Settings()) -> Outcome:  # noqa: B008
    """Run PTX in an address space; `shape`: blocks, threads of a block, blocks of a cluster, dynamic shared bytes."""
    grid, block, cluster, dynamic = shape
    program = program_of(code, arrays, declare)
    addresses = [address_of(number) for number in range(arrays)]
    recorded = launch((grid, 1, 1), (block, 1, 1), (cluster, 1, 1), dynamic, addresses)
    memory = Memory(program, allocations, sanitize=settings.sanitize)
    run = LaunchRun(program, compile_program(program, access_ir()), recorded, KERNEL, SM_VERSIONS[90], memory, settings)
    try:
        return Outcome(run.run().findings)
    except KernelFault as fault:
        return Outcome(fault.findings)


def program_of(code, arrays, declare="") -> Program:
    """The program of PTX code with that many array parameters; it has 4096 bytes `tile` and 64 bytes `stack`."""
    located = "\n".join(f".loc 1 {number} 0\n{line}" for number, line in enumerate(code.splitlines(), 1))
    parameters = ", ".join(f".param .u64 p{number}" for number in range(arrays))
    text = f"""
.version 8.8
.target sm_90a
.address_size 64
.file 1 "kernel.ptx"
{declare}
.visible .entry k({parameters}) {{
.reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<50>; .reg .b64 %d<50>; .reg .b128 %q<8>;
.shared .align 128 .b8 tile[4096];
.local .align 16 .b8 stack[64];
{located}
}}
"""
    return build_program(parse(text), "k")


def zeros(count, dtype=np.uint32):
    """A new array."""
    return np.zeros(count, dtype)
