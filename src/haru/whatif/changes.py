"""Hypothetical changes to a cluster, as values, and what each makes of the objects.

A change that names what is not there raises ChangeError, which says what is. Device taints are the DeviceTaintRules of
`haru device taint`; a cordon is what `kubectl cordon` and the node lifecycle controller make of it.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime

from haru.drivers.simulated.objects import PROFILE_LABEL, device_classes, node_object, profile_label
from haru.drivers.simulated.profiles import PLUGIN_RESOURCE, Profile
from haru.drivers.simulated.slices import resource_slices
from haru.engine.dra import DeviceId, Taint
from haru.engine.state import object_path
from haru.explain.changes import listed
from haru.explain.hypothesis import CORDON_TAINT, is_cordoned
from haru.explain.tainting import RULE_VERSION, rule_manifest
from haru.gangs import foreign_kind
from haru.kube.kinds import known_kind
from haru.kube.meta import Obj, labels_of
from haru.kube.names import counted, format_time
from haru.kube.patch.merge_patch import apply_merge_patch
from haru.kube.patch.strategic import apply_strategic_merge_patch
from haru.kube.schema import type_of
from haru.whatif.objects import Objects


class ChangeError(ValueError):
    """A change cannot be made to this cluster; says why, and what would do."""


@dataclass(frozen=True, slots=True)
class Apply:
    """An object is created as `obj`; where there is one of its kind and path, `patch` is merged into that instead.

    `follows`: it comes by itself, as the pods of a Job do, and need not be told.
    """

    obj: Obj
    patch: Obj | None = None
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """An object is deleted with all that it owns; a PodGroup with its pods. `path` is `namespace/name`, or `name`."""

    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class TaintNode:
    """A taint is put on a node, in place of one of the same key and effect."""

    node: str
    taint: Taint


@dataclass(frozen=True, slots=True)
class TaintDevice:
    """A taint is put on one device by a DeviceTaintRule."""

    device: DeviceId
    taint: Taint


@dataclass(frozen=True, slots=True)
class Cordon:
    """A node takes no more pods."""

    node: str


@dataclass(frozen=True, slots=True)
class Repartition:
    """The devices of a node are cut otherwise: its driver's slices become those of a profile."""

    node: str
    profile: Profile


@dataclass(frozen=True, slots=True)
class AddNodes:
    """So many empty nodes of a profile come, with their devices."""

    profile: Profile
    count: int


Change = Apply | Delete | TaintNode | TaintDevice | Cordon | Repartition | AddNodes


def describe(change: Change) -> str:
    """A change in a few words."""
    match change:
        case Apply(obj):
            return f"apply {obj['kind'].lower()} {object_path(obj)}"
        case Delete(kind, path):
            return f"delete {kind.lower()} {path}"
        case TaintNode(node, taint):
            return f"taint node {node} {taint_text(taint)}"
        case TaintDevice(device, taint):
            return f"taint device {device.pool}/{device.device} {taint_text(taint)}"
        case Cordon(node):
            return f"cordon node {node}"
        case Repartition(node, profile):
            return f"repartition node {node} as {profile.name}"
        case AddNodes(profile, count):
            return f"add {counted(count, 'node')} of profile {profile.name}"


def taint_text(taint: Taint) -> str:
    """`KEY=VALUE:EFFECT`."""
    return f"{taint.key}{'=' + taint.value if taint.value else ''}:{taint.effect}"


def apply_change(objects: Objects, change: Change, now: datetime) -> None:
    """Make one change to the objects of a cluster; ChangeError if it cannot be made."""
    match change:
        case Apply(obj, patch):
            objects.put(_merged(objects.get(obj["kind"], object_path(obj)), obj, patch))
        case Delete(kind, path):
            _delete(objects, kind, path)
        case TaintNode(node, taint):
            _taint_node(objects, _node(objects, node), taint, now)
        case TaintDevice(device, taint):
            rule = rule_manifest(device, taint, RULE_VERSION)
            timed = {**rule["spec"]["taint"], "timeAdded": format_time(now)}
            objects.put({**rule, "spec": {**rule["spec"], "taint": timed}})
        case Cordon(node):
            objects.put(_cordoned(_node(objects, node)))
        case Repartition(node, profile):
            _repartition(objects, _node(objects, node), profile)
        case AddNodes(profile, count):
            _add_nodes(objects, profile, count, now)


def _merged(present: Obj | None, obj: Obj, patch: Obj | None) -> Obj:
    if present is None or patch is None:
        return obj
    metadata = {name: value for name, value in patch["metadata"].items() if name not in _IDENTITY}
    if foreign_kind(obj) is not None:
        return apply_merge_patch(present, {**patch, "kind": obj["kind"], "metadata": metadata})
    kind = known_kind(obj["apiVersion"], obj["kind"])
    return apply_strategic_merge_patch(present, {**patch, "metadata": metadata}, type_of(kind))


_IDENTITY = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


# -- nodes -------------------------------------------------------------------------------------------------------------


def _node(objects: Objects, name: str) -> Obj:
    found = objects.get("Node", name)
    if found is None:
        raise ChangeError(f'there is no node "{name}"; {_hint(name, objects.of_kind("Node"))}')
    return found


def _hint(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    if close:
        return f"did you mean {close[0]}?"
    return f"there {'is' if len(known) == 1 else 'are'} {listed(sorted(known)) or 'none'}"


def _taint_node(objects: Objects, node: Obj, taint: Taint, now: datetime) -> None:
    spec = node.get("spec") or {}
    kept = [t for t in spec.get("taints") or () if (t.get("key"), t.get("effect")) != (taint.key, taint.effect)]
    added = {"key": taint.key, "value": taint.value, "effect": taint.effect, "timeAdded": format_time(now)}
    objects.put({**node, "spec": {**spec, "taints": [*kept, {name: text for name, text in added.items() if text}]}})


def _cordoned(node: Obj) -> Obj:
    if is_cordoned(node):
        return node
    spec = node.get("spec") or {}
    taints = [*(spec.get("taints") or ()), {"key": CORDON_TAINT, "effect": "NoSchedule"}]
    return {**node, "spec": {**spec, "unschedulable": True, "taints": taints}}


def _repartition(objects: Objects, node: Obj, profile: Profile) -> None:
    name = node["metadata"]["name"]
    own = {path: s for path, s in objects.of_kind("ResourceSlice").items() if s["spec"].get("nodeName") == name}
    drivers = {s["spec"]["driver"] for s in own.values()}
    if profile.driver and drivers and profile.driver not in drivers:
        there = listed(sorted(drivers))
        raise ChangeError(f"node {name} cannot become {profile.name}: its devices are of {there}, not {profile.driver}")
    replaced = {path: s for path, s in own.items() if s["spec"]["driver"] == profile.driver or not profile.driver}
    _check_cards(name, replaced.values(), profile)
    generation = max((int(s["spec"]["pool"].get("generation") or 0) for s in replaced.values()), default=0) + 1
    for path in replaced:
        objects.remove("ResourceSlice", path)
    for made in resource_slices(profile, name, str(node["metadata"].get("uid") or ""), {}, generation):
        objects.put(made)
    labels = {**labels_of(node), PROFILE_LABEL: profile_label(profile)}
    status = dict(node.get("status") or {})
    for field in ("capacity", "allocatable"):
        others = {key: value for key, value in (status.get(field) or {}).items() if key != PLUGIN_RESOURCE}
        status[field] = {**others, **profile.extended}
    objects.put({**node, "metadata": {**node["metadata"], "labels": labels}, "status": status})


def _check_cards(node: str, slices: Iterable[Obj], profile: Profile) -> None:
    """The same hardware, cut otherwise: the products that the devices tell of must be those of the profile."""
    told = {
        str(product.get("string"))
        for s in slices
        for device in s["spec"].get("devices") or ()
        if (product := (device.get("attributes") or {}).get("productName"))
    }
    wanted = {card.model.product for card in profile.cards}
    if told and wanted and told != wanted:
        raise ChangeError(
            f"node {node} cannot become {profile.name}: its cards are {listed(sorted(told))}, "
            f"those of the profile {listed(sorted(wanted))}"
        )


def _add_nodes(objects: Objects, profile: Profile, count: int, now: datetime) -> None:
    for made in device_classes():
        if profile.driver and objects.get("DeviceClass", made["metadata"]["name"]) is None:
            objects.put(made)
    number = 0
    for _ in range(count):
        while objects.get("Node", f"{profile.name}-{number}") is not None:
            number += 1
        name = f"{profile.name}-{number}"
        node = node_object(profile, name, internal_ip="", now=format_time(now))
        uid = f"Node//{name}"
        objects.put({**node, "metadata": {**node["metadata"], "uid": uid}})
        for made in resource_slices(profile, name, uid, {}, 1):
            objects.put(made)


# -- deleting ----------------------------------------------------------------------------------------------------------


def _delete(objects: Objects, kind: str, path: str) -> None:
    if objects.get(kind, path) is None:
        raise ChangeError(f'there is no {kind.lower()} "{path}"; {_hint(path, objects.of_kind(kind))}')
    if kind == "ResourceClaim":
        _check_unused(objects, path)
    if kind == "PodGroup":
        namespace, _, name = path.partition("/")
        for pod_path, pod in objects.of_kind("Pod").items():
            group = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
            if group == name and (pod["metadata"].get("namespace") or "default") == namespace:
                objects.end_pod(pod_path)
    objects.remove(kind, path)


def _check_unused(objects: Objects, path: str) -> None:
    claim = objects.get("ResourceClaim", path) or {}
    users = [str(entry.get("name")) for entry in (claim.get("status") or {}).get("reservedFor") or ()]
    if users:
        raise ChangeError(f"resourceclaim {path} is in use by {listed(users)}: it goes once they have gone")
