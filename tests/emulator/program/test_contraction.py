"""Products and sums that ptxas fuses are fused; what it may not fuse is left as it is written."""

from __future__ import annotations

import re
import shutil
import subprocess

import numpy as np
import pytest

from cutesmith.compiling.sass import disassembler
from cutesmith.emulator.ptx.printer import format_instruction
from tests.emulator.native.straight import run
from tests.emulator.program.graphs import program_of


def lines(code):
    program = program_of(code, parameters=".param .b64 p, .param .b32 s")
    return [format_instruction(instruction) for instruction in program.instructions]


NEGATED = "mul.f32 %r4, %r1, %r2; neg.f32 %r6, %r4; "


@pytest.mark.parametrize(
    ("code", "fused"),
    [
        ("mul.f32 %r4, %r1, %r2; add.f32 %r5, %r4, %r3;", "fused.add.f32 %r5, %r1, %r2, %r3;"),
        ("mul.f32 %r4, %r1, %r2; add.f32 %r5, %r3, %r4;", "fused.add.f32 %r5, %r1, %r2, %r3;"),
        ("mul.f32 %r4, %r1, %r2; sub.f32 %r5, %r4, %r3;", "fused.subtract_addend.f32 %r5, %r1, %r2, %r3;"),
        ("mul.f32 %r4, %r1, %r2; sub.f32 %r5, %r3, %r4;", "fused.subtract_product.f32 %r5, %r1, %r2, %r3;"),
        ("mul.ftz.f32 %r4, %r1, %r2; add.ftz.f32 %r5, %r4, %r3;", "fused.add.ftz.f32 %r5, %r1, %r2, %r3;"),
        (NEGATED + "add.f32 %r5, %r6, %r3;", "fused.subtract_product.f32 %r5, %r1, %r2, %r3;"),
        (NEGATED + "sub.f32 %r5, %r6, %r3;", "fused.subtract_both.f32 %r5, %r1, %r2, %r3;"),
        (NEGATED + "sub.f32 %r5, %r3, %r6;", "fused.add.f32 %r5, %r1, %r2, %r3;"),
        (NEGATED + "neg.f32 %r7, %r6; sub.f32 %r5, %r7, %r3;", "fused.subtract_addend.f32 %r5, %r1, %r2, %r3;"),
    ],
)
def test_a_product_with_one_use_is_fused_and_gone(code, fused):
    assert lines(f"{code} st.global.b32 [%rd1], %r5; ret;")[:-1] == [fused, "st.global.b32 [%rd1], %r5;"]


@pytest.mark.parametrize(
    "code",
    [
        "mul.rn.f32 %r4, %r1, %r2; add.f32 %r5, %r4, %r3;",
        "mul.f32 %r4, %r1, %r2; add.rn.f32 %r5, %r4, %r3;",
        "mul.f32 %r4, %r1, %r2; add.ftz.f32 %r5, %r4, %r3;",
        "mul.f32 %r4, %r1, %r2; mov.b32 %r1, 0; add.f32 %r5, %r4, %r3;",  # a factor is gone
        "mul.lo.s32 %r4, %r1, %r2; add.s32 %r5, %r4, %r3;",
        "mul.bf16x2 %r4, %r1, %r2; neg.bf16x2 %r6, %r4; add.bf16x2 %r5, %r6, %r3;",  # its sign is changed by an FMA
        "mul.ftz.f16x2 %r4, %r1, %r2; neg.ftz.f16x2 %r6, %r4; add.ftz.f16x2 %r5, %r6, %r3;",
    ],
)
def test_what_must_round_twice_does(code):
    assert not any("fused" in line for line in lines(f"{code} st.global.b32 [%rd1], %r5; ret;"))


BRANCH = "@%p1 bra L; st.global.b32 [%rd1+8], %r2; L:"
STORES = "st.global.b32 [%rd1], %r6; st.global.b32 [%rd1+4], %r7;"
PRODUCT = "mul.f32 %r5, %r1, %r2;"
BESIDE = f"{PRODUCT} add.f32 %r7, %r5, %r3; sub.f32 %r8, %r4, %r5;"  # two sums of a product
CHOSEN = "selp.f32 %r6, %r3, %r4, %p2;"
SNIPPETS = {  # name: code, and how many fused sums, products and sums ptxas makes of it
    "one use": ("mul.f32 %r5, %r1, %r2; add.f32 %r6, %r5, %r3; mov.b32 %r7, %r3;", 1, 0, 0),
    "two sums": ("mul.f32 %r5, %r1, %r2; add.f32 %r6, %r5, %r3; sub.f32 %r7, %r4, %r5;", 2, 0, 0),
    "a sum and a store": ("mul.f32 %r7, %r1, %r2; add.f32 %r6, %r7, %r3;", 0, 1, 1),
    "a sum and a product": ("mul.f32 %r5, %r1, %r2; add.f32 %r6, %r5, %r3; mul.f32 %r7, %r5, %r4;", 0, 2, 1),
    "a sum of twice the product": ("mul.f32 %r5, %r1, %r2; add.f32 %r6, %r5, %r5; mov.b32 %r7, %r3;", 0, 1, 1),
    "another block": (f"mul.f32 %r5, %r1, %r2; {BRANCH} add.f32 %r6, %r5, %r3; mov.b32 %r7, %r3;", 0, 1, 1),
    "a square in another block": (f"mul.f32 %r5, %r1, %r1; {BRANCH} add.f32 %r6, %r5, %r3; mov.b32 %r7, %r3;", 0, 1, 1),
    "a constant in another block": (
        f"mul.f32 %r5, %r1, 0f3F317218; {BRANCH} add.f32 %r6, %r5, %r3; mov.b32 %r7, %r3;", 1, 0, 0,
    ),
    "a moved constant in another block": (
        f"mov.b32 %r8, 0f3F317218; mul.f32 %r5, %r1, %r8; {BRANCH} add.f32 %r6, %r5, %r3; mov.b32 %r7, %r3;", 1, 0, 0,
    ),
    "a parameter in another block": (
        f"ld.param.b32 %r8, [s]; mul.f32 %r5, %r1, %r8; {BRANCH} add.f32 %r6, %r5, %r3; mov.b32 %r7, %r3;", 1, 0, 0,
    ),
    "a parameter times a constant in another block": (
        "ld.param.b32 %r8, [s]; mul.f32 %r9, %r8, 0f3F317218; mul.f32 %r5, %r1, %r9;"
        f" {BRANCH} add.f32 %r6, %r5, %r3; mov.b32 %r7, %r3;", 0, 2, 1,
    ),
    "a constant in two blocks": (
        "mov.b32 %r6, 0; mul.f32 %r5, %r1, 0f3F317218; @%p1 bra L; add.f32 %r6, %r5, %r3; L: add.f32 %r7, %r4, %r5;",
        2, 0, 0,
    ),
    "a constant, but stored": ("mul.f32 %r7, %r1, 0f3F317218; add.f32 %r6, %r7, %r3;", 0, 1, 1),
    "two products in a sum": (
        "mul.f32 %r5, %r1, %r2; mul.f32 %r8, %r3, %r4; add.f32 %r6, %r5, %r8; mov.b32 %r7, %r3;", 1, 1, 0,
    ),
    "the product with one use": (
        "mul.f32 %r5, %r1, %r2; mul.f32 %r8, %r3, %r4; add.f32 %r6, %r5, %r8; add.f32 %r7, %r5, %r4;", 1, 1, 1,
    ),
    "a guarded sum": ("mul.f32 %r5, %r1, %r2; mov.b32 %r6, 0; mov.b32 %r7, %r4; @%p1 add.f32 %r6, %r5, %r3;", 1, 0, 0),
    "a saturated sum": ("mul.f32 %r5, %r1, %r2; add.sat.f32 %r6, %r5, %r3; mov.b32 %r7, %r3;", 1, 0, 0),
    "halves": ("mul.f16x2 %r5, %r1, %r2; add.f16x2 %r6, %r5, %r3; sub.f16x2 %r7, %r5, %r1;", 2, 0, 0),
    "a negation": (f"{PRODUCT} neg.f32 %r8, %r5; add.f32 %r6, %r8, %r3; mov.b32 %r7, %r3;", 1, 0, 0),
    "a negation of a negation": (
        f"{PRODUCT} neg.f32 %r8, %r5; neg.f32 %r9, %r8; sub.f32 %r6, %r9, %r3; mov.b32 %r7, %r3;", 1, 0, 0,
    ),
    "a negation, and the product in a sum": (
        f"{PRODUCT} neg.f32 %r8, %r5; sub.f32 %r6, %r8, %r3; add.f32 %r7, %r5, %r4;", 2, 0, 0,
    ),
    "two sums of a negation": (f"{PRODUCT} neg.f32 %r8, %r5; add.f32 %r6, %r8, %r3; add.f32 %r7, %r8, %r4;", 2, 0, 0),
    "a negation that is stored": (f"{PRODUCT} neg.f32 %r7, %r5; add.f32 %r6, %r7, %r3; mov.b32 %r9, %r3;", 0, 1, 1),
    "a negation, and the product stored": ("mul.f32 %r7, %r1, %r2; neg.f32 %r8, %r7; add.f32 %r6, %r8, %r3;", 0, 1, 1),
    "a product and its negation": (f"{PRODUCT} neg.f32 %r8, %r5; sub.f32 %r6, %r5, %r8; mov.b32 %r7, %r3;", 0, 1, 1),
    "a negation in another block": (
        f"{PRODUCT} {BRANCH} neg.f32 %r8, %r5; add.f32 %r6, %r8, %r3; mov.b32 %r7, %r3;", 0, 1, 1,
    ),
    "a constant, negated in another block": (
        f"mul.f32 %r5, %r1, 0f3F317218; {BRANCH} neg.f32 %r8, %r5; add.f32 %r6, %r8, %r3; mov.b32 %r7, %r3;", 1, 0, 0,
    ),
    "the second product negated": (
        f"{PRODUCT} mul.f32 %r8, %r3, %r4; neg.f32 %r9, %r8; add.f32 %r6, %r5, %r9; mov.b32 %r7, %r3;", 1, 1, 0,
    ),
    "an absolute value": (f"{PRODUCT} abs.f32 %r8, %r5; add.f32 %r6, %r8, %r3; mov.b32 %r7, %r3;", 0, 1, 1),
    "a guarded negation": (
        f"{PRODUCT} mov.b32 %r8, %r4; @%p1 neg.f32 %r8, %r5; add.f32 %r6, %r8, %r3; mov.b32 %r7, %r3;", 0, 1, 1,
    ),
    "a negation with ftz": (
        "mul.ftz.f32 %r5, %r1, %r2; neg.ftz.f32 %r8, %r5; add.ftz.f32 %r6, %r8, %r3; mov.b32 %r7, %r3;", 1, 0, 0,
    ),
    "a negation without ftz": (
        "mul.ftz.f32 %r5, %r1, %r2; neg.f32 %r8, %r5; add.ftz.f32 %r6, %r8, %r3; mov.b32 %r7, %r3;", 1, 0, 0,
    ),
    "a negation with ftz alone": (f"{PRODUCT} neg.ftz.f32 %r8, %r5; add.f32 %r6, %r8, %r3; mov.b32 %r7, %r3;", 0, 1, 1),
    "a negation of halves": (
        "mul.f16x2 %r5, %r1, %r2; neg.f16x2 %r8, %r5; sub.f16x2 %r6, %r8, %r3; mov.b32 %r7, %r3;", 1, 0, 0,
    ),
    "compared with zero": (f"{BESIDE} setp.gt.f32 %p2, %r8, 0f00000000; {CHOSEN}", 0, 1, 2),
    "zero compared with it": (f"{BESIDE} setp.ne.f32 %p2, 0f80000000, %r8; {CHOSEN}", 0, 1, 2),
    "compared, or not a number": (f"{BESIDE} setp.leu.f32 %p2, %r8, 0f00000000; {CHOSEN}", 0, 1, 2),
    "compared with a moved zero": (f"mov.b32 %r9, 0; {BESIDE} setp.lt.f32 %p2, %r8, %r9; {CHOSEN}", 0, 1, 2),
    "its negation compared": (f"{BESIDE} neg.f32 %r9, %r8; setp.gt.f32 %p2, %r9, 0f00000000; {CHOSEN}", 0, 1, 2),
    "its guarded negation compared": (
        f"{BESIDE} @%p1 neg.f32 %r9, %r8; setp.gt.f32 %p2, %r9, 0f00000000; {CHOSEN}", 2, 0, 0,
    ),
    "a negated number compared": (
        f"{BESIDE} neg.f32 %r9, 0f3F800000; setp.gt.f32 %p2, %r9, 0f00000000; {CHOSEN}", 2, 0, 0,
    ),
    "compared in another block": (f"{BESIDE} {BRANCH} setp.gt.f32 %p2, %r8, 0f00000000; {CHOSEN}", 0, 1, 2),
    "compared with one": (f"{BESIDE} setp.gt.f32 %p2, %r8, 0f3F800000; {CHOSEN}", 2, 0, 0),
    "equal, which infinities are": (f"{BESIDE} setp.eq.f32 %p2, %r8, 0f00000000; {CHOSEN}", 2, 0, 0),
    "compared, the only use": (
        f"{PRODUCT} sub.f32 %r8, %r4, %r5; setp.gt.f32 %p2, %r8, 0f00000000; {CHOSEN} mov.b32 %r7, %r3;", 1, 0, 0,
    ),
    "compared with ftz": (
        "mul.ftz.f32 %r5, %r1, %r2; add.ftz.f32 %r7, %r5, %r3; sub.ftz.f32 %r8, %r4, %r5;"
        f" setp.gt.ftz.f32 %p2, %r8, 0f00000000; {CHOSEN}", 2, 0, 0,
    ),
    "compared and guarded": (
        f"{PRODUCT} add.f32 %r7, %r5, %r3; mov.b32 %r8, %r2; @%p1 sub.f32 %r8, %r4, %r5;"
        f" setp.gt.f32 %p2, %r8, 0f00000000; {CHOSEN}", 2, 0, 0,
    ),
    "bfloat16": ("mul.bf16x2 %r5, %r1, %r2; sub.bf16x2 %r6, %r5, %r3; mov.b32 %r7, %r3;", 1, 0, 0),
}  # fmt: skip
HEAD = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry k(.param .b64 p, .param .b32 s) {
.reg .b32 %r<30>; .reg .b64 %rd<4>; .reg .pred %p<4>;
ld.param.b64 %rd1, [p];
"""
LOADS = "".join(f"ld.global.b32 %r{place}, [%rd1+{4 * place}];\n" for place in range(1, 5))


@pytest.mark.parametrize("name", SNIPPETS)
def test_as_much_is_fused_as_by_ptxas(name):
    code, *expected = SNIPPETS[name]
    found = [line.split()[1 if line.startswith("@") else 0].split(".")[0] for line in lines(f"{code} {STORES} ret;")]
    assert [found.count("fused"), found.count("mul"), found.count("add") + found.count("sub")] == expected


@pytest.mark.skipif(not (disassembler() and shutil.which("ptxas")), reason="needs ptxas and nvdisasm")
@pytest.mark.slow
@pytest.mark.parametrize("name", SNIPPETS)
def test_ptxas_fuses_that(name, tmp_path):
    code, *expected = SNIPPETS[name]
    source, cubin = tmp_path / "k.ptx", tmp_path / "k.cubin"
    source.write_text(f"{HEAD}{LOADS}setp.eq.b32 %p1, %r4, 0;\n{code}\n{STORES}\nret;\n}}\n")
    subprocess.run(["ptxas", "-arch=sm_90a", "-o", str(cubin), str(source)], check=True)
    text = subprocess.run([disassembler(), "-c", str(cubin)], check=True, capture_output=True, text=True).stdout
    opcodes = re.findall(r"\b[FHD](FMA|MUL|ADD)2?\b", text)
    assert [opcode in opcodes for opcode in ("FMA", "MUL", "ADD")] == [count > 0 for count in expected]


def test_fused_sums_round_once():
    generator = np.random.default_rng(0)
    a, b, c = (generator.standard_normal(512).astype(np.float32) for _ in range(3))
    registers = {f"%r{place}": values.view(np.uint32) for place, values in enumerate((a, b, c), start=1)}
    wide = a.astype(np.float64) * b  # exact
    expected = {"add": wide + c, "subtract_addend": wide - c, "subtract_product": c - wide, "subtract_both": -wide - c}
    for how, exact in expected.items():
        found = run(f"fused.{how}.f32 %r4, %r1, %r2, %r3;", registers, "%r4")["%r4"].astype(np.uint32).view(np.float32)
        assert np.array_equal(found, exact.astype(np.float32)), how


@pytest.mark.parametrize("kind", ["f32", "ftz.f32"])
@pytest.mark.parametrize(
    ("code", "sign", "addend"),
    [
        ("add.{0} %r5, %r6, %r3;", -1, 1),
        ("sub.{0} %r5, %r6, %r3;", -1, -1),
        ("sub.{0} %r5, %r3, %r6;", 1, 1),
        ("neg.{0} %r7, %r6; add.{0} %r5, %r7, %r3;", 1, 1),
        ("neg.{0} %r7, %r6; sub.{0} %r5, %r7, %r3;", 1, -1),
    ],
)
def test_a_negated_product_is_not_rounded_before_its_sum(code, sign, addend, kind):
    generator = np.random.default_rng(2)
    a, b = ((1 + generator.random(512)).astype(np.float32) for _ in range(2))
    wide = a.astype(np.float64) * b  # exact, and what is left of it when c takes nearly all away is too
    c = (-sign * addend * wide).astype(np.float32)
    registers = {f"%r{place}": values.view(np.uint32) for place, values in enumerate((a, b, c), start=1)}
    text = f"mul.{kind} %r4, %r1, %r2; neg.{kind} %r6, %r4; {code.format(kind)}"
    found = run(contracted_text(text), registers, "%r5")["%r5"].astype(np.uint32).view(np.float32)
    rest = sign * wide + addend * c.astype(np.float64)
    assert np.count_nonzero(rest) > 400
    assert np.array_equal(found, rest.astype(np.float32))


def contracted_text(code):
    *made, _, _ = lines(f"{code} st.global.b32 [%rd1], %r5; ret;")
    assert len(made) == 1
    return made[0]


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
def test_fused_sums_of_packed_halves_round_once(kind):
    generator = np.random.default_rng(1)
    parts = [generator.standard_normal((256, 2)).astype(np.float32) for _ in range(3)]
    if kind == "f16x2":
        bits = [part.astype(np.float16).view(np.uint16) for part in parts]
        wide = [part.astype(np.float16).astype(np.float64) for part in parts]
    else:
        bits = [(part.view(np.uint32) >> 16).astype(np.uint16) for part in parts]
        wide = [(part.astype(np.uint32) << 16).view(np.float32).astype(np.float64) for part in bits]
    registers = {f"%r{place}": part.copy().view(np.uint32).ravel() for place, part in enumerate(bits, start=1)}
    run_words = run(f"fused.subtract_product.{kind} %r4, %r1, %r2, %r3;", registers, "%r4")["%r4"]
    fma = run("neg." + kind + f" %r5, %r1; fma.rn.{kind} %r4, %r5, %r2, %r3;", registers, "%r4")["%r4"]
    assert (run_words == fma).all()
    found = run_words.astype(np.uint32).view(np.uint16).reshape(-1, 2)
    values = found.view(np.float16) if kind == "f16x2" else (found.astype(np.uint32) << 16).view(np.float32)
    exact = wide[2] - wide[0] * wide[1]
    assert (np.abs(values - exact) <= np.abs(exact) * 2.0 ** (-11 if kind == "f16x2" else -8) + 1e-6).all()
