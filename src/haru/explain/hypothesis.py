"""The cluster as it would be: other snapshots made from one, each by one change, none of them touching it.

Whatever a remedy promises is tried on such a snapshot with the same `decide` that schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from haru.engine import Decision, Snapshot
from haru.engine.dra import (
    AllocatedState,
    Device,
    DeviceId,
    DeviceSnapshot,
    Placement,
    Pool,
    PoolKey,
    Slice,
    Taint,
    decode_class,
)
from haru.engine.plugins import attachments_of_pods
from haru.engine.state import (
    GroupKey,
    NodeInfo,
    NodeSpec,
    Patched,
    PodGroupState,
    PodInfo,
    consumer_key,
    freed,
    is_user,
)
from haru.kube.meta import Obj, allocation_of, controller_of, name_of

CORDON_TAINT = "node.kubernetes.io/unschedulable"


def without_pods(snapshot: Snapshot, paths: Iterable[str]) -> Snapshot:
    """As if pods were gone, and the claims that nobody else uses were free again."""
    gone = {path: snapshot.pods[path] for path in paths if path in snapshot.pods}
    smaller = _with_claims_left(snapshot, gone)
    idle = [path for path in _claims_of(snapshot, gone.values()) if _idle(smaller, path)]
    return _released(smaller, idle, snapshot.allocated.freed(idle))


def _with_claims_left(snapshot: Snapshot, gone: Mapping[str, PodInfo]) -> Snapshot:
    """As if pods were gone, and had left their claims as they are; each node and group is made anew once."""
    on_nodes: dict[str, set[str]] = {}
    of_groups: dict[GroupKey, set[str]] = {}
    for path, pod in gone.items():
        if pod.node:
            on_nodes.setdefault(pod.node, set()).add(path)
        if pod.group is not None:
            of_groups.setdefault(pod.group, set()).add(path)
    nodes = {name: info.without_pods(own) for name, own in on_nodes.items() if (info := snapshot.nodes.get(name))}
    groups = {group.path: snapshot.group_state(group).without(own) for group, own in of_groups.items()}
    # Every decision reads these small indexes as a whole: only what is in them is taken out.
    indexed = [*snapshot.pod_index.anti_affinity, *snapshot.pod_index.terminating]
    return replace(
        snapshot,
        pods=Patched(snapshot.pods, dict.fromkeys(gone)),
        nodes=Patched(snapshot.nodes, nodes),
        podgroup_index=snapshot.podgroup_index.with_states(groups),
        pod_index=snapshot.pod_index.without({path: None for path in indexed if path in gone}),
    )


def consumers(snapshot: Snapshot, claim: Obj) -> list[PodInfo]:
    """The living pods that a claim is reserved for, those of a PodGroup included."""
    found: list[PodInfo] = []
    namespace = claim["metadata"].get("namespace") or "default"
    for entry in (claim.get("status") or {}).get("reservedFor") or ():
        if entry.get("resource") == "podgroups":
            state = snapshot.group_state(GroupKey(namespace, entry["name"]))
            found += [snapshot.pods[path] for path in sorted(state.scheduled)]
        else:
            pod = snapshot.pods.get(f"{namespace}/{entry.get('name')}")
            if pod is not None and is_user(entry, pod):
                found.append(pod)
    return found


def _claims_of(snapshot: Snapshot, pods: Iterable[PodInfo]) -> list[str]:
    """The allocated claims that are reserved for pods or for their groups."""
    found: set[str] = set()
    for pod in pods:
        found |= (
            snapshot.claim_index.by_consumer.get(consumer_key("pods", pod.key.namespace, pod.key.name)) or frozenset()
        )
        if pod.group is not None:
            found |= snapshot.claim_index.by_consumer.get(consumer_key("podgroups", *pod.group)) or frozenset()
    return sorted(found)


def _idle(snapshot: Snapshot, path: str) -> bool:
    claim = snapshot.claims[path]
    return bool(allocation_of(claim)) and not consumers(snapshot, claim)


def _released(snapshot: Snapshot, paths: Iterable[str], allocated: AllocatedState) -> Snapshot:
    """As if claims were free, which leaves `allocated`."""
    claims: dict[str, Obj | None] = {path: freed(snapshot.claims[path]) for path in paths}
    return replace(
        snapshot,
        claims=Patched(snapshot.claims, claims),
        claim_index=snapshot.claim_index.with_in_flight(
            {path: None for path in snapshot.claim_index.in_flight if path in claims}
        ),
        allocated=allocated,
    )


def attached_by_pods(snapshot: Snapshot) -> Snapshot:
    """As if the volumes that pods use were attached by these alone: they are detached once the pods are gone."""
    gone = {name_of(attachment): None for attachment in attachments_of_pods(snapshot)}
    if not gone:
        return snapshot
    rest = Patched(snapshot.objects("VolumeAttachment"), gone)
    return replace(snapshot, others={**snapshot.others, "VolumeAttachment": rest})


def emptied(snapshot: Snapshot, keep: Iterable[str]) -> Snapshot:
    """As if nothing ran but what is kept: every other pod gone, every other claim free, volumes detached."""
    kept, snapshot = set(keep), replace(snapshot, others={**snapshot.others, "VolumeAttachment": {}})
    smaller = _with_claims_left(snapshot, {path: pod for path, pod in snapshot.pods.items() if path not in kept})
    used = {path for path in _claims_of(snapshot, smaller.pods.values()) if not _idle(smaller, path)}
    idle = [path for path, claim in smaller.claims.items() if path not in used and allocation_of(claim)]
    # Without claims that are kept, allocations of claims that exist no more are forgotten too.
    return _released(smaller, idle, smaller.allocated.freed(idle) if used else AllocatedState.from_claims(()))


def with_nodes(snapshot: Snapshot, change: Callable[[Obj], Obj], names: Iterable[str]) -> Snapshot:
    """As if several nodes were different in the same way."""
    changed: dict[str, NodeInfo | None] = {}
    for name in names:
        info = snapshot.nodes[name]
        changed[name] = info.with_spec(NodeSpec.of(change(info.spec.obj), info.ids))
    return replace(snapshot, nodes=Patched(snapshot.nodes, changed))


def uncordoned(node: Obj) -> Obj:
    """A node that takes pods; the taint that stands for a cordon goes with it."""
    spec = {k: v for k, v in (node.get("spec") or {}).items() if k != "unschedulable"}
    spec["taints"] = [taint for taint in spec.get("taints") or () if taint.get("key") != CORDON_TAINT]
    return {**node, "spec": spec}


def cordoned(node: Obj) -> Obj:
    """A node that takes no new pods."""
    return {**node, "spec": {**(node.get("spec") or {}), "unschedulable": True}}


def is_cordoned(node: Obj) -> bool:
    """Whether a node is closed to pods by hand."""
    spec = node.get("spec") or {}
    return bool(spec.get("unschedulable")) or any(t.get("key") == CORDON_TAINT for t in spec.get("taints") or ())


def untainted(node: Obj) -> Obj:
    """A node without the taints that keep pods away."""
    spec = node.get("spec") or {}
    kept = [taint for taint in spec.get("taints") or () if not repels(taint)]
    return {**node, "spec": {**spec, "taints": kept}}


def repels(taint: Obj) -> bool:
    """Whether a node taint keeps pods away that do not tolerate it, apart from the one that stands for a cordon."""
    return taint.get("effect") in ("NoSchedule", "NoExecute") and taint.get("key") != CORDON_TAINT


def with_pods(snapshot: Snapshot, pods: Iterable[PodInfo]) -> Snapshot:
    """As if these pending pods existed (or were different)."""
    changed = {pod.key.path: pod for pod in pods}
    groups: dict[str, PodGroupState | None] = {}
    for path, pod in changed.items():
        if pod.group is not None and path not in snapshot.pods:
            state = groups.get(pod.group.path) or snapshot.group_state(pod.group)
            groups[pod.group.path] = state.with_pod(pod, assumed=False)
    return replace(
        snapshot, pods=Patched(snapshot.pods, changed), podgroup_index=snapshot.podgroup_index.with_states(groups)
    )


def as_pending(pod: PodInfo) -> PodInfo:
    """The pod as it would be created again, with the claims that it has."""
    statuses = {key: value for key, value in pod.status.items() if key == "resourceClaimStatuses"}
    spec = {key: value for key, value in pod.spec.items() if key != "nodeName"}
    return PodInfo.of({**pod.obj, "spec": spec, "status": {**statuses, "phase": "Pending"}})


def made_anew(
    snapshot: Snapshot, pods: Iterable[PodInfo], nodes: Collection[str] = ()
) -> tuple[Snapshot, list[PodInfo]]:
    """As if controllers had made pods once more, each with claims of its own that are not allocated; and those pods.

    With `nodes` they go to no others.
    """
    copies: list[PodInfo] = []
    claims: dict[str, Obj] = {}
    for pod in pods:
        meta = _anew({key: value for key, value in pod.obj["metadata"].items() if key != "deletionTimestamp"})
        entries = []
        for entry in pod.status.get("resourceClaimStatuses") or ():
            claim = snapshot.claims.get(f"{pod.key.namespace}/{entry.get('resourceClaimName')}")
            owner = controller_of(claim) if claim is not None else None
            if claim is not None and owner is not None and owner.get("uid") == pod.key.uid:
                own = _anew(
                    {**claim["metadata"], "ownerReferences": [{**owner, "name": meta["name"], "uid": meta["uid"]}]}
                )
                claims[f"{pod.key.namespace}/{own['name']}"] = {**claim, "metadata": own, "status": {}}
                entry = {**entry, "resourceClaimName": own["name"]}
            entries.append(entry)
        status = {**pod.status, "resourceClaimStatuses": entries}
        spec = _only_on(pod.spec, nodes) if nodes else pod.spec
        copies.append(as_pending(PodInfo.of({**pod.obj, "metadata": meta, "spec": spec, "status": status})))
    return with_claims(with_pods(snapshot, copies), claims), copies


def _anew(meta: Obj) -> Obj:
    return {**meta, "name": f"{meta['name']}-anew", "uid": f"{meta.get('uid', '')}-anew"}


def _only_on(spec: Mapping[str, Any], nodes: Collection[str]) -> Obj:
    """A pod's spec that requires one of these nodes as well."""
    affinity = spec.get("affinity") or {}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = ((affinity.get("nodeAffinity") or {}).get(required) or {}).get("nodeSelectorTerms") or [{}]
    names = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in sorted(nodes)]
    both = [{**term, "matchFields": [*(term.get("matchFields") or ()), name]} for term in terms for name in names]
    of_nodes = {**(affinity.get("nodeAffinity") or {}), required: {"nodeSelectorTerms": both}}
    return {**spec, "affinity": {**affinity, "nodeAffinity": of_nodes}}


def with_places(snapshot: Snapshot, decision: Decision) -> Snapshot:
    """As if a decision had been carried out: its pods on their nodes, with their devices, which may take of these."""
    nodes: dict[str, NodeInfo | None] = {}
    pods: dict[str, PodInfo | None] = {}
    groups: dict[str, PodGroupState | None] = {}
    claims: dict[str, Obj | None] = {}
    allocated = snapshot.allocated
    for member in decision.placed:
        path, name = member.pod.path, member.node or ""
        bound = snapshot.pods[path].bound_to(name, member.claimed)
        pods[path] = bound
        nodes[name] = (nodes.get(name) or snapshot.nodes[name]).with_pod(bound)
        if bound.group is not None:
            state = groups.get(bound.group.path) or snapshot.group_state(bound.group)
            groups[bound.group.path] = state.without_pod(path).with_pod(bound, assumed=True)
        for given in member.allocations:
            if given.path in snapshot.claims:
                status = {"allocation": given.allocation, "reservedFor": [given.reserve_for]}
                claims[given.path] = {**snapshot.claims[given.path], "status": status}
            allocated = allocated.with_allocation(given.path, given.allocation)
    return replace(
        snapshot,
        nodes=Patched(snapshot.nodes, nodes),
        pods=Patched(snapshot.pods, pods),
        podgroup_index=snapshot.podgroup_index.with_states(groups),
        claims=Patched(snapshot.claims, claims),
        allocated=allocated,
        pod_index=snapshot.pod_index.with_anti_affinity(
            {path: pod for path, pod in pods.items() if pod and pod.has_required_anti_affinity}
        ),
    )


def with_claims(snapshot: Snapshot, claims: Mapping[str, Obj]) -> Snapshot:
    """As if these claims, none of them allocated, existed (or were different)."""
    return replace(snapshot, claims=Patched(snapshot.claims, dict(claims)))


def with_pod_group(snapshot: Snapshot, path: str, group: Obj) -> Snapshot:
    """As if a PodGroup existed (or were different)."""
    return replace(snapshot, others={**snapshot.others, "PodGroup": Patched(snapshot.pod_groups, {path: group})})


def with_objects(snapshot: Snapshot, kind: str, objects: Mapping[str, Obj]) -> Snapshot:
    """As if these objects of a kind without an index of its own existed (or were different), by path."""
    return replace(snapshot, others={**snapshot.others, kind: Patched(snapshot.objects(kind), dict(objects))})


def with_device_class(snapshot: Snapshot, obj: Obj) -> Snapshot:
    """As if a DeviceClass existed (or were different)."""
    name, decoded = obj["metadata"]["name"], decode_class(obj)
    devices = replace(snapshot.devices, classes=Patched(snapshot.devices.classes, {name: decoded}))
    return replace(with_objects(snapshot, "DeviceClass", {name: obj}), devices=devices)


def with_events(snapshot: Snapshot, events: Iterable[Obj]) -> Snapshot:
    """With these events beside those that are there."""
    more = {f"{event['metadata'].get('namespace') or 'default'}/{event['metadata']['name']}": event for event in events}
    if not more:
        return snapshot
    return replace(snapshot, others={**snapshot.others, "Event": {**snapshot.objects("Event"), **more}})


def without_device_taints(snapshot: Snapshot, drop: Callable[[PoolKey, Device, Taint], bool]) -> Snapshot:
    """As if some taints were taken off their devices."""
    changed: dict[str, Pool | None] = {}
    for key, pool in snapshot.devices.pools.items():
        slices = [_untainted_slice(item, drop) for item in pool.slices]
        if any(new is not old for new, old in zip(slices, pool.slices, strict=True)):
            changed[key] = Pool(pool.key, slices, pool.tables)
    devices = replace(snapshot.devices, pools=Patched(snapshot.devices.pools, changed))
    return replace(snapshot, devices=devices)


def with_device_taint(snapshot: Snapshot, devices: Collection[DeviceId], taint: Taint) -> Snapshot:
    """As if these devices had one more taint."""
    wanted = set(devices)
    changed: dict[str, Pool | None] = {}
    for pool_key in {PoolKey(device.driver, device.pool) for device in wanted}:
        pool = snapshot.devices.pools.get(str(pool_key))
        for_pool = {device.device for device in wanted if device[:2] == pool_key}
        if pool is not None:
            slices = [replace(s, devices=tuple(_tainted(d, for_pool, taint) for d in s.devices)) for s in pool.slices]
            changed[str(pool_key)] = Pool(pool.key, slices, pool.tables)
    return replace(snapshot, devices=replace(snapshot.devices, pools=Patched(snapshot.devices.pools, changed)))


def _tainted(device: Device, names: Collection[str], taint: Taint) -> Device:
    return replace(device, taints=(*device.taints, taint)) if device.name in names else device


def _untainted_slice(item: Slice, drop: Callable[[PoolKey, Device, Taint], bool]) -> Slice:
    if not any(device.taints for device in item.devices):
        return item

    def cleaned(device: Device) -> Device:
        kept = tuple(taint for taint in device.taints if not drop(item.pool, device, taint))
        return device if len(kept) == len(device.taints) else replace(device, taints=kept)

    devices = tuple(cleaned(device) for device in item.devices)
    return item if all(a is b for a, b in zip(devices, item.devices, strict=True)) else replace(item, devices=devices)


def with_copies(
    snapshot: Snapshot,
    model: str,
    count: int,
    change: Callable[[Obj], Obj] | None = None,
    absent: Collection[PoolKey] = (),
) -> tuple[Snapshot, list[Obj]]:
    """As if there were more nodes like one that exists, empty, with devices like its own; and their Node objects.

    `change` is what else is different in them; nobody publishes devices like those of the `absent` pools.
    """
    info = snapshot.nodes[model]
    nodes: dict[str, NodeInfo | None] = {}
    pools: dict[str, Pool | None] = {}
    by_node: dict[str, frozenset[str] | None] = {}
    manifests: list[Obj] = []
    for number in range(1, count + 1):
        name = f"{model}-copy-{number}"
        manifest = _renamed(info.spec.obj, model, name)
        manifest = change(manifest) if change is not None else manifest
        manifests.append(manifest)
        nodes[name] = NodeInfo.empty(name, NodeSpec.of(manifest, info.ids), info.ids)
        own = (snapshot.devices.pools[key] for key in _own_pools(snapshot.devices, model))
        copies = [_copied(pool, model, name) for pool in own if pool.key not in absent]
        pools.update({str(pool.key): pool for pool in copies})
        by_node[name] = frozenset(str(pool.key) for pool in copies)
    devices = replace(
        snapshot.devices,
        pools=Patched(snapshot.devices.pools, pools),
        by_node=Patched(snapshot.devices.by_node, by_node),
    )
    larger = replace(
        snapshot,
        nodes=Patched(snapshot.nodes, nodes),
        node_names=tuple(sorted((*snapshot.node_names, *nodes))),
        devices=devices,
    )
    return larger, manifests


def _own_pools(devices: DeviceSnapshot, node: str) -> list[str]:
    """Pools that belong to one node altogether: those come with every node of its kind."""
    keys = devices.by_node.get(node) or frozenset()
    return [key for key in sorted(keys) if all(s.placement.node_name == node for s in devices.pools[key].slices)]


def _copied(pool: Pool, model: str, name: str) -> Pool:
    key = PoolKey(pool.key.driver, f"{pool.key.pool}-of-{name}")
    place = Placement(node_name=name)
    slices = [replace(s, name=f"{s.name}-of-{name}", pool=key, placement=place) for s in pool.slices]
    return Pool(key, slices, pool.tables)


def _is_of_state(taint: Obj) -> bool:
    """Whether a taint stands for the state of one node, such as a cordon or a lost kubelet."""
    return str(taint.get("key")).startswith("node.kubernetes.io/")


def _renamed(node: Obj, model: str, name: str) -> Obj:
    meta = node["metadata"]
    labels = {key: name if value == model else value for key, value in (meta.get("labels") or {}).items()}
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    taints = (node.get("spec") or {}).get("taints")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {} if taints is None else {"taints": [taint for taint in taints if not _is_of_state(taint)]},
        "status": {"allocatable": allocatable, "capacity": (node.get("status") or {}).get("capacity") or allocatable},
    }
