"""KernelBench problems (`Model`, `get_inputs`, `get_init_inputs`) as ours: parameters and buffers become inputs.

So do numbers that `forward` draws by `torch.randn` and the like: a function has one result for its inputs.

The adapter is source text appended to the file, so that what a worker runs and what a generated kernel embeds are the
same. KernelBench: Ouyang et al. 2025, https://github.com/ScalingIntelligence/KernelBench.
"""

from __future__ import annotations

import ast
import inspect
import keyword
import linecache
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import ModuleType
from typing import Any

from cutesmith.errors import ContractError
from cutesmith.problems.contract import FileContract, parse

FORWARD_INPUTS = "get_forward_inputs"
"""What the file's own `get_inputs` is renamed to: the adapter's takes the contract's name."""

ADAPTER = '''

# Adapter: the model's parameters and buffers become inputs, after those of forward.
import functools  # noqa: E402

import torch  # noqa: E402
from torch.utils._pytree import tree_map_only  # noqa: E402 - inputs may be lists of tensors

STATE_NAMES = {names}
FORWARD_COUNT = {count}  # inputs of forward, which come first


def new_model():
    """A freshly initialised model in evaluation mode; `get_init_inputs` gives a list, or [list, dict of keywords]."""
    arguments = get_init_inputs()
    if len(arguments) == 2 and isinstance(arguments[0], list) and isinstance(arguments[1], dict):
        return Model(*arguments[0], **arguments[1]).eval()
    return Model(*arguments).eval()


@functools.lru_cache(maxsize=1)
def reference_model():
    """The model whose forward is the reference: its own parameters are never used, and its seed is fixed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return new_model()


@functools.lru_cache(maxsize=1)
def kept_tensors():
    """The tensors that the model keeps beside its parameters and buffers: their modules, names and values."""
    kept = [(module, *pair) for module in reference_model().modules() for pair in vars(module).items()]
    return [each for each in kept if isinstance(each[2], torch.Tensor)]


def reference_fn({parameters}):
    """`Model.forward` in evaluation mode, its parameters and buffers given as arguments."""
    for module, name, value in kept_tensors():
        setattr(module, name, value)  # a call before this one, perhaps of float64, may have kept another
    state = dict(zip(STATE_NAMES, {state}))
    {within}return torch.func.functional_call(reference_model(), state, {forward})


def drawn_inputs():
    """The inputs of forward, drawn on CUDA: gigabytes that go through the CPU take twice the memory, and longer."""
    with torch.device("cuda"):
        return get_forward_inputs()


def drawn_model():
    """A freshly initialised model, drawn on CUDA where its class allows that: a CPU takes seconds for 138 million."""
    try:
        with torch.device("cuda"):
            return new_model()
    except (RuntimeError, TypeError, ValueError):  # it computes with numpy, or with a CPU's generator
        return new_model()


def get_inputs():
    """The inputs of forward, then freshly initialised parameters and buffers{and_draws}, on CUDA."""
    model = drawn_model()
    state = {{**dict(model.named_parameters()), **dict(model.named_buffers())}}
    values = [*drawn_inputs(), *(state[name] for name in STATE_NAMES)]
{drawn}    return tree_map_only(torch.Tensor, lambda value: value.detach().to("cuda"), values)
'''


DRAWS = '''

# `forward` draws numbers: they are inputs, too.
from torch.overrides import TorchFunctionMode  # noqa: E402


MAKERS = {torch.rand: torch.rand, torch.randn: torch.randn, torch.rand_like: torch.rand, torch.randn_like: torch.randn}


class Draws(TorchFunctionMode):
    """Hands out given tensors where forward draws some; without any it notes (function, shape, dtype) of each."""

    def __init__(self, *given):
        super().__init__()
        self.given, self.noted = list(given), []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in MAKERS and self.given:
            return self.given.pop(0)
        result = func(*args, **(kwargs or {}))
        if func in MAKERS:
            self.noted.append((MAKERS[func], result.shape, result.dtype))
        return result


NOTED = {}


def draws_of(inputs):
    """(function, shape, dtype) of each tensor that forward draws for inputs like these: found once, without values."""
    inputs = tree_map_only(torch.Tensor, lambda value: torch.empty_like(value, device="meta"), inputs)
    if (told := repr(inputs)) not in NOTED:
        with torch.device("meta"):
            model = new_model()
        with torch.no_grad(), Draws() as draws:
            model(*inputs)
        NOTED[told] = draws.noted
    return NOTED[told]
'''
WITHIN = "with Draws({names}):\n        "
DRAWN = "    values += [draw(shape, dtype=dtype) for draw, shape, dtype in draws_of(values[:{count}])]\n"
DRAWING = frozenset({"rand", "randn", "rand_like", "randn_like"})
"""Functions of torch whose results in `forward` become inputs."""


def rename_inputs(contract: FileContract) -> str:
    """The file's text with its `get_inputs` renamed, every line in its place."""
    lines = contract.source.encode().split(b"\n")
    for line, column in sorted(_occurrences(contract), reverse=True):
        text = lines[line - 1]
        lines[line - 1] = text[:column] + text[column:].replace(b"get_inputs", FORWARD_INPUTS.encode(), 1)
    return b"\n".join(lines).decode()


def _occurrences(contract: FileContract) -> list[tuple[int, int]]:
    """Line and byte column of every definition and use of the name `get_inputs`."""
    found = []
    for node in ast.walk(parse(contract.source, contract.path)):
        named = isinstance(node, ast.FunctionDef) and node.name == "get_inputs"
        if named or (isinstance(node, ast.Name) and node.id == "get_inputs"):
            found.append((node.lineno, node.col_offset))  # type: ignore[attr-defined]
    return found


def adapt(contract: FileContract, module: ModuleType) -> str:
    """Give the module `reference_fn` and `get_inputs`; returns the adapter's text.

    Builds the model to learn its parameters' names. Raises ContractError when that fails.
    """
    names = _forward_and_state_names(contract, module)
    text = adapter_source(*names, _count_draws(contract, module, adapter_source(*names) + DRAWS))
    filename = f"{contract.path} (adapter)"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    exec(compile(text, filename, "exec", dont_inherit=True), module.__dict__)
    return text


def adapter_source(forward: list[str], state: list[str], draws: int = 0) -> str:
    """The adapter for a model whose forward takes `forward`, whose parameters and buffers are `state`, and which draws
    as many tensors.
    """
    names = _identifiers([*forward, *state, *(f"drawn_{at}" for at in range(draws))])
    first = len(names) - draws
    text = ADAPTER.format(
        names=_tuple(map(repr, state)),
        count=len(forward),
        parameters=", ".join(names),
        state=_tuple(names[len(forward) : first]),
        forward=_tuple(names[: len(forward)]),
        within=WITHIN.format(names=", ".join(names[first:])) if draws else "",
        and_draws=", then what forward draws" if draws else "",
        drawn=DRAWN.format(count=len(forward)) if draws else "",
    )
    return text + DRAWS if draws else text


def _count_draws(contract: FileContract, module: ModuleType, adapter: str) -> int:
    """How many tensors `forward` draws; it is run, without values, only where the class names such a function."""
    classes = (node for node in ast.walk(parse(contract.source, contract.path)) if isinstance(node, ast.ClassDef))
    methods = (each for node in classes for each in node.body if isinstance(each, ast.FunctionDef))
    called = (node for each in methods if each.name != "__init__" for node in ast.walk(each))
    if not any(isinstance(node, ast.Attribute) and node.attr in DRAWING for node in called):
        return 0
    names = dict(vars(module))
    exec(compile(adapter, "<adapter>", "exec", dont_inherit=True), names)

    from cutesmith.problems.one_step import OneStep

    try:
        with OneStep():
            return len(names["draws_of"](_without_values(names[FORWARD_INPUTS])))
    except Exception:  # noqa: BLE001 - forward needs values: the draws stay its own, and the generator refuses them
        return 0


def _forward_and_state_names(contract: FileContract, module: ModuleType) -> tuple[list[str], list[str]]:
    names = vars(module)
    try:
        count = len(_without_values(names[FORWARD_INPUTS]))
        model = _without_values(lambda: _build(names["Model"], names["get_init_inputs"]()))
    except Exception as error:
        hint = "Model(*get_init_inputs()) and get_inputs() must work as they stand."
        raise ContractError(
            f"{contract.path}: the model cannot be built: {type(error).__name__}: {error}"[:2000], hint=hint
        ) from error
    state = [name for name, _ in (*model.named_parameters(), *model.named_buffers())]
    return _forward_names(model.forward, count), state


def _without_values(make: Callable[[], Any]) -> Any:
    """What `make` gives, its tensors without values, as they can be gigabytes, or the large ones, where possible."""
    import torch

    from cutesmith.problems.few_values import FewValues

    for without in (torch.device("meta"), FewValues()):
        with suppress(Exception), without:  # it computes with what it draws
            return make()
    return make()


def _build(model: Any, arguments: Any) -> Any:
    if len(arguments) == 2 and isinstance(arguments[0], list) and isinstance(arguments[1], dict):
        return model(*arguments[0], **arguments[1])
    return model(*arguments)


def _forward_names(forward: Any, count: int) -> list[str]:
    """The names of forward's first `count` positional parameters; `input_2` and so on where `*args` takes them."""
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in inspect.signature(forward).parameters.values() if p.kind in positional]
    return (names + [f"input_{index}" for index in range(len(names), count)])[:count]


def _identifiers(names: Iterable[str]) -> list[str]:
    """Distinct readable identifiers: `layers.0.weight` becomes `layers_0_weight`."""
    taken: dict[str, None] = {}
    for name in names:
        base = re.sub(r"\W", "_", name)
        base = f"p_{base}" if base[:1].isdigit() else base
        base = f"{base}_" if keyword.iskeyword(base) or base in ("dict", "zip", "torch", "state") else base
        identifier, number = base, 2
        while identifier in taken:
            identifier, number = f"{base}_{number}", number + 1
        taken[identifier] = None
    return list(taken)


def _tuple(items: Iterable[str]) -> str:
    texts = list(items)
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
