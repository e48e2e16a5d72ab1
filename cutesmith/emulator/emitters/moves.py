"""Moves, conversions between address spaces, addresses within a cluster, and hints that change nothing here."""

from __future__ import annotations

from cutesmith.emulator.instructions.forms import take, type_bits
from cutesmith.emulator.instructions.table import native
from cutesmith.emulator.native.emitter import Emitter
from cutesmith.emulator.program.abi import (
    LOCAL_WINDOW,
    PARAMETER_WINDOW,
    SHARED_RANK_SHIFT,
    SHARED_WINDOW,
    WINDOW_BYTES,
    Space,
)
from cutesmith.emulator.ptx.syntax import Instruction

SPACES = {
    "global": Space.GLOBAL,
    "shared": Space.SHARED,
    "shared::cta": Space.SHARED,
    "shared::cluster": Space.SHARED,
    "local": Space.LOCAL,
    "param": Space.PARAM,
    "param::entry": Space.PARAM,
    "const": Space.CONST,
}
_WINDOWS = {Space.SHARED: SHARED_WINDOW, Space.LOCAL: LOCAL_WINDOW}
_RANKS = 0xFF << SHARED_RANK_SHIFT


@native("mov")
def move(emitter: Emitter, instruction: Instruction) -> None:
    """`mov` of registers, literals, special registers and addresses; packs and unpacks vectors."""
    take(instruction)
    bits = type_bits(instruction, instruction.modifiers[-1])
    emitter.assign(instruction.operands[0], emitter.value(instruction.operands[1], bits), bits)


@native("cvta")
def convert_address(emitter: Emitter, instruction: Instruction) -> None:
    """`cvta.space` makes a generic address of one in a space, `cvta.to.space` the reverse."""
    modifiers = take(instruction, "to", *SPACES)
    words = modifiers - {"to"}
    if len(words) != 1 or (word := next(iter(words))) not in SPACES:
        raise emitter.unsupported("state space " + ", ".join(sorted(words)))
    space = SPACES[word]
    bits = type_bits(instruction, instruction.modifiers[-1])
    address = emitter.value(instruction.operands[1], bits)
    if space in _WINDOWS:
        if bits != 64:
            raise emitter.unsupported("generic addresses have 64 bits")
        how = "sub" if "to" in modifiers else "add"
        address = emitter.op(f"{how} i64 {{}}, {_WINDOWS[space]}", address)
    emitter.assign(instruction.operands[0], address, bits)  # global, const and param addresses are generic ones already


@native("isspacep")
def is_in_space(emitter: Emitter, instruction: Instruction) -> None:
    """`isspacep.space p, a`: whether a generic address lies in a space; parameters count as global too."""
    *_, word = instruction.modifiers
    space = SPACES.get(word)
    address = emitter.value(instruction.operands[1], 64)
    shared, local, param = (
        emitter.op(f"icmp ult i64 {{}}, {WINDOW_BYTES}", emitter.op(f"sub i64 {{}}, {base}", address))
        for base in (SHARED_WINDOW, LOCAL_WINDOW, PARAMETER_WINDOW)
    )
    if space is Space.GLOBAL:
        other = emitter.op("or i1 {}, {}", shared, local)
        answer = emitter.op("xor i1 {}, true", other)
    elif space is Space.SHARED:
        answer = shared if word == "shared::cluster" else _own_shared(emitter, address, shared)
    elif space in (Space.LOCAL, Space.PARAM):
        answer = local if space is Space.LOCAL else param
    else:
        raise emitter.unsupported(f"state space {word}")
    emitter.assign(instruction.operands[0], answer, 1)


def _own_shared(emitter: Emitter, address: str, shared: str) -> str:
    own = emitter.op("icmp eq i32 {}, {}", _rank_of(emitter, address, 64), emitter.special("%cluster_ctarank"))
    return emitter.op("and i1 {}, {}", shared, own)


def _rank_of(emitter: Emitter, address: str, bits: int) -> str:
    rank = emitter.op(f"lshr i{bits} {{}}, {SHARED_RANK_SHIFT}", address)
    return emitter.op("and i32 {}, 255", emitter.resize(rank, bits, 32))


@native("mapa")
def map_to_rank(emitter: Emitter, instruction: Instruction) -> None:
    """`mapa d, a, rank`: the address (shared or generic) of the same place in another block of the cluster."""
    take(instruction, "shared::cluster")
    bits = type_bits(instruction, instruction.modifiers[-1])
    address = emitter.op(f"and i{bits} {{}}, {~_RANKS & (1 << bits) - 1}", emitter.value(instruction.operands[1], bits))
    rank = emitter.resize(emitter.value(instruction.operands[2], 32), 32, bits)
    shifted = emitter.op(f"shl i{bits} {{}}, {SHARED_RANK_SHIFT}", rank)
    emitter.assign(instruction.operands[0], emitter.op(f"or i{bits} {{}}, {{}}", address, shifted), bits)


@native("getctarank")
def rank_of_address(emitter: Emitter, instruction: Instruction) -> None:
    """`getctarank d, a`: the rank in the cluster of the block that a shared or generic address belongs to."""
    take(instruction, "shared::cluster")
    bits = type_bits(instruction, instruction.modifiers[-1])
    emitter.assign(instruction.operands[0], _rank_of(emitter, emitter.value(instruction.operands[1], bits), bits), 32)


@native("createpolicy")
def create_policy(emitter: Emitter, instruction: Instruction) -> None:
    """`createpolicy`: an opaque 64-bit word that only cache hints read, which change nothing here."""
    emitter.assign(instruction.operands[0], "0", 64)


@native("prefetch", "prefetchu", "applypriority", "discard", "pmevent")
def ignore(emitter: Emitter, instruction: Instruction) -> None:
    """Hints to caches and profilers: nothing that a kernel can see."""
