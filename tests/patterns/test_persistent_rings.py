"""Generated products on two multiprocessors, so that a block has several tiles: faults of their rings are found."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
import torch

from cutesmith.emulator.device import emulated_device
from cutesmith.emulator.errors import EmulationError
from cutesmith.patterns.contraction.blackwell.configuration import BlackwellConfiguration
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration
from cutesmith.patterns.contraction.plan import match
from cutesmith.patterns.tracing.trace import trace_function
from cutesmith.recording.gpu_size import limited_to
from cutesmith.verdicts import FaultKind
from tests.patterns.running import load, move, normal

TILES = 7  # down: each of two blocks, or of the warpgroups of one, has several
COOPERATIVE = HopperConfiguration(128, 128, 64, 4)
PINGPONG = replace(COOPERATIVE, pingpong=True)
ONE = BlackwellConfiguration(128, 128, 64, 3)
PAIR = BlackwellConfiguration(256, 128, 64, 3, pair=True)
CONFIGURATIONS = {"cooperative": COOPERATIVE, "pingpong": PINGPONG, "one": ONE, "pair": PAIR}

NO_WAIT = ("ring.producer_acquire(state)", "ring.sync_object_full.arrive(state.index, ring.producer_mask)")
AGAIN = "pipeline.make_pipeline_state(pipeline.PipelineUserType.{})"
SUMS = "sums = tCtC[None, None, None, done.index]"
ACCUMULATORS = (SUMS, f"done = {AGAIN.format('Producer, ACCUMULATORS')}; {SUMS}")
FAULTS = {
    ("cooperative", "phase"): (("acc.fill(0)", "acc.fill(0); read = stage_of(Int32(0), 0)"), FaultKind.MISSING_WAIT),
    ("cooperative", "no wait"): (NO_WAIT, FaultKind.INVALID_OPERAND),
    ("pingpong", "phase"): (("(i * k_tiles, 0)", "(turn * k_tiles, 0)"), FaultKind.DEADLOCK),
    ("pingpong", "no wait"): (NO_WAIT, FaultKind.INVALID_OPERAND),
    ("one", "phase"): (ACCUMULATORS, FaultKind.DEADLOCK),
    ("one", "no wait"): (("ready.producer_acquire(done)", "pass"), FaultKind.RACE),
    ("pair", "phase"): (ACCUMULATORS, FaultKind.DEADLOCK),
    ("pair", "no wait"): (("ready.producer_acquire(done)", "pass"), FaultKind.RACE),
}


def run(configuration, folder, change=("", "")):
    """Findings, results (None where a fault ended the launch), and what the results have to be."""
    arch = "sm_100a" if isinstance(configuration, BlackwellConfiguration) else "sm_90a"
    x = normal(TILES * configuration.tile_m, 136, dtype=torch.bfloat16)
    weight = normal(136, configuration.tile_n, dtype=torch.bfloat16, seed=1)
    source, result = match(trace_function(torch.matmul, (x, weight))).render(configuration), None
    assert change[0] in source
    with limited_to(2), contextlib.suppress(EmulationError), emulated_device(arch) as device:
        try:
            result = load(source.replace(*change), folder).kernel_fn(move(x), move(weight)).cpu()
        finally:
            device.check()
    return device.findings, result, x.double() @ weight.double()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fault"), FAULTS, ids=lambda words: words.replace(" ", "_"))
def test_a_fault_of_the_ring_is_found(name, fault, tmp_path):
    change, kind = FAULTS[name, fault]
    findings, _, _ = run(CONFIGURATIONS[name], tmp_path, change)
    assert kind in {finding.kind for finding in findings}, findings


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_kernel_as_it_is_generated_is_silent_and_right(name, tmp_path):
    findings, result, expected = run(CONFIGURATIONS[name], tmp_path)
    assert not findings
    torch.testing.assert_close(result.double(), expected, rtol=2**-8, atol=1e-4)
