"""How native code writes a fault down: a hash table by (kind, site, other site), a noisy line fills one slot."""

from __future__ import annotations

from typing import Any

import numpy as np

from cutesmith.emulator.native.building import I8, I32, I64, PTR, VOID, Body, Value
from cutesmith.emulator.program.abi import Array, Context
from cutesmith.emulator.sanitizer.cells import SITE_BITS
from cutesmith.emulator.sanitizer.layout import FAULT_HEADER_WORDS, FAULT_RECORD, FAULT_SLOTS, Fault

_PARAMETERS = {
    "context": PTR, "kind": I32, "lane": I32, "space": I32, "address": I64, "bytes": I32, "access": I32,
    "site": I32, "cell": I64,
}  # fmt: skip


class FaultTable:
    """The function `access_fault`, which looks a fault's slot up and counts it."""

    def __init__(self, module: Any) -> None:
        self.function = _fault_function(module)

    def write(self, body: Body, fault: Fault, space: Value, cell: Value) -> None:
        """Write down that the access of `body` is at fault; `cell` is the other access of a race."""
        given = {
            **{name: body.arguments[name] for name in ("context", "lane", "address", "bytes", "site")},
            "kind": body.number(fault, I32),
            "space": space,
            "access": body["kind"],
            "cell": cell,
        }
        body.b.call(self.function, [given[name] for name in _PARAMETERS])


def _fault_function(module: Any) -> Any:
    body = Body(module, "access_fault", VOID, _PARAMETERS, attributes=("noinline", "cold"))
    b = body.b
    header = body.word(body["context"], Context.FAULTS, PTR)
    other = b.trunc(b.and_(body["cell"], body.number((1 << SITE_BITS) - 1)), I32)
    key = b.add(b.mul(body["site"], body.number(0x9E3779B1, I32)), b.mul(other, body.number(0x85EBCA77, I32)))
    key = b.add(key, b.mul(body["kind"], body.number(0xC2B2AE3D, I32)))
    first = b.lshr(key, body.number(16, I32))
    with body.each(body.number(FAULT_SLOTS)) as probe:
        slot = b.and_(b.add(body.wide(first), probe), body.number(FAULT_SLOTS - 1))
        offset = b.add(b.mul(slot, body.number(FAULT_RECORD.itemsize)), body.number(8 * FAULT_HEADER_WORDS))
        record = body.at(header, offset, I8)
        count = b.load(_field(body, record, "count"), typ=I32)
        with body.when(b.icmp_unsigned("==", count, body.number(0, I32))):
            number = body.word(header, 0)
            b.store(b.add(number, body.number(1)), header)
            values = {key: body[key] for key in ("kind", "site", "lane", "space", "bytes", "access", "address", "cell")}
            values |= {"count": body.number(1, I32), "other_site": other, "number": number}
            for name, value in values.items():
                b.store(value, _field(body, record, name))
            b.ret_void()
        same = [
            b.icmp_unsigned("==", b.load(_field(body, record, name), typ=I32), value)
            for name, value in (("kind", body["kind"]), ("site", body["site"]), ("other_site", other))
        ]
        with body.when(body.all_of(*same)):
            b.store(b.add(count, body.number(1, I32)), _field(body, record, "count"))
            b.ret_void()
    b.ret_void()  # more than FAULT_SLOTS different faults between two drains: enough is known
    return body.function


def _field(body: Body, record: Value, name: str) -> Value:
    assert FAULT_RECORD.fields is not None
    return body.at(record, int(FAULT_RECORD.fields[name][1]), I8)


class FaultBuffer:
    """The table of faults that native code fills."""

    def __init__(self) -> None:
        self._words = np.zeros(FAULT_HEADER_WORDS + FAULT_SLOTS * FAULT_RECORD.itemsize // 8, np.int64)
        self._records = self._words[FAULT_HEADER_WORDS:].view(FAULT_RECORD)

    @property
    def address(self) -> int:
        """The host address, for Context.FAULTS."""
        return int(self._words.ctypes.data)

    @property
    def empty(self) -> bool:
        """Whether nothing was written since the last `take`."""
        return not self._words[0]

    def take(self) -> Array:
        """Remove and give the records, in the order in which they were first written."""
        used = self._records[self._records["count"] > 0]
        records = used[np.argsort(used["number"])]
        self._words[:] = 0
        return records
