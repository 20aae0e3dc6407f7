"""One stable look per workload on all pages: a colour that colour-blind people can tell apart, and a pattern.

Work that is shown together gets different looks while there are any left, different colours first. A look once given
stays: a store records it, so that it outlasts the process and all dashboards of one history agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Protocol
from zlib import crc32

from haru.dashboard.views.workloads import OTHER, Workload

COLOURS = 7
"""Okabe and Ito's palette without black: static/tokens.css has the values."""
PATTERNS = 6
"""Plain, rising stripes, dots, falling stripes, lying stripes, grid."""
MOST_KNOWN = 65_536
MOST_APART = 400
"""Work that is shown together, up to which its looks are told apart; of more the name alone decides."""
SHOWN_SECONDS = 3600.0
"""For how long work counts as shown."""
_ALL = tuple(product(range(COLOURS), range(PATTERNS)))
_NONE = "cx p0"


class LookStore(Protocol):
    """Where looks outlast a process. Neither raises: what cannot be kept lasts as long as the process."""

    def known(self) -> Mapping[Workload, int]:
        """Return what is recorded."""

    def record(self, looks: Mapping[Workload, int]) -> Mapping[Workload, int]:
        """Record looks, but none of work that has one; return what is recorded of this work now."""


class Looks:
    """The looks that were given, and a store for them; the renderer's thread gives them."""

    def __init__(self, store: LookStore | None = None) -> None:
        self._now = 0.0
        self._given: dict[Workload, int] = {}
        self._shown: dict[Workload, float] = {}
        self._store: LookStore | None = None
        self.keep_in(store)

    def keep_in(self, store: LookStore | None) -> None:
        """Take the looks of a store, and record there what is given from now on."""
        self._store = store
        if store is not None:
            self._given |= store.known()

    def look(self, work: Workload) -> str:
        """Return the CSS classes of a workload's look, the same on every page."""
        if work == OTHER or not work.namespace:
            return _NONE
        found = self._given.get(work)
        if found is None:
            self.show([work], self._now)
            found = self._given[work]
        return f"c{found // PATTERNS} p{found % PATTERNS}"

    def show(self, works: Iterable[Workload], now: float) -> None:
        """Give looks to all work that a page is about to show; `now` is in seconds, from any beginning."""
        shown = {work for work in works if work.namespace}
        self._now = now
        self._shown.update(dict.fromkeys(shown, now))
        if new := sorted(shown - self._given.keys()):
            self._shown = {work: at for work, at in self._shown.items() if now - at < SHOWN_SECONDS}
            self._give(new)

    def _give(self, new: list[Workload]) -> None:
        if len(self._given) + len(new) > MOST_KNOWN:
            self._given = {work: look for work, look in self._given.items() if work in self._shown}
        known = self._store.known() if self._store is not None else {}
        self._given = {**known, **self._given}
        new = [work for work in new if work not in self._given]
        if len(self._shown) > MOST_APART:
            self._given |= {work: _preferred(work) for work in new}
        else:
            self._given |= _apart(new, Counter(self._given[work] for work in self._shown if work in self._given))
        if self._store is not None and (missing := self._given.keys() - known.keys()):
            recorded = self._store.record({work: self._given[work] for work in missing})
            self._given |= {work: recorded[work] for work in new if work in recorded}


def _apart(new: Iterable[Workload], taken: Counter[int]) -> dict[Workload, int]:
    """Choose looks for work, each as far from those that are taken as it can be; the name decides between equals."""
    given: dict[Workload, int] = {}
    colours = Counter({colour: sum(taken[colour * PATTERNS + p] for p in range(PATTERNS)) for colour in range(COLOURS)})
    for work in new:
        first = _preferred(work)
        order = (_ALL[(first + step) % len(_ALL)] for step in range(len(_ALL)))
        colour, pattern = min(order, key=lambda each: (taken[each[0] * PATTERNS + each[1]], colours[each[0]]))
        given[work] = colour * PATTERNS + pattern
        taken[given[work]] += 1
        colours[colour] += 1
    return given


def _preferred(work: Workload) -> int:
    return crc32("/".join(work).encode()) % len(_ALL)


LOOKS = Looks()
"""Those of this process, as its templates."""


def look(work: Workload) -> str:
    """Return the CSS classes of a workload's look."""
    return LOOKS.look(work)
