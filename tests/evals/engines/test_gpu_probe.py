"""What is said of a GPU after a failure: broken, or its memory held by others."""

import pytest

from cutesmith.devices import current_device
from cutesmith.evals.engines.gpus import probe, taken_of

GIB = 1 << 30


@pytest.mark.parametrize(("free", "says"), [(138, ""), (105, ""), (104, "36.0 of its 140.0 GiB"), (0, "140.0 of its")])
def test_memory_counts_as_taken_when_a_quarter_of_it_is(free, says):
    """Eight judges whose references wait for the next kernel hold 5 GiB."""
    said = taken_of(free * GIB, 140 * GIB)
    assert said.startswith(says) and bool(said) == bool(says)
    assert not says or said.endswith("GiB of memory are taken")


@pytest.mark.skipif(current_device() is not None, reason="this machine has a GPU")
def test_without_a_gpu_it_is_lost():
    found = probe()
    assert found.lost == "nvidia-smi lists no GPU any more" and not found.taken


@pytest.mark.gpu
def test_a_gpu_that_computes_is_neither():
    found = probe()
    assert not found.lost, found
