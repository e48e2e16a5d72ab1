"""What a GPU does at the borders of the rules: one set a case, as the end may be an error of the launch.

Where the manual says "must" or nothing, these cases ask: rows that begin between units of 16 bytes, stores that begin
before the tensor or lie outside, alignment in shared memory, sizes of bulk copies, counts of an mbarrier; and atomic
operations on packed and vector types.
"""

from __future__ import annotations

from collections.abc import Iterator

from evals.studies.emulator import copy_kernels as kernels
from evals.studies.emulator.copy_cases import CopyCase, load, store, tensor

_LOADS = (
    ("u8", (1, 0)), ("u8", (8, 0)), ("u8", (15, 0)), ("u8", (-8, 0)), ("f16", (4, 1)), ("f32", (2, 1)), ("u64", (1, 1)),
    ("u8", (-16, 0)), ("u8", (0, -20)), ("u8", (4096, 0)), ("u8", (0, 4096)), ("u8", (-4096, -4096)),
    ("u8", (0x7FFFFFF0, 0)), ("u8", (0, 0x7FFFFFFF)), ("u8", (-0x80000000, 0)), ("u8", (0, -0x80000000)),
)  # fmt: skip
_STORES = (
    (-16, 0), (-32, 0), (-8, 0), (8, 0), (0, -1), (0, -5), (0, -8), (-16, -1), (80, 0), (96, 0), (112, 0), (0, 27),
    (0, 28), (0, 40), (0x7FFFFFF0, 0),
)  # fmt: skip


def _bounds() -> Iterator[CopyCase]:
    for kind, start in _LOADS:
        yield load(f"probe {kind} at {start}", tensor(kind, (96, 16), (32, 8)), (start,))
    for start in _STORES:
        yield store(f"probe u8 at {start}", tensor("u8", (96, 28), (32, 5)), (start,))
    for start in ((-16, 0), (0, -1), (8, 0), (96, 0)):
        yield store(f"probe add u32 at {start}", tensor("u32", (96, 28), (32, 5)), (start,), "add")
    for axis in range(5):
        start = tuple(-1 if place == axis else 0 for place in range(5))
        sizes, box = (80, 6, 5, 4, 3), (16, 4, 3, 2, 2)
        start = tuple(16 * where if place == 0 else where for place, where in enumerate(start))
        yield store(f"probe rank 5 before axis {axis}", tensor("u8", sizes, box), (start,))


def _alignment() -> Iterator[CopyCase]:
    """Where in shared memory a tile begins."""
    for place in (16, 32, 64, 128):
        yield load(f"probe plain tile at {place}", tensor("u8", (96, 16), (32, 8)), ((0, 0, 0, 0, 0, place),))
    for swizzle, inner in (("32B", 32), ("64B", 64), ("128B", 128)):
        for place in (64, 128, 256, 512):
            map = tensor("u8", (2 * inner, 30), (inner, 6), swizzle=swizzle)
            yield load(f"probe {swizzle} tile at {place}", map, ((0, 0, 0, 0, 0, place),))


def _sizes() -> Iterator[CopyCase]:
    """Bytes of a bulk copy; those expected are the same number."""
    for size in (0, 8, 15, 16, 4080):
        yield CopyCase(f"probe bulk load of {size}", kernels.bulk_load_body(1), ((size,),), 4096, results=4112)
    for size in (0, 8, 24):
        yield CopyCase(f"probe bulk store of {size}", kernels.bulk_store_body(""), ((size,),), 4096, results=4112)


# ------------------------------------------------------------------------------------------------------------ mbarriers

_BARRIERS = {
    "counts of 3": (3, "A A T A T0 T1 A A A T0 T1"),
    "bytes before arrivals": (1, "E64 C64 T0 A T0 T1"),
    "bytes after arrivals": (1, "A64 T0 C32 T0 C32 T0 T1"),
    "bytes first counted down": (1, "C64 T0 A T0 E64 T0 T1"),
    "arrivals by count": (5, "N2 T0 N3 T0 T1 N5 T0 T1"),
    "drop one": (2, "D A T0 A T0 T1 A T0 T1"),
    "drop with bytes": (2, "DE16 C16 A T0 T1 A T0 T1"),
    "twice over": (1, "A T0 T1 A T0 T1 A T0 T1"),
    "token of the phase before": (2, "A P A P A P"),
    "pending of many": (1000, "N999 P A P N1 P"),
    "largest count": (1048575, "N1048574 P T0 A T0 T1"),
    "largest bytes": (1, "E1048575 A T0 C1048575 T0 T1"),
    "expect in parts": (2, "E32 E32 A C64 T0 A T0 T1"),
    "initialised again": (2, "A I A T0 A T0 T1"),
    "no completion by bytes alone": (2, "A64 C64 T0 A T0 T1"),
}  # fmt: skip


def _steps(steps: str) -> str:
    """One thread's operations on the barrier; tests and counts are written one word after another."""
    lines, written = [], 0
    for step in steps.split():
        kind, number = step.rstrip("0123456789"), step[len(step.rstrip("0123456789")) :]
        expects, bytes_of = (".expect_tx", f", {number}") if number else ("", "")
        operation = {
            "A": f"mbarrier.arrive{expects}.shared::cta.b64 %p5, [%full]{bytes_of};",
            "N": f"mbarrier.arrive.shared::cta.b64 %p5, [%full], {number};",
            "D": "mbarrier.arrive_drop.shared::cta.b64 %p5, [%full];",
            "DE": f"mbarrier.arrive_drop.expect_tx.shared::cta.b64 %p5, [%full], {number};",
            "E": f"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%full], {number};",
            "C": f"mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%full], {number};",
            "I": "mbarrier.inval.shared::cta.b64 [%full];\nmbarrier.init.shared::cta.b64 [%full], 2;",
            "T": f"mbarrier.test_wait.parity.shared::cta.b64 %done, [%full], {number or 0};\n"
            "selp.b32 %r14, 1, 2, %done;",
            "P": "mbarrier.pending_count.b64 %r14, %p5;\nadd.u32 %r14, %r14, 16;",
        }[kind]  # fmt: skip
        lines.append("\n".join(f"@%first {line}" for line in operation.split("\n")))
        if kind in "TP":
            lines.append(f"@%first st.global.b32 [%mine+{4 * written}], %r14;")
            written += 1
    return "\n".join(lines)


def _barriers() -> Iterator[CopyCase]:
    for name, (count, steps) in _BARRIERS.items():
        body = "@%first mbarrier.inval.shared::cta.b64 [%full];\n"
        body += f"@%first mbarrier.init.shared::cta.b64 [%full], {count};\n" + _steps(steps)
        yield CopyCase(f"mbarrier {name}", body, ((0,),), 512, results=512)


# -------------------------------------------------------------------------------------------------------------- atomics

_ATOMICS = (
    ("add", "u32 s32 u64 f32 f64 noftz.f16 noftz.bf16 noftz.f16x2 noftz.bf16x2"), ("min", "u32 s32 u64 s64"),
    ("max", "u32 s32 u64 s64"), ("inc", "u32"), ("dec", "u32"), ("and", "b32 b64"), ("or", "b32 b64"),
    ("xor", "b32 b64"), ("exch", "b32 b64"), ("cas", "b16 b32 b64"),
)  # fmt: skip
_VECTORS = (
    ("add", "f32", 2), ("add", "f32", 4), ("add.noftz", "f16", 2), ("add.noftz", "f16", 4), ("add.noftz", "f16", 8),
    ("add.noftz", "bf16", 8), ("add.noftz", "f16x2", 4), ("add.noftz", "bf16x2", 2), ("min.noftz", "f16", 4),
    ("max.noftz", "bf16x2", 4),
)  # fmt: skip


def _bits(kind: str) -> int:
    base = kind.removesuffix("x2")
    return int("".join(c for c in base if c.isdigit())) * (2 if kind.endswith("x2") else 1)


def _atomic_body(space: str, operation: str, kind: str) -> str:
    """Each thread's operand of the image to its place of the output, or of shared memory; the old values follow."""
    plain, bits = kind.removeprefix("noftz."), _bits(kind.removeprefix("noftz."))
    register = {16: "%o0", 32: "%r8", 64: "%p0"}[bits]
    old = {16: "%o1", 32: "%r9", 64: "%p1"}[bits]
    size = bits // 8
    word = f"{operation}.noftz" if kind.startswith("noftz") else operation
    lines = [
        f"mul.wide.u32 %p5, %thread, {size};", f"mul.lo.u32 %r1, %thread, {size};", "add.s64 %p6, %data, %p5;",
        "add.s64 %p4, %mine, %p5;", f"ld.global.b{bits} {register}, [%p6];", "add.u32 %r2, %tile, %r1;",
        f"ld.global.b{bits} {old}, [%p6+1024];",
        f"st.shared.b{bits} [%r2], {old};", "bar.sync 0;",
    ]  # fmt: skip
    where = "[%p4]" if space == "global" else "[%r2]"
    compare = f"{old}, " if operation == "cas" else ""
    lines.append(f"atom.{space}.{word}.{plain} {old}, {where}, {compare}{register};")
    lines.append(f"st.global.b{bits} [%p4+1024], {old};")
    lines.append(f"ld.shared.b{bits} {old}, [%r2];\nst.global.b{bits} [%p4+2048], {old};")
    return "\n".join(lines)


def _vector_body(operation: str, kind: str, count: int) -> str:
    """`red` of a vector a thread to the output; elements of 16 bits come from two registers each."""
    bits = _bits(kind)
    size = bits // 8 * count
    head = f"mul.wide.u32 %p5, %thread, {size};\nadd.s64 %p6, %data, %p5;\nadd.s64 %p4, %mine, %p5;\n"
    names = [f"%x{index}" for index in range(count)]
    loads = "".join(f"ld.global.b{bits} {name}, [%p6+{bits // 8 * index}];\n" for index, name in enumerate(names))
    declared = f".reg .b{bits} %x<{count}>;\n"
    word, _, noftz = operation.partition(".")
    suffix = f".{noftz}" if noftz else ""
    return f"{declared}{head}{loads}red.global.{word}{suffix}.v{count}.{kind} [%p4], {{{', '.join(names)}}};\n"


def _atomics() -> Iterator[CopyCase]:
    for operation, kinds in _ATOMICS:
        for kind in kinds.split():
            drawn = kind.removeprefix("noftz.").removesuffix("x2")
            for space in ("global", "shared"):
                body = _atomic_body(space, operation, kind)
                yield CopyCase(f"atom {space} {operation} {kind}", body, ((0,), (0,)), 4096, drawn, results=4096)
    for operation, kind, count in _VECTORS:
        body = _vector_body(operation, kind, count)
        name, drawn = f"red {operation} v{count} {kind}", kind.removesuffix("x2")
        yield CopyCase(name, body, ((0,), (0,)), 4096, drawn, results=4096)


PROBES = (*_bounds(), *_alignment(), *_sizes(), *_barriers())
"""Cases whose end may be an error."""
ATOMICS = tuple(_atomics())
