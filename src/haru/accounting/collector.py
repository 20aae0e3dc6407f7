"""Collect the usage of devices: watch the API server, evaluate snapshots, write the history.

A change is evaluated at once, unless the last evaluation was a moment ago; after a long one there is a pause of twenty
times its length, so that it takes at most a twentieth of a core. The current interval is written every ten seconds.
While the API cannot be watched, time counts as not observed.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from haru.accounting.changed_cards import ChangedCards
from haru.accounting.device_states import WHOLE, UsageKey
from haru.accounting.happenings import HappeningMeter
from haru.accounting.history import HOUR, History
from haru.accounting.holdings import Holding, HoldingMeter
from haru.accounting.ledger import PER_DEVICE_SECOND, Interval, Meter
from haru.client.api import ApiClient
from haru.cluster_view import ClusterView, ClusterWatch
from haru.engine import Features, Options
from haru.engine.framework import SchedulerGates
from haru.engine.state import HELD_BACK_BY, WATCHED_KINDS, KeptFields
from haru.explain.card_counts import CardCounts
from haru.explain.happenings import Happening, moments, without_other_events
from haru.kube.meta import Obj

_log = logging.getLogger(__name__)

_PAUSE_FACTOR = 20.0
_FIRST_WRITE_SECONDS = 1.0
_RETRY_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Intervals:
    """Times of a collector, in seconds.

    `write`: between two writes of the current interval; `pause`: at least, between two evaluations; `gap`: without a
    write for so long the time counts as not observed (the machine slept).
    """

    write: float = 10.0
    pause: float = 1.0
    gap: float = 300.0


class Labels(NamedTuple):
    """What the metrics tell amounts apart by."""

    namespace: str
    state: str
    driver: str


class _Measured(NamedTuple):
    """What one evaluation has found: amounts, counts, and what is to be written of holders and happenings."""

    units: Counter[UsageKey]
    counts: CardCounts
    holdings: list[Holding]
    happenings: list[Happening]


class UsageCollector:
    """Collects the usage of one cluster; without a history only the metrics.

    `features` are those of the cluster's scheduler (default: 1.36's), `clock` is in seconds since 1970.
    """

    def __init__(
        self,
        client: ApiClient,
        history: History | None = None,
        *,
        features: Features | None = None,
        clock: Callable[[], float] = time.time,
        intervals: Intervals = Intervals(),
    ) -> None:
        kinds = (*WATCHED_KINDS, *HELD_BACK_BY, *((("v1", "Event"),) if history is not None else ()))
        # Pods and claims that others in this process have anyway take less as they are.
        kept = KeptFields().transforms if client.shared is None else {}
        transforms = {**kept, "Event": without_other_events}
        self._watch = ClusterWatch(client, linger=0.0, kinds=kinds, name="accounting", transforms=transforms)
        self._history = history
        self._clock = clock
        self._intervals = intervals
        self._meter = Meter()
        self._holdings = HoldingMeter()
        self._happenings = HappeningMeter()
        self._units: Counter[UsageKey] = Counter()
        self._counts = CardCounts()
        self._before: Counter[Labels] = Counter()
        """Of what is over, by label: owners come and go, and the history has them."""
        self._tidied = 0
        self._options = Options(
            features=features or Features(),
            new_share_id=lambda: "accounted",
            gates=SchedulerGates(node_allocatable=True),
        )
        self._cards = ChangedCards(self._options)
        self._events: Sequence[Obj] = ()
        self.looked = asyncio.Event()
        self.registry = CollectorRegistry()
        self.registry.register(_Metrics(self))

    async def run(self) -> None:
        """Collect until cancelled."""
        try:
            while True:
                try:
                    async with self._watch.viewing():
                        await self._collect()
                except OSError as error:
                    _log.info("the cluster cannot be watched: %s", error)
                except Exception:
                    # No other component depends on this one: the time counts as not observed.
                    _log.exception("the usage of devices cannot be collected; it is tried again")
                self._stop()
                await asyncio.sleep(_RETRY_SECONDS)
        finally:
            self._now()
            self._stop()
            await self._watch.stop()
            if self._history is not None:
                self._history.close()

    def text(self) -> bytes:
        """Return the metrics in the Prometheus text format."""
        return generate_latest(self.registry)

    def seconds(self) -> Counter[Labels]:
        """Return the amounts since the start, in thousandths of cards times milliseconds."""
        going = self._meter.current()
        return self._before + _by_label(going.amounts) if going is not None else Counter(self._before)

    def units(self) -> Counter[UsageKey]:
        """Return the shares now, in thousandths of cards."""
        return self._units

    def counts(self) -> CardCounts:
        """Return the cards now by the words of the vocabulary."""
        return self._counts

    async def _collect(self) -> None:
        while self._watch.running:
            view, began = self._watch.view(), time.monotonic()
            at = self._now_milliseconds()
            measured = await asyncio.to_thread(self._measure, view, at)
            self._counts = measured.counts
            self._take(measured.units, at)
            self._write_changes(measured.holdings, measured.happenings)
            self.looked.set()
            spent = time.monotonic() - began
            await self._pause(max(self._intervals.pause, _PAUSE_FACTOR * spent))
            wait = min(self._intervals.write, _FIRST_WRITE_SECONDS)
            while self._watch.running:
                try:
                    async with asyncio.timeout(wait):
                        await self._watch.changes.newer_than(view.version)
                    break
                except TimeoutError:
                    self._write(self._now())
                    wait = min(self._intervals.write, 2 * wait)

    def _measure(self, view: ClusterView, at: int) -> _Measured:
        changes = self._cards.look(view.snapshot, at)
        holdings = self._holdings.change(changes.before, changes.after, at)
        happened = self._happenings.faults(changes.faults, at)
        if view.events is not self._events:
            self._events = view.events
            happened += self._happenings.moments(moments(view.snapshot, view.events))
        return _Measured(self._cards.units, self._cards.counts, holdings, happened)

    async def _pause(self, seconds: float) -> None:
        while seconds > 0:
            await asyncio.sleep(min(seconds, self._intervals.write))
            seconds -= self._intervals.write
            if seconds > 0:
                self._write(self._now())

    def _stop(self) -> None:
        """End what is counted; the time that follows is not observed."""
        until = self._meter.until
        self._end(self._meter.stop())
        self._cards = ChangedCards(self._options)
        if until is not None:
            self._write_changes(self._holdings.stop(until), self._happenings.stop(until))

    def _write_changes(self, holdings: list[Holding], happenings: list[Happening]) -> None:
        if self._history is None:
            return
        try:
            self._history.put_holdings(holdings)
            self._history.put_happenings(happenings)
        except sqlite3.Error as error:
            _log.warning("the history of devices cannot be written: %s", error)

    def _take(self, units: Counter[UsageKey], at: int) -> None:
        self._advance(at)
        ended = self._meter.observe(units, at)
        self._units = units
        self._end(ended)
        self._write(self._meter.current())

    def _now(self) -> Interval | None:
        return self._advance(self._now_milliseconds())

    def _advance(self, now: int) -> Interval | None:
        """Return the interval so far; intervals end with the hour, so that hours can be merged.

        After a long gap the machine slept: that time was not observed.
        """
        until = self._meter.until
        if until is not None and now - until > self._intervals.gap * 1000:
            self._end(self._meter.stop())
            self._meter.observe(self._units, now)
        while (until := self._meter.until) is not None and now // HOUR > until // HOUR:
            self._meter.extend((until // HOUR + 1) * HOUR)
            self._end(self._meter.cut())
        return self._meter.extend(now)

    def _now_milliseconds(self) -> int:
        """Read the clock; never before the end of the history."""
        now = int(self._clock() * 1000)
        if self._meter.until is None and self._history is not None:
            now = max(now, self._history.last_end())
        return now

    def _end(self, interval: Interval | None) -> None:
        if interval is not None:
            self._before.update(_by_label(interval.amounts))
            self._write(interval)

    def _write(self, interval: Interval | None) -> None:
        if self._history is None or interval is None:
            return
        try:
            self._history.put(interval)
            if interval.ended // HOUR > self._tidied:
                self._tidied = interval.ended // HOUR
                self._history.tidy(interval.ended)
        except sqlite3.Error as error:
            _log.warning("the usage history cannot be written: %s", error)


class _Metrics(Collector):
    """`haru_device_seconds_total` and `haru_devices`, by namespace, state and driver; `haru_cards` by state."""

    def __init__(self, collector: UsageCollector) -> None:
        self._collector = collector

    def collect(self) -> Iterable[Metric]:
        """Return the metrics at this moment."""
        labels = Labels._fields
        seconds = CounterMetricFamily(
            "haru_device_seconds",
            "Seconds of accelerator cards by state; namespace is that of the holder, or of the work that waits.",
            labels=labels,
        )
        now = GaugeMetricFamily("haru_devices", "Accelerator cards by state.", labels=labels)
        for key, value in sorted(self._collector.seconds().items()):
            seconds.add_metric(key, value / PER_DEVICE_SECOND)
        for key, value in sorted(_by_label(self._collector.units()).items()):
            now.add_metric(key, value / WHOLE)
        cards = GaugeMetricFamily("haru_cards", "Accelerator cards; the states are disjoint.", labels=("state",))
        for word, cards_now in self._collector.counts().words().items():
            cards.add_metric((word,), cards_now / WHOLE)
        return (seconds, now, cards)

    def describe(self) -> Iterable[Any]:
        """Describe nothing in advance."""
        return ()


def _by_label(found: Mapping[UsageKey, int]) -> Counter[Labels]:
    sums: Counter[Labels] = Counter()
    for key, value in found.items():
        sums[Labels(key.namespace, key.state, key.driver)] += value
    return sums
