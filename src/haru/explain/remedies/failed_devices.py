"""Devices that a pod holds and cannot use: its driver fails to prepare them, they are unhealthy, or tainted since.

The way out is another device: the bad one gets a taint, so that nobody is given it again, and the pod is made again.
That is tried. Where no device is named, or the driver itself is away, it is the node that is left.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from haru.engine import Options, Reason, Snapshot
from haru.engine.dra import DeviceId, Taint
from haru.engine.state import PodInfo
from haru.explain import hypothesis
from haru.explain.changes import create, listed, patch
from haru.explain.diagnosis.allocations import held_by
from haru.explain.explanation import Remedy
from haru.explain.remedies.commands import made_again_command
from haru.explain.remedies.new_place import held_devices, made_again, new_place
from haru.explain.tainting import RULE_VERSION, rule_manifest
from haru.kube.meta import Obj

_PLUGIN_FOLDERS: Final = ("/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins_registry")


def preparation_remedies(snapshot: Snapshot, pod: PodInfo, reason: Reason, options: Options) -> Iterator[Remedy]:
    """Another device, or another node; and where the driver says more.

    Claims that are not reserved for the pod are reserved by the scheduler.
    """
    message, held = reason.message, held_devices(snapshot, pod)
    if "is not allowed to use" in message or ": not allocated" in message:
        yield from _reserved_again(snapshot, pod, options)
        return
    named = [device for device in held if re.search(rf"(?<![\w-]){re.escape(device.device)}(?![\w-])", message)]
    bad = named or (held if len(held) == 1 else [])
    if bad:
        yield from _other_device(snapshot, pod, bad, "failed-preparation", options)
    elif held:
        yield from _other_node(snapshot, pod, options)
    for driver in sorted({device.driver for device in held}):
        yield _driver_log(snapshot, pod.node, driver)


def device_remedies(snapshot: Snapshot, pod: PodInfo, reason: Reason, options: Options) -> Iterator[Remedy]:
    """Another device in place of one that is unhealthy, or tainted."""
    name = str(reason.data["device"])
    bad = [
        device
        for device in held_devices(snapshot, pod)
        if str(device) == name or f"{device.pool}/{device.device}" == name
    ]
    if bad:
        yield from _other_device(snapshot, pod, bad, "unhealthy" if reason.type == "DeviceUnhealthy" else "", options)


def _reserved_again(snapshot: Snapshot, pod: PodInfo, options: Options) -> Iterator[Remedy]:
    """The scheduler allocates and reserves claims only for pods without a node."""
    if new_place(snapshot, pod, options) is None:
        return
    changes, costs = made_again([pod])
    text = f"make pod {pod.key.name} again, so that the scheduler reserves its claims for it"
    yield Remedy("RestartPod", text, changes, 3, True, costs, made_again_command(snapshot, [pod]))


def _other_device(
    snapshot: Snapshot, pod: PodInfo, bad: Sequence[DeviceId], key: str, options: Options
) -> Iterator[Remedy]:
    """Taint the devices, unless they have a taint already (no `key`), and make the pod again."""
    taint = Taint(key, "", "NoSchedule")
    tainted = hypothesis.with_device_taint(snapshot, bad, taint) if key else snapshot
    users = _users(snapshot, pod, bad)
    place = new_place(tainted, pod, options, bad, users)
    if place is None:
        return
    names = listed([f"{device.pool}/{device.device}" for device in bad])
    changes, costs = made_again(users)
    again = made_again_command(snapshot, users)
    moved = f"{'pod' if len(users) == 1 else 'pods'} {listed([user.key.name for user in users])}"
    if not key:
        yield Remedy("MoveWork", f"move {moved} from {names} to {place.text}", changes, 3, True, costs, again)
        return
    rules = tuple(create(rule_manifest(device, taint, RULE_VERSION)) for device in bad)
    steps = [f"haru device taint {device.driver}/{device.pool}/{device.device} {taint}" for device in bad]
    text = f"taint {names} and move {moved} to {place.text}"
    yield Remedy("TaintDevice", text, (*rules, *changes), 3, True, costs, " && ".join([*steps, again]))


def _other_node(snapshot: Snapshot, pod: PodInfo, options: Options) -> Iterator[Remedy]:
    """Cordon the node, and make the pod again on another one."""
    place = new_place(hypothesis.with_nodes(snapshot, hypothesis.cordoned, [pod.node]), pod, options)
    if place is None or place.node == pod.node:
        return
    changes, costs = made_again([pod])
    cordon = patch("v1", "Node", pod.node, {"spec": {"unschedulable": True}})
    text = f"cordon {pod.node} and move pod {pod.key.name} to {place.node}"
    costs += f"; no new pods on {pod.node} until it is uncordoned"
    line = f"kubectl cordon {pod.node} && {made_again_command(snapshot, [pod])}"
    yield Remedy("CordonNode", text, (cordon, *changes), 4, True, costs, line)


def _users(snapshot: Snapshot, pod: PodInfo, bad: Collection[DeviceId]) -> list[PodInfo]:
    """The pod, and those that share its claims on these devices."""
    held = (h for h in held_by(snapshot, pod) if any(DeviceId(d.driver, d.pool, d.device) in bad for d in h.devices))
    paths = {pod.key.path, *(path for claim in held for path in claim.users)}
    return [snapshot.pods[path] for path in sorted(paths) if path in snapshot.pods]


def _driver_log(snapshot: Snapshot, node: str, driver: str) -> Remedy:
    """Where the driver says more: the log of its pod on the node, or what it publishes for the node."""
    found = next(
        (p for p in _pods_on(snapshot, node) if any(map(_is_plugin_folder, p.spec.get("volumes") or ()))), None
    )
    costs = "what the driver lacks on the node is for whoever runs it to mend"
    if found is not None:
        text = f"read what driver {driver} says on {node}: pod {found.key.path}"
        line = f"kubectl logs {found.key.name} -n {found.key.namespace} --all-containers --tail=50"
    else:
        text = f"look at driver {driver} on {node}: its pod, and the ResourceSlices that it publishes"
        line = f"kubectl get resourceslices --field-selector=spec.driver={driver},spec.nodeName={node}"
    return Remedy("InspectDriver", text, (), 6, False, costs, line)


def _pods_on(snapshot: Snapshot, node: str) -> Iterator[PodInfo]:
    info = snapshot.nodes.get(node)
    for path in sorted(info.pods) if info is not None else ():
        yield snapshot.pods[path]


def _is_plugin_folder(volume: Obj) -> bool:
    """Whether a volume is where drivers have their sockets for the kubelet."""
    path = str((volume.get("hostPath") or {}).get("path") or "").rstrip("/")
    return path.startswith(_PLUGIN_FOLDERS)
