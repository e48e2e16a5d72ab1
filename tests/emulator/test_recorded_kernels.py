"""Whole kernels for Hopper against the bits that an H200 wrote (evals/results/emulator/kernels_hopper)."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

EVALS = Path(__file__).resolve().parent.parent.parent / "evals"
RECORDING = EVALS / "results" / "emulator" / "kernels_hopper"
NAMES = (
    "own/tma_copy_pipeline_sm90 3 8",
    "own/cluster_reduce_sm90 2 64",
    "own/gated_gemm_sm90 1 8 8",
    "planted_faults/wgmma_rescaled_early",
    "planted_faults/tma_multicast_mask",
    "planted_faults/dsmem_store_wait_missing",
    "planted_faults/reduction_without_proxy_fence",
)


@pytest.fixture(scope="module")
def replay():
    sys.path.insert(0, str(EVALS / "studies" / "emulator"))
    with warnings.catch_warnings(record=True):  # the DSL's
        import compare_kernels

        yield compare_kernels.replay_case
    sys.path.remove(str(EVALS / "studies" / "emulator"))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_bit_is_that_of_the_h200(name, replay):
    found = replay(name, str(RECORDING))
    assert (found["same"], found["findings"]) == ("bits", [])
