"""Elements of matrices in the registers of warps, decoded and written back by machine code.

It serves the products that `mma` computes most: 16-bit factors, float32 sums. Where lanes lie is what
fragments.fragment_order says; a warp's lanes are neighbours in the frame.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np
from llvmlite import ir

from cutesmith.emulator.native.building import I16, I32, I64, PTR, VOID, Body, Value, new_module
from cutesmith.emulator.native.jit import machine_code
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.tensor_cores.native_sums import NO_EXPONENT

_DOUBLE, _FLOAT = ir.DoubleType(), ir.FloatType()
_BIAS, _EXPONENTS, _NAN, _MANTISSA = 127, 0xFF, 0x7FFF_FFFF, 23  # of float32
_LANE_BITS = 5
_COMMON = {"frame": PTR, "stride": I64, "firsts": PTR, "warps": I64, "rows": PTR, "order": PTR, "count": I64}


def read_halves(
    frame: Array, firsts: Array, rows: Array, order: Array, shape: tuple[int, int], tables: tuple[Array, Array]
) -> tuple[Array, Array]:
    """float64 values and int16 exponents (w, *shape) of matrices of 16-bit elements, two a register.

    `firsts` (int64, w): the first lanes of the warps. `rows` (int64): those of the frame (uint64, by lane) that have
    the registers. `tables`: values and exponents of all patterns.
    """
    return _read("read_halves", (frame, firsts, rows, order), shape, *tables)


def read_floats(frame: Array, firsts: Array, rows: Array, order: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
    """The same of float32 elements, one a register."""
    return _read("read_floats", (frame, firsts, rows, order), shape)


def write_floats(frame: Array, firsts: Array, rows: Array, order: Array, values: Array) -> None:
    """Write float64 values (w, m, n) that are float32 numbers to registers; NaN is 0x7fffffff."""
    assert values.flags.c_contiguous
    _call("write_floats", (frame, firsts, rows, order), values)


def _read(
    name: str, places: tuple[Array, Array, Array, Array], shape: tuple[int, int], *tables: Array
) -> tuple[Array, Array]:
    whole = (len(places[1]), *shape)
    values, exponents = np.empty(whole), np.empty(whole, np.int16)
    _call(name, places, *tables, values, exponents)
    return values, exponents


def _call(name: str, places: tuple[Array, Array, Array, Array], *last: Array) -> None:
    frame, firsts, rows, order = places
    assert all(each.dtype == np.int64 and each.flags.c_contiguous for each in (firsts, rows, order))
    where = (frame.ctypes.data, frame.shape[1], firsts.ctypes.data, len(firsts))
    what = (rows.ctypes.data, order.ctypes.data, len(order))
    _function(name, len(last))(*where, *what, *(each.ctypes.data for each in last))


@functools.cache
def _function(name: str, arrays: int) -> Any:
    kinds = [ctypes.c_void_p if kind is PTR else ctypes.c_int64 for kind in _COMMON.values()]
    signature = ctypes.CFUNCTYPE(None, *kinds, *[ctypes.c_void_p] * arrays)
    return signature(_engine().get_function_address(name))


@functools.cache
def _engine() -> Any:
    """The execution engine, which owns the code."""
    return machine_code(_text())


def _text() -> str:
    module = new_module("registers")
    _each_element(module, "read_halves", ("values", "exponents", "out", "out_exponents"), 1, _read_half)
    _each_element(module, "read_floats", ("out", "out_exponents"), 0, _read_float)
    _each_element(module, "write_floats", ("values",), 0, _write_float)
    return str(module)


def _each_element(module: Any, name: str, arrays: tuple[str, ...], halves: int, code: Any) -> None:
    """void NAME(…): `code` for each element of each warp, by its register, its part of that and its number."""
    body = Body(module, name, VOID, _COMMON | dict.fromkeys(arrays, PTR))
    b = body.b
    with body.each(body["warps"]) as warp:
        first = body.word(body["firsts"], warp)
        start = b.mul(warp, body["count"])
        with body.each(body["count"]) as element:
            place = body.word(body["order"], element)
            row = body.word(body["rows"], b.lshr(place, body.number(_LANE_BITS + halves)))
            lane = b.add(first, b.and_(place, body.number((1 << _LANE_BITS) - 1)))
            register = body.at(body["frame"], b.add(b.mul(row, body["stride"]), lane))
            code(body, register, place, b.add(start, element))
    b.ret_void()


def _read_half(body: Body, register: Value, place: Value, element: Value) -> None:
    b = body.b
    upper = b.and_(b.lshr(place, body.number(_LANE_BITS)), body.number(1))
    word = b.lshr(b.load(register, typ=I64), b.shl(upper, body.number(4)))
    pattern = b.and_(word, body.number(0xFFFF))
    body.put(body.word(body["values"], pattern, _DOUBLE), body["out"], element, _DOUBLE)
    body.put(body.word(body["exponents"], pattern, I16), body["out_exponents"], element, I16)


def _read_float(body: Body, register: Value, place: Value, element: Value) -> None:
    b = body.b
    bits = b.load(register, typ=I32)  # the lower half of the word
    body.put(b.fpext(b.bitcast(bits, _FLOAT), _DOUBLE), body["out"], element, _DOUBLE)
    biased = b.and_(b.lshr(bits, body.number(_MANTISSA, I32)), body.number(_EXPONENTS, I32))
    exponent = b.sub(b.select(body.equal(biased, 0), body.number(1, I32), biased), body.number(_BIAS, I32))
    is_zero = body.equal(b.shl(bits, body.number(1, I32)), 0)
    known = b.select(is_zero, body.number(NO_EXPONENT, I32), exponent)
    body.put(b.trunc(known, I16), body["out_exponents"], element, I16)


def _write_float(body: Body, register: Value, place: Value, element: Value) -> None:
    b = body.b
    value = b.fptrunc(body.word(body["values"], element, _DOUBLE), _FLOAT)
    bits = b.select(b.fcmp_unordered("uno", value, value), body.number(_NAN, I32), b.bitcast(value, I32))
    b.store(body.wide(bits), register)
