"""Where in the user's code an operation of a kernel is built: found once for each place, not for each operation.

The DSL asks for every operation, and an unrolled loop has thousands of a line. It looks at each frame of the stack,
walks a function's table of positions and makes an MLIR location: a matrix product's tensor core kernel compiled in 3.1
to 3.7 s. With positions found once it took 2.6 to 2.8 s; with frames and locations too, tracing takes a tenth less.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from cutesmith.recording.patches import Patches


def find_places_once(patches: Patches) -> None:
    """Replace the DSL's functions for places; an older or newer release may lack some."""
    from cutlass._mlir import ir
    from cutlass._mlir_helpers import op

    contexts = vars(ir)["Context"]
    for name, once in (
        ("_is_framework_stack_frame", _once_a_function),
        ("_fast_frameinfo", _once_a_place),
        ("_get_location_from_frame_info", lambda original: _once_a_context(original, contexts)),
    ):
        if hasattr(op, name):
            patches.set(op, name, once(getattr(op, name)))


def _once_a_function(is_framework: Callable[[types.FrameType], bool]) -> Callable[[types.FrameType], bool]:
    return _once(is_framework, lambda frame: (id(frame.f_code),))


def _once_a_place(place_of: Callable[[types.FrameType], Any]) -> Callable[[types.FrameType], Any]:
    return _once(place_of, lambda frame: (id(frame.f_code), frame.f_lasti))


def _once(ask: Callable[[types.FrameType], Any], key_of: Callable[[types.FrameType], Any]) -> Callable[..., Any]:
    """The answer for a frame, found once for each key: the ids of code objects, which are held so that they stay."""
    known: dict[Any, tuple[types.CodeType, Any]] = {}

    def once(frame: types.FrameType) -> Any:
        key = key_of(frame)
        if key not in known:
            known[key] = frame.f_code, ask(frame)
        return known[key][1]

    return once


def _once_a_context(location_of: Callable[[Any], Any], contexts: Any) -> Callable[[Any], Any]:
    """The location of a place, in a context of MLIR: each compilation has its own."""
    known: dict[int, tuple[Any, Any]] = {}  # by identity, which the place being held keeps
    context: Any = None

    def once(place: Any) -> Any:
        nonlocal context
        if context is not contexts.current:
            known.clear()
            context = contexts.current
        if id(place) not in known:
            known[id(place)] = place, location_of(place)
        return known[id(place)][1]

    return once
