"""A kind of suspension and a unit made elsewhere: a warpgroup executed as one, an engine beside waiting lanes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest

from cutesmith.emulator.faults import KernelFault
from cutesmith.emulator.instructions import table
from cutesmith.emulator.machine.machine import Unit
from cutesmith.emulator.machine.suspensions import Suspension, lane_operation
from tests.emulator.machine.launches import run, store_result

GROUP = 128


class Warpgroup(Suspension):
    """Four warps in a row of one block: executed when all of their lanes are there, it writes how often it was."""

    together: ClassVar[bool] = True
    executed: ClassVar[list[int]] = []

    def execute(self, machine, group):
        key = machine.wave.block_of_lane.astype(np.int64) * 8 + np.arange(machine.wave.lane_count) // GROUP
        here = np.concatenate([waiting.lanes for waiting in group])
        complete = np.flatnonzero(np.bincount(key[here]) == GROUP)
        self.executed.extend(complete.tolist())
        for waiting in group:
            done = np.isin(key[waiting.lanes], complete)
            machine.wave.write(waiting.instruction.operands[0], waiting.lanes[done], np.uint32(len(self.executed)))
        return [np.isin(key[waiting.lanes], complete) for waiting in group]

    def reason(self, scene, instruction, lanes):
        return f"for their warpgroup: {scene.places(scene.rest_of_warps(lanes))}"


table.register(Warpgroup(), "testgroup.sync")


class SlowCopies(Unit):
    """Each copy takes three rounds."""

    def __init__(self, machine):
        super().__init__(machine)
        self.left = {}

    def step(self):
        under_way = [lane for lane, rounds in self.left.items() if rounds]
        for lane in under_way:
            self.left[lane] -= 1
        return bool(under_way)


@lane_operation("testcopy.start")
def start(batch):
    batch.machine.unit(SlowCopies).left.update(dict.fromkeys(batch.lanes.tolist(), 3))


@lane_operation("testcopy.wait", waits_for=lambda machine, instruction, lane: "for a copy that was never started")
def wait(batch):
    left = batch.machine.unit(SlowCopies).left
    return np.array([left.get(lane) == 0 for lane in batch.lanes.tolist()])


def test_a_warpgroup_waits_for_its_four_warps_wherever_they_are():
    """The last warp of the first group comes late, and by another instruction."""
    out = np.zeros(2 * GROUP, np.uint32)
    Warpgroup.executed.clear()
    run(
        f"""
mov.u32 %r1, %warpid; setp.ne.u32 %p1, %r1, 3;
@%p1 bra HERE;
activemask.b32 %r3;
activemask.b32 %r3;
testgroup.sync %r2;
bra AFTER;
HERE: testgroup.sync %r2;
AFTER: {store_result("%r2")} ret;""",
        out,
        block=(2 * GROUP, 1, 1),
    )
    assert Warpgroup.executed == [1, 0]  # the other group did not wait for it
    assert (out[:GROUP] == 2).all() and (out[GROUP:] == 1).all()


def test_a_kind_explains_its_deadlock():
    with pytest.raises(KernelFault, match=r"for their warpgroup: all others are there"):
        run("mov.u32 %r1, %warpid; setp.eq.u32 %p1, %r1, 3; @%p1 ret; testgroup.sync %r2; ret;", block=(GROUP, 1, 1))


def test_an_engine_works_while_all_lanes_wait():
    out = np.zeros(32, np.uint32)
    run(f"testcopy.start; testcopy.wait; mov.u32 %r2, 7; {store_result('%r2')} ret;", out)
    assert (out == 7).all()


def test_an_idle_engine_does_not_end_a_deadlock():
    with pytest.raises(KernelFault, match="for a copy that was never started"):
        run("testcopy.wait; ret;")
