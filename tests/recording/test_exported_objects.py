"""Exported object files run where their kernels were compiled, by TVM-FFI and without, and say so elsewhere."""

import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import from_dlpack, load_module, make_fake_compact_tensor

from cutesmith.emulator.device import emulated_device
from cutesmith.errors import UnavailableError
from tests.recording.increment import increment


def test_an_exported_function_is_executed_where_it_was_compiled_alone(tmp_path):
    fake, by_ffi = make_fake_compact_tensor(cute.Float32, (64,)), str(tmp_path / "ffi.o")
    with emulated_device("sm_90a") as device:
        cute.compile(increment, fake, options="--enable-tvm-ffi").export_to_c(by_ffi, function_name="increment")
        cute.compile(increment, fake).export_to_c(
            file_path=str(tmp_path), file_name="plain", function_prefix="increment"
        )
        x = torch.zeros(64, device="cuda")
        load_module(by_ffi, enable_tvm_ffi=True).increment(x)
        load_module(str(tmp_path / "plain.o")).increment(from_dlpack(x))
        assert x.tolist() == [2] * 64 and len(device.launches) == 2
    assert device.findings == ()
    with pytest.raises(UnavailableError, match="was not compiled in this session"), emulated_device("sm_90a"):
        load_module(by_ffi, enable_tvm_ffi=True).increment(torch.zeros(64, device="cuda"))


def test_an_architecture_whose_ptx_the_dsl_does_not_keep_is_named(monkeypatch):
    monkeypatch.setenv("CUTE_DSL_ARCH", "sm_110a")
    fake = make_fake_compact_tensor(cute.Float32, (64,))
    with pytest.raises(UnavailableError, match="keeps no PTX of .* for sm_110a"), emulated_device("sm_110a"):
        cute.compile(increment, fake, options="--enable-tvm-ffi")(torch.zeros(64, device="cuda"))


def test_a_shared_library_is_refused_by_name(tmp_path):
    with pytest.raises(UnavailableError, match="shared libraries"), emulated_device("sm_90a"):
        load_module(str(tmp_path / "increment.so"))
