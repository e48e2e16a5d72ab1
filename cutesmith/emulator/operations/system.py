"""Instructions that concern the machine: fences, traps, printf and assertions, register and launch control.

Barriers of blocks and clusters are only named here; machine/barriers.py executes them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import takewhile

import numpy as np

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.machine.lanes import Array, Lanes
from cutesmith.emulator.native.abi import Space
from cutesmith.emulator.operations.printing import ArgumentBuffer, format_text
from cutesmith.emulator.operations.registry import barrier_operation, lane_operation
from cutesmith.emulator.ptx.syntax import Immediate, Operand, Symbol, Vector

_MOST_STRING = 4096
_ASSERTION = "Assertion Error: "  # how the DSL's device code prints a failed `cute.testing.assert_` before it traps

_BLOCK_BARRIERS = ("sync", "arrive", "red.popc", "red.and", "red.or")
barrier_operation(
    *(f"{name}.{action}" for name in ("bar", "bar.cta", "barrier", "barrier.cta") for action in _BLOCK_BARRIERS),
    "barrier.cluster.arrive",
    "barrier.cluster.wait",
)


@lane_operation("membar", "fence.acq_rel", "fence.sc", "fence.acquire", "fence.release")
def fence(lanes: Lanes) -> None:
    """Every access is seen by all that come later, because lanes run one after another; the race check is told."""
    lanes.wave.memory.fence(lanes.lanes)


@lane_operation("membar.proxy", "fence.proxy", "fence.mbarrier_init")
def proxy_fence(lanes: Lanes) -> None:
    """Orders accesses through different paths to memory: there is but one here."""


@lane_operation("griddepcontrol.wait", "griddepcontrol.launch_dependents")
def dependent_launch(lanes: Lanes) -> None:
    """Launches run one after another: the one before is over, the one after has not begun."""


@lane_operation("nanosleep")
def nanosleep(lanes: Lanes) -> None:
    """Others run in the meantime: that is all sleeping is for."""


@lane_operation("setmaxnreg.inc.sync.aligned.u32", "setmaxnreg.dec.sync.aligned.u32")
def set_registers(lanes: Lanes) -> None:
    """Registers are never short here; the count must still be one that the hardware takes."""
    operand = lanes.instruction.operands[0]
    count = operand.value if isinstance(operand, Immediate) else 0
    if not 24 <= count <= 256 or count % 8:
        message = f"setmaxnreg to {count} registers: 24 to 256 in steps of 8"
        lanes.wave.report("invalid_operand", message, lanes.lanes, lanes.instruction)


@lane_operation("trap", "brkpt")
def trap(lanes: Lanes) -> None:
    """The kernel gives up; the DSL's assertions print why before they do."""
    said = lanes.wave.printed.last.get(int(lanes.lanes[0]), "")
    if _ASSERTION in said:
        message = said.split(_ASSERTION)[1].strip()
        lanes.wave.report("assertion", f"assertion failed: {message}", lanes.lanes, lanes.instruction)
    else:
        lanes.wave.report("trap", f"the kernel executed `{lanes.instruction.opcode}`", lanes.lanes, lanes.instruction)


@lane_operation("call")
def call(lanes: Lanes) -> None:
    """A function of the driver."""
    callee = lanes.instruction.operands[1]
    name = callee.name if isinstance(callee, Symbol) else ""
    if name not in _FUNCTIONS:
        raise UnsupportedInstruction(lanes.instruction, f"`{name}` is not known")
    _FUNCTIONS[name](lanes)


def _print(lanes: Lanes) -> None:
    templates, buffers = _arguments(lanes, np.uint64, np.uint64)
    for lane, template, buffer in zip(lanes.lanes.tolist(), templates.tolist(), buffers.tolist(), strict=True):
        strings = _strings(lanes, lane)
        text = format_text(strings(template), ArgumentBuffer(partial(_read, lanes, lane), buffer), strings)
        lanes.wave.printed.add(lane, text)
    _return(lanes, np.zeros(len(lanes.lanes), np.uint32))


def _assert_failed(lanes: Lanes) -> None:
    """`__assertfail(message, file, line, function, character size)`."""
    message, file, line, _, _ = _arguments(lanes, np.uint64, np.uint64, np.uint32, np.uint64, np.uint64)
    strings = _strings(lanes, int(lanes.lanes[0]))
    text = f"assertion failed: {strings(int(message[0]))} ({strings(int(file[0]))}:{int(line[0])})"
    lanes.wave.report("assertion", text, lanes.lanes, lanes.instruction)


_FUNCTIONS: dict[str, Callable[[Lanes], None]] = {"vprintf": _print, "__assertfail": _assert_failed}


def _arguments(lanes: Lanes, *dtypes: type[np.unsignedinteger]) -> list[Array]:
    given = lanes.instruction.operands[2]
    assert isinstance(given, Vector)
    return [lanes.read(operand, dtype) for operand, dtype in zip(given.elements, dtypes, strict=True)]


def _return(lanes: Lanes, values: Array) -> None:
    returns: Operand = lanes.instruction.operands[0]
    if isinstance(returns, Vector) and returns.elements:
        lanes.write(returns.elements[0], values)


def _read(lanes: Lanes, lane: int, address: int, size: int) -> bytes:
    lane_only, addresses = np.array([lane], np.int64), np.array([address], np.uint64)
    data = lanes.wave.memory.load(lane_only, Space.GENERIC, addresses, size, lanes.instruction.number)
    return bytes(data.tobytes())


def _strings(lanes: Lanes, lane: int) -> Callable[[int], str]:
    def string_at(address: int) -> str:
        characters = (_read(lanes, lane, address + offset, 1) for offset in range(_MOST_STRING))
        return b"".join(takewhile(lambda character: character != b"\0", characters)).decode(errors="replace")

    return string_at
