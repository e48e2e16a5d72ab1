"""Further cases of `wgmma`: long chains, every type with many columns on every kind of input, layouts."""

from __future__ import annotations

from evals.studies.emulator.warpgroup_cases import TYPES, Major, WarpgroupCase, layouts_of, make_case

_CHAIN = 16
_LAID_OUT = (
    (96, "k32.f32.e4m3.e5m2", (Major.K, Major.K), False), (40, "k32.f16.e4m3.e4m3", (Major.K, Major.K), False),
    (96, "k32.s32.s8.s8", (Major.K, Major.K), False), (128, "k16.f32.bf16.bf16", (Major.K, Major.MN), False),
    (112, "k16.f16.f16.f16", (Major.MN, Major.K), False), (104, "k16.f32.f16.f16", (Major.MN, Major.MN), False),
    (120, "k16.f32.f16.f16", (Major.K, Major.MN), True), (72, "k8.f32.tf32.tf32", (Major.K, Major.K), True),
    (88, "k32.f32.e5m2.e4m3", (Major.K, Major.K), True),
)  # fmt: skip


def _floats() -> list[str]:
    return [kind for kind in TYPES if ".s32." not in kind]


def _long_chains() -> list[WarpgroupCase]:
    """Sixteen multiplications in a group, each on the rounded result before: long sums as kernels make them."""
    kinds = ("normal", "spread", "cancel", "subnormal")
    found = [
        make_case(n, kind, f"{_CHAIN} times{' registers' if registers else ''}",
                  times=_CHAIN, sets=2, kinds=kinds, in_registers=registers)
        for kind in _floats()
        for n, registers in ((16, False), (8, True))
    ]  # fmt: skip
    integers = [kind for kind in TYPES if ".s32." in kind]
    return found + [make_case(16, kind, f"{_CHAIN} times", times=_CHAIN, sets=2) for kind in integers]


def _wide() -> list[WarpgroupCase]:
    """Every type with 64 to 256 columns on every kind of input, negated where that exists."""
    columns = (64, 128, 256, 192, 224, 160)
    found = []
    for index, kind in enumerate(TYPES):
        registers = index % 2 == 1
        signs = ((1, 1), (-1, 1), (1, -1), (-1, -1))[index % 4] if ".s32." not in kind else (1, 1)
        suffix = f"all kinds {signs[0]} {signs[1]}{' registers' if registers else ''}"
        found.append(make_case(columns[index % 6], kind, suffix, signs=signs, in_registers=registers, sets=2))
    return found


def _laid_out() -> list[WarpgroupCase]:
    """Layouts with every swizzle for types and columns that had none."""
    cases = []
    for n, kind, majors, registers in _LAID_OUT:
        a, b = (layouts_of(major, f"{n} {kind} {place}") for place, major in enumerate(majors))
        layouts, kinds = tuple(zip(a, b, strict=True)), ("random",) if ".s32." in kind else ("normal",)
        more = {"layouts": layouts, "majors": majors, "sets": len(layouts), "kinds": kinds, "in_registers": registers}
        suffix = f"layouts {majors[0].name} {majors[1].name}{' registers' if registers else ''}"
        cases.append(make_case(n, kind, suffix, **more))
    return cases


FURTHER_CASES = (*_long_chains(), *_wide(), *_laid_out())
