"""Runs `reference_fn` once on tensors without storage and writes down what it does as a `Graph`.

A dispatch mode sees every ATen operation, below autograd and PyTorch's composite functions; each is lowered at once
(`lowering/`). Inputs are meta tensors that say they are on CUDA, so 8 GB of inputs cost nothing and no GPU is needed.
Python numbers among the inputs are followed through Python arithmetic (`scalars.py`); a second, plain trace must agree.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from cutesmith.errors import ContractError, CutesmithError, UnmatchedError
from cutesmith.patterns.graph.attributes import Scan
from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import PROMOTION, dtype_name
from cutesmith.patterns.graph.equality import same_graph, with_numbers
from cutesmith.patterns.graph.last_states import with_states_of_layers
from cutesmith.patterns.graph.nodes import Argument, Graph, Node, nodes_of
from cutesmith.patterns.tracing.frames import line_raised, where_raised
from cutesmith.patterns.tracing.made_tensors import Differentiated, MadeTensors
from cutesmith.patterns.tracing.recorder import FunctionFailedError, Recorder
from cutesmith.patterns.tracing.refused_operations import READS_VALUE, UNKNOWN
from cutesmith.patterns.tracing.scalars import CountedInt, Scalars, untraceable
from cutesmith.patterns.tracing.sizes import follow_sizes, holding_sizes
from cutesmith.patterns.tracing.specialising import numbers_of, specialised
from cutesmith.patterns.tracing.study import PRIMES, TRACES
from cutesmith.problems import contract
from cutesmith.problems.arguments import names_of
from cutesmith.problems.few_values import FewValues
from cutesmith.problems.one_step import OneStep
from cutesmith.recording.facade import ValuesNeeded, active_facade, cuda_as_cpu

if TYPE_CHECKING:
    from cutesmith.problems.loading import LoadedFile

MOST_OPERATIONS = 6000
"""Of a trace on larger arguments, where a loop has more steps then: two seconds."""

FEWEST_PARAMETERS = 64
"""Parameters and buffers of a model from which on their sizes are held: of DenseNet-121 they took 118 of 137 traces."""

MOST_FREED = 8
"""Numbers that are tried one by one, whether the kernel has to hold them: each takes a trace."""

NEEDS_MODEL = "a model is needed for this function"
RETURNS = "Return a tensor, or a tuple or list of tensors: of two in one, as of x.max(-1), both by *x.max(-1)."


def trace_problem(loaded: LoadedFile) -> Graph:
    """The graph of a problem's `reference_fn` on the shapes, strides and dtypes of `get_inputs()`.

    Raises UnmatchedError naming every operation that cannot be followed, ContractError where the function does not take
    what `get_inputs()` returns.
    """
    if loaded.contract.wraps_model:
        loaded.module.reference_model()  # built and cached now: its initialisation is not part of the function
    inputs = contract.listed(drawn(loaded.get_inputs))
    with cuda_as_cpu(fake=True):
        contract.check_arity(loaded.reference_fn, "reference_fn", inputs)
        return _trace(loaded.reference_fn, inputs, str(loaded.contract.path), _sized_by_model(loaded, inputs))


def _sized_by_model(loaded: LoadedFile, inputs: Sequence[Any]) -> frozenset[str]:
    """The parameters and buffers of a network of many: it has each of them in one size, and none of another model."""
    if not loaded.contract.wraps_model or len(loaded.module.STATE_NAMES) < FEWEST_PARAMETERS:
        return frozenset()
    first, count = loaded.module.FORWARD_COUNT, len(loaded.module.STATE_NAMES)
    return frozenset(names_of(loaded.reference_fn, inputs, unnamed="x")[first : first + count])


def drawn(draw: Callable[[], Any]) -> Any:
    """What `draw` returns: tensors without storage, or with values, first of the small ones, where it reads some."""
    with suppress(Exception), cuda_as_cpu(fake=True), OneStep():  # a model's forward runs for what it draws
        return draw()
    with suppress(Exception), cuda_as_cpu(fake=True), FewValues():
        return draw()
    with cuda_as_cpu():  # what it raises here is its own fault
        return draw()


def trace_function(function: Callable[..., Any], inputs: Sequence[Any]) -> Graph:
    """The graph of any function on these inputs, as a problem may have them; only metadata of tensors is read."""
    return _trace(function, inputs, "")


def trace_fixed(function: Callable[..., Any], inputs: Sequence[Any], path: str) -> Graph:
    """A graph for which the function may do other operations at other sizes: `held` says at which.

    An integer that decides what is computed is one of these.
    """
    arguments = arguments_of(function, inputs)
    integers = _integers(arguments)
    try:
        return holding_sizes(_traced(function, arguments, path, ()))
    except UnmatchedError:
        if not integers:
            raise
        graph = holding_sizes(_traced(function, arguments, path, (), known=integers))
        return replace(graph, held=graph.held | {(index, -1) for index in integers})


def arguments_of(function: Callable[..., Any], inputs: Sequence[Any]) -> tuple[Argument, ...]:
    """What a graph says of a function's inputs: tensors and Python numbers, by the names of its parameters."""
    if not any(isinstance(value, torch.Tensor) for value in inputs):
        raise UnmatchedError("no argument is a tensor", hint="A kernel computes something of tensors on the GPU.")
    names = names_of(function, inputs, unnamed="x")
    return tuple(_argument(name, value) for name, value in zip(names, inputs, strict=True))


def _integers(arguments: Sequence[Argument]) -> tuple[int, ...]:
    return tuple(i for i, each in enumerate(arguments) if each.kind == "scalar" and each.dtype == "int")


def _trace(
    function: Callable[..., Any], inputs: Sequence[Any], path: str, model: frozenset[str] = frozenset()
) -> Graph:
    """The graph of the function, options held; where that cannot be, with as few numbers held as can be found."""

    def holding(places: Collection[int]) -> Graph:
        special = specialised(function, inputs, places)
        return replace(_trace_free(special.function, special.inputs, path, model), call=special.call)

    numbers = numbers_of(inputs)
    try:
        return holding(())
    except UnmatchedError:
        if not numbers:
            raise
        graph, held = holding(numbers), set(numbers)  # what it raises is not about numbers
    for place in numbers if 1 < len(numbers) <= MOST_FREED else ():
        with suppress(UnmatchedError):
            graph, held = holding(held - {place}), held - {place}
    return graph


def _trace_free(function: Callable[..., Any], inputs: Sequence[Any], path: str, model: frozenset[str]) -> Graph:
    """The graph of a function of tensors and numbers, which stay free."""
    arguments = arguments_of(function, inputs)
    integers = _integers(arguments)
    try:
        return _traced(function, arguments, path, (), model=model)
    except UnmatchedError as refusal:
        try:
            if not integers or not all(arguments[index].sizes for index in integers):
                raise
            return _traced(function, arguments, path, integers, model=model)
        except UnmatchedError:
            raise refusal from None


def _traced(
    function: Callable[..., Any],
    arguments: tuple[Argument, ...],
    path: str,
    sizes: tuple[int, ...],
    *,
    known: tuple[int, ...] = (),
    model: frozenset[str] = frozenset(),
) -> Graph:
    """The graph where the integers in the places `sizes` decide shapes: they are followed as sizes are.

    Those in the places `known` are what they are. The sizes of the arguments of a `model` are held.
    """
    with _facade():  # one for all traces
        followed = {i: each.value for i, each in enumerate(arguments) if each.value is not None}
        numbers = {i: value for i, value in followed.items() if i not in sizes + known}
        run = _Run(function, arguments, path, follow=True, sizes=sizes, known=known)
        graph = run.graph()
        most = _most_operations(run)
        if numbers:
            plain = _Run(function, arguments, path, follow=False, known=known).graph()
            if not same_graph(with_numbers(graph, numbers), with_numbers(plain, {})):
                raise untraceable(" or ".join(arguments[index].name for index in numbers))

        def larger(grown: tuple[Argument, ...]) -> Graph:
            return _Run(function, grown, path, follow=True, sizes=sizes, known=known, most=most).graph()

        return follow_sizes(graph, larger, numbers=sizes, model=model)


def _most_operations(run: _Run) -> int:
    """Operations of a trace on larger arguments: more are those of a longer loop, which is another graph.

    But for a loop whose steps became one value: of a short one longer ones are tried, by all factors that sizes grow.
    """
    count = run.recorder.operations
    if not run.build.rerolled:
        return 2 * count
    longer = (max(PRIMES[: TRACES + 3]) + 1) * count
    return longer if longer <= MOST_OPERATIONS else count + count // 2


def _argument(name: str, value: Any) -> Argument:
    if isinstance(value, torch.Tensor):
        dtype = dtype_name(value.dtype)
        if value.layout != torch.strided or dtype not in PROMOTION:
            raise UnmatchedError(f"argument {name} is a {value.layout} tensor of {dtype}", hint=NEEDS_MODEL)
        return Argument(name, "tensor", dtype, tuple(value.shape), tuple(value.stride()))
    if isinstance(value, (bool, int, float)):
        return Argument(name, "scalar", type(value).__name__, value=value)
    raise ContractError(f"argument {name} is {type(value).__name__}", hint=contract.INPUTS_MAY_BE)


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
        known: tuple[int, ...] = (),
        most: int | None = None,
    ) -> None:
        self.function, self.arguments, self.path, self.sizes = function, arguments, path, sizes
        self.follow, self.known, self.most = follow, known, most
        self.whole = True
        """Whether composite operations stay whole, as inference mode leaves them; it gives no gradients."""

    def graph(self) -> Graph:
        """The graph; rounds that do not end in a whole recurrence are what they are."""
        try:
            graph = self._recorded(joins_rounds=True)
        except Differentiated:
            self.whole = False
            graph = self._recorded(joins_rounds=True)
        is_open = any(node.op == "scan" and Scan.of(node).window for node in graph.nodes())
        return self._recorded(joins_rounds=False) if is_open else graph

    def _recorded(self, *, joins_rounds: bool) -> Graph:
        self.build, self.scalars = GraphBuilder(), Scalars(follow=self.follow)
        self.build.joins_rounds = joins_rounds
        self.recorder = Recorder(self.build, self.scalars, self.path, self.most)
        with torch._C.DisableTorchFunction():
            values = [self._value(index, argument) for index, argument in enumerate(self.arguments)]
        result = self._call(values)
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        if refusals := [*self.recorder.refusals, *self._of_unknown(outputs)]:
            raise _all_of(refusals)
        nodes = tuple(self._output(value, index) for index, value in enumerate(outputs))
        strides = tuple(tuple(value.stride()) for value in outputs)
        assumes = tuple(dict.fromkeys(self.recorder.assumes))
        graph = Graph(self.arguments, nodes, strides, isinstance(result, (tuple, list)), assumes=assumes)
        return with_states_of_layers(self.build, graph)

    def _value(self, index: int, argument: Argument) -> Any:
        if argument.kind == "scalar":
            assert argument.value is not None
            if index in self.known:
                return argument.value
            if index in self.sizes:
                return CountedInt.of(int(argument.value), argument.name)
            return self.scalars.argument(index, argument.name, argument.value)
        dtype = getattr(torch, argument.dtype)
        tensor = torch.empty_strided(argument.shape, argument.stride, dtype=dtype, device="meta")
        self.recorder.track(tensor, self.build.argument(index, argument), argument.name)
        return tensor

    def _call(self, values: Sequence[Any]) -> Any:
        made = MadeTensors(self.recorder.constant, whole=self.whole)
        with torch.inference_mode() if self.whole else torch.no_grad(), warnings.catch_warnings(), made, self.recorder:
            warnings.simplefilter("ignore")
            try:
                return self.function(*values)
            except UnmatchedError as error:
                raise _all_of([*self.recorder.refusals, error]) from error
            except (CutesmithError, Differentiated, RecursionError):
                raise
            except ValuesNeeded as error:
                where = line_raised(error, self.path)
                raise self.recorder.unmatched("aten._local_scalar_dense", READS_VALUE, where) from error
            except Exception as error:
                if refusals := self.recorder.refusals or self.recorder.stand_ins:
                    raise _all_of(refusals) from error  # it may come of what follows a refused operation
                raise self._failure(error) from error

    def _failure(self, error: Exception) -> FunctionFailedError:
        numbers = [argument.name for argument in self.arguments if argument.kind == "scalar"]
        if numbers:
            told = untraceable(" or ".join(numbers))
            return FunctionFailedError(told.message, operation=told.operation, hint=told.hint)
        where = where_raised(error, self.path)
        hint = f"It runs on tensors without values. Tensors that the file makes have to be inputs; {NEEDS_MODEL}."
        if isinstance(error, TypeError) and "invalid combination of arguments" in str(error):
            hint = "PyTorch takes no such arguments, whatever the tensors are: write the call as it lists them."
        if "does not require grad" in str(error):
            hint = "Functions run without gradients: differentiate within `torch.enable_grad()`, or by torch.func.vjp."
        return FunctionFailedError(
            f"reference_fn could not be traced{where}: {type(error).__name__}: {error}",
            operation=where.strip(),
            hint=hint,
        )

    def _of_unknown(self, outputs: Sequence[Any]) -> Iterator[UnmatchedError]:
        """Of what outputs are made of: random weights, elements at a mask's places that were not written back to it."""
        known = (self.recorder.aliases.node_of(value) for value in outputs if isinstance(value, torch.Tensor))
        for node in nodes_of(tuple(node for node in known if node is not None)):
            if node.op in UNKNOWN:
                self.build.origin = node.origin
                yield self.build.unmatched(UNKNOWN[node.op])

    def _output(self, value: Any, index: int) -> Node:
        if not isinstance(value, torch.Tensor):
            wrong = f"output {index} of reference_fn is {type(value).__name__}, not a tensor"
            raise ContractError(wrong, hint=RETURNS)
        if (dtype := dtype_name(value.dtype)) not in PROMOTION:
            raise UnmatchedError(f"output {index} has dtype {value.dtype}", hint=NEEDS_MODEL)
        node = self.recorder.node_of(value)
        self.build.origin = node.origin
        node = self.build.retype(self.build.storable(self.build.operand(node, dtype)), dtype)
        whole = self.build.materialise(self.build.expand(node, tuple(value.shape)))
        # A number has the type that is computed with, whatever the tensor is that it fills.
        return whole if whole.dtype == dtype else self.build.node("cast", whole.inputs, whole.shape, dtype)


def _facade() -> AbstractContextManager[Any]:
    """CUDA tensors without storage, unless the caller has made them available already."""
    return nullcontext() if active_facade() is not None else cuda_as_cpu(fake=True)


def _all_of(refusals: Sequence[UnmatchedError]) -> UnmatchedError:
    """One error that names every refused operation once."""
    first, messages = refusals[0], list(dict.fromkeys(refusal.message for refusal in refusals))
    return UnmatchedError("\n".join(messages), operation=first.operation, hint=first.hint)
