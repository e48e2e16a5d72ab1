"""Every feature of the grammar, in PTX written by hand."""

from __future__ import annotations

import struct
import textwrap
import time

import pytest

from cutesmith.emulator.ptx.parser import parse
from cutesmith.emulator.ptx.syntax import (
    Address,
    Guard,
    Immediate,
    Instruction,
    Label,
    LabelReference,
    Location,
    Pair,
    Register,
    Sink,
    SpecialRegister,
    Symbol,
    Vector,
)

HEADER = ".version 8.8\n.target sm_90a\n.address_size 64\n"
REGISTERS = ".reg .pred %p<4>; .reg .b16 %h<4>; .reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .b128 %q<2>;\n"


def function_of(body, *, module="", name="k", head=".visible .entry k(.param .u64 k_param_0)"):
    return parse(f"{HEADER}{module}\n{head}\n{{\n{REGISTERS}{textwrap.dedent(body)}\n}}\n").functions[name]


def instructions_of(body, **options):
    return [item for item in function_of(body, **options).body if isinstance(item, Instruction)]


def operands_of(line, **options):
    (instruction,) = instructions_of(line, **options)
    return instruction.operands


R = [Register(f"%r{n}") for n in range(20)]
RD = [Register(f"%rd{n}") for n in range(9)]
P = [Register(f"%p{n}") for n in range(4)]


def test_module_header():
    module = parse("// a comment\n.version 8.8\n.target sm_90a, debug\n.address_size 64\n")
    assert (module.version, module.target, module.sm, module.functions) == ("8.8", "sm_90a", 90, {})


def test_instruction_has_opcode_modifiers_guard_line_and_number():
    first, second = instructions_of(
        "\n/* two\nlines */ add.s32 %r1, %r2, 3;\n@!%p1 ld.global.L2::128B.v2.b32 {%r1, _}, [%rd1];"
    )
    assert (first.opcode, first.modifiers, first.number, first.ptx_line) == ("add", ("s32",), 0, 10)
    assert second.full_opcode == "ld.global.L2::128B.v2.b32"
    assert (second.guard, second.number, second.ptx_line) == (Guard("%p1", negated=True), 1, 11)
    assert second.operands == (Vector((R[1], Sink())), Address(RD[1]))


@pytest.mark.parametrize(("text", "operand"), [
    ("7", Immediate(7)),
    ("-7", Immediate(-7)),
    ("0x1F", Immediate(31)),
    ("0xFFFFFFFFU", Immediate(0xFFFFFFFF)),
    ("017", Immediate(15)),
    ("0b101", Immediate(5)),
    ("0f3F800000", Immediate(0x3F800000, 32)),
    ("-0f3F800000", Immediate(0xBF800000, 32)),
    ("0dBFF0000000000000", Immediate(0xBFF0000000000000, 64)),
    ("1.5", Immediate(struct.unpack("<Q", struct.pack("<d", 1.5))[0], 64)),
    ("2e-3", Immediate(struct.unpack("<Q", struct.pack("<d", 2e-3))[0], 64)),
    ("WARP_SZ", Immediate(32)),
    ("(1 << 4) + 2*3 - 0x10/4", Immediate(18)),
    ("-7 / 2", Immediate(-3)),
    ("-7 % 2", Immediate(-1)),
    ("~0 & 0xF", Immediate(15)),
    ("3 > 2 ? 10 : 20", Immediate(10)),
    ("(1 == 2 || 0) ? 10 : 20", Immediate(20)),
    ("(.u64)-1", Immediate(2**64 - 1)),
    ("%tid.x", SpecialRegister("%tid.x")),
    ("%clock64", SpecialRegister("%clock64")),
    ("%cluster_ctarank", SpecialRegister("%cluster_ctarank")),
    ("%r5", R[5]),
    ("k_param_0", Symbol("k_param_0")),
    ("table+8", Symbol("table", 8)),
    ("table-4", Symbol("table", -4)),
])  # fmt: skip
def test_source_operands(text, operand):
    assert operands_of(f"mov.b64 %rd1, {text};", module=".global .b32 table[4];") == (RD[1], operand)


@pytest.mark.parametrize(("text", "address"), [
    ("[%rd1]", Address(RD[1])),
    ("[%rd1+16]", Address(RD[1], 16)),
    ("[%r1+-4]", Address(R[1], -4)),
    ("[%r1-4]", Address(R[1], -4)),
    ("[%rd1 + 4*2 + 1]", Address(RD[1], 9)),
    ("[table+8]", Address(Symbol("table"), 8)),
    ("[table]", Address(Symbol("table"))),
    ("[64]", Address(Immediate(64))),
    ("[%rd1, {%r1, 0, %r2}]", Address(RD[1], 0, (R[1], Immediate(0), R[2]))),
])  # fmt: skip
def test_addresses(text, address):
    assert operands_of(f"ld.global.b32 %r0, {text};", module=".global .b32 table[4];") == (R[0], address)


def test_pairs_negated_predicates_and_sinks():
    assert operands_of("shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1;")[0] == Pair(R[1], P[1])
    assert operands_of("setp.lt.and.s32 %p1|_, %r1, %r2, !%p2;") == (
        Pair(P[1], Sink()), R[1], R[2], Register("%p2", negated=True),
    )  # fmt: skip


def test_tensor_copy():
    line = (
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%r1], [%rd1, {%r2, %r3}], [%r4], %h1;"
    )
    (copy,) = instructions_of(line)
    assert (copy.opcode, copy.modifiers[-2:]) == ("cp", ("mbarrier::complete_tx::bytes", "multicast::cluster"))
    assert copy.operands == (Address(R[1]), Address(RD[1], 0, (R[2], R[3])), Address(R[4]), Register("%h1"))


def test_instructions_without_operands_and_empty_statements():
    assert [i.full_opcode for i in instructions_of("membar.gl;;\n;ret;")] == ["membar.gl", "ret"]


def test_register_ranges_and_single_names():
    function = function_of(".reg .b64 %SP; .reg .f16x2 packed, more<2>;\nmov.b64 %SP, 0; mov.b32 packed, more1;")
    assert function.registers["%r19"] == "b32" and "%r20" not in function.registers
    assert {name: function.registers[name] for name in ("%SP", "packed", "more0", "more1")} == {
        "%SP": "b64", "packed": "f16x2", "more0": "f16x2", "more1": "f16x2",
    }  # fmt: skip


def test_module_variables():
    module = parse(HEADER + """
        .extern .shared .align 1024 .b8 dynamic[];
        .shared .align 8 .b64 barriers[4];
        .visible .global .align 4 .b8 text[8] = {104, 0x69, 10};
        .const .f32 numbers[2][2] = {{0f3F800000, 1}, {-1}};
        .global .v4 .b32 wide;
        .global .s16 a = -2, b;
        .const .b8 open[] = {1, 2, 3};
        .global .b8 words[] = "ok\\n";
        """)  # fmt: skip
    found = {v.name: (v.space, v.size, v.align, v.initial, v.external) for v in module.variables}
    assert found["dynamic"] == ("shared", 0, 1024, None, True)
    assert found["barriers"] == ("shared", 32, 8, None, False)
    assert found["text"] == ("global", 8, 4, b"hi\n\0\0\0\0\0", False)
    assert found["numbers"] == ("const", 16, 4, struct.pack("<Iiii", 0x3F800000, 1, -1, 0), False)
    assert found["wide"] == ("global", 16, 16, None, False)
    assert found["a"][3] == b"\xfe\xff" and found["b"] == ("global", 2, 2, None, False)
    assert found["open"] == ("const", 3, 1, b"\1\2\3", False)
    assert found["words"] == ("global", 4, 1, b"ok\n\0", False)


def test_parameters_and_directives_of_an_entry():
    head = """.visible .entry k(
        .param .align 64 .b8 map[128],
        .param .u64 .ptr .global .align 16 pointer,
        .param .u32 count)
        .reqntid 128, 2, 1
        .minnctapersm 1
        .reqnctapercluster 2
        .explicitcluster
        .pragma "nounroll";"""
    function = function_of("ret;", head=head)
    assert [(p.name, p.space, p.size, p.align) for p in function.parameters] == [
        ("map", "param", 128, 64), ("pointer", "param", 8, 8), ("count", "param", 4, 4),
    ]  # fmt: skip
    assert function.directives == {
        "reqntid": (128, 2, 1), "minnctapersm": (1,), "reqnctapercluster": (2,), "explicitcluster": (),
    }  # fmt: skip


def test_functions_prototypes_and_calls():
    module = """
        .extern .func (.param .b32 result) vprintf (.param .b64 a, .param .b64 b);
        .func (.param .b32 out) twice (.param .b32 in)
        { .reg .b32 %r<2>; ld.param.b32 %r0, [in]; st.param.b32 [out], %r0; ret; }"""
    body = """
        { // callseq 0, 0
        .param .b64 param0;
        .param .b64 param1;
        .param .b32 retval0;
        st.param.b64 [param0], %rd1;
        call.uni (retval0), vprintf, (param0, param1);
        }
        { .param .b64 param0; call twice, (param0); }
        call.uni vprintf;
        prototype_0 : .callprototype (.param .b32 _) _ (.param .b64 _, .param .b64 _);
        ret;"""
    function = function_of(body, module=module)
    store, first, second, third, _ = (item for item in function.body if isinstance(item, Instruction))
    assert store.operands == (Address(Symbol("param0.1")), RD[1])
    arguments = Vector((Symbol("param0.1"), Symbol("param1.1")))
    assert first.operands == (Vector((Symbol("retval0.1"),)), Symbol("vprintf"), arguments)
    assert second.operands == (Vector(()), Symbol("twice"), Vector((Symbol("param0.2"),)))
    assert third.operands == (Vector(()), Symbol("vprintf"), Vector(()))
    assert [v.name for v in function.variables] == ["param0.1", "param1.1", "retval0.1", "param0.2"]
    functions = parse(f"{HEADER}{module}").functions
    assert functions["vprintf"].body == () and functions["vprintf"].returns[0].size == 4
    assert functions["twice"].kind == "func" and len(functions["twice"].body) == 3


def test_variables_inside_a_function():
    body = ".local .align 16 .b8 __local_depot0[96]; .shared .b32 tile[8];\nmov.b64 %rd1, __local_depot0;"
    found = function_of(body).variables
    assert [(v.name, v.space, v.size, v.align) for v in found] == [
        ("__local_depot0", "local", 96, 16), ("tile", "shared", 32, 4),
    ]  # fmt: skip


def test_vectors_of_registers_are_their_elements():
    function = function_of(
        ".reg .v4 .s32 v;\n.reg .v2 .b64 w;\nmov.s32 v.x, %r1; mov.s32 v.a, %r2;\n"
        "st.global.v4.s32 [%rd1], v; { .reg .v2 .b32 v; mov.b32 v.y, 1; }\nret;"
    )
    v = [Register(f"v.{component}") for component in "xyzw"]
    first, second, store, inner = function.body[:4]
    assert first.operands == (v[0], R[1]) and second.operands == (v[3], R[2])
    assert store.operands == (Address(RD[1]), Vector(tuple(v)))
    assert inner.operands == (Register("v.y.1"), Immediate(1))
    assert {name: function.registers[name] for name in ("v.x", "v.w", "w.y", "v.x.1")} == {
        "v.x": "s32", "v.w": "s32", "w.y": "b64", "v.x.1": "b32",
    }  # fmt: skip
    assert "v" not in function.registers and "w.z" not in function.registers


def test_scopes_of_inline_assembly_get_names_of_their_own():
    assembly = (
        "{ .reg .pred p; .reg .b32 q<2>; setp.ne.s32 p, %r1, 0; @p bra DONE; mov.b32 q1, 5; DONE: mov.b32 %r2, q1; }"
    )
    function = function_of(f"{assembly}\n{assembly}\nret;")
    first, second = (function.body[i : i + 5] for i in (0, 5))
    assert first[0].operands[0] == Register("p.1") and second[0].operands[0] == Register("p.2")
    assert first[1].guard == Guard("p.1") and first[1].operands == (LabelReference("DONE.1"),)
    assert second[3] == Label("DONE.2") and second[4].operands == (R[2], Register("q1.2"))
    assert function.registers["q0.2"] == "b32" and "q0" not in function.registers


def test_inner_scope_hides_outer_names_and_sees_outer_labels():
    function = function_of("""
        OUT: mov.b32 %r1, 1;
        { .reg .b64 %r1; mov.b64 %r1, 2; { mov.b64 %r1, 3; bra OUT; } OUT2: bra OUT2; }
        mov.b32 %r1, 4;""")
    names = [item.operands[0].name for item in function.body if isinstance(item, Instruction)]
    assert names == ["%r1", "%r1.1", "%r1.1", "OUT", "OUT2.1", "%r1"]


def test_branch_table():
    function = function_of("table: .branchtargets L0, L1;\nL0: brx.idx %r1, table;\nL1: ret;")
    assert function.branch_targets == {"table": ("L0", "L1")}
    assert function.body[1].operands == (R[1], LabelReference("table"))


def test_locations_follow_callers():
    text = HEADER + """
        .entry k() { .reg .b32 %r<2>;
        mov.b32 %r0, 0;
        .loc 1 50 3
        mov.b32 %r0, 1;
        .loc 2 7 1, function_name $L__info_string0, inlined_at 1 50 3
        mov.b32 %r0, 2;
        .loc 1 9 2, function_name .debug_str+16, inlined_at 2 7 1
        mov.b32 %r0, 3;
        .loc 1 0 0
        mov.b32 %r0, 4;
        ret; }
        .file 1 "/a/kernel.py"
        .file 2 "/lib//help//er.py", 123, 456
        .section .debug_str
        {
        $L__info_string0:
        .b8 95,90,78
        }
        """  # fmt: skip
    none, outer, middle, inner, kept, _ = (i.location for i in parse(text).functions["k"].body)
    assert none is None
    assert outer == Location("/a/kernel.py", 50, 3)
    assert middle == Location("/lib//help//er.py", 7, 1, outer)
    assert inner == Location("/a/kernel.py", 9, 2, middle)
    assert kept == inner


def test_real_kernels(real_ptx):
    cluster = parse(real_ptx["copy_cluster"])
    (entry,) = cluster.functions.values()
    assert cluster.sm == 90 and entry.directives["reqntid"] == (128, 1, 1)
    assert [parameter.size for parameter in entry.parameters] == [8, 8]
    printing = parse(real_ptx["prints_and_asserts"])
    assert {f.kind for f in printing.functions.values()} == {"entry", "func"}
    assert all(b"%" in v.initial or b"large" in v.initial for v in printing.variables if v.space == "global")


def test_real_line_information(real_ptx):
    entry = next(f for f in parse(real_ptx["smem_reverse"]).functions.values() if f.kind == "entry")
    barrier = next(i for i in entry.body if isinstance(i, Instruction) and i.opcode in ("bar", "barrier"))
    lines = barrier.location.file, barrier.location.line
    with open(lines[0], encoding="utf-8") as file:
        assert "sync_threads" in file.read().splitlines()[lines[1] - 1]


@pytest.mark.slow
def test_five_thousand_lines_take_under_half_a_second():
    lines = "".join(
        f"@%p1 fma.rn.f32 %r{n % 20}, %r{n % 7}, 0f3F800000, %r3;\n"
        f"st.global.v4.b32 [%rd1+{n}], {{%r0, %r1, %r2, %r3}};\n"
        for n in range(2500)
    )
    taken = []
    for _ in range(4):  # the best of four: what else runs on the machine is not the parser's slowness
        started = time.process_time()
        function = function_of(lines)
        taken.append(time.process_time() - started)
    assert len(function.body) == 5000
    assert min(taken) < 0.5
