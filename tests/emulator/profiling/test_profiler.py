"""Profiles of a kernel whose lines each have a known number of requests, sectors and wavefronts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cutesmith.emulator.device import emulated_device
from cutesmith.emulator.machine.settings import Settings
from cutesmith.emulator.profiling.advice import advise, busiest_pipes, floor_us
from cutesmith.emulator.profiling.instruction_classes import (
    class_of,
    flops_of,
    has_cheaper_form,
    machine_instructions_of,
    macs_of,
    tensor_cycles_of,
)
from cutesmith.emulator.profiling.launch_profile import profile_of
from cutesmith.emulator.profiling.sampling import Profiler
from cutesmith.emulator.ptx.syntax import Instruction
from cutesmith.problems.loading import load_file

PATH = Path(__file__).parent.parent / "kernels" / "memory_patterns.py"
LINES = {match[1]: n for n, line in enumerate(PATH.read_text().splitlines(), 1) if (match := re.search(r"# pattern: (.*)", line))}  # noqa: E501  # fmt: skip
FAULTS = PATH.parents[3] / "evals" / "planted_faults"
WARPS = 4  # two blocks of two


def emulate(profiler):
    with emulated_device("sm_90a", observer=profiler) as device:
        loaded = load_file(PATH)
        loaded.kernel_fn(*loaded.get_inputs())
    assert device.findings == ()
    return profile_of(profiler.samples[0], PATH), device.launches[0]


@pytest.fixture(scope="module")
def emulated():
    return emulate(Profiler())


@pytest.fixture(scope="module")
def profile(emulated):
    return emulated[0]


def line_of(profile, pattern):
    return next(line for line in profile.lines if line.line == LINES[pattern])


def access_of(profile, pattern, kind="read"):
    return next(access for access in line_of(profile, pattern).accesses if access.kind == kind)


@pytest.mark.parametrize(
    ("pattern", "kind", "size", "sectors", "ideal"),
    [
        ("coalesced", "read", 4, 4, 4),
        ("strided", "read", 4, 32, 4),
        ("shifted", "read", 4, 5, 4),
        ("broadcast", "read", 4, 1, 1),
        ("stored", "write", 4, 4, 4),
        ("vectors", "read", 16, 16, 16),
        ("vectors", "write", 16, 16, 16),
    ],
)
def test_sectors_of_global_requests(profile, pattern, kind, size, sectors, ideal):
    access = access_of(profile, pattern, kind)
    assert (access.space, access.size, access.requests) == ("global", size, WARPS)
    assert (access.sectors, access.ideal_sectors) == (sectors * WARPS, ideal * WARPS)
    assert access.bytes == 32 * size * WARPS


@pytest.mark.parametrize(
    ("pattern", "kind", "wavefronts"),
    [
        ("shared neighbours", "write", 1),
        ("32-way conflict", "write", 32),
        ("32-way conflict again", "read", 32),
        ("padded", "write", 1),
        ("shared broadcast", "read", 1),
    ],
)
def test_wavefronts_of_shared_requests(profile, pattern, kind, wavefronts):
    access = access_of(profile, pattern, kind)
    assert (access.space, access.requests) == ("shared", WARPS)
    assert (access.wavefronts, access.ideal_wavefronts) == (wavefronts * WARPS, WARPS)


def test_a_warp_instruction_counts_once_for_the_lanes_that_run_it(profile):
    """Lane t goes t times through the loop: warps take 31 and 63 turns, lanes 0 + 1 + … + 63 in each block."""
    line = line_of(profile, "divergent loop")
    assert line.warp_counts["load"] == 2 * (31 + 63)
    assert line.lane_counts["load"] == line.lane_counts["fp32"] == line.flops == 2 * sum(range(64))
    access = access_of(profile, "divergent loop")
    assert (access.requests, access.bytes) == (2 * (31 + 63), 4 * 2 * sum(range(64)))


def test_counts_are_those_of_the_launch(emulated):
    """Branches and returns apart, of which the launch also counts those that merely go on."""
    profile, launch = emulated
    lanes = profile.lane_counts
    assert launch.instructions - 3 * 128 <= sum(lanes.values()) <= launch.instructions
    assert lanes["shuffle"] == 128  # the DSL's own, of the base of shared memory
    assert lanes["barrier"] == 5 * 128
    assert profile.warp_counts["barrier"] == 5 * WARPS


def test_verdict_in_words_is_worst_first(profile):
    remarks = advise(profile)
    assert [r.share for r in remarks] == sorted((r.share for r in remarks), reverse=True)
    by_line = {(r.line, r.kind): r.message for r in remarks}
    strided = by_line[LINES["strided"], "uncoalesced"]
    assert strided.startswith("global loads of 32 sectors a request where 4 would do: consecutive lanes are 128 bytes")
    assert "lanes go to scattered addresses" in by_line[LINES["scattered"], "uncoalesced"]
    for pattern, noun in (("32-way conflict", "stores"), ("32-way conflict again", "loads")):
        message = by_line[LINES[pattern], "bank conflict"]
        assert message.startswith(f"32-way bank conflict of shared {noun} (4 bytes a lane)")
        assert "pad the row stride by 4 bytes" in message
    assert "21.4 of 32 lanes work" in by_line[LINES["divergent loop"], "idle lanes"]
    assert any(r.kind == "contention" and r.message.startswith("32 lanes of a warp meet") for r in remarks)
    fine = {LINES[name] for name in ("coalesced", "broadcast", "vectors", "padded", "shared broadcast")}
    assert not [r for r in remarks if r.line in fine and r.kind in ("uncoalesced", "bank conflict")]


def test_floor_is_that_of_the_busiest_pipe(profile):
    name, clocks = busiest_pipes(profile)[0]
    assert name == "L1 and shared memory"
    assert floor_us(profile, 100, 1e9) == pytest.approx(clocks / 1e5)


def test_a_sample_is_scaled_to_the_launch():
    """Of one block, or of the first accesses only, as of all: the blocks are the same."""
    whole, _ = emulate(profiler := Profiler())
    assert (whole.blocks, whole.complete) == (2, True)
    some, _ = emulate(Profiler(most_accesses=profiler.samples[0].taken - 1))
    few, _ = emulate(Profiler(most_accesses=100))
    assert (some.blocks, some.complete, few.complete) == (1, True, False)
    for pattern in ("coalesced", "strided", "32-way conflict"):
        kind = "write" if "conflict" in pattern else "read"
        assert access_of(some, pattern, kind).requests == WARPS
    access = access_of(few, "strided")
    assert access.sectors / access.requests == 32
    assert access.requests == pytest.approx(WARPS)


def test_blocks_of_later_waves_are_sampled_where_that_is_affordable():
    """Waves of one block of two."""

    def sampled(**limit):
        profiler = Profiler(**limit)
        with emulated_device("sm_90a", settings=Settings(lanes_per_wave=64), observer=profiler):
            loaded = load_file(PATH)
            loaded.kernel_fn(*loaded.get_inputs())
        return profiler.samples[0]

    both = sampled()
    first = sampled(most_accesses=both.taken * 3 // 4)
    for sample, blocks in ((both, 2), (first, 1)):
        assert (sample.seen, sample.blocks, sample.complete) == (2, blocks, True)
        access = access_of(profile_of(sample, PATH), "strided")
        assert (access.requests, access.sectors) == (WARPS, 32 * WARPS)


SIGMOID = """
import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def sigmoid_kernel(x: cute.Tensor, y: cute.Tensor):
    tidx, _, _ = cute.arch.thread_idx()
    a, b = x[tidx], x[tidx + 128]
    {body}


@cute.jit
def sigmoid(x: cute.Tensor, y: cute.Tensor):
    sigmoid_kernel(x, y).launch(grid=[1, 1, 1], block=[128, 1, 1])


def kernel_fn(x):
    y = torch.empty_like(x)
    sigmoid(from_dlpack(x), from_dlpack(y))
    return y


def reference_fn(x):
    raise NotImplementedError


def get_inputs():
    return [torch.rand(256, device="cuda")]
"""


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("y[tidx] = a / (1.0 + cute.math.exp2(b)) / (2.0 + b)", True),
        ("y[tidx] = a * cute.arch.rcp_approx((1.0 + cute.math.exp2(b, fastmath=True)) * (2.0 + b))", False),
    ],
    ids=["divisions", "followed"],
)
def test_advice_that_is_followed_disappears(tmp_path, body, told):
    """A line of divisions is told to share a reciprocal; one that does has such instructions too."""
    path = tmp_path / "sigmoid.py"
    path.write_text(SIGMOID.format(body=body))
    profiler = Profiler()
    with emulated_device("sm_90a", observer=profiler):
        loaded = load_file(path)
        loaded.kernel_fn(*loaded.get_inputs())
    profile = profile_of(profiler.samples[0], path)
    assert profile.warp_counts["special function"] >= 4 * 2
    assert ("special function" in {remark.kind for remark in advise(profile)}) == told


def corrected(name):
    """The profile of the corrected twin of a planted fault."""
    path, profiler = FAULTS / f"{name}.py", Profiler()
    with emulated_device("sm_90a", observer=profiler):
        loaded = load_file(path)
        loaded.module.corrected_fn(*loaded.get_inputs())
    return profile_of(profiler.samples[0], path)


def test_what_handlers_access_is_counted():
    """64 lanes copy 16 bytes each with `cp.async`: two requests that read global and write shared memory."""
    copies = [access for _, access in corrected("wait_missing").accesses() if access.opcode == "cp"]
    found = {(a.space, a.kind): (a.size, a.requests, a.bytes, a.sectors, a.wavefronts) for a in copies}
    assert found == {("global", "read"): (16, 2, 1024, 32, 0), ("shared", "write"): (16, 2, 1024, 0, 8)}


def test_mbarriers_move_no_data():
    """`mbarrier` arrivals and waits are instructions of their line, but no requests for data."""
    profile = corrected("deadlock_message_barrier")
    assert {access.opcode for _, access in profile.accesses() if access.space == "shared"} == {"mbarrier"}  # `init`
    assert profile.moved() == {"global read": 256.0, "global write": 256.0, "shared write": 8.0}
    assert profile.warp_counts["barrier"] >= 5


def test_local_memory_is_told():
    profile = corrected("uninitialised_local")
    assert profile.local_bytes == 32
    assert profile.moved()["local write"] == profile.moved()["local read"] == 32 * 8 * 4
    (first, *_) = [remark for remark in advise(profile) if remark.kind == "local memory"]
    assert first.message.startswith("local memory, 32 bytes a thread")


def instruction(text):
    opcode, *modifiers = text.split(".")
    return Instruction(opcode, tuple(modifiers), ())


@pytest.mark.parametrize(
    ("text", "kind", "flops", "macs"),
    [
        ("fma.rn.f32", "fp32", 2, 0),
        ("fma.rn.ftz.bf16x2", "fp16", 4, 0),
        ("fused.add.ftz.f32", "fp32", 2, 0),
        ("mul.wide.s32", "int", 0, 0),
        ("setp.gt.f32", "fp32", 0, 0),
        ("ex2.approx.ftz.f32", "special function", 0, 0),
        ("cvt.rn.bf16x2.f32", "conversion", 0, 0),
        ("cvt.u64.u32", "int", 0, 0),
        ("ld.param.b64", "move", 0, 0),
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", "load", 0, 0),
        ("cp.async.cg.shared.global", "async copy", 0, 0),
        ("cp.async.wait_group", "barrier", 0, 0),
        ("redux.sync.add.s32", "shuffle", 0, 0),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "tensor core", 0, 2048),
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16", "tensor core", 0, 64 * 128 * 16 / 4),
        ("wgmma.wait_group.sync.aligned", "barrier", 0, 0),
    ],
)
def test_classes_and_operations(text, kind, flops, macs):
    found = instruction(text)
    assert (class_of(found), flops_of(found), macs_of(found)) == (kind, flops, macs)


@pytest.mark.parametrize(
    ("text", "instructions"),
    [
        ("rcp.rn.f32", {"special function": 1, "fp32": 3, "int": 3, "control": 1}),
        ("rcp.approx.ftz.f32", {"special function": 1}),
        ("div.rn.f32", {"special function": 1, "fp32": 6, "control": 1}),
        ("add.rn.f32", {"fp32": 1}),
    ],
)
def test_a_rounded_function_counts_as_the_machine_instructions_that_it_takes(text, instructions):
    assert machine_instructions_of(instruction(text)) == instructions


@pytest.mark.parametrize(
    ("text", "cheaper"),
    [
        ("rcp.rn.f32", True),
        ("rcp.approx.ftz.f32", False),
        ("ex2.approx.ftz.f32", False),
        ("cvt.rn.bf16.f32", True),
        ("cvt.rn.bf16x2.f32", False),
        ("cvt.f32.f16", False),
        ("shfl.sync.bfly.b32", True),
    ],
)
def test_an_approximate_function_and_a_conversion_of_pairs_have_no_cheaper_form(text, cheaper):
    assert has_cheaper_form(instruction(text)) == cheaper


def test_tensor_cycles_depend_on_the_type():
    half, eighth = (
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
    )
    assert tensor_cycles_of(instruction(half)) == tensor_cycles_of(instruction(eighth)) == 1.0
