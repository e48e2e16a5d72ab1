"""What regions load and store, where loops may give way, and which rows registers share."""

from __future__ import annotations

import pytest

from cutesmith.emulator.instructions.roles import CONDITION_CODE, reads, writes
from cutesmith.emulator.program.basic_blocks import SuspensionPoint
from cutesmith.emulator.program.build import build
from cutesmith.emulator.program.layout import place_registers
from cutesmith.emulator.ptx.parser import parse
from cutesmith.emulator.ptx.syntax import Instruction
from tests.emulator.program.graphs import SUSPENDING, module_of, program_of


def region_after(program, point):
    return program.regions[program.suspension_points[point].resume]


def test_only_what_lives_across_a_suspension_point_is_stored_and_loaded():
    program = program_of("""
        mov.b32 %r1, 1; mov.b32 %r2, 2; mov.b32 %r3, 3; add.s32 %r4, %r2, %r3;
        bar.sync 0;
        st.global.b32 [%rd1], %r1; st.global.b32 [%rd1], %r4; ret;""")
    start, after = program.regions[0], region_after(program, 0)
    assert start.loads == frozenset() and after.stores == {}
    assert start.stores == {0: {"%r1", "%r4"}}
    assert after.loads == {"%r1", "%r4", "%rd1"}
    assert program.slots.keys() == {"%r1", "%r4", "%rd1"}


def test_operands_of_a_suspension_point_are_stored_and_its_result_is_not():
    program = program_of("mov.b32 %r1, 1; mov.b32 %r2, 2; shfl.sync.idx.b32 %r2|%p1, %r1, 0, 31, -1; ret;")
    assert program.regions[0].stores == {0: {"%r1"}}
    assert program.slots.keys() == {"%r1", "%r2", "%p1"}
    assert region_after(program, 0).loads == frozenset()


def test_what_is_written_on_some_paths_only_is_loaded_to_be_stored():
    program = program_of("""
        bar.sync 0;
        @%p1 bra SKIP;
        mov.b32 %r1, 7;
        SKIP: bar.sync 1;
        st.global.b32 [%rd1], %r1; ret;""")
    region = region_after(program, 0)
    assert region.loads == {"%p1", "%r1"}
    (stores,) = region.stores.values()
    assert stores == {"%r1"}


def test_a_guarded_write_keeps_the_old_value():
    program = program_of("bar.sync 0; @%p1 mov.b32 %r1, 7; bar.sync 1; st.global.b32 [%rd1], %r1; ret;")
    region = region_after(program, 0)
    assert region.loads == {"%p1", "%r1"} and list(region.stores.values()) == [{"%r1"}]


def test_registers_that_pass_through_are_left_in_the_frame():
    program = program_of("mov.b32 %r1, 1; bar.sync 0; mov.b32 %r2, 2; bar.sync 1; add.s32 %r3, %r1, %r2; ret;")
    region = region_after(program, 0)
    assert region.loads == frozenset() and list(region.stores.values()) == [{"%r2"}]


LOOP = """
    mov.b32 %r1, 0;
    LOOP: add.s32 %r1, %r1, 1; add.s32 %r2, %r1, 5;
    setp.lt.s32 %p1, %r1, 10;
    @%p1 bra LOOP;
    st.global.b32 [%rd1], %r2; ret;"""


def test_a_loop_may_give_way_at_its_back_edge():
    program = program_of(LOOP)
    assert program.entries == (0, 1)
    region = program.regions[1]
    assert region.back_edges == {(1, 1)} and region.stores == {1: {"%r1"}}
    assert region.loads == {"%r1", "%rd1"}
    assert program.regions[0].back_edges == {(1, 1)} and program.regions[0].basic_blocks == (0, 1, 2)


def test_a_loop_with_a_suspension_point_needs_no_back_edge():
    program = program_of("LOOP: add.s32 %r1, %r1, 1; bar.sync 0; setp.lt.s32 %p1, %r1, 9; @%p1 bra LOOP; ret;")
    assert all(not region.back_edges for region in program.regions.values())
    after = region_after(program, 0)
    assert after.loads == {"%r1"} and {"%r1"} in after.stores.values()


def test_a_loop_around_suspension_points_with_an_exit_inside():
    program = program_of("""
        mov.b32 %r1, 0;
        LOOP: @%p1 bra NEXT;
        bar.sync 0;
        @%p2 ret;
        NEXT: add.s32 %r1, %r1, 1; setp.lt.s32 %p3, %r1, 9; @%p3 bra LOOP;
        ret;""")
    (edge,) = {edge for region in program.regions.values() for edge in region.back_edges}
    assert edge[1] in program.entries
    assert region_after(program, 0).loads == {"%p1", "%p2", "%r1"}


def test_irreducible_rings_have_an_edge_where_a_lane_gives_way():
    program = program_of("""
        @%p1 bra B;
        A: add.s32 %r1, %r1, 1; @%p2 bra C;
        B: add.s32 %r1, %r1, 2; @%p3 bra A;
        C: ret;""")
    edges = program.regions[0].back_edges
    assert len(edges) == 1 and all(target in program.entries for _, target in edges)


def test_rows_are_shared_by_registers_that_never_meet():
    program = program_of("""
        mov.b32 %r1, 1; bar.sync 0; mov.b32 %r2, %r1; bar.sync 1; mov.b32 %r3, %r2; bar.sync 2; mov.b32 %r4, %r3;
        ret;""")
    assert program.slot_count == 1 and set(program.slots.values()) == {0}


def test_rows_of_what_is_in_the_frame_together_differ():
    points = [["a", "b"], ["b", "wide"], ["c", "wide"], ["a", "d"]]
    rows, count = place_registers(points, {"a": 32, "b": 64, "c": 1, "d": 16, "wide": 128})
    assert count == 4 and rows["wide"] + 1 not in rows.values()
    for names in points:
        taken = [rows[name] for name in names] + [rows[name] + 1 for name in names if name == "wide"]
        assert len(set(taken)) == len(taken)


def test_live_names_what_is_read_before_it_is_written():
    program = program_of(LOOP)
    assert [sorted(program.live[number]) for number in range(3)] == [["%rd1"], ["%r1", "%rd1"], ["%r2", "%rd1"]]


@pytest.mark.parametrize(("line", "read", "written"), [
    ("st.global.v2.b32 [%rd1+8], {%r1, %r2};", "%rd1 %r1 %r2", ""),
    ("ld.global.v2.b32 {%r1, _}, [%rd1];", "%rd1", "%r1"),
    ("mov.b64 {%r1, %r2}, %rd1;", "%rd1", "%r1 %r2"),
    ("mov.b64 %rd1, {%r1, %r2};", "%r1 %r2", "%rd1"),
    ("shfl.sync.up.b32 %r1|%p1, %r2, 1, 0, %r3;", "%r2 %r3", "%r1 %p1"),
    ("setp.lt.and.s32 %p1|%p2, %r1, 3, !%p3;", "%r1 %p3", "%p1 %p2"),
    ("bar.sync %r1, %r2;", "%r1 %r2", ""),
    ("barrier.sync.aligned %r1;", "%r1", ""),
    ("bar.red.popc.u32 %r1, %r2, %p1;", "%r2 %p1", "%r1"),
    ("barrier.cta.red.and.pred %p1, 0, %p2;", "%p2", "%p1"),
    ("bar.warp.sync %r1;", "%r1", ""),
    ("red.global.add.u32 [%rd1], %r1;", "%rd1 %r1", ""),
    ("atom.global.cas.b32 %r1, [%rd1], %r2, %r3;", "%rd1 %r2 %r3", "%r1"),
    ("mbarrier.arrive.shared.b64 %rd1, [%r1], %r2;", "%r1 %r2", "%rd1"),
    ("mbarrier.arrive.shared::cluster.b64 _, [%r1];", "%r1", ""),
    ("mbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2;", "%r1 %r2", "%p1"),
    ("mbarrier.init.shared.b64 [%r1], 3;", "%r1", ""),
    ("cp.async.cg.shared.global [%r1], [%rd1], 16, %r2;", "%r1 %rd1 %r2", ""),
    ("cp.async.bulk.tensor.1d.shared::cta.global [%r1], [%rd1, {%r2}], [%r3];", "%r1 %rd1 %r2 %r3", ""),
    ("stmatrix.sync.aligned.x2.m8n8.shared.b16 [%r1], {%r2, %r3};", "%r1 %r2 %r3", ""),
    ("mma.sync.aligned.m8n8k4.x {%r1}, {%r2}, {%r3}, {%r1};", "%r2 %r3 %r1", "%r1"),
    ("wgmma.mma_async.sync.x {%r1, %r2}, %rd1, %rd2, %p1, 1;", "%r1 %r2 %rd1 %rd2 %p1", "%r1 %r2"),
    ("tcgen05.ld.sync.aligned.x {%r1}, [%r2];", "%r2", "%r1"),
    ("tcgen05.dealloc.x %r1, 64;", "%r1", ""),
    ("nanosleep.u32 %r1;", "%r1", ""),
    ("setmaxnreg.inc.x 40;", "", ""),
    ("add.cc.s32 %r1, %r2, %r3;", "%r2 %r3", f"%r1 {CONDITION_CODE}"),
    ("addc.cc.s32 %r1, %r2, %r3;", f"%r2 %r3 {CONDITION_CODE}", f"%r1 {CONDITION_CODE}"),
    ("madc.hi.s32 %r1, %r2, %r3, %r4;", f"%r2 %r3 %r4 {CONDITION_CODE}", "%r1"),
    ("@!%p1 mov.b32 %r1, 3;", "%p1", "%r1"),
    ("@%p1 ret;", "%p1", ""),
])  # fmt: skip
def test_what_instructions_read_and_write(line, read, written):
    (instruction,) = (i for i in module_of(line).functions["k"].body if isinstance(i, Instruction))
    assert list(dict.fromkeys(reads(instruction))) == read.split()
    assert list(writes(instruction)) == written.split()


def test_loads_are_live_at_entries_of_real_kernels(real_ptx):
    for text in real_ptx.values():
        module = parse(text)
        entry = next(f for f in module.functions.values() if f.kind == "entry")
        program = build(module, entry, lambda instruction: instruction.opcode not in SUSPENDING)
        for number, region in program.regions.items():
            assert region.loads <= program.live[number]
            assert region.loads.union(*region.stores.values()) <= program.slots.keys()
            leaving = {n for n in region.basic_blocks if isinstance(program.basic_blocks[n].end, SuspensionPoint)}
            assert leaving | {edge[0] for edge in region.back_edges} == region.stores.keys()
