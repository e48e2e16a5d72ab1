"""mbarriers: phases, parities, bytes, other blocks, what they order, and what they refuse."""

from __future__ import annotations

import pytest

from cutesmith.emulator.engines.mbarrier_state import MOST_ARRIVALS, MOST_BYTES, Mbarrier, MbarrierError
from cutesmith.emulator.faults import UnsupportedInstruction
from tests.emulator.machine.launches import emulate, zeros

# %r1: thread, %r8: the mbarrier at the start of `tile`, %r2: the thread's word behind it, %p1: thread 0
PROLOGUE = """mov.u32 %r1, %tid.x;
mov.u32 %r8, tile;
mad.lo.u32 %r2, %r1, 4, %r8;
add.u32 %r2, %r2, 1024;
setp.eq.u32 %p1, %r1, 0;
ld.param.u64 %d1, [p0];
mul.wide.u32 %d2, %r1, 4;
add.u64 %d2, %d1, %d2;
@%p1 mbarrier.init.shared.b64 [%r8], {count};
fence.mbarrier_init.release.cluster;
bar.sync 0;
"""
FIRST = PROLOGUE.count("\n") + 1
WAIT = "wait{0}: mbarrier.try_wait.parity.shared.b64 %p2, [%r8], {0};\n@!%p2 bra wait{0};\n"
READ_NEIGHBOUR = "xor.b32 %r3, %r2, 128;\nld.shared.u32 %r4, [%r3];\nst.global.u32 [%d2], %r4;\nret;"


def run(code, count=1, target=None, **options):
    """Run code after the mbarrier was initialised for `count` arrivals."""
    return emulate(PROLOGUE.format(count=count) + code, zeros(256) if target is None else target, **options)


def test_an_mbarrier_packs_into_its_word():
    for barrier in (Mbarrier(1, 1, 0, 0), Mbarrier(MOST_ARRIVALS, 3, -MOST_BYTES, 1), Mbarrier(7, 0, 5, 0)):
        assert Mbarrier.unpack(barrier.pack()) == barrier
        assert 0 <= barrier.pack() < 1 << 64
    assert Mbarrier.unpack(0) is None
    assert Mbarrier.unpack(2**64 - 1) is None


def test_a_phase_ends_with_its_last_arrival_and_its_last_byte():
    barrier = Mbarrier(2, 2, 0, 0)
    barrier.expect_bytes(32)
    barrier.arrive(2)
    assert (barrier.parity, barrier.missing) == (0, 0)
    barrier.expect_bytes(-32)
    assert (barrier.parity, barrier.missing, barrier.bytes) == (1, 2, 0)
    barrier.drop()
    barrier.arrive()
    assert (barrier.parity, barrier.missing, barrier.expected) == (0, 1, 1)


def test_bytes_may_arrive_before_they_are_expected():
    barrier = Mbarrier(1, 1, 0, 0)
    barrier.expect_bytes(-16)
    barrier.expect_bytes(16)
    assert barrier.parity == 0
    barrier.arrive()
    assert barrier.parity == 1


@pytest.mark.parametrize(
    "act",
    [
        lambda: Mbarrier(2, 2, 0, 0).arrive(3),
        lambda: Mbarrier(2, 2, 0, 0).drop(3),
        lambda: Mbarrier(2, 2, 0, 0).expect_bytes(MOST_BYTES + 1),
    ],
)
def test_counts_have_limits(act):
    with pytest.raises(MbarrierError):
        act()


def test_arrivals_are_ordered_before_the_wait():
    code = f"st.shared.u32 [%r2], %r1;\nmbarrier.arrive.shared.b64 _, [%r8];\n{WAIT.format(0)}{READ_NEIGHBOUR}"
    target = zeros(64)
    assert run(code, 64, target, block=64).findings == ()
    assert target.tolist() == [lane ^ 32 for lane in range(64)]


def test_what_follows_the_arrival_is_not():
    code = f"mbarrier.arrive.shared.b64 _, [%r8];\nst.shared.u32 [%r2], %r1;\n{WAIT.format(0)}{READ_NEIGHBOUR}"
    outcome = run(code, 64, block=64)
    assert (outcome.kinds, outcome.lines) == (["race"], [(FIRST + 5, FIRST + 1)])


def test_a_missing_wait_is_a_race():
    code = f"st.shared.u32 [%r2], %r1;\nmbarrier.arrive.shared.b64 _, [%r8];\n{READ_NEIGHBOUR}"
    assert "race" in run(code, 64, block=64).kinds


def test_a_relaxed_arrival_orders_nothing():
    code = (
        f"st.shared.u32 [%r2], %r1;\nmbarrier.arrive.relaxed.cta.shared.b64 _, [%r8];\n{WAIT.format(0)}{READ_NEIGHBOUR}"  # noqa: E501
    )
    assert set(run(code, 64, block=64).kinds) == {"race"}


def test_two_phases_of_a_ring():
    """Thread 0 fills a word twice; the others read it, and say when it is free again."""
    code = """mov.u32 %r7, tile;
add.u32 %r7, %r7, 8;
@%p1 mbarrier.init.shared.b64 [%r7], 31;
bar.sync 0;
mov.u32 %r5, 0;
loop: and.b32 %r6, %r5, 1;
@!%p1 bra consumer;
xor.b32 %r10, %r6, 1;
empty: mbarrier.try_wait.parity.shared.b64 %p2, [%r7], %r10;
@!%p2 bra empty;
add.u32 %r11, %r5, 50;
st.shared.u32 [%r8+1024], %r11;
mbarrier.arrive.shared.b64 _, [%r8];
bra next;
consumer: mbarrier.try_wait.parity.shared.b64 %p2, [%r8], %r6;
@!%p2 bra consumer;
ld.shared.u32 %r12, [%r8+1024];
{free}
next: add.u32 %r5, %r5, 1;
setp.lt.u32 %p3, %r5, 3;
@%p3 bra loop;
st.global.u32 [%d2], %r12;
ret;"""
    target = zeros(32)
    assert run(code.format(free="mbarrier.arrive.shared.b64 _, [%r7];"), 1, target).findings == ()
    assert target[1:].tolist() == [52] * 31
    assert "deadlock" in run(code.format(free="mov.u32 %r20, 0;"), 1).kinds


def test_a_state_names_its_phase():
    code = """mbarrier.arrive.shared.b64 %d5, [%r8];
mbarrier.pending_count.b64 %r5, %d5;
again: mbarrier.test_wait.shared.b64 %p2, [%r8], %d5;
@!%p2 bra again;
st.global.u32 [%d2], %r5;
ret;"""
    target = zeros(32)
    assert run(code, 32, target).findings == ()
    assert target[:32].tolist() == list(range(32, 0, -1))


def test_bytes_hold_the_phase_back():
    code = f"""@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 64;
bar.sync 0;
mbarrier.test_wait.parity.shared.b64 %p2, [%r8], 0;
selp.u32 %r3, 1, 0, %p2;
st.global.u32 [%d2], %r3;
bar.sync 0;
@%p1 mbarrier.complete_tx.relaxed.cta.shared.b64 [%r8], 64;
{WAIT.format(0)}ret;"""
    target = zeros(32)
    assert run(code, 1, target).findings == ()
    assert not target.any()


def test_try_wait_gives_up_when_no_lane_can_move():
    """A consumer that peeks at the next stage before it frees the present one would block itself otherwise."""
    code = """mbarrier.try_wait.parity.shared.b64 %p2, [%r8], 0;
selp.u32 %r3, 1, 0, %p2;
st.global.u32 [%d2], %r3;
ret;"""
    target = zeros(32) + 9
    assert run(code, 1, target).findings == ()
    assert not target.any()


def test_a_deadlock_says_what_is_missing():
    outcome = run(f"@%p1 mbarrier.arrive.shared.b64 _, [%r8];\n{WAIT.format(0)}ret;", 3)
    assert (outcome.kinds[0], outcome.lines[0]) == ("deadlock", (FIRST + 1, 0))
    assert "whose phase (parity 0) still needs 2 of 3 arrivals" in outcome.findings[0].message


@pytest.mark.parametrize("remote", [True, False])
def test_blocks_of_a_cluster_exchange_words(remote):
    """Each block sends its words to the other one, by st.async with bytes or by a store and an arrival."""
    send = """st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r6], %r5, [%r7];"""
    if remote:
        send = "st.shared::cluster.u32 [%r6], %r5;\nmbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];"
    expect = "" if remote else "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 128;"
    code = f"""barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mov.u32 %r3, %cluster_ctarank;
xor.b32 %r4, %r3, 1;
mapa.shared::cluster.u32 %r6, %r2, %r4;
mapa.shared::cluster.u32 %r7, %r8, %r4;
mad.lo.u32 %r5, %r3, 100, %r1;
{expect}
{send}
{{wait}}
ld.shared.u32 %r10, [%r2];
mul.wide.u32 %d3, %r3, 128;
add.u64 %d2, %d2, %d3;
st.global.u32 [%d2], %r10;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
ret;"""
    wait = "wait0: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p2, [%r8], 0;\n@!%p2 bra wait0;"
    target, count = zeros(64), 32 if remote else 1
    assert run(code.format(wait=wait), count, target, grid=2, cluster=2).findings == ()
    assert target.tolist() == [*range(100, 132), *range(32)]
    without = run(code.format(wait="mov.u32 %r20, 0;"), count, grid=2, cluster=2)
    assert {"race", "uninitialised_read", "missing_wait"} & set(without.kinds)


def test_a_wait_of_its_block_is_enough_for_an_arrival_at_scope_cta_to_come_before_the_end():
    """It releases nothing to the other block, so what it tells cannot say when it came; the phase can."""
    code = """barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mov.u32 %r3, %cluster_ctarank;
xor.b32 %r4, %r3, 1;
mapa.shared::cluster.u32 %r7, %r8, %r4;
mbarrier.arrive.release.cta.shared::cluster.b64 _, [%r7];
wait0: mbarrier.try_wait.parity.shared.b64 %p2, [%r8], 0;
@!%p2 bra wait0;
ret;"""
    assert run(code, 32, grid=2, cluster=2).findings == ()


def test_a_vector_of_registers_is_sent_as_its_elements():
    """As QuACK's inline assembly writes it: `.reg .v4`, its elements set one by one, the whole given to st.async."""
    code = """mapa.shared::cluster.u32 %r6, %r2, 0;
mapa.shared::cluster.u32 %r7, %r8, 0;
@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r8], 16;
{ .reg .v4 .s32 abcd;
mov.s32 abcd.x, 5; mov.s32 abcd.y, 6; mov.s32 abcd.b, 7; mov.s32 abcd.w, 8;
@%p1 st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.s32 [%r6], abcd, [%r7]; }
wait0: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p2, [%r8], 0;
@!%p2 bra wait0;
setp.lt.u32 %p3, %r1, 4;
@%p3 ld.shared.u32 %r10, [%r2];
@%p3 st.global.u32 [%d2], %r10;
ret;"""
    target = zeros(4)
    assert run(code, 1, target).findings == ()
    assert target.tolist() == [5, 6, 7, 8]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (
            "mbarrier.arrive.shared.b64 _, [%r8+64];",
            "of the shared memory of block (0, 0, 0), which is not an mbarrier",
        ),
        ("mbarrier.arrive.shared.b64 _, [%r8], 5;", "5 arrivals at an mbarrier whose phase still needs"),
        ("mbarrier.inval.shared.b64 [%r8];\nmbarrier.arrive.shared.b64 _, [%r8];", "which is not an mbarrier"),
        ("mbarrier.expect_tx.relaxed.cta.shared.b64 [%r8], 2000000;", "counts up to"),
        ("mbarrier.init.shared.b64 [%r8+8], 0;", "an mbarrier for 0 arrivals"),
    ],
)
def test_misuse_is_found(code, text):
    outcome = run(f"{code}\nret;", 1, block=1)
    assert outcome.kinds == ["invalid_operand"]
    assert text in outcome.findings[0].message
    assert outcome.lines[-1][0] == FIRST + code.count("\n")


def test_an_mbarrier_has_bounds_and_alignment():
    assert run("mbarrier.arrive.shared.b64 _, [%r8+4096];\nret;", block=1).kinds == ["out_of_bounds"]
    assert run("mbarrier.arrive.shared.b64 _, [%r8+4];\nret;", block=1).kinds == ["misaligned"]


def test_a_form_that_is_not_known_is_refused():
    with pytest.raises(UnsupportedInstruction, match="sometimes"):
        run("mbarrier.arrive.sometimes.shared.b64 _, [%r8];\nret;")
