"""A CUDA graph captures without executing, and a replay does all of it on what the tensors hold then."""

import cutlass.cute as cute
import pytest
import torch
from cutlass.cute.runtime import make_fake_compact_tensor

from cutesmith.emulator.device import emulated_device
from tests.recording.increment import increment


@pytest.fixture
def add_one():
    """The compiled kernel that adds one in place, on an emulated GPU."""
    with emulated_device("sm_90a") as device:
        yield cute.compile(increment, make_fake_compact_tensor(cute.Float32, (64,)), options="--enable-tvm-ffi")
    assert device.findings == ()


def test_replays_execute_launches_and_torchs_operations_in_their_order(add_one):
    x, graph = torch.zeros(64, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        t = torch.zeros(64, device="cuda")
        t.copy_(x)
        add_one(t)
        doubled = t * 2 + x
        x.add_(1)
        rows, (largest, _) = doubled.reshape(8, 8).sum(1), torch.max(doubled, 0)
        del t  # the graph alone keeps its memory
    assert not torch.cuda.is_current_stream_capturing() and x.tolist() == [0] * 64
    for done in range(3):
        graph.replay()
        add_one(torch.zeros(64, device="cuda"))  # takes no memory of the graph's
        assert x.tolist() == [done + 1] * 64 and doubled.tolist() == [3 * done + 2] * 64
        assert rows.tolist() == [8 * (3 * done + 2)] * 8 and largest.item() == 3 * done + 2


def test_values_cannot_be_read_during_a_capture_and_captures_do_not_nest(add_one):
    x, graph = torch.zeros(64, device="cuda"), torch.cuda.CUDAGraph()
    for forbidden in (lambda: x.sum().item(), torch.cuda.CUDAGraph().capture_begin):
        with pytest.raises(RuntimeError, match="not permitted when stream is capturing"), torch.cuda.graph(graph):
            forbidden()
    add_one(x)
    assert x.tolist() == [1] * 64
