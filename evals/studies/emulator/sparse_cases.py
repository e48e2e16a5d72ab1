"""Cases of `wgmma.mma_async.sp`: every type from both sources of A, numbers of columns, signs, layouts, chains."""

from __future__ import annotations

from cutesmith.emulator.engines.swizzles import Swizzle
from evals.studies.emulator.warpgroup_cases import Layout, Major, WarpgroupCase, layouts_of, make_case

_TYPES = (
    "k32.f16.f16.f16", "k32.f32.f16.f16", "k32.f32.bf16.bf16", "k16.f32.tf32.tf32",
    "k64.f32.e4m3.e4m3", "k64.f32.e4m3.e5m2", "k64.f32.e5m2.e4m3", "k64.f32.e5m2.e5m2",
    "k64.f16.e4m3.e4m3", "k64.f16.e5m2.e4m3", "k64.s32.s8.s8", "k64.s32.u8.s8", "k64.satfinite.s32.s8.u8",
)  # fmt: skip
_PLAIN = (Layout(Swizzle.NONE, 128, 256), Layout(Swizzle.NONE, 128, 512))


def _case(n: int, kind: str, suffix: str, **given: object) -> WarpgroupCase:
    return make_case(n, kind, suffix, sparse=True, **{"layouts": (_PLAIN,), "sets": 2, **given})


def _numeric() -> list[WarpgroupCase]:
    """Every combination of types, A from shared memory and from registers, on every kind of input."""
    return [
        _case(8, kind, "registers" if registers else "shared", in_registers=registers)
        for kind in _TYPES
        for registers in (False, True)
    ]


def _shaped() -> list[WarpgroupCase]:
    """Further numbers of columns."""
    floats = [kind for kind in _TYPES if ".s32." not in kind]
    cases = [_case(n, floats[n // 8 % len(floats)], "shape", kinds=("normal",)) for n in (24, 40, 64, 104, 192, 256)]
    return cases + [_case(n, "k64.s32.u8.s8", "shape", kinds=("random",)) for n in (24, 96)]


def _negated() -> list[WarpgroupCase]:
    return [
        _case(16, kind, f"signs {signs[0]} {signs[1]}", signs=signs, kinds=("spread", "special"))
        for kind, signs in (
            ("k32.f32.bf16.bf16", (-1, 1)),
            ("k64.f32.e4m3.e4m3", (1, -1)),
            ("k16.f32.tf32.tf32", (-1, -1)),
        )
    ]


def _chained() -> list[WarpgroupCase]:
    """Three multiplications in one group, each on the result before."""
    kinds = ("k32.f16.f16.f16", "k32.f32.bf16.bf16", "k64.f32.e4m3.e4m3", "k64.satfinite.s32.s8.u8")
    return [_case(16, kind, "three times", times=3) for kind in kinds]


def _laid_out() -> list[WarpgroupCase]:
    """Swizzles whose rows hold 64 bytes of B, and both majors."""
    cases = []
    for kind, majors, registers in (
        ("k32.f32.f16.f16", (Major.K, Major.K), False), ("k32.f32.f16.f16", (Major.MN, Major.MN), False),
        ("k32.f32.bf16.bf16", (Major.K, Major.MN), True), ("k64.f32.e5m2.e5m2", (Major.K, Major.K), False),
    ):  # fmt: skip
        a, b = (layouts_of(major, f"sparse {kind} {place}") for place, major in enumerate(majors))
        pairs = [(one, other) for one, other in zip(a, b, strict=True) if _holds(other, majors[1])]
        suffix = f"layouts {majors[0].name} {majors[1].name}{' registers' if registers else ''}"
        more = {"layouts": tuple(pairs), "majors": majors, "sets": len(pairs), "in_registers": registers}
        cases.append(_case(64, kind, suffix, kinds=("normal",), **more))
    return cases


def _holds(layout: Layout, major: Major) -> bool:
    """Whether the rest of a row of 64 bytes is where the layout says, which only a row of the swizzle tells."""
    return major is Major.MN or layout.swizzle is not Swizzle.B32


SPARSE_CASES = (*_numeric(), *_shaped(), *_negated(), *_chained(), *_laid_out())
