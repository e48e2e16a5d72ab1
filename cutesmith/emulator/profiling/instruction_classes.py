"""What kind of work a PTX instruction is: its class, the operations that it does, and the pipe that it occupies."""

from __future__ import annotations

import re

from cutesmith.emulator.program.contraction import FUSED
from cutesmith.emulator.ptx.syntax import Instruction

CLASSES = (
    "fp32",
    "fp16",
    "fp64",
    "int",
    "move",
    "conversion",
    "special function",
    "load",
    "store",
    "atomic",
    "async copy",
    "shuffle",
    "tensor core",
    "barrier",
    "control",
)
"""Instruction classes, in the order in which they are shown."""

_BY_OPCODE = {
    "load": "ld ldu ldmatrix prefetch prefetchu tex tld4 suld",
    "store": "st stmatrix sust",
    "atomic": "atom red multimem",
    "shuffle": "shfl vote match redux elect activemask movmatrix",
    "tensor core": "mma wmma wgmma tcgen05",
    "barrier": "bar barrier mbarrier fence membar griddepcontrol nanosleep",
    "control": "bra brx ret exit call trap brkpt setmaxnreg pmevent",
    "conversion": "cvt",
    "special function": "ex2 lg2 rcp rsqrt sqrt sin cos tanh",
    "move": "mov selp cvta isspacep mapa getctarank prmt slct stacksave stackrestore alloca",
}
_CLASS_OF_OPCODE = {opcode: name for name, opcodes in _BY_OPCODE.items() for opcode in opcodes.split()}
_FLOATS = {"f32": "fp32", "f32x2": "fp32", "f64": "fp64"} | dict.fromkeys(("f16", "f16x2", "bf16", "bf16x2"), "fp16")
_FLOPS = {"add": 1, "sub": 1, "mul": 1, "div": 1, "fma": 2, "mad": 2, FUSED: 2}
_TILE = re.compile(r"m(\d+)n(\d+)k(\d+)")

LANES_PER_CLOCK = {
    "fp32": 128,
    "fp16": 128,
    "fp64": 64,
    "int": 64,
    "move": 64,
    "conversion": 64,
    "special function": 16,
    "shuffle": 32,
}
"""Lanes that a multiprocessor of compute capability 9.0 serves in a clock, of one instruction: CUDA C++ Programming
Guide, "Throughput of Native Arithmetic Instructions" (its 256 for fp16 are results, two a lane)."""

_ROUNDED = {
    "rcp": {"special function": 1, "fp32": 3, "int": 3, "control": 1},
    "div": {"special function": 1, "fp32": 6, "control": 1},
    "sqrt": {"special function": 1, "fp32": 4, "int": 2, "control": 1},
}
"""Machine instructions of a correctly rounded float32 function: the usual path of what DSL 4.8.1 makes for sm_90a."""

_ROUNDINGS = {"rn", "rz", "rm", "rp"}
_MACS_PER_CLOCK = {"f64": 64, "tf32": 1024, "e4m3": 4096, "e5m2": 4096, "s8": 4096, "u8": 4096}


def class_of(instruction: Instruction) -> str:
    """One of CLASSES."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode == "cp":
        waits = {"wait_group", "wait_all", "commit_group", "mbarrier"}
        return "barrier" if waits & set(modifiers) else "async copy"
    if opcode in ("ld", "ldu") and modifiers[:1] and modifiers[0].startswith("param"):
        return "move"  # kernel parameters are constants in the machine code
    if opcode == "wgmma" and "mma_async" not in modifiers:
        return "barrier"
    if opcode == "cvt" and not any("f" in word for word in modifiers if word not in ("ftz", "sat")):
        return "int"  # between integers
    known = _CLASS_OF_OPCODE.get(opcode)
    return known or next((_FLOATS[word] for word in modifiers if word in _FLOATS), "int")


def has_cheaper_form(instruction: Instruction) -> bool:
    """Whether advice on its class may not have been followed yet.

    Not so for an approximate function, which is one instruction already, nor for a conversion but that of one float32
    to 16 bits, which has a form for pairs.
    """
    kind, modifiers = class_of(instruction), instruction.modifiers
    if kind == "special function":
        return bool(_ROUNDINGS & set(modifiers))
    if kind == "conversion":
        return modifiers[-1:] == ("f32",) and bool({"f16", "bf16"} & set(modifiers[:-1]))
    return True


def machine_instructions_of(instruction: Instruction) -> dict[str, int]:
    """How many machine instructions of which class carry it out: itself, but for rounded float32 functions."""
    rounded = instruction.modifiers[-1:] == ("f32",) and _ROUNDINGS & set(instruction.modifiers)
    several = _ROUNDED.get(instruction.opcode) if rounded else None
    return several or {class_of(instruction): 1}


def flops_of(instruction: Instruction) -> int:
    """Floating-point operations of one lane: additions and multiplications, `fma` is two; tensor cores are apart."""
    word = next((word for word in instruction.modifiers if word in _FLOATS), "")
    return _FLOPS.get(instruction.opcode, 0) * (2 if word.endswith("x2") else 1) if word else 0


def macs_of(instruction: Instruction) -> float:
    """Multiply-adds that one warp's share of a tensor-core instruction does, 0 for all others."""
    tile = _TILE.search(instruction.full_opcode)
    if class_of(instruction) != "tensor core" or tile is None:
        return 0.0
    m, n, k = map(int, tile.groups())
    return m * n * k / (4 if instruction.opcode == "wgmma" else 1)  # four warps execute it together


def tensor_cycles_of(instruction: Instruction) -> float:
    """Clocks of a multiprocessor's tensor cores for a warp's share: 2048 multiply-adds of 16 bits a clock on sm_90."""
    rate = next((_MACS_PER_CLOCK[word] for word in instruction.modifiers if word in _MACS_PER_CLOCK), 2048)
    return macs_of(instruction) / rate
