"""Where variables and parameters lie."""

from __future__ import annotations

from cutesmith.emulator.program.abi import SHARED_BASE
from tests.emulator.program.graphs import program_of


def test_shared_variables_at_their_alignment_the_dynamic_ones_after_them():
    outer = """
        .extern .shared .align 128 .b8 dynamic[];
        .extern .shared .align 16 .b8 other[];
        .shared .align 8 .b64 barriers[3];
        .shared .b8 byte;
        .shared .b32 of_another_kernel[100];"""
    program = program_of("""
        .shared .align 16 .b8 tile[32];
        mov.b32 %r1, dynamic; mov.b32 %r2, other; ld.shared.b64 %rd1, [barriers+8]; st.shared.b8 [byte], %r1;
        mov.b32 %r3, tile; ret;""", outer)  # fmt: skip
    assert program.shared_symbols == {
        "barriers": SHARED_BASE, "byte": SHARED_BASE + 24, "tile": SHARED_BASE + 32,
        "dynamic": SHARED_BASE + 128, "other": SHARED_BASE + 128,
    }  # fmt: skip
    assert program.static_shared == 64 and program.dynamic_symbols == {"dynamic", "other"}


def test_parameters_lie_at_their_natural_alignment():
    parameters = ".param .u8 a, .param .align 8 .b8 b[12], .param .u16 c, .param .u64 d, .param .align 64 .b8 map[128]"
    program = program_of("ret;", parameters=parameters)
    assert program.parameters == {"a": 0, "b": 8, "c": 20, "d": 24, "map": 64}
    assert program.parameter_bytes == 192


def test_local_memory_is_a_multiple_of_its_alignment():
    program = program_of(".local .align 4 .b8 a[5]; .local .align 32 .b8 depot[40]; ret;")
    assert program.local_symbols == {"a": 0, "depot": 32} and program.local_bytes == 96
    assert program_of("ret;").local_bytes == 0


def test_module_variables_are_those_to_allocate():
    outer = ".global .align 4 .b8 text[2] = {1, 2}; .const .f32 one; .shared .b32 tile;"
    program = program_of("mov.b64 %rd1, text; ret;", outer)
    assert [(v.name, v.space) for v in program.module_variables] == [("text", "global"), ("one", "const")]


def test_widths_of_registers():
    widths = program_of("ret;").widths
    assert [widths[name] for name in ("%p1", "%r1", "%rd1", "%q1")] == [1, 32, 64, 128]
