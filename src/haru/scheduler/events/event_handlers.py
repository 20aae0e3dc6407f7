"""Update the queue for watch events: pods that wait, pods that wait no longer, units that a change may help.

Source: kube-scheduler's event handlers, as behaviour; KEP-4671 for groups.
"""

from __future__ import annotations

from typing import Protocol

from haru.engine import SchedulerCache
from haru.engine.state import GroupKey, epoch
from haru.kube.meta import Obj
from haru.scheduler.binding.claim_updates import users_of
from haru.scheduler.binding.idle_claims import abandoned_claims
from haru.scheduler.queue import queueing_hints
from haru.scheduler.queue.pre_enqueue import PreEnqueue
from haru.scheduler.queue.queue_keys import group_key, priority_of, unit_key
from haru.scheduler.queue.scheduling_queue import SchedulingQueue
from haru.scheduler.settings import SchedulerConfig
from haru.scheduler.status.status_writer import path_of, pod_key


class EventListener(Protocol):
    """The scheduler as event handlers need it."""

    def is_ready(self) -> bool:
        """Tell whether the first lists are complete."""

    def wake(self) -> None:
        """Have the next unit decided, if one is ready."""

    def report_group_scheduled(self, key: GroupKey) -> None:
        """Set PodGroupScheduled if enough members are bound."""

    def deallocate(self, claim: Obj) -> None:
        """Free an allocated claim that no pod uses any more."""

    def unit_changed(self) -> None:
        """Hear that a pod does not wait any more."""

    def object_changed(self, kind: str, old: Obj | None, new: Obj | None) -> None:
        """Hear of a change of a pod or a claim, whosever it is."""


class EventHandlers:
    """Handle watch events; each is in the scheduler cache already."""

    def __init__(
        self,
        cluster: SchedulerCache,
        queue: SchedulingQueue,
        pre_enqueue: PreEnqueue,
        config: SchedulerConfig,
        listener: EventListener,
    ) -> None:
        self._cluster = cluster
        self._queue = queue
        self._pre_enqueue = pre_enqueue
        self._config = config
        self._listener = listener

    def waits(self, pod: Obj) -> bool:
        """Tell whether the pod is pending and names one of our schedulers."""
        spec = pod.get("spec") or {}
        phase = (pod.get("status") or {}).get("phase")
        return (
            not spec.get("nodeName")
            and not pod["metadata"].get("deletionTimestamp")
            and phase not in ("Succeeded", "Failed")
            and spec.get("schedulerName", "default-scheduler") in self._config.scheduler_names
        )

    def unit_key(self, pod: Obj) -> tuple[str, str, str]:
        """The key of the pod's unit in the queue."""
        return unit_key(pod, groups=self._config.groups)

    def object_changed(self, kind: str, old: Obj | None, new: Obj | None) -> None:
        """Pass on what matters to who watches other schedulers."""
        self._listener.object_changed(kind, old, new)

    def pod_changed(self, old: Obj | None, new: Obj | None) -> None:
        """Add the pod to the queue or remove it, and wake the units that the change may help."""
        pod = new or old
        if pod is None:
            return
        # Each of these is asked for once: there are two events for each pod that is placed.
        path, key, group = path_of(pod), self.unit_key(pod), group_key(pod)
        is_member = bool(group.name)
        waits = new is not None and self.waits(new)
        if old is not None and new is not None and (before := self.unit_key(old)) != key:
            # What describes its gang has come, gone or changed.
            self._leave_unit(before, path)
        if new is None or not waits:
            self._leave_unit(key, path)
            if new is not None and is_member:
                self._sibling_changed(old, new, key)
            elif is_member and (unit := self._queue.units.get(key)) is not None:
                self._pre_enqueue.member_lost(unit)
        elif not self._cluster.is_assumed(pod_key(new)):
            self._pod_waits(old, new, key, path)
        self.may_help(queueing_hints.pod_change(old, new, self._cluster.now))
        if is_member and not waits:
            # A group keeps its reservations as long as it exists; the preemptor of its members waits for them.
            for claim in abandoned_claims(self._cluster.now, group):
                self._listener.deallocate(claim)
        if is_member and new is not None and (new.get("spec") or {}).get("nodeName"):
            self._listener.report_group_scheduled(group)

    def _leave_unit(self, key: tuple[str, str, str], path: str) -> None:
        """Take a pod out of its unit."""
        self._pre_enqueue.forget(path)
        self._queue.take_out(key, path)
        self._listener.unit_changed()

    def _sibling_changed(self, old: Obj | None, new: Obj, key: tuple[str, str, str]) -> None:
        """A member that is not (any more) ours to place counts for its group's quorum all the same."""
        unit = self._queue.units.get(key)
        placed = bool((new.get("spec") or {}).get("nodeName"))
        if unit is not None and (old is None or placed != bool((old.get("spec") or {}).get("nodeName"))):
            self._pre_enqueue.recheck_quorum(unit)
            self._listener.wake()

    def _pod_waits(self, old: Obj | None, new: Obj, key: tuple[str, str, str], path: str) -> None:
        known = self._queue.units.get(key)
        is_new = old is None or known is None or path not in known.pods
        unit = self._queue.put(key, path, priority_of(new), self._since(new))
        if is_new or (
            old is not None and queueing_hints.scheduling_fields(old) != queueing_hints.scheduling_fields(new)
        ):
            self._pre_enqueue.recheck(unit, path)
        self._listener.wake()

    def _since(self, pod: Obj) -> float:
        """When the pod came to wait: now, or, if a scheduler before this one may have seen it, when it was created."""
        now = self._config.monotonic()
        created = epoch(pod["metadata"].get("creationTimestamp"))
        if created is None or self._listener.is_ready():
            return now
        return now - max(self._config.clock().timestamp() - created, 0.0)

    def claim_changed(self, old: Obj | None, new: Obj | None) -> None:
        """Check the pods that name the claim again, and wake the units that the change may help."""
        claim = new or old
        if claim is not None and (old is None or new is None):
            self._pre_enqueue.claim_changed(path_of(claim))
            self._listener.wake()
        self.may_help(queueing_hints.claim_change(old, new))
        if old is not None and self._kept_a_place(old, new):
            self.may_help(queueing_hints.PLACE_LOST)

    def _kept_a_place(self, old: Obj, new: Obj | None) -> bool:
        """Tell whether a claim has lost the allocation that kept room on a node for a waiting member of a gang."""
        before, after = ((claim or {}).get("status") or {} for claim in (old, new))
        if not before.get("allocation") or after.get("allocation"):
            return False
        return any(self._cluster.waits_with_others(path) for path in users_of(old))

    def group_changed(self, old: Obj | None, new: Obj | None) -> None:
        """Check the members of a PodGroup again."""
        group = new or old
        if group is None:
            return
        key = GroupKey(group["metadata"].get("namespace", ""), group["metadata"]["name"])
        unit = self._queue.units.get(("group", *key))
        if unit is not None and (old is None or new is None):
            self._pre_enqueue.recheck_all(unit)
        elif unit is not None and (old or {}).get("status") != group.get("status"):
            self._pre_enqueue.recheck_held(unit)
        self._listener.wake()
        if old is None and new is not None and self._listener.is_ready():
            self._listener.report_group_scheduled(key)

    def may_help(self, plugins: frozenset[str]) -> None:
        """Wake the units that these plugins rejected."""
        if self._queue.on_event(plugins, self._config.monotonic()):
            self._listener.wake()
