"""Inputs that the problem does not draw: what the reference takes of them decides which cases there are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from cutesmith.judge.draws.cases import ANY_INTEGER, NEGATIVE_INDICES, SAFE_FIRST, Drawing, Way, is_free
from cutesmith.judge.draws.domains import declared
from cutesmith.judge.draws.kinds import Role, kinds_of
from cutesmith.judge.draws.watching import Seen, TooLargeError, Watching, watch
from cutesmith.judge.reference_side.cases import Values, distinct_sizes, resize, smaller_sizes
from cutesmith.judge.reference_side.open_ties import undecided_orders
from cutesmith.judge.reference_side.other_shapes import ODD, OtherShapes, sizes_that_may_stay
from cutesmith.judge.reference_side.problem_calls import native_outputs
from cutesmith.judge.reference_side.requests import Planned
from cutesmith.judge.reference_side.size_rules import SizeRules, possible_rules
from cutesmith.judge.transfer.tensors import copy_of, finite
from cutesmith.sandbox.failures import out_of_host_memory
from cutesmith.verdicts import InputKind

Native = Callable[[Sequence[Any]], tuple[list[torch.Tensor], bool]]
UNCHANGED = "it changes no input of this problem"
MOST_NAN = 0.9  # of the results of a draw: with more it says nothing
FEW_ELEMENTS = 1 << 14  # of inputs that are tried on the CPU first
MOST_BEYOND = 8  # numbers that are tried one by one
LARGEST_VALUE = 128 << 20  # bytes; the judge holds several such at once, in float64 too
ALL_ELEMENTS = 1 << 20  # as many are tried there as they were drawn


@dataclass(frozen=True)
class Tried:
    """What PyTorch makes of inputs: why it refuses them, or its share of NaN; `hollow`: no result is finite."""

    refused: str = ""
    nan: float = 1.0
    hollow: bool = False


Trial = Callable[[Way, Values], Tried]


@dataclass(frozen=True)
class OtherInputs:
    """Draws for one problem; `native` is the reference on copies of inputs, `gpu` says where."""

    reference_fn: Callable[..., Any]
    drawing: Drawing
    shapes: OtherShapes
    native: Native
    gpu: bool
    related: list[SizeRules | None] = field(default_factory=list)  # once they were looked for

    @classmethod
    def of(
        cls,
        reference_fn: Callable[..., Any],
        first: Values,
        full: Values,
        native: Native,
        *,
        gpu: bool,
        domain: Any,
        sizes: bool,
    ) -> OtherInputs:
        """By the inputs at full size, and by what the reference decides by on the `first` that it is called with.

        `domain` is the problem's DOMAIN, None without one; raises ContractError for one that is wrong. `sizes`: whether
        the contract promises other sizes.
        """
        kinds = declared({} if domain is None else domain, kinds_of(reference_fn, full))
        try:
            seen = watch(reference_fn, [copy_of(value) for value in first])
        except Exception:  # noqa: BLE001 - it will be told where its results are wanted
            seen = Seen()
        kept = frozenset(place for place, kind in enumerate(kinds) if not is_free(kind))
        shapes = OtherShapes(tuple(kind.name for kind in kinds), first, sizes, kept)
        return cls(reference_fn, Drawing(kinds, seen), shapes, native, gpu)

    def plan(self, *, quick: bool) -> Planned:
        """Cases of values, of sizes where the contract allows them, and of layouts; which draws change which input.

        `quick`: offsets and scales of floats, and few sizes and layouts, for an inner loop.
        """
        cases = (*self.drawing.cases(quick=quick), *self.shapes.cases(quick=quick))
        names = dict.fromkeys(name for case in cases for name in case.draws)
        changed = {name: self.drawing.changed_by(name) or self.shapes.changed_by(name) for name in names}
        left_out = self.drawing.left_out if not quick else lambda place: {}
        kinds = tuple(
            InputKind(
                kind.name,
                kind.words,
                kind.domain,
                tuple(name for name in names if place in changed[name]),
                left_out(place),
            )
            for place, kind in enumerate(self.drawing.kinds)
        )
        every = (*self.drawing.cases(quick=False), *self.shapes.cases(quick=False)) if quick else ()
        left = tuple(case.name for case in every if not names.keys() >= {*case.draws})
        return Planned(cases, kinds, left)

    def keeps_sizes(self, name: str) -> bool:
        """Whether a draw changes values alone."""
        return name in self.drawing.draws

    def may_be_quicker(self, name: str, sizes: Collection[int], *, own_sizes: bool) -> bool:
        """Whether these sizes of a draw decide nothing that it is for."""
        draw = self.shapes.draws.get(name)
        return self.keeps_sizes(name) or (draw is not None and draw.may_be_quicker(sizes, own_sizes=own_sizes))

    def draw(self, name: str, inputs: Values, *, own_sizes: bool = False) -> tuple[Values, str]:
        """The inputs of one draw, in the way that gives the fewest NaN; or why the reference takes none.

        If it refuses a draw of several inputs, those are changed that it takes. `own_sizes`: sizes stay in any case.
        """
        if not self.keeps_sizes(name):
            return self._of_another_shape(name, inputs, own_sizes=own_sizes)
        ways = self.drawing.draws[name]
        if name in (NEGATIVE_INDICES, *ANY_INTEGER):
            larger, why = self.draw("large integers", inputs)
            free = {place for place, pair in enumerate(zip(larger, inputs)) if not _equal(*pair)}
            if name == NEGATIVE_INDICES:
                free, why = set(range(len(inputs))) - free, "no input is an index: the reference takes any integer"
            ways = tuple(way.only(free) for way in ways)
            if not ways[0].places:
                return [], why if name == NEGATIVE_INDICES else f"as an index: {why}"
        trial = self._trial_of(name, inputs)
        best, why = self._best(trial, inputs, ways)
        best = best or self._of_those_taken(trial, inputs, ways[0])
        if best and self.drawing.seen.open_ties and undecided_orders(self.reference_fn, best):
            return [], "PyTorch leaves open which of equal elements comes first, and no result shows it"
        return best, "" if best else why

    def _best(self, trial: Trial, inputs: Values, ways: Sequence[Way]) -> tuple[Values, str]:
        """The inputs changed in the first way with the fewest NaN, or why the reference takes none."""
        best, least, why = list[Any](), MOST_NAN, UNCHANGED
        for way in ways:
            values = self.drawing.changed(way, inputs)
            if way.places and all(map(_equal, values, inputs)):
                continue
            tried = trial(way, values)
            why = tried.refused or f"the reference gives NaN for {tried.nan:.0%} of its results"
            if not tried.refused and tried.nan < least:
                best, least = values, tried.nan
            if best and not least:
                break
        return best, why

    def _of_those_taken(self, trial: Trial, inputs: Values, way: Way) -> Values:
        """The inputs with those changed that the reference takes so, one after another; none if it takes none."""
        taken = inputs
        for place in way.places if len(way.places) > 1 else ():
            alone = replace(way.only({place}), largest=None)
            values = [*taken[:place], self.drawing.changed(alone, inputs)[place], *taken[place + 1 :]]
            if _equal(values[place], inputs[place]):
                continue
            tried = trial(alone, values)
            taken = values if not tried.refused and tried.nan < MOST_NAN else taken
        return [] if taken is inputs else taken

    def _trial_of(self, name: str, inputs: Values) -> Trial:
        """A trial of ways to make a draw: the share of NaN among the results, and why the reference refuses it.

        On a GPU few elements are tried on the CPU first, where an operation may refuse values.
        """
        asserts = self._may_assert
        ranges = asserts and not self._refused_on_the_cpu(Way(), inputs, drawn=inputs)  # not of borders of rows
        tried_first = asserts and (ranges or name in SAFE_FIRST or self._runs_on_the_cpu(inputs))

        def trial(way: Way, values: Values) -> Tried:
            refused = ""
            if tried_first:
                refused = self._refused_on_the_cpu(way, inputs, values if ranges else ())
                if not (ranges and _elements(values) <= ALL_ELEMENTS):  # else all were tried
                    refused = refused or self._refused_beyond(inputs, values, above=name in SAFE_FIRST)
            return Tried(refused) if refused else self._try(values)

        return trial

    def _of_another_shape(self, name: str, inputs: Values, *, own_sizes: bool) -> tuple[Values, str]:
        """The inputs of one draw with as many sizes changed as the reference takes; or why it takes none.

        Sizes for which some of its results are finite come before those with NaN or Inf alone, which decide nothing.
        """
        draw, refused, hollow = self.shapes.draws.get(name), "", list[Any]()
        if draw is None:
            return [], UNCHANGED
        if own_sizes and not self.gpu and (elements := _elements(inputs)) > ALL_ELEMENTS:
            return [], f"{elements:,} elements take the emulated GPU too long"
        for rules in draw.rules(inputs, partial(self._related_sizes, inputs), own_sizes=own_sizes):
            if draw.as_odd and (why := self._refused(inputs, ODD.derive(inputs, rules))):
                refused = refused or f"of other sizes: {why}"
                continue
            values = draw.derive(inputs, rules)
            if draw.changes and _same_layout(values, inputs):
                refused = refused or UNCHANGED
                continue
            why = self._refused_as_it_is(inputs, values, alone=draw.resizes_alone)
            tried = Tried(why) if why else self._try(values)
            if not tried.refused and not tried.hollow:
                return values, ""
            refused, hollow = refused or tried.refused, hollow or ([] if tried.refused else values)
        return hollow, "" if hollow else refused

    def _related_sizes(self, inputs: Values) -> SizeRules | None:
        """The simplest relations between sizes with which the reference takes odd ones, as of `2 * width` beside width.

        They are looked for once.
        """
        if not self.related:
            sizes = distinct_sizes(inputs)
            tried = (
                rules
                for rules in possible_rules(sizes, sizes_that_may_stay(inputs))
                if not self._refused(inputs, ODD.derive(inputs, rules))
            )
            self.related.append(next(tried, None))
        return self.related[0]

    def _refused(self, inputs: Values, values: Values) -> str:
        return self._refused_as_it_is(inputs, values) or self._try(values).refused

    def changes(self, name: str, before: Values, after: Values) -> str:
        """Which inputs a draw of values changed, in which share of their elements, and by how much at most."""
        if not self.keeps_sizes(name):
            return ""
        pairs = zip(self.shapes.names, before, after)
        with torch._C.DisableTorchFunction():
            told = (f"`{name}` {_difference(old, new)}" for name, old, new in pairs if not _equal(new, old))
            return " and ".join(told)

    def _try(self, values: Values) -> Tried:
        """PyTorch's results for the inputs, unless it refuses them or leaves a result undefined."""
        try:
            with Watching(self._most_bytes) as watching:
                outputs, _ = self.native(values)
        except TooLargeError as error:
            return Tried(str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, the reference refuses these inputs
            if out_of_host_memory(error):
                return Tried("the reference needs more memory for it than there is here")
            return Tried(f"{type(error).__name__}: {str(error)[:300]}")
        if not outputs:
            return Tried("it returns nothing")
        if watching.seen.undefined_cast:
            return Tried("it casts NaN or what an integer type does not hold, which PyTorch leaves undefined")
        floats = [output for output in outputs if output.is_floating_point() and output.numel()]
        nan = max((float(output.isnan().float().mean()) for output in floats), default=0.0)
        finite_too = len(floats) < len(outputs) or any(bool(output.isfinite().any()) for output in floats)
        return Tried("", nan, hollow=not finite_too)

    @property
    def _most_bytes(self) -> int | None:
        """Of a tensor that the reference makes where there is no GPU; a state of few inputs may have many elements."""
        return None if self.gpu else max(LARGEST_VALUE, 2 * self.drawing.seen.largest)

    @property
    def _may_assert(self) -> bool:
        """Whether a draw may end the process of a GPU: another scalar may choose other operations than were seen."""
        scalars = any(kind.role is Role.SCALAR for kind in self.drawing.kinds)
        return self.gpu and (scalars or self.drawing.seen.may_refuse)

    def _runs_on_the_cpu(self, inputs: Values) -> bool:
        """Whether the reference takes inputs on the CPU; one that makes tensors on the GPU itself does not."""
        return not self._refused_on_the_cpu(Way(), inputs)

    def _refused_on_the_cpu(self, way: Way, inputs: Values, drawn: Sequence[Any] = ()) -> str:
        """Why the reference takes no such inputs: on a GPU an assertion of PyTorch, as on an index, ends the process.

        What was `drawn` is tried as it is, if it is small. Else few elements are, and integers among them have its ends
        and its range: of 8192 labels one was beyond the classes, of four none. They are made fewer in several ways, as
        64 groups do not divide half of 64 channels. Found on an H200 and an H100: probabilities beyond 1 in
        binary_cross_entropy, labels that another `ignore_index` uncovers, labels beyond the classes.
        """
        if drawn and _elements(drawn) <= ALL_ELEMENTS:
            return self._why_refused(_on_the_cpu(drawn))
        why = ""
        ways_to_shrink = list(smaller_sizes(inputs, FEW_ELEMENTS)) or [{}]
        for sizes in ways_to_shrink if drawn else ways_to_shrink[:1]:
            values = self.drawing.changed(way, _on_the_cpu(resize(inputs, sizes)))
            for place, value in enumerate(drawn):
                values[place] = _spread(values[place], value)
            if not (why := self._why_refused(values)):
                break
        return why

    def _refused_beyond(self, inputs: Values, drawn: Values, *, above: bool) -> str:
        """Why the CPU, where it takes the inputs, refuses negative integers, or those `above` all of `inputs`.

        Of few labels none may be one. Another `ignore_index` on an H100 uncovered -100 in a fifth of 8192 labels, and
        in none of the few that were tried.
        """
        for place, (value, other) in enumerate(zip(inputs, drawn)):
            if not (_is_integer(value) and _is_integer(other) and value.numel() and other.numel()):
                continue
            numbers = other.unique().cpu()
            numbers = numbers[(numbers < 0) | (above & (numbers > value.max().cpu()))]
            if not numbers.numel():
                continue
            few = _on_the_cpu(resize(inputs, next(iter(smaller_sizes(inputs, FEW_ELEMENTS)), {})))
            if self._why_refused(few):
                continue
            few = [old if isinstance(old, torch.Tensor) else new for old, new in zip(few, drawn)]
            for chosen in numbers[torch.linspace(0, len(numbers) - 1, min(MOST_BEYOND, len(numbers))).long()]:
                few[place] = few[place].clone()
                few[place].view(-1)[0] = chosen
                if why := self._why_refused([copy_of(each) for each in few]):
                    return why
        return ""

    def _refused_as_it_is(self, inputs: Values, values: Values, *, alone: bool = False) -> str:
        """Why the CPU, where it takes the inputs, refuses others with integers: so few that it can try them all.

        An input that is resized `alone` may lack what indices name: one too large to be tried stays as it is.
        """
        few = alone or _elements(values) <= ALL_ELEMENTS
        if not (self._may_assert and few and any(map(_is_integer, values))):
            return ""
        if not self._runs_on_the_cpu(inputs):
            return ""
        if _elements(values) > ALL_ELEMENTS:
            return f"an index may be beyond another size, and the CPU tries {ALL_ELEMENTS} elements at most"
        return self._why_refused(_on_the_cpu(values))

    def _why_refused(self, values: Values) -> str:
        try:
            native_outputs(self.reference_fn, values)
        except Exception as error:  # noqa: BLE001 - whatever it is, the reference refuses these inputs
            return f"{type(error).__name__}: {str(error)[:300]}"
        return ""


def _on_the_cpu(values: Sequence[Any]) -> Values:
    return [value.cpu() if isinstance(value, torch.Tensor) else value for value in values]


def _elements(values: Sequence[Any]) -> int:
    return sum(value.numel() for value in values if isinstance(value, torch.Tensor))


def _is_integer(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex() or value.is_sparse)


def _spread(value: Any, drawn: Any) -> Any:
    """An integer tensor with numbers of another one, from its least to its greatest; anything else as it is."""
    if not _is_integer(value) or not _is_integer(drawn) or not drawn.numel() or not value.numel():
        return value
    numbers = drawn.unique().cpu()
    places = torch.linspace(len(numbers) - 1, 0, value.numel()).round().long()
    return numbers[places].reshape(value.shape).to(value.dtype)


def _same_layout(values: Values, others: Values) -> bool:
    """Whether all are the same tensors, not copies."""
    return all(value is other for value, other in zip(values, others))


def _difference(old: Any, new: Any) -> str:
    if not isinstance(new, torch.Tensor):
        return f"{new} for {old}"
    changed = ((new != old) & ~((new != new) & (old != old))).double().mean()
    difference = (new.double() - old.double()).abs() if not new.is_complex() else (new - old).abs()
    measured = difference[finite(difference)]
    special = int((~finite(new)).sum()) if new.is_floating_point() else 0
    if special and not measured.any():
        return f"has NaN or Inf in {special} of {new.numel()} elements"
    most = f" by up to {float(measured.max()):.2g}" if measured.numel() else ""
    return f"changed in {float(changed):.0%} of its elements{most}{f', {special} NaN or Inf' if special else ''}"


def _equal(value: Any, other: Any) -> bool:
    """Whether a draw left an input as it was; NaN is not another value."""
    if not isinstance(value, torch.Tensor):
        return bool(value == other)
    return value is other or bool(((value == other) | ((value != value) & (other != other))).all())
