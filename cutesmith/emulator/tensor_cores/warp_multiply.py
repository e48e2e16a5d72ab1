"""`mma.sync` and `mma.sp.sync`: D = A B + C of a warp, its matrices spread over 32 lanes (fragments.py).

Of a sparse A each lane holds elements that are stored, as it would of a dense matrix with half of the columns; their
columns come from a register of metadata (sparsity.py).
"""

from __future__ import annotations

import functools
import re

import numpy as np

from cutesmith.emulator.emitters.formats import FORMATS
from cutesmith.emulator.faults import FaultKind, UnsupportedInstruction
from cutesmith.emulator.machine.lanes import Warps
from cutesmith.emulator.machine.suspensions import warp_operation
from cutesmith.emulator.program.abi import WARP, Array
from cutesmith.emulator.ptx.syntax import Immediate, Instruction, Operand, bits_of
from cutesmith.emulator.tensor_cores.arithmetic import TensorCore, tables_of, tensor_core_of
from cutesmith.emulator.tensor_cores.fragments import (
    N,
    fragment_order,
    pack,
    read_registers,
    registers_of,
    rows_of,
    unpack,
    whole_warps,
    write_registers,
)
from cutesmith.emulator.tensor_cores.multiplication import FAMILIES, Multiplication, compute
from cutesmith.emulator.tensor_cores.native_registers import read_floats, read_halves, write_floats
from cutesmith.emulator.tensor_cores.native_sums import fused_sums
from cutesmith.emulator.tensor_cores.sparsity import (
    DIFFERENT,
    ORDERED,
    columns,
    compute_sparse,
    meaningful,
    selectors,
    warp_codes,
)

_SHAPES = {
    "f16": ("m16n8k8", "m16n8k16"),
    "bf16": ("m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"),
    "fp8": ("m16n8k16", "m16n8k32"),
    "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
    "8-bit": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "4-bit": ("m8n8k32", "m16n8k32", "m16n8k64"),
    "b1": ("m8n8k128", "m16n8k128", "m16n8k256"),
}
_RESULTS = {
    "f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "fp8": ("f16", "f32"), "f64": ("f64",),
    "8-bit": ("s32",), "4-bit": ("s32",), "b1": ("s32",),
}  # fmt: skip
_SPARSE_SHAPES = {
    "f16": ("m16n8k16", "m16n8k32"),
    "bf16": ("m16n8k16", "m16n8k32"),
    "tf32": ("m16n8k8", "m16n8k16"),
    "fp8": ("m16n8k64",),
    "8-bit": ("m16n8k32", "m16n8k64"),
    "4-bit": ("m16n8k64", "m16n8k128"),
}
_IN_REGISTERS = {("f16", "f32"), ("bf16", "f32")}  # families and results of native_registers.py
_SIDE_BY_SIDE = 128  # warps whose decoded elements, 6 KB each, lie in the cache together
_FORM = re.compile(
    r"mma(?P<sparse>\.sp(?P<ordered>::ordered_metadata)?)?\.sync\.aligned\.(?P<shape>m(?P<m>\d+)n8k(?P<k>\d+))\.row\.col(?P<satfinite>\.satfinite)?"
    r"\.(?P<d>\w+)\.(?P<a>\w+)\.(?P<b>\w+)\.(?P<c>\w+)(?P<bitwise>\.(xor|and)\.popc)?(?P<rounding>\.rn)?"
)


@functools.cache
def parse_multiplication(opcode: str) -> Multiplication | None:
    """The form that a full opcode names; None where this machine has no such form."""
    match = _FORM.fullmatch(opcode)
    if match is None or match["a"] not in FAMILIES or match["b"] not in FAMILIES:
        return None
    family, sparse = FAMILIES[match["a"]], match["sparse"] is not None
    fits = (
        FAMILIES[match["b"]] == family
        and (match["a"] == match["b"] or family in ("fp8", "8-bit", "4-bit"))
        and match["shape"] in (_SPARSE_SHAPES if sparse else _SHAPES).get(family, ())
        and match["c"] == match["d"]
        and match["d"] in _RESULTS[family]
        and (match["satfinite"] is None or family in ("8-bit", "4-bit"))
        and (match["bitwise"] is not None) == (family == "b1")
        and (match["rounding"] is None or family == "f64")
    )
    if not fits:
        return None
    return Multiplication(
        m=int(match["m"]),
        k=int(match["k"]),
        a=match["a"],
        b=match["b"],
        result=match["d"],
        satfinite=match["satfinite"] is not None,
        operation=(match["bitwise"] or "..").split(".")[1],
        sparse=sparse,
    )


def _refuses(instruction: Instruction) -> str | None:
    return None if parse_multiplication(instruction.full_opcode) else "no such shape and types"


@warp_operation("mma", refuses=_refuses)
def multiply(warps: Warps) -> None:
    """Every form of `mma.sync.aligned` and `mma.sp.sync.aligned`; those of a `kind` are in warp_block_scaling.py."""
    instruction = warps.instruction
    form = parse_multiplication(instruction.full_opcode)
    assert form is not None
    warps = whole_warps(warps)
    core = tensor_core_of(warps.wave.tensor_core_sm or warps.wave.program.module.sm)
    if not len(warps.members) or _multiply_registers(warps, form, core):
        return
    d, a, b, c, *sparse = instruction.operands
    bits, result_bits = bits_of(form.a), bits_of(form.result)
    order = fragment_order("c", form.m, N, result_bits)
    left = _matrix(warps, a, fragment_order("a", form.m, form.stored, bits), bits).reshape(-1, form.m, form.stored)
    right = _matrix(warps, b, fragment_order("b", form.k, N, bits), bits).reshape(-1, form.k, N)
    addend = _matrix(warps, c, order, result_bits).reshape(-1, form.m, N)
    if form.sparse:
        product = compute_sparse(form, left, right, addend, core, _chosen(warps, form, *sparse))
    else:
        product = compute(form, left, right, addend, core)
    elements = np.empty((len(product), len(order)), np.uint64)
    elements[:, order] = product.reshape(elements.shape)
    per = max(1, 32 // result_bits)
    write_registers(warps, d, pack(elements.reshape(len(product), -1, per, WARP), result_bits))


def _multiply_registers(warps: Warps, form: Multiplication, core: TensorCore) -> bool:
    """The product by machine code from registers to registers, where it has one; False where nothing was done."""
    operands = [rows_of(warps, registers_of(operand)) for operand in warps.instruction.operands]
    rows = [each for each in operands if each is not None]
    if form.sparse or (form.family, form.result) not in _IN_REGISTERS or len(rows) < len(operands):
        return False
    d, a, b, c = rows
    m, k, tables = form.m, form.k, tables_of(FORMATS[form.a])
    of_a, of_b, of_c = (fragment_order(*one) for one in (("a", m, k, 16), ("b", k, N, 16), ("c", m, N, 32)))
    firsts = np.ascontiguousarray(warps.members[:, 0])
    for begin in range(0, len(firsts), _SIDE_BY_SIDE):
        where = warps.wave.frame, firsts[begin : begin + _SIDE_BY_SIDE]
        left = read_halves(*where, a, of_a, (m, k), tables)
        right = read_halves(*where, b, of_b, (k, N), tables)
        addend = read_floats(*where, c, of_c, (m, N))
        write_floats(*where, d, of_c, fused_sums(left, right, addend, core.chunk // 2, core.fraction, 0))
    return True


def _chosen(warps: Warps, form: Multiplication, metadata: Operand, selector: Operand) -> Array:
    """int64 (w, 16, stored): the columns of stored elements; a finding for what has no meaning."""
    instruction, bits = warps.instruction, bits_of(form.a)
    chosen = selectors(form.k, bits)
    if not isinstance(selector, Immediate) or selector.value not in chosen:
        raise UnsupportedInstruction(instruction, f"the sparsity selector is a constant below {len(chosen)}")
    codes = warp_codes(read_registers(warps, metadata)[:, 0], selector.value, form.k, bits)
    known = ORDERED if "sp::ordered_metadata" in instruction.modifiers else DIFFERENT
    strange = (~meaningful(codes, bits, known)).any(axis=(1, 2))
    if strange.any() and warps.machine.memory.sanitize:
        message = f"`{instruction.full_opcode}`: metadata that have no meaning"
        warps.wave.report(FaultKind.INVALID_OPERAND, message, warps.members[strange].ravel(), instruction)
    return columns(codes, bits)


def _matrix(warps: Warps, operand: Operand, order: Array, bits: int) -> Array:
    """uint64 elements (w, rows x columns) of the matrix that a vector operand spreads over the lanes."""
    elements = unpack(read_registers(warps, operand, max(32, bits)), bits)
    return elements.reshape(-1, len(order)).take(order, axis=1)
