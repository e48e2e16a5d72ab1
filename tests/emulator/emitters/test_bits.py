"""Bit operations against the pseudo-code of the PTX manual, written in Python."""

from __future__ import annotations

import numpy as np
import pytest

from cutesmith.emulator.faults import UnsupportedInstruction
from tests.emulator.emitters.cases import Case, bits, check, each, operands, signed, typed
from tests.emulator.native.straight import run

WIDTHS = ("b16", "b32", "b64")
FULL = 0xFFFF_FFFF


def test_logic():
    check(each("and", ("pred", *WIDTHS), 2, lambda _, a, b: a & b))
    check(each("or", ("pred", *WIDTHS), 2, lambda _, a, b: a | b))
    check(each("xor", ("pred", *WIDTHS), 2, lambda _, a, b: a ^ b))
    check(each("not", ("pred", *WIDTHS), 1, lambda _, a: ~a) + each("cnot", WIDTHS, 1, lambda _, a: int(a == 0)))


def test_shifts_by_the_width_or_more_leave_nothing_but_signs():
    cases = [Case(f"shl.{kind}", (kind, "u32"), bits(kind), lambda a, n: a << min(n, 64)) for kind in WIDTHS]
    for kind in (*WIDTHS, "u32", "s16", "s32", "s64"):
        cases.append(Case(f"shr.{kind}", (kind, "u32"), bits(kind), lambda a, n: a >> min(n, 64)))
    check(cases)


def test_funnel_shifts_clamp_or_wrap():
    def left(a: int, b: int, n: int) -> int:
        return (b << 32 | a) << n >> 32

    def right(a: int, b: int, n: int) -> int:
        return (b << 32 | a) >> n

    cases = []
    for letter, shift in (("l", left), ("r", right)):
        cases.append(Case(f"shf.{letter}.wrap.b32", ("b32",) * 3, 32, lambda a, b, n, shift=shift: shift(a, b, n & 31)))
        cases.append(
            Case(f"shf.{letter}.clamp.b32", ("b32",) * 3, 32, lambda a, b, n, shift=shift: shift(a, b, min(n, 32)))
        )
    check(cases)


def test_counting_and_finding():
    def leading(kind: str, a: int) -> int:
        value = ~a if a < 0 else a
        return value.bit_length() - 1

    kinds = ("u32", "s32", "u64", "s64")
    cases = []
    for kind in ("b32", "b64"):
        cases.append(Case(f"popc.{kind}", (kind,), 32, lambda a: a.bit_count()))
        cases.append(Case(f"clz.{kind}", (kind,), 32, lambda a, kind=kind: bits(kind) - a.bit_length()))
        reverse = lambda a, kind=kind: int(f"{a:0{bits(kind)}b}"[::-1], 2)
        cases.append(Case(f"brev.{kind}", (kind,), bits(kind), reverse))
    for kind in kinds:
        cases.append(Case(f"bfind.{kind}", (kind,), 32, lambda a, kind=kind: leading(kind, a)))
        amount = lambda a, kind=kind: -1 if (found := leading(kind, a)) < 0 else bits(kind) - 1 - found
        cases.append(Case(f"bfind.shiftamt.{kind}", (kind,), 32, amount))
    check(cases)


def small(values: np.ndarray, limit: int) -> np.ndarray:
    """Mostly in [0, limit), sometimes any 32 bits."""
    return np.where(values & np.uint64(7), values % np.uint64(limit), values & np.uint64(FULL))


def test_the_nth_set_bit_is_found_in_both_directions():
    mask, base, offset = (array & np.uint64(FULL) for array in operands(3))
    base, offset = base % np.uint64(32), (offset % np.uint64(21) - np.uint64(10)) & np.uint64(FULL)
    found = run("fns.b32 %r4, %r1, %r2, %r3;", {"%r1": mask, "%r2": base, "%r3": offset}, "%r4")["%r4"]

    def oracle(mask: int, base: int, offset: int) -> int:
        if offset == 0:
            return base if mask >> base & 1 else FULL
        step = 1 if offset > 0 else -1
        positions = [p for p in range(base, 32 if step > 0 else -1, step) if mask >> p & 1]
        return positions[abs(offset) - 1] if abs(offset) <= len(positions) else FULL

    wanted = [oracle(int(m), int(b), signed(int(o), 32)) for m, b, o in zip(mask, base, offset)]
    assert found.tolist() == wanted


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_fields_are_extracted_with_their_sign(kind: str):
    value, position, length = operands(3)
    value &= np.uint64((1 << bits(kind)) - 1)
    position, length = small(position, 70), small(length, 70)
    source = "%rd" if bits(kind) == 64 else "%r"
    code = f"bfe.{kind} {source}9, {source}1, %r2, %r3;"
    got = run(code, {f"{source}1": value, "%r2": position, "%r3": length}, f"{source}9")[f"{source}9"]

    def oracle(a: int, position: int, length: int) -> int:
        top, position, length = bits(kind) - 1, position & 255, length & 255
        sign = 0 if kind[0] == "u" or not length else a >> min(position + length - 1, top) & 1
        field = [(a >> position + i & 1) if i < length and position + i <= top else sign for i in range(top + 1)]
        return sum(bit << i for i, bit in enumerate(field))

    assert got.tolist() == [oracle(int(a), int(p), int(n)) for a, p, n in zip(value, position, length)]


@pytest.mark.parametrize("kind", ["b32", "b64"])
def test_fields_are_inserted(kind: str):
    value, base, position, length = operands(4)
    value, base = (array & np.uint64((1 << bits(kind)) - 1) for array in (value, base))
    position, length = small(position, 70), small(length, 70)
    letter = "%rd" if kind == "b64" else "%r"
    code = f"bfi.{kind} {letter}9, {letter}1, {letter}2, %r3, %r4;"
    inputs = {f"{letter}1": value, f"{letter}2": base, "%r3": position, "%r4": length}
    got = run(code, inputs, f"{letter}9")[f"{letter}9"]

    def oracle(a: int, b: int, position: int, length: int) -> int:
        position, length = position & 255, length & 255
        for i in range(length):
            if position + i < bits(kind):
                b = b & ~(1 << position + i) | (a >> i & 1) << position + i
        return b

    assert got.tolist() == [oracle(*map(int, lane)) for lane in zip(value, base, position, length)]


def test_masks_and_extensions_clamp_or_wrap():
    def mask(position: int, length: int) -> int:
        return ((1 << min(length, 64)) - 1) << min(position, 64)

    def extended(value: int, count: int, is_signed: bool) -> int:
        if count >= 32:
            return value
        return signed(value, count) if is_signed and count else value & ((1 << count) - 1)

    cases = [
        Case("bmsk.clamp.b32", ("u32", "u32"), 32, lambda p, n: mask(p, n)),
        Case("bmsk.wrap.b32", ("u32", "u32"), 32, lambda p, n: mask(p & 31, n & 31)),
    ]
    for is_signed, kind in ((False, "u32"), (True, "s32")):
        clamp = lambda a, n, is_signed=is_signed: extended(a & FULL, n & FULL, is_signed)
        wrap = lambda a, n, is_signed=is_signed: extended(a & FULL, n & 31, is_signed)
        cases += [
            Case(f"szext.{name}.{kind}", ("u32", "u32"), 32, fn) for name, fn in (("clamp", clamp), ("wrap", wrap))
        ]
    check(cases)


def test_bytes_are_permuted_by_selectors_and_by_mode():
    def permuted(a: int, b: int, selectors: list[int]) -> int:
        source = (b << 32 | a).to_bytes(8, "little")
        chosen = [(0xFF if source[s & 7] & 0x80 else 0) if s & 8 else source[s & 7] for s in selectors]
        return int.from_bytes(bytes(chosen), "little")

    modes = {  # lowest byte first
        "f4e": lambda n: [n, n + 1, n + 2, n + 3],
        "b4e": lambda n: [n, (n + 7) & 7, (n + 6) & 7, (n + 5) & 7],
        "rc8": lambda n: [n] * 4,
        "ecl": lambda n: [max(n, i) for i in range(4)],
        "ecr": lambda n: [min(n, i) for i in range(4)],
        "rc16": lambda n: [2 * (n & 1), 2 * (n & 1) + 1] * 2,
    }
    cases = [
        Case("prmt.b32", ("b32",) * 3, 32, lambda a, b, c: permuted(a, b, [c >> 4 * i & 15 for i in range(4)])),
    ]
    for mode, selectors in modes.items():
        oracle = lambda a, b, c, selectors=selectors: permuted(a, b, selectors(c & 3))
        cases.append(Case(f"prmt.b32.{mode}", ("b32",) * 3, 32, oracle))
    check(cases)


def test_all_256_functions_of_three_bits():
    a, b, c = 0xF0, 0xCC, 0xAA
    inputs = {"%r1": np.array([a], np.uint64), "%r2": np.array([b], np.uint64), "%r3": np.array([c], np.uint64)}
    code = "\n".join(f"lop3.b32 %r{100 + table}, %r1, %r2, %r3, {table};" for table in range(256))
    results = run(code, inputs, *(f"%r{100 + table}" for table in range(256)))
    for table in range(256):
        assert int(results[f"%r{100 + table}"][0]) & 0xFF == table


def test_lop3_with_a_boolean_operation_sets_a_predicate_too():
    a, b, c, q = operands(4)
    inputs = {name: array & np.uint64(FULL) for name, array in zip(("%r1", "%r2", "%r3"), (a, b, c))}
    inputs["%p1"] = q & np.uint64(1)
    code = "lop3.or.b32 %r4|%p2, %r1, %r2, %r3, 0x80, %p1;\nlop3.and.b32 _|%p3, %r1, %r2, %r3, 0x80, !%p1;"
    results = run(code, inputs, "%r4", "%p2", "%p3")
    product = inputs["%r1"] & inputs["%r2"] & inputs["%r3"]
    assert (results["%r4"] == product).all()
    assert (results["%p2"] == ((product != 0) | (inputs["%p1"] == 1))).all()
    assert (results["%p3"] == ((product != 0) & (inputs["%p1"] == 0))).all()


def test_what_is_unknown_is_refused():
    inputs = {"%r1": np.zeros(1, np.uint64), "%r2": np.zeros(1, np.uint64)}
    with pytest.raises(UnsupportedInstruction, match="shf"):
        run("shf.l.clamp.b64 %r3, %r1, %r2, %r2;", inputs, "%r3")
    with pytest.raises(UnsupportedInstruction, match="not a literal"):
        run("lop3.b32 %r3, %r1, %r2, %r2, %r1;", inputs, "%r3")


def test_typed_reads_the_sign():
    assert (typed(0xFFFF, "s16"), typed(0xFFFF, "u16")) == (-1, 0xFFFF)
