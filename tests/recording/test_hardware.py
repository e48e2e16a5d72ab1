"""On a GPU: recording executes nothing, reads cubins as the driver does, and refuses just what the driver refuses."""

import math

import pytest
import torch

from cutesmith.compiling.compilation_worker import kernel_reports
from cutesmith.devices import current_device, sm_of_name
from cutesmith.problems.loading import load_file
from cutesmith.recording.open_session import session
from tests.kernel_files import kernel_file

RUNNING = ("relu_tvm_ffi", "relu_from_dlpack", "relu_direct_jit", "smem_reverse", "many_spills")
REFUSED = ("copy_2048_threads", "copy_over_smem", "copy_cooperative")
CLUSTERED = ("copy_cluster", "copy_odd_cluster", "copy_wide_cluster")

pytestmark = pytest.mark.gpu


def here():
    return current_device().sm


def record(name):
    with session(here().default_arch, fake=True) as recorded:
        file = load_file(kernel_file(name))
        file.kernel_fn(*file.get_inputs())
    return recorded


@pytest.fixture(scope="module")
def driver():
    from cuda.bindings import driver

    torch.zeros(1, device="cuda")
    return driver


def check(result):
    assert int(result[0]) == 0, result[0]
    return result[1] if len(result) == 2 else result[1:]


@pytest.fixture
def load(driver):
    libraries = []

    def load_kernel(recorded):
        name = recorded.launches[0].kernel
        image = recorded.launches[0].module.cubin
        libraries.append((check(driver.cuModuleLoadData(image)), image))
        return check(driver.cuModuleGetFunction(libraries[-1][0], name.encode()))

    yield load_kernel
    torch.cuda.synchronize()
    for module, _ in libraries:
        check(driver.cuModuleUnload(module))


def test_the_table_knows_this_gpu():
    device = current_device()
    properties = torch.cuda.get_device_properties(0)
    assert device.sm is sm_of_name(device.name)
    assert device.sm.capability == (properties.major, properties.minor)
    assert device.sm.smem_per_block == properties.shared_memory_per_block_optin
    assert device.sm.smem_per_sm == properties.shared_memory_per_multiprocessor
    assert device.sm.threads_per_sm == properties.max_threads_per_multi_processor


def test_nothing_is_executed(driver):
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for fake in (True, False):
        with session(here().default_arch, fake=fake) as recorded:
            file = load_file(kernel_file("relu_tvm_ffi"))
            (x,) = file.get_inputs()
            y = file.kernel_fn(x)
            assert x.is_cuda
            assert y.is_cuda
        assert len(recorded.launches) == 1
        assert {x.device.type, y.device.type} <= {"cpu", "meta"}
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.is_available()
    assert torch.zeros(1, device="cuda").is_cuda


def test_after_recording_kernels_run_for_real():
    record("relu_from_dlpack")
    file = load_file(kernel_file("relu_from_dlpack"))
    (x,) = file.get_inputs()
    assert x.device.type == "cuda"
    torch.testing.assert_close(file.kernel_fn(x), torch.relu(x), rtol=0, atol=0)


@pytest.mark.parametrize("name", [*RUNNING, "copy_cluster"])
def test_the_driver_reads_the_same_from_the_cubin(driver, load, name):
    recorded = record(name)
    function, (report, *_) = load(recorded), kernel_reports(recorded)

    def attribute(which):
        return check(driver.cuFuncGetAttribute(getattr(driver.CUfunction_attribute, which), function))

    assert report.registers == attribute("CU_FUNC_ATTRIBUTE_NUM_REGS")
    assert report.static_smem_bytes == attribute("CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES")
    assert report.stack_bytes == attribute("CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES")


@pytest.mark.parametrize("name", RUNNING)
def test_occupancy_is_the_drivers(driver, load, name):
    recorded = record(name)
    function, (report, *_) = load(recorded), kernel_reports(recorded)
    threads = math.prod(report.block)
    blocks = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, threads, report.dynamic_smem_bytes)
    assert report.occupancy_blocks == check(blocks)


@pytest.mark.parametrize("name", [*RUNNING, *REFUSED, *CLUSTERED])
def test_the_driver_refuses_what_we_refuse(driver, load, name):
    recorded = record(name)
    launch, (report, *_) = recorded.launches[0], kernel_reports(recorded)
    if report.cluster != (1, 1, 1) and here().max_cluster == 1:
        pytest.skip("this GPU has no clusters")
    result = launch_for_real(driver, load(recorded), launch)
    torch.cuda.synchronize()
    assert (result != 0) == bool(report.refused), (result, report.refused)


def launch_for_real(driver, function, launch):
    """Launch with the recorded shape and with parameters whose addresses point into a real buffer."""
    import ctypes

    buffer = torch.zeros(1 << 22, device="cuda")
    images = [address_in(buffer, parameter) for parameter in launch.parameters]
    storage = [ctypes.create_string_buffer(image, len(image)) for image in images]
    arguments = (ctypes.c_void_p * len(storage))(*[ctypes.addressof(item) for item in storage])
    if launch.smem_limit > 48 << 10:
        which = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        error = int(driver.cuFuncSetAttribute(function, which, launch.smem_limit)[0])
        if error:
            return error
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
    config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
    config.sharedMemBytes, config.hStream = launch.dynamic_smem, driver.CUstream(0)
    config.attrs = attributes(driver, launch)
    config.numAttrs = len(config.attrs)
    return int(driver.cuLaunchKernelEx(config, function, ctypes.addressof(arguments), 0)[0])


def address_in(buffer, parameter):
    pointer = len(parameter) >= 8
    return buffer.data_ptr().to_bytes(8, "little") + parameter[8:] if pointer else parameter


def attributes(driver, launch):
    found = []
    if launch.cluster != (1, 1, 1):
        cluster = driver.CUlaunchAttribute()
        cluster.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        cluster.value.clusterDim.x, cluster.value.clusterDim.y, cluster.value.clusterDim.z = launch.cluster
        found.append(cluster)
    if launch.attributes.get("cooperative"):
        cooperative = driver.CUlaunchAttribute()
        cooperative.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        cooperative.value.cooperative = 1
        found.append(cooperative)
    return found
