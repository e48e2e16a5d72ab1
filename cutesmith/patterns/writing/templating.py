"""Rendering of the kernel templates, and the pieces of `kernel_fn` that they share.

jinja2 with StrictUndefined: a missing name is an error, never a blank.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from cutesmith.errors import UnavailableError
from cutesmith.patterns.graph.nodes import Argument, Graph
from cutesmith.patterns.graph.size_laws import Place, place_code


@functools.cache
def _environment() -> Any:
    try:
        import jinja2
    except ModuleNotFoundError as error:
        raise UnavailableError("jinja2 is not installed", hint="pip install jinja2") from error
    loader = jinja2.PackageLoader("cutesmith.patterns.writing", "templates")
    # Kernel source is Python, not HTML: nothing is escaped.
    return jinja2.Environment(  # noqa: S701
        loader=loader,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render_template(name: str, context: Mapping[str, Any]) -> str:
    """The template `name` of patterns/writing/templates with `context`; at most two blank lines in a row."""
    text: str = _environment().get_template(name).render(**context)
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(line.rstrip() for line in text.split("\n")))


def launcher_key(tensors: Sequence[str], sized: Sequence[str] = ()) -> list[str]:
    """What tells calls apart that need kernels of their own: shapes, strides, dtypes and alignment of the inputs.

    `sized` are outputs whose shapes do not follow from those of the inputs.
    """
    parts = [f"{name}.{part}" for name in tensors for part in ("shape", "stride()", "dtype")]
    pointers = " | ".join(f"{name}.data_ptr()" for name in tensors)
    return [*parts, *(f"{name}.shape" for name in sized), *([f"({pointers}) & 15"] if tensors else [])]


def size_checks(names: Sequence[str], graph: Graph, places: Collection[Place]) -> list[str]:
    """The statements that refuse other sizes than the traced ones in these places, and what is not broadcast."""
    lines = [line for bound in graph.bound for line in _not_broadcast(names, graph, bound)]
    lines += [line for tied in graph.tied for line in _not_tied(names, graph, tied)]
    lines += [line for places in graph.not_ones for line in _not_ones(names, places)]
    lines += [line for place, step in graph.steps for line in _in_steps(names, place, step)]
    for at, (name, argument) in enumerate(zip(names, graph.arguments, strict=True)):
        sizes = {dim: size for dim, size in enumerate(argument.shape) if (at, dim) in places}
        if not sizes:
            continue
        found, wanted, told = f"{name}.shape", str(argument.shape), str(argument.shape)
        if len(sizes) < len(argument.shape):
            found, wanted = _either([f"{name}.shape[{dim}]" for dim in sizes]), _either([*map(str, sizes.values())])
            told = f"({', '.join(str(sizes.get(dim, '*')) for dim in range(len(argument.shape)))})"
        refusal = f"{name} has shape {{tuple({name}.shape)}}; this kernel was written for {told}"
        lines += [f"if {found} != {wanted}:", f'    raise ValueError(f"{refusal}")']
    return lines


def _not_broadcast(names: Sequence[str], graph: Graph, bound: Sequence[Place]) -> Iterator[str]:
    """The statement that refuses one size of 1 beside others where all are of one size, or in one proportion."""
    codes, scaled = _in_proportion(names, graph, bound)
    yield f"if 1 in ({', '.join(codes)}) and len({{{', '.join(scaled)}}}) > 1:"
    yield f'    raise ValueError("this kernel does not broadcast one of {", ".join(codes)}")'


def _not_tied(names: Sequence[str], graph: Graph, tied: Sequence[Place]) -> Iterator[str]:
    """The statement that refuses sizes that are not equal, or not in the traced proportion."""
    _, scaled = _in_proportion(names, graph, tied)
    yield f"if len({{{', '.join(scaled)}}}) > 1:"
    yield f'    raise ValueError("this kernel takes equal {", ".join(scaled)}")'


def _not_ones(names: Sequence[str], places: Sequence[Place]) -> Iterator[str]:
    """The statement that refuses 1 for all of these sizes."""
    codes = [place_code(names[index], dim) for index, dim in places]
    told = f"this kernel takes no {' and '.join(codes)} of 1: the result has other dimensions there"
    yield f"if {' == '.join(codes)} == 1:"
    yield f'    raise ValueError("{told}")'


def _in_steps(names: Sequence[str], place: Place, step: int) -> Iterator[str]:
    """The statement that refuses a size that is not a multiple of `step`."""
    code = place_code(names[place[0]], place[1])
    yield f"if {code} % {step}:"
    yield f'    raise ValueError("this kernel takes multiples of {step} as {code}")'


def _in_proportion(names: Sequence[str], graph: Graph, places: Sequence[Place]) -> tuple[list[str], list[str]]:
    """The code of these sizes, and of what of them is equal."""
    common = math.lcm(*map(graph.size_at, places))
    factors = [common // graph.size_at(place) for place in places]
    codes = [place_code(names[index], dim) for index, dim in places]
    return codes, [code if factor == 1 else f"{code} * {factor}" for code, factor in zip(codes, factors, strict=True)]


def type_check(names: Sequence[str], arguments: Sequence[Argument]) -> list[str]:
    """The statements that refuse tensors of other types than the traced ones, which the kernel has in its registers."""
    tensors = [(name, each.dtype) for name, each in zip(names, arguments, strict=True) if each.kind == "tensor"]
    found, expected = _either([f"{name}.dtype" for name, _ in tensors]), _either([f"torch.{d}" for _, d in tensors])
    said = ", ".join(f"{name} of {dtype}" for name, dtype in tensors)
    return [f"if {found} != {expected}:", f'    raise ValueError("this kernel takes {said}")']


def with_ones_in_front(code: str, ranks: Iterable[int], rank: int) -> str:
    """Code of a shape made of tensors of these ranks, with the ones in front that make it of this rank."""
    missing = rank - max(ranks)
    return f"({'1, ' * missing}*{code})" if missing else code


def _either(codes: Sequence[str]) -> str:
    """One code, or a tuple of several."""
    return codes[0] if len(codes) == 1 else f"({', '.join(codes)})"


def as_image(code: str, name: str) -> str:
    """The output `name` (N, [groups,] channels, positions) as (N, channels, *sizes); a batch may be empty."""
    return f"{code}.view({name}.shape[0], math.prod({name}.shape[1:-1]), *sizes)"


def returned(codes: Sequence[str], *, as_tuple: bool) -> str:
    """The outputs as the function returns them."""
    return f"({', '.join(codes)}{',' if len(codes) == 1 else ''})" if as_tuple else codes[0]
