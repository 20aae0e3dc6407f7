"""The state that decisions are made from: `SchedulerCache` follows watch events, a `Snapshot` is one state of it.

Every event costs what it changes, not what the cluster holds: nodes with their pods are immutable values that are
replaced one at a time, maps share their unchanged buckets with earlier snapshots, devices and allocations are kept by
their own indexes. What the scheduler has decided but the watch has not shown yet is *assumed* and counts at once:
a pod until the watch shows it on a node, a claim until the watch has caught up with the write.
Source: kube-scheduler's cache and the DRA manager's in-flight and assume caches, as behaviour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from haru.engine.backfill.reservation import BackfillReservation
from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.extended_resources import extended_resource_claim_owners
from haru.engine.dra.pools.inventory import Inventory
from haru.engine.equivalence.decision_cache import DecisionCache
from haru.engine.equivalence.node_device_classes import ClassIndex
from haru.engine.state.assumed_claims import AssumedClaims, allocation_of
from haru.engine.state.cow_map import CowMap
from haru.engine.state.decision import Obj, PodKey
from haru.engine.state.node_info import NodeInfo, NodeSpec
from haru.engine.state.pending_reservations import Nomination, PendingReservations
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.podgroup_state import PodGroupState
from haru.engine.state.reserved_for import ReservedFor, consumer_keys
from haru.engine.state.snapshot import ClaimIndex, PodIndex, Snapshot
from haru.engine.state.workload_owners import WorkloadOwners

__all__ = ["SchedulerCache", "Snapshot", "namespaced_name", "object_path"]
_NOTHING: Final[Mapping[str, Obj]] = {}
_NO_CLAIMS: Final[frozenset[str]] = frozenset()


def object_path(obj: Obj) -> str:
    """`namespace/name`, or `name` alone for objects without a namespace."""
    meta = obj["metadata"]
    namespace = meta.get("namespace")
    return f"{namespace}/{meta['name']}" if namespace else str(meta["name"])


def namespaced_name(obj: Obj) -> str:
    """`namespace/name` of a namespaced object, `default` where none is written."""
    return f"{obj['metadata'].get('namespace') or 'default'}/{obj['metadata']['name']}"


@dataclass(eq=False)
class _State:
    nodes: CowMap[NodeInfo] = field(default_factory=CowMap)
    pods: CowMap[PodInfo] = field(default_factory=CowMap)
    claims: CowMap[Obj] = field(default_factory=CowMap)
    in_flight: CowMap[Obj] = field(default_factory=CowMap)
    pod_groups: CowMap[Obj] = field(default_factory=CowMap)
    groups: CowMap[PodGroupState] = field(default_factory=CowMap)
    anti_affinity: CowMap[PodInfo] = field(default_factory=CowMap)
    nominated: CowMap[PodInfo] = field(default_factory=CowMap)
    extended_resource_claims: CowMap[frozenset[str]] = field(default_factory=CowMap)
    nominations: CowMap[Nomination] = field(default_factory=CowMap)
    terminating: CowMap[PodInfo] = field(default_factory=CowMap)
    used_claims: CowMap[frozenset[str]] = field(default_factory=CowMap)
    orphaned: CowMap[Obj] = field(default_factory=CowMap)
    evicted_groups: CowMap[bool] = field(default_factory=CowMap)


class SchedulerCache:
    """The mutable index. `apply` and `remove` take watched objects; `assume_*` and `forget_*` what was decided."""

    def __init__(self, decision_cache: DecisionCache | None = None) -> None:
        """`decision_cache`: what keeps results from one decision to the next; by default a cache of its own."""
        cache = DecisionCache() if decision_cache is None else decision_cache
        self._state = _State()
        self._others: dict[str, CowMap[Obj]] = {}
        self._decision_cache = cache
        self._inventory = Inventory(cache)
        self._ids = cache.scope()
        self._class_index = ClassIndex(self._inventory)
        self._workload_owners = WorkloadOwners()
        self._allocated = AllocatedState.from_claims(())
        self._live_claims: dict[str, Obj] = {}
        self._assumed_claims = AssumedClaims()
        self._assumed_pods: dict[str, tuple[str, tuple[Obj, ...]]] = {}
        self._pending_reservations = PendingReservations()
        self._node_names: tuple[str, ...] | None = ()
        self._version = 0
        self._reservation: BackfillReservation | None = None
        self._snapshot: Snapshot | None = None
        self._appliers: dict[str, tuple[Callable[[Obj], None], Callable[[Obj], None]]] = {
            "Node": (self._apply_node, self._remove_node),
            "Pod": (self._apply_pod, self._remove_pod),
            "ResourceClaim": (self._apply_claim, self._remove_claim),
            "PodGroup": (self._apply_pod_group, self._remove_pod_group),
            "ResourceSlice": (self._inventory.upsert_slice, self._delete_slice),
            "DeviceClass": (self._apply_class, self._remove_class),
            "DeviceTaintRule": (self._inventory.upsert_taint_rule, self._delete_taint_rule),
        }

    @staticmethod
    def of(objects: Iterable[Obj]) -> SchedulerCache:
        """A cluster that holds these objects."""
        cluster = SchedulerCache()
        for obj in objects:
            cluster.apply(obj)
        return cluster

    def apply(self, obj: Obj) -> None:
        """Add or replace an object. Objects of kinds without an index are kept as they are."""
        self._changed()
        kind = obj["kind"]
        applier = self._appliers.get(kind)
        if applier is not None:
            applier[0](obj)
        if applier is None or kind in _KEPT_TOO:
            self._others.setdefault(kind, CowMap())[object_path(obj)] = obj

    def remove(self, obj: Obj) -> None:
        """Drop an object that is gone. Unknown objects are fine."""
        self._changed()
        kind = obj["kind"]
        applier = self._appliers.get(kind)
        if applier is not None:
            applier[1](obj)
        if applier is None or kind in _KEPT_TOO:
            self._others.setdefault(kind, CowMap()).pop(object_path(obj), None)

    def snapshot(self) -> Snapshot:
        """Return the state now as an immutable value; the same object while nothing has changed."""
        if self._snapshot is None:
            state = self._state
            devices, classify = self._inventory.snapshot(), self._decision_cache.shares_results
            pods, claims = state.pods.freeze(), state.claims.freeze()
            self._snapshot = Snapshot(
                version=self._version,
                nodes=state.nodes.freeze(),
                node_names=self._sorted_node_names(),
                pods=pods,
                claims=claims,
                in_flight=state.in_flight.freeze(),
                pod_groups=state.pod_groups.freeze(),
                groups=state.groups.freeze(),
                others={kind: objects.freeze() for kind, objects in self._others.items()},
                devices=devices,
                allocated=self._allocated,
                node_device_classes=self._class_index.freeze(devices, self._allocated) if classify else None,
                pod_index=PodIndex(state.anti_affinity.freeze(), state.nominated.freeze(), state.terminating.freeze()),
                claim_index=ClaimIndex(
                    state.extended_resource_claims.freeze(),
                    state.used_claims.freeze(),
                    state.orphaned.freeze(),
                    self._workload_owners.freeze(claims, pods),
                ),
                nominations=state.nominations.freeze(),
                evicted_groups=state.evicted_groups.freeze(),
                reservation=self._reservation,
                decision_cache=self._decision_cache,
            )
        return self._snapshot

    # Assuming

    def assume_pod(
        self, pod: PodKey, node: str, claimed: tuple[Obj, ...] = (), joined: Mapping[str, Obj] = _NOTHING
    ) -> None:
        """Count a pod as placed before its binding is seen. Raises KeyError if the pod is not (or no longer) there.

        `claimed` is what its devices take of the node (KEP-5517); `joined` has the entries that it will have in
        `reservedFor` of claims that are allocated already, by their paths.
        """
        current = self._state.pods.get(pod.path)
        if current is None or (pod.uid and current.key.uid != pod.uid):
            raise KeyError(f"pod {pod.path} (uid {pod.uid}) is not in the cluster: it was deleted or replaced")
        self._changed()
        self._assumed_pods[pod.path] = (node, claimed)
        self._put_pod(current.bound_to(node, claimed))
        if joined:
            self._update_claims(self._pending_reservations.add(pod.path, joined))

    def forget_pod(self, pod: PodKey) -> None:
        """End an assumption: the binding failed. A pod that the watch shows on a node stays there."""
        current = self._state.pods.get(pod.path)
        if current is not None and pod.uid and current.key.uid != pod.uid:
            return
        if not self._end_assumption(pod.path):
            return
        self._changed()
        if current is not None:
            self._put_pod(PodInfo.of(current.obj))

    def _end_assumption(self, path: str) -> bool:
        """Return whether there was an assumption; drop the pod's pending reservations."""
        if self._assumed_pods.pop(path, None) is None:
            return False
        self._update_claims(self._pending_reservations.drop(path))
        return True

    def is_assumed(self, pod: PodKey) -> bool:
        """Return whether the pod is placed but the watch has not confirmed it."""
        return pod.path in self._assumed_pods

    @property
    def assumed_pods(self) -> frozenset[str]:
        """Return the paths of the pods that are placed but that the watch has not confirmed."""
        return frozenset(self._assumed_pods)

    @property
    def assumed_claims(self) -> tuple[str, ...]:
        """Return the paths of the claims that the watch shows otherwise than the scheduler left them."""
        return tuple(namespaced_name(assumed.obj) for assumed in self._assumed_claims)

    def assume_claim(self, claim: Obj, *, written: bool = False) -> None:
        """Count a claim as allocated: `written=False` while the write is under way, `written=True` with its answer."""
        self._changed()
        path = namespaced_name(claim)
        self._assumed_claims.put(path, claim, self._live_claims.get(path), written=written)
        self._update_claim(path)

    def forget_claim(self, path: str, assumed: Obj | None = None) -> None:
        """End an assumption (only the given one).

        The claim is again what the watch shows, or what the API took before, where the watch has not shown that yet.
        """
        if self._assumed_claims.take_back(path, assumed, self._live_claims.get(path)):
            self._changed()
            self._update_claim(path)

    # Nominations and reservations

    def nominate(self, nominations: Iterable[Nomination]) -> None:
        """Keep places for pending pods until they are placed or gone. Raises KeyError for a pod that is not there."""
        for nomination in nominations:
            current = self._state.pods.get(nomination.pod.path)
            if current is None or current.key.uid != nomination.pod.uid:
                raise KeyError(f"pod {nomination.pod.path} (uid {nomination.pod.uid}) is not in the cluster")
            self._changed()
            self._state.nominations[nomination.pod.path] = nomination

    def forget_nomination(self, pod: PodKey) -> None:
        """Give up the place that is kept for a pod, if there is one."""
        nomination = self._state.nominations.get(pod.path)
        if nomination is not None and nomination.pod == pod:
            self._changed()
            del self._state.nominations[pod.path]

    def reserve(self, reservation: BackfillReservation | None) -> None:
        """Keep places for the head of the queue instead of those kept so far; None: for nobody."""
        if reservation != self._reservation:
            self._changed()
            self._reservation = reservation

    # Nodes

    def _apply_node(self, obj: Obj) -> None:
        spec = NodeSpec.of(obj, self._ids)
        current = self._state.nodes.get(spec.name)
        if current is None or not current.present:
            self._node_names = None
        self._state.nodes[spec.name] = (current or NodeInfo.empty(spec.name, ids=self._ids)).with_spec(spec)

    def _remove_node(self, obj: Obj) -> None:
        name = obj["metadata"]["name"]
        current = self._state.nodes.get(name)
        if current is None:
            return
        self._node_names = None
        if current.pods:
            self._state.nodes[name] = current.with_spec(None)
        else:
            del self._state.nodes[name]

    def _sorted_node_names(self) -> tuple[str, ...]:
        if self._node_names is None:
            self._node_names = tuple(sorted(name for name, info in self._state.nodes.items() if info.present))
        return self._node_names

    # Pods

    def _apply_pod(self, obj: Obj) -> None:
        pod = PodInfo.of(obj)
        path = pod.key.path
        before = self._state.pods.get(path)
        replaced = before is not None and before.key.uid != pod.key.uid
        assumed = self._assumed_pods.get(path)
        if assumed is not None and (pod.node or replaced or pod.terminal):
            self._end_assumption(path)
        elif assumed is not None:
            pod = pod.bound_to(*assumed)
        self._put_pod(pod)

    def _remove_pod(self, obj: Obj) -> None:
        path = namespaced_name(obj)
        self._end_assumption(path)
        self._state.nominations.pop(path, None)
        before = self._state.pods.pop(path, None)
        if before is not None:
            self._remove_from_indexes(before)
            self._consumer_changed("pods", path)
            self._member_changed(before, None)

    def _put_pod(self, pod: PodInfo) -> None:
        before = self._state.pods.get(pod.key.path)
        if before is not None:
            self._remove_from_indexes(before)
        self._state.pods[pod.key.path] = pod
        if before is None or before.key != pod.key or before.terminal != pod.terminal:
            self._consumer_changed("pods", pod.key.path)
        else:
            self._workload_owners.changed(self._used_by("pods", pod.key.path))
        nomination = self._state.nominations.get(pod.key.path)
        if nomination is not None and (pod.node or pod.terminal or pod.deleting or nomination.pod != pod.key):
            del self._state.nominations[pod.key.path]
        if not pod.terminal:
            self._add_to_indexes(pod)
        self._member_changed(before, pod)

    def _add_to_indexes(self, pod: PodInfo) -> None:
        """Index a pod that has not ended: on its node, or pending, and as a member of its group."""
        if pod.node:
            info = self._state.nodes.get(pod.node) or NodeInfo.empty(pod.node, ids=self._ids)
            self._state.nodes[pod.node] = info.with_pod(pod)
            # Computed now: the search for what ends first needs that of all pods at once.
            _ = pod.run_deadline
            if pod.has_required_anti_affinity:
                self._state.anti_affinity[pod.key.path] = pod
            if pod.deleting:
                self._state.terminating[pod.key.path] = pod
        elif pod.nominated_node and not pod.deleting:
            self._state.nominated[pod.key.path] = pod
        if pod.group is not None:
            group = self._state.groups.get(pod.group.path) or PodGroupState()
            assumed = pod.key.path in self._assumed_pods
            self._state.groups[pod.group.path] = group.with_pod(pod, assumed=assumed)

    def _member_changed(self, before: PodInfo | None, pod: PodInfo | None) -> None:
        """Remember of which groups members were evicted, until the next one of theirs has a place."""
        last = pod or before
        if last is None or last.group is None:
            return
        evicted, group = self._state.evicted_groups, last.group.path
        lives = pod is not None and not pod.terminal
        if not lives and last.node and last.preempted:
            evicted[group] = True
        if group in evicted:
            if lives and last.node and (before is None or not before.node):
                del evicted[group]
            self._consumer_changed("podgroups", group)

    def _remove_from_indexes(self, pod: PodInfo) -> None:
        path = pod.key.path
        self._state.anti_affinity.pop(path, None)
        self._state.nominated.pop(path, None)
        self._state.terminating.pop(path, None)
        if pod.node and not pod.terminal:
            info = self._state.nodes.get(pod.node)
            if info is not None and path in info.pods:
                left = info.without_pod(path)
                if left.present or left.pods:
                    self._state.nodes[pod.node] = left
                else:
                    del self._state.nodes[pod.node]
        if pod.group is not None:
            group = self._state.groups.get(pod.group.path)
            if group is not None:
                remaining = group.without_pod(path)
                if remaining.count:
                    self._state.groups[pod.group.path] = remaining
                else:
                    del self._state.groups[pod.group.path]

    # Claims

    def _apply_claim(self, obj: Obj) -> None:
        path = namespaced_name(obj)
        self._live_claims[path] = obj
        self._assumed_claims.shown(path, obj)
        self._update_claim(path)

    def _remove_claim(self, obj: Obj) -> None:
        path = namespaced_name(obj)
        self._live_claims.pop(path, None)
        self._assumed_claims.drop(path)
        self._update_claim(path)

    def _update_claims(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._update_claim(path)

    def _update_claim(self, path: str) -> None:
        assumed = self._assumed_claims.get(path)
        effective = self._pending_reservations.reserved(
            path, assumed.obj if assumed is not None else self._live_claims.get(path)
        )
        if assumed is not None and not assumed.written:
            self._state.in_flight[path] = assumed.obj
        else:
            self._state.in_flight.pop(path, None)
        before = self._state.claims.get(path)
        if effective is None:
            self._state.claims.pop(path, None)
        else:
            self._state.claims[path] = effective
        _index(
            self._state.extended_resource_claims,
            path,
            extended_resource_claim_owners(before),
            extended_resource_claim_owners(effective),
        )
        _index(self._state.used_claims, path, consumer_keys(before), consumer_keys(effective))
        self._workload_owners.changed((path,))
        self._update_orphaned(path)
        old, new = allocation_of(before), allocation_of(effective)
        if old is not new:
            if old is not None:
                self._allocated = self._allocated.without(path)
            if new is not None:
                self._allocated = self._allocated.with_allocation(path, new)
            self._class_index.taken_changed(old, new)

    def _consumer_changed(self, resource: str, path: str) -> None:
        claims = self._used_by(resource, path)
        self._workload_owners.changed(claims)
        for claim in claims:
            self._update_orphaned(claim)

    def _used_by(self, resource: str, path: str) -> frozenset[str]:
        return self._state.used_claims.get(f"{resource}/{path}") or _NO_CLAIMS

    def _update_orphaned(self, path: str) -> None:
        state, claim = self._state, self._state.claims.get(path)
        there = ReservedFor(state.pods, state.pod_groups, state.groups, state.evicted_groups)
        if claim is not None and there.are_gone(claim):
            state.orphaned[path] = claim
        else:
            state.orphaned.pop(path, None)

    # The rest

    def _apply_pod_group(self, obj: Obj) -> None:
        path = namespaced_name(obj)
        self._state.pod_groups[path] = obj
        self._consumer_changed("podgroups", path)

    def _remove_pod_group(self, obj: Obj) -> None:
        path = namespaced_name(obj)
        self._state.pod_groups.pop(path, None)
        self._state.evicted_groups.pop(path, None)
        self._consumer_changed("podgroups", path)

    def _delete_slice(self, obj: Obj) -> None:
        self._inventory.delete_slice(obj["metadata"]["name"])

    def _delete_taint_rule(self, obj: Obj) -> None:
        self._inventory.delete_taint_rule(obj["metadata"]["name"])

    def _apply_class(self, obj: Obj) -> None:
        self._inventory.upsert_class(obj)

    def _remove_class(self, obj: Obj) -> None:
        self._inventory.delete_class(obj["metadata"]["name"])

    def _changed(self) -> None:
        self._version += 1
        self._snapshot = None


# Kinds with an index of their own whose objects are also asked for as they are.
_KEPT_TOO = frozenset({"DeviceClass", "DeviceTaintRule"})


def _index(known: CowMap[frozenset[str]], path: str, before: frozenset[str], after: frozenset[str]) -> None:
    """Put a claim under other keys than before."""
    for key in before - after:
        rest = known[key] - {path}
        if rest:
            known[key] = rest
        else:
            del known[key]
    for key in after - before:
        known[key] = (known.get(key) or frozenset()) | {path}
