"""Evicting for others: every victim is marked, deleted and told why, as long as somebody still wants its place.

The last victim of an order goes after all others are gone from the API, so that a refusal half-way is seen before the
most that can be spared is lost. A victim is deleted, not evicted: disruption budgets were weighed in the decision.
Source: kube-scheduler 1.36's preemption executor, as behaviour (KEP-268, KEP-4832, KEP-5710).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.engine.decision import Eviction
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.scheduler.binding import PODS, is_transient
from haru.scheduler.conditions import disruption_target_patch

Obj = dict[str, Any]

_ATTEMPTS = 6
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class EvictionOrder:
    """The victims of one decision, and for whom: a Pod or a PodGroup. `wanted()` turns false when it is gone."""

    victims: Sequence[Eviction]
    preemptor: Obj
    scheduler_name: str
    wanted: Callable[[], bool]

    @property
    def what(self) -> str:
        """`pod` or `podgroup`, as events and conditions name the preemptor."""
        return str(self.preemptor["kind"]).lower()


class Evictor:
    """Carries out eviction orders. `cached` answers from the informer, `learn` is told every answer."""

    def __init__(
        self,
        client: ApiClient,
        recorder: EventRecorder,
        cached: Callable[[str], Obj | None],
        timestamp: Callable[[], str],
        learn: Callable[[Kind, Obj], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._cached = cached
        self._timestamp = timestamp
        self._learn = learn
        self._sleep = sleep
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def carry_out(self, order: EvictionOrder) -> list[Exception]:
        """Ends when every victim is being deleted, or answers with what stood in the way."""
        *others, last = order.victims
        outcomes = await asyncio.gather(*(self._evict(order, victim) for victim in others), return_exceptions=True)
        failures = [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        if not failures:
            try:
                await self._evict(order, last)
            except (StatusError, OSError) as error:
                failures.append(error)
        return failures

    async def _evict(self, order: EvictionOrder, victim: Eviction) -> None:
        pod = self._cached(victim.pod.path)
        for attempt in range(1, _ATTEMPTS + 1):
            if not order.wanted() or _is_going(pod, victim):
                return
            try:
                async with self._slots:
                    await self._delete(order, victim)
                return
            except (StatusError, OSError) as error:
                # A conflict: it was replaced by another pod of that name, or has changed since the condition was set.
                if isinstance(error, StatusError) and error.code == 404:
                    return
                conflict = isinstance(error, StatusError) and error.code == 409
                if attempt == _ATTEMPTS or not (conflict or is_transient(error)):
                    raise
            await self._sleep(0.05 * 2.0**attempt)
            pod = await self._read(victim, pod)

    async def _delete(self, order: EvictionOrder, victim: Eviction) -> None:
        pod, message = victim.pod, f"{order.scheduler_name}: preempting to accommodate a higher priority {order.what}"
        patch = disruption_target_patch(pod.uid, message, self._timestamp())
        marked = await self._client.patch(PODS, pod.name, patch, pod.namespace, "strategic", "status")
        await self._client.delete(PODS, pod.name, pod.namespace, uid=pod.uid)
        self._learn(PODS, marked)
        where = "cluster" if order.what == "podgroup" else victim.node
        text = f"Preempted by {order.what} {order.preemptor['metadata'].get('uid', '')} on node {where}"
        self._recorder.event(marked, "Normal", "Preempted", text, action="Preempting", related=order.preemptor)

    async def _read(self, victim: Eviction, known: Obj | None) -> Obj | None:
        try:
            return await self._client.get(PODS, victim.pod.name, victim.pod.namespace)
        except StatusError as error:
            return None if error.code == 404 else known
        except OSError:
            return known


def _is_going(pod: Obj | None, victim: Eviction) -> bool:
    if pod is None or pod["metadata"].get("uid") != victim.pod.uid:
        return True
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return ended or bool(pod["metadata"].get("deletionTimestamp"))
