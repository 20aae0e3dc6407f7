"""The state that decisions are made from: `SchedulerCache` follows watch events, a `Snapshot` is one state of it.

Every event costs what it changes, not what the cluster holds: nodes with their pods are immutable values that are
replaced one at a time, maps share their unchanged buckets with earlier snapshots, devices and allocations are kept by
their own indexes. What the scheduler has decided but the watch has not shown yet is *assumed* and counts at once:
a pod until the watch shows it on a node, a claim until the watch has caught up with the write.
Source: kube-scheduler's cache and the DRA manager's in-flight and assume caches, as behaviour.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from haru.engine.backfill.reservation import BackfillReservation
from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.pools.inventory import DeviceSnapshot, Inventory
from haru.engine.equivalence.decision_cache import DecisionCache
from haru.engine.equivalence.node_device_classes import ClassIndex
from haru.engine.state.assumed_volumes import VOLUME_KINDS, AssumedVolumes
from haru.engine.state.claim_cache import ClaimCache
from haru.engine.state.cow_map import CowMap
from haru.engine.state.decision import PodKey, namespaced_name, object_path
from haru.engine.state.decoded_objects import DecodedObjects
from haru.engine.state.node_info import NodeInfo, NodeSpec
from haru.engine.state.partition import Partition
from haru.engine.state.pending_reservations import Nomination
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.podgroup_state import PodGroupState
from haru.engine.state.reserved_for import ReservedFor
from haru.engine.state.snapshot import LiveView, PodGroupIndex, PodIndex, Snapshot
from haru.kube.meta import Obj

__all__ = ["SchedulerCache", "Snapshot"]
_NOTHING: Final[Mapping[str, Obj]] = {}


@dataclass(eq=False)
class _State:
    nodes: CowMap[NodeInfo] = field(default_factory=CowMap)
    pods: CowMap[PodInfo] = field(default_factory=CowMap)
    groups: CowMap[PodGroupState] = field(default_factory=CowMap)
    anti_affinity: CowMap[PodInfo] = field(default_factory=CowMap)
    nominated: CowMap[PodInfo] = field(default_factory=CowMap)
    nominations: CowMap[Nomination] = field(default_factory=CowMap)
    terminating: CowMap[PodInfo] = field(default_factory=CowMap)
    evicted_groups: CowMap[bool] = field(default_factory=CowMap)


class SchedulerCache:
    """The mutable index. `apply` and `remove` take watched objects; `assume_*` and `forget_*` what was decided."""

    def __init__(self, decision_cache: DecisionCache | None = None, decoded: DecodedObjects | None = None) -> None:
        """`decision_cache`: what keeps results from one decision to the next; by default a cache of its own.

        `decoded`: what it has in common with other caches that are shown the same objects.
        """
        cache = DecisionCache() if decision_cache is None else decision_cache
        self._state = _State()
        self._others: dict[str, CowMap[Obj]] = {"PodGroup": CowMap()}
        self._decision_cache = cache
        self._pod_info = PodInfo.of if decoded is None else decoded.pod
        self._inventory = Inventory(cache, None if decoded is None else decoded.slices)
        self._ids = cache.scope()
        self._class_index = ClassIndex(self._inventory)
        state = self._state
        consumers = ReservedFor(state.pods, self._others["PodGroup"], state.groups, state.evicted_groups)
        self._claims = ClaimCache(consumers, self._class_index.taken_changed, self._reservations_changed)
        self.now = LiveView(
            state.nodes,
            state.pods,
            self._claims.claims,
            self._others["PodGroup"],
            PodIndex(state.anti_affinity, state.nominated, state.terminating, state.nominations),
            PodGroupIndex(state.groups, state.evicted_groups),
            self._claims.live_index,
        )
        """What is known at this moment: cheaper than a snapshot, and good for nothing once something has changed."""
        self._assumed_volumes = AssumedVolumes()
        self._assumed_pods: dict[str, tuple[str, tuple[Obj, ...]]] = {}
        self._node_names: list[str] = []
        """The names of nodes that are present, sorted."""
        self._kept_node_names: tuple[str, ...] | None = None
        self._version = 0
        self._reservation: BackfillReservation | None = None
        self._snapshot: Snapshot | None = None
        self._appliers: dict[str, tuple[Callable[[Obj], None], Callable[[Obj], None]]] = {
            "Node": (self._apply_node, self._remove_node),
            "Pod": (self._apply_pod, self._remove_pod),
            "ResourceClaim": (self._claims.apply, self._claims.remove),
            "PodGroup": (self._apply_pod_group, self._remove_pod_group),
            "ResourceSlice": (self._inventory.upsert_slice, self._delete_slice),
            "DeviceClass": (self._inventory.upsert_class, self._delete_class),
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
        self._decision_cache.release()
        kind = obj["kind"]
        applier = self._appliers.get(kind)
        if applier is not None:
            applier[0](obj)
        if kind in VOLUME_KINDS:
            obj = self._assumed_volumes.shown((kind, object_path(obj)), obj)
        if applier is None or kind in _KEPT_TOO:
            self._others.setdefault(kind, CowMap())[object_path(obj)] = obj

    def remove(self, obj: Obj) -> None:
        """Drop an object that is gone. Unknown objects are fine."""
        self._changed()
        self._decision_cache.release()
        kind = obj["kind"]
        applier = self._appliers.get(kind)
        if applier is not None:
            applier[1](obj)
        self._assumed_volumes.drop((kind, object_path(obj)))
        if applier is None or kind in _KEPT_TOO:
            self._others.setdefault(kind, CowMap()).pop(object_path(obj), None)

    def confine(self, partition: Partition) -> None:
        """Place work in a part of the cluster only. Raises ValueError once there are nodes or devices."""
        if self._state.nodes or self._inventory.snapshot().pools:
            raise ValueError("a cache is confined to a partition before it is told of nodes and devices")
        self._changed()
        self._inventory.confine(partition)

    @property
    def partition(self) -> Partition:
        """Return the part of the cluster in which work is placed."""
        return self._inventory.snapshot().partition

    @property
    def allocated(self) -> AllocatedState:
        """Return what is taken now, as an immutable value."""
        return self._claims.allocated

    @property
    def devices(self) -> DeviceSnapshot:
        """Return the published devices now, as an immutable value."""
        return self._inventory.snapshot()

    def snapshot(self) -> Snapshot:
        """Return the state now as an immutable value; the same object while nothing has changed."""
        if self._snapshot is None:
            state = self._state
            devices, classify = self._inventory.snapshot(), self._decision_cache.shares_results
            pods = state.pods.freeze()
            claims, allocated, claim_index = self._claims.freeze(pods)
            self._snapshot = Snapshot(
                version=self._version,
                nodes=state.nodes.freeze(),
                node_names=self._all_node_names(),
                pods=pods,
                claims=claims,
                others={kind: objects.freeze() for kind, objects in self._others.items()},
                devices=devices,
                allocated=allocated,
                node_device_classes=self._class_index.freeze(devices, allocated) if classify else None,
                pod_index=PodIndex(
                    state.anti_affinity.freeze(),
                    state.nominated.freeze(),
                    state.terminating.freeze(),
                    state.nominations.freeze(),
                ),
                podgroup_index=PodGroupIndex(state.groups.freeze(), state.evicted_groups.freeze()),
                claim_index=claim_index,
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
            self._claims.reserve(pod.path, joined)

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
        self._claims.unreserve(path)
        return True

    def is_assumed(self, pod: PodKey) -> bool:
        """Return whether the pod is placed but the watch has not confirmed it."""
        return pod.path in self._assumed_pods

    def waits_with_others(self, path: str) -> bool:
        """Return whether a pod is a member of a PodGroup and has no node yet."""
        pod = self._state.pods.get(path)
        return pod is not None and pod.group is not None and not pod.node

    @property
    def assumed_pods(self) -> frozenset[str]:
        """Return the paths of the pods that are placed but that the watch has not confirmed."""
        return frozenset(self._assumed_pods)

    @property
    def assumed_claims(self) -> tuple[str, ...]:
        """Return the paths of the claims that the watch shows otherwise than the scheduler left them."""
        return tuple(namespaced_name(assumed.obj) for assumed in self._claims.assumed)

    def assume_claim(self, claim: Obj, *, written: bool = False) -> None:
        """Count a claim as allocated: `written=False` while the write is under way, `written=True` with its answer."""
        self._changed()
        self._claims.assume(claim, written=written)

    def forget_claim(self, path: str, assumed: Obj | None = None) -> bool:
        """End an assumption (only the given one) and return whether there was one.

        The claim is again what the watch shows, or what the API took before, where the watch has not shown that yet.
        """
        found = self._claims.forget(path, assumed)
        if found:
            self._changed()
        return found

    def assume_volume(self, obj: Obj) -> None:
        """Count a PersistentVolume or claim as it is about to be written, until the watch shows it bound."""
        kind, path = obj["kind"], object_path(obj)
        known = self._others.setdefault(kind, CowMap())
        live = known.get(path)
        if live is not None:
            self._changed()
            self._assumed_volumes.put((kind, path), obj, live)
            known[path] = obj

    def forget_volume(self, kind: str, path: str) -> None:
        """End an assumption about a PersistentVolume or claim, if there is one."""
        live = self._assumed_volumes.drop((kind, path))
        if live is not None:
            self._changed()
            self._others[kind][path] = live

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

    def _all_node_names(self) -> tuple[str, ...]:
        """Return the names of nodes that are present: the same object as long as they are the same."""
        if self._kept_node_names is None:
            self._kept_node_names = tuple(self._node_names)
        return self._kept_node_names

    def _apply_node(self, obj: Obj) -> None:
        spec = NodeSpec.of(obj, self._ids)
        current = self._state.nodes.get(spec.name)
        if current is None or not current.present:
            insort(self._node_names, spec.name)
            self._kept_node_names = None
        self._state.nodes[spec.name] = (current or NodeInfo.empty(spec.name, ids=self._ids)).with_spec(spec)

    def _remove_node(self, obj: Obj) -> None:
        name = obj["metadata"]["name"]
        current = self._state.nodes.get(name)
        if current is None:
            return
        if current.present:
            del self._node_names[bisect_left(self._node_names, name)]
            self._kept_node_names = None
        if current.pods:
            self._state.nodes[name] = current.with_spec(None)
        else:
            del self._state.nodes[name]

    # Pods

    def _apply_pod(self, obj: Obj) -> None:
        pod = self._pod_info(obj)
        path = pod.key.path
        before = self._state.pods.get(path)
        replaced = before is not None and before.key.uid != pod.key.uid
        assumed = self._assumed_pods.get(path)
        if assumed is not None and (pod.node or replaced):
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
            self._remove_from_indexes(before, path)
            self._claims.consumer_changed("pods", path)
            self._member_changed(before, None)

    def _reservations_changed(self, path: str) -> None:
        """Put a pending pod anew: a claim is, or is no longer, reserved for it."""
        pod = self._state.pods.get(path)
        if pod is not None and not pod.node:
            self._put_pod(pod)

    def _put_pod(self, pod: PodInfo) -> None:
        state, path = self._state, pod.key.path
        before = state.pods.get(path)
        if pod.group is not None and not pod.node and (node := self._claims.reserved_node(pod)) != pod.reserved_node:
            pod = pod.with_reserved_node(node)
        # What the watch shows of an assumed pod is as a rule what was assumed: the node counts the same.
        confirmed = before is not None and pod.confirms(before)
        if before is not None:
            stays = before.group == pod.group and not pod.terminal
            self._remove_from_indexes(before, path, from_node=not confirmed, from_group=not stays)
        state.pods[path] = pod
        if before is None or before.key != pod.key or before.terminal != pod.terminal:
            self._claims.consumer_changed("pods", path)
        elif not confirmed or not pod.has_owners_of(before):
            self._claims.user_changed(path)
        nomination = state.nominations.get(path)
        if nomination is not None and (pod.node or pod.terminal or pod.deleting or nomination.pod != pod.key):
            del state.nominations[path]
        if not pod.terminal:
            self._add_to_indexes(pod, path, confirmed=confirmed)
        self._member_changed(before, pod)

    def _add_to_indexes(self, pod: PodInfo, path: str, *, confirmed: bool) -> None:
        """Index a pod that has not ended: on its node, or pending, and as a member of its group."""
        state = self._state
        if pod.node:
            info = state.nodes.get(pod.node) or NodeInfo.empty(pod.node, ids=self._ids)
            state.nodes[pod.node] = info.with_confirmed(pod) if confirmed else info.with_pod(pod)
            # Computed now: the search for what ends first needs that of all pods at once.
            _ = pod.run_deadline
            if pod.has_required_anti_affinity:
                state.anti_affinity[path] = pod
            if pod.deleting:
                state.terminating[path] = pod
        elif pod.nominated_node:
            state.nominated[path] = pod
        if pod.group is not None:
            name = pod.group.path
            group = state.groups.get(name) or PodGroupState()
            state.groups[name] = group.with_pod(pod, assumed=path in self._assumed_pods)

    def _member_changed(self, before: PodInfo | None, pod: PodInfo | None) -> None:
        """Remember of which groups members were evicted, until the next one of theirs has a place."""
        last = pod or before
        if last is None or last.group is None:
            return
        evicted = self._state.evicted_groups
        lives = pod is not None and not pod.terminal
        if not evicted and lives:
            return
        group = last.group.path
        if not lives and last.node and last.preempted:
            evicted[group] = True
        if group in evicted:
            if lives and last.node and (before is None or not before.node):
                del evicted[group]
            self._claims.consumer_changed("podgroups", group)

    def _remove_from_indexes(self, pod: PodInfo, path: str, *, from_node: bool = True, from_group: bool = True) -> None:
        self._state.anti_affinity.pop(path, None)
        self._state.nominated.pop(path, None)
        self._state.terminating.pop(path, None)
        if from_node and pod.node and not pod.terminal:
            info = self._state.nodes.get(pod.node)
            if info is not None and path in info.pods:
                left = info.without_pod(path)
                if left.present or left.pods:
                    self._state.nodes[pod.node] = left
                else:
                    del self._state.nodes[pod.node]
        if from_group and pod.group is not None:
            name = pod.group.path
            group = self._state.groups.get(name)
            if group is not None:
                remaining = group.without_pod(path)
                if remaining.count:
                    self._state.groups[name] = remaining
                else:
                    del self._state.groups[name]

    # The rest

    def _apply_pod_group(self, obj: Obj) -> None:
        path = namespaced_name(obj)
        self._others["PodGroup"][path] = obj
        self._claims.consumer_changed("podgroups", path)

    def _remove_pod_group(self, obj: Obj) -> None:
        path = namespaced_name(obj)
        self._others["PodGroup"].pop(path, None)
        self._state.evicted_groups.pop(path, None)
        self._claims.consumer_changed("podgroups", path)

    def _delete_slice(self, obj: Obj) -> None:
        self._inventory.delete_slice(obj["metadata"]["name"])

    def _delete_taint_rule(self, obj: Obj) -> None:
        self._inventory.delete_taint_rule(obj["metadata"]["name"])

    def _delete_class(self, obj: Obj) -> None:
        self._inventory.delete_class(obj["metadata"]["name"])

    def _changed(self) -> None:
        self._version += 1
        self._snapshot = None


# Kinds with an index of their own whose objects are also asked for as they are.
_KEPT_TOO = frozenset({"DeviceClass", "DeviceTaintRule"})
