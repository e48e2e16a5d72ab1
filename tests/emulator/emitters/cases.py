"""Instructions over edge values and random bits, one register a case, compared with an oracle in Python's integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tests.emulator.native.straight import run

TYPES = ("u16", "s16", "u32", "s32", "u64", "s64")
REGISTER = {1: "%p", 16: "%rs", 32: "%r", 64: "%rd"}


class Case(NamedTuple):
    """A form, the types of its sources, the bits of its result, and what it computes; `{}` in a form: its operands."""

    form: str
    sources: tuple[str, ...]
    result: int
    oracle: Callable[..., int]


def bits(kind: str) -> int:
    return 1 if kind == "pred" else int(kind[1:])


def signed(value: int, width: int) -> int:
    value &= (1 << width) - 1
    return value - (1 << width) if value >> (width - 1) else value


def typed(value: int, kind: str) -> int:
    return signed(value, bits(kind)) if kind[0] == "s" else value & ((1 << bits(kind)) - 1)


def operands(count: int) -> list[np.ndarray]:
    """`count` arrays of 64-bit patterns: every pair of edge values, small numbers, and random bits."""
    edges = [0, 1, 2, 31, 32, 33, 0x7F, 0x80, 0x7FFF, 0x8000, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63]
    edges = np.array([*edges, 2**64 - 1, 2**64 - 2, 0xFFFF_8000, 0x8000_0000_8000_8000], np.uint64)
    generator = np.random.default_rng(7)
    first, second = (grid.ravel() for grid in np.meshgrid(edges, edges))
    rest = [generator.permutation(first) for _ in range(count - 2)]
    wild = generator.integers(0, 2**64, (count, 300), np.uint64, endpoint=False)
    small = wild >> generator.integers(0, 64, wild.shape, np.uint64)
    return [np.concatenate(parts) for parts in zip([first, second, *rest], wild, small)]


def check(cases: list[Case]) -> None:
    """Run all cases in one program, each with registers of its own, and compare every lane with the oracle."""
    count = max(len(case.sources) for case in cases)
    values = operands(count)
    inputs = {f"{REGISTER[width]}{position}": values[position] for width in REGISTER for position in range(count)}
    lines, outputs = [], []
    for number, case in enumerate(cases, 10):
        outputs.append(f"{REGISTER[case.result]}{number}")
        sources = (f"{REGISTER[bits(kind)]}{position}" for position, kind in enumerate(case.sources))
        form = case.form if "{}" in case.form else case.form + " {};"
        lines.append(form.format(", ".join((outputs[-1], *sources))))
    masked = {name: array & np.uint64((1 << _width(name)) - 1) for name, array in inputs.items()}
    results = run("\n".join(lines), masked, *outputs)
    for case, output in zip(cases, outputs):
        arguments = zip(*([typed(int(v), kind) for v in values[p]] for p, kind in enumerate(case.sources)))
        wanted = [case.oracle(*lane) & ((1 << case.result) - 1) for lane in arguments]
        wrong = np.flatnonzero(results[output] != np.array(wanted, np.uint64))
        assert not wrong.size, f"{case.form}: lane {wrong[0]}: {[hex(int(v[wrong[0]])) for v in values]} gives " + (
            f"{int(results[output][wrong[0]]):#x}, not {wanted[wrong[0]]:#x}"
        )


def _width(register: str) -> int:
    return next(width for width, prefix in sorted(REGISTER.items(), reverse=True) if register.startswith(prefix))


def each(form: str, types: tuple[str, ...], count: int, oracle: Callable[..., int]) -> list[Case]:
    """The same operation for several types, the same for sources and result; `oracle(kind, *values)`."""
    return [
        Case(f"{form}.{kind}", (kind,) * count, bits(kind), lambda *v, kind=kind: oracle(kind, *v)) for kind in types
    ]
