"""What `compile` says beside numbers: notes of ptxas, spills with their line, registers by role."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from cutesmith.compiling.compilation import compile_kernel
from cutesmith.compiling.kernel_notes import kernel_notes
from cutesmith.patterns.attention.plan import match
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.cubin import CubinKernel
from cutesmith.recording.ptx import PtxasNote, PtxKernel, Spills
from cutesmith.recording.sessions import Launch, Module

NAME = "kernel_cutlass_gemm_0"
PTX = '.file 1 "/a/kernel.py"\n.entry k() {\n.loc 1 31 8\nwgmma;\n}\n'


def notes(
    *,
    arch="sm_90a",
    block=384,
    registers=168,
    moved=True,
    down=(),
    up=(),
    spills=None,
    ptxas=(),
    looped=0,
    wgmma=0,
    wgmma_waits=0,
    asked=0,
    **own,
):
    kernel = CubinKernel(
        name=NAME, registers=registers, stack_bytes=0, static_smem_bytes=0, code_bytes=0, moves_registers=moved,
        local_in_loops=looped, wgmma=wgmma, wgmma_waits=wgmma_waits,
    )  # fmt: skip
    launch = Launch(
        kernel=NAME, grid=(1, 1, 1), block=(block, 1, 1), cluster=(1, 1, 1), dynamic_smem=0, smem_limit=0,
        nonportable_cluster=False, stream=0, attributes={}, parameters=(),
    )  # fmt: skip
    module = Module(
        function="f", arch=arch, seconds=0.0, ptx=PTX, cubin=b"", kernels={NAME: kernel},
        spills={NAME: spills} if spills else {}, notes={NAME: tuple(ptxas)},
    )  # fmt: skip
    ptx = PtxKernel(
        name=NAME, widest_load_bits=0, widest_store_bits=0, decreased=down, increased=up, wgmma_waits=asked, **own
    )
    return kernel_notes(launch, kernel, module, ptx)


def test_registers_by_role_are_added_up_and_too_many_are_told():
    (fits,) = notes(down=(24,), up=(240,))
    assert "3 warpgroups start with 168 each: 24 + 2 × 240 = 504 of 504" in fits and "for ever" not in fits
    (endless,) = notes(down=(40,), up=(240,))
    assert "40 + 2 × 240 = 520 of 504" in endless and "wait for ever" in endless
    (three,) = notes(down=(24, 40), up=(240,))
    assert "down to 24, down to 40, up to 240" in three and "=" not in three
    (left_out,) = notes(registers=106, moved=False, down=(24,), up=(240,))
    assert "left setmaxnreg out: every role has 106 registers a thread" in left_out and "min_blocks_per_mp" in left_out
    assert notes() == ()


def test_waits_for_wgmma_that_ptxas_added_are_told():
    def waiting(added, products=32):
        return notes(wgmma=products, wgmma_waits=added, tensor_core={"wgmma.mma_async": 32}, asked=4)

    (told,) = waiting(32)
    assert "waits 32 times for 32 wgmma, the kernel 4 times for 32" in told and "make_warp_uniform" in told
    assert waiting(4) == waiting(8, products=64) == ()  # the latter is unrolled


@pytest.mark.slow
def test_ptxas_waits_for_each_product_where_lanes_may_be_apart(tmp_path):
    """In a kernel whose loop around the products has a length that ptxas does not know to be the same for all lanes."""
    attention = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)  # noqa: E731
    plan = match(trace_function(attention, tuple(torch.empty(2, 256, 64, dtype=torch.bfloat16) for _ in range(3))))
    text = plan.render(next(c for c in plan.configurations("sm_90a") if c.keys == 128 and c.turns))
    apart = text.replace("cute.arch.make_warp_uniform(each) for each in tile", "tile")
    assert apart != text
    problem = "get_inputs = lambda: [torch.empty(2, 256, 64, device='cuda', dtype=torch.bfloat16) for _ in range(3)]\n"
    problem += "reference_fn = torch.nn.functional.scaled_dot_product_attention\n"
    told = []
    for name, source in (("uniform", text), ("apart", apart)):
        (tmp_path / f"{name}.py").write_text(f"{source}\n\n{problem}")
        (report,) = compile_kernel(tmp_path / f"{name}.py", ["sm_90a"]).archs
        told.append([note for kernel in report.kernels for note in kernel.notes if "wait for one another" in note])
    assert [len(each) for each in told] == [0, 1]


def test_spills_name_their_line_and_a_name_that_ptxas_treats_differently():
    spills = Spills(64, 64, "kernel.py:7")
    (shared,) = notes(spills=spills)
    assert "kernel.py:7" in shared and "384 threads has 168 for each: use fewer" in shared
    (most,), (uncapped,) = notes(registers=255, spills=spills), notes(registers=128, spills=spills)
    assert "can address 255" in most and "may have 168 for each, and no cap of its own" in uncapped
    (uneven,) = notes(registers=128, block=448, spills=spills)
    assert "448 threads has 128 for each: use fewer" in uneven  # 14 warps: 4 share the registers of a quarter
    place, name = notes(arch="sm_100a", spills=spills)
    assert "kernel.py:7" in place and "#3389" in name and "remove_cutlass_symbol=True" in name
    assert notes(spills=Spills(0, 0, "kernel.py:7")) == ()


def test_what_caps_the_registers_is_named_and_no_thread_is_promised_more_than_255():
    spills = Spills(64, 64)
    (blocks,) = notes(block=128, registers=128, spills=spills, min_blocks=4)
    assert "min_blocks_per_mp=4 leaves 128 of the 255 that one block may have: lower it" in blocks
    (stated,) = notes(block=128, registers=96, spills=spills, max_registers=96)
    assert "its own maxnreg=96 holds them there" in stated
    (neither,) = notes(block=32, registers=96, spills=spills, min_blocks=1)
    assert "may have 255 for each, and no cap of its own" in neither and "512" not in neither
    (inside,), (outside,) = notes(spills=spills, looped=12), notes(spills=spills)
    assert inside.endswith("12 of the spill's loads and stores lie in a loop") and outside.endswith(
        "no loop has any of them"
    )


def test_a_note_of_ptxas_has_its_python_line_and_its_meaning():
    known, other = notes(ptxas=(PtxasNote("C7510", "serialized", 4), PtxasNote("C9999", "something")))
    assert known.startswith("ptxas C7510 at kernel.py:31: serialized (wgmma are serialised")
    assert other == "ptxas C9999: something"
