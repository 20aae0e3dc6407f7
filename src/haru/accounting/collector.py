"""The component that keeps the accounts: it watches the API server, and only looks on.

It looks whenever something changes, at once if the last look was a while ago; a look that took long is followed by a
pause of twenty times its length, so that it never costs more than a twentieth of a core. What is going on is written
down every ten seconds. While the API cannot be watched nothing is counted: that is told as time not observed.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from haru.accounting.device_states import WHOLE, Key, amounts, standings
from haru.accounting.history import HOUR, History
from haru.accounting.ledger import PER_DEVICE_SECOND, Interval, Meter
from haru.client.api import ApiClient
from haru.cluster_view import ClusterView, Watching
from haru.engine import Features, Options
from haru.engine.framework import SchedulerGates
from haru.engine.state import HELD_BACK_BY, WATCHED_KINDS

_log = logging.getLogger(__name__)

BEAT_SECONDS = 10.0
SHORTEST_PAUSE_SECONDS = 1.0
SILENCE_SECONDS = 300.0
_PAUSE_PER_LOOK = 20.0
_FIRST_BEAT_SECONDS = 1.0
_RETRY_SECONDS = 5.0


class Keeper:
    """Keeps accounts of one cluster. `clock` is in seconds since 1970; without a history only the metrics are kept.
    `features` are those under which the cluster's scheduler decides (those of 1.36).

    In seconds: `beat` is how often what goes on is written down, `pause` how long two looks are apart at least,
    `silence` how long it may be that nothing is written down before that time counts as not observed.
    """

    def __init__(
        self,
        client: ApiClient,
        history: History | None = None,
        *,
        features: Features | None = None,
        clock: Callable[[], float] = time.time,
        beat: float = BEAT_SECONDS,
        pause: float = SHORTEST_PAUSE_SECONDS,
        silence: float = SILENCE_SECONDS,
    ) -> None:
        self._watching = Watching(client, linger=0.0, kinds=(*WATCHED_KINDS, *HELD_BACK_BY), name="accounting")
        self._history = history
        self._clock = clock
        self._beat = beat
        self._shortest = pause
        self._silence = silence
        self._meter = Meter()
        self._units: Counter[Key] = Counter()
        self._before: Counter[Key] = Counter()
        self._tidied = 0
        self._options = Options(
            features=features or Features(),
            new_share_id=lambda: "accounted",
            gates=SchedulerGates(node_allocatable=True),
        )
        self.looked = asyncio.Event()
        self.registry = CollectorRegistry()
        self.registry.register(_Metrics(self))

    async def run(self) -> None:
        """Keeps the accounts until it is cancelled."""
        try:
            while True:
                try:
                    async with self._watching.looking():
                        await self._keep()
                except OSError as error:
                    _log.info("the cluster cannot be watched: %s", error)
                except Exception:
                    # Nobody's work depends on the accounts: the time is told as not observed.
                    _log.exception("the accounts cannot be kept; they are tried again")
                self._end(self._meter.stop())
                await asyncio.sleep(_RETRY_SECONDS)
        finally:
            self._now()
            self._end(self._meter.stop())
            await self._watching.stop()
            if self._history is not None:
                self._history.close()

    def text(self) -> bytes:
        """The metrics in the Prometheus text format."""
        return generate_latest(self.registry)

    def seconds(self) -> Counter[Key]:
        """Amounts since this process looks, in thousandths of cards times milliseconds."""
        going = self._meter.current()
        return self._before + Counter(dict(going.amounts)) if going is not None else Counter(self._before)

    def units(self) -> Counter[Key]:
        """Thousandths of cards now."""
        return self._units

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while self._watching.running:
            sight, began = self._watching.sight(), time.monotonic()
            at = self._now_milliseconds()
            self._take(await asyncio.to_thread(self._measure, sight), at)
            self.looked.set()
            spent = time.monotonic() - began
            await self._pause(max(self._shortest, _PAUSE_PER_LOOK * spent))
            wait = min(self._beat, _FIRST_BEAT_SECONDS)
            while self._watching.running:
                try:
                    await asyncio.wait_for(self._watching.newer_than(sight.version), wait)
                    break
                except TimeoutError:
                    self._write(self._now())
                    wait = min(self._beat, 2 * wait)

    def _measure(self, sight: ClusterView) -> Counter[Key]:
        return amounts(standings(sight.snapshot, self._options, sight.layouts.of(sight.snapshot.devices.pools)))

    async def _pause(self, seconds: float) -> None:
        while seconds > 0:
            await asyncio.sleep(min(seconds, self._beat))
            seconds -= self._beat
            if seconds > 0:
                self._write(self._now())

    def _take(self, units: Counter[Key], at: int) -> None:
        self._advance(at)
        ended = self._meter.observe(units, at)
        self._units = units
        self._end(ended)
        self._write(self._meter.current())

    def _now(self) -> Interval | None:
        return self._advance(self._now_milliseconds())

    def _advance(self, now: int) -> Interval | None:
        """The interval so far; it ends with the hour, so that hours can be merged.

        After a longer silence than there can be, the machine slept: that time was not observed.
        """
        until = self._meter.until
        if until is not None and now - until > self._silence * 1000:
            self._end(self._meter.stop())
            self._meter.observe(self._units, now)
        while (until := self._meter.until) is not None and now // HOUR > until // HOUR:
            self._meter.extend((until // HOUR + 1) * HOUR)
            self._end(self._meter.cut())
        return self._meter.extend(now)

    def _now_milliseconds(self) -> int:
        """By the clock; never before what the history has already."""
        now = int(self._clock() * 1000)
        if self._meter.until is None and self._history is not None:
            now = max(now, self._history.last_end())
        return now

    def _end(self, interval: Interval | None) -> None:
        if interval is not None:
            self._before.update(interval.amounts)
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
    """`haru_device_seconds_total` and `haru_devices`, by namespace, state and driver."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def collect(self) -> Iterable[Metric]:
        """The metrics at this moment."""
        labels = ("namespace", "state", "driver")
        seconds = CounterMetricFamily(
            "haru_device_seconds",
            "Seconds of accelerator cards by state; namespace is that of the holder, or of the work that waits.",
            labels=labels,
        )
        now = GaugeMetricFamily("haru_devices", "Accelerator cards by state.", labels=labels)
        for key, value in _by_label(self._keeper.seconds()):
            seconds.add_metric(key, value / PER_DEVICE_SECOND)
        for key, value in _by_label(self._keeper.units()):
            now.add_metric(key, value / WHOLE)
        return (seconds, now)

    def describe(self) -> Iterable[Any]:
        """Nothing is told before it is known."""
        return ()


def _by_label(found: Counter[Key]) -> Iterator[tuple[tuple[str, str, str], int]]:
    sums: Counter[tuple[str, str, str]] = Counter()
    for key, value in found.items():
        sums[key.namespace, key.state, key.driver] += value
    return iter(sorted(sums.items()))
