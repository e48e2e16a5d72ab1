"""PTX text run as one wave over host memory that checks nothing: what the scheduler needs, without a sanitizer."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cutesmith.devices import SM_VERSIONS
from cutesmith.emulator.instruction_set import build_program
from cutesmith.emulator.machine.launch import LaunchReport, LaunchRun
from cutesmith.emulator.machine.settings import Settings
from cutesmith.emulator.native.jit import compile_program
from cutesmith.emulator.native.logs import Instrumentation
from cutesmith.emulator.ptx.parser import parse
from cutesmith.emulator.state.wave import Wave
from cutesmith.recording.cubin import CubinKernel
from cutesmith.recording.sessions import Launch

ACCESS = """define ptr @access(ptr %context, i32 %lane, i32 %space, i64 %address, i32 %bytes, i32 %kind, i32 %site) {
%is_shared = icmp eq i32 %space, 2
br i1 %is_shared, label %shared, label %host
host:
%pointer = inttoptr i64 %address to ptr
ret ptr %pointer
shared:
%shared_word = getelementptr i64, ptr %context, i64 10
%base = load i64, ptr %shared_word
%bytes_word = getelementptr i64, ptr %context, i64 11
%block_bytes = load i64, ptr %bytes_word
%blocks_word = getelementptr i64, ptr %context, i64 9
%cluster_of_lane = load ptr, ptr %blocks_word
%at = getelementptr i32, ptr %cluster_of_lane, i32 %lane
%first = load i32, ptr %at
%first_wide = zext i32 %first to i64
%rank = lshr i64 %address, 24
%block = add i64 %first_wide, %rank
%offset = and i64 %address, 16777215
%start = mul i64 %block, %block_bytes
%sum = add i64 %start, %offset
%total = add i64 %base, %sum
%inside = inttoptr i64 %total to ptr
ret ptr %inside
}"""
"""Global addresses are the host's own; shared ones those of the lane's cluster."""


@dataclass
class HostMemory:
    """What machine/memory.py promises, without any check: notes who was told to have synchronised."""

    ordered: list[tuple[str, int]] = field(default_factory=list)
    module_symbols: dict[str, int] = field(default_factory=dict)

    def attach(self, wave: Wave) -> None:
        self.wave = wave

    def drain(self) -> None:
        pass

    def synchronise_blocks(self, blocks) -> None:
        self.ordered += [("block", int(block)) for block in blocks]

    def synchronise_lanes(self, lanes) -> None:
        self.ordered.append(("lanes", len(lanes)))

    def release_cluster(self, lanes) -> None:
        self.ordered.append(("release", len(lanes)))

    def acquire_cluster(self, lanes) -> None:
        self.ordered.append(("acquire", len(lanes)))


def launch(grid=(1, 1, 1), block=(32, 1, 1), cluster=(1, 1, 1), dynamic_smem=0, parameters=()) -> Launch:
    """A launch of the kernel `k`; its parameters are 64-bit numbers."""
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
        parameters=tuple(int(value).to_bytes(8, "little") for value in parameters),
    )


KERNEL = CubinKernel(name="k", registers=32, stack_bytes=0, static_smem_bytes=0, code_bytes=0)


def prepare(code: str, *arrays: np.ndarray, settings: Settings | None = None, **shape) -> LaunchRun:
    """A launch of PTX code whose parameters `p0`, `p1`, … are the arrays' addresses."""
    parameters = ", ".join(f".param .u64 p{number}" for number in range(len(arrays)))
    text = f"""
.version 8.8
.target sm_90a
.address_size 64
.visible .entry k({parameters}) {{
.reg .pred %p<20>; .reg .b32 %r<50>; .reg .b64 %rd<50>;
{code}
}}
"""
    program = build_program(parse(text), "k")
    native = compile_program(program, ACCESS, Instrumentation(profile=True))
    recorded = launch(parameters=[array.ctypes.data for array in arrays], **shape)
    memory = HostMemory()
    return LaunchRun(program, native, recorded, KERNEL, SM_VERSIONS[90], memory, settings or Settings())


def run(code: str, *arrays: np.ndarray, **options) -> LaunchReport:
    """Execute PTX code; the arrays are changed in place."""
    return prepare(code, *arrays, **options).run()


def store_result(register: str, parameter: str = "p0") -> str:
    """PTX that writes a 32-bit register to `parameter[global thread index]`."""
    return f"""
ld.param.u64 %rd40, [{parameter}];
mov.u32 %r40, %tid.x; mov.u32 %r41, %ctaid.x; mov.u32 %r42, %ntid.x;
mad.lo.s32 %r43, %r41, %r42, %r40;
mul.wide.u32 %rd41, %r43, 4;
add.s64 %rd42, %rd40, %rd41;
st.global.u32 [%rd42], {register};
"""
