"""What PyTorch and float64 give for inputs, computed once for all that is judged by it, and comparisons with it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from cutesmith.errors import ContractError, UnavailableError
from cutesmith.judge.reference_side.allowances import compared
from cutesmith.judge.reference_side.comparison import Comparison
from cutesmith.judge.reference_side.open_ties import other_orders
from cutesmith.judge.reference_side.precision import in_float64
from cutesmith.judge.reference_side.problem_calls import native_outputs
from cutesmith.judge.reference_side.tolerance import Tolerance
from cutesmith.judge.transfer.tensors import copy_of
from cutesmith.problems.precision_flags import exact_convolutions

KEPT_BYTES = 2 << 30  # of results that are kept for the next output of the same inputs: others are on the GPU too
E8M0 = torch.float8_e8m0fnu
TRIED_BYTES = 1 << 20  # of results of inputs that were tried
Outputs = list[torch.Tensor]
Exact = list["torch.Tensor | None"]
Results = tuple[Outputs, bool, Exact]  # PyTorch's, whether a tuple, in float64


@dataclass
class KnownResults:
    """The results of one function on one device: "cuda", or one whose tensors are those of a CPU."""

    function: Callable[..., Any]
    device: str = "cpu"
    _results: dict[str, tuple[list[Any], Results]] = field(default_factory=dict)  # with the inputs that they are for
    _tried: list[tuple[Sequence[Any], tuple[Outputs, bool]]] = field(default_factory=list)  # PyTorch's alone, likewise

    def keep_those_of(self, drawn: Mapping[str, list[Any]]) -> None:
        """Forget the results of all other inputs: their memory is needed."""
        self._results = {key: known for key, known in self._results.items() if key in drawn}
        self._tried = [(values, known) for values, known in self._tried if _is_one_of(values, drawn.values())]

    def native(self, values: Sequence[Any]) -> tuple[Outputs, bool]:
        """PyTorch's own result for copies of the inputs, and whether it is a tuple; raises what the function does."""
        outputs, is_tuple = self._native(self.function, values)
        if self.device != "cuda" and sum(output.nbytes for output in outputs) <= TRIED_BYTES:
            self._tried.append((values, (outputs, is_tuple)))
        return outputs, is_tuple

    def refusal(self, values: Sequence[Any]) -> str:
        """Why the function does not take these inputs; empty when it does."""
        try:
            outputs, _ = self.native(values)
        except Exception as error:  # noqa: BLE001 - whatever it is, the function refuses these inputs
            return f"{type(error).__name__}: {str(error)[:300]}"
        return "" if outputs else "it returns nothing"

    def of(self, key: str, values: list[Any]) -> Results:
        """PyTorch's and the float64 results of inputs under a key; ContractError for inputs that are refused."""
        inputs, known = self._results.pop(key, (None, None))
        if known is None or inputs is not values:
            known = None  # its memory is needed
            native, is_tuple = self._tried_or_native(values)
            known = native, is_tuple, _exact(self.function, values, native)
        if sum(tensor.nbytes for tensor in (*known[0], *known[2]) if tensor is not None) <= KEPT_BYTES:
            self._results[key] = values, known
        return known

    def compared(
        self, key: str, values: list[Any], actual: Outputs, stated: list[Tolerance], *, strict: bool, rounding: bool
    ) -> list[Comparison]:
        """Outputs for the inputs under a key, as `allowances.compared` has them.

        What is wrong is compared again with the other orders of equal elements that PyTorch leaves open; if it is wrong
        by each of them, the one that leaves the fewest wrong elements is told.
        """
        native, _, exact = self.of(key, values)
        first = self.function
        if any(own.dtype == E8M0 for own in native):
            first = of_exponents(first)
            actual, native, exact = ([*map(_exponents, side)] for side in (actual, native, exact))
        limits = {"strict": strict, "rounding": rounding}
        best = compared(first, self._both(first), values, (actual, native, exact), stated, **limits)
        if not _wrong(best):
            return best
        for function in other_orders(first, values, actual):
            native, exact = self._both(function)(values)
            results = compared(function, self._both(function), values, (actual, native, exact), stated, **limits)
            if not _wrong(results):
                return [replace(results[0], note="; ".join(filter(None, (results[0].note, _TIES)))), *results[1:]]
            best = min(best, results, key=_wrong)
        return best

    def _tried_or_native(self, values: list[Any]) -> tuple[Outputs, bool]:
        if known := next((known for tried, known in self._tried if tried is values), None):
            return known
        try:
            return self.native(values)
        except ContractError:
            raise
        except Exception as error:
            raise ContractError(
                f"reference_fn raised {type(error).__name__}: {str(error)[:1000]}",
                hint="reference_fn(*get_inputs()) must work as it stands.",
            ) from error

    def _native(self, function: Callable[..., Any], values: Sequence[Any]) -> tuple[Outputs, bool]:
        """On a GPU without tf32 in convolutions: what that costs is allowed by measure (`rounded_factors`).

        Twice PyTorch's own error would allow it again.
        """
        with exact_convolutions():
            result = native_outputs(function, [copy_of(value) for value in values])
        if self.device == "cuda":
            torch.cuda.synchronize()
        return result

    def _both(self, function: Callable[..., Any]) -> Callable[[list[Any]], tuple[Outputs, Exact]]:
        """PyTorch's and the float64 results of a function."""

        def both(values: list[Any]) -> tuple[Outputs, Exact]:
            known = self._tried_or_native(values) if function is self.function else self._native(function, values)
            return known[0], _exact(function, values, known[0])

        return both


def of_exponents(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with its powers of two (float8_e8m0fnu) as integers, which they are: one step is a factor of two.

    As floats each would be within a unit in the last place of its neighbours.
    """

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        returned = function(*arguments, **named)
        return tuple(map(_exponents, returned)) if isinstance(returned, (tuple, list)) else _exponents(returned)

    return call


def _exponents(result: Any) -> Any:
    power = isinstance(result, torch.Tensor) and result.dtype == E8M0
    return result.contiguous().view(torch.uint8).to(torch.int32) if power else result


_TIES = "equal elements are in another order than PyTorch's, which leaves it open"


def _wrong(results: Iterable[Comparison]) -> int:
    """How many elements are wrong; 1 where what is wrong cannot be counted."""
    return sum(max(1, result.error.mismatches) for result in results if result.violation)


def _exact(function: Callable[..., Any], values: list[Any], native: Outputs) -> Exact:
    """The float64 results, None for each where there is no such thing."""
    try:
        returned = in_float64(function, [copy_of(value) for value in values])
    except UnavailableError:
        raise
    except Exception:  # noqa: BLE001 - not every operation exists in float64
        return [None] * len(native)
    outputs = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    return [
        exact if exact.shape == own.shape and exact.is_floating_point() == own.is_floating_point() else None
        for exact, own in zip(outputs, native)
    ]


def _is_one_of(values: Sequence[Any], others: Iterable[Sequence[Any]]) -> bool:
    return any(values is other for other in others)
