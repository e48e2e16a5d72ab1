"""Rendering of the kernel templates, and the pieces of `kernel_fn` that they share.

jinja2 with StrictUndefined: a missing name is an error, never a blank.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cutesmith.errors import UnavailableError
from cutesmith.patterns.graph.nodes import Graph
from cutesmith.patterns.graph.size_laws import EqualSizes, Place, place_code


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
    pointers = [f"{name}.data_ptr()" for name in tensors]
    aligned = [f"({' | '.join(pointers)}) & 15"] if tensors else []
    if len(tensors) > 1:  # where one is not aligned it counts which one
        aligned = [f"{aligned[0]} and ({', '.join(f'{pointer} & 15' for pointer in pointers)})"]
    return [*parts, *(f"{name}.shape" for name in sized), *aligned]


def size_checks(names: Sequence[str], graph: Graph, places: Collection[Place]) -> list[str]:
    """The statements that refuse other sizes than the traced ones in these places, and what is not broadcast."""
    lines = equal_checks(names, graph, (equal for equal in graph.equal if not equal.ones))
    lines += [line for most in graph.most for line in _not_above(names, most)]
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


def equal_checks(names: Sequence[str], graph: Graph, sizes: Iterable[EqualSizes]) -> list[str]:
    """The statements that refuse sizes that have to be equal and are not."""
    return [line for equal in sizes for line in _equal(names, graph, equal)]


def _equal(names: Sequence[str], graph: Graph, equal: EqualSizes) -> Iterator[str]:
    """The statement that refuses sizes that are not equal, or not in the traced proportion; some may be 1."""
    common, codes, scaled = _in_proportion(names, graph, equal.places)
    alone = [code for place, code in zip(equal.places, codes, strict=True) if place in equal.ones]
    by_one = dict[int, list[str]]()  # the sizes by what of them is equal where they are 1, 0 of those that may not be
    for place, each in zip(equal.places, scaled, strict=True):
        by_one.setdefault(common // graph.size_at(place) if place in equal.ones else 0, []).append(each)
    found = " | ".join(f"{{{', '.join(each)}}}{f' - {{{one}}}' if one else ''}" for one, each in by_one.items())
    yield f"if {' != '.join(scaled)}:" if len(scaled) == 2 and not alone else f"if len({found}) > 1:"
    told = f"this kernel takes equal sizes{', or a 1 of ' + ', '.join(alone) if alone else ''}"
    yield f'    raise ValueError(f"{told}: {{{", ".join(scaled)} = }}")'


def _not_above(names: Sequence[str], most: tuple[Place, Place]) -> Iterator[str]:
    """The statement that refuses a size which is larger than another one."""
    code, of_whole = (place_code(names[index], dim) for index, dim in most)
    yield f"if {code} > {of_whole}:"
    yield f'    raise ValueError(f"this kernel takes no {code} above {of_whole}, not {{{code}}} and {{{of_whole}}}")'


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


def _in_proportion(names: Sequence[str], graph: Graph, places: Sequence[Place]) -> tuple[int, list[str], list[str]]:
    """What is equal of these sizes when traced, the code of the sizes, and that of what is equal."""
    common = math.lcm(*map(graph.size_at, places))
    factors = [common // graph.size_at(place) for place in places]
    codes = [place_code(names[index], dim) for index, dim in places]
    scaled = [code if factor == 1 else f"{code} * {factor}" for code, factor in zip(codes, factors, strict=True)]
    return common, codes, scaled


def first_checks(names: Sequence[str], graph: Graph, whole: str = "") -> list[str]:
    """The statements of the first call with some shapes and types, whose kernel it chooses: they refuse others.

    `whole` is the argument that gives the result its shape, where one does.
    """
    return [*type_check(names, graph), *broadcast_checks(names, graph, whole)]


def type_check(names: Sequence[str], graph: Graph) -> list[str]:
    """The statements that refuse tensors of other types than the traced ones, which the kernel has in its registers."""
    tensors = [(name, each.dtype) for name, each in zip(names, graph.arguments, strict=True) if each.kind == "tensor"]
    found, expected = _either([f"{name}.dtype" for name, _ in tensors]), _either([f"torch.{d}" for _, d in tensors])
    said = ", ".join(f"{name} of {dtype}" for name, dtype in tensors)
    return [f"if {found} != {expected}:", f'    raise ValueError("this kernel takes {said}")']


def broadcast_checks(names: Sequence[str], graph: Graph, whole: str = "") -> list[str]:
    """The statements that refuse sizes that differ and are not 1; those of the argument `whole` may not be 1 either."""
    broadcast = (equal for equal in graph.equal if equal.ones)
    kept = (replace(equal, ones=frozenset(p for p in equal.ones if names[p[0]] != whole)) for equal in broadcast)
    return equal_checks(names, graph, kept)


def fitting_checks(operands: Iterable[str], shape: str, *, stretched: bool = True) -> Iterator[str]:
    """The statements that refuse operands which this shape is broadcast to: PyTorch's result would be larger.

    Where a kernel does not stretch sizes of 1, operands have to be of the last dimensions of the shape.
    """
    for name in dict.fromkeys(operands):
        differ = f"any(n not in (1, size) for n, size in zip({name}.shape[::-1], {shape}[::-1]))"
        yield f"if {differ if stretched else f'{name}.shape != {shape}[-{name}.dim():]'}:"
        yield f'    raise ValueError(f"{name} has shape {{(*{name}.shape,)}}; it must fit {{(*{shape},)}}")'


def positions_check() -> list[str]:
    """The statement that refuses an image along which there is not one window: `sizes` are how many there are."""
    return [
        "if min(sizes) < 1:",
        '    raise ValueError(f"this kernel takes images no smaller than a window, not {sizes}")',
    ]


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
