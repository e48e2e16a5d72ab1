"""Which tensors of a trace share memory, and what a write into one of them makes of the others."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from cutesmith.patterns.graph.builder import GraphBuilder
from cutesmith.patterns.graph.dtypes import dtype_name
from cutesmith.patterns.graph.nodes import Node
from cutesmith.patterns.graph.regions import Region, read, region_of, replaced, side_by_side
from cutesmith.patterns.graph.shapes import Shape, without_ones
from cutesmith.patterns.graph.views import push_permute


@dataclass
class Alias:
    """A tensor and its value; None where a write through another view changed some of its elements."""

    tensor: weakref.ref[torch.Tensor]
    node: Node | None


@dataclass
class Memory:
    """A storage: the first tensor that lay in it, or, once it was written to, all its elements in the order of memory.

    `sizes` is None until then. `argument` names the argument whose memory it is.
    """

    node: Node
    shape: Shape
    strides: Shape
    argument: str
    dtype: torch.dtype
    sizes: Shape | None = None
    aliases: list[Alias] = field(default_factory=list)
    written: list[tuple[Region, Node]] = field(default_factory=list)
    """What was written to parts of it since, in order."""

    def alive(self) -> Iterator[tuple[torch.Tensor, Alias]]:
        """Every tensor of it that can still be read."""
        for alias in self.aliases:
            if (tensor := alias.tensor()) is not None:
                yield tensor, alias

    def whole(self, build: GraphBuilder) -> Node:
        """All its elements, once it is laid out; parts that were written side by side are joined at once."""
        assert self.sizes is not None
        joined = side_by_side(build, self.written, dtype_name(self.dtype))
        for region, value in () if joined else self.written:
            self.node = replaced(build, self.node, region, value, dtype_name(self.dtype))
        self.node, self.written = joined or self.node, []
        return self.node

    def last_written(self, region: Region) -> Node | None:
        """What was written to this region, where nothing was written to any of it later."""
        for written, value in reversed(self.written):
            if written == region:
                return value
            if not written.apart(region):
                return None
        return None

    def hold(self, tensor: torch.Tensor, node: Node) -> None:
        """Begins again with the only tensor of it that is alive."""
        self.node, self.shape, self.strides, self.sizes = node, tuple(tensor.shape), tuple(tensor.stride()), None
        self.written = []

    def lay_out(self, build: GraphBuilder) -> Shape:
        """The sizes in the order of memory; the first tensor fills its storage, as what an operation returns does."""
        if self.sizes is None:
            order = sorted(range(len(self.shape)), key=lambda dim: (self.shape[dim] != 1, -self.strides[dim]))
            self.sizes = without_ones(tuple(self.shape[dim] for dim in order))
            self.node = build.reshape(push_permute(build, self.node, order), self.sizes)
        return self.sizes


class Aliases:
    """The values of the tensors of a trace, and the memory that they lie in."""

    def __init__(self, build: GraphBuilder) -> None:
        self.build = build
        self._by_tensor: dict[int, Alias] = {}
        self._memories: dict[int, Memory] = {}

    def track(self, tensor: torch.Tensor, node: Node, argument: str = "") -> None:
        """Remembers that `tensor` holds the value of `node`; `argument` names the argument whose storage it is."""
        alias = self._by_tensor[id(tensor)] = Alias(weakref.ref(tensor), node)
        memory = self._memory(tensor)
        if memory is None:
            memory = Memory(node, tuple(tensor.shape), tuple(tensor.stride()), argument, tensor.dtype)
            self._memories[tensor.untyped_storage()._cdata] = memory
        memory.aliases.append(alias)

    def sees_written(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor is a view of what was written to in parts: it is read when its value is asked for."""
        memory = self._memory(tensor)
        if memory is None or memory.sizes is None or memory.dtype != tensor.dtype:
            return False
        if _region_in(memory.sizes, tensor) is None:
            return False
        alias = self._by_tensor[id(tensor)] = Alias(weakref.ref(tensor), None)
        memory.aliases.append(alias)
        return True

    def knows(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor has a value."""
        alias = self._by_tensor.get(id(tensor))
        return (alias is not None and alias.tensor() is tensor) or self._adopts(tensor)

    def _adopts(self, tensor: torch.Tensor) -> bool:
        """Whether PyTorch made it of a known tensor without an operation, as `nn.Parameter` does: it has that value."""
        if (memory := self._memory(tensor)) is None:
            return False
        for other, alias in memory.alive():
            if _place_of(other) == _place_of(tensor):
                twin = self._by_tensor[id(tensor)] = Alias(weakref.ref(tensor), alias.node)
                memory.aliases.append(twin)
                return True
        return False

    def node_of(self, tensor: torch.Tensor) -> Node | None:
        """The value that the tensor has now; None for a tensor that is not known."""
        if not self.knows(tensor):
            return None
        alias = self._by_tensor[id(tensor)]
        if alias.node is None:
            memory = self._memory(tensor)
            assert memory is not None
            region, shape = self._region(memory, tensor), tuple(tensor.shape)
            value = memory.last_written(region)
            if value is not None and value.dtype == dtype_name(tensor.dtype):
                alias.node = self.build.reshape(value, shape)
            else:
                alias.node = read(self.build, memory.whole(self.build), region, shape)
        return alias.node

    def write(self, tensor: torch.Tensor, node: Node) -> None:
        """Gives a known tensor another value, and other views of its memory those elements of it that they share."""
        memory = self._own_memory(tensor)
        others = [(other, alias) for other, alias in memory.alive() if other is not tensor]
        self._by_tensor[id(tensor)].node = node
        if not tensor.numel():
            return
        if any(other.dtype != tensor.dtype for other, _ in others):
            raise self.build.unmatched("writes into a tensor that is seen as another type, too; write into a clone()")
        if not others:
            memory.hold(tensor, node)
            return
        region = self._region(memory, tensor)
        memory.written.append((region, node))
        for other, alias in others:
            seen = _region_in(memory.sizes, other)
            if seen is None or not seen.apart(region):
                alias.node = None

    def reshape(self, tensor: torch.Tensor, node: Node) -> None:
        """Gives a known tensor, which becomes a view of itself in place, the value of that view."""
        self._own_memory(tensor)
        self._by_tensor[id(tensor)].node = node

    def _own_memory(self, tensor: torch.Tensor) -> Memory:
        """The storage of a tensor that may be changed."""
        memory = self._memory(tensor)
        assert memory is not None
        if memory.argument:
            name = memory.argument
            raise self.build.unmatched(f"changes argument {name} in place; {name}.clone() may be changed and returned")
        return memory

    def _memory(self, tensor: torch.Tensor) -> Memory | None:
        """The storage of a tensor; its place may be that of an earlier one, of which no tensor is alive."""
        place = tensor.untyped_storage()._cdata
        memory = self._memories.get(place)
        is_alive = memory is not None and (
            memory.argument or any(other.untyped_storage()._cdata == place for other, _ in memory.alive())
        )
        return memory if is_alive else None

    def _region(self, memory: Memory, tensor: torch.Tensor) -> Region:
        region = _region_in(memory.lay_out(self.build), tensor)
        if region is None:
            raise self.build.unmatched("writes into a tensor whose elements another view has in another order")
        return region


def _region_in(sizes: Shape | None, tensor: torch.Tensor) -> Region | None:
    if sizes is None or tensor.untyped_storage().nbytes() != math.prod(sizes) * tensor.element_size():
        return None
    return region_of(sizes, tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset()))


def _place_of(tensor: torch.Tensor) -> tuple[object, ...]:
    """Which elements of its storage a tensor has, and as what."""
    return tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
