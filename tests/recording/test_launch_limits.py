"""What the hardware refuses, at each limit and one step beyond it."""

import pytest

from cutesmith.devices import SM_VERSIONS
from cutesmith.recording.launch_limits import LaunchShape, refusals

GOOD = {
    "grid": (8, 1, 1),
    "block": (128, 1, 1),
    "cluster": (1, 1, 1),
    "registers": 32,
    "static_smem": 0,
    "dynamic_smem": 0,
    "smem_limit": 48 << 10,
    "nonportable_cluster": False,
}


def refused(number=90, **changes):
    return refusals(LaunchShape(**{**GOOD, **changes}), SM_VERSIONS[number])


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"block": (1024, 1, 1), "registers": 64},
        {"block": (16, 1, 64)},
        {"grid": (2**31 - 1, 65535, 65535)},
        {"dynamic_smem": 232_448, "smem_limit": 232_448},
        {"static_smem": 1024, "dynamic_smem": 48 << 10},
        {"cluster": (8, 1, 1)},
        {"grid": (32, 1, 1), "cluster": (16, 1, 1), "nonportable_cluster": True},
        {"block": (256, 1, 1), "registers": 255},
        {"required_block": (128, 1, 1)},
        {"grid": (132 * 16, 1, 1), "cooperative": True},
    ],
)
def test_what_runs(changes):
    assert refused(**changes) == ()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"block": (1025, 1, 1)}, "1025 threads"),
        ({"block": (1, 1, 65)}, "block z is 65"),
        ({"block": (0, 1, 1)}, "block x is 0"),
        ({"grid": (0, 1, 1)}, "grid x is 0"),
        ({"grid": (1, 65536, 1)}, "grid y is 65536"),
        ({"dynamic_smem": 232_449, "smem_limit": 1 << 20}, "232449 bytes"),
        ({"static_smem": 48 << 10, "dynamic_smem": 190_000, "smem_limit": 1 << 20}, "49152 static"),
        ({"dynamic_smem": (48 << 10) + 1}, "set the limit to 49152"),
        ({"cluster": (16, 1, 1), "grid": (16, 1, 1)}, "non-portable"),
        ({"cluster": (32, 1, 1), "grid": (32, 1, 1), "nonportable_cluster": True}, "at most 16"),
        ({"cluster": (3, 1, 1)}, "multiple of the cluster's 3"),
        ({"registers": 256}, "256 registers"),
        ({"block": (1024, 1, 1), "registers": 65}, "73728 registers a block"),
        ({"required_block": (256, 1, 1)}, "compiled for exactly (256, 1, 1)"),
        ({"grid": (132 * 16 + 1, 1, 1), "cooperative": True}, "holds 2112"),
    ],
)
def test_what_is_refused(changes, word):
    sentences = refused(**changes)
    assert any(word in sentence for sentence in sentences), sentences


def test_limits_are_those_of_the_sm():
    clustered = {"cluster": (2, 1, 1)}
    assert refused(90, **clustered) == ()
    assert "sm_80 has no clusters" in refused(80, **clustered)[0]
    smem = {"dynamic_smem": 160_000, "smem_limit": 160_000}
    assert refused(80, **smem) == refused(100, **smem) == ()
    assert "sm_120 has 101376" in refused(120, **smem)[0]
