"""On the emulated GPU host code reaches a CUDA tensor's memory by no way that torch does not see."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch
from torch.overrides import _get_current_function_mode
from torch.utils._python_dispatch import _disable_current_modes, _pop_mode_temporarily

from cutesmith.judge.candidate_side.device_only import HANDED, WRITTEN
from cutesmith.judge.candidate_side.watching import MOST_FILLS, KernelWatch
from cutesmith.recording.facade import cuda_as_cpu


def watched(host_code):
    """What became of x = 0, 1, …, 7 and y = empty_like(x) in host code, and what the watch found."""
    with cuda_as_cpu():
        x, watch = torch.arange(8.0, device="cuda"), KernelWatch("emulator")
        with watch:
            y = torch.empty_like(x)
            returned = host_code(x, y)
        return x.tolist(), y, returned, watch


def reads_as_array(x, y):
    with torch._C.DisableTorchFunction():
        return x.numpy().copy()


def writes_as_array(x, y):
    with torch._C.DisableTorchFunction():
        y.numpy()[:] = 1


def writes_into_an_input(x, y):
    with torch._C.DisableTorchFunction():
        x.detach().numpy()[3] = 100


def computes_without_the_watch(x, y):
    with _disable_current_modes():
        torch.relu_(y)


def resizes_without_the_watch(x, y):
    with _disable_current_modes():
        y.untyped_storage().resize_(1 << 16)


def hands_over_an_array(x, y):
    return _get_current_function_mode()._facade.mark(torch.from_numpy(np.ones(8, dtype=np.float32)))


def hands_over_a_list(x, y):
    return torch.tensor([1.0] * 8, device="cuda")


def allocates_without_the_watch(x, y):
    with _pop_mode_temporarily():
        return torch.zeros(8, device="cuda")


def test_what_the_host_reads_is_not_what_the_tensor_holds():
    values, _, read, watch = watched(reads_as_array)
    assert values == list(range(8)) and not set(read) & set(values)
    assert watch.tampering == []


@pytest.mark.parametrize("host_code", [writes_as_array, writes_into_an_input, computes_without_the_watch])
def test_what_the_host_writes_is_found_and_undone(host_code):
    values, y, _, watch = watched(host_code)
    assert watch.tampering == [WRITTEN]
    assert values == list(range(8)) and bool(torch.isnan(y).all()), "y holds its poison"


def test_a_storage_that_was_exchanged_is_found():
    assert watched(resizes_without_the_watch)[-1].tampering == [WRITTEN]


@pytest.mark.parametrize("host_code", [hands_over_an_array, hands_over_a_list, allocates_without_the_watch])
def test_memory_that_no_operation_made_is_found(host_code):
    assert watched(host_code)[-1].tampering == [HANDED]


def test_operations_of_torch_see_the_values_and_are_counted_as_ever():
    def host_code(x, y):
        y.view(4, 2).copy_(x.view(2, 4).t())
        y[:2].fill_(9.0)
        return torch.zeros(4, device="cuda"), (x + 1).cpu(), x.tolist()

    _, y, (zeros, plus_one, listed), watch = watched(host_code)
    assert y.tolist() == [9, 9, 1, 5, 2, 6, 3, 7] and zeros.tolist() == [0] * 4
    assert plus_one.tolist() == [1 + value for value in listed] == list(range(1, 9))
    assert watch.computed == {"add": 1} and watch.tampering == []


def test_host_tensors_and_kept_workspaces_are_left_alone():
    kept = []

    def host_code(x, y):
        if not kept:
            kept.append(torch.full((4,), 5.0, device="cuda"))
        sizes = torch.zeros(3, dtype=torch.int32)
        sizes.numpy()[1] = 7
        return int(sizes.numpy()[1])

    for _ in range(2):
        _, _, size, watch = watched(host_code)
        assert size == 7 and watch.tampering == []
        with torch._C.DisableTorchFunction():
            assert kept[0].tolist() == [5.0] * 4


def test_filling_element_by_element_is_computing():
    def host_code(x, y):
        for _ in range(MOST_FILLS + 1):
            y[0].fill_(1.0)

    assert list(watched(host_code)[-1].computed) == [f"more than {MOST_FILLS} times fill_"]
    assert not watched(lambda x, y: [y.zero_() for _ in range(MOST_FILLS)])[-1].computed


def test_an_exception_leaves_every_tensor_whole():
    with cuda_as_cpu():
        x = torch.arange(8.0, device="cuda")
        with pytest.raises(ZeroDivisionError), KernelWatch("emulator"):
            x.view(2, 4)
            raise ZeroDivisionError
        assert x.tolist() == list(range(8))


@pytest.mark.slow
def test_empty_like_without_storage_is_torchs_own_and_needs_no_sympy():
    lines = """
        import sys
        import torch
        from cutesmith.judge.candidate_side.watching import KernelWatch
        x = torch.empty(6, 4, device="meta")
        with KernelWatch("meta", poison=None) as watch:
            y, z = torch.empty_like(x), torch.empty_like(x, dtype=torch.float16)
        assert (y.shape, y.stride(), y.dtype, y.device) == (x.shape, x.stride(), x.dtype, x.device)
        assert (z.stride(), z.dtype, z.device.type, dict(watch.computed)) == ((4, 1), torch.float16, "meta", {})
        assert "sympy" not in sys.modules
        with KernelWatch("meta", poison=None):  # these layouts PyTorch has to work out
            turned, last = torch.empty_like(x.t()), torch.empty_like(x[None, None], memory_format=torch.channels_last)
        assert (turned.stride(), last.stride()) == ((1, 4), (24, 1, 4, 1))
        """
    subprocess.run([sys.executable, "-c", textwrap.dedent(lines)], check=True)
