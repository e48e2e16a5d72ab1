"""Registers that machine code reads though nothing has written them on any way there: signs of a wrong compilation.

The ptxas of CUDA 13.4 (V13.4.59, in DSL 4.8.1) did this to a kernel of 255 registers: it moved the read of the thread's
number behind its first use, so each warp began with what the register held before. The PTX was right, and so was the
result on the emulated GPU, which executes that; an H200 ended with an illegal instruction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from cutesmith.verdicts import KernelReport

FEWEST_REGISTERS = 128
"""Of a kernel that is looked at. It was seen under pressure alone, and a disassembly takes 0.1 to 0.8 s."""

MOST_TOLD = 3
"""Reads that a note names."""

_SECTION = re.compile(r"^\.text\.([^\s:,]+):", re.MULTILINE)
_LABEL = re.compile(r"^\s*(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P\w+)\s+)?(.+?)\s*;")
_REGISTER = re.compile(r"(?<![\w.])R(\d+)\b")
_PREDICATE = re.compile(r"!?U?P[T\d]")
_TARGET = re.compile(r"`\((\.L_x_\d+)\)")
_WRITES_NONE = re.compile(
    r"(ST|RED|BAR|BRA|EXIT|SYNCS|UTMA|UBLK|BSYNC|MEMBAR|DEPBAR|WARPSYNC|CCTL|PLOP|R2P|R2UR|FENCE|LDGSTS|KILL|RET|BPT)"
    r"|[FHDI]SETP"
)
_ENDS = ("BRA", "EXIT", "RET", "KILL", "BPT")
_LEAVES = ("CALL", "BRX", "JMP", "JMX")  # to where the listing does not say
_WIDTHS = {"256": 8, "128": 4, "64": 2, "WIDE": 2, "F64": 2}
"""Registers of a result by a part of the opcode."""
_MOST = {"HGMMA": 128, "IGMMA": 128, "QGMMA": 128, "LDTM": 128, "HMMA": 4, "IMMA": 4, "LDSM": 4, "ATOM": 4, "CS2R": 2}
"""The most registers of a result by the beginning of the opcode: where it is fewer, a wrong read may be overlooked."""


@dataclass(frozen=True)
class UndefinedRead:
    """An instruction of a kernel, where it lies (bytes), and the register that it reads."""

    kernel: str
    place: int
    instruction: str
    register: int

    def __str__(self) -> str:
        return f"`{self.instruction}` at {self.place:#x} reads R{self.register}"


@dataclass
class _Block:
    """Instructions that follow each other: reads, each before what it writes itself; and where the code goes on."""

    reads: list[tuple[int, str, frozenset[int], frozenset[int]]] = field(default_factory=list)
    follows: list[str] = field(default_factory=list)

    @property
    def written(self) -> frozenset[int]:
        return frozenset[int]().union(*(writes for *_, writes in self.reads))


def undefined_reads(listing: str) -> tuple[UndefinedRead, ...]:
    """The first such read of each register, by kernel; `listing` is nvdisasm's text of a cubin (`-c`)."""
    starts = [*_SECTION.finditer(listing)]
    ends = [*(start.start() for start in starts[1:]), len(listing)]
    return tuple(
        read
        for start, end in zip(starts, ends, strict=True)
        for read in _of_kernel(start[1], listing[start.end() : end].splitlines())
    )


def noted(kernel: KernelReport, reads: Sequence[UndefinedRead]) -> KernelReport:
    """The report of a kernel with what its machine code reads though nothing has written it, and what to do."""
    if not reads:
        return kernel
    told = ", ".join(map(str, reads[:MOST_TOLD]))
    note = (
        f"the machine code reads registers that nothing has written: {told}. ptxas may have compiled it wrongly, and "
        "no emulator sees that: verify it on a GPU, and let a thread hold fewer values at once (shorter unrolled "
        "loops, smaller tiles, wider accesses)"
    )
    registers = tuple(read.register for read in reads)
    return replace(kernel, notes=(*kernel.notes, note), undefined_registers=registers)


def _of_kernel(name: str, lines: Sequence[str]) -> Iterator[UndefinedRead]:
    blocks = _blocks(lines)
    if blocks is None:
        return
    known, waiting = {"": frozenset[int]()}, [""]
    while waiting:
        label = waiting.pop()
        out = known[label] | blocks[label].written
        for after in blocks[label].follows:
            if after in blocks and (after not in known or not out <= known[after]):
                known[after] = known.get(after, frozenset()) | out
                waiting.append(after)
    told = set[int]()
    for label, written in known.items():
        for place, instruction, reads, writes in blocks[label].reads:
            for register in sorted(reads - written - told):
                told.add(register)
                yield UndefinedRead(name, place, instruction, register)
            written |= writes


def _blocks(lines: Sequence[str]) -> dict[str, _Block] | None:
    """The blocks by label, the first of them without a name; None where the code leaves for an unknown place."""
    blocks, label, goes_on = {"": _Block()}, "", True
    for line in lines:
        if found := _LABEL.match(line):
            blocks[label].follows += [found[1]] if goes_on else []
            label, goes_on = found[1], True
            blocks[label] = _Block()
        elif (found := _INSTRUCTION.search(line)) and goes_on:
            place, guard, text = int(found[1], 16), found[2], found[3].replace(".reuse", "")
            opcode = text.partition(" ")[0]
            if opcode.startswith(_LEAVES):
                return None
            blocks[label].reads.append((place, text, *_registers(opcode, text)))
            goes_on = bool(guard) or re.search(r" !?U?P\d", text) is not None or not opcode.startswith(_ENDS)
            if opcode.startswith("BRA"):  # what comes after it is another block: the target does not see its writes
                after = [f"after {place:#x}"] if goes_on else []
                blocks[label].follows += [*_TARGET.findall(text), *after]
                for label in after:
                    blocks[label] = _Block()
    return blocks


def _registers(opcode: str, text: str) -> tuple[frozenset[int], frozenset[int]]:
    """What an instruction reads and writes; a predicate may come before the result."""
    operands = [operand.strip() for operand in text.removeprefix(opcode).split(",")]
    writes = frozenset[int]()
    place = 1 if _PREDICATE.match(operands[0]) else 0
    result = None if _WRITES_NONE.match(opcode) else _REGISTER.fullmatch(",".join(operands[place : place + 1]))
    if result is not None:
        writes = frozenset(range(int(result[1]), int(result[1]) + _width(opcode)))
        del operands[place]
        if opcode == "PRMT":  # of a half it leaves the other one as it is, which is then never used
            operands = [operand for operand in operands if operand != result[0]]
    return frozenset(int(found) for operand in operands for found in _REGISTER.findall(operand)), writes


def _width(opcode: str) -> int:
    name, *parts = opcode.split(".")
    known = (count for start, count in _MOST.items() if name.startswith(start))
    return max([1, *known, *(_WIDTHS.get(part, 1) for part in parts), 2 if name.startswith("D") else 1])
