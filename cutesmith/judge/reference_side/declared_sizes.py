"""Smaller inputs of a problem that says itself how: `get_inputs` called with EMULATED_SIZES.

Sizes of its inputs belong together (page tables, a width and a head's part of it), so that a longer case takes no rows
away from what a GPU gets. It calls `get_inputs` with one of these arguments as it is by default.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from cutesmith.judge.reference_side.cases import Values, count_elements
from cutesmith.judge.reference_side.longer_cases import MOST_CASES, Longer, Refusal
from cutesmith.judge.reference_side.requests import LongSize


@dataclass(frozen=True)
class DeclaredSizes:
    """EMULATED_SIZES, the arguments of `get_inputs` by default, and its inputs for such keyword arguments, checked."""

    sizes: Mapping[str, Any]
    defaults: Mapping[str, int]
    draw: Callable[[Mapping[str, Any]], Values]

    @classmethod
    def of(
        cls, sizes: Mapping[str, Any], get_inputs: Callable[..., Any], draw: Callable[[Mapping[str, Any]], Values]
    ) -> DeclaredSizes:
        """With the whole numbers that `get_inputs` has by default."""
        parameters = inspect.signature(get_inputs).parameters.values()
        return cls(sizes, {p.name: p.default for p in parameters if type(p.default) is int}, draw)

    def long_sizes(self) -> list[LongSize]:
        """The arguments that deserve a longer case: those that are smaller here, the most so first."""
        known = {name: size for name, size in self.sizes.items() if isinstance(size, int) and size > 0}
        smaller = {name: size for name, size in known.items() if size < self.defaults.get(name, 0)}
        most = sorted(smaller, key=lambda name: smaller[name] / self.defaults[name])[:MOST_CASES]
        return [LongSize(self.defaults[name], argument=name) for name in most]

    def longest(self, long: LongSize, elements: int, refusal: Refusal) -> Longer:
        """The argument doubled from what EMULATED_SIZES has, until it is whole or more is refused."""
        best, size = Longer(long.size, 0, {}), self.sizes[long.argument]
        while size < long.size:
            size = min(2 * size, long.size)
            inputs = self.draw({**self.sizes, long.argument: size})
            count = count_elements([value for value in inputs if isinstance(value, torch.Tensor)], {})
            too_many = f"{count:,} elements take the emulated GPU too long" if count > elements else ""
            if why := too_many or refusal(inputs):
                return Longer(long.size, best.kept, {}, why, inputs=best.inputs)
            best = Longer(long.size, size, {}, inputs=inputs)
        return best
