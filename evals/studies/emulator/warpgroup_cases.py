"""What is recorded for `wgmma`: the PTX of each form, and its inputs.

A *set* is one multiplication of one block of 128 threads. Its inputs are the descriptors, an image of shared memory,
the registers of D, those of A, and whether D is added; its outputs are the registers of D. Descriptors are data, so
that one kernel serves many layouts. Addresses count from the image, whose place the kernel adds.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from cutesmith.emulator.engines.swizzles import Swizzle
from cutesmith.emulator.program.abi import Array
from cutesmith.emulator.ptx.syntax import bits_of
from cutesmith.emulator.tensor_cores.descriptors import CHUNK, Major, MatrixDescriptor, OperandTile
from cutesmith.emulator.tensor_cores.fragments import a_layout, pack
from cutesmith.emulator.tensor_cores.in_flight import registers_of
from cutesmith.emulator.tensor_cores.warpgroup_forms import ROWS, WarpgroupForm, parse_form
from evals.studies.emulator.driver import THREADS
from evals.studies.emulator.mma_inputs import FLOAT_KINDS, INTEGER_KINDS, Stream, matrices, metadata, selector_of

IMAGE_BYTES = 32768
_WORDS = IMAGE_BYTES // 8 // THREADS
_B_START = IMAGE_BYTES // 2
_HEADER = 3
"""Columns before the image: the descriptors of A and B, and whether D is added."""
_SWIZZLES = (Swizzle.NONE, Swizzle.B32, Swizzle.B64, Swizzle.B128)

PTX = """\
.version 8.7
.target sm_90a
.address_size 64
.visible .entry test(.param .b64 out, .param .b64 in)
.reqntid {threads}, 1, 1
{{
.shared .align 1024 .b8 image[{image}];
.reg .b64 %in, %out, %offset, %a, %b, %word, %base;
.reg .b32 %thread, %block, %place, %start, %d<{d}>, %f<4>, %m;
.reg .pred %adds;
ld.param.b64 %out, [out];
ld.param.b64 %in, [in];
mov.u32 %thread, %tid.x;
mov.u32 %block, %ctaid.x;
mad.lo.s32 %place, %block, {threads}, %thread;
mul.wide.u32 %offset, %place, 8;
add.s64 %in, %in, %offset;
add.s64 %out, %out, %offset;
mov.u32 %place, image;
shr.u32 %start, %place, 4;
cvt.u64.u32 %base, %start;
ld.global.b64 %a, [%in];
ld.global.b64 %b, [%in+{column}];
ld.global.b64 %word, [%in+{column2}];
setp.ne.b64 %adds, %word, 0;
add.s64 %a, %a, %base;
add.s64 %b, %b, %base;
shl.b32 %start, %thread, 3;
add.u32 %place, %place, %start;
{body}
fence.proxy.async.shared::cta;
bar.sync 0;
wgmma.fence.sync.aligned;
{multiply}
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
{stores}
ret;
}}
"""


_NEXT = "\nadd.s64 %a, %a, 1;\nadd.s64 %b, %b, 1;\n"
"""Between multiplications of a chain: ptxas 13.0 drops one that repeats the operands of the one before."""


@dataclass(frozen=True)
class Layout:
    """How an operand lies: `start` and offsets in bytes, from the image or its half."""

    swizzle: Swizzle
    leading: int
    stride: int
    start: int = 0
    base_offset: int = 0

    def descriptor(self, start: int) -> MatrixDescriptor:
        """The descriptor, of an operand whose half of the image begins at `start`."""
        return MatrixDescriptor(start + self.start, self.leading, self.stride, self.base_offset, self.swizzle)


@dataclass(frozen=True)
class WarpgroupCase:
    """A form of `wgmma` with constants and layouts: `sets` of each kind of input, A from registers if `in_registers`.

    `times`: multiplications one after another, each on operands 16 bytes further on.
    """

    name: str
    opcode: str
    kinds: tuple[str, ...]
    sets: int
    layouts: tuple[tuple[Layout, Layout], ...]
    in_registers: bool = False
    signs: tuple[int, int] = (1, 1)
    majors: tuple[Major, Major] = (Major.K, Major.K)
    times: int = 1
    threads: int = THREADS
    bits: int = 32

    @property
    def form(self) -> WarpgroupForm:
        """The form that the opcode names."""
        form = parse_form(self.opcode)
        assert form is not None, self.opcode
        return form

    @property
    def writes(self) -> int:
        """Registers of D in a thread."""
        return self.form.result_registers

    @property
    def reads(self) -> int:
        """Columns of input."""
        return _HEADER + _WORDS + self.writes + 4 * self.in_registers + self.form.product.sparse

    @property
    def tiles(self) -> tuple[OperandTile, OperandTile]:
        """What the descriptors of A and B describe."""
        product = self.form.product
        return (
            OperandTile(ROWS, product.stored, bits_of(product.a), self.majors[0]),
            OperandTile(product.n, product.k, bits_of(product.b), self.majors[1]),
        )

    def ptx(self) -> str:
        """The kernel `test(out, in)`."""
        column = 8 * self.sets * len(self.kinds) * THREADS
        lines = []
        for word in range(_WORDS):
            lines.append(f"ld.global.b64 %word, [%in+{column * (_HEADER + word)}];")
            lines.append(f"st.shared.b64 [%place+{8 * THREADS * word}], %word;")
        first = _HEADER + _WORDS
        lines += [f"ld.global.b32 %d{r}, [%in+{column * (first + r)}];" for r in range(self.writes)]
        first += self.writes
        lines += [f"ld.global.b32 %f{r}, [%in+{column * (first + r)}];" for r in range(4 * self.in_registers)]
        product = self.form.product
        if product.sparse:
            lines.append(f"ld.global.b32 %m, [%in+{column * (self.reads - 1)}];")
        stores = [f"st.global.b32 [%out+{column * r}], %d{r};" for r in range(self.writes)]
        d = ", ".join(f"%d{r}" for r in range(self.writes))
        a = "{%f0, %f1, %f2, %f3}" if self.in_registers else "%a"
        constants = [*self.signs] if self.form.negates else []
        if self.form.transposes:
            constants += [major.value for major in self.majors[self.in_registers :]]
        sparse = ["%m", str(selector_of(product))] if product.sparse else []
        multiply = ", ".join([f"{self.opcode} {{{d}}}", a, "%b", *sparse, "%adds", *map(str, constants)]) + ";"
        return PTX.format(
            threads=THREADS, image=IMAGE_BYTES, d=self.writes, column=column, column2=2 * column,
            body="\n".join(lines), multiply=_NEXT.join([multiply] * self.times), stores="\n".join(stores),
        )  # fmt: skip

    def inputs(self) -> Array:
        """uint64 (kinds x sets, reads, 128)."""
        return np.concatenate([self._inputs(kind) for kind in self.kinds])

    def _inputs(self, kind: str) -> Array:
        stream, product = Stream(f"{self.name} {kind}"), self.form.product
        a, b, c = matrices(stream, kind, product, self.sets)
        images = self._noise(stream, a, b)
        columns = np.zeros((self.sets, self.reads, THREADS), np.uint64)
        for index in range(self.sets):
            layouts = self.layouts[index % len(self.layouts)]
            operands = ((layouts[0], a[index], 0), (layouts[1], b[index].T, _B_START))
            for place, ((layout, matrix, start), tile) in enumerate(zip(operands, self.tiles, strict=True)):
                descriptor = layout.descriptor(start)
                columns[index, place] = descriptor.encode()
                if place or not self.in_registers:
                    write(images[index], descriptor, tile, matrix)
            columns[index, 2] = index % 4 != 3
        columns[:, _HEADER : _HEADER + _WORDS] = images.view(np.uint64).reshape(self.sets, _WORDS, THREADS)
        first = _HEADER + _WORDS
        registers = registers_of(c, bits_of(product.result)).swapaxes(0, 1)
        columns[:, first : first + self.writes] = registers
        if self.in_registers:
            columns[:, first + self.writes : first + self.writes + 4] = self._fragments(a)
        if product.sparse:
            words = metadata(stream, product, selector_of(product), True, self.sets, ROWS // 16)
            columns[:, -1] = words.reshape(self.sets, THREADS)
        return columns

    def _noise(self, stream: Stream, a: Array, b: Array) -> Array:
        """uint8 (sets, IMAGE_BYTES): elements of A in one half, of B in the other, in another order."""
        halves = []
        for matrix, tile in zip((a, b), self.tiles, strict=True):
            values = matrix.reshape(self.sets, -1).astype(f"u{max(8, tile.bits) // 8}")
            if tile.bits == 1:
                values = np.packbits(values.astype(np.uint8), axis=1)
            data = np.ascontiguousarray(values[:, ::-1]).view(np.uint8).reshape(self.sets, -1)
            halves.append(np.tile(data, (1, -(-_B_START // data.shape[1])))[:, :_B_START])
        return np.ascontiguousarray(np.concatenate(halves, axis=1))

    def _fragments(self, a: Array) -> Array:
        """uint64 (sets, 4, 128): A in registers."""
        bits, depth = self.tiles[0].bits, self.form.product.stored
        rows, columns = a_layout(ROWS // 4, depth, bits)
        warps = a.reshape(self.sets * 4, ROWS // 4, depth)[:, rows, columns]  # (w, registers, per, 32)
        packed = pack(warps, bits)
        return packed.reshape(self.sets, 4, -1, 32).swapaxes(1, 2).reshape(self.sets, -1, THREADS)


def write(image: Array, descriptor: MatrixDescriptor, tile: OperandTile, matrix: Array) -> None:
    """Put bits (extent, depth) where a descriptor says that they are."""
    places = descriptor.addresses(tile)[..., None] + np.arange(CHUNK)
    values = matrix.astype(f"u{max(8, tile.bits) // 8}")
    if tile.bits == 1:
        data = np.packbits(values.astype(np.uint8), axis=1, bitorder="little")
    elif tile.major is Major.MN:
        per = CHUNK * 8 // tile.bits
        data = np.ascontiguousarray(values.reshape(-1, per, tile.depth).swapaxes(1, 2)).view(np.uint8)
    else:
        data = np.ascontiguousarray(values).view(np.uint8)
    image[places] = data.reshape(places.shape)


# --------------------------------------------------------------------------------------------------------------- cases

TYPES = (
    "k16.f16.f16.f16", "k16.f32.f16.f16", "k16.f32.bf16.bf16", "k8.f32.tf32.tf32",
    "k32.f32.e4m3.e4m3", "k32.f32.e4m3.e5m2", "k32.f32.e5m2.e4m3", "k32.f32.e5m2.e5m2",
    "k32.f16.e4m3.e4m3", "k32.f16.e4m3.e5m2", "k32.f16.e5m2.e4m3", "k32.f16.e5m2.e5m2",
    "k32.s32.s8.s8", "k32.s32.s8.u8", "k32.s32.u8.s8", "k32.s32.u8.u8",
    "k32.satfinite.s32.s8.s8", "k32.satfinite.s32.s8.u8", "k32.satfinite.s32.u8.s8", "k32.satfinite.s32.u8.u8",
    "k256.s32.b1.b1.and.popc",
)  # fmt: skip
_PLAIN = (Layout(Swizzle.NONE, 128, 256), Layout(Swizzle.NONE, 128, 256))


def _opcode(n: int, kind: str, sparse: str) -> str:
    return f"wgmma.mma_async{sparse}.sync.aligned.m64n{n}{kind}"


def _kinds(opcode: str) -> tuple[str, ...]:
    return INTEGER_KINDS if ".s32." in opcode else FLOAT_KINDS


def make_case(n: int, kind: str, suffix: str, *, sparse: bool = False, **given: object) -> WarpgroupCase:
    opcode = _opcode(n, kind, ".sp" if sparse else "")
    options = {"kinds": _kinds(opcode), "sets": 2, "layouts": (_PLAIN,), **given}
    return WarpgroupCase(f"{opcode} {suffix}", opcode, **options)  # type: ignore[arg-type]


def _numeric() -> list[WarpgroupCase]:
    """Every combination of types, A from shared memory and from registers."""
    return [
        make_case(8, kind, "registers" if registers else "shared", in_registers=registers, sets=4)
        for kind in TYPES
        for registers in (False, True)
    ]


def _negated() -> list[WarpgroupCase]:
    kinds = ("k16.f16.f16.f16", "k16.f32.bf16.bf16", "k8.f32.tf32.tf32", "k32.f32.e4m3.e4m3")
    return [
        make_case(8, kind, f"signs {signs[0]} {signs[1]}{' registers' if registers else ''}",
              signs=signs, in_registers=registers, kinds=("spread", "special"), sets=4)
        for kind in kinds
        for registers in (False, True)
        for signs in ((-1, 1), (1, -1), (-1, -1))
    ]  # fmt: skip


def _shaped() -> list[WarpgroupCase]:
    """Every number of columns, types in turn."""
    floats = ("k16.f32.bf16.bf16", "k16.f16.f16.f16", "k8.f32.tf32.tf32", "k32.f32.e4m3.e5m2", "k16.f32.f16.f16")
    cases = [make_case(n, floats[n // 8 % 5], "shape", kinds=("normal",)) for n in range(16, 257, 8)]
    integers = ("k32.s32.s8.s8", "k32.satfinite.s32.u8.s8", "k256.s32.b1.b1.and.popc")
    columns = (24, *range(16, 257, 16))
    return cases + [make_case(n, integers[i % 3], "shape", kinds=("random",)) for i, n in enumerate(columns)]


@functools.cache
def layouts_of(major: Major, seed: str) -> tuple[Layout, ...]:
    """Layouts of an operand with every swizzle: offsets as CuTe makes them, others, starts within the pattern."""
    stream, found = Stream(f"layouts {major.name} {seed}"), []
    for index in range(32):
        swizzle = _SWIZZLES[index % 4]
        core = 8 * swizzle.row
        leading, stride = ((1 + stream.below(4, 2)) * core).tolist()
        if swizzle is Swizzle.NONE:
            leading, stride = ((1 + stream.below(40, 2)) * CHUNK).tolist()
        elif index >= 16:  # not multiples of the pattern
            leading, stride = ((1 + stream.below(48, 2)) * CHUNK).tolist()
        start = 0 if index < 8 else int(stream.below(64, 1)[0]) * CHUNK
        found.append(Layout(swizzle, min(leading, 1024), min(stride, 1024), start))
    return tuple(found)


def _laid_out() -> list[WarpgroupCase]:
    """Swizzles, majors, offsets and starts; n = 64."""
    cases = []
    for kind, majors in (
        ("k16.f32.f16.f16", tuple((a, b) for a in Major for b in Major)),
        ("k16.f32.bf16.bf16", ((Major.MN, Major.MN),)),
        ("k8.f32.tf32.tf32", ((Major.K, Major.K),)),
        ("k32.f32.e5m2.e5m2", ((Major.K, Major.K),)),
        ("k32.s32.u8.u8", ((Major.K, Major.K),)),
    ):
        for pair in majors:
            a, b = (layouts_of(major, f"{kind} {place}") for place, major in enumerate(pair))
            layouts = tuple(zip(a, b, strict=True))
            suffix = f"layouts {pair[0].name} {pair[1].name}"
            kinds = ("random",) if ".s32." in kind else ("normal",)
            cases.append(make_case(64, kind, suffix, layouts=layouts, majors=pair, sets=len(layouts), kinds=kinds))
    layouts = tuple(zip(layouts_of(Major.K, "registers"), layouts_of(Major.MN, "registers"), strict=True))
    more = {"layouts": layouts, "majors": (Major.K, Major.MN), "sets": 32, "kinds": ("normal",)}
    return [*cases, make_case(64, "k16.f32.bf16.bf16", "layouts registers MN", in_registers=True, **more)]


def _offset() -> list[WarpgroupCase]:
    """Base offsets with every swizzle, starts at and off the pattern."""
    cases = []
    for major in Major:
        plain = Layout(Swizzle.B64, 1024, 1024)
        layouts = []
        for swizzle in _SWIZZLES:
            for base, rows in ((1, 0), (1, 1), (2, 2), (3, 3), (5, 1), (7, 7), (4, 0), (0, 5)):
                shifted = Layout(swizzle, 1024, 1024, 128 * rows, base)
                layouts.append((plain, shifted) if rows % 2 else (shifted, plain))
        more = {"layouts": tuple(layouts), "majors": (major, major), "sets": len(layouts), "kinds": ("normal",)}
        cases.append(make_case(64, "k16.f32.f16.f16", f"base offsets {major.name}", **more))
    return cases


def _chained() -> list[WarpgroupCase]:
    """Three multiplications in one group, each on the result before."""
    kinds = (
        "k16.f16.f16.f16",
        "k16.f32.bf16.bf16",
        "k32.f32.e4m3.e4m3",
        "k32.f16.e5m2.e5m2",
        "k32.satfinite.s32.s8.s8",
    )
    return [make_case(16, kind, "three times", times=3, sets=4) for kind in kinds]


def _wide_numeric() -> list[WarpgroupCase]:
    """Every combination of types with 24 columns."""
    return [
        make_case(24 if ".s32." not in kind else 32, kind, f"wide {'registers' if registers else 'shared'}",
              in_registers=registers, sets=2)
        for kind in TYPES
        for registers in (False, True)
    ]  # fmt: skip


def _shaped_in_registers() -> list[WarpgroupCase]:
    """Every number of columns with A from registers, types in another turn than in `_shaped`."""
    floats = ("k8.f32.tf32.tf32", "k32.f16.e5m2.e4m3", "k16.f32.f16.f16", "k32.f32.e4m3.e4m3", "k16.f32.bf16.bf16")
    cases = [make_case(n, floats[n // 8 % 5], "shape registers", in_registers=True, kinds=("normal",)) for n in range(16, 257, 8)]  # noqa: E501  # fmt: skip
    integers = ("k32.s32.u8.u8", "k256.s32.b1.b1.and.popc", "k32.satfinite.s32.s8.u8")
    columns = (24, *range(16, 257, 16))
    return cases + [
        make_case(n, integers[i % 3], "shape registers", in_registers=True, kinds=("random",))
        for i, n in enumerate(columns)
    ]


def _more_negated() -> list[WarpgroupCase]:
    kinds = ("k16.f32.f16.f16", "k32.f16.e4m3.e5m2", "k32.f32.e5m2.e5m2")
    return [
        make_case(16, kind, f"signs {signs[0]} {signs[1]}", signs=signs, kinds=("spread", "special"), sets=3)
        for kind in kinds
        for signs in ((-1, 1), (1, -1), (-1, -1))
    ]


def _more_chained() -> list[WarpgroupCase]:
    """Two multiplications in a group, on the special values too."""
    kinds = ("k16.f32.f16.f16", "k8.f32.tf32.tf32", "k32.f32.e5m2.e5m2", "k32.f16.e4m3.e4m3", "k32.s32.u8.u8")
    return [make_case(8, kind, "twice", times=2, sets=3) for kind in kinds]


def _more_laid_out() -> list[WarpgroupCase]:
    """Swizzles and majors with 32 and 48 columns."""
    cases = []
    for n, kind in ((32, "k16.f16.f16.f16"), (48, "k16.f32.bf16.bf16")):
        for pair in ((a, b) for a in Major for b in Major):
            a, b = (layouts_of(major, f"{n} {kind} {place}") for place, major in enumerate(pair))
            layouts = tuple(zip(a, b, strict=True))
            suffix = f"layouts {pair[0].name} {pair[1].name}"
            cases.append(make_case(n, kind, suffix, layouts=layouts, majors=pair, sets=len(layouts), kinds=("normal",)))
    return cases


CASES = (*_numeric(), *_negated(), *_shaped(), *_laid_out(), *_offset(), *_chained())
"""What `wgmma_h200.npz` holds."""
MORE_CASES = (*_wide_numeric(), *_shaped_in_registers(), *_more_negated(), *_more_chained(), *_more_laid_out())
"""What `wgmma_more_h200.npz` holds."""
