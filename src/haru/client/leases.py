"""Leader election on a Lease: at most one of several replicas works at a time.

The holder renews its Lease; a candidate that has seen no renewal for a whole lease duration *by its own clock* takes it
over. Every write carries the revision that was read, so of two writers one loses. The holder that could not renew
within the deadline stops working before anybody else may begin. A holder that ends gives the Lease up.
Source: client-go `tools/leaderelection` (15 s lease, 10 s renew deadline, 2 s retry).
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any

from haru.client.api import ApiClient, Obj
from haru.clock import utc_now
from haru.kube import kinds
from haru.kube.errors import StatusError
from haru.kube.names import format_micro_time

_log = logging.getLogger(__name__)
_JITTER = 0.2


class LeaderElector:
    """One candidate, known as `identity`, for the Lease `namespace/name`."""

    def __init__(
        self,
        client: ApiClient,
        namespace: str,
        name: str,
        identity: str,
        *,
        lease_seconds: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        now: Callable[[], datetime] = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        if not lease_seconds > renew_deadline > retry_period * (1 + _JITTER):
            raise ValueError("leader election: lease duration > renew deadline > retry period x 1.2 is needed")
        kind = kinds.lookup("coordination.k8s.io", "v1", "leases")
        assert kind is not None
        self._kind = kind
        self._client = client
        self._namespace, self._name, self.identity = namespace, name, identity
        self._lease_seconds, self._renew_deadline, self._retry_period = lease_seconds, renew_deadline, retry_period
        self._now, self._monotonic, self._sleep = now, monotonic, sleep
        self._rng = rng or random.Random()
        self._observed: Obj | None = None
        self._observed_at = 0.0

    @property
    def leader(self) -> str:
        """Who held the Lease when it was last read."""
        return str(((self._observed or {}).get("spec") or {}).get("holderIdentity") or "")

    def is_leader(self) -> bool:
        """We held the Lease when it was last read, and our last renewal still counts."""
        return self.leader == self.identity and self._monotonic() - self._observed_at < self._lease_seconds

    async def run(
        self, on_started: Callable[[], Coroutine[Any, Any, None]], on_lost: Callable[[], None] | None = None
    ) -> None:
        """Wait for leadership, then run `on_started()` until it ends or leadership is lost (then it is cancelled).

        Returns when `on_started` returned or leadership was lost; after a loss `on_lost()` is called last.
        """
        while not await self._try():
            await self._sleep(self._retry_period * (1 + _JITTER * self._rng.random()))
        _log.info("%s/%s: %s became the leader", self._namespace, self._name, self.identity)
        work = asyncio.create_task(on_started(), name=f"leader {self._name}")
        renewing = asyncio.create_task(self._renew(), name=f"renew {self._name}")
        lost = False
        try:
            await asyncio.wait([work, renewing], return_when=asyncio.FIRST_COMPLETED)
            lost = not work.done()
        finally:
            for task in (work, renewing):
                task.cancel()
            await asyncio.gather(work, renewing, return_exceptions=True)
            if not lost:
                await asyncio.shield(self._release())
        if lost:
            _log.error("%s/%s: %s lost the lease", self._namespace, self._name, self.identity)
            if on_lost is not None:
                on_lost()
        elif not work.cancelled():
            work.result()

    async def _renew(self) -> None:
        """Renew until it has failed for the whole deadline."""
        last = self._monotonic()
        while self._monotonic() - last < self._renew_deadline:
            await self._sleep(self._retry_period)
            remaining = self._renew_deadline - (self._monotonic() - last)
            try:
                async with asyncio.timeout(max(0.01, remaining)):
                    renewed = await self._try()
            except TimeoutError:
                return
            if renewed:
                last = self._monotonic()
            elif self.leader not in ("", self.identity):
                return

    async def _try(self) -> bool:
        """Take or renew the Lease once."""
        try:
            return await self._take()
        except StatusError as error:
            _log.log(
                logging.DEBUG if error.code == 409 else logging.WARNING,
                "%s/%s: cannot take the lease: %s",
                self._namespace,
                self._name,
                error,
            )
        except OSError as error:
            _log.warning("%s/%s: cannot take the lease: %s", self._namespace, self._name, error)
        return False

    async def _take(self) -> bool:
        now = format_micro_time(self._now())
        mine: Obj = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(self._lease_seconds),
            "acquireTime": now,
            "renewTime": now,
            "leaseTransitions": 0,
        }
        try:
            lease = await self._client.get(self._kind, self._name, self._namespace)
        except StatusError as error:
            if error.code != 404:
                raise
            metadata = {"name": self._name, "namespace": self._namespace}
            created = {"apiVersion": self._kind.api_version, "kind": "Lease", "metadata": metadata, "spec": mine}
            self._observe(await self._client.create(self._kind, created))
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
        self._observe(await self._client.update(self._kind, {**copy.deepcopy(lease), "spec": {**spec, **mine}}))
        return True

    def _expired(self, spec: Obj) -> bool:
        # By our own clock since the last change we saw: clocks of different machines are never compared.
        duration = float(spec.get("leaseDurationSeconds") or self._lease_seconds)
        return self._monotonic() - self._observed_at >= duration

    def _observe(self, lease: Obj) -> None:
        if self._observed is None or self._observed.get("spec") != lease.get("spec"):
            self._observed_at = self._monotonic()
        self._observed = lease

    async def _release(self) -> None:
        """Let the next candidate begin at once."""
        if self.leader != self.identity:
            return
        with contextlib.suppress(StatusError, OSError, asyncio.CancelledError):
            # Read again: a renewal that was cancelled under way may have been written.
            lease = await self._client.get(self._kind, self._name, self._namespace)
            if lease["spec"].get("holderIdentity") != self.identity:
                return
            now = format_micro_time(self._now())
            # No holder is no field: the API refuses an empty one.
            spec = {k: v for k, v in lease["spec"].items() if k != "holderIdentity"}
            spec |= {"leaseDurationSeconds": 1, "renewTime": now}
            self._observe(await self._client.update(self._kind, {**lease, "spec": spec}))
