"""Sectors, wavefronts, strides and contention of requests whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.profiling.requests import Requests, requests_of

LANES = np.arange(32)


def request(addresses, size=4, active=None):
    table = np.asarray(addresses, np.int64).reshape(1, 32)
    return Requests(table, np.ones((1, 32), bool) if active is None else np.reshape(active, (1, 32)), size)


def numbers(found):
    names = ("sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts", "contention")
    return tuple(int(getattr(found, name)()[0]) for name in names)


@pytest.mark.parametrize(
    ("stride", "size", "expected"),
    [
        (4, 4, (4, 4, 1, 1, 1)),
        (128, 4, (32, 4, 32, 1, 1)),
        (132, 4, (32, 4, 1, 1, 1)),  # a row padded by one word
        (8, 4, (8, 4, 2, 1, 1)),
        (0, 4, (1, 1, 1, 1, 32)),  # broadcast
        (2, 2, (2, 2, 1, 1, 1)),  # two lanes share a word
        (8, 8, (8, 8, 2, 2, 1)),  # half warps
        (256, 8, (32, 8, 32, 2, 1)),
        (16, 16, (16, 16, 4, 4, 1)),  # quarter warps
        (512, 16, (32, 16, 32, 4, 1)),
        (528, 16, (32, 16, 4, 4, 1)),
        (-4, 4, (5, 4, 1, 1, 1)),  # its first lane begins a sector of its own
    ],
)
def test_lanes_at_a_stride(stride, size, expected):
    found = request(4096 * 32 + stride * LANES, size)
    assert numbers(found) == expected
    assert found.lane_stride() == stride


def test_a_misaligned_request_touches_one_sector_more():
    assert numbers(request(4 * LANES + 4))[:2] == (5, 4)


def test_inactive_lanes_count_for_nothing():
    found = request(128 * LANES, active=LANES < 2)
    assert numbers(found) == (2, 1, 2, 1, 1)
    assert (found.accesses, found.lane_stride()) == (2, 128)
    assert request(4 * LANES, active=LANES == 7).lane_stride() is None


def test_wavefronts_against_a_loop_over_banks():
    rng = np.random.default_rng(5)
    for size in (4, 8, 16):
        addresses = size * rng.integers(0, 200, 32)
        per_group, total = 32 // (size // 4), 0
        for start in range(0, 32, per_group):
            words = {a // 4 + w for a in addresses[start : start + per_group] for w in range(size // 4)}
            total += max(sum(word % 32 == bank for word in words) for bank in range(32))
        assert request(addresses, size).wavefronts()[0] == total


def test_scattered_lanes_have_no_stride():
    assert request(4 * (LANES * LANES * 7 % 1024)).lane_stride() is None


def test_a_bulk_copy_spans_sectors():
    found = request(np.where(LANES == 0, 64, 0), 1000, active=LANES == 0)
    assert found.sectors()[0] == 32


def test_the_kth_accesses_of_a_warps_lanes_are_one_request():
    """Two warps, three accesses a lane, logged lane by lane; lane 5 left the loop after two."""
    lanes = np.concatenate([[lane] * (2 if lane == 5 else 3) for lane in range(64)])
    turns = np.concatenate([range(2 if lane == 5 else 3) for lane in range(64)])
    addresses = (1000 * turns + 4 * lanes).astype(np.uint64)
    found = requests_of(lanes, addresses, 4, np.arange(64) // 32, np.arange(64) % 32)
    assert (found.count, found.accesses) == (6, 191)
    assert found.active.sum(axis=1).tolist() == [32, 32, 31, 32, 32, 32]
    assert (found.addresses[1] == 1000 + 4 * LANES).all()
