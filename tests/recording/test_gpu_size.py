"""Host code is told of fewer multiprocessors where a case wants a small GPU, by every way that it may ask."""

from __future__ import annotations

import torch

from cutesmith.devices import parse_arch
from cutesmith.recording.driver_answers import device_attribute
from cutesmith.recording.gpu_size import limited_to
from cutesmith.recording.open_session import session

SM = parse_arch("sm_90a").sm


def told():
    """What PyTorch, the driver and the DSL say, and how many clusters of two the DSL takes to fit."""
    from cutlass.utils import HardwareInfo

    info = HardwareInfo()
    properties = torch.cuda.get_device_properties(0).multi_processor_count
    answers = (properties, device_attribute(SM, 16), info.get_device_multiprocessor_count())
    return (*answers, info.get_max_active_clusters(2))


def test_a_small_gpu_has_as_many_multiprocessors_as_it_is_asked_to_have():
    with session("sm_90a", fake=True):
        assert told() == (SM.multiprocessors,) * 3 + (SM.multiprocessors // 2,)
        with limited_to(4):
            assert told() == (4, 4, 4, 2)
            with limited_to(0):  # the usual number
                assert told()[0] == SM.multiprocessors
        assert told()[0] == SM.multiprocessors
