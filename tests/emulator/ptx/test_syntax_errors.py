"""Text that is not PTX, or PTX that is not supported: the line, and what was expected there."""

from __future__ import annotations

import pytest

from cutesmith.emulator.errors import PtxSyntaxError
from cutesmith.emulator.ptx.parser import parse
from cutesmith.verdicts import ExitCode

HEADER = ".version 8.8\n.target sm_80\n.address_size 64\n"
BODY = "{\n.reg .pred %p<2>;\n.reg .b32 %r<9>;\n"


@pytest.mark.parametrize(("text", "line", "words"), [
    ("", 1, "`.version` and `.target`, found the end of the text"),
    ("<html>", 1, "expected a directive, a variable or a function, found `<`"),
    (".version 8.8\n.target nonsense\n", 2, "a target such as `sm_90a`"),
    (".version 8.8\n.target sm_80\n.address_size 32\n", 3, "64: no other address size"),
    (HEADER + ".global .b32 x", 4, "`;` after the declaration, found the end of the text"),
    (HEADER + ".global x;", 4, "a type such as `.b32`"),
    (HEADER + ".global .pred2 x;", 4, "a type, `.align` or a name"),
    (HEADER + ".global .align 3 .b32 x;", 4, "power of two"),
    (HEADER + ".global .b8 x[2] = {1, 2, 3};", 4, "`x` has 2 bytes, its initialiser 3"),
    (HEADER + ".global .b8 x[2] = {1 2};", 4, "`,` or `}` in the initialiser"),
    (HEADER + ".global .b32 y; .global .u64 x = y;", 4, "address of another"),
    (HEADER + ".global .b16 x = 0f3F800000;", 4, "32-bit float literal"),
    (HEADER + ".entry (", 4, "the name of a function"),
    (HEADER + ".entry k(.b32 x)", 4, "`.param`"),
    (HEADER + ".entry k(.param .b32 x .param .b32 y)", 4, "`,` or `)` after a parameter"),
    (HEADER + ".entry k() .reqthreads 3 {}", 4, "a directive of a function"),
    (HEADER + ".entry k() ret;", 4, "`{` before the body"),
    (HEADER + ".section .debug_str {", 4, "`}` after a section"),
    (HEADER + ".file one", 4, "a file number"),
    (HEADER + ".file 1 name", 4, "a file name in quotes"),
])  # fmt: skip
def test_module(text, line, words):
    with pytest.raises(PtxSyntaxError) as caught:
        parse(text)
    assert f"PTX line {line}: " in str(caught.value) and words in str(caught.value)
    assert caught.value.exit_code == ExitCode.DOES_NOT_COMPILE


@pytest.mark.parametrize(("statement", "words"), [
    ("add.s32 %r1, %r2, %r9;", "`%r9` is not declared"),
    (".reg .v3 .b32 v;", "a register type such as `.b32`, or `.v2` or `.v4` before one"),
    (".reg .v4 .b64 v;", "of 128 bits in all at most"),
    (".reg .v2 .b32 v; mov.b32 v.z, 1;", "`v.z` is not declared"),
    (".reg .v2 .b32 v; .reg .b32 v;", "register `v` is declared twice"),
    ("add.s32 %r1, %r2, nowhere;", "`nowhere` is not declared"),
    ("mov.b32 %r1, %tid;", "`%tid` is not declared"),
    ("bra L9;", "`L9` is not declared"),
    ("bra %r1;", "one label after `bra`"),
    ("@%q1 ret;", "predicate `%q1` is not declared"),
    ("@7 ret;", "a predicate after `@`, found `7`"),
    ("add.s32 %r1 %r2;", "`,` or `;` after an operand, found `%r2`"),
    ("add.s32 %r1, ;", "an operand, found `;`"),
    ("add.s32 %r1, 0x;", "an operand, found `0x`"),
    ("add.s32 %r1, 09;", "an operand, found `09`"),
    ("mov.b32 %r1, 0f3F80;", "an operand, found `0f3F80`"),
    ("mov.b32 %r1, (1 + 2;", "`)` after the expression"),
    ("mov.b32 %r1, 1 + %r2;", "a number, found `%r2`"),
    ("mov.b32 {%r1 %r2}, %r3;", "`,` or `}`"),
    ("ld.global.b32 %r1, [%r2;", "`]` after an address"),
    ("ld.global.b32 %r1, [%tid.x];", "a register, a variable or a number in an address"),
    ("setp.lt.s32 %p1, %r1, !5;", "an operand, found `5`"),
    (".reg .vec4 x;", "a register type"),
    (".reg .b32 %r3;", "register `%r3` is declared twice"),
    (".local .b32 a; .local .b32 a;", "variable `a` is declared twice"),
    (".surprise 3;", "a statement, found `.surprise`"),
    ("%r1 = 3;", "an instruction, found `%r1`"),
    ("L: .branchtargets %r1;", "labels in `.branchtargets`"),
    (".loc 1 2", "a column"),
    (".loc 1 2 3, somewhere", "neither `function_name` nor `inlined_at`"),
    ("ret", "`;` after an instruction"),
])  # fmt: skip
def test_body(statement, words):
    tail = "\nx: ret;\n}" if statement != "ret" else " }"
    with pytest.raises(PtxSyntaxError) as caught:
        parse(f"{HEADER}.entry k()\n{BODY}{statement}{tail}")
    assert words in str(caught.value)


def test_line_and_excerpt_are_those_of_the_mistake():
    with pytest.raises(PtxSyntaxError, match=r"PTX line 9: .*\(`add\.s32 %r1, %r2, %r77;`\)"):
        parse(f"{HEADER}.entry k()\n{BODY}mov.b32 %r1, 0; // fine\n add.s32 %r1, %r2, %r77;\n}}")


def test_unfinished_body():
    with pytest.raises(PtxSyntaxError, match=r"PTX line 8: expected `}` at the end of the body"):
        parse(f"{HEADER}.entry k()\n{BODY}ret;")


def test_function_defined_twice():
    with pytest.raises(PtxSyntaxError, match="function `k` is defined twice"):
        parse(f"{HEADER}.entry k() {{ ret; }} .entry k() {{ ret; }}")
