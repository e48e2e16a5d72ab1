"""Packed arithmetic is the scalar one on each half."""

from __future__ import annotations

import numpy as np
import pytest

from evals.studies.emulator.instruction_operands import operands
from tests.emulator.native.straight import run

COUNT = 512
FORMS = [f"{opcode}{flags}" for opcode in ("add.rn", "sub.rn", "mul.rn") for flags in ("", ".ftz", ".sat", ".ftz.sat")]
FORMS += [f"{opcode}{flags}" for opcode in ("min", "max") for flags in ("", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs")]
BOTH = ("add.rn", "mul.rn", "min.NaN", "max.xorsign.abs")


def columns(count: int) -> list[np.ndarray]:
    return [operands("f16x2", place, COUNT) for place in range(count)]


def compare_with_scalars(form: str, kind: str, values: list[np.ndarray]) -> None:
    sources = [f"%r{place}" for place in range(1, len(values) + 1)]
    halves = [f"%rs{place}" for place in range(2 * len(values))]
    moves = "".join(f"mov.b32 {{{halves[2 * i]}, {halves[2 * i + 1]}}}, {name};" for i, name in enumerate(sources))
    code = f"{moves} {form}.{kind} %rs20, {', '.join(halves[::2])}; {form}.{kind} %rs21, {', '.join(halves[1::2])};"
    code += f"mov.b32 %r10, {{%rs20, %rs21}}; {form}.{kind}x2 %r11, {', '.join(sources)};"
    found = run(code, dict(zip(sources, values)), "%r10", "%r11")
    assert (found["%r10"] == found["%r11"]).all()


@pytest.mark.parametrize("form", FORMS)
def test_f16_pairs(form):
    compare_with_scalars(form, "f16", columns(2))


@pytest.mark.parametrize("form", BOTH)
def test_bf16_pairs(form):
    compare_with_scalars(form, "bf16", columns(2))


@pytest.mark.parametrize(("form", "kind"), [("fma.rn", "bf16"), ("fma.rn.relu", "bf16"), ("fma.rn.ftz.sat", "f16")])
def test_fused_pairs(form, kind):
    compare_with_scalars(form, kind, columns(3))


@pytest.mark.parametrize(("form", "kind"), [("abs", "f16"), ("neg.ftz", "f16"), ("neg", "bf16"), ("tanh.approx", "f16"),
                                            ("ex2.approx", "f16"), ("ex2.approx.ftz", "bf16")])  # fmt: skip
def test_pairs_of_one_operand(form, kind):
    compare_with_scalars(form, kind, columns(1))


@pytest.mark.parametrize("form", ["add.rn", "mul.rz.ftz", "fma.rn", "fma.rp"])
def test_pairs_of_f32(form):
    count = 3 if form.startswith("fma") else 2
    low, high = ([operands("f32", place + shift, COUNT) for place in range(count)] for shift in (0, 3))
    sources = [f"%rd{place}" for place in range(1, count + 1)]
    parts = [f"%r{place}" for place in range(2 * count)]
    moves = "".join(f"mov.b64 {{{parts[2 * i]}, {parts[2 * i + 1]}}}, {name};" for i, name in enumerate(sources))
    code = f"{moves} {form}.f32 %r20, {', '.join(parts[::2])}; {form}.f32 %r21, {', '.join(parts[1::2])};"
    code += f"mov.b64 %rd10, {{%r20, %r21}}; {form}.f32x2 %rd11, {', '.join(sources)};"
    values = [a | b << np.uint64(32) for a, b in zip(low, high)]
    found = run(code, dict(zip(sources, values)), "%rd10", "%rd11")
    assert (found["%rd10"] == found["%rd11"]).all()


def test_each_half_has_its_predicate_and_its_one():
    inputs = {"%r1": np.array([0x3C00_0000], np.uint64), "%r2": np.array([0x0000_3C00], np.uint64)}
    code = "setp.gt.f16x2 %p1|%p2, %r1, %r2; set.gt.f16x2.f16x2 %r3, %r1, %r2; set.lt.bf16x2.bf16x2 %r4, %r1, %r2;"
    found = run(code, inputs, "%p1", "%p2", "%r3", "%r4")
    assert [int(found[name][0]) for name in ("%p1", "%p2", "%r3", "%r4")] == [0, 1, 0x3C00_0000, 0x0000_3F80]
