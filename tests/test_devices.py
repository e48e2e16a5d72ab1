"""The SM table against known numbers, and occupancy against the published calculator's results."""

import pytest

from cutesmith.devices import SM_VERSIONS, Device, occupancy, parse_arch, registers_per_block, sm_of_name
from cutesmith.errors import UnavailableError, UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sm_90a", "sm_90a"),
        ("90", "sm_90"),
        ("SM_100F", "sm_100f"),
        ("9.0", "sm_90"),
        ("12.0", "sm_120"),
        ("sm80", "sm_80"),
    ],
)
def test_parse_arch(text, expected):
    assert str(parse_arch(text)) == expected


@pytest.mark.parametrize("text", ["", "sm_", "hopper", "sm_70", "sm_80a", "sm_90f", "sm_90b", "sm_90a;rm"])
def test_parse_arch_refuses(text):
    with pytest.raises(UsageError) as caught:
        parse_arch(text)
    assert "sm_" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("NVIDIA H200", 90),
        ("NVIDIA H100 80GB HBM3", 90),
        ("NVIDIA A100-SXM4-80GB", 80),
        ("NVIDIA L40S", 89),
        ("NVIDIA L4", 89),
        ("NVIDIA B200", 100),
        ("NVIDIA B300 SXM6 AC", 103),
        ("NVIDIA GeForce RTX 5090", 120),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 120),
        ("NVIDIA RTX 6000 Ada Generation", 89),
        ("NVIDIA GB10", 121),
    ],
)
def test_sm_of_name(name, number):
    assert sm_of_name(name).number == number


def test_sm_of_an_unknown_name():
    assert sm_of_name("Tesla K80") is None


def test_sm120_is_not_sm100():
    consumer, datacenter = SM_VERSIONS[120], SM_VERSIONS[100]
    assert consumer.smem_per_block == 101_376
    assert datacenter.smem_per_block == 232_448
    assert not any("tcgen05" in kind for kind in consumer.tensor_cores)
    assert any("tcgen05" in kind for kind in datacenter.tensor_cores)


@pytest.mark.parametrize(
    ("arch", "number", "runs"),
    [("sm_90a", 90, True), ("sm_90", 100, False), ("sm_80", 86, True), ("sm_86", 80, False), ("sm_100f", 103, True)]
    + [("sm_100a", 103, False), ("sm_100f", 120, False), ("sm_120", 121, True)],
)
def test_where_a_cubin_runs(arch, number, runs):
    assert parse_arch(arch).runs_on(SM_VERSIONS[number]) is runs


@pytest.mark.parametrize(
    ("capability", "wanted", "arch"), [((9, 0), "", "sm_90a"), ((9, 0), "sm_90", "sm_90"), ((7, 5), "", "sm_75")]
)
def test_the_architecture_to_compile_for_on_a_device(capability, wanted, arch):
    assert Device(0, "GPU", capability, "").fitting_arch(wanted) == arch


def test_an_architecture_that_does_not_run_on_a_device_is_refused():
    with pytest.raises(UnavailableError, match="sm_80 does not run on this machine's H200"):
        Device(0, "H200", (9, 0), "").fitting_arch("sm_80")


@pytest.mark.parametrize(
    ("number", "threads", "registers", "smem", "blocks", "limit"),
    [
        (90, 1024, 32, 0, 2, "threads and registers"),
        (90, 1024, 64, 0, 1, "registers"),
        (90, 128, 168, 0, 3, "registers"),
        (90, 128, 32, 100_000, 2, "shared memory"),
        (90, 32, 16, 0, 32, "blocks"),
        (89, 128, 40, 0, 12, "threads and registers"),
        (90, 256, 128, 100_000, 2, "registers and shared memory"),
        (86, 64, 16, 0, 16, "blocks"),
        (80, 256, 37, 48_000, 3, "shared memory"),
        (120, 128, 32, 99 * 1024, 1, "shared memory"),
        (90, 256, 255, 0, 1, "registers"),
    ],
)
def test_occupancy(number, threads, registers, smem, blocks, limit):
    result = occupancy(SM_VERSIONS[number], threads=threads, registers=registers, smem=smem)
    assert (result.blocks, result.limit) == (blocks, limit)
    assert result.percent == pytest.approx(100 * blocks * threads / SM_VERSIONS[number].threads_per_sm, abs=0.06)


def test_what_does_not_fit_has_no_occupancy():
    sm = SM_VERSIONS[90]
    assert occupancy(sm, threads=1024, registers=65, smem=0).blocks == 0
    assert occupancy(sm, threads=128, registers=32, smem=232_449).limit == "shared memory: does not fit"
    assert occupancy(sm, threads=1056, registers=16, smem=0).blocks == 0


def test_registers_are_given_in_units_of_256_a_warp():
    assert registers_per_block(33, 128) == 4 * 40 * 32
    assert registers_per_block(32, 96) == 4 * 32 * 32  # three warps take the space of four
