"""What instrumented native code writes down: checked accesses (for the profiler), registers set (for a trace)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cutesmith.emulator.native.emitter import Emitter, ModuleText
from cutesmith.emulator.program.abi import Access, Array, Space
from cutesmith.emulator.program.basic_blocks import Program

HEADER_WORDS = 4
"""A log is int64: records written so far (also those that found no room), capacity, first lane, lanes; then records."""
RECORD_WORDS = 3
NO_REGISTER = -1

_ACCESS_RECORD = np.dtype([("site", "<i4"), ("lane", "<i4"), ("address", "<u8"), ("what", "<i8")])
_TRACE_RECORD = np.dtype([("instruction", "<i4"), ("lane", "<i4"), ("register", "<i8"), ("value", "<u8")])


@dataclass(frozen=True)
class Instrumentation:
    """What native code writes down while it runs.

    `profile`: how often each basic block ran (COUNTS); `count_lanes`: and each lane of it (LANE_COUNTS). `accesses`:
    every checked access (ACCESS_LOG). `trace`: every register that is set (TRACE).
    """

    profile: bool = False
    count_lanes: bool = False
    accesses: bool = False
    trace: bool = False


NO_INSTRUMENTATION = Instrumentation()


def new_log(capacity: int, lanes: range = range(1 << 31)) -> Array:
    """An empty log for ACCESS_LOG or TRACE (pass `.ctypes.data`), int64, to which only `lanes` (step 1) write."""
    log = np.zeros(HEADER_WORDS + RECORD_WORDS * capacity, np.int64)
    log[1:HEADER_WORDS] = capacity, lanes.start, len(lanes)
    return log


def accesses(log: Array) -> dict[str, Array]:
    """The accesses of a log, in the order in which they were made, by field.

    "site": instruction number; "lane"; "address": uint64; "space": abi.Space; "kind": abi.Access; "bytes".
    """
    records = _records(log, _ACCESS_RECORD)
    what = records["what"]
    fields = {name: records[name] for name in ("site", "lane", "address")}
    return fields | {"space": what & 0xFF, "kind": what >> 8 & 0xFF, "bytes": what >> 16}


def trace_steps(log: Array) -> Array:
    """The steps of a trace: a structured array with "instruction", "lane", "register", "value" (its low 64 bits).

    Each executed instruction first writes a step with NO_REGISTER, then one for every register that it sets; `register`
    is the index in `traced_registers`.
    """
    return _records(log, _TRACE_RECORD)


def traced_registers(program: Program) -> tuple[str, ...]:
    """Names of registers by the index that a trace uses."""
    return tuple(sorted(program.widths))


def _records(log: Array, kind: np.dtype[Any]) -> Array:
    count = min(int(log[0]), int(log[1]))
    return log[HEADER_WORDS : HEADER_WORDS + RECORD_WORDS * count].view(kind)


class LoggingEmitter(Emitter):
    """An emitter whose code writes logs as it runs."""

    def __init__(self, program: Program, module: ModuleText, instrumentation: Instrumentation) -> None:
        super().__init__(program, module)
        self._logged = instrumentation
        self._indices = {name: index for index, name in enumerate(traced_registers(program))}

    def access(self, space: Space, address: str, size: int, kind: Access) -> str:
        if self._logged.accesses:
            self._write("%access.log", address, str(int(space) | int(kind) << 8 | size << 16))
        return super().access(space, address, size, kind)

    def begin(self) -> None:
        if self._logged.trace:
            self._write("%trace", str(NO_REGISTER), "0")

    def assigned(self, register: str, value: str, bits: int) -> None:
        if self._logged.trace:
            self._write("%trace", str(self._indices[register]), self.resize(value, bits, 64))

    def _write(self, log: str, *words: str) -> None:
        assert self.instruction is not None
        site = f"i32 {self.instruction.number}"
        payload = [f"i64 {word}" for word in words]
        self.helper("write_log", _WRITE_LOG, "void", f"ptr {log}", "i32 %lane", site, *payload)


_WRITE_LOG = f"""define internal void @write_log(ptr %log, i32 %lane, i32 %site, i64 %first, i64 %second) nounwind {{
%absent = icmp eq ptr %log, null
br i1 %absent, label %done, label %present
present:
%capacity.at = getelementptr i64, ptr %log, i64 1
%capacity = load i64, ptr %capacity.at
%from.at = getelementptr i64, ptr %log, i64 2
%from = load i64, ptr %from.at
%lanes.at = getelementptr i64, ptr %log, i64 3
%lanes = load i64, ptr %lanes.at
%lane.wide = zext i32 %lane to i64
%nth = sub i64 %lane.wide, %from
%mine = icmp ult i64 %nth, %lanes
br i1 %mine, label %count, label %done
count:
%written = load i64, ptr %log
%more = add i64 %written, 1
store i64 %more, ptr %log
%room = icmp ult i64 %written, %capacity
br i1 %room, label %write, label %done
write:
%words = mul i64 %written, {RECORD_WORDS}
%start = add i64 %words, {HEADER_WORDS}
%record = getelementptr i64, ptr %log, i64 %start
store i32 %site, ptr %record
%lane.at = getelementptr i32, ptr %record, i64 1
store i32 %lane, ptr %lane.at
%first.at = getelementptr i64, ptr %record, i64 1
store i64 %first, ptr %first.at
%second.at = getelementptr i64, ptr %record, i64 2
store i64 %second, ptr %second.at
br label %done
done:
ret void
}}"""
