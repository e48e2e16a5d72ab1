"""What a tiling is refused for, on every SM of the table; what is said; what survives JSON and the frozen file."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from cutesmith.devices import SM_VERSIONS, Device
from cutesmith.errors import UsageError
from cutesmith.runtime import TiledShape, Tiling

GEMM = TiledShape(sizes=(4096, 4096, 512), exact=(2,), element_bytes=2)
PLAIN = Tiling(threads=128)


@pytest.mark.parametrize("sm", SM_VERSIONS.values(), ids=lambda sm: f"sm_{sm.number}")
def test_the_largest_that_fits_passes_and_one_more_is_refused(sm):
    def judged(**fields):
        return Tiling(**{"threads": 128, **fields}).validate(TiledShape(), sm)

    assert judged(smem_bytes=sm.smem_per_block) == ()
    assert f"sm_{sm.number} has {sm.smem_per_block}" in judged(smem_bytes=sm.smem_per_block + 1)[0]
    fitting = sm.smem_per_block // 20_000
    assert judged(stages=fitting, stage_bytes=20_000) == ()
    assert f"room for {fitting} stages" in judged(stages=fitting + 1, stage_bytes=20_000)[0]
    assert judged(cluster=(sm.max_cluster, 1, 1)) == ()
    assert "cluster" in judged(cluster=(2 * sm.max_cluster, 1, 1))[0]
    most = sm.max_cluster_nonportable
    assert judged(cluster=(most, 1, 1), nonportable_cluster=True) == ()
    assert "cluster" in judged(cluster=(2 * most, 1, 1), nonportable_cluster=True)[0]
    assert judged(threads=1024, registers=64) == () and judged(registers=255) == ()
    assert "65" in judged(threads=1024, registers=65)[0]
    assert bool(judged(tma=True)) is not sm.tma
    resident = sm.threads_per_sm // 256
    assert judged(threads=256, blocks_per_sm=resident) == ()
    assert f"leave room for {resident}" in judged(threads=256, blocks_per_sm=resident + 1)[0]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"threads": 0}, "threads is 0: it must be positive"),
        ({"stages": -1}, "stages is -1: it must be positive"),
        ({"tile": (64, 0)}, "tile is (64, 0): it must be positive"),
        ({"smem_bytes": -8}, "smem_bytes is -8: it must not be negative"),
        ({"cluster": (2, 1)}, "cluster is (2, 1): it must have three sizes"),
        ({"threads": 1025}, "1025 threads a block: at most 1024"),
        ({"registers": 256}, "256 registers a thread: at most 255"),
        ({"tile": (128, 128, 96)}, "a tile of 96 does not divide the 512 of dimension 2, whose edge is not guarded"),
        ({"tile": (1, 1, 1, 1)}, "a tile of 4 dimensions for a shape of 3"),
        ({"vector": 16}, "16 elements an access of 2 bytes: it must be a power of two of at most 16 bytes"),
        ({"vector": 3}, "3 elements an access of 2 bytes: it must be a power of two of at most 16 bytes"),
        ({"tile": (64, 64, 4), "vector": 8}, "8 elements an access do not divide the tile's 4"),
        ({"stages": 2, "stage_bytes": 300_000}, "too little for one"),
    ],
)
def test_every_refusal_says_what_and_why(fields, said):
    found = Tiling(**{"threads": 128, **fields}).validate(GEMM, "sm_90a")
    assert any(said in sentence for sentence in found), found


def test_a_guarded_edge_may_have_any_tile():
    assert Tiling(threads=128, tile=(96, 80, 64)).validate(GEMM, "sm_90a") == ()
    assert Tiling(threads=128, vector=8).validate(TiledShape(sizes=(4, 12), element_bytes=2), "sm_90a") == ()
    odd = TiledShape(sizes=(4, 12), exact=(1,), element_bytes=2)
    assert "do not divide the 12" in Tiling(threads=128, vector=8).validate(odd, "sm_90a")[0]


def test_devices_are_sms_gpus_and_names():
    device = Device(0, "NVIDIA H200", (9, 0), "580.0")
    assert PLAIN.validate(GEMM, device) == PLAIN.validate(GEMM, "sm_90a") == ()
    with pytest.raises(UsageError, match="not in the SM table"):
        PLAIN.validate(GEMM, Device(0, "NVIDIA V100", (7, 0), "580.0"))


def test_require_raises_every_refusal():
    PLAIN.require(GEMM, "sm_80")
    with pytest.raises(UsageError, match="2048 threads a block.*300 registers"):
        Tiling(threads=2048, registers=300).require(GEMM, "sm_80")


def test_json_and_back():
    tiling = Tiling(threads=256, tile=(128, 64), cluster=(2, 1, 1), stages=3, settings={"swizzle": 3, "name": "a"})
    assert Tiling.from_dict(json.loads(json.dumps(tiling.to_dict()))) == tiling
    assert Tiling(threads=32).to_dict() == {"threads": 32} and Tiling(threads=32).label() == "threads=32"
    assert len({tiling, Tiling.from_dict(tiling.to_dict()), PLAIN}) == 2
    for wrong in ({}, {"threads": 1, "else": 2}, [1], "x"):
        with pytest.raises(UsageError, match="describes no tiling"):
            Tiling.from_dict(wrong)


def test_the_frozen_text_has_the_same_attributes_without_this_package():
    tiling = Tiling(threads=256, tile=(128, 64), settings={"hints": "last"})
    frozen = eval(tiling.namespace(), {"SimpleNamespace": SimpleNamespace})
    assert (frozen.threads, frozen.tile, frozen.stages, frozen.settings["hints"]) == (256, (128, 64), 1, "last")
