"""Delete the victims of preemption: set DisruptionTarget, delete, record an event, while the preemptor needs it.

The last victim of an order is deleted after all others, so that a failure is seen before all of them are lost. A
PodGroup that is disrupted as a whole is deleted whole: all its pods are marked before the first is deleted, and once
one is marked they are marked and deleted until that is certain, whatever happens to the preemptor. After a restart the
next scheduler goes on, also where those that were deleted are gone by then.
Victims are deleted, not evicted: the decision has considered disruption budgets.
Source: kube-scheduler 1.36's preemption executor, as behaviour (KEP-268, KEP-4832, KEP-5710).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from haru.client.api import ApiClient
from haru.client.events import EventRecorder
from haru.engine import Snapshot
from haru.engine.state import Eviction, GroupKey, PodInfo, epoch
from haru.kube.errors import StatusError
from haru.kube.meta import Obj, get_condition
from haru.scheduler.binding.write_retry import PODS, WriteTimes, is_transient
from haru.scheduler.shared import WatchedObjects
from haru.scheduler.status.conditions import disruption_target_patch

_ATTEMPTS = 6
_AT_ONCE = 16
_MAX_DELAY_SECONDS = 5.0
_log = logging.getLogger(__name__)


Step = Callable[["EvictionOrder", Eviction, Obj], Awaitable[object]]


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class EvictionOrder:
    """The victims of one decision. `message` is for their condition, `event_text(node)` for the event.

    `still_needed()` is false once the preemptor or its group is gone. `begun` are the groups of which a pod has been
    marked.
    """

    victims: Sequence[Eviction]
    message: str
    event_text: Callable[[str], str]
    related: Obj | None = None
    still_needed: Callable[[], bool] = _always
    begun: set[GroupKey] = field(default_factory=set)


def eviction_order(
    preemptor: Obj, victims: Sequence[Eviction], scheduler_name: str, still_needed: Callable[[], bool]
) -> EvictionOrder:
    """Make the order for the victims of a Pod or a PodGroup."""
    what, uid = str(preemptor["kind"]).lower(), preemptor["metadata"].get("uid", "")

    def event_text(node: str) -> str:
        return f"Preempted by {what} {uid} on node {'cluster' if what == 'podgroup' else node}"

    message = f"{scheduler_name}: preempting to accommodate a higher priority {what}"
    return EvictionOrder(victims, message, event_text, preemptor, still_needed)


def unfinished_orders(snapshot: Snapshot) -> Iterator[EvictionOrder]:
    """Yield orders for groups that are disrupted whole and have pods that are marked for it. Looks at every pod.

    Members that were made after the last mark take the places of those that went: they are no victims.
    """
    last: dict[GroupKey, Obj] = {}
    for pod in snapshot.pods.values():
        if pod.group is not None and pod.node and pod.marked_for_preemption:
            mark = get_condition(pod.obj, "DisruptionTarget") or {}
            if pod.group not in last or _marked_at(mark) > _marked_at(last[pod.group]):
                last[pod.group] = mark
    for key, mark in last.items():
        group = snapshot.pod_group(key)
        if group is None or (group.get("spec") or {}).get("disruptionMode") != "PodGroup":
            continue
        members = [snapshot.pods[path] for path in sorted(snapshot.group_state(key).assigned)]
        going = [pod for pod in members if pod.marked_for_preemption or _created_at(pod) <= _marked_at(mark)]
        victims = [Eviction(pod.key, pod.node, key) for pod in going]
        said = mark.get("message") or ""
        yield EvictionOrder(victims, said, lambda _: "Preempted with the other pods of its group", begun={key})


def _marked_at(condition: Obj) -> float:
    """Return when a pod was marked; where nobody says so, that was after everything."""
    marked = epoch(condition.get("lastTransitionTime"))
    return math.inf if marked is None else marked


def _created_at(pod: PodInfo) -> float:
    created = epoch(pod.obj["metadata"].get("creationTimestamp"))
    return -math.inf if created is None else created


class Evictor:
    """Carry out eviction orders."""

    def __init__(
        self,
        client: ApiClient,
        recorder: EventRecorder,
        objects: WatchedObjects,
        times: WriteTimes,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._objects = objects
        self._times = times
        self._slots = asyncio.Semaphore(_AT_ONCE)

    async def carry_out(self, order: EvictionOrder) -> list[Exception]:
        """Delete all victims; return the errors that prevented it. What was begun of a group goes to its end."""
        *others, last = order.victims
        failures: list[Exception] = []
        for step, victims in (
            (self._mark, _firsts(order.victims)),
            (self._mark, [victim for victim in order.victims if victim.unit is not None]),
            (self._delete, others),
            (self._delete, [last]),
        ):
            due = (victim for victim in victims if not failures or victim.unit in order.begun)
            works = (self._persist(order, victim, step) for victim in due)
            outcomes = await asyncio.gather(*works, return_exceptions=True)
            failures += [outcome for outcome in outcomes if isinstance(outcome, Exception)]
        return failures

    async def _persist(self, order: EvictionOrder, victim: Eviction, step: Step) -> None:
        pod = self._objects.get(PODS, victim.pod.path)
        attempt = 0
        while (
            pod is not None
            and not _is_terminating(pod, victim)
            and (victim.unit in order.begun or order.still_needed())
        ):
            attempt += 1
            try:
                async with self._slots:
                    await step(order, victim, pod)
                return
            except (StatusError, OSError) as error:
                # A conflict: it was replaced by another pod of that name, or has changed since the condition was set.
                if isinstance(error, StatusError) and error.code == 404:
                    return
                conflict = isinstance(error, StatusError) and error.code == 409
                final = attempt >= _ATTEMPTS or not (conflict or is_transient(error))
                if final and victim.unit not in order.begun:
                    raise
                if final:
                    _log.warning("eviction of %s, whose group goes: %s; trying again", victim.pod.path, error)
            await self._times.sleep(min(0.05 * 2.0 ** min(attempt, 10), _MAX_DELAY_SECONDS))
            pod = await self._read(victim, pod)

    async def _mark(self, order: EvictionOrder, victim: Eviction, known: Obj) -> Obj:
        pod, marked = victim.pod, known
        patch = disruption_target_patch(known, order.message, self._times.now())
        if patch is not None:
            marked = await self._client.patch(PODS, pod.name, patch, pod.namespace, "strategic", "status")
            self._objects.observe(PODS, marked)
        if victim.unit is not None:
            order.begun.add(victim.unit)
        return marked

    async def _delete(self, order: EvictionOrder, victim: Eviction, known: Obj) -> None:
        pod, marked = victim.pod, await self._mark(order, victim, known)
        await self._client.delete(PODS, pod.name, pod.namespace, uid=pod.uid)
        text = order.event_text(victim.node)
        self._recorder.event(marked, "Normal", "Preempted", text, action="Preempting", related=order.related)

    async def _read(self, victim: Eviction, known: Obj | None) -> Obj | None:
        try:
            return await self._client.get(PODS, victim.pod.name, victim.pod.namespace)
        except StatusError as error:
            return None if error.code == 404 else known
        except OSError:
            return known


def _firsts(victims: Sequence[Eviction]) -> list[Eviction]:
    """Return the first victim of each group that goes as a whole: with it the eviction of the group begins."""
    return list({victim.unit: victim for victim in reversed(victims) if victim.unit is not None}.values())


def _is_terminating(pod: Obj, victim: Eviction) -> bool:
    if pod["metadata"].get("uid") != victim.pod.uid:
        return True
    ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    return ended or bool(pod["metadata"].get("deletionTimestamp"))
