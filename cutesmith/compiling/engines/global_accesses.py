"""What the accesses of a kernel ask of global memory: bytes asked for, distinct ones, sectors of 32 bytes.

Addresses follow from the PTX and the launch, for the middle block of the grid at the first step of every loop. Nothing
is executed, so an address that depends on what is loaded is not told.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from cutesmith.compiling.engines.first_steps import FirstSteps, NotToldError
from cutesmith.compiling.engines.reach import Reach
from cutesmith.compiling.engines.sites import access_bytes, instructions, own_place
from cutesmith.compiling.engines.thread_values import ThreadValues, Value
from cutesmith.emulator.profiling.requests import Requests
from cutesmith.emulator.program.abi import WARP, Array
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.program.control_flow import loops
from cutesmith.emulator.ptx.syntax import Address, Immediate, Instruction
from cutesmith.recording.sessions import Launch
from cutesmith.verdicts import GlobalAccess, Touched

_IN_REGISTERS = ("ld", "ldu", "st", "atom", "red")


def global_accesses(program: Program, launch: Launch, source: str = "") -> tuple[GlobalAccess, ...]:
    """The loads, stores, atomics and `cp.async` of a launch in the order of the text, equal ones counted together.

    `source` is the file whose lines are named. Bulk copies (TMA) are not requests of a warp, and left out.
    """
    sites = [(place, one, size) for place, one in instructions(program) if (size := _bytes_of_a_lane(one))]
    if not sites:
        return ()
    x, y, z = launch.grid
    block = (x // 2, y // 2, z // 2)
    reach, values = Reach(program, ThreadValues(program, launch, block)), FirstSteps(program, launch, block)
    repeated, found = loops(program.basic_blocks), Counter[GlobalAccess]()
    for place, instruction, size in sites:
        threads = reach.threads(place)
        if threads.any():
            touched = _touched(values, instruction, threads, size, reach)
            inside = place.basic_block in repeated
            found[GlobalAccess(instruction.full_opcode, own_place(instruction.location, source), inside, touched)] += 1
    return tuple(replace(one, count=count) for one, count in found.items())


def _bytes_of_a_lane(instruction: Instruction) -> int:
    """What one lane of an access to global memory asks for; 0 of any other instruction."""
    opcode, words = instruction.opcode, instruction.modifiers
    if opcode == "cp" and words[:1] == ("async",) and words[1:2] in (("ca",), ("cg",)):
        size = instruction.operands[2]
        return size.value if isinstance(size, Immediate) else 0
    if opcode not in _IN_REGISTERS or "global" not in words or "async" in words:
        return 0
    return access_bytes(instruction)


def _touched(values: FirstSteps, instruction: Instruction, threads: Array, size: int, reach: Reach) -> Touched:
    """What the warps of the block touch by one execution of an access."""
    operand = [each for each in instruction.operands if isinstance(each, Address)][-1]
    try:
        address = values.address(operand)
    except NotToldError:
        return Touched()
    if not all(reach.is_uniform(atom) for atom, _ in address.terms):
        return Touched()
    asked = _by_warp(address, threads, size)
    distinct = len(np.unique(asked.addresses[asked.active])) * size
    return Touched(
        warps=asked.count,
        asked=asked.accesses * size,
        distinct=distinct if address.whole else None,
        sectors=int(asked.sectors().sum()),
        ideal_sectors=int(asked.ideal_sectors().sum()),
    )


def _by_warp(address: Value, threads: Array, size: int) -> Requests:
    """The requests of the warps that take part; what all threads share of an address is taken to begin a sector."""
    lanes = -(-len(threads) // WARP) * WARP
    padded = [np.concatenate([each, np.zeros(lanes - len(each), each.dtype)]) for each in (threads, address.known)]
    active, addresses = (each.reshape(-1, WARP) for each in padded)
    part = active.any(axis=1)
    return Requests(addresses[part], active[part], size)
