"""resourcepoolstatusrequest-controller: says once how full the pools of a driver are.

Keys are names of requests. A request without a status gets one and is never looked at again; one that meets pools
whose slices are not all there is looked at again a few times first. A sweep deletes what nobody needs any longer.
Source: KEP-5677.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar

from prometheus_client import Counter, Histogram, Metric

from haru.client.informer import Informer
from haru.controllers.base import Context, Controller, log
from haru.controllers.objects import CLAIMS, POOL_STATUS_REQUESTS, SLICES, TAINT_RULES
from haru.controllers.pool_counts import PoolCounts, count_pools
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, get_condition, name_of, uid_of
from haru.kube.names import parse_time

_REQUEUES = 5
_FIRST_PAUSE_SECONDS = 0.05
_SWEEP_SECONDS = 600.0
_KEPT_ANSWERED = timedelta(hours=1)
_KEPT_UNANSWERED = timedelta(hours=24)
_METRICS = "resourcepoolstatusrequest_controller"
_BUCKETS = tuple(0.001 * 2**power for power in range(15))


def answer(counted: PoolCounts, now: str) -> Obj:
    """The status of a request whose pools have been counted at `now` (metav1.Time)."""
    said = f"{len(counted.pools)} of {counted.pool_count} pools counted"
    if counted.incomplete:
        said += f", {counted.incomplete} of them incomplete"
    condition = _condition("Complete", "CalculationComplete", said, now)
    pools = {"pools": list(counted.pools)} if counted.pools else {}
    return {"poolCount": counted.pool_count, **pools, "conditions": [condition]}


def refusal(error: Exception, now: str) -> Obj:
    """The status of a request that cannot be answered."""
    said = f"slices or claims cannot be read: {type(error).__name__}: {error}"
    return {"poolCount": 0, "conditions": [_condition("Failed", "CalculationFailed", said[:1024], now)]}


def _condition(type_: str, reason: str, message: str, now: str) -> Obj:
    return {"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}


def expired(request: Mapping[str, Any], now: datetime) -> bool:
    """Whether a request may go: an hour after it was answered, a day after its creation if it never was."""
    created = request["metadata"]["creationTimestamp"]
    if not request.get("status"):
        return now - parse_time(created) > _KEPT_UNANSWERED
    done = get_condition(request, "Complete") or get_condition(request, "Failed")
    return now - parse_time(done["lastTransitionTime"] if done else created) > _KEPT_ANSWERED


class ResourcePoolStatusController(Controller):
    """Answers ResourcePoolStatusRequests."""

    name: ClassVar[str] = "resourcepoolstatusrequest-controller"
    needs: ClassVar[tuple[Kind, ...]] = (POOL_STATUS_REQUESTS, CLAIMS, SLICES)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.requests = self.informer(POOL_STATUS_REQUESTS)
        self.slices = self.informer(SLICES)
        self.claims = self.informer(CLAIMS)
        self.rules: Informer | None = None
        if context.gates.enabled("DRADeviceTaintRules") and context.serves(TAINT_RULES):
            self.rules = self.informer(TAINT_RULES)
        self._looks: dict[str, int] = {}
        self._processed = Counter(
            f"{_METRICS}_requests_processed", "Requests that were answered or not.", ["driver_name"], registry=None
        )
        self._errors = Counter(
            f"{_METRICS}_request_processing_errors", "Answers not written.", ["driver_name"], registry=None
        )
        self._duration = Histogram(
            f"{_METRICS}_request_processing_duration_seconds",
            "How long an answer took.",
            ["driver_name"],
            buckets=_BUCKETS,
            registry=None,
        )
        self.requests.add_handler(self._changed, lambda _, new: self._changed(new), self._deleted)

    @classmethod
    def enabled(cls, context: Context) -> bool:
        """Only with the gate."""
        return context.gates.enabled("DRAResourcePoolStatus") and super().enabled(context)

    def metrics(self) -> Iterable[Metric]:
        """How many requests were answered, how many not, and how long it took."""
        for metric in (self._processed, self._errors, self._duration):
            yield from metric.collect()

    def background(self) -> Iterable[Callable[[], Any]]:
        """Old requests are deleted now and then."""
        return (self._sweep,)

    def _changed(self, request: Obj) -> None:
        if not request.get("status"):
            self.queue.add(name_of(request))

    def _deleted(self, request: Obj) -> None:
        self._looks.pop(uid_of(request), None)

    async def sync(self, key: str) -> float | None:
        """Answer one request."""
        request = self.requests.get(key)
        if request is None or request.get("status"):
            return None
        loop = asyncio.get_running_loop()
        began = loop.time()
        status, incomplete = self._calculate(request)
        looks = self._looks.get(uid_of(request), 0)
        if incomplete and looks < _REQUEUES:
            # Their drivers may be about to publish the rest.
            self._looks[uid_of(request)] = looks + 1
            return float(_FIRST_PAUSE_SECONDS * 2**looks)
        driver = request["spec"]["driver"]
        try:
            await self.update(self.requests, {**request, "status": status}, "status")
        except (StatusError, OSError) as error:
            self._errors.labels(driver).inc()
            if self.queue.failures(key) < _REQUEUES:
                raise
            log.warning("%s: %s is given up after %d failures: %s", self.name, key, _REQUEUES + 1, error)
        finally:
            self._processed.labels(driver).inc()
            self._duration.labels(driver).observe(loop.time() - began)
        self._looks.pop(uid_of(request), None)
        return None

    def _calculate(self, request: Obj) -> tuple[Obj, bool]:
        """The status, and whether pools in it are incomplete."""
        rules = self.rules.store.values() if self.rules is not None else ()
        partitionable = self.gates.enabled("DRAPartitionableDevices")
        slices, claims = self.slices.store.values(), self.claims.store.values()
        try:
            counted = count_pools(request["spec"], slices, claims, rules, partitionable=partitionable)
        except (KeyError, TypeError, ValueError) as error:
            log.exception("%s: %s", self.name, name_of(request))
            return refusal(error, self.timestamp()), False
        return answer(counted, self.timestamp()), counted.incomplete > 0

    async def _sweep(self) -> None:
        while True:
            for request in [r for r in self.requests.store.values() if expired(r, self.now())]:
                try:
                    await self.delete(self.requests, request)
                except (StatusError, OSError) as error:
                    log.warning("%s: %s: %s", self.name, name_of(request), error)
            await asyncio.sleep(_SWEEP_SECONDS)
