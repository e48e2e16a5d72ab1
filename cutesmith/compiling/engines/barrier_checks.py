"""Bytes against boxes, counts against who arrives: what cannot be right of a kernel's mbarriers.

Sound for the launch at hand: a finding holds for every order of threads. What would need a guess is left undecided.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from cutesmith.compiling.engines.barrier_arrays import BarrierArray, BarrierArrays
from cutesmith.compiling.engines.reach import Place, Reach
from cutesmith.compiling.engines.sites import ARRIVES, EXPECTS, Act, Site
from cutesmith.compiling.engines.thread_values import REMOTE
from cutesmith.emulator.program.abi import WARP
from cutesmith.emulator.ptx.syntax import Instruction
from cutesmith.verdicts import EngineFault

_MOST_COPIES = 12  # of one wait: all their sums are formed


@dataclass(frozen=True)
class Remark:
    """A fault at an instruction, or, without one, what is undecided; the message ends with what `partner` does."""

    message: str
    remedy: str = ""
    fault: EngineFault | None = None
    instruction: Instruction | None = None
    partner: Instruction | None = None


def check_barriers(arrays: BarrierArrays, reach: Reach, cluster: tuple[int, int, int]) -> Iterator[Remark]:
    """All remarks on the mbarriers of a kernel."""
    for site in arrays.never:
        yield Remark(
            f"the mbarrier at byte {site.barrier.one} of shared memory is used, and nothing initialises it",
            "Call `mbarrier_init` on it before the first use, then fence and synchronise",
            EngineFault.NOT_INITIALISED,
            site.instruction,
        )
    if arrays.unknown:
        yield Remark(f"which mbarrier {len(arrays.unknown)} instructions act on: their addresses are computed")
    waits = [site.place for array in arrays.arrays for site in array.of(Act.WAIT)]
    for array in arrays.arrays:
        yield from _bytes(array, reach, bool(arrays.unknown))
        yield from _arrivals(array, reach, prod(cluster), waits, bool(arrays.unknown))


def _bytes(array: BarrierArray, reach: Reach, incomplete: bool) -> Iterator[Remark]:
    copies, expecting = array.of(Act.COPY), array.of(*EXPECTS)
    if not copies or array.of(Act.OTHER):
        return
    if not expecting:
        if not incomplete and not any(copy.barrier.local_terms != copy.barrier.terms for copy in copies):
            yield Remark(
                f"copies bring bytes to {array.name}, which expects none",
                "Arrive with `mbarrier_arrive_and_expect_tx` and the bytes of all its copies before they are issued",
                EngineFault.UNEXPECTED_BYTES,
                copies[0].instruction,
            )
        return
    unknown = next((reason for copy in copies if (reason := _unknown_size(copy, reach))), "")
    if unknown:
        yield Remark(f"the bytes of {array.name}: {unknown}")
        return
    for site in expecting:
        yield from _bytes_of(site, array, reach)


def _unknown_size(site: Site, reach: Reach) -> str:
    copy = site.copy
    assert copy is not None
    if copy.size is None:
        return "the box of a copy is not known"
    if copy.blocks is None:
        return "how many blocks a copy serves is not known"
    return "" if _lanes(site, reach) is not None else "how many threads issue a copy is not known"


def _lanes(site: Site, reach: Reach) -> int | None:
    """How many lanes of a warp execute it at once; None where that is not known."""
    threads = reach.threads(site.place)
    most = max(int(threads[start : start + WARP].sum()) for start in range(0, len(threads), WARP))
    return most if most <= 1 or reach.together(site.place) else None


def _bytes_of(site: Site, array: BarrierArray, reach: Reach) -> Iterator[Remark]:
    expected, copies, expecting = site.amount.one, array.of(Act.COPY), array.of(*EXPECTS)
    if not site.amount.whole or expected is None or _lanes(site, reach) != 1:
        yield Remark(f"the bytes that {array.name} expects: they are computed, or several threads expect them")
        return
    marks = [each.place for each in expecting]
    if _in_parts(site, array, reach):
        yield Remark(f"the bytes of {array.name}: some are expected in parts, or for several before a copy")
        return
    after = [copy for copy in copies if reach.leads(site.place, copy.place, without=marks)]
    if not after:
        yield Remark(f"the bytes of {array.name}: which copies bring them")
        return
    elsewhere = [c for c in copies if not any(reach.leads(e.place, c.place, without=marks) for e in expecting)]
    if elsewhere or any(reach.repeats(copy.place, marks) for copy in after):
        yield Remark(f"the bytes of {array.name}: copies come before they are expected, or in a loop of their own")
        return
    certain = [c for c in after if reach.always(c.place) and not reach.avoids(site.place, marks, [c.place])]
    others = [copy for copy in after if copy not in certain]
    if len(others) > _MOST_COPIES:
        yield Remark(f"the bytes of {array.name}: {len(others)} copies are issued on conditions")
        return
    sums = {sum(_size(copy, reach) for copy in certain)}
    for copy in others:
        sums |= {total + _size(copy, reach) for total in sums}
    pairs = {2 * total for total in sums} if any(c.copy is not None and c.copy.pair for c in after) else set()
    if expected not in sums | pairs:
        brought = " or ".join(map(str, sorted(sums)[:4])) + (" or …" if len(sums) > 4 else "")
        boxes = ", ".join(_described(copy) for copy in after)
        yield Remark(
            f"{array.name} expects {expected} bytes, and its copies bring {brought} ({boxes})",
            "Expect the bytes of all boxes that arrive: `cute.size_in_bytes` of the stage's layout, for each operand",
            EngineFault.WRONG_BYTES,
            site.instruction,
        )


def _in_parts(site: Site, array: BarrierArray, reach: Reach) -> bool:
    """Whether another instruction expects bytes before or after, with no copy between: of this phase or another's."""
    copies = [copy.place for copy in array.of(Act.COPY)]
    return any(
        reach.leads(first.place, second.place, without=copies)
        for other in array.of(*EXPECTS)
        if other is not site
        for first, second in ((site, other), (other, site))
    )


def _size(site: Site, reach: Reach) -> int:
    assert site.copy is not None and site.copy.size is not None and site.copy.blocks is not None
    return site.copy.size * site.copy.blocks * (_lanes(site, reach) or 1)


def _described(site: Site) -> str:
    copy = site.copy
    assert copy is not None
    box = f"a box of {' x '.join(map(str, copy.map.tile))} {copy.map.element.value[2]}" if copy.map else "a bulk copy"
    return f"{box}: {copy.size} bytes" + (f" to each of {copy.blocks} blocks" if copy.blocks != 1 else "")


def _arrivals(
    array: BarrierArray, reach: Reach, cluster: int, all_waits: list[Place], incomplete: bool
) -> Iterator[Remark]:
    waits, arriving = array.of(Act.WAIT), array.of(*ARRIVES)
    crowd = next((site for site in arriving if (_crowd(site, reach) or 0) > array.count), None)
    if crowd is not None:
        yield Remark(
            f"{_crowd(crowd, reach)} threads of a warp arrive at once at {array.name}, whose count is {array.count}",
            "Let one thread of each warp arrive (`cute.arch.elect_one()`), or initialise with the number of threads",
            EngineFault.TOO_MANY_ARRIVALS,
            crowd.instruction,
        )
    if not waits or incomplete or array.of(Act.OTHER):
        return
    if any(reach.repeats(site.place, all_waits) for site in arriving):
        yield Remark(f"how often threads arrive at {array.name}: they do so in a loop without a wait")
        return
    if not arriving and not any(site.amount.whole and site.amount.one == 0 for site in waits):
        return  # a wait for the phase before the first one passes
    most = sum(_most(site, reach, cluster) for site in arriving)
    if most < array.count:
        who = f"at most {most} arrivals can come" if arriving else "no thread arrives"
        yield Remark(
            f"{array.name} waits for {array.count} arrivals a phase, and {who}: its phase never ends",
            "Initialise it with the number of threads that arrive, or let those arrive that it counts",
            EngineFault.TOO_FEW_ARRIVALS,
            waits[0].instruction,
        )
        return
    first = _first_phase(array, reach)
    if first is not None and first[1] < array.count:
        yield Remark(
            f"{array.name} waits for {array.count} arrivals a phase, and at most {first[1]} come before "
            "the first phase has been waited for: it never ends",
            "Let all those arrive that it counts, or initialise it with the number of threads that arrive",
            EngineFault.TOO_FEW_ARRIVALS,
            first[0].instruction,
        )


def _first_phase(array: BarrierArray, reach: Reach) -> tuple[Site, int] | None:
    """A wait for the first phase of a single mbarrier of its block, and no more arrivals than that come before it."""
    arriving = array.of(*ARRIVES)
    if array.length != 1 or any(site.barrier.terms for site in array.sites):
        return None
    if any(_amount(site) is None or not reach.always(site.place) for site in arriving):
        return None
    waits = [w for w in array.of(Act.WAIT) if w.amount.whole and w.amount.one == 0 and reach.blocks_until_over(w.place)]
    marks = [wait.place for wait in waits]
    if not waits:
        return None
    return waits[0], sum(int(reach.before(site.place, marks).sum()) * (_amount(site) or 0) for site in arriving)


def _amount(site: Site) -> int | None:
    if site.act is Act.ARRIVE_AND_EXPECT:
        return 1
    return site.amount.one if site.amount.whole else None


def _crowd(site: Site, reach: Reach) -> int | None:
    """Arrivals of one warp at one mbarrier at once; None where that is not known."""
    amount, lanes = _amount(site), _lanes(site, reach)
    remote = site.barrier.local_terms != site.barrier.terms
    uniform = all(reach.is_uniform(atom) for atom, _ in site.barrier.terms if atom != REMOTE)
    first = np.arange(len(site.barrier.known)) // WARP * WARP
    same = bool((site.barrier.known == site.barrier.known[first]).all())
    return None if amount is None or lanes is None or remote or not uniform or not same else amount * lanes


def _most(site: Site, reach: Reach, cluster: int) -> int:
    """No more arrivals than that come in a phase."""
    amount = _amount(site)
    if amount is None:
        return 1 << 20
    remote = site.barrier.local_terms != site.barrier.terms
    return int(reach.threads(site.place).sum()) * amount * (cluster if remote else 1)
