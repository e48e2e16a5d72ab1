"""A problem's inputs at sizes that a CPU likes: shapes without storage first, then values, with fewer rows if many.

Runs in a worker; the file's own code is called in here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from cutesmith.errors import ContractError
from cutesmith.judge.reference_side.cases import Values, halved, resize, smaller_sizes
from cutesmith.judge.reference_side.problem_calls import (
    call_of_file,
    emulated_sizes,
    items_of,
    names_beside,
    native_outputs,
    seed_everything,
)
from cutesmith.problems import contract
from cutesmith.problems.loading import load_file
from cutesmith.timing.algorithmic_work import counting

ELEMENTS = 1 << 16  # of all inputs of a draw together
MOST_SETS = 16
LEAST_INNER = 8  # of an image or a sequence: convolutions and windows need some
Draw = Callable[[int], "Values | None"]  # seed -> inputs; None where this way does not lead to any
_SHAPED = frozenset({torch.rand, torch.randn, torch.zeros, torch.ones, torch.empty, torch.randperm, torch.eye})
_COUNTED = frozenset({torch.arange, torch.randint})  # ends and bounds are sizes as well: positions, labels
_FILLED = frozenset({torch.full, torch.empty_strided})  # only the first argument is a shape
_METHODS = frozenset({torch.Tensor.new_zeros, torch.Tensor.new_ones, torch.Tensor.new_empty})
_SIZE_NAMES = ("size", "n", "end", "high")


@dataclass
class Problem:
    """A loaded problem, what is known of its shapes, and how its inputs can be drawn.

    `shapes` are the inputs of get_inputs() and `outputs` what the reference returns for them, without storage (None and
    empty where that needs values); `set_elements` those of every set of get_input_sets(); a draw holds no more than
    `host_bytes`.
    """

    path: Path
    host_bytes: int
    loaded: Any = None
    shapes: Values | None = None
    set_elements: list[int] = field(default_factory=list)
    outputs: Values = field(default_factory=list)
    flops: dict[str, int] | None = None  # tensor-core operations of that call by dtype; None where it needs values
    smaller_failure: str = ""  # what get_inputs() raised when its sizes were made smaller
    shapeless: Callable[..., Any] | None = None  # the reference as loaded where tensors have no storage

    @property
    def reference_fn(self) -> Callable[..., Any]:
        """The function itself."""
        function: Callable[..., Any] = self.loaded.reference_fn
        return function

    def learn_inputs(self) -> None:
        """Shapes of the inputs without values, under `cuda_as_cpu(fake=True)`; drawing tells what is wrong."""
        try:
            with torch.device("meta"):  # what is drawn on the CPU and moved has no values either
                self.load()
                self.shapeless = self.reference_fn
                self.shapes = contract.check_inputs(self.loaded.get_inputs())
                sets = self.loaded.get_input_sets
                self.set_elements = [] if sets is None else [elements_of(values) for values in sets()]
        except Exception:  # noqa: BLE001 - it may need values
            self.shapeless = None

    def learn_outputs(self) -> None:
        """Shapes of the outputs and the operations that they take, likewise."""
        if self.shapeless is None or self.shapes is None:
            return
        shapeless = self.shapeless
        try:
            with torch.device("meta"):
                self.outputs, self.flops = counting(lambda *v: native_outputs(shapeless, v)[0], self.shapes)
        except Exception:  # noqa: BLE001 - it may need values
            self.outputs = []

    def load(self) -> None:
        """Run what the reference needs of the file. Raises ContractError."""
        source = contract.problem_source(self.path)
        names = (*contract.PROBLEM_NAMES, *contract.DRAWING_OPTIONS, "torch")
        self.loaded = load_file(self.path, strip=names_beside(source, self.path, names))

    def measure(self) -> Values:
        """The inputs of get_inputs() as they are for, without storage where possible. Raises ContractError."""
        if self.shapes is None:
            self.shapes = self._whole(0)
        return self.shapes

    def ways(self) -> Iterator[Draw]:
        """How get_inputs() can be drawn: of EMULATED_SIZES where the file declares them, else the cheapest first."""
        shapes = self.measure()
        if declared := emulated_sizes(self.loaded.module):
            yield partial(self._whole, sizes=declared)
        everything = [*shapes, *self.outputs]  # an outer product has small inputs
        if elements_of(everything) <= ELEMENTS:
            yield self._whole
            return
        sizes = list(smaller_sizes(everything, ELEMENTS)) if not self.state else self._sizes_beside_state(shapes)
        yield from (partial(self._with_smaller_factories, smaller) for smaller in sizes)
        if self.is_bound:
            return
        if bytes_of(shapes) <= self.host_bytes:
            yield from (lambda seed, smaller=smaller: resize(self._whole(seed), smaller) for smaller in sizes)
            yield self._whole

    @property
    def is_bound(self) -> bool:
        """Whether its sizes belong together (`DERIVED_SHAPES = False`), so that its own sets are its smaller draws."""
        return bool(self.set_elements) and not getattr(self.loaded.module, "DERIVED_SHAPES", True)

    @property
    def state(self) -> int:
        """How many of the inputs, the last ones, are parameters and buffers of a KernelBench model."""
        return len(getattr(self.loaded.module, "STATE_NAMES", ()))

    def _sizes_beside_state(self, shapes: Values) -> list[dict[int, int]]:
        """Smaller sizes of a model's own inputs: those of its parameters belong to its structure, and stay."""
        given, state = tensors_of(shapes[: -self.state]), tensors_of(shapes[-self.state :])
        kept = {size for value in state for size in value.shape}
        leading = {size for value in given for size in value.shape[:1]} - kept
        inner = {size for value in given for size in value.shape[1:]} - kept
        least = {**dict.fromkeys(inner, LEAST_INNER), **dict.fromkeys(leading, 1)}
        ways = [halved(given, dict.fromkeys(leading, 1), ELEMENTS), halved(given, least, ELEMENTS)]
        return [way for way in ways[::-1] if way]

    def sets(self, seed: int) -> Iterator[Values]:
        """The first sets of get_input_sets(), each cut to `ELEMENTS`. Raises ContractError."""
        if self.loaded.get_input_sets is None or 4 * sum(self.set_elements) > self.host_bytes:
            return
        seed_everything(seed)
        for number, values in enumerate(items_of(self.loaded.get_input_sets, "get_input_sets")):
            if number == MOST_SETS:
                return
            yield contract.check_inputs(values, where=f"get_input_sets()[{number}]")

    def _whole(self, seed: int, sizes: Mapping[str, int] = {}) -> Values:
        """The inputs of get_inputs(), with these of its keyword arguments."""
        seed_everything(seed)
        return contract.check_inputs(call_of_file(partial(self.loaded.get_inputs, **sizes), (), "get_inputs"))

    def _with_smaller_factories(self, sizes: dict[int, int], seed: int) -> Values | None:
        try:
            with SmallerFactories(sizes):  # type: ignore[no-untyped-call,unused-ignore]
                values = self._whole(seed)
        except ContractError as error:  # its own sizes no longer fit together, or it fails at any size
            self.smaller_failure = error.message
            return None
        wanted = [[sizes.get(size, size) for size in value.shape] for value in tensors_of(self.measure())]
        return values if [list(value.shape) for value in tensors_of(values)] == wanted else None


def tensors_of(values: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors among inputs or outputs."""
    return [value for value in values if isinstance(value, torch.Tensor)]


def elements_of(values: Sequence[Any]) -> int:
    """How many elements all tensors have together."""
    return sum(math.prod(value.shape) for value in tensors_of(values))


def bytes_of(values: Sequence[Any]) -> int:
    """How many bytes the elements of all tensors have."""
    return sum(math.prod(value.shape) * value.element_size() for value in tensors_of(values))


class SmallerFactories(TorchFunctionMode):  # type: ignore[misc,no-untyped-call,unused-ignore]
    """Within it, torch's factories see `sizes[n]` wherever a size is `n`.

    `get_inputs` of a large problem draws for seconds what is then cut to a few rows; here `torch.randn(16384, 4096)`
    draws 64 × 4096 straight away. Its user compares the shapes that came out with those that were meant, as code that
    computes with its own sizes may see the difference.
    """

    def __init__(self, sizes: Mapping[int, int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self._sizes = sizes

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if func in _SHAPED | _COUNTED:
            args = tuple(map(self._smaller, args))
        elif func in _FILLED:
            args = (*map(self._smaller, args[:1]), *args[1:])
        elif func in _METHODS:
            args = (args[0], *map(self._smaller, args[1:]))
        if func in _SHAPED | _COUNTED | _FILLED | _METHODS:
            named |= {name: self._smaller(named[name]) for name in _SIZE_NAMES if name in named}
        return func(*args, **named)

    def _smaller(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return (
                type(value)(map(self._smaller, value))
                if type(value) in (tuple, list)
                else tuple(map(self._smaller, value))
            )
        return self._sizes.get(value, value) if isinstance(value, int) and not isinstance(value, bool) else value
