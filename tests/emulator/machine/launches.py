"""PTX text as a launch over arrays: each is an allocation of its own, the parameters `p0`, `p1`, … its addresses."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cutesmith.devices import SM_VERSIONS
from cutesmith.emulator.faults import Finding, KernelFault
from cutesmith.emulator.instruction_set import build_program
from cutesmith.emulator.machine.launch import LaunchReport, LaunchRun
from cutesmith.emulator.machine.memory import Memory
from cutesmith.emulator.machine.settings import Settings
from cutesmith.emulator.native.jit import compile_program
from cutesmith.emulator.native.logs import Instrumentation
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.ptx.parser import parse
from cutesmith.emulator.sanitizer.access import access_ir
from cutesmith.emulator.state.allocations import Allocations
from cutesmith.recording.cubin import CubinKernel
from cutesmith.recording.sessions import Launch

KERNEL = CubinKernel(name="k", registers=32, stack_bytes=0, static_smem_bytes=0, code_bytes=0, moves_registers=True)
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


def emulate(code, *arrays, dynamic=0, grid=1, block=32, cluster=1, fresh=(), declare="", allocations=None, maps=(), **settings):  # noqa: E501  # fmt: skip
    """The Outcome of PTX (one instruction a line: the line is the location of its findings); see `prepare`."""
    shape = {"grid": (grid, 1, 1), "block": (block, 1, 1), "cluster": (cluster, 1, 1), "dynamic_smem": dynamic}
    more = {
        "fresh": fresh,
        "declare": declare,
        "allocations": allocations,
        "maps": maps,
        "settings": Settings(**settings),
    }
    try:
        return Outcome(run(code, *arrays, **shape, **more).findings)
    except KernelFault as fault:
        return Outcome(fault.findings)


def run(code, *arrays, **options) -> LaunchReport:
    """Execute PTX code; the arrays are changed in place."""
    return prepare(code, *arrays, **options).run()


def prepare(
    code, *arrays, grid=(1, 1, 1), block=(32, 1, 1), cluster=(1, 1, 1), dynamic_smem=0, fresh=(), declare="",
    allocations=None, settings=None, maps=(),
) -> LaunchRun:  # fmt: skip
    """A launch of PTX code with the arrays as parameters, those that `fresh` numbers without values yet.

    `allocations`: an address space that a launch before has left, with the arrays in it. `maps`: 128 bytes of each
    tensor map, the parameters `m0`, `m1`, ….
    """
    if allocations is None:
        allocations = Allocations()
        for number, array in enumerate(arrays):
            allocations.add_array(array, address_of(number), f"array {number}", fresh=number in fresh)
    settings = settings or Settings()
    program = program_of(code, len(arrays), declare, len(maps))
    native = compile_program(program, access_ir(), Instrumentation(profile=True))
    memory = Memory(program, allocations, sanitize=settings.sanitize)
    addresses = [address_of(number) for number in range(len(arrays))]
    recorded = launch(addresses, grid=grid, block=block, cluster=cluster, dynamic_smem=dynamic_smem)
    recorded = replace(recorded, parameters=(*recorded.parameters, *maps))
    return LaunchRun(program, native, recorded, KERNEL, SM_VERSIONS[90], memory, settings)


def launch(addresses, *, grid=(1, 1, 1), block=(32, 1, 1), cluster=(1, 1, 1), dynamic_smem=0) -> Launch:
    """A launch of the kernel `k`, whose parameters are these addresses."""
    return Launch(
        kernel="k",
        grid=grid,
        block=block,
        cluster=cluster,
        dynamic_smem=dynamic_smem,
        smem_limit=1 << 20,
        nonportable_cluster=False,
        stream=0,
        attributes={},
        parameters=tuple(address.to_bytes(8, "little") for address in addresses),
    )


def program_of(code, arrays, declare="", maps=0) -> Program:
    """The program of PTX code with that many array parameters, then tensor maps.

    It has 4096 bytes `tile`, 16384 bytes `boxes` of shared and 64 bytes `stack` of local memory where it names them.
    """
    located = "\n".join(f".loc 1 {number} 0\n{line}" for number, line in enumerate(code.splitlines(), 1))
    addresses = [f".param .u64 p{number}" for number in range(arrays)]
    parameters = ", ".join(addresses + [f".param .align 64 .b8 m{number}[128]" for number in range(maps)])
    tile = ".shared .align 128 .b8 tile[4096];" if "tile" in code else ""
    boxes = ".shared .align 1024 .b8 boxes[16384];" if "boxes" in code else ""
    stack = ".local .align 16 .b8 stack[64];" if "stack" in code else ""
    text = f"""
.version 8.8
.target sm_90a
.address_size 64
.file 1 "kernel.ptx"
{declare}
.visible .entry k({parameters}) {{
.reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<50>; .reg .b64 %d<50>; .reg .b128 %q<8>;
{tile} {boxes}
{stack}
{located}
}}
"""
    return build_program(parse(text), "k")


_SET = {"r": "cvt.u32.u64 {}, %d47;", "d": "mov.b64 {}, %d47;", "p": "setp.ne.u64 {}, %d47, 0;"}
_GET = {"r": "cvt.u64.u32 %d47, {};", "p": "selp.u64 %d47, 1, 0, {};"}


def run_warps(code, values, *outputs, active=None, **options) -> list[np.ndarray]:
    """What registers hold after PTX has run in the warps of one block, uint64 (warps, 32) for each of `outputs`.

    `values`: registers that are set before, (warps, 32). Lanes that are not `active` have exited, and give 0.
    """
    shape = np.shape(next(iter(values.values())))
    values = {**values, "%p19": np.ones(shape) if active is None else active}
    arrays = [np.asarray(value).astype(np.uint64).ravel() for value in values.values()]
    arrays += [zeros(arrays[0].size, np.uint64) for _ in outputs]
    lines = ["mov.u32 %r49, %tid.x; mul.wide.u32 %d49, %r49, 8;"]
    places = [f"ld.param.u64 %d48, [p{number}]; add.u64 %d48, %d48, %d49;" for number in range(len(arrays))]
    for place, name in zip(places, values):
        lines.append(f"{place} ld.global.u64 %d47, [%d48]; {_SET[name[1]].format(name)}")
    lines.append(f"@!%p19 ret;\n{code}")
    for place, name in zip(places[len(values) :], outputs):
        lines.append(f"{place} {_GET[name[1]].format(name)} st.global.u64 [%d48], %d47;")
    run("\n".join([*lines, "ret;"]), *arrays, block=(arrays[0].size, 1, 1), **options)
    return [array.reshape(shape) for array in arrays[len(values) :]]


def store_result(register: str) -> str:
    """PTX that writes a 32-bit register to `p0[global thread index]`."""
    return f"""
ld.param.u64 %d40, [p0];
mov.u32 %r40, %tid.x; mov.u32 %r41, %ctaid.x; mov.u32 %r42, %ntid.x;
mad.lo.s32 %r43, %r41, %r42, %r40;
mul.wide.u32 %d41, %r43, 4;
add.s64 %d42, %d40, %d41;
st.global.u32 [%d42], {register};
"""


def zeros(count, dtype=np.uint32):
    """A new array."""
    return np.zeros(count, dtype)
