"""What `compile` says of the bytes and sectors of global memory: by hand, and as the emulated GPU counts them."""

from pathlib import Path

import pytest
import torch

from cutesmith.compiling.engines.global_accesses import global_accesses
from cutesmith.compiling.engines.report import program_of
from cutesmith.emulator.device import emulated_device
from cutesmith.emulator.profiling.launch_profile import profile_of
from cutesmith.emulator.profiling.sampling import Profiler
from cutesmith.emulator.program.build import build
from cutesmith.problems.loading import load_file
from cutesmith.recording.open_session import session
from cutesmith.recording.sessions import Launch
from cutesmith.verdicts import Touched

SPECIMEN = Path(__file__).with_name("access_patterns.py")
EXAMPLES = SPECIMEN.parents[2] / "examples_index" / "kernels"


def accesses(way):
    """The accesses of the specimen that reads in this way, its stores of results left out."""
    with session("sm_90a", line_info=True) as recorded:
        loaded = load_file(SPECIMEN)
        loaded.module.run(*loaded.get_inputs(), way)
    (launch,) = recorded.launches
    found = global_accesses(program_of(launch, launch.module.ptx), launch, SPECIMEN.name)
    assert found[-1].instruction.startswith("st.global") and found[-1].touched == Touched(4, 512, 512, 16, 16)
    return found[:-1]


@pytest.mark.parametrize(
    ("way", "touched", "in_loop"),
    [
        ("columns", Touched(4, 512, 512, 16, 16), True),
        ("rows", Touched(4, 512, 512, 128, 16), True),
        ("shifted", Touched(4, 512, 512, 20, 16), False),
        ("broadcast", Touched(4, 512, 4, 4, 4), False),
        ("some", Touched(2, 192, 192, 6, 6), False),
    ],
)
def test_a_known_pattern_is_told_in_bytes_and_sectors(way, touched, in_loop):
    (access,) = accesses(way)
    assert (access.touched, access.in_loop, access.count) == (touched, in_loop, 1)
    assert access.place.startswith("access_patterns.py:")
    assert touched.uncoalesced == (way == "rows")


def test_addresses_by_quotients_are_those_of_the_middle_block():
    (access,) = accesses("pairs")
    rows = [range(128 + 32 * warp, 160 + 32 * warp) for warp in range(4)]
    columns = [{row // 6 * 3 % 97 for row in warp} for warp in rows]
    sectors = sum(len({column * 4 // 32 for column in warp}) for warp in columns)
    ideal = sum(-(-len(warp) * 4 // 32) for warp in columns)
    assert access.touched == Touched(4, 512, 4 * len(set.union(*columns)), sectors, ideal)


def test_what_is_loaded_or_left_by_two_paths_is_not_told():
    index, gathered = accesses("gather")
    assert index.touched == Touched(4, 512, 512, 16, 16) and not gathered.touched.known
    *known, chosen = accesses("paths")
    assert not chosen.touched.known and all(access.touched.known for access in known)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["layer_norm", "swiglu", "cumsum_rows", "transpose_smem", "elementwise_broadcast"])
def test_sectors_are_those_that_the_emulated_gpu_counts(name):
    """Of lines with one kind of access, by the very launch that is executed."""
    path, profiler = EXAMPLES / f"{name}.py", Profiler()
    with emulated_device("sm_90a", observer=profiler) as device:
        loaded = load_file(path)
        loaded.kernel_fn(*(shortened(value) for value in loaded.get_inputs()))
    launch, program = device.launches[0].launch, device.launches[0].program
    counted = {
        (f"{path.name}:{line.line}", access.kind, access.size): access
        for line, access in profile_of(profiler.samples[0], path).accesses()
        if access.space == "global"
    }
    told = global_accesses(build(program.module, program.function, lambda _: True), launch, path.name)
    assert told and all(access.touched.known for access in told)
    by_line = {}
    for access in told:
        by_line.setdefault((access.place, access.instruction), set()).add(access.touched)
    for (place, instruction), (touched, *others) in by_line.items():
        kind, size = ("write" if instruction.startswith("st") else "read"), touched.asked // touched.warps // 32
        if not others and (place, kind, size) in counted:
            found = counted.pop((place, kind, size))
            assert touched.sectors / touched.warps == pytest.approx(found.sectors / found.requests, rel=0.02)
            assert touched.ideal_sectors / touched.warps == pytest.approx(
                found.ideal_sectors / found.requests, rel=0.02
            )
    assert not counted


def shortened(value):
    """At most 64 rows of a tensor."""
    return value[:64] if isinstance(value, torch.Tensor) and value.ndim > 1 else value


HINTED = """\
.version 8.8
.target sm_90a
.address_size 64
.visible .entry gather(
	.param .u64 gather_param_0
)
{
	.reg .b32 %r<4>;
	.reg .b64 %rd<7>;
	ld.param.b64 %rd1, [gather_param_0];
	mov.u32 %r1, %tid.x;
	createpolicy.fractional.L2::evict_last.b64 %rd2, 0f3F800000;
	mul.wide.u32 %rd3, %r1, 4;
	add.s64 %rd4, %rd1, %rd3;
	ld.global.L2::cache_hint.b32 %r2, [%rd4], %rd2;
	mul.wide.s32 %rd5, %r2, 4;
	add.s64 %rd6, %rd1, %rd5;
	ld.global.b32 %r3, [%rd6];
	st.global.b32 [%rd4], %r3;
	ret;
}
"""


def test_an_address_that_a_load_with_a_cache_policy_gave_is_not_told():
    launch = Launch(
        kernel="gather", grid=(1, 1, 1), block=(64, 1, 1), cluster=(1, 1, 1), dynamic_smem=0, smem_limit=0,
        nonportable_cluster=False, stream=0, attributes={}, parameters=((1 << 20).to_bytes(8, "little"),),
    )  # fmt: skip
    index, gathered, stored = global_accesses(program_of(launch, HINTED), launch)
    assert index.touched == stored.touched == Touched(2, 256, 256, 8, 8) and not gathered.touched.known
