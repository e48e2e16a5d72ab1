"""`torch.cuda.CUDAGraph` without a GPU: what a capture holds back is done at each replay, and not before.

The session holds back launches and copies of compiled host code. Torch's operations on tensors that pose as CUDA
tensors run at capture for the shapes of their results, and at each replay into the same results; those that write into
an argument wait for the replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from cutesmith.recording.autograd import flat
from cutesmith.recording.facade import Facade
from cutesmith.recording.patches import Patches
from cutesmith.recording.sessions import Session

_WHILE_CAPTURING = "CUDA error: operation not permitted when stream is capturing"
_ATEN = torch.ops.aten
_WITHOUT_VALUES = {_ATEN.empty, _ATEN.empty_like, _ATEN.empty_strided, _ATEN.new_empty, _ATEN.new_empty_strided}


def graphs_within(patches: Patches, session: Session, facade: Facade) -> None:
    """Let `torch.cuda.graph` capture what the session records."""

    class CUDAGraph:
        """What one capture held back; `torch.cuda.graph` calls its methods."""

        def __init__(self, keep_graph: bool = False) -> None:
            self._steps: list[Callable[[], object]] = []
            self._operations = _Operations(facade, self._steps)
            self._memory: tuple[torch.UntypedStorage, ...] = ()

        def capture_begin(self, *args: Any, **kwargs: Any) -> None:
            if session.held_back is not None:
                raise RuntimeError(_WHILE_CAPTURING)
            self._steps.clear()
            session.held_back = self._steps
            self._operations.__enter__()  # type: ignore[no-untyped-call]

        def capture_end(self) -> None:
            self._operations.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            session.held_back = None
            self._memory = tuple(claim.storage for claim in facade.claims())  # a replay may be all that uses it

        def replay(self) -> None:
            for step in self._steps:
                step()

        def reset(self) -> None:
            self._steps.clear()
            self._memory = ()

        def pool(self) -> tuple[int, int]:
            return (0, 0)

        def _nothing(self, *args: Any) -> None:
            return None

        instantiate = enable_debug_mode = debug_dump = _nothing

    @contextmanager
    def graph(cuda_graph: CUDAGraph, *args: Any, **kwargs: Any) -> Iterator[None]:
        cuda_graph.capture_begin()
        try:
            yield
        finally:
            cuda_graph.capture_end()

    answers = {
        "CUDAGraph": CUDAGraph,
        "graph": graph,
        "graph_pool_handle": lambda: (0, 0),
        "is_current_stream_capturing": lambda: session.held_back is not None,
    }
    patches.set_existing(torch.cuda, answers)


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Holds back torch's operations while it is entered; it sees them below autograd."""

    def __init__(self, facade: Facade, steps: list[Callable[[], object]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._facade, self._steps = facade, steps

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        given = [value for value in flat((*args, *named.values())) if isinstance(value, torch.Tensor)]
        on_cuda = any(self._facade.says_cuda(value) for value in given)
        if on_cuda and func is _ATEN._local_scalar_dense.default:
            raise RuntimeError(_WHILE_CAPTURING)
        if on_cuda and (written := list(_written(func, args, named))):
            self._steps.append(lambda: func(*args, **named))
            returned = written[: len(func._schema.returns)]
            return returned[0] if len(returned) == 1 else tuple(returned) or None
        result = func(*args, **named)
        if (on_cuda or not given) and not func.is_view and func.overloadpacket not in _WITHOUT_VALUES:
            self._steps.append(lambda: self._refill(result, func(*args, **named)))
        return result

    def _refill(self, result: Any, again: Any) -> None:
        for old, new in zip(flat((result,)), flat((again,)), strict=True):
            if isinstance(old, torch.Tensor) and self._facade.says_cuda(old):  # `torch.zeros` poses once it is marked
                old.copy_(new)


def _written(func: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[Any]:
    """The arguments that an operation writes into, in the order of its results."""
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            yield args[index] if index < len(args) else named.get(argument.name)
