"""Results that depend on an order of equal elements which PyTorch leaves open, as `topk` and `sort` do.

Which of equal elements a kernel names cannot be compared with what PyTorch names: the reference runs again with another
order, and everything that it computes from the places follows. The order is one that an output of the candidate names,
where the reference returns the places. Where it does not, the first of equal elements come first, or the last. A place
that names an element which is not equal, or one that was named before, does not count: PyTorch's own stay in its row.
In float64 elements differ that bfloat16 rounds to one number, as the scores of a router's experts. So what PyTorch
names in the function's own types is taken there too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from cutesmith.judge.draws.watching import leaves_ties_open
from cutesmith.judge.transfer.tensors import copy_of

Function = Callable[..., Any]
# Where these take the dimension, counted with the tensor itself as 0; without one `median` returns no places.
_DIMENSION_AT = {"topk": 2, "kthvalue": 2, "sort": 1, "argsort": 1, "median": 1, "nanmedian": 1, "mode": 1}
_SORTED_AT = 4  # of topk's arguments
_CLOSE = 1e-3  # results that differ by roundings alone, as sums in another order do, are the same


@dataclass(frozen=True)
class Ordered:
    """What one call names: `begins` tells of each element where those equal to it begin in sorted order.

    `places` are those of the result; both have the dimension that is ordered last. `in_order`: the places follow the
    order of the elements.
    """

    begins: torch.Tensor
    places: torch.Tensor
    in_order: bool = True

    def first(self) -> torch.Tensor:
        """The places with the first of equal elements first."""
        return self._preferring(_positions(self.begins))

    def last(self) -> torch.Tensor:
        """The places with the last of equal elements first."""
        return self._preferring(_positions(self.begins).flip(-1))

    def as_given(self, given: torch.Tensor) -> torch.Tensor:
        """The places, of which the first ones are `given`, in rows where these name an order; others stay."""
        size, count = self.begins.shape[-1], given.shape[-1]
        inside = (given >= 0) & (given < size)
        safe = torch.where(inside, given, 0)
        found, wanted = self.begins.gather(-1, safe), self._wanted[..., :count]
        if not self.in_order and count == self.places.shape[-1]:
            found, wanted = found.sort(-1).values, wanted.sort(-1).values
        fits = (inside & (found == wanted)).all(-1) & (safe.sort(-1).values.diff(dim=-1) != 0).all(-1)
        taken = torch.zeros_like(self.begins).scatter(-1, safe, 1)
        others = self._preferring(_positions(self.begins) + size * (1 - taken))
        return torch.where(fits.unsqueeze(-1), torch.cat([safe, others[..., count:]], -1), self.places)

    @property
    def _wanted(self) -> torch.Tensor:
        """Of each place, where the elements equal to its own begin."""
        return self.begins.gather(-1, self.places)

    def _preferring(self, priority: torch.Tensor) -> torch.Tensor:
        """The places with equal elements in the order of their `priority`, less than twice as many as elements."""
        wanted = self._wanted
        by_priority = (self.begins * 2 * self.begins.shape[-1] + priority).argsort(-1)
        return by_priority.gather(-1, wanted + _earlier(wanted))


Choice = Callable[[Ordered], torch.Tensor]


@dataclass(frozen=True)
class Call:
    """The places that a call of a function returned, and along which dimension of its input."""

    name: str
    places: torch.Tensor
    dimension: int
    keeps: bool  # that dimension

    def apart(self, places: torch.Tensor) -> torch.Tensor:
        """Places of its shape, or the first ones of each row, with the dimension last."""
        if places.numel() == self.places.numel():
            places = places.reshape(self.places.shape)
        return (places if self.keeps else places.unsqueeze(self.dimension)).movedim(self.dimension, -1)

    def together(self, apart: torch.Tensor) -> torch.Tensor:
        """The other way round."""
        moved = apart.movedim(-1, self.dimension)
        return moved if self.keeps else moved.squeeze(self.dimension)

    def is_in(self, result: torch.Tensor) -> bool:
        """Whether a result has all of these places, whatever its shape, or the first ones of each row."""
        if result.is_floating_point() or result.is_complex() or not result.numel():
            return False
        if result.numel() == self.places.numel():
            return torch.equal(result.reshape(self.places.shape).to(torch.int64), self.places)
        if not self.keeps or result.ndim != self.places.ndim:
            return False
        count = result.shape[self.dimension]
        first = self.places.narrow(self.dimension, 0, min(count, self.places.shape[self.dimension]))
        return first.shape == result.shape and torch.equal(result.to(torch.int64), first)


class Choosing(TorchFunctionMode):  # type: ignore[misc,no-untyped-call,unused-ignore]
    """Within it, functions that leave the order of equal elements open name others of them.

    By the `choice`, or by the places that are `given` for the number of a call, if they name equal elements; or those
    of the calls that were made before, whatever they name. `calls` are those that were made.
    """

    def __init__(
        self, choice: Choice | None = None, given: Mapping[int, torch.Tensor] = {}, before: Sequence[Call] = ()
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.choice, self.given, self.before = choice, given, before
        self.calls: list[Call] = []

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        result, name = func(*args, **named), getattr(func, "__name__", "")
        if not leaves_ties_open(name, named) or "out" in named:
            return result
        places = result if name == "argsort" else result[1] if isinstance(result, tuple) else None
        elements = args[0] if args else named["input"]
        if places is None or not places.numel() or not elements.ndim:
            return result
        at = _DIMENSION_AT[name]
        dimension = int(args[at] if len(args) > at else named.get("dim", -1)) % elements.ndim
        call = Call(name, places, dimension, places.ndim == elements.ndim)
        in_order = name != "topk" or bool(args[_SORTED_AT] if len(args) > _SORTED_AT else named.get("sorted", True))
        with torch._C.DisableTorchFunction():
            chosen = self._chosen(call, elements, in_order=in_order)
        self.calls.append(call if chosen is None else replace(call, places=chosen[1]))
        if chosen is None:
            return result
        return type(result)(chosen) if isinstance(result, tuple) else chosen[1]

    def _chosen(self, call: Call, elements: torch.Tensor, *, in_order: bool) -> tuple[torch.Tensor, ...] | None:
        """Other elements and places than a call names; None where its own stay."""
        given, number = self.given.get(len(self.calls)), len(self.calls)
        apart = elements.movedim(call.dimension, -1)
        if number < len(self.before) and self.before[number].places.shape == call.places.shape:
            places = self.before[number].places
            return call.together(apart.gather(-1, call.apart(places))), places
        if given is None and self.choice is None:
            return None
        order = Ordered(_begins(apart)[1], call.apart(call.places), in_order)
        if given is not None:
            chosen = order.as_given(call.apart(given.to(torch.int64)))
        else:
            assert self.choice is not None
            chosen = self.choice(order)
        return call.together(apart.gather(-1, chosen)), call.together(chosen)


def other_orders(function: Function, values: Sequence[Any], outputs: Sequence[torch.Tensor]) -> Iterator[Function]:
    """The function with each other order of equal elements that a candidate may have taken, as its `outputs` tell.

    None for a function that leaves no order open.
    """
    calls, results = _called(function, values)
    given = {call: outputs[place] for call, place in _shown(calls, results).items()}
    choices: list[Choice | None] = [None] if given else []
    if len(given) < len(calls):
        choices += [Ordered.first, Ordered.last]
    for choice in choices:
        yield _within(function, Choosing(choice, given))
    for choice in dict.fromkeys([None, *choices] if calls else []):
        named, _ = _called(function, values, choice, given)
        yield _within(function, Choosing(before=named))


def undecided_orders(function: Function, values: Sequence[Any]) -> list[str]:
    """Names of the functions whose order of equal elements PyTorch leaves open, no output shows, and results depend on.

    Such as `topk` where a mask is made of its places.
    """
    calls, results = _called(function, values)
    shown = _shown(calls, results)
    hidden = sorted({call.name for number, call in enumerate(calls) if number not in shown})
    others = (_called(function, values, choice)[1] for choice in (Ordered.first, Ordered.last) if hidden)
    return [] if all(_alike(*pair) for other in others for pair in zip(results, other)) else hidden


def _within(function: Function, choosing: Choosing) -> Function:
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        with Choosing(choosing.choice, choosing.given, choosing.before):
            return function(*arguments, **named)

    return call


def _called(
    function: Function,
    values: Sequence[Any],
    choice: Choice | None = None,
    given: Mapping[int, torch.Tensor] = {},
) -> tuple[list[Call], tuple[torch.Tensor, ...]]:
    """The calls that leave an order open, and what the function returns for copies of the values."""
    with torch.no_grad(), Choosing(choice, given) as choosing:
        returned = function(*[copy_of(value) for value in values])
    return choosing.calls, tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)


def _shown(calls: Sequence[Call], results: Sequence[torch.Tensor]) -> dict[int, int]:
    """By the number of a call, the first output that has its places."""
    found: dict[int, int] = {}
    for number, call in enumerate(calls):
        outputs = [place for place, result in enumerate(results) if call.is_in(result)]
        found |= {number: outputs[0]} if outputs else {}
    return found


def _alike(result: torch.Tensor, other: torch.Tensor) -> bool:
    if result.is_floating_point():
        return torch.allclose(result.double(), other.double(), _CLOSE, _CLOSE, equal_nan=True)
    return torch.equal(result, other)


def _positions(rows: torch.Tensor) -> torch.Tensor:
    return torch.arange(rows.shape[-1], device=rows.device).expand(rows.shape)


def _begins(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The order of each sorted row, and of each element where those equal to it begin; NaN is equal to NaN."""
    values, order = rows.sort(dim=-1, stable=True)
    both_nan = values[..., 1:].isnan() & values[..., :-1].isnan()
    other = (values[..., 1:] != values[..., :-1]) & ~both_nan
    positions = _positions(rows)
    begins = torch.cat([positions[..., :1], torch.where(other, positions[..., 1:], 0)], -1).cummax(-1).values
    return order, torch.empty_like(order).scatter(-1, order, begins)


def _earlier(rows: torch.Tensor) -> torch.Tensor:
    """Of each element, how many equal ones stand before it in its row."""
    order, begins = _begins(rows)
    return torch.empty_like(order).scatter(-1, order, _positions(rows)) - begins
