"""Instructions that concern the machine: fences, traps, printf and assertions, launch control."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import takewhile

import numpy as np

from cutesmith.emulator.faults import FaultKind, UnsupportedInstruction
from cutesmith.emulator.machine.initialisations import Initialisations
from cutesmith.emulator.machine.lanes import LaneBatch
from cutesmith.emulator.machine.suspensions import lane_operation
from cutesmith.emulator.operations.printing import ArgumentBuffer, format_text
from cutesmith.emulator.program.abi import Array, Space
from cutesmith.emulator.ptx.syntax import Operand, Symbol, Vector

_MOST_STRING = 4096
_ASSERTION = "Assertion Error: "  # how the DSL's device code prints a failed `cute.testing.assert_` before it traps


@lane_operation("membar", "fence.acq_rel", "fence.sc", "fence.acquire", "fence.release")
def fence(batch: LaneBatch) -> None:
    """Every access is seen by all that come later, because lanes run one after another; the race check is told."""
    batch.memory.fence(batch.lanes)


@lane_operation("membar.proxy", "fence.proxy")
def other_fence(batch: LaneBatch) -> None:
    """Orders accesses through paths to memory that are one here, such as aliases."""


@lane_operation("fence.mbarrier_init")
def initialisation_fence(batch: LaneBatch) -> None:
    """`fence.mbarrier_init.release.cluster`: the next barrier of the cluster tells of what the thread initialised."""
    batch.machine.unit(Initialisations).fence(batch.lanes)


@lane_operation("fence.proxy.async")
def proxy_fence(batch: LaneBatch) -> None:
    """`fence.proxy.async{.global,.shared::cta,.shared::cluster}`: engines see what the thread knows of."""
    batch.memory.proxy_fence(batch.lanes)


@lane_operation("griddepcontrol.wait", "griddepcontrol.launch_dependents")
def dependent_launch(batch: LaneBatch) -> None:
    """Launches run one after another: the one before is over, the one after has not begun."""


@lane_operation("nanosleep")
def nanosleep(batch: LaneBatch) -> None:
    """Others run in the meantime: that is all sleeping is for."""


@lane_operation("trap", "brkpt")
def trap(batch: LaneBatch) -> None:
    """The kernel gives up; the DSL's assertions print why before they do."""
    said = batch.wave.printed.last.get(int(batch.lanes[0]), "")
    if _ASSERTION in said:
        message = said.split(_ASSERTION)[1].strip()
        batch.wave.report(FaultKind.ASSERTION, f"assertion failed: {message}", batch.lanes, batch.instruction)
    else:
        batch.wave.report(
            FaultKind.TRAP, f"the kernel executed `{batch.instruction.opcode}`", batch.lanes, batch.instruction
        )


@lane_operation("call")
def call(batch: LaneBatch) -> None:
    """A function of the driver."""
    callee = batch.instruction.operands[1]
    name = callee.name if isinstance(callee, Symbol) else ""
    if name not in _FUNCTIONS:
        raise UnsupportedInstruction(batch.instruction, f"`{name}` is not known")
    _FUNCTIONS[name](batch)


def _print(batch: LaneBatch) -> None:
    templates, buffers = _arguments(batch, np.uint64, np.uint64)
    for lane, template, buffer in zip(batch.lanes.tolist(), templates.tolist(), buffers.tolist(), strict=True):
        strings = _strings(batch, lane)
        text = format_text(strings(template), ArgumentBuffer(partial(_read, batch, lane), buffer), strings)
        batch.wave.printed.add(lane, text)
    returns: Operand = batch.instruction.operands[0]
    if isinstance(returns, Vector) and returns.elements:
        batch.write(returns.elements[0], np.zeros(len(batch.lanes), np.uint32))


def _assert_failed(batch: LaneBatch) -> None:
    """`__assertfail(message, file, line, function, character size)`."""
    message, file, line, _, _ = _arguments(batch, np.uint64, np.uint64, np.uint32, np.uint64, np.uint64)
    strings = _strings(batch, int(batch.lanes[0]))
    text = f"assertion failed: {strings(int(message[0]))} ({strings(int(file[0]))}:{int(line[0])})"
    batch.wave.report(FaultKind.ASSERTION, text, batch.lanes, batch.instruction)


_FUNCTIONS: dict[str, Callable[[LaneBatch], None]] = {"vprintf": _print, "__assertfail": _assert_failed}


def _arguments(batch: LaneBatch, *dtypes: type[np.unsignedinteger]) -> list[Array]:
    given = batch.instruction.operands[2]
    assert isinstance(given, Vector)
    return [batch.read(operand, dtype) for operand, dtype in zip(given.elements, dtypes, strict=True)]


def _read(batch: LaneBatch, lane: int, address: int, size: int) -> bytes:
    lane_only, addresses = np.array([lane], np.int64), np.array([address], np.uint64)
    data = batch.memory.load(lane_only, Space.GENERIC, addresses, size, batch.instruction.number)
    return bytes(data.tobytes())


def _strings(batch: LaneBatch, lane: int) -> Callable[[int], str]:
    def string_at(address: int) -> str:
        characters = (_read(batch, lane, address + offset, 1) for offset in range(_MOST_STRING))
        return b"".join(takewhile(lambda character: character != b"\0", characters)).decode(errors="replace")

    return string_at
