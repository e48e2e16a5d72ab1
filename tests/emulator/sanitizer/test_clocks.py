"""The books of happens-before: serial numbers, time, and clusters too wide for exact ones."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from cutesmith.emulator.program.abi import CONTEXT_WORDS
from cutesmith.emulator.sanitizer import cells
from cutesmith.emulator.sanitizer.clocks import Clocks, LaunchClocks
from cutesmith.emulator.sanitizer.layout import Sanitizer
from tests.emulator.machine.launches import emulate, zeros


def wave(blocks=2, threads=64, cluster=1):
    block_of_lane = np.repeat(np.arange(blocks, dtype=np.uint32), threads)
    return SimpleNamespace(
        blocks=np.zeros((blocks, 3)),
        lane_count=blocks * threads,
        threads_per_block=threads,
        cluster_blocks=cluster,
        block_of_lane=block_of_lane,
        cluster_of_lane=block_of_lane // cluster * cluster,
        status=np.zeros(blocks * threads, np.int32),
    )


def test_cells_pack_and_unpack():
    (cell,) = cells.pack(np.array([77]), 1023, cells.MAX_TIME, 1 << 20).tolist()
    assert (cells.serial_of(cell), cells.thread_of(cell), cell & cells.MAX_SITE) == (77, 1023, cells.MAX_SITE)
    largest = int(cells.pack(np.array([cells.MAX_SERIAL]), cells.SEVERAL, 0, 0)[0])
    assert largest >> 62 == 1 and not cells.is_of_engine(largest) and cells.is_of_engine(largest | cells.ENGINE)


def test_serial_numbers_go_on_from_wave_to_wave_and_begin_again():
    launch = LaunchClocks()
    assert [launch.take_serials(3), launch.take_serials(500)] == [1, 4]
    launch.fenced[503] = 1  # there is room for every block
    launch.next_serial = cells.MAX_SERIAL - 1
    assert launch.take_serials(10) == 1


def test_blocks_that_meet_move_their_own_time_on():
    orders = Clocks(wave(), LaunchClocks())
    context = np.zeros(CONTEXT_WORDS, np.int64)
    orders.fill(context)
    assert context[Sanitizer.TIME] == orders.time.ctypes.data
    orders.synchronise_blocks(np.array([1]))
    assert orders.time.tolist() == [1, 2]
    assert orders.time_of(np.array([0, 127])).tolist() == [1, 2]
    assert orders.serial_of(np.array([0, 127])).tolist() == [1, 2]


def test_time_stands_still_at_its_end():
    orders = Clocks(wave(), LaunchClocks())
    orders.time[:] = cells.MAX_TIME - 1
    orders.synchronise_blocks(np.arange(2))
    orders.fence(np.arange(128))
    assert orders.time.tolist() == [cells.MAX_TIME] * 2


def test_a_cluster_too_wide_for_exact_books_raises_no_alarm():
    code = """mov.u32 %r1, %tid.x;
mov.u32 %r8, tile;
setp.eq.u32 %p1, %r1, 0;
@%p1 mbarrier.init.shared.b64 [%r8], 1024;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
mad.lo.u32 %r2, %r1, 2, %r8;
st.shared.u16 [%r2+1024], %h1;
mbarrier.arrive.shared.b64 _, [%r8];
again: mbarrier.try_wait.parity.shared.b64 %p2, [%r8], 0;
@!%p2 bra again;
xor.b32 %r3, %r2, 128;
ld.shared.u16 %h2, [%r3+1024];
bar.sync 1, 1024;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
ret;"""
    assert emulate(code, zeros(1), block=1024, grid=5, cluster=5).findings == ()
