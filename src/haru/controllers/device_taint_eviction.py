"""device-taint-eviction-controller: deletes pods that use devices with NoExecute taints they do not tolerate.

Keys are `pod:namespace/name` and `rule:name`. A pod's time is computed anew whenever its claims, their devices or a
rule change; if the reason goes before the time comes, nothing happens. A rule's status says how far its eviction got.
Source: KEP-5055.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from cachetools import FIFOCache
from prometheus_client import Histogram, Metric
from prometheus_client.core import CounterMetricFamily

from haru.client.informer import Informer, object_key
from haru.controllers import claim_names
from haru.controllers.base import Context, Controller
from haru.controllers.objects import CLAIMS, PODS, SLICES, TAINT_RULES, is_terminal
from haru.controllers.pod_disruption import mark_disrupted
from haru.engine.dra import (
    NO_EXECUTE,
    DeviceId,
    Eviction,
    claim_eviction,
    combine,
    decode_taint_rule,
    newest_slices,
)
from haru.kube.kinds import Kind
from haru.kube.meta import (
    Obj,
    allocation_of,
    controller_of,
    get_condition,
    is_being_deleted,
    name_of,
    namespace_of,
    node_of,
    podgroup_of,
    uid_of,
)
from haru.kube.names import counted, parse_time

FIELD_MANAGER = "device-taint-eviction-controller"
_CONDITION = "EvictionInProgress"
_MESSAGE = "Device Taint manager: deleting due to NoExecute taint"
_STATUS_SECONDS = 10.0
_REMEMBERED = 500
_ANY = "*"
"""In the index of rules: the rule does not say of which driver, or of which pool."""


def _results_of(claim: Mapping[str, Any]) -> list[Obj]:
    allocation = allocation_of(claim) or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def _pools_of_claim(claim: Mapping[str, Any]) -> Iterable[str]:
    return list(dict.fromkeys(f"{r['driver']}/{r['pool']}" for r in _results_of(claim)))


def _pool_of_slice(resource_slice: Mapping[str, Any]) -> Iterable[str]:
    spec = resource_slice["spec"]
    return [f"{spec['driver']}/{spec['pool']['name']}"]


def _pool_of_rule(rule: Mapping[str, Any]) -> Iterable[str]:
    selector = rule["spec"].get("deviceSelector")
    return [] if selector is None else [f"{selector.get('driver') or _ANY}/{selector.get('pool') or _ANY}"]


class DeviceTaintEvictionController(Controller):
    """Evicts the users of tainted devices."""

    name: ClassVar[str] = "device-taint-eviction-controller"
    needs: ClassVar[tuple[Kind, ...]] = (CLAIMS, SLICES)
    workers: ClassVar[int] = 8

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.pods = self.informer(PODS)
        self.claims = self.informer(CLAIMS)
        self.slices = self.informer(SLICES)
        self.rules: Informer | None = None
        self._pending: dict[str, Eviction] = {}
        self._evicted: FIFOCache[str, frozenset[str]] = FIFOCache(_REMEMBERED)
        self._evicted_by: dict[str, int] = {}
        self._latency = Histogram(
            "device_taint_eviction_controller_pod_deletion_duration_seconds",
            "From when a pod was due to its deletion.",
            registry=None,
        )
        self._deletions = 0
        self.pods.add_index("claim", claim_names.claim_keys)
        self.claims.add_index("pool", _pools_of_claim)
        self.slices.add_index("pool", _pool_of_slice)
        self.pods.add_handler(self._pod_changed, lambda _, new: self._pod_changed(new), self._pod_deleted)
        self.claims.add_handler(self._claim_changed, lambda _, new: self._claim_changed(new), self._claim_changed)
        self.slices.add_handler(self._slice_changed, self._slice_updated, self._slice_changed)
        if context.gates.enabled("DRADeviceTaintRules") and context.serves(TAINT_RULES):
            self.rules = self.informer(TAINT_RULES)
            self.rules.add_index("pool", _pool_of_rule)
            self.rules.add_handler(self._rule_changed, self._rule_updated, self._rule_deleted)

    @classmethod
    def enabled(cls, context: Context) -> bool:
        """Only with the gate."""
        return context.gates.enabled("DRADeviceTaints") and super().enabled(context)

    def metrics(self) -> Iterable[Metric]:
        """How many pods were deleted, and how late."""
        name, text = "device_taint_eviction_controller_pod_deletions", "Pods deleted for device taints."
        yield CounterMetricFamily(name, text, value=self._deletions)
        yield from self._latency.collect()

    # -- what happened ------------------------------------------------------------------------------------------------

    def _pod_changed(self, pod: Obj) -> None:
        if node_of(pod) and claim_names.claim_keys(pod):
            self.queue.add(f"pod:{object_key(pod)}")

    def _pod_deleted(self, pod: Obj) -> None:
        self._settle(object_key(pod))

    def _claim_changed(self, claim: Obj) -> None:
        for pod in self.pods.by_index("claim", object_key(claim)):
            self._pod_changed(pod)

    def _slice_changed(self, resource_slice: Obj) -> None:
        for pool in _pool_of_slice(resource_slice):
            for claim in self.claims.by_index("pool", pool):
                self._claim_changed(claim)

    def _slice_updated(self, old: Obj, new: Obj) -> None:
        if _taints(old) != _taints(new) or old["spec"]["pool"] != new["spec"]["pool"]:
            self._slice_changed(old)
            self._slice_changed(new)

    def _rule_changed(self, rule: Obj) -> None:
        self.queue.add(f"rule:{name_of(rule)}")
        for claim, _ in self._selected(rule):
            self._claim_changed(claim)

    def _selected(self, rule: Obj) -> Iterable[tuple[Obj, list[DeviceId]]]:
        """The claims that have devices which a rule selects, with these."""
        pools = [pool for pool in _pool_of_rule(rule) if _ANY not in pool]
        selected = decode_taint_rule(rule)
        for claim in self.claims.by_index("pool", pools[0]) if pools else self.claims.store.values():
            if devices := [device for device in _devices_of(claim) if selected.selects(device)]:
                yield claim, devices

    def _rule_updated(self, old: Obj, new: Obj) -> None:
        if old["spec"] != new["spec"]:
            self._rule_changed(old)
            self._rule_changed(new)

    def _rule_deleted(self, rule: Obj) -> None:
        self._evicted_by.pop(name_of(rule), None)
        self._rule_changed(rule)

    async def sync(self, key: str) -> float | None:
        """Look at one pod or write one rule's status."""
        kind, _, path = key.partition(":")
        return await (self._sync_pod(path) if kind == "pod" else self._sync_rule(path))

    # -- pods ---------------------------------------------------------------------------------------------------------

    def _eviction(self, pod: Obj, *supposed: Obj) -> Eviction | None:
        """When the pod must go, by the rules that there are and those that are supposed."""
        if not node_of(pod) or is_being_deleted(pod) or is_terminal(pod):
            return None
        found = []
        for claim in map(self.claims.store.get, claim_names.claim_keys(pod)):
            if claim is None or not self._uses(pod, claim):
                continue
            due = claim_eviction(
                _results_of(claim),
                lambda driver, pool: self.slices.by_index("pool", f"{driver}/{pool}"),
                [*self._rules_for(claim), *supposed],
                self.now(),
            )
            if due is not None:
                found.append(due)
        return combine(found)

    def _rules_for(self, claim: Obj) -> list[Obj]:
        """The rules that may select a device of a claim."""
        if self.rules is None or not self.rules.store:
            return []
        keys: dict[str, None] = {}
        for result in _results_of(claim):
            driver, pool = result["driver"], result["pool"]
            keys.update(dict.fromkeys((f"{driver}/{pool}", f"{driver}/{_ANY}", f"{_ANY}/{pool}", f"{_ANY}/{_ANY}")))
        return [rule for key in keys for rule in self.rules.by_index("pool", key)]

    def _uses(self, pod: Obj, claim: Obj) -> bool:
        owner, group = controller_of(claim), podgroup_of(pod)
        if owner is not None and owner["kind"] == PODS.kind and owner["uid"] != uid_of(pod):
            return False
        return any(
            entry["uid"] == uid_of(pod) or (entry["resource"] == "podgroups" and group and entry["name"] == group)
            for entry in claim_names.reserved_for(claim)
        )

    async def _sync_pod(self, key: str) -> float | None:
        pod = self.pods.store.get(key)
        due = self._eviction(pod) if pod is not None else None
        if pod is None or due is None:
            if self._settle(key) and pod is not None and not is_being_deleted(pod):
                self.events.event(pod, "Normal", "DeviceTaintManagerEviction", "Cancelling deletion")
            return None
        if key not in self._pending or self._pending[key].rules != due.rules:
            self._touch_rules(due.rules)
        self._pending[key] = due
        remaining = (due.at - self.now()).total_seconds()
        if remaining > 0:
            return remaining
        await self._evict(pod, due)
        return None

    async def _evict(self, pod: Obj, due: Eviction) -> None:
        live = await self.live(PODS, name_of(pod), namespace_of(pod))
        if live is not None and uid_of(live) == uid_of(pod) and not is_being_deleted(live):
            message = f"Marking for deletion ({', '.join(due.taints)})"
            self.events.event(live, "Normal", "DeviceTaintManagerEviction", message)
            await mark_disrupted(self, self.pods, live, "DeletionByDeviceTaintManager", _MESSAGE)
            if await self.delete(self.pods, live) and uid_of(pod) not in self._evicted:
                self._deletions += 1
                self._latency.observe(max(0.0, (self.now() - due.at).total_seconds()))
                self._evicted[uid_of(pod)] = due.rules
                for rule in due.rules:
                    self._evicted_by[rule] = self._evicted_by.get(rule, 0) + 1
        self._settle(object_key(pod))

    def _settle(self, key: str) -> bool:
        """The pod is not pending (any more); whether it was."""
        was = self._pending.pop(key, None)
        if was is not None:
            self._touch_rules(was.rules)
        return was is not None

    def _touch_rules(self, names: Iterable[str]) -> None:
        for name in names:
            self.queue.add(f"rule:{name}")

    # -- rules --------------------------------------------------------------------------------------------------------

    async def _sync_rule(self, name: str) -> float | None:
        rule = self.rules.get(name) if self.rules is not None else None
        if self.rules is None or rule is None:
            return None
        generation = rule["metadata"].get("generation", 0)
        current = get_condition(rule, _CONDITION)
        if current is not None and current.get("observedGeneration") == generation:
            if rule["spec"]["taint"].get("effect") == "None":
                return None  # what would happen is told once for each version of the rule
            remaining = _STATUS_SECONDS - (self.now() - parse_time(current["lastTransitionTime"])).total_seconds()
            if remaining > 0:
                return remaining
        status, reason, message = self._progress(rule)
        wanted = {"status": status, "reason": reason, "message": message, "observedGeneration": generation}
        if current is not None and all(current.get(key) == value for key, value in wanted.items()):
            return None
        condition = {"type": _CONDITION, **wanted, "lastTransitionTime": self.timestamp()}
        body = {"apiVersion": TAINT_RULES.api_version, "kind": TAINT_RULES.kind, "metadata": {"name": name}}
        await self.patch(
            self.rules,
            rule,
            {**body, "status": {"conditions": [condition]}},
            type="apply",
            subresource="status",
            field_manager=FIELD_MANAGER,
            force=True,
        )
        return None

    def _progress(self, rule: Obj) -> tuple[str, str, str]:
        """Status, reason and message of a rule's condition."""
        effect, status, text = rule["spec"]["taint"].get("effect"), "False", ""
        done = self._evicted_by.get(name_of(rule), 0)
        if effect == "None":
            reason, text = "NoEffect", self._would_affect(rule)
        elif effect != NO_EXECUTE:
            reason, text = "OtherEffect", f"Eviction only happens for the {NO_EXECUTE} effect."
        elif pods := self._pods_to_evict(rule):
            status, reason = "True", "PodsPendingEviction"
            verb = "needs" if len(pods) == 1 else "need"
            text = f"{counted(len(pods), 'pod')} {verb} to be evicted in {_namespaces(pods)}."
        else:
            reason = "Completed" if done else "NotStarted"
        evicted = f"{counted(done, 'pod')} evicted since starting the controller." if done else ""
        return status, reason, f"{text} {evicted}".strip()

    def _pods_to_evict(self, rule: Obj) -> list[str]:
        """The pods that have to go by this rule, now or later, and that would if its effect was NoExecute."""
        spec = rule["spec"]
        supposed = {**rule, "spec": {**spec, "taint": {**spec["taint"], "effect": NO_EXECUTE}}}
        users = {
            object_key(pod): pod
            for claim, _ in self._selected(rule)
            for pod in self.pods.by_index("claim", object_key(claim))
        }
        dues = {key: self._eviction(pod, supposed) for key, pod in users.items()}
        return [key for key, due in dues.items() if due is not None and name_of(rule) in due.rules]

    def _would_affect(self, rule: Obj) -> str:
        pools: dict[str, list[Obj]] = {}
        for resource_slice in self.slices.store.values():
            for pool in _pool_of_slice(resource_slice):
                pools.setdefault(pool, []).append(resource_slice)
        selected = decode_taint_rule(rule)
        published = [
            device["name"]
            for slices in pools.values()
            for s in newest_slices(slices)
            for device in s["spec"].get("devices") or ()
            if selected.selects(DeviceId(s["spec"]["driver"], s["spec"]["pool"]["name"], device["name"]))
        ]
        allocated = [device for _, devices in self._selected(rule) for device in devices]
        pods = self._pods_to_evict(rule)
        return (
            f"{counted(len(published), 'published device')} selected. "
            f"{counted(len(allocated), 'allocated device')} selected. "
            f"{counted(len(pods), 'pod')} would be evicted in {_namespaces(pods)} if the effect was {NO_EXECUTE}. "
            f"This information will not be updated again. Recreate the {TAINT_RULES.kind} to trigger an update."
        )


def _devices_of(claim: Mapping[str, Any]) -> list[DeviceId]:
    return [DeviceId(r["driver"], r["pool"], r["device"]) for r in _results_of(claim)]


def _namespaces(keys: Iterable[str]) -> str:
    count = len({key.partition("/")[0] for key in keys})
    return "1 namespace" if count == 1 else f"{count} different namespaces"


def _taints(resource_slice: Mapping[str, Any]) -> Any:
    return {
        device["name"]: [taint for taint in device.get("taints") or () if taint.get("effect") == NO_EXECUTE]
        for device in resource_slice["spec"].get("devices") or ()
    }
