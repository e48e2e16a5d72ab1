"""`cp.async`: what arrives, when, and what a missing wait does."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.faults import UnsupportedInstruction
from tests.emulator.machine.launches import emulate, zeros

# each thread copies its 16 bytes of array 0 to its place in `tile`; %d5: its 16 bytes of array 1
PROLOGUE = """mov.u32 %r1, %tid.x;
mov.u32 %r9, tile;
mad.lo.u32 %r2, %r1, 16, %r9;
ld.param.u64 %d1, [p0];
ld.param.u64 %d2, [p1];
mul.wide.u32 %d3, %r1, 16;
add.u64 %d4, %d1, %d3;
add.u64 %d5, %d2, %d3;
"""
FIRST = PROLOGUE.count("\n") + 1
COPY = "cp.async.cg.shared.global [%r2], [%d4], 16;\n"
SHOW = "ld.shared.v4.u32 {%r10,%r11,%r12,%r13}, [%r2];\nst.global.v4.u32 [%d5], {%r10,%r11,%r12,%r13};\nret;"


def run(code, source=None, **options):
    """(outcome, array 1): 32 threads, or as `block` says."""
    block = options.setdefault("block", 32)
    source = np.arange(4 * block, dtype=np.uint32) if source is None else source
    target = zeros(4 * block)
    return emulate(PROLOGUE + code, source, target, **options), target


@pytest.mark.parametrize(
    "wait",
    [
        "cp.async.wait_all;",
        "cp.async.commit_group;\ncp.async.wait_group 0;",
        "cp.async.commit_group;\ncp.async.wait_all;",
    ],
)
def test_a_copy_that_is_waited_for_arrives(wait):
    outcome, target = run(f"{COPY}{wait}\n{SHOW}")
    assert outcome.findings == ()
    assert (target == np.arange(128)).all()


@pytest.mark.parametrize("sanitize", [True, False])
@pytest.mark.parametrize("wait", ["", "cp.async.commit_group;\n", "cp.async.wait_group 0;\n", "cp.async.commit_group;\ncp.async.wait_group 1;\n"])  # noqa: E501  # fmt: skip
def test_a_copy_that_is_not_waited_for_is_found_and_gives_wrong_numbers(wait, sanitize):
    outcome, target = run(f"{COPY}{wait}{SHOW}", sanitize=sanitize)
    assert (target == 0xFFFFFFFF).all()
    if sanitize:
        assert (outcome.kinds, outcome.lines) == (["missing_wait"], [(FIRST + 1 + wait.count("\n"), FIRST)])
        assert "asynchronous copy" in outcome.findings[0].message


def test_groups_complete_in_order():
    code = """cp.async.ca.shared.global [%r2], [%d4], 4;
cp.async.commit_group;
cp.async.ca.shared.global [%r2+4], [%d4], 4;
cp.async.commit_group;
cp.async.wait_group 1;
ld.shared.u32 %r10, [%r2];
ld.shared.u32 %r11, [%r2+4];
st.global.v2.u32 [%d5], {%r10,%r11};
ret;"""
    outcome, target = run(code)
    assert (outcome.kinds, outcome.lines) == (["missing_wait"], [(FIRST + 6, FIRST + 2)])
    assert target[:2].tolist() == [0, 0xFFFFFFFF]


def test_other_threads_need_a_barrier_after_the_wait():
    other = "xor.b32 %r2, %r2, 512;\n"
    waits = f"{COPY}cp.async.wait_all;\n"
    assert run(f"{waits}bar.sync 0;\n{other}{SHOW}", block=64)[0].findings == ()
    without, _ = run(f"{waits}{other}{SHOW}", block=64)
    assert {"race"} == set(without.kinds)
    assert (FIRST + 3, FIRST) in without.lines
    early, _ = run(f"{COPY}bar.sync 0;\ncp.async.wait_all;\n{other}{SHOW}", block=64)
    assert "race" in early.kinds


def test_a_copy_into_what_others_still_read_is_a_race():
    begin = """st.shared.v4.u32 [%r2], {%r1,%r1,%r1,%r1};
bar.sync 0;
xor.b32 %r3, %r2, 512;
ld.shared.u32 %r4, [%r3];
"""
    end = f"{COPY}cp.async.wait_all;\n{SHOW}"
    assert run(f"{begin}bar.sync 0;\n{end}", block=64)[0].findings == ()
    outcome, _ = run(begin + end, block=64)
    assert outcome.lines == [(FIRST + 4, FIRST + 3)]


def test_bytes_beyond_src_size_are_zeros_and_are_not_read():
    code = f"""setp.lt.u32 %p1, %r1, 16;
selp.u32 %r3, 16, 0, %p1;
cp.async.cg.shared.global.L2::128B [%r2], [%d4], 16, %r3;
cp.async.wait_all;
{SHOW}"""
    outcome, target = run(code, np.arange(64, dtype=np.uint32))
    assert outcome.findings == ()
    assert (target[:64] == np.arange(64)).all()
    assert not target[64:].any()


def test_a_part_of_the_source_is_read():
    outcome, target = run(f"cp.async.ca.shared.global [%r2], [%d4], 16, 12;\ncp.async.wait_all;\n{SHOW}")
    assert outcome.findings == ()
    assert target[4:8].tolist() == [4, 5, 6, 0]
    refused, _ = run(f"add.u64 %d4, %d4, 4;\ncp.async.ca.shared.global [%r2], [%d4], 16, 12;\n{SHOW}")
    assert "misaligned" in refused.kinds


def test_ignore_src_writes_zeros():
    code = f"setp.ge.u32 %p1, %r1, 4;\ncp.async.cg.shared.global [%r2], [%d4], 16, %p1;\ncp.async.wait_all;\n{SHOW}"
    outcome, target = run(code, np.arange(16, dtype=np.uint32))
    assert outcome.findings == ()
    assert (target[:16] == np.arange(16)).all()
    assert not target[16:].any()


def test_a_cache_policy_is_not_a_size():
    code = (
        f"mov.u64 %d9, 0;\ncp.async.cg.shared.global.L2::cache_hint [%r2], [%d4], 16, %d9;\ncp.async.wait_all;\n{SHOW}"
    )
    assert (run(code)[1] == np.arange(128)).all()


def test_the_source_is_checked_where_the_copy_is_issued():
    outcome, _ = run(f"{COPY}cp.async.wait_all;\nret;", zeros(120))
    (finding,) = outcome.findings
    assert (finding.kind, outcome.lines, finding.thread) == ("out_of_bounds", [(FIRST, 0)], (30, 0, 0))
    assert "16 bytes past the end of array 0 (480 bytes, elements of 4 bytes)" in finding.message
    uninitialised, _ = run(f"{COPY}cp.async.wait_all;\nret;", fresh=(0,))
    assert (uninitialised.kinds, uninitialised.lines) == (["uninitialised_read"], [(FIRST, 0)])


def test_copies_under_way_at_the_end_are_fine():
    assert run(f"{COPY}cp.async.commit_group;\nret;")[0].findings == ()


def test_each_block_waits_for_its_own_copies():
    code = f"""mov.u32 %r20, %ctaid.x;
setp.eq.u32 %p1, %r20, 0;
{COPY}@%p1 bra first;
cp.async.wait_all;
first: {SHOW}"""
    outcome, _ = run(code, grid=2)
    kinds = [(finding.kind, finding.block) for finding in outcome.findings if finding.kind == "missing_wait"]
    assert kinds == [("missing_wait", (0, 0, 0))]


def test_an_mbarrier_counts_complete_copies():
    code = f"""mov.u32 %r8, tile;
add.u32 %r8, %r8, 2048;
setp.eq.u32 %p1, %r1, 0;
@%p1 mbarrier.init.shared.b64 [%r8], 64;
bar.sync 0;
{COPY}cp.async.mbarrier.arrive.noinc.shared.b64 [%r8];
again: mbarrier.try_wait.parity.shared.b64 %p2, [%r8], 0;
@!%p2 bra again;
xor.b32 %r2, %r2, 512;
{SHOW}"""
    outcome, target = run(code, block=64)
    assert outcome.findings == ()
    assert (target.reshape(64, 4)[:, 0] == (np.arange(64) ^ 32) * 4).all()
    assert "deadlock" in run(code.replace("b64 [%r8], 64", "b64 [%r8], 65"), block=64)[0].kinds
    assert run(code.replace(".noinc", "").replace("b64 [%r8], 64", "b64 [%r8], 1"), block=64)[0].kinds == ["deadlock"]


@pytest.mark.parametrize(
    "name", ["cp.async.cg.shared.global.L2::96B [%r2], [%d4], 16", "cp.async.cg.shared.global [%r2], [%d4], 8"]
)  # fmt: skip
def test_forms_that_are_not_known_are_refused_by_name(name):
    with pytest.raises(UnsupportedInstruction, match="cp.async"):
        run(f"{name};\nret;")
