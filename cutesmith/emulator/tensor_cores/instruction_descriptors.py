"""`tcgen05.mma`: its form from the opcode, and its instruction descriptor, 32 bits that say shapes, types and majors.

PTX ISA, "Instruction descriptor". Bits of the kinds without scale factors: [0:2) sparsity selector, [2] sparse, [3]
saturate, [4:6) type of D, [7:10) and [10:13) types of A and B, [13] [14] negation, [15] [16] majors (1: MN), [17:23)
N / 8, [24:29) M / 16, [30:32) how far `.ws` may shift the columns of B. Of the block-scaled ones: [2] sparse, [4:6)
which scale factors of B, [23] their type, [27:29) M / 128, [29:31) which of A, [31] K = 96 of e2m1 (sm_103a).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cutesmith.emulator.emitters.formats import BF16, E2M1, E4M3, E5M2, F16, F32, TF32, Format
from cutesmith.emulator.ptx.syntax import Instruction
from cutesmith.emulator.tensor_cores.descriptors import CHUNK, Major, OperandTile
from cutesmith.emulator.tensor_cores.tensor_memory_regions import LANES

E2M3 = Format("e2m3", 6, 3, 0x1F, 0x1F)
E3M2 = Format("e3m2", 6, 2, 0x1F, 0x1F)
STEP_BYTES = 32
"""Bytes of shared memory along k that one product of a row reads."""

_SMALL = {0: E4M3, 1: E5M2, 3: E2M3, 4: E3M2, 5: E2M1}
_INPUTS: dict[str, dict[int, Format | str]] = {
    "f16": {0: F16, 1: BF16},
    "tf32": {2: TF32},
    "f8f6f4": {**_SMALL},
    "i8": {0: "u8", 1: "s8"},
    "mxf8f6f4": {**_SMALL},
    "mxf4": {1: E2M1},
    "mxf4nvf4": {1: E2M1},
}
_DEPTHS = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
_LONGER_DEPTH = 96
_FORM = re.compile(
    r"tcgen05\.mma(?P<stationary>\.ws)?(?P<sparse>\.sp)?\.cta_group::(?P<group>[12])\.kind::(?P<kind>\w+)"
    r"(?P<scaled>\.block_scale)?(?:\.(?:scale_vec::)?(?P<vector>1X|2X|4X|block16|block32))?(?P<shifts>\.ashift)?"
    r"(?:\.collector::(?P<buffer>a|b[0-3])(?:::(?P<use>fill|use|lastuse|discard))?)?"
)
_VECTORS = {"mxf8f6f4": (32,), "mxf4": (32,), "mxf4nvf4": (16, 32)}
_WORDS = {"1X": 32, "2X": 32, "4X": 16, "block16": 16, "block32": 32}


class InstructionDescriptorError(ValueError):
    """An instruction descriptor that the form does not take."""


class UnsupportedProductError(Exception):
    """A product that the hardware has, and the emulated GPU does not execute."""


@dataclass(frozen=True)
class ProductForm:
    """What the opcode of a `tcgen05.mma` says: `block` stored elements along k share a scale factor, 0 without them.

    `stationary`: `.ws`. `sparse`: `.sp`. `shifts`: `.ashift`.
    """

    group: int
    kind: str
    block: int = 0
    stationary: bool = False
    sparse: bool = False
    shifts: bool = False

    @classmethod
    def parse(cls, instruction: Instruction) -> ProductForm | None:
        """The form; None for one that PTX lacks."""
        match = _FORM.fullmatch(instruction.full_opcode)
        if match is None or match["kind"] not in _INPUTS:
            return None
        scaled, stationary, shifts = match["kind"] in _VECTORS, match["stationary"] is not None, bool(match["shifts"])
        if scaled != (match["scaled"] is not None) or (match["vector"] is not None and not scaled):
            return None
        if (stationary and (scaled or shifts or match["group"] == "2")) or (shifts and scaled):
            return None
        if match["buffer"] and (match["buffer"] == "a") == stationary or (shifts and match["use"] in ("fill", "use")):
            return None
        choices = _VECTORS.get(match["kind"], (0,))
        block = _WORDS[match["vector"]] if match["vector"] else choices[0]
        if block not in choices:
            return None
        return cls(int(match["group"]), match["kind"], block, stationary, match["sparse"] is not None, shifts)


@dataclass(frozen=True)
class Product:
    """D (m, n) = A (m, k) B (n, k)^T + D as a descriptor says.

    `a`, `b`: formats, or "s8", "u8". `result`: "f32", "f16", "s32". `scale_ids`: which byte of the scale factors
    begins. `fine`: scale factors are UE4M3, else powers of two (UE8M0). `selector`: which column holds the metadata of
    a sparse A. `most_shift`: how many columns a zero-column mask may skip. `longer`: K is 96 (sm_103a).
    """

    form: ProductForm
    m: int
    n: int
    a: Format | str
    b: Format | str
    result: str
    negative: bool = False
    majors: tuple[Major, Major] = (Major.K, Major.K)
    saturate: bool = False
    scale_ids: tuple[int, int] = (0, 0)
    fine: bool = False
    selector: int = 0
    most_shift: int = 0
    longer: bool = False

    @property
    def depth(self) -> int:
        """How many elements of a row of A are stored: K, or half of it where A is sparse."""
        return _LONGER_DEPTH if self.longer else _DEPTHS[self.form.kind]

    @property
    def k(self) -> int:
        """K."""
        return self.depth * (2 if self.form.sparse else 1)

    @property
    def scales(self) -> int:
        """Scale factors of a row of A, and of a column of B."""
        return self.depth // self.form.block if self.form.block else 0

    @property
    def rows(self) -> int:
        """Rows of A and D that each block holds."""
        return self.m // self.form.group

    @property
    def columns(self) -> int:
        """Columns of B that each block holds."""
        return self.n // self.form.group

    @property
    def container(self) -> int:
        """Bits that an element takes in shared memory: 8 for all of the kinds of 8, 6 and 4 bits."""
        return STEP_BYTES * 8 // _DEPTHS[self.form.kind]

    def tile_a(self) -> OperandTile:
        """What each block reads of A."""
        return OperandTile(self.rows, self.depth, self.container, self.majors[0])

    def tile_b(self, shift: int = 0) -> OperandTile:
        """What each block reads of B, `shift` columns more before the first."""
        per = 1 if self.majors[1] is Major.K else CHUNK * 8 // self.container
        return OperandTile(self.columns + -(-shift // per) * per, self.k, self.container, self.majors[1])


_STATIONARY_ROWS, _STATIONARY_COLUMNS = (32, 64, 128), {False: (64, 128, 256), True: (64, 128)}
_SHIFTS = (0, 8, 16, 32)


def _check(form: ProductForm, m: int, n: int, result: str) -> None:
    if result == "f16" and form.kind not in ("f16", "f8f6f4"):
        raise InstructionDescriptorError(f"D in float16 with kind::{form.kind}")
    if form.stationary:
        columns = _STATIONARY_COLUMNS[form.sparse]
        if m not in _STATIONARY_ROWS or n not in columns:
            what = f"M is one of {_STATIONARY_ROWS} and N one of {columns} with `.ws{'.sp' * form.sparse}`"
            raise InstructionDescriptorError(f"M = {m}, N = {n}: {what}")
        return
    pair = form.group == 2
    shapes = {128: 16, 256: 16} if pair else {64: 8, 128: 16}
    if form.block:
        shapes = {128: 16, 256: 16} if pair else {128: 8}
    if m not in shapes:
        raise InstructionDescriptorError(f"M = {m}: {' or '.join(map(str, shapes))} with cta_group::{form.group}")
    step = 32 if pair and not form.block else shapes[m]
    if n % (8 if form.block and not pair else step if form.kind != "i8" else max(16, step)) or not 8 <= n <= 256:
        raise InstructionDescriptorError(f"N = {n}: a multiple of {step} up to 256 with M = {m}")
    if form.sparse and m // form.group < LANES:
        raise UnsupportedProductError(f"sparse matrices with M = {m} and cta_group::{form.group}: where metadata lie")
    if form.shifts and m // form.group < LANES:
        raise InstructionDescriptorError(f"M = {m}: `.ashift` takes {LANES * form.group} rows")


def decode(word: int, form: ProductForm) -> Product:
    """The product that an instruction descriptor asks for.

    Raises InstructionDescriptorError for fields that no product of the form has, UnsupportedProductError for a product
    that is not executed.
    """

    def field(start: int, bits: int) -> int:
        return word >> start & ((1 << bits) - 1)

    kinds = _INPUTS[form.kind]
    types = field(7, 3), field(10, 2 if form.kind.startswith("mxf4") else 3)
    if strange := [code for code in types if code not in kinds]:
        raise InstructionDescriptorError(f"{strange[0]} is not a type of A or B with kind::{form.kind}")
    if bool(field(2, 1)) != form.sparse:
        which = "is sparse, the opcode not" if field(2, 1) else "is not sparse, the opcode is `.sp`"
        raise InstructionDescriptorError(f"A {which} (bit 2)")
    n = field(17, 6) * 8
    negative = bool(field(13, 1) ^ field(14, 1))
    majors = Major(field(15, 1)), Major(field(16, 1))
    if form.block:
        m, result = field(27, 2) * 128, "f32"
        ids = field(29, 2), field(4, 2)
        fine, longer = not field(23, 1), bool(field(31, 1))
        if longer and (form.kind == "mxf8f6f4" or form.sparse or Major.MN in majors):
            raise InstructionDescriptorError("K = 96 (bit 31): dense e2m1, K-major, has it alone")
        if longer and form.block == 16 and any(first % 2 for first in ids):
            raise InstructionDescriptorError(f"scale factors {ids} of A and B: 0 or 2 with K = 96 and blocks of 16")
        if fine and form.kind != "mxf4nvf4":
            raise InstructionDescriptorError(f"scale factors of UE4M3 with kind::{form.kind}")
        _check(form, m, n, result)
        if longer and m // form.group < LANES:
            raise UnsupportedProductError(f"K = 96 with M = {m} and cta_group::{form.group}: where scale factors go on")
        return Product(
            form, m, n, kinds[types[0]], kinds[types[1]], result, negative, majors, False, ids, fine, longer=longer
        )
    results = {"i8": {2: "s32"}, "tf32": {1: "f32"}}.get(form.kind, {0: "f16", 1: "f32"})
    if field(4, 2) not in results:
        raise InstructionDescriptorError(f"{field(4, 2)} is not a type of D with kind::{form.kind}")
    m, result = field(24, 5) * 16, results[field(4, 2)]
    _check(form, m, n, result)
    selector, most_shift = field(0, 2) if form.sparse else 0, _SHIFTS[field(30, 2)]
    if selector > (form.kind in ("f16", "tf32")):
        raise InstructionDescriptorError(f"sparsity selector {selector} with kind::{form.kind}")
    if most_shift and not form.stationary:
        raise InstructionDescriptorError("columns of B are shifted (bits 30 and 31): only `.ws` does that")
    return Product(
        form, m, n, kinds[types[0]], kinds[types[1]], result, negative, majors, bool(field(3, 1)),
        selector=selector, most_shift=most_shift,
    )  # fmt: skip


def result_format(product: Product) -> Format:
    """The floating-point format of D."""
    return F16 if product.result == "f16" else F32
