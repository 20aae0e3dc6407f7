"""Find what a pod requests of devices: allocated claims, which limit its nodes, and claims to allocate.

Source: KEP-4381 (PreFilter and Filter of the DynamicResources plugin), KEP-5729 (claims shared through the PodGroup),
KEP-5004 (extended resources).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import orjson

from haru.engine.dra.node_mappings import counts_against_node
from haru.engine.framework.interfaces import PASS, FilterFailure, refuse
from haru.engine.framework.options import Options
from haru.engine.plugins.dynamicresources.extended_resources import ExtendedResourceDemand, extended_resource_demand
from haru.engine.plugins.dynamicresources.pod_claims import MAX_RESERVED_FOR, ClaimUse, claim_name, resolve_claims
from haru.engine.state.cache import Snapshot
from haru.engine.state.decision import Reason
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.kube.binding_conditions import failed_condition, is_overdue, missing_condition
from haru.kube.meta import Obj, allocation_of
from haru.kube.pod_containers import containers_of
from haru.kube.selectors import node_selector_matches

PLUGIN = "DynamicResources"
NOT_HERE = "resourceclaim not available on the node"
_TOPIC = "device demands"
_CLASSES_EXIST = "last claim whose classes exist"
_MAX_PODS = 4096


@dataclass(slots=True, unsafe_hash=True)
class DeviceDemand:
    """Hold a pod's claims: all `uses`, those to allocate (`pending`), and the allocations of the others (`fixed`).

    These are the same wherever the pod goes; the claim for its `extended` resources depends on the node, and is last.
    `counts_devices`: devices may take of the node's own resources (KEP-5517); then `containers` says which of the
    pod's containers use which claims, and what else they ask for.
    """

    uses: tuple[ClaimUse, ...] = ()
    pending: tuple[ClaimUse, ...] = ()
    fixed: tuple[tuple[str, Obj], ...] = ()
    extended: ExtendedResourceDemand | None = None
    counts_devices: bool = False
    containers: str = ""
    _asked: list[tuple[str, ...]] = field(default_factory=list, compare=False, repr=False)

    @property
    def asked(self) -> tuple[str, ...]:
        """Return the specs of the claims to allocate, as text."""
        if not self._asked:
            self._asked.append(tuple([_text(use.claim.get("spec")) for use in self.pending]))
        return self._asked[0]

    def asks_like(self, other: DeviceDemand) -> bool:
        """Tell whether the claims to allocate have the specs of another demand's; if so the two share their text."""
        if self._asked is other._asked:
            return True
        if [use.claim.get("spec") for use in self.pending] != [use.claim.get("spec") for use in other.pending]:
            return False
        self._asked = other._asked
        return True

    def for_claims(self, uses: tuple[ClaimUse, ...]) -> DeviceDemand:
        """Return the demand of an equal pod, for other claims with equal specs that have all yet to be allocated."""
        return DeviceDemand(uses, uses, _asked=self._asked)

    @property
    def shape(self) -> tuple[str, ...]:
        """Return a key that is equal for demands that no node can tell apart."""
        asked = self.asked
        more = ("", *self.extended.shape) if self.extended is not None else ()
        return (*asked, self.containers, *(path for path, _ in self.fixed), *more)

    @property
    def backed(self) -> frozenset[str]:
        """Return the extended resources that devices of a class may serve instead of the node."""
        return frozenset(self.extended.backed) if self.extended is not None else frozenset()

    def extended_claim_on(self, node: NodeInfo) -> ClaimUse | None:
        """Return the claim for extended resources on a node."""
        return self.extended.use_on(node) if self.extended is not None else None

    def pending_on(self, node: NodeInfo) -> tuple[ClaimUse, ...]:
        """Return the claims to allocate on a node; the claim for extended resources is last."""
        extended_claim = self.extended_claim_on(node)
        return self.pending if extended_claim is None or extended_claim.allocation else (*self.pending, extended_claim)

    def pending_anywhere(self) -> tuple[ClaimUse, ...]:
        """Return the claims to allocate on a node that serves no extended resource itself."""
        extended_claim = self.extended.widest() if self.extended is not None else None
        return self.pending if extended_claim is None or extended_claim.allocation else (*self.pending, extended_claim)

    def allocated_elsewhere(self, node: NodeInfo) -> Sequence[FilterFailure]:
        """Return why a node cannot use the pod's allocated claims."""
        for path, allocation in self.fixed:
            if not _reaches(allocation, node):
                return (refuse(PLUGIN, "ClaimNotOnNode", NOT_HERE, {"claim": path}),)
        existing = self.extended.existing if self.extended is not None else None
        if self.extended is None or existing is None or existing.allocation is None:
            return PASS
        if self.extended.refuses(node) or not _reaches(existing.allocation, node):
            return (refuse(PLUGIN, "ClaimNotOnNode", NOT_HERE, {"claim": existing.path}),)
        return PASS


def _text(spec: Any) -> str:
    try:
        return orjson.dumps(spec, option=orjson.OPT_SORT_KEYS).decode()
    except orjson.JSONEncodeError:  # no JSON: somebody made the object up
        return json.dumps(spec, sort_keys=True)


def _reaches(allocation: Obj, node: NodeInfo) -> bool:
    selector = allocation.get("nodeSelector")
    return not selector or node_selector_matches(selector, node.name, node.labels)


class _LastDemand:
    """The last demand of a pod whose claims have all yet to be allocated, and what it was computed from."""

    __slots__ = ("_classes", "_demand", "_group", "_workload_claims")

    def __init__(self) -> None:
        self._demand: DeviceDemand | None = None
        self._group: Obj | None = None
        self._workload_claims = False
        self._classes: object = None

    def current(self, overlay: Overlay, pod: PodInfo, group: Obj | None, options: Options) -> DeviceDemand | Reason:
        """Return the demand on this overlay; compute it if anything that it depends on has changed."""
        known = self._demand
        if known is not None and self._holds(known, overlay, pod, group, options):
            return known
        found = new_device_demand(overlay, pod, group, options)
        if isinstance(found, DeviceDemand) and not (found.fixed or found.extended or found.counts_devices):
            self._demand, self._group = found, group
            self._workload_claims, self._classes = options.gates.workload_claims, overlay.snapshot.devices.classes
        return found

    def _holds(self, demand: DeviceDemand, overlay: Overlay, pod: PodInfo, group: Obj | None, options: Options) -> bool:
        snapshot, gates = overlay.snapshot, options.gates
        if group is not self._group or gates.workload_claims is not self._workload_claims:
            return False
        if overlay.next_pass is not None or snapshot.devices.classes is not self._classes:
            return False
        if counts_devices(snapshot, options):
            return False
        for use in demand.uses:
            if snapshot.claims.get(use.path) is not use.claim or overlay.allocation(use.path):
                return False
            if use.path in snapshot.claim_index.in_flight:
                return False
        return not gates.extended_resources or extended_resource_demand(snapshot, pod) is None


def device_demand_of(overlay: Overlay, pod: PodInfo, group: Obj | None, options: Options) -> DeviceDemand | Reason:
    """Return the pod's demand on this overlay, or why no node can meet it."""
    demands: WeakKeyDictionary[PodInfo, _LastDemand]
    demands = overlay.snapshot.decision_cache.get_or_compute(_TOPIC, None, WeakKeyDictionary)
    last = demands.get(pod)
    if last is None:
        if len(demands) >= _MAX_PODS:
            demands.clear()
        last = demands[pod] = _LastDemand()
    return last.current(overlay, pod, group, options)


def new_device_demand(overlay: Overlay, pod: PodInfo, group: Obj | None, options: Options) -> DeviceDemand | Reason:
    """Compute a demand, without looking up what was computed before."""
    uses = resolve_claims(overlay.snapshot, pod, group, workload_claims=options.gates.workload_claims)
    if isinstance(uses, Reason):
        return uses
    pending: list[ClaimUse] = []
    fixed: list[tuple[str, Obj]] = []
    counts = counts_devices(overlay.snapshot, options)
    for use in uses:
        allocation = overlay.allocation(use.path) or use.allocation
        problem = _problem(overlay, use, allocation) or _devices_unusable(use, options)
        if problem is None and allocation is not None and counts:
            problem = _taken(overlay, use, allocation, pod)
        if problem is not None:
            return problem
        if allocation is None:
            pending.append(use)
        else:
            fixed.append((use.path, allocation))
    extended = extended_resource_demand(overlay.snapshot, pod) if options.gates.extended_resources else None
    counts = counts and bool(uses or extended is not None)
    containers = _containers(pod) if counts else ""
    return DeviceDemand(uses, tuple(pending), tuple(fixed), extended, counts, containers)


def _containers(pod: PodInfo) -> str:
    """Return what tells pods of one shape apart where a claim counts as a request of the containers that use it.

    A claim that no container uses is named, for it is refused by name.
    """
    asked = [one.get("resources") or {} for one in containers_of(pod.spec)]
    used = {claim["name"] for resources in asked for claim in resources.get("claims") or ()}
    entries = [(entry.name, entry.name in used or claim_name(pod, entry)) for entry in pod.claims]
    restarts = [one.get("restartPolicy") for one in pod.spec.get("initContainers") or ()]
    return _text([pod.spec.get("resources"), asked, restarts, entries])


def counts_devices(snapshot: Snapshot, options: Options) -> bool:
    """Tell whether devices may use their node's resources: the gate is on and some are published so (KEP-5517)."""
    return options.gates.node_allocatable and snapshot.devices.mapped


def _taken(overlay: Overlay, use: ClaimUse, allocation: Obj, pod: PodInfo) -> Reason | None:
    """Return why a pod cannot share an allocated claim whose devices use the node's resources (KEP-5517)."""
    others = [entry for entry in use.reserved_for if entry.get("uid") != pod.key.uid and _is_used(overlay, entry, pod)]
    if not others and not overlay.consumers(use.path):
        return None
    if not counts_against_node(overlay.snapshot.devices, allocation):
        return None
    name = use.claim["metadata"]["name"]
    message = f"node allocatable resource claim {name} is already used by another pod"
    return Reason("ClaimNotShareable", message, {"claim": use.path})


def _is_used(overlay: Overlay, entry: Obj, pod: PodInfo) -> bool:
    """Tell whether a consumer is another pod; a PodGroup is, once a sibling is scheduled."""
    if entry.get("resource") != "podgroups" or pod.group is None:
        return True
    return overlay.snapshot.group_state(pod.group).has_scheduled_beside(pod.key.path)


def _problem(overlay: Overlay, use: ClaimUse, allocation: Obj | None) -> Reason | None:
    in_flight = use.path in overlay.snapshot.claim_index.in_flight and not use.is_reserved
    if in_flight or (overlay.snapshot.next_pass is not None and _is_reassigned_later(overlay, use)):
        message = f"resource claim {use.path} is in the process of being allocated"
        return Reason("ClaimInFlight", message, {"claim": use.path})
    if allocation is None:
        return outside_class(overlay.snapshot, use) or missing_class(overlay.snapshot, use)
    data = {"claim": use.path}
    if not can_be_reserved(use, overlay.consumers(use.path)):
        message = f"resource claim {use.path} is used by {MAX_RESERVED_FOR} consumers already, which is the limit"
        return Reason("ClaimReservedFull", message, {**data, "limit": MAX_RESERVED_FOR})
    return None


def can_be_reserved(use: ClaimUse, more: Collection[str]) -> bool:
    """Tell whether an allocated claim can be reserved for its user, beside `more` than its status says."""
    return use.is_reserved or use.consumer in more or len(use.reserved_for) + len(more) < MAX_RESERVED_FOR


def _devices_unusable(use: ClaimUse, options: Options) -> Reason | None:
    """Return why devices of an allocated claim will not be ready (KEP-5007)."""
    failed = failed_condition(use.claim)
    if failed:
        message = f"resource claim {use.path}: binding failed: {failed}"
        return Reason("BindingConditions", message, {"claim": use.path, "condition": failed})
    if options.now and is_overdue(use.claim, options.profile.device_timeout, options.now):
        missing = missing_condition(use.claim)
        message = f"resource claim {use.path}: binding timeout: {missing} is not true"
        return Reason("BindingConditions", message, {"claim": use.path, "condition": missing})
    return None


def _is_reassigned_later(overlay: Overlay, use: ClaimUse) -> bool:
    """Tell whether pending evictions will free the claim or allocate it for other pods."""
    later = (moment.claims.get(use.path) for moment in overlay.snapshot.passes[1:])
    return any(bool(allocation_of(claim)) != bool(use.allocation) for claim in later)


def missing_class(snapshot: Snapshot, use: ClaimUse) -> Reason | None:
    """Return the reason if a request names a DeviceClass that does not exist."""
    classes, spec = snapshot.devices.classes, use.claim.get("spec")
    last: list[object] = snapshot.decision_cache.get_or_compute(_CLASSES_EXIST, None, list)
    if last and last[0] is classes and last[1] == spec:
        return None
    if all(class_name in classes for class_name in _class_names(use.claim)):
        last[:] = classes, spec
        return None
    for name, exact in exact_requests(use.claim):
        class_name = exact.get("deviceClassName") or ""
        if class_name not in snapshot.devices.classes:
            message = f"request {name}: device class {class_name} does not exist"
            return Reason(
                "DeviceClassMissing", message, {"claim": use.path, "request": name, "deviceClass": class_name}
            )
    return None


def _class_names(claim: Obj) -> list[str]:
    """List the classes that a claim names. Most claims are asked no more, and so their requests need no names."""
    found: list[str] = []
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        exact = request.get("exactly")
        if exact is not None:
            found.append(exact.get("deviceClassName") or "")
        for alternative in request.get("firstAvailable") or ():
            found.append(alternative.get("deviceClassName") or "")
    return found


def outside_class(snapshot: Snapshot, use: ClaimUse) -> Reason | None:
    """Return the reason if a request names a DeviceClass outside the partition, be it as an alternative."""
    if not snapshot.partition.device_classes:
        return None
    for name, exact in exact_requests(use.claim):
        class_name = exact.get("deviceClassName") or ""
        if not snapshot.partition.has_class(class_name):
            message = f"request {name}: device class {class_name} is outside this scheduler's partition"
            data = {"claim": use.path, "request": name, "deviceClass": class_name}
            return Reason("OutsidePartition", message, {**data, "partition": str(snapshot.partition)})
    return None


def exact_requests(claim: Obj) -> list[tuple[str, Obj]]:
    """List the requests of a claim by name; alternatives are named `request/subrequest`."""
    found: list[tuple[str, Obj]] = []
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        if request.get("exactly") is not None:
            found.append((request["name"], request["exactly"]))
        for alternative in request.get("firstAvailable") or ():
            found.append((f"{request['name']}/{alternative['name']}", alternative))
    return found
