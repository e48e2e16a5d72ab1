"""What is recorded on the H200 for warp-wide instructions: the PTX of each form, and its inputs.

A form reads some registers a lane and writes some; its PTX body names them %i0, %i1, … and %o0, %o1, ….
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.ptx.syntax import bits_of
from cutesmith.emulator.tensor_cores.fragments import N
from cutesmith.emulator.tensor_cores.warp_multiply import parse_multiplication
from evals.studies.emulator.driver import THREADS
from evals.studies.emulator.mma_inputs import SETS, Stream, kinds_of, registers, selector_of

WARP = 32  # the kinds of input are names in the recording, and seed its numbers

MULTIPLICATIONS = tuple(
    "mma.sync.aligned." + form
    for form in (
        "m16n8k8.row.col.f16.f16.f16.f16", "m16n8k16.row.col.f16.f16.f16.f16",
        "m16n8k8.row.col.f32.f16.f16.f32", "m16n8k16.row.col.f32.f16.f16.f32",
        "m16n8k8.row.col.f32.bf16.bf16.f32", "m16n8k16.row.col.f32.bf16.bf16.f32",
        "m16n8k4.row.col.f32.tf32.tf32.f32", "m16n8k8.row.col.f32.tf32.tf32.f32",
        "m16n8k16.row.col.f32.e4m3.e4m3.f32", "m16n8k16.row.col.f16.e5m2.e4m3.f16",
        "m16n8k32.row.col.f32.e4m3.e4m3.f32", "m16n8k32.row.col.f32.e5m2.e5m2.f32",
        "m16n8k32.row.col.f32.e4m3.e5m2.f32", "m16n8k32.row.col.f16.e4m3.e5m2.f16",
        "m16n8k32.row.col.f16.e5m2.e5m2.f16",
        "m8n8k4.row.col.f64.f64.f64.f64", "m16n8k4.row.col.f64.f64.f64.f64",
        "m16n8k8.row.col.f64.f64.f64.f64", "m16n8k16.row.col.f64.f64.f64.f64",
        "m8n8k16.row.col.s32.s8.u8.s32", "m16n8k16.row.col.satfinite.s32.u8.s8.s32",
        "m16n8k32.row.col.s32.s8.s8.s32", "m16n8k32.row.col.satfinite.s32.s8.s8.s32",
        "m16n8k32.row.col.satfinite.s32.u8.u8.s32",
        "m8n8k32.row.col.s32.u4.s4.s32", "m16n8k32.row.col.s32.s4.u4.s32", "m16n8k64.row.col.satfinite.s32.s4.s4.s32",
        "m8n8k128.row.col.s32.b1.b1.s32.xor.popc", "m16n8k128.row.col.s32.b1.b1.s32.and.popc",
        "m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
    )
)  # fmt: skip

FURTHER_MULTIPLICATIONS = tuple(
    "mma.sync.aligned." + form
    for form in (
        "m16n8k16.row.col.f32.e5m2.e4m3.f32", "m16n8k16.row.col.f32.e4m3.e5m2.f32",
        "m16n8k16.row.col.f32.e5m2.e5m2.f32", "m16n8k16.row.col.f16.e4m3.e4m3.f16",
        "m16n8k16.row.col.f16.e4m3.e5m2.f16", "m16n8k16.row.col.f16.e5m2.e5m2.f16",
        "m16n8k32.row.col.f32.e5m2.e4m3.f32", "m16n8k32.row.col.f16.e4m3.e4m3.f16",
        "m16n8k32.row.col.f16.e5m2.e4m3.f16", "m8n8k16.row.col.s32.s8.s8.s32",
        "m8n8k16.row.col.satfinite.s32.u8.u8.s32", "m8n8k16.row.col.s32.u8.s8.s32",
        "m16n8k16.row.col.s32.s8.s8.s32", "m16n8k16.row.col.s32.u8.u8.s32",
        "m16n8k16.row.col.satfinite.s32.s8.u8.s32", "m16n8k32.row.col.s32.u8.s8.s32",
        "m16n8k32.row.col.s32.s8.u8.s32", "m16n8k32.row.col.satfinite.s32.u8.s8.s32",
        "m8n8k32.row.col.s32.s4.s4.s32", "m8n8k32.row.col.satfinite.s32.u4.u4.s32",
        "m16n8k32.row.col.s32.u4.u4.s32", "m16n8k64.row.col.s32.u4.s4.s32",
        "m16n8k64.row.col.s32.s4.u4.s32", "m16n8k128.row.col.s32.b1.b1.s32.xor.popc",
        "m16n8k256.row.col.s32.b1.b1.s32.and.popc", "m8n8k128.row.col.s32.b1.b1.s32.and.popc",
    )
)  # fmt: skip
"""Those that `further` recordings hold."""

SPARSE_MULTIPLICATIONS = tuple(
    f"mma.sp{ordered}.sync.aligned.{form}"
    for ordered, forms in (
        ("::ordered_metadata", (
            "m16n8k16.row.col.f16.f16.f16.f16", "m16n8k16.row.col.f32.f16.f16.f32", "m16n8k32.row.col.f16.f16.f16.f16",
            "m16n8k32.row.col.f32.f16.f16.f32", "m16n8k16.row.col.f32.bf16.bf16.f32",
            "m16n8k32.row.col.f32.bf16.bf16.f32", "m16n8k8.row.col.f32.tf32.tf32.f32",
            "m16n8k16.row.col.f32.tf32.tf32.f32", "m16n8k64.row.col.f32.e4m3.e4m3.f32",
            "m16n8k64.row.col.f32.e5m2.e4m3.f32", "m16n8k64.row.col.f32.e5m2.e5m2.f32",
            "m16n8k32.row.col.s32.s8.s8.s32", "m16n8k32.row.col.satfinite.s32.u8.s8.s32",
            "m16n8k64.row.col.s32.s8.u8.s32", "m16n8k64.row.col.satfinite.s32.s8.s8.s32",
            "m16n8k64.row.col.s32.s4.s4.s32", "m16n8k128.row.col.satfinite.s32.u4.s4.s32",
        )),
        ("", (
            "m16n8k16.row.col.f32.f16.f16.f32", "m16n8k32.row.col.f32.bf16.bf16.f32",
            "m16n8k16.row.col.f32.tf32.tf32.f32", "m16n8k64.row.col.f32.e4m3.e5m2.f32",
            "m16n8k64.row.col.s32.u8.u8.s32", "m16n8k64.row.col.s32.u4.u4.s32",
        )),
    )
    for form in forms
)  # fmt: skip
"""Products with a sparse A, without `ordered_metadata` with both orders of places."""

HEADER = f"""\
.version 8.7
.target sm_90
.address_size 64
.visible .entry test(.param .b64 out, .param .b64 in)
.reqntid {THREADS}, 1, 1
{{
.reg .b64 %in, %out, %offset;
.reg .b32 %t<4>, %thread, %block, %lane, %smem;
.reg .pred %p<2>, %q<2>;
ld.param.b64 %out, [out];
ld.param.b64 %in, [in];
mov.u32 %thread, %tid.x;
mov.u32 %block, %ctaid.x;
and.b32 %lane, %thread, 31;
mad.lo.s32 %t0, %block, {THREADS}, %thread;
mul.wide.u32 %offset, %t0, 8;
add.s64 %in, %in, %offset;
add.s64 %out, %out, %offset;
"""
SHARED = f"""\
.shared .align 128 .b8 rows[{16 * THREADS}];
mov.u32 %smem, rows;
sub.u32 %t0, %thread, %lane;
mad.lo.u32 %smem, %t0, 16, %smem;
"""


@dataclass(frozen=True)
class Form:
    """An instruction as it is recorded: registers read and written a lane, their bits, the PTX body, input kinds."""

    name: str
    reads: int
    writes: int
    body: str
    kinds: tuple[str, ...]
    bits: int = 32
    shared: bool = False

    def inputs(self, kind: str) -> Array:
        """uint64 (sets, reads, 32)."""
        form = parse_multiplication(self.name)
        return registers(self.name, kind, form) if form else warp_inputs(self, kind)

    def ptx(self) -> str:
        """A kernel `test(out, in)`: every warp reads register r of its lanes from column r of `in`, 64-bit words."""
        count = SETS * WARP
        columns = "".join(f"ld.global.b{self.bits} %i{r}, [%in+{8 * count * r}];\n" for r in range(self.reads))
        clears = "".join(f"mov.b{self.bits} %o{r}, 0;\n" for r in range(self.writes))
        stores = "".join(f"st.global.b{self.bits} [%out+{8 * count * r}], %o{r};\n" for r in range(self.writes))
        body = self.body.replace("; ", ";\n")
        registers = f".reg .b{self.bits} %i<{self.reads}>, %o<{self.writes}>;\n"
        return f"{HEADER}{registers}{SHARED if self.shared else ''}{columns}{clears}{body}\nDONE:\n{stores}ret;\n}}\n"


def multiplication(name: str) -> Form:
    """The form of an `mma.sync`."""
    form = parse_multiplication(name)
    assert form is not None, name
    per = [max(1, 32 // bits_of(kind)) for kind in (form.a, form.b, form.result)]
    a, b, c = (size // WARP // p for size, p in zip((form.m * form.stored, form.k * N, form.m * N), per))
    sparse = f", %i{a + b + c}, {selector_of(form)}" if form.sparse else ""
    operands = f"{_vector('o', 0, c)}, {_vector('i', 0, a)}, {_vector('i', a, b)}, {_vector('i', a + b, c)}{sparse}"
    reads = a + b + c + form.sparse
    return Form(name, reads, c, f"{name} {operands};", kinds_of(form), 64 if form.a == "f64" else 32)


def _vector(prefix: str, start: int, count: int) -> str:
    return "{" + ", ".join(f"%{prefix}{start + index}" for index in range(count)) + "}"


PARTIAL = "shr.u32 %t0, %i3, %lane; and.b32 %t0, %t0, 1; setp.eq.u32 %q0, %t0, 0; @%q0 bra DONE;"
PREDICATE = "and.b32 %t1, %i0, 1; setp.eq.u32 %q1, %t1, 1;"


def _warp_forms() -> list[Form]:
    forms = []
    for mode in ("up", "down", "bfly", "idx"):
        name = f"shfl.sync.{mode}.b32"
        body = f"{PARTIAL} {name} %o0|%p0, %i0, %i1, %i2, %i3; selp.u32 %o1, 1, 0, %p0;"
        forms.append(Form(name, 4, 2, body, ("full", "partial")))
    for mode in ("all", "any", "uni"):
        name = f"vote.sync.{mode}.pred"
        body = f"{PARTIAL} {PREDICATE} {name} %p0, %q1, %i3; selp.u32 %o0, 1, 0, %p0;"
        body += f" {name} %p0, !%q1, %i3; selp.u32 %o1, 1, 0, %p0;"
        forms.append(Form(name, 4, 2, body, ("full", "partial", "alike")))
    body = f"{PARTIAL} {PREDICATE} vote.sync.ballot.b32 %o0, %q1, %i3; vote.sync.ballot.b32 %o1, !%q1, %i3;"
    forms.append(Form("vote.sync.ballot.b32", 4, 2, body, ("full", "partial", "alike")))
    body = f"{PARTIAL} match.any.sync.b32 %o0, %i0, %i3;"
    forms.append(Form("match.any.sync.b32", 4, 1, body, ("full", "partial", "alike")))
    body = f"{PARTIAL} match.all.sync.b32 %o0|%p0, %i0, %i3; selp.u32 %o1, 1, 0, %p0;"
    forms.append(Form("match.all.sync.b32", 4, 2, body, ("full", "partial", "alike")))
    for mode in ("add.s32", "add.u32", "min.s32", "min.u32", "max.s32", "max.u32", "and.b32", "or.b32", "xor.b32"):
        operation, kind = mode.split(".")
        name = f"redux.sync.{operation}.{kind}"
        forms.append(Form(name, 4, 1, f"{PARTIAL} {name} %o0, %i0, %i3;", ("full", "partial", "alike")))
    body = f"{PARTIAL} elect.sync %o0|%p0, %i3; selp.u32 %o1, 1, 0, %p0;"
    forms.append(Form("elect.sync", 4, 2, body, ("full", "partial")))
    forms.append(Form("activemask.b32", 4, 1, f"{PARTIAL} activemask.b32 %o0;", ("full", "partial")))
    return forms


STORE_ROW = "shl.b32 %t0, %lane, 4; add.u32 %t0, %t0, %smem; st.shared.v4.b32 [%t0], {%i0, %i1, %i2, %i3}; bar.sync 0;"
ROW_ADDRESS = "shl.b32 %t1, %i4, 4; add.u32 %t1, %t1, %smem;"


def _matrix_forms() -> list[Form]:
    forms = [Form("movmatrix", 4, 1, "movmatrix.sync.aligned.m8n8.trans.b16 %o0, %i0;", ("full",))]
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            vector = _vector("o", 0, count)
            load = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
            body = f"{STORE_ROW} {ROW_ADDRESS} {load} {vector}, [%t1];"
            forms.append(Form(load, 5, count, body, ("rows",), shared=True))
            store = f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16"
            zero = "shl.b32 %t0, %lane, 4; add.u32 %t0, %t0, %smem; mov.b32 %t2, 0;"
            zero += " st.shared.v4.b32 [%t0], {%t2, %t2, %t2, %t2}; bar.sync 0;"
            body = f"{zero} {ROW_ADDRESS} {store} [%t1], {_vector('i', 0, count)}; bar.sync 0;"
            body += f" ld.shared.v4.b32 {_vector('o', 0, 4)}, [%t0];"
            forms.append(Form(store, 5, 4, body, ("rows",), shared=True))
    return forms


FORMS = (*map(multiplication, MULTIPLICATIONS), *_warp_forms(), *_matrix_forms())


def warp_inputs(form: Form, kind: str) -> Array:
    """Inputs of a warp operation: value, shift or lane, clamp and segments, membermask; or rows and their order."""
    stream = Stream(f"{form.name} {kind}")
    bits = stream.bits(SETS, form.reads, WARP) >> np.uint64(32)
    if kind == "rows":
        bits[:, 4] = np.argsort(stream.bits(SETS, WARP), axis=1).astype(np.uint64)
        return bits
    if form.reads < 4 or form.name == "movmatrix":
        return bits
    if kind == "alike":
        few = stream.below(3, SETS, 1).astype(np.uint64)
        odd = stream.chance(0.02, SETS, WARP).astype(np.uint64)
        bits[:, 0] = (few + odd) * np.uint64(0x9000_0001)
    if form.name.startswith("match") and kind != "alike":
        bits[:, 0] &= np.uint64(7)
    if form.name.startswith("shfl"):
        bits[:, 1] = np.where(stream.chance(0.2, SETS, WARP), bits[:, 1], bits[:, 1] & np.uint64(31))
        clamps = np.array([0x1F, 0, 0x1C1F, 0x181F, 0x1007, 0x0F0F, 0x1E01, 0x1F1F, 0x0300, 0xFFFF_FFFF], np.uint64)
        bits[: SETS // 2, 2] = clamps[np.arange(SETS // 2) % len(clamps)][:, None]
    if form.name == "shfl.sync.bfly.b32" or form.name == "shfl.sync.idx.b32":
        bits[0, 1] = np.arange(WARP) % 5
    bits[:, 3] = 0xFFFF_FFFF
    if kind in ("partial", "alike"):
        bits[1:, 3] = (stream.bits(SETS - 1, 1) >> np.uint64(32)) | np.uint64(1 << 7)
    return bits
