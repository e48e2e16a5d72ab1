"""Accumulators in flight: where a function may touch registers that `wgmma` still writes, or that no fence has ordered.

A `wgmma.mma_async` writes its accumulators some time before the wait that covers its group. Which registers hold them
is a matter of data flow, since compilers copy registers from block to block: `mov` carries what is in flight, and does
not use it. Three kinds of instruction are put before what may be wrong, and judged when they are executed
(tensor_cores/register_checks.py):

- `accumulators.in_flight.OPCODE {registers}` before an instruction that uses registers which *may* be in flight;
- `accumulators.loading.OPCODE {registers}` before the first use of registers that a `tcgen05.ld` may still fill: the
  use waits for that load, as the hardware does;
- `accumulators.unfenced.OPCODE {registers}` before a `wgmma` whose registers were written on *every* path since the
  last `wgmma.fence`. Constants and copies are left out, and so is what only reads: compilers put them anywhere, and
  take the zero of an accumulator for other things.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from cutesmith.emulator.instructions.roles import reads, registers_in, writes
from cutesmith.emulator.program.basic_blocks import BasicBlock, SuspensionPoint
from cutesmith.emulator.program.control_flow import successors
from cutesmith.emulator.ptx.syntax import (
    Function,
    Immediate,
    Instruction,
    Label,
    Register,
    SpecialRegister,
    Symbol,
    Vector,
    with_body,
)

CHECK = "accumulators"


def fills_registers_later(function: Function) -> bool:
    """Whether the function has `wgmma.mma_async` or `tcgen05.ld`."""
    return any(isinstance(part, Instruction) and (part.opcode == "wgmma" or _loads(part)) for part in function.body)


def with_register_checks(function: Function, basic_blocks: tuple[BasicBlock, ...]) -> Function:
    """The function with checks where registers may be touched too early; itself where none is needed."""
    checks = _Analysis(basic_blocks).checks()
    if not checks:
        return function
    body: list[Instruction | Label] = []
    for part in function.body:
        if isinstance(part, Instruction):
            body += checks.get(part.number, ())
        body.append(part)
    return with_body(function, body)


@dataclass(frozen=True)
class _State:
    """Bit sets of registers. `groups`: those that may be in flight: not committed, then by age of the group.

    The last of `groups` is all older ones; with `tcgen05.ld`, each load has a group of its own. `changed`: written on
    every path since the last fence.
    """

    groups: tuple[int, ...]
    changed: int

    @property
    def in_flight(self) -> int:
        """Registers that may be in flight."""
        union = 0
        for group in self.groups:
            union |= group
        return union

    def joined(self, other: _State) -> _State:
        """What holds where two paths meet."""
        groups = (a | b for a, b in zip(self.groups, other.groups, strict=True))
        return _State(tuple(groups), self.changed & other.changed)

    def without(self, registers: int) -> _State:
        """These registers hold something else now."""
        return _State(tuple(group & ~registers for group in self.groups), self.changed & ~registers)


@dataclass(frozen=True)
class _Run:
    """Instructions that follow each other: what they write, and which of it last by other ones than a `mov`."""

    written: int = 0
    changed: int = 0

    def then(self, written: int, *, copies: bool) -> _Run:
        """With one more, which always writes these registers."""
        changed = self.changed & ~written if copies else self.changed | written
        return _Run(self.written | written, changed)

    def after(self, state: _State) -> _State:
        """What holds after these instructions."""
        groups, changed = state.without(self.written).groups, state.changed & ~self.written
        return _State(groups, changed | self.changed)


class _Analysis:
    """Data flow over the basic blocks to a fixed point, then one more walk for the checks."""

    def __init__(self, basic_blocks: tuple[BasicBlock, ...]) -> None:
        self._basic_blocks = basic_blocks
        self._bits: dict[str, int] = {}
        self._steps = {block.number: list(_instructions(block)) for block in basic_blocks}
        self._masks: dict[int, tuple[int, int]] = {}
        loads = [step.number for steps in self._steps.values() for step in steps if _loads(step)]
        self._loads = {number: index for index, number in enumerate(loads)}
        for instruction in (step for steps in self._steps.values() for step in steps):
            self._masks[instruction.number] = self._mask(reads(instruction)), self._mask(writes(instruction))
        waits = [_allowed(step) for steps in self._steps.values() for step in steps if _is(step, "wait_group")]
        self._ages = max(waits, default=0) + 2
        self._count = len(loads) or self._ages + 1

    def checks(self) -> dict[int, list[Instruction]]:
        """Checks to put before instructions, by their number."""
        found: dict[int, list[Instruction]] = {}
        for number, state in self._solve().items():
            for step in self._steps[number]:
                used, written = self._masks[step.number]
                multiplies = _is(step, "mma_async")
                touched = self._unfenced(step, state) if multiplies else self._early(step, state, used | written)
                if touched:
                    kind = "unfenced" if multiplies else "loading" if self._loads else "in_flight"
                    found.setdefault(step.number, []).append(self._check(step, kind, touched))
                state = self._after(step, state)
        return found

    def _solve(self) -> dict[int, _State]:
        """The state at the start of each basic block that can be reached."""
        states = {0: _State((0,) * self._count, 0)}
        runs = {number: list(self._runs(steps)) for number, steps in self._steps.items()}
        waiting = [0]
        while waiting:
            number = waiting.pop()
            state = states[number]
            for run in runs[number]:
                state = run.after(state) if isinstance(run, _Run) else self._after(run, state)
            for following in successors(self._basic_blocks[number].end):
                known = states.get(following)
                joined = state if known is None else known.joined(state)
                if joined != known:
                    states[following] = joined
                    waiting.append(following)
        return states

    def _runs(self, steps: Iterable[Instruction]) -> Iterator[_Run | Instruction]:
        """A block's instructions, those that only write joined: all but 221 of 4,907 of a product with GELU."""
        run = _Run()
        for step in steps:
            source = self._copied(step)
            if self._loads or step.opcode == "wgmma" or source or (source is not None and step.guard):
                yield from (run, step)
                run = _Run()
            elif step.guard is None:
                run = run.then(self._masks[step.number][1], copies=source is not None)
        yield run

    def _after(self, step: Instruction, state: _State) -> _State:
        used, written = self._masks[step.number]
        groups = state.groups
        if _is(step, "mma_async"):
            accumulators = self._mask(registers_in(step.operands[0]))
            return _State((groups[0] | accumulators, *groups[1:]), state.changed & ~(used | written))
        if self._loads:
            return replace(state, groups=self._loading(step, groups, used, written))
        if _is(step, "commit_group"):
            return _State((0, *groups[:-2], groups[-2] | groups[-1]), state.changed)
        if _is(step, "wait_group"):
            kept = _allowed(step) + 1
            return _State((*groups[:kept], *(0 for _ in groups[kept:])), state.changed)
        if _is(step, "fence"):
            return _State(groups, 0)
        certain = step.guard is None
        cleared = state.without(written) if certain else state
        source = self._copied(step)
        if source is None:
            return _State(cleared.groups, cleared.changed | written if certain else cleared.changed)
        moved = self._mask(source)
        copied = (after | written if before & moved else after for after, before in zip(cleared.groups, groups))
        if state.changed & moved:
            return _State(tuple(copied), cleared.changed | written if certain else cleared.changed)
        return _State(tuple(copied), cleared.changed & ~written)

    def _loading(self, step: Instruction, groups: tuple[int, ...], used: int, written: int) -> tuple[int, ...]:
        """What each load may still fill after an instruction: nothing where it was waited for, or used."""
        if _waits_for_loads(step):
            return tuple(0 for _ in groups)
        source = self._copied(step)
        moved = self._mask(source) if source is not None else 0
        after = []
        for index, group in enumerate(groups):
            touched = group & (used | written) and not group & moved
            left = 0 if touched else group & ~written if step.guard is None else group
            left |= written if group & moved or self._loads.get(step.number) == index else 0
            after.append(left)
        return tuple(after)

    def _early(self, step: Instruction, state: _State, registers: int) -> int:
        """The registers of an instruction that may be in flight; none for a copy of what is in flight itself."""
        source = self._copied(step)
        moves = source is not None and self._mask(source) & state.in_flight != 0
        return 0 if moves else registers & state.in_flight

    def _unfenced(self, step: Instruction, state: _State) -> int:
        """The registers of a multiplication that were written since the last fence, on every path."""
        operands = [operand for operand in step.operands[:2] if isinstance(operand, Vector)]
        return state.changed & self._mask(name for operand in operands for name in registers_in(operand))

    def _copied(self, step: Instruction) -> tuple[str, ...] | None:
        """Registers that a `mov` copies, none for a constant; None for other instructions.

        Compilers pack what `tcgen05.ld` fills into wider registers before the wait: these are copies too.
        """
        if step.opcode != "mov":
            return None
        target, source = step.operands
        if self._loads and (isinstance(target, Vector) or isinstance(source, Vector)):
            return tuple(registers_in(source))
        if not isinstance(target, Register):
            return None
        if isinstance(source, Register):
            return (source.name,)
        return () if isinstance(source, (Immediate, SpecialRegister, Symbol)) else None

    def _check(self, step: Instruction, kind: str, registers: int) -> Instruction:
        names = (name for name, bit in self._bits.items() if registers & bit)
        return Instruction(
            CHECK,
            (kind, step.opcode, *step.modifiers),
            (Vector(tuple(Register(name) for name in names)),),
            None if kind == "loading" else step.guard,
            step.location,
            step.ptx_line,
        )

    def _mask(self, names: Iterator[str] | tuple[str, ...]) -> int:
        mask = 0
        for name in names:
            mask |= self._bits.setdefault(name, 1 << len(self._bits))
        return mask


def _instructions(basic_block: BasicBlock) -> Iterator[Instruction]:
    yield from basic_block.instructions
    if isinstance(basic_block.end, SuspensionPoint):
        yield basic_block.end.instruction


def _is(instruction: Instruction, word: str) -> bool:
    return instruction.opcode == "wgmma" and instruction.modifiers[:1] == (word,)


def _loads(instruction: Instruction) -> bool:
    return instruction.opcode == "tcgen05" and instruction.modifiers[:1] == ("ld",)


def _waits_for_loads(instruction: Instruction) -> bool:
    return instruction.opcode == "tcgen05" and instruction.modifiers[:1] == ("wait::ld",)


def _allowed(instruction: Instruction) -> int:
    """How many groups a `wgmma.wait_group` leaves in flight."""
    operand = instruction.operands[0]
    return operand.value if isinstance(operand, Immediate) else 0
