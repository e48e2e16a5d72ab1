"""Kernel files through the real host code: what is recorded, for several architectures in one process."""

import re
import struct
import subprocess

import pytest
import torch

from cutesmith.compiling.sass import disassembled, disassembler
from cutesmith.problems.loading import load_file
from cutesmith.recording.host_calls import current
from cutesmith.recording.machine_code import GlobalLoads
from cutesmith.recording.open_session import session
from cutesmith.recording.ptx import read_ptx
from tests.kernel_files import kernel_file


def record(name, arch="sm_90a", *, fake=True):
    with session(arch, fake=fake) as recorded:
        file = load_file(kernel_file(name))
        inputs = file.get_inputs()
        output = file.kernel_fn(*inputs)
        assert output.is_cuda
    assert recorded.errors == []
    return recorded


@pytest.mark.sampled(3)
@pytest.mark.parametrize("fake", [False, True], ids=["values", "fake"])
@pytest.mark.parametrize(("name", "grid", "block"), [
    ("relu_tvm_ffi", (2048, 1, 1), (128, 1, 1)),
    ("relu_from_dlpack", (4, 1, 1), (256, 1, 1)),
    ("relu_direct_jit", (4, 1, 1), (64, 1, 1)),
])  # fmt: skip
def test_each_way_to_launch_is_recorded(name, grid, block, fake):
    (launch,) = record(name, fake=fake).launches
    assert (launch.grid, launch.block, launch.cluster) == (grid, block, (1, 1, 1))
    assert "relu_kernel" in launch.kernel


def test_parameters_are_the_tensors_addresses_and_sizes():
    with session("sm_80") as recorded:
        file = load_file(kernel_file("relu_tvm_ffi"))
        (x,) = file.get_inputs()
        y = file.kernel_fn(x)
        addresses = [x.data_ptr(), y.data_ptr()]
    first, second, count = recorded.launches[0].parameters
    assert [struct.unpack_from("<Qi", parameter) for parameter in (first, second)] == [(a, 1 << 18) for a in addresses]
    assert struct.unpack("<i", count) == (1 << 18,)


def test_several_architectures_in_one_process():
    for arch in ("sm_80", "sm_90a", "sm_100a", "sm_80"):
        (module,) = record("relu_from_dlpack", arch).modules
        assert module.arch == arch
        assert f".target {arch}" in module.ptx
        assert module.cubin[:4] == b"\x7fELF"
        assert 0 < module.seconds < 60


def test_scalars_and_the_stream_of_the_environment():
    (launch,) = record("scale_env_stream").launches
    assert struct.unpack("<f", launch.parameters[-1]) == (2.5,)
    assert launch.stream == 0


def test_shared_memory_and_clusters():
    (launch,) = record("smem_reverse").launches
    assert launch.dynamic_smem == 1024
    assert record("copy_cluster").launches[0].cluster == (2, 1, 1)


def test_launches_repeat_and_differ():
    launches = record("copy_three_launches").launches
    assert [launch.grid for launch in launches] == [(8, 1, 1), (8, 1, 1), (4, 1, 1)]


def test_cubin_and_ptxas_agree_on_spills():
    recorded = record("many_spills")
    name = recorded.launches[0].kernel
    kernel, spills = recorded.launches[0].compiled, recorded.modules[0].spills[name]
    assert kernel.registers == 64
    assert spills.store_bytes > 1000
    assert spills.load_bytes > 1000
    assert 0 < kernel.local_stores * 4 <= spills.store_bytes <= kernel.local_stores * 16


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_cubin_reader_agrees_with_nvdisasm(arch, tmp_path):
    program = disassembler() or pytest.skip("nvdisasm is not installed")
    recorded = record("many_spills", arch)
    (tmp_path / "k.cubin").write_bytes(recorded.modules[0].cubin)
    listing = subprocess.run([program, tmp_path / "k.cubin"], capture_output=True, text=True, check=True).stdout
    kernel = recorded.launches[0].compiled
    words = [word for line in listing.splitlines() for word in line.replace(";", " ").split()]
    assert kernel.local_stores == sum(word.split(".")[0] == "STL" for word in words)
    assert kernel.local_loads == sum(word.split(".")[0] == "LDL" for word in words)
    shown = re.search(r"EIATTR_REGCOUNT.*?index@\((\w+)\)\s.*?\.word\s+0x([0-9a-f]+)", listing, re.S)
    assert (shown[1], int(shown[2], 16)) == (kernel.name, kernel.registers)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "loads"), [
    ("relu_tvm_ffi", GlobalLoads(1, 1, 16)),
    ("copy_sum_of_neighbours", GlobalLoads(4, 4, 16)),
    ("copy_chain", GlobalLoads(5, 1, 4)),
    ("many_spills", None),
])  # fmt: skip
@pytest.mark.parametrize(
    "arch", ["sm_90a", *(pytest.param(arch, marks=pytest.mark.slow) for arch in ("sm_80", "sm_100a"))]
)
def test_loads_in_flight_agree_with_the_registers_that_nvdisasm_prints(name, loads, arch, tmp_path):
    """A load is waited for where its register is named next."""
    program = disassembler() or pytest.skip("nvdisasm is not installed")
    recorded = record(name, arch)
    listing, why = disassembled(recorded.modules[0].cubin, program)
    assert not why
    count, most, under_way = 0, 0, []
    for instruction, operands in re.findall(r"\*/ +(?:@\S+ +)?([A-Z][\w.]*)([^;\n]*);", listing.decode()):
        named = set(map(int, re.findall(r"\bR(\d+)", operands)))
        if any(named & load for load in under_way):
            most = max(most, len(under_way))
            under_way = [load for load in under_way if not named & load]
        if instruction.startswith("LDG."):
            count += 1
            first = int(re.search(r"\bR(\d+)", operands)[1])
            under_way.append(set(range(first, first + (4 if instruction.endswith(".128") else 1))))
    found = recorded.launches[0].compiled.global_loads
    assert (found.count, found.in_flight) == (count, most)
    assert loads in (None, found)


def test_ptx_of_a_recorded_kernel():
    recorded = record("relu_tvm_ffi")
    (kernel,) = read_ptx(recorded.modules[0].ptx).values()
    assert kernel.name == recorded.launches[0].kernel
    assert (kernel.widest_load_bits, kernel.widest_store_bits) == (128, 128)
    assert kernel.tensor_core == kernel.tma == {}


def test_the_dsl_is_as_before_afterwards():
    import cutlass.cute as cute
    from cutlass.base_dsl.compiler import Compiler
    from cutlass.cutlass_dsl import CuTeDSL

    def state():
        return dict(vars(CuTeDSL._get_dsl().envar)), Compiler.jit, cute.compile._compile_options.to_str()

    before = state()
    record("relu_direct_jit")
    record("relu_from_dlpack")
    assert state() == before
    assert current.recorder is None
    assert not torch.zeros(1).is_cuda


def test_compiled_functions_fail_outside_of_their_session():
    with session("sm_90a"):
        file = load_file(kernel_file("relu_tvm_ffi"))
        file.kernel_fn(*file.get_inputs())
    with pytest.raises(Exception, match=r"(?i)device"):
        file.module._compiled(torch.zeros(16), torch.zeros(16))
