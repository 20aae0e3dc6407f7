"""stale-gang-controller: tells of gangs that stay below minCount, and evicts what is left of them if asked to.

Off unless `--stale-gang-after` or a PodGroup's annotation sets a time (see `stale_gang_rules`). A stale gang gets a
Warning event and the condition `haru.dev/Stale`; with the policy Evict its remaining members are marked with
DisruptionTarget and deleted, so that whoever made them starts the gang anew as a whole. Budgets are not asked: what is
evicted does no work. This controller has no counterpart in Kubernetes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar

from haru.client.informer import object_key
from haru.controllers.base import Context, Controller
from haru.controllers.objects import POD_GROUPS, PODS
from haru.controllers.pod_disruption import mark_disrupted
from haru.controllers.stale_gang_rules import CONDITION, Members, StalePolicy, look_at, policy_of
from haru.event_loop import bounded
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind
from haru.kube.meta import Obj, get_condition, is_being_deleted, namespace_of, node_of, phase_of, podgroup_of, uid_of

_REASON = "DeletionByStaleGangController"
# Members are bound one after the other; what is complete a moment later is not worth a write.
_SETTLE_SECONDS = 5.0


def _group_of(pod: Mapping[str, Any]) -> Iterable[str]:
    name = podgroup_of(pod)
    return [f"{namespace_of(pod)}/{name}"] if name else []


def _membership(pod: Mapping[str, Any]) -> tuple[object, ...]:
    """What of a pod decides whether its gang is stale."""
    return phase_of(pod), node_of(pod), is_being_deleted(pod), podgroup_of(pod)


class StaleGangController(Controller):
    """Watches over gangs that have lost members."""

    name: ClassVar[str] = "stale-gang-controller"
    needs: ClassVar[tuple[Kind, ...]] = (POD_GROUPS,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.default: StalePolicy = context.options.get("stale-gang", StalePolicy())
        self.groups = self.informer(POD_GROUPS)
        self.pods = self.informer(PODS)
        self.pods.add_index("of-group", _group_of)
        self._began = context.now(), context.monotonic()
        self._below_since: dict[str, datetime] = {}
        self.groups.add_handler(self.enqueue, lambda _, new: self._look_at(object_key(new)), self._group_gone)
        self.pods.add_handler(self._pod_changed, self._pod_updated, self._pod_changed)

    @classmethod
    def enabled(cls, context: Context) -> bool:
        """Only where gangs are held to their minCount at all."""
        return context.gates.enabled("GangScheduling") and super().enabled(context)

    def _now(self) -> datetime:
        """The time of day by a clock that does not jump while the controller runs: nothing is evicted for a jump."""
        at, began = self._began
        return at + timedelta(seconds=self.context.monotonic() - began)

    def _group_gone(self, group: Obj) -> None:
        self._below_since.pop(uid_of(group), None)

    def _pod_changed(self, pod: Obj) -> None:
        for key in _group_of(pod):
            self._look_at(key)

    def _pod_updated(self, old: Obj, new: Obj) -> None:
        if _membership(old) != _membership(new):
            self._pod_changed(new)

    def _look_at(self, key: str) -> None:
        self.gather(key, self.pods.count("of-group", key))

    async def sync(self, key: str) -> float | None:
        """Judge one gang, and say and do what follows."""
        group = self.groups.store.get(key)
        if group is None or is_being_deleted(group):
            return None
        members = Members.of(group, self.pods.by_index("of-group", key))
        if members is None:
            return None
        policy, problems = policy_of(group, self.default)
        for problem in problems:
            self.events.event(group, "Warning", "InvalidStaleGangPolicy", problem)
        now = self._now()
        if not members.below:
            self._below_since.pop(uid_of(group), None)
        since = self._below_since.setdefault(uid_of(group), now) if members.below else now
        finding = look_at(group, members, policy, since, now)
        if finding.again is not None and (get_condition(group, CONDITION) or {}).get("status") != "Unknown":
            settled = _SETTLE_SECONDS - (now - since).total_seconds()
            if settled > 0:
                return min(settled, finding.again)
        group = await self._write(group, finding.condition)
        if finding.is_stale and policy.evict:
            await bounded(members.running, lambda pod: self._evict(pod, members))
        return finding.again

    async def _write(self, group: Obj, condition: Obj | None) -> Obj:
        old = get_condition(group, CONDITION) or {}
        if condition is None or all(old.get(key) == condition[key] for key in ("status", "reason", "message")):
            return group
        condition = {**condition, "observedGeneration": group["metadata"].get("generation")}
        patch = {"status": {"conditions": [condition]}}
        try:
            written = await self.patch(self.groups, group, patch, type="strategic", subresource="status")
        except StatusError as error:
            if error.code == 404:
                return group
            raise
        if condition["status"] == "True" and old.get("status") != "True":
            self.events.event(group, "Warning", "GangStale", f"The gang stays below minCount: {condition['message']}")
        elif condition["status"] == "False" and old.get("status") == "True":
            self.events.event(group, "Normal", "GangNotStale", f"The gang is no longer stale: {condition['message']}")
        return written

    async def _evict(self, pod: Obj, members: Members) -> None:
        message = f"The gang is stale: {members.describe()}"
        self.events.event(pod, "Normal", "StaleGangEviction", f"Marking for deletion Pod {object_key(pod)}")
        await mark_disrupted(self, self.pods, pod, _REASON, message)
        await self.delete(self.pods, pod)
