"""LLVM IR of whole functions, written with llvmlite's builder: short names for the types and patterns that recur.

Instruction emitters write text (emitter.py), which is quicker to produce for thousands of instructions; the few long
functions that every program links in read better as code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

I1, I8, I16, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
PTR = ir.PointerType()
VOID = ir.VoidType()
Type = Any  # llvmlite has no annotations
Value = Any


def new_module(name: str) -> Any:
    """A module that fits any host."""
    module = ir.Module(name=name)
    module.triple = ""
    return module


class Body:
    """The body of a new function: `b` is its IRBuilder, `arguments` its parameters by name.

    `cold` functions are kept out of line and away from the hot code.
    """

    def __init__(
        self, module: Any, name: str, result: Any, parameters: dict[str, Type], *, attributes: tuple[str, ...] = ()
    ) -> None:
        self.module = module
        self.function = ir.Function(module, ir.FunctionType(result, list(parameters.values())), name)
        for attribute in ("nounwind", *attributes):
            self.function.attributes.add(attribute)
        self.b = ir.IRBuilder(self.function.append_basic_block("begin"))
        self.arguments = dict(zip(parameters, self.function.args, strict=True))
        for argument, label in zip(self.function.args, parameters, strict=True):
            argument.name = label

    def __getitem__(self, name: str) -> Value:
        return self.arguments[name]

    def number(self, value: int, kind: Any = I64) -> Value:
        """A constant."""
        return ir.Constant(kind, value)

    def wide(self, value: Value) -> Value:
        """An unsigned integer as i64."""
        return self.b.zext(value, I64)

    def word(self, pointer: Value, index: int | Value, kind: Any = I64) -> Value:
        """Load element `index` of an array of `kind`."""
        return self.b.load(self.at(pointer, index, kind), typ=kind)

    def at(self, pointer: Value, index: int | Value, kind: Any = I64) -> Value:
        """The address of element `index` of an array of `kind`."""
        position = self.number(index) if isinstance(index, int) else index
        return self.b.gep(pointer, [position], source_etype=kind)

    def put(self, value: Value, pointer: Value, index: int | Value, kind: Any = I64) -> None:
        """Store element `index` of an array of `kind`."""
        self.b.store(value, self.at(pointer, index, kind))

    @property
    def true(self) -> Value:
        """i1 1."""
        return ir.Constant(I1, 1)

    @property
    def false(self) -> Value:
        """i1 0."""
        return ir.Constant(I1, 0)

    @property
    def null(self) -> Value:
        """The null pointer."""
        return ir.Constant(PTR, None)

    def set(self, pointer: Value) -> Value:
        """Whether a pointer is not null."""
        return self.b.icmp_unsigned("!=", pointer, self.null)

    def equal(self, value: Value, constant: int) -> Value:
        """Whether an integer is a constant."""
        return self.b.icmp_unsigned("==", value, ir.Constant(value.type, constant))

    def least(self, left: Value, right: Value) -> Value:
        """The smaller of two unsigned integers."""
        return self.b.select(self.b.icmp_unsigned("<", left, right), left, right)

    def local(self, kind: Any) -> Value:
        """A variable of the function; its place is in the entry block, so that loops do not grow the stack."""
        with self.b.goto_entry_block():
            return self.b.alloca(kind)

    @contextmanager
    def when(self, condition: Value, *, likely: bool | None = None) -> Iterator[None]:
        """Code in the `with` body runs only where `condition` holds; it may return."""
        with self.b.if_then(condition, likely=likely):
            yield

    @contextmanager
    def each(self, count: Value, step: int = 1) -> Iterator[Value]:
        """A loop over i64 0, step, … while below `count`."""
        index = self.local(I64)
        self.b.store(self.number(0), index)
        head, body, after = (self.function.append_basic_block(name) for name in ("each", "do", "over"))
        self.b.branch(head)
        self.b.position_at_end(head)
        now = self.b.load(index, typ=I64)
        self.b.cbranch(self.b.icmp_unsigned("<", now, count), body, after)
        self.b.position_at_end(body)
        yield now
        self.b.store(self.b.add(now, self.number(step)), index)
        self.b.branch(head)
        self.b.position_at_end(after)

    @contextmanager
    def repeat_while(self, condition: Callable[[], Value]) -> Iterator[None]:
        """A loop while `condition()`, whose code is written at its head, holds."""
        head, body, after = (self.function.append_basic_block(name) for name in ("test", "repeat", "through"))
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(condition(), body, after)
        self.b.position_at_end(body)
        yield
        self.b.branch(head)
        self.b.position_at_end(after)

    def any_of(self, *conditions: Value) -> Value:
        """Conditions or-ed."""
        return self._fold(self.b.or_, conditions)

    def all_of(self, *conditions: Value) -> Value:
        """Conditions and-ed."""
        return self._fold(self.b.and_, conditions)

    def _fold(self, operation: Callable[[Value, Value], Value], values: tuple[Value, ...]) -> Value:
        result = values[0]
        for value in values[1:]:
            result = operation(result, value)
        return result


def splat(body: Body, value: Value, width: int) -> Value:
    """A value, or constant, in every part of a vector."""
    vector = ir.VectorType(value.type, width)
    if isinstance(value, ir.Constant):
        return ir.Constant(vector, [value.constant] * width)
    one = body.b.insert_element(ir.Constant(vector, ir.Undefined), value, body.number(0, I32))
    zeros = ir.Constant(ir.VectorType(I32, width), [0] * width)
    return body.b.shuffle_vector(one, ir.Constant(vector, ir.Undefined), zeros)


def load_vector(body: Body, pointer: Value, index: Value, width: int, kind: Any = I64) -> Value:
    """`width` elements from element `index` on."""
    return body.b.load(body.at(pointer, index, kind), typ=ir.VectorType(kind, width), align=kind.width // 8)


def store_vector(body: Body, pointer: Value, index: Value, vector: Value, kind: Any = I64) -> None:
    """Put a vector of elements of `kind` from element `index` on."""
    body.b.store(vector, body.at(pointer, index, kind), align=kind.width // 8)


def all_hold(body: Body, flags: Value) -> Value:
    """Whether every part of a vector of i1 is set."""
    width = flags.type.count
    return body.equal(body.b.bitcast(flags, ir.IntType(width)), (1 << width) - 1)


def is_zero(body: Body, vector: Value) -> Value:
    """Which parts are 0."""
    return body.b.icmp_unsigned("==", vector, splat(body, body.number(0), vector.type.count))


def is_not_zero(body: Body, vector: Value) -> Value:
    """Which parts are not 0."""
    return body.b.icmp_unsigned("!=", vector, splat(body, body.number(0), vector.type.count))


def declare(module: Any, name: str, *types: Any) -> Any:
    """A function outside the module that returns nothing."""
    return ir.Function(module, ir.FunctionType(VOID, list(types)), name)
