"""A trace of one warp: which lanes executed each instruction, and the registers that it set in one of them.

Native code writes every register that it sets to a log, one lane of the warp at a time; a suspension point shows when
its lanes go on. The lanes' own courses are then merged as a warp would run them: of all next instructions the one that
comes first in the program, for every lane that is there, so that lanes that parted meet again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from cutesmith.emulator.instructions.roles import writes
from cutesmith.emulator.machine.observation import Executors
from cutesmith.emulator.machine.scheduler import NativeCode
from cutesmith.emulator.native.logs import NO_REGISTER, Instrumentation, new_log, trace_steps, traced_registers
from cutesmith.emulator.program.abi import WARP, Array, Context
from cutesmith.emulator.program.basic_blocks import Program
from cutesmith.emulator.ptx.syntax import Instruction
from cutesmith.emulator.state.geometry import Geometry
from cutesmith.emulator.state.wave import Wave

MOST_STEPS = 2000
_RECORDS_PER_STEP = 10  # a load of eight registers writes nine


@dataclass(frozen=True)
class Step:
    """One instruction as the warp executed it.

    `mask`: bit l is set where lane l of the warp took part. `values`: registers that it set in the lane that is shown
    and their bits (64 at most), empty where that lane took no part or the instruction sets none.
    """

    instruction: Instruction
    mask: int
    values: tuple[tuple[str, int], ...] = ()


@dataclass
class _Course:
    """The instructions of one lane in order, and what the shown lane's registers became."""

    numbers: list[int] = field(default_factory=list)
    values: dict[int, list[tuple[str, int]]] = field(default_factory=dict)  # by position


class Tracer:
    """Traces one warp of one launch; `steps` has the result, `found` is False where there was no such warp.

    `block` is the flat index of a block in the grid (x fastest), `warp` a warp of it, `lane` the lane whose values are
    kept, `launch` counts from 0. At most `most_steps` steps are kept.
    """

    instrumentation = Instrumentation(profile=True, trace=True)

    def __init__(
        self, block: int = 0, warp: int = 0, *, lane: int = 0, launch: int = 0, most_steps: int = MOST_STEPS
    ) -> None:
        self.block, self.warp, self.lane, self.launch = block, warp, lane, launch
        self.most_steps = most_steps
        self.found = False
        self._courses: dict[int, _Course] = {}
        self._program: Program | None = None

    @contextmanager
    def watch(self, geometry: Geometry, wave: Wave, executors: Executors) -> Iterator[Executors]:
        """Trace the warp if it is in this wave."""
        lanes = self._lanes(geometry, wave)
        if not len(lanes):
            yield executors
            return
        self.found, self._program = True, wave.program
        traced = _Traced(executors.native, wave, lanes, self)
        self._courses = traced.courses
        yield Executors(traced, executors.memory)

    def _lanes(self, geometry: Geometry, wave: Wave) -> Array:
        """The warp's lanes of the wave in order, none if it is elsewhere."""
        x, y, _ = geometry.grid
        flat = wave.blocks.astype(np.int64) @ np.array([1, x, x * y])
        place = np.flatnonzero(flat == self.block)
        first, last = WARP * self.warp, min(WARP * self.warp + WARP, wave.threads_per_block)
        if geometry.grid_id != self.launch + 1 or not len(place):
            return np.zeros(0, np.int64)
        return int(place[0]) * wave.threads_per_block + np.arange(first, max(first, last))

    @property
    def steps(self) -> list[Step]:
        """What the warp did, from its first instruction."""
        if self._program is None:
            return []
        merged = merge([course.numbers for course in self._courses.values()])
        positions = dict.fromkeys(self._courses, 0)
        steps = []
        for (number, places), _ in zip(merged, range(self.most_steps)):
            assert self._program is not None
            values: tuple[tuple[str, int], ...] = ()
            for place in places:
                if place == self.lane:
                    values = tuple(self._courses[place].values.get(positions[place], ()))
                positions[place] += 1
            steps.append(Step(self._program.instructions[number], sum(1 << place for place in places), values))
        return steps


def merge(courses: list[list[int]]) -> Iterator[tuple[int, list[int]]]:
    """(instruction, lanes) of each step: of all next instructions the first in the program."""
    at = [0] * len(courses)
    while True:
        heads = [course[i] if i < len(course) else None for course, i in zip(courses, at)]
        left = [head for head in heads if head is not None]
        if not left:
            return
        number = min(left)
        lanes = [lane for lane, head in enumerate(heads) if head == number]
        for lane in lanes:
            at[lane] += 1
        yield number, lanes


class _Traced:
    """Native code that follows the lanes of one warp."""

    def __init__(self, native: NativeCode, wave: Wave, lanes: Array, tracer: Tracer) -> None:
        self._native, self._wave, self._tracer = native, wave, tracer
        self._place = {int(lane): place for place, lane in enumerate(lanes)}
        self._lanes = lanes
        self._names = traced_registers(wave.program)
        self._log = new_log(_RECORDS_PER_STEP * tracer.most_steps)
        self.courses = {place: _Course() for place in range(len(lanes))}

    def run(self, basic_block: int, context: Array, lanes: Array) -> None:
        """As NativeCode.run: the warp's lanes run one at a time, with a log."""
        mine = np.isin(lanes, self._lanes)
        others = lanes[~mine]
        if len(others):
            self._native.run(basic_block, context, others)
        for lane in lanes[mine].tolist():
            course = self.courses[self._place[lane]]
            if len(course.numbers) >= self._tracer.most_steps:
                self._native.run(basic_block, context, np.array([lane], np.int32))
            else:
                self._follow(course, basic_block, context, lane)

    def _follow(self, course: _Course, basic_block: int, context: Array, lane: int) -> None:
        self._suspended(course, lane)
        self._log[0] = 0
        context[Context.TRACE] = self._log.ctypes.data
        self._native.run(basic_block, context, np.array([lane], np.int32))
        context[Context.TRACE] = 0
        shown = self._place[lane] == self._tracer.lane
        steps = trace_steps(self._log)
        columns = (steps[name].tolist() for name in ("instruction", "register", "value"))
        for number, register, value in zip(*columns, strict=True):
            if register == NO_REGISTER:
                course.numbers.append(number)
            elif shown:
                values = course.values.setdefault(len(course.numbers) - 1, [])
                values.append((self._names[register], value))

    def _suspended(self, course: _Course, lane: int) -> None:
        """The suspension point where the lane has waited, now that it goes on; its results are in the frame."""
        code = int(self._wave.status[lane])
        if code < 0:
            return
        instruction = self._wave.program.suspension_points[code].instruction
        course.numbers.append(instruction.number)
        if self._place[lane] == self._tracer.lane:
            slots = self._wave.program.slots
            set_there = [name for name in writes(instruction) if name in slots]
            results = [(name, int(self._wave.frame[slots[name], lane])) for name in set_there]
            course.values[len(course.numbers) - 1] = results


def format_value(instruction: Instruction, bits: int) -> str:
    """A register that the instruction set, in the type that its result has; an untyped one also as a float."""
    kind = next((word for word in instruction.modifiers if word in _READERS), "")
    if instruction.opcode in ("setp", "isspacep", "vote", "elect"):
        return "true" if bits else "false"
    if kind:
        return _READERS[kind](bits)
    if bits < _SMALL:
        return str(bits)
    single = float(np.array(bits & 0xFFFF_FFFF, np.uint32).view(np.float32)) if bits < 1 << 32 else 0.0
    likely = f" ({single:.7g} as f32)" if 1e-9 < abs(single) < 1e12 else ""
    return f"{bits:#x}{likely}"


_SMALL = 1 << 20


def _float(bits: int, width: int) -> str:
    value = np.array(bits & (1 << width) - 1, f"u{width // 8}").view(f"f{width // 8}")
    return f"{float(value):.9g}"


def _brain_float(bits: int) -> str:
    return _float(bits << 16, 32)


def _pair(bits: int, reader: Callable[[int], str]) -> str:
    return f"{{{reader(bits & 0xFFFF)}, {reader(bits >> 16 & 0xFFFF)}}}"


def _signed(bits: int, width: int) -> str:
    bits &= (1 << width) - 1
    return str(bits - (1 << width) if bits >> width - 1 else bits)


_READERS: dict[str, Callable[[int], str]] = {
    "f32": lambda bits: _float(bits, 32),
    "f64": lambda bits: _float(bits, 64),
    "f16": lambda bits: _float(bits, 16),
    "bf16": _brain_float,
    "f16x2": lambda bits: _pair(bits, lambda half: _float(half, 16)),
    "bf16x2": lambda bits: _pair(bits, _brain_float),
    "s16": lambda bits: _signed(bits, 16),
    "s32": lambda bits: _signed(bits, 32),
}
"""Readers of a result's bits by the first type that the instruction names, which is the result's."""
