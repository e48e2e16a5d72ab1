"""Traps, register control, launch dependencies, and the formats of printf."""

from __future__ import annotations

import struct

import pytest

from cutesmith.emulator.faults import KernelFault, UnsupportedInstruction
from cutesmith.emulator.operations.printing import ArgumentBuffer, format_text
from cutesmith.emulator.state.findings import MOST_PRINTED, Printed
from tests.emulator.machine import launches


def printed(template: str, layout: str, *values: object, strings: dict[int, str] | None = None) -> str:
    """The text for arguments packed as C does (`struct` layout, natural alignment)."""
    data = struct.pack(f"@{layout}", *values)
    return format_text(template, ArgumentBuffer(lambda at, size: data[at : at + size]), (strings or {}).__getitem__)


@pytest.mark.parametrize(
    ("template", "layout", "values", "expected"),
    [
        ("%d|%5d|%-5d|%05d|%+d", "5i", (-1, 42, 42, 42, 42), "-1|   42|42   |00042|+42"),
        ("%u %x %X %o %#x", "5i", (-1, 255, 255, 8, 255), "4294967295 ff FF 10 0xff"),
        ("%lld then %d", "qi", (-(2**40), 7), "-1099511627776 then 7"),
        ("%d then %lu", "iQ", (7, 2**63), "7 then 9223372036854775808"),
        ("%hd %hhu", "2i", (0x18000, 0x1FF), "-32768 255"),
        ("%f %.2f %8.3e %g %G", "5d", (1.5, 2.345, 12345.678, 1e-7, 1e20), "1.500000 2.35 1.235e+04 1e-07 1E+20"),
        ("%f %f %f", "3d", (float("inf"), float("-inf"), float("nan")), "inf -inf nan"),
        ("%c%c", "2i", (72, 105), "Hi"),
        ("%p", "Q", (0x7F0000000010,), "0x7f0000000010"),
        ("%*d %.*f", "3id", (6, 42, 2, 2.71828), "    42 2.72"),
        ("%a %A", "2d", (1.5, -0.75), "0x1.8p+0 -0X1.8P-1"),
        ("100%% of %d", "i", (3,), "100% of 3"),
        ("%d at %f", "id", (1, 0.5), "1 at 0.500000"),
        ("%q stays", "i", (1,), "%q stays"),
    ],
)
def test_formats_are_those_of_c(template, layout, values, expected):
    assert printed(template, layout, *values) == expected


def test_strings_are_read_where_they_lie():
    assert printed("<%s> %5.2s|", "QQ", 64, 96, strings={64: "tile", 96: "abc"}) == "<tile>    ab|"


def test_printed_text_is_bounded():
    output = Printed()
    for lane in range(3 * MOST_PRINTED // 1000):
        output.add(lane, "x" * 1000)
    assert MOST_PRINTED <= sum(map(len, output.texts)) < MOST_PRINTED + 1000
    assert len(output.last) == 3 * MOST_PRINTED // 1000


def test_a_trap_names_its_first_thread():
    with pytest.raises(KernelFault, match="executed `trap`") as caught:
        launches.run("mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 9; @%p1 ret; trap;", grid=(2, 1, 1))
    (finding,) = caught.value.findings
    assert (finding.kind, finding.thread, finding.block, finding.count) == ("trap", (9, 0, 0), (0, 0, 0), 46)


def test_register_counts_are_those_that_the_hardware_takes():
    assert launches.run("setmaxnreg.dec.sync.aligned.u32 24; setmaxnreg.inc.sync.aligned.u32 32; ret;").completed
    with pytest.raises(KernelFault, match="setmaxnreg to 30 registers"):
        launches.run("setmaxnreg.inc.sync.aligned.u32 30; ret;")
    with pytest.raises(KernelFault, match=r"increases to fewer registers \(24\) than a thread has \(32\)"):
        launches.run("setmaxnreg.inc.sync.aligned.u32 24; ret;")
    with pytest.raises(KernelFault, match=r"decreases to more registers \(40\) than a thread has \(32\)"):
        launches.run("setmaxnreg.dec.sync.aligned.u32 40; ret;")


@pytest.mark.parametrize("kept", [24, 32])
def test_an_increase_waits_for_the_registers_of_others(kept):
    """256 threads start with 32 each: 40 for one warpgroup leave 24 for the other."""
    decrease = f"setmaxnreg.dec.sync.aligned.u32 {kept}; ret;"
    code = f"mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 128; @%p1 bra UP; {decrease} UP: setmaxnreg.inc.sync.aligned.u32 40; ret;"  # noqa: E501
    if kept == 24:
        assert launches.run(code, block=(256, 1, 1)).completed
        return
    with pytest.raises(
        KernelFault, match=r"threads of its warpgroups hold 32 \+ 32, and the block started with 32"
    ) as caught:  # noqa: E501
        launches.run(code, block=(256, 1, 1))
    assert {finding.kind for finding in caught.value.findings} == {"deadlock"}


def test_dependent_launches_find_the_one_before_finished():
    code = "griddepcontrol.wait; griddepcontrol.launch_dependents; nanosleep.u32 100; ret;"
    assert launches.run(code, grid=(3, 1, 1)).completed


def test_functions_that_the_driver_does_not_have_are_named():
    with pytest.raises(UnsupportedInstruction, match="fence.invented"):
        launches.run("fence.invented; ret;")
