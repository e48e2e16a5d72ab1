"""What the PTX of a kernel shows, and ptxas says of it.

PTX: the widest global load and store, tensor-core and TMA instructions, `setmaxnreg`. ptxas alone tells spill bytes and
what it had to change, such as serialised wgmma: read from its verbose output (the DSL's option `remarks{ptx}`).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field

_FUNCTION = re.compile(r"^(?:\.(?:visible|weak|extern)\s+)*\.(?P<kind>entry|func)\b[^\n]*?(?P<name>[\w$]+)\s*\(", re.M)
_ENTRY = re.compile(r"Function properties for (?P<kernel>\S+)")
_SPILLS = re.compile(r"(?P<stores>\d+) bytes spill stores,\s+(?P<loads>\d+) bytes spill\s+loads")
_PREDICATE = re.compile(r"^@!?%?\w+\s+")
_WIDTH = re.compile(r"\.[a-z]+(?P<bits>\d+)(?P<pair>x2)?$")
_VECTOR = re.compile(r"\.v(?P<count>[248])(?=\.)")
_CP_ASYNC_BYTES = re.compile(r",\s*(?P<bytes>4|8|16)\s*(?:,|$)")

_TENSOR_CORE = ("mma.sync", "mma.sp", "wmma.mma", "wgmma.mma_async", "tcgen05.mma")
_TMA = ("cp.async.bulk.", "cp.reduce.async.bulk.")
_SETMAXNREG = re.compile(r"^setmaxnreg\.(inc|dec)\.sync\.aligned\.u32")
_NOTE = re.compile(r"\((?P<code>C\d{4})\) (?P<said>.*?) in function '(?P<kernel>[^']+)'")
_AROUND = re.compile(r"around line (?P<line>\d+)")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]+)"')
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
_NO_COPY = ("commit_group", "wait_group", "prefetch")


@dataclass(frozen=True, kw_only=True)
class PtxKernel:
    """One entry of a PTX module: bits of its widest global accesses, and instructions by full opcode with their count.

    Loads include `cp.async` from global memory; TMA copies, which have no width a thread, are in `tma`.
    """

    name: str
    widest_load_bits: int
    widest_store_bits: int
    tensor_core: dict[str, int] = field(default_factory=dict)
    tma: dict[str, int] = field(default_factory=dict)
    decreased: tuple[int, ...] = ()  # registers a thread keeps after setmaxnreg.dec, in the order of the text
    increased: tuple[int, ...] = ()  # and after setmaxnreg.inc
    min_blocks: int = 0  # that the kernel wants on a multiprocessor (min_blocks_per_mp); 0: it does not say
    max_registers: int = 0  # a thread, by its own directive (maxnreg)
    wgmma_waits: int = 0  # how often it waits for wgmma


def read_ptx(text: str) -> dict[str, PtxKernel]:
    """Every entry of a PTX module by its mangled name; functions that entries call count for each entry."""
    starts = [(match["kind"], match["name"], match.start()) for match in _FUNCTION.finditer(text)]
    ends = [start for _, _, start in starts[1:]] + [len(text)]
    bodies = [(kind, name, text[start:end]) for (kind, name, start), end in zip(starts, ends, strict=True)]
    shared = "".join(body for kind, _, body in bodies if kind == "func")
    return {name: _read_entry(name, body + shared) for kind, name, body in bodies if kind == "entry"}


def entry_bodies(text: str) -> dict[str, tuple[str, int]]:
    """The text of every entry by its mangled name, and the number of the line before its first one."""
    functions = list(_FUNCTION.finditer(text))
    ends = [match.start() for match in functions[1:]] + [len(text)]
    return {
        match["name"]: (text[match.start() : end], text.count("\n", 0, match.start()) + 1)
        for match, end in zip(functions, ends, strict=True)
        if match["kind"] == "entry"
    }


def _read_entry(name: str, body: str) -> PtxKernel:
    head, _, code = body.partition("{")
    instructions = list(_instructions(code))
    opcodes = [opcode for opcode, _ in instructions]
    budgets = [(match[1], int(operands)) for opcode, operands in instructions if (match := _SETMAXNREG.match(opcode))]
    return PtxKernel(
        name=name,
        widest_load_bits=max(map(_load_bits, instructions), default=0),
        widest_store_bits=max((_width(opcode) for opcode in opcodes if opcode.startswith("st.global")), default=0),
        tensor_core=_count(opcodes, _TENSOR_CORE),
        decreased=tuple(count for kind, count in budgets if kind == "dec"),
        increased=tuple(count for kind, count in budgets if kind == "inc"),
        min_blocks=_directive(head, "minnctapersm"),
        max_registers=_directive(head, "maxnreg"),
        wgmma_waits=sum(opcode.startswith("wgmma.wait_group") for opcode in opcodes),
        tma={op: n for op, n in _count(opcodes, _TMA).items() if not any(word in op for word in _NO_COPY)},
    )


def _directive(head: str, name: str) -> int:
    """The number behind a directive of an entry; 0 where it has none."""
    match = re.search(rf"\.{name}\s+(\d+)", head)
    return int(match[1]) if match else 0


def _instructions(body: str) -> list[tuple[str, str]]:
    statements = (piece.strip() for line in body.splitlines() for piece in re.split(r"[;{}]", line.split("//")[0]))
    words = (_PREDICATE.sub("", statement) for statement in statements if statement)
    return [(opcode, operands) for opcode, _, operands in (word.partition(" ") for word in words)]


def _count(opcodes: list[str], prefixes: tuple[str, ...]) -> dict[str, int]:
    return dict(sorted(Counter(opcode for opcode in opcodes if opcode.startswith(prefixes)).items()))


def _load_bits(instruction: tuple[str, str]) -> int:
    opcode, operands = instruction
    if opcode.startswith(("ld.global", "ldu.global")):
        return _width(opcode)
    if opcode.startswith("cp.async.c") and ".shared" in opcode and ".global" in opcode:
        size = _CP_ASYNC_BYTES.search(operands)
        return 8 * int(size["bytes"]) if size else 0
    return 0


def _width(opcode: str) -> int:
    width, vector = _WIDTH.search(opcode), _VECTOR.search(opcode)
    if width is None:
        return 0
    return int(width["bits"]) * (2 if width["pair"] else 1) * (int(vector["count"]) if vector else 1)


@dataclass(frozen=True)
class Spills:
    """Bytes that a thread writes to and reads from local memory because registers ran out.

    `place` is the Python line where the DSL thinks that most registers are live; ptxas tells the kernel alone.
    """

    store_bytes: int = 0
    load_bytes: int = 0
    place: str = ""


def read_remarks(text: str) -> dict[str, Spills]:
    """Spills by mangled kernel name in ptxas's verbose output; empty when it names none."""
    found: dict[str, Spills] = {}
    kernel = ""
    for line in text.splitlines():
        entry, spills = _ENTRY.search(line), _SPILLS.search(line)
        kernel = entry["kernel"] if entry else kernel
        if spills and kernel:
            found[kernel] = Spills(int(spills["stores"]), int(spills["loads"]))
    return found


@dataclass(frozen=True)
class PtxasNote:
    """What ptxas says of its work on a kernel, such as C7510 (serialised wgmma): `line` is that of the PTX, or 0."""

    code: str
    message: str
    line: int = 0


def read_notes(text: str) -> dict[str, tuple[PtxasNote, ...]]:
    """The numbered notes in ptxas's verbose output by mangled kernel name."""
    found: dict[str, list[PtxasNote]] = {}
    for match in _NOTE.finditer(text):
        around = _AROUND.search(match["said"])
        note = PtxasNote(match["code"], match["said"], int(around["line"]) if around else 0)
        found.setdefault(match["kernel"], []).append(note)
    return {kernel: tuple(notes) for kernel, notes in found.items()}


def source_place(ptx: str, line: int) -> str:
    """The Python line of a line of PTX with line information, such as "kernel.py:31"; "" where it tells none."""
    files, last = {}, None
    for number, text in enumerate(ptx.splitlines(), 1):
        if file := _FILE.match(text):
            files[file[1]] = file[2]
        elif number <= line and (place := _LOC.match(text)):
            last = place
    if last is None or last[1] not in files:
        return ""
    return f"{files[last[1]].rsplit('/', 1)[-1]}:{last[2]}"
