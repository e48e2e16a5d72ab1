"""PTX and ptxas text as the compiler writes it."""

import pytest

from cutesmith.recording.cubin import source_name, unwrap_fatbin
from cutesmith.recording.ptx import Spills, read_notes, read_ptx, read_remarks, source_place

PTX = """
.version 8.8
.target sm_90a
.visible .entry kernel_a(
	.param .u64 kernel_a_param_0
)
.reqntid 128
{
	.reg .b32 %r<9>;
	@%p1 bra $L_1;
	ld.global.nc.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
	@%p2 ld.global.L1::no_allocate.v2.b16 {%rs1, %rs2}, [%rd1];
	st.global.v2.f32 [%rd2], {%f1, %f2};
	st.shared.v4.b32 [%r9], {%r1, %r2, %r3, %r4};
	// st.global.v8.b32 in a comment;
	{ wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%f1}, %rd3, %rd4, p, 1, 1, 0, 1; }
	wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%f1}, %rd3, %rd4, p, 1, 1, 0, 1;
	cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];
	cp.async.bulk.commit_group;
}
.entry kernel_b()
{
	cp.async.cg.shared.global [%r1], [%rd1], 16, %r2;
	st.global.b8 [%rd1], %rs1;
	mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1}, {%r1}, {%r2}, {%f2};
	ret;
}
"""


def test_read_ptx():
    kernels = read_ptx(PTX)
    assert list(kernels) == ["kernel_a", "kernel_b"]
    a, b = kernels.values()
    assert (a.widest_load_bits, a.widest_store_bits) == (128, 64)
    assert a.tensor_core == {"wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16": 2}
    assert a.tma == {"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes": 1}
    assert (b.widest_load_bits, b.widest_store_bits) == (128, 8)
    assert b.tensor_core == {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": 1}
    assert b.tma == {}


@pytest.mark.parametrize(
    ("instruction", "bits"),
    [
        ("ld.global.b64 %rd1, [%rd2];", 64),
        ("ld.global.v8.b32 {%r1}, [%rd2];", 256),
        ("ld.global.v4.b64 {%rd1}, [%rd2];", 256),
        ("ld.global.b128 %rq1, [%rd2];", 128),
        ("ld.global.v4.f16x2 {%r1}, [%rd2];", 128),
        ("cp.async.ca.shared.global.L2::128B [%r1], [%rd1], 4;", 32),
        ("ld.shared.v4.b32 {%r1}, [%r2];", 0),
        ("ld.param.b64 %rd1, [p];", 0),
    ],
)
def test_load_widths(instruction, bits):
    (kernel,) = read_ptx(".visible .entry k()\n{\n" + instruction + "\n}\n").values()
    assert kernel.widest_load_bits == bits


def test_notes_of_ptxas_have_the_line_of_their_kernel():
    text = """ptxas output: ptxas info    : (C7517) warpgroup.wait is injected around line 7 in function 'k1'
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized in function 'k1'
ptxas info    : Compiling entry function 'k1' for 'sm_90a'"""
    first, second = read_notes(text)["k1"]
    assert (first.code, first.line, second.code, second.line) == ("C7517", 7, "C7510", 0)
    ptx = '.file 1 "/a/kernel.py"\n.entry k1() {\n.loc 1 30 4\nadd;\n.loc 1 31 8\n\nwgmma;\n.loc 1 40 0\nret;\n}\n'
    assert source_place(ptx, first.line) == "kernel.py:31" and source_place(".entry k1() {", 1) == ""
    assert read_notes("ptxas info : 0 bytes gmem") == {}


def test_register_budgets_are_read():
    body = "setmaxnreg.dec.sync.aligned.u32 24;\nsetmaxnreg.inc.sync.aligned.u32 \t240;"
    (kernel,) = read_ptx(".visible .entry k()\n{\n" + body + "\n}\n").values()
    assert (kernel.decreased, kernel.increased) == ((24,), (240,))


def test_read_remarks():
    text = """ptxas info    : Compiling entry function 'k1' for 'sm_90a'
ptxas info    : Function properties for k1
ptxas         .     2232 bytes stack frame, 3940 bytes spill stores, 4712 bytes spill loads
ptxas info    : Function properties for k2
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"""
    assert read_remarks(text) == {"k1": Spills(3940, 4712), "k2": Spills(0, 0)}


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("kernel_cutlass_relu_kernel_tensorptrf32gmemalign16o414_tensorptrf32gmemalign16o414__0", "relu_kernel"),
        ("kernel_cutlass_empty_0", "empty"),
        ("kernel_cutlass_kernel_cutesmith_file_gemm_6a8f6555Gemm_object_at__0", "kernel"),
        ("my_kernel", "my_kernel"),
    ],
)
def test_source_name(mangled, name):
    assert source_name(mangled) == name


def test_what_is_no_fat_binary():
    with pytest.raises(ValueError, match="neither"):
        unwrap_fatbin(bytes(64))
