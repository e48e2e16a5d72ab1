"""Warps made by hand: registers as arrays (warps, 32), one instruction at a time, shared memory as an array."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from cutesmith.emulator import instruction_set  # noqa: F401  (it fills the instruction table)
from cutesmith.emulator.instructions.table import execution_of
from cutesmith.emulator.machine.lanes import Warps
from cutesmith.emulator.machine.machine import Machine
from cutesmith.emulator.program.abi import SPECIAL_REGISTERS, WARP
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.ptx.syntax import Instruction
from cutesmith.emulator.state.wave import Wave
from tests.emulator.native.straight import straight


class Rows:
    """Shared memory: `bytes` a warp from address 0; counts how often warps were synchronised."""

    def __init__(self, warps: int, size: int = 512) -> None:
        self.data = np.zeros((warps, size), np.uint8)
        self.synchronised: list[list[int]] = []

    def _index(self, lanes, addresses, size):
        assert (addresses % np.uint64(size) == 0).all()
        return (lanes // WARP)[:, None], addresses.astype(np.int64)[:, None] + np.arange(size)

    def load(self, lanes, space, addresses, size, site):
        return self.data[self._index(lanes, addresses, size)]

    def store(self, lanes, space, addresses, data, site):
        self.data[self._index(lanes, addresses, data.shape[1])] = data

    def synchronise_warps(self, members, active):
        self.synchronised += [row[present].tolist() for row, present in zip(members, active, strict=True)]


class Hand:
    """A wave of full warps at straight-line PTX; registers that `values` (warps, 32) names are set before."""

    def __init__(self, code: str, values: Mapping[str, np.ndarray], more: str = "", memory: Rows | None = None) -> None:
        self.program = _program(more + code, set(values))
        warps = len(next(iter(values.values())))
        lanes = warps * WARP
        self.memory = memory or Rows(warps)
        self.wave = Wave(
            program=self.program,
            frame=np.zeros((self.program.slot_count, lanes), np.uint64),
            special=np.zeros((len(SPECIAL_REGISTERS), lanes), np.uint32),
            block_of_lane=np.zeros(lanes, np.uint32),
            cluster_of_lane=np.zeros(lanes, np.uint32),
            blocks=np.zeros((1, 3), np.int64),
            members=np.arange(lanes).reshape(warps, WARP),
            status=np.zeros(lanes, np.int32),
            threads_per_block=lanes,
            shared=self.memory.data,
            local=np.zeros((lanes, 0), np.uint8),
            parameters=np.zeros(0, np.uint8),
            counts=np.zeros(1, np.uint64),
        )
        self.machine = Machine(self.wave, self.memory)
        for name, value in values.items():
            self[name] = value

    def __setitem__(self, name: str, value: np.ndarray) -> None:
        self.wave.frame[self.program.slots[name]] = np.asarray(value).astype(np.uint64).ravel()

    def __getitem__(self, name: str) -> np.ndarray:
        return self.wave.frame[self.program.slots[name]].reshape(-1, WARP)

    def step(self, instruction: Instruction, active: np.ndarray | None = None) -> None:
        """Execute one warp operation for the active lanes (all when not given)."""
        active = np.ones(self.wave.members.shape, bool) if active is None else active
        some = active.any(axis=1)
        warps = Warps(self.machine, instruction, self.wave.members[some], active[some])
        execution_of(instruction).handler(warps)

    def run(self, active: np.ndarray | None = None) -> Hand:
        """Execute all instructions."""
        for instruction in self.program.instructions:
            self.step(instruction, active)
        return self


def _program(code: str, names: set[str]) -> Program:
    """Straight code whose frame has a row for every register that it names, and for `names`."""
    declared = set(straight(code, (), ()).function.registers)
    return straight(code, tuple(sorted(names | set(re.findall(r"%\w+", code)) & declared)), ())
