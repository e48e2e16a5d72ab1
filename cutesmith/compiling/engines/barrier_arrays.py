"""Mbarriers as a kernel initialises them, in arrays: one for each purpose, an mbarrier for each stage of a ring."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from cutesmith.compiling.engines.sites import Act, Site

BARRIER_BYTES = 8


@dataclass(eq=False)
class BarrierArray:
    """Neighbours that are initialised with one count; `sites` act on one of them."""

    first: int
    length: int
    count: int
    sites: list[Site] = field(default_factory=list)

    @property
    def name(self) -> str:
        """In words."""
        if self.length == 1:
            return f"the mbarrier at byte {self.first} of shared memory"
        return f"the {self.length} mbarriers from byte {self.first} of shared memory"

    def of(self, *acts: Act) -> list[Site]:
        """The sites that do one of these."""
        return [site for site in self.sites if site.act in acts]


@dataclass(eq=False)
class BarrierArrays:
    """The arrays of a kernel, sites at a known place where nothing is initialised, and those whose place is unknown."""

    arrays: tuple[BarrierArray, ...]
    never: tuple[Site, ...]
    unknown: tuple[Site, ...]


def sort_out(sites: Iterable[Site]) -> BarrierArrays:
    """Which site acts on which array."""
    sites = list(sites)
    initial = [site for site in sites if site.act is Act.INIT]
    others = [site for site in sites if site.act is not Act.INIT]
    counts: dict[int, int] = {}
    for site in initial:
        places = {int(place) for place in np.unique(site.barrier.known)}
        if not site.barrier.whole or len(places) != 1 or not site.amount.whole or site.amount.one is None:
            return BarrierArrays((), (), tuple(others))
        if counts.setdefault(places.pop(), site.amount.one) != site.amount.one:
            return BarrierArrays((), (), tuple(others))  # a place with two counts: in different branches
    arrays = _arrays(
        counts, {int(place) for site in others if site.barrier.local_terms for place in site.barrier.known}
    )
    never, unknown = [], []
    for site in others:
        found = {id(array): array for place in np.unique(site.barrier.known) if (array := _at(arrays, int(place)))}
        known = all(_at(arrays, int(place)) for place in np.unique(site.barrier.known))
        if known and len(found) == 1 and site.barrier.multiple % BARRIER_BYTES == 0:
            next(iter(found.values())).sites.append(site)
        elif site.barrier.whole and site.barrier.one is not None:
            never.append(site)
        else:
            unknown.append(site)
    return BarrierArrays(tuple(arrays), tuple(never), tuple(unknown))


def _arrays(counts: dict[int, int], starts: set[int]) -> list[BarrierArray]:
    arrays: list[BarrierArray] = []
    for place in sorted(counts):
        last = arrays[-1] if arrays else None
        follows = last is not None and place == last.first + BARRIER_BYTES * last.length
        if last is not None and follows and last.count == counts[place] and place not in starts:
            last.length += 1
        else:
            arrays.append(BarrierArray(place, 1, counts[place]))
    return arrays


def _at(arrays: list[BarrierArray], place: int) -> BarrierArray | None:
    for array in arrays:
        if array.first <= place < array.first + BARRIER_BYTES * array.length and (place - array.first) % 8 == 0:
            return array
    return None
