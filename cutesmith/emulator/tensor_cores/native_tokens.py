"""Whether registers of a wave's frame hold the tokens of an accumulator: a loop in machine code that copies nothing.

An instruction of a chain finds tokens in all of up to 128 registers of 128 threads.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from llvmlite import ir

from cutesmith.emulator.native.building import I64, PTR, Body, all_hold, load_vector, new_module, splat
from cutesmith.emulator.native.jit import machine_code
from cutesmith.emulator.program.abi import Array

_WIDTH = 8


def hold_tokens(frame: Array, rows: Array, first: int, count: int, token: int) -> bool:
    """Whether lanes [first, first + count) hold in the i-th of `rows` (int64) of the frame (uint64) the word token + i.

    `count` is a multiple of 8.
    """
    assert frame.flags.c_contiguous and rows.flags.c_contiguous and count % _WIDTH == 0
    return bool(_function()(frame.ctypes.data, rows.ctypes.data, len(rows), frame.shape[1], first, count, token))


@functools.cache
def _function() -> Any:
    signature = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 5)
    return signature(_engine().get_function_address("hold_tokens"))


@functools.cache
def _engine() -> Any:
    """The execution engine, which owns the code."""
    return machine_code(_text())


def _text() -> str:
    module = new_module("tokens")
    parameters = {
        "frame": PTR, "rows": PTR, "registers": I64, "stride": I64, "first": I64, "count": I64, "token": I64,
    }  # fmt: skip
    body = Body(module, "hold_tokens", I64, parameters)
    b = body.b
    with body.each(body["registers"]) as index:
        start = b.add(b.mul(body.word(body["rows"], index), body["stride"]), body["first"])
        wanted = splat(body, b.add(body["token"], index), _WIDTH)
        apart = body.local(ir.VectorType(I64, _WIDTH))
        b.store(ir.Constant(ir.VectorType(I64, _WIDTH), [0] * _WIDTH), apart)
        with body.each(body["count"], _WIDTH) as lane:
            words = load_vector(body, body["frame"], b.add(start, lane), _WIDTH)
            b.store(b.or_(b.load(apart, typ=ir.VectorType(I64, _WIDTH)), b.xor(words, wanted)), apart)
        same = b.icmp_unsigned("==", b.load(apart, typ=ir.VectorType(I64, _WIDTH)), splat(body, body.number(0), _WIDTH))
        with body.when(b.not_(all_hold(body, same))):
            b.ret(body.number(0))
    b.ret(body.number(1))
    return str(module)
