"""Leader election on a Lease: at most one of several replicas works at a time.

The holder renews its Lease; a candidate that has seen no renewal for a whole lease duration *by its own clock* takes it
over. Every write carries the revision that was read, so of two writers one loses. The holder that could not renew
within the deadline stops working before anybody else may begin. A holder that ends gives the Lease up.
Who works while the Lease is held, and what becomes of that at its loss: `haru.client.leader_election`.
Source: client-go `tools/leaderelection` (15 s lease, 10 s renew deadline, 2 s retry).
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from haru.client.api import ApiClient
from haru.clock import SYSTEM, Clock
from haru.kube import kinds
from haru.kube.errors import StatusError
from haru.kube.meta import Obj
from haru.kube.names import format_micro_time
from haru.kube.partition_names import HOLDER, SINCE

_log = logging.getLogger(__name__)
_JITTER = 0.2


class Candidate(NamedTuple):
    """Who wants which Lease."""

    namespace: str
    name: str
    identity: str


@dataclass(frozen=True, slots=True)
class ElectionTimes:
    """Durations of an election in seconds. Raises ValueError where they do not leave room for each other."""

    lease: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not self.lease > self.renew_deadline > self.retry_period * (1 + _JITTER):
            raise ValueError("leader election: lease duration > renew deadline > retry period x 1.2 is needed")


DEFAULT_TIMES = ElectionTimes()


class LeaderElector:
    """One candidate for a Lease."""

    def __init__(
        self,
        client: ApiClient,
        candidate: Candidate,
        times: ElectionTimes = DEFAULT_TIMES,
        *,
        clock: Clock = SYSTEM,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """`labels` and `annotations` are written with the Lease, which then says since which revision they hold."""
        kind = kinds.lookup("coordination.k8s.io", "v1", "leases")
        assert kind is not None
        self._kind = kind
        self._client = client
        self._namespace, self._name, self.identity = candidate
        self._times = times
        self._clock, self._sleep = clock, sleep
        self._labels, self._annotations = dict(labels or {}), dict(annotations or {})
        self._observed: Obj | None = None
        self._observed_at = 0.0
        self._renewed_at = 0.0

    @property
    def leader(self) -> str:
        """Who held the Lease when it was last read."""
        return str(((self._observed or {}).get("spec") or {}).get("holderIdentity") or "")

    @property
    def lease_path(self) -> str:
        """The Lease's namespace and name."""
        return f"{self._namespace}/{self._name}"

    @property
    def renew_deadline(self) -> float:
        """For how many seconds renewals may fail."""
        return self._times.renew_deadline

    def seconds_left(self) -> float:
        """For how long nobody else can have taken the Lease, counted from before it was last renewed."""
        return self._renewed_at + self._times.lease - self._clock.monotonic()

    async def acquire(self) -> None:
        """Wait for leadership."""
        while not await self._try():
            await self._sleep(self._times.retry_period * (1 + _JITTER * random.random()))
        if self._annotations:
            await self._publish()
        _log.info("%s: %s became the leader", self.lease_path, self.identity)

    async def acquire_unless_renewed(self) -> bool:
        """Take the Lease as soon as it is free or its holder is dead; false once a holder is seen to renew it."""
        seen: Obj | None = None
        while not await self._try():
            spec = (self._observed or {}).get("spec") or {}
            if self.leader not in ("", self.identity):
                if seen is not None and seen != spec:
                    return False
                if seen is None:
                    _log.info("%s: waiting to see whether %s renews it", self.lease_path, self.leader)
                seen = spec
            await self._sleep(self._times.retry_period)
        return True

    async def _publish(self) -> None:
        """Write since which revision the annotations stand, so that two leases can be told apart by age."""
        since = str(((self._observed or {}).get("metadata") or {}).get("resourceVersion") or "")
        self._annotations[SINCE] = since
        await self._try()

    async def renew(self, may: Callable[[], bool] = lambda: True) -> str:
        """Renew until that has failed for the whole deadline, or another one has the Lease; why it is lost.

        While `may()` is false the Lease is not renewed, which is a failure like any other.
        """
        last, why = self._clock.monotonic(), ""
        while (left := self._renewal_left(last)) > 0:
            await self._sleep(min(self._times.retry_period, left))
            if not may():
                why = "whoever works under it hangs"
                continue
            try:
                async with asyncio.timeout(max(0.01, self._renewal_left(last))):
                    renewed = await self._try()
            except TimeoutError:
                break
            if renewed:
                last, why = self._clock.monotonic(), ""
            elif self.leader not in ("", self.identity):
                return f"{self.leader} has it"
        return f"not renewed for {self._times.renew_deadline:g} s" + (f": {why}" if why else "")

    def _renewal_left(self, last: float) -> float:
        """For how long renewals may still fail after an answer at `last`, which may have come late."""
        return min(last + self._times.renew_deadline - self._clock.monotonic(), self.seconds_left())

    async def _try(self) -> bool:
        """Take or renew the Lease once."""
        try:
            return await self._take()
        except StatusError as error:
            _log.log(
                logging.DEBUG if error.code == 409 else logging.WARNING,
                "%s: cannot take the lease: %s",
                self.lease_path,
                error,
            )
        except (OSError, ValueError, KeyError, TypeError) as error:  # the last three: an answer that makes no sense
            _log.warning("%s: cannot take the lease: %s: %s", self.lease_path, type(error).__name__, error)
        return False

    async def _take(self) -> bool:
        now, began = format_micro_time(self._clock.now()), self._clock.monotonic()
        mine: Obj = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(self._times.lease),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        }
        try:
            lease = await self._client.get(self._kind, self._name, self._namespace)
        except StatusError as error:
            if error.code != 404:
                raise
            metadata = {"name": self._name, "namespace": self._namespace, **self._published({})}
            created = {"apiVersion": self._kind.api_version, "kind": "Lease", "metadata": metadata, "spec": mine}
            self._observe(await self._client.create(self._kind, created))
            self._renewed_at = began
            return True
        self._observe(lease)
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self.identity) and not self._expired(spec):
            return False
        transitions = int(spec.get("leaseTransitions") or 0)
        if holder == self.identity:
            mine["acquireTime"] = spec.get("acquireTime") or now
            mine["leaseTransitions"] = transitions
        else:
            mine["leaseTransitions"] = transitions + 1
        taken = {**copy.deepcopy(lease), "spec": {**spec, **mine}}
        taken["metadata"].update(self._published(taken["metadata"]))
        self._observe(await self._client.update(self._kind, taken))
        self._renewed_at = began
        return True

    def _published(self, metadata: Obj) -> Obj:
        """Labels and annotations of the Lease with ours, and who wrote them: another program keeps what it finds."""
        if not self._annotations:
            return {}
        known = {k: v for k, v in (metadata.get("annotations") or {}).items() if k != SINCE}
        ours = {**self._annotations, HOLDER: self.identity}
        return {"labels": (metadata.get("labels") or {}) | self._labels, "annotations": known | ours}

    def _expired(self, spec: Obj) -> bool:
        # By our own clock since the last change we saw: clocks of different machines are never compared.
        duration = float(spec.get("leaseDurationSeconds") or self._times.lease)
        return self._clock.monotonic() - self._observed_at >= duration

    def _observe(self, lease: Obj) -> None:
        if self._observed is None or self._observed.get("spec") != lease.get("spec"):
            self._observed_at = self._clock.monotonic()
        self._observed = lease

    async def release(self) -> None:
        """Let the next candidate begin at once, if the Lease is ours."""
        if self.leader != self.identity:
            return
        with contextlib.suppress(StatusError, OSError):
            # Read again: a renewal that was cancelled under way may have been written.
            lease = await self._client.get(self._kind, self._name, self._namespace)
            if lease["spec"].get("holderIdentity") != self.identity:
                return
            now = format_micro_time(self._clock.now())
            # No holder is no field: the API refuses an empty one.
            spec = {k: v for k, v in lease["spec"].items() if k != "holderIdentity"}
            spec |= {"leaseDurationSeconds": 1, "renewTime": now}
            self._observe(await self._client.update(self._kind, {**lease, "spec": spec}))
