"""A body cut into basic blocks: guards of suspension points, branches and returns become branches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from cutesmith.emulator.errors import PtxSyntaxError
from cutesmith.emulator.instructions.roles import writes
from cutesmith.emulator.program.basic_blocks import BasicBlock, Branch, End, Exit, Jump, SuspensionPoint, Switch
from cutesmith.emulator.ptx.syntax import Function, Instruction, LabelReference, Register

_Known = tuple[str, bool]
"""A predicate and the value that it is known to have."""


def cut(function: Function, is_native: Callable[[Instruction], bool]) -> tuple[BasicBlock, ...]:
    """The basic blocks of a function in the order of its text; those that cannot be reached are left out."""
    drafts = _Cutter(function, is_native).cut()
    for draft in drafts.values():
        draft.end = _redirect(draft.end, drafts, draft.known)
    start = _follow(0, drafts, None)  # every edge leads past empty basic blocks
    drafts = _merge({start: drafts[start], **drafts})
    numbers = {old: new for new, old in enumerate(drafts)}
    suspension_points = iter(range(len(drafts)))
    return tuple(
        BasicBlock(number, tuple(draft.instructions), _renumber(draft.end, numbers, suspension_points))
        for number, draft in enumerate(drafts.values())
    )


def successors(end: End) -> tuple[int, ...]:
    """Basic blocks that may follow, the one after a suspension point included."""
    if isinstance(end, Jump):
        return (end.target,)
    if isinstance(end, Branch):
        return (end.taken, end.otherwise)
    if isinstance(end, SuspensionPoint):
        return (end.resume,)
    return end.targets if isinstance(end, Switch) else ()


def loops(basic_blocks: Sequence[BasicBlock]) -> dict[int, frozenset[int]]:
    """By basic block in a loop: the basic blocks that it leads to and that lead back to it, itself included."""
    edges = {block.number: successors(block.end) for block in basic_blocks}
    sources: dict[int, list[int]] = {number: [] for number in edges}
    for number, following in edges.items():
        for target in following:
            sources[target].append(number)
    found, placed = dict[int, frozenset[int]](), set[int]()
    for start in reversed(_by_end(edges)):  # Kosaraju: what leads to the one left last is in its loop, or placed before
        if start in placed:
            continue
        loop, waiting = {start}, [start]
        while waiting:
            fresh = {number for number in sources[waiting.pop()] if number not in loop and number not in placed}
            loop |= fresh
            waiting += fresh
        placed |= loop
        if len(loop) > 1 or start in edges[start]:
            found |= dict.fromkeys(loop, frozenset(loop))
    return found


def _by_end(edges: Mapping[int, Sequence[int]]) -> list[int]:
    """Numbers in the order in which a depth-first search leaves them."""
    left, seen = list[int](), set[int]()
    for start in edges:
        path = [] if start in seen else [(start, iter(edges[start]))]
        seen.add(start)
        while path:
            number = next((each for each in path[-1][1] if each not in seen), None)
            if number is None:
                left.append(path.pop()[0])
            else:
                seen.add(number)
                path.append((number, iter(edges[number])))
    return left


def inner_successors(end: End) -> tuple[int, ...]:
    """Basic blocks that native code goes on to by itself: none after a suspension point."""
    return () if isinstance(end, SuspensionPoint) else successors(end)


@dataclass
class _Draft:
    """A basic block in the making; `known` is what the guard of a suspension point has told."""

    instructions: list[Instruction] = field(default_factory=list)
    end: End = Exit()
    known: _Known | None = None


class _Cutter:
    def __init__(self, function: Function, is_native: Callable[[Instruction], bool]) -> None:
        self._function, self._is_native = function, is_native
        self._drafts: list[_Draft] = [_Draft()]
        targets: dict[str, None] = {}  # labels that something branches to
        for statement in function.body:
            if isinstance(statement, Instruction) and statement.opcode == "bra":
                targets.update((name.name, None) for name in statement.operands if isinstance(name, LabelReference))
        for names in function.branch_targets.values():
            targets.update(dict.fromkeys(names))
        self._labels = {label: self._new() for label in targets}
        self._current = 0
        self._order = [0]
        self._ended = False

    def cut(self) -> dict[int, _Draft]:
        """Drafts by number, in the order of the text."""
        for statement in self._function.body:
            if isinstance(statement, Instruction):
                if self._ended:
                    self._start(self._new())
                if statement.opcode == "bra":
                    operand = statement.operands[0]
                    if not isinstance(operand, LabelReference) or operand.name not in self._labels:
                        raise PtxSyntaxError(f"PTX line {statement.ptx_line}: `{operand}` is not a label to branch to")
                    target = self._labels[operand.name]
                    if statement.guard is None:
                        self._finish(Jump(target))
                    else:
                        following = self._new()
                        self._finish(Branch(statement.guard, target, following))
                        self._start(following)
                elif statement.opcode in ("ret", "exit", "brx") or not self._is_native(statement):
                    self._leave(statement)
                else:
                    self._drafts[self._current].instructions.append(statement)
            elif statement.name in self._labels:
                self._start(self._labels[statement.name])
        return {number: self._drafts[number] for number in self._order}

    def _new(self) -> int:
        self._drafts.append(_Draft())
        return len(self._drafts) - 1

    def _start(self, number: int) -> None:
        if not self._ended:
            self._finish(Jump(number))
        self._current, self._ended = number, False
        self._order.append(number)

    def _finish(self, end: End) -> None:
        self._drafts[self._current].end, self._ended = end, True

    def _leave(self, instruction: Instruction) -> None:
        """A return, a switch or a suspension point; a guard becomes a branch around it."""
        guard, following = instruction.guard, self._new()
        if guard is not None:
            inside = self._new()
            self._finish(Branch(guard, inside, following))
            self._start(inside)
            if guard.register not in writes(instruction):
                self._drafts[inside].known = (guard.register, not guard.negated)
        if instruction.opcode in ("ret", "exit"):
            self._finish(Exit())
        elif instruction.opcode != "brx":
            self._finish(SuspensionPoint(-1, replace(instruction, guard=None), following))
        else:
            index, targets = instruction.operands[0], instruction.operands[1]
            assert isinstance(index, Register) and isinstance(targets, LabelReference)
            names = self._function.branch_targets[targets.name]
            self._finish(Switch(index, tuple(self._labels[name] for name in names)))
        self._start(following)


def _redirect(end: End, drafts: dict[int, _Draft], known: _Known | None) -> End:
    if isinstance(end, Jump):
        return Jump(_follow(end.target, drafts, None))
    if isinstance(end, Branch):
        taken = _follow(end.taken, drafts, (end.guard.register, not end.guard.negated))
        otherwise = _follow(end.otherwise, drafts, (end.guard.register, end.guard.negated))
        return Jump(taken) if taken == otherwise else Branch(end.guard, taken, otherwise)
    if isinstance(end, SuspensionPoint):
        return replace(end, resume=_follow(end.resume, drafts, known))
    if isinstance(end, Switch):
        return Switch(end.register, tuple(_follow(target, drafts, None) for target in end.targets))
    return end


def _follow(number: int, drafts: dict[int, _Draft], known: _Known | None) -> int:
    """Where an edge to that basic block ends after empty ones; a ring of empty basic blocks is kept."""
    seen = {number}
    while not drafts[number].instructions:
        end = drafts[number].end
        if isinstance(end, Branch) and known is not None and end.guard.register == known[0]:
            following = end.taken if known[1] != end.guard.negated else end.otherwise
        elif isinstance(end, Jump):
            following = end.target
        else:
            break
        if following in seen:
            break
        seen.add(following)
        number = following
    return number


def _merge(drafts: dict[int, _Draft]) -> dict[int, _Draft]:
    """Reachable basic blocks; one that only a jump leads to is joined to where the jump is."""
    start = next(iter(drafts))
    found, waiting = {start}, [start]
    while waiting:
        fresh = [number for number in successors(drafts[waiting.pop()].end) if number not in found]
        found.update(fresh)
        waiting += fresh
    drafts = {number: draft for number, draft in drafts.items() if number in found}
    sources = dict.fromkeys(drafts, 0)
    sources[next(iter(drafts))] = 1  # where threads start
    for draft in drafts.values():
        for number in successors(draft.end):
            sources[number] += 1
    for number, draft in list(drafts.items()):
        if number not in drafts:
            continue
        while isinstance(draft.end, Jump) and sources[draft.end.target] == 1 and draft.end.target != number:
            absorbed = drafts.pop(draft.end.target)
            draft.instructions += absorbed.instructions
            draft.end = absorbed.end
    return drafts


def _renumber(end: End, numbers: dict[int, int], suspension_points: Iterator[int]) -> End:
    if isinstance(end, Jump):
        return Jump(numbers[end.target])
    if isinstance(end, Branch):
        return Branch(end.guard, numbers[end.taken], numbers[end.otherwise])
    if isinstance(end, SuspensionPoint):
        return SuspensionPoint(next(suspension_points), end.instruction, numbers[end.resume])
    if isinstance(end, Switch):
        return Switch(end.register, tuple(numbers[target] for target in end.targets))
    return end
