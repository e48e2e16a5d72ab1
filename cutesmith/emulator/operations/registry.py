"""Who executes which instruction: native code for one lane, or a handler for all lanes that wait at a stop.

Handlers are found by the longest dotted prefix of an instruction's full opcode ("shfl.sync.bfly" before "shfl.sync").
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from cutesmith.emulator.faults import UnsupportedInstruction
from cutesmith.emulator.ptx.syntax import Instruction

if TYPE_CHECKING:
    from cutesmith.emulator.machine.lanes import Array, Lanes, Warps

LaneHandler: TypeAlias = "Callable[[Lanes], Array | None]"  # bool (n,): the lanes that are done; None: all are
WarpHandler: TypeAlias = "Callable[[Warps], None]"
NativeEmitter: TypeAlias = Callable[[Any, Instruction], None]  # (native.emitter.Emitter, instruction)

_native: dict[str, NativeEmitter] = {}
_lane: dict[str, LaneHandler] = {}
_warp: dict[str, WarpHandler] = {}
_barrier: set[str] = set()

HOMES = (
    "native.integers",
    "native.bits",
    "native.comparisons",
    "native.moves",
    "native.memory",
    "native.floats",
    "native.contractions",
    "native.conversions",
    "native.approximations",
    "native.packed",
    "operations.warps",
    "operations.matrices",
    "operations.multiply",
    "operations.async_copies",
    "operations.async_stores",
    "native.atomics",
    "operations.message_barriers",
    "operations.system",
    "operations.positions",
)
"""Modules that register handlers when they are imported."""


def native(*opcodes: str) -> Callable[[NativeEmitter], NativeEmitter]:
    """Register a function that emits LLVM IR for these opcodes."""
    return _register(_native, opcodes)


def lane_operation(*opcodes: str) -> Callable[[LaneHandler], LaneHandler]:
    """Register a handler that executes an instruction for any lanes that have arrived, in any combination.

    Lanes that it does not call done wait and are asked again after others have moved.
    """
    return _register(_lane, opcodes)


def warp_operation(*opcodes: str) -> Callable[[WarpHandler], WarpHandler]:
    """Register a handler that needs the lanes of a warp together: all those of the membermask, or all that run."""
    return _register(_warp, opcodes)


def barrier_operation(*opcodes: str) -> None:
    """Name opcodes that the scheduler executes itself because they wait for other warps or blocks."""
    _barrier.update(opcodes)


def _register(table: dict[str, Any], opcodes: tuple[str, ...]) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        for opcode in opcodes:
            assert opcode not in table, f"{opcode} has two handlers"
            table[opcode] = function
        return function

    return register


def kind_of(instruction: Instruction) -> str:
    """ "native", "lane", "warp" or "barrier"; raises UnsupportedInstruction for an opcode that nobody executes."""
    _load()
    best = max(
        ((len(prefix), kind) for kind, table in _tables() if (prefix := _prefix(instruction, table))), default=None
    )
    if best is None:
        raise UnsupportedInstruction(instruction)
    return best[1]


def native_emitter(instruction: Instruction) -> NativeEmitter:
    """The emitter of a native instruction."""
    return _native[_prefix(instruction, _native)]


def lane_handler(instruction: Instruction) -> LaneHandler:
    """The handler of a lane operation."""
    return _lane[_prefix(instruction, _lane)]


def warp_handler(instruction: Instruction) -> WarpHandler:
    """The handler of a warp operation."""
    return _warp[_prefix(instruction, _warp)]


def _tables() -> tuple[tuple[str, Any], ...]:
    return (("native", _native), ("lane", _lane), ("warp", _warp), ("barrier", _barrier))


def _prefix(instruction: Instruction, table: Any) -> str:
    words = instruction.full_opcode.split(".")
    candidates = (".".join(words[:count]) for count in range(len(words), 0, -1))
    return next((candidate for candidate in candidates if candidate in table), "")


_loaded: list[bool] = []


def _load() -> None:
    if not _loaded:
        for home in HOMES:
            importlib.import_module(f"cutesmith.emulator.{home}")
        _loaded.append(True)
