"""The dispatch mode of a trace: lowers each operation as it comes, and remembers which tensor is which node."""

from __future__ import annotations

import itertools
import linecache
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from cutesmith.errors import CutesmithError, UnmatchedError
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import dtype_name
from cutesmith.patterns.graph.nodes import Node, Origin
from cutesmith.patterns.graph.shapes import broadcast
from cutesmith.patterns.graph.views import once_scanned
from cutesmith.patterns.tracing.aliases import Aliases
from cutesmith.patterns.tracing.complex_numbers import ComplexNumbers, Unknown
from cutesmith.patterns.tracing.decompositions import arguments_without_values, decomposition_of
from cutesmith.patterns.tracing.frames import only_raises, user_frame
from cutesmith.patterns.tracing.indexing import ASSUMED
from cutesmith.patterns.tracing.lowering import (
    activations,
    attention,
    contractions,
    convolution_gradients,
    convolutions,
    index_puts,
    losses,
    movement,
    normalizations,
    pointwise,
    recurrences,
    reductions,
    scans,
    scatters,
    searches,
    selection,
    transforms,
    views,
    windows,
)
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, Rule, rule_for
from cutesmith.patterns.tracing.meta_results import result_of
from cutesmith.patterns.tracing.refused_operations import AS_AN_INPUT, CHOOSES_ROWS, DRAWS, READS, READS_VALUE, REFUSED
from cutesmith.patterns.tracing.scalars import Scalars
from cutesmith.patterns.tracing.tables import table
from cutesmith.sandbox.dispatch_modes import LightMode

FAMILIES = (
    activations,
    attention,
    contractions,
    convolution_gradients,
    convolutions,
    index_puts,
    losses,
    movement,
    normalizations,
    pointwise,
    recurrences,
    reductions,
    scans,
    scatters,
    searches,
    selection,
    transforms,
    views,
    windows,
)  # which register their rules
_MOVES_STATISTICS = frozenset({"aten.native_batch_norm", "aten._native_batch_norm_legit"})
"""Batch norms that write the running statistics in training, whatever their schema says."""
_FUNCTIONAL_BATCH_NORM = torch.ops.aten._native_batch_norm_legit_functional.default

_RUNNING = frozenset((torch.ops.aten.cumsum.default, torch.ops.aten.cumprod.default))
"""PyTorch finds the shape of a scan by a mask of n x n, which has too many elements from three billion on."""
_BATCH_NORM = torch.ops.aten.native_batch_norm.default

_RECURRENT = frozenset(getattr(torch.ops.aten, name).input for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"))
"""Recurrent networks of inputs that are not packed."""

_ASSERTIONS = frozenset(
    f"aten.{name}" for name in ("_assert_async _assert_scalar _assert_tensor_metadata _linalg_check_errors").split()
)
"""What PyTorch checks of values before it computes with them; a kernel does not."""

MOST_ONES = 2**20
"""Elements that a stand-in for an operation without a shape may read."""


class TooManyOperations(CutesmithError):
    """A function runs more operations than it may, as loops over a longer dimension do."""


class FunctionFailedError(UnmatchedError):
    """The function itself raised: it does not take such arguments, or needs their values."""


OPERATIONS_OF = dict.fromkeys((torch.ops.aten.lstm_cell.default, torch.ops.aten.gru_cell.default), 5)
"""As how many operations one counts that is recorded as many: 3.1 ms of a profiled trace, where others take 0.63."""


class Recorder(LightMode):  # type: ignore[no-untyped-call,unused-ignore]
    """Lowers each operation as it is dispatched, `most` of them at most; remembers which tensor is which node."""

    def __init__(self, build: GraphBuilder, scalars: Scalars, path: str, most: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.build, self.scalars, self.path = build, scalars, path
        self.most, self.operations = most, 0
        self.aliases = Aliases(build)
        self._origins: dict[tuple[str, tuple[str, int] | None], Origin] = {}
        self._calls = itertools.count(1)
        self._within_call = 0  # that of the pointwise operation whose steps are being recorded
        self.track = self.aliases.track
        self.complex = ComplexNumbers()
        self.refusals: list[UnmatchedError] = []
        self.stand_ins: list[UnmatchedError] = []  # of results whose shape depends on values, and of random numbers
        self.assumes: list[str] = []  # as of `Graph`

    def node_of(self, value: torch.Tensor) -> Node:
        """The node of a tensor; a number or a constant tensor that the function made for itself becomes a constant."""
        known = self.aliases.node_of(value)
        return self._literal(value) if known is None else once_scanned(self.build, known)

    def constant(self, number: Any, value: torch.Tensor) -> torch.Tensor:
        """A tensor without storage in place of `value`, made of `number` or of several equal ones."""
        made = torch.empty_like(value, device="meta")
        if isinstance(number, (list, tuple)):
            self.track(made, table(self.build, value) or self._literal(value))
        else:
            self.track(made, self.scalars.node(self.build, number, dtype_name(value.dtype)))
        return made

    def unmatched(self, operation: str, reason: str, line: tuple[str, int] | None = None) -> UnmatchedError:
        """The error that names an operation and its source line, in which file and which one; else that which runs."""
        self.build.origin = self._origin(operation, line)
        return self.build.unmatched(reason)

    def dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        named = dict(kwargs)
        self.operations += OPERATIONS_OF.get(func, 1)
        if self.most is not None and self.operations > self.most:
            raise TooManyOperations(f"more than {self.most} operations")
        name = str(func).rsplit(".", 1)[0]
        self.build.origin = self._origin_of_call(func)
        if name in _ASSERTIONS:
            return None
        if name == "aten.is_nonzero" and (refusal := only_raises(sys._getframe(1))):
            self.assumes.append(f"no values that are refused (`{refusal}`)")
            return False
        if name in READS:
            raise self.build.unmatched(READS_VALUE)
        if torch.Tag.nondeterministic_seeded in func.tags and rule_for(func) is None and not _drops_nothing(func, args):
            return self._drawn(func, args)
        if self.complex.concern(func, args, named):
            return self._of_parts(func, args, named)
        if name in _MOVES_STATISTICS and self._moves_statistics(args):
            return self._moved_statistics(args)
        if func._schema.is_mutable:
            try:
                return self._in_place(func, args, named)
            except UnmatchedError as refusal:  # the trace goes on, to name what else stands in the way
                self.refusals.append(refusal)
                return named.get("out", args[0] if args else None)
        return self._functional(func, args, named)

    def _drawn(self, func: Any, args: tuple[Any, ...]) -> Any:
        """Random numbers are refused; those in a tensor that the function made, as weights of a module, if used."""
        refusal = self.build.unmatched(DRAWS)
        target = args[0] if args and func._schema.is_mutable else None
        if not isinstance(target, torch.Tensor) or self.aliases.knows(target):
            raise refusal
        self.stand_ins.append(refusal)
        self.track(target, self.build.node("drawn", (), tuple(target.shape), dtype_name(target.dtype)))
        return target

    def _of_parts(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """An operation on complex numbers as operations on their parts, which come here again."""
        try:
            with self:
                return self.complex.computed(func, args, named)
        except Unknown:
            return self._refused(func, args, named, self.unmatched(str(func), "computes with complex numbers"))

    @staticmethod
    def _moves_statistics(args: tuple[Any, ...]) -> bool:
        running_mean, training = args[3], args[5]
        return isinstance(running_mean, torch.Tensor) and bool(training)

    def _moved_statistics(self, args: tuple[Any, ...]) -> Any:
        """A batch norm in training, which writes its running statistics: the functional form returns them."""
        *results, mean, variance = self._functional(_FUNCTIONAL_BATCH_NORM, args, {})
        for target, value in zip(args[3:5], (mean, variance), strict=True):
            self._assign(target, self.build.cast(self.node_of(value), dtype_name(target.dtype)))
        return tuple(results)

    def _functional(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        rule = rule_for(func)
        try:
            if rule is None:
                return self._decomposed(func, args, named)
            with torch._C.DisableTorchFunction():  # modes would look at each size that is asked for
                return self._recorded(rule, func, args, named)
        except UnmatchedError as refusal:
            return self._refused(func, args, named, refusal)

    def _recorded(self, rule: Rule, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        result = self._run(func, args, named)
        if all(each is None or self.aliases.sees_written(each) for each in _flat(result)):
            return result
        nodes = self._lowered(rule, args, named, result)
        for tensor, node in zip(_flat(result), nodes, strict=True):
            if node is not None and tensor is not None:
                self.track(tensor, node)
        return result

    def _run(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if func in _RUNNING and args[0].is_floating_point() and named.get("dtype") is None:
            return args[0].new_empty(args[0].shape)
        if func is _BATCH_NORM and not args[5]:  # its statistics are not of the batch: it returns none
            return torch.empty_like(args[0]), *(args[0].new_empty(0) for _ in range(2))
        if func is torch.ops.aten._grouped_mm.default:
            return _grouped_result(*args, **named)
        try:
            return result_of(func, arguments_without_values(func, args), named)
        except NotImplementedError as error:
            if func.overloadpacket is not torch.ops.aten.index:
                raise
            image, (mask, *others) = args
            if others or mask is None or mask.dtype not in (torch.bool, torch.uint8):
                raise self.build.unmatched(CHOOSES_ROWS) from error
            # PyTorch has no shape for it without values: as many as there can be
            self.stand_ins.append(self.build.unmatched(CHOOSES_ROWS))
            return image.new_empty((mask.numel(), *image.shape[mask.dim() :]))

    def _refused(self, func: Any, args: tuple[Any, ...], named: dict[str, Any], refusal: UnmatchedError) -> Any:
        """Results that nothing is known of: the trace goes on, to name what else stands in the way."""
        self.refusals.append(refusal)
        try:
            result = func(*args, **named)
        except RuntimeError:
            result = _of_ones(func, args, named, refusal)
        for tensor in _flat(result):
            if isinstance(tensor, torch.Tensor):
                shape, dtype = tuple(tensor.shape), dtype_name(tensor.dtype)
                self.track(tensor, self.build.node("opaque", (), shape, dtype))
        return result

    def _lowered(self, rule: Rule, args: Any, named: Any, result: Any) -> list[Node | None]:
        tensors = _flat(result)
        shapes = [() if tensor is None else tuple(tensor.shape) for tensor in tensors]
        dtypes = ["" if tensor is None else dtype_name(tensor.dtype) for tensor in tensors]
        low = Lowering(self.build, self.scalars, shapes, dtypes)
        nodes = rule(low, *map(self._operand, args), **{name: self._operand(value) for name, value in named.items()})
        listed = list(nodes) if isinstance(nodes, tuple) else [nodes]
        return [None if node is None else low.finish(node, index) for index, node in enumerate(listed)]

    def _operand(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._operand(each) for each in value]
        return self.node_of(value) if isinstance(value, torch.Tensor) else value

    def _decomposed(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """What PyTorch does instead: below autograd, as anywhere else, or else in its table of decompositions."""
        composite = func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
        decomposition = decomposition_of(func, composite=composite)
        why = REFUSED.get(str(func).rsplit(".", 1)[0], "is in no pattern")
        if decomposition is None:
            raise self.build.unmatched(why)
        origin, before = self.build.origin, len(self.refusals)
        within, self._within_call = self._within_call, self._within_call or (0 if composite else origin.call)
        try:
            with self:
                result = decomposition(*args, **named)
        finally:
            self._within_call = within
        self.assumes += [ASSUMED[func]] if func in ASSUMED else []
        refused_inside = len(self.refusals) > before and not composite
        if result is NotImplemented or refused_inside:
            del self.refusals[before:]
            self.build.origin = origin
            raise self.build.unmatched(why)
        return result

    def _in_place(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """`x.add_(y)` and `torch.add(x, y, out=z)` give a tensor a new value; writing to an argument is refused."""
        if isinstance(named.get("out"), torch.Tensor):
            return self._into(named.pop("out"), func, args, named)
        name, overload = str(func).removeprefix("aten.").rsplit(".", 1)
        functional = getattr(getattr(torch.ops.aten, name.removesuffix("_"), None), overload, None)
        target = args[0]
        if torch.Tag.inplace_view in func.tags and hasattr(torch.ops.aten, name[:-1]):
            return self._viewed_in_place(getattr(torch.ops.aten, name[:-1]), func, args)
        if not name.endswith("_") or functional is None or not isinstance(target, torch.Tensor):
            return self._decomposed(func, args, named)
        if name == "copy_":
            return self._copied(target, self.node_of(args[1]))
        if name in ("fill_", "zero_") and not self.aliases.knows(target):
            value = args[1] if len(args) > 1 else 0
            number = self.scalars.node(self.build, value, dtype_name(target.dtype))
            return self._copied(target, self.node_of(value) if isinstance(value, torch.Tensor) else number)
        value = self._functional(functional, args, named)
        return self._assign(target, self.node_of(value))

    def _viewed_in_place(self, view: Any, func: Any, args: tuple[Any, ...]) -> torch.Tensor:
        """A tensor that becomes a view of itself, as by `transpose_`."""
        with self:
            node = self.node_of(view(*args))
        self.aliases.reshape(args[0], node)
        return func(*args)  # type: ignore[no-any-return]

    def _into(self, out: torch.Tensor, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> torch.Tensor:
        with self:
            value = func.overloadpacket(*args, **named)
        if value.shape != out.shape:
            raise self.build.unmatched(f"gives a result of shape {list(value.shape)} to `out` of {list(out.shape)}")
        return self._assign(out, self.build.cast(self.node_of(value), dtype_name(out.dtype)))

    def _assign(self, target: torch.Tensor, node: Node) -> torch.Tensor:
        node = self.build.expand(self.build.retype(node, dtype_name(target.dtype)), tuple(target.shape))
        if self.aliases.knows(target):
            self.aliases.write(target, node)
        else:
            self.track(target, node)
        return target

    def _copied(self, target: torch.Tensor, source: Node) -> torch.Tensor:
        """A tensor all of whose elements are replaced, perhaps one that the function keeps between calls."""
        shape = tuple(target.shape)
        if broadcast([source.shape, shape]) != shape:
            raise RuntimeError(f"values of shape {source.shape} do not fit into {shape}")
        if self.aliases.knows(target):
            return self._assign(target, self.build.cast(source, dtype_name(target.dtype)))
        if target.untyped_storage().nbytes() != target.numel() * target.element_size():
            raise self.build.unmatched("writes into a part of a tensor that is not an argument")
        self.track(target, self.build.expand(self.build.cast(source, dtype_name(target.dtype)), shape))
        return target

    def _literal(self, value: torch.Tensor) -> Node:
        with _disable_current_modes():
            if value.device.type == "meta":
                raise self.build.unmatched(f"reads a tensor that is not an argument{AS_AN_INPUT}")
            if value.numel() != 1 and not (value.numel() > 0 and bool((value == value.flatten()[0]).all())):
                raise self.build.unmatched(f"reads a tensor of several values that is not an argument{AS_AN_INPUT}")
            number = value.flatten()[0].item()
        return self.build.expand(self.scalars.node(self.build, number, dtype_name(value.dtype)), tuple(value.shape))

    def _origin_of_call(self, func: Any) -> Origin:
        call = self._within_call or (next(self._calls) if torch.Tag.pointwise in func.tags else 0)
        return replace(self._origin(str(func)), call=call)

    def _origin(self, operation: str, line: tuple[str, int] | None = None) -> Origin:
        if line is None and (frame := user_frame(self.path)) is not None:
            line = frame.f_code.co_filename, frame.f_lineno
        if (operation, line) not in self._origins:
            self._origins[operation, line] = _origin_at(operation, line)
        return self._origins[operation, line]


def _origin_at(operation: str, line: tuple[str, int] | None) -> Origin:
    name = operation.removeprefix("aten.").partition(".")[0]
    short = operation.removesuffix(".default").removesuffix(".Tensor").removesuffix(".Scalar")
    if line is None:
        return Origin(name, short)
    text, place = linecache.getline(*line).strip(), f"{short} at {Path(line[0]).name}:{line[1]}"
    return Origin(name, f"{place} (`{text}`)" if text else place)


def _grouped_result(x: Any, y: Any, ends: Any = None, bias: Any = None, out_dtype: torch.dtype | None = None) -> Any:
    """Of a grouped product, as large as of all rows with the first matrix: PyTorch's own has values for bfloat16."""
    count = len(y) if ends is None else len(ends)
    if x.dim() == y.dim() == 2:
        return x.new_empty(count, len(x), y.shape[1])  # groups of k
    product = torch.bmm(x.expand(count, -1, -1), y.expand(count, -1, -1)).to(out_dtype or x.dtype)
    return product if ends is None else product[0].clone()


def _of_ones(func: Any, args: tuple[Any, ...], named: dict[str, Any], refusal: UnmatchedError) -> Any:
    """Results without values as the operation gives them for tensors of ones, where their shape depends on values."""
    if sum(value.numel() for value in tree_leaves((args, named)) if isinstance(value, torch.Tensor)) > MOST_ONES:
        raise refusal
    with _disable_current_modes():
        ones, named_ones = tree_map_only(torch.Tensor, lambda t: torch.ones(t.shape, dtype=t.dtype), (args, named))
        try:
            result = func(*ones, **named_ones)
        except RuntimeError as error:
            raise refusal from error
        return tree_map_only(torch.Tensor, lambda t: torch.empty_like(t, device="meta"), result)


def _drops_nothing(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether a recurrent network has no dropout between its layers: a chain of its steps computes it."""
    if func not in _RECURRENT:
        return False
    named = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False))
    return not named["dropout"] or not named["train"]


def _flat(result: Any) -> list[torch.Tensor | None]:
    """The results; None for gradients that are not wanted."""
    return list(result) if isinstance(result, (tuple, list)) else [result]
