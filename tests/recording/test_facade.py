"""Torch code written for CUDA, on the CPU: what poses as a CUDA tensor, what does not, and that nothing stays."""

import numpy as np
import pytest
import torch

from cutesmith.recording.facade import ValuesNeeded, cuda_as_cpu

both_kinds = pytest.mark.parametrize("fake", [False, True], ids=["values", "fake"])


@both_kinds
def test_tensors_pose_as_cuda(fake):
    with cuda_as_cpu(fake=fake):
        x = torch.randn(4, 8, device="cuda", dtype=torch.bfloat16)
        assert x.is_cuda
        assert not x.is_cpu
        assert x.device == torch.device("cuda", 0)
        assert x.get_device() == 0
        assert type(x) is torch.Tensor
        for derived in (x * 2, x.T, torch.empty_like(x), x[1:], x.float(), x.sum(), x.chunk(2)[1], torch.cat([x, x])):
            assert derived.is_cuda


@both_kinds
def test_cpu_tensors_stay_on_the_cpu(fake):
    with cuda_as_cpu(fake=fake):
        x = torch.randn(4)
        assert not x.is_cuda
        assert not (x + 1).is_cuda
        assert x.cuda().is_cuda
        assert x.to("cuda:0", torch.float16).dtype == torch.float16
        assert not x.is_cuda
        x.copy_(torch.zeros(4)).add_(1)
        assert not torch.zeros_like(x.cuda(), device="cpu").is_cuda


@both_kinds
def test_default_devices_and_modules(fake):
    with cuda_as_cpu(fake=fake):
        with torch.device("cuda"):
            assert torch.zeros(3).is_cuda
        assert not torch.zeros(3).is_cuda
        torch.set_default_device("cuda")
        layer = torch.nn.Linear(4, 2)
        assert layer.weight.is_cuda
        assert layer(torch.randn(3, 4)).is_cuda
        torch.set_default_device(None)
        assert torch.nn.Linear(4, 2).cuda().bias.is_cuda


@both_kinds
def test_addresses_are_aligned_and_follow_views(fake):
    with cuda_as_cpu(fake=fake):
        x, y = torch.empty(1000, device="cuda"), torch.empty(1000, device="cuda")
        assert x.data_ptr() % 256 == 0
        assert x[3:].data_ptr() == x.data_ptr() + 12
        assert abs(x.data_ptr() - y.data_ptr()) >= 4000
        assert x.view(10, 100).data_ptr() == x.data_ptr()


def test_values_are_real_unless_fake():
    with cuda_as_cpu():
        x = torch.arange(4, device="cuda", dtype=torch.float32)
        assert (x * 2).cpu().tolist() == [0, 2, 4, 6]
        assert not x.cpu().is_cuda
        generator = torch.Generator(device="cuda").manual_seed(7)
        first = torch.randn(3, generator=generator, device="cuda")
        assert torch.equal(first, torch.randn(3, generator=torch.Generator("cuda").manual_seed(7), device="cuda"))


def test_the_host_gets_no_array_of_a_tensor_that_poses():
    with cuda_as_cpu():
        x = torch.arange(4, device="cuda", dtype=torch.float32)
        for reach in (
            lambda: x.numpy(),
            lambda: np.asarray(x[1:]),
            lambda: np.maximum(x, 0),
            lambda: x.apply_(abs),
            lambda: x.map_(x, max),
        ):
            with pytest.raises(TypeError, match="cuda:0|only implemented on CPU"):
                reach()
        assert x.tolist() == [0, 1, 2, 3] and x.cpu().numpy().sum() == 6
        assert np.asarray(torch.ones(3)).sum() == 3


def test_fake_tensors_cost_no_memory_and_have_no_values():
    with cuda_as_cpu(fake=True):
        x = torch.randn(1 << 40, device="cuda")  # 4 TB
        assert (x + 1).numel() == 1 << 40
        with pytest.raises(ValuesNeeded):
            x.cpu()
        with pytest.raises(RuntimeError):
            x.sum().item()


@both_kinds
@pytest.mark.parametrize("layer", [torch.nn.GRU, torch.nn.LSTM])
def test_recurrent_layers_that_pose_are_not_for_cudnn_whatever_its_flags_say(fake, layer):
    cudnn = torch.backends.cudnn
    with cuda_as_cpu(fake=fake), cudnn.flags(enabled=True, benchmark=True):
        model, x = layer(4, 3).cuda(), torch.ones(2, 1, 4, device="cuda")
        output, _ = model(x)
        assert output.is_cuda and output.shape == (2, 1, 3)
        assert not cudnn.is_acceptable(x)
        assert cudnn.enabled and cudnn.benchmark


def test_cudnn_answers_as_before_after_nested_facades():
    cudnn, x = torch.backends.cudnn, torch.ones(3)
    before, enabled = cudnn.is_acceptable, cudnn.enabled
    with cuda_as_cpu():
        with cuda_as_cpu(fake=True):
            cudnn.enabled = True
        assert not cudnn.is_acceptable(x.cuda())
    assert cudnn.is_acceptable is before and cudnn.enabled == enabled


@pytest.mark.parametrize(("arch", "capability", "smem"), [("sm_80", (8, 0), 166_912), ("sm_120a", (12, 0), 101_376)])
def test_device_queries_answer_for_the_arch(arch, capability, smem):
    with cuda_as_cpu(arch=arch):
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_capability() == capability
        assert torch.cuda.get_device_properties(0).shared_memory_per_block_optin == smem
        stream, event = torch.cuda.current_stream(), torch.cuda.Event(enable_timing=True)
        event.record(stream)
        torch.cuda.synchronize()
        assert stream.cuda_stream == 0
        with torch.cuda.stream(torch.cuda.Stream()):
            assert event.query()


@both_kinds
def test_everything_is_undone(fake):
    names = ("is_available", "Stream", "Event", "current_stream", "synchronize", "get_device_properties", "_lazy_init")
    before = {name: getattr(torch.cuda, name) for name in names}
    generator = torch.Generator
    with pytest.raises(KeyError), cuda_as_cpu(fake=fake):
        torch.set_default_device("cuda")
        kept = torch.zeros(3)
        raise KeyError
    assert {name: getattr(torch.cuda, name) for name in names} == before
    assert torch.Generator is generator
    assert torch.zeros(1).device.type == "cpu"
    assert not kept.is_cuda
