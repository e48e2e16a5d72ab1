"""The instruction forms that `differential.py` compares with the hardware: PTX text with types for operands.

A form such as `setp.lt.f32 p|p, f32, f32, p` is one instruction (or several, after `;`) whose operands are the names of
KINDS: the first operand of a statement is what it writes, the others are loaded from memory; literals stay as they are.
`{a,b}` in a pattern stands for either text and `{,x}` for nothing or x.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from cutesmith.emulator.instructions.table import expand

KINDS = {
    "p": 1, "u8": 8, "s8": 8, "u16": 16, "s16": 16, "b16": 16, "u32": 32, "s32": 32, "b32": 32,
    "few": 32, "small": 32, "byte": 32, "u64": 64, "s64": 64, "b64": 64,
    "f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32": 32, "f64": 64, "tf32": 32, "angle": 32, "unit": 32,
    "e4m3x2": 16, "e5m2x2": 16, "s16x2": 32, "u16x2": 32, "f32x2": 64,
}  # fmt: skip
"""Bits of each type. `few`: four values, `small`: -40 to 40, `byte`: 0 to 255; `angle` is mostly in [-8, 8], `unit` in
(0, 4)."""

_WORD = re.compile(r"\b(" + "|".join(sorted(KINDS, key=len, reverse=True)) + r")\b")


@dataclass(frozen=True)
class Form:
    """One form: its text, and how many operand vectors are tried."""

    text: str
    count: int = 512

    def statements(self) -> tuple[tuple[str, str, str], ...]:
        """(opcode, text of the destination, text of the sources) of each statement."""
        parts = (statement.strip().split(" ", 1) for statement in self.text.split(";"))
        return tuple((opcode, *_split_destination(operands)) for opcode, operands in parts)

    @property
    def destinations(self) -> tuple[str, ...]:
        """Kinds of what is written."""
        return tuple(kind for _, written, _ in self.statements() for kind in _WORD.findall(written))

    @property
    def sources(self) -> tuple[str, ...]:
        """Kinds of what is read."""
        return tuple(kind for _, _, read in self.statements() for kind in _WORD.findall(read))

    def ptx(self, destinations: list[str], sources: list[str]) -> str:
        """The instruction with registers in place of kinds."""
        written, read = iter(destinations), iter(sources)
        lines = []
        for opcode, first, rest in self.statements():
            first = _WORD.sub(lambda _: next(written), first)
            rest = _WORD.sub(lambda _: next(read), rest)
            lines.append(f"\t{opcode} {first}{', ' if rest else ''}{rest};")
        return "\n".join(lines)


def _split_destination(operands: str) -> tuple[str, str]:
    depth = 0
    for place, character in enumerate(operands):
        depth += (character == "{") - (character == "}")
        if character == "," and not depth:
            return operands[:place], operands[place + 1 :].strip()
    return operands, ""


INTEGER = """
{add,sub}.{0} {0}, {0}, {0} | u16 s16 u32 s32 u64 s64
{add,sub}.sat.s32 s32, s32, s32
add.{u16x2,s16x2} u16x2, u16x2, u16x2
mul.{lo,hi}.{0} {0}, {0}, {0} | u16 s16 u32 s32 u64 s64
mul.wide.{0}16 {0}32, {0}16, {0}16 | u s
mul.wide.{0}32 {0}64, {0}32, {0}32 | u s
mad.{lo,hi}.{0} {0}, {0}, {0}, {0} | u16 s16 u32 s32 u64 s64
mad.hi.sat.s32 s32, s32, s32, s32
mad.wide.{0}16 {0}32, {0}16, {0}16, {0}32 | u s
mad.wide.{0}32 {0}64, {0}32, {0}32, {0}64 | u s
mul24.{lo,hi}.{0} {0}, {0}, {0} | u32 s32
mad24.{lo,hi}.{0} {0}, {0}, {0}, {0} | u32 s32
mad24.hi.sat.s32 s32, s32, s32, s32
sad.{0} {0}, {0}, {0}, {0} | u16 s16 u32 s32 u64 s64
{div,rem}.{0} {0}, {0}, {0} | u16 s16 u32 s32 u64 s64
{abs,neg}.{0} {0}, {0} | s16 s32 s64
{min,max}.{0} {0}, {0}, {0} | u16 s16 u32 s32 u64 s64 u16x2 s16x2
{min,max}.relu.{0} {0}, {0}, {0} | s32 s16x2
{popc,clz}.{0} u32, {0} | b32 b64
bfind{,.shiftamt}.{0} u32, {0} | u32 s32 u64 s64
brev.{0} {0}, {0} | b32 b64
fns.b32 b32, b32, small, small
fns.b32 b32, b32, 3, small
bfe.{0} {0}, {0}, b32, b32 | u32 s32
bfe.{0} {0}, {0}, byte, byte | u32 s32 u64 s64
bfe.{0} {0}, {0}, 5, 9 | u32 s32 u64 s64
bfi.{0} {0}, {0}, {0}, b32, b32 | b32
bfi.{0} {0}, {0}, {0}, byte, byte | b32 b64
bmsk.{clamp,wrap}.b32 b32, b32, b32
szext.{clamp,wrap}.{u32,s32} b32, b32, b32
dp4a.{u32,s32}.{u32,s32} b32, b32, b32, b32
dp2a.{lo,hi}.{u32,s32}.{u32,s32} b32, b32, b32, b32
add.cc.{0} {0}, {0}, {0}; addc.cc.{0} {0}, {0}, {0}; addc.{0} {0}, {0}, {0} | u32 s32 u64 s64
sub.cc.{0} {0}, {0}, {0}; subc.cc.{0} {0}, {0}, {0}; subc.{0} {0}, {0}, {0} | u32 s32 u64 s64
mad.{lo,hi}.cc.{0} {0}, {0}, {0}, {0}; madc.{lo,hi}.{0} {0}, {0}, {0}, {0} | u32 s32 u64 s64
{and,or,xor}.pred p, {,!}p, p
not.pred p, p
{and,or,xor}.{0} {0}, {0}, {0} | b16 b32 b64
not.{0} {0}, {0} | b16 b32 b64
cnot.{0} {0}, {0} | b16 b32 b64
lop3.b32 b32, b32, b32, b32, {0x96,0xe8,0xca,0x01,0x7f,0x6a}
lop3.{or,and}.b32 b32|p, b32, b32, b32, {0x96,0xca}, p
shf.{l,r}.{wrap,clamp}.b32 b32, b32, b32, b32
shl.{0} {0}, {0}, b32 | b16 b32 b64
shr.{0} {0}, {0}, b32 | b16 b32 b64 u16 s16 u32 s32 u64 s64
prmt.b32{,.f4e,.b4e,.rc8,.ecl,.ecr,.rc16} b32, b32, b32, b32
prmt.b32 b32, b32, b32, {0x7654,0x3210,0xba98,0x7610}
"""
"""Integer arithmetic and bits. Text after `|` gives the values of `{0}`."""

COMPARISON = """
setp.{eq,ne,lt,le,gt,ge}.{0} p, {0}, {0} | u16 s16 u32 s32 u64 s64
setp.{eq,ne}.{0} p, {0}, {0} | b16 b32 b64
setp.{lo,ls,hi,hs}.{0} p, {0}, {0} | u16 u32 u64
setp.{lt,eq}.{and,or,xor}.s32 p|p, s32, s32, {,!}p
set.{eq,lt,ge}.{0}.s32 {0}, s32, s32 | u32 s32 f32
set.{ne,lo}.{and,or,xor}.u32.u32 u32, u32, u32, {,!}p
setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}{,.ftz}.f32 p, f32, f32
setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.f64 p, f64, f64
setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}{,.ftz}.f16 p, f16, f16
setp.{eq,ne,lt,le,gt,ge,equ,neu,ltu,leu,gtu,geu,num,nan}.bf16 p, bf16, bf16
setp.{eq,ne,lt,geu,num,nan}{,.ftz}.f16x2 p|p, f16x2, f16x2
setp.{eq,ne,lt,geu,num,nan}.bf16x2 p|p, bf16x2, bf16x2
setp.{lt,neu}.{and,or,xor}{,.ftz}.f32 p|p, f32, f32, {,!}p
setp.{lt,neu}.{and,or,xor}.f64 p|p, f64, f64, {,!}p
setp.{lt,neu}.{and,or,xor}.f16 p, f16, f16, {,!}p
setp.{lt,neu}.{and,or,xor}.bf16 p, bf16, bf16, p
setp.{lt,neu}.{and,or,xor}.{0} p|p, {0}, {0}, p | f16x2 bf16x2
set.{eq,lt,geu,nan}{,.ftz}.{0}.f32 {0}, f32, f32 | u32 s32 f32
set.{eq,gtu}.{0}.f64 {0}, f64, f64 | u32 s32 f32
set.{eq,ltu}{,.ftz}.{0}.f16 {0}, f16, f16 | f16 u16 s16 u32 s32
set.{eq,ltu}.{0}.bf16 {0}, bf16, bf16 | bf16 u16 s16 u32 s32
set.{eq,neu,lt,nan}{,.ftz}.f16x2.f16x2 f16x2, f16x2, f16x2
set.{eq,neu,lt,nan}.bf16x2.bf16x2 bf16x2, bf16x2, bf16x2
set.{lt,neu}.{and,xor}.f16x2.f16x2 f16x2, f16x2, f16x2, p
set.{lt,neu}.{and,or}.u32.f32 u32, f32, f32, {,!}p
selp.{0} {0}, {0}, {0}, p | b16 u16 s16 b32 u32 s32 f32 b64 u64 s64 f64
slct.{0}.s32 {0}, {0}, {0}, s32 | b16 b32 f32 b64 f64
slct{,.ftz}.{0}.f32 {0}, {0}, {0}, f32 | b16 u32 f32 s64 f64
testp.{finite,infinite,number,notanumber,normal,subnormal}.{0} p, {0} | f32 f64
"""

MOVE = """
mov.pred p, p
mov.{0} {0}, {0} | b16 b32 b64 f32 f64
mov.b32 {{b16,b16}}, b32
mov.b64 {{b32,b32}}, b64
mov.b64 {{b16,b16,b16,b16}}, b64
mov.b32 b32, {{b16,b16}}
mov.b64 b64, {{b32,b32}}
mov.b64 b64, {{b16,b16,b16,b16}}
"""

FLOAT = """
{add,sub,mul}{,.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32 f32, f32, f32
{fma,mad}{.rn,.rz,.rm,.rp}{,.ftz}{,.sat}.f32 f32, f32, f32, f32
div{.rn,.rz,.rm,.rp}{,.ftz}.f32 f32, f32, f32
{rcp,sqrt}{.rn,.rz,.rm,.rp}{,.ftz}.f32 f32, f32
{add,sub,mul}{,.rn,.rz,.rm,.rp}.f64 f64, f64, f64
{fma,mad}{.rn,.rz,.rm,.rp}.f64 f64, f64, f64, f64
div{.rn,.rz,.rm,.rp}.f64 f64, f64, f64
{rcp,sqrt}{.rn,.rz,.rm,.rp}.f64 f64, f64
{add,sub,mul}{,.rn}{,.ftz}{,.sat}.{0} {0}, {0}, {0} | f16 f16x2
fma.rn{,.ftz}{,.sat,.relu}.{0} {0}, {0}, {0}, {0} | f16 f16x2
{add,sub,mul}{,.rn}.{0} {0}, {0}, {0} | bf16 bf16x2
fma.rn{,.relu,.oob,.oob.relu}.{0} {0}, {0}, {0}, {0} | bf16 bf16x2
fma.rn.oob{,.relu}.{0} {0}, {0}, {0}, {0} | f16 f16x2
{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.f32 f32, f32, f32
{min,max}.f64 f64, f64, f64
{min,max}{,.ftz}{,.NaN}{,.xorsign.abs}.{0} {0}, {0}, {0} | f16 f16x2
{min,max}{,.NaN}{,.xorsign.abs}.{0} {0}, {0}, {0} | bf16 bf16x2
{abs,neg}{,.ftz}.{0} {0}, {0} | f32 f16 f16x2
{abs,neg}.{0} {0}, {0} | f64 bf16 bf16x2
copysign.{0} {0}, {0}, {0} | f32 f64
"""

CONVERSION = """
cvt.{u8,u16,u32,u64,s8,s16,s32,s64}.{0} {1}, {0} | u8 s8 u16 s16 u32 s32 u64 s64 count=256
cvt.sat.{u8,u16,u32,u64}.{0} {1}, {0} | s8 s16 s32 s64 count=256
cvt.sat.s8.{0} {1}, {0} | u8 u16 u32 u64 s16 s32 s64 count=256
cvt.sat.u8.{0} {1}, {0} | u16 u32 u64 count=256
cvt.sat.u16.{0} {1}, {0} | u32 u64 count=256
cvt.sat.s16.{0} {1}, {0} | u16 u32 u64 s32 s64 count=256
cvt.sat.s32.{0} {1}, {0} | u32 u64 s64 count=256
cvt.sat.{u32,s64}.{0} {1}, {0} | u64 count=256
cvt.{rn,rz,rm,rp}.{f16,f32,f64}.{0} {1}, {0} | u8 s8 u16 s16 u32 s32 u64 s64 count=256
cvt.{rn,rz}.sat.{f16,f32,f64}.{0} {1}, {0} | s16 u32 s64 count=256
cvt.rn.bf16.{0} bf16, {0} | u16 s16 u32 s32 u64 s64 count=256
cvt.{rz,rm,rp}.bf16.{0} bf16, {0} | u32 s32 u64 s64 count=256
cvt.{rni,rzi,rmi,rpi}{,.ftz}{,.sat}.{u8,u16,u32,u64,s8,s16,s32,s64}.{0} {1}, {0} | f32
cvt.{rni,rzi,rmi,rpi}{,.sat}.{u8,u16,u32,u64,s8,s16,s32,s64}.{0} {1}, {0} | f16 f64
cvt.{rni,rzi,rmi,rpi}.{u16,u32,u64,s16,s32,s64}.{0} {1}, {0} | bf16
cvt.{rni,rzi,rmi,rpi}{,.sat}.{0}.{0} {0}, {0} | f16 f32 f64
cvt.{rni,rzi,rmi,rpi}.ftz{,.sat}.f32.f32 f32, f32
cvt.{rni,rzi,rmi,rpi}.{0}.{0} {0}, {0} | bf16
cvt{,.ftz}{,.sat}.f32.f32 f32, f32
cvt{,.sat}.f64.f64 f64, f64
cvt{,.ftz}{,.sat}.f32.f16 f32, f16
cvt{,.ftz}.f32.bf16 f32, bf16
cvt{,.sat}.f64.f16 f64, f16
cvt.f64.bf16 f64, bf16
cvt{,.ftz}{,.sat}.f64.f32 f64, f32
cvt.{rn,rz,rm,rp}{,.ftz}{,.sat}.f32.f64 f32, f64
cvt.{rn,rz,rm,rp}{,.ftz}{,.sat}.f16.f32 f16, f32
cvt.{rn,rz,rm,rp}{,.sat}.f16.f64 f16, f64
cvt.{rn,rz}{,.relu}{,.satfinite}.f16.f32 f16, f32
cvt.{rn,rz}{,.relu}{,.satfinite}.bf16.f32 bf16, f32
cvt.{rm,rp}.bf16.f32 bf16, f32
cvt.{rn,rz,rm,rp}.bf16.f64 bf16, f64
cvt.{rn,rz,rm,rp}.bf16.f16 bf16, f16
cvt.{rn,rz,rm,rp}.f16.bf16 f16, bf16
cvt.{rn,rz}{,.relu}{,.satfinite}.f16x2.f32 f16x2, f32, f32
cvt.{rn,rz}{,.relu}{,.satfinite}.bf16x2.f32 bf16x2, f32, f32
cvt.rna{,.satfinite}.tf32.f32 tf32, f32
cvt.{rn,rz}{,.relu}.tf32.f32 tf32, f32
cvt.rn.satfinite{,.relu}.e4m3x2.f32 e4m3x2, f32, f32
cvt.rn.satfinite{,.relu}.e5m2x2.f32 e5m2x2, f32, f32
cvt.rn.satfinite{,.relu}.{0}.f16x2 {0}, f16x2 | e4m3x2 e5m2x2
cvt.rn{,.relu}.f16x2.{0} f16x2, {0} | e4m3x2 e5m2x2
cvt.pack.sat.{u16,s16}.s32 b32, s32, s32
cvt.pack.sat.{u8,s8,u4,s4,u2,s2}.s32.b32 b32, s32, s32, b32
"""

APPROXIMATION = """
{rcp,sqrt,rsqrt}.approx{,.ftz}.f32 f32, f32 | count=4096
lg2.approx{,.ftz}.f32 f32, f32 | count=4096
lg2.approx{,.ftz}.f32 f32, unit | count=4096
ex2.approx{,.ftz}.f32 f32, angle | count=4096
ex2.approx{,.ftz}.f32 f32, f32 | count=2048
{sin,cos}.approx{,.ftz}.f32 f32, angle | count=4096
tanh.approx.f32 f32, angle | count=4096
tanh.approx.f32 f32, f32 | count=2048
{rsqrt.approx,rsqrt.approx.ftz,rcp.approx.ftz}.f64 f64, f64 | count=2048
div.{approx,approx.ftz,full,full.ftz}.f32 f32, f32, f32 | count=2048
div.{approx,full}.f32 f32, angle, angle | count=2048
ex2.approx.f16 f16, f16 | count=4096
ex2.approx.f16x2 f16x2, f16x2 | count=2048
ex2.approx.ftz.bf16 bf16, bf16 | count=4096
ex2.approx.ftz.bf16x2 bf16x2, bf16x2 | count=2048
tanh.approx.f16 f16, f16 | count=4096
tanh.approx.f16x2 f16x2, f16x2 | count=2048
tanh.approx.bf16 bf16, bf16 | count=4096
tanh.approx.bf16x2 bf16x2, bf16x2 | count=2048
"""
"""Forms whose result the hardware approximates: bit-equal all the same, for the unit is known (`emitters/unit.py`)."""

WARP = """
shfl.sync.{up,down,bfly,idx}.b32 b32|p, b32, {1,5,16,31}, {0,0x1f,0x1c03,0x0f}, 0xffffffff
shfl.sync.idx.b32 b32|p, b32, b32, 0x1f, 0xffffffff
shfl.sync.up.b32 b32|p, b32, b32, b32, 0xffffffff
vote.sync.{all,any,uni}.pred p, {,!}p, 0xffffffff
vote.sync.ballot.b32 b32, {,!}p, 0xffffffff
match.any.sync.b32 b32, few, 0xffffffff
match.all.sync.b32 b32|p, few, 0xffffffff
redux.sync.{add,min,max}.{0} {0}, {0}, 0xffffffff | u32 s32
redux.sync.{and,or,xor}.b32 b32, b32, 0xffffffff
activemask.b32 b32
"""

GROUPS = {
    "integer": (INTEGER, 256),
    "comparison": (COMPARISON, 384),
    "move": (MOVE, 384),
    "float": (FLOAT, 1024),
    "conversion": (CONVERSION, 512),
    "approximation": (APPROXIMATION, 4096),
    "warp": (WARP, 256),
}
"""Group: (patterns, vectors tried unless the pattern says more)."""


@cache
def forms() -> dict[str, tuple[Form, ...]]:
    """All forms by group, without duplicates, in the order of the tables."""
    return {group: _group(text, count) for group, (text, count) in GROUPS.items()}


def _group(text: str, count: int) -> tuple[Form, ...]:
    found: dict[str, Form] = {}
    for line in text.strip().splitlines():
        pattern, _, options = (part.strip() for part in line.partition("|  " if "|  " in line else " | "))
        words = options.split()
        settings = {key: int(value) for key, value in (word.split("=") for word in words if "=" in word)}
        for word in [word for word in words if "=" not in word] or [""]:
            for one in expand(pattern.replace("{0}", word).replace("{1}", "\3")):
                one = one.replace("\3", one.split(" ")[0].split(".")[-2] if "\3" in one else "")
                found.setdefault(one, Form(one, **{"count": count, **settings}))
    return tuple(found.values())
