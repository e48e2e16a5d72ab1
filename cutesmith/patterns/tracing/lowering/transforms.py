"""Lowerings of Fourier transforms of pairs of real numbers, the operations of `tracing/fourier.py`."""

from __future__ import annotations

from cutesmith.patterns.graph.attributes import Transform
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.tracing.lowering.dispatch import Lowering, lowers


@lowers("cutesmith.fourier")
def _fourier(low: Lowering, real: Node, imag: Node | None, length: int, sign: int, wanted: int) -> tuple[Node, Node]:
    build = low.build
    given = [build.materialise(each) for each in (real, imag) if each is not None]
    parts = (Transform(length, sign, is_imag) for is_imag in (False, True))
    first, second = (build.node("transform", given, low.shapes[0], low.dtype, part) for part in parts)
    return first, second


@lowers("cutesmith.fourier_of_half")
def _fourier_of_half(low: Lowering, real: Node, imag: Node, length: int) -> Node:
    given = [low.build.materialise(each) for each in (real, imag)]
    return low.build.node("transform", given, low.shapes[0], low.dtype, Transform(length, 1, of_half=True))
