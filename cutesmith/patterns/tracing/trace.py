"""Runs `reference_fn` once on tensors without storage and writes down what it does as a `Graph`.

A dispatch mode sees every ATen operation, below autograd and PyTorch's composite functions; each is lowered at once
(`lowering/`). Inputs are meta tensors that say they are on CUDA, so 8 GB of inputs cost nothing and no GPU is needed.
Python numbers among the inputs are followed through Python arithmetic (`scalars.py`); a second, plain trace must agree.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from cutesmith.errors import ContractError, CutesmithError, UnmatchedError
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import PROMOTION, dtype_name
from cutesmith.patterns.graph.equality import same_graph, with_numbers
from cutesmith.patterns.graph.nodes import Argument, Graph, Node, Origin
from cutesmith.patterns.tracing.lowering import (
    activations,
    attention,
    contractions,
    convolutions,
    losses,
    movement,
    normalizations,
    pointwise,
    reductions,
    scans,
    selection,
    views,
    windows,
)
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, Rule, rule_for
from cutesmith.patterns.tracing.made_tensors import MadeTensors
from cutesmith.patterns.tracing.scalars import CountedInt, Scalars, untraceable
from cutesmith.patterns.tracing.sizes import follow_sizes
from cutesmith.recording.facade import ValuesNeeded, active_facade, cuda_as_cpu
from cutesmith.sandbox.dispatch_modes import LightMode

if TYPE_CHECKING:
    from cutesmith.problems.loading import LoadedFile

FAMILIES = (
    activations,
    attention,
    contractions,
    convolutions,
    losses,
    movement,
    normalizations,
    pointwise,
    reductions,
    scans,
    selection,
    views,
    windows,
)  # which register their rules
NEEDS_MODEL = "a model is needed for this function"
_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parents[2])


def trace_problem(loaded: LoadedFile) -> Graph:
    """The graph of a problem's `reference_fn` on the shapes, strides and dtypes of `get_inputs()`.

    Raises UnmatchedError naming every operation that cannot be followed.
    """
    if loaded.contract.wraps_model:
        loaded.module.reference_model()  # built and cached now: its initialisation is not part of the function
    with cuda_as_cpu(fake=True):
        inputs = list(loaded.get_inputs())
        return _trace(loaded.reference_fn, inputs, str(loaded.contract.path))


def trace_function(function: Callable[..., Any], inputs: Sequence[Any]) -> Graph:
    """The graph of any function on these inputs (tensors and Python numbers); only their metadata is read."""
    return _trace(function, inputs, "")


def _trace(function: Callable[..., Any], inputs: Sequence[Any], path: str) -> Graph:
    arguments = _arguments(function, inputs)
    integers = tuple(i for i, each in enumerate(arguments) if each.kind == "scalar" and each.dtype == "int")
    try:
        return _traced(function, arguments, path, ())
    except UnmatchedError as refusal:
        try:
            if not integers or not all(arguments[index].sizes for index in integers):
                raise
            return _traced(function, arguments, path, integers)
        except UnmatchedError:
            raise refusal from None


def _traced(function: Callable[..., Any], arguments: tuple[Argument, ...], path: str, sizes: tuple[int, ...]) -> Graph:
    """The graph where the integers in the places `sizes` decide shapes: they are followed as sizes are."""
    numbers = {i: each.value for i, each in enumerate(arguments) if each.value is not None and i not in sizes}
    graph = _Run(function, arguments, path, follow=True, sizes=sizes).graph()
    if numbers:
        plain = _Run(function, arguments, path, follow=False).graph()
        if not same_graph(with_numbers(graph, numbers), with_numbers(plain, {})):
            raise untraceable(" or ".join(arguments[index].name for index in numbers))
    return follow_sizes(
        graph, lambda larger: _Run(function, larger, path, follow=True, sizes=sizes).graph(), numbers=sizes
    )


def _arguments(function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[Argument, ...]:
    names = _parameter_names(function, len(inputs))
    return tuple(_argument(name, value) for name, value in zip(names, inputs, strict=True))


def _parameter_names(function: Callable[..., Any], count: int) -> list[str]:
    """The parameters' names; `x0`, `x1`, … where the signature gives none (or a `*args`)."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    taken = set(named)
    spare = (name for number in range(10**6) if (name := f"x{number}") not in taken)
    return [named[at] if at < len(named) else next(spare) for at in range(count)]


def _argument(name: str, value: Any) -> Argument:
    if isinstance(value, torch.Tensor):
        dtype = dtype_name(value.dtype)
        if value.layout != torch.strided or dtype not in PROMOTION:
            raise UnmatchedError(f"argument {name} is a {value.layout} tensor of {dtype}", hint=NEEDS_MODEL)
        return Argument(name, "tensor", dtype, tuple(value.shape), tuple(value.stride()))
    if isinstance(value, (bool, int, float)):
        return Argument(name, "scalar", type(value).__name__, value=value)
    raise ContractError(f"argument {name} is {type(value).__name__}; inputs are tensors and Python numbers")


class _Run:
    """One run of the function under the dispatch mode."""

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: tuple[Argument, ...],
        path: str,
        *,
        follow: bool,
        sizes: tuple[int, ...] = (),
    ) -> None:
        self.function, self.arguments, self.path, self.sizes = function, arguments, path, sizes
        self.build, self.scalars = GraphBuilder(), Scalars(follow=follow)
        self.recorder = _Recorder(self.build, self.scalars, path)

    def graph(self) -> Graph:
        with _facade():
            values = [self._value(index, argument) for index, argument in enumerate(self.arguments)]
            result = self._call(values)
            if self.recorder.refusals:
                raise _all_of(self.recorder.refusals)
            outputs = list(result) if isinstance(result, (tuple, list)) else [result]
            nodes = tuple(self._output(value, index) for index, value in enumerate(outputs))
            strides = tuple(tuple(value.stride()) for value in outputs)
        return Graph(self.arguments, nodes, strides, isinstance(result, (tuple, list)))

    def _value(self, index: int, argument: Argument) -> Any:
        if argument.kind == "scalar":
            assert argument.value is not None
            if index in self.sizes:
                return CountedInt.of(int(argument.value), argument.name)
            return self.scalars.argument(index, argument.name, argument.value)
        dtype = getattr(torch, argument.dtype)
        tensor = torch.empty_strided(argument.shape, argument.stride, dtype=dtype, device="meta")
        self.recorder.track(tensor, self.build.argument(index, argument), argument.name)
        return tensor

    def _call(self, values: Sequence[Any]) -> Any:
        made = MadeTensors(self.recorder.constant)
        with torch.inference_mode(), warnings.catch_warnings(), made, self.recorder:
            warnings.simplefilter("ignore")
            try:
                return self.function(*values)
            except UnmatchedError as error:
                raise _all_of([*self.recorder.refusals, error]) from error
            except CutesmithError:
                raise
            except ValuesNeeded as error:
                raise self.recorder.unmatched("aten._local_scalar_dense", _READS_VALUE) from error
            except Exception as error:
                if self.recorder.refusals:  # it may come of what follows a refused operation
                    raise _all_of(self.recorder.refusals) from error
                raise self._failure(error) from error

    def _failure(self, error: Exception) -> CutesmithError:
        numbers = [argument.name for argument in self.arguments if argument.kind == "scalar"]
        if numbers:
            return untraceable(" or ".join(numbers))
        where = _where_raised(error, self.path)
        return UnmatchedError(
            f"reference_fn could not be traced{where}: {type(error).__name__}: {error}",
            operation=where.strip(),
            hint=f"It runs on tensors without values here; {NEEDS_MODEL}.",
        )

    def _output(self, value: Any, index: int) -> Node:
        if not isinstance(value, torch.Tensor):
            raise ContractError(f"output {index} of reference_fn is {type(value).__name__}, not a tensor")
        node = self.recorder.node_of(value)
        if dtype_name(value.dtype) not in PROMOTION:
            raise UnmatchedError(f"output {index} has dtype {value.dtype}", hint=NEEDS_MODEL)
        self.build.origin = node.origin
        node = self.build.operand(node, dtype_name(value.dtype))
        return self.build.materialise(
            self.build.expand(self.build.retype(node, dtype_name(value.dtype)), tuple(value.shape))
        )


def _facade() -> AbstractContextManager[Any]:
    """CUDA tensors without storage, unless the caller has made them available already."""
    return nullcontext() if active_facade() is not None else cuda_as_cpu(fake=True)


_READS_VALUE = "reads a value of a tensor (`.item()`, or a branch on it)"

_MOVES_STATISTICS = frozenset({"aten.native_batch_norm", "aten._native_batch_norm_legit"})
"""Batch norms that write the running statistics in training, whatever their schema says."""
_FUNCTIONAL_BATCH_NORM = torch.ops.aten._native_batch_norm_legit_functional.default

_ASSERTIONS = frozenset({"aten._assert_async", "aten._assert_scalar", "aten._assert_tensor_metadata"})
"""What PyTorch checks of values before it computes with them; a kernel does not."""

_REFUSED = {
    "aten._local_scalar_dense": _READS_VALUE,
    "aten.is_nonzero": _READS_VALUE,
    "aten.equal": _READS_VALUE,
    "aten.nonzero": "has a result whose shape depends on values",
    "aten.masked_select": "has a result whose shape depends on values",
    "aten.unique": "has a result whose shape depends on values",
    "aten._unique2": "has a result whose shape depends on values",
}


class _Recorder(LightMode):  # type: ignore[no-untyped-call,unused-ignore]
    """Lowers each operation as it is dispatched; remembers which tensor is which node."""

    def __init__(self, build: GraphBuilder, scalars: Scalars, path: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call,unused-ignore]
        self.build, self.scalars, self.path = build, scalars, path
        self._tensors: dict[int, tuple[weakref.ref[torch.Tensor], Node]] = {}
        self._arguments: dict[int, str] = {}
        self.refusals: list[UnmatchedError] = []

    def track(self, tensor: torch.Tensor, node: Node, argument: str = "") -> None:
        """Remembers that `tensor` holds the value of `node`; `argument` names the argument whose storage it is."""
        self._tensors[id(tensor)] = (weakref.ref(tensor), node)
        if argument:
            self._arguments[tensor.untyped_storage()._cdata] = argument

    def node_of(self, value: torch.Tensor) -> Node:
        """The node of a tensor; a number or a constant tensor that the function made for itself becomes a constant."""
        entry = self._tensors.get(id(value))
        return entry[1] if entry is not None and entry[0]() is value else self._literal(value)

    def constant(self, number: Any, value: torch.Tensor) -> torch.Tensor:
        """A tensor without storage in place of `value`, made of `number` or of several equal ones."""
        made = torch.empty_like(value, device="meta")
        if isinstance(number, (list, tuple)):
            self.track(made, self._literal(value))
        else:
            self.track(made, self.scalars.node(self.build, number, dtype_name(value.dtype)))
        return made

    def unmatched(self, operation: str, reason: str) -> UnmatchedError:
        """The error that names an operation and its source line."""
        self.build.origin = self._origin(operation)
        return self.build.unmatched(reason)

    def dispatched(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        named = dict(kwargs)
        name = str(func).rsplit(".", 1)[0]
        self.build.origin = self._origin(str(func))
        if name in _ASSERTIONS:
            return None
        if name == "aten.is_nonzero" and _only_raises(sys._getframe(1)):
            return False
        if name in _REFUSED:
            raise self.build.unmatched(_REFUSED[name])
        if torch.Tag.nondeterministic_seeded in func.tags and rule_for(func) is None:
            raise self.build.unmatched("draws random numbers")
        if name in _MOVES_STATISTICS and self._moves_statistics(args):
            return self._moved_statistics(args)
        if func._schema.is_mutable:
            return self._in_place(func, args, named)
        return self._functional(func, args, named)

    @staticmethod
    def _moves_statistics(args: tuple[Any, ...]) -> bool:
        running_mean, training = args[3], args[5]
        return isinstance(running_mean, torch.Tensor) and bool(training)

    def _moved_statistics(self, args: tuple[Any, ...]) -> Any:
        """A batch norm in training, which writes its running statistics: the functional form returns them."""
        running = args[3:5]
        for target in running:
            self._refuse_aliases(target)
        *results, mean, variance = self._functional(_FUNCTIONAL_BATCH_NORM, args, {})
        for target, value in zip(running, (mean, variance), strict=True):
            self.track(target, self.build.cast(self.node_of(value), dtype_name(target.dtype)))
        return tuple(results)

    def _functional(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        rule = rule_for(func)
        try:
            if rule is None:
                return self._decomposed(func, args, named)
            result = self._run(func, args, named)
            nodes = self._lowered(rule, args, named, result)
        except UnmatchedError as refusal:
            return self._refused(func, args, named, refusal)
        for tensor, node in zip(_flat(result), nodes, strict=True):
            if node is not None:
                self.track(tensor, node)
        return result

    def _run(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        try:
            return func(*args, **named)
        except NotImplementedError as error:
            if not str(func).startswith("aten.index."):
                raise
            # a mask as an index: PyTorch has no shape for it without values
            raise self.build.unmatched("has a result whose shape depends on values") from error

    def _refused(self, func: Any, args: tuple[Any, ...], named: dict[str, Any], refusal: UnmatchedError) -> Any:
        """Results that nothing is known of: the trace goes on, to name what else stands in the way."""
        self.refusals.append(refusal)
        try:
            result = func(*args, **named)
        except (RuntimeError, NotImplementedError) as error:
            raise refusal from error
        for tensor in _flat(result):
            if isinstance(tensor, torch.Tensor):
                shape, dtype = tuple(tensor.shape), dtype_name(tensor.dtype)
                self.track(tensor, self.build.node("opaque", (), shape, dtype))
        return result

    def _lowered(self, rule: Rule, args: Any, named: Any, result: Any) -> list[Node | None]:
        tensors = _flat(result)
        shapes = [tuple(tensor.shape) for tensor in tensors]
        dtypes = [dtype_name(tensor.dtype) for tensor in tensors]
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
        from torch._decomp import decomposition_table

        composite = func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
        decomposition = func.decompose if composite else decomposition_table.get(func)
        if decomposition is None:
            raise self.build.unmatched("is in no pattern")
        origin, before = self.build.origin, len(self.refusals)
        with self:
            result = decomposition(*args, **named)
        refused_inside = len(self.refusals) > before and not composite
        if result is NotImplemented or refused_inside:
            del self.refusals[before:]
            self.build.origin = origin
            raise self.build.unmatched("is in no pattern")
        return result

    def _in_place(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """`x.add_(y)` gives the tensor a new node; writing to an argument, a view or `out=` is refused."""
        name, overload = str(func).removeprefix("aten.").rsplit(".", 1)
        functional = getattr(getattr(torch.ops.aten, name.removesuffix("_"), None), overload, None)
        if not name.endswith("_") or functional is None or "out" in named:
            raise self.build.unmatched("writes into a tensor that it is given")
        target = args[0]
        self._refuse_aliases(target)
        value = self._functional(functional, args, named)
        node = self.build.cast(self.node_of(value), dtype_name(target.dtype))
        self.track(target, self.build.expand(node, tuple(target.shape)))
        return target

    def _refuse_aliases(self, target: torch.Tensor) -> None:
        storage = target.untyped_storage()._cdata
        if storage in self._arguments:
            raise self.build.unmatched(f"changes argument {self._arguments[storage]} in place")
        living = (reference() for reference, _ in self._tensors.values())
        others = (tensor for tensor in living if tensor is not None and tensor is not target)
        if any(tensor.untyped_storage()._cdata == storage for tensor in others):
            raise self.build.unmatched("writes into a tensor of which another view is in use")

    def _literal(self, value: torch.Tensor) -> Node:
        with _disable_current_modes():
            if value.device.type == "meta":
                raise self.build.unmatched("reads a tensor that is not an argument")
            if value.numel() != 1 and not (value.numel() > 0 and bool((value == value.flatten()[0]).all())):
                raise self.build.unmatched("reads a tensor that is not an argument, of several values")
            number = value.flatten()[0].item()
        return self.build.expand(self.scalars.node(self.build, number, dtype_name(value.dtype)), tuple(value.shape))

    def _origin(self, operation: str) -> Origin:
        name = operation.removeprefix("aten.").partition(".")[0]
        short = operation.removesuffix(".default").removesuffix(".Tensor").removesuffix(".Scalar")
        frame = _user_frame(self.path)
        if frame is None:
            return Origin(name, short)
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        place = f"{short} at {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        return Origin(name, f"{place} (`{line}`)" if line else place)


def _all_of(refusals: Sequence[UnmatchedError]) -> UnmatchedError:
    """One error that names every refused operation once."""
    first, messages = refusals[0], list(dict.fromkeys(refusal.message for refusal in refusals))
    return UnmatchedError("\n".join(messages), operation=first.operation, hint=first.hint)


def _flat(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _user_frame(path: str) -> FrameType | None:
    """The innermost frame of the problem's file, else the innermost that is neither torch's nor ours."""
    frame: FrameType | None = sys._getframe(1)
    fallback = None
    while frame is not None:
        name = frame.f_code.co_filename
        if path and name == path:
            return frame
        if fallback is None and not name.startswith((_TORCH, _OURS, "<")) and "contextlib" not in name:
            fallback = frame
        frame = frame.f_back
    return fallback


def _only_raises(frame: FrameType | None) -> bool:
    """Whether PyTorch branches on a value only to refuse an argument, as for variances below 0."""
    between = (_OURS, f"{_TORCH}/_dynamo", f"{_TORCH}/_compile", "<")  # frames of the dispatch itself
    while frame is not None and frame.f_code.co_filename.startswith(between):
        frame = frame.f_back
    if frame is None or not frame.f_code.co_filename.startswith(_TORCH):
        return False
    tree = ast.parse("".join(linecache.getlines(frame.f_code.co_filename)))
    branches = (node for node in ast.walk(tree) if isinstance(node, ast.If) and not node.orelse)
    return any(
        isinstance(node.body[0], ast.Raise) and node.lineno <= frame.f_lineno <= (node.test.end_lineno or 0)
        for node in branches
    )


def _where_raised(error: BaseException, path: str) -> str:
    trace, place = error.__traceback__, ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name == path or not (path or name.startswith((_TORCH, _OURS))):
            place = f" at {Path(name).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
