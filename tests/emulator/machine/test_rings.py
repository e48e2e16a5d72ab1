"""Arrays of mbarriers as a launch used them: which belong together, and how often a block went round."""

from __future__ import annotations

import pytest

from cutesmith.verdicts import MbarrierRing
from tests.emulator.machine.launches import run

INIT = "@%p1 mbarrier.init.shared.b64 [%r2+{}], {};\n"
FILL = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r2+{}], 0;\n"
FREE = "@%p1 mbarrier.arrive.shared.b64 _, [%r2+{}];\n"


def rings(full, empty, filled, freed):
    """Those of a launch with two stages: mbarriers for so many arrivals, and which of them are used."""
    code = ".shared .align 8 .b8 s[64];\nmov.u32 %r1, %tid.x; mov.u32 %r2, s; setp.eq.u32 %p1, %r1, 0;\n"
    code += "".join(INIT.format(8 * index, count) for index, count in enumerate((full, full, empty, empty)))
    code += "".join(FILL.format(8 * index) for index in filled)
    code += "".join(FREE.format(16 + 8 * index) for index in freed)
    return run(code + "ret;").rings


@pytest.mark.parametrize(
    ("full", "empty", "filled", "freed", "expected"),
    [
        (1, 4, [0, 1], [], [MbarrierRing(0, 2, True, 2), MbarrierRing(16, 2, False, 0)]),
        (1, 4, [0], [], [MbarrierRing(0, 2, True, 1), MbarrierRing(16, 2, False, 0)]),  # one trip: a stage is unused
        (1, 1, [0, 1], [0], [MbarrierRing(0, 2, True, 2), MbarrierRing(16, 2, False, 1)]),
        (1, 1, [0], [0], [MbarrierRing(0, 2, True, 1), MbarrierRing(16, 2, False, 1)]),
        (1, 1, [0, 1, 0], [], [MbarrierRing(0, 4, True, 3)]),  # where the second array begins is not known yet
    ],
)
def test_unused_mbarriers_belong_to_the_array_before_them(full, empty, filled, freed, expected):
    assert list(rings(full, empty, filled, freed)) == expected
