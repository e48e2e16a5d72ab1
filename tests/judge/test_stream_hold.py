"""The current stream held until the host lets go: what started ahead of it shows, on a busy GPU too (rule T1)."""

import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from cutesmith.judge.candidate_side.stream_hold import HOLD, LONGEST_HOLD_S, StreamHold
from cutesmith.judge.rounds import VerifyOptions
from cutesmith.judge.verification import verify_kernel
from tests.emulator.machine.launches import address_of, emulate

ADVERSARIAL = Path(__file__).parents[2] / "evals" / "adversarial"
FOREVER = (1 << 63) - 1


def held(word, longest_ns):
    """Run the waiting code on the emulated GPU, whose clock counts steps."""
    words = np.array([word, longest_ns], dtype=np.uint64)
    return emulate(f"mov.u64 %d0, {address_of(0)};\n{HOLD}", words, block=1, step_limit=20_000)


def test_the_wait_ends_when_the_word_is_set_or_its_time_is_over():
    assert held(1, FOREVER).kinds == []
    assert held(0, 100).kinds == []
    with pytest.raises(Exception, match="step"):
        held(0, FOREVER)


@pytest.mark.gpu
def test_what_is_queued_waits_until_the_host_lets_go():
    hold, side = StreamHold(), torch.cuda.Stream()
    x, ahead, behind = (torch.zeros(1 << 20, device="cuda") for _ in range(3))
    for _ in range(3):
        x.zero_()
        hold.begin()
        x.fill_(1.0)
        with hold.ending():
            with torch.cuda.stream(side):
                ahead.copy_(x)
            behind.copy_(x)
        torch.cuda.synchronize()
        assert ahead.sum().item() == 0 and behind.sum().item() == x.numel()


@pytest.mark.gpu
def test_who_waits_for_the_device_meanwhile_goes_on_when_the_time_is_over():
    hold = StreamHold()
    hold.begin()
    began = time.monotonic()
    with hold.ending():
        torch.cuda.synchronize()
    assert 0.9 * LONGEST_HOLD_S < time.monotonic() - began < 3 * LONGEST_HOLD_S


@pytest.mark.gpu
def test_after_an_exception_nothing_is_held():
    hold = StreamHold()
    hold.begin()
    began = time.monotonic()
    with suppress(ZeroDivisionError), hold.ending():
        raise ZeroDivisionError
    torch.cuda.synchronize()
    assert time.monotonic() - began < 0.5 * LONGEST_HOLD_S


@pytest.mark.gpu
def test_beside_nine_processes_an_early_start_is_seen_each_time_and_honest_streams_pass(crowded_gpu):
    for _ in range(3):
        verdict = verify_kernel(ADVERSARIAL / "t1_early_start.py", VerifyOptions(seeds=1))
        assert verdict.exit_code in (1, 8), verdict.summary
        assert not verdict.cases[0].passed, "the replay itself shows it, not luck with a later case"
    verdict = verify_kernel(ADVERSARIAL / "t1_honest_joined_streams.py", VerifyOptions(seeds=1))
    assert verdict.exit_code == 0, verdict.summary
