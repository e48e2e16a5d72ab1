"""The loop that looks for tokens agrees with a comparison of all words, wherever one of them differs."""

import numpy as np
import pytest

from cutesmith.emulator.tensor_cores.in_flight import tokens
from cutesmith.emulator.tensor_cores.native_tokens import hold_tokens

ROWS = np.array([5, 2, 9, 0], np.int64)  # registers of an accumulator are anywhere in the frame
FIRST, THREADS = 128, 128


def frame_with_tokens(serial):
    frame = np.full((10, 3 * THREADS), 7, np.uint64)
    frame[ROWS[:, None], np.arange(FIRST, FIRST + THREADS)] = tokens(np.array([serial]), len(ROWS))
    return frame


def held(frame, serial):
    return hold_tokens(frame, ROWS, FIRST, THREADS, int(tokens(np.array([serial]), 1)[0, 0]))


@pytest.mark.parametrize("serial", [1, 300, 32767])
def test_tokens_are_found_whatever_other_lanes_hold(serial):
    assert held(frame_with_tokens(serial), serial)
    assert not held(frame_with_tokens(serial), serial % 32767 + 1)


@pytest.mark.parametrize("row", range(len(ROWS)))
@pytest.mark.parametrize("lane", [0, 1, 7, 8, 127])
@pytest.mark.parametrize("bit", [0, 7, 31, 40])
def test_one_bit_that_differs_is_seen(row, lane, bit):
    frame = frame_with_tokens(4)
    frame[ROWS[row], FIRST + lane] ^= np.uint64(1 << bit)
    assert not held(frame, 4)
